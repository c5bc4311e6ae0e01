use arrow_array::cast::AsArray as _;
use arrow_array::types::Float64Type;

use super::{check, constant, evaluate, table};
use crate::Expr;

#[test]
fn absolute_values_and_signs() {
    check("abs(n)", "n: int64", "-5 | 5 | -9223372036854775808 | null", "int64: 5 | 5 | null | null");
    check("abs(x)", "x: float64", "-1.5 | -0 | NaN", "float64: 1.5 | 0.0 | NaN");
    check("abs(u)", "u: uint64", "5", "uint64: 5");
    check("abs(d)", "d: decimal(10,2)", "-1.25", "decimal(10,2): 1.25");
    check("sign(n)", "n: int64", "-5 | 0 | 7", "int64: -1 | 0 | 1");
    check("sign(u)", "u: uint64", "0 | 7", "int64: 0 | 1");
    check("sign(x)", "x: float64", "-2.5 | 0 | -0 | NaN", "float64: -1.0 | 0.0 | 0.0 | NaN");
    check("sign(d)", "d: decimal(10,2)", "-1.25 | 0 | 0.01", "int64: -1 | 0 | 1");
}

#[test]
fn ceilings_and_floors() {
    check("ceil(x)", "x: float64", "1.2 | -1.2 | NaN", "float64: 2.0 | -1.0 | NaN");
    check("floor(x)", "x: float64", "1.8 | -1.2 | -inf", "float64: 1.0 | -2.0 | -inf");
    check("ceiling(n)", "n: int64", "3", "int64: 3");
    check(
        "ceil(d)",
        "d: decimal(10,2)",
        "1.01 | -1.01 | 2.00 | 99999999.99",
        "decimal(9,0): 2 | -1 | 2 | 100000000",
    );
    check("floor(d)", "d: decimal(10,2)", "1.01 | -1.01 | 2.00", "decimal(9,0): 1 | -2 | 2");
}

#[test]
fn rounding_is_half_away_from_zero() {
    check(
        "round(x)",
        "x: float64",
        "0.5 | 1.5 | -0.5 | -2.5 | NaN",
        "float64: 1.0 | 2.0 | -1.0 | -3.0 | NaN",
    );
    check(
        "round(x, 2)",
        "x: float64",
        "1.005 | 2.675 | -1.115 | 1e300 | inf",
        "float64: 1.01 | 2.68 | -1.12 | 1e300 | inf",
    );
    check("round(x, -2)", "x: float64", "150 | 149.9 | 1e20", "float64: 200.0 | 100.0 | 1e20");
    check("round(x, 300)", "x: float64", "1.5", "float64: 1.5");
    check("round(x, -400)", "x: float64", "1.5 | -1e308", "float64: 0.0 | -0.0");
    check(
        "round(n, -2)",
        "n: int64",
        "149 | 150 | -150 | 9223372036854775807",
        "int64: 100 | 200 | -200 | 9223372036854775800",
    );
    check("round(n, -1)", "n: int64", "9223372036854775807", "int64: null");
    check("round(n, -30)", "n: int64", "9223372036854775807", "int64: 0");
    check("round(u, -1)", "u: uint64", "15", "uint64: 20");
    check("round(n, 2)", "n: int64", "149", "int64: 149");
    check(
        "round(d, 1)",
        "d: decimal(10,3)",
        "1.250 | -1.250 | 1.249 | 9999999.950",
        "decimal(9,1): 1.3 | -1.3 | 1.2 | 10000000.0",
    );
    check("round(d)", "d: decimal(10,2)", "1.50 | -1.49", "decimal(9,0): 2 | -1");
    check("round(d, -1)", "d: decimal(10,2)", "15.00 | 14.99", "decimal(9,0): 20 | 10");
    check("round(d, 5)", "d: decimal(10,2)", "1.25", "decimal(10,2): 1.25");
}

#[test]
fn powers_roots_and_logarithms() {
    check("sqrt(x)", "x: float64", "4 | -1 | null", "float64: 2.0 | NaN | null");
    check("sqrt(n)", "n: int64", "9", "float64: 3.0");
    check("ln(x)", "x: float64", "1 | 0 | -1", "float64: 0.0 | -inf | NaN");
    check("log10(x)", "x: float64", "1000", "float64: 3.0");
    check("exp(x)", "x: float64", "0 | 1000", "float64: 1.0 | inf");
    check(
        "power(a, b)",
        "a: float64, b: float64",
        "2, 10 | 2, -1 | -8, 0.5 | null, 1",
        "float64: 1024.0 | 0.5 | NaN | null",
    );
    check("pow(n, 2)", "n: int64", "3", "float64: 9.0");
    constant("sqrt(NULL)", "float64: null");
}

#[test]
fn tests_of_floats() {
    let rows = "1 | NaN | inf | -inf | null";
    check("isnan(x)", "x: float64", rows, "bool: false | true | false | false | null");
    check("isinf(x)", "x: float64", rows, "bool: false | false | true | true | null");
    check("isfinite(x)", "x: float64", rows, "bool: true | false | false | false | null");
}

#[test]
fn angles() {
    check("sin(x)", "x: float64", "0 | 1 | inf | null", "float64: 0.0 | 0.8414709848078965 | NaN | null");
    check("cos(x)", "x: float64", "0 | 1 | NaN", "float64: 1.0 | 0.5403023058681398 | NaN");
    check("tan(n)", "n: int64", "0 | 1 | null", "float64: 0.0 | 1.5574077246549023 | null");
    check("asin(x)", "x: float64", "0 | 1 | 2", "float64: 0.0 | 1.5707963267948966 | NaN");
    check("acos(x)", "x: float64", "1 | -1 | -1.5", "float64: 0.0 | 3.141592653589793 | NaN");
    check("atan(x)", "x: float64", "0 | 1 | inf", "float64: 0.0 | 0.7853981633974483 | 1.5707963267948966");
    check(
        "atan2(y, x)",
        "y: float64, x: float64",
        "1, 1 | 0, -1 | -1, 0 | null, 1",
        "float64: 0.7853981633974483 | 3.141592653589793 | -1.5707963267948966 | null",
    );
    check("radians(x)", "x: float64", "180 | -90", "float64: 3.141592653589793 | -1.5707963267948966");
    check("degrees(x)", "x: float64", "0 | null", "float64: 0.0 | null");
    constant("degrees(pi())", "float64: 180.0");
    constant("pi()", "float64: 3.141592653589793");
}

#[test]
fn distances_on_the_earth() {
    let fields = "lat1: float64, lon1: float64, lat2: float64, lon2: float64";
    check(
        "round(haversine(lat1, lon1, lat2, lon2), 3)",
        fields,
        // Berlin to Paris, a quarter and half of the way around, across the date line, nowhere.
        "52.52, 13.405, 48.8566, 2.3522 | 0, 0, 90, 0 | 0, 0, 0, 180 | 0, 179.5, 0, -179.5 | 5, 5, 5, 5 | \
         null, 0, 0, 0 | NaN, 0, 0, 0",
        "float64: 877.465 | 10007.557 | 20015.114 | 111.195 | 0.0 | null | NaN",
    );
    check("round(haversine(lat1, 13.405, 48.8566, 2.3522))", fields, "52.52, 0, 0, 0", "float64: 877.0");
}

/// The bits of `libm`; glibc gives others for one in ten to thirty arguments, as here.
#[test]
fn logarithms_and_powers_have_the_same_bits_on_every_machine() {
    check("ln(x)", "x: float64", "6.604 | 39.392", "float64: 1.8876755260578815 | 3.673562750002043");
    check("log10(x)", "x: float64", "6.035 | 10.378", "float64: 0.780677274433368 | 1.0161136663589085");
    check("exp(x)", "x: float64", "9.3133 | 3.0953", "float64: 11084.466579905922 | 22.093865703132018");
    check(
        "power(x, y)",
        "x: float64, y: float64",
        "99.239, 7.8531 | 39.605, 3.0884",
        "float64: 4787914577796528.0 | 85998.55508132212",
    );
}

#[test]
fn every_nan_that_is_computed_has_the_same_bits() {
    let (schema, records) =
        table("x: float64, y: float64", "-inf, inf | NaN, 0 | -NaN, 0 | 0, 0 | inf, 0 | -1, -1");
    let mut nan = 0;
    for expr in [
        "x + y",
        "x - x",
        "x * 0",
        "x / y",
        "x % y",
        "mod(x, y)",
        "0 * x",
        "-x",
        "abs(x)",
        "sign(x)",
        "ceil(x)",
        "floor(x)",
        "round(x)",
        "round(x, 1)",
        "sqrt(x)",
        "ln(x)",
        "log10(x)",
        "exp(x)",
        "power(x, 0.5)",
        "power(x, x)",
        "sin(x)",
        "cos(x)",
        "tan(x)",
        "asin(x)",
        "acos(x)",
        "atan(x)",
        "atan2(x, y)",
        "radians(x)",
        "degrees(x)",
        "haversine(x, y, x, y)",
        "sqrt(-1.0)",
        "0.0 / 0.0",
        "-(0.0 / 0.0)",
        "CAST('-NaN' AS float64) + 1",
    ] {
        let bound = Expr::parse(expr).unwrap().bind(&schema).unwrap();
        let values = evaluate(&bound, &records);
        for value in values.as_primitive::<Float64Type>().values().iter().filter(|value| value.is_nan()) {
            assert_eq!(value.to_bits(), f64::NAN.to_bits(), "{expr}");
            nan += 1;
        }
    }
    assert!(nan > 60, "{nan}");
}
