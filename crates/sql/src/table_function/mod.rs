//! Table functions: `top(…)`, and the views over a window of time.
//!
//! What users write as text is parsed and planned like the rest of their query, piece by piece; nothing is pasted into
//! SQL.

mod top;
mod window;

use std::sync::Arc;

use arrow_cast::parse::parse_interval_month_day_nano;
use datafusion::catalog::{TableFunctionImpl, TableProvider};
use datafusion::common::{DataFusionError, ScalarValue, plan_datafusion_err};
use datafusion::logical_expr::Expr;
use datafusion::sql::parser::DFParserBuilder;
use thalweg_types::parse_duration;

use crate::fault::ours;
use crate::names::Names;
use crate::view::VIEWS;

/// Their names.
pub(crate) fn names() -> impl Iterator<Item = String> {
    ["top"].into_iter().chain(VIEWS.iter().map(|view| view.name)).map(str::to_owned)
}

/// All table functions of a query.
pub(crate) fn all(names: &Arc<Names>) -> Vec<(&'static str, Arc<dyn TableFunctionImpl>)> {
    let mut all: Vec<(&'static str, Arc<dyn TableFunctionImpl>)> =
        vec![("top", Arc::new(top::Top(Arc::clone(names))))];
    for view in &VIEWS {
        all.push((view.name, Arc::new(window::Window { names: Arc::clone(names), view })));
    }
    all
}

/// A text that was given, or the error with the expected one.
fn text<'a>(args: &'a [Expr], place: usize, expected: &str) -> Result<&'a str, DataFusionError> {
    let given = args.get(place);
    let text = match given {
        Some(Expr::Literal(value, _)) => value.try_as_str().flatten(),
        _ => None,
    };
    text.ok_or_else(|| plan_datafusion_err!("argument {} of {expected} has to be a text", place + 1))
}

/// A number of rows that was given.
fn rows(args: &[Expr], place: usize, expected: &str) -> Result<usize, DataFusionError> {
    let given = match args.get(place) {
        Some(Expr::Literal(ScalarValue::Int64(Some(rows)), _)) => usize::try_from(*rows).ok(),
        Some(Expr::Literal(ScalarValue::UInt64(Some(rows)), _)) => usize::try_from(*rows).ok(),
        _ => None,
    };
    let given = given.filter(|rows| (1..=MOST_ROWS).contains(rows));
    given.ok_or_else(|| {
        plan_datafusion_err!("argument {} of {expected} has to be a number from 1 to {MOST_ROWS}", place + 1)
    })
}

/// Largest number of rows that may be asked for by number.
const MOST_ROWS: usize = 1_000_000;

/// A span that was given as `24h`, `24 hours` or `INTERVAL '24 hours'`; longer than nothing.
fn span(args: &[Expr], place: usize, expected: &str) -> Result<Expr, DataFusionError> {
    let value = match args.get(place) {
        Some(Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), _)) => *value,
        _ => {
            let text = text(args, place, expected)?;
            let nanoseconds = parse_duration(text).ok().and_then(|micros| micros.checked_mul(1_000));
            match nanoseconds {
                Some(nanoseconds) => arrow_array::types::IntervalMonthDayNano::new(0, 0, nanoseconds),
                None => parse_interval_month_day_nano(text).map_err(|_| {
                    plan_datafusion_err!(
                        "argument {} of {expected}: expected a span such as '24 hours', got {text:?}",
                        place + 1
                    )
                })?,
            }
        }
    };
    let parts = [i64::from(value.months), i64::from(value.days), value.nanoseconds];
    if parts.iter().any(|part| *part < 0) || parts.iter().all(|part| *part == 0) {
        return Err(plan_datafusion_err!(
            "argument {} of {expected} has to be longer than nothing",
            place + 1
        ));
    }
    Ok(Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(value)), None))
}

/// A table that was given by its name, as SQL writes it.
fn table(names: &Names, text: &str) -> Result<(String, Arc<dyn TableProvider>), DataFusionError> {
    let parts = object_name(text)?;
    let found = match parts.as_slice() {
        [name] => names.table(None, name).map(|table| (name.clone(), table)),
        [job, name] => names.table(Some(job), name).map(|table| (name.clone(), table)),
        _ => return Err(plan_datafusion_err!("expected the name of a table, got {text:?}")),
    };
    found.map_err(ours)
}

/// The parts of a name: in lower case but for those in quotes.
fn object_name(text: &str) -> Result<Vec<String>, DataFusionError> {
    let mut parser = DFParserBuilder::new(text).build()?;
    let name = parser.parser.parse_object_name(false)?;
    if parser.parser.peek_token().token != datafusion::logical_expr::sqlparser::tokenizer::Token::EOF {
        return Err(plan_datafusion_err!("expected the name of a table, got {text:?}"));
    }
    let parts = name.0.iter().map(|part| {
        let ident = part.as_ident()?;
        Some(match ident.quote_style {
            Some(_) => ident.value.clone(),
            None => ident.value.to_lowercase(),
        })
    });
    parts
        .collect::<Option<_>>()
        .ok_or_else(|| plan_datafusion_err!("expected the name of a table, got {text:?}"))
}
