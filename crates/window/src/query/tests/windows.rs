//! Windows and their spans, and how errors in them look.

use expect_test::expect;

use super::refused;
use crate::query::{Query, Window};

fn window(text: &str) -> Window {
    let text = format!("SELECT count(*) FROM s OVER {text}");
    Query::parse(&text).unwrap_or_else(|error| panic!("{}", error.render(&text))).window
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
