//! Rows in memory: keys and names, sorted so that of equal keys the last one that came stays.

use std::cmp::Reverse;

/// Bytes that a row takes besides its name.
const ENTRY: usize = size_of::<Entry>();

/// A key as two big-endian halves, and where the length of its name and the name are. Later rows are further on.
#[derive(Clone, Copy, Debug)]
struct Entry {
    high: u64,
    low: u64,
    at: u32,
}

/// Rows; a buffer takes less than 4 GiB of names.
#[derive(Debug, Default)]
pub(crate) struct RowBuffer {
    names: Vec<u8>,
    entries: Vec<Entry>,
}

impl RowBuffer {
    pub(crate) fn push(&mut self, key: [u8; 16], name: &[u8]) {
        let key = u128::from_be_bytes(key);
        let at = self.names.len() as u32;
        self.names.push(name.len() as u8);
        self.names.extend_from_slice(name);
        self.entries.push(Entry { high: (key >> 64) as u64, low: key as u64, at });
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.names.len() + self.entries.len() * ENTRY
    }

    pub(crate) fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
    }

    /// Sorts by key, keeps the last row of each, and returns how many went.
    pub(crate) fn sort(&mut self) -> u64 {
        let before = self.entries.len();
        self.entries.sort_unstable_by_key(|entry| (entry.high, entry.low, Reverse(entry.at)));
        self.entries.dedup_by_key(|entry| (entry.high, entry.low));
        (before - self.entries.len()) as u64
    }

    /// The rows in the order in which they are now.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ([u8; 16], &[u8])> {
        self.entries.iter().map(|entry| {
            let key = u128::from(entry.high) << 64 | u128::from(entry.low);
            let start = entry.at as usize + 1;
            (key.to_be_bytes(), &self.names[start..start + usize::from(self.names[start - 1])])
        })
    }

    /// Keeps the rows whose key is wanted.
    pub(crate) fn retain(&mut self, mut is_wanted: impl FnMut([u8; 16]) -> bool) {
        let mut kept = RowBuffer::default();
        for (key, name) in self.iter().filter(|(key, _)| is_wanted(*key)) {
            kept.push(key, name);
        }
        *self = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_of_a_key_stays_and_the_others_are_counted() {
        let mut rows = RowBuffer::default();
        for (key, name) in [(2, "b"), (1, ""), (1, "x"), (2, ""), (1, "a")] {
            rows.push(u128::to_be_bytes(key), name.as_bytes());
        }
        assert_eq!(rows.sort(), 3);
        let sorted: Vec<_> =
            rows.iter().map(|(key, name)| (u128::from_be_bytes(key), name.to_vec())).collect();
        assert_eq!(sorted, [(1, b"a".to_vec()), (2, b"".to_vec())]);
    }
}
