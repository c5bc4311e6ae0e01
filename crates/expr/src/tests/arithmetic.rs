use super::{check, constant};

#[test]
fn integers_follow_postgresql_and_overflow_to_null() {
    let two = "a: int64, b: int64";
    check(
        "a + b",
        two,
        "1, 2 | null, 3 | 9223372036854775807, 1 | -9223372036854775808, -1",
        "int64: 3 | null | null | null",
    );
    check("a - b", two, "1, 2 | 4, null | -9223372036854775808, 1", "int64: -1 | null | null");
    check("a * b", two, "3, -4 | 4611686018427387904, 2", "int64: -12 | null");
    check("a / b", two, "7, 2 | -7, 2 | 7, 0 | -9223372036854775808, -1", "int64: 3 | -3 | null | null");
    check("a % b", two, "7, 4 | -7, 4 | 7, 0 | -9223372036854775808, -1", "int64: 3 | -3 | null | 0");
    check("mod(a, b)", two, "7, 4", "int64: 3");
    check("-a", "a: int64", "5 | -9223372036854775808 | null", "int64: -5 | null | null");
    check("- - a", "a: int64", "5", "int64: 5");
    check("+a", "a: int64", "5", "int64: 5");
}

#[test]
fn unsigned_integers_meet_signed_ones_in_int64() {
    let mixed = "u: uint64, i: int64";
    check("u + i", mixed, "5, -7 | 18446744073709551615, 1", "int64: -2 | null");
    check(
        "u + u",
        mixed,
        "9223372036854775807, 0 | 18446744073709551615, 0",
        "uint64: 18446744073709551614 | null",
    );
    check("u - u - 1", mixed, "5, 0", "uint64: null");
    check("u % 10", mixed, "18446744073709551615, 0", "uint64: 5");
    check("u / 0", mixed, "5, 0", "uint64: null");
    check("u + 18446744073709551614", mixed, "1, 0 | 2, 0", "uint64: 18446744073709551615 | null");
    check("-u", mixed, "5, 0 | 18446744073709551615, 0", "int64: -5 | null");
}

#[test]
fn floats_follow_ieee() {
    let two = "a: float64, b: float64";
    check("a / b", two, "1, 0 | -1, 0 | 0, 0 | 1, 4 | null, 1", "float64: inf | -inf | NaN | 0.25 | null");
    check("a % b", two, "7.5, 2 | 1, 0", "float64: 1.5 | NaN");
    check("a * b", two, "1e308, 10", "float64: inf");
    check("-a", "a: float64", "0 | NaN | 1.5", "float64: -0.0 | NaN | -1.5");
    check("a + n", "a: float64, n: int64", "0.5, 2", "float64: 2.5");
    check("n * 1.5", "n: int64", "2", "float64: 3.0");
    check("n + u", "n: float64, u: uint64", "0.5, 18446744073709551615", "float64: 1.8446744073709552e19");
    check("n + 1e3", "n: int64", "2", "float64: 1002.0");
}

#[test]
fn decimals_are_exact() {
    let two = "a: decimal(10,2), b: decimal(8,3)";
    check("a + b", two, "1.25, 0.125 | 99999999.99, 99999.999", "decimal(12,3): 1.375 | 100099999.989");
    check("a - b", two, "1.25, 0.125 | null, 1", "decimal(12,3): 1.125 | null");
    check("a * b", two, "1.25, -0.125", "decimal(18,5): -0.15625");
    check(
        "a / b",
        two,
        "1, 3 | 2, 3 | -2, 3 | 1, 0",
        "decimal(18,7): 0.3333333 | 0.6666667 | -0.6666667 | null",
    );
    check("a % b", two, "7.5, 2 | -7.5, 2 | 1, 0", "decimal(8,3): 1.500 | -1.500 | null");
    check("-a", "a: decimal(10,2)", "1.25 | 0", "decimal(10,2): -1.25 | 0.00");
    check("a + 1", "a: decimal(10,2)", "1.25", "decimal(11,2): 2.25");
    check("a + 0.125", "a: decimal(10,2)", "1.25", "decimal(12,3): 1.375");
    check("a * 1.10", "a: decimal(10,2)", "2.00", "decimal(13,4): 2.2000");
    check(
        "a + n",
        "a: decimal(10,2), n: int64",
        "1.25, 9223372036854775807",
        "decimal(22,2): 9223372036854775808.25",
    );
    check("a + x", "a: decimal(10,2), x: float64", "1.25, 0.5", "float64: 1.75");
    check("-2.50 + a", "a: decimal(10,2)", "2.50", "decimal(11,2): 0.00");
    check("a + 1e0", "a: decimal(10,2)", "1.25", "float64: 2.25");
}

#[test]
fn wide_decimals_use_256_bits_and_overflow_to_null() {
    let nines = "9".repeat(38);
    check("a + a", "a: decimal(38,0)", &nines, &format!("decimal(39,0): 1{}8", "9".repeat(37)));
    check(
        "a * a",
        "a: decimal(38,0)",
        "10000000000000000000",
        "decimal(76,0): 100000000000000000000000000000000000000",
    );
    let many = "9".repeat(76);
    check("a + 1", "a: decimal(76,0)", &format!("{many} | 1"), "decimal(76,0): null | 2");
    check("a * a", "a: decimal(76,0)", &many, "decimal(76,0): null");
    check("-a", "a: decimal(76,0)", &many, &format!("decimal(76,0): -{many}"));
}

#[test]
fn literals_take_the_type_they_meet() {
    constant("1 + 1", "int64: 2");
    constant("9223372036854775807 + 1", "int64: null");
    constant("9223372036854775808", "uint64: 9223372036854775808");
    constant("18446744073709551616", "decimal(20,0): 18446744073709551616");
    constant("-9223372036854775808", "int64: -9223372036854775808");
    constant("1.5", "float64: 1.5");
    constant(".5 + 1.", "float64: 1.5");
    constant("1e-2", "float64: 0.01");
    constant("1 / 2", "int64: 0");
    constant("1 / 2.0", "float64: 0.5");
    constant("1 / 0", "int64: null");
    constant("2 + 3 * 4 - 6 / 2", "int64: 11");
    constant("(2 + 3) * -4", "int64: -20");
    constant("-2 * -3", "int64: 6");
    constant("NULL + 1", "int64: null");
    constant("NULL + NULL", "int64: null");
    constant("-NULL + 1.5", "float64: null");
    constant(
        "1.0000000000000000000000000000000000000000000000000000000000000000000000000000001",
        "float64: 1.0",
    );
}
