//! From when to when tables and rollups have data.

use thalweg_table::{Rollup, Snapshot};

use crate::bounds::Bounds;

/// Nanoseconds of microseconds.
pub(super) fn nanoseconds(micros: i64) -> i128 {
    i128::from(micros) * 1_000
}

/// Length of a rollup's intervals in nanoseconds.
pub(super) fn every(rollup: &Rollup) -> i128 {
    nanoseconds(rollup.spec.every)
}

/// From when on a rollup has everything.
pub(super) fn kept_from(rollup: &Rollup) -> i128 {
    rollup.complete_from.map_or(i128::MIN, nanoseconds)
}

/// Bounds without an end where nothing is beyond it, so that no edge is looked for there. Rows that are in no file have
/// bounds of their own.
pub(super) fn open_ends(bounds: Bounds, snapshot: &Snapshot) -> Bounds {
    if bounds.is_empty() {
        return bounds;
    }
    let last_row = snapshot.files.iter().map(|file| file.last).max().unwrap_or(i64::MIN);
    let mut first = snapshot.files.iter().map(|file| nanoseconds(file.first)).min().unwrap_or(i128::MAX);
    let mut end = nanoseconds(last_row) + 1_000;
    for rollup in &snapshot.rollups {
        for file in &rollup.files {
            first = first.min(nanoseconds(file.first));
            // An interval that begins after the last row that is kept has rows that are not.
            if file.last > last_row {
                end = end.max(nanoseconds(file.last) + every(rollup));
            }
        }
    }
    Bounds {
        from: if bounds.from <= first { i128::MIN } else { bounds.from },
        to: if bounds.to >= end { i128::MAX } else { bounds.to },
    }
}
