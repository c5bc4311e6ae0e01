//! Collects the parts that tasks hand over at each marker, makes them durable, and writes the commit record: a thread
//! per job.
//!
//! A cycle is committed in this order, each step done before the next begins: the order log up to the marker is
//! durable, then every part ([`CyclePart::prepare`]), then the record that names them all, synced. Then the parts are
//! notified, and order and journal that only older commits needed are removed.
//!
//! One cycle may be on its way to the disk while the next gathers its parts. No marker is numbered while two are open, or
//! while a part is missing: the present cycle grows then, and a warning says so when it has waited for long. Nothing is
//! thrown away (S4 drops the oldest state from its queue; Vallés, 2012, section 3.2).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_flow::{CommitView, CyclePart, CycleStart, Cycles, JobHold};
use thalweg_state::Interrupt;
use thalweg_storage::CommitLog;
use thalweg_storage::log::{GroupCommit, LogHandle, LogPosition};
use thalweg_types::{Error, format_timestamp};

use super::order::OrderPlace;
use super::record::{CommitRecord, CommittedSource, Position, VERSION};
use super::{Journal, SourceNumbers};
use crate::data_dir::JobLock;
use crate::job_file::NO_RETENTION;
use crate::queries::QueryChange;

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
    /// Raised when nothing is waited for any more.
    interrupt: Interrupt,
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
    /// That it is was said.
    is_said: bool,
    figures: CycleFigures,
}

struct OpenCycle {
    start: CycleStart,
    /// Record of the order log after the marker.
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
    /// Markers held back because earlier cycles were on their way, and for how long in all.
    pub held_back: u64,
    pub held_back_for: Duration,
}

/// Everything that the commit thread owns.
pub(crate) struct CommitWork {
    pub committer: Arc<Committer>,
    pub log: CommitLog,
    /// The record of a job that is new, or has new sources: before anything else names them.
    pub first: Option<Vec<u8>>,
    pub order: LogHandle,
    /// Journal of each source that has one, by its place.
    pub journals: Vec<Option<Journal>>,
    /// What hears of the positions of each source, by its place.
    pub listeners: Vec<Option<CommitView>>,
    pub numbers: SourceNumbers,
    pub identity: serde_json::Value,
    /// Of the job's folder.
    pub lock: Option<Arc<JobLock>>,
    /// Keeps the logs' thread.
    pub _group: Arc<GroupCommit>,
}

impl Committer {
    pub(crate) fn new(place: Arc<OrderPlace>, interrupt: Interrupt) -> Self {
        Self { inner: Mutex::default(), changed: Condvar::new(), place, interrupt }
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
            (false, Some(since)) if since.elapsed() >= WORTH_SAYING && !inner.is_said => {
                inner.is_said = true;
                tracing::warn!(
                    committed = inner.figures.committed,
                    "state or output is written more slowly than it comes: the present cycle grows until the last one \
                     is committed"
                );
            }
            (true, Some(since)) => {
                inner.held_back = None;
                let waited = since.elapsed();
                inner.figures.held_back_for += waited;
                if std::mem::take(&mut inner.is_said) {
                    let committed = inner.figures.committed;
                    tracing::info!(committed, ?waited, "cycles are committed again");
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
        let mut inner = self.lock();
        // A job that stays to be read may still follow its order log, with a marker for every cycle in it.
        if !inner.is_stopped {
            inner.open.push_back(open);
        }
        drop(inner);
        self.changed.notify_all();
    }

    fn part(&self, operator: &Arc<str>, task: u32, cycle: u64, part: Box<dyn CyclePart>) {
        let mut inner = self.lock();
        let expected = inner.expected.len();
        let mut is_whole = false;
        if let Some(open) = inner.open.iter_mut().find(|open| open.start.cycle == cycle) {
            open.parts.insert((Arc::clone(operator), task), part);
            is_whole = open.parts.len() == expected;
        }
        drop(inner);
        // The task that hands over has records to work on: the thread is woken when there is something to do.
        if is_whole {
            self.changed.notify_all();
        }
    }

    fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.give_up();
        self.interrupt.raise();
    }

    fn give_up(&self) {
        let mut inner = self.lock();
        inner.is_stopped = true;
        let left = std::mem::take(&mut inner.open);
        drop(inner);
        drop(left);
        self.changed.notify_all();
    }
}

impl CommitWork {
    /// Makes the job's folder count on the disk, and commits its cycles in a thread of its own.
    ///
    /// # Errors
    /// The disk's errors, and a lack of threads.
    pub(crate) fn start(mut self, hold: JobHold) -> Result<(), Error> {
        if let Some(first) = self.first.take() {
            self.log.append(&first)?;
        }
        // By now there is a commit log, and an order log.
        self.lock.as_ref().map_or(Ok(()), |lock| lock.check())?;
        let thread = std::thread::Builder::new().name(format!("commit:{}", hold.job().name()));
        let begun = thread.spawn(move || self.run(hold));
        begun.map(drop).map_err(|error| Error::external("start a thread that commits").with_source(error))
    }

    /// The life of the commit thread. The job has not ended while it runs.
    fn run(mut self, hold: JobHold) {
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
        // What the cycle is made of has to come out the same again before anything depends on it.
        for journal in self.journals.iter().flatten() {
            journal.log.sync()?;
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
            version: VERSION,
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
        // Before it is written where another job may be by now.
        self.lock.as_ref().map_or(Ok(()), |lock| lock.check())?;
        self.log.append(&record.encode()?)?;
        for ((operator, task), part) in parts {
            part.committed().map_err(|error| error.context(format!("operator {operator:?} task {task}")))?;
        }
        for (position, listener) in start.sources.iter().zip(&self.listeners) {
            if let Some(listener) = listener {
                listener(position);
            }
        }
        self.order.truncate_before(order)?;
        for (source, place) in record.sources.iter().zip(&self.numbers.places) {
            if let Some(journal) = &self.journals[*place] {
                let floor = super::place_in_journal(&source.place)?;
                let now = journal.clock.now();
                let records = journal.log.retain(journal.retention, floor, now)?;
                if records > 0 && journal.retention != NO_RETENTION {
                    let now = format_timestamp(now);
                    tracing::info!(source = %source.name, records, now, "deleted what a journal had to keep no longer");
                }
            }
        }
        let mut inner = self.committer.lock();
        inner.figures.committed = start.cycle;
        inner.figures.took = at.elapsed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;

    use thalweg_flow::SourcePosition;
    use thalweg_storage::log::{Durability, Log, LogOptions, Registration, RetentionPolicy};
    use thalweg_storage::{Fs, MemFs, make_dir};
    use thalweg_testing::logs;

    use super::*;

    /// A part that is prepared when the test lets it.
    struct Slow(mpsc::Receiver<Result<(), Error>>);

    impl CyclePart for Slow {
        fn prepare(&mut self) -> Result<Vec<u8>, Error> {
            self.0.recv().unwrap_or(Ok(()))?;
            Ok(b"here".to_vec())
        }
    }

    fn work(fs: &Arc<MemFs>) -> CommitWork {
        let fs = Arc::clone(fs) as Arc<dyn Fs>;
        make_dir(fs.as_ref(), Path::new("job")).unwrap();
        let group = GroupCommit::start(Duration::ZERO).unwrap();
        let order = Log::open(Arc::clone(&fs), "job/order", LogOptions::new("order", 1)).unwrap().log;
        let order = group.register(order, Registration::new(Durability::Written)).unwrap();
        let place = Arc::new(OrderPlace::new(LogPosition(0), Vec::new(), Vec::new()));
        let numbers = SourceNumbers { names: vec!["in".to_owned()], places: vec![0] };
        CommitWork {
            committer: Arc::new(Committer::new(place, Interrupt::default())),
            log: CommitLog::open(fs, "job/commit.log", 7).unwrap().log,
            first: None,
            order,
            listeners: Vec::new(),
            journals: vec![None],
            numbers,
            identity: serde_json::Value::Null,
            lock: None,
            _group: Arc::new(group),
        }
    }

    fn start(cycle: u64) -> CycleStart {
        let sources = vec![SourcePosition { next: cycle * 10, place: vec![1] }];
        CycleStart { cycle, next: cycle * 100, now: 5, sources }
    }

    fn last(fs: &Arc<MemFs>) -> Option<CommitRecord> {
        let opened = CommitLog::open(Arc::clone(fs) as Arc<dyn Fs>, "job/commit.log", 7).unwrap();
        opened.last.map(|record| CommitRecord::decode(&record).unwrap())
    }

    #[test]
    fn a_record_is_written_when_every_part_is_durable_and_markers_wait_for_it() {
        let fs = Arc::new(MemFs::new());
        let mut work = work(&fs);
        let committer = Arc::clone(&work.committer);
        let tasks: Vec<Task> = vec![("a".into(), 0), ("a".into(), 1)];
        committer.expect(tasks.clone());
        let part = |cycle: u64, task: u32| {
            let (go, slow) = mpsc::channel();
            committer.part(&tasks[0].0, task, cycle, Box::new(Slow(slow)));
            go
        };
        assert!(committer.may_begin());
        committer.begin(start(1));
        let first = part(1, 0);
        assert!(!committer.may_begin(), "a part is missing");
        let second = part(1, 1);
        assert!(committer.may_begin());
        committer.begin(start(2));
        let more = [part(2, 0), part(2, 1)];
        assert!(!committer.may_begin(), "two cycles are open");
        assert_eq!(committer.figures().held_back, 2);

        let thread = std::thread::spawn(move || {
            for _ in 0..2 {
                let cycle = work.committer.next().unwrap();
                work.commit(cycle).unwrap();
            }
        });
        first.send(Ok(())).unwrap();
        assert!(last(&fs).is_none(), "one part of two is no cycle");
        second.send(Ok(())).unwrap();
        drop(more);
        thread.join().unwrap();
        assert!(committer.may_begin());
        assert_eq!(committer.figures().committed, 2);
        fs.crash();
        let record = last(&fs).unwrap();
        assert_eq!((record.cycle, record.next, record.now), (2, 200, 5));
        assert_eq!(record.sources[0].next, 20);
        assert_eq!(record.part("a", 1), Some(b"here".to_vec()));
        committer.end();
        assert!(committer.next().is_none(), "there is no cycle after the last");
    }

    #[test]
    fn a_cycle_that_grows_is_told_of_once_while_it_does_and_when_it_is_over() {
        let fs = Arc::new(MemFs::new());
        let mut work = work(&fs);
        let committer = Arc::clone(&work.committer);
        committer.expect(Vec::new());
        for cycle in [1, 2] {
            assert!(committer.may_begin());
            committer.begin(start(cycle));
        }
        let asked = |may: bool| logs::said_here(|| assert_eq!(committer.may_begin(), may));
        assert_eq!(asked(false), "", "it may be over in a moment");
        committer.lock().held_back = Some(Instant::now().checked_sub(WORTH_SAYING).unwrap());
        let said = asked(false);
        assert!(said.contains("WARN") && said.contains("the present cycle grows until"), "{said}");
        assert_eq!(asked(false), "", "once is enough");
        let cycle = committer.next().unwrap();
        work.commit(cycle).unwrap();
        let said = asked(true);
        assert!(said.contains("cycles are committed again") && said.contains("waited="), "{said}");
        assert_eq!(asked(true), "");
    }

    #[test]
    fn a_journal_keeps_what_its_retention_says_and_what_no_cycle_has_committed() {
        const HOUR: Duration = Duration::from_secs(3600);
        let left = |retention: RetentionPolicy, committed: u64| {
            let fs = Arc::new(MemFs::new());
            let mut work = work(&fs);
            let options = LogOptions { segment_bytes: 300, ahead_bytes: 0, ..LogOptions::new("journal", 2) };
            let log = Log::open(Arc::clone(&fs) as Arc<dyn Fs>, "job/journal", options).unwrap().log;
            let log = work._group.register(log, Registration::new(Durability::Written)).unwrap();
            for _ in 0..20 {
                log.append(&[&[7; 100]]).unwrap();
                log.sync().unwrap();
            }
            work.journals = vec![Some(Journal { log: log.clone(), retention, clock: Default::default() })];
            let place = LogPosition(committed).0.to_le_bytes().to_vec();
            let sources = vec![SourcePosition { next: committed, place }];
            work.committer.begin(CycleStart { cycle: 1, next: committed, now: 5, sources });
            let cycle = work.committer.next().unwrap();
            work.commit(cycle).unwrap();
            log.first().unwrap().0
        };
        let keep = |max_age, max_bytes| RetentionPolicy { max_age, max_bytes };
        assert_eq!(left(keep(Some(HOUR), None), 20), 0, "all of it is younger");
        let by_default = left(keep(Some(Duration::ZERO), None), 20);
        assert!((15..=20).contains(&by_default), "{by_default}");
        let by_size = left(keep(Some(HOUR), Some(1_000)), 20);
        assert!(by_size > 5 && by_size < by_default, "{by_size}");
        assert!(left(keep(Some(Duration::ZERO), Some(0)), 4) <= 4, "the rest is not committed");
    }

    #[test]
    fn what_fails_is_named_and_leaves_the_record_before() {
        let fs = Arc::new(MemFs::new());
        let mut work = work(&fs);
        let committer = Arc::clone(&work.committer);
        committer.expect(vec![("sink".into(), 0)]);
        for (cycle, outcome) in [(1, Ok(())), (2, Err(Error::external("the database is gone")))] {
            committer.begin(start(cycle));
            let (go, slow) = mpsc::channel();
            committer.part(&"sink".into(), 0, cycle, Box::new(Slow(slow)));
            go.send(outcome).unwrap();
        }
        let cycle = committer.next().unwrap();
        work.commit(cycle).unwrap();
        let cycle = committer.next().unwrap();
        let error = work.commit(cycle).unwrap_err();
        assert_eq!(error.chain(), "operator \"sink\" task 0: the database is gone");
        assert_eq!(last(&fs).unwrap().cycle, 1);
        committer.begin(start(3));
        committer.stop();
        assert!(committer.next().is_none(), "nobody waits for parts of a job that failed");
    }
}
