//! Values such as `{ every: 100 records }`, `{ every: 5s }`, or a word alone.

use thalweg_types::{Micros, parse_duration};

use crate::diagnostic::one_of;
use crate::job_file::section::Section;
use crate::job_file::tree::Value;

use super::OperatorCheck;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    Word(&'static str),
    /// At least one.
    Records(u64),
    /// More than nothing.
    Every(Micros),
}

/// The value of a key, its mistakes reported; `None` where it is absent too.
pub(super) fn read(check: &OperatorCheck<'_>, key: &str, words: &'static [&'static str]) -> Option<Pace> {
    let node = check.section.get(key)?;
    let forms = ["{ every: 100 records }", "{ every: 5s }"];
    let expected = one_of(words.iter().copied().chain(forms));
    let mistake = |message: String| check.error(key, message, Some(format!("write {expected}")));
    match &node.value {
        Value::Scalar(scalar) => {
            let word = words.iter().find(|word| **word == scalar.text.trim());
            if word.is_none() {
                mistake(format!("{key:?} is {:?}", scalar.text));
            }
            word.copied().map(Pace::Word)
        }
        Value::Map(_) => {
            let what = format!("{key:?} of {}", check.section.what);
            let section = Section::of(check.report(), what, check.section.key_span(key), node)?;
            section.refuse_others(["every"]);
            let every = section.require("every", "a count of records or a duration");
            let scalar = every.and_then(|every| section.scalar("every", every, "`100 records` or `5s`"));
            let Some(scalar) = scalar else {
                check.failed.set(true);
                return None;
            };
            let pace = parse(&scalar.text);
            if pace.is_none() {
                mistake(format!("{key:?} is every {:?}", scalar.text));
            }
            pace
        }
        _ => {
            mistake(format!("{key:?} is {}", node.describe()));
            None
        }
    }
}

fn parse(text: &str) -> Option<Pace> {
    let text = text.trim();
    let count = text.strip_suffix("records").or_else(|| text.strip_suffix("record"));
    match count {
        Some(count) if count.trim().is_empty() => Some(Pace::Records(1)),
        Some(count) => count.trim().parse().ok().filter(|count| *count > 0).map(Pace::Records),
        None => parse_duration(text).ok().filter(|every| *every > 0).map(Pace::Every),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_durations_are_told_apart() {
        assert_eq!(parse("100 records"), Some(Pace::Records(100)));
        assert_eq!(parse(" record "), Some(Pace::Records(1)));
        assert_eq!(parse("5s"), Some(Pace::Every(5_000_000)));
        for wrong in ["", "0 records", "-1 records", "0s", "100", "many records", "soon"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
