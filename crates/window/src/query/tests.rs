//! Queries as data: what they parse to, and how errors look.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use thalweg_types::{DataType, Field, Schema};

use super::{AggregateName, Query, Window};

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
        shown.push_str(&format!("{} = {}\n", output.alias, output.function.call(output.arg.as_ref())));
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
    let mut again =
        Query::parse(&fingerprint).unwrap_or_else(|error| panic!("{}", error.render(&fingerprint)));
    assert_eq!(again.fingerprint(), fingerprint, "the fingerprint is a query with the same fingerprint");
    for (output, original) in again.outputs.iter_mut().zip(&query.outputs) {
        output.alias.clone_from(&original.alias);
        output.span = original.span.clone();
    }
    assert_eq!(again.outputs, query.outputs);
}

/// The rendered error of a query that does not parse or bind.
#[track_caller]
fn refused(text: &str, expected: Expect) {
    match Query::parse(text).and_then(|query| query.bind(&schema())) {
        Ok(_) => panic!("{text} is a query"),
        Err(error) => {
            assert!(error.span.is_some(), "{error} has no place");
            expected.assert_eq(&error.render(text));
        }
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
    refused("SELECT count(*) FROM payments", expect![[r#""#]]);
    refused("SELECT count(*) FROM payments GROUP BY card SLIDING 1 HOUR", expect![[r#""#]]);
    refused("SELECT count(*) FROM payments OVER", expect![[r#""#]]);
    refused("SELECT count(*) FROM payments SLIDING 1 HOUR", expect![[r#""#]]);
}

#[test]
fn windows_that_do_not_exist() {
    refused("SELECT count(*) FROM s OVER HOPPING 1 HOUR", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER RANGE 1 HOUR", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SESSION 1 HOUR", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER (SLIDING 1 HOUR)", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER (PARTITION BY card)", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER 1 HOUR", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER ROWS 0", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER ROWS BETWEEN 3 PRECEDING AND CURRENT ROW", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER ROWS", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 0 SECONDS", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING -1 SECONDS", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 1", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 1 MONTH", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 5 MINTUES", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 99999999999999 DAYS", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 0.0000001 SECONDS", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 'an hour'", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING INTERVAL '1' HOUR", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 150000 DAYS DELAYED BY 150000000 DAYS", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 1h DELAYED 1 MINUTE", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 1h DELAYED BY", expect![[r#""#]]);
}

#[test]
fn clauses_that_do_not_exist_or_stand_elsewhere() {
    refused("", expect![[r#""#]]);
    refused("DELETE FROM s", expect![[r#""#]]);
    refused("SELECT DISTINCT card FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*), FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM a JOIN b ON a.x = b.x OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM a, b OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM payments p OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM (SELECT * FROM a) OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s GROUP BY card HAVING count(*) > 1 OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 1h HAVING count(*) > 1", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 1h ORDER BY card", expect![[r#""#]]);
    refused("SELECT count(*) FROM s ORDER BY card OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 1h LIMIT 10", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 1h GROUP BY card", expect![[r#""#]]);
    refused("SELECT count(*) FROM s GROUP BY card WHERE amount > 1 OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 1h and more", expect![[r#""#]]);
    refused("SELECT count(*) FROM s OVER SLIDING 1h; SELECT 1", expect![[r#""#]]);
    refused("SELECT count(*) FROM s WHERE OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s WHERE (amount > 1 OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s WHERE amount > 1) OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s GROUP card OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s GROUP BY OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s GROUP BY card, lower(merchant) OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s GROUP BY card, s.card OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s WHERE amount > (SELECT 1) OVER SLIDING 1h", expect![[r#""#]]);
}

#[test]
fn outputs_that_are_no_aggregates() {
    refused("SELECT * FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT card, count(*) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(amount) / count(*) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT 1 + sum(amount) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT abs(amount) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT smu(amount) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT mean(amount) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT median(amount) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT frobnicate(amount) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(*) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count() FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum() FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(amount, cents) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(DISTINCT amount) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(max(amount)) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(amount +) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(amount FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT quantile(amount) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT quantile(amount, 99) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT quantile(amount, cents) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(amount), sum(amount) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(amount) AS FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(amount) AS 'x' FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(amount) AS x y FROM s OVER SLIDING 1h", expect![[r#""#]]);
}

#[test]
fn fields_and_types_are_checked() {
    refused("SELECT sum(amout) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(Amount) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT sum(card) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT avg(declined) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT avg(ts) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT last(card_1h) FROM s OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s WHERE amount OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s WHERE card > 5 OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s WHERE other.amount > 5 OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*)\nFROM s\nGROUP BY card,\n  merchnat\nOVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s GROUP BY card_1h OVER SLIDING 1h", expect![[r#""#]]);
    refused("SELECT count(*) FROM s GROUP BY card_1h.spent OVER SLIDING 1h", expect![[r#""#]]);
}

#[test]
fn a_rank_of_minus_zero_is_zero() {
    let query = Query::parse("SELECT quantile(amount, -0.0) FROM s OVER INFINITE").unwrap();
    assert_eq!(query.outputs[0].function, AggregateName::Quantile(0.0));
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
            let again =
                Query::parse(&fingerprint).unwrap_or_else(|error| panic!("{}", error.render(&fingerprint)));
            assert_eq!(again.fingerprint(), fingerprint);
            if let Err(error) = query.bind(&schema()) {
                error.render(text);
            }
        }
        Err(error) => drop(error.render(text)),
    }
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
