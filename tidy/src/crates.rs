//! The graph of packages: arrows between our crates, and dependencies that nothing uses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use serde_json::Value;

use crate::Problem;

/// A package of the graph, as `cargo metadata` gives it.
#[derive(Clone, Debug, Default)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// An SPDX expression.
    pub license: Option<String>,
    /// `None` for our own.
    pub source: Option<String>,
    /// The folder of its manifest.
    pub folder: PathBuf,
    /// What sources call it, where that is another name than the package's.
    pub library: Option<String>,
    pub dependencies: Vec<Dependency>,
}

/// What a manifest asks for.
#[derive(Clone, Debug, Default)]
pub struct Dependency {
    /// As sources write it, with `-`.
    pub name: String,
    /// Of tests and examples alone.
    pub dev: bool,
}

/// All packages of `Cargo.lock`, ours and those of others. Those of other platforms are fetched where they are missing: a
/// build here needs none of them.
pub fn packages(root: &Path) -> Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read what cargo metadata says")?;
    Ok(metadata["packages"].as_array().into_iter().flatten().map(package).collect())
}

fn package(value: &Value) -> Package {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let dependency = |value: &Value| Dependency {
        name: text(&value["rename"]).or_else(|| text(&value["name"])).unwrap_or_default(),
        dev: value["kind"] == "dev",
    };
    let manifest = PathBuf::from(text(&value["manifest_path"]).unwrap_or_default());
    Package {
        name: text(&value["name"]).unwrap_or_default(),
        version: text(&value["version"]).unwrap_or_default(),
        license: text(&value["license"]),
        source: text(&value["source"]),
        folder: manifest.parent().map(Path::to_path_buf).unwrap_or_default(),
        library: library(value),
        dependencies: value["dependencies"].as_array().into_iter().flatten().map(dependency).collect(),
    }
}

/// Name of the library target of a package, if it has one.
fn library(package: &Value) -> Option<String> {
    let is_library = |target: &&Value| {
        let kinds = target["kind"].as_array().into_iter().flatten().filter_map(Value::as_str);
        kinds.into_iter().any(|kind| kind.ends_with("lib") || kind == "proc-macro")
    };
    let target = package["targets"].as_array().into_iter().flatten().find(is_library)?;
    target["name"].as_str().map(str::to_owned)
}

/// The crates in the order of ARCHITECTURE's code map: each paragraph begins with `` `crates/NAME` ``.
pub fn order(architecture: &str) -> Vec<&str> {
    let named = |line: &'_ str| line.trim_start_matches(['*', '-', '#', '|', ' ']).starts_with("`crates/");
    architecture.lines().filter(|line| named(line)).filter_map(|line| line.split('`').nth(1)).collect()
}

/// Dependencies between crates that run against the order of the code map, and crates that are not in it.
pub fn arrows(packages: &[Package], architecture: &str, root: &Path) -> Vec<Problem> {
    let order = order(architecture);
    let place = |folder: &str| order.iter().position(|name| *name == folder);
    let mut problems = Vec::new();
    let ours: BTreeMap<&str, String> = packages
        .iter()
        .filter(|package| package.source.is_none())
        .filter_map(|package| {
            let folder = package.folder.strip_prefix(root).ok()?.to_string_lossy().into_owned();
            folder.starts_with("crates/").then_some((&*package.name, folder))
        })
        .collect();
    for package in packages {
        let Some(folder) = ours.get(&*package.name) else { continue };
        let Some(at) = place(folder) else {
            problems.push(Problem::new(folder, "is not in the code map of ARCHITECTURE.md"));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| !dependency.dev) {
            let Some(below) = ours.get(&*dependency.name) else { continue };
            if place(below).is_some_and(|below| below >= at) {
                let text = format!("depends on {below}, which comes after it in ARCHITECTURE.md");
                problems.push(Problem::new(folder, text));
            }
        }
    }
    let gone = order.iter().filter(|name| !ours.values().any(|folder| folder == *name));
    problems.extend(gone.map(|name| Problem::new("ARCHITECTURE.md", format!("there is no crate {name:?}"))));
    problems
}

/// Dependencies of our packages that no source of theirs names.
pub fn unused(packages: &[Package]) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for package in packages.iter().filter(|package| package.source.is_none()) {
        let mut sources = String::new();
        read_sources(&package.folder, true, &mut sources)?;
        for dependency in &package.dependencies {
            let found = packages.iter().find(|package| package.name == dependency.name);
            let library = found.and_then(|package| package.library.as_deref());
            let name = library.unwrap_or(&dependency.name).replace('-', "_");
            if !is_named(&name, &sources)? {
                let text = format!("does not use its dependency {:?}", dependency.name);
                problems.push(Problem::new(&package.name, text));
            }
        }
    }
    Ok(problems)
}

/// Rust files of a package, without those of packages in its folder.
fn read_sources(folder: &Path, top: bool, into: &mut String) -> Result<()> {
    if !top && folder.join("Cargo.toml").exists() || folder.join("CACHEDIR.TAG").exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            read_sources(&path, false, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            for line in std::fs::read_to_string(&path)?.lines() {
                // Comments name crates without using them.
                into.push_str(line.split("//").next().unwrap_or_default());
                into.push('\n');
            }
        }
    }
    Ok(())
}

/// Whether sources have a path that begins with a crate's name. A module of the same name counts as well.
fn is_named(name: &str, sources: &str) -> Result<bool> {
    Ok(Regex::new(&format!(r"\b{name}\s*::|\b(use|crate) {name}\b|\b{name}!"))?.is_match(sources))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(folder: &str, dependencies: &[(&str, bool)]) -> Package {
        Package {
            name: folder.replace("crates/", "x-"),
            version: "0.1.0".to_owned(),
            license: Some("Apache-2.0".to_owned()),
            folder: Path::new("/r").join(folder),
            dependencies: dependencies
                .iter()
                .map(|(name, dev)| Dependency { name: (*name).to_owned(), dev: *dev })
                .collect(),
            ..Package::default()
        }
    }

    #[test]
    fn arrows_run_down_the_code_map() {
        let map = "`crates/low`: a.\n\n`crates/high`: stands on `crates/low`.\n";
        let found = |packages: &[Package]| {
            arrows(packages, map, Path::new("/r")).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let low = ours("crates/low", &[("x-high", true), ("serde", false)]);
        let high = ours("crates/high", &[("x-low", false)]);
        assert_eq!(found(&[low.clone(), high.clone()]), Vec::<String>::new());
        let up = found(&[ours("crates/low", &[("x-high", false)]), high.clone()]);
        assert_eq!(up, ["crates/low: depends on crates/high, which comes after it in ARCHITECTURE.md"]);
        assert_eq!(found(std::slice::from_ref(&low)), ["ARCHITECTURE.md: there is no crate \"crates/high\""]);
        let more = found(&[low, high, ours("crates/new", &[])]);
        assert_eq!(more, ["crates/new: is not in the code map of ARCHITECTURE.md"]);
    }

    #[test]
    fn a_crate_is_used_where_a_path_begins_with_it() {
        for used in
            ["use bytes::Bytes;", "a(bytes :: f())", "use bytes;", "pub extern crate bytes;", "bytes!(a)"]
        {
            assert!(is_named("bytes", used).unwrap(), "{used:?}");
        }
        for unused in ["let bytes = 1;", "use my_bytes::A;", "bytes_of::x()"] {
            assert!(!is_named("bytes", unused).unwrap(), "{unused:?}");
        }
    }

    #[test]
    fn a_dependency_that_is_not_used_is_found() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let package = |name: &str| Package {
            folder: folder.to_path_buf(),
            dependencies: vec![Dependency { name: name.to_owned(), dev: false }],
            ..Package::default()
        };
        assert!(unused(&[package("pulldown-cmark")]).unwrap().is_empty());
        assert_eq!(unused(&[package("not-used-here")]).unwrap().len(), 1);
    }
}
