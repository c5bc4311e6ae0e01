//! Rejects by source and code: for the summary, the live graph and `reject_limit`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rejects by source and code, shared with metrics and reports.
#[derive(Clone, Debug, Default)]
pub struct RejectCounts(Arc<Mutex<Counts>>);

#[derive(Clone, Debug, Default)]
struct Counts {
    by_source: BTreeMap<String, SourceRejects>,
    removed: Removed,
    /// [`SourceRejects::unusable`] of each source when the job went on.
    before: BTreeMap<String, u64>,
}

/// Rejects that are counted, and not kept any more: their files made room for newer ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Removed {
    pub files: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct SourceRejects {
    by_code: BTreeMap<String, u64>,
    /// Place and reason of the first one.
    first: String,
}

impl SourceRejects {
    fn unusable(&self) -> u64 {
        let is_asked_for = |code: &str| matches!(code, "duplicate" | "skipped");
        self.by_code.iter().filter(|(code, _)| !is_asked_for(code)).map(|(_, count)| count).sum()
    }
}

impl RejectCounts {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rejects that were removed to make room.
    pub fn removed(&self) -> Removed {
        self.lock().removed
    }

    pub(super) fn add_removed(&self, bytes: u64) {
        let removed = &mut self.lock().removed;
        removed.files += 1;
        removed.bytes += bytes;
    }

    /// For the commit record.
    pub(super) fn all(&self) -> (BTreeMap<String, SourceRejects>, Removed) {
        let counts = self.lock();
        (counts.by_source.clone(), counts.removed)
    }

    pub(super) fn set(&self, by_source: BTreeMap<String, SourceRejects>, removed: Removed) {
        let before = by_source.iter().map(|(source, rejects)| (source.clone(), rejects.unusable())).collect();
        *self.lock() = Counts { by_source, removed, before };
    }

    /// Counts by source, then by code.
    pub fn by_source(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        let counts = self.lock();
        counts.by_source.iter().map(|(source, rejects)| (source.clone(), rejects.by_code.clone())).collect()
    }

    /// Rejects of each source since the job went on; those that came twice or were to be skipped do not count.
    pub fn of_run(&self) -> BTreeMap<String, u64> {
        let counts = self.lock();
        let before = |source: &String| counts.before.get(source).copied().unwrap_or(0);
        let of_run = |(source, rejects): (&String, &SourceRejects)| {
            (source.clone(), rejects.unusable().saturating_sub(before(source)))
        };
        counts.by_source.iter().map(of_run).collect()
    }

    /// Place and reason of the first reject of a source: `line 2: field "n": expected int64, got "x"`.
    pub fn first_of(&self, source: &str) -> Option<String> {
        self.lock().by_source.get(source).map(|rejects| rejects.first.clone())
    }

    pub fn total(&self) -> u64 {
        self.by_source().values().flat_map(BTreeMap::values).sum()
    }

    /// Counts one, and returns how many the source has now. `describe` describes the first one.
    pub(super) fn add(&self, source: &str, code: &str, describe: impl FnOnce() -> String) -> u64 {
        let mut counts = self.lock();
        let sources = &mut counts.by_source;
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
