//! Card payments: up to 103 fields, of which most queries need the first four.

use std::sync::Arc;

use arrow_array::types::{Decimal128Type, TimestampMillisecondType};
use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeBinaryArray, Float64Array, Int64Array, PrimitiveArray, StringViewArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use thalweg_types::{DataType, Field, Micros, Offset, TimeUnit};

use super::ranks::Ranks;
use super::{BASE, GeneratorSpec, below, random, unit};

const CURRENCIES: [&str; 6] = ["EUR", "USD", "GBP", "CHF", "SEK", "JPY"];
const COUNTRIES: [&str; 12] = ["DE", "US", "GB", "FR", "IT", "ES", "NL", "CH", "SE", "JP", "BR", "IN"];
const CHANNELS: [&str; 4] = ["pos", "web", "app", "moto"];
const CITIES: [&str; 8] =
    ["Berlin", "New York", "London", "Paris", "Roma", "Madrid", "Amsterdam", "San Francisco"];

/// The fields with a name of their own; `f001` and so on fill up to [`WIDTH`].
const WIDTH: usize = 103;

pub(super) fn fields() -> Vec<Field> {
    let mut fields = vec![
        Field::new("ts", DataType::Timestamp(TimeUnit::Milli)),
        Field::new("card", DataType::String),
        Field::new("merchant", DataType::String),
        Field::new("amount", DataType::Float64),
        Field::new("tx", DataType::String),
        Field::new("country", DataType::String),
        Field::new("currency", DataType::String),
        Field::new("mcc", DataType::Int64),
        Field::new("channel", DataType::String),
        Field::new("ip", DataType::Ip),
        Field::new("device", DataType::String),
        Field::new("city", DataType::String).nullable(),
        Field::new("terminal", DataType::Int64),
        Field::new("present", DataType::Bool),
        Field::new("fee", DataType::Decimal { precision: 12, scale: 4 }),
        Field::new("score", DataType::Float64).nullable(),
    ];
    for number in 1..=WIDTH - fields.len() {
        let data_type = match number % 5 {
            0 => DataType::String,
            1 | 3 => DataType::Float64,
            2 => DataType::Int64,
            _ => DataType::Bool,
        };
        fields.push(Field::new(format!("f{number:03}"), data_type));
    }
    fields
}

#[derive(Debug)]
pub(super) struct Payments {
    seed: u64,
    /// Milliseconds from one record to the next.
    gap: i64,
    cards: Ranks,
    merchants: Ranks,
    hot: f64,
    /// Quantiles of the amounts, in cents: a log-normal with median 18 and σ 1.2, cut at 5,000.
    amounts: Vec<f64>,
}

impl Payments {
    pub(super) fn new(spec: &GeneratorSpec) -> Self {
        Self {
            seed: spec.seed,
            gap: spec.gap / 1_000,
            cards: Ranks::new(spec.cards, spec.zipf),
            merchants: Ranks::new(spec.merchants, spec.zipf),
            hot: spec.hot,
            amounts: amount_quantiles(),
        }
    }

    pub(super) fn columns(&self, first: Offset, count: usize, width: usize) -> Vec<ArrayRef> {
        (0..width).map(|field| self.column(field, first, count)).collect()
    }

    fn column(&self, field: usize, first: Offset, count: usize) -> ArrayRef {
        let stream = field as u64;
        let offsets = first..first + count as u64;
        let random = |offset| random(self.seed, stream, offset);
        let pick = |texts: &'static [&'static str]| -> ArrayRef {
            Arc::new(StringViewArray::from_iter_values(
                offsets.clone().map(|offset| texts[below(random(offset), texts.len() as u64) as usize]),
            ))
        };
        match field {
            0 => {
                let values = offsets.map(|offset| {
                    let jitter = below(random(offset), self.gap as u64) as i64;
                    BASE / 1_000 + offset as i64 * self.gap + jitter
                });
                Arc::new(PrimitiveArray::<TimestampMillisecondType>::from_iter_values(values))
            }
            1 => names(offsets.map(|offset| numbered(b'c', 7, self.card(offset)))),
            2 => names(offsets.map(|offset| numbered(b'm', 5, self.merchants.pick(unit(random(offset)))))),
            3 => Arc::new(Float64Array::from_iter_values(offsets.map(|offset| self.amount(random(offset))))),
            4 => names(offsets.map(|offset| numbered(b't', 11, offset))),
            5 => pick(&COUNTRIES),
            6 => pick(&CURRENCIES),
            7 => integers(offsets.map(|offset| 1_500 + below(random(offset), 8_000) as i64)),
            8 => pick(&CHANNELS),
            9 => {
                let mut octets = Vec::with_capacity(count * 16);
                for offset in offsets {
                    octets.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10]);
                    octets.extend_from_slice(&random(offset).to_le_bytes()[..3]);
                }
                Arc::new(FixedSizeBinaryArray::new(16, Buffer::from_vec(octets), None))
            }
            10 => Arc::new(StringViewArray::from_iter_values(
                offsets.map(|offset| format!("dev-{:016x}", random(offset) >> 40)),
            )),
            11 => {
                Arc::new(StringViewArray::from_iter(offsets.map(|offset| {
                    CITIES.get(below(random(offset), CITIES.len() as u64 + 1) as usize).copied()
                })))
            }
            12 => integers(offsets.map(|offset| below(random(offset), 1 << 40) as i64)),
            13 => booleans(offsets.map(|offset| random(offset) & 3 != 0)),
            14 => {
                let values = offsets.map(|offset| below(random(offset), 5_000_000) as i128);
                Arc::new(
                    PrimitiveArray::<Decimal128Type>::from_iter_values(values)
                        .with_data_type(arrow_schema::DataType::Decimal128(12, 4)),
                )
            }
            15 => {
                let values: Vec<f64> = offsets.clone().map(|offset| unit(random(offset))).collect();
                let nulls: Vec<bool> = offsets.map(|offset| random(offset) & 15 != 0).collect();
                Arc::new(Float64Array::new(values.into(), Some(NullBuffer::from(nulls))))
            }
            filler => match (filler - 15) % 5 {
                0 => names(offsets.map(|offset| numbered(b'x', 6, below(random(offset), 1_000_000)))),
                1 | 3 => Arc::new(Float64Array::from_iter_values(
                    offsets.map(|offset| below(random(offset), 10_000_000) as f64 / 1_000.0),
                )),
                2 => integers(offsets.map(|offset| below(random(offset), 1_000_000) as i64)),
                _ => booleans(offsets.map(|offset| random(offset) & 1 == 1)),
            },
        }
    }

    #[inline]
    fn card(&self, offset: Offset) -> u64 {
        let random = random(self.seed, 1, offset);
        let place = unit(random);
        if place < self.hot {
            return 0;
        }
        self.cards.pick((place - self.hot) / (1.0 - self.hot))
    }

    #[inline]
    fn amount(&self, random: u64) -> f64 {
        let place = unit(random) * (self.amounts.len() - 1) as f64;
        let index = place as usize;
        let (low, high) = (self.amounts[index], self.amounts[index + 1]);
        (low + (high - low) * (place - index as f64)).round() / 100.0
    }
}

fn integers(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn booleans(values: impl Iterator<Item = bool>) -> ArrayRef {
    Arc::new(BooleanArray::new(BooleanBuffer::from_iter(values), None))
}

fn names(views: impl Iterator<Item = u128>) -> ArrayRef {
    let views: ScalarBuffer<u128> = views.collect::<Vec<_>>().into();
    Arc::new(StringViewArray::try_new(views, [], None).expect("views of ASCII letters and digits"))
}

/// The view of a letter and a number with at least `digits` digits: `c0000042`.
#[inline]
fn numbered(letter: u8, digits: usize, number: u64) -> u128 {
    let mut view = [b'0'; 16];
    let mut rest = number;
    let mut at = 16;
    while rest > 0 {
        at -= 1;
        view[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let digits = digits.max(16 - at).min(11);
    let mut text = [0_u8; 16];
    text[0] = (digits + 1) as u8;
    text[4] = letter;
    text[5..5 + digits].copy_from_slice(&view[16 - digits..]);
    u128::from_le_bytes(text)
}

/// 4,097 quantiles of the amounts in cents.
fn amount_quantiles() -> Vec<f64> {
    const STEPS: usize = 4_096;
    (0..=STEPS)
        .map(|step| {
            let place = (step as f64 + 0.5) / (STEPS as f64 + 1.0);
            (1_800.0 * libm::exp(1.2 * normal_quantile(place))).clamp(1.0, 500_000.0)
        })
        .collect()
}

/// The standard normal's quantile by bisection of its distribution (Abramowitz and Stegun 7.1.26 for the error
/// function; 1.5e-7 is far finer than cents).
fn normal_quantile(place: f64) -> f64 {
    let distribution = |x: f64| {
        let z = x.abs() / std::f64::consts::SQRT_2;
        let t = 1.0 / (1.0 + 0.327_591_1 * z);
        let series = t
            * (0.254_829_592
                + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
        let erf = 1.0 - series * libm::exp(-z * z);
        0.5 * (1.0 + if x < 0.0 { -erf } else { erf })
    };
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if distribution(middle) < place { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Kept here so that the unit of [`BASE`] and of the field agree.
const _: () = assert!((BASE as Micros) % 1_000 == 0);
