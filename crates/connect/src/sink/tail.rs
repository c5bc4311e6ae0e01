//! A file that is written at its end, and knows how long it was at each commit.
//!
//! Rows written after the last commit are written again after a crash, so [`Tail::resume`] cuts them off: that is all
//! that exactly-once takes. Pipes, terminals and devices can be neither cut nor synced: their rows cannot be taken
//! back.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_flow::CyclePart;
use thalweg_storage::handles::patiently;
use thalweg_storage::{Fs as _, RealFs, note_sync};
use thalweg_types::Error;

use super::lineage::Lineage;
use super::position::{LAST_BYTES, hash_of_last};
use super::running::{Running, Sum};

/// Where the file is not the one that was committed.
const BEGIN_ANEW: &str = "put the file back; or, to begin another one, give the sink another name, the job another name, or \
                          name another --data-dir";

/// Identifies a file: a hash of its last bytes, the checksum of all. Older builds wrote down less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct KnownBy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sum: Option<Sum>,
}

pub(super) struct Tail {
    path: PathBuf,
    file: Arc<File>,
    len: u64,
    /// The last bytes that were written, by which the file is recognized.
    last: Vec<u8>,
    /// The checksum of all bytes that were written.
    sum: Running,
    /// `None` if it is not a regular file. The name is to be made durable with the next part, once.
    name: Option<bool>,
}

impl Tail {
    /// Opens a file and empties it.
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let (tail, len) = Self::open_or_create(path)?;
        if len > 0 {
            tail.file.set_len(0).map_err(|error| failed("empty", path, error))?;
        }
        Ok(tail)
    }

    /// Fails as [`Tail::create`] would, without making or changing a file.
    pub(super) fn probe(path: &Path) -> Result<(), Error> {
        let opened = patiently(path.display(), || File::options().append(true).open(path));
        let opened = match opened {
            Err(error) if error.kind() == ErrorKind::NotFound => may_create(path).map(|()| None),
            opened => opened.map(Some),
        };
        let Some(file) = opened.map_err(|error| failed("create", path, error))? else { return Ok(()) };
        let metadata = file.metadata().map_err(|error| failed("create", path, error))?;
        if metadata.is_file() { lock(&file, path) } else { Ok(()) }
    }

    /// Opens a file that has nothing in it, or is not there yet.
    pub(super) fn create_empty(path: &Path) -> Result<Self, Error> {
        let (tail, len) = Self::open_or_create(path)?;
        if len > 0 {
            return Err(Error::user(format!(
                "file {path:?} has {len} bytes already, and not from a sink of this name"
            ))
            .with_hint("move the file away, or give the sink the name under which the job wrote the file"));
        }
        Ok(tail)
    }

    /// The file as it is, and how long it is; 0 if it is not a regular file.
    fn open_or_create(path: &Path) -> Result<(Self, u64), Error> {
        let file = patiently(path.display(), || File::options().append(true).create(true).open(path));
        let file = file.map_err(|error| failed("create", path, error))?;
        let metadata = file.metadata().map_err(|error| failed("create", path, error))?;
        let is_file = metadata.is_file();
        if is_file {
            lock(&file, path)?;
        }
        let tail = Self {
            path: path.to_owned(),
            file: Arc::new(file),
            len: 0,
            last: Vec::new(),
            sum: Running::new(0),
            name: is_file.then_some(true),
        };
        Ok((tail, if is_file { metadata.len() } else { 0 }))
    }

    /// Opens a file that was `len` bytes long at the last commit, and cuts the bytes after that. `known` is what
    /// [`Tail::known_by`] said then, where that was written down.
    pub(super) fn resume(path: &Path, len: u64, known: KnownBy) -> Result<Self, Error> {
        let open = patiently(path.display(), || File::options().append(true).open(path));
        if len == 0 && open.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Self::create(path);
        }
        let file = open.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                Error::corrupt(format!("file {path:?} is gone, and {len} bytes of it were committed"))
                    .with_hint(BEGIN_ANEW)
                    .with_source(error)
            }
            _ => failed("go on writing", path, error),
        })?;
        let metadata = file.metadata().map_err(|error| failed("go on writing", path, error))?;
        if !metadata.is_file() {
            return Ok(Self {
                path: path.to_owned(),
                file: Arc::new(file),
                len: 0,
                last: Vec::new(),
                sum: Running::new(0),
                name: None,
            });
        }
        lock(&file, path)?;
        if metadata.len() < len {
            return Err(Error::corrupt(format!(
                "file {path:?} has {} bytes, but {len} were committed",
                metadata.len()
            ))
            .with_hint(BEGIN_ANEW));
        }
        let reading = |error| failed("read", path, error);
        let found = read_last(path, len).map_err(reading)?;
        let holds = |sum: Sum| {
            let file = File::open(path)?;
            sum.holds(|bytes, at| file.read_exact_at(bytes, at), len, false)
        };
        if known.last.is_some_and(|last| last != hash_of_last(&found))
            || !known.sum.map_or(Ok(true), holds).map_err(reading)?
        {
            return Err(Error::corrupt(format!(
                "file {path:?} has other bytes before byte {len} than those that were committed"
            ))
            .with_hint(BEGIN_ANEW));
        }
        if metadata.len() > len {
            tracing::info!(
                path = %path.display(),
                bytes = metadata.len() - len,
                "cut what no commit names; it is written again"
            );
            file.set_len(len).map_err(|error| failed("cut", path, error))?;
        }
        let sum = known.sum.map_or(Running::new(len), |sum| Running::resume(sum, len));
        Ok(Self { path: path.to_owned(), file: Arc::new(file), len, last: found, sum, name: Some(false) })
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        (&*self.file).write_all(bytes).map_err(|error| failed("write", &self.path, error))?;
        self.len += bytes.len() as u64;
        self.sum.add(bytes);
        let kept = LAST_BYTES.saturating_sub(bytes.len()).min(self.last.len());
        self.last.drain(..self.last.len() - kept);
        self.last.extend_from_slice(&bytes[bytes.len().saturating_sub(LAST_BYTES)..]);
        Ok(())
    }

    /// Identifies the file.
    pub(super) fn known_by(&self) -> KnownBy {
        KnownBy { last: Some(hash_of_last(&self.last)), sum: Some(self.sum.sum()) }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Syncs the file, where it can be.
    pub(super) fn sync(&self) -> Result<(), Error> {
        match self.file.sync_all() {
            // A pipe, a terminal.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
            outcome => note_sync(&self.path, outcome).map_err(|error| failed("sync", &self.path, error)),
        }
    }

    /// A part of a cycle that syncs the bytes written so far and then names `position`. `note` is written once that is
    /// committed, for the cycle of this number.
    pub(super) fn part(
        &mut self,
        position: Vec<u8>,
        note: Option<(Arc<Lineage>, u64)>,
    ) -> Box<dyn CyclePart> {
        let is_name_new = self.name;
        self.name = is_name_new.map(|_| false);
        Box::new(TailPart {
            path: self.path.clone(),
            file: Arc::clone(&self.file),
            is_name_new,
            position,
            note,
        })
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        // By hand, as parts of cycles that are never committed have the file open for as long as the job is known.
        let _ = self.file.unlock();
    }
}

struct TailPart {
    path: PathBuf,
    file: Arc<File>,
    is_name_new: Option<bool>,
    position: Vec<u8>,
    note: Option<(Arc<Lineage>, u64)>,
}

impl CyclePart for TailPart {
    fn prepare(&mut self) -> Result<Vec<u8>, Error> {
        if let Some(is_name_new) = self.is_name_new {
            note_sync(&self.path, self.file.sync_data())
                .map_err(|error| failed("sync", &self.path, error))?;
            if is_name_new {
                let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = folder.unwrap_or(Path::new("."));
                // The folder may be as new as the file.
                for folder in [folder, &folder.join("..")] {
                    RealFs.sync_dir(folder).map_err(|error| failed("sync", folder, error))?;
                }
            }
        }
        Ok(std::mem::take(&mut self.position))
    }

    fn committed(self: Box<Self>) -> Result<(), Error> {
        if let Some((lineage, cycle)) = &self.note {
            lineage.note(*cycle);
        }
        Ok(())
    }
}

/// The last bytes of the first `len`, which there are.
fn read_last(path: &Path, len: u64) -> std::io::Result<Vec<u8>> {
    let count = len.min(LAST_BYTES as u64);
    let mut last = vec![0; count as usize];
    if count > 0 {
        patiently(path.display(), || File::open(path))?.read_exact_at(&mut last, len - count)?;
    }
    Ok(last)
}

/// How long a file may still be held by a job of this process that has ended, whose tasks go one after the other.
const LINGERS: Duration = Duration::from_secs(2);

/// Keeps others from writing the file for as long as it is open.
///
/// # Errors
/// If another one writes it already. A file system without locks is not an error.
fn lock(file: &File, path: &Path) -> Result<(), Error> {
    let since = Instant::now();
    while let Err(TryLockError::WouldBlock) = file.try_lock() {
        if since.elapsed() > LINGERS {
            return Err(Error::user(format!(
                "file {path:?} is being written by another sink or another process"
            ))
            .with_hint("end the other one, or name another file"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Fails as making the file would.
pub(crate) fn may_create(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !std::fs::metadata(folder)?.is_dir() {
        return Err(std::io::Error::from_raw_os_error(nix::libc::ENOTDIR));
    }
    // A file without a name: the folder does not see it.
    #[cfg(target_os = "linux")]
    match File::options().write(true).custom_flags(nix::libc::O_TMPFILE).open(folder) {
        // The file system has no such files.
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::IsADirectory) => {}
        made => {
            made?;
        }
    }
    Ok(())
}

/// The error of a disk, with a hint.
pub(super) fn failed(action: &str, path: &Path, error: std::io::Error) -> Error {
    let message = format!("{action} {path:?}");
    match error.kind() {
        ErrorKind::NotFound => {
            Error::user(message).with_hint("the folder of the file must exist").with_source(error)
        }
        _ => Error::disk(message, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_the_committed_length_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut tail = Tail::create(&path).unwrap();
        tail.append(b"one\n").unwrap();
        let position = tail.part(vec![4], None).prepare().unwrap();
        assert_eq!((position, tail.len()), (vec![4], 4));
        tail.append(b"two, not commit").unwrap();
        drop(tail);
        let mut tail = Tail::resume(&path, 4, KnownBy::default()).unwrap();
        tail.append(b"two\n").unwrap();
        assert_eq!(tail.len(), 8);
        tail.sync().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn a_file_that_lost_what_was_committed_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        std::fs::write(&path, "on").unwrap();
        let error = Tail::resume(&path, 4, KnownBy::default()).err().unwrap();
        assert_eq!(error.class(), thalweg_types::Class::Corrupt);
        assert!(error.message().ends_with("has 2 bytes, but 4 were committed"), "{error}");
        let error = Tail::resume(&folder.path().join("gone"), 4, KnownBy::default()).err().unwrap();
        assert_eq!(error.class(), thalweg_types::Class::Corrupt);
        assert!(error.message().ends_with("is gone, and 4 bytes of it were committed"), "{error}");
    }

    #[test]
    fn a_file_has_one_writer_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut tail = Tail::create(&path).unwrap();
        tail.append(b"one\n").unwrap();
        for other in
            [Tail::create(&path), Tail::create_empty(&path), Tail::resume(&path, 2, KnownBy::default())]
        {
            let error = other.err().unwrap();
            assert!(error.message().ends_with("another sink or another process"), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"one\n");
        // A part that nobody prepares any more keeps nobody off: it writes nothing.
        let _part = tail.part(Vec::new(), None);
        drop(tail);
        assert_eq!(Tail::resume(&path, 2, KnownBy::default()).unwrap().len(), 2);
    }

    #[test]
    fn a_file_that_has_to_be_empty_is_not_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        for _ in 0..2 {
            assert_eq!(Tail::create_empty(&path).unwrap().len(), 0);
        }
        std::fs::write(&path, "one").unwrap();
        let error = Tail::create_empty(&path).err().unwrap();
        assert!(
            error.message().ends_with("has 3 bytes already, and not from a sink of this name"),
            "{error}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        assert_eq!(Tail::create_empty(Path::new("/dev/null")).unwrap().len(), 0);
    }

    #[test]
    fn every_error_of_a_file_says_what_to_do() {
        use std::io::Error as Io;
        // EIO, ENOSPC, EDQUOT, EACCES, ENOENT.
        for code in [5, 28, 122, 13, 2] {
            let error = failed("sync", Path::new("out"), Io::from_raw_os_error(code));
            assert!(error.hint().is_some(), "{error}");
        }
    }

    #[test]
    fn a_pipe_has_no_length_and_is_not_synced() {
        let mut tail = Tail::create(Path::new("/dev/null")).unwrap();
        tail.append(b"gone").unwrap();
        assert_eq!(tail.part(Vec::new(), None).prepare().unwrap(), Vec::<u8>::new());
        assert_eq!(Tail::resume(Path::new("/dev/null"), 99, KnownBy::default()).unwrap().len(), 0);
    }
}
