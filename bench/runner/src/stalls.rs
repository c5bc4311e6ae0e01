//! How long cores were stopped: those of a virtual machine are the host's to give and to take, and a program that runs
//! on them finds it in its own times.
//!
//! On each core a thread that goes before all others sleeps a millisecond at a time. Where it comes back [`LEAST`] too late,
//! nothing ran on that core meanwhile, but for what the kernel does with everything else held up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::usage;

const STEP: Duration = Duration::from_millis(1);

/// What is too late by less is no stall.
const LEAST: Duration = Duration::from_millis(2);

/// Runs until it is stopped.
pub(super) struct Meter {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<Stalls>>>,
}

/// Of all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stalls {
    pub(super) longest: Duration,
    pub(super) sum: Duration,
}

impl Meter {
    pub(super) fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..cores).map(|core| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                usage::go_before_all_others(core)?;
                let mut stalls = Stalls::default();
                while !is_over.load(Ordering::Relaxed) {
                    let due = Instant::now() + STEP;
                    thread::sleep(STEP);
                    stalls.add(due.elapsed());
                }
                Ok(stalls)
            })
        });
        Self { threads: threads.collect(), is_over }
    }

    /// What there was since the start; `None` where the kernel lets no thread of ours go before others.
    pub(super) fn stop(self) -> Option<Stalls> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Stalls::default();
        for thread in self.threads {
            let stalls = thread.join().expect("a thread that sleeps does not panic").ok()?;
            all = Stalls { longest: all.longest.max(stalls.longest), sum: all.sum + stalls.sum };
        }
        Some(all)
    }
}

impl Stalls {
    fn add(&mut self, late: Duration) {
        if late >= LEAST {
            self.longest = self.longest.max(late);
            self.sum += late;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_much_too_late_is_a_stall() {
        let mut stalls = Stalls::default();
        [0, 1_999, 2_000, 7_000, 30].map(Duration::from_micros).into_iter().for_each(|late| stalls.add(late));
        assert_eq!(stalls, Stalls { longest: Duration::from_millis(7), sum: Duration::from_millis(9) });
    }
}
