//! Locks of folders: of a data directory, and of each job in it.
//!
//! The lock is on the folder itself (`flock` on its descriptor), so it holds whatever names lead there: symbolic links,
//! bind mounts, a folder that was renamed. A file in it may be removed; the folder cannot be while something is in it.
//! Where a file system does not lock folders (NFS requires a file that is open for writing), a file `lock` in the
//! folder is locked in its place.
//!
//! Of a job's folder the folders in it are locked too, which may be links to those of another one, and its commit log,
//! which a copy made of hard links shares. All locks go with their descriptors, so with the process at the latest.
//!
//! Not here: files that sinks write, which have locks of their own (`connect`).

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use thalweg_types::Error;

use super::{COMMIT_LOG, JOB_FOLDERS};

/// The file that is locked where a folder cannot be.
pub(super) const LOCK: &str = "lock";

/// A folder that is moved while it is opened is looked for again, this often.
const ATTEMPTS: usize = 8;

/// What became of a lock.
#[derive(Debug)]
pub(super) enum Locked {
    Ours(File),
    /// Somebody else has it.
    Taken,
    /// The file system does not lock folders.
    Never,
}

/// Takes the lock of a folder.
///
/// # Errors
/// The disk's errors.
pub(super) fn lock_folder(path: &Path) -> io::Result<Locked> {
    for _ in 0..ATTEMPTS {
        let folder = File::open(path)?;
        match folder.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(Locked::Taken),
            Err(TryLockError::Error(error)) if locks_no_folders(&error) => return Ok(Locked::Never),
            Err(TryLockError::Error(error)) => return Err(error),
            // Another folder may have got the name since it was opened.
            Ok(()) if is_at(&folder, path)? => return Ok(Locked::Ours(folder)),
            Ok(()) => {}
        }
    }
    Err(io::Error::other("it is replaced again and again"))
}

/// Takes the lock of a file, which is made if it is missing; `None` if somebody else holds it.
///
/// # Errors
/// The disk's errors.
pub(super) fn lock_file(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().create(true).append(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Errors of file systems that lock no folders: those that make `flock` a lock of bytes require it open for writing.
fn locks_no_folders(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let known = [
        Errno::BADF,
        Errno::INVAL,
        Errno::NOTSUP,
        Errno::OPNOTSUPP,
        Errno::NOSYS,
        Errno::NOLCK,
        Errno::ISDIR,
    ];
    let said = error.raw_os_error();
    known.iter().any(|known| Some(known.raw_os_error()) == said)
}

/// Whether a path leads to this open file or folder.
fn is_at(open: &File, path: &Path) -> io::Result<bool> {
    let open = open.metadata()?;
    match std::fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The locks of a job's folder, held while the job runs.
#[derive(Debug)]
pub struct JobLock {
    path: PathBuf,
    /// The folder itself, or the file that is locked in its place.
    folder: File,
    is_of_folder: bool,
    within: Mutex<Within>,
}

/// Locks of the files and folders that are in a job's folder.
#[derive(Debug, Default)]
struct Within {
    folders: [Option<File>; JOB_FOLDERS.len()],
    /// The commit log as it was last seen: it is replaced when it is long.
    commits: Option<File>,
}

impl JobLock {
    /// Takes the locks of a job's folder.
    ///
    /// # Errors
    /// Of class user where another process, or another job of this one, has one of them; the disk's errors.
    pub(super) fn take(path: &Path) -> Result<Self, Error> {
        let locking = |error| Error::disk(format!("lock job folder {path:?}"), error);
        let (folder, is_of_folder) = match lock_folder(path).map_err(locking)? {
            Locked::Ours(folder) => (folder, true),
            Locked::Taken => return Err(in_use(path)),
            Locked::Never => {
                let file = lock_file(&path.join(LOCK)).map_err(locking)?;
                (file.ok_or_else(|| in_use(path))?, false)
            }
        };
        let mut within = Within::default();
        within.lock(path)?;
        Ok(Self { path: path.to_owned(), folder, is_of_folder, within: Mutex::new(within) })
    }

    /// Holds as long as the job's path leads to the folder that was locked; locks the folders that were made in it
    /// since. Called before writes there count.
    ///
    /// # Errors
    /// Where the folder was moved, removed or replaced while the job ran: later writes to its path are not part of
    /// the job, and may be in another one's folder.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let path = &self.path;
        let asked = |error| Error::disk(format!("look at job folder {path:?}"), error);
        if self.is_of_folder && !is_at(&self.folder, path).map_err(asked)? {
            return Err(Error::external(format!(
                "job folder {path:?} was moved, removed or replaced by another one while the job ran"
            ))
            .with_hint(
                "put the folder back where it was and start again: what was committed in it is kept",
            ));
        }
        self.within.lock().unwrap_or_else(PoisonError::into_inner).lock(path)
    }
}

impl Within {
    /// Locks all that is not locked yet.
    fn lock(&mut self, job: &Path) -> Result<(), Error> {
        for (name, held) in JOB_FOLDERS.iter().zip(&mut self.folders).filter(|(_, held)| held.is_none()) {
            let path = job.join(name);
            match lock_folder(&path) {
                Ok(Locked::Ours(lock)) => *held = Some(lock),
                Ok(Locked::Taken) => return Err(in_use(&path)),
                Ok(Locked::Never) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(Error::disk(format!("lock {path:?}"), error)),
            }
        }
        let log = job.join(COMMIT_LOG);
        if !self.commits.as_ref().is_some_and(|open| is_at(open, &log).unwrap_or(false)) {
            self.commits = lock_commits(&log)?;
        }
        Ok(())
    }
}

/// The lock of a commit log that is there; a file system without locks of files has none.
fn lock_commits(path: &Path) -> Result<Option<File>, Error> {
    let open = match File::options().append(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        open => open.map_err(|error| Error::disk(format!("open {path:?}"), error))?,
    };
    match open.try_lock() {
        Ok(()) => Ok(Some(open)),
        Err(TryLockError::WouldBlock) => Err(in_use(path)),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

fn in_use(path: &Path) -> Error {
    Error::user(format!("{path:?} is in use by another process, or by another job of this one")).with_hint(
        "one process at a time runs a job, whatever links, mounts or names lead to its folder: end the other one, or name \
         another --data-dir",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn job(root: &Path, name: &str) -> PathBuf {
        let path = root.join(name);
        for folder in JOB_FOLDERS {
            std::fs::create_dir_all(path.join(folder)).unwrap();
        }
        std::fs::write(path.join(COMMIT_LOG), "").unwrap();
        path
    }

    #[test]
    fn a_job_is_locked_whatever_leads_to_its_folder() {
        let root = tempfile::tempdir().unwrap();
        let here = job(root.path(), "here");
        let lock = JobLock::take(&here).unwrap();
        let mut others = Vec::new();
        let link = root.path().join("link");
        symlink(&here, &link).unwrap();
        others.push(link);
        for folder in JOB_FOLDERS {
            let other = job(root.path(), &format!("other-{folder}"));
            std::fs::remove_dir(other.join(folder)).unwrap();
            symlink(here.join(folder), other.join(folder)).unwrap();
            others.push(other);
        }
        let hard = job(root.path(), "hard");
        std::fs::remove_file(hard.join(COMMIT_LOG)).unwrap();
        std::fs::hard_link(here.join(COMMIT_LOG), hard.join(COMMIT_LOG)).unwrap();
        others.push(hard);
        let moved = root.path().join("moved");
        std::fs::rename(&here, &moved).unwrap();
        others.push(moved.clone());
        for other in &others {
            let error = match other.file_name().unwrap().to_str() {
                // The folder that it led to has another name by now.
                Some("link") => continue,
                Some(name) if name.starts_with("other-") => continue,
                _ => JobLock::take(other).unwrap_err(),
            };
            assert!(error.message().contains("is in use by another process"), "{error}");
        }
        std::fs::rename(&moved, &here).unwrap();
        for other in others.iter().filter(|other| **other != moved) {
            let error = JobLock::take(other).unwrap_err();
            assert_eq!(error.class(), thalweg_types::Class::User, "{other:?}");
        }
        drop(lock);
        for other in others.iter().filter(|other| **other != moved) {
            drop(JobLock::take(other).unwrap());
        }
    }

    #[test]
    fn a_folder_that_is_moved_or_replaced_is_missed() {
        let root = tempfile::tempdir().unwrap();
        let here = job(root.path(), "here");
        let lock = JobLock::take(&here).unwrap();
        lock.check().unwrap();
        // As a commit log is that has grown long.
        std::fs::write(here.join("new"), "").unwrap();
        std::fs::rename(here.join("new"), here.join(COMMIT_LOG)).unwrap();
        lock.check().unwrap();
        let copy = job(root.path(), "copy");
        std::fs::remove_file(copy.join(COMMIT_LOG)).unwrap();
        std::fs::hard_link(here.join(COMMIT_LOG), copy.join(COMMIT_LOG)).unwrap();
        assert!(JobLock::take(&copy).is_err(), "the new commit log is locked as the old one was");
        std::fs::rename(&here, root.path().join("moved")).unwrap();
        assert!(lock.check().unwrap_err().message().contains("was moved"));
        job(root.path(), "here");
        let error = lock.check().unwrap_err();
        assert!(error.message().contains("replaced by another one"), "{error}");
    }

    #[test]
    fn a_file_stands_for_a_folder_that_cannot_be_locked() {
        use rustix::io::Errno;
        for errno in [Errno::BADF, Errno::OPNOTSUPP] {
            assert!(locks_no_folders(&io::Error::from_raw_os_error(errno.raw_os_error())));
        }
        assert!(!locks_no_folders(&io::Error::from_raw_os_error(Errno::IO.raw_os_error())));
        let root = tempfile::tempdir().unwrap();
        let first = lock_file(&root.path().join(LOCK)).unwrap();
        assert!(first.is_some() && lock_file(&root.path().join(LOCK)).unwrap().is_none());
    }
}
