//! Records into a table of PostgreSQL, by COPY.
//!
//! Exactly-once in a durable job: the rows of a cycle are one transaction, which also writes the number of the cycle
//! into a table next to them (`thalweg_cycles`; one row per job and sink). Rows stream into the open transaction as
//! they come; the commit of the cycle commits it. A connection that breaks, during COMMIT too, is made again, and the
//! cycle table says whether the transaction happened; if not, all rows of the cycle are sent again. Cycles that are
//! replayed after a restart are dropped where the table has them.
//!
//! So the rows of a cycle are kept until it is committed, up to `cycle_bytes`: well below that the sink asks for the
//! end of the cycle, then it holds the sources until the marker comes (`pace`). A cycle that is longer all the same
//! fails the job. (Rows could go to a file, but a transaction that long holds up the database, too: shorter cycles are
//! the answer.)
//!
//! In a job that does not outlive its process there is a transaction per flush, and rows whose COMMIT nobody has heard
//! of are sent again and counted: at-least-once.
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

use thalweg_flow::{Operator, Output, TaskFactory};
use thalweg_types::{Batch, Error, Schema, Seq};
use tokio::sync::watch;

use self::pace::{Ask, Pace};
use self::row::RowEncoder;
use self::session::Target;
use self::writer::Connection;
use super::only_task;
use super::outbox::{Outbox, QUEUE, queue_bytes, size};
use super::outbox_sink::{Dialect, Leaves, OutboxSink, Settlement};
use super::retry::{RETRY_FOR, RETRY_WAIT, Retry, zeros};
use super::unwritable::Refusals;
use crate::{FormatSpec, Mistake, OptionKind, OptionSpec, Options, SinkContext, SinkPlugin};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        key: "url",
        kind: OptionKind::Url,
        required: true,
        default: None,
        doc: "address of the database, such as `postgres://me@127.0.0.1:5432/shop`, without the password",
    },
    OptionSpec {
        key: "password",
        kind: OptionKind::Secret,
        required: false,
        default: None,
        doc: "password of the user",
    },
    OptionSpec {
        key: "table",
        kind: OptionKind::Text,
        required: true,
        default: None,
        doc: "table to write to, with its schema if that is not on the search path; it must exist",
    },
    OptionSpec {
        key: "cycles_table",
        kind: OptionKind::Text,
        required: false,
        default: Some("thalweg_cycles"),
        doc: "table that records the cycles that were written; it is created if it does not exist",
    },
    OptionSpec {
        key: "cycle_bytes",
        kind: OptionKind::Size,
        required: false,
        default: Some("64MiB"),
        doc: "limit for the rows of a cycle, which are kept until its commit; at a quarter of it the cycle ends early, at half of it sources wait",
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
        "records to a PostgreSQL table"
    }

    fn page(&self) -> &'static str {
        include_str!("page.md")
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

    fn rejects(&self, _: Option<&FormatSpec>) -> bool {
        true
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
            Ok(Box::new(Rows::sink(&context, target.clone())?))
        }))
    }
}

/// The table of a job file, with the password looked up.
fn target(context: &SinkContext) -> Result<Target, Error> {
    let named = |error: Error| error.context(format!("sink {:?}", context.name));
    let columns = RowEncoder::new(&context.schema).map_err(named)?.columns();
    Target::new(context, &columns).map_err(named)
}

struct Rows {
    encoder: RowEncoder,
    refusals: Refusals,
    /// `None` in a job that does not outlive its process, which keeps no cycles.
    pace: Option<Pace>,
    /// Rows came after the last marker.
    is_open: bool,
    may_commit: Arc<watch::Sender<u64>>,
    /// As in [`Settled`].
    committed: Arc<AtomicU64>,
}

impl Rows {
    fn sink(context: &SinkContext, target: Target) -> Result<OutboxSink<Self>, Error> {
        let options = &context.options;
        let outbox = Arc::new(Outbox::new(queue_bytes(options)));
        let retry = Retry::of(context, &outbox);
        let start = context.durable.as_ref().map(writer::Start::of).transpose()?;
        let cycle_bytes = size(options, "cycle_bytes", 64 << 20);
        let committed = Arc::new(AtomicU64::new(0));
        let (may_commit, may) = watch::channel(0);
        let rows = Self {
            encoder: RowEncoder::new(&context.schema)?,
            refusals: Refusals::new(&context.schema),
            pace: start.as_ref().map(|_| Pace::new(cycle_bytes)),
            is_open: false,
            may_commit: Arc::new(may_commit),
            committed: Arc::clone(&committed),
        };
        let held = Arc::clone(&outbox);
        let deliver = async move {
            let connection = Connection::new(target);
            match start {
                Some(start) => {
                    let cycles = writer::Cycles { cycle_bytes, may_commit: may, committed };
                    writer::by_cycle(held, connection, retry, cycles, start).await
                }
                None => writer::by_flush(held, connection, retry).await,
            }
        };
        OutboxSink::start(context, rows, Vec::new(), outbox, deliver)
    }
}

impl Dialect for Rows {
    const GATHER: usize = 64 << 10;
    const LEAVES: Leaves = Leaves::WhenIdle;

    fn encode(&mut self, batch: &Batch, text: &mut Vec<u8>, out: &mut Output<'_>) -> Result<u64, Error> {
        let before = text.len();
        let written = self.refusals.encode(batch, &mut self.encoder, text, out);
        if let Some(pace) = &mut self.pace {
            pace.add(text.len() - before);
        }
        self.is_open = true;
        Ok(written)
    }

    fn complete(&mut self, _: Seq, out: &mut Output<'_>) {
        match self.pace.as_mut().and_then(Pace::ask) {
            Some(Ask::EndOfCycle) => out.hasten_cycle(),
            Some(Ask::Hold) => out.hold_sources(),
            None => {}
        }
    }

    fn end_cycle(&mut self, cycle: u64) -> Box<dyn Settlement> {
        self.is_open = false;
        if let Some(pace) = &mut self.pace {
            pace.begin_cycle();
        }
        let (may_commit, committed) = (Arc::clone(&self.may_commit), Arc::clone(&self.committed));
        Box::new(Settled { cycle, may_commit, committed })
    }

    fn finish(&mut self) -> Result<(), Error> {
        if self.pace.is_some() && self.is_open {
            return Err(Error::internal("records came after the last cycle, so no commit would have them"));
        }
        Ok(())
    }
}

/// Has the transaction of its cycle committed.
struct Settled {
    cycle: u64,
    /// The last cycle that may be committed.
    may_commit: Arc<watch::Sender<u64>>,
    /// The last cycle with rows that was; release where it is written, acquire where it is read.
    committed: Arc<AtomicU64>,
}

impl Settlement for Settled {
    fn begin(&mut self) {
        self.may_commit.send_modify(|may| *may = self.cycle.max(*may));
    }

    /// The last cycle that has rows in the table (8 bytes, little-endian).
    fn position(&mut self) -> Vec<u8> {
        self.committed.load(Ordering::Acquire).to_le_bytes().to_vec()
    }
}
