//! Functions of numbers. Their edges are IEEE's: `SQRT(-1)` is NaN, `LN(0)` is −inf.
//!
//! Every function that IEEE 754 leaves to libraries is that of the crate `libm`, whose version is pinned: the C library
//! of a machine, or a compiler, would give other bits. Square roots, quotients, remainders and roundings are exact.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array as _, BooleanArray, Float64Array, Int64Array};
use arrow_buffer::{BooleanBuffer, NullBuffer, i256};
use arrow_schema::DataType as Arrow;
use thalweg_types::DataType;

use super::column::{
    Column, Operand, arc, either_null, from_options, one_nan, result_of, without_rows, zip_rows,
};
use super::decimal::{build, digits, divide_rounded, power_of_ten, scale_of};
use crate::SqlError;
use crate::function::Function;

pub(crate) fn call(function: Function, args: &[Column], to: &DataType) -> Result<Column, SqlError> {
    let a = &args[0];
    if args.iter().any(Column::is_null_scalar) {
        return Ok(Column::null_scalar(&to.to_arrow()));
    }
    match (function, a.data_type()) {
        (Function::Power | Function::Atan2, _) => {
            let b = &args[1];
            let of_two = if function == Function::Power { libm::pow } else { libm::atan2 };
            let (first, second) = (Operand::of::<Float64Type>(a), Operand::of::<Float64Type>(b));
            let values = zip_rows(&first, &second, |a, b| one_nan(of_two(a, b)));
            Ok(result_of(a, b, arc(without_rows::<Float64Type>(values, either_null(a, b), &[]))))
        }
        (Function::Haversine, _) => {
            let places: Vec<Operand<'_, f64>> = args.iter().map(Operand::of::<Float64Type>).collect();
            let rows = args.iter().find(|arg| !arg.is_scalar()).map_or(1, |arg| arg.array().len());
            let at = |row| haversine([0, 1, 2, 3].map(|place: usize| places[place].at(row)));
            let values: Vec<f64> = (0..rows).map(at).map(one_nan).collect();
            let each = args.iter().filter(|arg| !arg.is_scalar());
            let nulls = each.fold(None, |nulls, arg| NullBuffer::union(nulls.as_ref(), arg.array().nulls()));
            let array = arc(without_rows::<Float64Type>(values, nulls, &[]));
            Ok(if args.iter().all(Column::is_scalar) { Column::Scalar(array) } else { Column::Array(array) })
        }
        (Function::IsNan, _) => Ok(test(a, f64::is_nan)),
        (Function::IsInf, _) => Ok(test(a, f64::is_infinite)),
        (Function::IsFinite, _) => Ok(test(a, f64::is_finite)),
        (Function::Round, _) => {
            let places = args[1].array().as_primitive::<Int64Type>().value(0);
            round(a, i32::try_from(places).expect("the binder clamps to ±400"), to)
        }
        (_, Arrow::Float64) => Ok(floats(a, float_function(function))),
        (Function::Abs, Arrow::Int64) => Ok(integers(a, i64::checked_abs)),
        (Function::Sign, Arrow::Int64) => Ok(integers(a, |value| Some(value.signum()))),
        (Function::Sign, Arrow::UInt64) => {
            let values = a.array().as_primitive::<UInt64Type>().iter();
            let array: Int64Array =
                from_options::<Int64Type>(values.map(|value| value.map(|v| i64::from(v > 0))));
            Ok(a.same_shape(arc(array)))
        }
        (_, Arrow::Decimal128(..) | Arrow::Decimal256(..)) => decimals(function, a, to),
        (function, other) => unreachable!("the binder calls no {} of {other}", function.name()),
    }
}

fn test(a: &Column, f: fn(f64) -> bool) -> Column {
    let array = a.array().as_primitive::<Float64Type>();
    let values = array.values();
    let bits = BooleanBuffer::collect_bool(values.len(), |row| f(values[row]));
    a.same_shape(arc(BooleanArray::new(bits, array.nulls().cloned())))
}

fn floats(a: &Column, f: impl Fn(f64) -> f64) -> Column {
    let array: Float64Array = a.array().as_primitive::<Float64Type>().unary(|value| one_nan(f(value)));
    a.same_shape(arc(array))
}

fn integers(a: &Column, f: fn(i64) -> Option<i64>) -> Column {
    let array: Int64Array = a.array().as_primitive::<Int64Type>().unary_opt(f);
    a.same_shape(arc(array))
}

fn float_function(function: Function) -> fn(f64) -> f64 {
    match function {
        Function::Abs => f64::abs,
        Function::Ceil => f64::ceil,
        Function::Floor => f64::floor,
        Function::Sqrt => f64::sqrt,
        Function::Ln => libm::log,
        Function::Log10 => libm::log10,
        Function::Exp => libm::exp,
        Function::Sin => libm::sin,
        Function::Cos => libm::cos,
        Function::Tan => libm::tan,
        Function::Asin => libm::asin,
        Function::Acos => libm::acos,
        Function::Atan => libm::atan,
        Function::Radians => f64::to_radians,
        Function::Degrees => f64::to_degrees,
        // Of 0 it is 0, of NaN it is NaN: `signum` would say ±1 for zeros.
        Function::Sign => |value| if value == 0.0 || value.is_nan() { value + 0.0 } else { value.signum() },
        other => unreachable!("{} is no function of one float", other.name()),
    }
}

/// Mean radius of the earth in kilometres, as the IUGG has it.
const EARTH_RADIUS: f64 = 6371.0088;

/// Kilometres along the surface of a sphere of the earth's mean radius, between two places in degrees of latitude and
/// longitude.
fn haversine([lat1, lon1, lat2, lon2]: [f64; 4]) -> f64 {
    let half_chord = |degrees: f64| {
        let sine = libm::sin(degrees.to_radians() / 2.0);
        sine * sine
    };
    let across = libm::cos(lat1.to_radians()) * libm::cos(lat2.to_radians());
    let chord = (half_chord(lat2 - lat1) + across * half_chord(lon2 - lon1)).sqrt();
    // Rounding may go beyond 1 at opposite places; NaN stays.
    2.0 * EARTH_RADIUS * libm::asin(if chord > 1.0 { 1.0 } else { chord })
}

/// Half away from zero; negative places round before the point.
fn round(a: &Column, places: i32, to: &DataType) -> Result<Column, SqlError> {
    let array = a.array();
    match array.data_type() {
        Arrow::Float64 => Ok(floats(a, |value| round_float(value, places))),
        Arrow::Int64 => {
            let array: Int64Array = array.as_primitive::<Int64Type>().unary_opt(|value| {
                round_before_point(i256::from_i128(i128::from(value)), places)?
                    .to_i128()
                    .and_then(|value| i64::try_from(value).ok())
            });
            Ok(a.same_shape(arc(array)))
        }
        Arrow::UInt64 => {
            let array: arrow_array::UInt64Array = array.as_primitive::<UInt64Type>().unary_opt(|value| {
                round_before_point(i256::from_i128(i128::from(value)), places)?
                    .to_i128()
                    .and_then(|value| u64::try_from(value).ok())
            });
            Ok(a.same_shape(arc(array)))
        }
        _ => {
            let DataType::Decimal { precision, scale } = to else {
                unreachable!("decimals round to decimals")
            };
            let from = i32::from(scale_of(array.data_type()));
            let values = digits(array).into_iter().map(|value| {
                let drop = u32::try_from(from - places).ok()?;
                // More places than digits: everything rounds to zero.
                let Some(unit) = power_of_ten(drop) else { return value.map(|_| i256::ZERO) };
                let rounded = divide_rounded(value?, unit)?;
                rounded.checked_mul(power_of_ten(u32::try_from(i32::from(*scale) - places).ok()?)?)
            });
            Ok(a.same_shape(build(values, *precision, *scale)?))
        }
    }
}

fn round_before_point(value: i256, places: i32) -> Option<i256> {
    let Some(unit) = power_of_ten(places.unsigned_abs()) else { return Some(i256::ZERO) };
    divide_rounded(value, unit)?.checked_mul(unit)
}

/// Rounds the shortest decimal text of a float, so that `ROUND(1.005, 2)` is 1.01 as it reads.
fn round_float(value: f64, places: i32) -> f64 {
    if places == 0 || !value.is_finite() {
        return value.round();
    }
    // Shifting the point in the text is exact, multiplying by a power of ten is not.
    let shifted: f64 = format!("{value:e}").parse_shifted(places);
    if !shifted.is_finite() || shifted.abs() >= 9_007_199_254_740_992.0 {
        // Every digit is before the point that is rounded at.
        return value;
    }
    format!("{:e}", shifted.round()).parse_shifted(-places)
}

trait ParseShifted {
    fn parse_shifted(&self, places: i32) -> f64;
}

impl ParseShifted for String {
    /// A number written with an exponent, times a power of ten.
    fn parse_shifted(&self, places: i32) -> f64 {
        let (mantissa, exponent) = self.split_once('e').expect("written with an exponent");
        let exponent: i32 = exponent.parse().expect("an exponent is a small integer");
        format!("{mantissa}e{}", exponent + places)
            .parse()
            .expect("a number with another exponent is a number")
    }
}

fn decimals(function: Function, a: &Column, to: &DataType) -> Result<Column, SqlError> {
    let array = a.array();
    let values = digits(array).into_iter();
    match (function, to) {
        (Function::Sign, _) => {
            let signs = values.map(|value| {
                value.map(|value| i64::from(value > i256::ZERO) - i64::from(value < i256::ZERO))
            });
            let array: Int64Array = from_options::<Int64Type>(signs);
            Ok(a.same_shape(arc(array)))
        }
        (_, DataType::Decimal { precision, scale }) => {
            let unit =
                power_of_ten(u32::try_from(scale_of(array.data_type())).unwrap_or(0)).unwrap_or(i256::ONE);
            let values = values.map(|value| {
                let value = value?;
                let quotient = value.checked_div(unit)?;
                let remainder = value.checked_rem(unit)?;
                match function {
                    Function::Abs => value.checked_abs(),
                    Function::Ceil if remainder > i256::ZERO => quotient.checked_add(i256::ONE),
                    Function::Floor if remainder < i256::ZERO => quotient.checked_sub(i256::ONE),
                    Function::Ceil | Function::Floor => Some(quotient),
                    other => unreachable!("{} is no function of decimals", other.name()),
                }
            });
            Ok(a.same_shape(build(values, *precision, *scale)?))
        }
        (_, other) => unreachable!("a decimal does not become {other}"),
    }
}
