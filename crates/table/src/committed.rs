//! What a table's job has committed, read without a lock while another process may write it.
//!
//! The commit record is read first, then the manifest, then frames. The writer goes on meanwhile: where the manifest has
//! outrun the commit record, or a file of frames is gone because its rows are in Parquet now, all is read once more.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use thalweg_storage::{Fs, RealFs};
use thalweg_types::Error;

use crate::manifest::{Contents, is_ahead};
use crate::position::Position;
use crate::table::snapshot_of;
use crate::{Snapshot, TableName, folder, frames};

/// How often all is read again.
const ATTEMPTS: usize = 20;

/// Reads a table below `dir`. `position` reads what the job's last commit record says of it: `None` before its first cycle.
/// `None`: there is no table yet.
///
/// # Errors
/// The disk's errors; of class corrupt if bytes have changed; of class user if the job has dropped
/// the sink.
pub fn read_committed(
    name: &TableName,
    dir: &Path,
    position: impl Fn() -> Result<Option<Vec<u8>>, Error>,
) -> Result<Option<Snapshot>, Error> {
    let fs = RealFs;
    let (mut last, mut is_of_the_job, mut before) = (None, false, None);
    for _ in 0..ATTEMPTS {
        let position = position()?.map(|bytes| Position::decode(&bytes)).transpose()?;
        is_of_the_job = position.is_some();
        let contents = Contents::read(&fs, dir, position.as_ref())?;
        let Some(description) = &contents.description else { return Ok(None) };
        if let Some((said, position)) = position.as_ref().and_then(|now| Some((contents.ahead_of(now)?, now)))
        {
            // A commit may have come between the two readings; where none has, the first manifest was ahead already.
            if before.as_ref() == Some(position) {
                return Err(is_ahead(dir, &said));
            }
            before = Some(position.clone());
            continue;
        }
        match fresh_rows(&fs, dir, position.as_ref(), &contents) {
            Ok(Some(fresh)) => return snapshot_of(name, dir, &contents, description, fresh).map(Some),
            Ok(None) => {}
            // It was removed because its rows are in Parquet by now, or is lost.
            Err((path, error)) if is_gone(&error) => last = Some(if_gone(error, &path)),
            Err((_, error)) => return Err(error),
        }
    }
    if !is_of_the_job {
        return Err(Error::user(format!(
            "table {name} is of a sink that its job had before: the job's last commit knows nothing of it"
        ))
        .with_hint(format!("what it was is in Parquet files below {dir:?}")));
    }
    Err(last.unwrap_or_else(|| {
        Error::external(format!("table {name} changed each time that it was read")).with_hint("try again")
    }))
}

/// Rows of frames that are not in Parquet; `None` where the manifest knows rows, and there is no position.
fn fresh_rows(
    fs: &dyn Fs,
    dir: &Path,
    position: Option<&Position>,
    contents: &Contents,
) -> Result<Option<Vec<RecordBatch>>, (PathBuf, Error)> {
    let extents = position.map(|position| position.frames.as_slice()).unwrap_or_default();
    if position.is_none() && contents.sealed > 0 {
        return Ok(None);
    }
    let mut rows = Vec::new();
    for extent in extents.iter().filter(|extent| extent.number >= contents.sealed) {
        let path = folder::frames(dir, extent.number);
        rows.extend(frames::read(fs, &path, extent.number, extent.bytes).map_err(|error| (path, error))?);
    }
    Ok(Some(rows))
}

/// The error for a file that is named and not there, if no process can have removed it meanwhile.
pub(crate) fn if_gone(error: Error, path: &Path) -> Error {
    if !is_gone(&error) {
        return error;
    }
    Error::corrupt(format!("{path:?} is named by the last commit, and there is no such file"))
        .with_hint("bring it back from a copy")
}

pub(crate) fn is_gone(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|error| error.kind() == ErrorKind::NotFound)
}
