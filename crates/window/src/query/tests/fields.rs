//! How errors of fields and their types look.

use expect_test::expect;

use super::refused;

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
            "SELECT count(*) FROM s GROUP BY card_1h.spnt OVER SLIDING 1h",
            "SELECT count(*) FROM s GROUP BY 1 OVER SLIDING 1h",
            "SELECT count(*) FROM s GROUP BY card, length('abc') OVER SLIDING 1h",
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

            error: there is no field "merchnat"
            4 |   merchnat
              |   ^^^^^^^^
            hint: did you mean "merchant"?

            error: records cannot be grouped by a {spent: float64}
            1 | SELECT count(*) FROM s GROUP BY card_1h OVER SLIDING 1h
              |                                 ^^^^^^^

            error: "card_1h" has no member "spnt"
            1 | SELECT count(*) FROM s GROUP BY card_1h.spnt OVER SLIDING 1h
              |                                 ^^^^^^^^^^^^
            hint: did you mean "spent"?

            error: all records have one value of this
            1 | SELECT count(*) FROM s GROUP BY 1 OVER SLIDING 1h
              |                                 ^
            expected: a field or an expression over fields

            error: all records have one value of this
            1 | SELECT count(*) FROM s GROUP BY card, length('abc') OVER SLIDING 1h
              |                                       ^^^^^^^^^^^^^
            expected: a field or an expression over fields
        "#]],
    );
}
