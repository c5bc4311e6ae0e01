//! Collects the parts that tasks hand over at each marker, makes them durable, and writes the commit record: on a thread
//! of the job, or on one that many small jobs share.
//!
//! A cycle is committed in this order, each step done before the next begins: the order log up to the marker is
//! durable, if there is one, then every part ([`CyclePart::prepare`]), then the record that names them all, synced. Then the parts are
//! notified, and order and journal that only older commits needed are removed.
//!
//! One cycle may be on its way to the disk while the next gathers its parts. No marker is numbered while two are open, or
//! while a part is missing: the present cycle grows then, and a warning says so when it has waited for long. Nothing is
//! thrown away (S4 drops the oldest state from its queue; Vallés, 2012, section 3.2).

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
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
    /// `None` where the order is told.
    place: Option<Arc<OrderPlace>>,
    /// Of a job that is told its order: changes of its queries.
    queries: Vec<QueryChange>,
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
    /// Of the thread that commits; `None` before there is one.
    bell: Option<Bell>,
}

struct OpenCycle {
    start: CycleStart,
    /// Record of the order log after the marker; 0 without one.
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
    /// When that was.
    pub committed_at: Option<Instant>,
    /// From its marker to its commit record.
    pub took: Duration,
    /// Markers held back because earlier cycles were on their way, and for how long in all.
    pub held_back: u64,
    pub held_back_for: Duration,
}

/// The order log as commits use it.
pub(crate) struct CommittedOrder {
    pub log: LogHandle,
    /// Keeps the logs' thread.
    pub _group: Arc<GroupCommit>,
}

/// All that commits of a job need.
pub(crate) struct CommitWork {
    pub committer: Arc<Committer>,
    pub log: CommitLog,
    /// `None` where the order is told.
    pub order: Option<CommittedOrder>,
    /// Journal of each source that has one, by its place.
    pub journals: Vec<Option<Journal>>,
    /// What hears of the positions of each source, by its place.
    pub listeners: Vec<Option<CommitView>>,
    pub numbers: SourceNumbers,
    pub identity: serde_json::Value,
    /// Of the job's folder.
    pub lock: Option<Arc<JobLock>>,
}

/// What there is to do for a job.
enum Step {
    /// A cycle whose parts are all there.
    Commit(OpenCycle),
    Wait,
    /// There will be no cycle any more.
    End,
}

/// How many threads that commit have something to do.
#[derive(Debug, Default)]
pub(crate) struct Busy(AtomicUsize);

impl Busy {
    /// Whether there is none.
    pub(crate) fn is_none(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// What a thread that commits has to do. One that waits for what others have to do first has nothing.
#[derive(Debug)]
pub(crate) struct Doings {
    /// Messages that it has not done with, and whether it waits.
    has: Mutex<(usize, bool)>,
    all: Arc<Busy>,
}

impl Doings {
    fn change(&self, change: impl FnOnce(&mut (usize, bool))) {
        let mut has = self.has.lock().unwrap_or_else(PoisonError::into_inner);
        let is_busy = |has: &(usize, bool)| has.0 > 0 && !has.1;
        let before = is_busy(&has);
        change(&mut has);
        match (before, is_busy(&has)) {
            (false, true) => self.all.0.fetch_add(1, Ordering::AcqRel),
            (true, false) => self.all.0.fetch_sub(1, Ordering::AcqRel),
            _ => 0,
        };
    }

    /// The thread waits until somebody says that it goes on.
    #[cfg(feature = "cluster")]
    pub(crate) fn wait(&self) {
        self.change(|has| has.1 = true);
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn go_on(&self) {
        self.change(|has| has.1 = false);
    }

    fn sent(&self) {
        self.change(|has| has.0 += 1);
    }

    fn done(&self) {
        self.change(|has| has.0 -= 1);
    }
}

/// Tells a thread that one of its jobs may have something to commit.
struct Bell {
    to: Sender,
    job: u64,
}

/// To a thread that commits.
#[derive(Clone)]
struct Sender {
    to: mpsc::Sender<Message>,
    doings: Arc<Doings>,
}

impl Sender {
    /// Whether the thread is there.
    fn send(&self, message: Message) -> bool {
        self.doings.sent();
        let is_there = self.to.send(message).is_ok();
        if !is_there {
            self.doings.done();
        }
        is_there
    }
}

enum Message {
    Take(u64, Box<(CommitWork, JobHold)>),
    Look(u64),
    /// No more jobs come.
    Close,
}

/// A thread that commits the cycles of its jobs, one after the other. A commit that takes long holds up those of the
/// other jobs, so jobs share a thread only where they write to the same places.
///
/// Once this is dropped, the thread ends with its last job. A job has one message on its way for each cycle and for its
/// end, so what waits for the thread is bounded by its jobs.
pub(crate) struct CommitThread {
    to: Sender,
    taken: AtomicU64,
}

impl CommitThread {
    /// # Errors
    /// A lack of threads.
    pub(crate) fn start(name: String, busy: &Arc<Busy>) -> Result<Self, Error> {
        let (to, from) = mpsc::channel();
        let doings = Arc::new(Doings { has: Mutex::default(), all: Arc::clone(busy) });
        let known = Arc::clone(&doings);
        std::thread::Builder::new()
            .name(name)
            .spawn(move || commit_all(&from, &known))
            .map_err(|error| Error::external("start a thread that commits").with_source(error))?;
        let to = Sender { to, doings };
        Ok(Self { to, taken: AtomicU64::new(0) })
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn doings(&self) -> Arc<Doings> {
        Arc::clone(&self.to.doings)
    }

    /// Commits the cycles of a job, which has not ended while it is held.
    ///
    /// # Errors
    /// Of class internal where the thread has ended.
    pub(crate) fn take(&self, work: CommitWork, hold: JobHold) -> Result<(), Error> {
        // Relaxed: it only gives out numbers.
        let job = self.taken.fetch_add(1, Ordering::Relaxed);
        work.committer.lock().bell = Some(Bell { to: self.to.clone(), job });
        match self.to.send(Message::Take(job, Box::new((work, hold)))) {
            true => Ok(()),
            false => Err(Error::internal("the thread that commits has ended")),
        }
    }
}

impl Drop for CommitThread {
    fn drop(&mut self) {
        // If the thread has ended, nobody needs to be told.
        self.to.send(Message::Close);
    }
}

/// The life of a thread that commits.
fn commit_all(from: &mpsc::Receiver<Message>, doings: &Doings) {
    /// A message that the thread has done with when this is dropped.
    struct Doing<'a>(&'a Doings);

    impl Drop for Doing<'_> {
        fn drop(&mut self) {
            self.0.done();
        }
    }

    let mut works: BTreeMap<u64, Box<(CommitWork, JobHold)>> = BTreeMap::new();
    let mut is_closed = false;
    while !(is_closed && works.is_empty()) {
        let Ok(message) = from.recv() else { return };
        let _doing = Doing(doings);
        let job = match message {
            Message::Take(job, work) => {
                works.insert(job, work);
                job
            }
            Message::Look(job) => job,
            Message::Close => {
                is_closed = true;
                continue;
            }
        };
        let Some(entry) = works.get_mut(&job) else { continue };
        let (work, hold) = &mut **entry;
        // A panic is the end of this job, and of no other.
        let goes_on = catch_unwind(AssertUnwindSafe(|| work.commit_ready(hold))).unwrap_or_else(|_| {
            hold.job().fail(
                "commit",
                Error::internal("the commit panicked: its message is in the log of the process"),
            );
            false
        });
        if !goes_on && let Some(entry) = works.remove(&job) {
            let (work, hold) = *entry;
            // Files are closed before the job counts as ended.
            drop(work);
            drop(hold);
        }
    }
    // Jobs that are over ring for the last time when they are dropped.
    while from.try_recv().is_ok() {
        doings.done();
    }
}

impl Committer {
    pub(crate) fn new(
        place: Option<Arc<OrderPlace>>,
        queries: Vec<QueryChange>,
        interrupt: Interrupt,
    ) -> Self {
        Self { inner: Mutex::default(), place, queries, interrupt }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn figures(&self) -> CycleFigures {
        self.lock().figures
    }

    /// What there is to do now; the bell rings when that changes.
    fn next(&self) -> Step {
        let mut inner = self.lock();
        if inner.is_stopped {
            return Step::End;
        }
        let expected = inner.expected.len();
        match inner.open.front() {
            Some(front) if front.parts.len() == expected => {
                inner.open.pop_front().map_or(Step::Wait, Step::Commit)
            }
            None if inner.has_ended => Step::End,
            _ => Step::Wait,
        }
    }

    fn ring(&self) {
        if let Some(bell) = &self.lock().bell {
            // A thread that has ended has dropped its jobs.
            bell.to.send(Message::Look(bell.job));
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
        let (order, queries) = match &self.place {
            Some(place) => (place.next(), place.queries()),
            None => (LogPosition(0), self.queries.clone()),
        };
        let open = OpenCycle { start, order, queries, parts: BTreeMap::new(), at: Instant::now() };
        let mut inner = self.lock();
        // A job that stays to be read may still follow its order log, with a marker for every cycle in it.
        if !inner.is_stopped {
            inner.open.push_back(open);
        }
        drop(inner);
        self.ring();
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
            self.ring();
        }
    }

    fn end(&self) {
        self.lock().has_ended = true;
        self.ring();
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
        self.ring();
    }
}

impl CommitWork {
    /// Makes the job's folder count on the disk; `first` is the record of a job that is new, or has new sources: before
    /// anything else names them.
    ///
    /// # Errors
    /// The disk's errors.
    pub(crate) fn begin(&mut self, first: Option<CommitRecord>) -> Result<(), Error> {
        if let Some(first) = first {
            self.log.append(&first.encode()?)?;
        }
        // By now there is a commit log, and an order log if there is to be one.
        self.lock.as_ref().map_or(Ok(()), |lock| lock.check())
    }

    /// Commits the cycles that are whole; whether there will be more of them.
    fn commit_ready(&mut self, hold: &JobHold) -> bool {
        loop {
            match self.committer.next() {
                Step::Wait => return true,
                Step::End => return false,
                Step::Commit(cycle) => {
                    let number = cycle.start.cycle;
                    if let Err(error) = self.commit(cycle) {
                        hold.job().fail("commit", error.context(format!("commit cycle {number}")));
                        return false;
                    }
                }
            }
        }
    }

    fn commit(&mut self, cycle: OpenCycle) -> Result<(), Error> {
        let OpenCycle { start, order, queries, mut parts, at } = cycle;
        // What the cycle is made of has to come out the same again before anything depends on it.
        for journal in self.journals.iter().flatten() {
            journal.log.sync()?;
        }
        if let Some(order) = &self.order {
            order.log.sync()?;
        }
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
        if let Some(log) = &self.order {
            log.log.truncate_before(order)?;
        }
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
        inner.figures.committed_at = Some(Instant::now());
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
        let place = Some(Arc::new(OrderPlace::new(LogPosition(0), Vec::new(), Vec::new())));
        let numbers = SourceNumbers { names: vec!["in".to_owned()], places: vec![0] };
        CommitWork {
            committer: Arc::new(Committer::new(place, Vec::new(), Interrupt::default())),
            log: CommitLog::open(fs, "job/commit.log", 7).unwrap().log,
            order: Some(CommittedOrder { log: order, _group: Arc::new(group) }),
            listeners: Vec::new(),
            journals: vec![None],
            numbers,
            identity: serde_json::Value::Null,
            lock: None,
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
                let Step::Commit(cycle) = work.committer.next() else { panic!("a cycle is whole") };
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
        assert!(matches!(committer.next(), Step::End), "there is no cycle after the last");
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
        let Step::Commit(cycle) = committer.next() else { panic!("a cycle is whole") };
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
            let log = work
                .order
                .as_ref()
                .unwrap()
                ._group
                .register(log, Registration::new(Durability::Written))
                .unwrap();
            for _ in 0..20 {
                log.append(&[&[7; 100]]).unwrap();
                log.sync().unwrap();
            }
            work.journals = vec![Some(Journal { log: log.clone(), retention, clock: Default::default() })];
            let place = LogPosition(committed).0.to_le_bytes().to_vec();
            let sources = vec![SourcePosition { next: committed, place }];
            work.committer.begin(CycleStart { cycle: 1, next: committed, now: 5, sources });
            let Step::Commit(cycle) = work.committer.next() else { panic!("a cycle is whole") };
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
        let Step::Commit(cycle) = committer.next() else { panic!("a cycle is whole") };
        work.commit(cycle).unwrap();
        let Step::Commit(cycle) = committer.next() else { panic!("a cycle is whole") };
        let error = work.commit(cycle).unwrap_err();
        assert_eq!(error.chain(), "operator \"sink\" task 0: the database is gone");
        assert_eq!(last(&fs).unwrap().cycle, 1);
        committer.begin(start(3));
        committer.stop();
        assert!(matches!(committer.next(), Step::End), "nobody waits for parts of a job that failed");
    }

    /// A job that does nothing until it is aborted.
    fn idle() -> (thalweg_flow::Runtime, thalweg_flow::Job) {
        use thalweg_flow::{Decoded, Decoder, RawBlock};
        use thalweg_types::{Micros, SeqRange};

        struct Silent;
        impl Decoder for Silent {
            fn decode(&mut self, _: &RawBlock, _: SeqRange, _: Micros) -> Result<Decoded, Error> {
                unreachable!("no block comes")
            }
        }
        impl thalweg_flow::Source for Silent {
            fn poll(&mut self, _: usize, _: Micros) -> Result<thalweg_flow::Poll, Error> {
                Ok(thalweg_flow::Poll::Pending)
            }

            fn drain(&mut self) {}
        }
        let source = thalweg_flow::SourceNode {
            name: "in".into(),
            source: Box::new(Silent),
            by_time: false,
            decoder: Box::new(|_| Ok(Box::new(Silent))),
            parallelism: 1,
            schema: thalweg_types::Schema::new(Vec::new()),
            others: Vec::new(),
        };
        let graph = thalweg_flow::Graph { job: "idle".into(), sources: vec![source], operators: Vec::new() };
        let runtime = thalweg_flow::Runtime::new(1, Arc::new(thalweg_flow::SystemClock));
        let job = runtime.start(graph, thalweg_flow::JobOptions::default()).unwrap();
        (runtime, job)
    }

    #[test]
    fn jobs_share_a_thread_and_one_that_fails_or_panics_ends_alone() {
        struct Panics;
        impl CyclePart for Panics {
            fn prepare(&mut self) -> Result<Vec<u8>, Error> {
                panic!("planted");
            }
        }
        let thread = CommitThread::start("commit:test".to_owned(), &Arc::default()).unwrap();
        let all: Vec<_> = (0..3)
            .map(|_| {
                let fs = Arc::new(MemFs::new());
                let work = work(&fs);
                let committer = Arc::clone(&work.committer);
                committer.expect(vec![("sink".into(), 0)]);
                let (runtime, job) = idle();
                thread.take(work, job.hold()).unwrap();
                (fs, committer, runtime, job)
            })
            .collect();
        drop(thread);
        let sink: Arc<str> = "sink".into();
        let parts: [Box<dyn CyclePart>; 3] =
            [Box::new(Panics), Box::new(Slow(mpsc::channel().1)), Box::new(vec![7])];
        for ((_, committer, ..), part) in all.iter().zip(parts) {
            committer.begin(start(1));
            committer.part(&sink, 0, 1, part);
        }
        let said = |job: &thalweg_flow::Job| match job.wait() {
            thalweg_flow::JobState::Failed(failure) => failure.message,
            state => format!("{state:?}"),
        };
        assert!(said(&all[0].3).contains("the commit panicked"));
        for (fs, committer, _, job) in &all[1..] {
            committer.end();
            while last(fs).is_none() {
                std::thread::yield_now();
            }
            job.abort();
            job.wait();
        }
        assert!(last(&all[0].0).is_none());
        assert_eq!(last(&all[2].0).unwrap().part("sink", 0), Some(vec![7]));
    }
}
