//! A checksum of all that a sink has written into a file, kept while it writes.
//!
//! It is resumed from a commit record, so nothing is read again for it. To know at a start that the
//! file holds the committed bytes takes reading it; all of it may be much, so besides the sum of the whole there is the
//! one at a *mark*, a place some [`STEP`] before the end: from there on the file is read, 64 to 128 MiB of a long one
//! and all of a short one. `thalweg verify` reads the bytes before the mark.
//!
//! A file that an older build began has a sum from the place on where this one went on.

use std::io;

use serde::{Deserialize, Serialize};

/// Marks are at multiples of this.
const STEP: u64 = 64 << 20;
/// A file is read in pieces of this many bytes.
const PIECE: usize = 1 << 20;

/// The checksum in a commit record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Byte from which on it is taken.
    pub from: u64,
    /// CRC-32 of the bytes from there to the end.
    pub crc: u32,
    /// A byte between, and the CRC-32 up to there.
    pub mark: (u64, u32),
}

/// The sum of a file that grows.
#[derive(Clone, Debug)]
pub(super) struct Running {
    from: u64,
    end: u64,
    all: crc32fast::Hasher,
    /// The last two, the older first.
    marks: [(u64, u32); 2],
}

impl Running {
    /// Of the bytes from `from` on.
    pub(super) fn new(from: u64) -> Self {
        Self { from, end: from, all: crc32fast::Hasher::new(), marks: [(from, 0); 2] }
    }

    /// Goes on with the checksum of a file of `end` bytes.
    pub(super) fn resume(sum: Sum, end: u64) -> Self {
        let all = crc32fast::Hasher::new_with_initial(sum.crc);
        Self { from: sum.from, end, all, marks: [sum.mark; 2] }
    }

    pub(super) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = STEP - self.end % STEP;
            let (now, rest) = bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            self.all.update(now);
            self.end += now.len() as u64;
            if self.end.is_multiple_of(STEP) {
                self.marks = [self.marks[1], (self.end, self.all.clone().finalize())];
            }
            bytes = rest;
        }
    }

    pub(super) fn sum(&self) -> Sum {
        Sum { from: self.from, crc: self.all.clone().finalize(), mark: self.marks[0] }
    }
}

impl Sum {
    /// Whether a file of at least `end` bytes holds before that the bytes that were summed up, from the mark on or,
    /// with `is_whole`, all of it. `read` fills a buffer from a byte on.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn holds(
        &self,
        mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
        end: u64,
        is_whole: bool,
    ) -> io::Result<bool> {
        let (mut at, crc) = if is_whole { (self.from, 0) } else { self.mark };
        let mut all = crc32fast::Hasher::new_with_initial(crc);
        let mut piece = vec![0; PIECE];
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
            read(&mut piece[..len], at)?;
            all.update(&piece[..len]);
            at += len as u64;
        }
        Ok(all.finalize() == self.crc)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    fn in_file(file: &File) -> impl FnMut(&mut [u8], u64) -> io::Result<()> {
        |bytes, at| file.read_exact_at(bytes, at)
    }

    #[test]
    fn a_sum_is_of_all_that_was_written_however_it_came_and_through_stops() {
        let bytes: Vec<u8> = (0..70_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut whole = Running::new(0);
        whole.add(&bytes);
        let mut pieces = Running::new(0);
        for piece in bytes.chunks(777) {
            pieces.add(piece);
            pieces = Running::resume(pieces.sum(), pieces.end);
        }
        assert_eq!(pieces.sum(), whole.sum());
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let end = bytes.len() as u64;
        assert!(whole.sum().holds(in_file(&file), end, false).unwrap());
        for at in [0, 1, 100_000, end - 1] {
            let was = [bytes[at as usize]];
            file.write_all_at(&[was[0] ^ 4], at).unwrap();
            assert!(!whole.sum().holds(in_file(&file), end, false).unwrap(), "byte {at}");
            file.write_all_at(&was, at).unwrap();
        }
    }

    #[test]
    fn of_a_long_file_the_end_is_read_and_all_of_it_where_that_is_asked_for() {
        let file = tempfile::tempfile().unwrap();
        let piece = vec![5; STEP as usize / 2];
        let mut sum = Running::new(0);
        for place in 0..7 {
            sum.add(&piece);
            file.write_all_at(&piece, place * piece.len() as u64).unwrap();
        }
        let (sum, end) = (sum.sum(), sum.end);
        assert_eq!(sum.mark.0, 2 * STEP, "of {end} bytes");
        assert!(
            sum.holds(in_file(&file), end, false).unwrap() && sum.holds(in_file(&file), end, true).unwrap()
        );
        file.write_all_at(&[6], sum.mark.0).unwrap();
        assert!(!sum.holds(in_file(&file), end, false).unwrap());
        file.write_all_at(&[5], sum.mark.0).unwrap();
        file.write_all_at(&[6], sum.mark.0 - 1).unwrap();
        assert!(
            sum.holds(in_file(&file), end, false).unwrap() && !sum.holds(in_file(&file), end, true).unwrap()
        );
    }
}
