//! `quantile(x, q)` for any number of ranks over one sketch per group.

use std::borrow::Cow;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt64Type};
use arrow_buffer::{NullBuffer, i256};
use arrow_schema::DataType;

use super::output::Writer;
use super::sketch::{Bucket, Cursor, Sketch, bucket, representative};
use super::walk::{Walk, walk};
use super::{Aggregate, Column, NO_GROUP, Steps, Stream};
use crate::image::{Malformed, Reader};
use crate::slots::{cut, grow};
use crate::warm::warm;

pub(super) struct Quantile {
    calls: Vec<usize>,
    /// The rank of each call.
    ranks: Vec<f64>,
    arg: usize,
    sketches: Vec<Sketch>,
    /// One per group and rank.
    cursors: Vec<Cursor>,
    /// Heap bytes of the sketches.
    owned: usize,
}

impl Quantile {
    pub(super) fn new(calls: Vec<usize>, ranks: Vec<f64>, arg: usize) -> Self {
        assert_eq!(calls.len(), ranks.len(), "one rank per call");
        Self { calls, ranks, arg, sketches: Vec::new(), cursors: Vec::new(), owned: 0 }
    }
}

/// The bucket of every value; those of nulls mean nothing.
fn buckets(stream: &Stream<'_>) -> Vec<Bucket> {
    let Some(values) = stream.argument() else { return Vec::new() };
    floats(values).iter().map(|value| bucket(*value)).collect()
}

/// A column of numbers as doubles, to the nearest: the error of a quantile is far larger.
pub(crate) fn floats(values: &ArrayRef) -> Cow<'_, [f64]> {
    match values.data_type() {
        DataType::Float64 => Cow::Borrowed(values.as_primitive::<Float64Type>().values()),
        DataType::Int64 => values.as_primitive::<Int64Type>().values().iter().map(|x| *x as f64).collect(),
        DataType::UInt64 => values.as_primitive::<UInt64Type>().values().iter().map(|x| *x as f64).collect(),
        DataType::Decimal128(_, scale) => {
            let unit = power_of_ten(*scale);
            values.as_primitive::<Decimal128Type>().values().iter().map(|x| *x as f64 / unit).collect()
        }
        DataType::Decimal256(_, scale) => {
            let unit = power_of_ten(*scale);
            values
                .as_primitive::<Decimal256Type>()
                .values()
                .iter()
                .map(|x| wide_to_float(*x) / unit)
                .collect()
        }
        other => panic!("expected a column of numbers, got {other}"),
    }
}

/// 10^scale, exact up to 22; of the larger ones the last bits may be off.
///
/// By squaring, since that is what sketches in checkpoints were made with: a value has to leave the bucket that it was
/// put into.
fn power_of_ten(scale: i8) -> f64 {
    let (mut rest, mut square, mut power) = (scale.unsigned_abs(), 10.0, 1.0);
    while rest > 0 {
        if rest % 2 == 1 {
            power *= square;
        }
        square *= square;
        rest /= 2;
    }
    if scale < 0 { 1.0 / power } else { power }
}

/// 2^128.
const HIGH_PART: f64 = f64::from_bits((1023 + 128) << 52);

fn wide_to_float(value: i256) -> f64 {
    let (low, high) = value.wrapping_abs().to_parts();
    let magnitude = high as u128 as f64 * HIGH_PART + low as f64;
    if value.is_negative() { -magnitude } else { magnitude }
}

struct Tour<'a> {
    sketches: &'a mut [Sketch],
    cursors: &'a mut [Cursor],
    ranks: &'a [f64],
    owned: &'a mut usize,
    added: &'a [u32],
    removed: &'a [u32],
    added_nulls: Option<&'a NullBuffer>,
    removed_nulls: Option<&'a NullBuffer>,
    added_buckets: Vec<Bucket>,
    removed_buckets: Vec<Bucket>,
    out: Vec<Writer<f64>>,
}

impl Tour<'_> {
    /// Lets `change` work on a group's sketch and cursors, and keeps account of bytes.
    fn with(&mut self, group: u32, change: impl FnOnce(&mut Sketch, &mut [Cursor])) {
        let group = group as usize;
        let sketch = &mut self.sketches[group];
        let before = sketch.bytes();
        change(sketch, &mut self.cursors[group * self.ranks.len()..(group + 1) * self.ranks.len()]);
        *self.owned = *self.owned + sketch.bytes() - before;
    }
}

impl Walk for Tour<'_> {
    #[inline(always)]
    fn touch(&mut self, groups: &[u32]) {
        warm(groups.iter().map(|group| self.sketches[*group as usize].count()));
        warm(groups.iter().map(|group| self.sketches[*group as usize].any().unwrap_or(0) as u64));
        warm(groups.iter().map(|group| self.cursors[*group as usize * self.ranks.len()].below()));
    }

    fn reset(&mut self, group: u32) {
        self.with(group, clear);
    }

    #[inline(always)]
    fn add(&mut self, element: usize) {
        if self.added_nulls.is_none_or(|nulls| nulls.is_valid(element)) {
            let bucket = self.added_buckets[element];
            self.with(self.added[element], |sketch, cursors| sketch.add(bucket, cursors));
        }
    }

    #[inline(always)]
    fn remove(&mut self, element: usize) {
        if self.removed_nulls.is_none_or(|nulls| nulls.is_valid(element)) {
            let bucket = self.removed_buckets[element];
            self.with(self.removed[element], |sketch, cursors| sketch.remove(bucket, cursors));
        }
    }

    #[inline(always)]
    fn read(&mut self, step: usize, group: u32) {
        if group == NO_GROUP {
            return;
        }
        let sketch = &self.sketches[group as usize];
        let cursors = &mut self.cursors[group as usize * self.ranks.len()..];
        for ((out, rank), cursor) in self.out.iter_mut().zip(self.ranks).zip(cursors) {
            if let Some(bucket) = sketch.quantile(*rank, cursor) {
                out.set(step, representative(bucket), true);
            }
        }
    }
}

fn clear(sketch: &mut Sketch, cursors: &mut [Cursor]) {
    *sketch = Sketch::default();
    cursors.fill(Cursor::default());
}

impl Aggregate for Quantile {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn arg(&self) -> Option<usize> {
        Some(self.arg)
    }

    fn grow(&mut self, groups: usize) {
        grow(&mut self.sketches, groups, Sketch::default);
        grow(&mut self.cursors, groups * self.ranks.len(), Cursor::default);
    }

    fn cut(&mut self, groups: usize) {
        cut(&mut self.sketches, groups);
        cut(&mut self.cursors, groups * self.ranks.len());
    }

    fn reset(&mut self, group: u32) {
        let group = group as usize;
        self.owned -= self.sketches[group].bytes();
        clear(
            &mut self.sketches[group],
            &mut self.cursors[group * self.ranks.len()..(group + 1) * self.ranks.len()],
        );
    }

    fn run(&mut self, steps: &Steps<'_>, added: &Stream<'_>, removed: &Stream<'_>) -> Vec<Column> {
        let mut tour = Tour {
            sketches: &mut self.sketches,
            cursors: &mut self.cursors,
            ranks: &self.ranks,
            owned: &mut self.owned,
            added: added.groups,
            removed: removed.groups,
            added_nulls: added.argument_nulls(),
            removed_nulls: removed.argument_nulls(),
            added_buckets: buckets(added),
            removed_buckets: buckets(removed),
            out: self.ranks.iter().map(|_| Writer::new(steps.groups.len())).collect(),
        };
        walk(steps, added, removed, &mut tour);
        tour.out.into_iter().map(Writer::into_float64).collect()
    }

    fn read(&self, group: u32) -> Vec<Column> {
        self.ranks
            .iter()
            .enumerate()
            .map(|(index, rank)| {
                let mut out = Writer::new(1);
                if group != NO_GROUP {
                    let mut cursor = self.cursors[group as usize * self.ranks.len() + index];
                    if let Some(bucket) = self.sketches[group as usize].quantile(*rank, &mut cursor) {
                        out.set(0, representative(bucket), true);
                    }
                }
                out.into_float64()
            })
            .collect()
    }

    /// Cursors are not saved: they are found again by the next reading.
    fn save(&self, group: u32, out: &mut Vec<u8>) {
        self.sketches[group as usize].save(out);
    }

    fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let sketch = Sketch::load(image)?;
        self.reset(group);
        self.owned += sketch.bytes();
        self.sketches[group as usize] = sketch;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.sketches.capacity() * size_of::<Sketch>()
            + self.cursors.capacity() * size_of::<Cursor>()
            + self.owned
    }

    fn bytes_per_group(&self) -> usize {
        size_of::<Sketch>() + self.ranks.len() * size_of::<Cursor>()
    }

    fn worst_case(&self) -> Option<String> {
        Some(format!(
            "quantile keeps {} bytes per value in the window where no two are within 2 % of each other",
            size_of::<(Bucket, u64)>()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_ten_have_the_bits_that_sketches_in_checkpoints_were_made_with() {
        for scale in 0..=22 {
            assert_eq!(power_of_ten(scale), format!("1e{scale}").parse::<f64>().unwrap(), "{scale}");
        }
        for scale in 23..=76 {
            let nearest = format!("1e{scale}").parse::<f64>().unwrap();
            assert!(power_of_ten(scale).to_bits().abs_diff(nearest.to_bits()) <= 8);
        }
        let bytes: Vec<u8> =
            (-76..=76).flat_map(|scale| power_of_ten(scale).to_bits().to_le_bytes()).collect();
        assert_eq!(thalweg_types::hash_bytes(&bytes), 11_176_688_302_491_837_680);
        assert_eq!(wide_to_float(i256::from_parts(0, 1)), 340282366920938463463374607431768211456.0);
    }
}
