//! Queries and expressions: mistakes point into their text, wherever YAML put it.

use expect_test::expect;

use super::{check, check_example};

#[test]
fn mistakes_point_into_the_query() {
    check_example(
        "sum(amount)",
        "sum(amuont)",
        expect![[r#"
        error: query "card_1h": there is no field "amuont"
          --> job.yaml:19:27
           |
        19 |       card_1h: SELECT sum(amuont) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR
           |                           ^^^^^^
           = hint: did you mean "amount"?
    "#]],
    );
    check_example(
        "sum(amount)",
        "summ(amount)",
        expect![[r#"
        error: query "card_1h": there is no aggregate summ
          --> job.yaml:19:23
           |
        19 |       card_1h: SELECT summ(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR
           |                       ^^^^
           = hint: did you mean sum?
    "#]],
    );
    check_example(
        "GROUP BY card OVER SLIDING 1 HOUR",
        "GROUP BY card",
        expect![[r#"
        error: query "card_1h": the window is missing
          --> job.yaml:19:86
           |
        19 |       card_1h: SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card
           |                                                                                      ^
           = hint: add OVER SLIDING 1 HOUR
    "#]],
    );
    check_example(
        "FROM payments WHERE",
        "FROM payment WHERE",
        expect![[r#"
        error: query "shop_5m": operator "features" does not read "payment"
          --> job.yaml:20:48
           |
        20 |       shop_5m: SELECT avg(amount) AS mean FROM payment WHERE amount > 1 GROUP BY merchant OVER SLIDING 5 MINUTES DELAYED BY 1 MINUTE
           |                                                ^^^^^^^
           = expected: FROM payments
    "#]],
    );
}

#[test]
fn all_mistakes_of_a_query_are_told() {
    check_example(
        "SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR",
        "SELECT summ(amuont) AS spent, avg(card) FROM payment WHERE payment.amount > 1 AND crad GROUP BY kard OVER SLIDING 1 HUOR",
        expect![[r#"
            error: query "card_1h": there is no aggregate summ
              --> job.yaml:19:23
               |
            19 |       card_1h: SELECT summ(amuont) AS spent, avg(card) FROM payment WHERE payment.amount > 1 AND crad GROUP BY kard OVER SLIDING 1 HUOR
               |                       ^^^^
               = hint: did you mean sum?

            error: query "card_1h": there is no field "amuont"
              --> job.yaml:19:28
               |
            19 |       card_1h: SELECT summ(amuont) AS spent, avg(card) FROM payment WHERE payment.amount > 1 AND crad GROUP BY kard OVER SLIDING 1 HUOR
               |                            ^^^^^^
               = hint: did you mean "amount"?

            error: query "card_1h": avg cannot take string
              --> job.yaml:19:50
               |
            19 |       card_1h: SELECT summ(amuont) AS spent, avg(card) FROM payment WHERE payment.amount > 1 AND crad GROUP BY kard OVER SLIDING 1 HUOR
               |                                                  ^^^^
               = expected: a number
               = hint: CAST(x AS float64) reads a number from a text

            error: query "card_1h": operator "features" does not read "payment"
              --> job.yaml:19:61
               |
            19 |       card_1h: SELECT summ(amuont) AS spent, avg(card) FROM payment WHERE payment.amount > 1 AND crad GROUP BY kard OVER SLIDING 1 HUOR
               |                                                             ^^^^^^^
               = expected: FROM payments

            error: query "card_1h": there is no field "crad"
              --> job.yaml:19:98
               |
            19 |       card_1h: SELECT summ(amuont) AS spent, avg(card) FROM payment WHERE payment.amount > 1 AND crad GROUP BY kard OVER SLIDING 1 HUOR
               |                                                                                                  ^^^^
               = hint: did you mean "card"?

            error: query "card_1h": there is no field "kard"
              --> job.yaml:19:112
               |
            19 |       card_1h: SELECT summ(amuont) AS spent, avg(card) FROM payment WHERE payment.amount > 1 AND crad GROUP BY kard OVER SLIDING 1 HUOR
               |                                                                                                                ^^^^
               = hint: did you mean "card"?

            error: query "card_1h": HUOR is no unit of time
              --> job.yaml:19:132
               |
            19 |       card_1h: SELECT summ(amuont) AS spent, avg(card) FROM payment WHERE payment.amount > 1 AND crad GROUP BY kard OVER SLIDING 1 HUOR
               |                                                                                                                                    ^^^^
               = expected: MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS or WEEKS
        "#]],
    );
    check_example(
        "SELECT avg(amount) AS mean FROM payments WHERE amount > 1 GROUP BY merchant OVER SLIDING 5 MINUTES DELAYED BY 1 MINUTE",
        "|\n        SELECT avg(amuont) AS mean, foo(amount)\n        FROM payments\n        WHERE amount\n        GROUP BY merchant OVER SLIDING 0 MINUTES",
        expect![[r#"
            error: query "shop_5m": there is no field "amuont"
              --> job.yaml:21:20
               |
            21 |         SELECT avg(amuont) AS mean, foo(amount)
               |                    ^^^^^^
               = hint: did you mean "amount"?

            error: query "shop_5m": there is no aggregate foo
              --> job.yaml:21:37
               |
            21 |         SELECT avg(amuont) AS mean, foo(amount)
               |                                     ^^^
               = expected: count, sum, avg, min, max, first, last, prev, stddev, stddev_pop, var, var_pop or quantile

            error: query "shop_5m": WHERE takes a condition, not float64
              --> job.yaml:23:15
               |
            23 |         WHERE amount
               |               ^^^^^^
               = expected: bool
               = hint: compare the number: x <> 0

            error: query "shop_5m": a SLIDING window of no width holds nothing
              --> job.yaml:24:40
               |
            24 |         GROUP BY merchant OVER SLIDING 0 MINUTES
               |                                        ^^^^^^^^^
               = expected: a span above 0
        "#]],
    );
}

#[test]
fn a_wrong_query_does_not_hide_that_another_has_no_stage() {
    let text = super::EXAMPLE
        .replace("partition_by: [card, merchant]", "partition_by: card")
        .replace("sum(amount)", "sum(amuont)");
    check(
        &text,
        expect![[r#"
        error: query "card_1h": there is no field "amuont"
          --> job.yaml:19:27
           |
        19 |       card_1h: SELECT sum(amuont) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR
           |                           ^^^^^^
           = hint: did you mean "amount"?

        error: query "shop_5m" groups by merchant, and no key of "partition_by" is among these fields
          --> job.yaml:20:7
           |
        20 |       shop_5m: SELECT avg(amount) AS mean FROM payments WHERE amount > 1 GROUP BY merchant OVER SLIDING 5 MINUTES DELAYED BY 1 MINUTE
           |       ^^^^^^^
           = hint: add merchant to "partition_by"
    "#]],
    );
}

#[test]
fn mistakes_point_into_blocks_and_quotes() {
    let query = "SELECT avg(amount) AS mean FROM payments WHERE amount > 1 GROUP BY merchant OVER SLIDING 5 MINUTES DELAYED BY 1 MINUTE";
    check_example(
        query,
        "|\n        SELECT avg(amount) AS mean\n        FROM payments\n        WHERE amuont > 1\n        GROUP BY merchant OVER SLIDING 5 MINUTES",
        expect![[r#"
            error: query "shop_5m": there is no field "amuont"
              --> job.yaml:23:15
               |
            23 |         WHERE amuont > 1
               |               ^^^^^^
               = hint: did you mean "amount"?
        "#]],
    );
    check_example(
        query,
        ">-\n        SELECT avg(amount) AS mean\n        FROM payments\n        WHERE amuont > 1\n        GROUP BY merchant OVER SLIDING 5 MINUTES",
        expect![[r#"
            error: query "shop_5m": there is no field "amuont"
              --> job.yaml:23:15
               |
            23 |         WHERE amuont > 1
               |               ^^^^^^
               = hint: did you mean "amount"?
        "#]],
    );
    check_example(
        query,
        "SELECT avg(amount) AS mean FROM payments\n        WHERE amuont > 1 GROUP BY merchant\n        OVER SLIDING 5 MINUTES",
        expect![[r#"
            error: query "shop_5m": there is no field "amuont"
              --> job.yaml:21:15
               |
            21 |         WHERE amuont > 1 GROUP BY merchant
               |               ^^^^^^
               = hint: did you mean "amount"?
        "#]],
    );
    check_example(
        query,
        r#""SELECT avg(amount) AS \"mean\" FROM payments WHERE amuont > 1 GROUP BY merchant OVER SLIDING 5 MINUTES""#,
        expect![[r#"
            error: query "shop_5m": there is no field "amuont"
              --> job.yaml:20:68
               |
            20 |       shop_5m: "SELECT avg(amount) AS \"mean\" FROM payments WHERE amuont > 1 GROUP BY merchant OVER SLIDING 5 MINUTES"
               |                                                                    ^^^^^^
               = hint: did you mean "amount"?
        "#]],
    );
    check_example(
        query,
        "'SELECT avg(amount) AS mean FROM payments WHERE card <> ''é'' AND amuont > 1 GROUP BY merchant OVER SLIDING 5 MINUTES'",
        expect![[r#"
            error: query "shop_5m": there is no field "amuont"
              --> job.yaml:20:82
               |
            20 |       shop_5m: 'SELECT avg(amount) AS mean FROM payments WHERE card <> ''é'' AND amuont > 1 GROUP BY merchant OVER SLIDING 5 MINUTES'
               |                                                                                  ^^^^^^
               = hint: did you mean "amount"?
        "#]],
    );
}

#[test]
fn a_comma_inside_braces_ends_a_query() {
    check(
        "
name: payments
sources:
  in: { type: file, path: in.csv, format: csv, schema: { card: string, amount: float64 } }
operators:
  sums: { type: metrics, input: in, partition_by: card, queries: { a: SELECT sum(amount) AS s, count(*) AS n FROM in GROUP BY card OVER INFINITE } }
sinks:
  answers: { type: 'null', input: sums }
",
        expect![[r#"
            error: query "a": FROM is missing after the outputs
             --> job.yaml:6:94
              |
            6 |   sums: { type: metrics, input: in, partition_by: card, queries: { a: SELECT sum(amount) AS s, count(*) AS n FROM in GROUP BY card OVER INFINITE } }
              |                                                                                              ^
              = expected: FROM and a stream

            error: "count(*) AS n FROM in GROUP BY card OVER INFINITE" is where the name of a query is expected
             --> job.yaml:6:96
              |
            6 |   sums: { type: metrics, input: in, partition_by: card, queries: { a: SELECT sum(amount) AS s, count(*) AS n FROM in GROUP BY card OVER INFINITE } }
              |                                                                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
              = hint: inside { } a comma ends a query: put each one in quotes, or on a line of its own
        "#]],
    );
}

#[test]
fn each_query_needs_a_stage() {
    check_example(
        "partition_by: [card, merchant]",
        "partition_by: card",
        expect![[r#"
        error: query "shop_5m" groups by merchant, and no key of "partition_by" is among these fields
          --> job.yaml:20:7
           |
        20 |       shop_5m: SELECT avg(amount) AS mean FROM payments WHERE amount > 1 GROUP BY merchant OVER SLIDING 5 MINUTES DELAYED BY 1 MINUTE
           |       ^^^^^^^
           = hint: add merchant to "partition_by"
    "#]],
    );
    check_example(
        "partition_by: [card, merchant]",
        "partition_by: [card, [merchant, card], [merchant]]",
        expect![[r#"
        warning: no query runs in the stage of key "merchant,card"
          --> job.yaml:17:19
           |
        17 |     partition_by: [card, [merchant, card], [merchant]]  # one keyed stage each; answers are merged per record
           |                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    "#]],
    );
    check_example("partition_by: [card, merchant]", "partition_by: [card, [], merchant]", expect!["fine"]);
    check_example(
        "partition_by: [card, merchant]",
        "partition_by: [[], card, merchant, []]",
        expect![[r#"
            error: "partition_by" names [] twice
              --> job.yaml:17:40
               |
            17 |     partition_by: [[], card, merchant, []]  # one keyed stage each; answers are merged per record
               |                                        ^^
        "#]],
    );
    check_example(
        "partition_by: [card, merchant]",
        "partition_by: [card, merchnt, merchant, card]",
        expect![[r#"
            error: "partition_by" of operator "features" names no field: "merchnt"
              --> job.yaml:17:26
               |
            17 |     partition_by: [card, merchnt, merchant, card]  # one keyed stage each; answers are merged per record
               |                          ^^^^^^^
               = expected: one of the fields ts, card, merchant, amount
               = hint: did you mean "merchant"?

            error: "partition_by" names "card" twice
              --> job.yaml:17:45
               |
            17 |     partition_by: [card, merchnt, merchant, card]  # one keyed stage each; answers are merged per record
               |                                             ^^^^
        "#]],
    );
}

#[test]
fn answers_have_room_for_the_records() {
    check_example(
        "      card_1h:",
        "      amount:",
        expect![[r#"
        error: query "amount" has the name of a field
          --> job.yaml:19:7
           |
        19 |       amount: SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR
           |       ^^^^^^
           = hint: an answer holds the record's fields and one object per query: names must differ
    "#]],
    );
    check_example(
        "card: string,",
        "card: string, errors: int64,",
        expect![[r#"
        error: the records have a field "errors", which answers use themselves
          --> job.yaml:16:12
           |
        16 |     input: payments
           |            ^^^^^^^^
           = hint: rename it with a `map` before, or in the source's schema (errors_)
    "#]],
    );
}

#[test]
fn expressions_of_operators_are_checked() {
    let job = |operator: &str| {
        format!(
            "name: x\nsources:\n  in: {{ type: generator }}\noperators:\n  op: {{ input: in, {operator} }}\nsinks:\n  out: {{ type: 'null', input: op }}\n"
        )
    };
    check(&job("type: filter, where: amount > 1"), expect!["fine"]);
    check(
        &job("type: filter, where: amount + 1"),
        expect![[r#"
        error: "where" is of type float64, expected bool
         --> job.yaml:5:41
          |
        5 |   op: { input: in, type: filter, where: amount + 1 }
          |                                         ^^^^^^^^^^
          = hint: compare it with something, as in `amount > 1`
    "#]],
    );
    check(
        &job("type: filter, where: amout > 1"),
        expect![[r#"
        error: "where" of operator "op": there is no field "amout"
         --> job.yaml:5:41
          |
        5 |   op: { input: in, type: filter, where: amout > 1 }
          |                                         ^^^^^
          = hint: did you mean "amount"?
    "#]],
    );
    check(
        &job("type: filter, where: 'amout > 1 AND crad = 5 + lower(amount)'"),
        expect![[r#"
        error: "where" of operator "op": there is no field "amout"
         --> job.yaml:5:42
          |
        5 |   op: { input: in, type: filter, where: 'amout > 1 AND crad = 5 + lower(amount)' }
          |                                          ^^^^^
          = hint: did you mean "amount"?

        error: "where" of operator "op": there is no field "crad"
         --> job.yaml:5:56
          |
        5 |   op: { input: in, type: filter, where: 'amout > 1 AND crad = 5 + lower(amount)' }
          |                                                        ^^^^
          = hint: did you mean "card"?

        error: "where" of operator "op": operator + takes numbers, not string
         --> job.yaml:5:67
          |
        5 |   op: { input: in, type: filter, where: 'amout > 1 AND crad = 5 + lower(amount)' }
          |                                                                   ^^^^^^^^^^^^^
          = expected: int64, uint64, float64 or decimal
          = hint: texts are joined with ||

        error: "where" of operator "op": LOWER takes a string, not float64
         --> job.yaml:5:73
          |
        5 |   op: { input: in, type: filter, where: 'amout > 1 AND crad = 5 + lower(amount)' }
          |                                                                         ^^^^^^
          = hint: CAST(x AS string) makes it one
    "#]],
    );
    check(
        &job("type: filter, where: length(crad)"),
        expect![[r#"
        error: "where" is of type int64, expected bool
         --> job.yaml:5:41
          |
        5 |   op: { input: in, type: filter, where: length(crad) }
          |                                         ^^^^^^^^^^^^
          = hint: compare it with something, as in `amount > 1`

        error: "where" of operator "op": there is no field "crad"
         --> job.yaml:5:48
          |
        5 |   op: { input: in, type: filter, where: length(crad) }
          |                                                ^^^^
          = hint: did you mean "card"?
    "#]],
    );
    check(
        &job("type: map, select: { a: 'amuont + foo(crad)', b: -card, c: amuont }"),
        expect![[r#"
        error: field "a": there is no field "amuont"
         --> job.yaml:5:45
          |
        5 |   op: { input: in, type: map, select: { a: 'amuont + foo(crad)', b: -card, c: amuont } }
          |                                             ^^^^^^
          = hint: did you mean "amount"?

        error: field "a": there is no function foo
         --> job.yaml:5:54
          |
        5 |   op: { input: in, type: map, select: { a: 'amuont + foo(crad)', b: -card, c: amuont } }
          |                                                      ^^^

        error: field "a": there is no field "crad"
         --> job.yaml:5:58
          |
        5 |   op: { input: in, type: map, select: { a: 'amuont + foo(crad)', b: -card, c: amuont } }
          |                                                          ^^^^
          = hint: did you mean "card"?

        error: field "b": string has no negative
         --> job.yaml:5:69
          |
        5 |   op: { input: in, type: map, select: { a: 'amuont + foo(crad)', b: -card, c: amuont } }
          |                                                                     ^^^^^
          = expected: a number

        error: field "c": there is no field "amuont"
         --> job.yaml:5:79
          |
        5 |   op: { input: in, type: map, select: { a: 'amuont + foo(crad)', b: -card, c: amuont } }
          |                                                                               ^^^^^^
          = hint: did you mean "amount"?
    "#]],
    );
    check(
        &job("type: filter"),
        expect![[r#"
        error: operator "op" lacks "where"
         --> job.yaml:5:3
          |
        5 |   op: { input: in, type: filter }
          |   ^^
          = expected: a SQL expression
    "#]],
    );
    check(
        &job("type: map, select: { euros: 'amount * 0.9', name: coalesce(card, 'x') }, keep: [ts, card]"),
        expect![[r#"
        error: this is not YAML: invalid trailing content after single-quoted scalar
         --> job.yaml:5:88
          |
        5 |   op: { input: in, type: map, select: { euros: 'amount * 0.9', name: coalesce(card, 'x') }, keep: [ts, card] }
          |                                                                                        ^
          = hint: put the whole value in quotes, or below `|`
    "#]],
    );
    check(
        &job(
            "type: map, select: { euros: 'amount * 0.9', name: 'coalesce(card, ''x'')', both: concat(card, card) }, keep: [ts, card]",
        ),
        expect!["fine"],
    );
    check(
        &job("type: map, select: { euros: amuont * 0.9, 'b c': 1 }, keep: [tss]"),
        expect![[r#"
        error: field "euros": there is no field "amuont"
         --> job.yaml:5:48
          |
        5 |   op: { input: in, type: map, select: { euros: amuont * 0.9, 'b c': 1 }, keep: [tss] }
          |                                                ^^^^^^
          = hint: did you mean "amount"?

        error: "b c" is no name
         --> job.yaml:5:62
          |
        5 |   op: { input: in, type: map, select: { euros: amuont * 0.9, 'b c': 1 }, keep: [tss] }
          |                                                              ^^^^^
          = expected: a letter or _, then letters, digits, _ and -

        error: "keep" names no field of the input: "tss"
         --> job.yaml:5:80
          |
        5 |   op: { input: in, type: map, select: { euros: amuont * 0.9, 'b c': 1 }, keep: [tss] }
          |                                                                                ^^^^^
          = hint: did you mean "ts"?
    "#]],
    );
    check(
        &job("type: map, select: amount"),
        expect![[r#"
        error: "select" of operator "op" is the text "amount"
         --> job.yaml:5:39
          |
        5 |   op: { input: in, type: map, select: amount }
          |                                       ^^^^^^
          = expected: a mapping of keys and values
    "#]],
    );
    check(
        &job("type: relay, schedule: { evry: 500ms, records: 0 }"),
        expect![[r#"
        error: "schedule" of operator "op" has no key "evry"
         --> job.yaml:5:45
          |
        5 |   op: { input: in, type: relay, schedule: { evry: 500ms, records: 0 } }
          |                                             ^^^^
          = expected: every or records
          = hint: did you mean "every"?

        error: "records" of "schedule" of operator "op" is the number 0
         --> job.yaml:5:67
          |
        5 |   op: { input: in, type: relay, schedule: { evry: 500ms, records: 0 } }
          |                                                                   ^
          = expected: an integer from 1
    "#]],
    );
}

#[test]
fn mistakes_behind_other_mistakes_are_told_too() {
    check(
        "\
name: demo
sources:
  rows:
    type: file
    path: rows.csv
    format: csv
    schema: { ts: timestamp(mss), card: strin, amount: float64 }
    time: tss
operators:
  sums:
    type: metrics
    input: rows
    partition_by: card
    queries:
      a: SELECT sum(amont) AS s FROM rows GROUP BY card OVER SLIDING 1 HOUR
  more:
    type: metrics
    input: row
    queries:
      b: SELECT count(*) AS n FROM rows OVER SLIDNG 1 HOUR
",
        expect![[r#"
            error: field "ts" has invalid type "timestamp(mss)"
             --> job.yaml:7:19
              |
            7 |     schema: { ts: timestamp(mss), card: strin, amount: float64 }
              |                   ^^^^^^^^^^^^^^
              = expected: bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns), ip or ipv4_int, with ? where it may be null
              = hint: did you mean "timestamp(ms)"?

            error: field "card" has invalid type "strin"
             --> job.yaml:7:41
              |
            7 |     schema: { ts: timestamp(mss), card: strin, amount: float64 }
              |                                         ^^^^^
              = expected: bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns), ip or ipv4_int, with ? where it may be null
              = hint: did you mean "string"?

            error: "time" of source "rows" names no field: "tss"
             --> job.yaml:8:11
              |
            8 |     time: tss
              |           ^^^
              = expected: one of the fields ts, card, amount
              = hint: did you mean "ts"?

            error: query "a": there is no field "amont"
              --> job.yaml:15:21
               |
            15 |       a: SELECT sum(amont) AS s FROM rows GROUP BY card OVER SLIDING 1 HOUR
               |                     ^^^^^
               = hint: did you mean "amount"?

            error: operator "more" reads "row", which is no source and no operator
              --> job.yaml:18:12
               |
            18 |     input: row
               |            ^^^
               = expected: rows or sums
               = hint: did you mean "rows"?

            error: query "b": there is no SLIDNG window
              --> job.yaml:20:46
               |
            20 |       b: SELECT count(*) AS n FROM rows OVER SLIDNG 1 HOUR
               |                                              ^^^^^^
               = expected: SLIDING 1 HOUR, TUMBLING 5 MINUTES, INFINITE or ROWS 100
        "#]],
    );
}
