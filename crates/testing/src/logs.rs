//! What was logged.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Kept {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Keeps a second subscriber alive, one that takes nothing.
///
/// While `tracing` knows of one subscriber only, a place that logs for the first time asks the subscriber of its own
/// thread whether it takes it, and remembers the answer for all threads. Another test, whose thread has none, would
/// silence that place for ours. Among two, every one is asked.
fn ask_every_subscriber() {
    static SECOND: OnceLock<Dispatch> = OnceLock::new();
    SECOND.get_or_init(|| Dispatch::new(NoSubscriber::default()));
}

/// What `call` logs on this thread.
pub fn said_here(call: impl FnOnce()) -> String {
    let kept = Kept::default();
    let subscriber = tracing_subscriber::fmt().with_writer(kept.clone()).with_ansi(false).finish();
    ask_every_subscriber();
    tracing::subscriber::with_default(subscriber, call);
    kept.text()
}

/// Everything that threads without a subscriber of their own have logged since the first call, at every level.
///
/// # Panics
/// Where something else has set the subscriber of the process.
pub fn all() -> String {
    static ALL: OnceLock<Kept> = OnceLock::new();
    let kept = ALL.get_or_init(|| {
        let kept = Kept::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(kept.clone())
            .with_ansi(false)
            .finish();
        ask_every_subscriber();
        tracing::subscriber::set_global_default(subscriber).expect("nobody else sets one");
        kept
    });
    kept.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shout() {
        tracing::warn!("as loud as it gets");
    }

    #[test]
    fn a_thread_without_a_subscriber_silences_no_other() {
        let said = said_here(|| {
            // The first to log there, and nobody listens to it.
            std::thread::spawn(shout).join().expect("it does not panic");
            shout();
        });
        assert_eq!(said.matches("as loud as it gets").count(), 1, "{said}");
    }
}
