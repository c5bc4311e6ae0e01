//! One plug-in in the reference.

use thalweg_connect::{OptionSpec, Options, Registry};

use crate::job_file::keys::KeySpec;
use crate::operator::Operators;

use super::table::Key;
use super::{example, table};

/// Kinds of plug-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Source,
    Format,
    Operator,
    Sink,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Source, Kind::Format, Kind::Operator, Kind::Sink];

    /// `source`
    pub fn name(self) -> &'static str {
        match self {
            Kind::Source => "source",
            Kind::Format => "format",
            Kind::Operator => "operator",
            Kind::Sink => "sink",
        }
    }

    /// `source` or `sources`
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub(super) fn of_plural(name: &str) -> Option<Self> {
        Self::of_name(name.strip_suffix('s')?)
    }
}

/// A plug-in.
pub struct Entry {
    pub kind: Kind,
    pub name: &'static str,
    /// One line, a fragment.
    pub doc: &'static str,
    pub keys: Vec<Key>,
    /// Its own text, as the plug-in has it.
    pub(super) page: &'static str,
    /// More about it for the list of its kind: the default format, the guarantee. As many as [`columns`] says.
    notes: Vec<String>,
}

impl Entry {
    /// `source file`
    pub fn title(&self) -> String {
        format!("{} {}", self.kind.name(), self.name)
    }

    /// Its part of the page.
    pub fn text(&self) -> String {
        let mut text =
            format!("### {} `{}`\n\n{}.\n", capital(self.kind.name()), self.name, capital(self.doc));
        let page = self.page.trim();
        if !page.is_empty() {
            text.push_str(&format!("\n{page}\n"));
        }
        let keys = match self.keys.is_empty() {
            true => "It has no keys of its own.\n".to_owned(),
            false => table::keys(&self.keys),
        };
        let text = match text.contains(KEYS) {
            true => text.replace(KEYS, &keys),
            false => format!("{text}\n{keys}"),
        };
        example::render(&text)
    }
}

/// Where a page has the table of its keys; at its end without.
const KEYS: &str = "{{keys}}\n";

pub(super) fn all(registry: &Registry, operators: &Operators) -> Vec<Entry> {
    let mut entries = Vec::new();
    for plugin in registry.sources() {
        entries.push(Entry {
            kind: Kind::Source,
            name: plugin.name(),
            doc: plugin.doc(),
            keys: of_options(plugin.options()),
            page: plugin.page(),
            notes: vec![match plugin.own_schema(&Options::default()) {
                Ok(Some(_)) => "makes its own records".to_owned(),
                _ => format_of(plugin.takes_format(), plugin.default_format()),
            }],
        });
    }
    for plugin in registry.formats() {
        entries.push(Entry {
            kind: Kind::Format,
            name: plugin.name(),
            doc: plugin.doc(),
            keys: of_options(plugin.options()),
            page: plugin.page(),
            notes: Vec::new(),
        });
    }
    for plugin in operators.all() {
        entries.push(Entry {
            kind: Kind::Operator,
            name: plugin.name(),
            doc: plugin.doc(),
            keys: plugin.options().iter().map(Key::of).collect(),
            page: plugin.page(),
            notes: Vec::new(),
        });
    }
    for plugin in registry.sinks() {
        entries.push(Entry {
            kind: Kind::Sink,
            name: plugin.name(),
            doc: plugin.doc(),
            keys: of_options(plugin.options()),
            page: plugin.page(),
            notes: vec![
                format_of(plugin.takes_format(), plugin.default_format()),
                plugin.guarantee().to_owned(),
            ],
        });
    }
    entries
}

fn of_options(options: &[OptionSpec]) -> Vec<Key> {
    options.iter().map(|option| Key::of(&KeySpec::of_option(option))).collect()
}

/// The format of a plug-in that names none in its section.
fn format_of(takes_format: bool, default: Option<&str>) -> String {
    match (takes_format, default) {
        (true, Some(default)) => format!("`{default}`"),
        (true, None) => "required".to_owned(),
        (false, _) => "takes none".to_owned(),
    }
}

/// Columns of the list of a kind besides name and meaning.
fn columns(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Source => &["default `format`"],
        Kind::Sink => &["default `format`", "after a crash"],
        Kind::Format | Kind::Operator => &[],
    }
}

/// A table with one row for each entry of a kind.
pub(super) fn list(kind: Kind, entries: &[&Entry]) -> String {
    let head = [&["type", "meaning"], columns(kind)].concat();
    let rows = entries.iter().map(|entry| {
        let mut row = vec![link(entry), entry.doc.to_owned()];
        row.extend(entry.notes.iter().cloned());
        row
    });
    table::table(&head, rows)
}

/// To the heading of an entry on the page, as GitHub names it.
fn link(entry: &Entry) -> String {
    let anchor = format!("{}-{}", entry.kind.name(), entry.name);
    format!("[`{}`](#{anchor})", entry.name)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
