//! Readings of manufacturing equipment at 100 Hz: the 66 fields of the DEBS 2012 challenge, in its order.
//!
//! Three additive sensors (`bm05` to `bm07`) change state now and then, and each one's valve (`bm08` to `bm10`)
//! follows after a delay of 20 to 500 ms that belongs to the change. Time is cut into slots, one length per
//! sensor; in each slot the sensor changes once, early enough for the valve to follow within the same slot. So
//! both states at any time come from the slot's number alone.

use std::sync::Arc;

use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, PrimitiveArray};
use arrow_buffer::BooleanBuffer;
use thalweg_types::{DataType, Field, Micros, Offset, TimeUnit};

use super::{BASE, below, random};

/// Microseconds from one reading to the next.
const PERIOD: Micros = 10_000;
/// Most that a reading is taken late, as the real ones are.
const JITTER: u64 = 60;
/// Length of the slots of each sensor.
const SLOTS: [Micros; 3] = [1_900_000, 2_700_000, 3_700_000];
const SHORTEST_DELAY: Micros = 20_000;
const LONGEST_DELAY: Micros = 500_000;

pub(super) fn fields() -> Vec<Field> {
    let integer = |name: &str| Field::new(name, DataType::Int64);
    let state = |name: String| Field::new(name, DataType::Bool);
    let mut fields = vec![Field::new("ts", DataType::Timestamp(TimeUnit::Micro)), integer("index")];
    let measured = ["mf01", "mf02", "mf03", "pc13", "pc14", "pc15", "pc25", "pc26", "pc27", "res"];
    fields.extend(measured.map(integer));
    fields.extend((5..=10).map(|number| state(format!("bm{number:02}"))));
    fields.extend((1..=36).map(|number| state(format!("pp{number:02}"))));
    fields.extend((1..=6).chain(19..=24).map(|number| integer(&format!("pc{number:02}"))));
    fields
}

#[derive(Debug)]
pub(super) struct Readings {
    seed: u64,
}

impl Readings {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed }
    }

    pub(super) fn columns(&self, first: Offset, count: usize, width: usize) -> Vec<ArrayRef> {
        (0..width).map(|field| self.column(field, first, count)).collect()
    }

    fn column(&self, field: usize, first: Offset, count: usize) -> ArrayRef {
        let offsets = first..first + count as u64;
        let random = |offset| random(self.seed, 1_000 + field as u64, offset);
        let integers = |value: &dyn Fn(Offset) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(offsets.clone().map(value)))
        };
        let states = |value: &dyn Fn(Offset) -> bool| -> ArrayRef {
            Arc::new(BooleanArray::new(BooleanBuffer::from_iter(offsets.clone().map(value)), None))
        };
        match field {
            0 => {
                let times = offsets.clone().map(|offset| BASE + self.time(offset));
                Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from_iter_values(times))
            }
            1 => integers(&|offset| offset as i64),
            // Power of the three phases: a level, a slow swing, and noise.
            2..=4 => {
                let level = [13_050, 14_400, 8_115][field - 2];
                integers(&|offset| level + swing(offset, 6_000, 400) + below(random(offset), 16) as i64)
            }
            5..=7 => {
                let level = [65, 190, 150][field - 5];
                integers(&|offset| level + below(random(offset), 10) as i64)
            }
            8..=10 => integers(&|offset| below(random(offset), 3) as i64),
            11 => integers(&|_| 0),
            12..=14 => states(&|offset| self.state(field - 12, self.time(offset), false)),
            15..=17 => states(&|offset| self.state(field - 15, self.time(offset), true)),
            // States that hardly ever change: each keeps what it is for about a minute.
            18..=53 => {
                let key = field as u64;
                states(&|offset| super::random(self.seed, 2_000 + key, offset / 6_000).is_multiple_of(8))
            }
            _ => integers(&|offset| 1_000 + swing(offset, 60_000, 50) + below(random(offset), 8) as i64),
        }
    }

    /// When a reading was taken, from the beginning.
    fn time(&self, offset: Offset) -> Micros {
        offset as Micros * PERIOD + below(random(self.seed, 0, offset), JITTER) as Micros
    }

    /// State of a sensor, or of its valve, at a time.
    fn state(&self, sensor: usize, time: Micros, is_valve: bool) -> bool {
        let length = SLOTS[sensor];
        let change = (time / length) as u64;
        let random = random(self.seed, 3_000 + sensor as u64, change);
        let range = (length - LONGEST_DELAY - PERIOD) as u64;
        let mut at = below(random, range) as Micros;
        if is_valve {
            let delays = (LONGEST_DELAY - SHORTEST_DELAY) as u64;
            at += SHORTEST_DELAY + below(random.rotate_left(32), delays) as Micros;
        }
        let changes = change + u64::from(time % length >= at);
        changes % 2 == 1
    }
}

/// A triangle wave, so that no platform's sine makes other records.
fn swing(offset: Offset, period: u64, height: i64) -> i64 {
    let place = (offset % period) as i64 * 2;
    let period = period as i64;
    let up = if place < period { place } else { 2 * period - place };
    up * height / period - height / 2
}
