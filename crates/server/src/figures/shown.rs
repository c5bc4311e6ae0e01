//! A group of figures as a JSON object, and the schema of that.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use thalweg_flow::figure::{Figure, Figures, Number};

/// A group of figures, as the node sends it.
pub(crate) struct Shown<T>(pub(crate) T);

/// To a thousandth: more digits of a rate are noise.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

impl<T: Figures> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (figure, number) in T::FIGURES.iter().zip(self.0.numbers()) {
            if figure.key.is_empty() {
                continue;
            }
            match number {
                Number::Absent => object.serialize_entry(figure.key, &())?,
                Number::Whole(count) => object.serialize_entry(figure.key, &count)?,
                Number::Real(value) => object.serialize_entry(figure.key, &rounded(value))?,
                Number::Flag(flag) => object.serialize_entry(figure.key, &flag)?,
            }
        }
        object.end()
    }
}

impl<T: Figures> JsonSchema for Shown<T> {
    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let shown = || T::FIGURES.iter().filter(|figure| !figure.key.is_empty());
        let properties: Map<String, Value> =
            shown().map(|figure| (figure.key.to_owned(), schema_of(figure))).collect();
        let required: Vec<&str> = shown().map(|figure| figure.key).collect();
        json_schema!({
            "type": "object",
            "description": T::MEANING.trim(),
            "properties": properties,
            "required": required,
        })
    }
}

fn schema_of(figure: &Figure) -> Value {
    let json = figure.json;
    let (kind, format) = match (json.is_flag, json.is_whole) {
        (true, _) => ("boolean", None),
        (_, true) => ("integer", Some("uint64")),
        _ => ("number", Some("double")),
    };
    let mut schema = match json.may_be_null {
        true => json!({ "type": [kind, "null"] }),
        false => json!({ "type": kind }),
    };
    if let Some(format) = format {
        schema["format"] = format.into();
    }
    if json.is_whole {
        schema["minimum"] = 0.into();
    }
    schema["description"] = figure.meaning().into();
    schema
}
