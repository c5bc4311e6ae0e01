use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_types::{DataType, Field, Schema};

use super::table;
use crate::{Bound, Expr, Mistakes, Qualifier};

const FIELDS: &str = "a: int64, b: int64, x: float64, s: string, d: decimal(10,2), ts: timestamp(ms)";

fn bind(expr: &str) -> Bound {
    let (schema, _) = table(FIELDS, "");
    Expr::parse(expr)
        .and_then(|parsed| parsed.bind(&schema))
        .unwrap_or_else(|error| panic!("{}", error.render(expr)))
}

#[test]
fn equal_meaning_has_one_fingerprint() {
    for (left, right) in [
        ("a > 1", "1 < a"),
        ("a>=b", "(b) <= a"),
        ("a = b AND x > 1.5", "x > 1.50 and b = a"),
        ("a = 1 OR (b = 2 OR x = 3)", "x = 3 OR b = 2 OR a = 1"),
        ("a IN (3, 1, 2)", "a in (1, 2, 3, 3)"),
        ("coalesce(a, 0)", "COALESCE(a, 1 - 1)"),
        ("ts > '2024-01-01'", "ts > TIMESTAMP '2024-01-01 00:00:00.000'"),
        ("d > 1.5", "d > 1.50"),
        ("substr(s, 2)", "SUBSTRING(s FROM 2)"),
        ("\"a\" + 2", "a + (1 + 1)"),
        ("TRUE AND a = 1", "a = 1 AND TRUE"),
    ] {
        assert_eq!(bind(left).fingerprint(), bind(right).fingerprint(), "{left} and {right}");
    }
}

#[test]
fn different_meaning_has_different_fingerprints() {
    let all = [
        "a",
        "b",
        "x",
        "a + b",
        "a - b",
        "b - a",
        "x + 1",
        "x - 0.0",
        "x + -0.0",
        "a > 1",
        "a >= 1",
        "a < 1",
        "a = 1",
        "a <> 1",
        "s = 'a'",
        "s = 'a'''",
        "s LIKE 'a'",
        "s ILIKE 'a'",
        "s NOT LIKE 'a'",
        "s ~ 'a'",
        "s ~* 'a'",
        "s !~ 'a'",
        "s !~* 'a'",
        "s ~ 'b'",
        "regexp_extract(s, 'a')",
        "regexp_extract(s, '(a)')",
        "regexp_extract(s, '(a)', 1)",
        "left(s, 1)",
        "right(s, 1)",
        "a IN (1, 2)",
        "a NOT IN (1, 2)",
        "a BETWEEN 1 AND 2",
        "a BETWEEN 2 AND 1",
        "a IS NULL",
        "a IS NOT NULL",
        "CAST(a AS float64)",
        "CAST(a AS uint64)",
        "CAST(a AS string)",
        "extract(hour FROM ts)",
        "extract(day FROM ts)",
        "date_trunc('hour', ts)",
        "date_trunc('day', ts)",
        "lower(s)",
        "upper(s)",
        "s || s",
        "concat(s, s)",
        "round(d)",
        "round(d, 1)",
        "coalesce(a, 1)",
        "greatest(a, 1)",
        "least(a, 1)",
        "nullif(a, 1)",
        "NOT (a = 1)",
        "-a",
        "CASE WHEN a = 1 THEN 1 ELSE 2 END",
        "CASE WHEN a = 1 THEN 2 ELSE 1 END",
        "a = 1 AND b = 1",
        "a = 1 OR b = 1",
    ];
    let different: BTreeSet<String> = all.iter().map(|expr| bind(expr).fingerprint().to_owned()).collect();
    assert_eq!(different.len(), all.len());
}

#[test]
fn fields_are_the_columns_that_are_read() {
    assert_eq!(bind("a + 1 > 0 AND d > a").fields(), [0, 4]);
    assert_eq!(bind("1 + 1").fields(), [0_usize; 0]);
    assert_eq!(bind("(s)").as_column(), Some(3));
    assert_eq!(bind("s || ''").as_column(), None);
    assert!(bind("a / 2").nullable(), "division by zero");
    assert!(!bind("x / 2").nullable());
    assert!(!bind("a IS NULL").nullable());
}

#[test]
fn a_plain_field_is_not_copied() {
    let (schema, records) = table("a: int64, s: string", "1, 'x' | 2, 'y'");
    let bound = Expr::parse("s").unwrap().bind(&schema).unwrap();
    assert!(Arc::ptr_eq(&bound.evaluate(&records).unwrap(), records.column(1)));
}

#[test]
fn members_of_answers_are_fields() {
    let member = Field::new("spent", DataType::Float64).nullable();
    let schema = Schema::new(vec![
        Field::new("card", DataType::String),
        Field::new("card_1h", DataType::Struct(vec![Field::new("n", DataType::Int64), member])),
        Field::new("shop_5m.mean", DataType::Float64),
    ]);
    let n: arrow_array::ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![1, 2, 3]));
    let spent: arrow_array::ArrayRef = Arc::new(arrow_array::Float64Array::from(vec![1.5, 2.5, 3.5]));
    let DataType::Struct(fields) = &schema.fields()[1].data_type else { unreachable!() };
    let fields: arrow_schema::Fields = fields.iter().map(Field::to_arrow).collect();
    let nulls = arrow_buffer::NullBuffer::from(vec![true, false, true]);
    let answer = arrow_array::StructArray::new(fields, vec![n, spent], Some(nulls));
    let cards: arrow_array::ArrayRef = Arc::new(arrow_array::StringViewArray::from(vec!["a", "b", "c"]));
    let mean: arrow_array::ArrayRef = Arc::new(arrow_array::Float64Array::from(vec![7.0, 8.0, 9.0]));
    let records =
        RecordBatch::try_new(Arc::clone(schema.arrow()), vec![cards, Arc::new(answer), mean]).unwrap();
    let shown = |expr: &str| {
        let mut mistakes = Mistakes::new();
        let parsed = Expr::read(expr, &mut mistakes).unwrap();
        let bound = parsed.check(&schema, Qualifier::Stream("payments"), &mut mistakes).bound().unwrap();
        let array = bound.evaluate(&records).unwrap();
        (0..3).map(|row| super::show(&thalweg_types::Value::at(&array, row))).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown("card_1h.spent * 2"), "3.0 null 7.0");
    assert_eq!(shown("payments.card_1h.n > 1"), "false null true");
    assert_eq!(shown("payments.card"), "'a' 'b' 'c'");
    assert_eq!(shown("shop_5m.mean"), "7.0 8.0 9.0");
    assert_eq!(shown("\"shop_5m.mean\""), "7.0 8.0 9.0");
    let error = Expr::parse("card_1h > 1").unwrap().bind(&schema).unwrap_err();
    assert!(error.first().message.contains("cannot be compared"), "{error}");
    let error = Expr::parse("card_1h.spend").unwrap().bind(&schema).unwrap_err();
    assert_eq!(error.first().hint.as_deref(), Some("did you mean \"spent\"?"));
    assert!(Expr::parse("card_1h IS NULL").unwrap().bind(&schema).is_ok());
}

#[test]
fn other_columns_than_bound_are_an_error() {
    let (schema, _) = table("a: int64", "");
    let (_, records) = table("a: float64", "1.5");
    let bound = Expr::parse("a + 1").unwrap().bind(&schema).unwrap();
    assert!(bound.evaluate(&records).unwrap_err().message.contains("Float64 where Int64 was bound"));
    let empty = RecordBatch::new_empty(Arc::new(arrow_schema::Schema::empty()));
    assert!(bound.evaluate(&empty).is_err());
}
