//! Simple case folding of characters, one for one, as Unicode's tables and regular expressions have it.
//!
//! Characters that differ in case alone become the least of them: `k`, `K` and the sign for kelvin are `K`. `ß` and `SS`
//! stay different, as no single character of one is one of the other.

use std::collections::HashMap;
use std::sync::OnceLock;

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

/// Appends `text`, folded; never more bytes than it has.
pub(crate) fn fold_into(text: &str, out: &mut String) {
    out.reserve(text.len());
    if text.is_ascii() {
        out.push_str(text);
        let start = out.len() - text.len();
        out[start..].make_ascii_uppercase();
        return;
    }
    let folds = folds();
    out.extend(text.chars().map(|c| match c.is_ascii() {
        true => c.to_ascii_uppercase(),
        false => folds.get(&c).copied().unwrap_or(c),
    }));
}

/// Characters that are not the least of those that differ from them in case alone, and which one that is.
fn folds() -> &'static HashMap<char, char> {
    static FOLDS: OnceLock<HashMap<char, char>> = OnceLock::new();
    FOLDS.get_or_init(|| {
        let folded = |c| Some((c, least(c).filter(|least| *least != c)?));
        ('\u{80}'..=LAST_CASED).filter_map(folded).collect()
    })
}

/// No character after this one has another case.
const LAST_CASED: char = '\u{1ffff}';

/// The least character that differs from `c` in case alone, if any does.
fn least(c: char) -> Option<char> {
    let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
    class.case_fold_simple();
    class.ranges().iter().map(ClassUnicodeRange::start).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_become_one_and_nothing_grows() {
        for (text, expected) in [
            ("straße", "STRAßE"),
            ("\u{212a}elvin ſ", "KELVIN S"),
            ("σς", "ΣΣ"),
            ("ı", "ı"),
            ("İ", "İ"),
            ("𐐨", "𐐀"),
            ("日本\0", "日本\0"),
        ] {
            let mut out = String::new();
            fold_into(text, &mut out);
            assert_eq!(out, expected);
            assert!(out.len() <= text.len());
        }
    }

    #[test]
    fn every_character_folds_as_its_class_does() {
        for c in ('\0'..=char::MAX).filter(|c| c.len_utf8() > 1) {
            assert_eq!(folds().get(&c).copied().unwrap_or(c), least(c).unwrap_or(c), "{c:?}");
        }
    }
}
