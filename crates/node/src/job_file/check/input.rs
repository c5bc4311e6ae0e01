//! `input:` of operators and sinks: names, named outputs, lists, and how records are spread.

use std::sync::Arc;

use thalweg_flow::{Partitioner, Partitioning};
use thalweg_types::Micros;

use crate::diagnostic::{Span, nearest};
use crate::job_file::keys;
use crate::job_file::section::{Report, Section};
use crate::job_file::tree::{Node, Value};

use super::Context;

/// A source or operator, by its place in [`super::CheckedJob`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRef {
    Source(usize),
    Operator(usize),
}

/// One output of a source or operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub node: NodeRef,
    pub output: usize,
}

/// How the job file spreads an input.
#[derive(Clone)]
pub enum Spread {
    Forward,
    Shuffle,
    /// Fields of the upstream schema.
    Key(Vec<usize>),
    Broadcast,
    Global,
    Custom(Arc<dyn Partitioner>),
}

impl Spread {
    pub(crate) fn partitioning(&self) -> Partitioning {
        match self {
            Spread::Forward => Partitioning::Forward,
            Spread::Shuffle => Partitioning::Shuffle,
            Spread::Key(columns) => Partitioning::Key(columns.clone()),
            Spread::Broadcast => Partitioning::Broadcast,
            Spread::Global => Partitioning::Global,
            Spread::Custom(partitioner) => Partitioning::Custom(Arc::clone(partitioner)),
        }
    }
}

/// One input, with every name resolved.
#[derive(Clone)]
pub struct CheckedInput {
    pub endpoint: Endpoint,
    /// As written: `payments`, `switches.counters`.
    pub name: String,
    /// `None`: as fits the task counts.
    pub spread: Option<Spread>,
    pub buffer: Option<u64>,
    pub flush: Option<Micros>,
    pub(crate) spread_span: Span,
}

/// An input as written.
pub(super) struct RawInput {
    pub(super) from: String,
    pub(super) from_span: Span,
    spread: Option<RawSpread>,
    buffer: Option<u64>,
    flush: Option<Micros>,
    pub(super) spread_span: Span,
}

enum RawSpread {
    Named(&'static str),
    Key(Vec<String>),
    Custom(String, Arc<dyn Partitioner>),
}

impl RawInput {
    pub(super) fn is_spread(&self) -> bool {
        self.spread.is_some()
    }

    /// Name of the source or operator, without the output.
    pub(super) fn node(&self) -> &str {
        self.from.split_once('.').map_or(&self.from, |(node, _)| node)
    }

    pub(super) fn output(&self) -> Option<&str> {
        self.from.split_once('.').map(|(_, output)| output)
    }
}

/// All inputs of `input:`; `None` where one of them is wrong.
pub(super) fn read(context: &Context<'_>, section: &Section<'_>) -> Option<Vec<RawInput>> {
    let node = section.require("input", "the name of a source or an operator")?;
    let inputs: Option<Vec<RawInput>> = match &node.value {
        Value::List(items) => {
            // All of them are read, so that each can report its mistakes.
            let read: Vec<Option<RawInput>> =
                items.iter().map(|item| read_one(context, section, item)).collect();
            read.into_iter().collect()
        }
        _ => read_one(context, section, node).map(|input| vec![input]),
    };
    if inputs.as_ref().is_some_and(Vec::is_empty) {
        let message = format!("\"input\" of {} is an empty list", section.what);
        section.report.at(node.span, message).expected("at least one name").report();
        return None;
    }
    inputs
}

fn read_one(context: &Context<'_>, section: &Section<'_>, node: &Node) -> Option<RawInput> {
    match &node.value {
        Value::Scalar(scalar) if !node.is_null() => Some(RawInput {
            from: scalar.text.clone(),
            from_span: node.span,
            spread: None,
            buffer: None,
            flush: None,
            spread_span: node.span,
        }),
        Value::Map(_) => {
            let what = format!("\"input\" of {}", section.what);
            let input = Section::of(section.report, what, node.span, node)?;
            input.refuse_other_than(keys::INPUT);
            let (from, from_span) = input
                .require("from", "the name of a source or an operator")
                .and_then(|_| input.name("from"))?;
            let spread_span = input.get("partition").map_or(node.span, |node| node.span);
            let spread = match input.get("partition") {
                Some(node) => Some(read_spread(context, &input, node)?),
                None => None,
            };
            Some(RawInput {
                from,
                from_span,
                spread,
                buffer: input.size("buffer"),
                flush: input.duration("flush"),
                spread_span,
            })
        }
        _ => {
            section
                .report
                .at(node.span, format!("\"input\" of {} is {}", section.what, node.describe()))
                .expected("a name, `operator.output`, a list of them, or { from: …, partition: … }")
                .report();
            None
        }
    }
}

/// Partitionings by name, which come with the engine.
pub(crate) const PARTITIONINGS: [&str; 4] = ["shuffle", "forward", "broadcast", "global"];

fn read_spread(context: &Context<'_>, input: &Section<'_>, node: &Node) -> Option<RawSpread> {
    let scalar = input.scalar("partition", node, "key(a, b), shuffle, forward, broadcast or global")?;
    let text = scalar.text.trim();
    if let Some(name) = PARTITIONINGS.into_iter().find(|name| *name == text) {
        return Some(RawSpread::Named(name));
    }
    if let Some(partitioner) = context.options.operators.partitioner(text) {
        return Some(RawSpread::Custom(text.to_owned(), Arc::clone(partitioner)));
    }
    if let Some(inner) = text.strip_prefix("key(").and_then(|rest| rest.strip_suffix(')')) {
        let fields: Vec<String> = inner.split(',').map(|field| field.trim().to_owned()).collect();
        if fields.iter().all(|field| !field.is_empty()) {
            return Some(RawSpread::Key(fields));
        }
    }
    let mut names: Vec<&str> = PARTITIONINGS.to_vec();
    names.extend(context.options.operators.partitioner_names());
    let mut pending = input
        .report
        .at(node.span, format!("\"partition\" of {} is {:?}", input.what, scalar.text))
        .expected("key(a, b), shuffle, forward, broadcast or global");
    if text.starts_with("key") || text.starts_with("hash") {
        pending = pending.hint("write key(field) or key(field, field)");
    } else if let Some(name) = nearest(text, names) {
        pending = pending.hint(format!("did you mean {name:?}?"));
    }
    pending.report();
    None
}

/// Resolves the fields of `key(…)` against the stream that is read.
pub(super) fn resolve(
    report: &Report,
    what: &str,
    raw: &RawInput,
    endpoint: Endpoint,
    schema: &thalweg_types::Schema,
) -> Option<CheckedInput> {
    let spread = match &raw.spread {
        None => None,
        Some(RawSpread::Named(name)) => Some(match *name {
            "forward" => Spread::Forward,
            "shuffle" => Spread::Shuffle,
            "broadcast" => Spread::Broadcast,
            _ => Spread::Global,
        }),
        Some(RawSpread::Custom(name, partitioner)) => {
            if let Err(error) = partitioner.check(schema) {
                let message = format!(
                    "{what} is partitioned {name}, which does not suit {:?}: {}",
                    raw.from,
                    error.chain()
                );
                report.at(raw.spread_span, message).hint_of(&error).report();
                return None;
            }
            Some(Spread::Custom(Arc::clone(partitioner)))
        }
        Some(RawSpread::Key(fields)) => {
            let mut places = Vec::new();
            for field in fields {
                match schema.field(field) {
                    Some((place, _)) => places.push(place),
                    None => {
                        report
                            .at(
                                raw.spread_span,
                                format!(
                                    "{what} is partitioned by {field:?}, which is no field of {:?}",
                                    raw.from
                                ),
                            )
                            .expected(format!(
                                "one of the fields {}",
                                schema.names().collect::<Vec<_>>().join(", ")
                            ))
                            .did_you_mean(field, schema.names())
                            .report();
                        return None;
                    }
                }
            }
            Some(Spread::Key(places))
        }
    };
    Some(CheckedInput {
        endpoint,
        name: raw.from.clone(),
        spread,
        buffer: raw.buffer,
        flush: raw.flush,
        spread_span: raw.spread_span,
    })
}
