//! The folder that a node keeps its jobs in, and the one of each job.
//!
//! ```text
//! D/lock                        held while a process uses D, as the folder itself is
//! D/jobs/NAME/job.json          the job file as it was started, overrides and all
//!             commit.log        how far everything is, as of the last cycles
//!             order/ journal/   the input, and its order
//!             rejects/          rejects-N.ndjson, one per run that had any
//!             tasks/OPERATOR/PARTITION/   reservoirs and state
//!             tables/
//! ```
//!
//! Without `--data-dir` all this is a temporary folder that goes away with the node.
//! Only its owner may look into a data directory that is made here: the files below it need no modes of their own.

mod lock;

use std::env;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use thalweg_storage::{RealFs, make_dir};
use thalweg_types::{Error, hash_bytes};

pub use lock::JobLock;
use lock::Locked;

const COMMIT_LOG: &str = "commit.log";
/// Folders of a job, each of which may have been moved elsewhere and linked.
const JOB_FOLDERS: [&str; 5] = ["order", "journal", "rejects", "tasks", "tables"];

/// What data directories are made with: reading, writing and searching for the owner alone.
const PRIVATE: u32 = 0o700;

/// A node's folder, locked for this process.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Unlocked when they are closed. Declared before the folder, so that they are closed before that is removed.
    _locks: (Option<File>, File),
    temporary: Option<TempDir>,
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
                let folder = temporary().map_err(|error| {
                    Error::external("create a temporary data directory")
                        .with_source(error)
                        .with_hint("set TMPDIR to a folder that can be written, or name one by --data-dir")
                })?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let failed =
            |action: &str, error: io::Error| Error::disk(format!("{action} data directory {path:?}"), error);
        make_private(&path, temporary.is_some()).map_err(|error| failed("create", error))?;
        let in_use = || {
            Error::user(format!("data directory {path:?} is in use by another process"))
                .with_hint("one process at a time: end the other one, or name another --data-dir")
        };
        let lock = |error| failed("lock", error);
        // The file as well: releases before the lock of the folder look at nothing else.
        let file = lock::lock_file(&path.join(lock::LOCK)).map_err(lock)?.ok_or_else(in_use)?;
        let folder = match lock::lock_folder(&path).map_err(lock)? {
            Locked::Ours(folder) => Some(folder),
            Locked::Taken => return Err(in_use()),
            Locked::Never => None,
        };
        make_folder(&path.join("jobs"), temporary.is_some()).map_err(|error| failed("create", error))?;
        if temporary.is_none() {
            warn_of_modes(&path);
        }
        Ok(Self { path, _locks: (folder, file), temporary })
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
        let failed =
            |error: std::io::Error| Error::disk(format!("create job folder {:?}", folder.path), error);
        make_folder(&folder.path, self.is_temporary()).map_err(failed)?;
        Ok(folder)
    }
}

/// A folder that goes away with the node, among the system's temporary files. Where `TMPDIR` is not set and there is no
/// `/tmp`, as in a root that has the program alone, it is in the working folder.
fn temporary() -> io::Result<TempDir> {
    let usual = env::temp_dir();
    if env::var_os("TMPDIR").is_some() {
        return temporary_in(&usual);
    }
    first_there(&usual, &env::current_dir()?)
}

fn first_there(usual: &Path, other: &Path) -> io::Result<TempDir> {
    match temporary_in(usual) {
        Err(error) if error.kind() == ErrorKind::NotFound => temporary_in(other),
        made => made,
    }
}

fn temporary_in(folder: &Path) -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix("thalweg-")
        .permissions(Permissions::from_mode(PRIVATE))
        .tempdir_in(folder)
}

/// Makes a folder and its missing parents. Their names outlive a power cut, as their contents do, except names that
/// go away with the node.
fn make_folder(path: &Path, is_temporary: bool) -> std::io::Result<()> {
    if is_temporary { std::fs::create_dir_all(path) } else { make_dir(&RealFs, path) }
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

    /// Locks the folder for a job that runs: [`JobLock`].
    ///
    /// # Errors
    /// Of class user where it is locked already; the disk's errors.
    pub fn lock(&self) -> Result<JobLock, Error> {
        JobLock::take(&self.path)
    }

    /// Keeps the job file as it is started.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep_job_file(&self, job_file: &serde_json::Value) -> Result<(), Error> {
        let failed =
            |error: std::io::Error| Error::disk(format!("write the job file into {:?}", self.path), error);
        let mut text = serde_json::to_string_pretty(job_file).unwrap_or_default();
        text.push('\n');
        // Written to a second file and renamed, so that nobody reads half a file.
        let beside = self.path.join("job.json.new");
        std::fs::write(&beside, text).map_err(failed)?;
        std::fs::rename(&beside, self.path.join("job.json")).map_err(failed)
    }

    pub fn commit_log(&self) -> PathBuf {
        self.path.join(COMMIT_LOG)
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

    /// The folder of the part where records enter, made where it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn door(&self) -> Result<JobDir, Error> {
        let path = self.path.join("door");
        make_folder(&path, false)
            .map_err(|error| Error::disk(format!("create the folder of a door {path:?}"), error))?;
        Ok(JobDir { path })
    }

    /// The folder of a stage's unit, made where it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn unit(&self, stage: &str, partition: u32) -> Result<JobDir, Error> {
        let path = self.path.join("units").join(folder_name(stage)).join(partition.to_string());
        make_folder(&path, false)
            .map_err(|error| Error::disk(format!("create the folder of a unit {path:?}"), error))?;
        Ok(JobDir { path })
    }

    /// Folder of one task. Field names may hold anything, so characters that break a path are written as `%2F`.
    pub fn task(&self, operator: &str, partition: u32) -> PathBuf {
        let mut path = self.path.join("tasks");
        for part in operator.split_inclusive('/') {
            path.push(folder_name(part.strip_suffix('/').unwrap_or(part)));
        }
        path.join(partition.to_string())
    }
}

/// Makes a folder that only its owner may look into, where it is not there; folders above it are made as usual.
fn make_private(path: &Path, is_temporary: bool) -> io::Result<()> {
    let make = || std::fs::DirBuilder::new().mode(PRIVATE).create(path);
    let made = match (make(), path.parent()) {
        (Err(error), Some(above)) if error.kind() == ErrorKind::NotFound => {
            make_folder(above, is_temporary).and_then(|()| make())
        }
        (made, _) => made,
    };
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }?;
    // Its name outlives a power cut, as its contents do.
    make_folder(path, is_temporary)
}

/// A folder that was there keeps its modes: its maker may want others to read it.
fn warn_of_modes(path: &Path) {
    let Ok(metadata) = std::fs::metadata(path) else { return };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & !PRIVATE != 0 {
        tracing::warn!(
            path = %path.display(),
            mode = format!("{mode:04o}"),
            "other users may look into the data directory: `chmod 700` it, unless they are meant to"
        );
    }
}

/// File systems take names of up to 255 bytes; this leaves room for the suffixes of files next to a folder.
const LONGEST_NAME: usize = 200;

/// A folder for a name that may hold anything. One that is too long is cut and followed by a hash of the whole: keys of
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
    use thalweg_testing::logs;

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
    fn a_root_without_a_folder_for_temporary_files_is_no_hindrance() {
        let root = tempfile::tempdir().unwrap();
        let (missing, working) = (root.path().join("tmp"), root.path().join("here"));
        std::fs::create_dir(&working).unwrap();
        let made = first_there(&missing, &working).unwrap();
        assert!(made.path().starts_with(&working), "{made:?}");
        // One that is there is used.
        std::fs::create_dir(&missing).unwrap();
        let made = first_there(&missing, &working).unwrap();
        assert!(made.path().starts_with(&missing), "{made:?}");
        // And what else is wrong with it is said.
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(first_there(&file, &working).unwrap_err().kind(), ErrorKind::NotADirectory);
    }

    #[test]
    fn a_lock_file_that_was_removed_changes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("D");
        let first = DataDir::open(Some(&folder)).unwrap();
        std::fs::remove_file(folder.join("lock")).unwrap();
        for _ in 0..2 {
            // The second time there is a file again, which is not locked.
            let error = DataDir::open(Some(&folder)).unwrap_err();
            assert!(error.message().contains("in use by another process"), "{error}");
        }
        drop(first);
        DataDir::open(Some(&folder)).unwrap();
    }

    /// As a release does that knows of no other lock.
    #[test]
    fn the_lock_file_alone_keeps_a_folder_and_is_kept_by_it() {
        let root = tempfile::tempdir().unwrap();
        let old = || {
            let file = File::options().create(true).append(true).open(root.path().join("lock")).unwrap();
            file.try_lock().map(|()| file)
        };
        let held = old().unwrap();
        assert!(DataDir::open(Some(root.path())).is_err());
        drop(held);
        let _new = DataDir::open(Some(root.path())).unwrap();
        assert!(old().is_err());
    }

    #[test]
    fn a_data_directory_is_made_for_its_owner_alone_and_one_that_was_there_is_left_as_it_is() {
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let root = tempfile::tempdir().unwrap();
        let above = root.path().join("above");
        let made = DataDir::open(Some(&above.join("D"))).unwrap();
        assert_eq!(mode(made.path()), 0o700);
        assert_eq!(mode(DataDir::open(None).unwrap().path()), 0o700);
        let wide = root.path().join("wide");
        std::fs::create_dir(&wide).unwrap();
        std::fs::set_permissions(&wide, Permissions::from_mode(0o755)).unwrap();
        let said = logs::said_here(|| drop(DataDir::open(Some(&wide)).unwrap()));
        assert!(said.contains("chmod 700") && said.contains("0755"), "{said}");
        assert_eq!(mode(&wide), 0o755);
        assert_eq!(logs::said_here(|| drop(DataDir::open(Some(&above.join("E"))).unwrap())), "");
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
