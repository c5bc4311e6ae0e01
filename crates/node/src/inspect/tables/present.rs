//! A build with tables.

use std::path::Path;
use std::sync::Arc;

use thalweg_storage::Fs;
use thalweg_table::TableSummary;
use thalweg_types::Error;

use super::super::report::{TableLook, TablePart};
use super::Looked;

pub(in super::super) use thalweg_table::{is_table_folder as is_folder, sealed_before_a_cycle};

pub(super) use thalweg_table::has_rows;

/// Reads a table; with the position that a commit record names, its fresh rows too. `verify`: every byte.
///
/// # Errors
/// Class `Corrupt` for damage to the table as a whole, else the error of the disk.
pub(in super::super) fn inspect(
    fs: &Arc<dyn Fs>,
    path: &Path,
    position: Option<&[u8]>,
    verify: bool,
) -> Result<Looked, Error> {
    let mut summary = thalweg_table::inspect(fs, path, position, verify)?;
    let damage = std::mem::take(&mut summary.damage);
    Ok(Looked { look: look(&summary), damage })
}

fn look(summary: &TableSummary) -> TableLook {
    let parts = summary.parts.iter().map(|part| TablePart {
        name: part.name.clone(),
        files: part.files,
        rows: part.rows,
        bytes: part.bytes,
        span: part.span,
    });
    TableLook {
        rows: summary.fresh_rows + summary.parts.first().map_or(0, |part| part.rows),
        fresh_rows: summary.fresh_rows,
        fresh_bytes: summary.fresh_bytes,
        parts: parts.collect(),
        columns: summary.columns.clone(),
    }
}
