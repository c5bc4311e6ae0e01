//! Looking over a store's folder without changing it, while another process may write there.
//!
//! What is judged is what opening judges ([`super::file`]): only the last file may end with what a crash left, and only
//! where no whole chunk follows, or after what a commit names.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::file::{self, Depth};
use super::{ChunkMeta, recover};
use crate::schemas;
use crate::{ChunkError, ChunkId, Fs, OpenMode, SchemaRegistry};

/// A file of chunks as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkFileSummary {
    pub path: PathBuf,
    /// Its first chunk.
    pub first: ChunkId,
    /// The chunk after its last.
    pub next: ChunkId,
    /// Bytes up to the end of its last whole chunk.
    pub bytes: u64,
    pub file_bytes: u64,
}

/// What a crash left of the last write: bytes that are no whole chunk, or no whole schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkTail {
    pub path: PathBuf,
    pub pos: u64,
    pub bytes: u64,
}

/// What a folder of chunks holds.
#[derive(Clone, Debug, Default)]
pub struct ChunkSummary {
    /// Identity of the task; `None` if no file names it.
    pub task: Option<u64>,
    pub schemas: SchemaRegistry,
    /// In order, up to the damage.
    pub files: Vec<ChunkFileSummary>,
    pub chunks: Vec<ChunkMeta>,
    /// What opening would cut.
    pub torn: Vec<ChunkTail>,
    /// What opening, or reading, would refuse.
    pub damage: Option<ChunkError>,
}

impl ChunkSummary {
    /// The first chunk; equals [`ChunkSummary::next`] if there is no chunk.
    pub fn first(&self) -> ChunkId {
        self.files.first().map_or(ChunkId(0), |file| file.first)
    }

    /// The chunk after the last one.
    pub fn next(&self) -> ChunkId {
        self.files.last().map_or(ChunkId(0), |file| file.next)
    }
}

/// Whether the folder holds files of a chunk store.
///
/// # Errors
/// The disk's errors.
pub fn is_chunk_folder(fs: &dyn Fs, dir: &Path) -> std::io::Result<bool> {
    let names = fs.list(dir)?;
    Ok(names.iter().any(|name| name == schemas::FILE_NAME || file::first_of(name).is_some()))
}

/// Reads schemas and the heads of all chunks. `committed` are the chunks that the last commit names, if one is known:
/// bytes after them do not count, and are reported as torn.
///
/// # Errors
/// The disk's errors. Damage is part of the summary.
pub fn inspect_chunks(
    fs: &dyn Fs,
    dir: &Path,
    committed: Option<&Range<ChunkId>>,
) -> Result<ChunkSummary, ChunkError> {
    survey(fs, dir, committed, Depth::Heads)
}

/// As [`inspect_chunks`], and holds every byte of every column against its checksum.
///
/// # Errors
/// The disk's errors. Damage is part of the summary.
pub fn verify_chunks(
    fs: &dyn Fs,
    dir: &Path,
    committed: Option<&Range<ChunkId>>,
) -> Result<ChunkSummary, ChunkError> {
    survey(fs, dir, committed, Depth::Columns)
}

fn survey(
    fs: &dyn Fs,
    dir: &Path,
    committed: Option<&Range<ChunkId>>,
    depth: Depth,
) -> Result<ChunkSummary, ChunkError> {
    let mut summary = ChunkSummary::default();
    let outcome = look(fs, dir, committed, depth, &mut summary).and_then(|()| match committed {
        Some(committed) => check(dir, committed, &mut summary),
        None => Ok(()),
    });
    match outcome {
        Err(damage @ (ChunkError::Damaged { .. } | ChunkError::NewerFormat { .. })) => {
            summary.damage = Some(damage)
        }
        outcome => outcome?,
    }
    Ok(summary)
}

/// What a commit names must be there, and only that counts.
fn check(dir: &Path, committed: &Range<ChunkId>, summary: &mut ChunkSummary) -> Result<(), ChunkError> {
    if let Some(file) = summary.files.last() {
        // Of the files after the one in which the commit ends none was read.
        let end = committed.end.max(file.first);
        let behind: u64 =
            summary.chunks.iter().filter(|chunk| chunk.id >= end).map(|chunk| chunk.bytes).sum();
        let (path, pos) = (file.path.clone(), file.bytes.saturating_sub(behind));
        let torn: u64 = summary.torn.iter().filter(|torn| torn.path == path).map(|torn| torn.bytes).sum();
        if behind > 0 {
            summary.torn.retain(|torn| torn.path != path);
            summary.torn.push(ChunkTail { path, pos, bytes: behind + torn });
        }
    }
    let (first, next) = (summary.first(), summary.next());
    if committed.start == committed.end || (first <= committed.start && committed.end <= next) {
        return Ok(());
    }
    let end = summary.files.last().filter(|_| next < committed.end);
    Err(ChunkError::Damaged {
        path: end.map_or(dir.to_owned(), |file| file.path.clone()),
        pos: end.map_or(0, |file| file.bytes),
        what: "chunks that the commit names",
        expected: format!("{} up to before {}", committed.start, committed.end),
        got: if first < next { format!("{first} up to before {next}") } else { "none".to_owned() },
    })
}

fn look(
    fs: &dyn Fs,
    dir: &Path,
    committed: Option<&Range<ChunkId>>,
    depth: Depth,
    summary: &mut ChunkSummary,
) -> Result<(), ChunkError> {
    let names = fs.list(dir).map_err(ChunkError::io("list", dir))?;
    let mut files: Vec<ChunkId> = names.iter().filter_map(|name| file::first_of(name)).collect();
    files.sort_unstable();
    // Files that begin after the commit hold nothing that counts.
    files.retain(|first| committed.is_none_or(|committed| *first < committed.end || committed.is_empty()));
    for first in &files {
        summary.task = file::task_of(fs, dir, *first)?;
        if summary.task.is_some() {
            break;
        }
    }
    if let Some(found) = schemas::look(fs, dir, summary.task)? {
        if let Some(bytes) = found.torn {
            let path = dir.join(schemas::FILE_NAME);
            summary.torn.push(ChunkTail { path, pos: found.len, bytes });
        }
        summary.schemas = found.registry;
        summary.task.get_or_insert(found.task);
    }
    for (place, first) in files.iter().enumerate() {
        let path = file::path(dir, *first);
        if let Some(last) = summary.files.last()
            && last.next != *first
        {
            return Err(ChunkError::Damaged {
                path,
                pos: 20,
                what: "first chunk of the file",
                expected: last.next.0.to_string(),
                got: first.0.to_string(),
            });
        }
        let task = summary.task.unwrap_or_default();
        let mut scan = file::scan(fs, dir, task, *first, depth, OpenMode::Read)?;
        let next = ChunkId(first.0 + scan.chunks.len() as u64);
        let bytes = scan.chunks.last().map_or(file::HEADER, |(_, place)| place.pos + place.len);
        let tail = scan.tail.take();
        let torn =
            tail.as_ref().map(|tail| ChunkTail { path: path.clone(), pos: tail.pos, bytes: tail.bytes });
        let file_bytes = torn.as_ref().map_or(bytes, |torn| torn.pos + torn.bytes);
        // A header that is not whole is followed by nothing that is known to be this file's.
        let bytes = bytes.min(torn.as_ref().map_or(bytes, |torn| torn.pos));
        summary.files.push(ChunkFileSummary { path: path.clone(), first: *first, next, bytes, file_bytes });
        for (head, place) in &scan.chunks {
            let schema = head.info.schema_id;
            if summary.schemas.get(schema).is_none()
                && let Some(torn) = summary.torn.iter().find(|torn| torn.path.ends_with(schemas::FILE_NAME))
            {
                // It was synced before the chunk was written.
                return Err(ChunkError::Damaged {
                    path: torn.path.clone(),
                    pos: torn.pos,
                    what: "schema of a chunk",
                    expected: format!("schema {schema}, which {} names", ChunkId(head.info.number)),
                    got: format!("{} bytes that are not one", torn.bytes),
                });
            }
            summary.chunks.push(recover::meta(head, place, &summary.schemas, &path)?);
        }
        if let Some(tail) = tail {
            let is_damage = match committed {
                Some(committed) => next < committed.end,
                None => tail.is_followed(),
            };
            if place + 1 < files.len() || is_damage {
                return Err(tail.into_damage(&path, next));
            }
            summary.torn.extend(torn);
        }
    }
    Ok(())
}
