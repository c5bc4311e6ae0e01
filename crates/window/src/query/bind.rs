//! A query meets the fields of its stream.

use std::ops::Range;

use thalweg_expr::{Bound, SqlError, nearest};
use thalweg_types::{DataType, Schema};

use super::{AggregateName, Query};

/// A query whose names and types have been checked.
#[derive(Clone, Debug)]
pub struct BoundQuery {
    /// As many as the query has, in its order.
    pub outputs: Vec<BoundOutput>,
    /// Of type bool.
    pub filter: Option<Bound>,
    /// Column numbers, in the order of GROUP BY.
    pub group_by: Vec<usize>,
}

/// One aggregate over a bound argument.
#[derive(Clone, Debug)]
pub struct BoundOutput {
    pub alias: String,
    pub function: AggregateName,
    pub arg: Option<Bound>,
}

impl Query {
    /// Checks the query against the fields of its stream.
    ///
    /// # Errors
    /// On fields that do not exist, on a filter that is no condition and on arguments of the wrong type.
    pub fn bind(&self, schema: &Schema) -> Result<BoundQuery, SqlError> {
        let outputs = self
            .outputs
            .iter()
            .map(|output| {
                let arg = match &output.arg {
                    None => None,
                    Some(expr) => {
                        let arg = expr.bind_stream(schema, Some(&self.stream))?;
                        check_kind(output.function, &arg, expr.span())?;
                        Some(arg)
                    }
                };
                Ok(BoundOutput { alias: output.alias.clone(), function: output.function, arg })
            })
            .collect::<Result<Vec<_>, SqlError>>()?;
        let filter = match &self.filter {
            None => None,
            Some(expr) => {
                let filter = expr.bind_stream(schema, Some(&self.stream))?;
                if *filter.data_type() != DataType::Bool {
                    let error = SqlError::new(format!("WHERE takes a condition, not {}", filter.data_type()))
                        .at(expr.span())
                        .expected("bool");
                    let is_number = filter.data_type().is_numeric();
                    return Err(if is_number { error.hint("compare the number: x <> 0") } else { error });
                }
                Some(filter)
            }
        };
        let group_by = self
            .group_by
            .iter()
            .map(|(name, span)| group_field(schema, name, span.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(BoundQuery { outputs, filter, group_by })
    }
}

fn check_kind(function: AggregateName, arg: &Bound, span: Range<usize>) -> Result<(), SqlError> {
    let data_type = arg.data_type();
    if function.takes(data_type) {
        return Ok(());
    }
    let name = function.name();
    let error = SqlError::new(format!("{name} cannot take {data_type}")).at(span);
    Err(match data_type {
        DataType::List(_) | DataType::Struct(_) => {
            error.hint(format!("name a member: {name}(card_1h.spent)"))
        }
        DataType::Timestamp(_) => error
            .expected("a number")
            .hint(format!("write {name}(EPOCH_MS(ts)); min, max and last take timestamps")),
        DataType::String => error.expected("a number").hint("CAST(x AS float64) reads a number from a text"),
        DataType::Bool => {
            error.expected("a number").hint(format!("{name}(CAST(x AS int64)) takes true as 1"))
        }
        _ => error.expected("a number"),
    })
}

fn group_field(schema: &Schema, name: &str, span: Range<usize>) -> Result<usize, SqlError> {
    let Some((index, field)) = schema.field(name) else {
        let error = SqlError::new(format!("there is no field {name:?} to group by")).at(span);
        return Err(match nearest(name, schema.names()) {
            Some(near) => error.hint(format!("did you mean {near:?}?")),
            None => {
                let names: Vec<&str> = schema.names().collect();
                error.hint(format!("the fields are {}", names.join(", ")))
            }
        });
    };
    if matches!(field.data_type, DataType::List(_) | DataType::Struct(_)) {
        return Err(
            SqlError::new(format!("records cannot be grouped by {name:?}, a {}", field.data_type)).at(span)
        );
    }
    Ok(index)
}
