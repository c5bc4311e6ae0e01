//! Every mistake of a text is reported, and none that only follows from another.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::hostile::random_text;
use super::{each_node, table};
use crate::ast::Node;
use crate::{Expr, Mistakes, Qualifier, SqlErrors};

fn mistakes(expr: &str, qualifier: Qualifier<'_>) -> Result<(), SqlErrors> {
    let (schema, _) = table(
        "amount: float64, card: string, n: int64, p: bool, ts: timestamp(ms), ip: ip, d: decimal(76,40)",
        "",
    );
    let mut mistakes = Mistakes::new();
    if let Some(read) = Expr::read(expr, &mut mistakes) {
        read.check(&schema, qualifier, &mut mistakes);
    }
    mistakes.finish()
}

/// A line per mistake: what it marks and what it says.
#[track_caller]
fn lines(expr: &str, expected: Expect) {
    let errors = mistakes(expr, Qualifier::None).unwrap_err();
    let line = |error: &crate::SqlError| {
        format!("{}: {error}\n", &expr[error.span.clone().expect("each mistake has a place")])
    };
    expected.assert_eq(&errors.iter().map(line).collect::<String>());
}

#[test]
fn each_unknown_name_is_a_mistake() {
    lines(
        "amuont > 1 AND crad = 'x' OR nn + 1 < 2",
        expect![[r#"
        amuont: there is no field "amuont"
        crad: there is no field "crad"
        nn: there is no field "nn"
    "#]],
    );
    lines(
        "upcase(crad) = 'x' AND lower(crad) = 'x'",
        expect![[r#"
        upcase: there is no function upcase
        crad: there is no field "crad"
        crad: there is no field "crad"
    "#]],
    );
    lines(
        "round(amuont, nn) > foo(bar(crad), n)",
        expect![[r#"
        amuont: there is no field "amuont"
        nn: there is no field "nn"
        foo: there is no function foo
        bar: there is no function bar
        crad: there is no field "crad"
    "#]],
    );
    lines(
        "CAST(amuont AS intt) + EXTRACT(century FROM tss)",
        expect![[r#"
        amuont: there is no field "amuont"
        intt: there is no type intt
        century: CENTURY is no part of a timestamp
        tss: there is no field "tss"
    "#]],
    );
}

#[test]
fn each_operand_of_a_wrong_type_is_a_mistake() {
    lines(
        "amount AND card AND p",
        expect![[r#"
        amount: AND takes a condition, not float64
        card: AND takes a condition, not string
    "#]],
    );
    lines(
        "NOT amount OR -card > 1",
        expect![[r#"
        amount: NOT takes a condition, not float64
        -card: string has no negative
    "#]],
    );
    lines(
        "replace(amount, n, 'x') LIKE n",
        expect![[r#"
        amount: REPLACE takes a string, not float64
        n: REPLACE takes a string, not int64
        n: LIKE takes a string, not int64
    "#]],
    );
    lines(
        "ip IN ('10.0.0.x', '10.0.0.1', 'ten')",
        expect![[r#"
        '10.0.0.x': "10.0.0.x" is no address
        'ten': "ten" is no address
    "#]],
    );
    lines(
        "ts BETWEEN 'yesterday' AND 'today'",
        expect![[r#"
        'yesterday': "yesterday" is no timestamp
        'today': "today" is no timestamp
    "#]],
    );
    lines(
        "power(card, p) + sqrt(ts)",
        expect![[r#"
        card: a number is expected, not string
        p: a number is expected, not bool
        ts: a number is expected, not timestamp(ms)
    "#]],
    );
    lines(
        "substr(n, amount, p)",
        expect![[r#"
        n: SUBSTR takes a string, not int64
        amount: SUBSTR counts in int64, not float64
        p: SUBSTR counts in int64, not bool
    "#]],
    );
    lines(
        "IF(n, card, amount)",
        expect![[r#"
        n: IF takes a condition, not int64
        card, amount: string and float64 cannot be mixed in IF
    "#]],
    );
    lines(
        "CASE WHEN n THEN card WHEN amount THEN 1 END",
        expect![[r#"
        n: WHEN takes a condition, not int64
        card WHEN amount THEN 1: string and int64 cannot be mixed in CASE
        amount: WHEN takes a condition, not float64
    "#]],
    );
    lines(
        "CASE card WHEN 1 THEN 'a' WHEN 2 THEN 'b' END",
        expect![[r#"
        card WHEN 1: string and int64 cannot be compared
        card WHEN 1 THEN 'a' WHEN 2: string and int64 cannot be compared
    "#]],
    );
    lines(
        "card || n || lower(n) || abs(card)",
        expect![[r#"
        n: LOWER takes a string, not int64
        card: a number is expected, not string
    "#]],
    );
}

#[test]
fn one_mistake_does_not_cause_another() {
    for text in [
        "missing + 1 > 2",
        "-missing || 'x'",
        "lower(-missing)",
        "coalesce(missing, 'x') > 1",
        "coalesce(missing, NULL) = 'x'",
        "nullif(missing, 1) || 'x'",
        "greatest(missing, missing) = ip",
        "IF(p, missing, NULL) AND p",
        "CASE missing WHEN 1 THEN 2 END + 1",
        "CASE WHEN p THEN missing END = 'x'",
        "round(amount, missing) || ''",
        "round(missing, 2) * d",
        "date_trunc(missing, ts) > ts",
        "date_trunc('day', missing) > ts",
        "missing * d / d",
        "missing IN (1, NULL)",
        "missing IN ('a', NULL) AND missing IS NULL",
        "ts IN (missing, NULL)",
        "missing BETWEEN NULL AND ts",
        "card LIKE missing ESCAPE '!'",
        "foo(amount) AND foo(amount) || 'x' = card",
        "CAST(card AS nothing) + 1 > ts",
        "(card ~ missing) AND p",
        "abs(card) || ts",
        "(card + 1) = ip",
        "(-card) AND p",
    ] {
        let errors = mistakes(text, Qualifier::None).unwrap_err();
        let wrong: std::collections::BTreeSet<_> =
            errors.iter().map(|error| text[error.span.clone().unwrap()].to_owned()).collect();
        assert_eq!(wrong.len(), 1, "{text}\n{}", errors.render(text));
    }
}

#[test]
fn a_stream_that_is_not_known_may_stand_before_any_name() {
    let any = |text| mistakes(text, Qualifier::Any);
    assert_eq!(any("paymnts.amount > 1 AND paymnts.ts > '2024-01-01'"), Ok(()));
    assert!(any("paymnts.amount || 'x' + 1").is_err(), "the field's type is known");
    assert_eq!(
        any("other.missing > 1").map_err(|errors| errors.to_string()),
        Ok(()),
        "it may be of the other stream"
    );
    assert!(any("missing > 1").is_err());
    assert!(any("amount.missing > 1").is_err(), "amount is a field");
}

#[test]
fn a_wrong_syntax_ends_the_text() {
    lines(
        "missing > 1 AND foo(amount",
        expect![[r#"
        : the expression is incomplete
    "#]],
    );
}

proptest! {
    /// Of any expression: each field that is made unknown is one mistake, and no other comes of it.
    #[test]
    fn unknown_fields_are_as_many_mistakes(seed in 1..u64::MAX, chosen in any::<u64>()) {
        let (text, fields) = random_text(seed);
        let (schema, _) = table(fields, "");
        let mut parsed = Expr::parse(&text).unwrap_or_else(|error| panic!("{}", error.render(&text)));
        prop_assume!(parsed.bind(&schema).is_ok());
        let (mut seen, mut missing) = (0_u32, 0_usize);
        each_node(&mut parsed, &mut |expr| {
            if let Node::Field(path) = &mut expr.node {
                if chosen.rotate_right(seen) & 1 == 1 {
                    *path = vec![format!("missing_{seen}")];
                    missing += 1;
                }
                seen += 1;
            }
        });
        let found = parsed.bind(&schema).map_or_else(|errors| errors.iter().count(), |_| 0);
        prop_assume!(missing <= 100);
        prop_assert_eq!(found, missing, "{}", parsed);
    }
}
