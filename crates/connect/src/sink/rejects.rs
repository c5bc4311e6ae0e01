//! Where rejects end: a file of lines, one per record that could not be used, and a count per source.
//!
//! `rejects-N.ndjson` in the given folder, N one above the highest there, so that no run overwrites what an
//! earlier one has kept; the file is made with the first reject. A job that goes on after a stop goes on with its file,
//! cut to what was committed, and with the counts of that time. Each line is
//! `{"source":…,"offset":…,"line":…,"code":…,"reason":…,"raw":…}`; raw bytes that are no UTF-8 stand in
//! `raw_base64` instead of `raw`. More rejects of a source than its limit stop the job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, BinaryViewArray, StringViewArray};
use thalweg_flow::{CyclePart, InputId, Operator, Output, TaskFactory};
use thalweg_types::{Batch, Error, Micros};

use super::file::BUFFER;
use super::tail::{KnownBy, Tail, failed};
use crate::SinkResume;
use crate::format::cells::write_json_string;

/// Rejects by source and code, shared with whoever shows them.
#[derive(Clone, Debug, Default)]
pub struct RejectCounts(Arc<Mutex<BTreeMap<String, SourceRejects>>>);

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
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
    /// As [`crate::SinkContext::durable`].
    pub durable: Option<SinkResume>,
}

/// Makes the operator that takes rejects on all of its inputs. It has one task.
pub fn rejects_writer(settings: RejectsSettings) -> TaskFactory<dyn Operator> {
    Box::new(move |_| Ok(Box::new(RejectsWriter::open(settings.clone())?)))
}

struct RejectsWriter {
    settings: RejectsSettings,
    /// The file's number in the folder.
    number: u64,
    file: Option<Tail>,
    buffer: Vec<u8>,
}

/// What a commit record says of the rejects: JSON.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Position {
    number: u64,
    bytes: u64,
    counts: BTreeMap<String, SourceRejects>,
    /// By what the file is known again; older builds do not say.
    #[serde(default)]
    known: KnownBy,
}

impl RejectsWriter {
    fn open(settings: RejectsSettings) -> Result<Self, Error> {
        let folder = &settings.folder;
        let position = settings.durable.as_ref().and_then(|resume| resume.position.as_ref());
        let Position { number, bytes, counts, known } = match (position, &settings.durable) {
            (Some(position), _) => serde_json::from_slice(position).map_err(|error| {
                Error::corrupt("the commit record holds no place in the rejects").with_source(error)
            })?,
            // Nothing was ever committed: what is there comes again.
            (None, Some(SinkResume { cycle: 0, .. })) => Position::default(),
            (None, _) => {
                let number = numbers(folder)?.into_iter().max().map_or(0, |last| last + 1);
                return Ok(Self { settings, number, file: None, buffer: Vec::new() });
            }
        };
        *settings.counts.0.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        for other in
            numbers(folder)?.into_iter().filter(|other| *other > number || bytes == 0 && *other == number)
        {
            let path = path_of(folder, other);
            std::fs::remove_file(&path).map_err(|error| failed("remove", &path, error))?;
        }
        let file = if bytes > 0 { Some(Tail::resume(&path_of(folder, number), bytes, known)?) } else { None };
        Ok(Self { settings, number, file, buffer: Vec::new() })
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(open) => open,
            empty => {
                let folder = &self.settings.folder;
                std::fs::create_dir_all(folder).map_err(|error| failed("create", folder, error))?;
                empty.insert(Tail::create(&path_of(folder, self.number))?)
            }
        };
        file.append(&self.buffer)?;
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

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        if self.settings.durable.is_none() {
            return Ok(());
        }
        self.flush()?;
        let position = Position {
            number: self.number,
            bytes: self.file.as_ref().map_or(0, Tail::len),
            counts: self.settings.counts.0.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            known: self.file.as_ref().map(Tail::known_by).unwrap_or_default(),
        };
        let position = serde_json::to_vec(&position)
            .map_err(|error| Error::internal("write down the place in the rejects").with_source(error))?;
        let part: Box<dyn CyclePart> = match &mut self.file {
            Some(file) => file.part(position, None),
            None => Box::new(position),
        };
        out.hand_over(cycle, part);
        Ok(())
    }

    fn takes_part(&self) -> bool {
        self.settings.durable.is_some()
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        self.flush()?;
        self.file.as_ref().map_or(Ok(()), Tail::sync)
    }
}

fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("rejects-{number}.ndjson"))
}

/// Numbers of the files in the folder.
fn numbers(folder: &Path) -> Result<Vec<u64>, Error> {
    let failed = |error| failed("read folder", folder, error);
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let number = |name: &str| name.strip_prefix("rejects-")?.strip_suffix(".ndjson")?.parse::<u64>().ok();
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(entry.map_err(failed)?.file_name().to_str().and_then(number));
    }
    Ok(numbers)
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
