//! Collects what tasks hand over at each marker, makes it durable, and writes the commit record: a thread per job.
//!
//! A cycle is committed in this order, each step done before the next begins: the order log up to the marker is
//! durable, then every part ([`CyclePart::prepare`]), then the record that names them all, synced. Then parts are told,
//! and what only older commits needed is removed: old order, old journal.
//!
//! One cycle may be on its way to the disk while the next gathers its parts. No marker is numbered while two are open, or
//! while a part is missing: the present cycle grows then, and a warning says so when it has waited for long. Nothing is
//! thrown away (S4 drops the oldest state from its queue; seed 001, section 3.2).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_flow::{CyclePart, CycleStart, Cycles, JobHold};
use thalweg_storage::CommitLog;
use thalweg_storage::log::{GroupCommit, LogHandle, LogPosition};
use thalweg_types::Error;

use super::SourceNumbers;
use super::order::OrderPlace;
use super::record::{CommitRecord, CommittedSource, Position};
use crate::metrics::QueryChange;

/// Cycles that may be open at once: one on its way to the disk, one that gathers its parts.
const OPEN: usize = 2;

/// A marker that waited as long as this is worth a warning.
const WORTH_SAYING: Duration = Duration::from_secs(1);

/// Which task hands a part over.
type Task = (Arc<str>, u32);

pub(crate) struct Committer {
    inner: Mutex<Inner>,
    changed: Condvar,
    place: Arc<OrderPlace>,
}

#[derive(Default)]
struct Inner {
    expected: Vec<Task>,
    open: VecDeque<OpenCycle>,
    /// The last cycle is among the open ones.
    has_ended: bool,
    /// The job failed or was ended at once.
    is_stopped: bool,
    /// When a marker was first held back, since one was not.
    held_back: Option<Instant>,
    figures: CycleFigures,
}

struct OpenCycle {
    start: CycleStart,
    /// Record of the order log behind the marker.
    order: LogPosition,
    queries: Vec<QueryChange>,
    parts: BTreeMap<Task, Box<dyn CyclePart>>,
    at: Instant,
}

/// What is known of a job's cycles.
#[derive(Clone, Copy, Debug, Default)]
pub struct CycleFigures {
    /// The last cycle that was committed by this run; 0: none yet.
    pub committed: u64,
    /// From its marker to its commit record.
    pub took: Duration,
    /// Of that, the time in which the commit thread worked.
    pub work: Duration,
    /// Markers held back because earlier cycles were on their way, and for how long in all.
    pub held_back: u64,
    pub held_back_for: Duration,
}

/// Everything that the commit thread owns.
pub(crate) struct CommitWork {
    pub committer: Arc<Committer>,
    pub log: CommitLog,
    pub order: LogHandle,
    /// Journal of each source that has one, by its place.
    pub journals: Vec<Option<LogHandle>>,
    pub numbers: SourceNumbers,
    pub identity: serde_json::Value,
    /// Keeps the logs' thread.
    pub _group: Arc<GroupCommit>,
}

impl Committer {
    pub(crate) fn new(place: Arc<OrderPlace>) -> Self {
        Self { inner: Mutex::default(), changed: Condvar::new(), place }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn figures(&self) -> CycleFigures {
        self.lock().figures
    }

    /// Waits for a cycle whose parts are all there; `None` when there will be none.
    fn next(&self) -> Option<OpenCycle> {
        let mut inner = self.lock();
        loop {
            if inner.is_stopped {
                return None;
            }
            let expected = inner.expected.len();
            match inner.open.front() {
                Some(front) if front.parts.len() == expected => return inner.open.pop_front(),
                None if inner.has_ended => return None,
                _ => inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Cycles for Committer {
    fn expect(&self, tasks: Vec<Task>) {
        self.lock().expected = tasks;
    }

    fn may_begin(&self) -> bool {
        let mut inner = self.lock();
        let expected = inner.expected.len();
        let may =
            inner.open.len() < OPEN && inner.open.back().is_none_or(|last| last.parts.len() == expected);
        match (may, inner.held_back) {
            (false, None) => {
                inner.held_back = Some(Instant::now());
                inner.figures.held_back += 1;
            }
            (true, Some(since)) => {
                inner.held_back = None;
                let waited = since.elapsed();
                inner.figures.held_back_for += waited;
                if waited >= WORTH_SAYING {
                    tracing::warn!(
                        committed = inner.figures.committed,
                        ?waited,
                        "state is written more slowly than it changes: the present cycle grew"
                    );
                }
            }
            _ => {}
        }
        may
    }

    fn begin(&self, start: CycleStart) {
        let order = self.place.next();
        let queries = self.place.queries();
        let open = OpenCycle { start, order, queries, parts: BTreeMap::new(), at: Instant::now() };
        self.lock().open.push_back(open);
        self.changed.notify_all();
    }

    fn part(&self, operator: &Arc<str>, task: u32, cycle: u64, part: Box<dyn CyclePart>) {
        let mut inner = self.lock();
        if let Some(open) = inner.open.iter_mut().find(|open| open.start.cycle == cycle) {
            open.parts.insert((Arc::clone(operator), task), part);
        }
        drop(inner);
        self.changed.notify_all();
    }

    fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }
}

impl CommitWork {
    /// The life of the commit thread. The job has not ended while it runs.
    pub(crate) fn run(mut self, hold: JobHold) {
        while let Some(cycle) = self.committer.next() {
            let number = cycle.start.cycle;
            if let Err(error) = self.commit(cycle) {
                hold.job().fail("commit", error.context(format!("commit cycle {number}")));
                break;
            }
        }
        // Files are closed before the job counts as ended.
        drop(self);
        drop(hold);
    }

    fn commit(&mut self, cycle: OpenCycle) -> Result<(), Error> {
        let OpenCycle { start, order, queries, mut parts, at } = cycle;
        let began = Instant::now();
        // What the cycle is made of has to come out the same again before anything depends on it.
        for journal in self.journals.iter().flatten() {
            journal.sync()?;
        }
        self.order.sync()?;
        let mut positions = BTreeMap::new();
        for ((operator, task), part) in &mut parts {
            let position = part
                .prepare()
                .map_err(|error| error.context(format!("operator {operator:?} task {task}")))?;
            positions.insert(CommitRecord::part_name(operator, *task), Position(position));
        }
        let numbers = &self.numbers;
        let sources = numbers.names.iter().zip(&numbers.places);
        let record = CommitRecord {
            version: CommitRecord::new_version(),
            cycle: start.cycle,
            next: start.next,
            now: start.now,
            order: order.0,
            job: self.identity.clone(),
            sources: sources
                .map(|(name, place)| CommittedSource {
                    name: name.clone(),
                    next: start.sources[*place].next,
                    place: Position(start.sources[*place].place.clone()),
                })
                .collect(),
            parts: positions,
            queries,
        };
        self.log.append(&record.encode()?)?;
        for ((operator, task), part) in parts {
            part.committed().map_err(|error| error.context(format!("operator {operator:?} task {task}")))?;
        }
        self.order.truncate_before(order)?;
        for (source, place) in record.sources.iter().zip(&self.numbers.places) {
            if let Some(journal) = &self.journals[*place] {
                journal.truncate_before(super::place_in_journal(&source.place)?)?;
            }
        }
        let mut inner = self.committer.lock();
        inner.figures.committed = start.cycle;
        inner.figures.took = at.elapsed();
        inner.figures.work = began.elapsed();
        Ok(())
    }
}
