//! Checksums of a Parquet file: of each block of rows, and of the bytes after the rows.
//!
//! A reader of a few columns cannot check a file as a whole, so each block of [`BLOCK`] bytes has a checksum (CRC-32) of
//! its own. They are in the file: in its footer, as text under the key [`KEY`]. Footer and page index, the *tail*, have
//! one checksum, and that is in the manifest, which is itself under one. So every byte of a file is under a checksum that
//! leads back to the commit log of the table.
//!
//! Files of older builds have one checksum of the whole file. Who reads those sums them up once, holds that against it,
//! and keeps the sums of their blocks in memory ([`SumUp`]).
//!
//! Not here: reading. Who reads asks for whole blocks ([`BlockSums::around`]) and has them checked
//! ([`BlockSums::check`]).

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use thalweg_types::Error;

/// Bytes under one checksum. Persisted with the sums.
///
/// A range that is asked for grows by one block on average, and a page has about 100 KiB; four bytes for each are next to
/// nothing in a file.
pub const BLOCK: u64 = 64 << 10;

/// Where the footer has the sums. Persisted.
pub const KEY: &str = "thalweg.sums";

const BRING_BACK: &str = "put the file back from a copy";

/// What the manifest says of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSum {
    /// CRC-32 of the whole file.
    pub whole: u32,
    /// `None` in files of older builds.
    pub tail: Option<TailSum>,
}

impl FileSum {
    /// What older builds say of a file with these bytes.
    #[must_use]
    pub fn of_whole(bytes: &[u8]) -> Self {
        Self { whole: crc32fast::hash(bytes), tail: None }
    }

    /// Checks all of a file at once; where it is damaged, says which bytes as closely as its own sums do.
    ///
    /// # Errors
    /// Of class corrupt, with file and bytes.
    pub(crate) fn check_whole(
        &self,
        path: &Path,
        bytes: &[u8],
        text: impl FnOnce(&[u8]) -> Option<String>,
    ) -> Result<(), Error> {
        let got = crc32fast::hash(bytes);
        if got == self.whole {
            return Ok(());
        }
        if let Some((sum, tail)) =
            self.tail.and_then(|sum| Some((sum, bytes.get(usize::try_from(sum.at).ok()?..)?)))
        {
            check_tail(path, sum, tail)?;
            BlockSums::read(path, bytes.len() as u64, sum, text(tail).as_deref())?.check(path, 0, bytes)?;
        }
        Err(damaged(path, 0..bytes.len() as u64, self.whole, got))
    }
}

/// The part of a file that is not rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailSum {
    /// Byte where it begins; it goes to the end of the file.
    pub at: u64,
    /// CRC-32 of it.
    pub crc: u32,
}

/// The checksums of all bytes of a file, by block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSums {
    block: u64,
    /// Byte after the last block, which may be a short one; the tail follows.
    at: u64,
    /// Bytes of the file.
    len: u64,
    blocks: Vec<u32>,
    tail: u32,
}

/// The sums of the blocks of bytes, as text for the footer.
pub(crate) fn text_of(rows: &[u8]) -> String {
    let mut text = BLOCK.to_string();
    for block in rows.chunks(BLOCK as usize) {
        text.push_str(&format!(" {:08x}", crc32fast::hash(block)));
    }
    text
}

/// Checks the tail of a file, which is all of its bytes from `sum.at` on.
///
/// # Errors
/// Of class corrupt, with file and bytes.
pub fn check_tail(path: &Path, sum: TailSum, tail: &[u8]) -> Result<(), Error> {
    check_one(path, sum.at, tail, sum.crc)
}

impl BlockSums {
    /// Reads the sums that are in the footer of a file of `len` bytes, whose tail was checked.
    ///
    /// # Errors
    /// Of class corrupt where they do not fit the file.
    pub fn read(path: &Path, len: u64, tail: TailSum, text: Option<&str>) -> Result<Self, Error> {
        let read = |text: &str| {
            let mut words = text.split(' ');
            let block: u64 = words.next()?.parse().ok().filter(|block| *block > 0)?;
            let blocks =
                words.map(|word| u32::from_str_radix(word, 16).ok()).collect::<Option<Vec<u32>>>()?;
            let is_whole = blocks.len() as u64 == tail.at.div_ceil(block) && tail.at <= len;
            is_whole.then_some(Self { block, at: tail.at, len, blocks, tail: tail.crc })
        };
        text.and_then(read).ok_or_else(|| {
            Error::corrupt(format!(
                "{path:?} has no checksums of its blocks, and the manifest says that it has"
            ))
            .with_hint(BRING_BACK)
        })
    }

    /// The bytes to read so that all of `range` can be checked: whole blocks, or up to the end.
    pub fn around(&self, range: &Range<u64>) -> Range<u64> {
        if range.is_empty() || range.end > self.len {
            // Missing bytes are not read; the reader reports them.
            return range.clone();
        }
        let start = if range.start < self.at { range.start / self.block * self.block } else { self.at };
        let end = if range.end > self.at {
            self.len
        } else {
            (range.end.div_ceil(self.block) * self.block).min(self.at)
        };
        start..end
    }

    /// Checks bytes of the file from `start` on, which begin and end as [`BlockSums::around`] says.
    ///
    /// # Errors
    /// Of class corrupt, with file and bytes.
    pub fn check(&self, path: &Path, start: u64, bytes: &[u8]) -> Result<(), Error> {
        let rows = usize::try_from(self.at.saturating_sub(start)).unwrap_or(usize::MAX).min(bytes.len());
        let (rows, tail) = bytes.split_at(rows);
        let first = usize::try_from(start / self.block).unwrap_or(usize::MAX);
        for (place, block) in rows.chunks(self.block as usize).enumerate() {
            let at = start + place as u64 * self.block;
            let Some(sum) = self.blocks.get(first + place) else {
                return Err(Error::internal(format!("byte {at} of {path:?} is in no block")));
            };
            check_one(path, at, block, *sum)?;
        }
        if tail.is_empty() { Ok(()) } else { check_one(path, self.at, tail, self.tail) }
    }
}

/// Makes the sums of a file that has none of its blocks.
pub struct SumUp {
    all: crc32fast::Hasher,
    sums: BlockSums,
}

impl SumUp {
    /// Nothing was read yet.
    #[must_use]
    pub fn new() -> Self {
        let sums = BlockSums { block: BLOCK, at: 0, len: 0, blocks: Vec::new(), tail: 0 };
        Self { all: crc32fast::Hasher::new(), sums }
    }

    /// Takes the next bytes: each time but the last a whole number of [`BLOCK`]s.
    pub fn add(&mut self, bytes: &[u8]) {
        for block in bytes.chunks(BLOCK as usize) {
            let mut one = crc32fast::Hasher::new();
            one.update(block);
            self.all.combine(&one);
            self.sums.blocks.push(one.finalize());
            self.sums.len += block.len() as u64;
        }
    }

    /// The sums, where the bytes are those that were written.
    ///
    /// # Errors
    /// Of class corrupt where the checksum of the whole is another one.
    pub fn finish(mut self, path: &Path, whole: u32) -> Result<BlockSums, Error> {
        self.sums.at = self.sums.len;
        match self.all.finalize() {
            got if got == whole => Ok(self.sums),
            got => Err(damaged(path, 0..self.sums.len, whole, got)),
        }
    }
}

impl Default for SumUp {
    fn default() -> Self {
        Self::new()
    }
}

fn check_one(path: &Path, at: u64, bytes: &[u8], expected: u32) -> Result<(), Error> {
    let got = crc32fast::hash(bytes);
    if got == expected {
        return Ok(());
    }
    Err(damaged(path, at..at + bytes.len() as u64, expected, got))
}

fn damaged(path: &Path, bytes: Range<u64>, expected: u32, got: u32) -> Error {
    let Range { start, end } = bytes;
    Error::corrupt(format!(
        "{path:?} is damaged between byte {start} and byte {end}: checksum: expected {expected:#010x}, got {got:#010x}"
    ))
    .with_hint(BRING_BACK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file with the given bytes of rows and of tail, and its sums.
    fn file(rows: usize, tail: usize) -> (Vec<u8>, BlockSums) {
        let bytes: Vec<u8> = (0..rows + tail).map(|at| (at * 31 + at / 251) as u8).collect();
        let text = text_of(&bytes[..rows]);
        let tail = TailSum { at: rows as u64, crc: crc32fast::hash(&bytes[rows..]) };
        check_tail(Path::new("f"), tail, &bytes[rows..]).unwrap();
        let sums = BlockSums::read(Path::new("f"), bytes.len() as u64, tail, Some(&text)).unwrap();
        (bytes, sums)
    }

    proptest! {
        /// Every range can be checked, and a bit that changed in it is found whatever else is read.
        #[test]
        fn a_changed_bit_in_a_range_is_found(
            rows in 0..300_000_usize,
            tail in 1..70_000_usize,
            ends in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
            bit in any::<prop::sample::Index>(),
        ) {
            let (mut bytes, sums) = file(rows, tail);
            let (a, b) = (ends.0.index(bytes.len() + 1), ends.1.index(bytes.len() + 1));
            let range = a.min(b) as u64..a.max(b) as u64;
            let mut whole = SumUp::new();
            bytes.chunks(3 * BLOCK as usize).for_each(|piece| whole.add(piece));
            let whole = whole.finish(Path::new("f"), FileSum::of_whole(&bytes).whole).unwrap();
            for sums in [sums, whole] {
                let read = sums.around(&range);
                prop_assert!(range.is_empty() || read.start <= range.start && read.end >= range.end);
                prop_assert!(read.end - read.start <= range.end - range.start + 2 * BLOCK + tail as u64);
                let slice = |bytes: &[u8]| bytes[read.start as usize..read.end as usize].to_vec();
                if range.is_empty() {
                    continue;
                }
                sums.check(Path::new("f"), read.start, &slice(&bytes)).unwrap();
                let at = range.start as usize * 8 + bit.index((range.end - range.start) as usize * 8);
                bytes[at / 8] ^= 1 << (at % 8);
                let error = sums.check(Path::new("f"), read.start, &slice(&bytes)).unwrap_err();
                bytes[at / 8] ^= 1 << (at % 8);
                prop_assert_eq!(error.class(), thalweg_types::Class::Corrupt);
            }
        }
    }

    #[test]
    fn sums_that_do_not_fit_the_file_are_damage() {
        let tail = TailSum { at: BLOCK + 1, crc: 0 };
        let read = |text| BlockSums::read(Path::new("f"), BLOCK + 9, tail, text);
        assert!(read(Some("65536 00000001 00000002")).is_ok());
        for text in [None, Some(""), Some("0"), Some("65536 00000001"), Some("65536 00000001 x"), Some("1 2")]
        {
            assert_eq!(read(text).unwrap_err().class(), thalweg_types::Class::Corrupt, "{text:?}");
        }
    }

    #[test]
    fn a_file_of_an_older_build_is_held_against_its_one_checksum() {
        let bytes = vec![7; 200_000];
        let of = |whole| {
            let mut sums = SumUp::new();
            sums.add(&bytes);
            sums.finish(Path::new("f"), whole)
        };
        assert!(of(crc32fast::hash(&bytes)).is_ok());
        let error = of(1).unwrap_err();
        assert!(error.message().contains("between byte 0 and byte 200000"), "{error}");
    }
}
