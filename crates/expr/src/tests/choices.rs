use super::{check, constant};

#[test]
fn case_takes_the_first_branch_that_is_true() {
    let expr = "CASE WHEN n < 10 THEN 'small' WHEN n < 100 THEN 'medium' ELSE 'large' END";
    check(expr, "n: int64", "1 | 10 | 100 | null", "string: 'small' | 'medium' | 'large' | 'large'");
    check("CASE WHEN n < 10 THEN 1 END", "n: int64", "1 | 10", "int64: 1 | null");
    check(
        "CASE n WHEN 1 THEN 'one' WHEN 2 THEN 'two' END",
        "n: int64",
        "1 | 2 | 3",
        "string: 'one' | 'two' | null",
    );
    check("CASE n WHEN NULL THEN 1 ELSE 2 END", "n: int64", "1 | null", "int64: 2 | 2");
    check(
        "CASE WHEN p THEN n ELSE 0.5 END",
        "p: bool, n: int64",
        "true, 3 | false, 3 | null, 3",
        "float64: 3.0 | 0.5 | 0.5",
    );
    check(
        "CASE WHEN p THEN d ELSE 0 END",
        "p: bool, d: decimal(10,2)",
        "true, 1.50 | false, 1.50",
        "decimal(10,2): 1.50 | 0.00",
    );
    check(
        "CASE WHEN p THEN a ELSE b END",
        "p: bool, a: ip, b: ip",
        "true, ::1, ::2 | false, ::1, ::2",
        "ip: ::1 | ::2",
    );
    check(
        "if(p, a, b)",
        "p: bool, a: string, b: string",
        "true, 'x', 'y' | null, 'x', 'y'",
        "string: 'x' | 'y'",
    );
    check("CASE WHEN NULL THEN 1 ELSE n END", "n: int64", "7", "int64: 7");
    check("CASE WHEN n <> 0 THEN 10 / n ELSE 0 END", "n: int64", "0 | 5", "int64: 0 | 2");
}

#[test]
fn coalesce_takes_the_first_that_is_not_null() {
    let three = "a: int64, b: int64, c: int64";
    check(
        "coalesce(a, b, c)",
        three,
        "1, 2, 3 | null, 2, 3 | null, null, 3 | null, null, null",
        "int64: 1 | 2 | 3 | null",
    );
    check("coalesce(a, 0)", "a: int64", "null | 5", "int64: 0 | 5");
    check("coalesce(s, 'none')", "s: string", "null | ''", "string: 'none' | ''");
    check("coalesce(a, 0.5)", "a: int64", "null | 5", "float64: 0.5 | 5.0");
    check("ifnull(a, 1)", "a: int64", "null", "int64: 1");
    check("coalesce(a)", "a: int64", "null", "int64: null");
    constant("coalesce(NULL, 3)", "int64: 3");
}

#[test]
fn nullif_compares_and_keeps_the_first_type() {
    check(
        "nullif(a, b)",
        "a: int64, b: int64",
        "1, 1 | 1, 2 | 1, null | null, 1",
        "int64: null | 1 | 1 | null",
    );
    check("nullif(s, '')", "s: string", "'' | 'x'", "string: null | 'x'");
    check("nullif(a, 1.0)", "a: int64", "1 | 2", "int64: null | 2");
    check("nullif(x, x)", "x: float64", "NaN | 1", "float64: null | null");
    check("a / nullif(b, 0)", "a: float64, b: float64", "1, 0 | 1, 4", "float64: null | 0.25");
}

#[test]
fn greatest_and_least_leave_nulls_out() {
    let three = "a: int64, b: int64, c: int64";
    let rows = "1, 3, 2 | null, 3, 2 | 1, null, null | null, null, null | null, null, 4";
    check("greatest(a, b, c)", three, rows, "int64: 3 | 3 | 1 | null | 4");
    check("least(a, b, c)", three, rows, "int64: 1 | 2 | 1 | null | 4");
    check("greatest(x, 1.5)", "x: float64", "1 | NaN | null", "float64: 1.5 | NaN | 1.5");
    check("least(x, 1.5)", "x: float64", "1 | NaN", "float64: 1.0 | 1.5");
    check("greatest(s, 'm')", "s: string", "'a' | 'z'", "string: 'm' | 'z'");
    check(
        "least(ts, '2024-01-01')",
        "ts: timestamp(s)",
        "'2023-01-01' | '2025-01-01'",
        "timestamp(s): 2023-01-01T00:00:00Z | 2024-01-01T00:00:00Z",
    );
}
