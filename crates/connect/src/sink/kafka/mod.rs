//! Records to topics of Apache Kafka, a message each.
//!
//! The order of a commit is: Kafka first, then the commit record of the job. So what a record counts as written is
//! written, and after a crash the rows behind it come out again, the same as before. A sink with `transactions` knows
//! from Kafka which of them are there; one with `positions` sends them again, each with its position in a header.
//!
//! Not here: rows as messages (`encode`, `parcel`), the thread that talks to the client (`deliver`), what is different in a
//! unit of a cluster (`unit`, `kept`).

mod deliver;
mod encode;
pub(crate) mod figures;
mod kept;
mod parcel;
mod unit;

use std::hash::BuildHasher as _;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use thalweg_flow::{Operator, Output, TaskFactory};
use thalweg_kafka::{Bus, Compression, ProducerOptions, TopicPartition, Wake};
use thalweg_types::{Batch, Error, Schema, Seq};

use self::deliver::{
    Deliverer, ORIGIN, POSITION, Plan, SharedPosition, Start, Stop, StopGuard, Transactions, turn_of,
};
use self::encode::{Fields, RowWriter, is_topic};
use self::figures::SinkFigures;
use self::kept::Kept;
use self::parcel::RowPosition;
use self::unit::{Markers, Progress};
use super::outbox::{Outbox, QUEUE, queue_bytes};
use super::outbox_sink::{Dialect, Leaves, OutboxSink, Settlement};
use super::retry::{RETRY_FOR, RETRY_WAIT, Retry, duration, zeros};
use super::unwritable::Refusals;
use super::{encoder_of, only_task};
use crate::kafka::{
    BROKERS, CA, CERTIFICATE, CLIENT_ID, KEY_FILE, KEY_PASSWORD, MakeBus, PASSWORD, PROPERTIES, SASL, TLS,
    TOKEN, USER, check_connection, real_bus, settings,
};
use crate::source::handover::io_runtime;
use crate::{
    FormatSpec, Mistake, OptionKind, OptionSpec, Options, SinkContext, SinkPlugin, SinkResume, UnitRows,
};

const fn text(key: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Text, required: false, default: None, doc }
}

const OPTIONS: &[OptionSpec] = &[
    BROKERS,
    text(
        "topic",
        "topic to write to; it must exist. This or `topic_field`, or both: then it is for rows whose field is null",
    ),
    text(
        "topic_field",
        "field with the topic of each row, such as a `reply-to` header; rows that name none, or one that does not exist, are left out and counted",
    ),
    text(
        "topic_pattern",
        "regular expression that the whole name of a topic from `topic_field` must match; another row goes to rejects",
    ),
    text(
        "partition_field",
        "field with the partition of each row; without it, or where it is null, the key decides",
    ),
    text("key", "field with the key of each row: rows of one key stay in one partition, and in order"),
    OptionSpec {
        key: "headers",
        kind: OptionKind::TextLists,
        required: false,
        default: None,
        doc: "headers of each message and the fields that they have, such as `{ trace: trace_id }`",
    },
    OptionSpec {
        key: "delivery",
        kind: OptionKind::Choice(&["positions", "transactions"]),
        required: false,
        default: Some("positions"),
        doc: "`positions`: each row once, and again after a crash, with headers by which readers drop the second one; `transactions`: each row once for readers with `read_committed`",
    },
    OptionSpec {
        key: "visible",
        kind: OptionKind::Duration,
        required: false,
        default: Some("100ms"),
        doc: "with `transactions`: how long a row may wait for the commit that makes it visible",
    },
    OptionSpec {
        key: "compression",
        kind: OptionKind::Choice(Compression::NAMES),
        required: false,
        default: Some("lz4"),
        doc: "how messages are packed",
    },
    OptionSpec {
        key: "linger",
        kind: OptionKind::Duration,
        required: false,
        default: Some("5ms"),
        doc: "how long a row may wait for others that leave with it",
    },
    OptionSpec {
        key: "max_message",
        kind: OptionKind::Size,
        required: false,
        default: Some("1000000"),
        doc: "largest message, with key and headers; a larger row goes to rejects. The topic's `max.message.bytes` must not be lower",
    },
    CLIENT_ID,
    TLS,
    CA,
    CERTIFICATE,
    KEY_FILE,
    KEY_PASSWORD,
    SASL,
    USER,
    PASSWORD,
    TOKEN,
    PROPERTIES,
    QUEUE,
    RETRY_FOR,
    RETRY_WAIT,
];

/// As brokers have it by default, less what they add.
const DEFAULT_MAX_MESSAGE: usize = 1_000_000;
const DEFAULT_VISIBLE: Duration = Duration::from_millis(100);
/// As long as that of Kafka's own producers since its version 4: partitions have requests of their own, and at low rates
/// these are most of a broker's work.
const DEFAULT_LINGER: Duration = Duration::from_millis(5);
const DEFAULT_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

/// The plug-in.
pub struct KafkaPlugin {
    make_bus: MakeBus,
}

impl Default for KafkaPlugin {
    fn default() -> Self {
        Self { make_bus: real_bus() }
    }
}

impl KafkaPlugin {
    /// On another bus than that of real brokers.
    pub fn on(make_bus: MakeBus) -> Self {
        Self { make_bus }
    }

    /// The brokers, which have the topic.
    fn find_topic(&self, context: &SinkContext) -> Result<Arc<dyn Bus>, Error> {
        let named = |error: Error| error.context(format!("sink {:?}", context.name));
        let settings = settings(&context.options, format_args!("{}", id(context))).map_err(named)?;
        let bus = (self.make_bus)(settings).map_err(|error| named(error.into()))?;
        if let Some(topic) = context.options.text("topic") {
            bus.topics(Some(&[topic.into()])).map_err(|error| named(error.into()))?;
        }
        Ok(bus)
    }
}

fn is_transactional(options: &Options) -> bool {
    options.text("delivery") == Some("transactions")
}

impl SinkPlugin for KafkaPlugin {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn doc(&self) -> &'static str {
        "records to topics of Apache Kafka"
    }

    fn page(&self) -> &'static str {
        include_str!("page.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn guarantee(&self) -> &'static str {
        "exactly-once with a data directory and `delivery: transactions`; else at-least-once, and each row says its position"
    }

    fn rejects(&self, _: Option<&FormatSpec>) -> bool {
        true
    }

    fn writes_for_units(&self, options: &Options) -> Result<bool, Error> {
        match options.text("topic") {
            Some(_) => Ok(true),
            None => Err(Error::user("has no \"topic\", with which a unit keeps how far it is")
                .with_hint("add a topic for rows whose \"topic_field\" is null")),
        }
    }

    fn check(&self, schema: &Schema, options: &Options) -> Vec<Mistake> {
        let mut mistakes = check_connection(options);
        mistakes.extend(Fields::check(options, schema));
        mistakes.extend(zeros(options, &[&RETRY_WAIT]));
        let mut wrong = |key: &str, error: Error| mistakes.push(Mistake::new(key, error));
        match options.text("topic") {
            Some(topic) if !is_topic(topic) => {
                let error = Error::user(format!("expected the name of a topic, got {topic:?}"));
                wrong("topic", error.with_hint("1 to 249 of a-z, A-Z, 0-9, ., _ and -"));
            }
            None if options.text("topic_field").is_none() => {
                wrong("type", Error::user("expected \"topic\" or \"topic_field\", got neither"));
            }
            None if is_transactional(options) => {
                let error = Error::user("delivery: transactions needs \"topic\", got none");
                wrong(
                    "delivery",
                    error.with_hint("the position of the rows is kept with a topic that is known"),
                );
            }
            _ => {}
        }
        for (key, with) in [("topic_pattern", "topic_field")] {
            if options.get(key).is_some() && options.get(with).is_none() {
                wrong(key, Error::user(format!("{key:?} needs {with:?}, got none")));
            }
        }
        if options.get("visible").is_some() && !is_transactional(options) {
            let error = Error::user("\"visible\" is for delivery: transactions");
            wrong("visible", error.with_hint("leave it out, or set delivery: transactions"));
        }
        for (name, fields) in options.lists("headers").unwrap_or_default() {
            if fields.len() != 1 {
                wrong("headers", Error::user(format!("{name:?}: expected one field, got {}", fields.len())));
            }
            if name.is_empty() || [ORIGIN, POSITION].contains(&name.as_str()) {
                wrong(
                    "headers",
                    Error::user(format!("expected the name of a header of your own, got {name:?}")),
                );
            }
        }
        if options.lists("headers").is_some_and(|headers| headers.len() > usize::from(u8::MAX)) {
            wrong("headers", Error::user("expected 255 headers at most, got more"));
        }
        mistakes
    }

    fn probe(&self, context: &SinkContext) -> Result<(), Error> {
        let id = id(context);
        encoder_of(context)?;
        settings(&context.options, format_args!("{id}")).map(drop)
    }

    fn find(&self, context: &SinkContext) -> Result<(), Error> {
        self.find_topic(context).map(drop)
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        // So that a topic that is missing is an error of the start.
        let bus = self.find_topic(&context)?;
        Ok(Box::new(move |info| {
            only_task(&context, info)?;
            Ok(Box::new(TopicRows::sink(&context, Arc::clone(&bus))?))
        }))
    }
}

/// What the sink is called in the cluster.
fn id(context: &SinkContext) -> String {
    match &context.unit {
        Some(unit) => unit.id(),
        None => format!("thalweg.{}.{}", context.job, context.name),
    }
}

struct TopicRows {
    sink: Arc<str>,
    writer: RowWriter,
    refusals: Refusals,
    figures: Arc<SinkFigures>,
    shared: Arc<SharedPosition>,
    is_told: bool,
    unit: Option<InUnit>,
}

/// What the operator knows of the unit that it is part of.
struct InUnit {
    rows: Arc<dyn UnitRows>,
    /// The last record that has passed.
    passed: Option<RowPosition>,
    markers: Arc<Markers>,
}

impl TopicRows {
    fn sink(context: &SinkContext, bus: Arc<dyn Bus>) -> Result<OutboxSink<Self>, Error> {
        let options = &context.options;
        let outbox = Arc::new(Outbox::new(queue_bytes(options)));
        let retry = Retry::of(context, &outbox);
        let stop = Stop::default();
        let figures = Arc::new(SinkFigures::default());
        context.report.show_delivery(Arc::clone(&figures));
        let fields = Fields::of(options)?;
        let max_message = options.size("max_message").map_or(DEFAULT_MAX_MESSAGE, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX).clamp(1_000, 1 << 30)
        });
        let plan = plan(context, &fields, max_message, &stop);
        let shared = Arc::new(SharedPosition::default());
        let rows = Self {
            sink: Arc::clone(&context.name),
            writer: RowWriter::new(encoder_of(context)?, fields, plan.topic.is_some(), max_message),
            refusals: Refusals::new(&context.schema),
            figures: Arc::clone(&figures),
            shared: Arc::clone(&shared),
            is_told: false,
            unit: context.unit.as_ref().map(|unit| InUnit {
                rows: Arc::clone(&unit.rows),
                passed: None,
                markers: Arc::default(),
            }),
        };
        let mut start = start(context.durable.as_ref())?;
        // Another node has run it, then.
        start.is_new &= rows.unit.is_none();
        let progress = rows.unit.as_ref().map(|unit| {
            let place = TopicPartition::new(plan.topic.clone().unwrap_or_default(), 0);
            Progress::new(Arc::clone(&unit.rows), Arc::clone(&unit.markers), plan.id.clone(), place)
        });
        let is_transactional = plan.options.transactional_id.is_some();
        let turn = turn_of(&format!(
            "{} {}",
            plan.id,
            context.options.list(BROKERS.key).unwrap_or_default().join(",")
        ));
        let mut deliverer = Deliverer::new(plan, bus, Arc::clone(&outbox), retry, figures, stop.clone());
        deliverer.progress = progress;
        deliverer.kept = context.unit.as_ref().filter(|_| is_transactional).map(|unit| {
            let number = |of: u32| i32::try_from(of).unwrap_or(i32::MAX);
            let like = deliverer.topic();
            Kept::new(&unit.sink, number(unit.partition), number(unit.partitions), like)
        });
        let runtime = io_runtime()?.handle().clone();
        let deliver = async move {
            let _guard = StopGuard(stop);
            let work = tokio::task::spawn_blocking(move || {
                let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                match is_transactional {
                    true => Transactions::new(deliverer, &start, shared).run(&start, &runtime),
                    false => deliverer.by_position(&start, &shared, &runtime),
                }
            });
            work.await.map_err(|error| Error::internal("deliver rows to topics").with_source(error))?
        };
        OutboxSink::start(context, rows, Vec::new(), outbox, deliver)
    }
}

fn plan(context: &SinkContext, fields: &Fields, max_message: usize, stop: &Stop) -> Plan {
    let options = &context.options;
    let id = id(context);
    let time = |key: &str, default| options.duration(key).map_or(default, duration);
    let news = Arc::clone(&stop.news);
    let wake: Wake = Arc::new(move || news.notify_one());
    Plan {
        sink: Arc::clone(&context.name),
        topic: options.text("topic").map(Into::into),
        header_names: fields.headers.iter().map(|(name, _)| name.clone()).collect(),
        origin: match &context.unit {
            Some(unit) => Arc::clone(&unit.name),
            None => format!("{}/{}", context.job, context.name).into(),
        },
        visible: time("visible", DEFAULT_VISIBLE),
        transaction_timeout: transaction_timeout(options),
        retry_for: options.duration(RETRY_FOR.key).map(duration),
        options: ProducerOptions {
            compression: options.text("compression").and_then(Compression::named).unwrap_or(Compression::Lz4),
            linger: time("linger", DEFAULT_LINGER),
            max_message,
            queue: queue_bytes(options),
            // Of more, the first ones for a partition could be lost, or written after later ones. In a transaction, too, which
            // is committed without them then: brokers refuse gaps there by a later protocol than that of the client.
            requests: Some(1),
            transactional_id: is_transactional(options).then(|| id.clone()),
            wake,
        },
        id,
    }
}

/// That of the client.
fn transaction_timeout(options: &Options) -> Duration {
    let properties = options.lists(PROPERTIES.key).unwrap_or_default();
    let given = properties.iter().find(|(name, _)| name == "transaction.timeout.ms");
    let given = given.and_then(|(_, values)| values.first()?.parse().ok());
    given.map_or(DEFAULT_TRANSACTION_TIMEOUT, Duration::from_millis)
}

/// Where a sink goes on.
///
/// # Errors
/// If this sink has not given the position.
fn start(resume: Option<&SinkResume>) -> Result<Start, Error> {
    let random = std::collections::hash_map::RandomState::new().hash_one(std::process::id());
    let Some(resume) = resume else {
        return Ok(Start { cycle: 0, position: None, is_new: false, is_durable: false, random });
    };
    let position = match resume.position.as_deref() {
        None | Some([]) => None,
        Some(bytes) => {
            let (seq, index) = bytes.split_at_checked(8).unwrap_or_default();
            let position = seq.try_into().ok().zip(index.try_into().ok());
            let (seq, index) = position.ok_or_else(|| {
                Error::corrupt(format!("the sink's position has {} bytes, expected none or 12", bytes.len()))
            })?;
            Some(RowPosition { seq: u64::from_le_bytes(seq), index: u32::from_le_bytes(index) })
        }
    };
    Ok(Start {
        cycle: resume.cycle,
        position,
        is_new: resume.is_new || resume.is_added,
        is_durable: true,
        random,
    })
}

impl Dialect for TopicRows {
    const GATHER: usize = 256 << 10;
    // What waits gathers in the client.
    const LEAVES: Leaves = Leaves::AtOnce;

    fn encode(&mut self, batch: &Batch, text: &mut Vec<u8>, out: &mut Output<'_>) -> Result<u64, Error> {
        let numbers = self.unit.as_ref().map(|unit| unit.rows.positions(batch)).transpose()?;
        let (written, refused) = self.writer.write(batch, numbers.as_deref(), text);
        self.refusals.pass_on(batch, refused, out);
        Ok(written)
    }

    fn tick(&mut self) {
        self.figures.note_without_topic(self.writer.without_topic);
        if !self.is_told && self.writer.without_topic > 0 {
            self.is_told = true;
            tracing::warn!(sink = &*self.sink, "rows name no topic, and are left out");
        }
    }

    fn complete(&mut self, end: Seq, _: &mut Output<'_>) {
        if let Some(unit) = &mut self.unit
            && let Some(seq) = unit.rows.passed(end)
        {
            // With all rows that were made of it.
            unit.passed = Some(RowPosition { seq, index: u32::MAX });
        }
    }

    fn end_cycle(&mut self, cycle: u64) -> Box<dyn Settlement> {
        if let Some(InUnit { passed: Some(passed), markers, .. }) = &self.unit {
            markers.note(cycle, *passed);
        }
        Box::new(Settled(Arc::clone(&self.shared)))
    }
}

/// The position that Kafka has.
struct Settled(Arc<SharedPosition>);

impl Settlement for Settled {
    /// Order number 8, in a unit the position in its log, and index 4 of the last row that is committed in Kafka,
    /// little-endian; nothing where there is none, or where rows say their positions themselves and there is no unit.
    fn position(&mut self) -> Vec<u8> {
        let Some(RowPosition { seq, index }) = self.0.get() else { return Vec::new() };
        [&seq.to_le_bytes()[..], &index.to_le_bytes()[..]].concat()
    }
}
