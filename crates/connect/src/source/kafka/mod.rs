//! Records from topics of Apache Kafka.
//!
//! Partitions are assigned by hand: the place of the source is in the commit record of the job, and no group of Kafka's
//! has a say in it. It is committed to a group, too, for tools that show lag. Kafka is the log that a job goes on from, so
//! there is no journal.
//!
//! The parts: messages cut into records (`cutting`), parts of messages as fields (`fields`), where reading goes on
//! (`place`), new partitions (`watch`), the source itself (`source`). Where units of a cluster read the partitions, each by
//! itself, there is no such source (`shared`).

mod ahead;
mod cutting;
mod fields;
mod figures;
mod messages;
mod place;
mod shared;
mod source;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use thalweg_kafka::{Bus, Isolation, Topic, TopicPartition};
use thalweg_types::{Error, Schema, TimeUnit};
use tracing::info;

use self::cutting::{Reading, Tombstones};
use self::fields::{MessageFormat, check_fields, value_schema};
use self::place::Known;
pub use self::place::Place;
pub use self::shared::{SharedTopic, TopicBlock, TopicPlaces, TopicReader, TopicRecords};
use self::source::{KafkaSource, Missing, Plan, bounds, places_of};
use self::watch::{Wanted, Watch};
use super::{decoder, decoders_of};
use crate::format::RecordFormat;
use crate::format::times::plain;
use crate::kafka::{
    BROKERS, CA, CERTIFICATE, CLIENT_ID, KEY_FILE, KEY_PASSWORD, MakeBus, PASSWORD, PROPERTIES, SASL, TLS,
    TOKEN, USER, check_connection, real_bus, settings,
};
use crate::{BuiltSource, Mistake, OptionKind, OptionSpec, Options, Replay, SourceContext, SourcePlugin};

const OPTIONS: &[OptionSpec] = &[
    BROKERS,
    OptionSpec {
        key: "topics",
        kind: OptionKind::TextList,
        required: false,
        default: None,
        doc: "topics to read; this or `pattern`",
    },
    OptionSpec {
        key: "pattern",
        kind: OptionKind::Text,
        required: false,
        default: None,
        doc: "regular expression: every topic whose whole name matches is read, also one that is made later",
    },
    OptionSpec {
        key: "from",
        kind: OptionKind::Text,
        required: false,
        default: Some("earliest"),
        doc: "where a new job begins: `earliest`, `latest`, or a time such as `2026-11-01T00:00:00Z`; a job that goes on does so where it was, and partitions found later are read from their beginning",
    },
    OptionSpec {
        key: "until",
        kind: OptionKind::Choice(&["latest"]),
        required: false,
        default: None,
        doc: "`latest`: end at the ends that the partitions have at the start; without this the source has no end",
    },
    OptionSpec {
        key: "isolation",
        kind: OptionKind::Choice(&["read_committed", "read_uncommitted"]),
        required: false,
        default: Some("read_committed"),
        doc: "whether messages of transactions are read only once they are committed",
    },
    OptionSpec {
        key: "tombstones",
        kind: OptionKind::Choice(&["reject", "ignore"]),
        required: false,
        default: Some("reject"),
        doc: "what becomes of messages without a value: a line in rejects with the key, or nothing but a count",
    },
    OptionSpec {
        key: "missing",
        kind: OptionKind::Choice(&["refuse", "skip"]),
        required: false,
        default: Some("refuse"),
        doc: "what happens if messages were deleted before the job has read them: it stops (exit 3) and says how many, or it goes on without them and counts them",
    },
    OptionSpec {
        key: "refresh",
        kind: OptionKind::Duration,
        required: false,
        default: Some("30s"),
        doc: "how often to look for new partitions and topics",
    },
    OptionSpec {
        key: "queue",
        kind: OptionKind::Size,
        required: false,
        default: Some("64MiB"),
        doc: "bytes of messages that are fetched ahead, of all partitions together; each has 64KiB at least. When it is full, nothing more is fetched",
    },
    OptionSpec {
        key: "partitions",
        kind: OptionKind::Integer { min: 1, max: MOST_UNITS },
        required: false,
        default: None,
        doc: "on a cluster: how many partitions the topic has when the job begins, each of which a unit reads; the brokers are asked where this is missing, and later for more. One node alone does not need it",
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
];

/// Keys of the source that say how records are had, and change none of them: how brokers are reached, where reading begins
/// and how far ahead it is, and when records are late or come twice for later stages.
pub const NOT_OF_RECORDS: [&str; 25] = [
    "brokers",
    "client_id",
    "tls",
    "ca",
    "certificate",
    "private_key",
    "private_key_password",
    "sasl",
    "user",
    "password",
    "token",
    "properties",
    "from",
    "missing",
    "refresh",
    "queue",
    "partitions",
    "lateness",
    "late",
    "dedup",
    "ack",
    "retention",
    "reject_limit",
    "parallelism",
    "reply",
];

/// Partitions of a topic that units of a cluster read.
const MOST_UNITS: i64 = 4_096;

const DEFAULT_QUEUE: usize = 64 << 20;
const DEFAULT_REFRESH: Duration = Duration::from_secs(30);

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
}

/// Where a new job begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Earliest,
    Latest,
    /// Milliseconds since 1970.
    Time(i64),
}

impl From {
    fn parse(text: &str) -> Result<Self, Error> {
        match text {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            time => match plain().parse(time.as_bytes(), TimeUnit::Milli) {
                Ok(millis) if millis >= 0 => Ok(Self::Time(millis)),
                _ => Err(Error::user(format!("expected earliest, latest or a time, got {time:?}"))
                    .with_hint("a time is such as 2026-11-01T00:00:00Z, in UTC where it has no zone")),
            },
        }
    }

    fn of(options: &Options) -> Result<Self, Error> {
        options.text("from").map_or(Ok(Self::Earliest), Self::parse)
    }
}

fn wanted(options: &Options) -> Result<Wanted, Error> {
    match options.text("pattern") {
        Some(pattern) => {
            let whole = Regex::new(&format!("^(?:{pattern})$"));
            let whole = whole
                .map_err(|error| Error::user(format!("{pattern:?} is no pattern")).with_source(error))?;
            Ok(Wanted::Pattern(whole))
        }
        None => {
            let names = options.list("topics").unwrap_or_default();
            Ok(Wanted::Names(names.iter().map(|name| name.as_str().into()).collect()))
        }
    }
}

/// The partitions of a new job, each where it begins.
fn beginnings(bus: &dyn Bus, topics: &[Topic], from: From) -> Result<Vec<Known>, Error> {
    let places: Vec<TopicPartition> = places_of(topics).collect();
    let offsets = match from {
        From::Time(time) => bus.offsets_at(&places, time)?,
        From::Earliest | From::Latest => {
            let offset = |of: &TopicPartition| {
                let bounds = bounds(bus, of)?;
                Ok(if from == From::Latest { bounds.end } else { bounds.start })
            };
            places.iter().map(offset).collect::<Result<_, Error>>()?
        }
    };
    let id =
        |of: &TopicPartition| topics.iter().find(|topic| topic.name == of.topic).and_then(|topic| topic.id);
    let known = |(of, offset): (TopicPartition, i64)| Known { id: id(&of), of, place: Place::at(offset) };
    Ok(places.into_iter().zip(offsets).map(known).collect())
}

/// The format of the values, and of the records that are made of them.
fn formats(context: &SourceContext) -> Result<MessageFormat, Error> {
    decoder::EventClock::new(&context.schema, context)?;
    let format =
        context.format.as_ref().ok_or_else(|| Error::internal("the source was built without a format"))?;
    let inner = format.reader(&value_schema(&context.schema))?;
    check_header(&*inner)?;
    Ok(MessageFormat::new(inner, &context.schema))
}

fn reading(context: &SourceContext, format: &Arc<MessageFormat>) -> Reading {
    let format_name = context.format.as_ref().map(|format| format.plugin.name());
    Reading {
        parts: format.parts().into(),
        format: Arc::clone(format) as Arc<dyn RecordFormat>,
        tombstones: match context.options.text("tombstones") {
            Some("ignore") => Tombstones::Ignore,
            _ => Tombstones::Reject,
        },
        // A line may be any bytes.
        refuses_wire_format: format_name != Some("lines"),
        is_json: format_name == Some("ndjson"),
    }
}

fn isolation(options: &Options) -> Isolation {
    match options.text("isolation") {
        Some("read_uncommitted") => Isolation::Uncommitted,
        _ => Isolation::Committed,
    }
}

fn missing(options: &Options) -> Missing {
    match options.text("missing") {
        Some("skip") => Missing::Skip,
        _ => Missing::Refuse,
    }
}

fn queue(options: &Options) -> usize {
    options.size("queue").map_or(DEFAULT_QUEUE, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn refresh(options: &Options) -> Duration {
    let every = options.duration("refresh");
    let every = every.map_or(DEFAULT_REFRESH, |micros| Duration::from_micros(micros.unsigned_abs()));
    every.max(Duration::from_millis(10))
}

/// A message is no stream, which could begin with a header.
fn check_header(format: &dyn RecordFormat) -> Result<(), Error> {
    match format.has_preamble() {
        true => Err(Error::user("a message of a topic has no header")
            .with_hint("set header: false, and no skip_lines")),
        false => Ok(()),
    }
}

impl SourcePlugin for KafkaPlugin {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn doc(&self) -> &'static str {
        "records from topics of Apache Kafka"
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

    fn is_live(&self, options: &Options) -> bool {
        !self.has_end(options)
    }

    fn has_end(&self, options: &Options) -> bool {
        options.text("until").is_some()
    }

    fn value_schema(&self, schema: &Schema) -> Schema {
        value_schema(schema)
    }

    fn check_schema(&self, schema: &Schema) -> Vec<Mistake> {
        check_fields(schema)
    }

    fn check(&self, options: &Options) -> Vec<Mistake> {
        let mut mistakes = check_connection(options);
        let topics = options.list("topics");
        if topics.is_some() == options.text("pattern").is_some() {
            let error = match topics {
                Some(_) => {
                    Error::user("\"topics\" and \"pattern\" are both given").with_hint("keep one of them")
                }
                None => Error::user("expected \"topics\" or \"pattern\", got neither"),
            };
            let key = if topics.is_some() { "pattern" } else { "type" };
            mistakes.push(Mistake::new(key, error));
        }
        if topics.is_some_and(<[String]>::is_empty) {
            mistakes.push(Mistake::new("topics", Error::user("expected one topic at least, got none")));
        }
        if let Err(error) = wanted(options) {
            mistakes.push(Mistake::new("pattern", error));
        }
        if let Err(error) = From::of(options) {
            mistakes.push(Mistake::new("from", error));
        }
        mistakes
    }

    fn check_format(&self, format: &dyn RecordFormat) -> Option<Mistake> {
        check_header(format).err().map(|error| Mistake::new("format", error))
    }

    fn topic(&self, options: &Options) -> Result<Option<Arc<str>>, Error> {
        shared::topic(options).map(Some)
    }

    fn open_topic(&self, context: &SourceContext) -> Result<Option<SharedTopic>, Error> {
        shared::open(&self.make_bus, context).map(Some)
    }

    fn probe(&self, context: &SourceContext) -> Result<(), Error> {
        formats(context)?;
        settings(&context.options, format_args!("thalweg.{}.{}", context.job, context.name)).map(drop)
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let options = &context.options;
        let format = Arc::new(formats(&context)?);
        let group = format!("thalweg.{}.{}", context.job, context.name);
        let bus = (self.make_bus)(settings(options, format_args!("{group}"))?)?;
        let wanted = wanted(options)?;
        let topics = wanted.topics(&*bus)?;
        if topics.is_empty() {
            info!(source = &*context.name, "no topic matches the pattern yet");
        }
        let known = beginnings(&*bus, &topics, From::of(options)?)?;
        let is_bounded = self.has_end(options);
        let plan = Plan {
            source: Arc::clone(&context.name),
            group,
            reading: reading(&context, &format),
            isolation: isolation(options),
            missing: missing(options),
            is_bounded,
            queue: queue(options),
        };
        let watch = match is_bounded {
            true => Watch::nothing(),
            false => Watch::new(Arc::clone(&bus), wanted, refresh(options)),
        };
        let source = KafkaSource::new(plan, bus, topics, known, context.goes_on, watch)?;
        let format = format as Arc<dyn RecordFormat>;
        Ok(BuiltSource::new(Box::new(source), decoders_of(&context, format), context.schema, Replay::Itself))
    }
}
