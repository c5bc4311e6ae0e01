//! The manifest: which Parquet files a table consists of.
//!
//! A log of changes, each one JSON record, synced before it counts (`storage::CommitLog`); replaced by one record of all that
//! counts when it has grown long. It never says anything about rows that no commit record of the job names: files are made of
//! committed rows only, so what a change of the manifest changes is in which files rows are, never which rows there
//! are.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_storage::log::LogError;
use thalweg_storage::{CommitLog, Fs, read_commits};
use thalweg_types::{DataType, Error, Field, Micros, Schema};

use crate::clock::TableClock;
use crate::position::{Extent, Position};
use crate::sums::{FileSum, TailSum};
use crate::{RollupSpec, folder};

/// Persisted.
const VERSION: u32 = 1;

/// One Parquet file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub number: u64,
    /// [`folder::ROWS`], or the rollup that it belongs to.
    pub part: String,
    /// Folder of its partition.
    pub partition: String,
    pub rows: u64,
    pub bytes: u64,
    pub first: Micros,
    pub last: Micros,
    /// CRC-32 of its bytes.
    pub crc: u32,
    /// What follows its rows, the checksums of their blocks among it; entries of older builds do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<TailSum>,
}

impl Entry {
    pub(crate) fn sum(&self) -> FileSum {
        FileSum { whole: self.crc, tail: self.tail }
    }
}

/// What the columns are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    pub fields: Vec<DescribedField>,
    /// The column with the event time.
    pub time: String,
    pub rollups: Vec<DescribedRollup>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DescribedField {
    pub name: String,
    #[serde(rename = "type")]
    pub data_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DescribedRollup {
    pub name: String,
    pub every: Micros,
    pub by: Vec<String>,
    pub sum: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Micros>,
}

impl Description {
    pub(crate) fn new(schema: &Schema, time: usize, rollups: &[RollupSpec]) -> Self {
        let field = |field: &Field| DescribedField {
            name: field.name.clone(),
            data_type: field.data_type.to_string(),
        };
        let rollup = |spec: &RollupSpec| DescribedRollup {
            name: spec.name.clone(),
            every: spec.every,
            by: spec.by.clone(),
            sum: spec.sum.clone(),
            retention: spec.retention,
        };
        Self {
            fields: schema.fields().iter().map(field).collect(),
            time: schema.fields()[time].name.clone(),
            rollups: rollups.iter().map(rollup).collect(),
        }
    }

    /// # Errors
    /// Where it names a type that this program does not know.
    pub(crate) fn schema(&self) -> Result<Schema, Error> {
        let fields = self.fields.iter().map(|field| {
            let data_type = DataType::parse(&field.data_type).map_err(|error| {
                Error::corrupt(format!("column {:?} of a manifest", field.name)).with_source(error)
            })?;
            Ok(Field::new(&field.name, data_type).nullable())
        });
        Ok(Schema::new(fields.collect::<Result<Vec<Field>, Error>>()?))
    }

    pub(crate) fn rollups(&self) -> impl Iterator<Item = RollupSpec> {
        self.rollups.iter().map(|rollup| RollupSpec {
            name: rollup.name.clone(),
            every: rollup.every,
            by: rollup.by.clone(),
            sum: rollup.sum.clone(),
            retention: rollup.retention,
        })
    }
}

/// A change, or with `description` all that counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Description>,
    /// Frames of all files below this number are in Parquet.
    pub sealed: u64,
    /// The size of the last of them: a commit record that names it names as much. Changes of older builds do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sealed: Option<Extent>,
    /// Number of the next Parquet file.
    pub next: u64,
    /// Rollups whose files cover all rows that were ever sealed while these were kept.
    pub built: BTreeSet<String>,
    /// Parts whose files were dropped for their age: rows before this time may be missing in them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub complete_from: BTreeMap<String, Micros>,
    /// What time it is for retention, where something is kept for a time only; changes of older builds do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<TableClock>,
    /// Every file of these parts goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<Entry>,
}

/// What counts now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub description: Option<Description>,
    pub sealed: u64,
    pub last_sealed: Option<Extent>,
    pub next: u64,
    pub built: BTreeSet<String>,
    pub complete_from: BTreeMap<String, Micros>,
    pub clock: Option<TableClock>,
    pub files: BTreeMap<u64, Entry>,
}

impl Contents {
    fn apply(&mut self, change: Change) {
        if let Some(description) = change.description {
            self.description = Some(description);
        }
        (self.sealed, self.next, self.built) = (change.sealed, change.next, change.built);
        (self.last_sealed, self.complete_from) = (change.last_sealed, change.complete_from);
        self.clock = change.clock;
        self.files.retain(|_, entry| !change.dropped.contains(&entry.part));
        change.remove.iter().for_each(|number| drop(self.files.remove(number)));
        self.files.extend(change.add.into_iter().map(|entry| (entry.number, entry)));
    }

    /// A change that changes nothing yet.
    pub(crate) fn change(&self) -> Change {
        Change {
            version: VERSION,
            sealed: self.sealed,
            last_sealed: self.last_sealed,
            next: self.next,
            built: self.built.clone(),
            complete_from: self.complete_from.clone(),
            clock: self.clock.clone(),
            ..Change::default()
        }
    }

    /// Evidence of sealed rows that `position` does not have: its job's commit log has lost the records that named
    /// them, and they would be written again. A file of frames is sealed when all of it is named by a commit record on
    /// the disk, so no crash leaves this; a reader that does not stop the writer has to read `position` again to know.
    pub(crate) fn ahead_of(&self, position: &Position) -> Option<String> {
        const LOST: &str = "commit.log has lost its last records, or is of an older copy";
        if self.sealed > position.next {
            return Some(format!(
                "the manifest counts files of frames below {} as sealed, and the job's last commit knows of those below {}: \
                 {LOST}",
                self.sealed, position.next
            ));
        }
        let last = self.last_sealed.filter(|last| last.number < self.sealed)?;
        let named = position.frames.iter().find(|named| named.number == last.number)?;
        (*named != last).then(|| {
            format!(
                "the manifest has sealed {} rows ({} bytes) of the file of frames {}, and the job's last commit names {} ({} \
                 bytes): {LOST}",
                last.rows, last.bytes, last.number, named.rows, named.bytes
            )
        })
    }

    /// Reads a manifest while another process may write it. `position` was read before it: what the job's last commit
    /// record says.
    ///
    /// Without a manifest nothing counts: this is so for a moment when a table is made, or begins anew.
    ///
    /// # Errors
    /// The disk's errors; of class corrupt where it is damaged, or is short of changes that the position builds on.
    pub(crate) fn read(fs: &dyn Fs, table: &Path, position: Option<&Position>) -> Result<Self, Error> {
        let path = folder::manifest(table);
        let mut contents = Self::default();
        let end = match read_commits(fs, &path, identity(table)) {
            Ok(summary) => {
                for record in &summary.records {
                    contents.apply(decode(&path, record)?);
                }
                summary.bytes
            }
            Err(LogError::Io(disk)) if disk.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(of_log(error)),
        };
        let built_on = position.map_or(0, Position::sealed);
        if contents.sealed < built_on {
            return Err(Error::corrupt(format!(
                "{path:?} is damaged at byte {end}: changes are missing, up to the one that counts files of frames below \
                 {built_on} as sealed; the last one that is there counts those below {}",
                contents.sealed
            ))
            .with_hint("bring the file back from a copy that is as new as the job's last commit"));
        }
        Ok(contents)
    }
}

/// The manifest and its only writer.
pub(crate) struct Manifest {
    log: CommitLog,
    pub contents: Contents,
}

impl Manifest {
    /// Opens the manifest of a table, or makes it.
    ///
    /// # Errors
    /// As [`Contents::read`]; of class corrupt, too, where it is ahead of the position. Nothing is changed then.
    pub(crate) fn open(fs: Arc<dyn Fs>, table: &Path, position: Option<&Position>) -> Result<Self, Error> {
        let contents = Contents::read(fs.as_ref(), table, position)?;
        if let Some(said) = position.and_then(|position| contents.ahead_of(position)) {
            return Err(is_ahead(table, &said));
        }
        let path = folder::manifest(table);
        let opened = CommitLog::open(Arc::clone(&fs), path, identity(table)).map_err(of_log)?;
        if let Some(bytes) = opened.torn {
            tracing::warn!(table = %table.display(), bytes, "cut a change of the manifest that a crash had cut short");
        }
        Ok(Self { log: opened.log, contents })
    }

    /// Makes a change durable, then counts it.
    ///
    /// # Errors
    /// The disk's errors; nothing can be changed any more then.
    pub(crate) fn commit(&mut self, change: Change) -> Result<(), Error> {
        let record = if self.log.is_long() {
            let mut all = self.contents.clone();
            all.apply(change.clone());
            Change {
                description: all.description.clone(),
                add: all.files.values().cloned().collect(),
                ..all.change()
            }
        } else {
            change.clone()
        };
        let record = serde_json::to_vec(&record)
            .map_err(|error| Error::internal("write a change of a manifest").with_source(error))?;
        self.log.append(&record).map_err(of_log)?;
        self.contents.apply(change);
        Ok(())
    }
}

/// The error for a table that is [`Contents::ahead_of`] its job.
pub(crate) fn is_ahead(table: &Path, said: &str) -> Error {
    Error::corrupt(format!("table in {table:?}: {said}")).with_hint(
        "bring the job's folder back from a copy, commit.log with all the rest; or begin anew with another job name or without \
         the folder",
    )
}

fn decode(path: &Path, record: &[u8]) -> Result<Change, Error> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    let unread = |error| Error::corrupt(format!("a record of {path:?} cannot be read")).with_source(error);
    let head: Head = serde_json::from_slice(record).map_err(unread)?;
    if head.version > VERSION {
        let message =
            format!("{path:?} has format version {}, this program reads up to {VERSION}", head.version);
        return Err(Error::user(message).with_hint("run the version that wrote it, or a newer one"));
    }
    serde_json::from_slice(record).map_err(unread)
}

/// How manifests are distinguished: by the names of job and table, wherever the data directory is.
fn identity(table: &Path) -> u64 {
    let names: Vec<_> =
        table.components().rev().take(3).map(|name| name.as_os_str().to_string_lossy()).collect();
    thalweg_types::hash_bytes(format!("table/{}", names.join("/")).as_bytes())
}

fn of_log(error: LogError) -> Error {
    Error::from(error).context("the manifest of a table")
}
