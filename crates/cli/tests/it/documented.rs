//! Documents do what they say: the tour is run command by command, jobs are checked, and answers are compared.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::faults::Served;
use super::{Ended, Place};

pub(super) fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Language and text of each fenced block.
pub(super) fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((_, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is never closed");
    blocks
}

/// Whether the output is that of the document; `…` is any text.
fn is_shown(shown: &str, output: &str) -> bool {
    let pieces: Vec<&str> = shown.trim().split('…').collect();
    let Some(mut rest) = output.trim().strip_prefix(pieces[0]) else { return false };
    for piece in &pieces[1..] {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.is_empty() || pieces[pieces.len() - 1].is_empty() && pieces.len() > 1
}

#[test]
fn dots_are_any_text_and_all_else_is_compared() {
    assert!(is_shown("a\nb\n", "a\nb"));
    assert!(is_shown("a …d\n…\nx=…", "a b cd\n1\n2\nx=9\n"));
    for (shown, output) in [("a", "ab"), ("a", "b"), ("a…c", "ab"), ("…a", "ab"), ("a …d", "a c\nb")] {
        assert!(!is_shown(shown, output), "{shown:?} for {output:?}");
    }
}

/// A reader of the tour: a folder, and the process in the first terminal.
struct Reader {
    place: Place,
    served: Option<Served>,
    address: String,
    ended: Option<Ended>,
}

impl Reader {
    /// Runs a block of commands; returns the output of the second terminal, unless the first one has some.
    fn does(&mut self, commands: &str) -> Option<String> {
        if commands.contains("--listen") {
            let arguments: Vec<&str> = commands.split_whitespace().skip(1).collect();
            let arguments: Vec<&str> = arguments
                .into_iter()
                .map(|part| if part == ADDRESS { "127.0.0.1:0" } else { part })
                .collect();
            let mut served = Served::of(self.place.command(&arguments));
            self.address = served.address();
            self.served = Some(served);
            return None;
        }
        if commands.starts_with("kill -9") {
            self.served.take().expect("a process to kill").killed();
            return None;
        }
        let binary = self.place.command(&[]).get_program().to_owned();
        let folder = Path::new(&binary).parent().expect("a folder").to_owned();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&path)));
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(commands.replace(ADDRESS, &self.address)).current_dir(self.place.path());
        shell.env("PATH", path.expect("a path")).env_remove("THALWEG_LOG");
        let ended = Ended::of(shell.output().expect("a shell")).ends_with(0);
        Some(ended.stdout)
    }

    /// Ctrl-C in the first terminal.
    fn stops(&mut self) -> String {
        let ended = self.served.take().expect("a process to stop").ends("-INT").ends_with(0);
        let said = ended.stderr.clone();
        self.ended = Some(ended);
        said
    }
}

const ADDRESS: &str = "127.0.0.1:8080";

#[test]
fn the_tour_goes_as_it_is_told() {
    let tour = document("docs/tour.md");
    let mut reader = Reader { place: Place::with(&[]), served: None, address: String::new(), ended: None };
    let mut commands: Option<String> = None;
    let mut compared = 0;
    for (language, text) in blocks(&tour) {
        match language.as_str() {
            "yaml" => reader.place.write("tour.yaml", text.as_bytes()),
            "sh" => {
                // A block whose output is not shown.
                if let Some(commands) = commands.take() {
                    reader.does(&commands);
                }
                commands = Some(text);
            }
            _ => {
                let shown = text.replace(ADDRESS, &reader.address);
                if let Some(commands) = commands.take() {
                    let Some(mut output) = reader.does(&commands) else { continue };
                    // Rows reach a table right after their answers reach the client.
                    let begun = Instant::now();
                    while !is_shown(&shown, &output)
                        && commands.contains("sql")
                        && begun.elapsed() < Duration::from_secs(60)
                    {
                        output = reader.does(&commands).expect("an output");
                    }
                    assert!(is_shown(&shown, &output), "{commands}shows\n{output}\nand not\n{shown}");
                } else {
                    let said = reader.stops();
                    let from = said.find("draining").unwrap_or_else(|| panic!("no draining in {said}"));
                    assert!(is_shown(&shown, &said[from..]), "{said}");
                }
                compared += 1;
            }
        }
    }
    assert!(commands.is_none() && reader.ended.is_some(), "the tour ends with an output, and after the job");
    assert!(compared >= 14, "{compared} outputs");
}

#[test]
fn windows_hold_what_their_document_shows() {
    let blocks = blocks(&document("docs/windows.md"));
    let find = |language: &str, start: &str| {
        let is_it = |(kind, text): &&(String, String)| kind == language && text.starts_with(start);
        blocks.iter().find(is_it).map(|(_, text)| text.as_str()).unwrap_or_else(|| panic!("no {start}"))
    };
    let place = Place::with(&[
        ("edges.csv", find("csv", "ts,card,amount\n")),
        ("edges.yaml", find("yaml", "name: edges\n")),
        ("chain.yaml", find("yaml", "name: chain\n")),
        ("payments.csv", "ts,card,amount\n100,c1,1\n120,c1,2\n125,c1,1\n128,c1,4\n"),
    ]);
    let ended = place.thalweg(&["run", "edges.yaml"]).ends_with(0);
    assert_eq!(ended.stdout, find("json", "{\"ts\":100"));
    let explained = place.thalweg(&["explain", "edges.yaml"]).ends_with(0);
    assert!(explained.stdout.ends_with(find("text", "  cursor at task time")), "{}", explained.stdout);
    let ended = place.thalweg(&["run", "chain.yaml"]).ends_with(0);
    assert_eq!(ended.stdout, find("text", "{\"ts\":128"));
}
