//! How errors of outputs look: their aggregates, arguments and aliases.

use expect_test::expect;

use super::refused;

#[test]
fn outputs_that_are_no_aggregates() {
    refused(
        &[
            "SELECT * FROM s OVER SLIDING 1h",
            "SELECT card, count(*) FROM s OVER SLIDING 1h",
            "SELECT 1 + amount FROM s OVER SLIDING 1h",
            "SELECT abs(amount) FROM s OVER SLIDING 1h",
            "SELECT smu(amount) FROM s OVER SLIDING 1h",
            "SELECT mean(amount) FROM s OVER SLIDING 1h",
            "SELECT median(amount) FROM s OVER SLIDING 1h",
            "SELECT frobnicate(amount) FROM s OVER SLIDING 1h",
            "SELECT sum(*) FROM s OVER SLIDING 1h",
            "SELECT count() FROM s OVER SLIDING 1h",
            "SELECT sum() FROM s OVER SLIDING 1h",
            "SELECT sum(amount, cents) FROM s OVER SLIDING 1h",
            "SELECT count(card, amount) FROM s OVER SLIDING 1h",
            "SELECT count(DISTINCT card, card_1h) FROM s OVER SLIDING 1h",
            "SELECT count(DISTINCT card, crad, NULL) FROM s OVER SLIDING 1h",
            "SELECT sum(DISTINCT amount) FROM s OVER SLIDING 1h",
            "SELECT sum(max(amount)) FROM s OVER SLIDING 1h",
            "SELECT sum(amount +) FROM s OVER SLIDING 1h",
            "SELECT sum(amount FROM s OVER SLIDING 1h",
            "SELECT quantile(amount) FROM s OVER SLIDING 1h",
            "SELECT quantile(amount, 99) FROM s OVER SLIDING 1h",
            "SELECT quantile(amount, cents) FROM s OVER SLIDING 1h",
            "SELECT sum(amount), sum(amount) FROM s OVER SLIDING 1h",
            "SELECT sum(amount) AS FROM s OVER SLIDING 1h",
            "SELECT sum(amount) AS 'x' FROM s OVER SLIDING 1h",
            "SELECT sum(amount) AS x y FROM s OVER SLIDING 1h",
        ],
        expect![[r#"
            error: an output is an aggregate
            1 | SELECT * FROM s OVER SLIDING 1h
              |        ^
            hint: the record's own fields are in its answer already; select aggregates such as count(*)

            error: an output is an aggregate
            1 | SELECT card, count(*) FROM s OVER SLIDING 1h
              |        ^^^^
            hint: the record's own fields are in its answer already; select aggregates such as last(card)

            error: an output is an aggregate
            1 | SELECT 1 + amount FROM s OVER SLIDING 1h
              |        ^^^^^^^^^^
            hint: expressions belong inside an aggregate: sum(amount * 2)

            error: there is no aggregate abs
            1 | SELECT abs(amount) FROM s OVER SLIDING 1h
              |        ^^^
            hint: functions of one record belong inside an aggregate: sum(abs(amount))

            error: there is no aggregate smu
            1 | SELECT smu(amount) FROM s OVER SLIDING 1h
              |        ^^^
            hint: did you mean sum?

            error: there is no aggregate mean
            1 | SELECT mean(amount) FROM s OVER SLIDING 1h
              |        ^^^^
            hint: write avg(x)

            error: there is no aggregate median
            1 | SELECT median(amount) FROM s OVER SLIDING 1h
              |        ^^^^^^
            hint: write quantile(x, 0.5)

            error: there is no aggregate frobnicate
            1 | SELECT frobnicate(amount) FROM s OVER SLIDING 1h
              |        ^^^^^^^^^^
            expected: count, sum, avg, min, max, first, last, prev, stddev, stddev_pop, var, var_pop or quantile

            error: sum takes one expression
            1 | SELECT sum(*) FROM s OVER SLIDING 1h
              |            ^
            hint: only count takes *

            error: count takes an argument
            1 | SELECT count() FROM s OVER SLIDING 1h
              |              ^
            hint: count(*) counts records

            error: sum takes an argument
            1 | SELECT sum() FROM s OVER SLIDING 1h
              |            ^

            error: sum takes one argument
            1 | SELECT sum(amount, cents) FROM s OVER SLIDING 1h
              |                    ^^^^^

            error: count takes one argument
            1 | SELECT count(card, amount) FROM s OVER SLIDING 1h
              |                    ^^^^^^
            hint: count(DISTINCT a, b) counts pairs

            error: count_distinct cannot take {spent: float64}
            1 | SELECT count(DISTINCT card, card_1h) FROM s OVER SLIDING 1h
              |                             ^^^^^^^
            hint: name a member: count_distinct(card_1h.spent)

            error: there is no field "crad"
            1 | SELECT count(DISTINCT card, crad, NULL) FROM s OVER SLIDING 1h
              |                             ^^^^
            hint: did you mean "card"?
            error: this NULL has no type
            1 | SELECT count(DISTINCT card, crad, NULL) FROM s OVER SLIDING 1h
              |                                   ^^^^
            hint: write CAST(NULL AS float64), or another type

            error: sum(DISTINCT …) is not part of queries
            1 | SELECT sum(DISTINCT amount) FROM s OVER SLIDING 1h
              |            ^^^^^^^^
            hint: count(DISTINCT x) is; min and max do not need it

            error: the aggregate max cannot be inside an expression
            1 | SELECT sum(max(amount)) FROM s OVER SLIDING 1h
              |            ^^^
            hint: aggregates are the outputs of a query: SELECT sum(amount * 2) AS total FROM …

            error: the expression is incomplete
            1 | SELECT sum(amount +) FROM s OVER SLIDING 1h
              |                    ^
            expected: an expression

            error: this parenthesis is never closed
            1 | SELECT sum(amount FROM s OVER SLIDING 1h
              |           ^

            error: quantile takes two arguments
            1 | SELECT quantile(amount) FROM s OVER SLIDING 1h
              |                       ^
            expected: quantile(amount, 0.99)

            error: the rank of a quantile is a constant
            1 | SELECT quantile(amount, 99) FROM s OVER SLIDING 1h
              |                         ^^
            expected: a number from 0 to 1, such as 0.99

            error: the rank of a quantile is a constant
            1 | SELECT quantile(amount, cents) FROM s OVER SLIDING 1h
              |                         ^^^^^
            expected: a number from 0 to 1, such as 0.99

            error: two outputs are named "sum_amount"
            1 | SELECT sum(amount), sum(amount) FROM s OVER SLIDING 1h
              |                     ^^^^^^^^^^^
            hint: give one of them another name: AS …

            error: the alias is missing after AS
            1 | SELECT sum(amount) AS FROM s OVER SLIDING 1h
              |                    ^^

            error: an alias is a name
            1 | SELECT sum(amount) AS 'x' FROM s OVER SLIDING 1h
              |                       ^^^
            hint: write "x"

            error: an output ends with its alias
            1 | SELECT sum(amount) AS x y FROM s OVER SLIDING 1h
              |                         ^
            expected: a comma or FROM
        "#]],
    );
}

#[test]
fn filters_of_aggregates() {
    refused(
        &[
            "SELECT count(*) FILTER (amount > 1) FROM s OVER SLIDING 1h",
            "SELECT count(*) FILTER () FROM s OVER SLIDING 1h",
            "SELECT count(*) FILTER (WHERE) FROM s OVER SLIDING 1h",
            "SELECT count(*) FILTER (WHERE amount) FROM s OVER SLIDING 1h",
            "SELECT sum(amuont) FILTER (WHERE declned) AS x FROM s OVER SLIDING 1h",
            "SELECT sum(card) FILTER (WHERE declined) FROM s OVER SLIDING 1h",
            "SELECT count(*) FILTER (WHERE max(amount) > 1) FROM s OVER SLIDING 1h",
            "SELECT count(*), count(*) FILTER (WHERE declined) FROM s OVER SLIDING 1h",
        ],
        expect![[r#"
            error: FILTER takes a condition
            1 | SELECT count(*) FILTER (amount > 1) FROM s OVER SLIDING 1h
              |                         ^^^^^^
            expected: FILTER (WHERE amount > 100)

            error: FILTER takes a condition
            1 | SELECT count(*) FILTER () FROM s OVER SLIDING 1h
              |                         ^
            expected: FILTER (WHERE amount > 100)

            error: an expression is missing
            1 | SELECT count(*) FILTER (WHERE) FROM s OVER SLIDING 1h
              |                              ^

            error: WHERE takes a condition, not float64
            1 | SELECT count(*) FILTER (WHERE amount) FROM s OVER SLIDING 1h
              |                               ^^^^^^
            expected: bool
            hint: compare the number: x <> 0

            error: there is no field "amuont"
            1 | SELECT sum(amuont) FILTER (WHERE declned) AS x FROM s OVER SLIDING 1h
              |            ^^^^^^
            hint: did you mean "amount"?
            error: there is no field "declned"
            1 | SELECT sum(amuont) FILTER (WHERE declned) AS x FROM s OVER SLIDING 1h
              |                                  ^^^^^^^
            hint: did you mean "declined"?

            error: sum cannot take string
            1 | SELECT sum(card) FILTER (WHERE declined) FROM s OVER SLIDING 1h
              |            ^^^^
            expected: a number
            hint: CAST(x AS float64) reads a number from a text

            error: the aggregate max cannot be inside an expression
            1 | SELECT count(*) FILTER (WHERE max(amount) > 1) FROM s OVER SLIDING 1h
              |                               ^^^
            hint: aggregates are the outputs of a query: SELECT sum(amount * 2) AS total FROM …

            error: two outputs are named "count"
            1 | SELECT count(*), count(*) FILTER (WHERE declined) FROM s OVER SLIDING 1h
              |                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
            hint: give one of them another name: AS …
        "#]],
    );
}

#[test]
fn outputs_that_are_made_of_aggregates() {
    refused(
        &[
            "SELECT sum(amount) / cents FROM s OVER SLIDING 1h",
            "SELECT sum(amount) + last(card) AS x FROM s OVER SLIDING 1h",
            "SELECT sum(amount) / AS x FROM s OVER SLIDING 1h",
            "SELECT sum(amount) sum(cents) FROM s OVER SLIDING 1h",
            "SELECT sum(amount) / mean(amuont) AS x FROM s OVER SLIDING 1h",
            "SELECT rond(avg(amount), 2) AS x FROM s OVER SLIDING 1h",
            "SELECT last(card) || first(card) AS x FROM s OVER SLIDING 1h",
            "SELECT coalesce(last(card), 'none') AS x FROM s OVER SLIDING 1h",
            "SELECT length(last(card)) AS x FROM s OVER SLIDING 1h",
            "SELECT sum(max(amount)) / 2 AS x FROM s OVER SLIDING 1h",
            "SELECT sum(amount) / count(*) FILTER (WHERE amount) AS x FROM s OVER SLIDING 1h",
            "SELECT count(*) / count(*), count(*) / count(*) FROM s OVER SLIDING 1h",
            "SELECT count(*) / count(*) AS 'x' FROM s OVER SLIDING 1h",
            "SELECT sum(amount) OVER SLIDING 1h / 2 FROM s",
        ],
        expect![[r#"
            error: the field cents is outside an aggregate
            1 | SELECT sum(amount) / cents FROM s OVER SLIDING 1h
              |                      ^^^^^
            hint: write last(cents) for its newest value

            error: operator + takes numbers, not string
            1 | SELECT sum(amount) + last(card) AS x FROM s OVER SLIDING 1h
              |                      ^^^^^^^^^^
            expected: int64, uint64, float64 or decimal
            hint: texts are joined with ||

            error: the expression is incomplete
            1 | SELECT sum(amount) / AS x FROM s OVER SLIDING 1h
              |                     ^
            expected: an expression

            error: the expression ends before "sum(cents)"
            1 | SELECT sum(amount) sum(cents) FROM s OVER SLIDING 1h
              |                    ^^^^^^^^^^
            hint: an operator is missing here

            error: there is no aggregate mean
            1 | SELECT sum(amount) / mean(amuont) AS x FROM s OVER SLIDING 1h
              |                      ^^^^
            hint: write avg(x)
            error: there is no field "amuont"
            1 | SELECT sum(amount) / mean(amuont) AS x FROM s OVER SLIDING 1h
              |                           ^^^^^^
            hint: did you mean "amount"?

            error: there is no function rond
            1 | SELECT rond(avg(amount), 2) AS x FROM s OVER SLIDING 1h
              |        ^^^^
            hint: did you mean ROUND?

            error: an output made of aggregates compares texts, and does no more with them
            1 | SELECT last(card) || first(card) AS x FROM s OVER SLIDING 1h
              |        ^^^^^^^^^^^^^^^^^^^^^^^^^
            hint: functions of texts are for the arguments, as in last(lower(x)), or for an operator after

            error: an output made of aggregates compares texts, and does no more with them
            1 | SELECT coalesce(last(card), 'none') AS x FROM s OVER SLIDING 1h
              |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
            hint: functions of texts are for the arguments, as in last(lower(x)), or for an operator after

            error: an output made of aggregates compares texts, and does no more with them
            1 | SELECT length(last(card)) AS x FROM s OVER SLIDING 1h
              |        ^^^^^^^^^^^^^^^^^^
            hint: functions of texts are for the arguments, as in last(lower(x)), or for an operator after

            error: the aggregate max cannot be inside an expression
            1 | SELECT sum(max(amount)) / 2 AS x FROM s OVER SLIDING 1h
              |            ^^^
            hint: aggregates are the outputs of a query: SELECT sum(amount * 2) AS total FROM …

            error: WHERE takes a condition, not float64
            1 | SELECT sum(amount) / count(*) FILTER (WHERE amount) AS x FROM s OVER SLIDING 1h
              |                                             ^^^^^^
            expected: bool
            hint: compare the number: x <> 0

            error: two outputs are named "count_count"
            1 | SELECT count(*) / count(*), count(*) / count(*) FROM s OVER SLIDING 1h
              |                             ^^^^^^^^^^^^^^^^^^^
            hint: give one of them another name: AS …

            error: an alias is a name
            1 | SELECT count(*) / count(*) AS 'x' FROM s OVER SLIDING 1h
              |                               ^^^
            hint: write "x"

            error: FROM is missing after the outputs
            1 | SELECT sum(amount) OVER SLIDING 1h / 2 FROM s
              |                    ^^^^
            expected: FROM and a stream
            error: the query ends before /
            1 | SELECT sum(amount) OVER SLIDING 1h / 2 FROM s
              |                                    ^
        "#]],
    );
}
