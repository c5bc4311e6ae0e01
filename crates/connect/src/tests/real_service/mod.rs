//! Sinks against real databases: `cargo xtask test --only services` starts them and says where they are.
//!
//! Ignored elsewhere, so that a plain `cargo test` needs nothing but the repository.

mod postgres;
mod proxy;
mod questdb;

use std::time::{Duration, Instant};

use super::drive::LIMIT;

/// A variable that xtask sets for a service.
fn told(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `cargo xtask test --only services`"))
}

/// Waits until something that another process does has come true.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(5));
    }
}
