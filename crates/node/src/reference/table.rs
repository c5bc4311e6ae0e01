//! Keys as tables: type, default, meaning.

use thalweg_connect::OptionKind;

use crate::job_file::keys::{KeySpec, Shape};

/// One key, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// `every`, or `rollups.NAME.every` of a section within the value of another key.
    pub key: String,
    /// What values it takes.
    pub kind: String,
    /// As Markdown; `required` where there is no default, empty where nothing takes its place.
    pub default: String,
    pub doc: &'static str,
    /// Keys of sections in its value.
    pub inner: Vec<Key>,
}

impl Key {
    pub(super) fn of(spec: &KeySpec) -> Self {
        Self::within("", spec)
    }

    fn within(prefix: &str, spec: &KeySpec) -> Self {
        let key = format!("{prefix}{}", spec.key);
        let inner = match spec.shape {
            Shape::Option(OptionKind::Sections(specs)) => {
                let prefix = format!("{key}.NAME.");
                specs.iter().map(|spec| Key::within(&prefix, &KeySpec::of_option(spec))).collect()
            }
            _ => Vec::new(),
        };
        let default = match (spec.required, spec.default) {
            (true, _) => "required".to_owned(),
            (false, Some(default)) => value(default),
            (false, None) => String::new(),
        };
        Self { key, kind: shape(spec.shape), default, doc: spec.doc, inner }
    }
}

/// A default in words stays as it is, one that may be written so becomes code.
fn value(default: &str) -> String {
    let is_words = default.contains(' ') && !default.starts_with(['[', '{']);
    if is_words { default.to_owned() } else { code(default) }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// A table of keys, with those of inner sections below theirs.
pub(super) fn keys(keys: &[Key]) -> String {
    let mut rows = Vec::new();
    collect(keys, &mut rows);
    table(&["key", "type", "default", "meaning"], rows)
}

fn collect(keys: &[Key], rows: &mut Vec<Vec<String>>) {
    for key in keys {
        rows.push(vec![code(&key.key), key.kind.clone(), key.default.clone(), key.doc.to_owned()]);
        collect(&key.inner, rows);
    }
}

/// A Markdown table; cells are Markdown, in which `|` may be.
pub(super) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &mut dyn Iterator<Item = String>| {
        let cells: Vec<String> = cells.map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | ").replace("|  |", "| |"))
    };
    let mut text = line(&mut head.iter().map(|cell| (*cell).to_owned()));
    text.push_str(&format!("|{}\n", "---|".repeat(head.len())));
    for row in rows {
        text.push_str(&line(&mut row.into_iter()));
    }
    text
}

/// The values that a shape takes, in a few words.
fn shape(shape: Shape) -> String {
    let fixed = match shape {
        Shape::Option(kind) => return option(kind),
        Shape::DurationOr(word) => return format!("duration, or `{word}`"),
        Shape::Pace(words) => {
            return format!(
                "{}, or `{{ every: … }}`",
                words.iter().copied().map(code).collect::<Vec<_>>().join(", ")
            );
        }
        Shape::Name => "name",
        Shape::Type => "name of a type",
        Shape::Format => "name of a format",
        Shape::Fields => "field names and types",
        Shape::Field => "field",
        Shape::Input => "input, or a list of them",
        Shape::Expression => "expression",
        Shape::Expressions => "names and expressions",
        Shape::Keys => "prefixes, and for each a field or a list of fields",
        Shape::PartitionBy => "list of fields",
        Shape::Queries => "names and queries",
        Shape::Shortcuts => "names, and for each paths and values",
        Shape::Section(_) => "section",
        Shape::Sources | Shape::Operators | Shape::Sinks => "names, and a section for each",
    };
    fixed.to_owned()
}

fn option(kind: OptionKind) -> String {
    let fixed = match kind {
        OptionKind::Choice(choices) => return alternatives(choices),
        OptionKind::Integer { min, max: i64::MAX } => return format!("whole number, {min} or more"),
        OptionKind::Integer { min, max } if min == max => return code(&min.to_string()),
        OptionKind::Integer { min, max } => return format!("whole number from {min} to {max}"),
        OptionKind::Text => "text",
        OptionKind::Path => "path",
        OptionKind::PathList => "path, or a list of paths",
        OptionKind::Secret => "`env:NAME` or `file:PATH`",
        OptionKind::Url => "URL",
        OptionKind::Bool => "`true` or `false`",
        OptionKind::Number => "number",
        OptionKind::Duration => "duration",
        OptionKind::Size => "size",
        OptionKind::TextList => "text, or a list of texts",
        OptionKind::TextLists => "text, a list of texts, or fields and for each such a list",
        OptionKind::Sections(_) => "names, and a section for each",
    };
    fixed.to_owned()
}

/// `a`, `b` or `c`
fn alternatives(choices: &[&str]) -> String {
    let choices: Vec<String> = choices.iter().copied().map(code).collect();
    match choices.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => choices.concat(),
    }
}
