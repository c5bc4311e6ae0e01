//! What queries parse to, and which have the same fingerprint.

use expect_test::{Expect, expect};

use super::{parse_canonical, schema};
use crate::agg::Function;
use crate::query::Query;

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
        shown.push_str(&format!("{} = {output}\n", output.alias));
    }
    shown.push_str(&format!("from {}\n", query.stream));
    if let Some(filter) = &query.filter {
        shown.push_str(&format!("where {filter}\n"));
    }
    for key in &query.group_by {
        shown.push_str(&format!("by {key} ({})\n", &text[key.span()]));
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
    assert_eq!(again.group_by, query.group_by);
}

#[test]
fn the_queries_of_the_design() {
    check(
        "SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR",
        expect![[r#"
            spent = sum("amount")
            n = count(*)
            from payments
            by "card" (card)
            over Sliding(3600000000), delay 0
        "#]],
    );
    check(
        "SELECT avg(amount) AS mean FROM payments WHERE amount > 1 GROUP BY merchant OVER SLIDING 5 MINUTES DELAYED BY 1 MINUTE",
        expect![[r#"
            mean = avg("amount")
            from payments
            where ("amount" > 1)
            by "merchant" (merchant)
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
            by "card" (card)
            by "merchant" ("pay-ments".merchant)
            over Tumbling(3600000000), delay 90000000
        "#]],
    );
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
fn a_rank_of_minus_zero_is_zero() {
    let query = Query::parse("SELECT quantile(amount, -0.0) FROM s OVER INFINITE").unwrap();
    assert_eq!(query.outputs[0].calls[0].function, Function::Quantile(0.0));
    assert!(query.fingerprint().contains("quantile(\"amount\", 0.0)"));
}

#[test]
fn a_filter_of_an_aggregate_is_a_case_in_its_argument() {
    check(
        "SELECT count(*) FILTER (WHERE amount > 100) AS big, sum(cents) filter (where declined) lost, \
         quantile(amount, 0.5) FILTER (WHERE NOT declined), count(DISTINCT card) FILTER (WHERE NULL) AS none, \
         count(*) filter FROM s WHERE cents > 0 GROUP BY card OVER ROWS 10",
        expect![[r#"
            big = count(CASE WHEN ("amount" > 100) THEN TRUE END)
            lost = sum(CASE WHEN "declined" THEN "cents" END)
            quantile_amount = quantile(CASE WHEN (NOT "declined") THEN "amount" END, 0.5)
            none = count(DISTINCT CASE WHEN NULL THEN "card" END)
            filter = count(*)
            from s
            where ("cents" > 0)
            by "card" (card)
            over Rows(10), delay 0
        "#]],
    );
}

#[test]
fn an_output_is_made_of_aggregates() {
    check(
        "SELECT sum(amount) / count(*) AS mean, max(price) - min(price) spread, (last(cents)) AS newest, \
         100.0 * count(*) FILTER (WHERE declined) / count(*), -sum(cents), \
         CASE WHEN count(*) > 1 THEN round(stddev(amount), 2) ELSE 0 END AS sd, \
         last(card) IS NOT DISTINCT FROM prev(card) AS same, sum(cents) IS NULL AS empty, \
         sum(amount) BETWEEN min(amount) AND 5 FROM s OVER SLIDING 1h",
        expect![[r#"
            mean = (sum("amount") / count(*))
            spread = (max("price") - min("price"))
            newest = last("cents")
            100_0_count_declined_count = ((100.0 * count(CASE WHEN "declined" THEN TRUE END)) / count(*))
            sum_cents = (- sum("cents"))
            sd = CASE WHEN (count(*) > 1) THEN ROUND(stddev("amount"), 2) ELSE 0 END
            same = (last("card") IS NOT DISTINCT FROM prev("card"))
            empty = (sum("cents") IS NULL)
            sum_amount_BETWEEN_min_amount_AND_5 = (sum("amount") BETWEEN min("amount") AND 5)
            from s
            over Sliding(3600000000), delay 0
        "#]],
    );
}

#[test]
fn outputs_of_different_expressions_over_the_same_aggregates_differ() {
    let fingerprint = |output: &str| {
        Query::parse(&format!("SELECT {output} AS x FROM s OVER INFINITE")).unwrap().fingerprint()
    };
    assert_eq!(fingerprint("sum(a)/count(*)"), fingerprint("( SUM( a ) / count(*) )"));
    assert_ne!(fingerprint("sum(a) / count(*)"), fingerprint("sum(a) - count(*)"));
    assert_ne!(fingerprint("sum(a) / count(*)"), fingerprint("sum(a) / count(b)"));
}

#[test]
fn pairs_and_triples_are_counted() {
    check(
        "SELECT count(DISTINCT card, merchant), count_distinct(card, lower(merchant), cents) AS three, \
         count(DISTINCT card, cents) FILTER (WHERE declined) AS declined FROM s OVER SLIDING 1h",
        expect![[r#"
            count_distinct_card_merchant = count(DISTINCT "card", "merchant")
            three = count(DISTINCT "card", LOWER("merchant"), "cents")
            declined = count(DISTINCT CASE WHEN "declined" THEN "card" END, "cents")
            from s
            over Sliding(3600000000), delay 0
        "#]],
    );
}

#[test]
fn groups_are_by_expressions_too() {
    check(
        "select count(*) as n from s group by s.card, DATE_TRUNC('hour', ts), merchant like 'a%' , amount > 1 over infinite",
        expect![[r#"
            n = count(*)
            from s
            by "card" (s.card)
            by DATE_TRUNC('hour', "ts") (DATE_TRUNC('hour', ts))
            by ("merchant" LIKE 'a%') (merchant like 'a%')
            by ("amount" > 1) (amount > 1)
            over Infinite, delay 0
        "#]],
    );
}
