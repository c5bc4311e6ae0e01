//! The checks of a job file: a tree in, a [`CheckedJob`] or every mistake out.
//!
//! Order of the checks: each source by itself, the names of all inputs, loops, then operators and sinks from the
//! sources down, since each needs the schemas of its inputs. What depends on a part with a mistake
//! is not judged, so that one mistake is one message.

mod input;
mod operator;
mod path;
mod sink;
pub(crate) mod source;
mod spread;
mod state;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_connect::sink::rejects::DEFAULT_MAX_BYTES;
use thalweg_flow::CycleSettings;
use thalweg_types::Micros;

use crate::diagnostic::{Diagnostic, Diagnostics, Span, Texts};
use crate::operator::{Operators, Stream};

use super::CheckOptions;
use super::keys::{self, KeySpec};
use super::section::{Report, Section, is_name};
use super::tree::{Node, Style, Value};

pub(crate) use input::PARTITIONINGS;
pub use input::{CheckedInput, Endpoint, NodeRef, Spread};
pub use operator::CheckedOperator;
pub(crate) use operator::below;
pub use sink::CheckedSink;
pub(crate) use source::NO_RETENTION;
pub use source::{Ack, CheckedSource};
pub use state::{Recovery, RemoteSettings, StateSettings};

/// A job without mistakes, ready to be built.
#[derive(Clone)]
pub struct CheckedJob {
    pub name: Arc<str>,
    pub cycle: CycleSettings,
    pub state: StateSettings,
    /// Bytes that files of rejects may have together.
    pub rejects: u64,
    pub sources: Vec<CheckedSource>,
    /// Each after those that it reads.
    pub operators: Vec<CheckedOperator>,
    pub sinks: Vec<CheckedSink>,
    pub warnings: Vec<Diagnostic>,
    /// The job file with its overrides.
    pub json: serde_json::Value,
    /// What it was checked against.
    pub(crate) plugins: Operators,
    /// It is the part of a job where records enter: they are answered elsewhere.
    pub(crate) is_door: bool,
    /// It is the part of a job to which other units send, and these hold the time by which it judges
    /// ([`thalweg_flow::Held`]).
    pub(crate) is_held: bool,
}

impl CheckedJob {
    /// What answers requests to a source that is a door: what `reply` names, else the first operator that reads it and
    /// answers each record, else the accepted records themselves.
    pub fn reply_of(&self, source: usize) -> Endpoint {
        if let Some(reply) = self.sources[source].reply {
            return reply;
        }
        let below = operator::below(NodeRef::Source(source), &self.operators);
        match below.into_iter().find(|place| self.operators[*place].prepared.answers.is_some()) {
            Some(place) => Endpoint { node: NodeRef::Operator(place), output: 0 },
            None => Endpoint { node: NodeRef::Source(source), output: 0 },
        }
    }
}

/// What all checks share.
pub(super) struct Context<'a> {
    pub(super) report: &'a Report,
    pub(super) options: &'a CheckOptions,
    /// `order: arrival` of the job.
    pub(super) reads_as_it_comes: bool,
    /// Streams by name of the source or operator and number of the output.
    pub(super) streams: BTreeMap<(String, usize), Stream>,
    /// Names of the outputs of a source or operator.
    pub(super) outputs: BTreeMap<String, Vec<String>>,
    /// Names of everything above an operator.
    pub(super) above: BTreeMap<String, Vec<String>>,
}

impl Context<'_> {
    pub(super) fn output_names(&self, node: &str) -> Vec<String> {
        self.outputs.get(node).cloned().unwrap_or_default()
    }

    /// The inputs by name, and everything that is above them.
    fn names_above(&self, inputs: &[input::RawInput]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for input in inputs {
            let own = [input.node().to_owned()];
            for name in own.iter().chain(self.above.get(input.node()).into_iter().flatten()) {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        names
    }
}

pub(super) fn check(texts: Texts, root: &Node, options: &CheckOptions) -> Result<CheckedJob, Diagnostics> {
    let report = Report::new(texts, options.reach.clone());
    let checked = check_root(&report, root, options);
    let (mistakes, warnings) = report.finish();
    match checked {
        Some(mut job) if mistakes.0.is_empty() => {
            job.warnings = warnings;
            Ok(job)
        }
        _ => {
            assert!(!mistakes.0.is_empty(), "a job that is refused has a mistake that says why");
            Err(mistakes)
        }
    }
}

fn check_root(report: &Report, root: &Node, options: &CheckOptions) -> Option<CheckedJob> {
    let top = Section::of(report, "the job file", Span { end: root.span.start, ..root.span }, root)?;
    top.refuse_other_than(keys::TOP);
    top.integer("version", 1, 1);
    let name = top.require("name", "a name such as payments").and_then(|_| top.name("name"));
    if let Some((name, span)) = &name {
        require_name(report, "the job", name, *span);
    }
    let cycle = check_cycle(&top);
    let state = state::check(&top);
    let rejects = subsection(&top, "rejects", keys::REJECTS).and_then(|section| section.size("max_bytes"));

    let mut context = Context {
        report,
        options,
        reads_as_it_comes: top.choice("order", keys::ORDER).is_some_and(|order| order == "arrival"),
        streams: BTreeMap::new(),
        outputs: BTreeMap::new(),
        above: BTreeMap::new(),
    };
    let named = Named::collect(&top);
    let mut sources: Vec<Option<CheckedSource>> = named
        .sources
        .iter()
        .map(|(name, span, node)| source::check(&mut context, name, *span, node))
        .collect();
    if top.get("sources").is_none() || named.sources.is_empty() && named.sources_fine {
        top.require("sources", "at least one source");
        if top.get("sources").is_some() {
            report
                .at(top.key_span("sources"), "the job has no source")
                .expected("at least one source")
                .report();
        }
    }
    let mut graph = operator::check_graph(&mut context, &named);
    spread::check(&context, &mut sources, &mut graph);
    if !graph.is_whole {
        return None;
    }
    let mut sources: Vec<CheckedSource> = sources.into_iter().collect::<Option<_>>()?;
    let operators = graph.operators;
    let sinks: Vec<CheckedSink> = graph.sinks.into_iter().collect::<Option<_>>()?;
    source::check_replies(&context, &mut sources, &operators, &named);
    path::check(report, &named, &sources, &sinks);
    warn_unread(&context, &sources, &operators, &sinks, &named);
    Some(CheckedJob {
        name: name?.0.into(),
        cycle,
        state,
        rejects: rejects.unwrap_or(DEFAULT_MAX_BYTES),
        sources,
        operators,
        sinks,
        warnings: Vec::new(),
        json: to_json(root),
        plugins: options.operators.clone(),
        is_door: false,
        is_held: false,
    })
}

/// The three maps of named things, with well-formed and unique names.
pub(super) struct Named<'a> {
    pub(super) sources: Vec<(String, Span, &'a Node)>,
    pub(super) operators: Vec<(String, Span, &'a Node)>,
    pub(super) sinks: Vec<(String, Span, &'a Node)>,
    sources_fine: bool,
}

impl<'a> Named<'a> {
    fn collect(top: &Section<'a>) -> Self {
        let list = |key: &str, kind: &str| -> Option<Vec<(String, Span, &'a Node)>> {
            let node = match top.get(key) {
                Some(node) => node,
                None => return Some(Vec::new()),
            };
            let section = Section::of(top.report, format!("{key:?}"), top.key_span(key), node)?;
            let entries = section.entries().iter();
            Some(
                entries
                    .map(|(name, node)| {
                        require_name(top.report, kind, &name.text, name.span);
                        (name.text.clone(), name.span, node)
                    })
                    .collect(),
            )
        };
        let sources = list("sources", "a source");
        let operators = list("operators", "an operator").unwrap_or_default();
        let sinks = list("sinks", "a sink").unwrap_or_default();
        let sources_fine = sources.is_some();
        let sources = sources.unwrap_or_default();
        for (name, span, _) in &operators {
            if sources.iter().any(|(source, ..)| source == name) {
                top.report
                    .at(*span, format!("{name:?} is a source and an operator"))
                    .hint("`input` could mean either; give one of them another name")
                    .report();
            }
        }
        Self { sources, operators, sinks, sources_fine }
    }
}

fn require_name(report: &Report, kind: &str, name: &str, span: Span) {
    if !is_name(name) {
        report
            .at(span, format!("{name:?} is no name for {kind}"))
            .expected("a letter or _, then letters, digits, _ and -")
            .report();
    } else if name.len() > LONGEST_NAME {
        report
            .at(span, format!("the name of {kind} has {} characters", name.len()))
            .expected(format!("at most {LONGEST_NAME}, as it names folders"))
            .report();
    }
}

/// Names become names of folders and files, with suffixes.
const LONGEST_NAME: usize = 128;

fn check_cycle(top: &Section<'_>) -> CycleSettings {
    let mut cycle = CycleSettings::default();
    let Some(section) = subsection(top, "cycle", keys::CYCLE) else { return cycle };
    cycle.every = positive_duration(&section, "every").or(cycle.every);
    cycle.bytes = section.size("bytes");
    cycle.records = section.integer("records", 1, i64::MAX).map(i64::unsigned_abs);
    cycle
}

/// The section of a key, with its keys checked against a table.
pub(super) fn subsection<'a>(
    of: &Section<'a>,
    key: &'static str,
    specs: &'static [KeySpec],
) -> Option<Section<'a>> {
    let node = of.get(key)?;
    let section = Section::of(of.report, format!("{key:?} of {}", of.what), of.key_span(key), node)?;
    section.refuse_other_than(specs);
    Some(section)
}

/// A duration that is more than nothing.
pub(super) fn positive_duration(section: &Section<'_>, key: &str) -> Option<Duration> {
    let micros = section.duration(key)?;
    if micros == 0 {
        let node = section.get(key)?;
        section
            .report
            .at(node.span, format!("{key:?} of {} is zero", section.what))
            .expected("a duration above zero")
            .report();
        return None;
    }
    Some(to_duration(micros))
}

pub(super) fn to_duration(micros: Micros) -> Duration {
    Duration::from_micros(micros.unsigned_abs())
}

fn warn_unread(
    context: &Context<'_>,
    sources: &[CheckedSource],
    operators: &[CheckedOperator],
    sinks: &[CheckedSink],
    named: &Named<'_>,
) {
    let reads = |node: NodeRef| {
        operators.iter().flat_map(|operator| &operator.inputs).any(|input| input.endpoint.node == node)
            || sinks.iter().flat_map(|sink| &sink.inputs).any(|input| input.endpoint.node == node)
            || sources.iter().any(|source| source.reply.is_some_and(|reply| reply.node == node))
    };
    for (index, source) in sources.iter().enumerate() {
        if !reads(NodeRef::Source(index)) {
            warn(context, &named.sources, &source.name, "nothing reads source");
        }
    }
    for (index, operator) in operators.iter().enumerate() {
        // The values of queries can be read by HTTP.
        if operator.prepared.queries.is_none() && !reads(NodeRef::Operator(index)) {
            warn(context, &named.operators, &operator.name, "nothing reads operator");
        }
    }
}

fn warn(context: &Context<'_>, named: &[(String, Span, &Node)], name: &str, message: &str) {
    if let Some((_, span, _)) = named.iter().find(|(known, ..)| known == name) {
        context.report.at(*span, format!("{message} {name:?}")).warning().report();
    }
}

/// Scalars become what YAML's core schema says.
pub(super) fn to_json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::List(items) => items.iter().map(to_json).collect(),
        Value::Map(entries) => serde_json::Value::Object(
            entries.iter().map(|(key, node)| (key.text.clone(), to_json(node))).collect(),
        ),
        Value::Scalar(scalar) if scalar.is_null() => serde_json::Value::Null,
        Value::Scalar(scalar) if scalar.is_bool() => (scalar.text == "true").into(),
        Value::Scalar(scalar) if scalar.style == Style::Plain => {
            match (scalar.text.parse::<i64>(), scalar.is_number()) {
                (Ok(number), true) => number.into(),
                (Err(_), true) => {
                    match scalar.text.parse::<f64>().ok().and_then(serde_json::Number::from_f64) {
                        Some(number) => number.into(),
                        None => scalar.text.clone().into(),
                    }
                }
                _ => scalar.text.clone().into(),
            }
        }
        Value::Scalar(scalar) => scalar.text.clone().into(),
    }
}
