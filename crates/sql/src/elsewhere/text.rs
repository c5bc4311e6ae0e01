//! Expressions as SQL that means the same on another node.
//!
//! Only what is sure to: columns, literals that come back with their type, comparisons, truth, and functions of this crate
//! and of buckets of time. Everything else has no text, and is computed where the query was asked.

use std::net::Ipv6Addr;

use arrow_schema::Schema;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Like, Operator};

use crate::bounds::Bounds;

const NANOS: i64 = 1_000_000_000;

/// Functions whose arguments are columns and literals, and that depend on nothing else.
const FUNCTIONS: [&str; 7] =
    ["date_bin", "date_trunc", "family", "in_network", "ip_text", "network", "prefix"];

pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The text of an expression over the columns of a table.
pub(crate) fn of(expr: &Expr, schema: &Schema) -> Option<String> {
    let of = |expr: &Expr| of(expr, schema);
    Some(match expr {
        Expr::Column(column) => {
            schema.field_with_name(&column.name).ok()?;
            quoted(&column.name)
        }
        Expr::Literal(value, _) => literal(value)?,
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            format!("({} {} {})", of(left)?, sign(*op)?, of(right)?)
        }
        Expr::Not(expr) => format!("(NOT {})", of(expr)?),
        Expr::IsNull(expr) => format!("({} IS NULL)", of(expr)?),
        Expr::IsNotNull(expr) => format!("({} IS NOT NULL)", of(expr)?),
        Expr::Between(Between { expr, negated, low, high }) => {
            let not = if *negated { "NOT " } else { "" };
            format!("({} {not}BETWEEN {} AND {})", of(expr)?, of(low)?, of(high)?)
        }
        Expr::InList(InList { expr, list, negated }) if !list.is_empty() => {
            let list: Vec<String> = list.iter().map(of).collect::<Option<_>>()?;
            let not = if *negated { "NOT " } else { "" };
            format!("({} {not}IN ({}))", of(expr)?, list.join(", "))
        }
        Expr::Like(Like { negated, expr, pattern, escape_char: None, case_insensitive }) => {
            let not = if *negated { "NOT " } else { "" };
            let like = if *case_insensitive { "ILIKE" } else { "LIKE" };
            format!("({} {not}{like} {})", of(expr)?, of(pattern)?)
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if FUNCTIONS.contains(&func.name()) => {
            let args: Vec<String> = args.iter().map(of).collect::<Option<_>>()?;
            format!("{}({})", func.name(), args.join(", "))
        }
        _ => return None,
    })
}

fn sign(op: Operator) -> Option<&'static str> {
    Some(match op {
        Operator::Eq => "=",
        Operator::NotEq => "<>",
        Operator::Lt => "<",
        Operator::LtEq => "<=",
        Operator::Gt => ">",
        Operator::GtEq => ">=",
        Operator::And => "AND",
        Operator::Or => "OR",
        _ => return None,
    })
}

fn literal(value: &ScalarValue) -> Option<String> {
    Some(match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::Utf8View(Some(text))
        | ScalarValue::LargeUtf8(Some(text)) => format!("'{}'", text.replace('\'', "''")),
        ScalarValue::Boolean(Some(value)) => value.to_string(),
        ScalarValue::Int32(Some(value)) => value.to_string(),
        ScalarValue::Int64(Some(value)) if *value != i64::MIN => value.to_string(),
        ScalarValue::UInt32(Some(value)) => value.to_string(),
        ScalarValue::UInt64(Some(value)) => value.to_string(),
        ScalarValue::FixedSizeBinary(16, Some(bytes)) => {
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?);
            match address.to_ipv4_mapped() {
                Some(address) => format!("ip('{address}')"),
                None => format!("ip('{address}')"),
            }
        }
        ScalarValue::IntervalMonthDayNano(Some(span))
            if span.months == 0 && span.days == 0 && span.nanoseconds % NANOS == 0 =>
        {
            format!("INTERVAL '{} second'", span.nanoseconds / NANOS)
        }
        ScalarValue::TimestampSecond(Some(at), None) => time(*at, value),
        ScalarValue::TimestampMillisecond(Some(at), None) => time(*at, value),
        ScalarValue::TimestampMicrosecond(Some(at), None) => time(*at, value),
        ScalarValue::TimestampNanosecond(Some(at), None) => time(*at, value),
        _ => return None,
    })
}

fn time(at: i64, value: &ScalarValue) -> String {
    format!("arrow_cast({at}, '{}')", value.data_type())
}

/// Bounds as a condition on the column `time` of `schema`, which says the same; `None` where there is no text for it.
pub(crate) fn of_bounds(time: &str, schema: &Schema, bounds: Bounds) -> Option<Vec<String>> {
    let data_type = schema.field_with_name(time).ok()?.data_type();
    let condition = bounds.condition(&Expr::Column(Column::new_unqualified(time)), data_type);
    condition.iter().map(|condition| of(condition, schema)).collect()
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field, TimeUnit};
    use datafusion::prelude::{col, lit};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), false),
            Field::new("who", DataType::Utf8View, true),
            Field::new("Bytes", DataType::UInt64, true),
            Field::new("share", DataType::Float64, true),
            Field::new("addr", DataType::FixedSizeBinary(16), true),
        ])
    }

    #[test]
    fn what_means_the_same_has_a_text() {
        let text = |expr: Expr| of(&expr, &schema());
        let bytes = || col("\"Bytes\"");
        let address = |text: &str| {
            let octets = text.parse::<Ipv6Addr>().unwrap().octets().to_vec();
            Expr::Literal(ScalarValue::FixedSizeBinary(16, Some(octets)), None)
        };
        for (expr, expected) in [
            (col("who").eq(lit("o'x")), "(\"who\" = 'o''x')"),
            (bytes().gt_eq(lit(7_i64)), "(\"Bytes\" >= 7)"),
            (col("who").like(lit("a%")), "(\"who\" LIKE 'a%')"),
            (col("who").in_list(vec![lit("a"), lit("b")], true), "(\"who\" NOT IN ('a', 'b'))"),
            (bytes().is_null().or(bytes().lt(lit(1_u64))), "((\"Bytes\" IS NULL) OR (\"Bytes\" < 1))"),
            (col("addr").eq(address("::ffff:10.1.2.3")), "(\"addr\" = ip('10.1.2.3'))"),
            (col("addr").eq(address("2001:db8::1")), "(\"addr\" = ip('2001:db8::1'))"),
        ] {
            assert_eq!(text(expr).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_may_not_has_none() {
        for expr in [
            col("share").gt(lit(0.1)),
            col("nobody").is_null(),
            col("who").eq(lit(ScalarValue::Utf8(None))),
            (col("\"Bytes\"") + lit(1_u64)).gt(lit(7_u64)),
            datafusion::functions::expr_fn::random().gt(lit(0.5)),
        ] {
            assert_eq!(of(&expr, &schema()), None, "{expr}");
        }
    }

    #[test]
    fn bounds_are_whole_units_and_say_the_same() {
        let all = Bounds::ALL;
        let of = |from, to| of_bounds("ts", &schema(), Bounds { from, to });
        assert_eq!(of(all.from, all.to), Some(vec![]));
        let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(1_500_000, all.to), texts(&["(\"ts\" >= arrow_cast(2, 'Timestamp(ms)'))"]));
        assert_eq!(
            of(-1_000_000, 2_000_001),
            texts(&[
                "((\"ts\" >= arrow_cast(-1, 'Timestamp(ms)')) AND (\"ts\" < arrow_cast(3, 'Timestamp(ms)')))"
            ])
        );
        // Before and after all times that the column can have.
        assert_eq!(of(i128::MAX / 2, all.to), texts(&["false"]));
        assert_eq!(of(i128::MIN / 2, i128::MAX / 2), Some(vec![]));
    }
}
