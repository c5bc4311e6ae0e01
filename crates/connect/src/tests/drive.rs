//! Drives a sink as its task would: never more than it is ready for.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, StringViewArray};
use thalweg_flow::{CyclePart, InputId, Operator, TaskInfo, Waker, collect, collect_with_parts};
use thalweg_types::{Batch, Error, Rejects, Schema, SeqRange, Seqs};

use super::{options, schema};
use crate::{OptionValue, Registry, SinkContext, SinkPlugin, SinkReport, SinkResume};

const INPUT: InputId = InputId { port: 0, task: 0 };

/// No test waits longer.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// A sink under test, and how much it has held at most.
pub(super) struct Driven {
    pub(super) sink: Box<dyn Operator>,
    pub(super) report: SinkReport,
    pub(super) most_bytes: usize,
    next: u64,
    waker: Waker,
    woken: Receiver<()>,
}

pub(super) fn numbers() -> Schema {
    schema("host: string; n: int64")
}

pub(super) fn context(
    schema: &Schema,
    entries: &[(&str, OptionValue)],
    durable: Option<SinkResume>,
) -> SinkContext {
    SinkContext {
        job: "test".into(),
        name: "answers".into(),
        schema: schema.clone(),
        format: None,
        follows: false,
        options: options(entries),
        report: SinkReport::default(),
        data_dir: std::path::PathBuf::new(),
        durable,
        unit: None,
    }
}

impl Driven {
    pub(super) fn new(name: &str, context: SinkContext) -> Self {
        Self::try_new(name, context).expect("a sink that can be opened")
    }

    pub(super) fn try_new(name: &str, context: SinkContext) -> Result<Self, Error> {
        Self::of(&**Registry::builtin().sink(name).expect("a sink of this build"), context)
    }

    pub(super) fn of(plugin: &dyn SinkPlugin, context: SinkContext) -> Result<Self, Error> {
        let report = context.report.clone();
        let factory = plugin.build(context)?;
        let info = TaskInfo::alone("test", "answers");
        let (wake, woken) = channel();
        let wake = Mutex::new(wake);
        let waker = Waker::new(move || {
            let _ = wake.lock().expect("nobody panics with it").send(());
        });
        Ok(Self { sink: factory(&info)?, report, most_bytes: 0, next: 0, waker, woken })
    }

    /// Whether the sink takes more now.
    pub(super) fn is_ready(&mut self) -> bool {
        self.sink.is_ready(&self.waker)
    }

    fn wait_until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut dyn Operator, &Waker) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        while !done(&mut *self.sink, &self.waker)? {
            self.woken.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("the sink is not {what}"));
        }
        Ok(())
    }

    /// Goes back, as a job does that repeats the rows that were not committed.
    pub(super) fn go_on_at(&mut self, next: u64) {
        self.next = next;
    }

    /// Gives the next `count` numbers as one batch, once the sink is ready.
    pub(super) fn give(&mut self, count: u64) -> Result<(), Error> {
        let first = self.next;
        self.next += count;
        self.give_batch(numbered(first, count))
    }

    pub(super) fn give_batch(&mut self, batch: Batch) -> Result<(), Error> {
        self.wait_until("ready", |sink, waker| Ok(sink.is_ready(waker)))?;
        let range = batch.range();
        collect(|out| self.sink.process(INPUT, batch, out))?;
        collect(|out| self.sink.complete(range, out))?;
        self.most_bytes = self.most_bytes.max(self.sink.state_bytes());
        Ok(())
    }

    /// As [`Driven::give_batch`]; the reasons of the rows that it rejects.
    pub(super) fn give_rows(&mut self, batch: Batch) -> Result<Vec<String>, Error> {
        self.wait_until("ready", |sink, waker| Ok(sink.is_ready(waker)))?;
        let range = batch.range();
        let emitted = collect(|out| self.sink.process(INPUT, batch, out))?;
        collect(|out| self.sink.complete(range, out))?;
        let reasons = emitted.iter().flat_map(|(_, rejects)| {
            let all = Rejects::of(rejects);
            rejects.row_numbers().map(move |row| all.get(row).reason.to_owned()).collect::<Vec<_>>()
        });
        Ok(reasons.collect())
    }

    /// Marks the end of a cycle and gives the sink's part of it.
    pub(super) fn mark(&mut self, cycle: u64) -> Result<Box<dyn CyclePart>, Error> {
        self.wait_until("ready", |sink, waker| Ok(sink.is_ready(waker)))?;
        let (_, mut parts) = collect_with_parts(|out| self.sink.cycle(cycle, out))?;
        assert_eq!(parts.len(), 1, "each cycle has one part");
        assert_eq!(parts[0].0, cycle);
        Ok(parts.remove(0).1)
    }

    /// Ends a cycle as a job does: its part is prepared, and its position is returned.
    pub(super) fn commit(&mut self, cycle: u64) -> Result<SinkResume, Error> {
        let position = self.mark(cycle)?.prepare()?;
        Ok(SinkResume { cycle, position: Some(position), ..SinkResume::default() })
    }

    pub(super) fn tick(&mut self) -> Result<(), Error> {
        collect(|out| self.sink.tick(0, out)).map(|_| ())
    }

    /// Ticks until the sink tells why it has failed.
    pub(super) fn failure(&mut self) -> Error {
        let deadline = std::time::Instant::now() + LIMIT;
        loop {
            if let Err(error) = self.tick() {
                return error;
            }
            assert!(std::time::Instant::now() < deadline, "the sink does not fail");
            std::thread::yield_now();
        }
    }

    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.wait_until("ready", |sink, waker| Ok(sink.is_ready(waker)))?;
        collect(|out| self.sink.finish(out))?;
        self.wait_until("drained", |sink, waker| sink.is_drained(waker))
    }
}

pub(super) fn numbered(first: u64, count: u64) -> Batch {
    let counts: ArrayRef = Arc::new((first..first + count).map(|n| n as i64).collect::<Int64Array>());
    let hosts: ArrayRef = Arc::new(StringViewArray::from_iter_values(
        (first..first + count).map(|n| format!("host-{}", n % 7)),
    ));
    let records = crate::source::record_batch(&numbers(), vec![hosts, counts], count as usize)
        .expect("columns of the schema");
    let times: Vec<i64> = (first..first + count).map(|n| n as i64).collect();
    Batch::new(SeqRange::new(first, first + count), records, times.into(), Seqs::Dense(first))
}
