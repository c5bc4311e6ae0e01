//! Floats that are short decimal numbers, as prices and readings are: whole numbers over a power of ten.
//!
//! A whole number below 2^53 divided by a power of ten is the float that is nearest to that decimal number, on every
//! machine. So a float can be kept as the whole number that divides back to its bits (Afroozeh, Kuffo and Boncz, "ALP:
//! Adaptive Lossless floating-Point Compression", 2024).

const POWERS: [f64; 5] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0];

/// The greatest power of ten.
pub(super) const MOST: usize = POWERS.len() - 1;

/// Bound of the whole numbers. Below it a value times a power is within 0.4 of the whole number, although both the value
/// and the product are rounded.
const LIMIT: f64 = (1_u64 << 50) as f64;

/// 1.5 · 2^52: added to a float it moves the whole part into the low bits of the sum, rounded. A conversion takes longer, as
/// it has to look for numbers that are no integers.
const SHIFT: f64 = 6_755_399_441_055_744.0;

/// The power of ten that all values of a column have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// The least one of the values so far; `None` if one of them has no power.
    power: Option<usize>,
    /// The largest value, without its sign.
    largest: f64,
}

impl Scale {
    pub(super) fn new() -> Self {
        Self { power: Some(0), largest: 0.0 }
    }

    #[inline]
    pub(super) fn see(&mut self, value: f64) {
        self.largest = self.largest.max(value.abs());
        // A value that has a power has all greater ones, as long as its whole number is below the limit.
        self.power = self.power.and_then(|power| (power..=MOST).find(|power| is_exact(value, *power)));
    }

    /// The power; `None` if there is none.
    pub(super) fn power(&self) -> Option<usize> {
        self.power.filter(|power| self.largest * POWERS[*power] < LIMIT)
    }
}

fn is_exact(value: f64, power: usize) -> bool {
    value.abs() * POWERS[power] < LIMIT
        && to_float(to_integer(value, power), power).to_bits() == value.to_bits()
}

/// The whole number nearest to a value times a power of ten, if that is below the limit.
#[inline]
pub(super) fn to_integer(value: f64, power: usize) -> i64 {
    let moved = value * POWERS[power] + SHIFT;
    (moved.to_bits() as i64).wrapping_sub(SHIFT.to_bits() as i64)
}

#[inline]
pub(super) fn to_float(integer: i64, power: usize) -> f64 {
    integer as f64 / POWERS[power]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn power(values: &[f64]) -> Option<usize> {
        let mut scale = Scale::new();
        values.iter().for_each(|value| scale.see(*value));
        scale.power()
    }

    #[test]
    fn short_decimals_have_a_power_and_others_have_none() {
        for (values, expected) in [
            (&[0.0][..], Some(0)),
            (&[-17.0], Some(0)),
            (&[0.1], Some(1)),
            (&[19.99], Some(2)),
            (&[-0.0625], Some(4)),
            (&[19.99, 5.0, 0.125, -3.5], Some(3)),
            (&[1e15], Some(0)),
            (&[1e15, 0.5], None),
            (&[0.5, 1e15], None),
            (&[2e15], None),
            (&[0.00001], None),
            (&[0.5, 1.0 / 3.0, 0.5], None),
            (&[-0.0], None),
            (&[f64::NAN], None),
            (&[f64::INFINITY], None),
            (&[f64::MIN], None),
            (&[f64::MIN_POSITIVE], None),
        ] {
            assert_eq!(power(values), expected, "{values:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn values_of_any_powers_read_back_by_their_common_one(
            decimals in proptest::collection::vec((any::<i64>(), 12_u32..63, 0..=MOST), 1..6),
        ) {
            let values: Vec<f64> =
                decimals.iter().map(|(integer, shift, power)| to_float(integer >> shift, *power)).collect();
            if let Some(power) = power(&values) {
                for value in values {
                    prop_assert_eq!(to_float(to_integer(value, power), power).to_bits(), value.to_bits());
                }
            } else {
                prop_assert!(decimals.iter().any(|(integer, shift, _)| (integer >> shift).abs() >= 1 << 36));
            }
        }
    }
}
