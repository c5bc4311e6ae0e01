//! What a worker runs: a task or a sequencer of a job, so wrapped that a failure stops its job and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::job::{Cause, JobCore, panic_message};
use crate::sequencer::Sequencer;
use crate::task::Task;
use crate::worker::{Verdict, Work};

pub(crate) enum Kind {
    Task(Box<Task>),
    Sequencer(Box<Sequencer>),
}

pub(crate) struct Shell {
    core: Arc<JobCore>,
    kind: Kind,
}

impl Shell {
    pub(crate) fn new(core: Arc<JobCore>, kind: Kind) -> Self {
        Self { core, kind }
    }

    fn fail(&self, cause: Cause) {
        match &self.kind {
            Kind::Task(task) => {
                let stage = task.working();
                self.core.fail(&stage.name, stage.index, stage.record(), cause);
            }
            Kind::Sequencer(sequencer) => {
                let source = sequencer.asking().cloned().unwrap_or_else(|| "sequencer".into());
                self.core.fail(&source, 0, None, cause);
            }
        }
    }
}

impl Work for Shell {
    fn run(&mut self, now: Instant) -> Verdict {
        if self.core.is_stopped() {
            return Verdict::Finished;
        }
        let Self { core, kind } = self;
        // After a panic the work is dropped and never looked at again, but for its name.
        let outcome = catch_unwind(AssertUnwindSafe(|| match kind {
            Kind::Task(task) => task.run(now, || core.is_stopped()),
            Kind::Sequencer(sequencer) => sequencer.run(now),
        }));
        match outcome {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => {
                let survives = core.survives(&error);
                self.fail(Cause::Error(error));
                match &mut self.kind {
                    Kind::Sequencer(sequencer) if survives => {
                        sequencer.only_read();
                        Verdict::Again
                    }
                    // What a task survives it deals with itself.
                    _ => Verdict::Finished,
                }
            }
            Err(payload) => {
                self.fail(Cause::Panic(panic_message(payload.as_ref())));
                Verdict::Finished
            }
        }
    }

    fn gone(&self) -> Box<dyn FnOnce() + Send> {
        let core = Arc::clone(&self.core);
        Box::new(move || core.task_gone())
    }
}
