//! A table's file in memory: mapped, read page by page, and given back to the kernel.
//!
//! The one file of this crate that needs unsafe code.
//! The map is read at random, so the kernel is asked not to read ahead; what a batch will need is asked for
//! beforehand ([`Map::prefetch`]).
//! What is not worth keeping is dropped from the map and from the page cache ([`Map::give_back`]), so that
//! names never push out the pages of other files.

#![expect(
    unsafe_code,
    reason = "mapping a file and dropping its pages are unsafe; see `map` and `give_back`"
)]

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::{Advice, Mmap, MmapOptions, UncheckedAdvice};

use super::error::LookupError;
use super::layout::PAGE;

/// Bytes that the kernel is asked to read in one call. It ignores a request beyond the disk's read-ahead in
/// silence; this is the read-ahead that Linux gives a disk by itself.
const ASKED: u64 = 128 << 10;

#[derive(Debug)]
pub(crate) struct Map {
    map: Mmap,
    file: File,
    path: PathBuf,
}

/// Maps a file for reading.
///
/// # Safety
/// While the map lives no process may write to the file or cut it: written bytes would change under `&[u8]`, and
/// reading beyond a new end kills the process.
unsafe fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the caller's promise is the one that `MmapOptions::map` asks for.
    unsafe { MmapOptions::new().map(file) }
}

impl Map {
    /// Maps a table. Tables are written under a temporary name, synced and renamed, and no code of ours opens
    /// one for writing again: to replace a table is to rename another over it, which leaves the mapped file
    /// as it is. Who cuts or overwrites the file of a table in use by other means stops the process that uses
    /// it.
    pub(crate) fn open(path: &Path) -> Result<Self, LookupError> {
        let file = File::open(path).map_err(LookupError::io("open", path))?;
        // SAFETY: as said above, tables do not change after they have their name.
        let map = unsafe { map(&file) }.map_err(LookupError::io("map", path))?;
        map.advise(Advice::Random).map_err(LookupError::io("advise on", path))?;
        Ok(Self { map, file, path: path.to_owned() })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Asks the kernel to read these bytes without waiting for them, as far as the disk's queue takes it. Only a hint: an
    /// error is ignored.
    pub(crate) fn prefetch(&self, range: Range<u64>) {
        for start in range.clone().step_by(ASKED as usize) {
            self.advise(start..range.end.min(start + ASKED), rustix::fs::Advice::WillNeed);
        }
    }

    /// Drops pages of this range from the map and from the page cache; they are read again when they are
    /// needed. Pages that another process has mapped stay in the cache.
    pub(crate) fn give_back(&self, range: Range<u64>) {
        let start = range.start / PAGE * PAGE;
        let end = range.end.next_multiple_of(PAGE).min(self.map.len() as u64);
        let Some(length) = end.checked_sub(start) else { return };
        // SAFETY: the map is a shared, read-only one of a file that does not change, so a dropped page comes
        // back with the same bytes, and slices into it stay what they were.
        let dropped = unsafe {
            self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start as usize, length as usize)
        };
        if dropped.is_ok() {
            self.advise(start..end, rustix::fs::Advice::DontNeed);
        }
    }

    fn advise(&self, range: Range<u64>, advice: rustix::fs::Advice) {
        if let Some(length) = range.end.checked_sub(range.start).and_then(NonZeroU64::new) {
            // Advice changes how fast an answer comes and not what it is.
            let _ = rustix::fs::fadvise(&self.file, range.start, Some(length), advice);
        }
    }
}

/// Pages that this thread has waited for the disk for since it began.
pub(crate) fn major_faults() -> u64 {
    // SAFETY: a struct of integers, of which all zeros are one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a whole struct that lives until the call returns.
    let code = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    if code == 0 { u64::try_from(usage.ru_majflt).unwrap_or_default() } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Pages of the map that are in the page cache.
    fn cached(map: &Map) -> usize {
        let bytes = map.bytes();
        let mut pages = vec![0_u8; bytes.len().div_ceil(PAGE as usize)];
        // SAFETY: the range is that of a map that lives, and the vector has a byte for each of its pages.
        let code = unsafe { libc::mincore(bytes.as_ptr() as *mut _, bytes.len(), pages.as_mut_ptr()) };
        assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    /// Longer than what one call of the kernel's takes. Where files are in memory anyway it shows nothing.
    #[test]
    fn a_long_range_is_prefetched_to_its_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = 40 << 20;
        std::fs::write(file.path(), vec![7; bytes]).unwrap();
        file.as_file().sync_all().unwrap();
        let map = Map::open(file.path()).unwrap();
        map.give_back(0..bytes as u64);
        map.prefetch(0..bytes as u64);
        let (wanted, begun) = (bytes / PAGE as usize, Instant::now());
        while cached(&map) < wanted {
            let far = format!("{} of {wanted} pages", cached(&map));
            assert!(begun.elapsed() < Duration::from_secs(60), "{far}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
