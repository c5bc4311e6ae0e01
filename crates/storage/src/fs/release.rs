//! Large files that were removed, given back to the disk piece by piece.
//!
//! A file system that tells its disk which blocks are free (ext4 with `discard`) does so for a whole file at once when its
//! last name and its last reader are gone, and syncs of all other files wait meanwhile: 40 to 55 ms for a segment of
//! 64 MiB, where a sync takes 0.3 ms and pieces of 1 MiB leave it at 1.5 ms at most
//! (`docs/decisions/2026-11-25-large-files-go-piece-by-piece.md`). So a thread of the process holds a large file beyond its
//! name and cuts it, piece by piece.
//!
//! A file that a process still reads, through a descriptor or a map, in this process or in another, is not cut: its
//! last reader frees it. The kernel knows, as it leases a file only to a process that is alone with it; a process that
//! is alone with a file that has no name stays so.
//!
//! Files wait up to [`MAX_WAITING`] bytes; one beyond them is freed at once, as at the end of the process.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use super::{Fs as _, RealFs};

/// What is freed at once.
const PIECE: u64 = 1 << 20;

/// Smaller files are freed whole: the disk is done with them as soon as with a piece.
const LARGE: u64 = 2 * PIECE;

/// Between two pieces of a file after which no other waits.
const PAUSE: Duration = Duration::from_millis(2);

/// Bytes of files that have no name any more and still take room.
const MAX_WAITING: u64 = 256 << 20;

/// How often a file that is read is looked at before it is left to its readers, and the time between two looks.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// A file without a name.
struct Nameless {
    file: File,
    /// The folder that it was in.
    dir: PathBuf,
    len: u64,
}

/// The way to the thread; `None` where the operating system refuses one.
static THREAD: LazyLock<Option<Sender<Nameless>>> = LazyLock::new(|| {
    let (sender, files) = mpsc::channel();
    let started = thread::Builder::new().name("thalweg-release".to_owned()).spawn(move || run(&files));
    started.is_ok().then_some(sender)
});

static WAITING: AtomicU64 = AtomicU64::new(0);

/// The file under this name, where it is so large that it should not be freed at once. To be asked for before the name goes.
pub(super) fn large(path: &Path) -> Option<File> {
    let metadata = path.symlink_metadata().ok()?;
    if !metadata.is_file() || metadata.len() < LARGE {
        return None;
    }
    File::options().write(true).open(path).ok()
}

/// Frees a file whose name, below `dir`, is gone.
pub(super) fn release(file: File, dir: &Path) {
    let Ok(metadata) = file.metadata() else { return };
    // Under another name it lives on.
    let (len, names) = (metadata.len(), metadata.nlink());
    if names > 0 {
        return;
    }
    let Some(thread) = &*THREAD else { return };
    // A counter alone: nothing is read by its order.
    if WAITING.fetch_add(len, Ordering::Relaxed).saturating_add(len) > MAX_WAITING
        || thread.send(Nameless { file, dir: dir.to_owned(), len }).is_err()
    {
        WAITING.fetch_sub(len, Ordering::Relaxed);
    }
}

fn run(files: &Receiver<Nameless>) {
    while let Ok(Nameless { file, dir, len }) = files.recv() {
        let others_wait = || WAITING.load(Ordering::Relaxed) > len;
        // A power cut must not bring back the name of a file that lacks its end.
        if is_unread(&file) && RealFs.sync_dir(&dir).is_ok() {
            cut(&file, len, || if others_wait() { Duration::ZERO } else { PAUSE });
        }
        drop(file);
        WAITING.fetch_sub(len, Ordering::Relaxed);
    }
}

/// Whether, soon, no other process has the file open.
fn is_unread(file: &File) -> bool {
    for look in 0..LOOKS {
        if look > 0 {
            thread::sleep(BETWEEN_LOOKS);
        }
        if is_alone(file) {
            return true;
        }
    }
    false
}

/// Cuts a file of `len` bytes down to nothing, from its end.
fn cut(file: &File, len: u64, pause: impl Fn() -> Duration) {
    let mut left = len;
    while left > 0 {
        left = left.saturating_sub(PIECE);
        if file.set_len(left).is_err() {
            // It goes as a whole, then.
            return;
        }
        thread::sleep(pause());
    }
}

/// Whether this is the only descriptor of the file, and it is not mapped: only then does the kernel lease it.
#[cfg(target_os = "linux")]
fn is_alone(file: &File) -> bool {
    use std::os::fd::AsRawFd as _;
    let set = |lease: libc::c_int| {
        // SAFETY: `fcntl` with this command reads two integers and touches no memory of ours.
        #[expect(unsafe_code, reason = "no crate that is here offers leases")]
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, lease) };
        done == 0
    };
    // Given back at once: the kernel reports a broken lease by a signal.
    set(libc::F_WRLCK) && set(libc::F_UNLCK)
}

/// Other systems do not say, and files are freed whole.
#[cfg(not(target_os = "linux"))]
fn is_alone(_: &File) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::time::Instant;

    use super::super::OpenMode;
    use super::*;

    fn write(path: &Path, len: u64) {
        let bytes = vec![7; usize::try_from(len).unwrap()];
        std::fs::write(path, bytes).unwrap();
    }

    /// The file, looked at in a way that the kernel does not count as open.
    fn look_at(path: &Path) -> File {
        File::options().read(true).custom_flags(libc::O_PATH).open(path).unwrap()
    }

    #[track_caller]
    fn wait_until(what: &str, is: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is() {
            assert!(Instant::now() < until, "{what} did not come");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_large_file_is_cut_once_its_name_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        write(&path, 3 * PIECE + 5);
        let seen = look_at(&path);
        RealFs.remove(&path).unwrap();
        assert!(!path.exists());
        wait_until("an empty file", || seen.metadata().unwrap().len() == 0);
    }

    #[test]
    fn pieces_are_small_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        write(&path, 3 * PIECE + 5);
        let file = large(&path).unwrap();
        let lens = std::cell::RefCell::new(Vec::new());
        cut(&file, 3 * PIECE + 5, || {
            lens.borrow_mut().push(file.metadata().unwrap().len());
            Duration::ZERO
        });
        assert_eq!(*lens.borrow(), [2 * PIECE + 5, PIECE + 5, 5, 0]);
    }

    #[test]
    fn what_is_read_or_mapped_stays_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (read, mapped) = (dir.path().join("read"), dir.path().join("mapped"));
        for path in [&read, &mapped] {
            write(path, 2 * LARGE);
        }
        let reader = RealFs.open(&read, OpenMode::Read).unwrap();
        let len = usize::try_from(2 * LARGE).unwrap();
        let map = RealFs.open(&mapped, OpenMode::Read).unwrap().map(0, len).unwrap();
        for path in [&read, &mapped] {
            let file = large(path).unwrap();
            RealFs.remove(path).unwrap();
            assert!(!is_alone(&file), "{path:?}");
        }
        // Files go in turn: once this one is empty, those before it have been left to their readers.
        let last = dir.path().join("last");
        write(&last, LARGE);
        let seen = look_at(&last);
        RealFs.remove(&last).unwrap();
        wait_until("an empty file", || seen.metadata().unwrap().len() == 0);
        assert_eq!(reader.len().unwrap(), 2 * LARGE);
        assert!(map.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn small_files_and_what_is_no_file_go_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("small");
        write(&path, LARGE - 1);
        assert!(large(&path).is_none());
        let link = dir.path().join("link");
        let target = dir.path().join("target");
        write(&target, LARGE);
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(large(&link).is_none());
        RealFs.remove(&link).unwrap();
        assert_eq!(target.metadata().unwrap().len(), LARGE);
        assert!(large(&dir.path().join("none")).is_none());
        RealFs.remove(&dir.path().join("none")).unwrap_err();
    }

    #[test]
    fn a_file_with_another_name_stays_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("large"), dir.path().join("other"));
        write(&path, LARGE);
        std::fs::hard_link(&path, &other).unwrap();
        RealFs.remove(&path).unwrap();
        // Files go in turn: once this one is empty, the one before it has been left alone.
        write(&path, LARGE);
        let seen = look_at(&path);
        RealFs.remove(&path).unwrap();
        wait_until("an empty file", || seen.metadata().unwrap().len() == 0);
        assert_eq!(other.metadata().unwrap().len(), LARGE);
    }
}
