//! Queries as data: what they parse to, and how errors look.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use thalweg_types::{DataType, Field, Schema};

use super::{Draft, Query, Window, aggregate};
use crate::agg::Function;

fn schema() -> Schema {
    let field = |name: &str, data_type: &str| Field::new(name, DataType::parse(data_type).unwrap());
    Schema::new(vec![
        field("ts", "timestamp(ms)"),
        field("card", "string"),
        field("merchant", "string"),
        field("amount", "float64"),
        field("cents", "int64"),
        field("declined", "bool"),
        field("price", "decimal(10,2)"),
        Field::new("card_1h", DataType::Struct(vec![Field::new("spent", DataType::Float64)])),
    ])
}

/// A query in a line per part.
#[track_caller]
fn check(text: &str, expected: Expect) {
    let query = Query::parse(text).unwrap_or_else(|error| panic!("{}", error.render(text)));
    assert_eq!(query.text, text);
    for output in &query.outputs {
        assert!(text[output.span.clone()].contains('('), "{:?}", &text[output.span.clone()]);
    }
    let bound = query.bind(&schema()).unwrap_or_else(|error| panic!("{}", error.render(text)));
    assert_eq!(bound.outputs.len(), query.outputs.len());
    let mut shown = String::new();
    for output in &query.outputs {
        shown.push_str(&format!(
            "{} = {}\n",
            output.alias,
            aggregate::call(output.function, output.arg.as_ref())
        ));
    }
    shown.push_str(&format!("from {}\n", query.stream));
    if let Some(filter) = &query.filter {
        shown.push_str(&format!("where {filter}\n"));
    }
    for (name, span) in &query.group_by {
        shown.push_str(&format!("by {name} ({})\n", &text[span.clone()]));
    }
    shown.push_str(&format!("over {:?}, delay {}\n", query.window, query.delay));
    expected.assert_eq(&shown);

    let fingerprint = query.fingerprint();
    let Some(mut again) = parse_canonical(&fingerprint) else { return };
    assert_eq!(again.fingerprint(), fingerprint, "the fingerprint is a query with the same fingerprint");
    for (output, original) in again.outputs.iter_mut().zip(&query.outputs) {
        output.alias.clone_from(&original.alias);
        output.span = original.span.clone();
    }
    assert_eq!(again.outputs, query.outputs);
}

/// The rendered errors of queries that do not parse or bind.
#[track_caller]
fn refused(texts: &[&str], expected: Expect) {
    let render = |text: &&str| match Draft::read(text).bind(&schema()) {
        Ok(_) => panic!("{text} is a query"),
        Err(errors) => {
            assert!(errors.iter().all(|error| error.span.is_some()), "{errors} has no place");
            errors.render(text)
        }
    };
    expected.assert_eq(&texts.iter().map(render).collect::<Vec<_>>().join("\n"));
}

/// A fingerprint is a query, unless two outputs that had different aliases have one default name.
#[track_caller]
fn parse_canonical(fingerprint: &str) -> Option<Query> {
    match Query::parse(fingerprint) {
        Ok(query) => Some(query),
        Err(error) if error.first().message.starts_with("two outputs are named") => None,
        Err(error) => panic!("{}", error.render(fingerprint)),
    }
}

fn window(text: &str) -> Window {
    let text = format!("SELECT count(*) FROM s OVER {text}");
    Query::parse(&text).unwrap_or_else(|error| panic!("{}", error.render(&text))).window
}

#[test]
fn the_queries_of_the_design() {
    check(
        "SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR",
        expect![[r#"
            spent = sum("amount")
            n = count(*)
            from payments
            by card (card)
            over Sliding(3600000000), delay 0
        "#]],
    );
    check(
        "SELECT avg(amount) AS mean FROM payments WHERE amount > 1 GROUP BY merchant OVER SLIDING 5 MINUTES DELAYED BY 1 MINUTE",
        expect![[r#"
            mean = avg("amount")
            from payments
            where ("amount" > 1)
            by merchant (merchant)
            over Sliding(300000000), delay 60000000
        "#]],
    );
}

#[test]
fn every_aggregate_and_its_default_name() {
    check(
        "select count(*), count(card), COUNT(DISTINCT merchant), sum(amount), avg(amount), stddev(amount), \
         stddev_pop(amount), var(amount), var_pop(amount), min(ts), max(card), first(declined), last(amount), \
         prev(amount), quantile(amount, 0.99), sum(amount * 2), sum(payments.cents), max(card_1h.spent) \
         from payments over infinite",
        expect![[r#"
            count = count(*)
            count_card = count("card")
            count_distinct_merchant = count(DISTINCT "merchant")
            sum_amount = sum("amount")
            avg_amount = avg("amount")
            stddev_amount = stddev("amount")
            stddev_pop_amount = stddev_pop("amount")
            var_amount = var("amount")
            var_pop_amount = var_pop("amount")
            min_ts = min("ts")
            max_card = max("card")
            first_declined = first("declined")
            last_amount = last("amount")
            prev_amount = prev("amount")
            quantile_amount = quantile("amount", 0.99)
            sum_amount_2 = sum(("amount" * 2))
            sum_payments_cents = sum("payments"."cents")
            max_card_1h_spent = max("card_1h"."spent")
            from payments
            over Infinite, delay 0
        "#]],
    );
    check(
        "SELECT stddev_samp(amount) a, var_samp(amount) b, variance(amount) c, countDistinct(card) d, stdDev(amount) e \
         FROM payments OVER ROWS 3",
        expect![[r#"
            a = stddev("amount")
            b = var("amount")
            c = var("amount")
            d = count(DISTINCT "card")
            e = stddev("amount")
            from payments
            over Rows(3), delay 0
        "#]],
    );
}

#[test]
fn blanks_comments_quotes_and_semicolons() {
    check(
        "SELECT\n  sum ( \"amount\" ) AS \"total spent\", -- all of it\n  count(*) n\nFROM \"pay-ments\"\nWHERE card IS DISTINCT FROM 'x' AND (cents IN (1, 2) OR declined)\nGROUP BY card, \"pay-ments\".merchant\nOVER tumbling '1h' delayed by 90s ;",
        expect![[r#"
            total spent = sum("amount")
            n = count(*)
            from pay-ments
            where (("card" IS DISTINCT FROM 'x') AND (("cents" IN (1, 2)) OR "declined"))
            by card (card)
            by merchant ("pay-ments".merchant)
            over Tumbling(3600000000), delay 90000000
        "#]],
    );
}

#[test]
fn spans_have_many_spellings() {
    for text in
        ["1 HOUR", "1 hours", "60 MINUTES", "3600 s", "1h", "60m", "'1h'", "'1 hour'", "0.5 hours", "1.0h"]
    {
        let expected = if text == "0.5 hours" { 1_800_000_000 } else { 3_600_000_000 };
        assert_eq!(window(&format!("SLIDING {text}")), Window::Sliding(expected), "{text}");
    }
    for (text, micros) in [
        ("1 MICROSECOND", 1),
        ("20us", 20),
        ("5 MILLISECONDS", 5_000),
        ("1 ms", 1_000),
        ("90 SECONDS", 90_000_000),
        ("1 DAY", 86_400_000_000),
        ("365 days", 31_536_000_000_000),
        ("2 WEEKS", 1_209_600_000_000),
        ("1w", 604_800_000_000),
    ] {
        assert_eq!(window(&format!("TUMBLING {text}")), Window::Tumbling(micros), "{text}");
    }
    assert_eq!(window("ROWS 1"), Window::Rows(1));
    assert_eq!(window("ROWS 18446744073709551615"), Window::Rows(u64::MAX));
    assert_eq!(window("INFINITE DELAYED BY 0s"), Window::Infinite);
}

#[test]
fn renaming_an_output_keeps_the_fingerprint() {
    let fingerprint = |text: &str| Query::parse(text).unwrap().fingerprint();
    let base = "SELECT sum(amount) AS a FROM s WHERE (amount > 1) GROUP BY card OVER SLIDING 1 HOUR";
    for same in [
        "select SUM( amount ) b from s where amount>1 group by card over sliding 60 minutes",
        "SELECT sum(amount) FROM s WHERE amount > 1 GROUP BY s.card OVER SLIDING '1h' DELAYED BY 0s;",
    ] {
        assert_eq!(fingerprint(base), fingerprint(same));
    }
    for other in [
        "SELECT avg(amount) FROM s WHERE amount > 1 GROUP BY card OVER SLIDING 1 HOUR",
        "SELECT sum(amount) FROM t WHERE amount > 1 GROUP BY card OVER SLIDING 1 HOUR",
        "SELECT sum(amount) FROM s WHERE amount > 2 GROUP BY card OVER SLIDING 1 HOUR",
        "SELECT sum(amount) FROM s GROUP BY card OVER SLIDING 1 HOUR",
        "SELECT sum(amount) FROM s WHERE amount > 1 GROUP BY merchant OVER SLIDING 1 HOUR",
        "SELECT sum(amount) FROM s WHERE amount > 1 OVER SLIDING 1 HOUR",
        "SELECT sum(amount) FROM s WHERE amount > 1 GROUP BY card OVER TUMBLING 1 HOUR",
        "SELECT sum(amount) FROM s WHERE amount > 1 GROUP BY card OVER SLIDING 1 HOUR DELAYED BY 1s",
        "SELECT quantile(amount, 0.5) FROM s WHERE amount > 1 GROUP BY card OVER SLIDING 1 HOUR",
        "SELECT quantile(amount, 0.9) FROM s WHERE amount > 1 GROUP BY card OVER SLIDING 1 HOUR",
    ] {
        assert_ne!(fingerprint(base), fingerprint(other), "{other}");
    }
}

#[test]
fn a_missing_window_has_a_hint() {
    refused(
        &[
            "SELECT count(*) FROM payments",
            "SELECT count(*) FROM payments GROUP BY card SLIDING 1 HOUR",
            "SELECT count(*) FROM payments OVER",
            "SELECT count(*) FROM payments WHERE amount > 1 TUMBLING 1 HOUR",
            "SELECT count(*) FROM payments SLIDING 1 HOUR",
        ],
        expect![[r#"
            error: the window is missing
            1 | SELECT count(*) FROM payments
              |                              ^
            hint: add OVER SLIDING 1 HOUR

            error: OVER is missing before the window
            1 | SELECT count(*) FROM payments GROUP BY card SLIDING 1 HOUR
              |                                             ^^^^^^^
            hint: write OVER SLIDING 1 HOUR

            error: the window is missing
            1 | SELECT count(*) FROM payments OVER
              |                                   ^
            expected: SLIDING 1 HOUR, TUMBLING 5 MINUTES, INFINITE or ROWS 100

            error: OVER is missing before the window
            1 | SELECT count(*) FROM payments WHERE amount > 1 TUMBLING 1 HOUR
              |                                                ^^^^^^^^
            hint: write OVER SLIDING 1 HOUR

            error: OVER is missing before the window
            1 | SELECT count(*) FROM payments SLIDING 1 HOUR
              |                               ^^^^^^^
            hint: write OVER SLIDING 1 HOUR
        "#]],
    );
}

#[test]
fn windows_that_do_not_exist() {
    refused(
        &[
            "SELECT count(*) FROM s OVER HOPPING 1 HOUR",
            "SELECT count(*) FROM s OVER RANGE 1 HOUR",
            "SELECT count(*) FROM s OVER SESSION 1 HOUR",
            "SELECT count(*) FROM s OVER (SLIDING 1 HOUR)",
            "SELECT count(*) FROM s OVER (PARTITION BY card)",
            "SELECT count(*) FROM s OVER 1 HOUR",
            "SELECT count(*) FROM s OVER ROWS 0",
            "SELECT count(*) FROM s OVER ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
            "SELECT count(*) FROM s OVER ROWS",
            "SELECT count(*) FROM s OVER SLIDING",
            "SELECT count(*) FROM s OVER SLIDING 0 SECONDS",
            "SELECT count(*) FROM s OVER SLIDING -1 SECONDS",
            "SELECT count(*) FROM s OVER SLIDING 1",
            "SELECT count(*) FROM s OVER SLIDING 1 MONTH",
            "SELECT count(*) FROM s OVER SLIDING 5 MINTUES",
            "SELECT count(*) FROM s OVER SLIDING 99999999999999 DAYS",
            "SELECT count(*) FROM s OVER SLIDING 0.0000001 SECONDS",
            "SELECT count(*) FROM s OVER SLIDING 'an hour'",
            "SELECT count(*) FROM s OVER SLIDING INTERVAL '1' HOUR",
            "SELECT count(*) FROM s OVER SLIDING 150000 DAYS DELAYED BY 150000000 DAYS",
            "SELECT count(*) FROM s OVER SLIDING 1h DELAYED 1 MINUTE",
            "SELECT count(*) FROM s OVER SLIDING 1h DELAYED BY",
        ],
        expect![[r#"
            error: there is no HOPPING window
            1 | SELECT count(*) FROM s OVER HOPPING 1 HOUR
              |                             ^^^^^^^
            expected: SLIDING 1 HOUR, TUMBLING 5 MINUTES, INFINITE or ROWS 100
            hint: a SLIDING window is exact at every record, with no hop; write SLIDING 1 HOUR

            error: there is no RANGE window
            1 | SELECT count(*) FROM s OVER RANGE 1 HOUR
              |                             ^^^^^
            expected: SLIDING 1 HOUR, TUMBLING 5 MINUTES, INFINITE or ROWS 100
            hint: RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW is close to SLIDING 1 HOUR, whose lower end is open

            error: there is no SESSION window
            1 | SELECT count(*) FROM s OVER SESSION 1 HOUR
              |                             ^^^^^^^
            expected: SLIDING 1 HOUR, TUMBLING 5 MINUTES, INFINITE or ROWS 100
            hint: end groups after a pause with an element's ttl

            error: a window cannot start with (
            1 | SELECT count(*) FROM s OVER (SLIDING 1 HOUR)
              |                             ^
            expected: SLIDING 1 HOUR, TUMBLING 5 MINUTES, INFINITE or ROWS 100
            hint: the window is written without parentheses

            error: a window cannot start with (
            1 | SELECT count(*) FROM s OVER (PARTITION BY card)
              |                             ^
            expected: SLIDING 1 HOUR, TUMBLING 5 MINUTES, INFINITE or ROWS 100
            hint: the window is written without parentheses

            error: a window cannot start with 1
            1 | SELECT count(*) FROM s OVER 1 HOUR
              |                             ^
            expected: SLIDING 1 HOUR, TUMBLING 5 MINUTES, INFINITE or ROWS 100
            hint: say which kind: SLIDING 1 HOUR

            error: ROWS takes a number of records
            1 | SELECT count(*) FROM s OVER ROWS 0
              |                                  ^
            expected: 1 or more

            error: ROWS takes a number of records
            1 | SELECT count(*) FROM s OVER ROWS BETWEEN 3 PRECEDING AND CURRENT ROW
              |                                  ^^^^^^^
            expected: 1 or more
            hint: ROWS 100 is the last 100 records with this one, which is 99 PRECEDING

            error: the number of records is missing
            1 | SELECT count(*) FROM s OVER ROWS
              |                                 ^
            expected: ROWS 100

            error: the span after SLIDING is missing
            1 | SELECT count(*) FROM s OVER SLIDING
              |                                    ^
            expected: a number and a unit, such as 1 HOUR, 90 SECONDS or 1h

            error: a SLIDING window of no width holds nothing
            1 | SELECT count(*) FROM s OVER SLIDING 0 SECONDS
              |                                     ^^^^^^^^^
            expected: a span above 0

            error: a span cannot be negative
            1 | SELECT count(*) FROM s OVER SLIDING -1 SECONDS
              |                                     ^
            expected: a number and a unit, such as 1 HOUR, 90 SECONDS or 1h

            error: the span 1 has no unit
            1 | SELECT count(*) FROM s OVER SLIDING 1
              |                                     ^
            expected: a number and a unit, such as 1 HOUR, 90 SECONDS or 1h

            error: MONTH is no unit of time
            1 | SELECT count(*) FROM s OVER SLIDING 1 MONTH
              |                                       ^^^^^
            expected: MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS or WEEKS
            hint: months differ in length; write 30 DAYS

            error: MINTUES is no unit of time
            1 | SELECT count(*) FROM s OVER SLIDING 5 MINTUES
              |                                       ^^^^^^^
            expected: MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS or WEEKS
            hint: did you mean MINUTES?

            error: 99999999999999 DAYS is no whole number of microseconds in 292,000 years
            1 | SELECT count(*) FROM s OVER SLIDING 99999999999999 DAYS
              |                                     ^^^^^^^^^^^^^^^^^^^

            error: 0.0000001 SECONDS is no whole number of microseconds in 292,000 years
            1 | SELECT count(*) FROM s OVER SLIDING 0.0000001 SECONDS
              |                                     ^^^^^^^^^^^^^^^^^

            error: "an hour" is no span of time
            1 | SELECT count(*) FROM s OVER SLIDING 'an hour'
              |                                     ^^^^^^^^^
            expected: a number and a unit, such as 1 HOUR, 90 SECONDS or 1h

            error: INTERVAL is not needed
            1 | SELECT count(*) FROM s OVER SLIDING INTERVAL '1' HOUR
              |                                     ^^^^^^^^
            expected: a number and a unit, such as 1 HOUR, 90 SECONDS or 1h
            hint: write SLIDING 1 HOUR

            error: 150000000 DAYS is no whole number of microseconds in 292,000 years
            1 | SELECT count(*) FROM s OVER SLIDING 150000 DAYS DELAYED BY 150000000 DAYS
              |                                                            ^^^^^^^^^^^^^^

            error: DELAYED takes BY
            1 | SELECT count(*) FROM s OVER SLIDING 1h DELAYED 1 MINUTE
              |                                                ^
            expected: DELAYED BY 1 MINUTE

            error: the span after DELAYED BY is missing
            1 | SELECT count(*) FROM s OVER SLIDING 1h DELAYED BY
              |                                                  ^
            expected: a number and a unit, such as 1 HOUR, 90 SECONDS or 1h
        "#]],
    );
}

#[test]
fn clauses_that_do_not_exist_or_stand_elsewhere() {
    refused(
        &[
            "",
            "DELETE FROM s",
            "SELECT DISTINCT card FROM s OVER SLIDING 1h",
            "SELECT count(*) OVER SLIDING 1h",
            "SELECT FROM s OVER SLIDING 1h",
            "SELECT count(*), FROM s OVER SLIDING 1h",
            "SELECT count(*) FROM OVER SLIDING 1h",
            "SELECT count(*) FROM a JOIN b ON a.x = b.x OVER SLIDING 1h",
            "SELECT count(*) FROM a, b OVER SLIDING 1h",
            "SELECT count(*) FROM payments p OVER SLIDING 1h",
            "SELECT count(*) FROM (SELECT * FROM a) OVER SLIDING 1h",
            "SELECT count(*) FROM s GROUP BY card HAVING count(*) > 1 OVER SLIDING 1h",
            "SELECT count(*) FROM s OVER SLIDING 1h HAVING count(*) > 1",
            "SELECT count(*) FROM s OVER SLIDING 1h ORDER BY card",
            "SELECT count(*) FROM s ORDER BY card OVER SLIDING 1h",
            "SELECT count(*) FROM s OVER SLIDING 1h LIMIT 10",
            "SELECT count(*) FROM s OVER SLIDING 1h GROUP BY card",
            "SELECT count(*) FROM s GROUP BY card WHERE amount > 1 OVER SLIDING 1h",
            "SELECT count(*) FROM s OVER SLIDING 1h and more",
            "SELECT count(*) FROM s OVER SLIDING 1h; SELECT 1",
            "SELECT count(*) FROM s WHERE OVER SLIDING 1h",
            "SELECT count(*) FROM s WHERE (amount > 1 OVER SLIDING 1h",
            "SELECT count(*) FROM s WHERE amount > 1) OVER SLIDING 1h",
            "SELECT count(*) FROM s GROUP card OVER SLIDING 1h",
            "SELECT count(*) FROM s GROUP BY OVER SLIDING 1h",
            "SELECT count(*) FROM s GROUP BY card, lower(merchant) OVER SLIDING 1h",
            "SELECT count(*) FROM s GROUP BY card, s.card OVER SLIDING 1h",
            "SELECT count(*) FROM s WHERE amount > (SELECT 1) OVER SLIDING 1h",
        ],
        expect![[r#"
            error: a query starts with SELECT
            1 | 
              | ^
            hint: SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR

            error: a query starts with SELECT
            1 | DELETE FROM s
              | ^^^^^^
            hint: SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR

            error: SELECT DISTINCT is not part of queries
            1 | SELECT DISTINCT card FROM s OVER SLIDING 1h
              |        ^^^^^^^^
            hint: every record has one answer; count(DISTINCT x) counts different values
            error: an output is an aggregate
            1 | SELECT DISTINCT card FROM s OVER SLIDING 1h
              |                 ^^^^
            hint: the record's own fields are in its answer already; select aggregates such as last(card)

            error: FROM is missing after the outputs
            1 | SELECT count(*) OVER SLIDING 1h
              |                 ^^^^
            expected: FROM and a stream

            error: an output is missing
            1 | SELECT FROM s OVER SLIDING 1h
              |        ^^^^
            expected: an aggregate, such as sum(amount)

            error: an output is missing
            1 | SELECT count(*), FROM s OVER SLIDING 1h
              |               ^
            expected: an aggregate, such as sum(amount)

            error: the stream is missing
            1 | SELECT count(*) FROM OVER SLIDING 1h
              |                      ^^^^
            expected: FROM and a stream

            error: a query reads one stream
            1 | SELECT count(*) FROM a JOIN b ON a.x = b.x OVER SLIDING 1h
              |                        ^^^^
            hint: join in an operator before

            error: a query reads one stream
            1 | SELECT count(*) FROM a, b OVER SLIDING 1h
              |                       ^
            hint: give the operator several inputs: input: [a, b]

            error: a stream has no alias here
            1 | SELECT count(*) FROM payments p OVER SLIDING 1h
              |                               ^

            error: a query reads a stream, not another query
            1 | SELECT count(*) FROM (SELECT * FROM a) OVER SLIDING 1h
              |                      ^
            hint: chain operators: the output of one is the input of the next

            error: HAVING is not part of queries
            1 | SELECT count(*) FROM s GROUP BY card HAVING count(*) > 1 OVER SLIDING 1h
              |                                      ^^^^^^
            hint: every record has its answer; filter answers in an operator after

            error: HAVING is not part of queries
            1 | SELECT count(*) FROM s OVER SLIDING 1h HAVING count(*) > 1
              |                                        ^^^^^^
            hint: every record has its answer; filter answers in an operator after

            error: ORDER BY is not part of queries
            1 | SELECT count(*) FROM s OVER SLIDING 1h ORDER BY card
              |                                        ^^^^^
            hint: answers leave in the order of their records

            error: ORDER BY is not part of queries
            1 | SELECT count(*) FROM s ORDER BY card OVER SLIDING 1h
              |                        ^^^^^
            hint: answers leave in the order of their records

            error: LIMIT is not part of queries
            1 | SELECT count(*) FROM s OVER SLIDING 1h LIMIT 10
              |                                        ^^^^^
            hint: a stream has no end to count to

            error: GROUP BY stands before OVER
            1 | SELECT count(*) FROM s OVER SLIDING 1h GROUP BY card
              |                                        ^^^^^

            error: WHERE stands before GROUP BY, once
            1 | SELECT count(*) FROM s GROUP BY card WHERE amount > 1 OVER SLIDING 1h
              |                                      ^^^^^

            error: the query ends before and
            1 | SELECT count(*) FROM s OVER SLIDING 1h and more
              |                                        ^^^

            error: the query ends before ;
            1 | SELECT count(*) FROM s OVER SLIDING 1h; SELECT 1
              |                                       ^

            error: an expression is missing
            1 | SELECT count(*) FROM s WHERE OVER SLIDING 1h
              |                        ^^^^^

            error: this parenthesis is never closed
            1 | SELECT count(*) FROM s WHERE (amount > 1 OVER SLIDING 1h
              |                              ^

            error: this parenthesis closes nothing
            1 | SELECT count(*) FROM s WHERE amount > 1) OVER SLIDING 1h
              |                                        ^

            error: GROUP takes BY
            1 | SELECT count(*) FROM s GROUP card OVER SLIDING 1h
              |                              ^^^^
            expected: GROUP BY and fields

            error: a field is missing in GROUP BY
            1 | SELECT count(*) FROM s GROUP BY OVER SLIDING 1h
              |                              ^^

            error: GROUP BY takes fields, not expressions
            1 | SELECT count(*) FROM s GROUP BY card, lower(merchant) OVER SLIDING 1h
              |                                       ^^^^^^^^^^^^^^^
            hint: compute the value in an operator before and group by its field

            error: "card" is grouped by twice
            1 | SELECT count(*) FROM s GROUP BY card, s.card OVER SLIDING 1h
              |                                       ^^^^^^

            error: an expression cannot hold a query
            1 | SELECT count(*) FROM s WHERE amount > (SELECT 1) OVER SLIDING 1h
              |                                        ^^^^^^
            hint: subqueries are not part of the language; join or enrich in an operator before
        "#]],
    );
}

#[test]
fn outputs_that_are_no_aggregates() {
    refused(
        &[
            "SELECT * FROM s OVER SLIDING 1h",
            "SELECT card, count(*) FROM s OVER SLIDING 1h",
            "SELECT sum(amount) / count(*) FROM s OVER SLIDING 1h",
            "SELECT 1 + sum(amount) FROM s OVER SLIDING 1h",
            "SELECT abs(amount) FROM s OVER SLIDING 1h",
            "SELECT smu(amount) FROM s OVER SLIDING 1h",
            "SELECT mean(amount) FROM s OVER SLIDING 1h",
            "SELECT median(amount) FROM s OVER SLIDING 1h",
            "SELECT frobnicate(amount) FROM s OVER SLIDING 1h",
            "SELECT sum(*) FROM s OVER SLIDING 1h",
            "SELECT count() FROM s OVER SLIDING 1h",
            "SELECT sum() FROM s OVER SLIDING 1h",
            "SELECT sum(amount, cents) FROM s OVER SLIDING 1h",
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

            error: an output is one aggregate
            1 | SELECT sum(amount) / count(*) FROM s OVER SLIDING 1h
              |                    ^
            hint: arithmetic stands inside an aggregate, as in sum(a * b), or in an operator after

            error: an output is an aggregate
            1 | SELECT 1 + sum(amount) FROM s OVER SLIDING 1h
              |        ^^^^^^^^^^^^^^^
            hint: expressions stand inside an aggregate: sum(amount * 2)

            error: there is no aggregate abs
            1 | SELECT abs(amount) FROM s OVER SLIDING 1h
              |        ^^^
            hint: functions of one record stand inside an aggregate: sum(abs(amount))

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

            error: sum(DISTINCT …) is not part of queries
            1 | SELECT sum(DISTINCT amount) FROM s OVER SLIDING 1h
              |            ^^^^^^^^
            hint: count(DISTINCT x) is; min and max do not need it

            error: the aggregate max cannot stand inside an expression
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
fn fields_and_types_are_checked() {
    refused(
        &[
            "SELECT sum(amout) FROM s OVER SLIDING 1h",
            "SELECT sum(Amount) FROM s OVER SLIDING 1h",
            "SELECT sum(card) FROM s OVER SLIDING 1h",
            "SELECT avg(declined) FROM s OVER SLIDING 1h",
            "SELECT avg(ts) FROM s OVER SLIDING 1h",
            "SELECT last(card_1h) FROM s OVER SLIDING 1h",
            "SELECT count(*) FROM s WHERE amount OVER SLIDING 1h",
            "SELECT count(*) FROM s WHERE card > 5 OVER SLIDING 1h",
            "SELECT count(*) FROM s WHERE other.amount > 5 OVER SLIDING 1h",
            "SELECT count(*)\nFROM s\nGROUP BY card,\n  merchnat\nOVER SLIDING 1h",
            "SELECT count(*) FROM s GROUP BY card_1h OVER SLIDING 1h",
            "SELECT count(*) FROM s GROUP BY card_1h.spent OVER SLIDING 1h",
        ],
        expect![[r#"
            error: there is no field "amout"
            1 | SELECT sum(amout) FROM s OVER SLIDING 1h
              |            ^^^^^
            hint: did you mean "amount"?

            error: there is no field "Amount"
            1 | SELECT sum(Amount) FROM s OVER SLIDING 1h
              |            ^^^^^^
            hint: did you mean "amount"? the case of names counts

            error: sum cannot take string
            1 | SELECT sum(card) FROM s OVER SLIDING 1h
              |            ^^^^
            expected: a number
            hint: CAST(x AS float64) reads a number from a text

            error: avg cannot take bool
            1 | SELECT avg(declined) FROM s OVER SLIDING 1h
              |            ^^^^^^^^
            expected: a number
            hint: avg(CAST(x AS int64)) takes true as 1

            error: avg cannot take timestamp(ms)
            1 | SELECT avg(ts) FROM s OVER SLIDING 1h
              |            ^^
            expected: a number
            hint: write avg(EPOCH_MS(ts)); min, max and last take timestamps

            error: last cannot take {spent: float64}
            1 | SELECT last(card_1h) FROM s OVER SLIDING 1h
              |             ^^^^^^^
            hint: name a member: last(card_1h.spent)

            error: WHERE takes a condition, not float64
            1 | SELECT count(*) FROM s WHERE amount OVER SLIDING 1h
              |                              ^^^^^^
            expected: bool
            hint: compare the number: x <> 0

            error: string and int64 cannot be compared
            1 | SELECT count(*) FROM s WHERE card > 5 OVER SLIDING 1h
              |                              ^^^^^^^^
            hint: CAST(… AS int64) reads a number from a text

            error: there is no field "other.amount"
            1 | SELECT count(*) FROM s WHERE other.amount > 5 OVER SLIDING 1h
              |                              ^^^^^^^^^^^^
            hint: the stream is "s"; write s.amount or amount

            error: there is no field "merchnat" to group by
            4 |   merchnat
              |   ^^^^^^^^
            hint: did you mean "merchant"?

            error: records cannot be grouped by "card_1h", a {spent: float64}
            1 | SELECT count(*) FROM s GROUP BY card_1h OVER SLIDING 1h
              |                                 ^^^^^^^

            error: there is no field "card_1h.spent" to group by
            1 | SELECT count(*) FROM s GROUP BY card_1h.spent OVER SLIDING 1h
              |                                 ^^^^^^^^^^^^^
            hint: the fields are ts, card, merchant, amount, cents, declined, price, card_1h
        "#]],
    );
}

#[test]
fn a_rank_of_minus_zero_is_zero() {
    let query = Query::parse("SELECT quantile(amount, -0.0) FROM s OVER INFINITE").unwrap();
    assert_eq!(query.outputs[0].function, Function::Quantile(0.0));
    assert!(query.fingerprint().contains("quantile(\"amount\", 0.0)"));
}

const WORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "OVER",
    "SLIDING",
    "TUMBLING",
    "INFINITE",
    "ROWS",
    "DELAYED",
    "DISTINCT",
    "AS",
    "count",
    "sum",
    "quantile",
    "(",
    ")",
    "*",
    ",",
    ".",
    "amount",
    "card",
    "s",
    "1",
    "0.5",
    "-",
    "HOUR",
    "MINUTES",
    "'1h'",
    "1h",
    ";",
    "AND",
    ">",
    "=",
    "HAVING",
    "ORDER",
    "LIMIT",
    "JOIN",
    "NULL",
    "\"",
    "'",
    "--",
    "CASE",
    "count(*)",
    "sum(amount)",
    "OVER SLIDING 1 HOUR",
    "FROM s",
    "GROUP BY card",
    "WHERE amount > 1",
];

fn survive(text: &str) {
    match Query::parse(text) {
        Ok(query) => {
            let fingerprint = query.fingerprint();
            if let Some(again) = parse_canonical(&fingerprint) {
                assert_eq!(again.fingerprint(), fingerprint);
            }
            if let Err(error) = query.bind(&schema()) {
                error.render(text);
            }
        }
        Err(error) => drop(error.render(text)),
    }
    let parsed = Query::parse(text).and_then(|query| Ok((query.bind(&schema())?, query)));
    match (parsed, Draft::read(text).bind(&schema())) {
        (Ok((bound, query)), Ok((drafted, bound_of_draft))) => {
            assert_eq!(query, drafted);
            assert_eq!(format!("{bound:?}"), format!("{bound_of_draft:?}"));
        }
        (Err(some), Err(all)) => {
            for error in some.iter() {
                assert!(
                    all.iter().any(|other| other == error) || all.iter().count() > 100,
                    "{error} is lost"
                );
            }
            assert!(!all.render(text).is_empty());
        }
        (Ok(_), Err(errors)) => panic!("{}", errors.render(text)),
        (Err(errors), Ok(_)) => panic!("not told: {}", errors.render(text)),
    }
}

/// A line per mistake: what it marks and what it says.
#[track_caller]
fn lines(text: &str, expected: Expect) {
    let errors = Draft::read(text).bind(&schema()).expect_err("a wrong query");
    let line = |error: &thalweg_expr::SqlError| {
        format!("{}: {error}\n", &text[error.span.clone().expect("each mistake has a place")])
    };
    expected.assert_eq(&errors.iter().map(line).collect::<String>());
}

#[test]
fn all_mistakes_of_a_query_are_told() {
    lines(
        "SELECT summ(amuont), avg(card) AS mean, quantile(cents, 2) AS q, prev(mrchant, 1), last(upcase(crad)) \
         FROM payments WHERE amout > 1 AND merchant GROUP BY crd, card, amount + 1 \
         OVER SLIDING 1 FORTNIGHT DELAYED BY 1 YEAR",
        expect![[r#"
            summ: there is no aggregate summ
            amuont: there is no field "amuont"
            card: avg cannot take string
            2: the rank of a quantile is a constant
            mrchant: there is no field "mrchant"
            1: prev takes one argument
            upcase: there is no function upcase
            crad: there is no field "crad"
            amout: there is no field "amout"
            merchant: AND takes a condition, not string
            crd: there is no field "crd" to group by
            amount + 1: GROUP BY takes fields, not expressions
            FORTNIGHT: FORTNIGHT is no unit of time
            YEAR: YEAR is no unit of time
        "#]],
    );
    lines(
        "SELECT amount, sum(x) AS, max() FROM 'payments' GROUP card, card OVER HOPPING 5 MINUTES DELAYED 1",
        expect![[r#"
            amount: an output is an aggregate
            x: there is no field "x"
            AS: the alias is missing after AS
            ): max takes an argument
            'payments': a stream is named without single quotes
            HOPPING: there is no HOPPING window
            1: DELAYED takes BY
            1: the span 1 has no unit
        "#]],
    );
    lines(
        "SELECT sum(DISTINCT amuont) AS a, sum(cents) AS a FROM (SELECT 1 FROM s) GROUP BY crd WHERE amuont > 1 OVER ROWS 0",
        expect![[r#"
            DISTINCT: sum(DISTINCT …) is not part of queries
            amuont: there is no field "amuont"
            sum(cents) AS a: two outputs are named "a"
            (: a query reads a stream, not another query
            crd: there is no field "crd" to group by
            WHERE: WHERE stands before GROUP BY, once
            amuont: there is no field "amuont"
            0: ROWS takes a number of records
        "#]],
    );
    lines(
        "SELECT sum(amuont) OVER SLIDING 0 HOURS",
        expect![[r#"
        amuont: there is no field "amuont"
        OVER: FROM is missing after the outputs
        0 HOURS: a SLIDING window of no width holds nothing
    "#]],
    );
    lines(
        "SELECT DISTINCT sum(amuont) FROM s HAVING n > 1 OVER SLIDNG 1 HOUR",
        expect![[r#"
        DISTINCT: SELECT DISTINCT is not part of queries
        amuont: there is no field "amuont"
        HAVING: HAVING is not part of queries
        SLIDNG: there is no SLIDNG window
    "#]],
    );
    lines(
        "SELECT sum(amuont) FROM WHERE crad = 'x' OVER INFINITE",
        expect![[r#"
        amuont: there is no field "amuont"
        WHERE: the stream is missing
        crad: there is no field "crad"
    "#]],
    );
    lines(
        "SELECT count(*) FROM s WHERE amuont > OVER SLIDING 1",
        expect![[r#"
        : the expression is incomplete
        1: the span 1 has no unit
    "#]],
    );
}

#[test]
fn a_mistake_does_not_cause_another() {
    lines(
        "SELECT sum(s.amount) FROM a JOIN s ON a.x = s.x WHERE s.amount > 1 GROUP BY a.x OVER INFINITE",
        expect![[r#"
            JOIN: a query reads one stream
        "#]],
    );
    lines(
        "SELECT sum(amount) FROM s WHERE amount > 1 SLIDING 1 HOUR",
        expect![[r#"
        SLIDING: OVER is missing before the window
    "#]],
    );
    lines(
        "SELECT sum(amount) FROM s GROUP BY card SLIDING 1 HOUR",
        expect![[r#"
        SLIDING: OVER is missing before the window
    "#]],
    );
    lines(
        "SELECT summ(amount) AS a, summ(amount) FROM s OVER SESSION 1 HOUR GAP 5",
        expect![[r#"
        summ: there is no aggregate summ
        summ: there is no aggregate summ
        SESSION: there is no SESSION window
    "#]],
    );
    lines(
        "SELECT sum(amount) AS a FORM s GROUP BY card OVER INFINITE",
        expect![[r#"
        GROUP: FROM is missing after the outputs
    "#]],
    );
    lines(
        "SELECT sum(amuont + 1) FROM s WHERE NOT (crad || 'x' = merchant) OVER INFINITE",
        expect![[r#"
        amuont: there is no field "amuont"
        crad: there is no field "crad"
    "#]],
    );
    lines(
        "SELECT sum(coalesce(amuont, cents)) FROM s OVER SLIDING 1 HUOR DELAYED BY 1 HOUR",
        expect![[r#"
            amuont: there is no field "amuont"
            HUOR: HUOR is no unit of time
        "#]],
    );
}

#[test]
fn a_refused_stream_may_stand_before_fields() {
    let text = "SELECT sum(payment.amount) AS a FROM payment WHERE payment.cents > 1 GROUP BY payment.card OVER INFINITE";
    let mut draft = Draft::read(text);
    let (name, span) = draft.stream().map(|(name, span)| (name.to_owned(), span)).unwrap();
    assert_eq!((name.as_str(), &text[span.clone()]), ("payment", "payment"));
    draft.refuse_stream(thalweg_expr::SqlError::new("no such stream").at(span));
    let errors = draft.bind(&schema()).unwrap_err();
    assert_eq!(errors.to_string(), "no such stream", "{}", errors.render(text));
}

#[test]
fn endless_texts_are_errors() {
    for count in [100, 10_000, 100_000] {
        survive(&"SELECT ".repeat(count));
        survive(&format!("SELECT {}count(*) FROM s OVER INFINITE", "count(*), ".repeat(count)));
        survive(&format!(
            "SELECT sum({}amount{}) FROM s OVER INFINITE",
            "(".repeat(count),
            ")".repeat(count)
        ));
        survive(&format!("SELECT {}", "sum(".repeat(count)));
        survive(&format!("SELECT count(*) FROM s WHERE {} OVER INFINITE", "amount > 1 AND ".repeat(count)));
        survive(&format!("SELECT count(*) FROM s GROUP BY {} OVER INFINITE", "a, ".repeat(count)));
    }
}

proptest! {
    #[test]
    fn any_text_is_a_query_or_an_error(text in "\\PC{0,80}") {
        survive(&text);
    }

    #[test]
    fn any_bytes_are_a_query_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        survive(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_words_are_a_query_or_an_error(words in prop::collection::vec(prop::sample::select(WORDS), 0..25)) {
        survive(&words.join(" "));
        survive(&format!("SELECT {}", words.join(" ")));
    }

    #[test]
    fn any_tail_is_a_query_or_an_error(words in prop::collection::vec(prop::sample::select(WORDS), 0..8)) {
        survive(&format!("SELECT sum(amount) FROM s {}", words.join(" ")));
        survive(&format!("SELECT sum(amount) FROM s OVER SLIDING 1h {}", words.join(" ")));
    }
}
