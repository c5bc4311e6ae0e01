//! Bounds on event time, read off conditions.
//!
//! All times here are nanoseconds since 1970 in 128 bits, whatever the unit of a column: no conversion loses anything
//! and none overflows.

use arrow_schema::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::Between;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, lit};
use thalweg_types::Micros;

/// Times `from <= t < to`; open ends are the ends of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) from: i128,
    pub(crate) to: i128,
}

impl Bounds {
    pub(crate) const ALL: Bounds = Bounds { from: i128::MIN, to: i128::MAX };

    /// Nanoseconds of a file's times, which are rounded down to microseconds.
    pub(crate) fn of_file(first: Micros, last: Micros) -> Bounds {
        Bounds { from: i128::from(first) * 1_000, to: (i128::from(last) + 1) * 1_000 }
    }

    /// They as a condition on a column of this type; `None` where they say nothing of it.
    pub(crate) fn condition(self, time: &Expr, data_type: &DataType) -> Option<Expr> {
        let DataType::Timestamp(unit, zone) = data_type else { return None };
        // The first value at or after an instant; none where the column's type ends before it.
        let at = |instant: i128| {
            let value = instant.div_euclid(nanos(*unit)) + i128::from(instant.rem_euclid(nanos(*unit)) != 0);
            let value = Some(i64::try_from(value).ok()?);
            let zone = zone.clone();
            let value = match unit {
                TimeUnit::Second => ScalarValue::TimestampSecond(value, zone),
                TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(value, zone),
                TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(value, zone),
                TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(value, zone),
            };
            Some(Expr::Literal(value, None))
        };
        let from = match at(self.from) {
            _ if self.from == Self::ALL.from => None,
            Some(value) => Some(time.clone().gt_eq(value)),
            None => (self.from > 0).then(|| lit(false)),
        };
        let to = match at(self.to) {
            _ if self.to == Self::ALL.to => None,
            Some(value) => Some(time.clone().lt(value)),
            None => (self.to < 0).then(|| lit(false)),
        };
        from.into_iter().chain(to).reduce(Expr::and)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.from >= self.to
    }

    pub(crate) fn and(self, other: Bounds) -> Bounds {
        Bounds { from: self.from.max(other.from), to: self.to.min(other.to) }
    }

    /// The shortest span that holds both.
    fn hull(self, other: Bounds) -> Bounds {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            _ => Bounds { from: self.from.min(other.from), to: self.to.max(other.to) },
        }
    }

    pub(crate) fn meets(self, other: Bounds) -> bool {
        !self.and(other).is_empty()
    }

    /// Bounds outside of which no condition of `all` can be true, for the column `time`.
    pub(crate) fn around<'a>(all: impl IntoIterator<Item = &'a Expr>, time: &str) -> Bounds {
        all.into_iter().map(|expr| Self::around_one(expr, time)).fold(Bounds::ALL, Bounds::and)
    }

    fn around_one(expr: &Expr, time: &str) -> Bounds {
        if let Some(exact) = Self::exact(expr, time) {
            return exact;
        }
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                Self::around_one(left, time).and(Self::around_one(right, time))
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                Self::around_one(left, time).hull(Self::around_one(right, time))
            }
            _ => Bounds::ALL,
        }
    }

    /// The bounds that say the same as a condition on `time` alone; `None` if there are no such bounds.
    pub(crate) fn exact(expr: &Expr, time: &str) -> Option<Bounds> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                Some(Self::exact(left, time)?.and(Self::exact(right, time)?))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                if is_time(left, time) {
                    Self::compared(*op, literal(right)?)
                } else if is_time(right, time) {
                    Self::compared(op.swap()?, literal(left)?)
                } else {
                    None
                }
            }
            Expr::Between(Between { expr, negated: false, low, high }) if is_time(expr, time) => {
                let low = Self::compared(Operator::GtEq, literal(low)?)?;
                Some(low.and(Self::compared(Operator::LtEq, literal(high)?)?))
            }
            _ => None,
        }
    }

    fn compared(op: Operator, value: i128) -> Option<Bounds> {
        let all = Bounds::ALL;
        Some(match op {
            Operator::Eq => Bounds { from: value, to: value + 1 },
            Operator::Lt => Bounds { to: value, ..all },
            Operator::LtEq => Bounds { to: value + 1, ..all },
            Operator::Gt => Bounds { from: value + 1, ..all },
            Operator::GtEq => Bounds { from: value, ..all },
            _ => return None,
        })
    }
}

/// Nanoseconds in a unit.
pub(crate) fn nanos(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// The column itself, or the column in the same or a finer unit: both order times alike.
pub(crate) fn is_time(expr: &Expr, time: &str) -> bool {
    match expr {
        Expr::Column(column) => column.name == time,
        Expr::Cast(cast) => match cast.field.data_type() {
            // Columns with times have no zone, so that a zone other than UTC would move them. Finer than any column
            // is the nanosecond alone; others would round.
            DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
                zone.as_deref().is_none_or(|zone| matches!(zone, "+00:00" | "UTC" | "Z"))
                    && matches!(&*cast.expr, Expr::Column(column) if column.name == time)
            }
            _ => false,
        },
        _ => false,
    }
}

/// The value of a timestamp that is not null.
pub(crate) fn literal(expr: &Expr) -> Option<i128> {
    let Expr::Literal(value, _) = expr else { return None };
    let (value, unit) = match value {
        ScalarValue::TimestampSecond(Some(value), _) => (*value, TimeUnit::Second),
        ScalarValue::TimestampMillisecond(Some(value), _) => (*value, TimeUnit::Millisecond),
        ScalarValue::TimestampMicrosecond(Some(value), _) => (*value, TimeUnit::Microsecond),
        ScalarValue::TimestampNanosecond(Some(value), _) => (*value, TimeUnit::Nanosecond),
        _ => return None,
    };
    Some(i128::from(value) * nanos(unit))
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{col, lit};

    use super::*;

    fn at(value: i64) -> Expr {
        Expr::Literal(ScalarValue::TimestampNanosecond(Some(value), None), None)
    }

    fn micros(value: i64) -> Expr {
        Expr::Literal(ScalarValue::TimestampMicrosecond(Some(value), None), None)
    }

    fn finer(expr: Expr) -> Expr {
        Expr::Cast(datafusion::logical_expr::Cast::new(
            Box::new(expr),
            DataType::Timestamp(TimeUnit::Nanosecond, None),
        ))
    }

    #[test]
    fn comparisons_with_time_are_bounds() {
        let all = Bounds::ALL;
        for (expr, expected) in [
            (col("time").gt_eq(micros(3)), Bounds { from: 3_000, ..all }),
            (col("time").gt(micros(3)), Bounds { from: 3_001, ..all }),
            (col("time").lt(micros(3)), Bounds { to: 3_000, ..all }),
            (col("time").lt_eq(micros(3)), Bounds { to: 3_001, ..all }),
            (micros(3).lt(col("time")), Bounds { from: 3_001, ..all }),
            (col("time").eq(micros(-3)), Bounds { from: -3_000, to: -2_999 }),
            (finer(col("time")).gt_eq(at(3_500)), Bounds { from: 3_500, ..all }),
            (col("time").between(micros(1), micros(2)), Bounds { from: 1_000, to: 2_001 }),
            (col("time").gt(micros(1)).and(col("time").lt(micros(2))), Bounds { from: 1_001, to: 2_000 }),
        ] {
            assert_eq!(Bounds::exact(&expr, "time"), Some(expected), "{expr}");
        }
    }

    #[test]
    fn what_says_more_or_less_is_none() {
        let coarser = datafusion::logical_expr::Cast::new(
            Box::new(col("time")),
            DataType::Timestamp(TimeUnit::Second, None),
        );
        for expr in [
            col("other").gt(micros(1)),
            col("time").not_eq(micros(1)),
            col("time").gt(col("other")),
            Expr::Cast(coarser).gt(at(1)),
            col("time").not_between(micros(1), micros(2)),
            col("time").gt(micros(1)).and(col("other").eq(lit(1))),
            col("time").gt(Expr::Literal(ScalarValue::TimestampMicrosecond(None, None), None)),
        ] {
            assert_eq!(Bounds::exact(&expr, "time"), None, "{expr}");
        }
        let half = col("time").gt(micros(1)).and(col("other").eq(lit(1)));
        assert_eq!(Bounds::around([&half], "time"), Bounds { from: 1_001, ..Bounds::ALL });
        let either = col("time").eq(micros(1)).or(col("time").eq(micros(9)));
        assert_eq!(Bounds::around([&either], "time"), Bounds { from: 1_000, to: 9_001 });
        let open = col("time").eq(micros(1)).or(col("other").eq(lit(1)));
        assert_eq!(Bounds::around([&open], "time"), Bounds::ALL);
    }
}
