//! A query meets the fields of its stream.

use std::ops::Range;

use thalweg_expr::{Bound, Checked, Expr, Mistakes, Qualifier, SqlError, SqlErrors};
use thalweg_types::{DataType, Field, Schema};

use super::draft::DraftCall;
use super::{Call, Output, Query};
use crate::agg::{Function, output_type};

/// A query whose names and types have been checked.
#[derive(Clone, Debug)]
pub struct BoundQuery {
    /// As many as the query has, in its order.
    pub outputs: Vec<BoundOutput>,
    /// Of type bool.
    pub filter: Option<Bound>,
    /// In the order of GROUP BY, each once.
    pub group_by: Vec<Bound>,
}

/// An output whose names and types have been checked.
#[derive(Clone, Debug)]
pub struct BoundOutput {
    pub alias: String,
    /// As many as the output has, in its order.
    pub calls: Vec<BoundCall>,
    /// Over the values of the calls, where the output is not the value of one.
    pub value: Option<Bound>,
    pub data_type: DataType,
}

/// One aggregate over a bound argument.
#[derive(Clone, Debug)]
pub struct BoundCall {
    pub function: Function,
    pub arg: Option<Bound>,
    pub data_type: DataType,
}

/// Types that replace unknown ones, after mistakes that have been reported.
const TOLD: &str = "mistakes have been told";

impl Query {
    /// Checks the query against the fields of its stream.
    ///
    /// # Errors
    /// On fields that do not exist, on a filter that is no condition and on arguments of the wrong type: all of them.
    pub fn bind(&self, schema: &Schema) -> Result<BoundQuery, SqlErrors> {
        let mut mistakes = Mistakes::new();
        let qualifier = Qualifier::Stream(&self.stream);
        let mut binding = Binding { schema, qualifier, mistakes: &mut mistakes };
        let outputs: Vec<_> = self.outputs.iter().map(|output| binding.output(output)).collect();
        let filter = self.filter.as_ref().map(|filter| binding.filter(filter)).and_then(Checked::bound);
        let group_by: Vec<_> = self.group_by.iter().map(|key| binding.group_key(key)).collect();
        mistakes.finish()?;
        let mut keys: Vec<Bound> = Vec::new();
        for key in group_by {
            let key = key.expect(TOLD);
            // Another spelling of a key that is there already: `a > b`, `b < a`.
            if !keys.iter().any(|known| known.fingerprint() == key.fingerprint()) {
                keys.push(key);
            }
        }
        let outputs = outputs.into_iter().map(|output| output.expect(TOLD)).collect();
        Ok(BoundQuery { outputs, filter, group_by: keys })
    }
}

/// Checks the parts of a query against a schema.
pub(super) struct Binding<'a> {
    pub(super) schema: &'a Schema,
    pub(super) qualifier: Qualifier<'a>,
    pub(super) mistakes: &'a mut Mistakes,
}

impl Binding<'_> {
    /// An argument of an aggregate; of one that is not known, any value will do.
    pub(super) fn arg(&mut self, function: Option<Function>, arg: &Expr) -> Checked {
        let checked = arg.check(self.schema, self.qualifier, self.mistakes);
        if let (Some(function), Some(data_type)) = (function, checked.data_type())
            && let Err(error) = check_kind(function, data_type, arg.span())
        {
            self.mistakes.push(error);
        }
        checked
    }

    /// What is wrong with an aggregate; the type of its value, unless mistakes leave it open.
    pub(super) fn draft(&mut self, call: &DraftCall) -> Option<DataType> {
        let args: Vec<Checked> = call.args.iter().map(|arg| self.arg(call.function, arg)).collect();
        if let Some(filter) = &call.filter {
            self.filter(filter);
        }
        let arg = match args.first() {
            Some(arg) => Some(arg.data_type()?),
            None => None,
        };
        output_type(call.function?, arg).ok()
    }

    /// An output; `None` where there is a mistake in it.
    fn output(&mut self, output: &Output) -> Option<BoundOutput> {
        let calls: Vec<Option<BoundCall>> = output.calls.iter().map(|call| self.call(call)).collect();
        let calls: Vec<BoundCall> = calls.into_iter().collect::<Option<_>>()?;
        let types: Vec<DataType> = calls.iter().map(|call| call.data_type.clone()).collect();
        let value = match &output.value {
            Some(value) => Some(self.value(value, &types)?),
            None => None,
        };
        let data_type = value.as_ref().map_or(&types[0], Bound::data_type).clone();
        Some(BoundOutput { alias: output.alias.clone(), calls, value, data_type })
    }

    fn call(&mut self, call: &Call) -> Option<BoundCall> {
        let arg = match &call.arg {
            Some(arg) => Some(self.arg(Some(call.function), arg).bound()?),
            None => None,
        };
        let data_type = output_type(call.function, arg.as_ref().map(Bound::data_type)).ok()?;
        Some(BoundCall { function: call.function, arg, data_type })
    }

    /// What is made of aggregates that give these types; `None` where there is a mistake in it.
    pub(super) fn value(&mut self, value: &Expr, types: &[DataType]) -> Option<Bound> {
        let checked = value.check(&schema_of(types), Qualifier::None, self.mistakes).bound()?;
        // How long texts may become is known of records, not of values in windows.
        if checked.works_on_texts() {
            let error =
                SqlError::new("an output made of aggregates compares texts, and does no more with them")
                    .at(value.span());
            self.mistakes.push(error.hint(
                "functions of texts are for the arguments, as in last(lower(x)), or for an operator after",
            ));
            return None;
        }
        Some(checked)
    }

    pub(super) fn filter(&mut self, filter: &Expr) -> Checked {
        let checked = filter.check(self.schema, self.qualifier, self.mistakes);
        if let Some(data_type) = checked.data_type()
            && *data_type != DataType::Bool
        {
            let error = SqlError::new(format!("WHERE takes a condition, not {data_type}"))
                .at(filter.span())
                .expected("bool");
            let is_number = data_type.is_numeric();
            self.mistakes.push(if is_number { error.hint("compare the number: x <> 0") } else { error });
        }
        checked
    }

    /// A field or an expression to group by; `None` where there is a mistake in it, or its stream is not known.
    pub(super) fn group_key(&mut self, key: &Expr) -> Option<Bound> {
        let bound = key.check(self.schema, self.qualifier, self.mistakes).bound()?;
        let data_type = bound.data_type();
        let error = if matches!(data_type, DataType::List(_) | DataType::Struct(_)) {
            SqlError::new(format!("records cannot be grouped by a {data_type}"))
        } else if bound.fields().is_empty() {
            SqlError::new("all records have one value of this")
                .expected("a field or an expression over fields")
        } else {
            return Some(bound);
        };
        self.mistakes.push(error.at(key.span()));
        None
    }
}

/// The values of aggregates as fields, by their place.
pub(crate) fn schema_of(types: &[DataType]) -> Schema {
    let field =
        |(place, data_type): (usize, &DataType)| Field::new(place.to_string(), data_type.clone()).nullable();
    Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>())
}

fn check_kind(function: Function, data_type: &DataType, span: Range<usize>) -> Result<(), SqlError> {
    if output_type(function, Some(data_type)).is_ok() {
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
