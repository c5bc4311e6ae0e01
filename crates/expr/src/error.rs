//! What is wrong with an expression or a query, and where in its text.

use std::fmt;
use std::ops::Range;

use thalweg_types::Error;

/// An error in SQL text: the mistake, the expectation, a hint, and the bytes that it is about.
///
/// `Display` prints the message alone; [`SqlError::render`] shows the text with a caret line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SqlError {
    pub message: String,
    pub expected: Option<String>,
    pub hint: Option<String>,
    /// Byte range into the text that was parsed.
    pub span: Option<Range<usize>>,
}

impl SqlError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), expected: None, hint: None, span: None }
    }

    #[must_use]
    pub fn at(mut self, span: Range<usize>) -> Self {
        self.span = Some(span);
        self
    }

    #[must_use]
    pub fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The message, the line of `text` that it is about with carets below, what was expected and the hint.
    pub fn render(&self, text: &str) -> String {
        let mut out = format!("error: {}\n", self.message);
        if let Some(span) = &self.span {
            render_place(&mut out, text, span);
        }
        if let Some(expected) = &self.expected {
            out.push_str(&format!("expected: {expected}\n"));
        }
        if let Some(hint) = &self.hint {
            out.push_str(&format!("hint: {hint}\n"));
        }
        out
    }

    /// The message, with what was expected after it.
    pub(crate) fn with_expected(&self) -> String {
        match &self.expected {
            Some(expected) => format!("{}: expected {expected}", self.message),
            None => self.message.clone(),
        }
    }

    /// Line and column (both from 1, columns in characters) of the error's start in `text`.
    pub fn line_column(&self, text: &str) -> Option<(usize, usize)> {
        self.span.as_ref().map(|span| {
            let before = &text[..floor_boundary(text, span.start)];
            let line = before.matches('\n').count() + 1;
            let line_start = before.rfind('\n').map_or(0, |at| at + 1);
            (line, before[line_start..].chars().count() + 1)
        })
    }
}

fn render_place(out: &mut String, text: &str, span: &Range<usize>) {
    let start = floor_boundary(text, span.start);
    let end = floor_boundary(text, span.end).max(start);
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    let line = &text[line_start..line_end];
    let number = text[..start].matches('\n').count() + 1;
    let gutter = number.to_string();
    let before = text[line_start..start].chars().count();
    let marked = text[start..end.min(line_end)].chars().count().max(1);
    // Tabs and control characters take one column each, so that the carets are at the right columns.
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    out.push_str(&format!("{gutter} | {line}\n"));
    out.push_str(&format!("{} | {}{}\n", " ".repeat(gutter.len()), " ".repeat(before), "^".repeat(marked)));
}

/// The largest character boundary at or below `at`.
fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<SqlError> for Error {
    /// A user's error; the expectation joins the message.
    fn from(error: SqlError) -> Self {
        let user = Error::user(error.with_expected());
        match error.hint {
            Some(hint) => user.with_hint(hint),
            None => user,
        }
    }
}

/// The name among `names` that was most likely meant by `written`.
///
/// A name that differs in case alone comes first, then the one with the fewest edits, at most a third of its
/// letters.
pub fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for name in names {
        if name.eq_ignore_ascii_case(written) {
            return Some(name);
        }
        let edits = strsim::damerau_levenshtein(&written.to_lowercase(), &name.to_lowercase());
        let allowed = (written.chars().count().max(name.chars().count()) / 3).max(1);
        if edits <= allowed && best.is_none_or(|(fewest, _)| edits < fewest) {
            best = Some((edits, name));
        }
    }
    best.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carets_stand_below_the_marked_characters() {
        let text = "straße > 1\n  AND grüße = 'x'";
        let start = text.find("grüße").unwrap();
        let error =
            SqlError::new("no field \"grüße\"").at(start..start + "grüße".len()).hint("did you mean …");
        assert_eq!(
            error.render(text),
            "error: no field \"grüße\"\n2 |   AND grüße = 'x'\n  |       ^^^^^\nhint: did you mean …\n"
        );
        assert_eq!(error.line_column(text), Some((2, 7)));
    }

    #[test]
    fn spans_outside_the_text_do_not_panic() {
        for (start, end) in [(0, 0), (5, 2), (3, 99), (99, 100)] {
            assert!(SqlError::new("x").at(start..end).render("ä b").contains('^'));
        }
    }

    #[test]
    fn nearest_prefers_case_then_few_edits() {
        let names = ["amount", "Amount_eur", "card", "merchant"];
        assert_eq!(nearest("Card", names), Some("card"));
        assert_eq!(nearest("amout", names), Some("amount"));
        assert_eq!(nearest("merchnat", names), Some("merchant"));
        assert_eq!(nearest("zebra", names), None);
        assert_eq!(nearest("", names), None);
    }
}
