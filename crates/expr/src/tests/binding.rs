//! How errors of names and types look.

use expect_test::{Expect, expect};

use super::refused;

#[track_caller]
fn golden(expr: &str, expected: Expect) {
    let fields =
        "amount: float64, card: string, n: int64, p: bool, ts: timestamp(ms), ip: ip, d: decimal(76,40)";
    expected.assert_eq(&refused(expr, fields));
}

#[test]
fn names() {
    golden(
        "amout > 1",
        expect![[r#"
        error: there is no field "amout"
        1 | amout > 1
          | ^^^^^
        hint: did you mean "amount"?
    "#]],
    );
    golden(
        "Card = 'x'",
        expect![[r#"
        error: there is no field "Card"
        1 | Card = 'x'
          | ^^^^
        hint: did you mean "card"? the case of names counts
    "#]],
    );
    golden(
        "zebra = 1",
        expect![[r#"
        error: there is no field "zebra"
        1 | zebra = 1
          | ^^^^^
        hint: the fields are amount, card, n, p, ts, ip, d
    "#]],
    );
    golden(
        "payments.amount > 1",
        expect![[r#"
            error: there is no field "payments.amount"
            1 | payments.amount > 1
              | ^^^^^^^^^^^^^^^
            hint: "payments" is neither a field nor the stream that is read; write amount
        "#]],
    );
    golden(
        "card.x = 1",
        expect![[r#"
        error: "card" is string and has no members
        1 | card.x = 1
          | ^^^^^^
    "#]],
    );
    golden(
        "lenght(card) > 1",
        expect![[r#"
        error: there is no function lenght
        1 | lenght(card) > 1
          | ^^^^^^
        hint: did you mean LENGTH?
    "#]],
    );
    golden(
        "frobnicate(card)",
        expect![[r#"
        error: there is no function frobnicate
        1 | frobnicate(card)
          | ^^^^^^^^^^
    "#]],
    );
    golden(
        "sum(amount) > 1",
        expect![[r#"
        error: the aggregate sum cannot be inside an expression
        1 | sum(amount) > 1
          | ^^^
        hint: aggregates are the outputs of a query: SELECT sum(amount * 2) AS total FROM …
    "#]],
    );
    golden(
        "now() > ts",
        expect![[r#"
        error: there is no function now
        1 | now() > ts
          | ^^^
        hint: answers are a function of the log, so an expression has no clock and no chance; use a field
    "#]],
    );
    golden(
        "position('a' IN card) > 1",
        expect![[r#"
        error: there is no function position
        1 | position('a' IN card) > 1
          | ^^^^^^^^
        hint: STRPOS(text, wanted) finds a text in another
    "#]],
    );
    golden(
        "CAST(n AS flaot64)",
        expect![[r#"
        error: there is no type flaot64
        1 | CAST(n AS flaot64)
          |           ^^^^^^^
        expected: bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns) or ip
        hint: did you mean float64?
    "#]],
    );
}

#[test]
fn comparisons() {
    golden(
        "amount > '5'",
        expect![[r#"
        error: float64 and string cannot be compared
        1 | amount > '5'
          | ^^^^^^^^^^^^
        hint: numbers are written without quotes
    "#]],
    );
    golden(
        "card = 5",
        expect![[r#"
        error: string and int64 cannot be compared
        1 | card = 5
          | ^^^^^^^^
        hint: CAST(… AS int64) reads a number from a text
    "#]],
    );
    golden(
        "card = n",
        expect![[r#"
        error: string and int64 cannot be compared
        1 | card = n
          | ^^^^^^^^
        hint: CAST(… AS int64) reads a number from a text
    "#]],
    );
    golden(
        "ts > 5",
        expect![[r#"
        error: timestamp(ms) and int64 cannot be compared
        1 | ts > 5
          | ^^^^^^
        hint: EPOCH_MS(ts) is a number; TIMESTAMP '2024-02-29 13:45' is a timestamp
    "#]],
    );
    golden(
        "ts > 'yesterday'",
        expect![[r#"
        error: "yesterday" is no timestamp
        1 | ts > 'yesterday'
          |      ^^^^^^^^^^^
        expected: such as '2024-02-29', '2024-02-29 13:45:00' or '2024-02-29T13:45:00.25Z'
    "#]],
    );
    golden(
        "ts > card",
        expect![[r#"
        error: timestamp(ms) and string cannot be compared
        1 | ts > card
          | ^^^^^^^^^
        hint: CAST(… AS timestamp(us)) or CAST(… AS ip) reads a text
    "#]],
    );
    golden(
        "ip = '10.0.0'",
        expect![[r#"
        error: "10.0.0" is no address
        1 | ip = '10.0.0'
          |      ^^^^^^^^
        expected: such as '10.0.0.1' or '2001:db8::1'
    "#]],
    );
    golden(
        "ip = card",
        expect![[r#"
        error: ip and string cannot be compared
        1 | ip = card
          | ^^^^^^^^^
        hint: CAST(… AS timestamp(us)) or CAST(… AS ip) reads a text
    "#]],
    );
    golden(
        "p = 1",
        expect![[r#"
        error: bool and int64 cannot be compared
        1 | p = 1
          | ^^^^^
    "#]],
    );
    golden(
        "n IN (1, 'x')",
        expect![[r#"
        error: int64 and string cannot be compared
        1 | n IN (1, 'x')
          | ^^^^^^^^^^^^
        hint: numbers are written without quotes
    "#]],
    );
    golden(
        "n BETWEEN 1 AND 'x'",
        expect![[r#"
        error: int64 and string cannot be compared
        1 | n BETWEEN 1 AND 'x'
          | ^^^^^^^^^^^^^^^^^^^
        hint: numbers are written without quotes
    "#]],
    );
    golden(
        "n < 1 < 2",
        expect![[r#"
        error: bool and int64 cannot be compared
        1 | n < 1 < 2
          | ^^^^^^^^^
    "#]],
    );
}

#[test]
fn operands() {
    golden(
        "card + 'x'",
        expect![[r#"
        error: operator + takes numbers, not string
        1 | card + 'x'
          | ^^^^
        expected: int64, uint64, float64 or decimal
        hint: texts are joined with ||
    "#]],
    );
    golden(
        "ts - ts",
        expect![[r#"
        error: operator - takes numbers, not timestamp(ms)
        1 | ts - ts
          | ^^
        expected: int64, uint64, float64 or decimal
        hint: take the difference of EPOCH_MS(…) or EPOCH_US(…), which are int64
    "#]],
    );
    golden(
        "n + p",
        expect![[r#"
        error: operator + takes numbers, not bool
        1 | n + p
          |     ^
        expected: int64, uint64, float64 or decimal
    "#]],
    );
    golden(
        "-card",
        expect![[r#"
        error: string has no negative
        1 | -card
          | ^^^^^
        expected: a number
    "#]],
    );
    golden(
        "NOT n",
        expect![[r#"
        error: NOT takes a condition, not int64
        1 | NOT n
          |     ^
        expected: bool
        hint: compare the number: x <> 0
    "#]],
    );
    golden(
        "p AND amount",
        expect![[r#"
        error: AND takes a condition, not float64
        1 | p AND amount
          |       ^^^^^^
        expected: bool
        hint: compare the number: x <> 0
    "#]],
    );
    golden(
        "n || n",
        expect![[r#"
        error: || joins texts, not int64
        1 | n || n
          | ^^^^^^
        hint: CAST(x AS string) makes one of its operands a text
    "#]],
    );
    golden(
        "n LIKE '1%'",
        expect![[r#"
        error: LIKE takes a string, not int64
        1 | n LIKE '1%'
          | ^
        hint: CAST(x AS string) makes it one
    "#]],
    );
    golden(
        "d * d",
        expect![[r#"
        error: decimal(76,40) * decimal(76,40) has more than 76 digits after the point
        1 | d * d
          | ^^^^^
        hint: CAST one side to a decimal with a smaller scale
    "#]],
    );
    golden(
        "NULL",
        expect![[r#"
        error: this NULL has no type
        1 | NULL
          | ^^^^
        hint: write CAST(NULL AS float64), or another type
    "#]],
    );
    golden(
        "CASE WHEN p THEN 1 ELSE 'x' END",
        expect![[r#"
        error: int64 and string cannot be mixed in CASE
        1 | CASE WHEN p THEN 1 ELSE 'x' END
          |                  ^^^^^^^^^^
        hint: numbers are written without quotes
    "#]],
    );
    golden(
        "CASE WHEN n THEN 1 END",
        expect![[r#"
        error: WHEN takes a condition, not int64
        1 | CASE WHEN n THEN 1 END
          |           ^
        expected: bool
        hint: compare the number: x <> 0
    "#]],
    );
    golden(
        "coalesce(NULL, NULL)",
        expect![[r#"
        error: this NULL has no type
        1 | coalesce(NULL, NULL)
          | ^^^^^^^^^^^^^^^^^^^^
        hint: write CAST(NULL AS float64), or another type
    "#]],
    );
}

#[test]
fn arguments() {
    golden(
        "abs()",
        expect![[r#"
        error: ABS does not take 0 arguments
        1 | abs()
          | ^^^
        expected: ABS(number)
    "#]],
    );
    golden(
        "abs(n, n)",
        expect![[r#"
        error: ABS does not take 2 arguments
        1 | abs(n, n)
          | ^^^^^^^^^
        expected: ABS(number)
    "#]],
    );
    golden(
        "abs(card)",
        expect![[r#"
        error: a number is expected, not string
        1 | abs(card)
          |     ^^^^
        expected: ABS(number)
    "#]],
    );
    golden(
        "lower(n)",
        expect![[r#"
        error: LOWER takes a string, not int64
        1 | lower(n)
          |       ^
        hint: CAST(x AS string) makes it one
    "#]],
    );
    golden(
        "substr(card, amount)",
        expect![[r#"
        error: SUBSTR counts in int64, not float64
        1 | substr(card, amount)
          |              ^^^^^^
        expected: SUBSTR(text, from[, count])
    "#]],
    );
    golden(
        "round(amount, n)",
        expect![[r#"
        error: the digits of ROUND are a constant integer
        1 | round(amount, n)
          |               ^
        expected: ROUND(number[, digits])
    "#]],
    );
    golden(
        "date_trunc(card, ts)",
        expect![[r#"
        error: the unit of DATE_TRUNC is a text in quotes
        1 | date_trunc(card, ts)
          |            ^^^^
        expected: DATE_TRUNC('hour', timestamp)
    "#]],
    );
    golden(
        "date_trunc('hours', n)",
        expect![[r#"
        error: DATE_TRUNC takes a timestamp, not int64
        1 | date_trunc('hours', n)
          |                     ^
        hint: CAST(x AS timestamp(ms)) reads milliseconds since 1970 from an int64, or a text
    "#]],
    );
    golden(
        "date_trunc('horu', ts)",
        expect![[r#"
        error: horu is no part of a timestamp
        1 | date_trunc('horu', ts)
          |            ^^^^^^
        expected: year, quarter, month, week, day, hour, minute, second, millisecond, microsecond, dow, isodow, doy, isoyear or epoch
        hint: did you mean HOUR?
    "#]],
    );
    golden(
        "date_trunc('dow', ts)",
        expect![[r#"
        error: a timestamp cannot be cut at DOW
        1 | date_trunc('dow', ts)
          |            ^^^^^
        expected: year, quarter, month, week, day, hour, minute, second, millisecond or microsecond
    "#]],
    );
    golden(
        "EXTRACT(hour FROM n)",
        expect![[r#"
        error: EXTRACT takes a timestamp, not int64
        1 | EXTRACT(hour FROM n)
          |                   ^
        hint: CAST(x AS timestamp(ms)) reads milliseconds since 1970 from an int64, or a text
    "#]],
    );
    golden(
        "coalesce(card, n)",
        expect![[r#"
        error: string and int64 cannot be mixed in COALESCE
        1 | coalesce(card, n)
          |          ^^^^^^^
        hint: CAST(… AS int64) reads a number from a text
    "#]],
    );
    golden(
        "card LIKE card ESCAPE '!'",
        expect![[r#"
        error: ESCAPE needs a constant pattern
        1 | card LIKE card ESCAPE '!'
          |           ^^^^
    "#]],
    );
    golden(
        "mod(n)",
        expect![[r#"
        error: MOD does not take 1 argument
        1 | mod(n)
          | ^^^^^^
        expected: MOD(number, divisor)
    "#]],
    );
}

#[test]
fn functions_of_patterns_parts_and_places() {
    for (text, expected) in [
        (
            "card ~ card",
            expect![[r#"
            error: a regular expression is a constant text
            1 | card ~ card
              |        ^^^^
            hint: LIKE and ILIKE take patterns that come with records
        "#]],
        ),
        (
            "card ~ 1",
            expect![[r#"
            error: ~ takes a string, not int64
            1 | card ~ 1
              |        ^
            hint: CAST(x AS string) makes it one
        "#]],
        ),
        (
            "n ~ '1'",
            expect![[r#"
            error: ~ takes a string, not int64
            1 | n ~ '1'
              | ^
            hint: CAST(x AS string) makes it one
        "#]],
        ),
        (
            "regexp_like(card)",
            expect![[r#"
            error: REGEXP_LIKE does not take 1 argument
            1 | regexp_like(card)
              | ^^^^^^^^^^^^^^^^^
            expected: REGEXP_LIKE(text, 'pattern')
        "#]],
        ),
        (
            "regexp_extract(card, 'a', n)",
            expect![[r#"
            error: the group of REGEXP_EXTRACT is a constant number
            1 | regexp_extract(card, 'a', n)
              |                           ^
            expected: REGEXP_EXTRACT(text, 'pattern'[, group])
        "#]],
        ),
        (
            "regexp_extract(card, 'a', 1)",
            expect![[r#"
            error: the pattern has no group 1
            1 | regexp_extract(card, 'a', 1)
              |                           ^
            expected: 0 for all of it
        "#]],
        ),
        (
            "regexp_extract(card, '(a)(b)', 3)",
            expect![[r#"
            error: the pattern has no group 3
            1 | regexp_extract(card, '(a)(b)', 3)
              |                                ^
            expected: 0 for all of it, or 1 to 2
        "#]],
        ),
        (
            "regexp_matches(card, 'a')",
            expect![[r#"
            error: there is no function regexp_matches
            1 | regexp_matches(card, 'a')
              | ^^^^^^^^^^^^^^
            hint: text ~ 'pattern' or REGEXP_LIKE says whether a text matches, REGEXP_EXTRACT(text, 'pattern'[, group]) what
        "#]],
        ),
        (
            "left(card)",
            expect![[r#"
            error: LEFT does not take 1 argument
            1 | left(card)
              | ^^^^^^^^^^
            expected: LEFT(text, count)
        "#]],
        ),
        (
            "right(card, 1.5)",
            expect![[r#"
            error: RIGHT counts in int64, not float64
            1 | right(card, 1.5)
              |             ^^^
            expected: RIGHT(text, count)
        "#]],
        ),
        (
            "split_part(card, ',', 'x')",
            expect![[r#"
            error: SPLIT_PART counts in int64, not string
            1 | split_part(card, ',', 'x')
              |                       ^^^
            expected: SPLIT_PART(text, delimiter, number)
        "#]],
        ),
        (
            "haversine(n, n, n)",
            expect![[r#"
            error: HAVERSINE does not take 3 arguments
            1 | haversine(n, n, n)
              | ^^^^^^^^^^^^^^^^^^
            expected: HAVERSINE(lat1, lon1, lat2, lon2)
        "#]],
        ),
        (
            "pi(1)",
            expect![[r#"
            error: PI does not take 1 argument
            1 | pi(1)
              | ^^^^^
            expected: PI()
        "#]],
        ),
        (
            "sin(card)",
            expect![[r#"
            error: a number is expected, not string
            1 | sin(card)
              |     ^^^^
            expected: SIN(radians)
        "#]],
        ),
    ] {
        golden(text, expected);
    }
}
