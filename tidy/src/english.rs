//! Words that misled readers, and what to write instead.
//!
//! The rules meet the prose of documents: not code, not names in backquotes. A rule is strict and a little stupid:
//! where it meets a sentence that is fine, another sentence is easily found.

use std::sync::LazyLock;

use regex::Regex;

use crate::repository::File;
use crate::{Problem, markdown};

struct Rule {
    /// Words to avoid.
    not: Regex,
    /// Uses of them that are fine: a meeting inside of one does not count.
    but_for: Option<Regex>,
    instead: &'static str,
}

/// Words, uses of them that are fine (empty if there are none), and what to write instead.
const RULES: [(&str, &str, &str); 14] = [
    (
        r"\bbehind\b",
        r"\bbehind (a|an|the|your) ([a-z]+ )?(proxy|proxies|load balancer|firewall|NAT|router|switch)\b",
        "of an order: `after`, `newer than`, `later than`; of a limit: `below`",
    ),
    (r"\bbeside\b", "", "`next to`, `compared with`, `while`"),
    (
        r"\b(stand|stands|stood|standing)\b",
        r"\b(stand|stands|stood) for\b",
        "`is`, `is kept in`, `is written in`",
    ),
    (r"\b(is|are|was|were|be) none\b", "", "`there is no …`, `is not a …`"),
    (
        r"\bwhat (is|are|was|were|has|had|comes|came|does|did)\b",
        r"\bwhat (is|are|was|were|has|had|comes|came|does|did)\b[^.;|\n]*\?",
        "a noun: `the record that is …`, `all that is …`",
    ),
    (r"(^|[.:;]\s+)who\b", r"(^|[.:;]\s+)who\b[^.;]*\?", "a noun: `a client that …`"),
    (r"\b(of|to|for|by|from|with|and|or|that|as|than) who\b", "", "a noun: `a client that …`"),
    (r"\b(goes|go|went|going) by\b", "", "`uses`, `follows`"),
    (r"\b(is|are|was|were|be) told\b", "", "`is reported`, `gets an error`"),
    (r"\b(is|are|was|were) known by\b", "", "`is identified by`"),
    (r"\bas safe as\b", "", "`durable as … requires`"),
    (r"\b(come|comes|came) again\b", "", "`is written again`, `is sent again`"),
    (r"\b(is|are|was|were|be) done again\b", "", "`is replayed`"),
    (r"\bstumble[sd]? (over|on)\b", "", "`the record that stopped the job`"),
];

static COMPILED: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let pattern = |text: &str| Regex::new(&format!("(?im){text}")).expect("a pattern that is valid");
    RULES
        .iter()
        .map(|(not, but_for, instead)| Rule {
            not: pattern(not),
            but_for: (!but_for.is_empty()).then(|| pattern(but_for)),
            instead,
        })
        .collect()
});

/// Words of the list in a document's prose.
pub fn misleading_words(file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    for block in markdown::prose(&file.text) {
        // Words that a line break parts are still next to each other.
        let text = block.text.replace('\n', " ");
        for rule in COMPILED.iter() {
            let fine: Vec<_> = rule
                .but_for
                .iter()
                .flat_map(|fine| fine.find_iter(&text))
                .map(|found| found.range())
                .collect();
            for found in rule.not.find_iter(&text) {
                if fine.iter().any(|fine| fine.start <= found.start() && found.end() <= fine.end) {
                    continue;
                }
                let line = block.line + block.text[..found.start()].matches('\n').count();
                let words = found.as_str().trim_start_matches(['.', ':', ';', ' ']);
                problems.push(Problem::at(&file.path, line, format!("{words:?}: write {}", rule.instead)));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let problems = misleading_words(&File::new("a.md", text));
        problems
            .iter()
            .map(|problem| problem.to_string().split(": write").next().unwrap_or("").to_owned())
            .collect()
    }

    #[test]
    fn each_rule_meets_what_it_is_for() {
        let samples = [
            "rows behind the last commit",
            "one binary, with nothing beside it",
            "the state stands in the manifest",
            "there, where memory is none",
            "and what is read is checked",
            "It waits. Who connects then is refused",
            "bytes of who connects",
            "the sink goes by the time",
            "a client is told of it",
            "keys are known by a hash",
            "as safe as `ack` says",
            "the record comes again",
            "the write is done again",
            "a record that a job stumbled over",
        ];
        for (sample, rule) in samples.iter().zip(RULES) {
            assert_eq!(words(sample).len(), 1, "{sample:?} for {:?}", rule.0);
        }
    }

    #[test]
    fn other_uses_pass() {
        for fine in [
            "Put it behind a reverse proxy, not behind a NAT.",
            "besides, `behind` is a key; stdin and understanding",
            "`*` stands for any name",
            "What is a window?",
            "A client who asks gets an answer. Who is connected?",
            "```\nrows behind the last commit\n```",
        ] {
            assert_eq!(words(fine), Vec::<String>::new(), "{fine:?}");
        }
    }

    #[test]
    fn a_line_break_hides_nothing() {
        assert_eq!(words("one\ntwo is\nnone"), ["a.md:2: \"is none\""]);
    }
}
