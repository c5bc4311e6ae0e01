//! `metrics`: exact windows, one answer per record.
//!
//! In the graph it is a stage per key of `partition_by`, perhaps one of a single task for queries without GROUP BY,
//! and a merge that gives each record its answer.
//!
//! * `spec`: which query runs in which stage, and the fields of stages and answers.
//! * `stage`, `durable`: the tasks of a stage, and how they outlive the process.
//! * `message`: what a stage sends to the merge.
//! * `merge`, `scatter`, `told`: the answers.
//! * `queries`, `saved`: what the node asks of the queries, and which of them go on after a restart.

pub(crate) mod durable;
mod merge;
mod message;
mod queries;
mod saved;
mod scatter;
mod spec;
mod stage;
mod told;

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_expr::Bound;
use thalweg_flow::Partitioning;
use thalweg_types::{Error, Schema, rejects_schema};
use thalweg_window::query::{BoundQuery, Query};
use thalweg_window::stage::Missed;

use crate::continuing::{QueryNews, Saved};
use crate::job_file::keys::{KeySpec, Shape};
use crate::job_file::section::{Section, is_name};
use crate::job_file::tree::{Node, Value};

use super::{
    Answers, KeptBy, Links, Memory, NamedOutput, OperatorCheck, OperatorPlugin, Part, PartInput, Prepared,
    Tasks, field_place,
};
use spec::{ANSWER_FIELDS, Form, MetricsSpec, StageChoice, StageQuery, StageSpec, choose_stage};
use told::is_told;

pub struct Metrics;

const OPTIONS: &[KeySpec] = &[
    KeySpec::new(
        "partition_by",
        Shape::PartitionBy,
        "keys that the work is split by, one field or a list of fields each: `[card, [card, shop]]`. `[]` is the key of queries without GROUP BY, which run in one task; it is added if a query of the job file needs it",
    ),
    KeySpec::new("queries", Shape::Queries, "queries, `SELECT … FROM … GROUP BY … OVER …`").required(),
];

impl OperatorPlugin for Metrics {
    fn name(&self) -> &'static str {
        "metrics"
    }

    fn doc(&self) -> &'static str {
        "computes exact windows, and emits their values with every record"
    }

    fn page(&self) -> &'static str {
        include_str!("metrics.md")
    }

    fn options(&self) -> &'static [KeySpec] {
        OPTIONS
    }

    fn partitions_itself(&self) -> bool {
        true
    }

    fn gone(&self, operator: &str, saved: &Saved<'_>) -> Result<Vec<QueryNews>, Error> {
        saved::gone(operator, saved)
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let stream = check.input();
        let schema = &stream.schema;
        check_answer_fields(check, schema);
        let keys = read_keys(check, schema);
        let queries = read_queries(check, schema);
        let (keys, queries) = (keys?, queries?);
        if keys.is_empty() && queries.is_empty() {
            let hint =
                "name one, or the keys of queries that are added while the job runs: partition_by: card";
            check.error("queries", "there is no query", Some(hint.to_owned()));
        }
        let stages = spread_queries(check, schema, &keys, &queries)?;
        if check.failed.get() {
            return None;
        }
        let dedup = stream.ids();
        let answers = spec::answers_schema(schema, &queries);
        let spec = Arc::new(MetricsSpec {
            name: Arc::clone(check.name()),
            input: schema.clone(),
            above: check.above.to_vec(),
            stages,
            order: queries.iter().map(|query| query.name.clone()).collect(),
            lateness: stream.lateness,
            late: stream.late,
            dedup,
            from: Arc::clone(&check.from),
            answers,
            form: Form::Whole,
        });
        Some(prepared(&spec))
    }
}

/// The operator, in whichever form.
fn prepared(spec: &Arc<MetricsSpec>) -> Prepared {
    let count = spec.stages.len();
    let mut kept_by = KeptBy::default();
    // The stage without a key comes and goes with the queries that need it, and is one task whatever the job says.
    let stages = &spec.stages[spec.form.stages(count)];
    for stage in stages.iter().filter(|stage| !stage.keys.is_empty()) {
        kept_by.keys.push(stage.label.to_string());
        let fields = stage.keys.iter().map(|key| &spec.input.fields()[*key]);
        kept_by.fields(format!("key {}", stage.label), fields);
    }
    if let Form::Link(place) = spec.form {
        let outputs = vec![NamedOutput { name: "said".to_owned(), schema: spec::stage_schema(spec, place) }];
        return Prepared {
            memory: Some(Memory::Groups),
            kept_by: Some(kept_by),
            ..Prepared::of_parts(outputs, parts(spec)).with_queries(Arc::clone(spec) as _)
        };
    }
    let outputs = vec![
        NamedOutput { name: "answers".to_owned(), schema: spec.answers.clone() },
        NamedOutput { name: "rejects".to_owned(), schema: rejects_schema() },
    ];
    Prepared {
        rejects: Some(merge::REJECTS),
        answers: Some(Answers { live: Some(merge::LIVE) }),
        memory: Some(Memory::Groups),
        kept_by: Some(kept_by),
        links: (spec.form == Form::Whole && count > 1).then(|| links(spec)),
        ..Prepared::of_parts(outputs, parts(spec)).with_queries(Arc::clone(spec) as _)
    }
}

/// The stages as a chain: each adds what it says of a record, and the last one has the merge.
fn links(spec: &Arc<MetricsSpec>) -> Links {
    let last = spec.stages.len() - 1;
    let whole = Arc::clone(spec);
    Links {
        keys: spec.stages.iter().map(|stage| stage.keys.clone()).collect(),
        says: (0..last).map(|place| spec::stage_schema(spec, place)).collect(),
        link: Arc::new(move |place| {
            let form = if place == last { Form::Last } else { Form::Link(place) };
            prepared(&Arc::new(MetricsSpec { form, ..(*whole).clone() }))
        }),
    }
}

/// One part per stage that is here, and the merge.
fn parts(spec: &Arc<MetricsSpec>) -> Vec<Part> {
    let count = spec.stages.len();
    let here = spec.form.stages(count);
    let stage_part = |index: usize| {
        let stage = &spec.stages[index];
        let (partitioning, tasks) = match stage.keys.is_empty() {
            true => (Partitioning::Global, Tasks::One),
            false => (Partitioning::Key(stage.keys.clone()), Tasks::Partitions),
        };
        Part {
            label: Some(Arc::clone(&stage.label)),
            inputs: vec![PartInput::Outer { port: 0, partitioning }],
            outputs: vec![spec::stage_schema(spec, index)],
            tasks,
            judges: true,
            factory: spec::stage(spec, index),
        }
    };
    let mut parts: Vec<Part> = here.clone().map(stage_part).collect();
    if matches!(spec.form, Form::Link(_)) {
        return parts;
    }
    // What stages elsewhere said comes by the inputs after that of the records.
    let outer = |port| PartInput::Outer { port, partitioning: Partitioning::Global };
    let mut inputs: Vec<PartInput> = (0..=here.start).map(outer).collect();
    inputs.extend((0..parts.len()).map(|index| PartInput::Part {
        index,
        output: 0,
        partitioning: Partitioning::Global,
    }));
    parts.push(Part {
        label: None,
        inputs,
        // The last one is of answers with the queries that run at the moment: its schema here is the one that they
        // begin with.
        outputs: vec![spec.answers.clone(), rejects_schema(), spec.answers.clone()],
        tasks: Tasks::One,
        judges: false,
        factory: spec::merge(spec),
    });
    parts
}

/// An answer holds the record's fields in addition to its own; those of an answer that is a record again go on.
fn check_answer_fields(check: &OperatorCheck<'_>, schema: &Schema) {
    for field in ANSWER_FIELDS {
        if schema.field(field).is_some_and(|(_, field)| !is_told(field)) {
            check.error(
                "input",
                format!("the records have a field {field:?}, which answers use themselves"),
                Some(format!("rename it with a `map` before, or in the source's schema ({field}_)")),
            );
        }
    }
}

/// A key of several fields is a list in the list, an empty list the stage without a key; each with its name and its
/// places.
fn read_keys(check: &OperatorCheck<'_>, schema: &Schema) -> Option<Vec<(String, Vec<usize>)>> {
    let section = &check.section;
    let Some(node) = section.get("partition_by") else { return Some(Vec::new()) };
    let entries: Vec<&Node> = match &node.value {
        Value::List(items) => items.iter().collect(),
        _ => vec![node],
    };
    let mut keys: Vec<(String, Vec<usize>)> = Vec::new();
    for entry in entries {
        let fields: Vec<&Node> = match &entry.value {
            Value::List(items) => items.iter().collect(),
            _ => vec![entry],
        };
        // All are looked at, so that each mistake is reported.
        let found: Option<Vec<usize>> = {
            let places: Vec<_> =
                fields.iter().map(|field| field_place(section, "partition_by", field, schema)).collect();
            places.into_iter().map(|place| place.map(|(place, _)| place)).collect()
        };
        let Some(places) = found else {
            check.failed.set(true);
            continue;
        };
        let label = if places.is_empty() {
            global_label(schema)
        } else {
            let names = places.iter().map(|place| schema.fields()[*place].name.as_str());
            names.collect::<Vec<&str>>().join(",")
        };
        if keys.iter().any(|(known, _)| *known == label) {
            check.failed.set(true);
            let name = if places.is_empty() { "[]".to_owned() } else { format!("{label:?}") };
            section.report.at(entry.span, format!("\"partition_by\" names {name} twice")).report();
        }
        keys.push((label, places));
    }
    (!check.failed.get()).then_some(keys)
}

/// Every query without a mistake, bound to the schema; mistakes are reported at their place in its text.
fn read_queries(check: &OperatorCheck<'_>, schema: &Schema) -> Option<Vec<StageQuery>> {
    let node = check.require("queries", "names and queries")?;
    let what = format!("\"queries\" of {}", check.section.what);
    let Some(section) = Section::of(check.report(), what, check.section.key_span("queries"), node) else {
        check.failed.set(true);
        return None;
    };
    let mut queries = Vec::new();
    let mut fine = true;
    for (name, node) in section.entries() {
        let report = check.report();
        if !is_name(&name.text) && node.is_null() {
            fine = false;
            report
                .at(name.span, format!("{:?} is where the name of a query is expected", name.text))
                .hint("inside { } a comma ends a query: put each one in quotes, or on a line of its own")
                .report();
            continue;
        }
        if let Some((what, hint)) = spec::refuse_name(&name.text, schema) {
            fine = false;
            report.at(name.span, what).hint(hint).report();
        }
        let Some(scalar) = section.scalar(&name.text, node, "a query: SELECT … OVER …") else {
            fine = false;
            continue;
        };
        let what = format!("query {:?}", name.text);
        match spec::bind_query(&check.section.what, &name.text, &scalar.text, schema, check.above) {
            Ok((query, bound, _)) => {
                queries.push(stage_query(&name.text, &scalar.text, query, bound, false));
            }
            Err(errors) => {
                fine = false;
                report.sql(node, &what, &errors);
            }
        }
    }
    if !fine {
        check.failed.set(true);
    }
    Some(queries)
}

fn stage_query(name: &str, text: &str, query: Query, bound: BoundQuery, is_added: bool) -> StageQuery {
    StageQuery { name: name.to_owned(), text: text.to_owned(), query, bound: Arc::new(bound), is_added }
}

/// Gives each query its stage.
fn spread_queries(
    check: &OperatorCheck<'_>,
    schema: &Schema,
    keys: &[(String, Vec<usize>)],
    queries: &[StageQuery],
) -> Option<Vec<StageSpec>> {
    let places: Vec<Vec<usize>> = keys.iter().map(|(_, places)| places.clone()).collect();
    let global = places.iter().position(Vec::is_empty).unwrap_or(keys.len());
    let mut by_stage: BTreeMap<usize, Vec<StageQuery>> = BTreeMap::new();
    for query in queries {
        let group_by = query.group_by();
        match choose_stage(&places, group_by) {
            StageChoice::Keyed(place) => by_stage.entry(place).or_default().push(query.clone()),
            StageChoice::Global => by_stage.entry(global).or_default().push(query.clone()),
            StageChoice::Nowhere => {
                let fields = group_by.iter().filter_map(Bound::as_column);
                let names: Vec<&str> = fields.map(|place| schema.fields()[place].name.as_str()).collect();
                let message = format!(
                    "query {:?} groups by {}, and no key of \"partition_by\" is among these fields",
                    query.name,
                    names.join(", ")
                );
                check.query_error(&query.name, message, format!("add {} to \"partition_by\"", names[0]));
            }
        }
    }
    if check.failed.get() {
        return None;
    }
    let mut stages: Vec<StageSpec> = keys
        .iter()
        .enumerate()
        .map(|(place, (label, keys))| StageSpec {
            label: label.as_str().into(),
            keys: keys.clone(),
            queries: by_stage.remove(&place).unwrap_or_default(),
            missed: Missed::Nothing,
        })
        .collect();
    // A stage without a key is named for the sake of queries that come later.
    for stage in stages.iter().filter(|stage| stage.queries.is_empty() && !stage.keys.is_empty()) {
        check.warn("partition_by", format!("no query runs in the stage of key {:?}", stage.label));
    }
    if let Some(queries) = by_stage.remove(&keys.len()) {
        let missed = Missed::Nothing;
        stages.push(StageSpec { label: global_label(schema).into(), keys: Vec::new(), queries, missed });
    }
    Some(stages)
}

/// Name of the stage without a key.
fn global_label(schema: &Schema) -> String {
    if schema.field("global").is_some() { "global_".to_owned() } else { "global".to_owned() }
}

impl OperatorCheck<'_> {
    fn query_error(&self, query: &str, message: String, hint: String) {
        self.failed.set(true);
        let node = self.section.get("queries").and_then(|node| match &node.value {
            Value::Map(entries) => entries.iter().find(|(key, _)| key.text == query).map(|(key, _)| key.span),
            _ => None,
        });
        self.report().at(node.unwrap_or(self.section.span), message).hint(hint).report();
    }
}
