//! Small graphs out of closures, a source of numbers that a test can hold and let go, and a sink that records.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use thalweg_flow::{
    Command, Cycles, Decoded, Decoder, Durability, DurableOrder, Followed, Graph, Input, InputId, InputOrder,
    Job, JobHold, JobOptions, JobState, LastCommit, LeftBlock, ManualClock, NodeId, Operator, OperatorNode,
    OrderEntry, OrderLog, Output, Partitioning, Payload, Poll, RawBlock, ReplayRun, Runtime, Schedule,
    Source, SourceNode, SourcePosition, SourceProgress, TaskInfo, Waker,
};
use thalweg_types::{
    Batch, DataType, Error, Field, Micros, Reject, RejectsBuilder, Schema, Seq, SeqRange, Seqs,
};

/// No test waits longer than this for an event; builds share their machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Rows of (number, key, value).
pub(crate) fn schema() -> Schema {
    Schema::new(vec![
        Field::new("n", DataType::Int64),
        Field::new("k", DataType::Int64),
        Field::new("v", DataType::Int64),
    ])
}

pub(crate) const KEYS: i64 = 13;

pub(crate) fn key_of(n: i64) -> i64 {
    n * 7919 % KEYS
}

/// A row with its order number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) seq: Seq,
    pub(crate) n: i64,
    pub(crate) k: i64,
    pub(crate) v: i64,
}

pub(crate) fn rows(batch: &Batch) -> Vec<Row> {
    let column = |index: usize| batch.column(index).as_primitive::<Int64Type>();
    let (n, k, v) = (column(0), column(1), column(2));
    batch
        .row_numbers()
        .map(|row| {
            let at = row as usize;
            assert_eq!(batch.times()[at], n.value(at), "event times travel with their rows");
            Row { seq: batch.seq(row), n: n.value(at), k: k.value(at), v: v.value(at) }
        })
        .collect()
}

pub(crate) fn batch_of(rows: &[Row], range: SeqRange) -> Batch {
    let column = |of: fn(&Row) -> i64| Arc::new(rows.iter().map(of).collect::<Int64Array>());
    let records = RecordBatch::try_new(
        Arc::clone(schema().arrow()),
        vec![column(|row| row.n), column(|row| row.k), column(|row| row.v)],
    )
    .unwrap();
    let times: Vec<Micros> = rows.iter().map(|row| row.n).collect();
    Batch::new(range, records, times.into(), Seqs::Each(rows.iter().map(|row| row.seq).collect()))
}

/// What a test and its source share: how many records the source may give.
#[derive(Clone, Default)]
pub(crate) struct Tap(Arc<TapState>);

#[derive(Default)]
struct TapState {
    allowed: AtomicU64,
    waker: Mutex<Option<Waker>>,
    dropped: AtomicBool,
}

impl Tap {
    /// Lets the source give records up to this number.
    pub(crate) fn allow(&self, records: u64) {
        self.0.allowed.store(records, Ordering::Release);
        if let Some(waker) = &*self.0.waker.lock().unwrap() {
            waker.wake();
        }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.0.dropped.load(Ordering::Acquire)
    }
}

/// Gives the numbers from 0 on, in blocks of `block`.
pub(crate) struct Numbers {
    pub(crate) tap: Tap,
    pub(crate) total: Option<u64>,
    pub(crate) block: u32,
    pub(crate) next: u64,
    /// What an earlier run took in and no entry names.
    pub(crate) left: VecDeque<LeftBlock>,
    pub(crate) tells_order: bool,
    draining: bool,
}

impl Numbers {
    fn new(total: Option<u64>, allowed: u64) -> Self {
        let tap = Tap::default();
        tap.allow(allowed);
        Self { tap, total, block: 100, next: 0, left: VecDeque::new(), tells_order: false, draining: false }
    }

    pub(crate) fn up_to(total: u64) -> Self {
        Self::new(Some(total), total)
    }

    pub(crate) fn endless() -> Self {
        Self::new(None, u64::MAX)
    }

    pub(crate) fn tapped() -> (Self, Tap) {
        let numbers = Self::new(None, 0);
        let tap = numbers.tap.clone();
        (numbers, tap)
    }

    pub(crate) fn in_blocks_of(mut self, block: u32) -> Self {
        self.block = block;
        self
    }
}

impl Source for Numbers {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        *self.tap.0.waker.lock().unwrap() = Some(waker);
        Ok(())
    }

    fn tells_order(&self) -> bool {
        self.tells_order
    }

    fn left(&mut self) -> Result<Option<LeftBlock>, Error> {
        let left = self.left.pop_front();
        if let Some(left) = &left {
            assert_eq!(left.block.first, self.next, "after the blocks that were followed, or taken before");
        }
        Ok(left)
    }

    fn sequenced(&mut self, block: &RawBlock, _range: SeqRange) {
        self.next = block.first + u64::from(block.count);
    }

    fn poll(&mut self, _max_bytes: usize, _now: Micros) -> Result<Poll, Error> {
        assert!(self.left.is_empty(), "left blocks come first");
        if self.draining || self.total == Some(self.next) {
            return Ok(Poll::End);
        }
        let allowed = self.tap.0.allowed.load(Ordering::Acquire);
        let allowed = self.total.map_or(allowed, |total| total.min(allowed));
        let count = allowed.saturating_sub(self.next).min(u64::from(self.block)) as u32;
        if count == 0 {
            return Ok(Poll::Pending);
        }
        let block = RawBlock { partition: 0, first: self.next, count, payload: Payload::Offsets };
        self.next += u64::from(count);
        Ok(Poll::Block(block))
    }

    fn drain(&mut self) {
        self.draining = true;
    }

    fn progress(&self) -> Option<SourceProgress> {
        Some(SourceProgress { done: self.next, total: self.total })
    }

    fn position(&self) -> SourcePosition {
        SourcePosition { next: self.next, place: b"here".to_vec() }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        assert_eq!(position.place, b"here");
        self.next = position.next;
        Ok(())
    }

    fn replay(&mut self, run: ReplayRun, _max_bytes: usize) -> Result<RawBlock, Error> {
        assert_eq!(run.first, self.next, "it is asked for the next records");
        let count = run.count.min(u64::from(self.block)) as u32;
        self.next += u64::from(count);
        Ok(RawBlock { partition: 0, first: run.first, count, payload: Payload::Offsets })
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.tap.0.dropped.store(true, Ordering::Release);
    }
}

/// Row n, key, 0; numbers whose last two digits are 99 are rejected.
pub(crate) struct DecodeNumbers;

impl Decoder for DecodeNumbers {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, _arrival: Micros) -> Result<Decoded, Error> {
        let all: Vec<Row> = (0..u64::from(block.count))
            .map(|index| {
                let n = (block.first + index) as i64;
                Row { seq: range.start + index, n, k: key_of(n), v: 0 }
            })
            .collect();
        let (bad, good): (Vec<Row>, Vec<Row>) = all.into_iter().partition(|row| row.n % 100 == 99);
        let rejects = (!bad.is_empty()).then(|| reject_batch(&bad, range));
        Ok(Decoded::new(batch_of(&good, range)).with_rejects(rejects))
    }
}

fn reject_batch(rows: &[Row], range: SeqRange) -> Batch {
    let mut rejects = RejectsBuilder::default();
    for row in rows {
        let reject = Reject {
            source: "numbers",
            offset: row.n as u64,
            line: None,
            code: "parse",
            reason: "ends in 99",
            raw: b"99",
        };
        rejects.push(row.seq, row.n, reject);
    }
    rejects.finish(range)
}

pub(crate) fn is_good(n: i64) -> bool {
    n % 100 != 99
}

/// A graph that grows; links get the settings that `tune` makes.
pub(crate) struct Build {
    pub(crate) graph: Graph,
    pub(crate) buffer: usize,
    pub(crate) flush: Duration,
}

impl Build {
    pub(crate) fn new(job: &str) -> Self {
        let graph = Graph { job: job.into(), sources: Vec::new(), operators: Vec::new() };
        Self { graph, buffer: Input::DEFAULT_BUFFER, flush: Duration::ZERO }
    }

    pub(crate) fn numbers(&mut self, name: &str, source: Numbers, parallelism: u32) -> NodeId {
        self.source(name, source, parallelism, |_| Box::new(DecodeNumbers))
    }

    pub(crate) fn source(
        &mut self,
        name: &str,
        source: impl Source + 'static,
        parallelism: u32,
        decoder: impl Fn(&TaskInfo) -> Box<dyn Decoder> + Send + Sync + 'static,
    ) -> NodeId {
        self.graph.sources.push(SourceNode {
            name: name.into(),
            source: Box::new(source),
            by_time: false,
            decoder: Box::new(move |info| Ok(decoder(info))),
            parallelism,
            schema: schema(),
            others: Vec::new(),
        });
        NodeId::Source(self.graph.sources.len() - 1)
    }

    pub(crate) fn input(&self, from: NodeId, partitioning: Partitioning) -> Input {
        Input { buffer: self.buffer, flush: self.flush, ..Input::new(from, 0, partitioning) }
    }

    /// An operator with one output.
    pub(crate) fn operator<O: Operator + 'static>(
        &mut self,
        name: &str,
        inputs: Vec<Input>,
        tasks: u32,
        make: impl Fn(&TaskInfo) -> O + Send + Sync + 'static,
    ) -> NodeId {
        self.graph.operators.push(OperatorNode {
            name: name.into(),
            inputs,
            outputs: vec![schema()],
            factory: Box::new(move |info| Ok(Box::new(make(info)) as Box<dyn Operator>)),
            tasks,
            parallelism: None,
            schedule: Schedule::default(),
            publishes: false,
            apart: false,
        });
        NodeId::Operator(self.graph.operators.len() - 1)
    }

    /// An operator that makes one row of one row, or none.
    pub(crate) fn each(
        &mut self,
        name: &str,
        inputs: Vec<Input>,
        tasks: u32,
        map: impl Fn(&TaskInfo, Row) -> Option<Row> + Clone + Send + Sync + 'static,
    ) -> NodeId {
        self.operator(name, inputs, tasks, move |info| {
            let (info, map) = (info.clone(), map.clone());
            Each(Box::new(move |row| map(&info, row)))
        })
    }

    pub(crate) fn record(&mut self, name: &str, inputs: Vec<Input>, tasks: u32) -> Records {
        let records = Records::default();
        let shared = records.clone();
        self.operator(name, inputs, tasks, move |info| Recorder::new(info, &shared));
        records
    }
}

type RowMap = Box<dyn Fn(Row) -> Option<Row> + Send>;

/// Names the record that it works on.
pub(crate) struct Each(pub(crate) RowMap);

impl Operator for Each {
    fn process(&mut self, _input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let mut made = Vec::new();
        for row in rows(&batch) {
            out.working_on(row.seq);
            made.extend((self.0)(row));
        }
        out.emit(0, batch_of(&made, batch.range()));
        Ok(())
    }
}

/// Passes everything on as it comes.
pub(crate) struct Pass;

impl Operator for Pass {
    fn process(&mut self, _input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        out.emit(0, batch);
        Ok(())
    }
}

/// What a recorder saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Row(InputId, Row),
    /// Size of a batch that was given.
    Batch(usize),
    Tick(Seq, Micros),
    Cycle(Seq, u64),
    Command(Seq, String),
    Finish(Seq),
}

/// What the tasks of a recording sink saw, by task.
#[derive(Clone, Default)]
pub(crate) struct Records(Arc<(Mutex<Vec<Vec<Event>>>, Condvar)>);

impl Records {
    pub(crate) fn of_task(&self, task: usize) -> Vec<Event> {
        self.0.0.lock().unwrap().get(task).cloned().unwrap_or_default()
    }

    /// (n, k, v) of the rows of a task, in order.
    pub(crate) fn rows(&self, task: usize) -> Vec<(i64, i64, i64)> {
        let row = |event| match event {
            Event::Row(_, row) => Some((row.n, row.k, row.v)),
            _ => None,
        };
        self.of_task(task).into_iter().filter_map(row).collect()
    }

    pub(crate) fn all_rows(&self) -> Vec<(i64, i64, i64)> {
        let tasks = self.0.0.lock().unwrap().len();
        (0..tasks).flat_map(|task| self.rows(task)).collect()
    }

    /// Waits until the sink has seen something.
    pub(crate) fn wait_until(&self, what: &str, mut seen: impl FnMut(&[Vec<Event>]) -> bool) {
        let (lock, changed) = &*self.0;
        let guard = lock.lock().unwrap();
        let (_guard, timeout) = changed.wait_timeout_while(guard, LIMIT, |events| !seen(events)).unwrap();
        assert!(!timeout.timed_out(), "{what} did not happen");
    }
}

pub(crate) struct Recorder {
    task: usize,
    records: Records,
    /// The end of the records that it was given, once it was given some.
    last: Option<Seq>,
    pub(crate) order: InputOrder,
}

impl Recorder {
    pub(crate) fn new(info: &TaskInfo, records: &Records) -> Self {
        let task = info.index as usize;
        let mut all = records.0.0.lock().unwrap();
        if all.len() <= task {
            all.resize(task + 1, Vec::new());
        }
        drop(all);
        Self { task, records: records.clone(), last: None, order: InputOrder::Merged }
    }

    fn add(&self, events: impl IntoIterator<Item = Event>) {
        self.records.0.0.lock().unwrap()[self.task].extend(events);
        self.records.0.1.notify_all();
    }
}

impl Operator for Recorder {
    fn process(&mut self, input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let rows = rows(&batch);
        assert!(!rows.is_empty(), "only batches with rows are given");
        assert!(rows.windows(2).all(|pair| pair[0].seq <= pair[1].seq), "order numbers ascend");
        assert!(rows.iter().all(|row| out.range().contains(row.seq)), "rows are in the range");
        assert!(self.last.is_none_or(|last| last == out.range().start), "ranges follow each other");
        let events = rows.into_iter().map(|row| Event::Row(input, row));
        self.add(std::iter::once(Event::Batch(batch.len())).chain(events));
        Ok(())
    }

    fn complete(&mut self, range: SeqRange, _out: &mut Output<'_>) -> Result<(), Error> {
        assert!(self.last.is_none_or(|last| last == range.start), "ranges cover the order without a gap");
        assert!(!range.is_empty());
        self.last = Some(range.end);
        Ok(())
    }

    fn tick(&mut self, now: Micros, out: &mut Output<'_>) -> Result<(), Error> {
        self.add([Event::Tick(out.range().start, now)]);
        Ok(())
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        self.add([Event::Cycle(out.range().start, cycle)]);
        Ok(())
    }

    fn command(&mut self, command: &Command, out: &mut Output<'_>) -> Result<(), Error> {
        let text = command.body.downcast_ref::<String>().unwrap().clone();
        self.add([Event::Command(out.range().start, text)]);
        Ok(())
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        assert_eq!(Some(out.range().end), self.last);
        self.add([Event::Finish(out.range().start)]);
        Ok(())
    }

    fn input_order(&self) -> InputOrder {
        self.order
    }
}

/// A runtime whose clock does not advance.
pub(crate) fn runtime(workers: usize) -> (Runtime, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_000_000));
    (Runtime::new(workers, Arc::clone(&clock) as Arc<dyn thalweg_flow::Clock>), clock)
}

/// For the operator "sink"; a log keeps it.
pub(crate) fn message(text: &str) -> Command {
    Command { operator: "sink".into(), body: Arc::new(text.to_owned()), record: Some(text.to_owned().into()) }
}

/// A job that outlives its process, as its tests want it.
pub(crate) struct Lasting {
    pub(crate) log: Box<dyn OrderLog>,
    pub(crate) with: Durability,
    pub(crate) followed: Option<Followed>,
}

impl Lasting {
    /// Only writes the order down.
    pub(crate) fn of_log(log: impl OrderLog + 'static) -> Self {
        Self { log: Box::new(log), with: Durability::default(), followed: None }
    }

    pub(crate) fn in_order(mut self, order: &Arc<DurableOrder>) -> Self {
        self.with.order = Some(Arc::clone(order));
        self
    }

    pub(crate) fn in_cycles(mut self, cycles: impl Cycles + 'static) -> Self {
        self.with.cycles = Some(Arc::new(cycles));
        self
    }

    /// Goes on after a commit, and follows what was written after it; commands are texts for the operator of
    /// [`message`].
    pub(crate) fn after(mut self, last: LastCommit, entries: Vec<OrderEntry>) -> Self {
        self.with.last = Some(last);
        let commands = Box::new(|record: &[u8]| Ok(message(std::str::from_utf8(record).unwrap())));
        self.followed = Some(Followed { entries: Box::new(entries.into_iter().map(Ok)), commands });
        self
    }

    pub(crate) fn start(self, runtime: &Runtime, graph: Graph, options: JobOptions) -> Job {
        self.start_held(runtime, graph, options).0
    }

    /// The job is held before it runs.
    pub(crate) fn start_held(self, runtime: &Runtime, graph: Graph, options: JobOptions) -> (Job, JobHold) {
        let wired = runtime.wire(graph, options, self.with).unwrap();
        let hold = wired.job().hold();
        (wired.run(AnyLog(self.log), self.followed).unwrap(), hold)
    }
}

struct AnyLog(Box<dyn OrderLog>);

impl OrderLog for AnyLog {
    fn append(&mut self, entry: OrderEntry) -> Result<(), Error> {
        self.0.append(entry)
    }

    fn append_told(&mut self, entry: OrderEntry) -> Result<(), Error> {
        self.0.append_told(entry)
    }
}

/// Neither ticks nor cycles beyond the first tick and the last cycle while the clock does not advance.
pub(crate) fn quiet() -> JobOptions {
    let mut options = JobOptions::default();
    options.cycle.every = None;
    options
}

/// Waits for the end; says where everything is if it does not come.
pub(crate) fn finish(job: &Job) -> JobState {
    job.wait_timeout(LIMIT).unwrap_or_else(|| panic!("job {} hangs: {:#?}", job.name(), job.stats()))
}

/// Waits until something that other threads do has come true.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Keeps an operator from going on until the test lets it.
#[derive(Clone, Default)]
pub(crate) struct Valve(Arc<(Mutex<u64>, Condvar)>);

impl Valve {
    pub(crate) fn open(&self, passes: u64) {
        let mut left = self.0.0.lock().unwrap();
        *left = left.saturating_add(passes);
        self.0.1.notify_all();
    }

    pub(crate) fn pass(&self) {
        let (left, changed) = &*self.0;
        let guard = left.lock().unwrap();
        let (mut left, timeout) = changed.wait_timeout_while(guard, LIMIT, |left| *left == 0).unwrap();
        assert!(!timeout.timed_out(), "the valve was never opened");
        *left -= 1;
    }
}
