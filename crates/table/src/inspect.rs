//! Looking into a table, while another process may write it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_storage::{Fs, OpenMode};
use thalweg_types::{Class, Error, Micros};

use crate::manifest::{Contents, Entry};
use crate::position::Position;
use crate::{folder, frames, parquet};

/// How often all is looked at again where the manifest has changed meanwhile.
const LOOKS: usize = 5;

/// What a table holds.
#[derive(Clone, Debug)]
pub struct TableSummary {
    /// Columns, as `name: type`.
    pub columns: Vec<String>,
    /// The table's own Parquet files, then those of each rollup.
    pub parts: Vec<PartSummary>,
    /// Rows that are in files of frames.
    pub fresh_rows: u64,
    /// Bytes of those files that count.
    pub fresh_bytes: u64,
    /// What is not as it was written: the file and why.
    pub damage: Vec<(PathBuf, String)>,
}

/// The Parquet files of a table or of one of its rollups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSummary {
    /// `rows`, or the name of the rollup.
    pub name: String,
    pub files: u64,
    pub rows: u64,
    pub bytes: u64,
    /// First and last event time.
    pub span: Option<(Micros, Micros)>,
}

/// Whether a folder is that of a table.
///
/// # Errors
/// The disk's errors.
pub fn is_table_folder(fs: &dyn Fs, path: &Path) -> std::io::Result<bool> {
    let names = fs.list(path)?;
    Ok(names.iter().any(|name| name == "manifest")
        && fs.list_dirs(path)?.iter().any(|name| name == folder::FRESH))
}

/// Looks at the table in a folder. `position` is its position in its job's last commit record: without one, rows that
/// are in no Parquet file are not looked at. With `verify` every byte is read.
///
/// # Errors
/// The disk's errors, and a manifest that cannot be read; of class corrupt where that is damaged.
pub fn inspect(
    fs: &Arc<dyn Fs>,
    table: &Path,
    position: Option<&[u8]>,
    verify: bool,
) -> Result<TableSummary, Error> {
    let position = position.map(Position::decode).transpose()?;
    let mut contents = Contents::read(fs.as_ref(), table, position.as_ref())?;
    for look in 1.. {
        let summary = look_at(fs.as_ref(), table, &contents, position.as_ref(), verify)?;
        if summary.damage.is_empty() || look == LOOKS {
            return Ok(summary);
        }
        let now = Contents::read(fs.as_ref(), table, position.as_ref())?;
        if now == contents {
            return Ok(summary);
        }
        contents = now;
    }
    unreachable!("the last look returns")
}

fn look_at(
    fs: &dyn Fs,
    table: &Path,
    contents: &Contents,
    position: Option<&Position>,
    verify: bool,
) -> Result<TableSummary, Error> {
    let mut summary = TableSummary {
        columns: Vec::new(),
        parts: vec![PartSummary::new(folder::ROWS)],
        fresh_rows: 0,
        fresh_bytes: 0,
        damage: Vec::new(),
    };
    if let Some(description) = &contents.description {
        let columns = description.fields.iter().map(|field| format!("{}: {}", field.name, field.data_type));
        summary.columns = columns.collect();
        summary.parts.extend(description.rollups().map(|rollup| PartSummary::new(&rollup.name)));
    }
    for entry in contents.files.values() {
        let path = folder::parquet(table, &entry.part, &entry.partition, entry.number);
        if let Some(part) = summary.parts.iter_mut().find(|part| part.name == entry.part) {
            part.add(entry);
        }
        if let Err(error) = check(fs, &path, entry, verify) {
            summary.note(path, error)?;
        }
    }
    if let Some(said) = position.and_then(|position| contents.ahead_of(position)) {
        summary.damage.push((folder::manifest(table), said));
    }
    let extents = position.map(|position| position.frames.as_slice()).unwrap_or_default();
    for extent in extents.iter().filter(|extent| extent.number >= contents.sealed) {
        let path = folder::frames(table, extent.number);
        summary.fresh_rows += extent.rows;
        summary.fresh_bytes += extent.bytes;
        // Frames are few and small compared with the rest: they are read in any case.
        match frames::read(fs, &path, extent.number, extent.bytes) {
            Ok(batches) => {
                let rows: u64 = batches.iter().map(|rows| rows.num_rows() as u64).sum();
                if rows != extent.rows {
                    let message = format!("committed rows: expected {}, got {rows}", extent.rows);
                    summary.damage.push((path, message));
                }
            }
            Err(error) => summary.note(path, error)?,
        }
    }
    Ok(summary)
}

fn check(fs: &dyn Fs, path: &Path, entry: &Entry, verify: bool) -> Result<(), Error> {
    if verify {
        let rows: u64 = parquet::read(fs, path, entry)?.iter().map(|rows| rows.num_rows() as u64).sum();
        return match rows == entry.rows {
            true => Ok(()),
            false => Err(Error::corrupt(format!("rows: expected {}, got {rows}", entry.rows))),
        };
    }
    let length = fs.open(path, OpenMode::Read).and_then(|file| file.len());
    match length.map_err(|error| crate::failed("open", path, error))? {
        length if length == entry.bytes => Ok(()),
        length => Err(Error::corrupt(format!("length: expected {} bytes, got {length}", entry.bytes))),
    }
}

impl TableSummary {
    /// Damage, formats that this program does not know and files that are gone are findings; the disk's errors
    /// are not.
    fn note(&mut self, path: PathBuf, error: Error) -> Result<(), Error> {
        if matches!(error.class(), Class::Corrupt | Class::User) {
            self.damage.push((path, error.message().to_owned()));
        } else if crate::committed::is_gone(&error) {
            self.damage.push((path, "it is named, and there is no such file".to_owned()));
        } else {
            return Err(error);
        }
        Ok(())
    }
}

impl PartSummary {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), files: 0, rows: 0, bytes: 0, span: None }
    }

    fn add(&mut self, entry: &Entry) {
        self.files += 1;
        self.rows += entry.rows;
        self.bytes += entry.bytes;
        let (first, last) = self.span.unwrap_or((entry.first, entry.last));
        self.span = Some((first.min(entry.first), last.max(entry.last)));
    }
}
