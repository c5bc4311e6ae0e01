//! Bit packing of integers in blocks of 1,024, each with its own base and width.
//!
//! Layout of a block (little-endian): width 1 (bit 7: deltas), base 8, where deltas: first value 8, then the
//! packed bits. Width and base are per block, so one outlier widens 1,024 values, not a million.
//! A value is `base + bits`; with deltas a value is its predecessor `+ base + bits`, and the first value is
//! in the header. All arithmetic wraps, so any 64-bit range fits and unsigned values only need another minimum.
//!
//! Bits of a full block are in lanes: word `w` of lane `l` is at `w · lanes + l`, and value `r · lanes + l`
//! is row `r` of lane `l`. Every row is then one shift for all lanes, which the compiler turns into vector
//! instructions without our naming any (the transposed layout of FastLanes, VLDB 2023). Widths up to 32 use 32
//! lanes of 32-bit words, wider ones 16 lanes of 64-bit words; either way a block takes `128 · width` bytes.
//! The last, shorter block is packed value after value: lanes would pad a chunk of 100 rows to 1,024.

use super::cursor::Cursor;
use super::{CodecError, damaged};

/// Values of a block.
pub(super) const BLOCK: usize = 1024;

const DELTA: u8 = 0x80;

/// Bytes of a full block's bits for each bit of width.
const WIDTH_BYTES: usize = BLOCK / 8;

/// How the minimum of a block is found: the same 64 bits, two orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Signed,
    Unsigned,
}

/// Packs `count` values that `fill` writes block by block: it is called with the first row of each block and the
/// places to fill. Returns the value that all have, if they do.
pub(super) fn encode(
    count: usize,
    order: Order,
    mut fill: impl FnMut(usize, &mut [i64]),
    out: &mut Vec<u8>,
) -> Option<i64> {
    let mut values = [0_i64; BLOCK];
    let mut constant = None;
    let mut same = true;
    let mut start = 0;
    while start < count {
        let block = &mut values[..BLOCK.min(count - start)];
        fill(start, block);
        let one = encode_block(block, order, out);
        constant = constant.or(one);
        same &= one.is_some() && one == constant;
        start += block.len();
    }
    constant.filter(|_| same)
}

/// Packs one block in place of its values; returns the value that all have, if they do.
fn encode_block(values: &mut [i64], order: Order, out: &mut Vec<u8>) -> Option<i64> {
    // Flipping the sign bit turns the unsigned order into the signed one and cancels out of every difference.
    let flip = if order == Order::Unsigned { i64::MIN } else { 0 };
    let (low, high) = bounds(values, flip);
    let width = bits(high.wrapping_sub(low) as u64);
    let base = low ^ flip;
    if width == 0 {
        out.push(0);
        out.extend_from_slice(&base.to_le_bytes());
        return Some(base);
    }
    // Deltas cost a second pass here and a running sum on reading: take them where they save a quarter.
    if width > 3 && values.len() > 1 {
        let (delta_low, delta_high) = delta_bounds(values);
        let delta_width = bits(delta_high.wrapping_sub(delta_low) as u64);
        if delta_width * 4 <= width * 3 {
            let first = values[0];
            for index in (1..values.len()).rev() {
                values[index] = values[index].wrapping_sub(values[index - 1]).wrapping_sub(delta_low);
            }
            values[0] = 0;
            out.push(delta_width as u8 | DELTA);
            out.extend_from_slice(&delta_low.to_le_bytes());
            out.extend_from_slice(&first.to_le_bytes());
            pack(values, delta_width, out);
            return None;
        }
    }
    for value in values.iter_mut() {
        *value = value.wrapping_sub(base);
    }
    out.push(width as u8);
    out.extend_from_slice(&base.to_le_bytes());
    pack(values, width, out);
    None
}

fn bits(range: u64) -> usize {
    64 - range.leading_zeros() as usize
}

fn bounds(values: &[i64], flip: i64) -> (i64, i64) {
    values.iter().fold((i64::MAX, i64::MIN), |(low, high), value| {
        let value = value ^ flip;
        (low.min(value), high.max(value))
    })
}

fn delta_bounds(values: &[i64]) -> (i64, i64) {
    values.windows(2).fold((i64::MAX, i64::MIN), |(low, high), pair| {
        let delta = pair[1].wrapping_sub(pair[0]);
        (low.min(delta), high.max(delta))
    })
}

/// Appends the low `width` bits of each value.
fn pack(values: &[i64], width: usize, out: &mut Vec<u8>) {
    if values.len() < BLOCK {
        return pack_in_sequence(values, width, out);
    }
    let start = out.len();
    out.resize(start + WIDTH_BYTES * width, 0);
    let bytes = &mut out[start..];
    if width <= 32 {
        let mut words = [0_u32; BLOCK];
        for (row, lanes) in values.chunks_exact(32).enumerate() {
            let (word, shift) = (row * width / 32, row * width % 32);
            for (place, value) in words[word * 32..word * 32 + 32].iter_mut().zip(lanes) {
                *place |= (*value as u32) << shift;
            }
            if shift + width > 32 {
                for (place, value) in words[word * 32 + 32..word * 32 + 64].iter_mut().zip(lanes) {
                    *place |= (*value as u32) >> (32 - shift);
                }
            }
        }
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    } else {
        let mut words = [0_u64; BLOCK];
        for (row, lanes) in values.chunks_exact(16).enumerate() {
            let (word, shift) = (row * width / 64, row * width % 64);
            for (place, value) in words[word * 16..word * 16 + 16].iter_mut().zip(lanes) {
                *place |= (*value as u64) << shift;
            }
            if shift + width > 64 {
                for (place, value) in words[word * 16 + 16..word * 16 + 32].iter_mut().zip(lanes) {
                    *place |= (*value as u64) >> (64 - shift);
                }
            }
        }
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
}

fn pack_in_sequence(values: &[i64], width: usize, out: &mut Vec<u8>) {
    let (mut held, mut count) = (0_u128, 0);
    for value in values {
        held |= u128::from(*value as u64) << count;
        count += width;
        while count >= 8 {
            out.push(held as u8);
            held >>= 8;
            count -= 8;
        }
    }
    if count > 0 {
        out.push(held as u8);
    }
}

/// What a block's header says.
struct Header<'a> {
    width: usize,
    delta: bool,
    base: i64,
    first: i64,
    bits: &'a [u8],
}

fn header<'a>(cursor: &mut Cursor<'a>, count: usize) -> Result<Header<'a>, CodecError> {
    let pos = cursor.pos();
    let tag = cursor.u8("block width")?;
    let (width, delta) = (usize::from(tag & !DELTA), tag & DELTA != 0);
    if width > 64 {
        return Err(damaged(pos, "block width", "at most 64", width));
    }
    let base = cursor.i64("block base")?;
    let first = if delta { cursor.i64("first value of a block")? } else { 0 };
    let len = if count == BLOCK { WIDTH_BYTES * width } else { (count * width).div_ceil(8) };
    Ok(Header { width, delta, base, first, bits: cursor.take(len, "packed bits")? })
}

/// Unpacks the next `out.len()` values, at most a block.
pub(super) fn decode_block(cursor: &mut Cursor<'_>, out: &mut [i64]) -> Result<(), CodecError> {
    let Header { width, delta, base, first, bits } = header(cursor, out.len())?;
    if width == 0 {
        out.fill(base);
    } else if out.len() < BLOCK {
        let count = out.len();
        unpack_in_sequence(bits, width, count, |row, value| out[row] = base.wrapping_add(value as i64));
    } else if width <= 32 {
        let words = words32(bits);
        for (row, lanes) in out.chunks_exact_mut(32).enumerate() {
            let values = row32(&words, row, width);
            for (place, value) in lanes.iter_mut().zip(values) {
                *place = base.wrapping_add(i64::from(value));
            }
        }
    } else {
        unpack64(bits, width, base, out);
    }
    if delta {
        let mut running = first.wrapping_sub(base);
        for value in out {
            running = running.wrapping_add(*value);
            *value = running;
        }
    }
    Ok(())
}

/// The same for values of 32 bits, without a detour over 64.
pub(super) fn decode_block_u32(cursor: &mut Cursor<'_>, out: &mut [u32]) -> Result<(), CodecError> {
    let pos = cursor.pos();
    let Header { width, delta, base, first, bits } = header(cursor, out.len())?;
    let (base, first) = (base as u32, first as u32);
    if width == 0 {
        out.fill(base);
    } else if width > 32 {
        return Err(damaged(pos, "block width", "at most 32", width));
    } else if out.len() < BLOCK {
        let count = out.len();
        unpack_in_sequence(bits, width, count, |row, value| out[row] = base.wrapping_add(value as u32));
    } else {
        let words = words32(bits);
        for (row, lanes) in out.chunks_exact_mut(32).enumerate() {
            let values = row32(&words, row, width);
            for (place, value) in lanes.iter_mut().zip(values) {
                *place = base.wrapping_add(value);
            }
        }
    }
    if delta {
        let mut running = first.wrapping_sub(base);
        for value in out {
            running = running.wrapping_add(*value);
            *value = running;
        }
    }
    Ok(())
}

/// The words of a block, and one more row of lanes so that the last row may look past its own word.
fn words32(bytes: &[u8]) -> [u32; BLOCK + 32] {
    let mut words = [0_u32; BLOCK + 32];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    words
}

/// One value of each lane.
#[inline]
fn row32(words: &[u32; BLOCK + 32], row: usize, width: usize) -> [u32; 32] {
    let (word, shift) = (row * width / 32, row * width % 32);
    let mask = u32::MAX >> (32 - width);
    let mut values = [0_u32; 32];
    let low = &words[word * 32..word * 32 + 32];
    if shift + width > 32 {
        let high = &words[word * 32 + 32..word * 32 + 64];
        for ((value, low), high) in values.iter_mut().zip(low).zip(high) {
            *value = ((low >> shift) | (high << (32 - shift))) & mask;
        }
    } else {
        for (value, low) in values.iter_mut().zip(low) {
            *value = (low >> shift) & mask;
        }
    }
    values
}

fn unpack64(bytes: &[u8], width: usize, base: i64, out: &mut [i64]) {
    let mut words = [0_u64; BLOCK + 16];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let mask = u64::MAX >> (64 - width);
    for (row, lanes) in out.chunks_exact_mut(16).enumerate() {
        let (word, shift) = (row * width / 64, row * width % 64);
        let low = &words[word * 16..word * 16 + 16];
        if shift + width > 64 {
            let high = &words[word * 16 + 16..word * 16 + 32];
            for ((place, low), high) in lanes.iter_mut().zip(low).zip(high) {
                let value = ((low >> shift) | (high << (64 - shift))) & mask;
                *place = base.wrapping_add(value as i64);
            }
        } else {
            for (place, low) in lanes.iter_mut().zip(low) {
                *place = base.wrapping_add(((low >> shift) & mask) as i64);
            }
        }
    }
}

fn unpack_in_sequence(bytes: &[u8], width: usize, count: usize, mut put: impl FnMut(usize, u64)) {
    let mask = u64::MAX >> (64 - width);
    let mut bytes = bytes.iter();
    let (mut held, mut bits) = (0_u128, 0);
    for row in 0..count {
        while bits < width {
            // The header's check has made sure that the bytes suffice.
            held |= u128::from(bytes.next().copied().unwrap_or(0)) << bits;
            bits += 8;
        }
        put(row, held as u64 & mask);
        held >>= width;
        bits -= width;
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    fn round_trip(values: &[i64], order: Order) -> Vec<u8> {
        let mut bytes = Vec::new();
        let fill = |start: usize, out: &mut [i64]| out.copy_from_slice(&values[start..start + out.len()]);
        encode(values.len(), order, fill, &mut bytes);
        let mut cursor = Cursor::new(&bytes, 0);
        let mut read = vec![0; values.len()];
        for block in read.chunks_mut(BLOCK) {
            decode_block(&mut cursor, block).unwrap();
        }
        assert_eq!(read, values);
        assert!(cursor.is_empty());
        bytes
    }

    #[test]
    fn every_width_round_trips_in_full_and_short_blocks() {
        for width in 0..=64 {
            let mask = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
            for count in [1, 2, 1000, 1024, 1025, 3000] {
                let mut random = Rng::with_seed(1);
                let values: Vec<i64> = (0..count).map(|_| (random.u64(..) & mask) as i64).collect();
                round_trip(&values, Order::Signed);
                round_trip(&values, Order::Unsigned);
            }
        }
    }

    #[test]
    fn sorted_values_take_the_bits_of_their_steps() {
        let values: Vec<i64> = (0..4096).map(|row| 1_700_000_000_000_000 + row * 3).collect();
        assert_eq!(round_trip(&values, Order::Signed).len(), 4 * 17);
    }

    #[test]
    fn the_largest_unsigned_values_are_as_narrow_as_small_ones() {
        let near = |row: i64| i64::MIN.wrapping_add((row * 7919) % 97 - 48);
        let values: Vec<i64> = (0..1024).map(near).collect();
        assert_eq!(round_trip(&values, Order::Unsigned).len(), 9 + 128 * 7);
    }

    proptest! {
        #[test]
        fn any_values_round_trip(values in proptest::collection::vec(any::<i64>(), 0..1100)) {
            round_trip(&values, Order::Signed);
        }
    }
}
