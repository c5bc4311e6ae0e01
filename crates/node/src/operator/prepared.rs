//! What an operator became: all that the node knows of it.
//!
//! Most are one part of the graph. One that is several (as `metrics` is a stage for each key and a merge) gives them as a
//! list, in which each reads the operator's inputs or earlier parts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_flow::{Operator, Partitioning, PerRecord, RecordOperator};
use thalweg_types::{Error, Field, Micros, Schema};

use crate::queries::{Queries, Requeried};

use super::{OperatorCheck, OperatorFactory, TaskContext};

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
    /// `None` for the operator itself.
    pub label: Option<Arc<str>>,
    pub inputs: Vec<PartInput>,
    pub outputs: Vec<Schema>,
    pub tasks: Tasks,
    /// Whether it judges its records by the order and ids of their streams, as those with state do; otherwise it passes
    /// them on, or makes others of them, one by one.
    pub judges: bool,
    pub factory: OperatorFactory,
}

/// A part by its operator and label; as text `operator` or `operator/label`, in the graph and on the disk.
///
/// A label may hold anything, a name of an operator no slash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartName {
    pub operator: Arc<str>,
    pub label: Option<Arc<str>>,
}

impl PartName {
    /// The name in a text.
    pub fn parse(text: &str) -> Self {
        let (operator, label) =
            text.split_once('/').map_or((text, None), |(name, label)| (name, Some(label)));
        Self { operator: operator.into(), label: label.map(Arc::from) }
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.operator)?;
        self.label.iter().try_for_each(|label| write!(f, "/{label}"))
    }
}

/// What an operator became. Everything after `parts` is for operators that need it; the others say nothing there
/// ([`Prepared::of_parts`]).
#[derive(Clone)]
pub struct Prepared {
    /// Outputs of the last part, in its order.
    pub outputs: Vec<NamedOutput>,
    /// Parts in an order in which each comes after those that it reads; the last one is the operator itself.
    pub parts: Vec<Part>,
    /// Output of the last part that carries rejects.
    pub rejects: Option<usize>,
    /// Its first output has an answer for each record: the record's fields and others.
    pub answers: Option<Answers>,
    /// Its queries, where they come and go while the job runs.
    pub queries: Option<Arc<dyn Queries>>,
    /// Its part of `state.memory`.
    pub memory: Option<Memory>,
    /// Inputs whose records with equal values in some fields must reach the same task, and the places of the fields.
    pub keyed: Vec<(usize, Vec<usize>)>,
    /// Its saved state cannot be read without these, besides its name, type and partitions; `None` if it saves none, or
    /// says so with `keyed`.
    pub kept_by: Option<KeptBy>,
    /// Records that it emits later than the records that they are made of.
    pub later: Option<Later>,
    /// It has no key, and as many tasks as `partitions` says, over which its inputs are spread as declared.
    pub takes_partitions: bool,
    /// It may emit much more than it is given: its tasks are its own, and say how many records they take at once.
    pub apart: bool,
    /// Files that its tasks load when they are made.
    pub loads: Option<Loads>,
    /// It emits at ticks: on several nodes the log of its stage has them.
    pub at_ticks: bool,
    /// Its tasks hold something that no checkpoint has: a restart forgets it.
    pub forgets: bool,
    /// Its parts as a chain, where it has several keys.
    pub links: Option<Links>,
}

/// An operator of several keys, taken apart into links of a chain: each runs by one of the keys, says something of every
/// record, and sends both on; the last one makes of it what the whole operator emits.
#[derive(Clone)]
pub struct Links {
    /// By link, places of the fields that its rows are spread by; none for one task.
    pub keys: Vec<Vec<usize>>,
    /// What each link but the last says of a record: one row for each.
    pub says: Vec<Schema>,
    /// The operator of a link. Input 0 of each is the records; a link but the last emits what it says; the last one has an
    /// input for each of the others, in their order.
    pub link: Arc<dyn Fn(usize) -> Prepared + Send + Sync>,
}

/// An operator that answers each record. Requests get the answers of the first such operator that reads their source; a
/// job counts the answers of the last ones before its sinks, which [`TaskContext::answers`] takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Output of the last part, after `outputs`, that has the same answers in the shape of the moment: for readers that
    /// look at the schema of each batch.
    pub live: Option<usize>,
}

/// How the tasks of an operator share in `state.memory` ([`TaskContext::memory`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Three quarters, in equal parts for each task with a partition of the operators that say this; not bounded where the
    /// job file does not bound it.
    Groups,
    /// A quarter, in equal parts for the operators that say this, and for the tasks of each.
    Elements,
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

/// What an operator's saved state cannot be read without: keys of the job file, or what else a person calls it, and
/// what it says in the job. A job that says something else is refused, because its state would be taken for what it
/// is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptBy {
    /// Whether its partitions are among it.
    pub is_split: bool,
    /// Keys by which parts of it are split: others may come, none may go. If there are any, its partitions stay, too.
    pub keys: Vec<String>,
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
    /// An operator of these parts.
    pub fn of_parts(outputs: Vec<NamedOutput>, parts: Vec<Part>) -> Self {
        Self {
            outputs,
            parts,
            rejects: None,
            answers: None,
            queries: None,
            memory: None,
            keyed: Vec::new(),
            kept_by: None,
            later: None,
            takes_partitions: false,
            apart: false,
            loads: None,
            at_ticks: false,
            forgets: false,
            links: None,
        }
    }

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
            judges: false,
            factory: Arc::new(factory),
        };
        Self::of_parts(outputs, vec![part])
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

    /// For an operator whose queries come and go while the job runs.
    #[must_use]
    pub fn with_queries(self, queries: Arc<dyn Queries>) -> Self {
        Self { queries: Some(queries), ..self }
    }

    /// For an operator that emits once task time has passed: says how late that may be, so that operators
    /// below do not take its records for late.
    #[must_use]
    pub fn emits_later(self, later: Later) -> Self {
        Self { later: Some(later), ..self }
    }

    /// For an operator that emits at ticks; its tasks say when they wait for one
    /// ([`Operator::waits_for_tick`](thalweg_flow::Operator::waits_for_tick)).
    #[must_use]
    pub fn emits_at_ticks(self) -> Self {
        Self { at_ticks: true, ..self }
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

    /// Whether a part of it judges its records.
    pub(crate) fn judges(&self) -> bool {
        self.parts.iter().any(|part| part.judges)
    }

    /// Whether it judges its records, and makes others of them.
    pub(crate) fn is_of_elements(&self) -> bool {
        self.judges() && self.answers.is_none()
    }

    /// Gives it other queries; its declared outputs stay.
    pub(crate) fn requery(&mut self, changed: Requeried) {
        self.parts = changed.parts;
        self.queries = Some(changed.queries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_are_what_they_were_made_of() {
        for (operator, label, text) in
            [("m", None, "m"), ("m", Some("card"), "m/card"), ("m", Some("a/b,c"), "m/a/b,c")]
        {
            let name = PartName { operator: operator.into(), label: label.map(Arc::from) };
            assert_eq!(name.to_string(), text);
            assert_eq!(PartName::parse(text), name);
        }
    }
}
