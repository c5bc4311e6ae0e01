//! Keys as a table in Markdown.

use std::fmt::Write as _;

use thalweg_connect::OptionKind;

use crate::job_file::keys::{KeySpec, Shape};

/// One line per key, then a table for each key that is a section of its own.
pub(super) fn table(out: &mut String, specs: &[KeySpec]) {
    out.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for spec in specs {
        let default = match spec.default {
            _ if spec.required => "required".to_owned(),
            None => String::new(),
            // A value as it is written, or words about it.
            Some(text) if text.contains(' ') => text.to_owned(),
            Some(text) => format!("`{text}`"),
        };
        let meaning = cell(spec.doc);
        let _ = writeln!(out, "| `{}` | {} | {default} | {meaning} |", spec.key, cell(&describe(spec.shape)));
    }
    for spec in specs {
        match spec.shape {
            Shape::Section(inner) if !inner.is_empty() && spec.key == "schedule" => {
                let _ = writeln!(out, "\nKeys of `{}:`\n", spec.key);
                table(out, inner);
            }
            Shape::Option(OptionKind::Sections(inner)) => {
                let _ = writeln!(out, "\nKeys of each entry of `{}:`\n", spec.key);
                table(out, &inner.iter().map(KeySpec::of_option).collect::<Vec<_>>());
            }
            _ => {}
        }
    }
}

/// In a cell, a bar would end it.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A value in a few words.
pub(super) fn describe(shape: Shape) -> String {
    let words = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    match shape {
        Shape::Option(kind) => option(kind),
        Shape::Name => "name".to_owned(),
        Shape::Type => "name of a kind".to_owned(),
        Shape::Format => "name of a format".to_owned(),
        Shape::Fields => "names with types".to_owned(),
        Shape::Field => "name of a field".to_owned(),
        Shape::Input => "input, or a list".to_owned(),
        Shape::Expression => "expression".to_owned(),
        Shape::Expressions => "names with expressions".to_owned(),
        Shape::Keys => "prefixes with fields".to_owned(),
        Shape::PartitionBy => "list of fields or lists".to_owned(),
        Shape::Queries => "names with queries".to_owned(),
        Shape::DurationOr(word) => format!("duration, or `{word}`"),
        Shape::Pace(allowed) => format!("{}, or `{{ every: … }}`", words(allowed)),
        Shape::Shortcuts => "names with paths".to_owned(),
        Shape::Section(_) => "keys of its own".to_owned(),
        Shape::Sources => "names with sources".to_owned(),
        Shape::Operators => "names with operators".to_owned(),
        Shape::Sinks => "names with sinks".to_owned(),
    }
}

fn option(kind: OptionKind) -> String {
    match kind {
        OptionKind::Text => "text".to_owned(),
        OptionKind::Path => "path".to_owned(),
        OptionKind::PathList => "path, or a list".to_owned(),
        OptionKind::Secret => "`env:NAME` or `file:PATH`".to_owned(),
        OptionKind::Url => "URL".to_owned(),
        OptionKind::Bool => "`true` or `false`".to_owned(),
        OptionKind::Integer { min, max } => match (min, max) {
            (i64::MIN, i64::MAX) => "integer".to_owned(),
            (min, i64::MAX) => format!("integer from {min}"),
            (min, max) => format!("integer from {min} to {max}"),
        },
        OptionKind::Number => "number".to_owned(),
        OptionKind::Duration => "duration".to_owned(),
        OptionKind::Size => "size".to_owned(),
        OptionKind::Choice(names) => {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        }
        OptionKind::TextList => "text, or a list".to_owned(),
        OptionKind::TextLists => "text, a list, or names with these".to_owned(),
        OptionKind::Sections(_) => "names with keys of their own".to_owned(),
    }
}
