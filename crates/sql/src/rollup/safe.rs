//! Whether an expression has the same value for a row and for its interval in a rollup.
//!
//! It has if it uses the columns that distinguish rows of the rollup, and event time only through a *bucket*: a
//! function that is constant between multiples of a step which the rollup's intervals divide.

use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::ScalarFunction;

use crate::bounds;

const SECOND: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;

/// The columns that distinguish rows of a rollup.
pub(super) struct Keys<'a> {
    pub(super) time: &'a str,
    pub(super) by: Vec<&'a str>,
    /// Length of its intervals in nanoseconds.
    pub(super) every: i128,
}

impl Keys<'_> {
    /// Whether the expression, over columns of the table, is the same for the rows of an interval with the same keys.
    pub(super) fn decide(&self, expr: &Expr) -> bool {
        if let Some(step) = step(expr, self.time) {
            return step % self.every == 0;
        }
        if let Expr::Column(column) = expr {
            return column.name != self.time && self.by.contains(&column.name.as_str());
        }
        let mut all = true;
        let seen = expr.apply_children(|child| {
            all &= self.decide(child);
            Ok(if all { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        });
        seen.is_ok() && all
    }
}

/// Nanoseconds of which all places are multiples where a function of `time` changes its value.
fn step(expr: &Expr, time: &str) -> Option<i128> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) => match (func.name(), args.as_slice()) {
            ("date_bin", [every, of]) if bounds::is_time(of, time) => interval(every, 0),
            ("date_bin", [every, of, origin]) if bounds::is_time(of, time) => {
                interval(every, bounds::literal(origin)?)
            }
            ("date_trunc" | "date_part", [unit, of]) if bounds::is_time(of, time) => {
                let Expr::Literal(unit, _) = unit else { return None };
                named(unit.try_as_str()??)
            }
            _ => None,
        },
        Expr::Cast(cast)
            if *cast.field.data_type() == DataType::Date32 && bounds::is_time(&cast.expr, time) =>
        {
            Some(DAY)
        }
        _ => None,
    }
}

/// The step of intervals of a length that begin at an origin.
fn interval(every: &Expr, origin: i128) -> Option<i128> {
    let Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(every)), _) = every else { return None };
    if every.months != 0 {
        // Months begin with days, and those of other origins may not.
        return (every.days == 0 && every.nanoseconds == 0 && origin == 0).then_some(DAY);
    }
    let length = i128::from(every.days) * DAY + i128::from(every.nanoseconds);
    (length > 0).then(|| common(length, origin.abs()))
}

/// The largest number that divides both.
fn common(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Weeks begin on Mondays, which are days; so do longer units.
fn named(unit: &str) -> Option<i128> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "minute" => MINUTE,
        "hour" => HOUR,
        "day" | "week" | "month" | "quarter" | "year" | "dow" | "doy" | "isodow" => DAY,
        _ => return None,
    })
}
