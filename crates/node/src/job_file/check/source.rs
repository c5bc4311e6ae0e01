//! `sources:` of a job file.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch};
use thalweg_connect::{ComputeTime, FormatSpec, Options, SourceOutput, SourcePlugin, SourceTime};
use thalweg_expr::{Bound, Expr, Mistakes, Qualifier};
use thalweg_storage::log::RetentionPolicy;
use thalweg_types::{DataType, Field, LatePolicy, Micros, Reading, Schema, rejects_schema};

use crate::diagnostic::{Span, nearest, one_of};
use crate::job_file::keys;
use crate::job_file::section::Section;
use crate::job_file::tree::{Node, Value};
use crate::operator::{Dedup, Stream, field_place};

use super::input::{Endpoint, NodeRef};
use super::operator::{self, CheckedOperator};
use super::{Context, Named};

const SECOND: Micros = 1_000_000;
const DEFAULT_LATENESS: Micros = 10 * SECOND;
const DEFAULT_MAX_AHEAD: Micros = 3_600 * SECOND;

/// Nothing that is committed is kept.
pub(crate) const NO_RETENTION: RetentionPolicy =
    RetentionPolicy { max_age: Some(Duration::ZERO), max_bytes: None };

/// What has happened to a record before it is acknowledged, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ack {
    None,
    Written,
    Synced,
}

/// A source without mistakes.
#[derive(Clone)]
pub struct CheckedSource {
    pub name: Arc<str>,
    pub plugin: Arc<dyn SourcePlugin>,
    pub format: Option<FormatSpec>,
    pub options: Options,
    pub schema: Schema,
    pub time: SourceTime,
    /// Field with the id.
    pub id: Option<usize>,
    pub dedup: Option<Micros>,
    /// It is read by event time, with all others that are.
    pub by_time: bool,
    pub lateness: Micros,
    pub late: LatePolicy,
    pub max_ahead: Option<Micros>,
    pub ack: Ack,
    /// How long the journal keeps committed records, if the source has one.
    pub retention: RetentionPolicy,
    pub reject_limit: Option<u64>,
    /// How many tasks decode.
    pub tasks: u32,
    pub(crate) declared_tasks: Option<u32>,
    /// What answers requests to a source that is a door (http), where the job file says so.
    pub reply: Option<Endpoint>,
    pub(crate) reply_name: Option<(String, Span)>,
    /// The node of a cluster that reads it.
    #[cfg(feature = "cluster")]
    pub(crate) node: Option<Arc<str>>,
}

pub(super) fn check(context: &mut Context<'_>, name: &str, span: Span, node: &Node) -> Option<CheckedSource> {
    let report = context.report;
    let section = Section::of(report, format!("source {name:?}"), span, node)?;
    let names = || context.options.registry.sources().iter().map(|plugin| plugin.name());
    let kind = section.kind(&one_of(names()));
    let plugin = kind.as_ref().and_then(|(kind, _)| context.options.registry.source(kind).cloned());
    let Some(plugin) = plugin else {
        if let Some((kind, kind_span)) = kind {
            match context.options.registry.absent_source(&kind) {
                Some(absent) => {
                    let message =
                        format!("{} is of type {kind:?}, which this build does not have", section.what);
                    report.at(kind_span, message).hint(absent.hint()).report();
                }
                None => report
                    .at(kind_span, format!("{} is of type {kind:?}, which is no source", section.what))
                    .expected(one_of(names()))
                    .did_you_mean(&kind, names())
                    .report(),
            }
        }
        check_untyped(context, name, &section);
        return None;
    };

    let format = if plugin.takes_format() {
        Some(check_format(context, &section, plugin.default_format()))
    } else {
        None
    };
    let mut known: Vec<&str> = keys::SOURCE.iter().map(|spec| spec.key).collect();
    known.extend(plugin.options().iter().map(|option| option.key));
    match &format {
        None => known.retain(|key| *key != "format"),
        Some(Some(format)) => known.extend(format.plugin.options().iter().map(|option| option.key)),
        // Its keys are not known, so no key is called wrong.
        Some(None) => known.extend(section.entries().iter().map(|(key, _)| key.text.as_str())),
    }
    section.refuse_others(known);

    let told = context.report.count();
    let options = section.options(plugin.options());
    if context.report.count() == told {
        section.report_mistakes(plugin.check(&options));
    }
    let schema = check_schema(&section, plugin.as_ref(), &options);
    let lateness = section.duration("lateness").unwrap_or(DEFAULT_LATENESS);
    let late = match section.choice("late", &["reject", "clamp"]).as_deref() {
        Some("clamp") => LatePolicy::Clamp,
        _ => LatePolicy::Reject,
    };
    let max_ahead = match section.duration_or("max_ahead", keys::NONE) {
        None if plugin.is_live(&options) => Some(DEFAULT_MAX_AHEAD),
        given => given.flatten(),
    };
    let ack = match section.choice("ack", &["synced", "written", "none"]).as_deref() {
        Some("written") => Ack::Written,
        Some("none") => Ack::None,
        _ => Ack::Synced,
    };
    let retention = match (section.duration("retention"), section.size("retention_bytes")) {
        (None, None) => NO_RETENTION,
        (age, max_bytes) => RetentionPolicy { max_age: age.map(super::to_duration), max_bytes },
    };
    let reject_limit = section.integer("reject_limit", 0, i64::MAX).map(i64::unsigned_abs);
    let declared_tasks = section.integer("parallelism", 1, 4096).map(|tasks| tasks as u32);
    let dedup = section.duration("dedup");
    if dedup.is_some() && section.get("id").is_none() {
        report
            .at(section.key_span("dedup"), format!("{} has \"dedup\" but no \"id\"", section.what))
            .hint("`id: field` says which field names a record")
            .report();
    }
    let schema = schema?;
    section.report_mistakes(plugin.check_schema(&schema));
    if let Some(Some(format)) = &format {
        match format.reader(&plugin.value_schema(&schema)) {
            Ok(reader) => section.report_mistakes(plugin.check_format(&*reader).into_iter().collect()),
            Err(error) => section.report_format_error(&error),
        }
    }
    let time = match plugin.own_time(&options) {
        None => check_time(&section, &schema),
        Some(own) => check_own_time(&section, &schema, own),
    };
    let by_time = check_order(context, &section, plugin.has_end(&options), time.as_ref());
    let id = section.get("id").map(|node| field_place(&section, "id", node, &schema).map(|(place, _)| place));
    let reply_name = section.name("reply");

    let duplicates = match (&id, dedup) {
        (Some(Some(place)), Some(span)) => Some(Dedup { id: schema.fields()[*place].name.clone(), span }),
        _ => None,
    };
    let stream = Stream::new(schema.clone(), lateness, late, duplicates);
    let kinds = plugin.outputs(&options);
    let others = kinds.iter().skip(1).map(|kind| kind.schema.clone());
    for (place, schema) in std::iter::once(rejects_schema()).chain(others).enumerate() {
        let other = Stream { schema, dedup: None, ..stream.clone() };
        context.streams.insert((name.to_owned(), 1 + place), other);
    }
    context.streams.insert((name.to_owned(), 0), stream);
    context.outputs.insert(name.to_owned(), output_names(&kinds));
    Some(CheckedSource {
        name: name.into(),
        plugin,
        format: match format {
            None => None,
            Some(format) => Some(format?),
        },
        options,
        schema,
        time: time?,
        id: match id {
            None => None,
            Some(place) => Some(place?),
        },
        dedup,
        by_time,
        lateness,
        late,
        max_ahead,
        ack,
        retention,
        reject_limit,
        tasks: declared_tasks.unwrap_or(context.options.workers).max(1),
        declared_tasks,
        reply: None,
        reply_name,
        #[cfg(feature = "cluster")]
        node: section.name("node").map(|(name, _)| name.into()),
    })
}

/// Checks what can be checked of a source of unknown type: keys that no source takes, its fields, and with them the
/// operators that read it.
fn check_untyped(context: &mut Context<'_>, name: &str, section: &Section<'_>) {
    let registry = &context.options.registry;
    let mut known: Vec<&str> = keys::SOURCE.iter().map(|spec| spec.key).collect();
    known.extend(registry.sources().iter().flat_map(|plugin| plugin.options()).map(|option| option.key));
    known.extend(registry.formats().iter().flat_map(|plugin| plugin.options()).map(|option| option.key));
    section.refuse_others(known);
    let Some(schema) = section.get("schema").and_then(|node| read_schema(section, node)) else { return };
    let _ = check_time(section, &schema);
    let stream = Stream::new(schema, DEFAULT_LATENESS, LatePolicy::Reject, None);
    let rejects = Stream { schema: rejects_schema(), ..stream.clone() };
    context.streams.insert((name.to_owned(), 0), stream);
    context.streams.insert((name.to_owned(), 1), rejects);
    context.outputs.insert(name.to_owned(), output_names(&[]));
}

/// What the outputs of a source are called, by number.
fn output_names(kinds: &[SourceOutput]) -> Vec<String> {
    let first = kinds.first().map_or("records", |kind| kind.name);
    let others = kinds.iter().skip(1).map(|kind| kind.name);
    [first, "rejects"].into_iter().chain(others).map(str::to_owned).collect()
}

/// The format that a section names, or the default, with its options.
pub(super) fn check_format(
    context: &Context<'_>,
    section: &Section<'_>,
    default: Option<&'static str>,
) -> Option<FormatSpec> {
    let names = || context.options.registry.formats().iter().map(|plugin| plugin.name());
    let (name, span) = match (section.get("format"), default) {
        (None, Some(default)) => (default.to_owned(), section.span),
        _ => {
            section.require("format", &one_of(names()))?;
            section.name("format")?
        }
    };
    let Some(plugin) = context.options.registry.format(&name).cloned() else {
        section
            .report
            .at(span, format!("{} has unknown format {name:?}", section.what))
            .expected(one_of(names()))
            .did_you_mean(&name, names())
            .report();
        return None;
    };
    let options = section.options(plugin.options());
    Some(FormatSpec { plugin, options })
}

fn check_schema(section: &Section<'_>, plugin: &dyn SourcePlugin, options: &Options) -> Option<Schema> {
    match plugin.own_schema(options) {
        Ok(None) => {
            let node = section
                .require("schema", "field names and types, such as { ts: timestamp(ms), card: string }")?;
            read_schema(section, node)
        }
        Ok(Some(schema)) => {
            if section.get("schema").is_some() {
                section
                    .report
                    .at(
                        section.key_span("schema"),
                        format!("{} makes its own fields and takes no \"schema\"", section.what),
                    )
                    .hint(format!("its fields are {}", schema.names().collect::<Vec<_>>().join(", ")))
                    .report();
            }
            Some(schema)
        }
        Err(error) => {
            section.report_error("type", &error);
            None
        }
    }
}

pub(crate) fn read_schema(section: &Section<'_>, node: &Node) -> Option<Schema> {
    let what = format!("\"schema\" of {}", section.what);
    let schema = Section::of(section.report, &what, section.key_span("schema"), node)?;
    let mut fields = Vec::new();
    let mut fine = true;
    for (name, node) in schema.entries() {
        if name.text.is_empty() || name.text.chars().any(char::is_control) {
            fine = false;
            schema.report.at(name.span, format!("{:?} is no name for a field", name.text)).report();
        }
        match read_type(&schema, &name.text, node) {
            Some(field) => fields.push(field),
            None => fine = false,
        }
    }
    if schema.entries().is_empty() {
        schema.report.at(node.span, format!("{what} has no field")).expected("at least one field").report();
        return None;
    }
    fine.then(|| Schema::new(fields))
}

fn read_type(schema: &Section<'_>, name: &str, node: &Node) -> Option<Field> {
    const EXPECTED: &str = "bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns), ip or \
         ipv4_int, with ? where it may be null";
    let Value::Scalar(scalar) = &node.value else {
        schema
            .report
            .at(node.span, format!("the type of field {name:?} is {}", node.describe()))
            .expected(EXPECTED)
            .report();
        return None;
    };
    let (text, nullable) = match scalar.text.trim().strip_suffix('?') {
        Some(text) => (text, true),
        None => (scalar.text.trim(), false),
    };
    match Field::declared(name, &scalar.text) {
        Ok(field) => Some(field),
        Err(_) => {
            let mut pending = schema
                .report
                .at(
                    node.span,
                    match node.is_null() {
                        true => format!("field {name:?} has no type"),
                        false => format!("field {name:?} has invalid type {text:?}"),
                    },
                )
                .expected(EXPECTED);
            let mut guess = meant_type(text);
            if let Some(meant) = guess {
                pending = pending.hint(format!("did you mean {meant:?}?"));
            } else if text.starts_with("decimal") {
                guess = Some("decimal(18,2)");
                pending = pending.hint("decimal takes precision 1 to 76 and a scale up to it: decimal(18,2)");
            } else {
                let names = || DataType::NAMES.into_iter().chain([Reading::IPV4_INT]);
                guess = nearest(text, names());
                pending = pending.did_you_mean(text, names());
            }
            pending.report();
            // The check goes on with the probable type, so that later mistakes are reported too.
            let field = Field::declared(name, guess?).ok()?;
            Some(if nullable { field.nullable() } else { field })
        }
    }
}

/// What others call our types.
fn meant_type(text: &str) -> Option<&'static str> {
    Some(match text.to_lowercase().as_str() {
        "int" | "integer" | "long" | "bigint" | "i64" | "int32" | "i32" | "short" | "smallint" => "int64",
        "uint" | "u64" | "uint32" | "u32" | "unsigned" => "uint64",
        "float" | "double" | "f64" | "real" | "number" | "float32" => "float64",
        "str" | "text" | "varchar" | "char" | "utf8" => "string",
        "boolean" => "bool",
        "binary" | "blob" | "bytea" => "bytes",
        "timestamp" | "datetime" | "timestamp(millis)" | "timestamp_ms" | "date" | "time" => "timestamp(ms)",
        "timestamp(sec)" | "timestamp(seconds)" => "timestamp(s)",
        "inet" | "ipv4" | "ipv6" | "ipaddr" => "ip",
        "ip_int" | "ipv4(int)" | "ipv4int" => Reading::IPV4_INT,
        "decimal" | "numeric" => "decimal(18,2)",
        _ => return None,
    })
}

/// The event time of a source that sets it by itself.
fn check_own_time(section: &Section<'_>, schema: &Schema, own: &str) -> Option<SourceTime> {
    if section.get("time").is_some() {
        section
            .report
            .at(
                section.key_span("time"),
                format!("{} sets event time by itself and takes no \"time\"", section.what),
            )
            .hint(format!("it is in the field {own:?}"))
            .report();
    }
    schema.field(own).map(|(place, _)| SourceTime::Field(place))
}

fn check_time(section: &Section<'_>, schema: &Schema) -> Option<SourceTime> {
    let Some(node) = section.get("time") else { return Some(SourceTime::Arrival) };
    if let Value::Scalar(scalar) = &node.value
        && schema.field(&scalar.text).is_none()
        && is_computed(&scalar.text)
    {
        return computed_time(section, node, &scalar.text, schema);
    }
    let (place, field) = field_place(section, "time", node, schema)?;
    if !matches!(field.data_type, DataType::Timestamp(_)) {
        section
            .report
            .at(
                node.span,
                format!("\"time\" of {} is field {:?} of type {}", section.what, field.name, field.data_type),
            )
            .expected("a field of type timestamp(s|ms|us|ns)")
            .hint(format!("declare it as `{}: timestamp(ms)`", field.name))
            .report();
        return None;
    }
    Some(SourceTime::Field(place))
}

/// Whether the text of `time`, which is no field, is meant as an expression and not as a name.
fn is_computed(text: &str) -> bool {
    text.contains(['(', '|', '\'', '+', '*', '/']) || text.trim().contains(' ')
}

/// The event time that an expression over the fields gives.
fn computed_time(section: &Section<'_>, node: &Node, text: &str, schema: &Schema) -> Option<SourceTime> {
    const EXAMPLE: &str = "such as CAST(date || ' ' || clock AS TIMESTAMP)";
    let what = format!("\"time\" of {}", section.what);
    let mut mistakes = Mistakes::new();
    let checked =
        Expr::read(text, &mut mistakes).map(|read| read.check(schema, Qualifier::None, &mut mistakes));
    if let Err(errors) = mistakes.finish() {
        section.report.sql(node, &what, &errors);
        return None;
    }
    let checked = checked?;
    if let Some(data_type) = checked.data_type()
        && !matches!(data_type, DataType::Timestamp(_))
    {
        section
            .report
            .at(node.span, format!("{what} is an expression of type {data_type}"))
            .expected("a field, or an expression, of type timestamp(s|ms|us|ns)")
            .hint(format!("make a timestamp of it, {EXAMPLE}"))
            .report();
        return None;
    }
    Some(SourceTime::Computed(Arc::new(TimeExpression { text: text.to_owned(), bound: checked.bound()? })))
}

struct TimeExpression {
    text: String,
    bound: Bound,
}

impl ComputeTime for TimeExpression {
    fn text(&self) -> &str {
        &self.text
    }

    fn times(&self, records: &RecordBatch) -> ArrayRef {
        self.bound.values_or_nulls(records).array
    }
}

/// Whether a source is read by event time.
fn check_order(
    context: &Context<'_>,
    section: &Section<'_>,
    has_end: bool,
    time: Option<&SourceTime>,
) -> bool {
    let order = section.choice("order", keys::ORDER);
    let has_time = matches!(time, Some(SourceTime::Field(_) | SourceTime::Computed(_)));
    match order.as_deref() {
        Some("time") if time.is_some() && !(has_end && has_time) => {
            let (message, hint) = if has_end {
                (
                    format!("{} is to be read by time, and has no event time", section.what),
                    "`time: field` says where it is",
                )
            } else {
                (
                    format!("{} is to be read by time, and cannot be", section.what),
                    "files that are read once can; captures, and what comes as it happens, are read as they come",
                )
            };
            section.report.at(section.key_span("order"), message).hint(hint).report();
            false
        }
        Some(order) => order == "time",
        None => !context.reads_as_it_comes && has_end && has_time,
    }
}

/// Finds the operator that a source's `reply` names.
pub(super) fn check_replies(
    context: &Context<'_>,
    sources: &mut [CheckedSource],
    operators: &[CheckedOperator],
    named: &Named<'_>,
) {
    for (index, source) in sources.iter_mut().enumerate() {
        let Some((name, span)) = &source.reply_name else { continue };
        match operators.iter().position(|operator| *operator.name == **name) {
            Some(place) if operator::below(NodeRef::Source(index), operators).contains(&place) => {
                source.reply = Some(Endpoint { node: NodeRef::Operator(place), output: 0 });
            }
            Some(_) => context
                .report
                .at(*span, format!("operator {name:?} does not read source {:?}", source.name))
                .report(),
            None => context
                .report
                .at(*span, format!("\"reply\" of source {:?} names no operator: {name:?}", source.name))
                .expected(one_of(named.operators.iter().map(|(name, ..)| name.as_str())))
                .did_you_mean(name, named.operators.iter().map(|(name, ..)| name.as_str()))
                .report(),
        }
    }
}
