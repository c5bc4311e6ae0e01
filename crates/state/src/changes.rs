//! What a cycle changed in one task: keys with new values or tombstones, in one buffer.
//!
//! In memory only: length of the key, length of the value plus one (0 is a tombstone), key, value; lengths take
//! seven bits a byte, lowest first. Pushing appends to one vector, so a buffer that comes back costs no allocation.
//! A key may be in it several times; the last one counts.

/// One key's new value; `None` is a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// Bytes of a length that is known only once the value is written: 2^42 is beyond any memory.
const LATER: usize = 6;

/// A list of changes, in order.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Changes {
    bytes: Vec<u8>,
    count: usize,
}

impl Changes {
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives `key` a value.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.lengths(key.len() as u64, value.len() as u64 + 1);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// Gives `key` the value that `write` appends, without a copy of it elsewhere.
    ///
    /// # Errors
    /// What `write` returns; the key is not changed then.
    #[inline]
    pub fn push_with<E>(
        &mut self,
        key: &[u8],
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        self.length(key.len() as u64);
        let place = self.bytes.len();
        self.bytes.extend_from_slice(&[0; LATER]);
        self.bytes.extend_from_slice(key);
        let begin = self.bytes.len();
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(start);
            return Err(error);
        }
        // As many bytes as there is room for, whatever the length: the upper ones may be empty.
        let mut length = (self.bytes.len() - begin) as u64 + 1;
        for byte in &mut self.bytes[place..place + LATER] {
            *byte = length as u8 | 0x80;
            length >>= 7;
        }
        self.bytes[place + LATER - 1] &= 0x7f;
        self.count += 1;
        Ok(())
    }

    /// Takes `key` away.
    #[inline]
    pub fn remove(&mut self, key: &[u8]) {
        self.lengths(key.len() as u64, 0);
        self.bytes.extend_from_slice(key);
    }

    #[inline]
    fn lengths(&mut self, key: u64, value: u64) {
        self.count += 1;
        self.length(key);
        self.length(value);
    }

    #[inline]
    fn length(&mut self, mut length: u64) {
        while length >= 0x80 {
            self.bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        self.bytes.push(length as u8);
    }

    /// Forgets all changes and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Bytes of memory, used or not.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of keys, values and their lengths.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The changes in the order in which they were pushed.
    pub fn iter(&self) -> Iter<'_> {
        Iter { rest: &self.bytes }
    }
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a Changes {
    type Item = Change<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Goes over changes without allocating.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iter<'a> {
    #[inline]
    fn length(&mut self) -> Option<u64> {
        let (mut length, mut shift) = (0, 0);
        loop {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            length |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(length);
            }
            shift += 7;
        }
    }

    #[inline]
    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Change<'a>;

    #[inline]
    fn next(&mut self) -> Option<Change<'a>> {
        let (key, value) = (self.length()?, self.length()?);
        let key = self.take(key)?;
        let value = if value == 0 { None } else { Some(self.take(value - 1)?) };
        Some(Change { key, value })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_pushed_comes_back_in_order(
            list in proptest::collection::vec(
                (
                    proptest::collection::vec(any::<u8>(), 0..200),
                    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..400)),
                ),
                0..20,
            ),
        ) {
            let mut changes = Changes::new();
            changes.push(b"of an earlier use", b"");
            changes.clear();
            for (key, value) in &list {
                match value {
                    Some(value) if value.len() % 2 == 0 => {
                        let Ok(()) = changes.push_with(key, |out| {
                            out.extend_from_slice(value);
                            Ok::<(), std::convert::Infallible>(())
                        });
                    }
                    Some(value) => changes.push(key, value),
                    None => changes.remove(key),
                }
                let failed = changes.push_with(key, |out| {
                    out.push(1);
                    Err("nothing of it is kept")
                });
                prop_assert!(failed.is_err());
            }
            prop_assert_eq!(changes.len(), list.len());
            prop_assert_eq!(changes.is_empty(), list.is_empty());
            let back: Vec<_> = changes
                .iter()
                .map(|change| (change.key.to_vec(), change.value.map(<[u8]>::to_vec)))
                .collect();
            prop_assert_eq!(back, list);
        }
    }
}
