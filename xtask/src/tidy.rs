//! What a reader or a build would trip over: crates that depend upwards, dependencies that nobody uses, licences, phrases that
//! mislead, links that lead nowhere, documents that are not here, figures that no result file has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::Value;

use crate::project;

/// The crates of the engine, each below those after it; an arrow leads down only (`ARCHITECTURE.md`).
const LAYERS: [&str; 15] = [
    "types",
    "testing",
    "storage",
    "expr",
    "state",
    "state-remote",
    "enrich",
    "window",
    "flow",
    "connect",
    "table",
    "sql",
    "node",
    "server",
    "cli",
];

/// Phrases that misled readers, and what to write.
const PHRASES: &[(&str, &str)] = &[
    (r"\b(is|are) none\b", "there is no …, or: is not a …"),
    (r"\bstands? beside\b", "is next to, is kept in"),
    (r"\b(rows|records|bytes|written|after the commit|commit) behind\b", "after, newer than"),
    (r"\bbehind the (last )?(commit|marker|record)\b", "after, newer than"),
    (r"\bgoes by its\b", "uses its"),
    (r"\bis told (by|so)\b", "is identified by, is reported"),
    (r"\b(comes|come) again\b", "is replayed, is sent a second time"),
    (r"\bdone again\b", "replayed"),
    (r"\bas safe as\b.*\bsays\b", "durable as … requires"),
    (r"\bstumbled over\b", "that stopped the job"),
    (r"\bnothing beside\b", "nothing else"),
];

/// Documents that are not in the repository.
const ELSEWHERE: &[&str] =
    &[r"\bdesign,? section \d", r"\bdesign\.md\b", r"\b[Ss]eed 0\d\d\b", r"\bcluster\.md\b"];

fn tracked(ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![project::root()];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> =
            fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry")).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let is_built = name == "target" && folder.join("Cargo.toml").is_file();
            if path.is_dir() && !is_built && name != ".git" && name != "node_modules" {
                folders.push(path);
            } else if path.is_file() && ends.iter().any(|end| name.ends_with(end)) {
                found.push(path);
            }
        }
    }
    found
}

fn name_of(path: &Path) -> String {
    path.strip_prefix(project::root()).unwrap_or(path).display().to_string()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Documents for users; decisions and results are not rewritten.
fn documents() -> Vec<PathBuf> {
    let is_for_users = |path: &PathBuf| {
        let name = name_of(path);
        !["docs/decisions/", "docs/benchmarks/", "CHANGELOG.md", "bench/", "fuzz/", "fixtures/"]
            .iter()
            .any(|other| name.starts_with(other))
    };
    tracked(&[".md"]).into_iter().filter(is_for_users).collect()
}

fn nothing(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn metadata() -> Value {
    let output = project::cargo()
        .args(["metadata", "--format-version", "1", "--offline"])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn members(metadata: &Value) -> Vec<&Value> {
    let ids: BTreeSet<&str> =
        metadata["workspace_members"].as_array().expect("members").iter().filter_map(Value::as_str).collect();
    metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .filter(|package| ids.contains(text(package, "id")))
        .collect()
}

#[test]
fn crates_depend_downwards_only() {
    let metadata = metadata();
    let level = |name: &str| LAYERS.iter().position(|layer| name.strip_prefix("thalweg-") == Some(layer));
    let mut faults = Vec::new();
    let mut seen = 0;
    for package in members(&metadata) {
        let Some(own) = level(text(package, "name")) else { continue };
        seen += 1;
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let is_test = text(dependency, "kind") == "dev";
            if let Some(other) = level(text(dependency, "name"))
                && other >= own
                && !is_test
            {
                faults.push(format!("{} depends on {}", text(package, "name"), text(dependency, "name")));
            }
        }
    }
    assert_eq!(seen, LAYERS.len());
    nothing(&faults);
}

/// What a package's library is called, which may differ from the package.
fn library(metadata: &Value, package: &str) -> String {
    let packages = metadata["packages"].as_array().expect("packages");
    let found = packages.iter().find(|one| text(one, "name") == package);
    let targets = found.and_then(|package| package["targets"].as_array()).into_iter().flatten();
    let is_library = |target: &&Value| {
        let kinds = target["kind"].as_array().into_iter().flatten().filter_map(Value::as_str);
        kinds.into_iter().any(|kind| kind.contains("lib") || kind == "proc-macro")
    };
    let name = targets.into_iter().find(is_library).map_or(package, |target| text(target, "name"));
    name.replace('-', "_")
}

#[test]
fn every_dependency_is_used() {
    let metadata = metadata();
    let mut faults = Vec::new();
    for package in members(&metadata) {
        let folder = Path::new(text(package, "manifest_path")).parent().expect("a folder").to_owned();
        let mut source = String::new();
        for path in tracked(&[".rs"]).iter().filter(|path| path.starts_with(&folder)) {
            source.push_str(&read(path));
        }
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let name = match dependency["rename"].as_str() {
                Some(renamed) => renamed.replace('-', "_"),
                None => library(&metadata, text(dependency, "name")),
            };
            if !Regex::new(&format!(r"\b{name}\b")).expect("a pattern").is_match(&source) {
                faults.push(format!("{}: {name}", text(package, "name")));
            }
        }
    }
    nothing(&faults);
}

#[test]
fn licences_are_permissive_and_sources_known() {
    const ALLOWED: [&str; 12] = [
        "Apache-2.0",
        "MIT",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "CDLA-Permissive-2.0",
        "ISC",
        "MPL-2.0",
        "Unicode-3.0",
        "Unlicense",
        "Zlib",
    ];
    let metadata = metadata();
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let licence = text(package, "license")
            .replace('/', " OR ")
            .replace(['(', ')'], "")
            .replace(" WITH LLVM-exception", "");
        // Of alternatives one is enough, of parts all are needed.
        let fits =
            licence.split(" AND ").all(|part| part.split(" OR ").any(|name| ALLOWED.contains(&name.trim())));
        if !fits {
            faults.push(format!("{}: {}", text(package, "name"), text(package, "license")));
        }
        let source = text(package, "source");
        if !source.is_empty() && !source.starts_with("registry+https://github.com/rust-lang/crates.io-index")
        {
            faults.push(format!("{} comes from {source}", text(package, "name")));
        }
    }
    nothing(&faults);
}

#[test]
fn crates_say_what_they_are() {
    let metadata = metadata();
    let mut faults = Vec::new();
    for package in members(&metadata) {
        for key in ["description", "license", "rust_version"] {
            if package[key].as_str().is_none_or(str::is_empty)
                && text(package, "name") != "thalweg-example-custom"
            {
                faults.push(format!("{} has no {key}", text(package, "name")));
            }
        }
    }
    nothing(&faults);
}

#[test]
fn documents_have_none_of_the_phrases_that_misled_readers() {
    let patterns: Vec<(Regex, &str)> = PHRASES
        .iter()
        .map(|(pattern, instead)| (Regex::new(pattern).expect("a pattern"), *instead))
        .collect();
    let mut faults = Vec::new();
    for path in documents() {
        for (number, line) in read(&path).lines().enumerate() {
            for (pattern, instead) in &patterns {
                if let Some(found) = pattern.find(line) {
                    faults.push(format!(
                        "{}:{}: {:?}; write {instead}",
                        name_of(&path),
                        number + 1,
                        found.as_str()
                    ));
                }
            }
        }
    }
    nothing(&faults);
}

#[test]
fn nothing_refers_to_a_document_that_is_not_here() {
    let pattern = Regex::new(&ELSEWHERE.join("|")).expect("a pattern");
    let mut faults = Vec::new();
    for path in tracked(&[".md", ".rs", ".yaml", ".toml"]) {
        if path.ends_with("xtask/src/tidy.rs") || name_of(&path).starts_with("docs/benchmarks/results") {
            continue;
        }
        for (number, line) in read(&path).lines().enumerate() {
            if pattern.is_match(line) {
                faults.push(format!("{}:{}: {}", name_of(&path), number + 1, line.trim()));
            }
        }
    }
    nothing(&faults);
}

/// Anchors of the headings of a document, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let count = counts.entry(anchor.clone()).or_default();
        all.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    all
}

#[test]
fn links_lead_somewhere() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("a pattern");
    let mut faults = Vec::new();
    let mut count = 0;
    for path in tracked(&[".md"]) {
        // Parts of a document that is joined of them.
        if name_of(&path).starts_with("crates/") {
            continue;
        }
        let whole = read(&path);
        for target in link.captures_iter(&whole).map(|found| found[1].to_owned()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let to = if file.is_empty() { path.clone() } else { path.parent().expect("a folder").join(file) };
            if !to.exists() {
                faults.push(format!("{}: {target} is not there", name_of(&path)));
            } else if !anchor.is_empty() && to.is_file() && !anchors(&read(&to)).contains(anchor) {
                faults.push(format!("{}: {target} has no such heading", name_of(&path)));
            }
        }
    }
    assert!(count > 50, "{count} links");
    nothing(&faults);
}

#[test]
fn every_figure_of_the_readme_is_in_its_result_file() {
    let readme = read(&project::root().join("README.md"));
    let table =
        readme.split("## How fast").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the table");
    let number = Regex::new(r"\d[\d.]*( (M|k|ms|s))?").expect("a pattern");
    let file = Regex::new(r"\((docs/benchmarks/results/[^)]+)\)").expect("a pattern");
    let mut faults = Vec::new();
    let mut rows = 0;
    for row in table.lines().filter(|line| line.starts_with("| ") && file.is_match(line)) {
        rows += 1;
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let results = read(&project::root().join(&file.captures(row).expect("a file")[1]));
        for cell in &cells[2..4] {
            let figures: Vec<&str> = number.find_iter(cell).map(|found| found.as_str()).collect();
            if figures.len() > 1 || figures.iter().any(|figure| !results.contains(*figure)) {
                faults.push(format!("{cell:?} of {row}"));
            }
        }
    }
    assert!((6..=10).contains(&rows), "{rows} rows");
    nothing(&faults);
}
