//! A query as the engine takes it: bound to the columns of a stage.

use thalweg_expr::{Bound, SqlError};
use thalweg_types::{DataType, Field, Micros, Schema, TimeUnit};

use crate::agg::{Function, output_type};
use crate::query::{Query, Window};

/// How far behind its head a window's tail cursor is, where it has one.
pub(crate) fn tail(window: Window) -> Option<Micros> {
    if let Window::Sliding(span) = window { Some(span) } else { None }
}

/// Every record at or below this time is outside the window for good, at a head of `head`.
pub(crate) fn dead_below(window: Window, head: Micros) -> Micros {
    match window {
        Window::Sliding(span) => head.saturating_sub(span),
        Window::Tumbling(span) => head.div_euclid(span).saturating_mul(span).saturating_sub(1),
        Window::Infinite | Window::Rows(_) => Micros::MIN,
    }
}

/// One aggregate column of a query.
#[derive(Clone)]
pub struct PlannedOutput {
    pub alias: String,
    pub function: Function,
    /// Bound to the stage's columns.
    pub arg: Option<Bound>,
    pub data_type: DataType,
}

/// A query, bound to the columns of its stage.
#[derive(Clone)]
pub struct PlannedQuery {
    pub name: String,
    /// [`Query::fingerprint`].
    pub fingerprint: String,
    /// After FROM.
    pub stream: String,
    pub outputs: Vec<PlannedOutput>,
    pub filter: Option<Bound>,
    /// Columns of the stage.
    pub group_by: Vec<usize>,
    pub window: Window,
    pub delay: Micros,
}

impl PlannedQuery {
    /// Binds a query to a stage's columns.
    ///
    /// # Errors
    /// Where a field does not exist or has a type that its use does not take.
    pub fn bind(name: &str, query: &Query, schema: &Schema) -> Result<Self, SqlError> {
        let bound = query.bind(schema)?;
        let outputs = bound
            .outputs
            .into_iter()
            .zip(&query.outputs)
            .map(|(output, written)| {
                let function = output.function;
                let data_type = output_type(function, output.arg.as_ref().map(Bound::data_type))
                    .map_err(|error| SqlError::new(error.message()).at(written.span.clone()))?;
                Ok(PlannedOutput { alias: output.alias, function, arg: output.arg, data_type })
            })
            .collect::<Result<_, SqlError>>()?;
        Ok(Self {
            name: name.to_owned(),
            fingerprint: query.fingerprint(),
            stream: query.stream.clone(),
            outputs,
            filter: bound.filter,
            group_by: bound.group_by,
            window: query.window,
            delay: query.delay,
        })
    }

    /// What is behind a query's outputs in an answer, where it is in the process of filling: the time from which all of
    /// them count, and which of them do not yet, where that are not all.
    pub fn since_fields() -> [Field; 2] {
        [
            Field::new("since", DataType::Timestamp(TimeUnit::Micro)).omit_null(),
            Field::new("since_of", DataType::List(Box::new(DataType::String))).omit_null(),
        ]
    }

    /// The query's object in an answer, of a query that has seen all records.
    pub fn data_type(&self) -> DataType {
        DataType::Struct(
            self.outputs
                .iter()
                .map(|output| Field::new(&output.alias, output.data_type.clone()).nullable())
                .collect(),
        )
    }
}
