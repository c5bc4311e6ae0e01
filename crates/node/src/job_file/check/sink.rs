//! `sinks:` of a job file.

use std::sync::Arc;

use thalweg_connect::{FormatSpec, Options, SinkPlugin, SinkUnit};
use thalweg_types::Schema;

use crate::diagnostic::{Span, one_of};
use crate::job_file::keys;
use crate::job_file::section::Section;
use crate::job_file::tree::Node;
use crate::operator::Prepared;

use super::input::{self, CheckedInput};
use super::operator::{resolve, resolve_names, unite};
use super::source::check_format;
use super::{Context, Named};

/// A sink without mistakes.
#[derive(Clone)]
pub struct CheckedSink {
    pub name: Arc<str>,
    pub plugin: Arc<dyn SinkPlugin>,
    pub inputs: Vec<CheckedInput>,
    /// The union before a sink with a list of inputs.
    pub(crate) union: Option<Prepared>,
    pub format: Option<FormatSpec>,
    pub options: Options,
    /// Of the records that it takes.
    pub schema: Schema,
    /// The unit of a cluster that it is part of.
    pub(crate) unit: Option<SinkUnit>,
    /// The node of a cluster that writes.
    #[cfg(feature = "cluster")]
    pub(crate) node: Option<Arc<str>>,
}

pub(super) fn check(
    context: &Context<'_>,
    named: &Named<'_>,
    places: &[Option<usize>],
    name: &str,
    span: Span,
    node: &Node,
) -> Option<CheckedSink> {
    let report = context.report;
    let section = Section::of(report, format!("sink {name:?}"), span, node)?;
    let names = || context.options.registry.sinks().iter().map(|plugin| plugin.name());
    let mut plugin = None;
    if let Some((kind, kind_span)) = section.kind(&one_of(names())) {
        plugin = context.options.registry.sink(&kind).cloned();
        if let Some(absent) = context.options.registry.absent_sink(&kind) {
            let message = format!("{} is of type {kind:?}, which this build does not have", section.what);
            report.at(kind_span, message).hint(absent.hint()).report();
        } else if plugin.is_none() {
            report
                .at(kind_span, format!("{} is of type {kind:?}, which is no sink", section.what))
                .expected(one_of(names()))
                .did_you_mean(&kind, names())
                .report();
        }
    }
    let raw_inputs = input::read(context, &section);
    let targets =
        raw_inputs.as_deref().and_then(|inputs| resolve_names(context, named, None, &section, inputs));
    let plugin = plugin?;

    let format = plugin.takes_format().then(|| check_format(context, &section, plugin.default_format()));
    let mut known: Vec<&str> = keys::SINK.iter().map(|spec| spec.key).collect();
    known.extend(plugin.options().iter().map(|option| option.key));
    match &format {
        None => known.retain(|key| *key != "format"),
        Some(Some(format)) => known.extend(format.plugin.options().iter().map(|option| option.key)),
        // Its keys are not known, so no key is called wrong.
        Some(None) => known.extend(section.entries().iter().map(|(key, _)| key.text.as_str())),
    }
    section.refuse_others(known);
    let told = report.count();
    let options = section.options(plugin.options());
    let has_options = report.count() == told;

    let mut inputs = Vec::new();
    let mut streams = Vec::new();
    for (raw, target) in raw_inputs?.iter().zip(targets?) {
        let (input, stream) = resolve(context, &section, raw, target, places)?;
        inputs.push(input);
        streams.push(stream);
    }
    let mut union = None;
    let mut stream = streams[0].clone();
    if inputs.len() > 1 {
        let (prepared, united) = unite(&section, &inputs, &streams)?;
        union = Some(prepared);
        stream = united;
    }
    if has_options {
        section.report_mistakes(plugin.check(&stream.schema, &options));
    }
    if let Some(Some(format)) = &format
        && let Err(error) = format.encoder(&stream.schema)
    {
        section.report_format_error(&error);
    }
    Some(CheckedSink {
        name: name.into(),
        plugin,
        inputs,
        union,
        format: match format {
            None => None,
            Some(format) => Some(format?),
        },
        options,
        schema: stream.schema,
        unit: None,
        #[cfg(feature = "cluster")]
        node: section.name("node").map(|(name, _)| name.into()),
    })
}
