//! `operators:` and the graph that their inputs make.

use std::collections::BTreeSet;
use std::sync::Arc;

use thalweg_expr::{Expr, SqlErrors};
use thalweg_flow::Schedule;
use thalweg_window::query::Query;

use crate::diagnostic::{Span, one_of};
use crate::job_file::keys::{self, KeySpec, Shape};
use crate::job_file::section::Section;
use crate::job_file::tree::{Node, Value};
use crate::operator::{Inputs, OperatorCheck, OperatorPlugin, Prepared, Stream, Tasks, plain_options, union};

use super::input::{self, CheckedInput, Endpoint, NodeRef, RawInput};
use super::sink::{self, CheckedSink};
use super::{Context, Named, positive_duration, stream, subsection};

/// An operator without mistakes.
#[derive(Clone)]
pub struct CheckedOperator {
    pub name: Arc<str>,
    pub plugin: Arc<dyn OperatorPlugin>,
    pub inputs: Vec<CheckedInput>,
    pub prepared: Prepared,
    /// What it reads: one stream per input, or that of the union.
    pub(crate) streams: Vec<Stream>,
    /// The fields of a union before an operator of one input with a list of them.
    pub(crate) union: Option<Prepared>,
    /// Tasks of the parts that leave it open.
    pub tasks: u32,
    /// Tasks of the parts that are keyed.
    pub partitions: u32,
    /// Over how many workers keyed tasks are spread at most.
    pub parallelism: Option<u32>,
    pub schedule: Schedule,
}

const DEFAULT_PARTITIONS: u32 = 4;

/// An operator whose own keys have not been looked at.
struct Raw<'a> {
    name: &'a str,
    section: Section<'a>,
    plugin: Option<Arc<dyn OperatorPlugin>>,
    inputs: Option<Vec<RawInput>>,
    /// The source or operator of every input, where all are known.
    nodes: Option<Vec<Target>>,
}

/// What a name means, by its place in the job file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Source(usize),
    Operator(usize),
}

/// The operators and sinks.
pub(super) struct CheckedGraph {
    /// Those without mistakes, each after those that it reads.
    pub(super) operators: Vec<CheckedOperator>,
    /// Whether these are all.
    pub(super) is_whole: bool,
    pub(super) sinks: Vec<Option<CheckedSink>>,
}

/// Checks operators and sinks.
pub(super) fn check_graph(context: &mut Context<'_>, named: &Named<'_>) -> CheckedGraph {
    let raws: Vec<Option<Raw<'_>>> =
        named.operators.iter().map(|(name, span, node)| read(context, named, name, *span, node)).collect();
    let order = order(context, &raws);
    // Place in the job file to place in the checked list.
    let mut places: Vec<Option<usize>> = vec![None; raws.len()];
    let mut checked = Vec::new();
    let mut is_whole = order.len() == raws.len();
    for place in order {
        let Some(raw) = &raws[place] else {
            is_whole = false;
            continue;
        };
        match finish(context, raw, &places) {
            Some(operator) => {
                places[place] = Some(checked.len());
                checked.push(operator);
            }
            None => is_whole = false,
        }
    }
    let sinks = named
        .sinks
        .iter()
        .map(|(name, span, node)| sink::check(context, named, &places, name, *span, node))
        .collect();
    CheckedGraph { operators: checked, is_whole, sinks }
}

fn read<'a>(
    context: &Context<'a>,
    named: &Named<'a>,
    name: &'a str,
    span: Span,
    node: &'a Node,
) -> Option<Raw<'a>> {
    let report = context.report;
    let section = Section::of(report, format!("operator {name:?}"), span, node)?;
    let names = || context.options.operators.all().iter().map(|plugin| plugin.name());
    let mut plugin = None;
    if let Some((kind, kind_span)) = section.kind(&one_of(names())) {
        plugin = context.options.operators.get(&kind).cloned();
        if plugin.is_none() {
            report
                .at(kind_span, format!("{} is of type {kind:?}, which is no operator", section.what))
                .expected(one_of(names()))
                .did_you_mean(&kind, names())
                .report();
        }
    }
    if let Some(plugin) = &plugin {
        let own = plugin.options().iter().map(|spec: &KeySpec| spec.key);
        section.refuse_others(keys::OPERATOR.iter().map(|spec| spec.key).chain(own));
    }
    let inputs = input::read(context, &section);
    let nodes =
        inputs.as_ref().and_then(|inputs| resolve_names(context, named, Some(name), &section, inputs));
    Some(Raw { name, section, plugin, inputs, nodes })
}

/// The sources and operators that inputs name; every unknown name is reported.
///
/// `reader` is the operator whose inputs they are, which is not proposed to itself.
pub(super) fn resolve_names(
    context: &Context<'_>,
    named: &Named<'_>,
    reader: Option<&str>,
    section: &Section<'_>,
    inputs: &[RawInput],
) -> Option<Vec<Target>> {
    let mut targets = Vec::new();
    for input in inputs {
        let node = input.node();
        let source = named.sources.iter().position(|(name, ..)| name == node).map(Target::Source);
        let operator = || named.operators.iter().position(|(name, ..)| name == node).map(Target::Operator);
        match source.or_else(operator) {
            Some(target) => targets.push(target),
            None => {
                let mut known: Vec<&str> =
                    named.sources.iter().chain(&named.operators).map(|(name, ..)| name.as_str()).collect();
                known.retain(|name| Some(*name) != reader);
                known.sort_unstable();
                known.dedup();
                let mut pending = context
                    .report
                    .at(
                        input.from_span,
                        format!("{} reads {node:?}, which is no source and no operator", section.what),
                    )
                    .expected(one_of(known.iter().copied()));
                pending = match named.sinks.iter().any(|(name, ..)| name == node) {
                    true => pending.hint(format!("{node:?} is a sink, from which nothing can be read")),
                    false => pending.did_you_mean(node, known.iter().copied()),
                };
                pending.report();
            }
        }
    }
    (targets.len() == inputs.len()).then_some(targets)
}

/// Operators after those that they read, otherwise as in the file. Those in a loop are reported and left out.
fn order(context: &Context<'_>, raws: &[Option<Raw<'_>>]) -> Vec<usize> {
    let reads = |place: usize| -> Vec<usize> {
        let targets = raws[place].as_ref().and_then(|raw| raw.nodes.as_deref()).unwrap_or_default();
        targets
            .iter()
            .filter_map(|target| match target {
                Target::Operator(operator) => Some(*operator),
                Target::Source(_) => None,
            })
            .collect()
    };
    let mut order: Vec<usize> = Vec::new();
    let mut left: BTreeSet<usize> = (0..raws.len()).collect();
    while let Some(place) =
        left.iter().copied().find(|place| reads(*place).iter().all(|read| !left.contains(read)))
    {
        left.remove(&place);
        order.push(place);
    }
    let mut told: BTreeSet<usize> = BTreeSet::new();
    for start in left.iter().copied() {
        // Following inputs among the remaining operators leads to a place that was seen before.
        let mut path = vec![start];
        let round = loop {
            let here = path[path.len() - 1];
            let Some(next) = reads(here).into_iter().find(|read| left.contains(read)) else { break None };
            if let Some(at) = path.iter().position(|seen| *seen == next) {
                break Some(at);
            }
            path.push(next);
        };
        let Some(at) = round else { continue };
        let mut ring = path.split_off(at);
        if ring.iter().any(|place| told.contains(place)) {
            continue;
        }
        told.extend(ring.iter().copied());
        // Told from the operator that comes first in the file.
        let first = ring.iter().enumerate().min_by_key(|(_, place)| **place).map_or(0, |(at, _)| at);
        ring.rotate_left(first);
        let name = |place: usize| raws[place].as_ref().map_or("", |raw| raw.name);
        let names: Vec<&str> = ring.iter().chain(ring.first()).map(|place| name(*place)).collect();
        if let Some(raw) = &raws[ring[0]] {
            let next = ring.get(1).copied().unwrap_or(ring[0]);
            let inputs = raw.inputs.as_deref().unwrap_or_default();
            let span = inputs
                .iter()
                .find(|input| input.node() == name(next))
                .map_or(raw.section.span, |input| input.from_span);
            context
                .report
                .at(span, format!("operators read each other in a loop: {}", names.join(" <- ")))
                .expected("a graph in which records flow one way")
                .report();
        }
    }
    order
}

/// Checks an operator's own keys, now that the streams that it reads are known.
fn finish(context: &mut Context<'_>, raw: &Raw<'_>, places: &[Option<usize>]) -> Option<CheckedOperator> {
    let section = &raw.section;
    let parallelism = section.integer("parallelism", 1, 4096).map(|count| count as u32);
    let partitions = section.integer("partitions", 1, 4096).map(|count| count as u32);
    let schedule = check_schedule(section);
    let plugin = raw.plugin.clone()?;
    let options = section.options(&plain_options(plugin.options()));
    let resolved = raw.inputs.as_deref().zip(raw.nodes.as_deref()).and_then(|(raw_inputs, targets)| {
        let pairs = raw_inputs.iter().zip(targets);
        pairs
            .map(|(input, target)| resolve(context, section, input, *target, places))
            .collect::<Option<Vec<_>>>()
    });
    let (Some(raw_inputs), Some(resolved)) = (raw.inputs.as_deref(), resolved) else {
        check_grammar(section, plugin.options());
        return None;
    };

    let mut inputs = Vec::new();
    let mut streams = Vec::new();
    for (checked, stream) in resolved {
        inputs.push(checked);
        streams.push(stream);
    }
    let mut union = None;
    if plugin.inputs() == Inputs::One && inputs.len() > 1 {
        let (prepared, stream) = unite(section, &inputs, &streams)?;
        union = Some(prepared);
        streams = vec![stream];
    }
    let input_names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let above = context.names_above(raw_inputs);
    context.above.insert(raw.name.to_owned(), above.clone());
    let operators = raw_inputs.iter().zip(raw.nodes.as_deref().unwrap_or_default());
    let operators = operators.filter(|(_, target)| matches!(target, Target::Operator(_)));
    let from: Vec<&str> = operators.map(|(input, _)| input.node()).collect();
    let check = OperatorCheck {
        section: section.clone(),
        name: raw.name.into(),
        inputs: &streams,
        input_names: &input_names,
        above: &above,
        from: from.join(", ").into(),
        partitions,
        options,
        failed: std::cell::Cell::new(false),
    };
    let mut prepared = plugin.check(&check)?;
    if check.failed.get() {
        return None;
    }
    check_keyed(section, &prepared, &inputs, &streams, parallelism);
    if plugin.partitions_itself()
        && !prepared.takes_partitions
        && let Some(input) = raw_inputs.iter().find(|input| input.is_spread())
    {
        refuse_spread(section, &*plugin, &prepared, input);
        return None;
    }
    let split = partitions.unwrap_or(DEFAULT_PARTITIONS);
    if prepared.takes_partitions {
        spread_elements(section, &mut prepared, &mut inputs, &streams)?;
        stream::check_ids_together(section, &streams, &inputs, split);
    }
    let is_of_elements = prepared.is_of_elements();
    // The last of several is where they come together.
    let place = inputs.last().map_or(section.span, |input| input.spread_span);
    if !stream::check(section, &prepared, &streams, split, key_option(&*plugin), place) {
        return None;
    }
    let names = if union.is_some() { &input_names[..1] } else { &input_names };
    for (number, output) in prepared.outputs.iter().enumerate() {
        let stream = stream::emitted(&prepared, raw.name, split, &streams, names, output.schema.clone());
        context.streams.insert((raw.name.to_owned(), number), stream);
    }
    let outputs = prepared.outputs.iter().map(|output| output.name.clone()).collect();
    context.outputs.insert(raw.name.to_owned(), outputs);
    let keyed = prepared.parts.iter().any(|part| part.tasks == Tasks::Partitions)
        || inputs.iter().any(|input| matches!(input.spread, Some(input::Spread::Key(_))));
    if partitions.is_some() && !keyed && !is_of_elements {
        section
            .report
            .at(section.key_span("partitions"), format!("{} has \"partitions\", but no key splits it", section.what))
            .hint(match plugin.partitions_itself() {
                true => "leave it out: what has no key is one task; `partition_by: [field]` makes a stage keyed",
                false => {
                    "`parallelism` says how many tasks run; `input: { from: …, partition: key(field) }` makes it keyed"
                }
            })
            .report();
    }
    if let Some(count) = parallelism.filter(|count| *count > 1 && is_of_elements && !keyed) {
        section
            .report
            .at(
                section.key_span("parallelism"),
                format!("{} has no key, so one task of it runs", section.what),
            )
            .hint(format!("`partitions: {count}` makes as many tasks, with an element in each"))
            .warning()
            .report();
    }
    Some(CheckedOperator {
        name: raw.name.into(),
        plugin,
        inputs,
        prepared,
        streams,
        union,
        tasks: parallelism.unwrap_or(0),
        partitions: split,
        parallelism,
        schedule,
    })
}

const PARTITION_BY: &str = "partition_by";

/// The key of an operator's own that names the fields by which it is split.
fn key_option(plugin: &dyn OperatorPlugin) -> &'static str {
    let is_list = plugin.options().iter().any(|spec| spec.key == PARTITION_BY);
    if is_list { PARTITION_BY } else { "key" }
}

/// Refuses to spread an input of an operator that does so itself.
fn refuse_spread(section: &Section<'_>, plugin: &dyn OperatorPlugin, prepared: &Prepared, input: &RawInput) {
    let has_one_task = prepared.parts.iter().all(|part| part.tasks == Tasks::One);
    section
        .report
        .at(
            input.spread_span,
            format!("{} of type {} spreads its input itself", section.what, plugin.name()),
        )
        .hint(match key_option(plugin) == PARTITION_BY {
            true => "leave out \"partition\" here; `partition_by` names the fields",
            false if has_one_task => {
                "leave it out: without a `key` there is one task; with `partitions: n` there are n, with an element each"
            }
            false => "leave out \"partition\" here; `key` names the fields",
        })
        .report();
}

/// Spreads the inputs of elements without a key over their tasks, evenly where the job file does not say.
///
/// Each of them has state of its own, so a record has to reach the same one again after a restart: how it is spread may
/// hang on the record and its order number alone.
fn spread_elements(
    section: &Section<'_>,
    prepared: &mut Prepared,
    inputs: &mut [CheckedInput],
    streams: &[Stream],
) -> Option<()> {
    use input::Spread;
    let is_united = streams.len() < inputs.len();
    let mut how = Vec::new();
    for (port, input) in inputs.iter_mut().enumerate() {
        if is_united && input.spread.is_none() {
            continue;
        }
        let spread = input.spread.get_or_insert(Spread::Shuffle);
        let schema = &streams[if is_united { 0 } else { port }].schema;
        let told = match spread {
            _ if is_united => Err("one of a list of inputs"),
            Spread::Forward => Err("forward, which keeps no record in one task after a restart"),
            Spread::Global => Err("global, which gives every record to the first of them"),
            Spread::Shuffle => Ok("shuffle".to_owned()),
            Spread::Broadcast => Ok("broadcast".to_owned()),
            Spread::Custom(_) => Ok("custom".to_owned()),
            Spread::Key(places) => {
                let names = places.iter().map(|place| schema.fields()[*place].name.as_str());
                Ok(format!("key({})", names.collect::<Vec<_>>().join(", ")))
            }
        };
        let wrong = match told {
            Ok(told) => {
                how.push(told);
                continue;
            }
            Err(wrong) => wrong,
        };
        let message = format!("{} has an element in each partition, and spreads {wrong}", section.what);
        section
            .report
            .at(input.spread_span, message)
            .expected("shuffle, key(a, b), broadcast or one of your own")
            .hint(match is_united {
                true => "bring the inputs together with a `union` before, and spread that",
                false => "leave it out to spread records evenly",
            })
            .report();
        return None;
    }
    if let Some(kept_by) = &mut prepared.kept_by {
        let how = if is_united { "shuffle".to_owned() } else { how.join(", ") };
        kept_by.parts.insert("partition".to_owned(), how);
    }
    Some(())
}

/// Refuses inputs of which records that belong together could reach different tasks.
///
/// Judged by the job file, not by how many tasks there happen to be: a file that is right on one machine is right
/// on all.
fn check_keyed(
    section: &Section<'_>,
    prepared: &Prepared,
    inputs: &[CheckedInput],
    streams: &[Stream],
    parallelism: Option<u32>,
) {
    use input::Spread;
    let is_united = streams.len() < inputs.len();
    let has_key = inputs.iter().any(|input| matches!(input.spread, Some(Spread::Key(_))));
    let has_one_task = prepared.parts.iter().all(|part| part.tasks == Tasks::One)
        || parallelism == Some(1) && (is_united || !has_key);
    if has_one_task {
        return;
    }
    for (port, fields) in &prepared.keyed {
        let schema = &streams[*port].schema;
        let key: Vec<&str> = fields.iter().map(|place| schema.fields()[*place].name.as_str()).collect();
        let key = key.join(", ");
        if is_united {
            // A union is one task, and so is its reader unless the job file says otherwise.
            if parallelism.is_some() {
                section
                    .report
                    .at(
                        section.key_span("parallelism"),
                        format!(
                            "{} keeps state by {key}, but a list of inputs is not split by it",
                            section.what
                        ),
                    )
                    .hint(format!("bring the inputs together with a `union` before, and read it key({key})"))
                    .report();
            }
            continue;
        }
        let input = &inputs[*port];
        let (is_kept, how) = match &input.spread {
            Some(Spread::Key(columns)) => {
                (columns.iter().all(|column| fields.contains(column)), "by another key")
            }
            Some(Spread::Custom(partitioner)) => {
                (partitioner.keeps_together(schema, fields), "in a way that does not keep it together")
            }
            Some(Spread::Global) => (true, "global"),
            Some(Spread::Forward) => (false, "forward"),
            Some(Spread::Shuffle) => (false, "shuffle"),
            Some(Spread::Broadcast) => (false, "broadcast"),
            None => (false, "without a partition"),
        };
        if !is_kept {
            section
                .report
                .at(
                    input.spread_span,
                    format!("{} keeps state by {key}, but reads {:?} {how}", section.what, input.name),
                )
                .expected(format!("a partition that brings all records of one {key} to the same task"))
                .hint(format!("write `input: {{ from: {}, partition: key({key}) }}`", input.name))
                .report();
        }
    }
}

/// What can be said of an operator's SQL while its fields are not known: whether it is SQL.
fn check_grammar(section: &Section<'_>, keys: &[KeySpec]) {
    let parse = |node: &Node, what: String, parse: &dyn Fn(&str) -> Result<(), SqlErrors>| {
        if let Value::Scalar(scalar) = &node.value
            && let Err(errors) = parse(&scalar.text)
        {
            section.report.sql(node, &what, &errors);
        }
    };
    let expression = |text: &str| Expr::parse(text).map(drop);
    let query = |text: &str| Query::parse(text).map(drop);
    for spec in keys {
        match (spec.shape, section.get(spec.key)) {
            (Shape::Expression, Some(node)) => {
                parse(node, format!("{:?} of {}", spec.key, section.what), &expression);
            }
            (Shape::Expressions | Shape::Queries, Some(Node { value: Value::Map(entries), .. })) => {
                for (name, node) in entries {
                    match spec.shape {
                        Shape::Queries => parse(node, format!("query {:?}", name.text), &query),
                        _ => parse(node, format!("field {:?}", name.text), &expression),
                    }
                }
            }
            _ => {}
        }
    }
}

fn check_schedule(section: &Section<'_>) -> Schedule {
    let Some(schedule) = subsection(section, "schedule", keys::SCHEDULE) else { return Schedule::default() };
    Schedule {
        every: positive_duration(&schedule, "every"),
        records: schedule.integer("records", 1, i64::MAX).map(i64::unsigned_abs),
    }
}

/// An input's endpoint and stream; `None` without a message if its operator has a mistake itself.
pub(super) fn resolve(
    context: &Context<'_>,
    section: &Section<'_>,
    raw: &RawInput,
    target: Target,
    places: &[Option<usize>],
) -> Option<(CheckedInput, Stream)> {
    let node = match target {
        Target::Source(place) => NodeRef::Source(place),
        Target::Operator(place) => NodeRef::Operator(places[place]?),
    };
    let outputs = context.output_names(raw.node());
    if outputs.is_empty() {
        // The operator that it reads has a mistake, which has been reported.
        return None;
    }
    let output = match raw.output() {
        None => 0,
        Some(wanted) => match outputs.iter().position(|name| name == wanted) {
            Some(number) => number,
            None => {
                let names = || outputs.iter().map(String::as_str);
                context
                    .report
                    .at(raw.from_span, format!("{:?} has no output {wanted:?}", raw.node()))
                    .expected(one_of(names()))
                    .did_you_mean(wanted, names())
                    .report();
                return None;
            }
        },
    };
    let stream = context.streams.get(&(raw.node().to_owned(), output))?.clone();
    let checked =
        input::resolve(context.report, &section.what, raw, Endpoint { node, output }, &stream.schema)?;
    Some((checked, stream))
}

/// The union that a list of inputs is for an operator of one input.
pub(super) fn unite(
    section: &Section<'_>,
    inputs: &[CheckedInput],
    streams: &[Stream],
) -> Option<(Prepared, Stream)> {
    let schema = streams[0].schema.clone();
    for (input, stream) in inputs.iter().zip(streams).skip(1) {
        if let Some(difference) = union::difference(&schema, &stream.schema) {
            section
                .report
                .at(
                    input.spread_span,
                    format!(
                        "{} reads {:?} and {:?}, which differ: {difference}",
                        section.what, inputs[0].name, input.name
                    ),
                )
                .hint("bring them to the same fields with a `map` before")
                .report();
            return None;
        }
    }
    let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    Some((union::prepare(inputs.len(), schema.clone()), stream::derive(streams, &names, schema)))
}

/// Places of the operators that records of a node reach, in order.
pub(crate) fn below(node: NodeRef, operators: &[CheckedOperator]) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    for (place, operator) in operators.iter().enumerate() {
        let reached = operator.inputs.iter().any(|input| {
            input.endpoint.node == node
                || matches!(input.endpoint.node, NodeRef::Operator(above) if found.contains(&above))
        });
        if reached {
            found.push(place);
        }
    }
    found
}
