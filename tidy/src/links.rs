//! Links between files, their anchors, and names of documents in texts.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::repository::File;
use crate::{Problem, markdown};

/// `a/b/../c` without its dots; `None` if it leaves the repository.
fn normal(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// Links to files and anchors that are not there. Links to other sites are not followed.
pub fn dead_links(files: &[File], root: &Path) -> Vec<Problem> {
    let anchors: HashMap<&str, HashSet<String>> =
        files.iter().map(|file| (&*file.path, markdown::anchors(&file.text).into_iter().collect())).collect();
    let mut problems = Vec::new();
    for file in files {
        for link in markdown::links(&file.text).into_iter().filter(|link| !is_elsewhere(&link.target)) {
            let (path, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
            let target = if path.is_empty() {
                Some(file.path.clone())
            } else {
                normal(&format!("{}/{path}", file.folder()))
            };
            let is_there = |target: &String| anchors.contains_key(&**target) || root.join(target).exists();
            let Some(target) = target.filter(is_there) else {
                problems.push(Problem::at(&file.path, link.line, format!("no file {:?} to link to", path)));
                continue;
            };
            if anchor.is_empty() {
                continue;
            }
            if !anchors.get(&*target).is_some_and(|anchors| anchors.contains(anchor)) {
                let text = format!("{target:?} has no heading with the anchor {anchor:?}");
                problems.push(Problem::at(&file.path, link.line, text));
            }
        }
    }
    problems
}

/// A document by its path from the repository's folder, as texts and comments name it.
static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?:^|[^\w/.-])((?:docs/[\w./-]*|[A-Z]{4,})\.md)\b").expect("a pattern that is valid")
});

/// Documents that texts and comments name and that are not in the repository.
pub fn missing_documents(files: &[File], root: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files {
        for (number, line) in file.text.lines().enumerate() {
            let named = NAMED.captures_iter(line).map(|found| found.get(1).map_or("", |name| name.as_str()));
            // `NAME` is any name.
            for name in named.filter(|name| !name.ends_with("NAME.md")) {
                // A document may be named from the repository's folder, or next to the text.
                if !root.join(name).exists() && !root.join(file.folder()).join(name).exists() {
                    problems.push(Problem::at(&file.path, number + 1, format!("no document {name:?}")));
                }
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::root;

    fn dead(text: &str) -> Vec<String> {
        let other = File::new("docs/benchmarks/README.md", "# Some *thing*\n");
        let files = [File::new("docs/benchmarks/page.md", text), other];
        dead_links(&files, &root()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        assert!(
            dead("[a](README.md#some-thing) [b](../../LICENSE) [c](https://example.org/x#y) [d](..)")
                .is_empty()
        );
        assert!(dead("# Here\n[e](#here)").is_empty());
    }

    #[test]
    fn dead_links_are_found() {
        let wanted = "docs/benchmarks/page.md:2: no file \"NOWHERE.md\" to link to";
        assert_eq!(dead("\n[a](NOWHERE.md)"), [wanted]);
        assert_eq!(dead("[a](README.md#other").len(), 0, "no link at all");
        assert_eq!(dead("[a](README.md#other)").len(), 1);
        assert_eq!(dead("[a](#other)").len(), 1);
        assert_eq!(dead("[a](../../../outside.md)").len(), 1);
    }

    #[test]
    fn documents_that_are_named_have_to_be_here() {
        let named = |line: &str| missing_documents(&[File::new("crates/a/src/lib.rs", line)], &root()).len();
        assert_eq!(named("//! as `ARCHITECTURE.md` says; https://example.org/docs/other.md"), 0);
        assert_eq!(named("//! see docs/nowhere.md"), 1);
        assert_eq!(named("// (`NOWHERE.md`)"), 1);
    }
}
