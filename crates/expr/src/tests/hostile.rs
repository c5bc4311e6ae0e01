//! Nonsense must be an error: no panic, no overflow of the stack, no exponential time.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{check, table};
use crate::{Expr, MAX_OPERATORS, MAX_TEXT};

/// Parses and, where that works, binds and evaluates.
fn survive(text: &str) {
    let (schema, records) = table(
        "a: int64, u: uint64, x: float64, d: decimal(10,2), s: string, p: bool, ts: timestamp(ms), ip: ip",
        "1, 2, 0.5, 1.25, 'text', true, 1700000000000, ::1 | null, null, null, null, null, null, null, null",
    );
    match Expr::parse(text) {
        Err(error) => {
            assert!(!error.message.is_empty());
            error.render(text);
        }
        Ok(parsed) => {
            // Canonical text has more parentheses: at the limits it is too deep itself.
            let canonical = parsed.to_string();
            match Expr::parse(&canonical) {
                Ok(again) => assert_eq!(again, parsed, "{canonical}"),
                Err(error) => assert!(error.message.contains("too"), "{error}: {canonical}"),
            }
            match parsed.bind(&schema) {
                Err(error) => drop(error.render(text)),
                Ok(bound) => {
                    let array = bound.evaluate(&records).unwrap();
                    assert_eq!(array.len(), 2);
                    assert!(array.data_type().equals_datatype(&bound.data_type().to_arrow()));
                }
            }
        }
    }
}

#[test]
fn deep_nesting_is_refused_quickly() {
    // A test's thread has 2 MiB of stack, as the engine's threads have.
    let started = Instant::now();
    for depth in [10, 30, 60, 70, 500, 5_000, 50_000] {
        let repeated = |open: &str, middle: &str, close: &str| {
            survive(&format!("{}{middle}{}", open.repeat(depth), close.repeat(depth)));
            survive(&open.repeat(depth));
            survive(&format!("{}{middle}", open.repeat(depth)));
        };
        repeated("(", "a", ")");
        repeated("NOT ", "p", "");
        repeated("- ", "a", "");
        repeated("abs(", "a", ")");
        repeated("coalesce(a, ", "a", ")");
        repeated("CAST(", "a", " AS int64)");
        repeated("TRY_CAST(", "a", " AS int64)");
        repeated("CASE WHEN ", "p", " THEN p END");
        repeated("CASE ", "a", " WHEN 1 THEN 1 END");
        repeated("EXTRACT(day FROM ", "ts", ")");
        repeated("SUBSTRING(", "s", " FROM 1)");
        repeated("TRIM(BOTH ", "s", ")");
        repeated("a IN (", "1", ")");
        repeated("a + (", "1", ")");
        repeated("a BETWEEN ", "1", " AND 2");
        repeated("s LIKE ", "'x'", "");
        repeated("if(p, ", "a", ", a)");
        repeated("ceil(", "a", ")");
        repeated("substr(s, ", "1", ")");
        repeated("position(", "a", " IN a)");
        repeated("a IS DISTINCT FROM ", "a", "");
        repeated("[", "a", "]");
        repeated("{", "a", "}");
        repeated("array[", "a", "]");
        repeated("a.", "a", "");
        repeated("a.b(", "a", ")");
        repeated("a .", "a", "");
        repeated("(a, ", "a", ")");
        repeated("TIMESTAMP ", "'2024-01-01'", "");
        repeated("INTERVAL ", "'1'", "");
        repeated("f(DISTINCT ", "a", ")");
        repeated("struct<a ", "int", ">");
        repeated("a::", "int64", "");
        repeated("a IN (a, (", "1", "))");
    }
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn long_chains_are_refused_or_flat() {
    for count in [10, 100, 199, 201, 900, 999, 1_001, 100_000] {
        for (first, next) in [
            ("a", " + a"),
            ("1", " + 1"),
            ("p", " AND p"),
            ("p", " OR p"),
            ("s", " || s"),
            ("a", " IS NULL"),
            ("a", "::int64"),
            ("a", " = a"),
            ("a", " IS DISTINCT FROM a"),
            ("a IN (1", ", 1"),
            ("coalesce(a", ", a"),
            ("CASE", " WHEN p THEN a"),
            ("a", " NOT NULL"),
            ("a", ".a"),
            ("s", " LIKE s"),
            ("a", " BETWEEN 1 AND 2"),
            ("a", " COLLATE a"),
            ("a", " AT TIME ZONE 'x'"),
        ] {
            survive(&format!("{first}{}", next.repeat(count)));
            survive(&format!("{first}{})", next.repeat(count)));
            survive(&format!("{first}{} END", next.repeat(count)));
        }
    }
}

#[test]
fn large_lists_are_fine_and_endless_texts_are_not() {
    let list: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    check(&format!("a IN ({})", list.join(", ")), "a: int64", "19999 | 20000", "bool: true | false");
    let long = format!("s = '{}'", "x".repeat(MAX_TEXT));
    assert!(Expr::parse(&long).unwrap_err().message.contains("bytes"));
    let complex = "p AND ".repeat(MAX_OPERATORS);
    assert!(Expr::parse(&complex).unwrap_err().message.contains("too complex"));
}

const WORDS: &[&str] = &[
    "a",
    "u",
    "x",
    "d",
    "s",
    "p",
    "ts",
    "ip",
    "zz",
    "1",
    "0",
    "-1",
    "2.5",
    "1e9",
    "99999999999999999999",
    "'text'",
    "''",
    "'2024-01-01'",
    "'10.0.0.1'",
    "'%e%'",
    "NULL",
    "TRUE",
    "FALSE",
    "(",
    ")",
    "(",
    ")",
    ",",
    ".",
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    "=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "::",
    "AND",
    "OR",
    "NOT",
    "IS",
    "NULL",
    "BETWEEN",
    "IN",
    "LIKE",
    "ILIKE",
    "ESCAPE",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CAST",
    "AS",
    "int64",
    "float64",
    "string",
    "decimal(5,1)",
    "timestamp(ms)",
    "bool",
    "DISTINCT",
    "FROM",
    "EXTRACT",
    "HOUR",
    "DATE_TRUNC",
    "'hour'",
    "TIMESTAMP",
    "COALESCE",
    "ABS",
    "ROUND",
    "SUBSTRING",
    "FOR",
    "TRIM",
    "BOTH",
    "CONCAT",
    "LOWER",
    "GREATEST",
    "NULLIF",
    "IF",
    "SELECT",
    "OVER",
    "[",
    "]",
    ";",
    "--",
    "\"",
    "?",
    "$1",
    "INTERVAL",
    "EXISTS",
    "VALUES",
    "TABLE",
    "ARRAY",
    "ALL",
    "ANY",
];

/// Expressions that mostly parse, so that binding and evaluation see nonsense too.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a",
        "u",
        "x",
        "d",
        "s",
        "p",
        "ts",
        "ip",
        "1",
        "0",
        "-1",
        "2.5",
        "'text'",
        "'2024-01-01'",
        "NULL",
        "TRUE",
        "9223372036854775807",
        "18446744073709551615",
        "0.001",
        "1e300",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 3, |inner| {
        let one = inner.clone();
        let two = (inner.clone(), inner.clone());
        let three = (inner.clone(), inner.clone(), inner);
        let unary = prop::sample::select(vec![
            "- %",
            "NOT %",
            "(%)",
            "% IS NULL",
            "% IS NOT TRUE",
            "abs(%)",
            "ceil(%)",
            "round(%, 1)",
            "round(%, -1)",
            "sqrt(%)",
            "lower(%)",
            "length(%)",
            "trim(%)",
            "CAST(% AS int64)",
            "CAST(% AS string)",
            "CAST(% AS decimal(5,1))",
            "CAST(% AS timestamp(ns))",
            "CAST(% AS uint64)",
            "date_trunc('month', %)",
            "EXTRACT(week FROM %)",
            "epoch_ns(%)",
            "sign(%)",
            "isnan(%)",
            "exp(%)",
            "CAST(% AS ip)",
            "CAST(% AS bool)",
        ]);
        let binary = prop::sample::select(vec![
            "% + %",
            "% - %",
            "% * %",
            "% / %",
            "% % %",
            "% = %",
            "% < %",
            "% >= %",
            "% AND %",
            "% OR %",
            "% || %",
            "% IS DISTINCT FROM %",
            "% LIKE %",
            "coalesce(%, %)",
            "nullif(%, %)",
            "greatest(%, %)",
            "substr(%, %)",
            "strpos(%, %)",
            "concat(%, %)",
            "power(%, %)",
        ]);
        let ternary = prop::sample::select(vec![
            "% BETWEEN % AND %",
            "% IN (%, %)",
            "CASE WHEN % THEN % ELSE % END",
            "if(%, %, %)",
            "substr(%, %, %)",
            "CASE % WHEN % THEN % END",
            "replace(%, %, %)",
            "least(%, %, %)",
            "% NOT IN (%, %)",
        ]);
        prop_oneof![
            (unary, one).prop_map(|(shape, a)| fill(shape, &[a])),
            (binary, two).prop_map(|(shape, (a, b))| fill(shape, &[a, b])),
            (ternary, three).prop_map(|(shape, (a, b, c))| fill(shape, &[a, b, c])),
        ]
    })
}

/// Puts the parts where the shape has `%`; `% % %` is the remainder of two.
fn fill(shape: &str, parts: &[String]) -> String {
    if shape == "% % %" {
        return format!("({} % {})", parts[0], parts[1]);
    }
    let mut parts = parts.iter();
    let mut out = String::from("(");
    for c in shape.chars() {
        match (c, parts.as_slice().first()) {
            ('%', Some(part)) => {
                out.push_str(part);
                parts.next();
            }
            (c, _) => out.push(c),
        }
    }
    out + ")"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 1_000 }))]

    #[test]
    fn any_text_is_an_expression_or_an_error(text in "\\PC{0,60}") {
        survive(&text);
    }

    #[test]
    fn any_bytes_are_an_expression_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        survive(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_words_are_an_expression_or_an_error(words in prop::collection::vec(prop::sample::select(WORDS), 0..30)) {
        survive(&words.join(" "));
        survive(&words.concat());
    }

    #[test]
    fn any_expression_evaluates_or_is_refused(text in expression()) {
        survive(&text);
    }
}
