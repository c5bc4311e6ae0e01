//! Names for a column of addresses.
//!
//! First the filter says where the name of each row is, then places are put in the order of the file,
//! pieces that were not read yet are asked of the kernel all at once, and then names are decoded in that
//! order: a cold batch waits for the disk's queue and not for one read after the other, and a warm one goes
//! through memory from front to back.

use arrow_array::builder::make_view;
use arrow_array::{Array, FixedSizeBinaryArray, StringViewArray};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, ScalarBuffer};
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::address;
use super::error::LookupError;
use super::map::major_faults;
use super::table::{Found, LookupTable, damaged};
use super::v4_reader::V4Place;

/// Bytes of one buffer of names; places in it have four bytes.
const BUFFER_MAX: usize = 1 << 30;
/// Pieces that are this close to each other are asked for in one call.
const GAP: u64 = 8192;
/// Pages that a batch waits for, beyond one for 32 names, before it is taken that the kernel took pages back.
const UNASKED: u64 = 32;
/// Places of IPv6 rows come after those of IPv4 rows.
const V6: u64 = 1 << 63;

/// What the table has for a column of addresses.
#[derive(Clone, Debug)]
pub struct Names {
    /// By row: the name, an empty string where the row's name is empty, null where the table has no row.
    pub values: StringViewArray,
    /// Whether the table has a row.
    pub found: BooleanBuffer,
}

/// Memory that batches use one after the other.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Piece in the upper half, row of the batch in the lower.
    order: Vec<u64>,
    places: Vec<V4Place>,
    ranges: Vec<Range<u64>>,
}

/// Counts of a batch, added to the table's at its end.
#[derive(Default)]
struct Tally {
    hits: u64,
    empty: u64,
    filter_stops: u64,
}

impl LookupTable {
    /// Looks up a column of addresses of 16 bytes, IPv4 as `::ffff:a.b.c.d`. A null address has no row.
    ///
    /// # Errors
    /// A column of another width; damage in the file.
    pub fn find_all(
        &self,
        addresses: &FixedSizeBinaryArray,
        scratch: &mut Scratch,
    ) -> Result<Names, LookupError> {
        if addresses.value_length() != 16 {
            return Err(LookupError::Width { width: addresses.value_length() });
        }
        let keys = addresses.value_data().as_chunks::<16>().0;
        let keys = &keys[addresses.offset().min(keys.len())..][..addresses.len()];
        let mut tally = Tally::default();
        self.locate(keys, addresses.nulls(), scratch, &mut tally)?;
        scratch.order.sort_unstable();
        self.prefetch(scratch);
        let faults = major_faults();
        let names = self.decode(keys, scratch, &mut tally)?;
        if major_faults() - faults > UNASKED + scratch.order.len() as u64 / 32 {
            self.v4.iter().for_each(|v4| v4.residency.forget());
            self.v6.iter().for_each(|v6| v6.residency.forget());
        }
        self.counters.hits.fetch_add(tally.hits, Ordering::Relaxed);
        self.counters.empty.fetch_add(tally.empty, Ordering::Relaxed);
        self.counters.filter_stops.fetch_add(tally.filter_stops, Ordering::Relaxed);
        let asked = keys.len() - addresses.null_count();
        self.counters.absent.fetch_add(asked as u64 - tally.hits - tally.empty, Ordering::Relaxed);
        Ok(names)
    }

    /// Asks the filter for every row. Rows do not wait for each other, so the processor has several cache
    /// misses under way at once.
    fn locate(
        &self,
        keys: &[[u8; 16]],
        nulls: Option<&NullBuffer>,
        scratch: &mut Scratch,
        tally: &mut Tally,
    ) -> Result<(), LookupError> {
        scratch.order.clear();
        scratch.places.clear();
        scratch.places.resize(keys.len(), V4Place::default());
        for (row, key) in keys.iter().enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            let piece = match address::v4(key) {
                Some(v4) => self.place_v4(v4)?.map(|place| {
                    scratch.places[row] = place;
                    u64::from(place.chunk) << 32
                }),
                None => self.place_v6(key)?.map(|piece| V6 | u64::from(piece) << 32),
            };
            match piece {
                Some(piece) => scratch.order.push(piece | row as u64),
                None => tally.filter_stops += 1,
            }
        }
        Ok(())
    }

    /// Asks the kernel for the pieces that were not read yet.
    fn prefetch(&self, scratch: &mut Scratch) {
        scratch.ranges.clear();
        let mut last = None;
        for place in &scratch.order {
            let piece = place >> 32;
            if last == Some(piece) {
                continue;
            }
            last = Some(piece);
            let number = (piece & 0x7fff_ffff) as usize;
            let range = match (place & V6 != 0, &self.v4, &self.v6) {
                (false, Some(v4), _) if !v4.residency.is_touched(number) => v4.chunk_range(number),
                (true, _, Some(v6)) if !v6.residency.is_touched(number) => v6.range(number),
                _ => continue,
            };
            match scratch.ranges.last_mut() {
                Some(before) if range.start >= before.end && range.start - before.end <= GAP => {
                    before.end = range.end;
                }
                _ => scratch.ranges.push(range),
            }
        }
        scratch.ranges.drain(..).for_each(|range| self.map.prefetch(range));
    }

    fn decode(&self, keys: &[[u8; 16]], scratch: &Scratch, tally: &mut Tally) -> Result<Names, LookupError> {
        let mut views = vec![0_u128; keys.len()];
        let mut found = BooleanBufferBuilder::new(keys.len());
        found.append_n(keys.len(), false);
        let mut buffers: Vec<Buffer> = Vec::new();
        let mut names: Vec<u8> = Vec::with_capacity(scratch.order.len() * 32);
        for place in &scratch.order {
            let row = (place & 0xffff_ffff) as usize;
            if names.len() >= BUFFER_MAX {
                buffers.push(std::mem::take(&mut names).into());
            }
            let start = names.len();
            let what = match place & V6 != 0 {
                false => self.name_v4(&scratch.places[row], &keys[row], &mut names)?,
                true => self.name_v6((place >> 32) as u32 & 0x7fff_ffff, &keys[row], &mut names)?,
            };
            match what {
                Found::Absent => continue,
                Found::Empty => tally.empty += 1,
                Found::Value => tally.hits += 1,
            }
            found.set_bit(row, true);
            let name = &names[start..];
            views[row] = make_view(name, buffers.len() as u32, start as u32);
            if name.len() <= 12 {
                names.truncate(start);
            }
        }
        buffers.push(names.into());
        let found = found.finish();
        let nulls = NullBuffer::new(found.clone());
        let values = StringViewArray::try_new(ScalarBuffer::from(views), buffers, Some(nulls))
            .map_err(|error| damaged(&self.map, 0, "names", "UTF-8", &error.to_string()))?;
        Ok(Names { values, found })
    }
}
