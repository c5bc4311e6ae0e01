//! Floats that are whole numbers over a power of ten, as amounts and readings mostly are, packed as integers.
//!
//! Layout (little-endian): power k 1 (0 to 4), exception count 4, the exceptions' rows 4 each and bits 8 each, then
//! packed integers m. A value is `m / 10^k`, which IEEE division rounds as a parser rounds the decimal text; each is
//! checked bit by bit when it is written, and one that does not come out (NaN, −0, infinities, more digits) is an
//! exception. More than one exception in 32 rows, and the column is stored raw.
//!
//! Rounding uses the number 1.5 · 2^52: added to a float below 2^51 it moves the whole part into the low bits of
//! the sum, which vector instructions can do; a conversion to integers they can not. (ALP, SIGMOD 2024.)

use arrow_buffer::NullBuffer;

use super::cursor::Cursor;
use super::{CodecError, damaged, pack};

const MAGIC: f64 = 6_755_399_441_055_744.0;
const LIMIT: f64 = 2_251_799_813_685_248.0;
const POWERS: [f64; 5] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0];

/// Rows of the sample that chooses the power.
const SAMPLE: usize = 256;

/// `value · 10^k` as a whole number, and whether dividing gives the same bits again.
#[inline]
fn scale(value: f64, power: f64) -> (i64, bool) {
    let scaled = value * power;
    let moved = scaled + MAGIC;
    let whole = moved - MAGIC;
    let exact = ((whole / power).to_bits() == value.to_bits()) & (scaled.abs() < LIMIT);
    ((moved.to_bits() as i64).wrapping_sub(MAGIC.to_bits() as i64), exact)
}

#[inline]
fn unscale(whole: i64, power: f64) -> f64 {
    (f64::from_bits((whole as u64).wrapping_add(MAGIC.to_bits())) - MAGIC) / power
}

/// Appends the packed form, or nothing where it does not suit the values. Rows that are null are skipped.
pub(super) fn encode(values: &[f64], nulls: Option<&NullBuffer>, out: &mut Vec<u8>) -> bool {
    let valid = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
    // Steps of changing length: even ones would meet a column that repeats always at the same place.
    let stride = values.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<f64> = (0..values.len().div_ceil(stride))
        .map(|step| step * stride + step * 7919 % stride)
        .filter(|row| *row < values.len() && valid(*row))
        .map(|row| values[row])
        .collect();
    let misses = |power: &f64| sample.iter().filter(|value| !scale(**value, *power).1).count();
    let Some(k) = POWERS.iter().position(|power| misses(power) * 16 <= sample.len()) else { return false };
    let power = POWERS[k];

    let most = values.len() / 32 + 1;
    let mut exceptions: Vec<u32> = Vec::new();
    let mut packed = Vec::with_capacity(values.len() * 3);
    // The replacement for exceptions and nulls: a value of the column, so that it widens no block.
    let mut stand_in =
        sample.iter().map(|value| scale(*value, power)).find(|(_, exact)| *exact).map_or(0, |m| m.0);
    pack::encode(
        values.len(),
        pack::Order::Signed,
        |start, block| {
            let mut all = true;
            for (place, value) in block.iter_mut().zip(&values[start..]) {
                let (whole, exact) = scale(*value, power);
                *place = whole;
                all &= exact;
            }
            if all && nulls.is_none() {
                return;
            }
            for (offset, place) in block.iter_mut().enumerate() {
                let row = start + offset;
                if valid(row) && scale(values[row], power).1 {
                    stand_in = *place;
                } else {
                    *place = stand_in;
                    if valid(row) && exceptions.len() <= most {
                        exceptions.push(row as u32);
                    }
                }
            }
        },
        &mut packed,
    );
    if exceptions.len() > most {
        return false;
    }
    out.push(k as u8);
    out.extend_from_slice(&(exceptions.len() as u32).to_le_bytes());
    for row in &exceptions {
        out.extend_from_slice(&row.to_le_bytes());
    }
    for row in &exceptions {
        out.extend_from_slice(&values[*row as usize].to_bits().to_le_bytes());
    }
    out.extend_from_slice(&packed);
    true
}

pub(super) fn decode(cursor: &mut Cursor<'_>, rows: usize) -> Result<Vec<f64>, CodecError> {
    let pos = cursor.pos();
    let k = cursor.u8("power of ten")?;
    let power = *POWERS.get(usize::from(k)).ok_or_else(|| damaged(pos, "power of ten", "0 to 4", k))?;
    let count = cursor.u32("exception count")? as usize;
    if count > rows {
        return Err(damaged(pos + 1, "exception count", format_args!("at most {rows}"), count));
    }
    let places = cursor.take(count * 4, "exception rows")?;
    let bits = cursor.take(count * 8, "exceptions")?;
    let mut values = vec![0.0; rows];
    let mut block = [0_i64; pack::BLOCK];
    for values in values.chunks_mut(pack::BLOCK) {
        let whole = &mut block[..values.len()];
        pack::decode_block(cursor, whole)?;
        for (value, whole) in values.iter_mut().zip(whole) {
            *value = unscale(*whole, power);
        }
    }
    for (row, bits) in places.as_chunks::<4>().0.iter().zip(bits.as_chunks::<8>().0) {
        let row = u32::from_le_bytes(*row) as usize;
        let value = values
            .get_mut(row)
            .ok_or_else(|| damaged(pos + 5, "exception row", format_args!("below {rows}"), row))?;
        *value = f64::from_bits(u64::from_le_bytes(*bits));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(values: &[f64]) -> Option<usize> {
        let mut bytes = Vec::new();
        if !encode(values, None, &mut bytes) {
            return None;
        }
        let read = decode(&mut Cursor::new(&bytes, 0), values.len()).unwrap();
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&read), bits(values));
        Some(bytes.len())
    }

    #[test]
    fn amounts_pack_and_keep_their_bits() {
        for (digits, power) in POWERS.into_iter().enumerate() {
            let values: Vec<f64> =
                (0..4096_i64).map(|row| ((row * 7919) % 100_003 - 50_000) as f64 / power).collect();
            // 0 / 10^k is 0, but a negative whole number never makes −0.
            assert!(round_trip(&values).unwrap() < 4096 * 9 / 4, "{digits} digits");
        }
    }

    #[test]
    fn odd_values_are_exceptions_and_too_many_of_them_are_raw() {
        let mut values: Vec<f64> = (0..4096).map(|row| f64::from(row) / 4.0).collect();
        let odd = [
            f64::NAN,
            -0.0,
            f64::INFINITY,
            f64::from_bits(0xfff8_dead_beef_0001),
            1e300,
            f64::MIN_POSITIVE,
            0.1 + 0.2,
            LIMIT,
            -LIMIT,
            LIMIT * 4.0,
        ];
        for (place, value) in odd.into_iter().enumerate() {
            values[place * 371 + 5] = value;
        }
        assert!(round_trip(&values).is_some());
        let noise: Vec<f64> = (0..4096).map(|row| f64::from(row).sqrt()).collect();
        assert_eq!(round_trip(&noise), None);
    }
}
