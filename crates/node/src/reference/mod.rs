//! `docs/jobs.md`: the reference of job files, made from the tables that the checks and the JSON Schema are made from.
//!
//! Prose that no table has is in `*.md`, and an example of each plug-in in `examples/KIND/NAME.yaml`: a whole job that
//! passes the checks. A plug-in of a user has no example here, and needs none.

mod examples;
mod table;

use std::fmt::Write as _;

use thalweg_connect::Registry;

use crate::job_file::keys::{self, KeySpec};
use crate::operator::{Inputs, Operators};

pub use examples::{Kind, example};

use table::table;

const HEAD: &str = include_str!("head.md");
const SOURCES: &str = include_str!("sources.md");
const FORMATS: &str = include_str!("formats.md");
const OPERATORS: &str = include_str!("operators.md");
const SINKS: &str = include_str!("sinks.md");
const INPUTS: &str = include_str!("inputs.md");

/// The reference of the job files that this build takes, as Markdown.
pub fn reference(registry: &Registry, operators: &Operators) -> String {
    let mut out = HEAD.to_owned();
    top(&mut out);
    out.push_str(INPUTS);
    table(&mut out, keys::INPUT);
    out.push_str(SOURCES);
    table(&mut out, &common(keys::SOURCE));
    for plugin in registry.sources() {
        let own: Vec<KeySpec> = plugin.options().iter().map(KeySpec::of_option).collect();
        let mut about = sentence(plugin.doc());
        if plugin.takes_format() {
            about += " Takes a `format`.";
        }
        section(&mut out, Kind::Source, plugin.name(), &about, &own);
    }
    out.push_str(FORMATS);
    for plugin in registry.formats() {
        let own: Vec<KeySpec> = plugin.options().iter().map(KeySpec::of_option).collect();
        section(&mut out, Kind::Format, plugin.name(), &sentence(plugin.doc()), &own);
    }
    out.push_str(OPERATORS);
    table(&mut out, &common(keys::OPERATOR));
    for plugin in operators.all() {
        let mut about = sentence(plugin.doc());
        if plugin.inputs() == Inputs::Many {
            about += " `input` may be a list.";
        }
        section(&mut out, Kind::Operator, plugin.name(), &about, plugin.options());
    }
    out.push_str(SINKS);
    table(&mut out, &common(keys::SINK));
    for plugin in registry.sinks() {
        let own: Vec<KeySpec> = plugin.options().iter().map(KeySpec::of_option).collect();
        let mut about = sentence(plugin.doc());
        let _ = write!(about, " After a crash: {}.", plugin.guarantee());
        if plugin.takes_format() {
            about += " Takes a `format`.";
        }
        section(&mut out, Kind::Sink, plugin.name(), &about, &own);
    }
    out
}

/// The part of the reference about the plug-ins of this name, of whichever kind.
pub fn about(registry: &Registry, operators: &Operators, name: &str) -> Option<String> {
    let whole = reference(registry, operators);
    let mut out = String::new();
    let mut is_in = false;
    for line in whole.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            is_in = Kind::ALL.iter().any(|kind| title == heading(*kind, name));
        } else if line.starts_with("## ") {
            is_in = false;
        }
        if is_in {
            out.push_str(line);
            out.push('\n');
        }
    }
    (!out.is_empty()).then_some(out)
}

/// The keys of the file itself, and those of its sections.
fn top(out: &mut String) {
    table(out, keys::TOP);
    for (name, specs) in [("cycle", keys::CYCLE), ("state", keys::STATE), ("rejects", keys::REJECTS)] {
        let _ = writeln!(out, "\n### `{name}:`\n");
        table(out, specs);
    }
}

/// Without `type`, which is the heading.
fn common(specs: &[KeySpec]) -> Vec<KeySpec> {
    specs.iter().filter(|spec| spec.key != "type").copied().collect()
}

fn heading(kind: Kind, name: &str) -> String {
    format!("{} `{name}`", kind.title())
}

/// One plug-in: what it does, its keys, an example.
fn section(out: &mut String, kind: Kind, name: &str, about: &str, own: &[KeySpec]) {
    let _ = writeln!(out, "\n### {}\n\n{about}\n", heading(kind, name));
    if own.is_empty() {
        out.push_str("It has no keys of its own.\n");
    } else {
        table(out, own);
    }
    if let Some(example) = example(kind, name) {
        let _ = writeln!(out, "\n```yaml\n{}\n```", example.trim_end());
    }
}

/// A line of a table as a sentence.
fn sentence(doc: &str) -> String {
    let mut chars = doc.chars();
    let first = chars.next().map(|first| first.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

#[cfg(test)]
mod tests;
