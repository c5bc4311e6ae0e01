//! What a job has put into its rejects.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Source and offset.
pub(super) type Place = (String, u64);

/// Checks that each of these records is in rejects the given number of times, and nothing else is.
///
/// # Errors
/// What is missing, there too often, or should not be there.
pub(super) fn check(folder: &Path, expected: &BTreeSet<Place>, times: usize) -> Result<()> {
    let files = match std::fs::read_dir(folder) {
        Ok(listing) => listing.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?,
        Err(_) => Vec::new(),
    };
    let mut counts: BTreeMap<&Place, usize> = expected.iter().map(|place| (place, 0)).collect();
    for path in files {
        for line in std::fs::read_to_string(&path)?.lines() {
            let reject: Value = serde_json::from_str(line).with_context(|| format!("reject {line}"))?;
            let source = reject["source"].as_str().unwrap_or_default().to_owned();
            let place = (source, reject["offset"].as_u64().unwrap_or_default());
            *counts.get_mut(&place).with_context(|| format!("{place:?} was rejected: {line}"))? += 1;
        }
    }
    match counts.iter().find(|(_, count)| **count != times) {
        Some((place, count)) => bail!("record {place:?} is in rejects {count} times, expected {times}"),
        None => Ok(()),
    }
}
