//! From a written name to a column.

use std::ops::Range;

use thalweg_types::{DataType, Field, Schema};

use super::Qualifier;
use crate::SqlError;
use crate::bound::{Op, Typed};
use crate::error::nearest;

/// The column that `path` names; `None` where that depends on which stream was meant.
///
/// A field whose whole name is the dotted path wins (an answer read back from CSV has such names), then a member
/// of a field, then the same without the stream's name in front.
pub(super) fn field(
    schema: &Schema,
    qualifier: Qualifier<'_>,
    path: &[String],
    span: &Range<usize>,
) -> Result<Option<Typed>, SqlError> {
    if let Some(typed) = lookup(schema, path) {
        return Ok(Some(typed));
    }
    let stream = match (qualifier, path) {
        (Qualifier::Any, [first, rest @ ..]) if !rest.is_empty() && schema.field(first).is_none() => {
            return Ok(lookup(schema, rest));
        }
        (Qualifier::None | Qualifier::Any, _) => None,
        (Qualifier::Stream(stream), _) => Some(stream),
    };
    if let (Some(stream), Some((first, rest))) = (stream, path.split_first())
        && first == stream
        && !rest.is_empty()
        && let Some(typed) = lookup(schema, rest)
    {
        return Ok(Some(typed));
    }
    Err(missing(schema, stream, path).at(span.clone()))
}

fn lookup(schema: &Schema, path: &[String]) -> Option<Typed> {
    let dotted = path.join(".");
    if let Some((index, field)) = schema.field(&dotted) {
        return Some(column(index, field, Vec::new(), dotted, field.nullable));
    }
    let (first, members) = path.split_first()?;
    let (index, mut field) = schema.field(first)?;
    let mut nullable = field.nullable;
    let mut places = Vec::with_capacity(members.len());
    for member in members {
        let DataType::Struct(fields) = &field.data_type else { return None };
        let place = fields.iter().position(|field| field.name == *member)?;
        field = &fields[place];
        nullable |= field.nullable;
        places.push(place);
    }
    Some(column(index, field, places, dotted, nullable))
}

fn column(index: usize, field: &Field, path: Vec<usize>, name: String, nullable: bool) -> Typed {
    Typed { op: Op::Column { index, path, name }, data_type: field.data_type.clone(), nullable }
}

fn missing(schema: &Schema, stream: Option<&str>, path: &[String]) -> SqlError {
    let own: &[String] = match (stream, path) {
        (Some(stream), [first, rest @ ..]) if first == stream && !rest.is_empty() => rest,
        _ => path,
    };
    if let [first, member, ..] = own
        && let Some((_, field)) = schema.field(first)
    {
        return match &field.data_type {
            DataType::Struct(fields) => {
                let error = SqlError::new(format!("{first:?} has no member {member:?}"));
                let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
                with_names(error, member, &names, "its members are")
            }
            other => SqlError::new(format!("{first:?} is {other} and has no members")),
        };
    }
    let written = own.join(".");
    let names: Vec<&str> = schema.names().collect();
    let error = SqlError::new(format!("there is no field {written:?}"));
    if let [first, rest @ ..] = path
        && !rest.is_empty()
        && lookup(schema, rest).is_some()
    {
        let rest = rest.join(".");
        return match stream {
            Some(stream) => error.hint(format!("the stream is {stream:?}; write {stream}.{rest} or {rest}")),
            None => {
                error.hint(format!("{first:?} is neither a field nor the stream that is read; write {rest}"))
            }
        };
    }
    with_names(error, &written, &names, "the fields are")
}

fn with_names(error: SqlError, written: &str, names: &[&str], introduction: &str) -> SqlError {
    match nearest(written, names.iter().copied()) {
        Some(near) if near.eq_ignore_ascii_case(written) => {
            error.hint(format!("did you mean {near:?}? the case of names counts"))
        }
        Some(near) => error.hint(format!("did you mean {near:?}?")),
        None if names.is_empty() || names.len() > 20 => error,
        None => error.hint(format!("{introduction} {}", names.join(", "))),
    }
}
