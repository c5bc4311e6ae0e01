//! LIKE and ILIKE: patterns of literals, `_` (one character) and `%` (any number of them), without regular expressions.
//!
//! A pattern is a list of *runs*, each a literal with the wildcards before it: at least `skip` characters where there
//! is a `%` among them, else exactly as many. Runs between two `%` are a *piece*. The first and the last piece have
//! their places at the ends of the text; each one between goes to the first place that it has, which never costs a
//! later one its own. So a pattern without `_` takes linear time, and no pattern recurses or allocates for a text.
//!
//! Pieces with a `_` between literals are tried place by place; [`MATCH_STEPS`] bounds that.
//!
//! A backslash takes the special meaning from the character after it; at the end of a pattern it is itself. ILIKE
//! compares by simple case folding: see `fold`.

use std::ops::Range;

use memchr::memmem::{self, Finder};

use super::fold::fold_into;

/// Longest pattern that comes with a record, in bytes.
pub(crate) const MAX_PATTERN: usize = 1 << 20;
/// Steps that one text may take beyond those that its length explains.
pub(crate) const MATCH_STEPS: usize = 1 << 20;
/// Most pieces for which searchers are kept: one is larger than the piece it finds.
const KEPT_FINDERS: usize = 16;

/// A pattern that has been read.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    fold_case: bool,
    literals: String,
    runs: Vec<Run>,
    tail: Wild,
    /// For the runs that begin a piece between two `%`, where there are few.
    finders: Vec<(usize, Finder<'static>)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Wild {
    /// There is a `%`.
    is_open: bool,
    /// How many `_` there are.
    skip: u32,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    before: Wild,
    start: u32,
    end: u32,
}

/// The match took more steps than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooHard;

impl Pattern {
    /// Reads a pattern; `None` where it is longer than [`MAX_PATTERN`].
    pub(crate) fn new(pattern: &str, fold_case: bool) -> Option<Self> {
        if pattern.len() > MAX_PATTERN {
            return None;
        }
        let mut folded = String::new();
        let pattern = if fold_case {
            fold_into(pattern, &mut folded);
            &folded
        } else {
            pattern
        };
        let mut literals = String::with_capacity(pattern.len());
        let (mut runs, mut wild, mut start) = (Vec::new(), Wild::default(), 0);
        let mut end_run = |literals: &str, wild: &mut Wild, start: &mut u32| {
            let end = literals.len() as u32;
            if end > *start {
                runs.push(Run { before: std::mem::take(wild), start: *start, end });
                *start = end;
            }
        };
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            match c {
                '%' | '_' => {
                    end_run(&literals, &mut wild, &mut start);
                    wild.is_open |= c == '%';
                    wild.skip += u32::from(c == '_');
                }
                '\\' => literals.push(chars.next().unwrap_or('\\')),
                c => literals.push(c),
            }
        }
        end_run(&literals, &mut wild, &mut start);
        let mut read = Self { fold_case, literals, runs, tail: wild, finders: Vec::new() };
        read.keep_finders();
        Some(read)
    }

    fn keep_finders(&mut self) {
        let opening = (0..self.runs.len()).filter(|run| self.runs[*run].before.is_open);
        if opening.clone().count() <= KEPT_FINDERS {
            self.finders =
                opening.map(|run| (run, Finder::new(self.literal(run).as_bytes()).into_owned())).collect();
        }
    }

    /// Whether a search may take more steps than it may have: only where pieces have a `_` between literals.
    pub(crate) fn may_give_up(&self) -> bool {
        let is_open = |run: usize| self.runs[run].before.is_open;
        (1..self.runs.len()).any(|run| !is_open(run) && (0..run).any(is_open))
    }

    /// Whether the whole of `text` matches; `scratch` is memory for its folded form.
    pub(crate) fn matches(&self, text: &str, scratch: &mut String) -> Result<bool, TooHard> {
        let text = if self.fold_case {
            scratch.clear();
            fold_into(text, scratch);
            scratch.as_str()
        } else {
            text
        };
        self.find(text)
    }

    fn literal(&self, run: usize) -> &str {
        let Run { start, end, .. } = self.runs[run];
        &self.literals[start as usize..end as usize]
    }

    fn find(&self, text: &str) -> Result<bool, TooHard> {
        let mut steps = MATCH_STEPS;
        let mut at = 0;
        let mut next = 0;
        if self.runs.first().is_none_or(|run| !run.before.is_open) {
            // The first piece is at the beginning.
            while next < self.runs.len() && (next == 0 || !self.runs[next].before.is_open) {
                let Some(end) = self.match_run(next, text, at) else { return Ok(false) };
                at = end;
                next += 1;
            }
            if next == self.runs.len() {
                return Ok(self.match_tail(text, at));
            }
        }
        while next < self.runs.len() {
            let end = (next + 1..self.runs.len()).find(|run| self.runs[*run].before.is_open);
            let piece = next..end.unwrap_or(self.runs.len());
            let Some(from) = skip_characters(text, at, self.runs[next].before.skip) else { return Ok(false) };
            if end.is_none() && !self.tail.is_open {
                // The last piece is at the end.
                return Ok(self.match_back(&piece, text).is_some_and(|start| start >= from));
            }
            match self.search(&piece, text, from, &mut steps)? {
                Some(end) => at = end,
                None => return Ok(false),
            }
            next = piece.end;
        }
        Ok(self.match_tail(text, at))
    }

    /// Whether the pattern's end after the last literal matches the rest of the text.
    fn match_tail(&self, text: &str, at: usize) -> bool {
        let end = skip_characters(text, at, self.tail.skip);
        end.is_some_and(|end| self.tail.is_open || end == text.len())
    }

    /// Where a run ends that has its exact place at `at`.
    fn match_run(&self, run: usize, text: &str, at: usize) -> Option<usize> {
        let start = skip_characters(text, at, self.runs[run].before.skip)?;
        let literal = self.literal(run);
        text[start..].starts_with(literal).then_some(start + literal.len())
    }

    /// Where the last piece begins, after its own `_`, if it ends with the text.
    fn match_back(&self, piece: &Range<usize>, text: &str) -> Option<usize> {
        let mut end = skip_back(text, text.len(), self.tail.skip)?;
        for run in piece.clone().rev() {
            let literal = self.literal(run);
            if !text[..end].ends_with(literal) {
                return None;
            }
            end -= literal.len();
            if run > piece.start {
                end = skip_back(text, end, self.runs[run].before.skip)?;
            }
        }
        Some(end)
    }

    /// Where the first match of a piece ends that begins at or after `from`.
    fn search(
        &self,
        piece: &Range<usize>,
        text: &str,
        mut from: usize,
        steps: &mut usize,
    ) -> Result<Option<usize>, TooHard> {
        let first = self.literal(piece.start);
        let finder = self.finders.iter().find(|(run, _)| *run == piece.start).map(|(_, finder)| finder);
        loop {
            let rest = &text.as_bytes()[from..];
            let found = match finder {
                Some(finder) => finder.find(rest),
                None => memmem::find(rest, first.as_bytes()),
            };
            let Some(found) = found else { return Ok(None) };
            let start = from + found;
            let mut at = Some(start + first.len());
            for run in piece.start + 1..piece.end {
                let Run { before, .. } = self.runs[run];
                let cost = before.skip as usize + self.literal(run).len();
                *steps = steps.checked_sub(cost).ok_or(TooHard)?;
                at = at.and_then(|at| self.match_run(run, text, at));
                if at.is_none() {
                    break;
                }
            }
            if at.is_some() {
                return Ok(at);
            }
            // Literals are whole characters, so a match begins at one.
            from = start + text[start..].chars().next().map_or(1, char::len_utf8);
        }
    }
}

/// The place `count` characters after `at`; `None` where there are not as many.
fn skip_characters(text: &str, at: usize, count: u32) -> Option<usize> {
    if count == 0 {
        return Some(at);
    }
    let rest = &text[at..];
    let count = count as usize;
    if rest.len() < count {
        return None;
    }
    match rest.char_indices().nth(count) {
        Some((end, _)) => Some(at + end),
        None => (rest.chars().count() == count).then_some(text.len()),
    }
}

/// The place `count` characters before `at`; `None` where there are not as many.
fn skip_back(text: &str, at: usize, count: u32) -> Option<usize> {
    let Some(last) = count.checked_sub(1) else { return Some(at) };
    text[..at].char_indices().rev().nth(last as usize).map(|(start, _)| start)
}

#[cfg(test)]
mod tests {
    use arrow_array::{Scalar, StringViewArray};
    use proptest::prelude::*;

    use super::*;

    fn matches(text: &str, pattern: &str, fold_case: bool) -> bool {
        Pattern::new(pattern, fold_case).unwrap().matches(text, &mut String::new()).unwrap()
    }

    /// The kernels that use regular expressions.
    fn expected(text: &str, pattern: &str, fold_case: bool) -> bool {
        // A second text that is not ASCII, so that the short cut for ASCII is not taken.
        let texts = StringViewArray::from(vec![text, "ß"]);
        let pattern = Scalar::new(StringViewArray::from(vec![pattern]));
        let found = match fold_case {
            false => arrow_string::like::like(&texts, &pattern),
            true => arrow_string::like::ilike(&texts, &pattern),
        };
        found.unwrap().value(0)
    }

    #[test]
    fn wildcards_take_characters_not_bytes() {
        for (text, pattern, is_match) in [
            ("", "", true),
            ("", "%", true),
            ("", "_", false),
            ("ü", "_", true),
            ("ü", "__", false),
            ("e\u{301}", "_", false),
            ("abc", "a%c", true),
            ("ac", "a%c", true),
            ("ac", "a_%c", false),
            ("aXbXc", "%X_X%", true),
            ("a\\", "a\\", true),
            ("a%", "a\\%", true),
            ("ab", "a\\b", true),
            ("aXc", "%\\", false),
            ("aaa", "%a_", true),
            ("ab", "%ab%b", false),
            ("aab", "a%ab", true),
            ("ab", "ab%ab", false),
            ("a\0b", "a_b", true),
            ("a\nb", "a%b", true),
        ] {
            assert_eq!(matches(text, pattern, false), is_match, "{text:?} LIKE {pattern:?}");
            assert_eq!(expected(text, pattern, false), is_match, "{text:?} LIKE {pattern:?}, by the kernels");
        }
    }

    #[test]
    fn long_patterns_take_linear_time() {
        let text = "a".repeat(300_000);
        for (pattern, is_match) in [
            ("_".repeat(100_000), false),
            ("_".repeat(300_000), true),
            ("%_".repeat(100_000), true),
            ("%_".repeat(300_001), false),
            ("%a".repeat(300_000), true),
            ("%a".repeat(300_001), false),
            ("%a".repeat(100_000) + "%b", false),
            ("%".repeat(1_000_000), true),
            ("\\a".repeat(300_000), true),
            ("%".to_owned() + &"a".repeat(299_999) + "b%", false),
            ("%A".repeat(100_000), false),
        ] {
            assert_eq!(
                matches(&text, &pattern, false),
                is_match,
                "{} bytes of {:?}",
                pattern.len(),
                &pattern[..4]
            );
        }
        assert!(matches(&text, &"%A".repeat(100_000), true));
        assert!(Pattern::new(&"a".repeat(MAX_PATTERN), false).is_some());
        assert!(Pattern::new(&"a".repeat(MAX_PATTERN + 1), false).is_none());
    }

    #[test]
    fn what_would_take_quadratic_time_is_given_up() {
        let text = "a".repeat(1 << 20);
        let hard = format!("%{}b%", "a_".repeat(50_000));
        let pattern = Pattern::new(&hard, false).unwrap();
        assert_eq!(pattern.matches(&text, &mut String::new()), Err(TooHard));
        let short = "a".repeat(200);
        assert_eq!(pattern.matches(&short, &mut String::new()), Ok(false));
    }

    fn texts() -> impl Strategy<Value = String> {
        const PIECES: &[&str] = &[
            "a", "b", "ab", "K", "k", "\u{212a}", "ſ", "s", "S", "ß", "ẞ", "σ", "ς", "Σ", "İ", "ı", "i", "%",
            "_", "\\", "\n", "\0", "e\u{301}", "日", "🦀", "*", ".", "ǅ", "ᲀ", "в",
        ];
        prop::collection::vec(prop::sample::select(PIECES), 0..8).prop_map(|pieces| pieces.concat())
    }

    fn patterns() -> impl Strategy<Value = String> {
        let wild =
            prop::sample::select(&["%", "_", "\\", "\\%", "\\_", "%%", "_%"][..]).prop_map(str::to_owned);
        prop::collection::vec(prop_oneof![wild, texts()], 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2_000), ..ProptestConfig::default() })]

        #[test]
        fn patterns_match_as_regular_expressions_would(text in texts(), pattern in patterns(), fold_case: bool) {
            prop_assert_eq!(matches(&text, &pattern, fold_case), expected(&text, &pattern, fold_case), "{:?} {:?}", text, pattern);
        }

        #[test]
        fn texts_match_patterns_that_were_made_of_them(text in texts(), cuts in prop::collection::vec(0..3_u8, 0..40)) {
            let mut pattern = String::new();
            for (place, c) in text.chars().enumerate() {
                match cuts.get(place) {
                    Some(0) => pattern.push('_'),
                    Some(1) => pattern.push('%'),
                    _ => pattern.extend(['\\', c]),
                }
            }
            prop_assert!(matches(&text, &pattern, false), "{:?} {:?}", text, pattern);
            prop_assert!(matches(&text, &pattern, true), "{:?} {:?}", text, pattern);
        }
    }
}
