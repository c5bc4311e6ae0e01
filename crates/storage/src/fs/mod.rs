//! The file-system seam: everything that this crate does to a disk goes through [`Fs`] and [`File`].
//!
//! [`RealFs`] is the disk. [`MemFs`] is a disk in memory that loses unsynced writes on `crash`, stricter
//! than a real one. A [`Layer`] changes what either does; [`FaultyFs`] is one that lays errors over it.
//!
//! A file has one writer; readers may read up to the end that the writer has given them.
//! A name is durable once its directory was synced, bytes once their file was.

mod faulty;
mod layered;
mod mem;
mod real;
mod release;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

pub use faulty::{Fault, FaultKind, Faults, FaultyFs};
pub use layered::{Layer, Layered};
pub use mem::MemFs;
pub use real::{RealFs, failed_sync, note_sync};
pub use thalweg_types::is_disk_full as is_full;

/// How [`Fs::open`] treats a name that exists or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; an error where it does not exist.
    Read,
    /// For reading and writing; an error where it does not exist.
    Write,
    /// For reading and writing; an error where it exists.
    CreateNew,
    /// For reading and writing; created, or emptied where it exists.
    Create,
}

/// A tree of files.
pub trait Fs: Send + Sync + fmt::Debug {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Whether there is a directory of this name.
    fn is_dir(&self, path: &Path) -> io::Result<bool>;

    /// Makes one directory, in one that exists; `AlreadyExists` where the name is taken. Its own name is durable once the
    /// directory that it is in was synced: [`make_dir`] sees to that.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Names of the files in a directory, sorted; directories below it are left out.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Names of the directories in a directory, sorted.
    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Renames a file, over one that exists.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// An open file. Positions are absolute; there is no cursor.
pub trait File: Send + Sync + fmt::Debug {
    /// Reads up to `buffer.len()` bytes from `position` on; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes some of `bytes` at `position` and says how many.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize>;

    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts or, with zeros, extends the file.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Gives the file real blocks up to `len`, so that writing there cannot find the disk full.
    fn preallocate(&self, len: u64) -> io::Result<()>;

    /// Makes the bytes (and the length) durable. After an error nothing is known about them:
    /// stop and recover by reopening, a repeated sync proves nothing.
    fn sync_data(&self) -> io::Result<()>;

    /// Writes all of `bytes` at `position`.
    fn write_all_at(&self, mut bytes: &[u8], mut position: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    position += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The bytes from `position` on, `len` of them, without a copy where the file system can do that; they outlive the file's
    /// name. For bytes that are written and do not change any more, in a file that is not cut before them: where that is
    /// broken from outside, bytes change under the reader, or the process ends.
    fn map(&self, position: u64, len: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; len];
        self.read_exact_at(&mut bytes, position)?;
        Ok(bytes.into())
    }

    /// Writes all of `bytes` after the last byte and returns where they begin. One writer per file.
    fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        let position = self.len()?;
        self.write_all_at(bytes, position)?;
        Ok(position)
    }

    /// Fills `buffer` from `position` on; `UnexpectedEof` where the file ends before.
    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        match self.read_up_to(buffer, position)? {
            count if count < buffer.len() => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Fills `buffer` from `position` on, or as much of it as the file has; returns how much.
    fn read_up_to(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(&mut buffer[filled..], position + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

/// Makes a directory and its missing parents; on return their names survive a power cut.
///
/// A directory's name is synced before anything is made in it. So of a tree that a process has left half made, as it was
/// killed, only the last directory can have a name that is not synced: that of the first one which is there is synced
/// again, and nothing above it has to be.
///
/// # Errors
/// What the file system says.
pub fn make_dir(fs: &dyn Fs, dir: &Path) -> io::Result<()> {
    let above = dir.parent();
    if !fs.is_dir(dir)? {
        if let Some(above) = above {
            make_dir(fs, above)?;
        }
        match fs.create_dir(dir) {
            // Another thread was quicker.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && fs.is_dir(dir)? => {}
            made => made?,
        }
    }
    let Some(above) = above else { return Ok(()) };
    match fs.sync_dir(above) {
        // One that we may not read is its owner's alone.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(dir = %above.display(), "not synced, as this user may not read it");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Publishes `bytes` under `path` atomically: after a crash the file holds the old content or the new.
///
/// Write a second file, sync, rename over it, sync the directory; the one place where this order is written down.
/// Readers never see a half, and `Ok` means durable.
///
/// # Errors
/// The first step that failed; the old content is then still there or the new one is, whole.
pub fn publish(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    let file = fs.open(&temporary, OpenMode::Create)?;
    file.write_all_at(bytes, 0)?;
    file.sync_data()?;
    fs.rename(&temporary, path)?;
    fs.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// Writes bytes of a file again as they are read, for what may not have been synced: after a sync that failed a kernel
/// may take pages for clean that the disk does not have, and then the sync of a later process, too, passes over them
/// and says nothing (Rebello et al., USENIX ATC 2020). Whoever syncs next has them on the disk.
///
/// # Errors
/// The disk's errors, and bytes that are read in two ways.
pub(crate) fn write_again(file: &dyn File, range: Range<u64>) -> io::Result<()> {
    const PIECE: u64 = 1 << 20;
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(PIECE) as usize;
        let (mut bytes, mut again) = (vec![0; len], vec![0; len]);
        file.read_exact_at(&mut bytes, at)?;
        file.read_exact_at(&mut again, at)?;
        if bytes != again {
            // A bit that flips on the way from the disk must not get there.
            let message = format!("two readings of the {len} bytes at byte {at} differ");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        file.write_all_at(&bytes, at)?;
        at += len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
