//! The disk, by positioned reads and writes, and by maps of written bytes.
//!
//! Mapping a file is the one thing in this crate that needs unsafe code.

#![expect(unsafe_code, reason = "mapping a file is unsafe; see `RealFile::map`")]

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use memmap2::MmapOptions;

use super::{File, Fs, OpenMode, release};
use crate::handles::patiently;

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    path: PathBuf,
}

static FAILED_SYNC: OnceLock<String> = OnceLock::new();

/// The error of the first failed sync of this process, with its path; `None` if none has failed.
///
/// From then on it is unknown which writes are on the disk, and another sync may succeed without them.
/// A node ends the process then: the next one reads the disk.
pub fn failed_sync() -> Option<&'static str> {
    FAILED_SYNC.get().map(String::as_str)
}

/// Passes on what a sync has said, and notes for [`failed_sync`] where it failed. For files that are not opened by [`RealFs`].
///
/// # Errors
/// That of the sync.
pub fn note_sync(path: &Path, outcome: io::Result<()>) -> io::Result<()> {
    outcome.inspect_err(|error| {
        FAILED_SYNC.get_or_init(|| format!("sync {path:?}: {error}"));
    })
}

impl Fs for RealFs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => &mut options,
            OpenMode::Write => options.write(true),
            OpenMode::CreateNew => options.write(true).create_new(true),
            OpenMode::Create => options.write(true).create(true).truncate(true),
        };
        let file = patiently(path.display(), || options.open(path))?;
        Ok(Arc::new(RealFile { file, path: path.to_owned() }))
    }

    fn is_dir(&self, path: &Path) -> io::Result<bool> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match fs::metadata(path) {
            Ok(found) => Ok(found.is_dir()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        names(dir, false)
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        names(dir, true)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let large = release::large(path);
        fs::remove_file(path)?;
        if let (Some(file), Some(dir)) = (large, path.parent()) {
            release::release(file, dir);
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        // A lack of handles is no failed sync.
        let opened = patiently(dir.display(), || fs::File::open(dir))?;
        note_sync(dir, opened.sync_all())
    }
}

/// Names in a directory, sorted: those of directories, or of everything else.
fn names(dir: &Path, are_dirs: bool) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in patiently(dir.display(), || fs::read_dir(dir))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() == are_dirs {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        self.file.write_at(bytes, position)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    /// Writes zeros after the present end: `fallocate` would need unsafe code or another dependency, and
    /// written blocks also spare later syncs the change from unwritten to written extents.
    fn preallocate(&self, len: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
        let mut position = self.len()?;
        while position < len {
            let count = usize::try_from(len - position).unwrap_or(usize::MAX).min(ZEROS.len());
            self.write_all_at(&ZEROS[..count], position)?;
            position += count as u64;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        note_sync(&self.path, self.file.sync_data())
    }

    fn map(&self, position: u64, len: usize) -> io::Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        // Reading a map beyond the file's end would end the process.
        if self.len()? < position.saturating_add(len as u64) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: the caller's promise is the one that `MmapOptions::map` asks for: files of ours are appended to and then
        // left alone, so bytes that are written stay what they are.
        let map = unsafe { MmapOptions::new().offset(position).len(len).map(&self.file) }?;
        Ok(Bytes::from_owner(map))
    }
}
