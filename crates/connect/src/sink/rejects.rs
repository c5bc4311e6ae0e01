//! Where rejects end: a file of lines, one per record that could not be used, and a count per source.
//!
//! `rejects-N.ndjson` in the given folder, N one above the highest there, so that no run overwrites what an
//! earlier one has kept; the file is made with the first reject. Each line is
//! `{"source":…,"offset":…,"line":…,"code":…,"reason":…,"raw":…}`; raw bytes that are no UTF-8 stand in
//! `raw_base64` instead of `raw`. More rejects of a source than its limit stop the job.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, BinaryViewArray, StringViewArray};
use thalweg_flow::{InputId, Operator, Output, TaskFactory};
use thalweg_types::{Batch, Error, Micros};

use super::file::BUFFER;
use crate::format::cells::write_json_string;

/// Rejects by source and code, shared with whoever shows them.
#[derive(Clone, Debug, Default)]
pub struct RejectCounts(Arc<Mutex<BTreeMap<String, SourceRejects>>>);

#[derive(Debug)]
struct SourceRejects {
    by_code: BTreeMap<String, u64>,
    /// Place and reason of the first one.
    first: String,
}

impl RejectCounts {
    /// Counts by source, then by code.
    pub fn by_source(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sources.iter().map(|(source, rejects)| (source.clone(), rejects.by_code.clone())).collect()
    }

    /// Place and reason of the first reject of a source: `line 2: field "n": expected int64, got "x"`.
    pub fn first_of(&self, source: &str) -> Option<String> {
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sources.get(source).map(|rejects| rejects.first.clone())
    }

    pub fn total(&self) -> u64 {
        self.by_source().values().flat_map(BTreeMap::values).sum()
    }

    /// Counts one, and returns how many the source has now. `describe` says what the first one is about.
    fn add(&self, source: &str, code: &str, describe: impl FnOnce() -> String) -> u64 {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let by_code = match sources.get_mut(source) {
            Some(rejects) => &mut rejects.by_code,
            None => {
                let rejects = SourceRejects { by_code: BTreeMap::new(), first: describe() };
                &mut sources.entry(source.to_owned()).or_insert(rejects).by_code
            }
        };
        match by_code.get_mut(code) {
            Some(count) => *count += 1,
            None => drop(by_code.insert(code.to_owned(), 1)),
        }
        by_code.values().sum()
    }
}

/// What a rejects writer is told.
#[derive(Clone, Debug)]
pub struct RejectsSettings {
    /// The folder to write to; made when the first reject comes.
    pub folder: PathBuf,
    /// Per source, how many rejects are tolerated.
    pub limits: BTreeMap<String, u64>,
    /// Keep a clone to read the counts.
    pub counts: RejectCounts,
}

/// Makes the operator that takes rejects on all of its inputs. It has one task.
pub fn rejects_writer(settings: RejectsSettings) -> TaskFactory<dyn Operator> {
    Box::new(move |_| {
        Ok(Box::new(RejectsWriter { settings: settings.clone(), file: None, buffer: Vec::new() }))
    })
}

struct RejectsWriter {
    settings: RejectsSettings,
    file: Option<(PathBuf, File)>,
    buffer: Vec<u8>,
}

impl RejectsWriter {
    fn flush(&mut self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let (path, file) = match &mut self.file {
            Some(open) => open,
            empty => empty.insert(create_next(&self.settings.folder)?),
        };
        file.write_all(&self.buffer)
            .map_err(|error| Error::external(format!("write {path:?}")).with_source(error))?;
        self.buffer.clear();
        Ok(())
    }
}

impl Operator for RejectsWriter {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let columns = Columns::new(&batch);
        for row in batch.row_numbers() {
            out.working_on(batch.seq(row));
            let row = row as usize;
            columns.write(row, &mut self.buffer);
            let (source, code) = (columns.source.value(row), columns.code.value(row));
            let count = self.settings.counts.add(source, code, || columns.describe(row));
            if let Some(limit) = self.settings.limits.get(source).copied().filter(|limit| count > *limit) {
                self.flush()?;
                return Err(Error::user(format!(
                    "source {source:?} has {count} rejects, more than reject_limit: {limit}; the last one: {}",
                    columns.reason.value(row)
                ))
                .with_hint(format!(
                    "see {:?} for all of them, mend the input or raise reject_limit",
                    self.settings.folder
                )));
            }
        }
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    fn tick(&mut self, _: Micros, _: &mut Output<'_>) -> Result<(), Error> {
        self.flush()
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        self.flush()?;
        match &self.file {
            Some((path, file)) => {
                file.sync_all().map_err(|error| Error::external(format!("sync {path:?}")).with_source(error))
            }
            None => Ok(()),
        }
    }
}

/// Creates the file after the last one in the folder.
fn create_next(folder: &Path) -> Result<(PathBuf, File), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| Error::external(format!("create {path:?}")).with_source(error)
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let number = |name: &str| name.strip_prefix("rejects-")?.strip_suffix(".ndjson")?.parse::<u64>().ok();
    let last = std::fs::read_dir(folder)
        .map_err(failed(folder))?
        .filter_map(|entry| number(entry.ok()?.file_name().to_str()?))
        .max();
    let path = folder.join(format!("rejects-{}.ndjson", last.map_or(0, |last| last + 1)));
    let file = File::create_new(&path).map_err(failed(&path))?;
    Ok((path, file))
}

/// The columns of `thalweg_types::rejects_schema`.
struct Columns<'a> {
    batch: &'a Batch,
    source: &'a StringViewArray,
    code: &'a StringViewArray,
    reason: &'a StringViewArray,
    raw: &'a BinaryViewArray,
}

impl<'a> Columns<'a> {
    fn new(batch: &'a Batch) -> Self {
        Self {
            batch,
            source: batch.column(0).as_string_view(),
            code: batch.column(3).as_string_view(),
            reason: batch.column(4).as_string_view(),
            raw: batch.column(5).as_binary_view(),
        }
    }

    fn offset(&self, row: usize) -> u64 {
        self.batch.column(1).as_primitive::<UInt64Type>().value(row)
    }

    fn line(&self, row: usize) -> Option<u64> {
        let lines = self.batch.column(2).as_primitive::<UInt64Type>();
        lines.is_valid(row).then(|| lines.value(row))
    }

    /// Place and reason.
    fn describe(&self, row: usize) -> String {
        let reason = self.reason.value(row);
        match self.line(row) {
            Some(line) => format!("line {line}: {reason}"),
            None => format!("record {}: {reason}", self.offset(row)),
        }
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(b"{\"source\":");
        write_json_string(self.source.value(row), out);
        out.extend_from_slice(b",\"offset\":");
        out.extend_from_slice(number.format(self.offset(row)).as_bytes());
        out.extend_from_slice(b",\"line\":");
        match self.line(row) {
            None => out.extend_from_slice(b"null"),
            Some(line) => out.extend_from_slice(number.format(line).as_bytes()),
        }
        out.extend_from_slice(b",\"code\":");
        write_json_string(self.code.value(row), out);
        out.extend_from_slice(b",\"reason\":");
        write_json_string(self.reason.value(row), out);
        let raw = self.raw.value(row);
        match std::str::from_utf8(raw) {
            Ok(text) => {
                out.extend_from_slice(b",\"raw\":");
                write_json_string(text, out);
            }
            Err(_) => {
                out.extend_from_slice(b",\"raw_base64\":\"");
                crate::format::base64::encode(raw, out);
                out.push(b'"');
            }
        }
        out.extend_from_slice(b"}\n");
    }
}
