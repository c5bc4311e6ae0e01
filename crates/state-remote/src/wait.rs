//! What a task does while its store is away: it waits, longer each time, and says so once.
//!
//! Waits have no end of their own, since nothing may be dropped and a task cannot go on without its state; the end of
//! the job ends them ([`Interrupt`]). Reads and writes have outages of their own: a server that has no memory left
//! answers reads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_state::{Interrupt, StateError, StoreFault};

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It may work later. Whether it has worked is open.
    Passing(String),
    /// It will never work.
    Lasting(StateError),
}

pub(crate) type Outcome<T> = Result<T, Trouble>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write,
}

/// Repeats requests to one server until they work. Shared by all tasks of a job, so that an outage is reported once.
#[derive(Debug)]
pub(crate) struct Patience {
    /// For messages.
    store: Arc<str>,
    interrupt: Interrupt,
    /// Otherwise the first failure is the last, as at the start, when a person looks.
    is_patient: bool,
    /// How long the first wait is; later ones double.
    first_wait: Duration,
    reads: Mutex<Option<Instant>>,
    writes: Mutex<Option<Instant>>,
}

impl Patience {
    pub(crate) fn new(store: Arc<str>, interrupt: Interrupt) -> Self {
        let (reads, writes) = (Mutex::default(), Mutex::default());
        Self { store, interrupt, is_patient: true, first_wait: FIRST_WAIT, reads, writes }
    }

    /// One that does not wait.
    pub(crate) fn impatient(&self) -> Self {
        Self { is_patient: false, ..Self::new(Arc::clone(&self.store), self.interrupt.clone()) }
    }

    /// One that waits for no time at all.
    #[cfg(test)]
    pub(crate) fn hasty(self) -> Self {
        Self { first_wait: Duration::ZERO, ..self }
    }

    pub(crate) fn store(&self) -> &Arc<str> {
        &self.store
    }

    /// An error of the store.
    pub(crate) fn fault(&self, fault: StoreFault, message: String, hint: &str) -> StateError {
        StateError::Store { store: self.store.to_string(), fault, message, hint: Some(hint.to_owned()) }
    }

    fn down(&self, action: &str, reason: &str) -> StateError {
        StateError::Store {
            store: self.store.to_string(),
            fault: StoreFault::Down,
            message: format!("{action}: expected an answer, got none: {reason}"),
            hint: Some(
                "look whether the server runs and state.url leads to it, then start the job again".to_owned(),
            ),
        }
    }

    /// Makes a request until it works.
    ///
    /// # Errors
    /// What will never work, the end of the job, and for one that does not wait the first failure.
    pub(crate) fn until_done<T>(
        &self,
        work: Work,
        action: &str,
        mut request: impl FnMut() -> Outcome<T>,
    ) -> Result<T, StateError> {
        let outage = match work {
            Work::Read => &self.reads,
            Work::Write => &self.writes,
        };
        let mut wait = self.first_wait;
        loop {
            let reason = match request() {
                Ok(done) => {
                    if let Some(since) = lock(outage).take() {
                        let seconds = since.elapsed().as_secs_f64();
                        // As loud as its beginning: a reader of that one needs this one.
                        tracing::warn!(
                            store = &*self.store,
                            action,
                            seconds,
                            "the store of state is well again"
                        );
                    }
                    return Ok(done);
                }
                Err(Trouble::Lasting(error)) => return Err(error),
                Err(Trouble::Passing(reason)) => reason,
            };
            if !self.is_patient {
                return Err(self.down(action, &reason));
            }
            let mut since = lock(outage);
            if since.is_none() {
                *since = Some(Instant::now());
                tracing::warn!(
                    store = &*self.store,
                    action,
                    error = reason,
                    "waiting for the store of state; nothing is lost meanwhile, and cycles grow longer"
                );
            }
            drop(since);
            if self.interrupt.wait(wait) {
                return Err(StateError::Store {
                    store: self.store.to_string(),
                    fault: StoreFault::Ended,
                    message: format!("{action}: the job ended while it was waited for: {reason}"),
                    hint: Some("start the job again: it goes on at the last committed cycle".to_owned()),
                });
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_testing::logs::said_here;

    use super::*;

    fn patience() -> Patience {
        Patience::new("store at here".into(), Interrupt::default()).hasty()
    }

    #[test]
    fn what_passes_is_repeated_and_what_lasts_is_not() {
        let patience = patience();
        let mut left = 2;
        let done = patience.until_done(Work::Write, "write", || {
            left -= 1;
            if left > 0 { Err(Trouble::Passing("reset".to_owned())) } else { Ok(7) }
        });
        assert_eq!((done.unwrap(), left), (7, 0));
        let mut calls = 0;
        let refused: Result<(), _> = patience.until_done(Work::Write, "write", || {
            calls += 1;
            Err(Trouble::Lasting(StateError::Order { call: "write", cycle: 1, after: String::new() }))
        });
        assert!(refused.is_err() && calls == 1);
    }

    #[test]
    fn an_outage_is_told_once_and_its_end_once() {
        let said = said_here(|| {
            let patience = patience();
            for _ in 0..2 {
                // A read that works in between is no end of an outage of writes.
                let mut left = 5;
                let write = || {
                    left -= 1;
                    patience.until_done(Work::Read, "read", || Ok(())).unwrap();
                    if left > 0 { Err(Trouble::Passing("no memory".to_owned())) } else { Ok(()) }
                };
                patience.until_done(Work::Write, "write", write).unwrap();
                patience.until_done(Work::Write, "write", || Ok(())).unwrap();
            }
        });
        let count = |text: &str| said.matches(text).count();
        assert_eq!((count("waiting for the store"), count("is well again")), (2, 2), "{said}");
        assert!(said.contains("no memory") && said.contains("store at here"), "{said}");
    }

    #[test]
    fn the_end_of_a_job_ends_the_wait() {
        let patience = patience();
        let interrupt = patience.interrupt.clone();
        let mut calls = 0;
        let ended: Result<(), _> = patience.until_done(Work::Read, "read", || {
            calls += 1;
            if calls == 2 {
                interrupt.raise();
            }
            Err(Trouble::Passing("refused".to_owned()))
        });
        let text = ended.unwrap_err().to_string();
        assert_eq!(text, "store at here: read: the job ended while it was waited for: refused");
        assert_eq!(calls, 2);
    }

    #[test]
    fn at_the_start_nothing_is_waited_for() {
        let refuse = || Err::<(), _>(Trouble::Passing("refused".to_owned()));
        let error = patience().impatient().until_done(Work::Read, "connect", refuse).unwrap_err();
        assert_eq!(error.to_string(), "store at here: connect: expected an answer, got none: refused");
        assert_eq!(error.class(), thalweg_types::Class::External);
    }
}
