//! SIGINT and SIGTERM: the first asks for an orderly end, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// How often the process has been asked to end.
#[derive(Clone)]
pub(crate) struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// Takes over both signals; where that fails, an interrupt ends the process as the system does.
    pub(crate) fn watch() -> Self {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        let watched = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).and_then(|mut signals| {
            std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
                for _ in signals.forever() {
                    // `Relaxed`: the count is all that there is to see.
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        if let Err(error) = watched {
            tracing::warn!(%error, "signals are not watched");
        }
        Self(count)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
