//! The aggregate functions as they are written.

use std::ops::Range;

use thalweg_expr::{Expr, SqlError, nearest};

use crate::agg::Function;

/// What a name calls, before its arguments are read.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Called {
    Count,
    Quantile,
    Of(Function),
}

pub(super) const NAMES: &[(&str, Called)] = &[
    ("count", Called::Count),
    ("sum", Called::Of(Function::Sum)),
    ("avg", Called::Of(Function::Avg)),
    ("stddev", Called::Of(Function::StdDev)),
    ("stddev_samp", Called::Of(Function::StdDev)),
    ("stddev_pop", Called::Of(Function::StdDevPop)),
    ("var", Called::Of(Function::Var)),
    ("var_samp", Called::Of(Function::Var)),
    ("variance", Called::Of(Function::Var)),
    ("var_pop", Called::Of(Function::VarPop)),
    ("min", Called::Of(Function::Min)),
    ("max", Called::Of(Function::Max)),
    ("first", Called::Of(Function::First)),
    ("last", Called::Of(Function::Last)),
    ("prev", Called::Of(Function::Prev)),
    ("count_distinct", Called::Of(Function::CountDistinct)),
    ("countdistinct", Called::Of(Function::CountDistinct)),
    ("quantile", Called::Quantile),
];

/// Names of other systems and what they are here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("mean", "avg(x)"),
    ("average", "avg(x)"),
    ("median", "quantile(x, 0.5)"),
    ("percentile", "quantile(x, 0.99), with a fraction"),
    ("percentile_cont", "quantile(x, 0.99)"),
    ("percentile_disc", "quantile(x, 0.99)"),
    ("approx_percentile", "quantile(x, 0.99)"),
    ("approx_quantile", "quantile(x, 0.99)"),
    ("approx_count_distinct", "count(DISTINCT x), which is exact"),
    ("approx_distinct", "count(DISTINCT x), which is exact"),
    ("uniq", "count(DISTINCT x)"),
    ("lag", "prev(x), the value before the last"),
    ("first_value", "first(x)"),
    ("last_value", "last(x)"),
    ("latest", "last(x)"),
    ("any_value", "last(x) or first(x)"),
    ("std", "stddev(x)"),
];

/// Whether a name calls an aggregate, here or in other systems.
pub(super) fn is_name(name: &str) -> bool {
    let mut names = NAMES.iter().map(|(known, _)| known).chain(ELSEWHERE.iter().map(|(theirs, _)| theirs));
    names.any(|known| known.eq_ignore_ascii_case(name))
}

impl Called {
    /// The aggregate of a name; the whole call decides the hint if there is none.
    pub(super) fn parse(name: &str, span: Range<usize>, call: &str) -> Result<Self, SqlError> {
        let lower = name.to_ascii_lowercase();
        if let Some((_, called)) = NAMES.iter().find(|(known, _)| *known == lower) {
            return Ok(*called);
        }
        let error = SqlError::new(format!("there is no aggregate {name}")).at(span);
        if let Some((_, ours)) = ELSEWHERE.iter().find(|(theirs, _)| *theirs == lower) {
            return Err(error.hint(format!("write {ours}")));
        }
        if Expr::parse(call).is_ok() {
            return Err(
                error.hint(format!("functions of one record belong inside an aggregate: sum({call})"))
            );
        }
        Err(match nearest(name, NAMES.iter().map(|(known, _)| *known)) {
            Some(near) => error.hint(format!("did you mean {near}?")),
            None => error.expected(
                "count, sum, avg, min, max, first, last, prev, stddev, stddev_pop, var, var_pop or quantile",
            ),
        })
    }
}

/// Canonical text of a call.
pub(super) fn call(function: Function, arg: Option<&Expr>) -> String {
    let arg = arg.map_or_else(|| "*".to_owned(), Expr::to_string);
    match function {
        Function::CountDistinct => format!("count(DISTINCT {arg})"),
        Function::Quantile(q) => format!("quantile({arg}, {q:?})"),
        other => format!("{}({arg})", other.name()),
    }
}
