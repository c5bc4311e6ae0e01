//! Tables on disk, and what commit records say of them; read where this build has tables (feature `tables`).

#[cfg(not(feature = "tables"))]
mod absent;
#[cfg(feature = "tables")]
mod present;

#[cfg(not(feature = "tables"))]
use absent as reader;
#[cfg(feature = "tables")]
use present as reader;

use std::path::PathBuf;

use super::report::TableLook;
use crate::durable::record::CommitRecord;

pub(super) use reader::{inspect, is_folder, sealed_before_a_cycle};

/// A table that was read.
pub(super) struct Looked {
    pub(super) look: TableLook,
    /// Damaged files, each with the failure.
    pub(super) damage: Vec<(PathBuf, String)>,
}

/// What a commit record says about a table.
pub(crate) fn table_position(record: &CommitRecord, table: &str) -> Option<Vec<u8>> {
    // An operator may be called like the sink, which has another name in the graph then.
    let renamed = record.part(&format!("{table} (sink)"), 0);
    renamed.or_else(|| record.part(table, 0))
}

/// The tables of a commit record that hold rows, by the names of their sinks.
pub(super) fn tables_with_rows(record: &CommitRecord) -> impl Iterator<Item = &str> {
    let parts = record.parts.iter().filter(|(_, position)| reader::has_rows(&position.0));
    let names = parts.filter_map(|(part, _)| part.strip_suffix("/0"));
    names.map(|name| name.strip_suffix(" (sink)").unwrap_or(name))
}
