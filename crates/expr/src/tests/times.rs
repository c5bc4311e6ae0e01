use super::{check, constant};

#[test]
fn parts_of_a_timestamp() {
    let rows = "'2024-02-29T13:45:06.789Z' | '1969-12-31T23:59:59.999Z' | null";
    for (part, expected) in [
        ("YEAR", "2024 | 1969 | null"),
        ("quarter", "1 | 4 | null"),
        ("MONTH", "2 | 12 | null"),
        ("DAY", "29 | 31 | null"),
        ("HOUR", "13 | 23 | null"),
        ("MINUTE", "45 | 59 | null"),
        ("SECOND", "6 | 59 | null"),
        ("MILLISECONDS", "6789 | 59999 | null"),
        ("MICROSECOND", "6789000 | 59999000 | null"),
        ("DOW", "4 | 3 | null"),
        ("ISODOW", "4 | 3 | null"),
        ("DOY", "60 | 365 | null"),
        ("WEEK", "9 | 1 | null"),
        ("ISOYEAR", "2024 | 1970 | null"),
        ("EPOCH", "1709214306 | -1 | null"),
    ] {
        check(&format!("EXTRACT({part} FROM ts)"), "ts: timestamp(ms)", rows, &format!("int64: {expected}"));
    }
    constant("extract(dow FROM DATE '2024-03-03')", "int64: 0");
    constant("extract(isodow FROM DATE '2024-03-03')", "int64: 7");
    constant("extract(week FROM DATE '2021-01-03')", "int64: 53");
    constant("extract(isoyear FROM DATE '2021-01-03')", "int64: 2020");
    constant("extract(week FROM DATE '2018-12-31')", "int64: 1");
}

#[test]
fn cuts_of_a_timestamp() {
    let rows = "'2024-08-29T13:45:06.789123Z' | '1969-12-31T23:59:59.999999Z'";
    for (unit, expected) in [
        ("year", "2024-01-01T00:00:00Z | 1969-01-01T00:00:00Z"),
        ("quarter", "2024-07-01T00:00:00Z | 1969-10-01T00:00:00Z"),
        ("month", "2024-08-01T00:00:00Z | 1969-12-01T00:00:00Z"),
        ("week", "2024-08-26T00:00:00Z | 1969-12-29T00:00:00Z"),
        ("day", "2024-08-29T00:00:00Z | 1969-12-31T00:00:00Z"),
        ("HOUR", "2024-08-29T13:00:00Z | 1969-12-31T23:00:00Z"),
        ("minute", "2024-08-29T13:45:00Z | 1969-12-31T23:59:00Z"),
        ("second", "2024-08-29T13:45:06Z | 1969-12-31T23:59:59Z"),
        ("millisecond", "2024-08-29T13:45:06.789Z | 1969-12-31T23:59:59.999Z"),
        ("microseconds", "2024-08-29T13:45:06.789123Z | 1969-12-31T23:59:59.999999Z"),
    ] {
        check(
            &format!("date_trunc('{unit}', ts)"),
            "ts: timestamp(us)",
            rows,
            &format!("timestamp(us): {expected}"),
        );
    }
    check(
        "date_trunc('day', ts)",
        "ts: timestamp(ns)",
        "-9223372036854775808 | 1",
        "timestamp(ns): null | 0ns",
    );
    constant("date_trunc('hour', TIMESTAMP '2024-01-02 03:04:05')", "timestamp(s): 2024-01-02T03:00:00Z");
}

#[test]
fn counts_since_the_epoch() {
    check("epoch_ms(ts)", "ts: timestamp(us)", "1999 | -1 | null", "int64: 1 | -1 | null");
    check("epoch_us(ts)", "ts: timestamp(ms)", "5 | 9223372036854775807", "int64: 5000 | null");
    check("epoch_ns(ts)", "ts: timestamp(ns)", "5", "int64: 5");
    check("epoch(ts)", "ts: timestamp(ms)", "1999 | -1", "int64: 1 | -1");
    check("to_unixtime(ts)", "ts: timestamp(s)", "5", "int64: 5");
    check("epoch_ms(a) - epoch_ms(b)", "a: timestamp(s), b: timestamp(ms)", "2, 500", "int64: 1500");
}

#[test]
fn literals() {
    constant("TIMESTAMP '2024-02-29 13:45:00'", "timestamp(s): 2024-02-29T13:45:00Z");
    constant("TIMESTAMP '2024-02-29 13:45:00.25'", "timestamp(ms): 2024-02-29T13:45:00.25Z");
    constant("TIMESTAMP '2024-02-29T13:45:00.000001+01:00'", "timestamp(us): 2024-02-29T12:45:00.000001Z");
    constant("TIMESTAMP '1970-01-01 00:00:00.000000001'", "timestamp(ns): 1ns");
    constant("TIMESTAMP '0000-01-01'", "timestamp(s): 0000-01-01T00:00:00Z");
    constant("TIMESTAMP '2024-01-01' < TIMESTAMP '2024-01-01 00:00:00.001'", "bool: true");
}
