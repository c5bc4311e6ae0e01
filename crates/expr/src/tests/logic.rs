use super::{check, constant};

#[test]
fn connectives_are_three_valued() {
    let two = "p: bool, q: bool";
    let rows = "true, true | true, false | true, null | false, false | false, null | null, null";
    check("p AND q", two, rows, "bool: true | false | null | false | false | null");
    check("p OR q", two, rows, "bool: true | true | true | false | null | null");
    check("NOT p", two, rows, "bool: false | false | false | true | true | null");
    check("p AND NULL", "p: bool", "true | false | null", "bool: null | false | null");
    check("p OR NULL", "p: bool", "true | false | null", "bool: true | null | null");
    check("NULL AND p AND TRUE", "p: bool", "true | false", "bool: null | false");
    constant("NOT NULL", "bool: null");
    constant("TRUE OR NULL AND FALSE", "bool: true");
}

#[test]
fn precedence_is_not_then_and_then_or() {
    check("p OR q AND NOT p", "p: bool, q: bool", "false, true | false, false", "bool: true | false");
    check("(p OR q) AND NOT p", "p: bool, q: bool", "true, true | false, true", "bool: false | true");
    check("NOT p = q", "p: bool, q: bool", "true, true | true, false", "bool: false | true");
    check("NOT n IS NULL", "n: int64", "1 | null", "bool: true | false");
    check("n + 1 > 2 * 3 AND n < 10", "n: int64", "5 | 6 | 10", "bool: false | true | false");
}

#[test]
fn long_chains_stop_early_and_stay_right() {
    check("p AND p AND q AND p", "p: bool, q: bool", "false, true | false, null", "bool: false | false");
    check("p OR q OR p", "p: bool, q: bool", "true, null | true, false", "bool: true | true");
    let many: Vec<String> = (0..300).map(|n| format!("n <> {n}")).collect();
    check(&many.join(" AND "), "n: int64", "7 | 300", "bool: false | true");
}

#[test]
fn is_never_gives_null() {
    let rows = "true | false | null";
    for (expr, expected) in [
        ("p IS NULL", "false | false | true"),
        ("p IS NOT NULL", "true | true | false"),
        ("p IS TRUE", "true | false | false"),
        ("p IS NOT TRUE", "false | true | true"),
        ("p IS FALSE", "false | true | false"),
        ("p IS NOT FALSE", "true | false | true"),
        ("p IS UNKNOWN", "false | false | true"),
    ] {
        check(expr, "p: bool", rows, &format!("bool: {expected}"));
    }
    check("n + 1 IS NULL", "n: int64", "1 | 9223372036854775807", "bool: false | true");
    constant("NULL IS NULL", "bool: true");
    constant("NULL IS NOT TRUE", "bool: true");
}
