use super::{check, constant};

#[test]
fn nan_is_above_everything_and_zeros_are_equal() {
    let rows = "1, 2 | 2, 2 | NaN, inf | inf, NaN | NaN, NaN | -0, 0 | 0, -0 | null, 1";
    let two = "a: float64, b: float64";
    check("a = b", two, rows, "bool: false | true | false | false | true | true | true | null");
    check("a <> b", two, rows, "bool: true | false | true | true | false | false | false | null");
    check("a < b", two, rows, "bool: true | false | false | true | false | false | false | null");
    check("a <= b", two, rows, "bool: true | true | false | true | true | true | true | null");
    check("a > b", two, rows, "bool: false | false | true | false | false | false | false | null");
    check("a >= b", two, rows, "bool: false | true | true | false | true | true | true | null");
    check("-a < b", "a: float64, b: float64", "NaN, 1", "bool: false");
}

#[test]
fn distinct_knows_null() {
    let rows = "1, 1 | 1, 2 | null, 1 | 1, null | null, null";
    for fields in ["a: int64, b: int64", "a: float64, b: float64", "a: decimal(5,1), b: decimal(5,1)"] {
        check("a IS DISTINCT FROM b", fields, rows, "bool: false | true | true | true | false");
        check("a IS NOT DISTINCT FROM b", fields, rows, "bool: true | false | false | false | true");
    }
    check("a IS NOT DISTINCT FROM b", "a: float64, b: float64", "NaN, NaN | -0, 0", "bool: true | true");
    check("a IS DISTINCT FROM NULL", "a: string", "'x' | null", "bool: true | false");
    check("a IS DISTINCT FROM b AND b = 1", "a: int64, b: int64", "2, 1 | 2, 3", "bool: true | false");
}

#[test]
fn integers_compare_exactly_across_types() {
    let mixed = "i: int64, u: uint64";
    check("i < u", mixed, "-1, 18446744073709551615 | 5, 5", "bool: true | false");
    check(
        "i = u",
        mixed,
        "9223372036854775807, 9223372036854775807 | -1, 18446744073709551615",
        "bool: true | false",
    );
    check("u > -1", "u: uint64", "0", "bool: true");
    check("u = 18446744073709551615", "u: uint64", "18446744073709551615 | 1", "bool: true | false");
    check("i < 99999999999999999999", "i: int64", "9223372036854775807", "bool: true");
    check("i > 1.5", "i: int64", "1 | 2", "bool: false | true");
    check("d = i", "d: decimal(10,2), i: int64", "2.00, 2 | 2.01, 2", "bool: true | false");
    check("d > 1.005", "d: decimal(10,2)", "1.00 | 1.01", "bool: false | true");
    check("d > x", "d: decimal(10,2), x: float64", "1.5, 1.25", "bool: true");
    check("a < b", "a: decimal(5,1), b: decimal(40,3)", "1.5, 1.501", "bool: true");
}

#[test]
fn texts_bytes_and_booleans_compare() {
    check("s < 'b'", "s: string", "'a' | 'B' | 'b' | '' | null", "bool: true | true | false | true | null");
    check(
        "s = 'grüße aus dem langen Tal'",
        "s: string",
        "'grüße aus dem langen Tal' | 'grüße'",
        "bool: true | false",
    );
    check("a = b", "a: string, b: string", "'x', 'x' | 'x', 'y'", "bool: true | false");
    check("p = TRUE", "p: bool", "true | false | null", "bool: true | false | null");
    check("p < q", "p: bool, q: bool", "false, true | true, false", "bool: true | false");
    check("b = 'ab'", "b: bytes", "'ab' | 'b'", "bool: true | false");
    check("'x' = s", "s: string", "'x'", "bool: true");
}

#[test]
fn addresses_compare_with_texts() {
    check("ip = '10.0.0.1'", "ip: ip", "10.0.0.1 | 10.0.0.2 | null", "bool: true | false | null");
    check(
        "ip BETWEEN '10.0.0.0' AND '10.255.255.255'",
        "ip: ip",
        "10.9.8.7 | 11.0.0.0",
        "bool: true | false",
    );
    check("ip IN ('::1', '10.0.0.1')", "ip: ip", "::1 | 10.0.0.1 | 2001:db8::1", "bool: true | true | false");
    check("a = b", "a: ip, b: ip", "::ffff:1.2.3.4, 1.2.3.4", "bool: true");
}

#[test]
fn timestamps_compare_with_texts_and_across_units() {
    let ts = "ts: timestamp(ms)";
    let rows = "'2024-02-29T13:45:00.500Z' | '2024-02-29T13:45:01Z' | null";
    check("ts > TIMESTAMP '2024-02-29 13:45:00.75'", ts, rows, "bool: false | true | null");
    check("ts > '2024-02-29 13:45:00.75'", ts, rows, "bool: false | true | null");
    check("ts >= '2024-02-29T14:45:00.5+01:00'", ts, rows, "bool: true | true | null");
    check("ts < '2024-02-29 13:45:00.500001'", ts, rows, "bool: true | false | null");
    check(
        "a = b",
        "a: timestamp(s), b: timestamp(ns)",
        "1, 1000000000 | 1, 1000000001",
        "bool: true | false",
    );
    check(
        "ts = DATE '2024-02-29'",
        "ts: timestamp(s)",
        "'2024-02-29' | '2024-02-29T00:00:01'",
        "bool: true | false",
    );
    check("ts IN ('2024-02-29', '2024-03-01 12:00')", ts, "'2024-03-01T12:00:00' | 0", "bool: true | false");
}

#[test]
fn between_is_two_comparisons() {
    let three = "x: int64, a: int64, b: int64";
    let rows = "2, 1, 3 | 1, 1, 1 | 0, 1, 3 | 2, null, 3 | 4, null, 3 | null, 1, 2";
    check("x BETWEEN a AND b", three, rows, "bool: true | true | false | null | false | null");
    check("x NOT BETWEEN a AND b", three, rows, "bool: false | false | true | null | true | null");
    check("x BETWEEN 1 AND 2.5", "x: int64", "2 | 3", "bool: true | false");
    check("x BETWEEN 1 AND 3 AND x <> 2", "x: int64", "1 | 2", "bool: true | false");
}

#[test]
fn lists_find_members_and_know_null() {
    check("x IN (1, 2, 3)", "x: int64", "1 | 4 | null", "bool: true | false | null");
    check("x NOT IN (1, 2, 3)", "x: int64", "1 | 4 | null", "bool: false | true | null");
    check("x IN (1, NULL)", "x: int64", "1 | 4", "bool: true | null");
    check("x NOT IN (1, NULL)", "x: int64", "1 | 4", "bool: false | null");
    check("s IN ('a', 'ccc', 'b')", "s: string", "'a' | 'ccc' | 'd'", "bool: true | true | false");
    check("x IN (1.5, -0.0)", "x: float64", "1.5 | 0 | NaN", "bool: true | true | false");
    check("u IN (1, 18446744073709551615)", "u: uint64", "18446744073709551615 | 2", "bool: true | false");
    check(
        "x IN (a, b)",
        "x: int64, a: int64, b: int64",
        "1, 1, 2 | 2, 1, 2 | 3, 1, null",
        "bool: true | true | null",
    );
    check("d IN (1, 2.50)", "d: decimal(10,2)", "1.00 | 2.50 | 2.51", "bool: true | true | false");
    check("p IN (TRUE)", "p: bool", "true | false", "bool: true | false");
    constant("1 IN (1)", "bool: true");
    constant("NULL IN (1, 2)", "bool: null");
    constant("NULL = NULL", "bool: null");
}
