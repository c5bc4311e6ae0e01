//! How errors of clauses look that are missing, elsewhere or no part of queries.

use expect_test::expect;

use super::refused;

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
            "SELECT count(*) FROM s GROUP BY card, lower(merchant), sum(amount) OVER SLIDING 1h",
            "SELECT count(*) FROM s GROUP BY lower(card), LOWER(card) OVER SLIDING 1h",
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

            error: GROUP BY comes before OVER
            1 | SELECT count(*) FROM s OVER SLIDING 1h GROUP BY card
              |                                        ^^^^^

            error: WHERE comes before GROUP BY, once
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

            error: the aggregate sum cannot be inside an expression
            1 | SELECT count(*) FROM s GROUP BY card, lower(merchant), sum(amount) OVER SLIDING 1h
              |                                                        ^^^
            hint: aggregates are the outputs of a query: SELECT sum(amount * 2) AS total FROM …

            error: LOWER(card) is grouped by twice
            1 | SELECT count(*) FROM s GROUP BY lower(card), LOWER(card) OVER SLIDING 1h
              |                                              ^^^^^^^^^^^

            error: s.card is grouped by twice
            1 | SELECT count(*) FROM s GROUP BY card, s.card OVER SLIDING 1h
              |                                       ^^^^^^

            error: an expression cannot hold a query
            1 | SELECT count(*) FROM s WHERE amount > (SELECT 1) OVER SLIDING 1h
              |                                        ^^^^^^
            hint: subqueries are not part of the language; join or enrich in an operator before
        "#]],
    );
}
