//! Every function, operator and cast over awkward values: the bits of this semantic version.

use std::collections::HashSet;

use thalweg_testing::semantics::{Corpus, Digest, Random};

use super::*;
use crate::function::{NAMES, PARTS};

const ROWS: usize = 400;

const INTS: [&str; 9] =
    ["0", "1", "-1", "7", "-12", "1000", "9223372036854775807", "-9223372036854775808", "-9007199254740993"];
const UINTS: [&str; 5] = ["0", "1", "3", "18446744073709551615", "9007199254740993"];
const FLOATS: [&str; 24] = [
    "0",
    "-0",
    "1",
    "-1",
    "0.5",
    "2.5",
    "-2.5",
    "1.005",
    "1e-300",
    "5e-324",
    "1e300",
    "1.7976931348623157e308",
    "4503599627370495.5",
    "9007199254740993",
    "-9.3e18",
    "NaN",
    "-NaN",
    "inf",
    "-inf",
    "3.141592653589793",
    "710",
    "-745.2",
    "6.604",
    "1e22",
];
const DECIMALS: [&str; 8] =
    ["0", "1.005", "-1.005", "999999999.999", "-0.001", "2.5", "-999999999.999", "12.34"];
const WIDE: [&str; 5] = [
    "0",
    "-1.0000000001",
    "123456789012345678901234567890.0123456789",
    "999999999999999999999999999999999999999999999999999999999999999999.9999999999",
    "0.5",
];
const TEXTS: [&str; 20] = [
    "",
    "a",
    "aaaa",
    "a card longer than twelve bytes",
    "ß",
    "STRASSE",
    "straße",
    "K\u{212a}k",
    "e\u{301}",
    "%_",
    "\\",
    " a b ",
    "1.5",
    "-12",
    "1e400",
    "nan",
    "true",
    "2024-02-29T13:45:00+02:00",
    "::ffff:10.0.0.1",
    "x/y/z",
];
const TIMES: [&str; 9] = [
    "0",
    "-1",
    "1709214300123456",
    "951782400000000",
    "253402300799999999",
    "-62135596800000000",
    "9223372036854775807",
    "-9223372036854775808",
    "1735689599999999",
];
const IPS: [&str; 4] = ["10.0.0.1", "::1", "2001:db8::ff00:42:8329", "255.255.255.255"];

fn records() -> (Schema, RecordBatch) {
    let mut random = Random::new(1);
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    let mut add = |name: &str, data_type: &str, cells: Vec<Option<String>>| {
        let data_type = DataType::parse(data_type).unwrap();
        let cells: Vec<Option<&str>> = cells.iter().map(Option::as_deref).collect();
        columns.push(column(&data_type, &cells));
        fields.push(Field::new(name, data_type).nullable());
    };
    for (name, data_type, cells) in [
        ("a", "int64", &INTS[..]),
        ("c", "int64", &INTS[..]),
        ("u", "uint64", &UINTS[..]),
        ("x", "float64", &FLOATS[..]),
        ("y", "float64", &FLOATS[..]),
        ("d", "decimal(12,3)", &DECIMALS[..]),
        ("e", "decimal(76,10)", &WIDE[..]),
        ("s", "string", &TEXTS[..]),
        ("t", "string", &TEXTS[..]),
        ("b", "bytes", &TEXTS[..]),
        ("p", "bool", &["true", "false"][..]),
        ("q", "bool", &["true", "false"][..]),
        ("ts", "timestamp(us)", &TIMES[..]),
        ("ns", "timestamp(ns)", &TIMES[..]),
        ("sec", "timestamp(s)", &TIMES[..]),
        ("ip", "ip", &IPS[..]),
    ] {
        let cells = (0..ROWS).map(|row| {
            let is_float = data_type == "float64";
            match random.below(12) {
                0 => None,
                // Each of the list comes for sure.
                _ if row < cells.len() => Some(cells[row].to_owned()),
                1..6 if is_float => Some(format!("{:?}", random.float())),
                _ => Some(random.one(cells).to_owned()),
            }
        });
        add(name, data_type, cells.collect());
    }
    let schema = Schema::new(fields);
    let records = RecordBatch::try_new(Arc::clone(schema.arrow()), columns).unwrap();
    (schema, records)
}

/// Numbers of all types, and what can be made of them.
fn expressions() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let pairs =
        ["a, c", "u, a", "x, y", "a, x", "d, a", "d, x", "d, e", "e, e", "u, d", "x, 0.1", "a, 3", "d, 1.50"];
    for pair in pairs {
        let (left, right) = pair.split_once(", ").unwrap();
        for op in ["+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"] {
            all.push(format!("{left} {op} {right}"));
        }
        for function in ["power", "atan2", "mod", "greatest", "least", "nullif", "coalesce"] {
            all.push(format!("{function}({pair})"));
        }
        all.push(format!("{left} IN ({right}, 1, {left} + 1)"));
        all.push(format!("{left} BETWEEN {right} AND 1000"));
    }
    for number in ["a", "u", "x", "d", "e"] {
        for function in [
            "abs", "ceil", "floor", "round", "sign", "sqrt", "ln", "log10", "exp", "isnan", "isinf",
            "isfinite", "sin", "cos", "tan", "asin", "acos", "atan", "radians", "degrees",
        ] {
            all.push(format!("{function}({number})"));
        }
        if number != "u" {
            all.push(format!("-{number}"));
        }
        for digits in ["1", "2", "-1", "-3"] {
            all.push(format!("round({number}, {digits})"));
        }
        all.push(format!("{number} IN (0, 1, 2.5, -1)"));
        all.push(format!("{number} + 1 * 2 - 0.5"));
        all.push(format!("IF({number} > 1, {number}, 0)"));
        all.push(format!(
            "CASE {number} WHEN 1 THEN 'one' WHEN 0 THEN 'none' ELSE CAST({number} AS string) END"
        ));
    }
    all.push("pi() * x".to_owned());
    all.push("haversine(x, y, 52.52, 13.405)".to_owned());
    all.push("haversine(a, c, x, y)".to_owned());
    all.push("power(x, 0.5) + sqrt(x) - exp(ln(x))".to_owned());
    // Folded: constants take the way of columns.
    all.push("ln(6.604) + log10(6.035) + exp(9.3133) + power(99.239, 7.8531) + sin(1e22)".to_owned());
    for from in ["a", "u", "x", "d", "e", "s", "b", "p", "ts", "ns", "sec", "ip"] {
        for to in [
            "int64",
            "uint64",
            "float64",
            "decimal(5,2)",
            "decimal(38,9)",
            "decimal(76,0)",
            "string",
            "bytes",
            "bool",
            "timestamp(s)",
            "timestamp(ms)",
            "timestamp(us)",
            "timestamp(ns)",
            "ip",
        ] {
            all.push(format!("CAST({from} AS {to})"));
        }
    }
    for text in ["s", "s || t"] {
        for function in ["lower", "upper", "trim", "btrim", "ltrim", "rtrim", "length"] {
            all.push(format!("{function}({text})"));
        }
        for call in [
            "left(#, 2)",
            "left(#, -1)",
            "right(#, 2)",
            "right(#, -1)",
            "left(#, a)",
            "substr(#, 2)",
            "substr(#, a, c)",
            "substring(#, -1, 4)",
            "replace(#, 'a', t)",
            "replace(#, t, 'b')",
            "split_part(#, '/', 2)",
            "split_part(#, '/', -1)",
            "split_part(#, t, 1)",
            "starts_with(#, t)",
            "ends_with(#, t)",
            "contains(#, t)",
            "strpos(#, t)",
            "trim(#, t)",
            "ltrim(#, 'a ')",
            "rtrim(#, 'a ')",
            "concat(#, t, a, x, d, p, ip)",
            "regexp_like(#, '^[a-k]+')",
            "regexp_extract(#, '([0-9]+)-?([0-9]*)', 1)",
            "# LIKE '%a%'",
            "# ILIKE '%SS_'",
            "# LIKE t",
            "# NOT ILIKE t",
            "# < t",
            "# = t",
            "# IN ('a', 'ß', t)",
            "nullif(#, t)",
            "coalesce(#, t)",
            "greatest(#, t)",
            "least(#, t, 'b')",
        ] {
            all.push(call.replace('#', text));
        }
    }
    for time in ["ts", "ns", "sec"] {
        for (part, _) in PARTS {
            all.push(format!("EXTRACT({part} FROM {time})"));
        }
        for unit in [
            "year",
            "quarter",
            "month",
            "week",
            "day",
            "hour",
            "minute",
            "second",
            "millisecond",
            "microsecond",
            "nanosecond",
        ] {
            all.push(format!("date_trunc('{unit}', {time})"));
        }
        for function in ["epoch", "epoch_ms", "epoch_us", "epoch_ns", "to_unixtime"] {
            all.push(format!("{function}({time})"));
        }
        all.push(format!("{time} < TIMESTAMP '2024-02-29 00:00:00'"));
        all.push(format!("{time} = ns"));
    }
    for logic in [
        "p AND q",
        "p OR q",
        "NOT p",
        "p IS TRUE",
        "p IS NOT FALSE",
        "p IS NULL",
        "ip = '::1'",
        "ip < '10.0.0.2'",
        "b < 'b'",
        "p AND x > 1 OR a / c > 1",
    ] {
        all.push(logic.to_owned());
    }
    all
}

#[test]
fn every_function_and_operator_has_the_bits_of_the_semantic_version() {
    let (schema, records) = records();
    let mut corpus = Corpus::new("expr");
    let mut called = HashSet::new();
    for text in expressions() {
        let parsed = Expr::parse(&text).unwrap_or_else(|error| panic!("{}", error.render(&text)));
        // Not every pair of types has a cast or a comparison.
        let Ok(bound) = parsed.bind(&schema) else { continue };
        let mut digest = Digest::default();
        digest.text(&bound.data_type().to_string());
        let values = evaluate(&bound, &records);
        (0..values.len()).for_each(|row| digest.value(&Value::at(&values, row)));
        let upper = text.to_uppercase();
        let is_called = |name: &str| upper.contains(&format!("{name}("));
        called.extend(NAMES.iter().filter(|(name, _)| is_called(name)).map(|(_, function)| *function));
        corpus.add(text, &digest);
    }
    for (name, function) in NAMES {
        assert!(called.contains(function), "no case calls {name}");
    }
    corpus.check();
}
