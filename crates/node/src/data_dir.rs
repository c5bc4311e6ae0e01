//! The folder that a node keeps its jobs in, and the one of each job.
//!
//! ```text
//! D/lock                        held while a process uses D
//! D/jobs/NAME/job.json          the job file as it was started, overrides and all
//!             commit.log        how far everything is, as of the last cycles
//!             order/ journal/   what came in, in which order
//!             rejects/          rejects-N.ndjson, one per run that had any
//!             tasks/OPERATOR/PARTITION/   reservoirs and state
//!             tables/
//! ```
//!
//! Without `--data-dir` all this is a temporary folder that goes away with the node.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use thalweg_storage::{Fs, RealFs};
use thalweg_types::{Error, hash_bytes};

/// A node's folder, locked for this process.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Unlocked when it is closed. Declared before the folder, so that it is closed before that is removed.
    _lock: File,
    temporary: Option<tempfile::TempDir>,
}

impl DataDir {
    /// Opens the folder, making it where it is not there; `None` is a temporary one.
    ///
    /// # Errors
    /// If it cannot be made, or another process holds its lock.
    pub fn open(path: Option<&Path>) -> Result<Self, Error> {
        let (path, temporary) = match path {
            Some(path) => (path.to_owned(), None),
            None => {
                let folder = tempfile::Builder::new().prefix("thalweg-").tempdir().map_err(|error| {
                    Error::external("create a temporary data directory").with_source(error)
                })?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let failed =
            |action: &str, error: std::io::Error| failure(format!("{action} data directory {path:?}"), error);
        std::fs::create_dir_all(path.join("jobs")).map_err(|error| failed("create", error))?;
        let lock = File::options()
            .create(true)
            .append(true)
            .open(path.join("lock"))
            .map_err(|error| failed("lock", error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock, temporary }),
            Err(TryLockError::WouldBlock) => {
                Err(Error::user(format!("data directory {path:?} is in use by another process"))
                    .with_hint("one process at a time: end the other one, or name another --data-dir"))
            }
            Err(TryLockError::Error(error)) => Err(failed("lock", error)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    /// The folder of a job, made where it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn job(&self, name: &str) -> Result<JobDir, Error> {
        let folder = JobDir { path: self.path.join("jobs").join(name) };
        let failed = |error: std::io::Error| failure(format!("create job folder {:?}", folder.path), error);
        std::fs::create_dir_all(&folder.path).map_err(failed)?;
        if self.temporary.is_none() {
            // Its name has to outlive a power cut, as what is in it does.
            for made in [self.path.as_path(), &self.path.join("jobs")] {
                RealFs.sync_dir(made).map_err(failed)?;
            }
        }
        Ok(folder)
    }
}

/// The folder of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDir {
    path: PathBuf,
}

impl JobDir {
    /// A folder that is there.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the job file as it is started.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep_job_file(&self, job_file: &serde_json::Value) -> Result<(), Error> {
        let failed =
            |error: std::io::Error| failure(format!("write the job file into {:?}", self.path), error);
        let mut text = serde_json::to_string_pretty(job_file).unwrap_or_default();
        text.push('\n');
        // Written beside and moved, so that nobody reads half a file.
        let beside = self.path.join("job.json.new");
        std::fs::write(&beside, text).map_err(failed)?;
        std::fs::rename(&beside, self.path.join("job.json")).map_err(failed)
    }

    pub fn commit_log(&self) -> PathBuf {
        self.path.join("commit.log")
    }

    pub fn order(&self) -> PathBuf {
        self.path.join("order")
    }

    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    pub fn rejects(&self) -> PathBuf {
        self.path.join("rejects")
    }

    pub fn tables(&self) -> PathBuf {
        self.path.join("tables")
    }

    /// Folder of one task. Field names may hold anything, so what a path could trip over is written as `%2F`.
    pub fn task(&self, operator: &str, partition: u32) -> PathBuf {
        let mut path = self.path.join("tasks");
        for part in operator.split_inclusive('/') {
            path.push(folder_name(part.strip_suffix('/').unwrap_or(part)));
        }
        path.join(partition.to_string())
    }
}

fn failure(message: String, error: std::io::Error) -> Error {
    let hint = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room on the disk and start again: nothing is lost"
        }
        _ => "look for the cause (disk, mount, permissions), then start again: what was committed is kept",
    };
    Error::external(message).with_hint(hint).with_source(error)
}

/// What file systems take for a name is 255 bytes; this leaves room for what is put beside a folder.
const LONGEST_NAME: usize = 200;

/// A folder for a name that may hold anything. One that is too long is cut, and what it was stands behind as a hash: keys of
/// many fields name their stage.
pub(crate) fn folder_name(text: &str) -> String {
    let name = escaped(text);
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let hash = format!("%{:016x}", hash_bytes(text.as_bytes()));
    let mut cut = LONGEST_NAME - hash.len();
    while !name.is_char_boundary(cut) {
        cut -= 1;
    }
    name[..cut].to_owned() + &hash
}

fn escaped(text: &str) -> String {
    if text.bytes().all(|b| b == b'.') {
        return "%2E".repeat(text.len());
    }
    let mut name = String::new();
    for c in text.chars() {
        if c.is_control() || matches!(c, '/' | '\\' | ':' | '%') {
            let mut bytes = [0; 4];
            name.extend(c.encode_utf8(&mut bytes).bytes().map(|b| format!("%{b:02X}")));
        } else {
            name.push(c);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = DataDir::open(Some(folder.path())).unwrap();
        let error = DataDir::open(Some(folder.path())).unwrap_err();
        assert!(error.message().contains("in use by another process"), "{error}");
        drop(first);
        assert!(!DataDir::open(Some(folder.path())).unwrap().is_temporary());
    }

    #[test]
    fn a_temporary_folder_goes_away() {
        let dir = DataDir::open(None).unwrap();
        let path = dir.path().to_owned();
        let job = dir.job("payments").unwrap();
        job.keep_job_file(&serde_json::json!({ "name": "payments" })).unwrap();
        assert!(job.path().join("job.json").is_file() && dir.is_temporary());
        drop(dir);
        assert!(!path.exists());
    }

    #[test]
    fn task_folders_hold_any_field_name() {
        let job = JobDir { path: PathBuf::from("D/jobs/x") };
        let name = |operator: &str| job.task(operator, 3).display().to_string();
        assert_eq!(name("features/card"), "D/jobs/x/tasks/features/card/3");
        assert_eq!(name("features/card,merchant"), "D/jobs/x/tasks/features/card,merchant/3");
        assert_eq!(name("features/.."), "D/jobs/x/tasks/features/%2E%2E/3");
        assert_eq!(name("a:b%"), "D/jobs/x/tasks/a%3Ab%25/3");
        let long = |end: &str| folder_name(&("é:".repeat(80) + end));
        assert!(long("a").len() <= LONGEST_NAME && long("a").starts_with("é%3Aé%3A"), "{}", long("a"));
        assert_ne!(long("a"), long("b"));
    }
}
