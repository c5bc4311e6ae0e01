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
            assert!(error.iter().all(|error| !error.message.is_empty()));
            error.render(text);
        }
        Ok(parsed) => {
            // Canonical text has more parentheses: at the limits it is too deep itself.
            let canonical = parsed.to_string();
            match Expr::parse(&canonical) {
                Ok(again) => assert_eq!(again, parsed, "{canonical}"),
                Err(error) => assert!(error.first().message.contains("too"), "{error}: {canonical}"),
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
    assert!(Expr::parse(&long).unwrap_err().first().message.contains("bytes"));
    let complex = "p AND ".repeat(MAX_OPERATORS);
    assert!(Expr::parse(&complex).unwrap_err().first().message.contains("too complex"));
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

/// Random expressions that bind: they have the requested type.
struct Typed {
    state: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Integer,
    Float,
    Decimal,
    Text,
    Bool,
    Time,
}

impl Typed {
    /// A number below `limit` (xorshift, so that a seed is one expression for ever).
    fn pick(&mut self, limit: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % limit
    }

    fn one<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.pick(choices.len())]
    }

    fn number(&mut self, depth: usize) -> String {
        let kind = [Kind::Integer, Kind::Float, Kind::Decimal][self.pick(3)];
        self.expr(kind, depth)
    }

    fn any(&mut self, depth: usize) -> (Kind, String) {
        let kinds = [Kind::Integer, Kind::Float, Kind::Decimal, Kind::Text, Kind::Bool, Kind::Time];
        let kind = kinds[self.pick(kinds.len())];
        (kind, self.expr(kind, depth))
    }

    fn leaf(&mut self, kind: Kind) -> String {
        let choices: &[&str] = match kind {
            Kind::Integer => {
                &["a", "b", "a", "b", "0", "1", "-7", "9223372036854775807", "CAST(NULL AS int64)"]
            }
            Kind::Float => &["x", "y", "x", "y", "0.0", "-0.0", "2.5", "1e308", "CAST('NaN' AS float64)"],
            Kind::Decimal => &["d", "e", "d", "e", "CAST(1.05 AS decimal(5,2))", "CAST(0 AS decimal(40,10))"],
            Kind::Text => &["s", "t", "s", "t", "''", "'ab'", "'äöü'", "CAST(NULL AS string)"],
            Kind::Bool => &["p", "q", "TRUE", "FALSE", "CAST(NULL AS bool)"],
            Kind::Time => &["ts", "us", "TIMESTAMP '2024-02-29 23:59:59.999'", "DATE '1969-12-31'"],
        };
        self.one(choices).to_owned()
    }

    fn expr(&mut self, kind: Kind, depth: usize) -> String {
        if depth == 0 || self.pick(5) == 0 {
            return self.leaf(kind);
        }
        let depth = depth - 1;
        match self.pick(8) {
            0 => {
                let (condition, a, b) =
                    (self.expr(Kind::Bool, depth), self.expr(kind, depth), self.expr(kind, depth));
                return format!("CASE WHEN {condition} THEN {a} ELSE {b} END");
            }
            1 => {
                let (function, a, b) = (
                    self.one(&["coalesce", "nullif", "greatest", "least"]),
                    self.expr(kind, depth),
                    self.expr(kind, depth),
                );
                return format!("{function}({a}, {b})");
            }
            _ => {}
        }
        match kind {
            Kind::Integer | Kind::Float | Kind::Decimal => self.arithmetic(kind, depth),
            Kind::Text => match self.pick(6) {
                0 => format!("({} || {})", self.expr(kind, depth), self.any(depth).1),
                1 => format!("concat({}, {})", self.any(depth).1, self.any(depth).1),
                2 => {
                    format!("{}({})", self.one(&["lower", "upper", "trim", "ltrim"]), self.expr(kind, depth))
                }
                3 => format!(
                    "substr({}, {}, {})",
                    self.expr(kind, depth),
                    self.one(&["a", "2", "-1"]),
                    self.one(&["b", "1"])
                ),
                4 => format!("replace({}, {}, {})", self.expr(kind, depth), self.leaf(kind), self.leaf(kind)),
                _ => format!("CAST({} AS string)", self.any(depth).1),
            },
            Kind::Bool => self.condition(depth),
            Kind::Time => match self.pick(3) {
                0 => format!(
                    "date_trunc('{}', {})",
                    self.one(&["year", "week", "day", "hour", "second"]),
                    self.expr(kind, depth)
                ),
                1 => format!(
                    "CAST({} AS timestamp({}))",
                    self.expr(kind, depth),
                    self.one(&["s", "ms", "us", "ns"])
                ),
                _ => format!("CAST({} AS timestamp(ms))", self.expr(Kind::Integer, depth)),
            },
        }
    }

    fn arithmetic(&mut self, kind: Kind, depth: usize) -> String {
        let operand = |this: &mut Self| match (kind, this.pick(3)) {
            (Kind::Float, _) => this.number(depth),
            (Kind::Decimal, 0) => this.expr(Kind::Integer, depth),
            _ => this.expr(kind, depth),
        };
        match (kind, self.pick(6)) {
            (Kind::Integer, 0) => format!("length({})", self.expr(Kind::Text, depth)),
            (Kind::Integer, 1) => format!(
                "EXTRACT({} FROM {})",
                self.one(&["week", "doy", "hour", "epoch", "year"]),
                self.expr(Kind::Time, depth)
            ),
            (Kind::Integer, 2) => format!("CAST({} AS int64)", self.number(depth)),
            (Kind::Float, 0) => {
                format!("{}({})", self.one(&["sqrt", "ln", "exp", "log10"]), self.number(depth))
            }
            (Kind::Float, 1) => format!("power({}, {})", self.number(depth), self.number(depth)),
            (Kind::Float, 2) => format!("CAST({} AS float64)", self.number(depth)),
            // Their own type after each step: chains of products would leave the 76 digits.
            (Kind::Decimal, _) => {
                let op = self.one(&["+", "-", "*", "/", "%"]);
                let (a, b) = (operand(self), self.expr(kind, depth));
                let to = self.one(&["decimal(12,3)", "decimal(38,9)", "decimal(50,4)"]);
                format!("CAST({a} {op} CAST({b} AS decimal(20,4)) AS {to})")
            }
            (_, 3) => {
                format!("{}({})", self.one(&["abs", "ceil", "floor", "sign", "-"]), self.expr(kind, depth))
            }
            (_, 4) => format!("round({}, {})", self.expr(kind, depth), self.one(&["0", "2", "-1", "-20"])),
            (_, _) => format!(
                "({} {} {})",
                operand(self),
                self.one(&["+", "-", "*", "/", "%"]),
                self.expr(kind, depth)
            ),
        }
    }

    fn condition(&mut self, depth: usize) -> String {
        let compare = |this: &mut Self| {
            this.one(&["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
        };
        let negation = |this: &mut Self| this.one(&["", "NOT "]);
        match self.pick(10) {
            0 => format!("({} AND {})", self.expr(Kind::Bool, depth), self.expr(Kind::Bool, depth)),
            1 => format!("({} OR {})", self.expr(Kind::Bool, depth), self.expr(Kind::Bool, depth)),
            2 => format!("(NOT {})", self.expr(Kind::Bool, depth)),
            3 => format!("({} {} {})", self.number(depth), compare(self), self.number(depth)),
            4 => {
                let (kind, a) = self.any(depth);
                format!("({a} {} {})", compare(self), self.expr(kind, depth))
            }
            5 => format!(
                "({} {}LIKE {})",
                self.expr(Kind::Text, depth),
                negation(self),
                self.one(&["t", "'%b'", "'_'", "s"])
            ),
            6 => format!("({} IS {}NULL)", self.any(depth).1, negation(self)),
            7 => format!(
                "({} IS {}{})",
                self.expr(Kind::Bool, depth),
                negation(self),
                self.one(&["TRUE", "FALSE"])
            ),
            8 => {
                let (kind, a) = self.any(depth);
                let list = [self.expr(kind, depth), self.leaf(kind), self.leaf(kind)];
                format!("({a} {}IN ({}))", negation(self), list.join(", "))
            }
            _ => {
                let (kind, a) = self.any(depth);
                format!("({a} {}BETWEEN {} AND {})", negation(self), self.expr(kind, depth), self.leaf(kind))
            }
        }
    }
}

/// A thousand cases, or more where the environment asks for them.
fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: config.cases.max(500), ..config }
}

/// An expression that is well typed, and the fields of the table that it is over.
pub(super) fn random_text(seed: u64) -> (String, &'static str) {
    (Typed { state: seed }.any(4).1, RANDOM_FIELDS)
}

const RANDOM_FIELDS: &str = "a: int64, b: int64, x: float64, y: float64, d: decimal(10,2), e: decimal(45,5), \
    s: string, t: string, p: bool, q: bool, ts: timestamp(ms), us: timestamp(us)";

proptest! {
    #![proptest_config(config())]

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
    fn rows_and_constants_agree_for_any_expression(seed in 1..u64::MAX) {
        let (text, fields) = random_text(seed);
        let (schema, records) = table(
            fields,
            "1, 2, 0.5, -3.25, 1.25, 0.00001, 'ab', 'b', true, false, 0, 1700000000000001 \
             | null, null, null, null, null, null, null, null, null, null, null, null \
             | 9223372036854775807, -1, NaN, inf, 99999999.99, -9999999999999999999999999999999999999999.99999, '', 'ß%', false, false, -1, -1 \
             | -9223372036854775808, 0, -0.0, 1e300, -0.01, 0, 'ab', null, true, null, 9223372036854775807, -9223372036854775808 \
             | 7, 7, 7, null, 0, 7, ' x ', ' x ', null, true, 1709251199999, 1709251199999000",
        );
        let parsed = Expr::parse(&text).unwrap_or_else(|error| panic!("{}", error.render(&text)));
        if let Err(error) = parsed.bind(&schema) {
            // A decimal may run out of digits; nothing else may be wrong.
            prop_assert!(error.first().message.contains("digits after the point"), "{}", error.render(&text));
        } else {
            super::agree(&parsed, &schema, &records);
        }
    }
}
