//! The meaning of each function, computed from all values of a window with big integers.

use std::collections::BTreeSet;

use num_bigint::{BigInt, Sign};
use thalweg_types::{DataType, Value};

use super::rig::Reading;
use crate::agg::reference::{exact, nearest, nearest_signed, ulps};
use crate::agg::{Function, output_type};

/// Panics where a reading is not what the functions say about its window.
pub(super) fn check(functions: &[Function], data_type: &DataType, reading: &Reading) {
    let values: Vec<&Value> = reading.window.iter().filter(|value| !value.is_null()).collect();
    for (function, (got, did_not_fit)) in functions.iter().zip(&reading.values) {
        let place = || format!("{function} of {data_type} over {:?}: got {got:?}", reading.window);
        let expect = |expected: Value| {
            assert!(same(got, &expected), "{}, expected {expected:?}", place());
            assert!(!did_not_fit, "{}", place());
        };
        match function {
            Function::CountAll => expect(Value::Int64(reading.window.len() as i64)),
            Function::Count => expect(Value::Int64(values.len() as i64)),
            Function::CountDistinct => {
                expect(Value::Int64(values.iter().collect::<BTreeSet<_>>().len() as i64));
            }
            Function::Min => expect(canonical(values.iter().min().map(|value| (*value).clone()))),
            Function::Max => expect(canonical(values.iter().max().map(|value| (*value).clone()))),
            Function::First => expect(values.first().map_or(Value::Null, |value| (*value).clone())),
            Function::Last => expect(values.last().map_or(Value::Null, |value| (*value).clone())),
            Function::Prev => {
                expect(values.iter().rev().nth(1).map_or(Value::Null, |value| (*value).clone()));
            }
            _ if values.is_empty() => expect(Value::Null),
            Function::Sum => {
                let expected = sum(data_type, &values);
                assert_eq!(*did_not_fit, expected.is_none(), "{}", place());
                assert!(same(got, &expected.unwrap_or(Value::Null)), "{}", place());
            }
            Function::Quantile(q) => {
                let mut sorted: Vec<f64> = values.iter().map(|value| float(value)).collect();
                sorted.sort_by_key(|x| Value::Float64(*x));
                let expected = sorted[(q * (sorted.len() - 1) as f64) as usize];
                let Value::Float64(got) = got else { panic!("{}", place()) };
                let near = if expected.is_finite() {
                    (got - expected).abs() <= (expected.abs() * 0.010_000_001).max(5e-324)
                } else {
                    ulps(*got, expected) == 0
                };
                assert!(near, "{}, expected {expected:e}", place());
            }
            Function::Avg => {
                let Value::Float64(got) = got else { panic!("{}", place()) };
                let expected = special(&values).unwrap_or_else(|| {
                    let (sum, _, unit, exponent) = moments(&values);
                    let mean = nearest(sum.magnitude(), (unit * values.len()).magnitude(), exponent);
                    if sum.sign() == Sign::Minus { -mean } else { mean }
                });
                let bound = if *data_type == DataType::Float64 { 2 } else { 0 };
                assert!(ulps(*got, expected) <= bound, "{}, expected {expected:e}", place());
            }
            Function::Var | Function::VarPop | Function::StdDev | Function::StdDevPop => {
                let sample = matches!(function, Function::Var | Function::StdDev);
                let root = matches!(function, Function::StdDev | Function::StdDevPop);
                if sample && values.len() == 1 {
                    expect(Value::Null);
                    continue;
                }
                let Value::Float64(got) = got else { panic!("{}", place()) };
                if special(&values).is_some() {
                    assert!(got.is_nan(), "{}", place());
                    continue;
                }
                let count = BigInt::from(values.len());
                let (sum, squares, unit, exponent) = moments(&values);
                let spread = &count * squares - &sum * &sum;
                let divisor = (&count - i32::from(sample)) * count * &unit * unit;
                if root {
                    assert!(is_root(*got, &spread, &divisor, 2 * exponent), "{}", place());
                } else {
                    let expected = nearest(spread.magnitude(), divisor.magnitude(), 2 * exponent);
                    assert!(ulps(*got, expected) <= 2, "{}, expected {expected:e}", place());
                }
            }
        }
    }
}

/// Bits and all, but for the many NaNs.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float64(a), Value::Float64(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
        (Value::Null, Value::Null) => true,
        _ => a == b,
    }
}

fn canonical(value: Option<Value>) -> Value {
    match value {
        Some(Value::Float64(x)) => Value::Float64(x + 0.0),
        other => other.unwrap_or(Value::Null),
    }
}

/// Σx and Σx² as whole numbers: values are `x / unit · 2^exponent`.
fn moments(values: &[&Value]) -> (BigInt, BigInt, BigInt, i32) {
    let (mut sum, mut squares, mut unit, mut exponent) = (BigInt::ZERO, BigInt::ZERO, BigInt::from(1), 0);
    for value in values {
        let x = match value {
            Value::Float64(x) => {
                exponent = -1074;
                exact(*x)
            }
            Value::Decimal(_, scale) => {
                unit = BigInt::from(10).pow(*scale as u32);
                whole(value)
            }
            other => whole(other),
        };
        squares += &x * &x;
        sum += x;
    }
    (sum, squares, unit, exponent)
}

fn whole(value: &Value) -> BigInt {
    match value {
        Value::Int64(x) => BigInt::from(*x),
        Value::UInt64(x) => BigInt::from(*x),
        Value::Decimal(x, _) => x.to_string().parse().unwrap(),
        other => panic!("{other:?} is no whole number"),
    }
}

fn float(value: &Value) -> f64 {
    match value {
        Value::Float64(x) => *x,
        Value::Decimal(x, scale) => x.to_string().parse::<f64>().unwrap() / 10_f64.powi(i32::from(*scale)),
        other => nearest_signed(&whole(other), 0),
    }
}

/// The value of sums with NaN or infinities.
fn special(values: &[&Value]) -> Option<f64> {
    values
        .iter()
        .filter_map(|value| match value {
            Value::Float64(x) if !x.is_finite() => Some(*x),
            _ => None,
        })
        .reduce(|a, b| a + b)
}

/// `None` where it does not fit.
fn sum(data_type: &DataType, values: &[&Value]) -> Option<Value> {
    if let Some(special) = special(values) {
        return Some(Value::Float64(special));
    }
    let (sum, ..) = moments(values);
    match data_type {
        DataType::Float64 => Some(Value::Float64(nearest_signed(&sum, -1074))),
        DataType::Int64 => i64::try_from(sum).ok().map(Value::Int64),
        DataType::UInt64 => u64::try_from(sum).ok().map(Value::UInt64),
        _ => {
            let Ok(DataType::Decimal { precision, scale }) = output_type(Function::Sum, Some(data_type))
            else {
                panic!("the sum of {data_type} is decimal")
            };
            let fits = *sum.magnitude() < num_bigint::BigUint::from(10_u8).pow(u32::from(precision));
            let parsed = || arrow_buffer::i256::from_string(&sum.to_string()).unwrap();
            fits.then(|| Value::Decimal(parsed(), scale))
        }
    }
}

/// Whether the exact root of `spread / divisor · 2^exponent` is between the doubles two below and two above.
fn is_root(got: f64, spread: &BigInt, divisor: &BigInt, exponent: i32) -> bool {
    let step = |by: i64| f64::from_bits((got.to_bits() as i64 + by).clamp(0, 0x7ff0_0000_0000_0000) as u64);
    let (low, high) = (step(-2), step(2));
    // Both sides in units of 2^-2148.
    let spread = spread << (exponent + 2148) as usize;
    let square = |x: f64| exact(x) * exact(x) * divisor;
    square(low) <= spread && (high.is_infinite() || spread <= square(high))
}
