//! `thalweg help`: commands as clap has them, the reference of jobs as it is generated, and the documents.
//!
//! A word may mean several things (`sql` is a command and a document, `file` a source and a sink): all of them are
//! printed, the shortest kind first. Two words name one of them: `source file`, `document sql`.

mod documents;
mod text;

use clap::{Command, CommandFactory};
use thalweg_node::NodeOptions;
use thalweg_node::diagnostic::nearest;
use thalweg_node::reference::{Kind, Reference};

use crate::Outcome;
use crate::args::{Args, Help};
use crate::output::{Failure, with_hint, write};

use documents::DOCUMENTS;

/// Columns of a page, which every terminal has.
const WIDTH: usize = 80;

pub(crate) fn help(args: &Help, options: &NodeOptions) -> Outcome {
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let topics =
        Topics { command: command(), reference: Reference::new(&options.registry, &options.operators) };
    let pages = match words.as_slice() {
        [] => topics.command(&[]).into_iter().collect(),
        words => topics.find(words),
    };
    if pages.is_empty() {
        return Err(topics.unknown(&words));
    }
    let rule = format!("\n{}\n\n", "─".repeat(WIDTH));
    write(&pages.join(&rule))
}

fn command() -> Command {
    let mut command = Args::command();
    command.build();
    command
}

struct Topics {
    command: Command,
    reference: Reference,
}

impl Topics {
    /// All pages that the words mean.
    fn find(&self, words: &[&str]) -> Vec<String> {
        let mut pages: Vec<String> = self.command(words).into_iter().collect();
        match words {
            ["topics"] => pages.push(text::plain(&self.list(), WIDTH)),
            ["jobs"] => pages.push(text::plain(&self.reference.page(), WIDTH)),
            [word] => {
                pages.extend(self.chapter(word));
                pages.extend(Kind::ALL.iter().filter_map(|kind| self.entry(*kind, word)));
                pages.extend(document(word));
                if pages.is_empty() {
                    pages.extend(self.key(word));
                }
            }
            [kind, name] => {
                let of_kind = |kind: &str| Kind::of_name(kind).and_then(|kind| self.entry(kind, name));
                match *kind {
                    "command" => pages.extend(self.command(&[name])),
                    "document" => pages.extend(document(name)),
                    "key" => pages.extend(self.key(name)),
                    kind => pages.extend(of_kind(kind).or_else(|| of_kind(kind.strip_suffix('s')?))),
                }
            }
            _ => {}
        }
        pages
    }

    /// The help of a command, as `--help` prints it.
    fn command(&self, path: &[&str]) -> Option<String> {
        let mut command = &self.command;
        for word in path {
            command = command.get_subcommands().find(|one| one.get_name() == *word && !one.is_hide_set())?;
        }
        // Long texts are long with `--help` too.
        let is_long = command.get_long_about().is_some()
            || command.get_arguments().any(|argument| argument.get_long_help().is_some());
        let mut command = command.clone();
        Some(if is_long { command.render_long_help() } else { command.render_help() }.to_string())
    }

    fn chapter(&self, word: &str) -> Option<String> {
        let chapters = self.reference.chapters();
        let found = chapters
            .iter()
            .find(|chapter| chapter.topic == word || chapter.topic.strip_suffix('s') == Some(word))?;
        Some(text::plain(&self.reference.text(found), WIDTH))
    }

    fn entry(&self, kind: Kind, name: &str) -> Option<String> {
        let entry = self.reference.entries().iter().find(|entry| entry.kind == kind && entry.name == name)?;
        Some(text::plain(&entry.text(), WIDTH))
    }

    /// Where a key may be written.
    fn key(&self, name: &str) -> Option<String> {
        let places = self.reference.places(name);
        let mut page = format!("### Key `{name}`\n");
        for (place, key) in &places {
            let default = match key.default.as_str() {
                "" => String::new(),
                "required" => "; required".to_owned(),
                default => format!("; default {default}"),
            };
            page.push_str(&format!("\nOf {place}: {}{default}.\n{}.\n", key.kind, key.doc));
        }
        (!places.is_empty()).then(|| text::plain(&page, WIDTH))
    }

    /// What there is, as Markdown.
    fn list(&self) -> String {
        let mut page =
            "# Topics\n\n`thalweg help TOPIC` prints one of these; `thalweg help KEY` what a key of job files means.\n"
                .to_owned();
        let mut table = |title: &str, rows: &[(&str, String)]| {
            page.push_str(&format!("\n## {title}\n\n| topic | meaning |\n|---|---|\n"));
            for (name, doc) in rows {
                page.push_str(&format!("| {name} | {} |\n", doc.replace('|', "\\|")));
            }
        };
        let commands = self.command.get_subcommands().filter(|command| !command.is_hide_set());
        let commands = commands.map(|command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            (command.get_name(), about)
        });
        table("Commands", &commands.collect::<Vec<_>>());
        let whole = ("jobs", "all of the reference of job files: the chapters and types below".to_owned());
        let chapters =
            self.reference.chapters().iter().map(|chapter| (chapter.topic, chapter.doc.to_owned()));
        table("Job files", &std::iter::once(whole).chain(chapters).collect::<Vec<_>>());
        for (kind, title) in Kind::ALL.into_iter().zip(["Sources", "Formats", "Operators", "Sinks"]) {
            let entries = self.reference.entries().iter().filter(|entry| entry.kind == kind);
            table(title, &entries.map(|entry| (entry.name, entry.doc.to_owned())).collect::<Vec<_>>());
        }
        let documents = DOCUMENTS.iter().map(|document| (document.name, document.doc.to_owned()));
        table("Documents", &documents.collect::<Vec<_>>());
        page
    }

    /// Every word that is a topic.
    fn names(&self) -> Vec<&str> {
        let commands = self.command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut names: Vec<&str> = vec!["topics", "jobs"];
        names.extend(commands.map(Command::get_name));
        names.extend(self.reference.chapters().iter().map(|chapter| chapter.topic));
        names.extend(self.reference.entries().iter().map(|entry| entry.name));
        names.extend(DOCUMENTS.iter().map(|document| document.name));
        names
    }

    fn unknown(&self, words: &[&str]) -> Failure {
        let wanted = words.join(" ");
        let last = words.last().copied().unwrap_or_default();
        let near = nearest(last, self.names()).or_else(|| nearest(last, self.reference.key_names()));
        let hint = match near {
            Some(near) if words.len() == 1 => {
                format!("did you mean {near:?}? `thalweg help topics` lists all topics")
            }
            _ => "`thalweg help topics` lists all topics".to_owned(),
        };
        Failure::Usage(with_hint(&format!("there is no help topic {wanted:?}"), Some(&hint)))
    }
}

fn document(name: &str) -> Option<String> {
    let document = DOCUMENTS.iter().find(|document| document.name == name)?;
    Some(text::plain(document.text, WIDTH))
}
