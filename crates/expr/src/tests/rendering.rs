//! How errors of syntax look.

use expect_test::{Expect, expect};

use super::refused;

#[track_caller]
fn golden(expr: &str, expected: Expect) {
    expected.assert_eq(&refused(expr, "amount: float64, card: string, n: int64, p: bool, ts: timestamp(ms)"));
}

#[test]
fn what_is_incomplete() {
    golden(
        "",
        expect![[r#"
        error: an expression is missing
        1 | 
          | ^
    "#]],
    );
    golden(
        "amount >",
        expect![[r#"
        error: the expression is incomplete
        1 | amount >
          |         ^
        expected: an expression
    "#]],
    );
    golden(
        "(amount > 1",
        expect![[r#"
        error: the expression is incomplete
        1 | (amount > 1
          |            ^
        expected: )
    "#]],
    );
    golden(
        "amount > 1)",
        expect![[r#"
        error: the expression ends before )
        1 | amount > 1)
          |           ^
    "#]],
    );
    golden(
        "CASE WHEN p THEN 1",
        expect![[r#"
        error: the expression is incomplete
        1 | CASE WHEN p THEN 1
          |                   ^
        expected: END
    "#]],
    );
    golden(
        "amount BETWEEN 1",
        expect![[r#"
        error: the expression is incomplete
        1 | amount BETWEEN 1
          |                 ^
        expected: AND
    "#]],
    );
    golden(
        "card = 'open",
        expect![[r#"
        error: unterminated string literal
        1 | card = 'open
          |        ^^^^^
    "#]],
    );
    golden(
        "abs(",
        expect![[r#"
        error: the expression is incomplete
        1 | abs(
          |     ^
        expected: an expression
    "#]],
    );
}

#[test]
fn what_cannot_stand_there() {
    golden(
        "amount > > 1",
        expect![[r#"
        error: > cannot be here
        1 | amount > > 1
          |          ^
        expected: an expression
    "#]],
    );
    golden(
        "amount 5",
        expect![[r#"
        error: the expression ends before 5
        1 | amount 5
          |        ^
    "#]],
    );
    golden(
        "amount card",
        expect![[r#"
        error: the expression ends before card
        1 | amount card
          |        ^^^^
        hint: an operator is missing here
    "#]],
    );
    golden(
        "card 'x'",
        expect![[r#"
        error: the expression ends before 'x'
        1 | card 'x'
          |      ^^^
        hint: names are written without quotes or in "…"
    "#]],
    );
    golden(
        "amount > 1; DROP",
        expect![[r#"
        error: an expression ends before the semicolon
        1 | amount > 1; DROP
          |           ^
    "#]],
    );
    golden(
        "n IN ()",
        expect![[r#"
        error: ) cannot be here
        1 | n IN ()
          |       ^
        expected: an expression
    "#]],
    );
    golden(
        "amount > 1 AND\n  card = = 'x'",
        expect![[r#"
        error: = cannot be here
        2 |   card = = 'x'
          |          ^
        expected: an expression
    "#]],
    );
    golden(
        "n IS 5",
        expect![[r#"
        error: 5 cannot be here
        1 | n IS 5
          |      ^
        expected: NULL, TRUE, FALSE or DISTINCT FROM, with or without NOT
    "#]],
    );
}

#[test]
fn operators_of_other_languages() {
    golden(
        "n == 1",
        expect![[r#"
        error: == has no meaning here
        1 | n == 1
          |   ^^
        hint: equality is written =
    "#]],
    );
    golden(
        "p && p",
        expect![[r#"
        error: && has no meaning here
        1 | p && p
          |   ^^
        hint: conjunction is written AND
    "#]],
    );
    golden(
        "p | p",
        expect![[r#"
        error: | has no meaning here
        1 | p | p
          |   ^
        hint: disjunction is written OR, concatenation ||
    "#]],
    );
    golden(
        "!p",
        expect![[r#"
        error: ! has no meaning here
        1 | !p
          | ^
        hint: negation is written NOT, inequality <> or !=
    "#]],
    );
    golden(
        "n ^ 2",
        expect![[r#"
        error: ^ has no meaning here
        1 | n ^ 2
          |   ^
        hint: powers are written POWER(x, y)
    "#]],
    );
    golden(
        "n <=> 1",
        expect![[r#"
        error: <=> has no meaning here
        1 | n <=> 1
          |   ^^^
        hint: null-safe equality is written IS NOT DISTINCT FROM
    "#]],
    );
    golden(
        "card[1]",
        expect![[r#"
        error: [ has no meaning here
        1 | card[1]
          |     ^
        hint: members of an answer are reached with a point: card_1h.spent
    "#]],
    );
    golden(
        "`card` = 'x'",
        expect![[r#"
        error: ` has no meaning here
        1 | `card` = 'x'
          | ^
        hint: names are quoted with "…", strings with '…'
    "#]],
    );
    golden(
        "card ~~ 'x'",
        expect![[r#"
            error: ~~ has no meaning here
            1 | card ~~ 'x'
              |      ^^
        "#]],
    );
    golden(
        "n = ?",
        expect![[r#"
        error: ? has no meaning here
        1 | n = ?
          |     ^
    "#]],
    );
}

#[test]
fn syntax_of_other_databases() {
    golden(
        "n = (SELECT 1)",
        expect![[r#"
        error: an expression cannot hold a query
        1 | n = (SELECT 1)
          |      ^^^^^^
        hint: subqueries are not part of the language; join or enrich in an operator before
    "#]],
    );
    golden(
        "EXISTS (SELECT 1)",
        expect![[r#"
        error: an expression cannot hold a query
        1 | EXISTS (SELECT 1)
          |         ^^^^^^
        hint: subqueries are not part of the language; join or enrich in an operator before
    "#]],
    );
    golden(
        "ts > INTERVAL '1' HOUR",
        expect![[r#"
        error: the expression ends before '1'
        1 | ts > INTERVAL '1' HOUR
          |               ^^^
        hint: there are no intervals; compare EPOCH_MS(a) - EPOCH_MS(b) with a number
    "#]],
    );
    golden(
        "(n, n) = (1, 2)",
        expect![[r#"
            error: a list in parentheses is not part of the language of expressions
            1 | (n, n) = (1, 2)
              |  ^
            hint: lists come after IN: x IN (1, 2)
            error: a list in parentheses is not part of the language of expressions
            1 | (n, n) = (1, 2)
              |           ^
            hint: lists come after IN: x IN (1, 2)
        "#]],
    );
    golden(
        "ts AT TIME ZONE 'UTC'",
        expect![[r#"
        error: the expression ends before AT
        1 | ts AT TIME ZONE 'UTC'
          |    ^^
        hint: timestamps are UTC
    "#]],
    );
    golden(
        "n = ANY(1)",
        expect![[r#"
        error: there is no function ANY
        1 | n = ANY(1)
          |     ^^^
    "#]],
    );
    golden(
        "card SIMILAR TO 'x'",
        expect![[r#"
            error: the expression ends before SIMILAR
            1 | card SIMILAR TO 'x'
              |      ^^^^^^^
            hint: patterns are matched by LIKE and ILIKE, regular expressions by ~
        "#]],
    );
    golden(
        "sum(amount) OVER ()",
        expect![[r#"
        error: the aggregate sum cannot be inside an expression
        1 | sum(amount) OVER ()
          | ^^^
        hint: aggregates are the outputs of a query: SELECT sum(amount * 2) AS total FROM …
    "#]],
    );
    golden(
        "abs(n) OVER ()",
        expect![[r#"
        error: ABS is a function of one record
        1 | abs(n) OVER ()
          | ^^^
        hint: OVER, FILTER and WITHIN GROUP belong to queries
    "#]],
    );
    golden(
        "abs(DISTINCT n)",
        expect![[r#"
        error: ABS takes plain arguments
        1 | abs(DISTINCT n)
          | ^^^
    "#]],
    );
    golden(
        "abs(*)",
        expect![[r#"
        error: ABS takes no argument *
        1 | abs(*)
          | ^^^
        expected: expressions, split by commas
    "#]],
    );
    golden(
        "TIME '12:00'",
        expect![[r#"
        error: TIME literals are not part of the language
        1 | TIME '12:00'
          |      ^^^^^^^
    "#]],
    );
    golden(
        "TIMESTAMP 'noon'",
        expect![[r#"
        error: "noon" is no timestamp
        1 | TIMESTAMP 'noon'
          |           ^^^^^^
        expected: such as '2024-02-29', '2024-02-29 13:45:00' or '2024-02-29T13:45:00.25Z'
    "#]],
    );
    golden(
        "X'ff' = n",
        expect![[r#"
        error: X'ff' has no meaning here
        1 | X'ff' = n
          | ^^^^^
    "#]],
    );
    golden(
        "card LIKE 'x' ESCAPE '!!'",
        expect![[r#"
        error: ESCAPE takes one character
        1 | card LIKE 'x' ESCAPE '!!'
          |                      ^^^^
        expected: a text of one character, such as '!'
    "#]],
    );
    golden(
        "EXTRACT(fortnight FROM ts)",
        expect![[r#"
        error: fortnight cannot be here
        1 | EXTRACT(fortnight FROM ts)
          |         ^^^^^^^^^
        expected: year, quarter, month, week, day, hour, minute, second, millisecond, microsecond, dow, isodow, doy, isoyear or epoch
    "#]],
    );
    golden(
        "CAST(n AS (x))",
        expect![[r#"
        error: ( cannot be here
        1 | CAST(n AS (x))
          |           ^
        expected: a data type name
    "#]],
    );
    golden(
        "n::flaot",
        expect![[r#"
        error: there is no type flaot
        1 | n::flaot
          |    ^^^^^
        expected: bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns) or ip
    "#]],
    );
    golden(
        "card REGEXP 'x'",
        expect![[r#"
            error: the expression ends before REGEXP
            1 | card REGEXP 'x'
              |      ^^^^^^
            hint: patterns are matched by LIKE and ILIKE, regular expressions by ~
        "#]],
    );
    golden(
        "a. = 1",
        expect![[r#"
        error: a point is between two names
        1 | a. = 1
          |  ^
        expected: stream.field or field.member
    "#]],
    );
    golden(
        "a.b.c.d.e.f.g.h.i.j = 1",
        expect![[r#"
        error: a path has at most 8 points
        1 | a.b.c.d.e.f.g.h.i.j = 1
          |                  ^
    "#]],
    );
    golden(
        "payments.abs(n)",
        expect![[r#"
        error: functions are called by their name alone
        1 | payments.abs(n)
          |          ^^^
    "#]],
    );
    golden(
        "DECIMAL '1.5'",
        expect![[r#"
        error: DECIMAL literals are not part of the language
        1 | DECIMAL '1.5'
          |         ^^^^^
        hint: write CAST('1.5' AS decimal(38,9))
    "#]],
    );
    golden(
        "EXTRACT(century FROM ts)",
        expect![[r#"
        error: CENTURY is no part of a timestamp
        1 | EXTRACT(century FROM ts)
          |         ^^^^^^^
        expected: year, quarter, month, week, day, hour, minute, second, millisecond, microsecond, dow, isodow, doy, isoyear or epoch
    "#]],
    );
}
