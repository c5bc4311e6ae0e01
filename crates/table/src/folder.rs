//! Where a table keeps what, below its folder.
//!
//! ```text
//! manifest                  the files that count: see `manifest`
//! fresh/N.frames            rows that are in no Parquet file yet: see `frames`
//! rows/2026-11-22/N.parquet
//! ROLLUP/2026-11-22/N.parquet
//! ```

use std::path::{Path, PathBuf};

/// Folder of the table's own Parquet files; rollups have others.
pub(crate) const ROWS: &str = "rows";
pub(crate) const FRESH: &str = "fresh";

pub(crate) fn manifest(table: &Path) -> PathBuf {
    table.join("manifest")
}

pub(crate) fn fresh(table: &Path) -> PathBuf {
    table.join(FRESH)
}

pub(crate) fn frames(table: &Path, number: u64) -> PathBuf {
    fresh(table).join(format!("{number:08}.frames"))
}

/// The number of a file of frames.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".frames")?.parse().ok()
}

/// `part` is [`ROWS`] or the name of a rollup.
pub(crate) fn parquet(table: &Path, part: &str, partition: &str, number: u64) -> PathBuf {
    table.join(part).join(partition).join(format!("{number:08}.parquet"))
}
