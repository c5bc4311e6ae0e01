//! Where rejects end: files of lines, one per record that could not be used, and a count per source.
//!
//! `rejects-N.ndjson` in the given folder, N one above the highest there, so that no run overwrites what an
//! earlier one has kept; a file is made with its first reject, and followed by the next when it is large (`files`). A
//! job that goes on after a stop goes on with its file, cut to the committed bytes, and with the counts of that time.
//! `line` has the contents of a line. More rejects of a source than its limit stop the job.

mod counts;
mod files;
mod line;

use std::collections::BTreeMap;
use std::path::PathBuf;

use thalweg_flow::{InputId, Operator, Output, TaskFactory};
use thalweg_types::{Batch, Error, Micros, Rejects, SeqRange};

pub use self::counts::{RejectCounts, Removed};

use self::counts::SourceRejects;
use self::files::{Files, numbers, path_of, remove};
use super::file::BUFFER;
use super::tail::KnownBy;
use crate::SinkResume;

/// Bytes that the rejects of a job may take by default.
pub const DEFAULT_MAX_BYTES: u64 = 1 << 30;

/// Settings of a rejects writer.
#[derive(Clone, Debug)]
pub struct RejectsSettings {
    /// The folder to write to; made when the first reject comes.
    pub folder: PathBuf,
    /// Per source, how many rejects are tolerated.
    pub limits: BTreeMap<String, u64>,
    /// Keep a clone to read the counts.
    pub counts: RejectCounts,
    /// Bytes that all files together may have, about; the oldest make room for newer ones.
    pub max_bytes: u64,
    /// As [`crate::SinkContext::durable`].
    pub durable: Option<SinkResume>,
}

/// Makes the operator that takes rejects on all of its inputs. It has one task.
pub fn rejects_writer(settings: RejectsSettings) -> TaskFactory<dyn Operator> {
    Box::new(move |_| Ok(Box::new(RejectsWriter::open(settings.clone())?)))
}

struct RejectsWriter {
    settings: RejectsSettings,
    files: Files,
    buffer: Vec<u8>,
}

/// The rejects in a commit record: JSON. Builds before the limit did not say which were removed.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Position {
    number: u64,
    bytes: u64,
    counts: BTreeMap<String, SourceRejects>,
    /// The oldest file that is kept.
    #[serde(default)]
    oldest: u64,
    #[serde(default)]
    removed: Removed,
    /// Identifies the file; older builds do not say it.
    #[serde(default)]
    known: KnownBy,
}

impl RejectsWriter {
    fn open(settings: RejectsSettings) -> Result<Self, Error> {
        let folder = &settings.folder;
        let files = |number| {
            let is_durable = settings.durable.is_some();
            Files::new(folder, settings.max_bytes, settings.counts.clone(), is_durable, number)
        };
        let position = settings.durable.as_ref().and_then(|resume| resume.position.as_ref());
        let position: Position = match (position, &settings.durable) {
            (Some(position), _) => serde_json::from_slice(position).map_err(|error| {
                Error::corrupt("the commit record holds no place in the rejects").with_source(error)
            })?,
            // Nothing was ever committed: the rejects that are there are written again.
            (None, Some(SinkResume { cycle: 0, .. })) => Position::default(),
            (None, _) => {
                let number = numbers(folder)?.into_iter().max().map_or(0, |last| last + 1);
                let mut files = files(number);
                files.find_earlier()?;
                return Ok(Self { settings, files, buffer: Vec::new() });
            }
        };
        let Position { number, bytes, counts, oldest, removed, known } = position;
        settings.counts.set(counts, removed);
        for other in numbers(folder)? {
            // Rejects after the commit are written again; files that were to go with it may still be there.
            if other > number || bytes == 0 && other == number || other < oldest {
                remove(&path_of(folder, other))?;
            }
        }
        let mut files = files(number);
        files.resume(bytes, known)?;
        files.find_earlier()?;
        Ok(Self { settings, files, buffer: Vec::new() })
    }

    fn flush(&mut self) -> Result<(), Error> {
        if !self.buffer.is_empty() {
            self.files.append(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}

impl Operator for RejectsWriter {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let rejects = Rejects::of(&batch);
        for row in batch.row_numbers() {
            out.working_on(batch.seq(row));
            let reject = rejects.get(row);
            line::write(&reject, &mut self.buffer);
            // By its bytes alone, so that a line is in the same file whenever it is written again.
            if self.files.is_full(self.buffer.len()) {
                self.flush()?;
                self.files.rotate()?;
            } else if self.buffer.len() >= BUFFER {
                self.flush()?;
            }
            let source = reject.source;
            let count = self.settings.counts.add(source, reject.code, || line::describe(&reject));
            if let Some(limit) = self.settings.limits.get(source).copied().filter(|limit| count > *limit) {
                self.flush()?;
                return Err(Error::user(format!(
                    "source {source:?} has {count} rejects, more than reject_limit: {limit}"
                ))
                .with_private(format!("; the last one: {}", reject.reason))
                .with_hint(format!(
                    "see {:?} for all of them, mend the input or raise reject_limit",
                    self.settings.folder
                )));
            }
        }
        Ok(())
    }

    fn complete(&mut self, range: SeqRange, out: &mut Output<'_>) -> Result<(), Error> {
        // All rejects end here.
        out.forget_received(range.end);
        Ok(())
    }

    fn tick(&mut self, _: Micros, _: &mut Output<'_>) -> Result<(), Error> {
        self.flush()
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        if self.settings.durable.is_none() {
            return Ok(());
        }
        self.flush()?;
        let (counts, removed) = self.settings.counts.all();
        let position = Position {
            number: self.files.number,
            bytes: self.files.len(),
            counts,
            oldest: self.files.oldest(),
            removed,
            known: self.files.known_by(),
        };
        let position = serde_json::to_vec(&position)
            .map_err(|error| Error::internal("write down the place in the rejects").with_source(error))?;
        out.hand_over(cycle, self.files.part(position));
        Ok(())
    }

    fn takes_part(&self) -> bool {
        self.settings.durable.is_some()
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        self.flush()?;
        self.files.sync()
    }
}
