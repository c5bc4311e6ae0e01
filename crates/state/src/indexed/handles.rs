//! Open files of segments, up to a bound; the one that was used longest ago is closed first.
//!
//! A file that is closed or unlinked while someone reads from it stays readable to them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_storage::{File, Fs, OpenMode};

use super::segment;
use crate::StateError;

#[derive(Debug)]
pub(super) struct Handles {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    max: usize,
    /// Held to look up or open, never while reading.
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    files: HashMap<u64, (Arc<dyn File>, u64)>,
    uses: u64,
}

impl Handles {
    pub(super) fn new(fs: Arc<dyn Fs>, dir: PathBuf, max: usize) -> Self {
        Self { fs, dir, max: max.max(1), open: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The segment's file, opened for reading.
    pub(super) fn get(&self, number: u64) -> Result<Arc<dyn File>, StateError> {
        let mut open = self.lock();
        open.uses += 1;
        let now = open.uses;
        if let Some((file, used)) = open.files.get_mut(&number) {
            *used = now;
            return Ok(Arc::clone(file));
        }
        let path = segment::path(&self.dir, number);
        let file = self.fs.open(&path, OpenMode::Read).map_err(StateError::io("open", &path))?;
        if open.files.len() >= self.max
            && let Some(oldest) =
                open.files.iter().min_by_key(|(_, (_, used))| *used).map(|(number, _)| *number)
        {
            open.files.remove(&oldest);
        }
        open.files.insert(number, (Arc::clone(&file), now));
        Ok(file)
    }

    pub(super) fn close(&self, number: u64) {
        self.lock().files.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use thalweg_storage::{MemFs, make_dir};

    use super::*;

    #[test]
    fn no_more_files_are_open_than_allowed_and_the_least_used_goes_first() {
        let (fs, dir) = (MemFs::new(), Path::new("/d"));
        make_dir(&fs, dir).unwrap();
        for number in 1..=5 {
            fs.open(&segment::path(dir, number), OpenMode::CreateNew).unwrap();
        }
        let handles = Handles::new(Arc::new(fs), dir.to_owned(), 3);
        for number in [1, 2, 3, 1, 4, 5] {
            handles.get(number).unwrap();
            assert!(handles.lock().files.len() <= 3);
        }
        let mut open: Vec<_> = handles.lock().files.keys().copied().collect();
        open.sort_unstable();
        assert_eq!(open, [1, 4, 5]);
        handles.close(4);
        assert_eq!(handles.lock().files.len(), 2);
        assert!(handles.get(9).unwrap_err().is_missing_file());
    }
}
