//! What was logged.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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

/// What `call` logs on this thread.
pub(crate) fn said_here(call: impl FnOnce()) -> String {
    let kept = Kept::default();
    let subscriber = tracing_subscriber::fmt().with_writer(kept.clone()).with_ansi(false).finish();
    tracing::subscriber::with_default(subscriber, call);
    kept.text()
}

/// Everything that threads without a subscriber of their own have logged since the first call, at every level.
pub(crate) fn all() -> String {
    static ALL: OnceLock<Kept> = OnceLock::new();
    let kept = ALL.get_or_init(|| {
        let kept = Kept::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(kept.clone())
            .with_ansi(false)
            .finish();
        tracing::subscriber::set_global_default(subscriber).expect("nobody else sets one");
        kept
    });
    kept.text()
}
