//! The aggregate functions as they are written.

use std::ops::Range;

use thalweg_expr::{Expr, SqlError, nearest};
use thalweg_types::DataType;

/// An aggregate function by name; `thalweg_window::agg` computes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AggregateName {
    /// `count(*)`
    CountAll,
    Count,
    Sum,
    Avg,
    StdDev,
    StdDevPop,
    Var,
    VarPop,
    Min,
    Max,
    First,
    Last,
    Prev,
    CountDistinct,
    /// `quantile(x, q)`, 0 ≤ q ≤ 1.
    Quantile(f64),
}

/// What a name calls, before its arguments are read.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Called {
    Count,
    Quantile,
    Of(AggregateName),
}

const NAMES: &[(&str, Called)] = &[
    ("count", Called::Count),
    ("sum", Called::Of(AggregateName::Sum)),
    ("avg", Called::Of(AggregateName::Avg)),
    ("stddev", Called::Of(AggregateName::StdDev)),
    ("stddev_samp", Called::Of(AggregateName::StdDev)),
    ("stddev_pop", Called::Of(AggregateName::StdDevPop)),
    ("var", Called::Of(AggregateName::Var)),
    ("var_samp", Called::Of(AggregateName::Var)),
    ("variance", Called::Of(AggregateName::Var)),
    ("var_pop", Called::Of(AggregateName::VarPop)),
    ("min", Called::Of(AggregateName::Min)),
    ("max", Called::Of(AggregateName::Max)),
    ("first", Called::Of(AggregateName::First)),
    ("last", Called::Of(AggregateName::Last)),
    ("prev", Called::Of(AggregateName::Prev)),
    ("count_distinct", Called::Of(AggregateName::CountDistinct)),
    ("countdistinct", Called::Of(AggregateName::CountDistinct)),
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

impl Called {
    /// The aggregate of a name; the whole call decides the hint where there is none.
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
            return Err(error.hint(format!("functions of one record stand inside an aggregate: sum({call})")));
        }
        Err(match nearest(name, NAMES.iter().map(|(known, _)| *known)) {
            Some(near) => error.hint(format!("did you mean {near}?")),
            None => error.expected(
                "count, sum, avg, min, max, first, last, prev, stddev, stddev_pop, var, var_pop or quantile",
            ),
        })
    }
}

impl AggregateName {
    /// The canonical name.
    pub fn name(self) -> &'static str {
        match self {
            AggregateName::CountAll | AggregateName::Count => "count",
            AggregateName::Sum => "sum",
            AggregateName::Avg => "avg",
            AggregateName::StdDev => "stddev",
            AggregateName::StdDevPop => "stddev_pop",
            AggregateName::Var => "var",
            AggregateName::VarPop => "var_pop",
            AggregateName::Min => "min",
            AggregateName::Max => "max",
            AggregateName::First => "first",
            AggregateName::Last => "last",
            AggregateName::Prev => "prev",
            AggregateName::CountDistinct => "count_distinct",
            AggregateName::Quantile(_) => "quantile",
        }
    }

    /// Canonical text of a call.
    pub(super) fn call(self, arg: Option<&Expr>) -> String {
        let arg = arg.map_or_else(|| "*".to_owned(), Expr::to_string);
        match self {
            AggregateName::CountDistinct => format!("count(DISTINCT {arg})"),
            AggregateName::Quantile(q) => format!("quantile({arg}, {q:?})"),
            other => format!("{}({arg})", other.name()),
        }
    }

    /// Whether values of the type can be aggregated so.
    pub(super) fn takes(self, data_type: &DataType) -> bool {
        match self {
            AggregateName::Sum
            | AggregateName::Avg
            | AggregateName::StdDev
            | AggregateName::StdDevPop
            | AggregateName::Var
            | AggregateName::VarPop
            | AggregateName::Quantile(_) => data_type.is_numeric(),
            _ => !matches!(data_type, DataType::List(_) | DataType::Struct(_)),
        }
    }
}
