//! Operators of a job file: the traits of a plug-in, and the list of those in this build.
//!
//! A plug-in checks its keys against the streams that it reads and says what it emits; the graph is built from
//! that. Most are one operator of the graph; one that is several (as `metrics` is a stage per key and a merge)
//! gives them as a list.
//!
//! Not here: inputs, task counts and schedules, which are the same for every operator (`job_file::check`).

pub mod element;
mod filter;
mod map;
mod metrics;
mod reject;
mod relay;
mod split;
mod table_join;
pub(crate) mod union;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_connect::{OptionKind, Options};
use thalweg_expr::{Bound, Checked, Expr, Mistakes, Qualifier};
use thalweg_flow::{
    FieldType, Get, Operator, Partitioner, Partitioning, PerRecord, RecordOperator, TaskInfo,
};
use thalweg_storage::{ChunkBudget, Fs, IoPool};
use thalweg_types::{DataType, Error, Field, LatePolicy, Micros, Schema};

use crate::backends::Backends;
use crate::job_file::StateSettings;
use crate::job_file::check::source::read_schema;
use crate::job_file::keys::{KeySpec, Shape};
use crate::job_file::section::{Report, Section, is_name};
use crate::job_file::tree::{Node, Value};
use crate::metrics::{AnswerCounts, FailingQueries, MetricsSpec};

pub use element::{Aggregate, Changes, Count, ElementPlan, Join};
pub use filter::Filter;
pub use map::Map;
pub use metrics::Metrics;
pub use relay::Relay;
pub use split::Split;
pub use union::Union;

/// A stream of a job: its fields, and its order and ids.
#[derive(Clone, Debug)]
pub struct Stream {
    pub schema: Schema,
    pub lateness: Micros,
    pub late: LatePolicy,
    pub dedup: Option<Dedup>,
    /// What the streams that it was made of say differently.
    pub(crate) clashes: Clashes,
    pub(crate) apart: Option<Apart>,
    /// Answers of a `metrics`: of those that were late, `late` says so, and rejects have a line.
    pub(crate) is_judged: bool,
}

impl Stream {
    /// As a source says.
    pub(crate) fn new(schema: Schema, lateness: Micros, late: LatePolicy, dedup: Option<Dedup>) -> Self {
        Self { schema, lateness, late, dedup, clashes: Clashes::default(), apart: None, is_judged: false }
    }

    /// The place of the field with the id, and for how long a second one is a duplicate, microseconds.
    pub(crate) fn ids(&self) -> Option<(usize, Micros)> {
        let dedup = self.dedup.as_ref()?;
        self.schema.field(&dedup.id).map(|(place, _)| (place, dedup.span))
    }
}

/// The differences of merged streams, in words. An operator that judges by them refuses the streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clashes {
    pub(crate) late: Option<Arc<str>>,
    pub(crate) ids: Option<Arc<str>>,
}

/// Records of a stream that tasks of one operator emit when their own time has passed. Nothing bounds how far these times
/// are from each other.
#[derive(Clone, Debug)]
pub(crate) struct Apart {
    pub(crate) operator: Arc<str>,
    /// The fields that split the records over its tasks.
    pub(crate) key: Vec<String>,
    pub(crate) tasks: u32,
}

/// How second records with the same id are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dedup {
    /// Name of the field with the id.
    pub id: String,
    pub span: Micros,
}

/// Makes one task of an operator; called once per task when the job starts.
pub type OperatorFactory = Arc<dyn Fn(&TaskContext<'_>) -> Result<Box<dyn Operator>, Error> + Send + Sync>;

/// The arguments that a task is made with.
pub struct TaskContext<'a> {
    pub info: &'a TaskInfo,
    /// `tasks/OPERATOR/PARTITION` of the job's folder: the task's own, and not there until it makes it.
    pub folder: PathBuf,
    pub services: &'a Services,
    /// `None` where the job does not outlive its process. Then there is nothing to go on from, and nothing to hand
    /// over.
    pub durable: Option<TaskResume>,
}

/// Where the task of a durable job goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskResume {
    /// The last cycle that was committed; 0: none.
    pub cycle: u64,
    /// What the task's part of that cycle said; `None` where it had no part in it.
    pub position: Option<Vec<u8>>,
}

/// Services that the tasks of a job share.
#[derive(Clone)]
pub struct Services {
    pub fs: Arc<dyn Fs>,
    /// Background reads and writes of the whole node.
    pub pool: Arc<IoPool>,
    /// Memory for chunks of reservoirs, `state.chunk_memory` of the job.
    pub chunks: Arc<ChunkBudget>,
    pub state: StateSettings,
    /// The part of `state.memory` for the groups of each keyed stage's task, if they have a back end.
    pub stage_memory: Option<usize>,
    /// The part of `state.memory` for each operator of elements that has a back end.
    pub element_memory: usize,
    /// Open the tasks' state.
    pub backends: Backends,
    /// What the `metrics` operators of the job have answered.
    pub answers: AnswerCounts,
    /// Receives failures of queries that were added to the job.
    pub failing: FailingQueries,
}

/// One output that others can read as `operator.name`; the first is what `operator` alone means.
#[derive(Clone, Debug)]
pub struct NamedOutput {
    pub name: String,
    pub schema: Schema,
}

/// How many tasks a part has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// As the job file says, or as many as its input has.
    Declared,
    One,
    /// `partitions` of the job file, which the part's state lives by.
    Partitions,
}

/// The input of a part.
#[derive(Clone, Debug)]
pub enum PartInput {
    /// Input `port` of the operator, spread as the job file says.
    Declared { port: usize },
    /// Input `port` of the operator, spread so whatever the job file says.
    Outer { port: usize, partitioning: Partitioning },
    /// An earlier part of the same operator.
    Part { index: usize, output: usize, partitioning: Partitioning },
}

/// One operator of the graph.
#[derive(Clone)]
pub struct Part {
    /// `None` for the operator itself, otherwise it is called `operator/label`.
    pub label: Option<String>,
    pub inputs: Vec<PartInput>,
    pub outputs: Vec<Schema>,
    pub tasks: Tasks,
    pub factory: OperatorFactory,
}

/// What an operator became.
#[derive(Clone)]
pub struct Prepared {
    /// Outputs of the last part, in its order.
    pub outputs: Vec<NamedOutput>,
    /// Parts in an order in which each comes after those that it reads; the last one is the operator itself.
    pub parts: Vec<Part>,
    /// Output of the last part that carries rejects.
    pub rejects: Option<usize>,
    /// For `metrics`: the queries.
    pub metrics: Option<Arc<MetricsSpec>>,
    /// Inputs whose records with equal values in some fields must reach the same task, and the places of the fields.
    pub keyed: Vec<(usize, Vec<usize>)>,
    /// Its saved state cannot be read without these, besides its name, type and partitions; `None` if it saves none, or
    /// says so with `metrics` or `keyed`.
    pub kept_by: Option<KeptBy>,
    /// Whether it judges its records by the order and ids of their streams, as operators with state do;
    /// otherwise it passes them on, or makes others of them, one by one.
    pub judges: bool,
    /// Records that it emits later than the records that they are made of.
    pub later: Option<Later>,
    /// It has no key, and as many tasks as `partitions` says, over which its inputs are spread as declared.
    pub takes_partitions: bool,
    /// It may emit much more than it is given: its tasks are its own, and say how many records they take at once.
    pub apart: bool,
    /// Files that its tasks load when they are made.
    pub loads: Option<Loads>,
}

/// Files that an operator loads.
#[derive(Clone)]
pub struct Loads {
    pub files: Vec<PathBuf>,
    /// Tries to load them, with the errors of a start; nothing is made or changed.
    pub probe: Arc<dyn Fn() -> Result<(), Error> + Send + Sync>,
}

/// Records that are emitted once the time of their task has passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Later {
    /// How much older their event time may be than that of the records that are read, in microseconds.
    pub behind: Micros,
    /// Their fields that split them over the tasks.
    pub key: Vec<String>,
}

impl Prepared {
    /// Whether it keeps elements: it judges its records, and answers no queries.
    pub(crate) fn is_of_elements(&self) -> bool {
        self.judges && self.metrics.is_none()
    }

    /// Gives a `metrics` operator other queries; its declared schema stays.
    pub(crate) fn set_metrics(&mut self, spec: MetricsSpec) {
        let spec = Arc::new(spec);
        self.parts = metrics::parts(&spec);
        self.metrics = Some(spec);
    }
}

/// What an operator's saved state cannot be read without: keys of the job file, or what else a person calls it, and
/// what it says in the job. A job that says something else is refused, because its state would be taken for what it
/// is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptBy {
    /// Whether its partitions are among it.
    pub is_split: bool,
    pub parts: BTreeMap<String, String>,
}

impl KeptBy {
    /// Adds fields by name and type, because bytes of state have no types.
    pub fn fields<'f>(&mut self, what: impl Into<String>, fields: impl IntoIterator<Item = &'f Field>) {
        let fields = fields.into_iter().map(|field| format!("{} {}", field.name, field.data_type));
        self.parts.insert(what.into(), format!("[{}]", fields.collect::<Vec<_>>().join(", ")));
    }
}

impl Prepared {
    /// One operator with any number of tasks that reads its inputs as declared.
    pub fn one(
        inputs: usize,
        outputs: Vec<NamedOutput>,
        tasks: Tasks,
        factory: impl Fn(&TaskContext<'_>) -> Result<Box<dyn Operator>, Error> + Send + Sync + 'static,
    ) -> Self {
        let part = Part {
            label: None,
            inputs: (0..inputs).map(|port| PartInput::Declared { port }).collect(),
            outputs: outputs.iter().map(|output| output.schema.clone()).collect(),
            tasks,
            factory: Arc::new(factory),
        };
        Self {
            outputs,
            parts: vec![part],
            rejects: None,
            metrics: None,
            keyed: Vec::new(),
            kept_by: None,
            judges: false,
            later: None,
            takes_partitions: false,
            apart: false,
            loads: None,
        }
    }

    /// For an operator that emits once task time has passed: says how late that may be, so that operators
    /// below do not take its records for late.
    #[must_use]
    pub fn emits_later(self, later: Later) -> Self {
        Self { later: Some(later), ..self }
    }

    /// As [`Prepared::one`], for an operator written record by record, with the inputs of `check`.
    pub fn per_record<O: RecordOperator + 'static>(
        check: &OperatorCheck<'_>,
        outputs: Vec<NamedOutput>,
        tasks: Tasks,
        factory: impl Fn(&TaskContext<'_>) -> Result<O, Error> + Send + Sync + 'static,
    ) -> Self {
        let inputs: Vec<Schema> = check.inputs().iter().map(|stream| stream.schema.clone()).collect();
        let schemas: Vec<Schema> = outputs.iter().map(|output| output.schema.clone()).collect();
        Self::one(inputs.len(), outputs, tasks, move |context| {
            Ok(Box::new(PerRecord::new(factory(context)?, &inputs, &schemas)))
        })
    }

    /// Insists that all records of an input which agree in these fields, by their places, reach the same task,
    /// because the operator keeps state by them. A job file that spreads them otherwise is refused.
    #[must_use]
    pub fn keyed_by(mut self, input: usize, fields: impl Into<Vec<usize>>) -> Self {
        self.keyed.push((input, fields.into()));
        self
    }

    /// Adds parts that its saved state cannot be read without; does nothing if it saves none.
    #[must_use]
    pub fn also_kept_by(mut self, add: impl FnOnce(&mut KeptBy)) -> Self {
        if let Some(kept_by) = &mut self.kept_by {
            add(kept_by);
        }
        self
    }
}

/// How many inputs an operator takes. Where it takes one and the job file gives a list, a union is put before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    One,
    Many,
}

/// A kind of operator, as `type:` names it.
pub trait OperatorPlugin: Send + Sync {
    fn name(&self) -> &'static str;

    /// One line for `check`, `schema` and the documentation.
    fn doc(&self) -> &'static str;

    /// Markdown for the reference, after `doc`: facts that a user has to know, and examples, which a test runs
    /// ([`crate::reference`]). A line `{{keys}}` is replaced by the table of `options`.
    fn page(&self) -> &'static str {
        ""
    }

    /// Keys of its own.
    fn options(&self) -> &'static [KeySpec];

    fn inputs(&self) -> Inputs {
        Inputs::One
    }

    /// Whether it partitions its input by itself, so that the job file may not.
    fn partitions_itself(&self) -> bool {
        false
    }

    /// Checks the keys and returns what the operator emits. Mistakes go to `check`; with one of them the result is
    /// `None`. Nothing is opened or started here.
    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared>;
}

/// The input of a plug-in's check: its name, its keys and the streams that it reads.
pub struct OperatorCheck<'a> {
    pub(crate) section: Section<'a>,
    pub(crate) name: Arc<str>,
    pub(crate) inputs: &'a [Stream],
    pub(crate) input_names: &'a [String],
    /// Names of everything whose records reach the operator, the nearest first.
    pub(crate) above: &'a [String],
    /// The operators among its inputs: whom a record comes from that no source has.
    pub(crate) from: Arc<str>,
    /// As the job file says.
    pub(crate) partitions: Option<u32>,
    pub(crate) options: Options,
    pub(crate) failed: Cell<bool>,
}

impl<'a> OperatorCheck<'a> {
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// One stream per input.
    pub fn inputs(&self) -> &'a [Stream] {
        self.inputs
    }

    /// The only input, or the first of several.
    pub fn input(&self) -> &'a Stream {
        &self.inputs[0]
    }

    /// Values of the keys that are [`Shape::Option`]s, checked.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The boolean, numeric or other expression of a key.
    pub fn expression(&self, key: &str, schema: &Schema) -> Option<Bound> {
        let node = self.require(key, "a SQL expression")?;
        self.bind(node, &format!("{key:?} of {}", self.section.what), schema)?.bound()
    }

    /// The boolean expression of a key.
    pub fn condition(&self, key: &str, schema: &Schema) -> Option<Bound> {
        let node = self.require(key, "a SQL expression")?;
        let checked = self.bind(node, &format!("{key:?} of {}", self.section.what), schema)?;
        if let Some(data_type) = checked.data_type()
            && *data_type != DataType::Bool
        {
            let message = format!("{key:?} is of type {data_type}, expected bool");
            self.error(key, message, Some("compare it with something, as in `amount > 1`".to_owned()));
            return None;
        }
        checked.bound()
    }

    /// Names and expressions of a key, in order.
    pub fn expressions(&self, key: &str, schema: &Schema) -> Option<Vec<(String, Bound)>> {
        let node = self.require(key, "names and SQL expressions")?;
        let section = Section::of(
            self.report(),
            format!("{key:?} of {}", self.section.what),
            self.section.key_span(key),
            node,
        );
        let Some(section) = section else {
            self.failed.set(true);
            return None;
        };
        let mut bound = Vec::new();
        for (name, node) in section.entries() {
            if !is_name(&name.text) {
                self.failed.set(true);
                self.report()
                    .at(name.span, format!("{:?} is no name", name.text))
                    .expected("a letter or _, then letters, digits, _ and -")
                    .report();
            }
            let checked = self.bind(node, &format!("field {:?}", name.text), schema);
            if let Some(expression) = checked.and_then(Checked::bound) {
                bound.push((name.text.clone(), expression));
            }
        }
        (!self.failed.get()).then_some(bound)
    }

    /// Field names and types of the key `schema`.
    pub fn fields(&self, key: &str) -> Option<Schema> {
        let node =
            self.require(key, "field names and types, such as { first: ip, last: ip, asn: uint64 }")?;
        let schema = read_schema(&self.section, node);
        if schema.is_none() {
            self.failed.set(true);
        }
        schema
    }

    /// Names of a key, and for each the places of the fields that it gives, in order.
    pub fn keys(&self, key: &str, schema: &Schema) -> Option<Vec<(String, Vec<usize>)>> {
        const EXPECTED: &str = "names and fields, such as { src: src_addr }";
        let node = self.require(key, EXPECTED)?;
        let what = format!("{key:?} of {}", self.section.what);
        let section = Section::of(self.report(), what, self.section.key_span(key), node);
        let entries = section.as_ref().map_or(&[][..], Section::entries);
        if section.is_some() && entries.is_empty() {
            self.error(key, format!("{key:?} of {} is empty, expected {EXPECTED}", self.section.what), None);
        }
        let mut found = Vec::new();
        for (name, node) in entries {
            if !is_name(&name.text) {
                self.error(key, format!("{:?} is no name", name.text), None);
            }
            let one = std::slice::from_ref(node);
            let nodes = if let Value::List(nodes) = &node.value { nodes } else { one };
            let places = nodes.iter().map(|node| field_place(&self.section, key, node, schema));
            match places.collect::<Option<Vec<_>>>() {
                Some(places) => {
                    found.push((name.text.clone(), places.into_iter().map(|(place, _)| place).collect()))
                }
                None => self.failed.set(true),
            }
        }
        if section.is_none() {
            self.failed.set(true);
        }
        (!self.failed.get()).then_some(found)
    }

    /// Place of the field that a key names.
    pub fn field(&self, key: &str, schema: &Schema) -> Option<usize> {
        let node = self.require(key, "the name of a field")?;
        let place = field_place(&self.section, key, node, schema);
        if place.is_none() {
            self.failed.set(true);
        }
        place.map(|(place, _)| place)
    }

    /// Where the field that a key names is read, as a `T`.
    pub fn get<T: FieldType>(&self, key: &str, schema: &Schema) -> Option<Get<T>> {
        let place = self.field(key, schema)?;
        self.accept(key, Get::of(schema, &schema.fields()[place].name))
    }

    /// The value, or its error reported as a mistake in the value of a key.
    pub fn accept<T>(&self, key: &str, result: Result<T, Error>) -> Option<T> {
        let report = |error: Error| {
            self.error(key, format!("{key:?}: {}", error.chain()), error.hint().map(str::to_owned));
        };
        result.map_err(report).ok()
    }

    /// Reports a mistake in the value of a key.
    pub fn error(&self, key: &str, message: impl Into<String>, hint: Option<String>) {
        self.failed.set(true);
        let span = self.section.get(key).map_or(self.section.span, |node| node.span);
        let mut pending = self.report().at(span, message);
        if let Some(hint) = hint {
            pending = pending.hint(hint);
        }
        pending.report();
    }

    /// Tells of something in the value of a key that is no mistake.
    pub fn warn(&self, key: &str, message: impl Into<String>) {
        let span = self.section.get(key).map_or(self.section.span, |node| node.span);
        self.report().at(span, message).warning().report();
    }

    pub(crate) fn report(&self) -> &'a Report {
        self.section.report
    }

    pub(crate) fn require(&self, key: &str, expected: &str) -> Option<&'a Node> {
        let node = self.section.require(key, expected);
        if node.is_none() {
            self.failed.set(true);
        }
        node
    }

    /// Binds the expression in `node` as far as possible, and reports its mistakes.
    fn bind(&self, node: &Node, what: &str, schema: &Schema) -> Option<Checked> {
        let Value::Scalar(scalar) = &node.value else {
            self.failed.set(true);
            self.report()
                .at(node.span, format!("{what} is {}", node.describe()))
                .expected("a SQL expression")
                .report();
            return None;
        };
        let mut mistakes = Mistakes::new();
        let checked = Expr::read(&scalar.text, &mut mistakes)
            .map(|expression| expression.check(schema, Qualifier::None, &mut mistakes));
        if let Err(errors) = mistakes.finish() {
            self.failed.set(true);
            self.report().sql(node, what, &errors);
        }
        checked
    }
}

/// The field that a node names, or a mistake with the nearest one.
pub(crate) fn field_place(
    section: &Section<'_>,
    key: &str,
    node: &Node,
    schema: &Schema,
) -> Option<(usize, thalweg_types::Field)> {
    let scalar = match &node.value {
        Value::Scalar(scalar) => scalar,
        _ => {
            section
                .report
                .at(node.span, format!("{key:?} of {} is {}", section.what, node.describe()))
                .expected("the name of a field")
                .report();
            return None;
        }
    };
    match schema.field(&scalar.text) {
        Some((place, field)) => Some((place, field.clone())),
        None => {
            section
                .report
                .at(node.span, format!("{key:?} of {} names no field: {:?}", section.what, scalar.text))
                .expected(format!("one of the fields {}", schema.names().collect::<Vec<_>>().join(", ")))
                .did_you_mean(&scalar.text, schema.names())
                .report();
            None
        }
    }
}

/// Operators and custom partitionings by name. Users' own are added with [`Operators::add`].
#[derive(Clone)]
pub struct Operators {
    plugins: Vec<Arc<dyn OperatorPlugin>>,
    partitioners: Vec<(String, Arc<dyn Partitioner>)>,
}

impl Operators {
    /// Everything that comes with this build.
    pub fn builtin() -> Self {
        let mut operators = Self { plugins: Vec::new(), partitioners: Vec::new() };
        operators.add(Metrics);
        operators.add(Filter);
        operators.add(Map);
        operators.add(Union);
        operators.add(Relay);
        operators.add(Split);
        operators.add(Count);
        operators.add(Aggregate);
        operators.add(Join);
        operators.add(Changes);
        operators.add(table_join::RangeJoinPlugin);
        operators.add(table_join::LookupJoinPlugin);
        operators.add(table_join::MemberJoinPlugin);
        operators
    }

    pub fn add(&mut self, plugin: impl OperatorPlugin + 'static) {
        self.plugins.push(Arc::new(plugin));
    }

    /// Makes `partition: name` mean this partitioning.
    pub fn add_partitioner(&mut self, name: impl Into<String>, partitioner: Arc<dyn Partitioner>) {
        self.partitioners.push((name.into(), partitioner));
    }

    pub fn all(&self) -> &[Arc<dyn OperatorPlugin>] {
        &self.plugins
    }

    pub fn get(&self, name: &str) -> Option<&Arc<dyn OperatorPlugin>> {
        self.plugins.iter().find(|plugin| plugin.name() == name)
    }

    pub(crate) fn partitioner(&self, name: &str) -> Option<&Arc<dyn Partitioner>> {
        self.partitioners.iter().find(|(known, _)| known == name).map(|(_, partitioner)| partitioner)
    }

    pub(crate) fn partitioner_names(&self) -> impl Iterator<Item = &str> {
        self.partitioners.iter().map(|(name, _)| name.as_str())
    }
}

impl Default for Operators {
    fn default() -> Self {
        Self::builtin()
    }
}

/// The plain options among an operator's keys, as connect's checks take them.
pub(crate) fn plain_options(keys: &[KeySpec]) -> Vec<thalweg_connect::OptionSpec> {
    keys.iter()
        .filter_map(|key| match key.shape {
            Shape::Option(kind) => Some(thalweg_connect::OptionSpec {
                key: key.key,
                kind,
                required: key.required,
                default: key.default,
                doc: key.doc,
            }),
            _ => None,
        })
        .collect()
}

pub(crate) const TEXTS: Shape = Shape::Option(OptionKind::TextList);
