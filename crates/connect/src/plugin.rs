//! The traits of formats, sources and sinks, and what each of them is given.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use bytes::Bytes;
use thalweg_flow::{Decoder, Operator, Source, TaskFactory};
use thalweg_types::{Batch, Error, Micros, Offset, Schema, Seq};

use crate::format::{Encoder, RecordFormat};
use crate::reach::JobPath;
use crate::secret::SecretRef;
use crate::source::BlockCodec;
use crate::source::connections::ConnectionCounts;
use crate::{Answers, Replies, SinkReport};

/// The values that a key of a job file takes.
///
/// A key whose value is opened as a file, or leads to a secret, is of a kind of its own, as job files that come over
/// HTTP may not name all of them ([`crate::reach`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptionKind {
    Text,
    /// A path, relative to the current directory.
    Path,
    /// A list of paths, or one path alone.
    PathList,
    /// `env:NAME` or `file:PATH`: where a secret is. Other text there is not repeated in messages.
    Secret,
    /// The URL of another system. A password in it is not repeated in messages.
    Url,
    Bool,
    Integer {
        min: i64,
        max: i64,
    },
    Number,
    /// `500ms`, `5s`, `1h`.
    Duration,
    /// `64KiB`, `1GiB`.
    Size,
    Choice(&'static [&'static str]),
    /// A list of texts, or one text alone.
    TextList,
    /// A list of texts, or one text alone; or names, and for each of them such a list.
    TextLists,
    /// Names, and for each a section with these keys.
    Sections(&'static [OptionSpec]),
}

/// One key that a plug-in takes, for the checks, the hints and the JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptionSpec {
    pub key: &'static str,
    pub kind: OptionKind,
    pub required: bool,
    /// As a job file would have it; for the documentation only.
    pub default: Option<&'static str>,
    pub doc: &'static str,
}

/// A value that has been checked against its [`OptionKind`].
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// Text, choice or URL.
    Text(String),
    Path(JobPath),
    Paths(Vec<JobPath>),
    Secret(SecretRef),
    Bool(bool),
    Integer(i64),
    Number(f64),
    Duration(Micros),
    Size(u64),
    List(Vec<String>),
    /// Names with their lists, in the order of the job file.
    Lists(Vec<(String, Vec<String>)>),
    /// In the order of the job file.
    Sections(Vec<(String, Options)>),
}

/// The keys that were given, checked: of the right kind, all known, and none missing that is required.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options(pub BTreeMap<String, OptionValue>);

impl Options {
    pub fn get(&self, key: &str) -> Option<&OptionValue> {
        self.0.get(key)
    }

    /// Text, choice or URL.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(OptionValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub fn path(&self, key: &str) -> Option<&JobPath> {
        match self.get(key) {
            Some(OptionValue::Path(path)) => Some(path),
            _ => None,
        }
    }

    pub fn paths(&self, key: &str) -> Option<&[JobPath]> {
        match self.get(key) {
            Some(OptionValue::Paths(paths)) => Some(paths),
            _ => None,
        }
    }

    pub fn secret(&self, key: &str) -> Option<&SecretRef> {
        match self.get(key) {
            Some(OptionValue::Secret(reference)) => Some(reference),
            _ => None,
        }
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key) {
            Some(OptionValue::Bool(flag)) => Some(*flag),
            _ => None,
        }
    }

    pub fn integer(&self, key: &str) -> Option<i64> {
        match self.get(key) {
            Some(OptionValue::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    pub fn number(&self, key: &str) -> Option<f64> {
        match self.get(key) {
            Some(OptionValue::Number(number)) => Some(*number),
            Some(OptionValue::Integer(number)) => Some(*number as f64),
            _ => None,
        }
    }

    pub fn duration(&self, key: &str) -> Option<Micros> {
        match self.get(key) {
            Some(OptionValue::Duration(micros)) => Some(*micros),
            _ => None,
        }
    }

    pub fn size(&self, key: &str) -> Option<u64> {
        match self.get(key) {
            Some(OptionValue::Size(bytes)) => Some(*bytes),
            _ => None,
        }
    }

    pub fn sections(&self, key: &str) -> Option<&[(String, Options)]> {
        match self.get(key) {
            Some(OptionValue::Sections(sections)) => Some(sections),
            _ => None,
        }
    }

    pub fn list(&self, key: &str) -> Option<&[String]> {
        match self.get(key) {
            Some(OptionValue::List(texts)) => Some(texts),
            _ => None,
        }
    }

    /// Lists by name.
    pub fn lists(&self, key: &str) -> Option<&[(String, Vec<String>)]> {
        match self.get(key) {
            Some(OptionValue::Lists(lists)) => Some(lists),
            _ => None,
        }
    }
}

/// A wrong value of a key, as a plug-in's check finds it. The job file's check adds the place.
#[derive(Debug)]
pub struct Mistake {
    pub key: String,
    /// The expected value, the given one, and perhaps a hint.
    pub error: Error,
}

impl Mistake {
    pub fn new(key: impl Into<String>, error: Error) -> Self {
        Self { key: key.into(), error }
    }
}

/// A format and the keys that were given for it (`header`, `delimiter` …).
#[derive(Clone)]
pub struct FormatSpec {
    pub plugin: Arc<dyn FormatPlugin>,
    pub options: Options,
}

impl FormatSpec {
    /// # Errors
    /// As [`FormatPlugin::reader`].
    pub fn reader(&self, schema: &Schema) -> Result<Arc<dyn RecordFormat>, Error> {
        self.plugin.reader(schema, &self.options)
    }

    /// # Errors
    /// As [`FormatPlugin::encoder`].
    pub fn encoder(&self, schema: &Schema) -> Result<Box<dyn Encoder>, Error> {
        self.plugin.encoder(schema, &self.options)
    }
}

/// Computes event times from the fields of records.
pub trait ComputeTime: Send + Sync {
    /// As the job file has it, for messages.
    fn text(&self) -> &str;

    /// A timestamp for each record, null if it has none.
    fn times(&self, records: &RecordBatch) -> ArrayRef;
}

/// Where a record's event time comes from.
#[derive(Clone)]
pub enum SourceTime {
    /// A timestamp field, by its place in the schema.
    Field(usize),
    /// Fields of the record, by an expression.
    Computed(Arc<dyn ComputeTime>),
    /// The tick at which the record was numbered.
    Arrival,
}

/// Everything a source plug-in is given.
#[derive(Clone)]
pub struct SourceContext {
    pub job: Arc<str>,
    pub name: Arc<str>,
    /// The fields that the job file declares; empty where the plug-in makes its own.
    pub schema: Schema,
    /// `None` for plug-ins that need no format.
    pub format: Option<FormatSpec>,
    pub options: Options,
    pub time: SourceTime,
    /// A record further ahead of its arrival is rejected ([`crate::source::MaxAhead`]); `None`: any may be.
    pub max_ahead: Option<Micros>,
    /// `--data-dir` of this job, for sources that keep something.
    pub data_dir: PathBuf,
    /// Records that this run leaves out: one at which the decoder panics becomes a reject. The others are decoded, and
    /// left out after the decoder.
    pub skip: Arc<[Offset]>,
    /// Whether a record is acknowledged to its sender only when it is durable as `ack` requires: in a job that goes on
    /// after a crash, unless that is `none`.
    pub acknowledges: bool,
    /// Whether another run goes on where this one ends: the job has a data directory.
    pub goes_on: bool,
    /// Whether its records are answered on other nodes, and not by its own job.
    pub is_answered_elsewhere: bool,
}

/// Why a request could not be handed to the job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    #[error("the queue of source {source_name:?} is full")]
    Full { source_name: String },
    #[error("source {source_name:?} takes no more records: the job is draining")]
    Draining { source_name: String },
    #[error("a request of {bytes} bytes is larger than the queue of source {source_name:?} ({bound} bytes)")]
    TooLarge { source_name: String, bytes: usize, bound: usize },
    #[error("the request holds no record")]
    Empty,
}

/// A body that was handed to the job.
pub struct Submitted {
    /// Records in it, with those that will be rejected.
    pub records: u64,
    /// `None` if there is nothing to wait for.
    pub replies: Option<Replies>,
}

/// The door of an HTTP source: the server hands in bodies, the job hands back replies.
pub trait Ingress: Send + Sync {
    /// Queues the records of a body (JSON objects, one JSON array of them, or records in the format of the source).
    ///
    /// With `reply`, the replies have one line per record, in order, as they come. Without, they have no lines, and end
    /// when the job has processed the records and they are durable as the source's `ack` requires; `None` if that is at
    /// once. If the job stops first, the outcome is unknown.
    fn submit(&self, body: Bytes, reply: bool) -> Result<Submitted, SubmitError>;
}

/// A source that a plug-in has built.
pub struct BuiltSource {
    pub source: Box<dyn Source>,
    pub decoder: TaskFactory<dyn Decoder>,
    /// Schema of the records.
    pub schema: Schema,
    /// For HTTP sources: the door.
    pub ingress: Option<Arc<dyn Ingress>>,
    /// The sink that carries answers and rejects back to those who wait for them: its input 0 takes answers, its input 1
    /// rejects.
    pub replies: Option<TaskFactory<dyn Operator>>,
    /// Takes answers that come from elsewhere ([`SourceContext::is_answered_elsewhere`]).
    pub answers: Option<Arc<dyn Answers>>,
    /// The address of a listening source, with the port that it really got.
    pub address: Option<SocketAddr>,
    /// For sources that take connections: their counters.
    pub connections: Option<Arc<ConnectionCounts>>,
    /// How the same records are read again after a crash.
    pub replay: Replay,
}

impl BuiltSource {
    /// A source without connections.
    pub fn new(
        source: Box<dyn Source>,
        decoder: TaskFactory<dyn Decoder>,
        schema: Schema,
        replay: Replay,
    ) -> Self {
        let (ingress, replies, answers) = (None, None, None);
        Self { source, decoder, schema, ingress, replies, answers, address: None, connections: None, replay }
    }

    /// It listens there.
    #[must_use]
    pub fn listening(self, address: SocketAddr) -> Self {
        Self { address: Some(address), ..self }
    }
}

/// The place that keeps records until no cycle needs them any more.
pub enum Replay {
    /// Outside of the job: the source goes to a place in its input and reads the same again
    /// ([`Source::restore`], [`Source::replay`]).
    Itself,
    /// Outside of the job, with all that comes between the records: the source tells the order of the whole job
    /// ([`thalweg_flow::JobOptions::is_told`]), which has no other source and keeps no order of its own.
    Told,
    /// Blocks go through a journal of ours as they come, before they are numbered.
    Journal(BlockCodec),
}

/// One kind of records of a source.
#[derive(Clone, Debug)]
pub struct SourceOutput {
    pub name: &'static str,
    pub schema: Schema,
}

/// From when to when the records of one input of a source are, such as of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSpan {
    pub name: String,
    pub first: Micros,
    /// `None` where more would have to be read to know it.
    pub last: Option<Micros>,
}

impl InputSpan {
    /// Most inputs of one source that are looked at.
    pub const MOST: usize = 256;
}

pub trait SourcePlugin: Send + Sync {
    /// The name that `type:` has.
    fn name(&self) -> &'static str;

    /// One line for `check`, `schema` and the documentation.
    fn doc(&self) -> &'static str;

    /// Markdown for the reference, after `doc`: notes for users, and examples, which a test runs
    /// (`thalweg_node::reference`). A line `{{keys}}` is replaced by the table of `options`.
    fn page(&self) -> &'static str {
        ""
    }

    fn options(&self) -> &'static [OptionSpec];

    /// Whether `format:` and `schema:` are required.
    fn takes_format(&self) -> bool {
        true
    }

    /// The format if the job file names none.
    fn default_format(&self) -> Option<&'static str> {
        None
    }

    /// Whether its records come through the HTTP server of the node alone, so that a run without one gets none.
    fn is_door(&self) -> bool {
        false
    }

    /// Whether its records are pushed to whichever process listens, and it keeps no place: several may take records at a
    /// time.
    fn is_pushed(&self) -> bool {
        self.is_door()
    }

    /// The topic whose partitions nodes of a cluster divide among them; `None` for a source of another kind.
    ///
    /// # Errors
    /// Of class user: it has a topic, and nodes cannot divide it with these options.
    fn topic(&self, options: &Options) -> Result<Option<Arc<str>>, Error> {
        let _ = options;
        Ok(None)
    }

    /// That topic, for whoever reads its partitions, each one by itself.
    ///
    /// # Errors
    /// As [`SourcePlugin::topic`] and [`SourcePlugin::build`].
    #[cfg(feature = "kafka")]
    fn open_topic(
        &self,
        context: &SourceContext,
    ) -> Result<Option<crate::source::kafka::SharedTopic>, Error> {
        let _ = context;
        Ok(None)
    }

    /// Whether records arrive as they are made, so that `max_ahead` has a default.
    fn is_live(&self, options: &Options) -> bool;

    /// Whether its records have an end and are outside, so that scouts can look ahead in it
    /// ([`thalweg_flow::Source::scouts`]): such sources are read by event time together, where they have one.
    fn has_end(&self, options: &Options) -> bool {
        let _ = options;
        false
    }

    /// The schema of a source that makes its own records; `None` where the job file declares it.
    ///
    /// # Errors
    /// If the options do not fit together.
    fn own_schema(&self, options: &Options) -> Result<Option<Schema>, Error> {
        Ok(self.outputs(options).into_iter().next().map(|output| output.schema))
    }

    /// The field in which a source that makes its own records has their event time, so that the job file may name no
    /// other.
    fn own_time(&self, options: &Options) -> Option<&'static str> {
        let _ = options;
        None
    }

    /// The kinds of records of a source that makes several, each an output of its own: `input: SOURCE.NAME`. The name
    /// of the source alone means the first.
    fn outputs(&self, options: &Options) -> Vec<SourceOutput> {
        let _ = options;
        Vec::new()
    }

    /// Checks its options, each of which is as its [`OptionSpec`] says, without opening anything. Every mistake is
    /// reported with its place in the job file, by `thalweg check` too.
    fn check(&self, options: &Options) -> Vec<Mistake> {
        let _ = options;
        Vec::new()
    }

    /// The fields that its format reads, of those that the job file declares: all, unless the source makes some itself.
    fn value_schema(&self, schema: &Schema) -> Schema {
        schema.clone()
    }

    /// As [`SourcePlugin::check`], for the fields that the job file declares.
    fn check_schema(&self, schema: &Schema) -> Vec<Mistake> {
        let _ = schema;
        Vec::new()
    }

    /// As [`SourcePlugin::check`], for the format that it would read with, bound to [`SourcePlugin::value_schema`].
    fn check_format(&self, format: &dyn RecordFormat) -> Option<Mistake> {
        let _ = format;
        None
    }

    /// Tries to open the files and sockets that [`SourcePlugin::build`] opens, for `thalweg check`, and fails with the
    /// same errors. Nothing is made or changed, nothing is waited for, and nothing stays open.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn probe(&self, context: &SourceContext) -> Result<(), Error> {
        let _ = context;
        Ok(())
    }

    /// The time spans of its inputs, in the order in which they are read if that is not by time, for the warnings of
    /// `thalweg check`. Little is read for it, and of [`InputSpan::MOST`] inputs at most; empty if spans have no
    /// meaning for the source.
    ///
    /// # Errors
    /// If one cannot be read.
    fn spans(&self, context: &SourceContext) -> Result<Vec<InputSpan>, Error> {
        let _ = context;
        Ok(Vec::new())
    }

    /// Files that opening it creates if they are missing: operators that read them find them then.
    fn makes(&self, options: &Options) -> Vec<PathBuf> {
        let _ = options;
        Vec::new()
    }

    /// # Errors
    /// If it cannot be opened, with path or address.
    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error>;
}

/// Everything a sink plug-in is given.
#[derive(Clone)]
pub struct SinkContext {
    pub job: Arc<str>,
    pub name: Arc<str>,
    /// Schema of the input.
    pub schema: Schema,
    pub format: Option<FormatSpec>,
    /// Batches may have other fields than the schema says, as queries come and go.
    pub follows: bool,
    pub options: Options,
    /// Counters of the records that the sink has taken; keep a clone to read them afterwards.
    pub report: SinkReport,
    /// `--data-dir` of this job, for sinks that keep something.
    pub data_dir: PathBuf,
    /// `None` where the job does not outlive its process: it begins anew every time, and nothing is committed.
    pub durable: Option<SinkResume>,
    /// `None` where no other process runs the same job.
    pub unit: Option<SinkUnit>,
}

/// The unit of a cluster that a sink is part of. Copies of a unit on other nodes have the same rows at the same positions, and
/// other order numbers; a sink remembers positions, and never order numbers. One copy at a time should write. While a unit
/// moves, or its node hangs, two may.
#[derive(Clone)]
pub struct SinkUnit {
    /// What other systems know the sink by, whichever of its units and nodes it is.
    pub sink: Arc<str>,
    /// Which of the units with this sink it is, and how many there are.
    pub partition: u32,
    pub partitions: u32,
    /// `JOB/SINK/PARTITION`.
    pub name: Arc<str>,
    pub rows: Arc<dyn UnitRows>,
}

impl SinkUnit {
    /// What other systems know the sink of this unit by, whichever node has it.
    pub fn id(&self) -> String {
        format!("{}.{}", self.sink, self.partition)
    }
}

/// Where the rows of a unit stand in its log. Positions ascend with the rows, and are the same for all copies.
pub trait UnitRows: Send + Sync {
    /// The positions of the records of a batch's rows. Batches come in the order of their records.
    ///
    /// # Errors
    /// Of class internal where a row is not known.
    fn positions(&self, batch: &Batch) -> Result<Vec<u64>, Error>;

    /// All rows below `end` have been given; the position of the last record below it, if there was one since the last call.
    fn passed(&self, end: Seq) -> Option<u64>;

    /// Whether it is this copy that writes. One that follows another is given no row that is not written, and nothing that it
    /// is given has to be.
    fn is_active(&self) -> bool;

    /// All rows of records up to this position are written, by whichever copy.
    fn reached(&self, position: u64);
}

/// Where the sink of a durable job goes on. It takes part in cycles ([`Operator::takes_part`]); the position that it
/// hands over comes back here as `position` after a restart. Cycles after `cycle` are replayed then, with the same
/// numbers and records, so a sink that knows from elsewhere that it has one of them already drops it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkResume {
    /// The last cycle that was committed; 0: none.
    pub cycle: u64,
    /// The position of the sink's part of that cycle; `None` if it had no part in it.
    pub position: Option<Vec<u8>>,
    /// The job has never run in this data directory: cycles that the sink's target has are of another one.
    pub is_new: bool,
    /// The job goes on and has not had the sink before: data that is already at its target is not its own.
    pub is_added: bool,
}

pub trait SinkPlugin: Send + Sync {
    fn name(&self) -> &'static str;

    fn doc(&self) -> &'static str;

    /// As [`SourcePlugin::page`].
    fn page(&self) -> &'static str {
        ""
    }

    fn options(&self) -> &'static [OptionSpec];

    fn takes_format(&self) -> bool {
        true
    }

    fn default_format(&self) -> Option<&'static str> {
        None
    }

    /// Its guarantee after a crash, as `check` prints it: `exactly-once`, `at-least-once`.
    fn guarantee(&self) -> &'static str;

    /// Whether it may find records that it cannot write. Such a sink emits them on its only output, in the schema of
    /// rejects.
    fn rejects(&self, format: Option<&FormatSpec>) -> bool {
        format.is_some_and(|format| format.plugin.refuses())
    }

    /// Whether records that it takes can be seen outside before they are committed. Such a sink is given nothing that
    /// could come in another order after a crash, which takes a sync of the order log.
    fn publishes(&self) -> bool {
        true
    }

    /// Whether, as part of a unit of a cluster, it writes to another system, where it remembers how far it is
    /// ([`SinkContext::unit`]); one that writes nothing does not.
    ///
    /// # Errors
    /// Of class user: why it cannot be part of one, after "sink NAME".
    fn writes_for_units(&self, options: &Options) -> Result<bool, Error> {
        let _ = options;
        Err(Error::user(format!("is of type {}, which units do not write to yet", self.name()))
            .with_hint("use a sink of type kafka or table, name the node that writes it (`node: NAME`), or let clients take the answers as replies"))
    }

    /// Whether it deletes records for their age, which its report counts ([`crate::SinkReport::expired`]).
    fn expires(&self, options: &Options) -> bool {
        let _ = options;
        false
    }

    /// Checks, without opening anything, its options, each of which is as its [`OptionSpec`] says, and
    /// the schema of its input. Every mistake is reported with its place in the job file, by `thalweg check` too.
    fn check(&self, schema: &Schema, options: &Options) -> Vec<Mistake> {
        let _ = (schema, options);
        Vec::new()
    }

    /// As [`SourcePlugin::probe`], for [`SinkPlugin::build`].
    ///
    /// # Errors
    /// If it cannot be opened.
    fn probe(&self, context: &SinkContext) -> Result<(), Error> {
        let _ = context;
        Ok(())
    }

    /// Looks whether what it writes to is there, for whoever has others open it, and later. May wait for another system.
    ///
    /// # Errors
    /// If it is not there; with [`WithBackoff`](thalweg_types::Retry::WithBackoff) if nobody says.
    fn find(&self, context: &SinkContext) -> Result<(), Error> {
        let _ = context;
        Ok(())
    }

    /// Opens the sink; called before the job starts, so that a path that cannot be written is reported then.
    ///
    /// # Errors
    /// If it cannot be opened, with path or address.
    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error>;
}

/// A format: how bytes become records and records bytes. See `crate::format` for its three parts.
pub trait FormatPlugin: Send + Sync {
    fn name(&self) -> &'static str;

    fn doc(&self) -> &'static str;

    /// As [`SourcePlugin::page`].
    fn page(&self) -> &'static str {
        ""
    }

    fn options(&self) -> &'static [OptionSpec];

    /// Whether its encoders may be unable to write a record, which goes to rejects then.
    fn refuses(&self) -> bool {
        false
    }

    /// The reading half, bound to a schema: splitters for sources, decoders for their tasks.
    ///
    /// # Errors
    /// If an option's value has no meaning for the format, such as a delimiter of two characters.
    fn reader(&self, schema: &Schema, options: &Options) -> Result<Arc<dyn RecordFormat>, Error>;

    /// The writing half, bound to a schema.
    ///
    /// # Errors
    /// As [`FormatPlugin::reader`].
    fn encoder(&self, schema: &Schema, options: &Options) -> Result<Box<dyn Encoder>, Error>;

    /// The writing half that takes the fields of each batch as they come; `None` if all records must have the same.
    fn following(&self, options: &Options) -> Option<Box<dyn Encoder>> {
        let _ = options;
        None
    }
}
