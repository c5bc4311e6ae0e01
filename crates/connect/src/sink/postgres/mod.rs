//! Records into a table of PostgreSQL, by COPY.
//!
//! Exactly-once in a durable job: the rows of a cycle are one transaction, which also writes the number of the cycle into
//! a table beside them (`thalweg_cycles`; one row per job and sink). Rows stream into the open transaction as they come;
//! the commit of the cycle commits it. A connection that breaks, during COMMIT too, is made again, and the cycle table
//! says whether the transaction happened; if not, all rows of the cycle are sent again. Cycles that come again after a
//! restart are dropped where the table has them.
//!
//! So the rows of a cycle are kept until it is committed, up to `cycle_bytes`: well below that the sink asks for the end of
//! the cycle, then it holds the sources until the marker comes (`pace`). A cycle that is longer all the same fails the job.
//! (Rows could go to a file, but a transaction that long holds up the database, too: shorter cycles are the answer.)
//!
//! In a job that does not outlive its process there is a transaction per flush, and rows whose COMMIT nobody has heard of
//! are sent again and counted: at-least-once.
//!
//! A field is the column of its name; those of structs have `_` for the dot (`card_1h_spent`), which needs no quotes in
//! SQL. Fields that are left out where they are null are no columns.
//!
//! Not here: values as text (`row`), connections and transactions (`session`), when they begin and end (`writer`).

mod pace;
mod row;
mod session;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use thalweg_flow::{CyclePart, InputId, Operator, Output, TaskFactory, Waker};
use thalweg_types::{Batch, Error, Micros, Schema, SeqRange};
use tokio::sync::watch;

use self::pace::{Ask, Pace};
use self::row::RowEncoder;
use self::session::Target;
use self::writer::Writer;
use super::only_task;
use super::outbox::{Courier, Outbox, QUEUE, queue_bytes, size, stopped};
use super::retry::{RETRY_FOR, RETRY_WAIT, Retry, zeros};
use crate::{Mistake, OptionKind, OptionSpec, Options, SinkContext, SinkPlugin, SinkReport};

/// Bytes that gather in the operator while something is under way.
const GATHER: usize = 64 << 10;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        key: "url",
        kind: OptionKind::Url,
        required: true,
        default: None,
        doc: "where the database is, such as postgres://me@127.0.0.1:5432/shop; without the password",
    },
    OptionSpec {
        key: "password",
        kind: OptionKind::Secret,
        required: false,
        default: None,
        doc: "env:NAME or file:PATH of the password",
    },
    OptionSpec {
        key: "table",
        kind: OptionKind::Text,
        required: true,
        default: None,
        doc: "the table to write to, with its schema where that is not on the search path; it has to exist",
    },
    OptionSpec {
        key: "cycles_table",
        kind: OptionKind::Text,
        required: false,
        default: Some("thalweg_cycles"),
        doc: "the table that remembers which cycles have been written; made where it is missing",
    },
    OptionSpec {
        key: "cycle_bytes",
        kind: OptionKind::Size,
        required: false,
        default: Some("64MiB"),
        doc: "bytes of a cycle that may be kept until it is committed; from a quarter of it the cycle ends early, from half on \
              sources wait for its end",
    },
    QUEUE,
    RETRY_FOR,
    RETRY_WAIT,
];

/// The plug-in.
pub struct PostgresPlugin;

impl SinkPlugin for PostgresPlugin {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn doc(&self) -> &'static str {
        "records into a table of PostgreSQL"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn guarantee(&self) -> &'static str {
        "exactly-once with a data directory, else at-least-once"
    }

    fn check(&self, schema: &Schema, options: &Options) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if let Err(error) = Target::check(options) {
            mistakes.push(Mistake::new("url", error));
        }
        if let Err(error) = RowEncoder::new(schema) {
            mistakes.push(Mistake::new("type", error));
        }
        for key in ["table", "cycles_table"] {
            if let Some(name) = options.text(key)
                && let Err(error) = session::quoted_table(key, name)
            {
                mistakes.push(Mistake::new(key, error));
            }
        }
        mistakes.extend(zeros(options, &[&RETRY_WAIT]));
        mistakes
    }

    fn probe(&self, context: &SinkContext) -> Result<(), Error> {
        target(context).map(drop)
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        let target = target(&context)?;
        Ok(Box::new(move |info| {
            only_task(&context, info)?;
            Ok(Box::new(PostgresSink::new(&context, target.clone())?))
        }))
    }
}

/// The table of a job file, with the password looked up.
fn target(context: &SinkContext) -> Result<Target, Error> {
    let named = |error: Error| error.context(format!("sink {:?}", context.name));
    let columns = RowEncoder::new(&context.schema).map_err(named)?.columns();
    Target::new(context, &columns).map_err(named)
}

/// What is handed over to the I/O runtime.
enum Item {
    Rows {
        text: Bytes,
        rows: u64,
    },
    /// The end of a cycle.
    Marker(u64),
}

/// What the operator, the parts of its cycles and the writer's task have in common.
struct Shared {
    outbox: Arc<Outbox<Item>>,
    /// The last cycle that may be committed.
    may_commit: watch::Sender<u64>,
    /// The last cycle with rows that was; release where it is written, acquire where it is read.
    committed: Arc<AtomicU64>,
    _courier: Courier,
}

struct PostgresSink {
    encoder: RowEncoder,
    gathered: Vec<u8>,
    rows: u64,
    shared: Arc<Shared>,
    report: SinkReport,
    /// `None` in a job that does not outlive its process, which keeps no cycles.
    pace: Option<Pace>,
    /// Rows stand behind the last marker.
    is_open: bool,
}

impl PostgresSink {
    fn new(context: &SinkContext, target: Target) -> Result<Self, Error> {
        let options = &context.options;
        let outbox = Arc::new(Outbox::new(queue_bytes(options)));
        let committed = Arc::new(AtomicU64::new(0));
        let (may_commit, may) = watch::channel(0);
        // The name spreads the waits of the sinks of a job, the address of the outbox those of processes.
        let seed = thalweg_types::hash_bytes(context.name.as_bytes()) ^ Arc::as_ptr(&outbox).addr() as u64;
        let cycle_bytes = size(options, "cycle_bytes", 64 << 20);
        let writer = Writer::new(writer::Settings {
            outbox: Arc::clone(&outbox),
            target,
            retry: Retry::new(&context.name, options, seed),
            report: context.report.clone(),
            cycle_bytes,
            may_commit: may,
            committed: Arc::clone(&committed),
        });
        let courier = match &context.durable {
            Some(resume) => Courier::start(&outbox, writer.by_cycle(writer::Start::of(resume)?))?,
            None => Courier::start(&outbox, writer.by_flush())?,
        };
        Ok(Self {
            encoder: RowEncoder::new(&context.schema)?,
            gathered: Vec::new(),
            rows: 0,
            shared: Arc::new(Shared { outbox, may_commit, committed, _courier: courier }),
            report: context.report.clone(),
            pace: context.durable.as_ref().map(|_| Pace::new(cycle_bytes)),
            is_open: false,
        })
    }

    fn hand_over(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        // What has failed is about rows that were handed over before.
        out.working_on_no_record();
        if self.gathered.is_empty() {
            return self.shared.outbox.check();
        }
        let text = Bytes::from(std::mem::take(&mut self.gathered));
        let bytes = text.len();
        self.shared.outbox.push(Item::Rows { text, rows: std::mem::take(&mut self.rows) }, bytes).map(|_| ())
    }
}

impl Operator for PostgresSink {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let before = self.gathered.len();
        self.encoder.encode(&batch, &mut self.gathered).map_err(|refused| {
            out.working_on(batch.seq(refused.row));
            refused.error
        })?;
        if let Some(pace) = &mut self.pace {
            pace.add(self.gathered.len() - before);
        }
        self.rows += batch.len() as u64;
        self.is_open = true;
        self.report.add_records(batch.len() as u64);
        if self.gathered.len() >= GATHER { self.hand_over(out) } else { Ok(()) }
    }

    fn complete(&mut self, _: SeqRange, out: &mut Output<'_>) -> Result<(), Error> {
        match self.pace.as_mut().and_then(Pace::ask) {
            Some(Ask::EndOfCycle) => out.hasten_cycle(),
            Some(Ask::Hold) => out.hold_sources(),
            None => {}
        }
        // While something is under way rows gather, so that the next transaction or message takes more of them.
        if !self.gathered.is_empty() && self.shared.outbox.is_idle() { self.hand_over(out) } else { Ok(()) }
    }

    fn tick(&mut self, _: Micros, out: &mut Output<'_>) -> Result<(), Error> {
        self.hand_over(out)
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        self.hand_over(out)?;
        self.is_open = false;
        if let Some(pace) = &mut self.pace {
            pace.begin_cycle();
            let number = self.shared.outbox.push(Item::Marker(cycle), 0)?;
            out.hand_over(cycle, Box::new(PostgresPart { shared: Arc::clone(&self.shared), cycle, number }));
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        self.hand_over(out)?;
        if self.takes_part() && self.is_open {
            return Err(Error::internal("records came behind the last cycle, so no commit would have them"));
        }
        self.shared.outbox.close();
        Ok(())
    }

    fn takes_part(&self) -> bool {
        self.pace.is_some()
    }

    fn is_ready(&mut self, waker: &Waker) -> bool {
        self.shared.outbox.has_room(waker)
    }

    fn is_drained(&mut self, waker: &Waker) -> Result<bool, Error> {
        self.shared.outbox.is_drained(waker)
    }

    fn state_bytes(&self) -> usize {
        self.gathered.capacity() + self.shared.outbox.bytes()
    }
}

impl Drop for PostgresSink {
    /// Who still waits for something, a part of a cycle, waits for nothing any more.
    fn drop(&mut self) {
        self.shared.outbox.fail(stopped());
    }
}

/// Commits the transaction of its cycle, and waits for that.
struct PostgresPart {
    shared: Arc<Shared>,
    cycle: u64,
    /// Of the cycle's marker in the outbox.
    number: u64,
}

impl CyclePart for PostgresPart {
    /// The position is the last cycle that has rows in the table (8 bytes, little-endian).
    fn prepare(&mut self) -> Result<Vec<u8>, Error> {
        self.shared.may_commit.send_modify(|may| *may = self.cycle.max(*may));
        self.shared.outbox.wait_for(self.number)?;
        Ok(self.shared.committed.load(Ordering::Acquire).to_le_bytes().to_vec())
    }
}
