//! Where snapshots are kept: whole files by name, on a system that outlives nodes.
//!
//! The trait has what stores of objects have, too: a file is put whole or not at all, and nothing is changed in place.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use crate::durable::new_run;

/// Ends the names of files that are being written.
const TEMPORARY: &str = ".tmp";

/// A store of whole files. Names have parts with `/` between them.
pub trait Store: Send + Sync {
    /// Puts a file, in the place of one of that name. Where this fails, what was there before is there.
    ///
    /// # Errors
    /// Those of the store, and of `content`.
    fn put(&self, name: &str, content: &mut dyn Read) -> io::Result<()>;

    /// # Errors
    /// Those of the store; [`ErrorKind::NotFound`] if there is no such file.
    fn get(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// The files of a folder, by their names in it; none where the folder is not there.
    ///
    /// # Errors
    /// Those of the store.
    fn list(&self, folder: &str) -> io::Result<Vec<Kept>>;

    /// Makes a file as young as one that was just put; `false` if it is not there.
    ///
    /// # Errors
    /// Those of the store.
    fn refresh(&self, name: &str) -> io::Result<bool>;

    /// Deletes a file, if it is there.
    ///
    /// # Errors
    /// Those of the store.
    fn delete(&self, name: &str) -> io::Result<()>;
}

/// A file of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub name: String,
    pub bytes: u64,
    /// When it was put or made young, by the clock of the store.
    pub at: SystemTime,
}

/// The address of a store: `file:///PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddress {
    path: PathBuf,
}

impl StoreAddress {
    /// Opens the store.
    ///
    /// # Errors
    /// If there is no such folder: one that is made here would hide a shared one that is not mounted.
    pub fn open(&self) -> Result<FolderStore, thalweg_types::Error> {
        FolderStore::open(&self.path)
    }
}

impl FromStr for StoreAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("file://").map(Path::new) {
            Some(path) if path.is_absolute() => Ok(Self { path: path.to_owned() }),
            _ => Err(format!("expected file:///PATH with a folder that all nodes share, got {text:?}")),
        }
    }
}

/// A store in a folder that all nodes see, such as one of NFS.
pub struct FolderStore {
    root: PathBuf,
}

impl FolderStore {
    /// # Errors
    /// If there is no such folder.
    pub fn open(root: &Path) -> Result<Self, thalweg_types::Error> {
        match fs::metadata(root) {
            Ok(found) if found.is_dir() => Ok(Self { root: root.to_owned() }),
            Ok(_) => {
                let message = format!("the store of snapshots {root:?} is a file, expected a folder");
                Err(thalweg_types::Error::user(message).with_hint("name a folder that all nodes share"))
            }
            Err(error) => {
                let message = format!("open the store of snapshots {root:?}");
                Err(thalweg_types::Error::external(message)
                    .with_source(error)
                    .with_hint("make the folder, or mount the file system that it is on"))
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Store for FolderStore {
    fn put(&self, name: &str, content: &mut dyn Read) -> io::Result<()> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.root);
        make_folder(folder)?;
        // Two nodes may put the same file at once.
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{:016x}{TEMPORARY}", new_run()));
        let temporary = PathBuf::from(temporary);
        let mut put = || {
            let mut file = File::create_new(&temporary)?;
            io::copy(content, &mut file)?;
            file.flush()?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(folder)?.sync_all()
        };
        let done = put();
        if done.is_err() {
            // Where this fails, too, the file is deleted once it is old.
            let _ = fs::remove_file(&temporary);
        }
        done
    }

    fn get(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.path(name))?))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<Kept>> {
        let entries = match fs::read_dir(self.path(folder)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?;
            let about = match entry.metadata() {
                // Another node was quicker.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                about => about?,
            };
            if let (true, Ok(name)) = (about.is_file(), entry.file_name().into_string()) {
                found.push(Kept { name, bytes: about.len(), at: about.modified()? });
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn refresh(&self, name: &str) -> io::Result<bool> {
        use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
        // The server of a shared folder takes its own time for this.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        match utimensat(CWD, self.path(name), &times, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(error) if io::Error::from(error).kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

/// Makes a folder and its missing parents, with names that outlive a power cut.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder.parent().ok_or(ErrorKind::NotFound)?;
    make_folder(above)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    File::open(above)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_is_put_whole_or_not_at_all() {
        struct Breaks(usize);
        impl Read for Breaks {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 =
                    self.0.checked_sub(1).ok_or(ErrorKind::Interrupted).map_err(|_| ErrorKind::BrokenPipe)?;
                buffer[0] = 7;
                Ok(1)
            }
        }
        let root = tempfile::tempdir().unwrap();
        let store = FolderStore::open(root.path()).unwrap();
        let names = |folder: &str| -> Vec<(String, u64)> {
            store.list(folder).unwrap().into_iter().map(|kept| (kept.name, kept.bytes)).collect()
        };
        assert_eq!(names("a/b"), []);
        assert!(store.put("a/b/c", &mut Breaks(3)).is_err());
        assert_eq!(names("a/b"), [], "half a file is none");
        store.put("a/b/c", &mut &b"one"[..]).unwrap();
        assert!(store.put("a/b/c", &mut Breaks(3)).is_err());
        let mut text = String::new();
        store.get("a/b/c").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), names("a/b")), ("one", vec![("c".to_owned(), 3)]));

        let hour = Duration::from_secs(3_600);
        let old = SystemTime::now() - hour;
        File::options().write(true).open(root.path().join("a/b/c")).unwrap().set_modified(old).unwrap();
        assert_eq!(store.list("a/b").unwrap()[0].at, old);
        assert!(store.refresh("a/b/c").unwrap());
        assert!(store.list("a/b").unwrap()[0].at > old + hour / 2, "it is young again");
        assert!(!store.refresh("a/b/d").unwrap());
        store.delete("a/b/c").unwrap();
        store.delete("a/b/c").unwrap();
        assert_eq!(store.get("a/b/c").map(drop).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn an_address_is_an_absolute_path_that_is_there() {
        for wrong in ["", "/tmp", "file://tmp", "s3://bucket", "file:/tmp"] {
            assert!(wrong.parse::<StoreAddress>().is_err(), "{wrong:?}");
        }
        let root = tempfile::tempdir().unwrap();
        let address = |path: &Path| format!("file://{}", path.display()).parse::<StoreAddress>().unwrap();
        address(root.path()).open().unwrap();
        let error = address(&root.path().join("missing")).open().map(drop).unwrap_err();
        assert!(error.chain().contains("missing"), "{}", error.chain());
        fs::write(root.path().join("file"), "").unwrap();
        assert!(address(&root.path().join("file")).open().is_err());
    }
}
