//! Every mistake of a query is reported, and none that only follows from another.

use expect_test::{Expect, expect};

use super::schema;
use crate::query::Draft;

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
            crd: there is no field "crd"
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
            crd: there is no field "crd"
            WHERE: WHERE comes before GROUP BY, once
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
