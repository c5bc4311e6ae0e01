//! A mistake in a job file: where it is, what was expected, how to correct it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The texts that diagnostics point into: the job file first, then one per `--set`.
#[derive(Clone, Debug)]
pub struct Texts(Arc<Vec<SourceText>>);

#[derive(Clone, Debug)]
pub struct SourceText {
    /// File name, or `--set PATH=VALUE`.
    pub name: String,
    pub text: String,
}

impl Texts {
    pub(crate) fn new(texts: Vec<SourceText>) -> Self {
        Self(Arc::new(texts))
    }

    pub(crate) fn get(&self, index: usize) -> &SourceText {
        &self.0[index]
    }
}

/// Bytes of one of the texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub(crate) text: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) fn new(text: usize, range: Range<usize>) -> Self {
        Self { text, start: range.start, end: range.end }
    }
}

/// One mistake. `Display` prints it as compilers do: the line of the file and carets below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The job file as it was named, or `--set …`.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The text that the mistake is about.
    pub text: String,
    pub message: String,
    pub expected: Option<String>,
    pub hint: Option<String>,
    /// Whether the job can run all the same.
    pub warning: bool,
    /// The whole line, for the rendering.
    source_line: String,
    /// How many characters of it are meant.
    width: usize,
}

impl Diagnostic {
    pub(crate) fn new(texts: &Texts, span: Span, message: impl Into<String>) -> Self {
        let source = texts.get(span.text);
        let place = Place::of(&source.text, span.start, span.end);
        Self {
            file: source.name.clone(),
            line: place.line,
            column: place.column,
            text: place.marked,
            message: message.into(),
            expected: None,
            hint: None,
            warning: false,
            source_line: place.source_line,
            width: place.width,
        }
    }

    /// A mistake without a place in the file, such as a missing file.
    pub(crate) fn of_file(file: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line: 0,
            column: 0,
            text: String::new(),
            message: message.into(),
            expected: None,
            hint: None,
            warning: false,
            source_line: String::new(),
            width: 0,
        }
    }

    #[must_use]
    pub(crate) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl Diagnostic {
    /// Blanks out a part of the text: as many stars as it has characters.
    pub(crate) fn hide(&mut self, texts: &Texts, span: Span) {
        if self.line == 0 {
            return;
        }
        let source = texts.get(span.text);
        let shown = Place::of(&source.text, span.start, span.end);
        let lines = source.text[..floor_boundary(&source.text, span.end)].matches('\n').count() + 1;
        if source.name != self.file || !(shown.line..=lines).contains(&self.line) {
            return;
        }
        // Of a text over several lines, all of them.
        let from = if self.line == shown.line { shown.column - 1 } else { 0 };
        let to = if lines == shown.line { from + shown.width } else { usize::MAX };
        let blank = |text: &str, first: usize| -> String {
            let hidden = |place: usize| (from..to).contains(&(first + place));
            text.chars().enumerate().map(|(place, c)| if hidden(place) { '*' } else { c }).collect()
        };
        self.text = blank(&self.text, self.column - 1);
        self.source_line = blank(&self.source_line, 0);
    }
}

struct Place {
    line: usize,
    column: usize,
    marked: String,
    source_line: String,
    width: usize,
}

impl Place {
    fn of(text: &str, start: usize, end: usize) -> Self {
        let start = floor_boundary(text, start);
        let end = floor_boundary(text, end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let marked = text[start..end.min(line_end)].trim_end();
        Self {
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            marked: marked.to_owned(),
            source_line: text[line_start..line_end].trim_end_matches('\r').to_owned(),
            width: marked.chars().count().max(1),
        }
    }
}

/// The largest character boundary at or below `at`.
pub(crate) fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning" } else { "error" };
        writeln!(f, "{kind}: {}", self.message)?;
        if self.line == 0 {
            writeln!(f, " --> {}", self.file)?;
        } else {
            let gutter = " ".repeat(self.line.to_string().len());
            // Control characters take one column each, so that the carets are at the right columns.
            let shown: String =
                self.source_line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            writeln!(f, "{gutter}--> {}:{}:{}", self.file, self.line, self.column)?;
            writeln!(f, "{gutter} |")?;
            writeln!(f, "{} | {shown}", self.line)?;
            writeln!(f, "{gutter} | {}{}", " ".repeat(self.column - 1), "^".repeat(self.width))?;
        }
        let gutter = " ".repeat(if self.line == 0 { 0 } else { self.line.to_string().len() });
        if let Some(expected) = &self.expected {
            writeln!(f, "{gutter} = expected: {expected}")?;
        }
        if let Some(hint) = &self.hint {
            writeln!(f, "{gutter} = hint: {hint}")?;
        }
        Ok(())
    }
}

/// Everything that is wrong with a job file, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    pub(crate) fn one(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

/// The name among `names` that was most likely meant: fewest edits, at most a third of the letters.
pub fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    let folded = written.to_lowercase().replace('-', "_");
    for name in names {
        let edits = strsim::damerau_levenshtein(&folded, &name.to_lowercase());
        let allowed = (written.chars().count().max(name.chars().count()) / 3).max(1);
        if edits <= allowed && best.is_none_or(|(fewest, _)| edits < fewest) {
            best = Some((edits, name));
        }
    }
    best.map(|(_, name)| name)
}

/// `a, b or c`.
pub(crate) fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.as_slice() {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}
