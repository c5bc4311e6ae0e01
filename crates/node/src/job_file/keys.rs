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
    /// Names, and for each the paths into this file and the values that replace them.
    Shortcuts,
    /// A mapping with keys of its own.
    Section(&'static [KeySpec]),
    Sources,
    Operators,
    Sinks,
}

/// One key: its values and its meaning.
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
        "version of the job file language",
    )
    .default("1"),
    KeySpec::new("name", Shape::Name, "name of the job").required(),
    KeySpec::new(
        "shortcuts",
        Shape::Shortcuts,
        "short names for `--set`: for each, the paths that it sets and their values, in which `{}` is replaced by the given value",
    ),
    KeySpec::new("cycle", Shape::Section(CYCLE), "when a cycle ends and is committed"),
    KeySpec::new(
        "order",
        Shape::Option(OptionKind::Choice(ORDER)),
        "`time` merges files that are read once by their event time; `arrival` reads records as they come",
    )
    .default("time"),
    KeySpec::new("state", Shape::Section(STATE), "where state is kept, and how much of it in memory"),
    KeySpec::new("rejects", Shape::Section(REJECTS), "how much is kept of records that could not be used"),
    KeySpec::new("sources", Shape::Sources, "sources of records, by name").required(),
    KeySpec::new("operators", Shape::Operators, "operators, by name"),
    KeySpec::new("sinks", Shape::Sinks, "sinks for results, by name"),
];

pub(crate) const CYCLE: &[KeySpec] = &[
    KeySpec::new("every", DURATION, "ends a cycle after this time").default("1s"),
    KeySpec::new("bytes", SIZE, "ends a cycle after this many bytes of input"),
    KeySpec::new("records", COUNT, "ends a cycle after this many records"),
];

pub(crate) const REJECTS: &[KeySpec] = &[KeySpec::new(
    "max_bytes",
    SIZE,
    "approximate size of all files of rejects together; when they are full, the oldest is deleted, and its records stay counted",
)
.default("1GiB")];

pub(crate) const RECOVERY: &[&str] = &["eager", "lazy"];

pub(crate) const STATE: &[KeySpec] = &[
    KeySpec::new(
        "backend",
        Shape::Option(OptionKind::Choice(BACKENDS)),
        "back end that keeps checkpoints; `memory` works only without `--data-dir`",
    )
    .default("indexed"),
    KeySpec::new(
        "url",
        Shape::Option(OptionKind::Url),
        "redis, hbase: address of the server: `redis://127.0.0.1:6379`, or `http://127.0.0.1:8080` of HBase's REST gateway",
    ),
    KeySpec::new("user", TEXT, "redis, hbase: user name, if the server requires one"),
    KeySpec::new(
        "password",
        Shape::Option(OptionKind::Secret),
        "redis, hbase: the user's password",
    ),
    KeySpec::new("table", TEXT, "hbase: the table; it is created if it does not exist").default("thalweg"),
    KeySpec::new("timeout", DURATION, "redis, hbase: how long a request may take before it is repeated")
        .default("10s"),
    KeySpec::new("memory", SIZE, "limit for state in memory; without it groups of windows have none, and elements have 256MiB"),
    KeySpec::new(
        "recovery",
        Shape::Option(OptionKind::Choice(RECOVERY)),
        "how a restart loads state: `eager` loads it in the background, `lazy` on first use; for windows it applies only with `memory`",
    )
    .default("eager"),
    KeySpec::new("chunk_memory", SIZE, "limit for the chunks of windows' records in memory; 256MiB if absent"),
    KeySpec::new(
        "retention",
        DURATION,
        "how long records stay on disk after every window has passed them",
    ),
];

/// How several sources that have an end are read, the default first.
pub(crate) const ORDER: &[&str] = &["time", "arrival"];

pub(crate) const SOURCE: &[KeySpec] = &[
    KeySpec::new("type", Shape::Type, "type of the source").required(),
    KeySpec::new("format", Shape::Format, "how bytes become records"),
    KeySpec::new("schema", Shape::Fields, "fields of a record and their types"),
    KeySpec::new(
        "time",
        Shape::Field,
        "field with the event time, or an expression that computes it; without it, event time is the time of arrival",
    ),
    KeySpec::new("id", Shape::Field, "field that identifies a record, for `dedup`"),
    KeySpec::new("dedup", DURATION, "a record whose id was seen within this time is not counted again; requires `id`"),
    KeySpec::new(
        "order",
        Shape::Option(OptionKind::Choice(ORDER)),
        "`time` merges this file with others by event time, `arrival` reads it as it comes; only for files that are read once",
    )
    .default("the job's `order`"),
    KeySpec::new("lateness", DURATION, "how far a record's event time may be before the newest").default("10s"),
    KeySpec::new(
        "late",
        Shape::Option(OptionKind::Choice(&["reject", "clamp"])),
        "what happens to a late record: `reject` writes it to rejects, `clamp` counts it at the oldest time allowed",
    )
    .default("reject"),
    KeySpec::new(
        "max_ahead",
        Shape::DurationOr(NONE),
        "a record whose event time is further ahead of the clock is written to rejects; `none` sets no limit",
    )
    .default("1h for http, tcp, udp, sflow and files with `follow`, none for others"),
    KeySpec::new(
        "ack",
        Shape::Option(OptionKind::Choice(&["synced", "written", "none"])),
        "when a record is acknowledged: `synced`, once it is on disk; `written`, once it survives a crash of the process but not of the machine; `none`, at once",
    )
    .default("synced"),
    KeySpec::new(
        "retention",
        DURATION,
        "how long the journal of a source keeps received records",
    )
    .default("until the records are committed"),
    KeySpec::new(
        "retention_bytes",
        SIZE,
        "limit for the journal; the oldest records are deleted first, but never uncommitted ones",
    ),
    KeySpec::new(
        "reject_limit",
        Shape::Option(OptionKind::Integer { min: 0, max: i64::MAX }),
        "the job fails when this source has more rejects than this",
    ),
    KeySpec::new("parallelism", TASKS, "number of tasks that decode; the number of threads if absent"),
    KeySpec::new("node", Shape::Name, "on several nodes: the name of the one that reads the source; all sources of the job are read there, and one node alone does not look at it"),
    KeySpec::new("reply", Shape::Name, "http: operator whose output is the reply to requests; by default the first `metrics` that reads the source, or else the source itself"),
];

pub(crate) const OPERATOR: &[KeySpec] = &[
    KeySpec::new("type", Shape::Type, "type of the operator").required(),
    KeySpec::new("input", Shape::Input, "input of the operator").required(),
    KeySpec::new("parallelism", TASKS, "number of tasks of an operator without a key; by default as many as the input has"),
    KeySpec::new(
        "partitions",
        TASKS,
        "number of tasks over which keys are split, fixed for the life of the state; of an operator of elements without `key`, the number of elements (default 1)",
    )
    .default("4"),
    KeySpec::new("schedule", Shape::Section(SCHEDULE), "when its tasks run; by default whenever there is input"),
];

pub(crate) const SCHEDULE: &[KeySpec] = &[
    KeySpec::new("every", DURATION, "run at most this often"),
    KeySpec::new("records", COUNT, "run when this many records wait"),
];

pub(crate) const SINK: &[KeySpec] = &[
    KeySpec::new("type", Shape::Type, "type of the sink").required(),
    KeySpec::new("input", Shape::Input, "input of the sink").required(),
    KeySpec::new("format", Shape::Format, "how records become bytes"),
    KeySpec::new(
        "node",
        Shape::Name,
        "on several nodes: the name of the one that writes; one node alone does not look at it",
    ),
];

pub(crate) const INPUT: &[KeySpec] = &[
    KeySpec::new("from", Shape::Name, "a source, an operator, or a named output: `OPERATOR.OUTPUT`")
        .required(),
    KeySpec::new(
        "partition",
        Shape::Option(OptionKind::Text),
        "how records are spread over tasks: `key(a, b)`, `shuffle`, `forward`, `broadcast` or `global`",
    ),
    KeySpec::new("buffer", SIZE, "a buffer of records is sent on when it holds this many bytes")
        .default("256KiB"),
    KeySpec::new("flush", DURATION, "a buffer is also sent on when its oldest record is this old")
        .default("0s"),
];
