//! Waits until something has come true.

use std::time::{Duration, Instant};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(1));
    }
}
