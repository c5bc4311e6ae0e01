//! DDSketch with exact removal (Masson, Rim, Lee: "DDSketch", VLDB 2019): values fall into buckets whose borders
//! grow by γ = 1.01 / 0.99, so that a bucket's representative is within 1 % of each of its values.
//!
//! Buckets are counts, never collapse, and are found by the logarithm. It is computed here, from basic operations
//! that IEEE 754 defines to the bit, so that two machines agree about every border.
//! (Below 2^-1022, where doubles have no 53 bits, a representative is as near as they allow.)
//!
//! Zero, both infinities and NaN have buckets of their own, in the order −∞, negative, 0, positive, +∞, NaN.

use crate::image::{Malformed, Reader, put, put_signed};

/// Relative error of a representative.
const ERROR: f64 = 0.01;
const GAMMA: f64 = (1.0 + ERROR) / (1.0 - ERROR);
/// ln γ = 2 · artanh(0.01), by its series.
const LN_GAMMA: f64 =
    2.0 * (ERROR + ERROR * ERROR * ERROR * (1.0 / 3.0 + ERROR * ERROR * (1.0 / 5.0 + ERROR * ERROR / 7.0)));

/// A place in the order of buckets: 0 for zero, `±(index + OFFSET)` for numbers.
pub(super) type Bucket = i32;

/// Doubles have indexes from −37,222 to 35,490.
const OFFSET: i32 = 40_000;
const INFINITE: Bucket = 100_000;
const NAN: Bucket = INFINITE + 1;

/// The bucket of a value.
pub(super) fn bucket(value: f64) -> Bucket {
    if value.is_nan() {
        return NAN;
    }
    let magnitude = value.abs();
    let bucket = if magnitude == 0.0 {
        0
    } else if magnitude == f64::INFINITY {
        INFINITE
    } else {
        (ln(magnitude) / LN_GAMMA).ceil() as i32 + OFFSET
    };
    if value < 0.0 { -bucket } else { bucket }
}

/// The value that represents a bucket.
pub(super) fn representative(bucket: Bucket) -> f64 {
    let magnitude = match bucket.abs() {
        0 => 0.0,
        INFINITE => f64::INFINITY,
        NAN => f64::NAN,
        place => POWERS.with_index(place - OFFSET),
    };
    if bucket < 0 { -magnitude } else { magnitude }
}

/// Powers of γ in two tables of a few hundred: γ^index = coarse² · fine.
struct Powers {
    /// `γ^(128 · (row − ROWS / 2))`: square roots of powers, so that none overflows.
    coarse: [f64; ROWS],
    /// `0.99 · γ^column`, since 2γ / (γ + 1) is 1.01 and a bucket's upper border is γ^index.
    fine: [f64; COLUMNS as usize],
}

const COLUMNS: i32 = 256;
const ROWS: usize = 2 * (OFFSET / COLUMNS) as usize + 2;

static POWERS: Powers = Powers::new();

impl Powers {
    const fn new() -> Self {
        let (mut coarse, mut fine) = ([1.0; ROWS], [1.0 - ERROR; COLUMNS as usize]);
        let mut column = 1;
        while column < COLUMNS as usize {
            fine[column] = fine[column - 1] * GAMMA;
            column += 1;
        }
        // γ^128, and from the middle outwards.
        let step = fine[128] / fine[0];
        let mut row = ROWS / 2 + 1;
        while row < ROWS {
            coarse[row] = coarse[row - 1] * step;
            coarse[ROWS - row] = 1.0 / coarse[row];
            row += 1;
        }
        Self { coarse, fine }
    }

    fn with_index(&self, index: i32) -> f64 {
        let row = index.div_euclid(COLUMNS) + ROWS as i32 / 2;
        let coarse = self.coarse[row as usize];
        (coarse * self.fine[index.rem_euclid(COLUMNS) as usize] * coarse).min(f64::MAX)
    }
}

/// Natural logarithm of a positive finite double, to about 1e-16 of its size.
fn ln(x: f64) -> f64 {
    let (x, shift) = if x < f64::MIN_POSITIVE { (x * 18_014_398_509_481_984.0, 54) } else { (x, 0) };
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1023 - shift;
    let mut mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 · artanh(s); |s| < 0.172, so that ten terms leave 1e-17.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let t = s * s;
    let mut series = 0.0;
    for divisor in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * t + 1.0 / divisor;
    }
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * s * series
}

/// The values of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Sketch {
    /// Ascending; no count is 0.
    buckets: Vec<(Bucket, u64)>,
    total: u64,
}

/// A position in a sketch that follows one rank, so that reading it again costs as much as the changes since.
///
/// Invariant: `below` is the count of all buckets before `position`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    position: u32,
    below: u64,
}

impl Cursor {
    #[inline(always)]
    pub(super) fn below(self) -> u64 {
        self.below
    }
}

impl Sketch {
    /// Number of values.
    #[inline(always)]
    pub(super) fn count(&self) -> u64 {
        self.total
    }

    pub(super) fn add(&mut self, bucket: Bucket, cursors: &mut [Cursor]) {
        self.total += 1;
        let place = self.buckets.binary_search_by_key(&bucket, |(other, _)| *other);
        let (place, new) = match place {
            Ok(place) => {
                self.buckets[place].1 += 1;
                (place, 0)
            }
            Err(place) => {
                if self.buckets.is_empty() {
                    self.buckets.reserve_exact(1);
                }
                self.buckets.insert(place, (bucket, 1));
                (place, 1)
            }
        };
        for cursor in cursors {
            if place < cursor.position as usize {
                cursor.below += 1;
                cursor.position += new;
            }
        }
    }

    /// # Panics
    /// If no value of this bucket is there.
    pub(super) fn remove(&mut self, bucket: Bucket, cursors: &mut [Cursor]) {
        let place = self
            .buckets
            .binary_search_by_key(&bucket, |(other, _)| *other)
            .expect("a value that leaves a window has entered it");
        self.total -= 1;
        self.buckets[place].1 -= 1;
        let gone = u32::from(self.buckets[place].1 == 0);
        if gone == 1 {
            self.buckets.remove(place);
        }
        for cursor in cursors {
            if place < cursor.position as usize {
                cursor.below -= 1;
                cursor.position -= gone;
            }
        }
    }

    /// The bucket of the value of rank `floor(q · (n − 1))`, counted from 0; `None` without values.
    pub(super) fn quantile(&self, q: f64, cursor: &mut Cursor) -> Option<Bucket> {
        let last = self.total.checked_sub(1)?;
        let rank = ((q * last as f64) as u64).min(last);
        let count = |position: u32| self.buckets[position as usize].1;
        while cursor.below > rank {
            cursor.position -= 1;
            cursor.below -= count(cursor.position);
        }
        // At the end all values are below the cursor, so that it has stepped back already.
        while cursor.below + count(cursor.position) <= rank {
            cursor.below += count(cursor.position);
            cursor.position += 1;
        }
        Some(self.buckets[cursor.position as usize].0)
    }

    /// Any bucket: where the sketch is kept, for the cache.
    #[inline(always)]
    pub(super) fn any(&self) -> Option<Bucket> {
        self.buckets.get(self.buckets.len() / 2).map(|(bucket, _)| *bucket)
    }

    /// Appends the buckets, each as the distance from the one before.
    pub(super) fn save(&self, out: &mut Vec<u8>) {
        put(out, self.buckets.len() as u64);
        let mut before = 0;
        for (bucket, count) in &self.buckets {
            put_signed(out, i64::from(*bucket) - before);
            put(out, *count);
            before = i64::from(*bucket);
        }
    }

    pub(super) fn load(image: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut sketch = Self::default();
        let mut before = 0;
        for place in 0..image.count("buckets of a sketch")? {
            let step = image.signed("distance of a bucket")?;
            let count = image.number("count of a bucket")?;
            let bucket = i64::checked_add(before, step).filter(|bucket| bucket.abs() <= i64::from(NAN));
            let total = sketch.total.checked_add(count);
            let (Some(bucket), Some(total)) = (bucket, total) else {
                return Err(image.malformed("buckets of a sketch", "those of doubles", "others"));
            };
            if place > 0 && step <= 0 || count == 0 {
                return Err(image.malformed("buckets of a sketch", "ascending, none empty", "others"));
            }
            sketch.buckets.push((bucket as Bucket, count));
            sketch.total = total;
            before = bucket;
        }
        Ok(sketch)
    }

    pub(super) fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<(Bucket, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(value: f64) {
        let got = representative(bucket(value));
        // What the logarithm and the powers lose is far below a billionth.
        let bound = ERROR * (1.0 + 1e-8) * value.abs();
        let bound = bound.max(f64::from_bits(1));
        assert!((got - value).abs() <= bound, "{value:e} is represented by {got:e}");
    }

    #[test]
    fn extremes_are_represented() {
        for value in [5e-324, 1e-310, f64::MIN_POSITIVE, f64::MAX, 1.0, 1e-9, 1e9, 0.0, GAMMA] {
            check(value);
            check(-value);
        }
        assert_eq!(representative(bucket(f64::INFINITY)), f64::INFINITY);
        assert_eq!(representative(bucket(f64::NEG_INFINITY)), f64::NEG_INFINITY);
        assert!(representative(bucket(-f64::NAN)).is_nan());
    }

    proptest! {
        #[test]
        fn every_double_is_within_one_percent_of_its_representative(bits: u64) {
            let value = f64::from_bits(bits);
            if value.is_finite() {
                check(value);
            }
        }

        #[test]
        fn the_logarithm_is_the_logarithm(bits in 1_u64..0x7ff0_0000_0000_0000) {
            let x = f64::from_bits(bits);
            prop_assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1.0), "{x:e}");
        }

        #[test]
        fn buckets_keep_the_order_of_values(a: f64, b: f64) {
            if a < b {
                prop_assert!(bucket(a) <= bucket(b));
            }
        }

        #[test]
        fn cursors_find_the_rank(
            script in proptest::collection::vec((0_i32..30, 0_usize..3), 1..200), q in 0.0_f64..=1.0
        ) {
            let (mut sketch, mut cursors) = (Sketch::default(), [Cursor::default(); 3]);
            let ranks = [q, 0.0, 1.0];
            let mut live: Vec<i32> = Vec::new();
            for (value, removes) in script {
                sketch.add(value, &mut cursors);
                live.push(value);
                for _ in 0..removes.min(live.len()) {
                    sketch.remove(live.remove(0), &mut cursors);
                }
                let mut sorted = live.clone();
                sorted.sort_unstable();
                for (q, cursor) in ranks.iter().zip(&mut cursors) {
                    let rank = (q * sorted.len().saturating_sub(1) as f64) as usize;
                    prop_assert_eq!(sketch.quantile(*q, cursor), sorted.get(rank).copied());
                }
            }
        }
    }
}
