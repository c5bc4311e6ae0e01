//! Records into a database that takes Influx line protocol over HTTP: InfluxDB, QuestDB and others.
//!
//! At-least-once: points that a request may or may not have brought are sent again. Where series and time stamps are
//! unique the same point written twice is one point, so nothing is counted twice then.
//! In a durable job a cycle waits until all of its points have been taken.
//!
//! `database` (or neither it nor `bucket`) writes to `/write`, as InfluxDB 1 and QuestDB have it, `bucket` to
//! `/api/v2/write`. A database that refuses what it is sent (400) stops the job, with what it said.
//! NaN and the infinities are left out, as these databases have none.
//!
//! Not here: how points are written (`format::line_protocol`), how requests are made (`client`) and repeated (`sender`).

mod client;
mod sender;

use std::sync::Arc;

use thalweg_flow::{CyclePart, InputId, Operator, Output, TaskFactory, Waker};
use thalweg_types::{Batch, Error, Micros, Schema};

use self::client::{Client, Target};
use self::sender::{Points, deliver};
use super::only_task;
use super::outbox::{Courier, Outbox, QUEUE, queue_bytes, size, stopped};
use super::retry::{RETRY_FOR, RETRY_WAIT, Retry, zeros};
use super::unwritable::Refusals;
use crate::format::line_protocol::{LineEncoder, MEASUREMENT, NonFinite, PRECISION, TAGS, TIMESTAMP};
use crate::{FormatSpec, Mistake, OptionKind, OptionSpec, Options, SinkContext, SinkPlugin, SinkReport};

/// Bytes that gather in the operator while something is under way.
const GATHER: usize = 64 << 10;

const TIMEOUT: OptionSpec = OptionSpec {
    key: "timeout",
    kind: OptionKind::Duration,
    required: false,
    default: Some("30s"),
    doc: "how long an answer may take; the request is repeated then",
};

const BATCH: OptionSpec = OptionSpec {
    key: "batch",
    kind: OptionKind::Size,
    required: false,
    default: Some("1MiB"),
    doc: "bytes that leave in one request at most, where points are not larger than that",
};

const fn text(key: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Text, required: false, default: None, doc }
}

const fn secret(key: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec { kind: OptionKind::Secret, ..text(key, doc) }
}

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        key: "url",
        kind: OptionKind::Url,
        required: true,
        default: None,
        doc: "where the database listens, such as http://127.0.0.1:8086",
    },
    text("database", "the database to write to (InfluxDB 1)"),
    text("bucket", "the bucket to write to (InfluxDB 2 and later)"),
    text("org", "the organisation of the bucket"),
    secret("token", "env:NAME or file:PATH of the token that is sent"),
    text("user", "the user that is sent where there is no token"),
    secret("password", "env:NAME or file:PATH of the user's password"),
    MEASUREMENT,
    TAGS,
    TIMESTAMP,
    PRECISION,
    TIMEOUT,
    BATCH,
    QUEUE,
    RETRY_FOR,
    RETRY_WAIT,
];

/// The plug-in.
pub struct InfluxPlugin;

impl SinkPlugin for InfluxPlugin {
    fn name(&self) -> &'static str {
        "influx"
    }

    fn doc(&self) -> &'static str {
        "records into InfluxDB, QuestDB or another database, as line protocol over HTTP"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn guarantee(&self) -> &'static str {
        "at-least-once"
    }

    fn rejects(&self, _: Option<&FormatSpec>) -> bool {
        true
    }

    fn check(&self, schema: &Schema, options: &Options) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if let Err(error) = LineEncoder::new(schema, options, NonFinite::LeftOut) {
            mistakes.push(Mistake::new("type", error));
        }
        if let Err(error) = Target::check(options) {
            mistakes.push(Mistake::new("url", error));
        }
        mistakes.extend(zeros(options, &[&TIMEOUT, &RETRY_WAIT]));
        mistakes
    }

    fn probe(&self, context: &SinkContext) -> Result<(), Error> {
        target(context).map(drop)
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        let target = target(&context)?;
        Ok(Box::new(move |info| {
            only_task(&context, info)?;
            Ok(Box::new(InfluxSink::new(&context, target.clone())?))
        }))
    }
}

/// The database of a job file, with its secrets looked up, for records that it has a form for.
fn target(context: &SinkContext) -> Result<Target, Error> {
    let named = |error: Error| error.context(format!("sink {:?}", context.name));
    LineEncoder::new(&context.schema, &context.options, NonFinite::LeftOut).map_err(named)?;
    Target::new(&context.options).map_err(named)
}

/// What the operator and the parts of its cycles share.
struct Shared {
    outbox: Arc<Outbox<Points>>,
    _courier: Courier,
}

struct InfluxSink {
    name: Arc<str>,
    encoder: LineEncoder,
    refusals: Refusals,
    gathered: Vec<u8>,
    records: u64,
    shared: Arc<Shared>,
    report: SinkReport,
    is_durable: bool,
    has_warned: bool,
}

impl InfluxSink {
    fn new(context: &SinkContext, target: Target) -> Result<Self, Error> {
        let outbox = Arc::new(Outbox::new(queue_bytes(&context.options)));
        let batch = size(&context.options, BATCH.key, 1 << 20);
        // The name spreads the waits of the sinks of a job, the address of the outbox those of processes.
        let seed = thalweg_types::hash_bytes(context.name.as_bytes()) ^ Arc::as_ptr(&outbox).addr() as u64;
        let retry = Retry::new(&context.name, &context.options, seed);
        let client = Client::new(target)?;
        let courier = Courier::start(
            &outbox,
            deliver(Arc::clone(&outbox), client, retry, batch, context.report.clone()),
        )?;
        Ok(Self {
            name: Arc::clone(&context.name),
            encoder: LineEncoder::new(&context.schema, &context.options, NonFinite::LeftOut)?,
            refusals: Refusals::new(&context.schema),
            gathered: Vec::new(),
            records: 0,
            shared: Arc::new(Shared { outbox, _courier: courier }),
            report: context.report.clone(),
            is_durable: context.durable.is_some(),
            has_warned: false,
        })
    }

    fn hand_over(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        // What has failed is about points that were handed over before.
        out.working_on_no_record();
        if self.gathered.is_empty() {
            return self.shared.outbox.check();
        }
        let text = std::mem::take(&mut self.gathered);
        let bytes = text.len();
        let points = Points { text: text.into(), records: std::mem::take(&mut self.records) };
        self.shared.outbox.push(points, bytes).map(|_| ())
    }

    fn warn(&mut self) {
        let numbers = self.encoder.left_out();
        if numbers > 0 {
            tracing::warn!(
                sink = &*self.name,
                numbers,
                "left out NaN and infinities, which the database has not"
            );
        }
    }
}

impl Operator for InfluxSink {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let written = self.refusals.encode(&batch, &mut self.encoder, &mut self.gathered, out);
        self.records += written;
        self.report.add_records(written);
        if self.gathered.len() >= GATHER { self.hand_over(out) } else { Ok(()) }
    }

    fn complete(&mut self, _: thalweg_types::SeqRange, out: &mut Output<'_>) -> Result<(), Error> {
        // While a request is under way points gather, so that the next takes more of them.
        if !self.gathered.is_empty() && self.shared.outbox.is_idle() { self.hand_over(out) } else { Ok(()) }
    }

    fn tick(&mut self, _: Micros, out: &mut Output<'_>) -> Result<(), Error> {
        if !self.has_warned && self.encoder.left_out() > 0 {
            self.has_warned = true;
            self.warn();
        }
        self.hand_over(out)
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        self.hand_over(out)?;
        if self.is_durable {
            let number = self.shared.outbox.push(Points::default(), 0)?;
            out.hand_over(cycle, Box::new(InfluxPart { shared: Arc::clone(&self.shared), number }));
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        self.hand_over(out)?;
        self.warn();
        self.shared.outbox.close();
        Ok(())
    }

    fn takes_part(&self) -> bool {
        self.is_durable
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

impl Drop for InfluxSink {
    /// Who still waits for something, a part of a cycle, waits for nothing any more.
    fn drop(&mut self) {
        self.shared.outbox.fail(stopped());
    }
}

/// A cycle is durable once everything before its marker has been taken.
struct InfluxPart {
    shared: Arc<Shared>,
    number: u64,
}

impl CyclePart for InfluxPart {
    fn prepare(&mut self) -> Result<Vec<u8>, Error> {
        self.shared.outbox.wait_for(self.number)?;
        Ok(Vec::new())
    }
}
