//! The JSON Schema agrees with the checks.

use serde_json::{Value, json};

use crate::operator::Operators;

use super::super::JobFile;
use super::{EXAMPLE, plugins};

fn schema() -> Value {
    super::super::json_schema(&plugins::registry(), &Operators::builtin())
}

/// As much of JSON Schema as ours uses. `None` where the value fits.
fn validate(root: &Value, schema: &Value, value: &Value, path: &str) -> Option<String> {
    let no = |why: &str| Some(format!("{path}: {why}"));
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/$defs/").expect("references go to $defs");
        assert!(root["$defs"].get(name).is_some(), "{reference} is not there");
        return validate(root, &root["$defs"][name], value, path);
    }
    for (keyword, bound) in [("anyOf", usize::MAX), ("oneOf", 1)] {
        if let Some(options) = schema[keyword].as_array() {
            let fits = options.iter().filter(|option| validate(root, option, value, path).is_none()).count();
            if fits == 0 || fits > bound {
                return no(&format!("{fits} of {keyword} fit"));
            }
        }
    }
    if let Some(constant) = schema.get("const")
        && constant != value
    {
        return no("another constant");
    }
    if let Some(options) = schema["enum"].as_array()
        && !options.contains(value)
    {
        return no("none of the choices");
    }
    if let Some(kind) = schema.get("type") {
        let kinds: Vec<&str> = match kind {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let fits = kinds.iter().any(|kind| match *kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            other => panic!("the schema uses type {other}"),
        });
        if !fits {
            return no(&format!("not of type {kinds:?}"));
        }
    }
    if let Some(minimum) = schema["minimum"].as_i64()
        && value.as_i64().is_some_and(|number| number < minimum)
    {
        return no("too small");
    }
    if let Some(items) = value.as_array()
        && let Some(each) = schema.get("items")
    {
        for (index, item) in items.iter().enumerate() {
            if let Some(why) = validate(root, each, item, &format!("{path}.{index}")) {
                return Some(why);
            }
        }
    }
    let entries = value.as_object()?;
    for required in schema["required"].as_array().into_iter().flatten() {
        if !entries.contains_key(required.as_str().unwrap_or_default()) {
            return no(&format!("{required} is missing"));
        }
    }
    for (key, value) in entries {
        let path = format!("{path}.{key}");
        let rule = match (schema["properties"].get(key), schema.get("additionalProperties")) {
            (Some(rule), _) => rule,
            (None, Some(Value::Bool(false))) => return Some(format!("{path}: no such key")),
            (None, Some(rule)) => rule,
            (None, None) => continue,
        };
        if let Some(why) = validate(root, rule, value, &path) {
            return Some(why);
        }
    }
    None
}

fn check(text: &str) -> Option<String> {
    let value = JobFile::parse("job.yaml", text, &[]).unwrap().to_json();
    validate(&schema(), &schema(), &value, "job")
}

#[test]
fn the_example_fits_the_schema() {
    assert_eq!(check(EXAMPLE), None);
    let linked = EXAMPLE
        .replace("input: features", "input: [{ from: features, partition: key(card), buffer: 64KiB }]");
    assert_eq!(check(&linked), None);
    for bound in ["none", "1h"] {
        assert_eq!(check(&EXAMPLE.replacen("lateness: 5s", &format!("max_ahead: {bound}"), 1)), None);
    }
}

#[test]
fn what_the_checks_refuse_the_schema_refuses() {
    for (old, new) in [
        ("lateness: 5s", "latness: 5s"),
        ("version: 1 ", "version: x "),
        ("type: metrics", "type: metric"),
        ("lateness: 5s", "max_ahead: 5"),
        ("format: csv", "format: xml"),
        ("name: payments", "nmae: payments"),
    ] {
        assert!(check(&EXAMPLE.replacen(old, new, 1)).is_some(), "{new}");
    }
}

#[test]
fn every_key_has_a_description() {
    let schema = schema();
    let keys = schema["$defs"]["source"]["oneOf"][0]["properties"].as_object().unwrap();
    assert!(keys.values().all(|key| key["description"].is_string()));
    assert_eq!(
        schema["properties"]["version"]["description"],
        json!("version of the job file language (default: 1)")
    );
}

#[test]
fn every_type_that_is_read_is_in_the_pattern() {
    let schema = schema();
    let pattern = schema["$defs"]["type"]["pattern"].as_str().unwrap();
    for name in ["bool", "int64", "uint64", "float64", "string", "bytes", "ip", "ipv4_int"] {
        assert!(
            pattern.contains(&format!("({name}|"))
                || pattern.contains(&format!("|{name}|"))
                || pattern.contains(&format!("|{name})")),
            "{name}"
        );
    }
}
