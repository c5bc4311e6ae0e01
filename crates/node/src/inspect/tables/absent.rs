//! A build without tables: it says of each that it cannot read it.

use std::path::Path;
use std::sync::Arc;

use thalweg_connect::absent;
use thalweg_storage::Fs;
use thalweg_types::Error;

use super::Looked;

pub(in super::super) fn is_folder(_: &dyn Fs, _: &Path) -> std::io::Result<bool> {
    Ok(false)
}

pub(in super::super) fn inspect(
    _: &Arc<dyn Fs>,
    path: &Path,
    _: Option<&[u8]>,
    _: bool,
) -> Result<Looked, Error> {
    Err(Error::user(format!("{path:?} is a table, which this build does not read"))
        .with_hint(absent::hint("tables")))
}

pub(in super::super) fn sealed_before_a_cycle(_: u64) -> String {
    String::new()
}

pub(super) fn has_rows(_: &[u8]) -> bool {
    false
}
