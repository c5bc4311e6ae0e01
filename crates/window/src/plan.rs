//! A query as the engine takes it: bound to the columns of a stage.

use std::ops::Range;

use thalweg_expr::{Bound, SqlError};
use thalweg_types::{DataType, Field, Micros, Schema, TimeUnit};

use crate::agg::Function;
use crate::query::{BoundCall, BoundOutput, Query, Window};

/// How much earlier than its head a window's tail cursor is, if it has one.
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

/// One column of a query's answers.
#[derive(Clone)]
pub struct PlannedOutput {
    pub alias: String,
    /// Which of the query's calls it is made of.
    pub calls: Range<usize>,
    /// Over the values of these; `None` if it is the value of the one.
    pub value: Option<Bound>,
    pub data_type: DataType,
}

/// One aggregate of a query.
#[derive(Clone)]
pub struct PlannedCall {
    pub function: Function,
    /// Bound to the stage's columns.
    pub arg: Option<Bound>,
    pub data_type: DataType,
}

/// Aggregates of a query between whose values that of another stays: a quantile is within 1 % of a value in the window,
/// and so may be beyond the least or the greatest of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clamp {
    pub of: usize,
    /// Of the quantile: that of 0 is the least value, that of 1 the greatest.
    pub rank: f64,
    pub least: usize,
    pub greatest: usize,
}

/// A query, bound to the columns of its stage.
#[derive(Clone)]
pub struct PlannedQuery {
    pub name: String,
    /// [`Query::fingerprint`].
    pub fingerprint: String,
    /// After FROM.
    pub stream: String,
    /// Those of the first output, of the second one, …, then those that `clamps` need.
    pub calls: Vec<PlannedCall>,
    /// One per quantile.
    pub clamps: Vec<Clamp>,
    pub outputs: Vec<PlannedOutput>,
    pub filter: Option<Bound>,
    /// In the order of GROUP BY, bound to the stage's columns.
    pub group_by: Vec<Bound>,
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
        let (mut calls, mut outputs) = (Vec::new(), Vec::new());
        for BoundOutput { alias, calls: of_output, value, data_type } in bound.outputs {
            let start = calls.len();
            calls.extend(of_output.into_iter().map(|BoundCall { function, arg, data_type }| PlannedCall {
                function,
                arg,
                data_type,
            }));
            outputs.push(PlannedOutput { alias, calls: start..calls.len(), value, data_type });
        }
        let mut clamps = Vec::new();
        for of in 0..calls.len() {
            let PlannedCall { function: Function::Quantile(rank), arg: Some(arg), .. } = calls[of].clone()
            else {
                continue;
            };
            let data_type = arg.data_type().clone();
            for function in [Function::Min, Function::Max] {
                calls.push(PlannedCall { function, arg: Some(arg.clone()), data_type: data_type.clone() });
            }
            clamps.push(Clamp { of, rank, least: calls.len() - 2, greatest: calls.len() - 1 });
        }
        Ok(Self {
            name: name.to_owned(),
            fingerprint: query.fingerprint(),
            stream: query.stream.clone(),
            calls,
            clamps,
            outputs,
            filter: bound.filter,
            group_by: bound.group_by,
            window: query.window,
            delay: query.delay,
        })
    }

    /// What follows a query's outputs in an answer, where it is in the process of filling: the time from which all of
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
