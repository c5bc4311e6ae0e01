//! What tests compare with: exact arithmetic on big integers, written as plainly as possible.

use std::cmp::Ordering;

use num_bigint::{BigInt, BigUint, Sign};
use proptest::prelude::*;

/// A finite double in units of 2^-1074.
pub(super) fn exact(x: f64) -> BigInt {
    let bits = x.abs().to_bits();
    let (biased, fraction) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
    let magnitude = if biased == 0 {
        BigInt::from(fraction)
    } else {
        BigInt::from(fraction | 1 << 52) << (biased - 1) as usize
    };
    if x.is_sign_negative() { -magnitude } else { magnitude }
}

/// The double nearest to `numerator / denominator · 2^exponent`, ties to even.
pub(super) fn nearest(numerator: &BigUint, denominator: &BigUint, exponent: i32) -> f64 {
    if *numerator == BigUint::ZERO {
        return 0.0;
    }
    let mut unit = (numerator.bits() as i32 - denominator.bits() as i32 + exponent - 53).max(-1074);
    loop {
        let shift = exponent - unit;
        let (n, d) = if shift >= 0 {
            (numerator << shift as usize, denominator.clone())
        } else {
            (numerator.clone(), denominator << (-shift) as usize)
        };
        let quotient = u64::try_from(&n / &d).unwrap();
        if quotient >> 53 != 0 {
            unit += 1;
            continue;
        }
        let up = match ((&n % &d) * 2_u8).cmp(&d) {
            Ordering::Less => 0,
            Ordering::Equal => quotient & 1,
            Ordering::Greater => 1,
        };
        if unit > 971 {
            return f64::INFINITY;
        }
        return (quotient + up) as f64 * 2_f64.powi(unit / 2) * 2_f64.powi(unit - unit / 2);
    }
}

pub(super) fn nearest_signed(numerator: &BigInt, exponent: i32) -> f64 {
    let magnitude = nearest(numerator.magnitude(), &BigUint::from(1_u8), exponent);
    if numerator.sign() == Sign::Minus { -magnitude } else { magnitude }
}

/// Distance in representable doubles; NaN is next to NaN only.
pub(super) fn ulps(a: f64, b: f64) -> u64 {
    let order = |x: f64| {
        let bits = (x + 0.0).to_bits() as i64;
        i128::from(if bits < 0 { i64::MIN - bits } else { bits })
    };
    match (a.is_nan(), b.is_nan()) {
        (true, true) => 0,
        (false, false) => (order(a) - order(b)).unsigned_abs() as u64,
        _ => u64::MAX,
    }
}

/// Finite doubles: ordinary ones mostly, and every kind of awkward one.
pub(super) fn doubles() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => (-1_000_000_i64..1_000_000).prop_map(|cents| cents as f64 / 100.0),
        2 => -1e12_f64..1e12,
        1 => prop_oneof![
            Just(0.0), Just(-0.0), Just(1e308), Just(-1e308), Just(f64::MAX), Just(f64::MIN),
            Just(1e40), Just(-1e40), Just(1.0), Just(5e-324), Just(-5e-324), Just(1e-310),
            Just(2.0_f64.powi(-22)), Just(2.0_f64.powi(52)), Just(4503599627370495.5), Just(-4503599627370495.5),
        ],
        1 => any::<u64>().prop_map(|bits| {
            let x = f64::from_bits(bits);
            if x.is_finite() { x } else { 0.5 }
        }),
    ]
}
