//! The reference of job files as Markdown, made from the tables that the checks use.
//!
//! A chapter is a Markdown file in `chapters/`, in which a line `{{…}}` is replaced by a table of keys or by the entries of
//! all plug-ins of one kind (`Chapter::text`). An entry is one plug-in: its `doc`, its `page` and its keys. `docs/jobs.md`
//! is all chapters with the entries of this build; a test compares the two, and another one runs every example.

mod entry;
mod example;
mod table;
#[cfg(test)]
mod tests;

use thalweg_connect::Registry;

use crate::job_file::keys::{self, KeySpec};
use crate::operator::Operators;

pub use entry::{Entry, Kind};
pub use example::{Block, Example, Run};
pub use table::Key;

/// What there is to say about the job files of one build.
pub struct Reference {
    entries: Vec<Entry>,
}

/// One part of the page, which can be read alone.
pub struct Chapter {
    /// How it is asked for: `sources`.
    pub topic: &'static str,
    /// One line.
    pub doc: &'static str,
    source: &'static str,
}

/// In the order of the page.
const CHAPTERS: &[Chapter] = &[
    Chapter {
        topic: "job",
        doc: "a job file and its top-level keys",
        source: include_str!("chapters/job.md"),
    },
    Chapter {
        topic: "types",
        doc: "field types, durations, sizes, paths and secrets",
        source: include_str!("chapters/types.md"),
    },
    Chapter {
        topic: "sources",
        doc: "where records come from: the keys of all sources, and each type",
        source: include_str!("chapters/sources.md"),
    },
    Chapter {
        topic: "formats",
        doc: "how bytes become records, and records bytes",
        source: include_str!("chapters/formats.md"),
    },
    Chapter {
        topic: "inputs",
        doc: "what an operator or a sink reads, and how records are spread over tasks",
        source: include_str!("chapters/inputs.md"),
    },
    Chapter {
        topic: "operators",
        doc: "what is computed from records: the keys of all operators, and each type",
        source: include_str!("chapters/operators.md"),
    },
    Chapter {
        topic: "sinks",
        doc: "where results go: the keys of all sinks, and each type",
        source: include_str!("chapters/sinks.md"),
    },
    Chapter {
        topic: "state",
        doc: "where state is kept: back ends and memory",
        source: include_str!("chapters/state.md"),
    },
    Chapter { topic: "set", doc: "--set and shortcuts", source: include_str!("chapters/set.md") },
];

/// Tables that a chapter may ask for, by the name in `{{keys NAME}}`.
const TABLES: &[(&str, &[KeySpec])] = &[
    ("top", keys::TOP),
    ("cycle", keys::CYCLE),
    ("rejects", keys::REJECTS),
    ("state", keys::STATE),
    ("source", keys::SOURCE),
    ("operator", keys::OPERATOR),
    ("schedule", keys::SCHEDULE),
    ("sink", keys::SINK),
    ("input", keys::INPUT),
];

impl Reference {
    /// The reference of the job files that are checked against these.
    pub fn new(registry: &Registry, operators: &Operators) -> Self {
        Self { entries: entry::all(registry, operators) }
    }

    pub fn chapters(&self) -> &'static [Chapter] {
        CHAPTERS
    }

    /// All plug-ins, kind by kind, in the order in which this build lists them.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// All chapters as one page: `docs/jobs.md`.
    pub fn page(&self) -> String {
        let mut page = include_str!("chapters/title.md").to_owned();
        for chapter in CHAPTERS {
            page.push('\n');
            page.push_str(&self.text(chapter));
        }
        page
    }

    /// A chapter with its tables and entries filled in.
    pub fn text(&self, chapter: &Chapter) -> String {
        self.fill(chapter.source)
    }

    /// Where a key may be written, with its table row: common keys first, then plug-ins.
    pub fn places(&self, key: &str) -> Vec<(String, Key)> {
        let common = TABLES.iter().map(|(name, specs)| {
            let place = match *name {
                "top" => "a job file".to_owned(),
                "cycle" | "rejects" | "state" | "schedule" => format!("`{name}`"),
                "source" => "every source".to_owned(),
                name => format!("every {name}"),
            };
            (place, specs.iter().map(Key::of).collect::<Vec<_>>())
        });
        let own = self.entries.iter().map(|entry| (entry.title(), entry.keys.clone()));
        common
            .chain(own)
            .filter_map(|(place, keys)| Some((place, keys.into_iter().find(|one| one.key == key)?)))
            .collect()
    }

    /// Every key of the reference, once each.
    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        let common = TABLES.iter().flat_map(|(_, specs)| specs.iter().map(|spec| spec.key));
        common.chain(self.entries.iter().flat_map(|entry| entry.keys.iter().map(|key| key.key.as_str())))
    }

    /// Every example of the page, named after where it is.
    pub fn examples(&self) -> Vec<Example> {
        let chapters = CHAPTERS.iter().map(|chapter| (chapter.topic.to_owned(), chapter.source));
        let entries = self.entries.iter().map(|entry| (entry.title(), entry.page));
        chapters.chain(entries).flat_map(|(name, text)| example::examples(&name, text)).collect()
    }

    fn fill(&self, source: &str) -> String {
        let mut text = String::new();
        for line in source.split_inclusive('\n') {
            let directive = line.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
            match directive.and_then(|directive| self.directive(directive)) {
                Some(filled) => text.push_str(&filled),
                None => text.push_str(line),
            }
        }
        example::render(&text)
    }

    /// What takes the place of `{{directive}}`; `None` where it has no meaning, which a test finds.
    fn directive(&self, directive: &str) -> Option<String> {
        let (verb, of) = directive.split_once(' ')?;
        match verb {
            "keys" => {
                let (_, specs) = TABLES.iter().find(|(name, _)| *name == of)?;
                Some(table::keys(&specs.iter().map(Key::of).collect::<Vec<_>>()))
            }
            "list" => {
                let kind = Kind::of_plural(of)?;
                Some(entry::list(kind, &self.of_kind(kind)))
            }
            "entries" => {
                let texts =
                    self.of_kind(Kind::of_plural(of)?).iter().map(|entry| entry.text()).collect::<Vec<_>>();
                Some(texts.join("\n"))
            }
            _ => None,
        }
    }

    fn of_kind(&self, kind: Kind) -> Vec<&Entry> {
        self.entries.iter().filter(|entry| entry.kind == kind).collect()
    }
}
