//! As much of JSON Schema as the document uses; fields that are not described are mistakes, too.

use serde_json::Value;

use crate::client::document;

/// Checks a value against a schema of the document's components.
#[track_caller]
pub(crate) fn check(name: &str, value: &Value) {
    let schema = &document()["components"]["schemas"][name];
    assert!(schema.is_object(), "no schema {name}");
    if let Err(mistake) = fits(schema, value, name) {
        panic!("{mistake}\n{value:#}");
    }
}

fn fits(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/components/schemas/").ok_or(format!("{at}: {reference}"))?;
        return fits(&document()["components"]["schemas"][name], value, &format!("{at}:{name}"));
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let mistakes: Vec<String> =
            choices.iter().filter_map(|choice| fits(choice, value, at).err()).collect();
        return if mistakes.len() < choices.len() { Ok(()) } else { Err(mistakes.join("; ")) };
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let is_kind = |kind: &&str| match *kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("type {other}"),
    };
    if !kinds.iter().any(is_kind) {
        return Err(format!("{at}: {value} is none of {kinds:?}"));
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        return Err(format!("{at}: {value} is none of {choices:?}"));
    }
    if let Some(items) = value.as_array() {
        for (place, item) in items.iter().enumerate() {
            fits(&schema["items"], item, &format!("{at}[{place}]"))?;
        }
    }
    if let (Some(fields), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
        for (name, field) in fields {
            let described = properties.get(name).ok_or(format!("{at}.{name} is not described"))?;
            fits(described, field, &format!("{at}.{name}"))?;
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                return Err(format!("{at}.{name} is missing"));
            }
        }
    }
    Ok(())
}
