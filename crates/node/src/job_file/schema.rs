//! The JSON Schema of job files, made from the same tables as the checks.

use serde_json::{Map, Value, json};
use thalweg_connect::{OptionKind, OptionSpec, Registry};

use crate::operator::Operators;

use super::keys::{self, KeySpec, Shape};

/// JSON Schema (draft 2020-12) of the job files that this build takes.
pub fn json_schema(registry: &Registry, operators: &Operators) -> Value {
    let mut schema = section(keys::TOP);
    let Value::Object(map) = &mut schema else { unreachable!("a section is an object") };
    map.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    map.insert("title".to_owned(), json!("Thalweg job file"));
    map.insert("$defs".to_owned(), definitions(registry, operators));
    schema
}

fn definitions(registry: &Registry, operators: &Operators) -> Value {
    let formats: Vec<&OptionSpec> = registry.formats().iter().flat_map(|plugin| plugin.options()).collect();
    let format_names: Vec<&str> = registry.formats().iter().map(|plugin| plugin.name()).collect();
    let mut sources = Vec::new();
    for plugin in registry.sources() {
        let own = plugin.options().iter().collect::<Vec<_>>();
        let formats = if plugin.takes_format() { formats.as_slice() } else { &[] };
        sources.push(plugged(
            plugin.name(),
            plugin.doc(),
            keys::SOURCE,
            &own,
            formats,
            plugin.takes_format(),
        ));
    }
    let mut sinks = Vec::new();
    for plugin in registry.sinks() {
        let own = plugin.options().iter().collect::<Vec<_>>();
        let formats = if plugin.takes_format() { formats.as_slice() } else { &[] };
        sinks.push(plugged(plugin.name(), plugin.doc(), keys::SINK, &own, formats, plugin.takes_format()));
    }
    let kinds: Vec<Value> = operators
        .all()
        .iter()
        .map(|plugin| {
            let specs: Vec<KeySpec> = keys::OPERATOR.iter().chain(plugin.options()).copied().collect();
            typed(plugin.name(), plugin.doc(), &specs)
        })
        .collect();
    json!({
        "name": { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_-]*$" },
        "duration": { "type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(us|ms|s|m|min|h|d|w)\s*$" },
        "size": {
            "anyOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "pattern": r"^\s*[0-9]+\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?\s*$" },
            ]
        },
        "format": { "enum": format_names },
        "type": {
            "type": "string",
            "pattern": r"^\s*(bool|int64|uint64|float64|decimal\(\s*[0-9]+\s*(,\s*[0-9]+\s*)?\)|string|bytes|timestamp\(\s*(s|ms|us|ns)\s*\)|ip|ipv4_int)\s*\??\s*$",
        },
        "expression": { "type": ["string", "number", "boolean"] },
        "reference": { "type": "string", "pattern": r"^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)?$" },
        "input": {
            "anyOf": [
                { "$ref": "#/$defs/one_input" },
                { "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/one_input" } },
            ]
        },
        "one_input": { "anyOf": [{ "$ref": "#/$defs/reference" }, section(keys::INPUT)] },
        "source": { "oneOf": sources },
        "operator": { "oneOf": kinds },
        "sink": { "oneOf": sinks },
    })
}

/// A source or a sink: common keys, its own, and those of formats.
fn plugged(
    name: &str,
    doc: &str,
    common: &[KeySpec],
    own: &[&OptionSpec],
    formats: &[&OptionSpec],
    takes_format: bool,
) -> Value {
    let mut specs: Vec<KeySpec> =
        common.iter().filter(|spec| takes_format || spec.key != "format").copied().collect();
    for option in own {
        specs.retain(|spec| spec.key != option.key);
        specs.push(KeySpec::of_option(option));
    }
    for option in formats {
        if !specs.iter().any(|spec| spec.key == option.key) {
            // Required by one format is not required by all.
            specs.push(KeySpec { required: false, ..KeySpec::of_option(option) });
        }
    }
    typed(name, doc, &specs)
}

/// A section whose `type` is this one.
fn typed(name: &str, doc: &str, specs: &[KeySpec]) -> Value {
    let mut schema = section(specs);
    // YAML's null is the name of a sink.
    let kind = if name == "null" { json!({ "enum": ["null", null] }) } else { json!({ "const": name }) };
    schema["properties"]["type"] = kind;
    schema["properties"]["type"]["description"] = json!(doc);
    schema["description"] = json!(doc);
    schema
}

fn section(specs: &[KeySpec]) -> Value {
    let properties: Map<String, Value> =
        specs.iter().map(|spec| (spec.key.to_owned(), property(spec))).collect();
    let required: Vec<&str> = specs.iter().filter(|spec| spec.required).map(|spec| spec.key).collect();
    let mut schema = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn property(spec: &KeySpec) -> Value {
    let mut schema = shape(spec.shape);
    let mut doc = spec.doc.to_owned();
    if let Some(default) = spec.default {
        doc.push_str(&format!(" (default: {default})"));
    }
    schema["description"] = json!(doc);
    schema
}

fn shape(shape: Shape) -> Value {
    let reference = |name: &str| json!({ "$ref": format!("#/$defs/{name}") });
    let map_of = |values: Value| json!({ "type": "object", "additionalProperties": values });
    let named = |values: Value| {
        json!({
            "type": "object",
            "propertyNames": { "$ref": "#/$defs/name" },
            "additionalProperties": values,
        })
    };
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    match shape {
        Shape::Option(kind) => option(kind),
        Shape::Name | Shape::Type => reference("name"),
        Shape::Format => reference("format"),
        Shape::Fields => {
            let mut fields = map_of(reference("type"));
            fields["minProperties"] = json!(1);
            fields
        }
        Shape::Field => json!({ "type": "string" }),
        Shape::Input => reference("input"),
        Shape::Expression => reference("expression"),
        Shape::Expressions => named(reference("expression")),
        Shape::PartitionBy => json!({
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "anyOf": [{ "type": "string" }, texts] } },
            ]
        }),
        Shape::Keys => named(json!({ "anyOf": [{ "type": "string" }, texts] })),
        Shape::Queries => named(json!({ "type": "string" })),
        Shape::DurationOr(word) => json!({ "anyOf": [{ "const": word }, reference("duration")] }),
        Shape::Pace(words) => json!({
            "anyOf": [
                { "enum": words },
                {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["every"],
                    "properties": {
                        "every": { "anyOf": [
                            { "type": "string", "pattern": r"^\s*([0-9]+\s+)?records?\s*$" },
                            reference("duration"),
                        ] },
                    },
                },
            ]
        }),
        Shape::Shortcuts => named(json!({ "type": "object", "minProperties": 1 })),
        Shape::Section(specs) => section(specs),
        Shape::Sources => named(reference("source")),
        Shape::Operators => named(reference("operator")),
        Shape::Sinks => named(reference("sink")),
    }
}

fn option(kind: OptionKind) -> Value {
    match kind {
        OptionKind::Text | OptionKind::Path | OptionKind::Url => json!({ "type": "string" }),
        OptionKind::Secret => json!({ "type": "string", "pattern": "^(env|file):." }),
        OptionKind::Bool => json!({ "type": "boolean" }),
        OptionKind::Integer { min, max: i64::MAX } => json!({ "type": "integer", "minimum": min }),
        OptionKind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        OptionKind::Number => json!({ "type": "number" }),
        OptionKind::Duration => json!({ "$ref": "#/$defs/duration" }),
        OptionKind::Size => json!({ "$ref": "#/$defs/size" }),
        OptionKind::Choice(choices) => json!({ "enum": choices }),
        OptionKind::TextList | OptionKind::PathList => json!({
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }]
        }),
        OptionKind::TextLists => {
            let list = option(OptionKind::TextList);
            let by_name = json!({ "type": "object", "minProperties": 1, "additionalProperties": list });
            json!({ "anyOf": [list, by_name] })
        }
        OptionKind::Sections(specs) => json!({
            "type": "object",
            "propertyNames": { "$ref": "#/$defs/name" },
            "additionalProperties": section(&specs.iter().map(KeySpec::of_option).collect::<Vec<_>>()),
        }),
    }
}
