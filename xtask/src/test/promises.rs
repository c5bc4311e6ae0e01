//! `docs/reliability.md` names a test for each promise; here each name is held against what there is.

use std::path::{Path, PathBuf};

use thalweg_crash::{self as crash, faults};
use thalweg_harness::project;

/// Text in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Rust files of a folder and those below, except build outputs.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn tests_that_are_named_as_proof_exist() {
    let root = project::root();
    let page = std::fs::read_to_string(root.join("docs/reliability.md")).unwrap();
    let mut paths = Vec::new();
    sources(&root.join("crates"), &mut paths);
    sources(&root.join("fuzz"), &mut paths);
    let code: String = paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let mut found = 0;
    for row in page.lines().filter(|line| line.starts_with('|')) {
        let proof = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        for name in quoted(proof) {
            let exists = match name.split_once(' ') {
                Some(("crash", job)) => crash::JOBS.contains(&job),
                Some(("faults", check)) => faults::names().any(|name| name == check),
                None if name.matches('_').count() >= 2 => code.contains(&format!("fn {name}(")),
                _ => continue,
            };
            assert!(exists, "docs/reliability.md names {name:?}, which is nowhere");
            found += 1;
        }
    }
    assert!(found > 30, "only {found} proofs are named");
}
