//! Looking into what jobs keep on disk, and checking it, without changing any of it: `thalweg inspect` and `verify`.
//!
//! What a folder is is found from its files. Each format is read where it is written (`storage`, `state`, `durable`);
//! here they are put together, and a job's parts are held against its last commit record ([`job`]).
//!
//! No lock is taken, so a process may be writing meanwhile. The ends of its files are in motion then, and so is what
//! was read of them one after the other: damage counts only when a second look finds the same ([`steady`]), and what
//! a commit record names is looked at again when there is a newer one.
//!
//! Not here: repairs (opening does them), and how things are printed.

mod commit;
mod entries;
mod job;
mod journal;
mod order;
mod parts;
mod report;
mod rest;
mod tables;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_state::indexed;
use thalweg_storage::log::{self, LogSummary};
use thalweg_storage::{Fs, is_chunk_folder, is_commit_log};
use thalweg_types::Error;

pub use entries::{Entry, entries};
pub use report::{
    Chunk, ChunkFile, CommitLook, Damage, JournalLook, LogLook, OrderLook, PartLook, Report, ReservoirLook,
    Segment, SourceLook, StateLook, StateSegment, TableLook, TablePart, Thing, Torn, What,
};

#[cfg(feature = "tables")]
pub(crate) use tables::table_position;

use report::thing;

/// How much is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Reads as much as a summary needs: of chunks their heads, of everything else all.
    Look,
    /// Every byte, against its checksum.
    Verify,
}

/// Looks that are taken before a finding counts.
const LOOKS: usize = 5;

/// Reports the data at `path`: one journal, log, reservoir, state or commit log, or everything in or below a job's
/// folder or a data directory.
///
/// # Errors
/// Of class user if there is nothing that this program writes. Failures with a single thing are in its report.
pub fn inspect(fs: &Arc<dyn Fs>, path: &Path, depth: Depth) -> Result<Report, Error> {
    let looker = Looker { fs: Arc::clone(fs), depth };
    let mut things = Vec::new();
    match fs.list(path) {
        Ok(_) => looker.folder(path, &mut things)?,
        Err(error) if matches!(error.kind(), ErrorKind::NotADirectory | ErrorKind::NotFound) => {
            if !is_commit_log(fs.as_ref(), path).map_err(|error| nothing(path, error))? {
                return Err(Error::user(format!("{path:?} is a file, and not a commit log"))
                    .with_hint("name its folder: a log, a reservoir and keyed state are folders of files"));
            }
            things.push(looker.commits(path).0);
        }
        Err(error) => return Err(Error::external(format!("list {path:?}")).with_source(error)),
    }
    if things.is_empty() {
        return Err(Error::user(format!("there is nothing of a job in {path:?}")).with_hint(
            "name a data directory, a job's folder in it (D/jobs/NAME), or a folder of a journal, an order log, a reservoir or state",
        ));
    }
    Ok(Report { path: path.to_owned(), things })
}

fn nothing(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::user(format!("there is nothing at {path:?}")),
        _ => Error::external(format!("open {path:?}")).with_source(error),
    }
}

/// What a folder holds.
enum Folder {
    Job,
    State,
    Reservoir,
    Table,
    /// A log with this name.
    Log(String),
    /// Nothing by itself; there may be something below.
    Other,
}

struct Looker {
    fs: Arc<dyn Fs>,
    depth: Depth,
}

impl Looker {
    fn kind_of(&self, path: &Path) -> std::io::Result<Folder> {
        let fs = self.fs.as_ref();
        let names = fs.list(path)?;
        if names.iter().any(|name| name == "commit.log" || name == "job.json") {
            return Ok(Folder::Job);
        }
        // Before logs: the lists of a state's segments are named alike.
        if indexed::is_state_folder(fs, path)? {
            return Ok(Folder::State);
        }
        if is_chunk_folder(fs, path)? {
            return Ok(Folder::Reservoir);
        }
        if tables::is_folder(fs, path)? {
            return Ok(Folder::Table);
        }
        if let Some(name) = log::name_in(fs, path)? {
            return Ok(Folder::Log(name));
        }
        Ok(Folder::Other)
    }

    /// Adds everything in a folder and below it.
    fn folder(&self, path: &Path, things: &mut Vec<Thing>) -> Result<(), Error> {
        let kind = self.kind_of(path).map_err(|error| failed("list", path, error))?;
        match kind {
            Folder::Job => things.extend(self.job(path)),
            Folder::State => things.push(self.state(path, None)),
            Folder::Reservoir => things.push(self.reservoir(path, None)),
            Folder::Table => things.push(self.table(path, None)),
            Folder::Log(name) => things.push(match name.as_str() {
                "order" => self.order(path, None, None).0,
                "journal" => self.journal(path, None).0,
                _ => self.plain_log(path),
            }),
            Folder::Other => {
                for name in self.fs.list_dirs(path).map_err(|error| failed("list", path, error))? {
                    self.folder(&path.join(name), things)?;
                }
            }
        }
        Ok(())
    }

    /// The log in a folder, with its findings. `identity` is the expected one.
    fn log(&self, path: &Path, identity: Option<u64>, found: &mut Found) -> Option<LogSummary> {
        let look = || log::inspect(self.fs.as_ref(), path);
        let is_bad = |summary: &LogSummary| summary.damage.as_ref().map(ToString::to_string);
        let mut summary = match steady(look, is_bad) {
            Ok(summary) => summary,
            Err(error) => {
                found.trouble.push(Error::from(error).chain());
                return None;
            }
        };
        found.torn.extend(summary.torn.clone().map(|torn| Torn {
            path: torn.path,
            pos: torn.pos,
            bytes: torn.bytes,
        }));
        found.damage.extend(summary.damage.take().map(|error| Damage::of_log(&error, path)));
        if let Some(identity) = identity
            && let Some(first) = summary.segments.first()
            && summary.identity != identity
        {
            found.damage.push(Damage {
                path: first.path.clone(),
                pos: Some(16),
                message: format!(
                    "identity of the log: expected {identity:#018x}, got {:#018x}",
                    summary.identity
                ),
            });
        }
        Some(summary)
    }

    fn plain_log(&self, path: &Path) -> Thing {
        let mut found = Found::default();
        let what = match self.log(path, None, &mut found) {
            Some(summary) => What::Log(LogLook::of(&summary)),
            None => What::Unread,
        };
        thing(path, "log", None, what, found)
    }
}

/// The run of the job that its files should be of.
#[derive(Clone, Debug)]
struct Whose {
    job: String,
    run: u64,
}

/// What goes wrong with a thing.
#[derive(Debug, Default)]
struct Found {
    torn: Vec<Torn>,
    damage: Vec<Damage>,
    /// The disk's errors.
    trouble: Vec<String>,
    notes: Vec<String>,
}

impl Found {
    /// Damage without a byte that could be named: two places do not fit together.
    fn misfit(&mut self, path: PathBuf, message: String) {
        self.damage.push(Damage { path, pos: None, message });
    }
}

/// Looks until nothing is wrong, or the same is wrong twice: a file may have been written, replaced or deleted between
/// two of its bytes.
fn steady<T, E>(look: impl Fn() -> Result<T, E>, is_bad: impl Fn(&T) -> Option<String>) -> Result<T, E> {
    let mut before: Option<String> = None;
    let mut looks = 0;
    loop {
        looks += 1;
        let outcome = look();
        match &outcome {
            Ok(found) => {
                let bad = is_bad(found);
                if bad.is_none() || bad == before || looks >= LOOKS {
                    return outcome;
                }
                before = bad;
            }
            Err(_) if looks >= LOOKS => return outcome,
            Err(_) => {}
        }
    }
}

fn failed(action: &str, path: &Path, error: std::io::Error) -> Error {
    Error::external(format!("{action} {path:?}")).with_source(error)
}

/// The source whose journal is in a folder of this name: undoes [`crate::data_dir::folder_name`].
fn source_name(folder: &str) -> String {
    let bytes = folder.as_bytes();
    let mut name = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| folder.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                name.push(byte);
                at += 3;
            }
            None => {
                name.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(name).unwrap_or_else(|_| folder.to_owned())
}

#[cfg(test)]
mod tests;
