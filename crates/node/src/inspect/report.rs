//! What a look finds, as plain values: printed by the command, or handed on as JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thalweg_state::StateError;
use thalweg_state::indexed::StateSummary;
use thalweg_storage::log::{LogError, LogSummary};
use thalweg_storage::{ChunkError, ChunkSummary};
use thalweg_types::{Micros, Offset, Seq};

use super::Found;

/// Where files of logs and of keyed state have their format.
const FORMAT_AT: u64 = 8;

/// Everything that was found at a path.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub path: PathBuf,
    pub things: Vec<Thing>,
}

/// A log, a reservoir, a state or a file that a job keeps.
#[derive(Clone, Debug, Serialize)]
pub struct Thing {
    pub path: PathBuf,
    /// `order log`, `journal`, `reservoir`, …
    pub kind: &'static str,
    /// Whose it is, where that is known: a source, a sink, or a task as `OPERATOR/TASK`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    #[serde(flatten)]
    pub what: What,
    /// Remains of the last writes before a crash, or data written since the commit; the next start cuts them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub torn: Vec<Torn>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
    /// Why it could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trouble: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum What {
    Commits(CommitLook),
    Order(OrderLook),
    Journal(JournalLook),
    Log(LogLook),
    Reservoir(ReservoirLook),
    State(StateLook),
    Table(TableLook),
    /// A file of which the commit record names a length.
    File {
        committed_bytes: u64,
        file_bytes: u64,
    },
    /// Nothing could be read.
    Unread,
}

/// Bytes at the end of a file that do not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Torn {
    pub path: PathBuf,
    pub pos: u64,
    pub bytes: u64,
}

/// Bytes other than those that were written, or things that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    pub path: PathBuf,
    /// `None`: the misfit has no byte of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pos: Option<u64>,
    /// The expected and the found value.
    pub message: String,
}

/// The segments of a log.
#[derive(Clone, Debug, Serialize)]
pub struct LogLook {
    pub name: String,
    /// Number of the first record, and the one after the last.
    pub first: u64,
    pub next: u64,
    pub bytes: u64,
    pub segments: Vec<Segment>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Segment {
    pub path: PathBuf,
    pub first: u64,
    pub next: u64,
    /// Up to the last whole frame.
    pub bytes: u64,
    /// With zeros that were laid out ahead.
    pub file_bytes: u64,
    /// Wall clock when it was made, microseconds since 1970: no record in it is older.
    pub created: Micros,
}

#[derive(Clone, Debug, Serialize)]
pub struct OrderLook {
    #[serde(flatten)]
    pub log: LogLook,
    /// Numbers that its entries cover: from the first to the one after the last.
    pub numbers: Option<(Seq, Seq)>,
    pub runs: u64,
    /// Records in them.
    pub records: u64,
    pub ticks: u64,
    pub commands: u64,
    /// First and last cycle marker.
    pub cycles: Option<(u64, u64)>,
    /// The job came to its end.
    pub has_ended: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct JournalLook {
    #[serde(flatten)]
    pub log: LogLook,
    /// Offsets of its records of the source: from the first to the one after the last.
    pub offsets: Option<(Offset, Offset)>,
    /// Bytes of the source, without the journal's own.
    pub payload_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct CommitLook {
    pub job: String,
    /// The job's other files carry it.
    #[serde(skip)]
    pub run: u64,
    /// Records that the file still holds.
    pub records: u64,
    pub bytes: u64,
    /// The last one; `None`: nothing was ever committed.
    pub last: Option<LastCommit>,
}

/// The record that counts.
#[derive(Clone, Debug, Serialize)]
pub struct LastCommit {
    pub cycle: u64,
    /// Order number after the cycle's marker.
    pub next: Seq,
    /// The job's clock then.
    pub now: Micros,
    /// Record of the order log after the marker.
    pub order: u64,
    pub sources: Vec<SourceLook>,
    pub parts: BTreeMap<String, PartLook>,
    /// Queries that were added or dropped while the job ran.
    pub queries: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SourceLook {
    pub name: String,
    /// Offset of its next record.
    pub next: Offset,
    /// Record of its journal with which it goes on; `None` for a source without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<u64>,
}

/// What a task's part says.
#[derive(Clone, Debug, Serialize)]
pub struct PartLook {
    pub bytes: u64,
    /// In words, as far as it is understood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ReservoirLook {
    pub first: u64,
    pub next: u64,
    pub rows: u64,
    /// Bytes of all chunks.
    pub bytes: u64,
    pub files: Vec<ChunkFile>,
    pub chunks: Vec<Chunk>,
    /// Columns, as `name: type`, by number of the schema.
    pub schemas: Vec<Vec<String>>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TableLook {
    /// In Parquet and in frames.
    pub rows: u64,
    /// Rows that are in no Parquet file yet, and the bytes that they take.
    pub fresh_rows: u64,
    pub fresh_bytes: u64,
    /// The table's own Parquet files, then those of its rollups.
    pub parts: Vec<TablePart>,
    /// As `name: type`.
    pub columns: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TablePart {
    pub name: String,
    pub files: u64,
    pub rows: u64,
    pub bytes: u64,
    /// First and last event time, microseconds since 1970.
    pub span: Option<(Micros, Micros)>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ChunkFile {
    pub path: PathBuf,
    pub first: u64,
    pub next: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Chunk {
    pub id: u64,
    pub rows: u32,
    pub first_time: Micros,
    pub last_time: Micros,
    pub bytes: u64,
    pub schema: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct StateLook {
    /// Cycle of the version that the commit record names; `None` where no record was at hand.
    pub cycle: Option<u64>,
    /// Of the oldest and the newest change that counts.
    pub cycles: Option<(u64, u64)>,
    pub keys: u64,
    pub live_bytes: u64,
    pub disk_bytes: u64,
    pub segments: Vec<StateSegment>,
    pub index_files: u64,
    /// Files that nothing names; the next start removes them.
    pub leftovers: Vec<PathBuf>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StateSegment {
    pub number: u64,
    pub is_sealed: bool,
    pub bytes: u64,
    pub entries: u64,
    pub live_entries: u64,
}

/// A thing with its findings.
pub(super) fn thing(path: &Path, kind: &'static str, of: Option<String>, what: What, found: Found) -> Thing {
    let Found { torn, damage, trouble, notes } = found;
    Thing { path: path.to_owned(), kind, of, what, torn, damage, trouble, notes }
}

impl Damage {
    pub(super) fn of_log(error: &LogError, path: &Path) -> Self {
        match error {
            LogError::Damaged { path, pos, what, expected, got } => Self::at(path, *pos, what, expected, got),
            LogError::NewerFormat { path, .. } => Self::newer(path, FORMAT_AT, error),
            _ => Self { path: path.to_owned(), pos: None, message: error.to_string() },
        }
    }

    pub(super) fn of_chunks(error: &ChunkError, path: &Path) -> Self {
        match error {
            ChunkError::Damaged { path, pos, what, expected, got } => {
                Self::at(path, *pos, what, expected, got)
            }
            ChunkError::NewerFormat { path, pos, .. } => Self::newer(path, *pos, error),
            _ => Self { path: path.to_owned(), pos: None, message: error.to_string() },
        }
    }

    pub(super) fn of_state(error: &StateError, path: &Path) -> Self {
        match error {
            StateError::Corrupt { path, pos, what, expected, got } => {
                Self::at(path, *pos, what, expected, got)
            }
            StateError::NewerFormat { path, .. } => Self::newer(path, FORMAT_AT, error),
            _ => Self { path: path.to_owned(), pos: None, message: error.to_string() },
        }
    }

    fn at(path: &Path, pos: u64, what: &str, expected: &str, got: &str) -> Self {
        let message = format!("{what}: expected {expected}, got {got}");
        Self { path: path.to_owned(), pos: Some(pos), message }
    }

    /// The version comes before the checksum that could show that it has changed.
    fn newer(path: &Path, pos: u64, error: &impl std::fmt::Display) -> Self {
        let message = format!("{error}; a newer version wrote it, or the bytes have changed");
        Self { path: path.to_owned(), pos: Some(pos), message }
    }
}

impl LogLook {
    pub(super) fn of(summary: &LogSummary) -> Self {
        let segments = summary.segments.iter().map(|segment| Segment {
            path: segment.path.clone(),
            first: segment.first.0,
            next: segment.next.0,
            bytes: segment.bytes,
            file_bytes: segment.file_bytes,
            created: segment.created,
        });
        Self {
            name: summary.name.clone(),
            first: summary.first().0,
            next: summary.next().0,
            bytes: summary.bytes(),
            segments: segments.collect(),
        }
    }

    /// The file that holds a record.
    pub(super) fn segment_of(&self, record: u64) -> Option<PathBuf> {
        let behind = self.segments.iter().rfind(|segment| segment.first <= record);
        behind.or(self.segments.last()).map(|segment| segment.path.clone())
    }
}

impl Damage {
    /// A log that holds less, or begins later, than a commit record says.
    pub(super) fn of_bounds(look: &LogLook, dir: &Path, record: u64, message: String) -> Self {
        let end = look.segments.last().filter(|_| record > look.next);
        let path = end.map(|segment| segment.path.clone()).or_else(|| look.segment_of(record));
        Self { path: path.unwrap_or_else(|| dir.to_owned()), pos: end.map(|segment| segment.bytes), message }
    }
}

impl ReservoirLook {
    pub(super) fn of(summary: &ChunkSummary) -> Self {
        let fields = |id: usize| summary.schemas.get(id as u32).into_iter().flat_map(|fields| fields.iter());
        Self {
            first: summary.first().0,
            next: summary.next().0,
            rows: summary.chunks.iter().map(|chunk| u64::from(chunk.rows)).sum(),
            bytes: summary.chunks.iter().map(|chunk| chunk.bytes).sum(),
            files: summary
                .files
                .iter()
                .map(|file| ChunkFile {
                    path: file.path.clone(),
                    first: file.first.0,
                    next: file.next.0,
                    bytes: file.bytes,
                })
                .collect(),
            chunks: summary
                .chunks
                .iter()
                .map(|chunk| Chunk {
                    id: chunk.id.0,
                    rows: chunk.rows,
                    first_time: chunk.first_time,
                    last_time: chunk.last_time,
                    bytes: chunk.bytes,
                    schema: chunk.schema_id,
                })
                .collect(),
            schemas: (0..summary.schemas.len())
                .map(|id| fields(id).map(ToString::to_string).collect())
                .collect(),
        }
    }
}

impl StateLook {
    pub(super) fn of(summary: &StateSummary) -> Self {
        Self {
            cycle: summary.cycle,
            cycles: summary.cycles,
            keys: summary.keys,
            live_bytes: summary.live_bytes,
            disk_bytes: summary.disk_bytes,
            segments: summary
                .segments
                .iter()
                .map(|segment| StateSegment {
                    number: segment.number,
                    is_sealed: segment.is_sealed,
                    bytes: segment.bytes,
                    entries: segment.entries,
                    live_entries: segment.live_entries,
                })
                .collect(),
            index_files: summary.index_files.len() as u64,
            leftovers: summary.leftovers.clone(),
        }
    }
}
