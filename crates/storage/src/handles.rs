//! File handles of the process: their number, their division among users, and the error of a lack of them.
//!
//! The limit is raised to what the system allows when a node starts ([`raise`]). Half of it, [`MOST_KEPT`] at most, is kept
//! for the engine: segments, chunks, tables, children. The rest is for connections, one half for HTTP and one for all
//! sources that take connections, so that neither can keep the other out.
//!
//! A lack of handles, or of the kernel's memory for them, passes. Who opens a file waits for it ([`patiently`]); it is no
//! failing disk.

use std::fmt;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Handles kept for the engine at most.
pub const MOST_KEPT: usize = 4_096;

/// Where the system says nothing: the usual limit of a shell.
const USUAL: usize = 1_024;

/// How long a lack of handles is waited for, all pauses together.
const PATIENCE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How the handles of the process are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handles {
    /// Open files at once, of all kinds.
    pub limit: usize,
    /// Connections of the HTTP server at once.
    pub http: usize,
    /// Connections of all sources together.
    pub sources: usize,
}

impl Handles {
    /// Shares out `limit` handles.
    pub fn of(limit: usize) -> Self {
        let kept = (limit / 2).min(MOST_KEPT);
        let each = ((limit - kept) / 2).max(1);
        Self { limit, http: each, sources: each }
    }
}

/// Raises the limit of open files to what the system allows, once; what came of it.
///
/// # Panics
/// Never: where the system says nothing or refuses, the limit stays what it was.
pub fn raise() -> Handles {
    static HANDLES: OnceLock<Handles> = OnceLock::new();
    *HANDLES.get_or_init(|| {
        let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Handles::of(USUAL) };
        let limit = match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
            Ok(()) => hard,
            Err(error) => {
                tracing::warn!(%error, soft, hard, "the limit of open files could not be raised");
                soft
            }
        };
        let handles = Handles::of(usize::try_from(limit).unwrap_or(usize::MAX));
        tracing::info!(
            limit = handles.limit,
            http = handles.http,
            sources = handles.sources,
            "open files, and the connections among them"
        );
        handles
    })
}

/// Places that can be taken, each for as long as its [`Place`] is kept.
#[derive(Debug)]
pub struct Places {
    most: usize,
    taken: AtomicUsize,
}

/// One of [`Places`].
#[derive(Debug)]
#[must_use]
pub struct Place(&'static Places);

impl Places {
    /// A place, if one is left.
    pub fn take(&'static self) -> Option<Place> {
        // Relaxed: the count is all that there is.
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < self.most).then_some(taken + 1)
        });
        // Not `then_some`: a place that was made in vain would be given back.
        taken.is_ok().then(|| Place(self))
    }

    pub fn most(&self) -> usize {
        self.most
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The places of connections of all sources of this process.
pub fn source_places() -> &'static Places {
    static PLACES: OnceLock<Places> = OnceLock::new();
    PLACES.get_or_init(|| Places { most: raise().sources, taken: AtomicUsize::new(0) })
}

/// Whether the system has no handle left, or no memory for one: the next moment may be another.
pub fn is_lack(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| [EMFILE, ENFILE, ENOMEM, ENOBUFS].contains(&code))
}

/// Opens something, and waits, at most half a minute, where there is no handle for it. `what` is for the log.
///
/// # Errors
/// What `open` says, other than that; or that, after all the waiting.
pub fn patiently<T>(what: impl fmt::Display, open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    wait_out(what, open, std::thread::sleep)
}

fn wait_out<T>(
    what: impl fmt::Display,
    mut open: impl FnMut() -> io::Result<T>,
    mut pause: impl FnMut(Duration),
) -> io::Result<T> {
    let (mut waited, mut next) = (Duration::ZERO, FIRST_PAUSE);
    loop {
        let outcome = open();
        let Err(error) = &outcome else {
            if waited > Duration::ZERO {
                tracing::info!(%what, ?waited, "opened, after waiting for a file handle");
            }
            return outcome;
        };
        if !is_lack(error) || waited >= PATIENCE {
            return outcome;
        }
        if waited == Duration::ZERO {
            tracing::warn!(%what, %error, "waiting for a file handle: raise the limit of open files, or have fewer connections");
        }
        pause(next);
        waited += next;
        next = (next * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lack() -> io::Error {
        io::Error::from_raw_os_error(EMFILE)
    }

    #[test]
    fn a_lack_of_handles_is_waited_for_and_nothing_else() {
        for code in [EMFILE, ENFILE, ENOMEM, ENOBUFS] {
            let (mut tries, mut pauses) = (0, 0);
            let opened = wait_out(
                "a file",
                || {
                    tries += 1;
                    if tries < 5 { Err(io::Error::from_raw_os_error(code)) } else { Ok(tries) }
                },
                |_| pauses += 1,
            );
            assert_eq!((opened.unwrap(), pauses), (5, 4), "{code}");
        }
        let mut pauses = 0;
        let other = wait_out("a file", || Err::<(), _>(io::Error::from_raw_os_error(5)), |_| pauses += 1);
        assert_eq!((other.unwrap_err().raw_os_error(), pauses), (Some(5), 0));
    }

    #[test]
    fn the_wait_has_an_end() {
        let mut waited = Duration::ZERO;
        let never = wait_out("a file", || Err::<(), _>(lack()), |pause| waited += pause);
        assert_eq!(never.unwrap_err().raw_os_error(), Some(EMFILE));
        assert!(waited >= PATIENCE && waited < PATIENCE + LONGEST_PAUSE, "{waited:?}");
    }

    #[test]
    fn half_of_the_handles_are_kept_for_the_engine() {
        for (limit, http) in [(256, 64), (1_024, 256), (4_000, 1_000), (1 << 20, ((1 << 20) - MOST_KEPT) / 2)]
        {
            let handles = Handles::of(limit);
            assert_eq!((handles.http, handles.sources), (http, http), "{limit}");
            assert!(handles.http + handles.sources <= limit - (limit / 2).min(MOST_KEPT));
        }
        assert_eq!(Handles::of(0).http, 1);
    }

    #[test]
    fn places_come_back() {
        let places: &'static Places = Box::leak(Box::new(Places { most: 2, taken: AtomicUsize::new(0) }));
        let (first, second) = (places.take(), places.take());
        assert!(first.is_some() && second.is_some());
        assert!((0..5).all(|_| places.take().is_none()), "asking in vain changes nothing");
        drop(first);
        assert!(places.take().is_some());
    }
}
