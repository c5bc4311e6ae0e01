//! The checks over this repository. Each failure lists all places to mend.

use thalweg_tidy::repository::{self, File, root};
use thalweg_tidy::{Problem, citations, crates, english, figures, links, manifests, policy};

#[track_caller]
fn assert_none(problems: &[Problem]) {
    let list: Vec<_> = problems.iter().map(|problem| format!("  {problem}\n")).collect();
    assert!(problems.is_empty(), "{} to mend:\n{}", problems.len(), list.concat());
}

fn documents() -> Vec<File> {
    let documents = repository::files(&["md"]).unwrap();
    assert!(documents.len() > 50, "only {} documents", documents.len());
    documents
}

/// Sources, without the samples in this crate's own tests.
fn sources() -> Vec<File> {
    let mut sources = repository::files(&["rs", "toml", "yaml"]).unwrap();
    sources.retain(|file| !file.path.starts_with("tidy/"));
    assert!(sources.len() > 500, "only {} sources", sources.len());
    sources
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn links_lead_somewhere() {
    let mut documents = documents();
    // Parts of `docs/jobs.md`, whose links are those of the whole.
    documents.retain(|file| !file.path.starts_with("crates/"));
    assert_none(&links::dead_links(&documents, &root()));
}

#[test]
fn documents_that_are_named_are_here() {
    let files = [documents(), sources()].concat();
    assert_none(&links::missing_documents(&files, &root()));
}

#[test]
fn citations_can_be_followed() {
    let files = [documents(), sources()].concat();
    assert_none(&files.iter().flat_map(citations::dead_citations).collect::<Vec<_>>());
}

/// Documents for users: those at the top, in `docs` itself and about benchmarks, and pages of examples and packages.
/// Decisions, formats and results are for developers, or are history.
fn is_for_users(path: &str) -> bool {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    match folder {
        "" => path != "CHANGELOG.md",
        "docs" | "docs/benchmarks" | "packaging" => true,
        _ => folder.starts_with("examples/"),
    }
}

#[test]
fn words_that_mislead_are_not_in_documents_for_users() {
    let documents = documents();
    let for_users = documents.iter().filter(|file| is_for_users(&file.path));
    assert_none(&for_users.flat_map(english::misleading_words).collect::<Vec<_>>());
}

/// With `UPDATE_EXPECT` set, tables get the figures that result files have, and the main README their commit.
#[test]
fn figures_are_those_of_result_files() {
    let results = root().join("docs/benchmarks/results");
    let commits = measured_on();
    let mut documents = documents();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        for file in &mut documents {
            let mut filled = figures::filled(file, &results);
            if let ("README.md", Some((commit, _))) = (file.path.as_str(), commits.first()) {
                filled = with_commit(&filled, commit);
            }
            if filled != file.text && figures::held(file) > 0 {
                std::fs::write(root().join(&file.path), &filled).unwrap();
                file.text = filled;
            }
        }
    }
    let problems: Vec<_> = documents.iter().flat_map(|file| figures::other_figures(file, &results)).collect();
    assert_none(&problems);

    let readme = documents.iter().find(|file| file.path == "README.md").unwrap();
    assert!(figures::held(readme) >= 10, "README.md holds {} figures to result files", figures::held(readme));
    let all: usize = documents.iter().map(figures::held).sum();
    assert!(all >= 60, "{all} figures are held to result files");
    for (commit, _) in commits {
        assert!(readme.text.contains(&commit), "README.md does not name the commit of the results, {commit}");
    }
}

/// Every result file is of one commit on one machine: what figures are worth beside each other.
#[test]
fn results_are_of_one_commit_on_one_machine() {
    assert!(measured_on().len() <= 1, "results of several machines or commits: {:?}", measured_on());
}

/// Commit and processor of result files, each once.
fn measured_on() -> Vec<(String, String)> {
    let results: Vec<File> = documents();
    let results = results.into_iter().filter(|file| file.path.starts_with("docs/benchmarks/results/"));
    let of = |file: &File, key: &str| figures::measured_on(&file.text, key).unwrap().to_owned();
    let mut machines: Vec<_> = results.map(|file| (of(&file, "commit"), of(&file, "processor"))).collect();
    machines.sort();
    machines.dedup();
    machines
}

/// The text after "commit `" is the commit.
fn with_commit(readme: &str, commit: &str) -> String {
    let Some((before, rest)) = readme.split_once("commit `") else { return readme.to_owned() };
    let Some((_, after)) = rest.split_once('`') else { return readme.to_owned() };
    format!("{before}commit `{commit}`{after}")
}

#[test]
fn crates_depend_downwards() {
    let packages = crates::packages(&root()).unwrap();
    assert_none(&crates::arrows(&packages, &read("ARCHITECTURE.md"), &root()));
}

#[test]
fn dependencies_are_used() {
    let packages = crates::packages(&root()).unwrap();
    assert_none(&crates::unused(&packages).unwrap());
    let manifests = repository::files(&["toml"]).unwrap();
    assert_none(&manifests::unused_lines(&read("Cargo.toml"), &manifests));
}

#[test]
fn licences_sources_and_versions_are_allowed() {
    let policy = policy::Policy::parse(&read("deny.toml")).unwrap();
    assert_none(&policy::refused(&crates::packages(&root()).unwrap(), &policy));
}

#[test]
fn manifests_say_what_they_have_to() {
    let mut manifests = repository::files(&["toml"]).unwrap();
    // Those outside of the workspace are for a tool, or an example to copy.
    let apart = ["examples/custom/", "bench/peers/dbsp/", "bench/peers/stores/", "fuzz/libfuzzer/"];
    manifests.retain(|file| {
        file.path.ends_with("Cargo.toml") && !apart.iter().any(|folder| file.path.starts_with(folder))
    });
    assert!(manifests.len() > 20, "only {} manifests", manifests.len());
    assert_none(&manifests::missing_keys(&manifests));
}
