//! A checked job in words, for `check` and `explain`.

use std::fmt::Write as _;

use thalweg_connect::SourceTime;
use thalweg_types::{Error, LatePolicy, format_duration};

use crate::diagnostic::nearest;
use crate::job_file::{CheckedInput, CheckedJob, CheckedOperator, CheckedSource, NodeRef, Spread};
use crate::operator::{Stream, Tasks};
use crate::queries::{QueryPlan, QueryText};

const NEVER_FAILS: &str = "writing to a string cannot fail";

/// The graph and each query's plan, as `check` prints them.
pub fn describe(job: &CheckedJob) -> String {
    let mut out = String::new();
    writeln!(out, "job {}", job.name).expect(NEVER_FAILS);
    for source in &job.sources {
        describe_source(&mut out, source);
    }
    for operator in &job.operators {
        describe_operator(&mut out, operator);
    }
    for sink in &job.sinks {
        let format = sink.format.as_ref().map(|format| format!(", {}", format.plugin.name()));
        writeln!(
            out,
            "sink {} ({}{}, {}) <- {}",
            sink.name,
            sink.plugin.name(),
            format.unwrap_or_default(),
            sink.plugin.guarantee(),
            inputs(&sink.inputs)
        )
        .expect(NEVER_FAILS);
    }
    out
}

fn describe_source(out: &mut String, source: &CheckedSource) {
    let format = source.format.as_ref().map(|format| format!(", {}", format.plugin.name()));
    writeln!(
        out,
        "source {} ({}{}) {}",
        source.name,
        source.plugin.name(),
        format.unwrap_or_default(),
        tasks(source.tasks)
    )
    .expect(NEVER_FAILS);
    let fields: Vec<String> = source
        .schema
        .fields()
        .iter()
        .map(|field| format!("{}: {}{}", field.name, field.data_type, if field.nullable { "?" } else { "" }))
        .collect();
    writeln!(out, "  fields {}", fields.join(", ")).expect(NEVER_FAILS);
    let time = match &source.time {
        SourceTime::Field(place) => format!("field {}", source.schema.fields()[*place].name),
        SourceTime::Computed(compute) => compute.text().to_owned(),
        SourceTime::Arrival => "arrival".to_owned(),
    };
    let late = policy(source.late);
    write!(out, "  time by {time}, late after {} and {late}", format_duration(source.lateness))
        .expect(NEVER_FAILS);
    if source.by_time {
        out.push_str(", read by time");
    }
    if let Some(ahead) = source.max_ahead {
        write!(out, ", at most {} ahead", format_duration(ahead)).expect(NEVER_FAILS);
    }
    if let (Some(id), Some(span)) = (source.id, source.dedup) {
        let id = &source.schema.fields()[id].name;
        write!(out, ", duplicates by {id} within {}", format_duration(span)).expect(NEVER_FAILS);
    }
    out.push('\n');
}

fn describe_operator(out: &mut String, operator: &CheckedOperator) {
    let prepared = &operator.prepared;
    let is_parted = prepared.parts.iter().any(|part| part.label.is_some());
    write!(out, "operator {} ({}) ", operator.name, operator.plugin.name()).expect(NEVER_FAILS);
    if !is_parted {
        write!(out, "{} ", tasks(operator.output_tasks())).expect(NEVER_FAILS);
    }
    writeln!(out, "<- {}", inputs(&operator.inputs)).expect(NEVER_FAILS);
    let queries = planned(operator);
    for (place, part) in prepared.parts.iter().enumerate() {
        let Some(label) = &part.label else { continue };
        describe_stage(out, label, operator.part_tasks(part.tasks), part.tasks);
        for (query, plan) in queries.iter().filter(|(_, plan)| plan.part == place) {
            writeln!(out, "    query {}: {}", query.name, plan.words).expect(NEVER_FAILS);
        }
    }
    if prepared.queries.is_none() {
        for output in &prepared.outputs {
            let fields: Vec<&str> = output.schema.names().collect();
            writeln!(out, "  output {}: {}", output.name, fields.join(", ")).expect(NEVER_FAILS);
        }
    }
    describe_judged(out, operator);
}

/// The queries of an operator that a start begins with, and where they run.
fn planned(operator: &CheckedOperator) -> Vec<(QueryText, QueryPlan)> {
    let Some(queries) = &operator.prepared.queries else { return Vec::new() };
    let plan = |query: QueryText| {
        let plan = queries.plan(&query.name, &query.text).ok()?;
        Some((query, plan))
    };
    // A checked job has none without a plan.
    queries.list().into_iter().filter_map(plan).collect()
}

/// What an operator that keeps state judges its records by, where not just a source has said so.
fn describe_judged(out: &mut String, operator: &CheckedOperator) {
    let is_source = |input: &CheckedInput| matches!(input.endpoint.node, NodeRef::Source(_));
    if !operator.prepared.judges() || matches!(&operator.inputs[..], [input] if is_source(input)) {
        return;
    }
    let told: Vec<String> = operator.streams.iter().map(judged).collect();
    if told.iter().all(|one| *one == told[0]) {
        writeln!(out, "  {}", told[0]).expect(NEVER_FAILS);
        return;
    }
    for (one, input) in told.iter().zip(&operator.inputs) {
        writeln!(out, "  {}: {one}", input.name).expect(NEVER_FAILS);
    }
}

fn judged(stream: &Stream) -> String {
    let late = format!("late after {} and {}", format_duration(stream.lateness), policy(stream.late));
    match &stream.dedup {
        Some(dedup) => format!("{late}, duplicates by {} within {}", dedup.id, format_duration(dedup.span)),
        None => late,
    }
}

fn policy(late: LatePolicy) -> &'static str {
    match late {
        LatePolicy::Reject => "rejected",
        LatePolicy::Clamp => "clamped",
    }
}

fn describe_stage(out: &mut String, label: &str, count: u32, kind: Tasks) {
    match kind {
        Tasks::Partitions => {
            let s = if count == 1 { "" } else { "s" };
            writeln!(out, "  stage {label}: {count} partition{s}").expect(NEVER_FAILS);
        }
        _ if count == 1 => writeln!(out, "  stage {label}: one task").expect(NEVER_FAILS),
        _ => writeln!(out, "  stage {label}: {}", tasks(count)).expect(NEVER_FAILS),
    }
}

fn tasks(count: u32) -> String {
    if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") }
}

fn inputs(inputs: &[CheckedInput]) -> String {
    let named: Vec<String> = inputs
        .iter()
        .map(|input| match &input.spread {
            None => input.name.clone(),
            Some(spread) => format!("{} ({})", input.name, spread_name(spread)),
        })
        .collect();
    named.join(", ")
}

fn spread_name(spread: &Spread) -> &'static str {
    match spread {
        Spread::Forward => "forward",
        Spread::Shuffle => "shuffle",
        Spread::Key(_) => "key",
        Spread::Broadcast => "broadcast",
        Spread::Global => "global",
        Spread::Custom(_) => "custom",
    }
}

/// Stages and queries in full, as `explain` prints them; `wanted` is one query alone.
///
/// # Errors
/// If there is no such query.
pub fn explain(job: &CheckedJob, wanted: Option<&str>) -> Result<String, Error> {
    let operators: Vec<(&CheckedOperator, Vec<(QueryText, QueryPlan)>)> =
        job.operators.iter().map(|operator| (operator, planned(operator))).collect();
    let names: Vec<&str> =
        operators.iter().flat_map(|(_, queries)| queries).map(|(query, _)| query.name.as_str()).collect();
    if let Some(wanted) = wanted
        && !names.contains(&wanted)
    {
        let error = Error::user(format!("job {:?} has no query {wanted:?}", job.name));
        return Err(match nearest(wanted, names.iter().copied()) {
            Some(near) => error.with_hint(format!("did you mean {near:?}?")),
            None => error.with_hint(format!("its queries are {}", names.join(", "))),
        });
    }
    let mut out = String::new();
    for (operator, queries) in &operators {
        let Some(all) = &operator.prepared.queries else { continue };
        for (place, part) in operator.prepared.parts.iter().enumerate() {
            let is_shown = |query: &QueryText| wanted.is_none_or(|wanted| wanted == query.name);
            let shown: Vec<&(QueryText, QueryPlan)> =
                queries.iter().filter(|(query, plan)| plan.part == place && is_shown(query)).collect();
            if shown.is_empty() {
                continue;
            }
            let stage = part.label.as_ref().map_or(String::new(), |label| format!(" stage {label}"));
            writeln!(out, "operator {}{stage}", operator.name).expect(NEVER_FAILS);
            for (query, plan) in &shown {
                writeln!(out, "  query {}: {}", query.name, plan.words).expect(NEVER_FAILS);
            }
            let names: Vec<&str> = shown.iter().map(|(query, _)| query.name.as_str()).collect();
            for line in all.explain(place, &names)? {
                writeln!(out, "  {line}").expect(NEVER_FAILS);
            }
        }
    }
    Ok(out)
}
