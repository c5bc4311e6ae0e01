//! A running job from outside: its state, its end, its commands, its figures.
//!
//! State machine: `Running -> Draining -> Done`, and from either to `Failed` or `Aborted`; the first end wins.
//! [`Job::wait`] returns when the job has ended *and* its last task is dropped, so files and sockets of its
//! operators are closed by then.
//!
//! A job that has failed because a disk is full may stay to be read ([`JobOptions::read_only_when_full`]): then it is
//! `Failed`, and *read-only* until it is drained or aborted or fails once more. Its sources are closed, nothing is
//! numbered, committed or published any more, and its tasks answer commands that change nothing ([`Command::record`]).
//!
//! [`JobOptions::read_only_when_full`]: crate::JobOptions::read_only_when_full

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use thalweg_types::{Class, Error, Offset, Retry, Seq};

use crate::order::RecentRuns;
use crate::received::ReceivedBlocks;
use crate::stats::JobStats;
use crate::{Command, Cycles, DurableOrder, Waker};

/// Where a job is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    Running,
    /// Sources take no new records; those in flight go to the end.
    Draining,
    Done,
    Failed(JobFailure),
    Aborted,
}

impl JobState {
    pub fn is_final(&self) -> bool {
        matches!(self, JobState::Done | JobState::Failed(_) | JobState::Aborted)
    }
}

/// What stopped a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFailure {
    /// Operator or source.
    pub operator: Arc<str>,
    pub task: u32,
    /// `SOURCE@OFFSET`; the first record of the batch where the operator did not say more.
    pub record: Option<String>,
    /// The error and its causes, or what the panic said: for the log and the command line.
    pub message: String,
    /// The same for everybody: without values of records and files.
    pub public: String,
    pub panic: bool,
    /// `None` for a panic.
    pub error: Option<FailureError>,
}

/// What an operator's error said in addition to its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureError {
    pub class: Class,
    pub retry: Retry,
    pub hint: Option<String>,
}

impl JobFailure {
    /// What is said of it to everybody; `Display` is for the log and the command line.
    pub fn for_everybody(&self) -> String {
        Self { message: self.public.clone(), ..self.clone() }.to_string()
    }
}

impl fmt::Display for JobFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operator {:?} task {}", self.operator, self.task)?;
        if let Some(record) = &self.record {
            write!(f, " at record {record}")?;
        }
        write!(f, "{}: {}", if self.panic { " panicked" } else { "" }, self.message)
    }
}

/// Handle of a job; the job goes on without it.
#[derive(Clone)]
pub struct Job {
    pub(crate) core: Arc<JobCore>,
}

impl Job {
    pub fn name(&self) -> &Arc<str> {
        &self.core.name
    }

    pub fn state(&self) -> JobState {
        self.core.lock().state.clone()
    }

    /// Orderly end: sources accept nothing new, everything flows to its sinks, operators finish. A job that is read-only
    /// has nothing left to bring to an end, and ends as it has failed.
    pub fn drain(&self) {
        {
            let mut life = self.core.lock();
            if life.state == JobState::Running {
                life.state = JobState::Draining;
            }
        }
        if self.is_read_only() {
            self.abort();
        }
        self.core.wake_sequencer();
    }

    /// Ends at once; records in flight are dropped.
    pub fn abort(&self) {
        self.core.end(JobState::Aborted);
    }

    /// Whether the job has failed for want of room on a disk and stays to be read.
    pub fn is_read_only(&self) -> bool {
        self.core.is_read_only()
    }

    /// Stops the job for what went wrong outside of its tasks; `part` says where.
    pub fn fail(&self, part: &str, error: Error) {
        self.core.fail(&part.into(), 0, None, Cause::Error(error));
    }

    /// Keeps the job from having ended while a thread outside still works for it.
    pub fn hold(&self) -> JobHold {
        self.core.alive.fetch_add(1, Ordering::AcqRel);
        JobHold { core: Arc::clone(&self.core) }
    }

    /// Waits for the end of the job.
    pub fn wait(&self) -> JobState {
        let life = self.core.lock();
        let life = self.core.ended.wait_while(life, |life| !life.is_over());
        life.unwrap_or_else(PoisonError::into_inner).state.clone()
    }

    /// Waits at most this long; `None` where the job has not ended by then.
    pub fn wait_timeout(&self, limit: Duration) -> Option<JobState> {
        let until = Instant::now() + limit;
        let mut life = self.core.lock();
        while !life.is_over() {
            let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            life = self.core.ended.wait_timeout(life, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(life.state.clone())
    }

    /// Numbers a command and sends it through the job to the tasks of its operator.
    ///
    /// # Errors
    /// If the job has no such operator, or has ended, or is read-only and the command changes something.
    pub fn command(&self, command: Command) -> Result<(), Error> {
        let core = &self.core;
        if !core.operators.contains(&command.operator) {
            return Err(Error::user(format!(
                "job {:?} has no operator {:?}; it has {}",
                core.name,
                command.operator,
                core.operators.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
            )));
        }
        if core.is_told && command.record.is_some() {
            return Err(Error::internal(format!(
                "job {:?} is told its order: a command that changes something comes from there",
                core.name
            )));
        }
        {
            let mut life = core.lock();
            let reads = core.is_read_only() && command.record.is_none();
            if (life.state.is_final() && !reads) || life.sealed {
                return Err(Error::user(format!("job {:?} has ended and takes no commands", core.name)));
            }
            life.commands.push(Arc::new(command));
        }
        core.wake_sequencer();
        Ok(())
    }

    pub fn stats(&self) -> JobStats {
        self.core.stats.get().map(|stats| stats()).unwrap_or_default()
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("name", &self.core.name).field("state", &self.state()).finish()
    }
}

/// See [`Job::hold`]. Dropping it lets go.
pub struct JobHold {
    core: Arc<JobCore>,
}

impl JobHold {
    /// The job, to report a failure to.
    pub fn job(&self) -> Job {
        Job { core: Arc::clone(&self.core) }
    }
}

impl Drop for JobHold {
    fn drop(&mut self) {
        self.core.task_gone();
    }
}

/// What handle, sequencer and tasks of a job share.
pub(crate) struct JobCore {
    pub(crate) name: Arc<str>,
    pub(crate) sources: Vec<Arc<str>>,
    pub(crate) operators: Vec<Arc<str>>,
    /// What tasks that publish wait for.
    pub(crate) order: Option<Arc<DurableOrder>>,
    pub(crate) cycles: Option<Arc<dyn Cycles>>,
    /// A task asks for an early marker. Relaxed: it orders nothing, and the sequencer is woken after it.
    hastened: AtomicBool,
    /// A task can take no more before that marker. Likewise.
    held: AtomicBool,
    /// Set with the final state: tasks that see it drop themselves. Release here, acquire in the tasks.
    stopped: AtomicBool,
    /// See [`Job::is_read_only`]. Changed with the lock of `life`. Release here, acquire in the tasks.
    read_only: AtomicBool,
    /// Set with `read_only`, and never taken back: tasks leave out records.
    leaves_out: AtomicBool,
    read_only_when_full: bool,
    /// As [`crate::JobOptions::is_told`] says.
    is_told: bool,
    /// Tasks that are not dropped yet, the sequencer among them.
    alive: AtomicUsize,
    /// Held for moments, never while an operator runs.
    life: Mutex<Life>,
    ended: Condvar,
    pub(crate) recent: Mutex<RecentRuns>,
    /// By task, up to where it has worked on everything. Relaxed: an older number only keeps more.
    passed: OnceLock<Vec<Arc<AtomicU64>>>,
    pub(crate) received: ReceivedBlocks,
    /// See [`crate::Durability::keep`].
    keep: Mutex<Option<Arc<dyn Send + Sync>>>,
    wakers: OnceLock<Wakers>,
    stats: OnceLock<Box<dyn Fn() -> JobStats + Send + Sync>>,
}

struct Wakers {
    sequencer: Waker,
    tasks: Vec<Waker>,
}

pub(crate) struct Life {
    state: JobState,
    /// All tasks are gone.
    empty: bool,
    /// The end has been numbered: nothing can follow it.
    sealed: bool,
    commands: Vec<Arc<Command>>,
}

impl Life {
    fn is_over(&self) -> bool {
        self.empty && self.state.is_final()
    }
}

/// What the sequencer is asked to do.
pub(crate) struct Requests {
    pub commands: Vec<Arc<Command>>,
    pub drain: bool,
}

impl JobCore {
    pub(crate) fn new(
        name: Arc<str>,
        sources: Vec<Arc<str>>,
        operators: Vec<Arc<str>>,
        tasks: usize,
        order: Option<Arc<DurableOrder>>,
        cycles: Option<Arc<dyn Cycles>>,
    ) -> Self {
        Self {
            name,
            sources,
            operators,
            order,
            cycles,
            hastened: AtomicBool::new(false),
            held: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            read_only: AtomicBool::new(false),
            leaves_out: AtomicBool::new(false),
            read_only_when_full: false,
            is_told: false,
            alive: AtomicUsize::new(tasks),
            life: Mutex::new(Life {
                state: JobState::Running,
                empty: false,
                sealed: false,
                commands: Vec::new(),
            }),
            ended: Condvar::new(),
            recent: Mutex::default(),
            passed: OnceLock::new(),
            received: ReceivedBlocks::default(),
            keep: Mutex::default(),
            wakers: OnceLock::new(),
            stats: OnceLock::new(),
        }
    }

    /// As [`crate::JobOptions::read_only_when_full`] says.
    pub(crate) fn read_only_when_full(mut self, stays: bool) -> Self {
        self.read_only_when_full = stays;
        self
    }

    /// As [`crate::JobOptions::is_told`] says.
    pub(crate) fn told(self, is_told: bool) -> Self {
        Self { is_told, ..self }
    }

    /// As [`crate::Durability::keep`] says.
    pub(crate) fn keep(self, keep: Option<Arc<dyn Send + Sync>>) -> Self {
        *self.keep.lock().unwrap_or_else(PoisonError::into_inner) = keep;
        self
    }

    pub(crate) fn wire(
        &self,
        sequencer: Waker,
        tasks: Vec<Waker>,
        stats: impl Fn() -> JobStats + Send + Sync + 'static,
    ) {
        let _ = self.wakers.set(Wakers { sequencer, tasks });
        let _ = self.stats.set(Box::new(stats));
    }

    fn lock(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self) {
        if let Some(wakers) = self.wakers.get() {
            wakers.sequencer.wake();
            wakers.tasks.iter().for_each(Waker::wake);
        }
    }

    fn wake_sequencer(&self) {
        if let Some(wakers) = self.wakers.get() {
            wakers.sequencer.wake();
        }
    }

    /// Has the sequencer number a marker as soon as it may.
    pub(crate) fn hasten_cycle(&self) {
        if self.cycles.is_some() && !self.hastened.swap(true, Ordering::Relaxed) {
            self.wake_sequencer();
        }
    }

    /// Has sources wait for the next marker.
    pub(crate) fn hold_sources(&self) {
        if self.cycles.is_some() {
            self.held.store(true, Ordering::Relaxed);
            self.hasten_cycle();
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn is_hastened(&self) -> bool {
        self.hastened.load(Ordering::Relaxed)
    }

    /// A marker is being numbered: what asked for one has it.
    pub(crate) fn cycle_begins(&self) {
        self.hastened.store(false, Ordering::Relaxed);
        self.held.store(false, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// Whether the job stays to be read, or did before it ended.
    #[inline]
    pub(crate) fn leaves_out(&self) -> bool {
        self.leaves_out.load(Ordering::Acquire)
    }

    /// Whether the job stays to be read after this.
    pub(crate) fn survives(&self, error: &Error) -> bool {
        self.read_only_when_full && error.is_disk_full()
    }

    /// Commands in the order in which they were given, and whether to drain.
    pub(crate) fn requests(&self) -> Requests {
        let mut life = self.lock();
        Requests { commands: std::mem::take(&mut life.commands), drain: life.state == JobState::Draining }
    }

    /// Nothing more is numbered, unless a command came in between: then `false`.
    pub(crate) fn seal(&self) -> bool {
        let mut life = self.lock();
        life.sealed = life.commands.is_empty();
        life.sealed
    }

    /// Ends the job in this state unless it has ended already, and has its tasks dropped. One that is read-only ends in
    /// the state that it has.
    pub(crate) fn end(&self, state: JobState) {
        {
            let mut life = self.lock();
            if life.state.is_final() {
                if !self.read_only.swap(false, Ordering::AcqRel) {
                    return;
                }
            } else {
                tell_failure(&self.name, &state);
                life.state = state;
            }
            self.stopped.store(true, Ordering::Release);
            if life.empty {
                self.ended.notify_all();
            }
        }
        if let Some(cycles) = &self.cycles {
            cycles.stop();
        }
        self.wake_all();
    }

    /// The job has failed and stays to be read; one that was to end anyway ends.
    fn end_writing(&self, failure: JobFailure) {
        {
            let mut life = self.lock();
            if life.state == JobState::Draining {
                drop(life);
                return self.end(JobState::Failed(failure));
            }
            if life.state.is_final() {
                return;
            }
            let state = JobState::Failed(failure);
            tell_failure(&self.name, &state);
            life.state = state;
            life.commands.retain(|command| command.record.is_none());
            self.leaves_out.store(true, Ordering::Release);
            self.read_only.store(true, Ordering::Release);
        }
        self.received.close();
        if let Some(cycles) = &self.cycles {
            cycles.give_up();
        }
        self.wake_all();
    }

    /// A task is dropped; with the last one a job that nothing stopped is done.
    pub(crate) fn task_gone(&self) {
        if self.alive.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        drop(self.keep.lock().unwrap_or_else(PoisonError::into_inner).take());
        // A job that has ended may be shown for long.
        self.received.close();
        let mut life = self.lock();
        life.empty = true;
        self.read_only.store(false, Ordering::Release);
        life.commands.clear();
        if !life.state.is_final() {
            life.state = JobState::Done;
        }
        self.ended.notify_all();
    }

    /// Of each task, where it says up to what number it has worked on everything.
    pub(crate) fn watch(&self, passed: Vec<Arc<AtomicU64>>) {
        let _ = self.passed.set(passed);
    }

    /// The number up to which every task has worked on everything.
    pub(crate) fn passed(&self) -> Seq {
        let each = self.passed.get().into_iter().flatten();
        each.map(|passed| passed.load(Ordering::Relaxed)).min().unwrap_or(Seq::MAX)
    }

    /// `SOURCE@OFFSET` of a record, as long as its run is remembered: until every task has passed it at least.
    pub(crate) fn record_name(&self, seq: Seq) -> Option<String> {
        let place = self.recent.lock().unwrap_or_else(PoisonError::into_inner).find(seq)?;
        Some(format!("{}@{}", self.sources[place.source], place.offset))
    }

    /// Source and offset of a record, likewise.
    pub(crate) fn place_of(&self, seq: Seq) -> Option<(Arc<str>, Offset)> {
        let place = self.recent.lock().unwrap_or_else(PoisonError::into_inner).find(seq)?;
        Some((Arc::clone(&self.sources[place.source]), place.offset))
    }

    /// As [`crate::Output::forget_received`].
    pub(crate) fn forget_received(&self, end: Seq) {
        if self.received.forget(end) {
            self.wake_sequencer();
        }
    }

    /// Ends the job, or what it writes where it stays to be read ([`JobCore::survives`]).
    pub(crate) fn fail(&self, operator: &Arc<str>, task: u32, seq: Option<Seq>, cause: Cause) {
        let survives = matches!(&cause, Cause::Error(error) if self.survives(error));
        let (message, public, panic, error) = match cause {
            Cause::Error(error) => (
                error.chain(),
                error.public_chain(),
                false,
                Some(FailureError {
                    class: error.class(),
                    retry: error.retry(),
                    hint: error.hint().map(str::to_owned),
                }),
            ),
            // A panic says whatever the code had in its hands.
            Cause::Panic(message) => (message, "the log of the node has what it said".to_owned(), true, None),
        };
        let record = seq.and_then(|seq| self.record_name(seq));
        let failure =
            JobFailure { operator: Arc::clone(operator), task, record, message, public, panic, error };
        if survives { self.end_writing(failure) } else { self.end(JobState::Failed(failure)) }
    }
}

fn tell_failure(job: &Arc<str>, state: &JobState) {
    if let JobState::Failed(failure) = state {
        tracing::error!(%job, %failure, "job failed");
    }
}

/// Why a job stops.
pub(crate) enum Cause {
    Error(Error),
    Panic(String),
}

/// What a caught panic said.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}
