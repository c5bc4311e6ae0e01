//! How the queries of a `metrics` operator are spread over stages, and the inputs of the stages and their merge.
//!
//! Each key of `partition_by` is one keyed stage; a query runs in the first of them whose key is among its GROUP BY
//! fields. Queries without GROUP BY run in a stage of one task. A merge puts the stages' values back to each record.
//!
//! Not here: windows themselves (`thalweg-window`).

use std::sync::Arc;

use thalweg_expr::{Bound, SqlError, SqlErrors};
use thalweg_storage::{ChunkBudget, ChunkStore, ChunkStoreOptions, IoPool, MemFs};
use thalweg_types::{Error, Field, LatePolicy, Micros, Schema, format_duration};
use thalweg_window::plan::PlannedQuery;
use thalweg_window::query::{BoundQuery, Draft, Query};
use thalweg_window::stage::{Missed, Stage, StageOptions};

use crate::diagnostic::one_of;
use crate::job_file::section::is_name;
use crate::operator::{OperatorFactory, Services, TaskContext};

use super::merge::Merge;
use super::stage::{Added, StageOperator};
use super::told::{self, Passing};
use super::{durable, message};

/// Everything that stages and merge need to know.
#[derive(Clone, Debug)]
pub(super) struct MetricsSpec {
    pub name: Arc<str>,
    /// Schema of the records.
    pub input: Schema,
    /// What FROM may name: the input, and the sources and operators above it.
    pub above: Vec<String>,
    /// Keyed stages in the order of `partition_by`, which may name the one without a key; else that one comes last, if
    /// a query needs it.
    pub stages: Vec<StageSpec>,
    /// Names of all queries in the order of the job file, which is the order in the answers.
    pub order: Vec<String>,
    pub lateness: Micros,
    pub late: LatePolicy,
    /// Field with the id, and the time within which a second one is a duplicate.
    pub dedup: Option<(usize, Micros)>,
    /// The operators among the inputs: whom a record comes from that no source has.
    pub from: Arc<str>,
    /// Schema of the answers as they are declared: with the queries of the job file, whichever run.
    pub answers: Schema,
    pub form: Form,
}

/// Which of the stages are here, and what makes answers of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// All, and the merge.
    Whole,
    /// One, in a chain that goes on elsewhere.
    Link(usize),
    /// The last one and the merge, which gets what the others said by inputs of the operator, in their order.
    Last,
}

impl Form {
    /// Places of the stages that run here.
    pub(super) fn stages(self, count: usize) -> std::ops::Range<usize> {
        match self {
            Form::Whole => 0..count,
            Form::Link(place) => place..place + 1,
            Form::Last => count.saturating_sub(1)..count,
        }
    }
}

/// One stage and its queries.
#[derive(Clone, Debug)]
pub(super) struct StageSpec {
    /// `card`, `card,merchant`, `global`: names the stage in answers, in the graph and on disk.
    pub label: Arc<str>,
    /// Fields that its tasks share the work by; empty for the stage of one task.
    pub keys: Vec<usize>,
    pub queries: Vec<StageQuery>,
    /// Of the records of a job that ran before it had the stage.
    pub missed: Missed,
}

#[derive(Clone, Debug)]
pub(super) struct StageQuery {
    pub name: String,
    /// As written.
    pub text: String,
    pub query: Query,
    /// Bound to the schema of the records.
    pub bound: Arc<BoundQuery>,
    /// It was added while the job ran: where it fails it is dropped, and the job goes on.
    pub is_added: bool,
}

impl StageQuery {
    /// Fields of GROUP BY and expressions over them.
    pub(super) fn group_by(&self) -> &[Bound] {
        &self.bound.group_by
    }
}

/// Where a query runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StageChoice {
    /// The keyed stage with this place in `partition_by`.
    Keyed(usize),
    /// The stage of one task.
    Global,
    /// Grouped, but by no key.
    Nowhere,
}

/// The first keyed stage whose key is among the query's GROUP BY fields; keys are places in the schema. A query that groups
/// by expressions alone has no field to share the work by.
pub(super) fn choose_stage(keys: &[Vec<usize>], group_by: &[Bound]) -> StageChoice {
    let fields: Vec<usize> = group_by.iter().filter_map(Bound::as_column).collect();
    if fields.is_empty() {
        return StageChoice::Global;
    }
    keys.iter()
        .position(|key| !key.is_empty() && key.iter().all(|field| fields.contains(field)))
        .map_or(StageChoice::Nowhere, StageChoice::Keyed)
}

/// Places of the fields that keys read, each once, in their order.
pub(super) fn fields_of(group_by: &[Bound]) -> Vec<usize> {
    let mut fields: Vec<usize> = Vec::new();
    for field in group_by.iter().flat_map(Bound::fields) {
        if !fields.contains(field) {
            fields.push(*field);
        }
    }
    fields
}

/// Reads a query of `operator` over records of `schema`, whose FROM may name one of `above`.
///
/// # Errors
/// Everything that is wrong with it.
pub(super) fn bind_query(
    operator: &str,
    name: &str,
    text: &str,
    schema: &Schema,
    above: &[String],
) -> Result<(Query, BoundQuery, PlannedQuery), SqlErrors> {
    let mut draft = Draft::read(text);
    if let Some((stream, span)) = draft.stream()
        && !above.iter().any(|name| name == stream)
    {
        let error = SqlError::new(format!("{operator} does not read {stream:?}")).at(span);
        let expected = format!("FROM {}", one_of(above.iter().map(String::as_str)));
        draft.refuse_stream(error.expected(expected));
    }
    let (query, bound) = draft.bind(schema)?;
    let planned = PlannedQuery::bind(name, &query, schema)?;
    Ok((query, bound, planned))
}

/// Why a query over records of `schema` cannot have this name: the mistake and a hint.
pub(super) fn refuse_name(name: &str, schema: &Schema) -> Option<(String, &'static str)> {
    if !is_name(name) {
        let what = format!("{name:?} is no name for a query");
        return Some((what, "a name is a letter or _, then letters, digits, _ and -"));
    }
    (schema.field(name).is_some() || ANSWER_FIELDS.contains(&name)).then(|| {
        let what = format!("query {name:?} has the name of a field");
        (what, "an answer holds the record's fields and one object per query: names must differ")
    })
}

/// Fields that an answer may have besides the record's own and one object per query.
pub(super) const ANSWER_FIELDS: [&str; 4] =
    [told::TOLD.late, told::TOLD.duplicate, told::TOLD.errors, "since"];

/// Makes the tasks of stage `index` of a `metrics` operator.
pub(super) fn stage(spec: &Arc<MetricsSpec>, index: usize) -> OperatorFactory {
    let spec = Arc::clone(spec);
    Arc::new(move |context: &TaskContext<'_>| {
        let queries: Vec<&StageQuery> = spec.stages[index].queries.iter().collect();
        let (mut stage, durable) = match &context.durable {
            Some(resume) => {
                let (stage, durable) = durable::open(context, resume, &spec, &spec.stages[index])?;
                (stage, Some(durable))
            }
            None => {
                // Nothing outlives the process: a reservoir that is there belongs to another run.
                let services = context.services;
                ChunkStore::discard(services.fs.as_ref(), &context.folder.join("reservoir"))?;
                let store = durable::open_store(context, None)?;
                let options = task_options(&spec, services, Missed::Nothing);
                (plan_stage(&spec, &queries, store, options)?, None)
            }
        };
        let mut added = Added::new(&spec.name, &context.services.failing);
        for query in queries.iter().filter(|query| query.is_added) {
            stage.guard_query(&query.name);
            added.add(&query.name, &query.text);
        }
        Ok(Box::new(StageOperator::new(stage, context.info.index, &spec.input, added, durable)))
    })
}

/// Those of a stage's task.
pub(super) fn task_options(spec: &MetricsSpec, services: &Services, missed: Missed) -> StageOptions {
    StageOptions {
        retention: services.state.retention,
        missed,
        is_held: services.is_held,
        ..stage_options(spec)
    }
}

fn stage_options(spec: &MetricsSpec) -> StageOptions {
    StageOptions { lateness: spec.lateness, late: spec.late, dedup: spec.dedup, ..StageOptions::default() }
}

pub(super) fn plan_stage(
    spec: &MetricsSpec,
    queries: &[&StageQuery],
    store: ChunkStore,
    options: StageOptions,
) -> Result<Stage, Error> {
    let mut stage = Stage::new(&spec.input, options, store);
    let planned = queries
        .iter()
        .map(|query| plan_query(&mut stage, &query.name, &query.query))
        .collect::<Result<Vec<_>, _>>()?;
    stage.add_queries(&planned)?;
    Ok(stage)
}

/// Binds a query to a stage; the error shows the place in the query's text.
pub(super) fn plan_query(stage: &mut Stage, name: &str, query: &Query) -> Result<PlannedQuery, Error> {
    stage
        .plan(name, query)
        .map_err(|error| Error::user(format!("query {name:?}: {}", error.render(&query.text))))
}

/// Makes the merge: input 0 is the records, input 1 + i stage i; output 0 answers as they are declared, output 1 rejects,
/// then [`LIVE`](super::merge::LIVE).
pub(super) fn merge(spec: &Arc<MetricsSpec>) -> OperatorFactory {
    let spec = Arc::clone(spec);
    Arc::new(move |context: &TaskContext<'_>| {
        // Its first input is the records.
        let tasks = context.info.upstream.iter().skip(1).copied().collect();
        Ok(Box::new(Merge::new(Arc::clone(&spec), tasks, context.answers())?))
    })
}

/// Schema of the batches that stage `index` sends to the merge.
pub(super) fn stage_schema(spec: &MetricsSpec, index: usize) -> Schema {
    let mut fields: Vec<Field> =
        spec.stages[index].queries.iter().map(|query| answer_field(&spec.input, query)).collect();
    fields.extend(message::fields());
    Schema::new(fields)
}

/// A query's object in an answer.
fn answer_field(input: &Schema, query: &StageQuery) -> Field {
    let planned = PlannedQuery::bind(&query.name, &query.query, input)
        .expect("queries are checked before their schemas are asked for");
    Field::new(&query.name, planned.data_type()).nullable()
}

/// The record's own fields, one object per query in the order of the job file, and the fields that are left out if they
/// are null: of records that are answers themselves, the fields of operators above, too.
pub(super) fn answers_schema(input: &Schema, queries: &[StageQuery]) -> Schema {
    let own = Passing::of(input).own;
    let mut fields: Vec<Field> = own.into_iter().map(|place| input.fields()[place].clone()).collect();
    fields.extend(queries.iter().map(|query| answer_field(input, query)));
    fields.extend(told::fields());
    Schema::new(fields)
}

/// The costs of the plan of these queries in one stage, and the state that may pile up, a line each.
///
/// # Errors
/// If the stage does not take the queries.
pub(super) fn explain(spec: &MetricsSpec, queries: &[&StageQuery]) -> Result<Vec<String>, Error> {
    let store = ChunkStore::open(
        Arc::new(MemFs::new()),
        "explain",
        IoPool::inline(),
        ChunkBudget::new(0),
        ChunkStoreOptions::new(0),
    )?;
    let explanation = plan_stage(spec, queries, store, stage_options(spec))?.explain();
    let mut lines = explanation.tree;
    for (offset, readers) in explanation.cursors {
        lines.push(format!("cursor at task time - {}: {}", format_duration(offset), readers.join(", ")));
    }
    lines.push(match explanation.bytes_per_record {
        0 => "bytes per record: 0, no window reads the reservoir".to_owned(),
        bytes => format!("bytes per record: {bytes} in the reservoir, before compression"),
    });
    for (group, bytes) in explanation.bytes_per_group {
        lines.push(format!("bytes per group ({group}): {bytes}"));
    }
    lines.extend(explanation.worst_cases.into_iter().map(|case| format!("worst case: {case}")));
    lines.extend(explanation.warnings.into_iter().map(|warning| format!("warning: {warning}")));
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use thalweg_types::DataType;

    use super::*;

    #[test]
    fn a_query_runs_in_the_first_stage_whose_key_it_groups_by() {
        let names = ["card", "merchant", "city"];
        let schema = Schema::new(names.map(|name| Field::new(name, DataType::String)).to_vec());
        let (card, merchant, city) = (0, 1, 2);
        let choose_stage = |keys: &[Vec<usize>], group_by: &str| {
            let by = if group_by.is_empty() { "" } else { "GROUP BY " };
            let text = format!("SELECT count(*) AS n FROM s {by}{group_by} OVER INFINITE");
            let bound = Query::parse(&text).and_then(|query| query.bind(&schema)).expect("a query");
            choose_stage(keys, &bound.group_by)
        };
        let keys = [vec![card], vec![merchant], vec![merchant, city]];
        for (group_by, expected) in [
            ("card", StageChoice::Keyed(0)),
            ("merchant, card", StageChoice::Keyed(0)),
            ("city, merchant", StageChoice::Keyed(1)),
            ("city", StageChoice::Nowhere),
            ("", StageChoice::Global),
            ("lower(city), card", StageChoice::Keyed(0)),
            ("lower(card), city", StageChoice::Nowhere),
            ("lower(card)", StageChoice::Global),
        ] {
            assert_eq!(choose_stage(&keys, group_by), expected, "GROUP BY {group_by}");
        }
        assert_eq!(choose_stage(&[vec![merchant, city]], "merchant"), StageChoice::Nowhere);
        assert_eq!(choose_stage(&[], "card"), StageChoice::Nowhere);
        assert_eq!(choose_stage(&[], ""), StageChoice::Global);
    }
}
