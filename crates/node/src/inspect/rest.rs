//! Reservoirs, keyed state, tables, and files of which the commit record names a length.

use std::io;
use std::ops::Range;
use std::path::Path;

use thalweg_connect::sink::running::Sum;
use thalweg_state::{StateError, Version, indexed};
use thalweg_storage::{ChunkId, ChunkSummary, OpenMode, inspect_chunks, verify_chunks};
use thalweg_types::Error;

use super::report::{Damage, ReservoirLook, StateLook, Thing, Torn, What, thing};
use super::tables::{self, Looked};
use super::{Depth, Found, Looker, steady};

/// What a commit record says of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommittedFile {
    pub(super) bytes: u64,
    pub(super) sum: Option<Sum>,
}

impl Looker {
    /// The chunks in a folder; with the range of a commit, no others count.
    pub(super) fn reservoir(&self, path: &Path, committed: Option<&Range<ChunkId>>) -> Thing {
        let mut found = Found::default();
        let look = || match self.depth {
            Depth::Look => inspect_chunks(self.fs.as_ref(), path, committed),
            Depth::Verify => verify_chunks(self.fs.as_ref(), path, committed),
        };
        let is_bad = |summary: &ChunkSummary| summary.damage.as_ref().map(ToString::to_string);
        let summary = match steady(look, is_bad) {
            Ok(summary) => summary,
            Err(error) => {
                found.trouble.push(Error::from(error).chain());
                return thing(path, "reservoir", None, What::Unread, found);
            }
        };
        let torn = summary.torn.iter();
        found.torn.extend(torn.map(|torn| Torn {
            path: torn.path.clone(),
            pos: torn.pos,
            bytes: torn.bytes,
        }));
        found.damage.extend(summary.damage.as_ref().map(|error| Damage::of_chunks(error, path)));
        thing(path, "reservoir", None, What::Reservoir(ReservoirLook::of(&summary)), found)
    }

    /// Keyed state in a folder; with a version what that names and nothing else.
    pub(super) fn state(&self, path: &Path, version: Option<&Version>) -> Thing {
        let mut found = Found::default();
        let look = || indexed::inspect(self.fs.as_ref(), path, version);
        let first = |summary: &indexed::StateSummary| summary.damage.first().map(ToString::to_string);
        let summary = match steady(look, first) {
            Ok(summary) => summary,
            Err(error) => {
                found.trouble.push(Error::from(error).chain());
                return thing(path, "state", None, What::Unread, found);
            }
        };
        let torn = summary.torn.iter();
        found.torn.extend(torn.map(|torn| Torn {
            path: torn.path.clone(),
            pos: torn.pos,
            bytes: torn.bytes,
        }));
        let damage = |error: &StateError| Damage::of_state(error, path);
        found.damage.extend(summary.damage.iter().map(damage));
        thing(path, "state", None, What::State(StateLook::of(&summary)), found)
    }

    /// The table in a folder; with the position that a commit record names, its fresh rows too.
    pub(super) fn table(&self, path: &Path, position: Option<&[u8]>) -> Thing {
        let mut found = Found::default();
        let what = match tables::inspect(&self.fs, path, position, self.depth == Depth::Verify) {
            Ok(Looked { look, damage }) => {
                let damage = damage.into_iter();
                found.damage.extend(damage.map(|(path, message)| Damage { path, pos: None, message }));
                What::Table(look)
            }
            Err(error) if error.class() == thalweg_types::Class::Corrupt => {
                found.misfit(path.to_owned(), error.chain());
                What::Unread
            }
            Err(error) => {
                found.trouble.push(error.chain());
                What::Unread
            }
        };
        thing(path, "table", None, what, found)
    }

    /// A file that must be at least as long as the commit record says, and match its checksum; bytes
    /// after that are written again.
    pub(super) fn file(&self, path: &Path, kind: &'static str, of: &str, committed: CommittedFile) -> Thing {
        let mut found = Found::default();
        let CommittedFile { bytes: committed_bytes, sum } = committed;
        let look = || {
            let file = self.fs.open(path, OpenMode::Read)?;
            let len = file.len()?;
            let is_read = self.depth == Depth::Verify && len >= committed_bytes;
            let Some(sum) = sum.filter(|_| is_read) else { return Ok((len, true)) };
            let holds = sum.holds(|bytes, at| file.read_exact_at(bytes, at), committed_bytes, true)?;
            Ok((len, holds))
        };
        let what = match look() {
            Ok((file_bytes, holds)) => {
                if let Some(sum) = sum.filter(|_| !holds) {
                    let message = format!(
                        "committed bytes: between byte {} and byte {committed_bytes} are others than those that were written",
                        sum.from
                    );
                    found.damage.push(Damage { path: path.to_owned(), pos: None, message });
                }
                if file_bytes < committed_bytes {
                    let message = format!("committed bytes: expected {committed_bytes}, got {file_bytes}");
                    found.damage.push(Damage { path: path.to_owned(), pos: Some(file_bytes), message });
                } else if file_bytes > committed_bytes {
                    let bytes = file_bytes - committed_bytes;
                    found.torn.push(Torn { path: path.to_owned(), pos: committed_bytes, bytes });
                }
                What::File { committed_bytes, file_bytes }
            }
            Err(error) if io::Error::kind(&error) == io::ErrorKind::NotFound => {
                let message = format!("committed bytes: expected {committed_bytes}, got no file");
                found.damage.push(Damage { path: path.to_owned(), pos: Some(0), message });
                What::Unread
            }
            Err(error) => {
                found.trouble.push(super::failed("open", path, error).chain());
                What::Unread
            }
        };
        thing(path, kind, Some(of.to_owned()), what, found)
    }
}
