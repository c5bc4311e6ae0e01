use super::{check, constant, refused};

#[test]
fn between_numbers() {
    check(
        "CAST(x AS int64)",
        "x: float64",
        "1.9 | -1.9 | NaN | 1e19 | null",
        "int64: 1 | -1 | null | null | null",
    );
    check("CAST(x AS uint64)", "x: float64", "1.9 | -1 | 1.8e19", "uint64: 1 | null | 18000000000000000000");
    check("CAST(n AS uint64)", "n: int64", "5 | -5", "uint64: 5 | null");
    check("CAST(u AS int64)", "u: uint64", "5 | 18446744073709551615", "int64: 5 | null");
    check("CAST(n AS double)", "n: int64", "5", "float64: 5.0");
    check("CAST(n AS decimal(5,2))", "n: int64", "5 | 999 | 1000", "decimal(5,2): 5.00 | 999.00 | null");
    check(
        "CAST(x AS decimal(5,2))",
        "x: float64",
        "1.25 | -0.125 | 1000 | NaN",
        "decimal(5,2): 1.25 | -0.13 | null | null",
    );
    check(
        "CAST(d AS decimal(5,1))",
        "d: decimal(10,3)",
        "1.250 | -1.250 | 99999.999",
        "decimal(5,1): 1.3 | -1.3 | null",
    );
    check("CAST(d AS decimal(40,5))", "d: decimal(10,3)", "1.250", "decimal(40,5): 1.25000");
    check(
        "CAST(d AS int64)",
        "d: decimal(40,2)",
        "1.99 | -1.99 | 99999999999999999999",
        "int64: 1 | -1 | null",
    );
    check("CAST(d AS uint64)", "d: decimal(10,2)", "1.99 | -1.99", "uint64: 1 | null");
    check(
        "CAST(d AS float64)",
        "d: decimal(20,2)",
        "0.10 | 12345678901234567.89",
        "float64: 0.1 | 1.2345678901234568e16",
    );
    check("CAST(n AS bool)", "n: int64", "0 | 2 | null", "bool: false | true | null");
    check("CAST(p AS int64)", "p: bool", "true | false | null", "int64: 1 | 0 | null");
    check("TRY_CAST(n AS int64)", "n: int64", "1", "int64: 1");
    check("n::float64", "n: int64", "1", "float64: 1.0");
}

#[test]
fn from_text() {
    check(
        "CAST(s AS int64)",
        "s: string",
        "'12' | ' -3 ' | '1.5' | '' | null",
        "int64: 12 | -3 | null | null | null",
    );
    check("CAST(s AS uint64)", "s: string", "'12' | '-3'", "uint64: 12 | null");
    check(
        "CAST(s AS float64)",
        "s: string",
        "'1.5' | 'NaN' | '-inf' | 'x' | '1e3'",
        "float64: 1.5 | NaN | -inf | null | 1000.0",
    );
    check(
        "CAST(s AS decimal(5,2))",
        "s: string",
        "'1.5' | '-1.005' | '1000' | '.5' | '.' | '1e2' | '+7' | '1.2.3'",
        "decimal(5,2): 1.50 | -1.01 | null | 0.50 | null | null | 7.00 | null",
    );
    check("CAST(s AS bool)", "s: string", "'true' | 'F' | '1' | 'maybe'", "bool: true | false | true | null");
    check(
        "CAST(s AS timestamp(ms))",
        "s: string",
        "'2024-01-01T00:00:00.0009Z' | 'yesterday'",
        "timestamp(ms): 2024-01-01T00:00:00Z | null",
    );
    check("CAST(s AS timestamp)", "s: string", "'2024-01-01'", "timestamp(us): 2024-01-01T00:00:00Z");
    check(
        "CAST(s AS timestamp(9))",
        "s: string",
        "'1970-01-01 00:00:00.000000001' | '9999-01-01'",
        "timestamp(ns): 1ns | null",
    );
    check("CAST(s AS ip)", "s: string", "'10.0.0.1' | '::1' | '10.0.0'", "ip: 10.0.0.1 | ::1 | null");
    check("CAST(s AS bytes)", "s: string", "'ab'", "bytes: [97, 98]");
}

#[test]
fn to_text() {
    check("CAST(n AS string)", "n: int64", "-5 | null", "string: '-5' | null");
    check(
        "CAST(x AS varchar)",
        "x: float64",
        "1.5 | 1 | NaN | -inf",
        "string: '1.5' | '1.0' | 'NaN' | '-inf'",
    );
    check("CAST(d AS text)", "d: decimal(10,2)", "1.5 | -0.05", "string: '1.50' | '-0.05'");
    check("CAST(p AS string)", "p: bool", "true", "string: 'true'");
    check(
        "CAST(ts AS string)",
        "ts: timestamp(ms)",
        "1 | 0",
        "string: '1970-01-01T00:00:00.001Z' | '1970-01-01T00:00:00Z'",
    );
    check(
        "CAST(ts AS string)",
        "ts: timestamp(ns)",
        "1 | -1",
        "string: '1970-01-01T00:00:00.000000001Z' | '1969-12-31T23:59:59.999999999Z'",
    );
    check("CAST(ip AS string)", "ip: ip", "10.0.0.1 | 2001:db8::1", "string: '10.0.0.1' | '2001:db8::1'");
    check("CAST(b AS string)", "b: bytes", "'ab'", "string: 'ab'");
    constant("CAST(1.50 AS string)", "string: '1.50'");
}

#[test]
fn between_timestamps_and_counts() {
    check(
        "CAST(ts AS timestamp(s))",
        "ts: timestamp(ms)",
        "1999 | -1",
        "timestamp(s): 1970-01-01T00:00:01Z | 1969-12-31T23:59:59Z",
    );
    check(
        "CAST(ts AS timestamp(ns))",
        "ts: timestamp(s)",
        "1 | 9223372037",
        "timestamp(ns): 1000000000ns | null",
    );
    check("CAST(n AS timestamp(ms))", "n: int64", "1500", "timestamp(ms): 1970-01-01T00:00:01.5Z");
    check("CAST(ts AS int64)", "ts: timestamp(ms)", "1500", "int64: 1500");
}

#[test]
fn exact_literals_stay_exact() {
    constant("CAST(0.1234567890123456789 AS decimal(19,19))", "decimal(19,19): 0.1234567890123456789");
    constant("CAST(NULL AS ip)", "ip: null");
    constant("CAST('x' AS int64)", "int64: null");
}

#[test]
fn what_has_no_meaning_is_refused() {
    assert!(refused("CAST(ip AS int64)", "ip: ip").contains("ip cannot be cast to int64"));
    assert!(refused("CAST(ts AS float64)", "ts: timestamp(s)").contains("cannot be cast"));
    assert!(refused("CAST(p AS float64)", "p: bool").contains("cannot be cast"));
    assert!(refused("CAST(n AS timestamp(5))", "n: int64").contains("there is no type timestamp(5)"));
    assert!(refused("CAST(n AS int32)", "n: int64").contains("integers are int64 or uint64"));
    assert!(refused("CAST(n AS decimal(80,2))", "n: int64").contains("a precision of 1 to 76"));
    assert!(refused("CAST(n AS foo)", "n: int64").contains("there is no type foo"));
}
