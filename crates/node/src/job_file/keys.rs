//! The keys of a job file, in one table each: the checks, the hints and the JSON Schema are made from them.
//!
//! Keys of formats, sources and sinks come from their plug-ins' [`OptionSpec`]s, those of operators from
//! [`crate::operator::OperatorPlugin::options`].

use thalweg_connect::{OptionKind, OptionSpec};

/// What the value of a key looks like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    Option(OptionKind),
    /// A name that this file gives or uses.
    Name,
    /// `type` of a source, an operator or a sink.
    Type,
    Format,
    /// Field names and types.
    Fields,
    /// The name of a field.
    Field,
    /// What an operator or a sink reads.
    Input,
    /// A SQL expression over the fields.
    Expression,
    /// Names and SQL expressions.
    Expressions,
    /// Names, and for each a field of the input or a list of them.
    Keys,
    /// Field names; an entry that is a list itself is a key of several fields.
    PartitionBy,
    /// Names and queries.
    Queries,
    /// A duration or this word.
    DurationOr(&'static str),
    /// One of these words, or `{ every: … }` with a count of records or a duration.
    Pace(&'static [&'static str]),
    /// Names, and for each paths into this file and what is laid over them.
    Shortcuts,
    /// A mapping with keys of its own.
    Section(&'static [KeySpec]),
    Sources,
    Operators,
    Sinks,
}

/// One key: what it takes and what it is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeySpec {
    pub key: &'static str,
    pub shape: Shape,
    pub required: bool,
    /// As it would be written.
    pub default: Option<&'static str>,
    pub doc: &'static str,
}

impl KeySpec {
    pub const fn new(key: &'static str, shape: Shape, doc: &'static str) -> Self {
        Self { key, shape, required: false, default: None, doc }
    }

    #[must_use]
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    #[must_use]
    pub const fn default(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    pub(crate) fn of_option(option: &OptionSpec) -> Self {
        Self {
            key: option.key,
            shape: Shape::Option(option.kind),
            required: option.required,
            default: option.default,
            doc: option.doc,
        }
    }
}

const COUNT: Shape = Shape::Option(OptionKind::Integer { min: 1, max: i64::MAX });
const TASKS: Shape = Shape::Option(OptionKind::Integer { min: 1, max: 4096 });
const DURATION: Shape = Shape::Option(OptionKind::Duration);
const SIZE: Shape = Shape::Option(OptionKind::Size);
const TEXT: Shape = Shape::Option(OptionKind::Text);

/// No bound.
pub(crate) const NONE: &str = "none";

/// Back ends by name, the default first.
pub(crate) const BACKENDS: &[&str] = &["indexed", "files", "redis", "hbase", "memory"];

pub(crate) const TOP: &[KeySpec] = &[
    KeySpec::new(
        "version",
        Shape::Option(OptionKind::Integer { min: 1, max: 1 }),
        "version of the job file's language",
    )
    .default("1"),
    KeySpec::new("name", Shape::Name, "name of the job").required(),
    KeySpec::new(
        "shortcuts",
        Shape::Shortcuts,
        "names for --set, and for each the paths that it sets, with what is laid over them: {} is the value",
    ),
    KeySpec::new("cycle", Shape::Section(CYCLE), "when a cycle, the unit of commit, ends"),
    KeySpec::new(
        "order",
        Shape::Option(OptionKind::Choice(ORDER)),
        "how files that are read once and have an event time are read: together by `time`, or each as it comes",
    )
    .default("time"),
    KeySpec::new("state", Shape::Section(STATE), "where state is kept and how much of it in memory"),
    KeySpec::new("rejects", Shape::Section(REJECTS), "what is kept of records that could not be used"),
    KeySpec::new("sources", Shape::Sources, "where records come from").required(),
    KeySpec::new("operators", Shape::Operators, "what is made of them"),
    KeySpec::new("sinks", Shape::Sinks, "where results go"),
];

pub(crate) const CYCLE: &[KeySpec] = &[
    KeySpec::new("every", DURATION, "a cycle ends after this time").default("1s"),
    KeySpec::new("bytes", SIZE, "or after this many bytes of input"),
    KeySpec::new("records", COUNT, "or after this many records"),
];

pub(crate) const REJECTS: &[KeySpec] = &[KeySpec::new(
    "max_bytes",
    SIZE,
    "bytes that all files of rejects may have together, about; the oldest make room for newer ones, and their records are only counted",
)
.default("1GiB")];

pub(crate) const RECOVERY: &[&str] = &["eager", "lazy"];

pub(crate) const STATE: &[KeySpec] = &[
    KeySpec::new(
        "backend",
        Shape::Option(OptionKind::Choice(BACKENDS)),
        "where checkpoints are kept; `memory` only where nothing outlives the process",
    )
    .default("indexed"),
    KeySpec::new(
        "url",
        Shape::Option(OptionKind::Url),
        "where the store is: redis://127.0.0.1:6379, or http://127.0.0.1:8080 of HBase's gateway",
    ),
    KeySpec::new("user", TEXT, "user of the store, where it wants one"),
    KeySpec::new(
        "password",
        Shape::Option(OptionKind::Secret),
        "env:NAME or file:PATH of the user's password",
    ),
    KeySpec::new("table", TEXT, "hbase: the table; made if it is not there").default("thalweg"),
    KeySpec::new("timeout", DURATION, "how long the store may take to answer; the request is repeated then")
        .default("10s"),
    KeySpec::new("memory", SIZE, "ceiling for state in memory"),
    KeySpec::new(
        "recovery",
        Shape::Option(OptionKind::Choice(RECOVERY)),
        "whether a restart reads state back ahead of its first use; that of windows with `memory` alone",
    )
    .default("eager"),
    KeySpec::new("chunk_memory", SIZE, "ceiling for chunks of reservoirs in memory"),
    KeySpec::new(
        "retention",
        DURATION,
        "how long records stay in reservoirs after every window has left them",
    ),
];

/// How several sources that have an end are read, the default first.
pub(crate) const ORDER: &[&str] = &["time", "arrival"];

pub(crate) const SOURCE: &[KeySpec] = &[
    KeySpec::new("type", Shape::Type, "kind of the source").required(),
    KeySpec::new("format", Shape::Format, "how bytes become records"),
    KeySpec::new("schema", Shape::Fields, "the fields of a record"),
    KeySpec::new(
        "time",
        Shape::Field,
        "field with the event time, or an expression over the fields that gives it; absent: arrival time",
    ),
    KeySpec::new("id", Shape::Field, "field that names a record, for `dedup`"),
    KeySpec::new("dedup", DURATION, "a second record with the same id within this time is not added"),
    KeySpec::new(
        "order",
        Shape::Option(OptionKind::Choice(ORDER)),
        "whether a file that is read once is read by event time, together with the others that are",
    )
    .default("the job's `order`"),
    KeySpec::new("lateness", DURATION, "how far out of order records may come").default("10s"),
    KeySpec::new(
        "late",
        Shape::Option(OptionKind::Choice(&["reject", "clamp"])),
        "what happens to records that come later than that",
    )
    .default("reject"),
    KeySpec::new(
        "max_ahead",
        Shape::DurationOr(NONE),
        "a record whose event time is further ahead of its arrival, which is now for files too, is rejected; `none`: any may \
         be",
    )
    .default("1h for http, tcp, udp, sflow and files with `follow`, none for others"),
    KeySpec::new(
        "ack",
        Shape::Option(OptionKind::Choice(&["synced", "written", "none"])),
        "what has happened to a record before it is acknowledged",
    )
    .default("synced"),
    KeySpec::new(
        "retention",
        DURATION,
        "at least so long the journal keeps what was received, for sources that have one",
    )
    .default("until it is committed"),
    KeySpec::new(
        "retention_bytes",
        SIZE,
        "no more than so much of it, oldest first, though never what is not committed",
    ),
    KeySpec::new(
        "reject_limit",
        Shape::Option(OptionKind::Integer { min: 0, max: i64::MAX }),
        "more rejects than this stop the job",
    ),
    KeySpec::new("parallelism", TASKS, "how many tasks decode"),
    KeySpec::new("reply", Shape::Name, "operator whose output answers the requests (http)"),
];

pub(crate) const OPERATOR: &[KeySpec] = &[
    KeySpec::new("type", Shape::Type, "kind of the operator").required(),
    KeySpec::new("input", Shape::Input, "what it reads").required(),
    KeySpec::new("parallelism", TASKS, "how many tasks of it run"),
    KeySpec::new(
        "partitions",
        TASKS,
        "how its keys are split, for the life of its state; of elements without a key how many there are, 1 if it is absent",
    )
    .default("4"),
    KeySpec::new("schedule", Shape::Section(SCHEDULE), "when its tasks run, beside whenever they can"),
];

pub(crate) const SCHEDULE: &[KeySpec] = &[
    KeySpec::new("every", DURATION, "only this often"),
    KeySpec::new("records", COUNT, "or when this many records wait"),
];

pub(crate) const SINK: &[KeySpec] = &[
    KeySpec::new("type", Shape::Type, "kind of the sink").required(),
    KeySpec::new("input", Shape::Input, "what it takes").required(),
    KeySpec::new("format", Shape::Format, "how records become bytes"),
];

pub(crate) const INPUT: &[KeySpec] = &[
    KeySpec::new("from", Shape::Name, "a source, an operator, or `operator.output`").required(),
    KeySpec::new(
        "partition",
        Shape::Option(OptionKind::Text),
        "how records are spread over tasks: key(a, b), shuffle, forward, broadcast or global",
    ),
    KeySpec::new("buffer", SIZE, "a buffer leaves when it holds this many bytes").default("256KiB"),
    KeySpec::new("flush", DURATION, "or when its oldest record is this old").default("0s"),
];
