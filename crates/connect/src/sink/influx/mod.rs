//! Records into a database that takes Influx line protocol over HTTP: InfluxDB, QuestDB and others.
//!
//! At-least-once: points that a request may or may not have brought are sent again. Where series and time stamps are
//! unique the same point written twice is one point, so nothing is counted twice then.
//! In a durable job a cycle waits until all of its points have been taken.
//!
//! `database` (or neither it nor `bucket`) writes to `/write`, as InfluxDB 1 and QuestDB have it, `bucket` to
//! `/api/v2/write`. A database that refuses points (400) stops the job, with its message.
//! NaN and the infinities are left out, as these databases have none.
//!
//! Not here: how points are written (`format::line_protocol`), how requests are made (`client`) and repeated
//! (`super::delivery`).

mod client;

use std::sync::Arc;

use thalweg_flow::{Operator, Output, TaskFactory};
use thalweg_types::{Batch, Error, Schema};

use self::client::{Client, Target};
use super::delivery::by_load;
use super::only_task;
use super::outbox::{Outbox, QUEUE, queue_bytes, size};
use super::outbox_sink::{Dialect, Leaves, OutboxSink, Settlement};
use super::retry::{RETRY_FOR, RETRY_WAIT, Retry, zeros};
use super::unwritable::Refusals;
use crate::format::line_protocol::{LineEncoder, MEASUREMENT, NonFinite, PRECISION, TAGS, TIMESTAMP};
use crate::{FormatSpec, Mistake, OptionKind, OptionSpec, Options, SinkContext, SinkPlugin};

const TIMEOUT: OptionSpec = OptionSpec {
    key: "timeout",
    kind: OptionKind::Duration,
    required: false,
    default: Some("30s"),
    doc: "how long a request may take before it is repeated",
};

const BATCH: OptionSpec = OptionSpec {
    key: "batch",
    kind: OptionKind::Size,
    required: false,
    default: Some("1MiB"),
    doc: "limit for the bytes of one request; a larger point is a request of its own",
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
        doc: "address of the database, such as `http://127.0.0.1:8086`",
    },
    text("database", "InfluxDB 1: database to write to"),
    text("bucket", "InfluxDB 2 and later: bucket to write to"),
    text("org", "InfluxDB 2 and later: organisation of the bucket"),
    secret("token", "token to authenticate with"),
    text("user", "user to authenticate with, without a token"),
    secret("password", "password of the user"),
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
        "records to InfluxDB, QuestDB or another database that takes line protocol over HTTP"
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
            Ok(Box::new(Points::sink(&context, target.clone())?))
        }))
    }
}

/// The database of a job file, with its secrets looked up, for records that it has a form for.
fn target(context: &SinkContext) -> Result<Target, Error> {
    let named = |error: Error| error.context(format!("sink {:?}", context.name));
    LineEncoder::new(&context.schema, &context.options, NonFinite::LeftOut).map_err(named)?;
    Target::new(&context.options).map_err(named)
}

struct Points {
    sink: Arc<str>,
    encoder: LineEncoder,
    refusals: Refusals,
    has_warned: bool,
}

impl Points {
    fn sink(context: &SinkContext, target: Target) -> Result<OutboxSink<Self>, Error> {
        let outbox = Arc::new(Outbox::new(queue_bytes(&context.options)));
        let retry = Retry::of(context, &outbox);
        let batch = size(&context.options, BATCH.key, 1 << 20);
        let deliver = by_load(Arc::clone(&outbox), Client::new(target)?, retry, batch);
        let points = Self {
            sink: Arc::clone(&context.name),
            encoder: LineEncoder::new(&context.schema, &context.options, NonFinite::LeftOut)?,
            refusals: Refusals::new(&context.schema),
            has_warned: false,
        };
        OutboxSink::start(context, points, Vec::new(), outbox, deliver)
    }

    fn warn(&mut self) {
        let numbers = self.encoder.left_out();
        if numbers > 0 {
            tracing::warn!(
                sink = &*self.sink,
                numbers,
                "left out NaN and infinities, which the database has not"
            );
        }
    }
}

impl Dialect for Points {
    const GATHER: usize = 64 << 10;
    const LEAVES: Leaves = Leaves::WhenIdle;

    fn encode(&mut self, batch: &Batch, text: &mut Vec<u8>, out: &mut Output<'_>) -> Result<u64, Error> {
        Ok(self.refusals.encode(batch, &mut self.encoder, text, out))
    }

    fn tick(&mut self) {
        if !self.has_warned && self.encoder.left_out() > 0 {
            self.has_warned = true;
            self.warn();
        }
    }

    fn end_cycle(&mut self, _: u64) -> Box<dyn Settlement> {
        Box::new(Vec::new())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.warn();
        Ok(())
    }
}
