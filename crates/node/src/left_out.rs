//! Data that the sources of a job had, or should have had, and that became neither records nor rejects.

use std::collections::BTreeMap;
use std::fmt;

use thalweg_flow::JobStats;

/// Most kinds that are counted apart; the last one counts all further kinds.
const MOST_KINDS: usize = 32;

/// Counts by kind, in the order of their names. Without any it is empty, and prints as nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut([(&'static str, u64); MOST_KINDS]);

impl LeftOut {
    /// What all sources say.
    pub(crate) fn of(stats: &JobStats) -> Self {
        let datagrams = stats.sources.iter().filter_map(|source| source.datagrams.as_ref());
        Self::sum(datagrams.flat_map(|datagrams| datagrams.all_left_out()))
    }

    fn sum(counts: impl Iterator<Item = (&'static str, u64)>) -> Self {
        let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (kind, count) in counts.filter(|(_, count)| *count > 0) {
            *sums.entry(kind).or_default() += count;
        }
        let mut left_out = Self::default();
        for (place, (kind, count)) in sums.into_iter().enumerate() {
            let slot = &mut left_out.0[place.min(MOST_KINDS - 1)];
            *slot = (kind, slot.1 + count);
        }
        left_out
    }

    /// The counts of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::sum(self.iter().chain(other.iter()))
    }

    /// Kinds and their counts, none of which is zero.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.into_iter().filter(|(_, count)| *count > 0)
    }

    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl fmt::Display for LeftOut {
    /// `cut:10,missing:60`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (kind, count)) in self.iter().enumerate() {
            let before = if number == 0 { "" } else { "," };
            write!(f, "{before}{kind}:{count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_added_up_and_more_than_there_is_room_for_share_one() {
        let some = LeftOut::sum([("missing", 2), ("cut", 1), ("missing", 3), ("lost", 0)].into_iter());
        assert_eq!(some.to_string(), "cut:1,missing:5");
        assert_eq!(some.and(some).to_string(), "cut:2,missing:10");
        assert!(LeftOut::default().is_empty() && LeftOut::default().to_string().is_empty());
        let names: Vec<&'static str> = (0..40).map(|number| &*format!("kind-{number:02}").leak()).collect();
        let many = LeftOut::sum(names.iter().map(|name| (*name, 1)));
        assert_eq!(many.iter().map(|(_, count)| count).sum::<u64>(), 40);
        assert_eq!(many.iter().count(), MOST_KINDS);
    }
}
