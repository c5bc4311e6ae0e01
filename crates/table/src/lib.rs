//! Tables: the rows of a stream, kept in columns in time partitions, with coarser rollups.
//!
//! * [`TablePlugin`]: the sink `table`. Rows gather in files of Arrow frames, synced with each cycle; a keeper makes Parquet of
//!   the full ones, sums rollups up, merges small files and drops old ones.
//! * [`Catalog`] and [`Snapshot`]: a table as readers see it; [`Tables`] of running jobs, fresh rows and all, and
//!   [`read_committed`] without a lock.
//!
//! Not here: SQL (`sql`), which commit record counts (`node`).

#![deny(unsafe_code)]

mod catalog;
mod clock;
mod columns;
mod committed;
mod folder;
mod frames;
mod inspect;
mod keeper;
mod manifest;
mod nulls;
mod open;
mod parquet;
mod position;
mod rollup;
mod sink;
mod spec;
pub mod sums;
mod table;

use std::path::Path;

use thalweg_types::Error;

pub use catalog::{Catalog, Rollup, RollupSpec, Share, Snapshot, StoredFile, TableName};
pub use committed::read_committed;
pub use inspect::{PartSummary, TableSummary, inspect, is_table_folder};
pub use open::sealed_before_a_cycle;
pub use parquet::ROW_GROUP;
pub use position::has_rows;
pub use sink::{TablePlugin, empty};
pub use table::Tables;

/// What a disk said, and what to do about it.
fn failed(action: &str, path: &Path, error: std::io::Error) -> Error {
    Error::disk(format!("{action} {path:?}"), error)
}
