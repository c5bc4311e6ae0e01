//! Queries: `SELECT sum(amount) AS spent FROM payments WHERE … GROUP BY card OVER SLIDING 1 HOUR`.
//!
//! ```text
//! query  = SELECT output [, output]… FROM stream [WHERE condition] [GROUP BY field [, field]…]
//!          OVER window [DELAYED BY span]
//! output = expression over aggregates [[AS] alias]
//! aggregate = function(…) [FILTER (WHERE condition)]
//! window = SLIDING span | TUMBLING span | INFINITE | ROWS n
//! span   = 1 HOUR | 90 SECONDS | 1h | '1h'          (MICROSECOND to WEEK, us ms s m h d w)
//! ```
//!
//! `count(DISTINCT a, b)` counts different pairs; those with a null are ignored.
//!
//! Keywords and function names are free in case, names of fields, streams and aliases are not.
//! An output without alias is named after its function and the names in its argument: `sum_amount`, `count`; an
//! expression after all its names and numbers.
//! Expressions are those of `thalweg-expr`.
//! `sum(x) FILTER (WHERE c)` is `sum(CASE WHEN c THEN x END)`, `count(*) FILTER (WHERE c)` is
//! `count(CASE WHEN c THEN TRUE END)`: aggregates ignore nulls. So a window holds the same records with and without it.
//!
//! Parsing knows no schema; [`Query::bind`] checks fields and types. All errors point into the query's text.
//!
//! A text that may be wrong goes through [`Draft`], which goes on after a mistake and reports all that do not follow
//! from one another. Syntax without a clear meaning ends its clause; where the next clause is not to be
//! found then, the text.

mod aggregate;
mod bind;
mod clauses;
mod draft;
mod output;
mod span;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::ops::Range;

use thalweg_expr::{Expr, SqlErrors};
use thalweg_types::{Micros, format_duration};

use crate::agg::Function;

pub(crate) use bind::schema_of;
pub use bind::{BoundCall, BoundOutput, BoundQuery};
pub use draft::Draft;

/// A parsed query.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// At least one, with different aliases.
    pub outputs: Vec<Output>,
    pub stream: String,
    pub filter: Option<Expr>,
    /// Fields and expressions over them; empty for one group of all records.
    pub group_by: Vec<Expr>,
    pub window: Window,
    /// 0 where there is no DELAYED BY.
    pub delay: Micros,
    /// As it was written.
    pub text: String,
}

/// One column of the answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    pub alias: String,
    /// At least one; exactly one where there is no `value`.
    pub calls: Vec<Call>,
    /// What is made of the aggregates, where it is not the one itself.
    pub value: Option<Expr>,
    /// The output and its alias in the text.
    pub span: Range<usize>,
}

/// An aggregate and its argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub function: Function,
    /// `None` for `count(*)` alone, without FILTER.
    pub arg: Option<Expr>,
}

/// Canonical text, without the alias.
impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.value, self.calls.as_slice()) {
            (Some(value), _) => value.fmt(f),
            (None, calls) => calls
                .iter()
                .try_for_each(|call| f.write_str(&aggregate::call(call.function, call.arg.as_ref()))),
        }
    }
}

/// Which records a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// Width above 0.
    Sliding(Micros),
    /// Width above 0.
    Tumbling(Micros),
    Infinite,
    /// At least 1.
    Rows(u64),
}

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    /// On text that is not a query, with the places, the expectations and hints.
    pub fn parse(text: &str) -> Result<Self, SqlErrors> {
        Draft::read(text).finish()
    }

    /// Canonical text: queries of equal text have equal state over equal streams.
    ///
    /// Blanks, case of keywords, spare parentheses, synonyms and units do not show, nor do aliases: an output may be
    /// renamed without losing the contents of its window.
    pub fn fingerprint(&self) -> String {
        let mut out = String::from("SELECT ");
        for (index, output) in self.outputs.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(out, "{separator}{output}").expect(NEVER_FAILS);
        }
        write!(out, " FROM {}", quoted(&self.stream)).expect(NEVER_FAILS);
        if let Some(filter) = &self.filter {
            write!(out, " WHERE {filter}").expect(NEVER_FAILS);
        }
        for (index, key) in self.group_by.iter().enumerate() {
            let separator = if index == 0 { " GROUP BY " } else { ", " };
            write!(out, "{separator}{key}").expect(NEVER_FAILS);
        }
        write!(out, " OVER {}", self.window).expect(NEVER_FAILS);
        if self.delay != 0 {
            write!(out, " DELAYED BY {}", format_duration(self.delay)).expect(NEVER_FAILS);
        }
        out
    }
}

/// A name as SQL writes it when it may be anything.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

const NEVER_FAILS: &str = "writing to a string cannot fail";

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Window::Sliding(width) => write!(f, "SLIDING {}", format_duration(*width)),
            Window::Tumbling(width) => write!(f, "TUMBLING {}", format_duration(*width)),
            Window::Infinite => f.write_str("INFINITE"),
            Window::Rows(count) => write!(f, "ROWS {count}"),
        }
    }
}
