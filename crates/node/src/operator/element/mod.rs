//! Operators of keyed elements: their common keys in a job file, and the place of their state.
//!
//! Each judges its records before its elements see them, by the order and ids of its input streams, and
//! has an output more for the late ones that it does not take, `rejects`.
//!
//! Each splits its inputs by its key itself, into `partitions` tasks; without a key there is one task, or `partitions` of
//! them with an element each, over which the inputs are spread as declared.
//!
//! Memory: each of these operators takes its part of `state.memory` ([`Memory::Elements`]), shared evenly by its tasks, for
//! elements that the back end has. Without a durable job nothing can leave memory, and the bound
//! means nothing.

mod aggregate;
mod changes;
mod count;
mod join;
mod late;
mod pace;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use thalweg_connect::OptionKind;
use thalweg_flow::{
    CheckpointPace, Element, ElementSettings, ElementState, Elements, Expiry, InputRules, OnExpiry,
    OutputPolicy, Packer, Partitioning, Set,
};
use thalweg_types::{Error, Field, Schema, Value, rejects_schema};

use super::late::late_place;
use super::{
    KeptBy, Memory, NamedOutput, OperatorCheck, Part, PartInput, Prepared, Stream, TEXTS, TaskContext, Tasks,
};
use crate::diagnostic::nearest;
use crate::job_file::Recovery;
use crate::job_file::keys::{KeySpec, Shape};

pub use aggregate::Aggregate;
pub use changes::Changes;
pub use count::Count;
pub use join::Join;
use late::LateLines;
use pace::Pace;

/// Which records share an element.
pub const KEY: KeySpec = KeySpec::new(
    "key",
    TEXTS,
    "key fields; without them there is one element for all records, or one for each of `partitions`, over which `partition` of the input spreads the records",
);
/// How long an element stays that no record touches.
pub const TTL: KeySpec = KeySpec::new(
    "ttl",
    Shape::Option(OptionKind::Duration),
    "`on_ttl` applies to an element that no record has touched for this event time",
);
/// What becomes of it then.
pub const ON_TTL: KeySpec = KeySpec::new(
    "on_ttl",
    Shape::Option(OptionKind::Choice(&["unload", "forget"])),
    "`unload` removes the element from memory, and loads it from the checkpoint when it is needed; `forget` deletes it",
)
.default("unload");
/// When elements give their state.
pub const EMIT: KeySpec = KeySpec::new(
    "emit",
    Shape::Pace(&["every record"]),
    "when an element emits: with `every record`; after a number of records of its key, `{ every: 100 records }`; or `{ every: 5s }` by the clock, if it has changed",
)
.default("every record");
/// When changes are committed.
pub const CHECKPOINT: KeySpec = KeySpec::new(
    "checkpoint",
    Shape::Pace(&["none"]),
    "`{ every: 100 records }` or `{ every: 5s }` ends a cycle early; `none` keeps the state in memory only, so a restart loses it",
);

/// The output for late records, in addition to those of the plug-in.
const REJECTS: &str = "rejects";

/// How the elements of an operator are distinguished and kept.
#[derive(Clone, Debug)]
pub struct ElementPlan {
    /// Places of the key fields, by input; empty ones for one element in each task.
    pub keys: Vec<Vec<usize>>,
    pub settings: ElementSettings,
    /// Otherwise they live as long as the process, whatever the job does.
    pub is_durable: bool,
}

impl ElementPlan {
    /// Reads [`KEY`], [`TTL`], [`ON_TTL`], [`EMIT`] and [`CHECKPOINT`], those of them that the operator takes.
    /// All inputs have the same key fields.
    pub fn read(check: &OperatorCheck<'_>) -> Option<Self> {
        let names = check.options().list("key").unwrap_or_default();
        let keys: Option<Vec<_>> =
            check.inputs().iter().map(|stream| places(check, "key", names, &stream.schema)).collect();
        Self::with_keys(check, keys)
    }

    /// As [`ElementPlan::read`], with keys that were read otherwise.
    pub fn with_keys(check: &OperatorCheck<'_>, keys: Option<Vec<Vec<usize>>>) -> Option<Self> {
        let mut settings = ElementSettings::default();
        let mut is_durable = true;
        if let Some(pace) = pace::read(check, "emit", &["every record"]) {
            settings.output = match pace {
                Pace::Word(_) => OutputPolicy::Records(1),
                Pace::Records(count) => OutputPolicy::Records(count),
                Pace::Every(micros) => OutputPolicy::Every(micros),
            };
        }
        match pace::read(check, "checkpoint", &["none"]) {
            None => {}
            Some(Pace::Word(_)) => {
                is_durable = false;
                let message = format!(
                    "operator {:?} is not checkpointed: its state is lost with the process",
                    check.name()
                );
                check.warn("checkpoint", message);
            }
            Some(Pace::Records(count)) => settings.checkpoint = CheckpointPace::Records(count),
            Some(Pace::Every(micros)) => settings.checkpoint = CheckpointPace::Every(micros),
        }
        let on = match check.options().text("on_ttl") {
            Some("forget") => OnExpiry::Forget,
            _ => OnExpiry::Unload,
        };
        match check.options().duration("ttl") {
            Some(after) if after > 0 => settings.expiry = Some(Expiry { after, on }),
            Some(_) => {
                check.error("ttl", "\"ttl\" is 0", Some("leave it out to keep elements for ever".to_owned()))
            }
            None if check.options().text("on_ttl").is_some() => {
                check.error(
                    "on_ttl",
                    "\"on_ttl\" is given without \"ttl\"",
                    Some("add `ttl: 1h`".to_owned()),
                );
            }
            None => {}
        }
        let keys = keys?;
        (!check.failed.get()).then_some(Self { keys, settings, is_durable })
    }
}

/// Places of the fields that a key of the job file names.
fn places(check: &OperatorCheck<'_>, key: &str, names: &[String], schema: &Schema) -> Option<Vec<usize>> {
    let mut places = Vec::new();
    for name in names {
        match schema.field(name) {
            Some((place, _)) if places.contains(&place) => {
                check.error(key, format!("{key:?} names {name:?} twice"), None);
                return None;
            }
            Some((place, _)) => places.push(place),
            None => {
                let near = nearest(name, schema.names()).map(|near| format!("did you mean {near:?}?"));
                let fields = || format!("the fields are {}", schema.names().collect::<Vec<_>>().join(", "));
                let hint = near.unwrap_or_else(fields);
                check.error(key, format!("{key:?} names no field of the input: {name:?}"), Some(hint));
                return None;
            }
        }
    }
    check.accept(key, Packer::new(schema, &places))?;
    Some(places)
}

/// The fields, or a mistake where two have one name.
fn distinct(check: &OperatorCheck<'_>, fields: Vec<Field>) -> Option<Schema> {
    for (place, field) in fields.iter().enumerate() {
        if fields[..place].iter().any(|other| other.name == field.name) {
            let message = format!("what {:?} emits would have two fields {:?}", check.name(), field.name);
            check.error(
                "type",
                message,
                Some("rename the field of the input with a `map` before".to_owned()),
            );
            return None;
        }
    }
    Some(Schema::new(fields))
}

/// Where fields of these names are written, whatever their types.
fn setters<'f>(
    schema: &Schema,
    fields: impl IntoIterator<Item = &'f Field>,
) -> Result<Vec<Set<Value>>, Error> {
    fields.into_iter().map(|field| Set::of(schema, &field.name)).collect()
}

impl Prepared {
    /// An operator of keyed elements, which splits its inputs by their keys. Its plug-in says of itself that it
    /// [`partitions_itself`](super::OperatorPlugin::partitions_itself). After `outputs` it has one for rejects: late
    /// records go there, and duplicates nowhere, before an element sees them. Saved elements can be read as long as the
    /// keys stay; all else that their bytes depend on goes into [`Prepared::kept_by`] with [`Prepared::also_kept_by`].
    pub fn elements<E: Element + 'static>(
        check: &OperatorCheck<'_>,
        plan: ElementPlan,
        mut outputs: Vec<NamedOutput>,
        shared: E::Shared,
    ) -> Self
    where
        E::Shared: 'static,
    {
        let inputs: Vec<Schema> = check.inputs().iter().map(|stream| stream.schema.clone()).collect();
        if outputs.iter().any(|output| output.name == REJECTS) {
            let message = format!(
                "operators of elements have an output {REJECTS:?}, and {:?} names another",
                check.name()
            );
            check.error("type", message, Some("call the plug-in's output otherwise".to_owned()));
        }
        let rejects = outputs.len();
        outputs.push(NamedOutput { name: REJECTS.to_owned(), schema: rejects_schema() });
        let schemas: Vec<Schema> = outputs.iter().map(|output| output.schema.clone()).collect();
        let is_keyed = plan.keys.iter().all(|key| !key.is_empty());
        let takes_partitions = !is_keyed && check.partitions.is_some_and(|partitions| partitions > 1);
        let is_split = is_keyed || takes_partitions;
        let kept_by = plan.is_durable.then(|| {
            let mut kept_by = KeptBy { is_split, ..KeptBy::default() };
            for (port, (key, input)) in plan.keys.iter().zip(&inputs).enumerate() {
                let what = if port == 0 { "key".to_owned() } else { format!("key of input {}", port + 1) };
                kept_by.fields(what, key.iter().map(|place| &input.fields()[*place]));
            }
            kept_by
        });
        let spread = |(port, key): (usize, &Vec<usize>)| match (is_keyed, takes_partitions) {
            (true, _) => PartInput::Outer { port, partitioning: Partitioning::Key(key.clone()) },
            (false, true) => PartInput::Declared { port },
            (false, false) => PartInput::Outer { port, partitioning: Partitioning::Global },
        };
        let spread = plan.keys.iter().enumerate().map(spread).collect();
        let shared = Arc::new(shared);
        let lines = Arc::new(LateLines {
            operator: Arc::clone(check.name()),
            from: Arc::clone(&check.from),
            output: rejects,
            inputs: inputs.clone(),
            rules: check.inputs().iter().map(rules).collect(),
            told: check.inputs().iter().map(told_place).collect(),
        });
        let part = Part {
            label: None,
            inputs: spread,
            outputs: schemas.clone(),
            tasks: if is_split { Tasks::Partitions } else { Tasks::One },
            judges: true,
            factory: Arc::new(move |context| {
                let state = open_state(context, plan.is_durable)?;
                let shared = Arc::clone(&shared);
                let elements =
                    Elements::<E>::new(shared, &inputs, &schemas, &plan.keys, plan.settings, state)?;
                let elements = elements.judged(&inputs, &lines.rules, lines.writer()?)?;
                Ok(Box::new(if context.services.is_held { elements.held() } else { elements }))
            }),
        };
        Self {
            rejects: Some(rejects),
            memory: plan.is_durable.then_some(Memory::Elements),
            kept_by,
            takes_partitions,
            at_ticks: matches!(plan.settings.output, OutputPolicy::Every(_)),
            forgets: !plan.is_durable,
            ..Self::of_parts(outputs, vec![part])
        }
    }
}

/// The order and ids of a stream.
fn rules(stream: &Stream) -> InputRules {
    InputRules { lateness: stream.lateness, late: stream.late, ids: stream.ids() }
}

/// The field that says of a record that it was late further up, and has a line in rejects.
fn told_place(stream: &Stream) -> Option<usize> {
    late_place(&stream.schema).filter(|_| stream.is_judged)
}

/// The back end of a task, as the last commit left it.
fn open_state(context: &TaskContext<'_>, is_durable: bool) -> Result<ElementState, Error> {
    let resume = match &context.durable {
        None => return Ok(ElementState::in_memory()),
        Some(_) if !is_durable => return Ok(ElementState::unkept()),
        Some(resume) => resume,
    };
    let (info, services) = (context.info, context.services);
    let memory = context.memory.unwrap_or(usize::MAX);
    let state = ElementState::open(resume.cycle, resume.position.as_deref(), memory, |version| {
        services.backends.open(context, version)
    })
    .map_err(|error| {
        error.context(format!("open the state of operator {:?} task {}", info.operator, info.index))
    })?;
    Ok(match services.state.recovery {
        Recovery::Eager => state.eager(),
        Recovery::Lazy => state,
    })
}
