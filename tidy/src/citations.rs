//! Citations of documents that a reader does not have.
//!
//! Papers are cited by author, title and year (`docs/papers.md` has them in full), standards by name; a section number
//! alone, or one of a document that is not in the repository, leads nowhere.

use std::sync::LazyLock;

use regex::Regex;

use crate::Problem;
use crate::repository::File;

/// Documents that only some people have.
static ELSEWHERE: LazyLock<Regex> = LazyLock::new(|| {
    let names = [
        r"\bdesign,? sections?\b",
        r"\bsections? \d[\d.]* of the design\b",
        r"\b(design|style|dependencies)\.md\b",
        r"\bseed,? 0\d\d\b",
        r"\bseed's (paper|queries|published|figures?|tables?)\b",
        r"\b(network-analytics|paper) seed\b",
        r"\b(rows|packets) of the seed\b",
    ];
    Regex::new(&format!("(?i){}", names.join("|"))).expect("a pattern that is valid")
});

static SECTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(sections?|chapter) (\d|[ivx]+\b)").expect("a pattern that is valid")
});

/// A document that has the section: a standard, or a work with its year.
static DOCUMENT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\bRFC \d+|\bsFlow\b|\bIEEE\b|\b(19|20)\d\d\b|\.md\b").expect("a pattern that is valid")
});

/// Citations that lead nowhere. A citation may span two lines.
pub fn dead_citations(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut before = "";
    for (number, line) in file.text.lines().enumerate() {
        if let Some(found) = ELSEWHERE.find(line) {
            let text = format!("{:?} is not in the repository: cite title, authors and year", found.as_str());
            problems.push(Problem::at(&file.path, number + 1, text));
        } else if let Some(found) = SECTION.find(line)
            && !DOCUMENT.is_match(&line[..found.start()])
            && !DOCUMENT.is_match(before)
        {
            let text = format!("{:?} of which document?", found.as_str());
            problems.push(Problem::at(&file.path, number + 1, text));
        }
        before = line;
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        dead_citations(&File::new("a.rs", text)).len()
    }

    #[test]
    fn documents_that_are_not_here_are_found() {
        for dead in [
            "//! Which records a task accepts (design section 3).",
            "(design, section 4)",
            "//! Section 3 of the design, naively",
            "/// on disk but for its ends (seed 004, section 4.1.1)",
            "the seed's paper measured 5 ms",
            "as design.md says",
            "// section 4.4 says so",
        ] {
            assert_eq!(count(dead), 1, "{dead:?}");
        }
    }

    #[test]
    fn standards_and_works_with_a_year_pass() {
        for fine in [
            "/// RFC 8926, section 3.4: version",
            "//! (Gomes et al., *Railgun*, 2021, section 4.1.1)",
            "//! (Lau and Maresca, 2017,\n//! section V)",
            "//! Every record is a function of the seed and its offset",
            "a section of the file",
        ] {
            assert_eq!(count(fine), 0, "{fine:?}");
        }
    }
}
