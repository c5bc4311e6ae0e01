//! YAML (and JSON, which is read as the YAML that it is) as a tree in which every key and value knows its place.
//!
//! Scalars keep their text and how they were quoted; their reader decides what they mean,
//! so `no` is never a surprise `false`.
//!
//! Two things differ from plain YAML:
//! * Inside `{…}` and `[…]` a comma within parentheses belongs to its value, so that
//!   `{ price: decimal(10,2) }` and `{ from: x, partition: key(a, b) }` mean what they say.
//! * Nodes (aliases expanded) and depth are bounded, so a small file cannot become a large tree.
//!
//! Not here: what keys mean (`super::check`).

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, StructureStyle};

use crate::diagnostic::{Diagnostic, Diagnostics, Span, Texts};

/// Nodes that a file may expand to; ten thousand queries need about as many.
const MAX_NODES: usize = 200_000;
/// The deepest key of the contract is at 6.
const MAX_DEPTH: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    pub(crate) style: Style,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    /// `|` or `>`.
    Block,
}

#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) span: Span,
}

impl Node {
    /// Nothing written, `~` or `null`.
    pub(crate) fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar(scalar) => scalar.is_null(),
            _ => false,
        }
    }

    /// What it is, for messages: `the number 5`, `a list`.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
            Value::Scalar(scalar) if scalar.is_null() => "nothing".to_owned(),
            Value::Scalar(scalar) => match scalar.style {
                Style::Plain if scalar.is_number() => format!("the number {}", scalar.text),
                Style::Plain if scalar.is_bool() => scalar.text.clone(),
                _ => format!("the text {:?}", scalar.text),
            },
        }
    }

    fn count(&self) -> usize {
        1 + match &self.value {
            Value::Scalar(_) => 0,
            Value::List(items) => items.iter().map(Node::count).sum(),
            Value::Map(entries) => entries.iter().map(|(_, node)| 1 + node.count()).sum(),
        }
    }

    fn depth(&self) -> usize {
        1 + match &self.value {
            Value::Scalar(_) => 0,
            Value::List(items) => items.iter().map(Node::depth).max().unwrap_or(0),
            Value::Map(entries) => entries.iter().map(|(_, node)| node.depth()).max().unwrap_or(0),
        }
    }
}

impl Scalar {
    pub(crate) fn is_null(&self) -> bool {
        self.style == Style::Plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    pub(crate) fn is_bool(&self) -> bool {
        self.style == Style::Plain && matches!(self.text.as_str(), "true" | "false")
    }

    pub(crate) fn is_number(&self) -> bool {
        self.style == Style::Plain
            && self.text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
            && self.text.parse::<f64>().is_ok()
    }
}

/// Reads text `index` of `texts`.
///
/// # Errors
/// The first thing that is not YAML, keys given twice, or the bounds on size.
pub(crate) fn parse(texts: &Texts, index: usize) -> Result<Node, Diagnostics> {
    let text = &texts.get(index).text;
    let mut builder = Builder {
        texts,
        index,
        text,
        anchors: HashMap::new(),
        open: Vec::new(),
        root: None,
        count: 0,
        duplicates: Vec::new(),
    };
    let options = granit_parser::options! { flow_nesting_limit: MAX_DEPTH, block_nesting_limit: MAX_DEPTH };
    let mut documents = 0;
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| Diagnostics::one(builder.scan_error(&error)))?;
        let range = span.byte_range().unwrap_or(0..0);
        if matches!(event, Event::DocumentStart(..)) {
            documents += 1;
            if documents > 1 {
                let message = "a job file holds one document, and a second one begins here";
                return Err(Diagnostics::one(
                    builder.error(range, message).hint("put each job into its own file"),
                ));
            }
        }
        builder.event(event, range).map_err(|error| Diagnostics::one(*error))?;
    }
    let duplicates = std::mem::take(&mut builder.duplicates);
    if !duplicates.is_empty() {
        return Err(Diagnostics(duplicates));
    }
    Ok(builder.root.unwrap_or_else(|| empty(index)))
}

fn empty(index: usize) -> Node {
    let scalar = Scalar { text: String::new(), style: Style::Plain };
    Node { span: Span::new(index, 0..0), value: Value::Scalar(scalar) }
}

/// A collection whose end has not been read.
struct Open {
    start: usize,
    anchor: usize,
    flow: bool,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, key: Option<Key> },
}

struct Builder<'a> {
    texts: &'a Texts,
    index: usize,
    text: &'a str,
    anchors: HashMap<usize, Node>,
    open: Vec<Open>,
    root: Option<Node>,
    count: usize,
    duplicates: Vec<Diagnostic>,
}

/// Boxed because diagnostics are much larger than the unit variant.
type Step = Result<(), Box<Diagnostic>>;

impl Builder<'_> {
    fn error(&self, range: Range<usize>, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(self.texts, Span::new(self.index, range), message)
    }

    fn event(&mut self, event: Event<'_>, range: Range<usize>) -> Step {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let style = match style {
                    ScalarStyle::Plain => Style::Plain,
                    ScalarStyle::SingleQuoted => Style::SingleQuoted,
                    ScalarStyle::DoubleQuoted => Style::DoubleQuoted,
                    ScalarStyle::Literal | ScalarStyle::Folded => Style::Block,
                };
                let span = Span::new(self.index, range);
                self.place(
                    Node { span, value: Value::Scalar(Scalar { text: text.into_owned(), style }) },
                    anchor,
                )
            }
            Event::SequenceStart(style, anchor, _) => {
                self.enter(range, style, anchor, OpenKind::List(Vec::new()))
            }
            Event::MappingStart(style, anchor, _) => {
                self.enter(range, style, anchor, OpenKind::Map { entries: Vec::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let open = self.open.pop().expect("the parser closes only what it opened");
                let span = Span::new(self.index, open.start..range.end.max(open.start));
                let value = match open.kind {
                    OpenKind::List(items) if open.flow => Value::List(self.rejoin_items(items)),
                    OpenKind::List(items) => Value::List(items),
                    OpenKind::Map { entries, .. } => {
                        let entries = if open.flow { self.rejoin_entries(entries) } else { entries };
                        self.find_duplicates(&entries);
                        Value::Map(entries)
                    }
                };
                self.place(Node { span, value }, open.anchor)
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(Box::new(self.error(range, "an alias is inside the node that it names")));
                };
                if self.count + node.count() > MAX_NODES || self.open.len() + node.depth() > MAX_DEPTH {
                    let message = format!("aliases make more than {MAX_NODES} nodes of this file");
                    return Err(Box::new(self.error(range, message)));
                }
                self.count += node.count();
                self.place(node, 0)
            }
            _ => Ok(()),
        }
    }

    fn enter(&mut self, range: Range<usize>, style: StructureStyle, anchor: usize, kind: OpenKind) -> Step {
        if self.open.len() >= MAX_DEPTH {
            return Err(Box::new(self.error(range, format!("nested more than {MAX_DEPTH} deep"))));
        }
        self.open.push(Open { start: range.start, anchor, flow: style == StructureStyle::Flow, kind });
        Ok(())
    }

    fn place(&mut self, node: Node, anchor: usize) -> Step {
        self.count += 1;
        if self.count > MAX_NODES {
            return Err(Box::new(
                self.error(node.span.start..node.span.end, format!("more than {MAX_NODES} nodes")),
            ));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open { kind: OpenKind::List(items), .. }) => items.push(node),
            Some(Open { kind: OpenKind::Map { entries, key }, .. }) => match key.take() {
                Some(key) => entries.push((key, node)),
                None => match node.value {
                    Value::Scalar(scalar) => *key = Some(Key { text: scalar.text, span: node.span }),
                    _ => {
                        let range = node.span.start..node.span.end;
                        return Err(Box::new(
                            self.error(range, "a key is a list or a mapping").expected("a name"),
                        ));
                    }
                },
            },
        }
        Ok(())
    }

    /// `[a, f(b, c)]` was split at the inner comma: puts `f(b, c)` together again.
    fn rejoin_items(&self, items: Vec<Node>) -> Vec<Node> {
        let mut joined: Vec<Node> = Vec::with_capacity(items.len());
        for item in items {
            match joined.last_mut() {
                Some(last) if is_open(last) && is_plain(&item) => self.join(last, item.span.end),
                _ => joined.push(item),
            }
        }
        joined
    }

    /// `{a: f(b, c)}` was split at the inner comma into `a: f(b` and a key `c)` without a value.
    fn rejoin_entries(&self, entries: Vec<(Key, Node)>) -> Vec<(Key, Node)> {
        let mut joined: Vec<(Key, Node)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            match joined.last_mut() {
                Some((_, last)) if is_open(last) && value.is_null() => self.join(last, key.span.end),
                _ => joined.push((key, value)),
            }
        }
        joined
    }

    fn join(&self, node: &mut Node, end: usize) {
        node.span.end = end;
        if let (Value::Scalar(scalar), Some(text)) = (&mut node.value, self.text.get(node.span.start..end)) {
            text.clone_into(&mut scalar.text);
        }
    }

    fn find_duplicates(&mut self, entries: &[(Key, Node)]) {
        let mut seen: HashMap<&str, &Key> = HashMap::new();
        let mut found = Vec::new();
        for (key, _) in entries {
            if let Some(first) = seen.insert(&key.text, key) {
                let line = Diagnostic::new(self.texts, first.span, "").line;
                found.push(
                    Diagnostic::new(self.texts, key.span, format!("key {:?} is given twice", key.text))
                        .hint(format!("the first one is in line {line}")),
                );
            }
        }
        self.duplicates.extend(found);
    }

    fn scan_error(&self, error: &granit_parser::ScanError) -> Diagnostic {
        let marker = error.marker();
        let start = marker.byte_offset().unwrap_or_else(|| {
            self.text.char_indices().nth(marker.index()).map_or(self.text.len(), |(at, _)| at)
        });
        let diagnostic = self.error(start..start + 1, format!("this is not YAML: {}", error.info()));
        let line_start = self.text[..start.min(self.text.len())].rfind('\n').map_or(0, |at| at + 1);
        let indentation = &self.text[line_start..];
        let blank = indentation.len() - indentation.trim_start_matches([' ', '\t']).len();
        if indentation[..blank].contains('\t') {
            return diagnostic.hint("the line is indented with a tab; YAML indents with blanks");
        }
        if error.info().contains("mapping values") {
            return diagnostic.hint("a value that holds \": \" has to be in quotes, or below `|`");
        }
        if error.info().contains("trailing content") {
            return diagnostic.hint("put the whole value in quotes, or below `|`");
        }
        diagnostic
    }
}

fn is_plain(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar(Scalar { style: Style::Plain, .. }))
}

/// Plain text with more parentheses opened than closed.
fn is_open(node: &Node) -> bool {
    match &node.value {
        Value::Scalar(Scalar { text, style: Style::Plain }) => {
            text.matches('(').count() > text.matches(')').count()
        }
        _ => false,
    }
}

/// Byte of the file at which byte `offset` of a scalar's meaning is.
///
/// Walks both texts in step: a blank in the meaning stands for any run of white space in the file (folding,
/// indentation), and one character for an escape. Good enough for a caret; exact where the scalar is on one line.
pub(crate) fn place_in_scalar(raw: &str, scalar: &Scalar, offset: usize) -> usize {
    let skip = match scalar.style {
        Style::Plain => 0,
        Style::SingleQuoted | Style::DoubleQuoted => 1,
        Style::Block => {
            if raw.starts_with(['|', '>']) {
                raw.find('\n').map_or(0, |at| at + 1)
            } else {
                0
            }
        }
    };
    let bytes = raw.as_bytes();
    let mut at = skip;
    for (position, wanted) in scalar.text.char_indices() {
        if position >= offset {
            break;
        }
        if wanted.is_whitespace() {
            if bytes.get(at).is_some_and(|b| *b == b'\\') {
                at = skip_escape(raw, at);
            } else if wanted == ' ' && bytes.get(at) == Some(&b' ') {
                at += 1;
            } else {
                at += raw[at..].len() - raw[at..].trim_start().len();
            }
            continue;
        }
        at += raw[at..].len() - raw[at..].trim_start().len();
        match (bytes.get(at), scalar.style) {
            (Some(b'\\'), Style::DoubleQuoted) => at = skip_escape(raw, at),
            (Some(b'\''), Style::SingleQuoted) => at += 2,
            _ => at += raw[at..].chars().next().map_or(0, char::len_utf8),
        }
        at = at.min(raw.len());
    }
    // What is pointed at is a word: indentation and line ends before it are not meant.
    if !scalar.text[offset.min(scalar.text.len())..].starts_with(char::is_whitespace) && at < raw.len() {
        at += raw[at..].len() - raw[at..].trim_start().len();
    }
    at.min(raw.len())
}

fn skip_escape(raw: &str, at: usize) -> usize {
    let bytes = raw.as_bytes();
    let length = match bytes.get(at + 1) {
        Some(b'x') => 4,
        Some(b'u') => 6,
        Some(b'U') => 10,
        Some(_) => 1 + raw[at + 1..].chars().next().map_or(0, char::len_utf8),
        None => 1,
    };
    let mut end = (at + length).min(raw.len());
    while !raw.is_char_boundary(end) {
        end += 1;
    }
    end
}
