//! How the queries of a `metrics` operator are spread over stages, and what the stages and their merge are given.
//!
//! Each key of `partition_by` is one keyed stage; a query runs in the first of them whose key is among its GROUP BY
//! fields. Queries without GROUP BY run in a stage of one task. A merge puts the stages' values back to each record.
//!
//! Not here: windows themselves (`thalweg-window`).

use std::sync::Arc;

use thalweg_flow::Operator;
use thalweg_types::{DataType, Error, Field, Micros, Schema};
use thalweg_window::query::{BoundQuery, Query};

use crate::operator::{OperatorFactory, TaskContext};

pub use thalweg_window::LatePolicy;

/// Everything that stages and merge need to know.
#[derive(Clone, Debug)]
pub struct MetricsSpec {
    pub name: Arc<str>,
    /// Schema of the records.
    pub input: Schema,
    /// Keyed stages in the order of `partition_by`, then the one without a key, if a query needs it.
    pub stages: Vec<StageSpec>,
    /// Names of all queries in the order of the job file, which is the order in the answers.
    pub order: Vec<String>,
    pub lateness: Micros,
    pub late: LatePolicy,
    /// Field with the id, and the time within which a second one is a duplicate.
    pub dedup: Option<(usize, Micros)>,
    /// Schema of the answers.
    pub answers: Schema,
}

/// One stage and its queries.
#[derive(Clone, Debug)]
pub struct StageSpec {
    /// `card`, `card,merchant`, `global`: names the stage in answers, in the graph and on disk.
    pub label: String,
    /// Fields that its tasks share the work by; empty for the stage of one task.
    pub keys: Vec<usize>,
    pub queries: Vec<StageQuery>,
}

#[derive(Clone, Debug)]
pub struct StageQuery {
    pub name: String,
    /// As written.
    pub text: String,
    pub query: Query,
    /// Bound to the schema of the records.
    pub bound: Arc<BoundQuery>,
}

impl StageQuery {
    /// Places of the GROUP BY fields.
    pub fn group_by(&self) -> &[usize] {
        &self.bound.group_by
    }
}

/// Where a query runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageChoice {
    /// The keyed stage with this place in `partition_by`.
    Keyed(usize),
    /// The stage of one task.
    Global,
    /// Grouped, but by no key.
    Nowhere,
}

/// The first keyed stage whose key is among the query's GROUP BY fields; all by their place in the schema.
pub fn choose_stage(keys: &[Vec<usize>], group_by: &[usize]) -> StageChoice {
    if group_by.is_empty() {
        return StageChoice::Global;
    }
    keys.iter()
        .position(|key| !key.is_empty() && key.iter().all(|field| group_by.contains(field)))
        .map_or(StageChoice::Nowhere, StageChoice::Keyed)
}

/// Fields that an answer may have beside the record's own and one object per query.
pub const ANSWER_FIELDS: [&str; 4] = ["late", "duplicate", "errors", "since"];

/// Makes the tasks of stage `index` of a `metrics` operator.
pub fn stage(spec: &Arc<MetricsSpec>, index: usize) -> OperatorFactory {
    let name = format!("{}/{}", spec.name, spec.stages[index].label);
    Arc::new(move |_: &TaskContext<'_>| not_there(&name))
}

/// Makes the merge: input 0 is the records, input 1 + i stage i; output 0 answers, output 1 rejects.
pub fn merge(spec: &Arc<MetricsSpec>) -> OperatorFactory {
    let name = Arc::clone(&spec.name);
    Arc::new(move |_: &TaskContext<'_>| not_there(&name))
}

/// Schema of what stage `index` sends to the merge.
pub fn stage_schema(spec: &MetricsSpec, index: usize) -> Schema {
    let _ = index;
    spec.input.clone()
}

/// The record's own fields, one object per query in the order of the job file, and what is left out where it is
/// null.
pub fn answers_schema(input: &Schema, queries: &[StageQuery]) -> Schema {
    let mut fields = input.fields().to_vec();
    for query in queries {
        let outputs = query.bound.outputs.iter();
        let values = outputs.map(|output| Field::new(&output.alias, DataType::Float64).nullable()).collect();
        fields.push(Field::new(&query.name, DataType::Struct(values)).nullable());
    }
    fields.push(Field::new("late", DataType::List(Box::new(DataType::String))).omit_null());
    fields.push(Field::new("duplicate", DataType::Bool).omit_null());
    fields.push(Field::new("errors", DataType::List(Box::new(DataType::String))).omit_null());
    Schema::new(fields)
}

/// What the plan of these queries in one stage costs and what may pile up, a line each.
///
/// # Errors
/// If the stage does not take the queries.
pub fn explain(spec: &MetricsSpec, queries: &[&StageQuery]) -> Result<Vec<String>, Error> {
    let _ = (spec, queries);
    Ok(Vec::new())
}

fn not_there(name: &str) -> Result<Box<dyn Operator>, Error> {
    Err(Error::internal(format!("operator {name:?} has no stages in this build")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_runs_in_the_first_stage_whose_key_it_groups_by() {
        let (card, merchant, city) = (1, 2, 3);
        let keys = [vec![card], vec![merchant], vec![merchant, city]];
        for (group_by, expected) in [
            (vec![card], StageChoice::Keyed(0)),
            (vec![merchant, card], StageChoice::Keyed(0)),
            (vec![city, merchant], StageChoice::Keyed(1)),
            (vec![city], StageChoice::Nowhere),
            (vec![], StageChoice::Global),
        ] {
            assert_eq!(choose_stage(&keys, &group_by), expected, "GROUP BY {group_by:?}");
        }
        assert_eq!(choose_stage(&[vec![merchant, city]], &[merchant]), StageChoice::Nowhere);
        assert_eq!(choose_stage(&[], &[card]), StageChoice::Nowhere);
        assert_eq!(choose_stage(&[], &[]), StageChoice::Global);
    }
}
