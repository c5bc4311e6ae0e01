//! Operators of a job file: the traits of a plug-in, and the list of those in this build.
//!
//! A plug-in checks its keys against the streams that it reads and says what it is: its outputs, its parts, and what
//! the node does with it ([`Prepared`]). The node asks for no operator by its name: ours have nothing that those of
//! users cannot have.
//!
//! * `prepared`: what an operator became, and its parts.
//! * `task`: what each of its tasks is made with.
//! * `late`: what all operators that judge their records say of late ones.
//!
//! Not here: inputs, task counts and schedules, which are the same for every operator (`job_file::check`).

pub mod element;
mod filter;
pub mod late;
mod map;
pub(crate) mod metrics;
mod prepared;
mod reject;
mod relay;
mod split;
mod table_join;
mod task;
pub(crate) mod union;

use std::cell::Cell;
use std::sync::Arc;

use thalweg_connect::{OptionKind, Options};
use thalweg_expr::{Bound, Checked, Expr, Mistakes, Qualifier};
use thalweg_flow::{FieldType, Get, Partitioner};
use thalweg_types::{DataType, Error, LatePolicy, Micros, Schema};

use crate::continuing::{QueryNews, Saved};
use crate::job_file::check::source::read_schema;
use crate::job_file::keys::{KeySpec, Shape};
use crate::job_file::section::{Report, Section, is_name};
use crate::job_file::tree::{Node, Value};

pub use element::{Aggregate, Changes, Count, ElementPlan, Join};
pub use filter::Filter;
pub use map::Map;
pub use metrics::Metrics;
pub use prepared::{
    Answers, KeptBy, Later, Links, Loads, Memory, NamedOutput, Part, PartInput, PartName, Prepared, Tasks,
};
pub use relay::Relay;
pub use split::Split;
pub use task::{AnswerCount, AnswerCounts, OperatorFactory, Services, TaskContext, TaskResume};
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
    /// Answers of an operator that judges: of those that were late, `late` says so, and rejects have a line.
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

    /// Queries of an operator of this kind that the job does not have any more, as its last commit has them: their state
    /// goes.
    ///
    /// # Errors
    /// Where what is saved cannot be read.
    fn gone(&self, operator: &str, saved: &Saved<'_>) -> Result<Vec<QueryNews>, Error> {
        let _ = (operator, saved);
        Ok(Vec::new())
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
