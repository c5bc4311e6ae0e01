//! What goes beyond a bound is null, its row is named, and nothing else changes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::eval::evaluation::{BUDGET, MAX_CONSTANT, MAX_MADE};
use crate::eval::like::MAX_PATTERN;
use crate::testing::TRIPWIRE;

/// Rows of texts `s` and `t`.
fn texts(rows: &[(&str, &str)]) -> (Schema, RecordBatch) {
    let schema = Schema::new(vec![Field::new("s", DataType::String), Field::new("t", DataType::String)]);
    let column = |text: fn(&(&str, &str)) -> String| -> ArrayRef {
        Arc::new(StringViewArray::from_iter_values(rows.iter().map(text)))
    };
    let columns = vec![column(|(s, _)| (*s).to_owned()), column(|(_, t)| (*t).to_owned())];
    let records = RecordBatch::try_new(Arc::clone(schema.arrow()), columns).unwrap();
    (schema, records)
}

fn bound(expr: &str, schema: &Schema) -> Bound {
    let parsed = Expr::parse(expr).unwrap_or_else(|error| panic!("{}", error.render(expr)));
    parsed.bind(schema).unwrap_or_else(|error| panic!("{}", error.render(expr)))
}

/// Lengths or other short values, and the rows that are named.
#[track_caller]
fn named(expr: &str, rows: &[(&str, &str)], expected: &str, misfits: &[u32]) {
    let (schema, records) = texts(rows);
    let bound = bound(expr, &schema);
    let values = bound.values(&records).unwrap();
    let shown: Vec<String> = (0..rows.len()).map(|row| show(&Value::at(&values.array, row))).collect();
    assert_eq!((shown.join(" | ").as_str(), values.misfits.as_slice()), (expected, misfits), "{expr}");
    for (row, shown) in shown.iter().enumerate() {
        let alone = bound.values(&records.slice(row, 1)).unwrap();
        assert_eq!(show(&Value::at(&alone.array, 0)), *shown, "{expr}, row {row} alone");
        assert_eq!(
            alone.misfits.len(),
            usize::from(misfits.contains(&(row as u32))),
            "{expr}, row {row} alone"
        );
    }
}

#[test]
fn a_text_that_is_too_long_is_null_and_its_row_is_named() {
    let mut bomb = "s".to_owned();
    for _ in 0..6 {
        bomb = format!("replace({bomb}, 'a', '{}')", "a".repeat(32));
    }
    named(&format!("length({bomb})"), &[("aaaa", ""), ("b", "")], "null | 1", &[0]);
    let half = "a".repeat(MAX_MADE / 2);
    named(
        "length(s || t)",
        &[(&half, &half), (&half, &format!("{half}a"))],
        &format!("{MAX_MADE} | null"),
        &[1],
    );
    named(
        "length(concat(s, t))",
        &[(&half, &half), (&half, &format!("{half}a"))],
        &format!("{MAX_MADE} | null"),
        &[1],
    );
    named(
        "length(replace(s, 'a', 'bb'))",
        &[(&half, ""), (&format!("{half}a"), "")],
        &format!("{MAX_MADE} | null"),
        &[1],
    );
}

#[test]
fn what_is_longer_by_itself_stays() {
    let long = "ß".repeat(MAX_MADE);
    let rows = [(long.as_str(), "ß"), ("", "")];
    named("length(upper(s))", &rows, &format!("{} | 0", 2 * MAX_MADE), &[]);
    named("length(substr(s, 2))", &rows, &format!("{} | 0", MAX_MADE - 1), &[]);
    named("length(s || '')", &rows, &format!("{MAX_MADE} | 0"), &[]);
    named("length(replace(s, 'ß', 'xy'))", &rows, &format!("{} | 0", 2 * MAX_MADE), &[]);
    named("length(replace(s, 'ß', 'xyz'))", &rows, "null | 0", &[0]);
    named("length(trim(s, t))", &rows, "0 | 0", &[]);
}

#[test]
fn a_row_is_named_only_where_its_value_was_needed() {
    let half = "a".repeat(MAX_MADE);
    let rows = [(half.as_str(), "x"), (half.as_str(), ""), ("b", "x")];
    let long = "length(s || t || 'y') > 0";
    named(long, &rows, "null | null | true", &[0, 1]);
    named(&format!("t = '' OR {long}"), &rows, "null | true | true", &[0]);
    named(&format!("t = 'x' AND {long}"), &rows, "null | false | true", &[0]);
    named(&format!("{long} OR t = ''"), &rows, "null | true | true", &[0, 1]);
    named(&format!("CASE WHEN t = 'x' THEN {long} ELSE false END"), &rows, "null | false | true", &[0]);
    named(
        &format!("CASE WHEN t = '' THEN true WHEN {long} THEN false END"),
        &rows,
        "null | true | false",
        &[0],
    );
    named(&format!("IF(t = '', {long}, true)"), &rows, "true | null | true", &[1]);
    named("length(coalesce(nullif(t, ''), s || 'y'))", &rows, "1 | null | 1", &[1]);
    named("length(coalesce(s || t || 'y', t))", &rows, "1 | 0 | 3", &[0, 1]);
}

#[test]
fn matches_that_take_too_long_and_patterns_that_are_too_long_are_named() {
    let text = "a".repeat(1 << 20);
    let hard = format!("%{}b%", "a_".repeat(50_000));
    let (schema, records) = texts(&[(&text, ""), ("b", "")]);
    let values = bound(&format!("s LIKE '{hard}'"), &schema).values(&records).unwrap();
    assert_eq!((values.array.is_null(0), values.misfits), (true, vec![0]));
    let long = "a".repeat(MAX_PATTERN + 1);
    named("s LIKE t", &[("a", &long), ("a", "_")], "null | true", &[0]);
    named("s NOT ILIKE t", &[("a", &long), ("a", "A")], "null | false", &[0]);
    named(&format!("s LIKE '{}'", "%a".repeat(100_000)), &[("a", "")], "false", &[]);
    named(&format!("s LIKE '{}'", "_".repeat(100_000)), &[("a", "")], "false", &[]);
    named("s LIKE 'a\\'", &[("a\\", "")], "true", &[]);
}

#[test]
fn constants_have_a_bound_of_their_own_and_are_refused_with_their_place() {
    let a = "a".repeat(1_000);
    let text = format!("s = replace('{a}', 'a', '{a}')");
    let error = refused(&text, "s: string");
    assert!(error.contains("this constant is a text that is too long"), "{error}");
    assert!(error.contains(&format!("at most {} KiB in a constant", MAX_CONSTANT >> 10)), "{error}");
    assert!(error.contains("^^^"), "{error}");
    constant("length(replace('aaaa', 'a', 'aaaa'))", "int64: 16");
}

#[test]
fn a_batch_that_needs_too_much_is_evaluated_in_pieces() {
    let text = "a".repeat(MAX_MADE / 2);
    let rows: Vec<(&str, &str)> =
        (0..3_000).map(|row| if row % 7 == 0 { ("b", "") } else { (text.as_str(), "") }).collect();
    let (schema, records) = texts(&rows);
    let bound = bound("length(s || s)", &schema);
    let (values, counts) = thalweg_testing::allocation::count(|| bound.values(&records).unwrap());
    assert!(counts.peak < 2 * BUDGET, "{} bytes for 3,000 texts of 64 KiB", counts.peak);
    assert!(values.misfits.is_empty());
    for row in 0..rows.len() {
        assert_eq!(
            Value::at(&values.array, row),
            Value::Int64(if row % 7 == 0 { 2 } else { MAX_MADE as i64 })
        );
    }
}

#[test]
fn a_row_that_needs_too_much_by_itself_is_null_and_named() {
    let text = "a".repeat(1 << 20);
    let joined = vec!["length(upper(s))"; 70].join(" + ");
    named(&joined, &[("a", ""), (&text, ""), ("", "")], "70 | null | 0", &[1]);
}

#[test]
fn a_failure_is_null_where_failures_are_caught_and_ends_the_evaluation_elsewhere() {
    let rows: Vec<(&str, &str)> =
        (0..40).map(|row| if row == 17 || row == 31 { (TRIPWIRE, "") } else { ("ab", "") }).collect();
    let (schema, records) = texts(&rows);
    let bound = bound("length(s)", &schema);
    let values = bound.values_or_nulls(&records);
    let ends = catch_unwind(AssertUnwindSafe(|| bound.values(&records).is_ok()));
    assert!(ends.is_err());
    assert_eq!(values.misfits, [17, 31]);
    assert!(values.failure.unwrap().message.contains("a planted panic"));
    for row in 0..rows.len() {
        assert_eq!(values.array.is_null(row), values.misfits.contains(&(row as u32)));
    }
}

#[test]
fn regular_expressions_have_bounds() {
    let long = "a".repeat(64 << 10);
    let longer = format!("{long}a");
    named("s ~ 'b'", &[(&long, ""), (&longer, ""), ("b", "")], "false | null | true", &[1]);
    named("regexp_extract(s, 'a$')", &[("a", ""), (&longer, "")], "'a' | null", &[1]);
    for (pattern, says) in [
        ("a".repeat(5_000), "has 5000 bytes"),
        ("(\\w{100}){100}".to_owned(), "too large when compiled"),
        (format!("{}{}", "(".repeat(60), ")".repeat(60)), "the maximum number of nested parentheses"),
        ("a(b".to_owned(), "no regular expression: unclosed group"),
        ("(?=a)".to_owned(), "look-around"),
        ("(a)\\1".to_owned(), "backreferences are not supported"),
    ] {
        let error = refused(&format!("s ~ '{pattern}'"), "s: string");
        assert!(error.contains(says), "{error}");
        assert!(error.contains('^'), "{error}");
    }
    let many = vec!["s ~ 'a'"; 17].join(" OR ");
    assert!(refused(&many, "s: string").contains("too many regular expressions"));
    for usual in [
        "^[\\w.+-]+@[\\w-]+\\.[\\w.]+$",
        "\\b\\d{1,3}(\\.\\d{1,3}){3}\\b",
        "(?i)^(GET|POST) /api/v\\d+/\\S*$",
    ] {
        bound(&format!("s ~ '{usual}'"), &texts(&[]).0);
    }
}
