//! Jobs that are being started over HTTP: each on a thread of its own, which is abandoned if the start is given up.
//!
//! Opening a job's files may take for ever. A request waits for it here, and another one can end that wait
//! ([`Starting::give_up`]); the thread then ends the job as soon as it has been opened, if it ever is.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use thalweg_node::{CheckedJob, Node, RunningJob};
use thalweg_types::Error;

/// Starts that may be under way at once, those that were given up among them: each has a thread.
const MOST: usize = 64;

#[derive(Default)]
pub(crate) struct Starting {
    /// By the name of the job, unless the start was given up.
    starts: Mutex<BTreeMap<String, Arc<Start>>>,
    threads: Arc<()>,
}

#[derive(Default)]
struct Start {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Waits,
    Done(Result<Arc<RunningJob>, Error>),
    GivenUp,
}

impl Start {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outcome; `None` if it was given up.
    fn wait(&self) -> Option<Result<Arc<RunningJob>, Error>> {
        let waits = |state: &mut State| matches!(state, State::Waits);
        let mut state = self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::GivenUp) {
            State::Done(outcome) => Some(outcome),
            State::Waits | State::GivenUp => None,
        }
    }
}

impl Starting {
    fn starts(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Start>>> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_starting(&self, name: &str) -> bool {
        self.starts().contains_key(name)
    }

    /// Starts a job, and waits until it runs, fails, or is given up. `started` is called with it before anything else
    /// can happen to it.
    ///
    /// # Errors
    /// If the node fails to start it, it was given up, or too many others are still being opened.
    pub(crate) fn start(
        &self,
        node: &Arc<Node>,
        job: CheckedJob,
        started: impl FnOnce(&Arc<RunningJob>),
    ) -> Result<Arc<RunningJob>, Error> {
        let name = job.name.to_string();
        let start = Arc::new(Start::default());
        {
            let mut starts = self.starts();
            if starts.contains_key(&name) {
                return Err(Error::user(format!("a job {name:?} is being started already"))
                    .with_hint("wait for it, or give it up with DELETE"));
            }
            if Arc::strong_count(&self.threads) > MOST {
                return Err(Error::external(format!("{MOST} jobs are still being opened")).with_hint(
                    "look for the cause (disk, mount, pipes without a reader), then start the process again",
                ));
            }
            starts.insert(name.clone(), Arc::clone(&start));
        }
        let spawned = {
            let (node, start, thread) = (Arc::clone(node), Arc::clone(&start), Arc::clone(&self.threads));
            std::thread::Builder::new().name(format!("start:{name}")).spawn(move || {
                let outcome = open(&node, job);
                drop(thread);
                let mut state = start.lock();
                if let State::GivenUp = *state {
                    drop(state);
                    end(&node, outcome);
                    return;
                }
                *state = State::Done(outcome);
                start.changed.notify_all();
            })
        };
        if let Err(error) = spawned {
            self.starts().remove(&name);
            return Err(Error::external("start a thread that opens a job").with_source(error));
        }
        let outcome = start.wait();
        // In this order: at no moment it is neither here nor there.
        if let Some(Ok(job)) = &outcome {
            started(job);
        }
        let mut starts = self.starts();
        if starts.get(&name).is_some_and(|known| Arc::ptr_eq(known, &start)) {
            starts.remove(&name);
        }
        drop(starts);
        outcome.unwrap_or_else(|| {
            Err(Error::user(format!("the start of job {name:?} was given up by another request")))
        })
    }

    /// Gives up the start of a job, whether or not it will ever end; whether there was one.
    pub(crate) fn give_up(&self, name: &str) -> bool {
        let Some(start) = self.starts().remove(name) else { return false };
        let mut state = start.lock();
        let waited = matches!(*state, State::Waits);
        if waited {
            *state = State::GivenUp;
            start.changed.notify_all();
        }
        waited
    }
}

/// A panic is the failure of this start, and of nothing else.
fn open(node: &Node, job: CheckedJob) -> Result<Arc<RunningJob>, Error> {
    let name = Arc::clone(&job.name);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| node.start(job, &[])))
        .unwrap_or_else(|_| Err(Error::internal(format!("opening job {name:?} panicked"))))
}

/// Ends a job whose start was given up.
fn end(node: &Node, outcome: Result<Arc<RunningJob>, Error>) {
    match outcome {
        Ok(job) => {
            job.abort();
            job.wait();
            let _ = node.remove(job.name());
            tracing::info!(job = %job.name(), "a job whose start was given up has been opened, and ended");
        }
        Err(error) => {
            tracing::info!(error = error.chain(), "a job whose start was given up could not be opened");
        }
    }
}
