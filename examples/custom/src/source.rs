//! `sensor`: a source of its own. Frames of made-up devices, as a field bus would deliver them.
//!
//! Frame, 16 bytes, little-endian: time 8 (milliseconds since the epoch), device 2, value 4 (hundredths), check 2 (the
//! sum of the bytes before it). The check is last, so that a gateway can add it up while it sends.
//!
//! The source only knows where frames begin and end; it runs in one place and decides the order. What a frame means
//! is found out afterwards by [`FrameDecoder`], in as many tasks as the job file wants, so it must not depend on other
//! frames. Event times and the lines of rejects are the engine's: [`SourceDecoder`] makes both.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use thalweg_prelude::arrow_array::builder::StringViewBuilder;
use thalweg_prelude::arrow_array::{Float64Array, TimestampMillisecondArray};
use thalweg_prelude::bytes::Bytes;
use thalweg_prelude::*;

const FRAME: usize = 16;
const START_MS: i64 = 1_767_225_600_000; // 2026-01-01
const GAP_MS: i64 = 50;
const KINDS: [&str; 3] = ["mill", "oven", "press"];
/// Frames in one block at most, whatever the engine would take.
const BLOCK: u64 = 1 << 13;

/// The plug-in.
pub(crate) struct Sensor;

impl SourcePlugin for Sensor {
    fn name(&self) -> &'static str {
        "sensor"
    }

    fn doc(&self) -> &'static str {
        "frames of made-up devices: ts, device, value"
    }

    fn options(&self) -> &'static [OptionSpec] {
        const fn option(
            key: &'static str,
            max: i64,
            default: Option<&'static str>,
            doc: &'static str,
        ) -> OptionSpec {
            OptionSpec { key, kind: OptionKind::Integer { min: 1, max }, required: false, default, doc }
        }
        const OPTIONS: &[OptionSpec] = &[
            option("devices", 1_000, Some("12"), "how many devices there are"),
            option("count", i64::MAX, None, "how many frames they send; without it there is no end"),
            option("seed", i64::MAX, Some("1"), "other seeds, other values"),
            option("damage", i64::MAX, None, "every so many frames one is damaged on its way"),
        ];
        OPTIONS
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn is_live(&self, _: &Options) -> bool {
        false
    }

    fn own_schema(&self, _: &Options) -> Result<Option<Schema>, Error> {
        Ok(Some(Schema::new(vec![
            Field::new("ts", DataType::Timestamp(TimeUnit::Milli)),
            Field::new("device", DataType::String),
            Field::new("value", DataType::Float64),
        ])))
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let number = |key| context.options.integer(key).map(i64::unsigned_abs);
        let devices = number("devices").unwrap_or(12) as usize;
        let source = SensorSource {
            bus: Bus {
                random: number("seed").unwrap_or(1),
                values: vec![2_000; devices],
                damage: number("damage"),
            },
            next: 0,
            count: number("count"),
            is_draining: false,
        };
        let names: Arc<[String]> =
            (0..devices).map(|device| format!("{}-{device:02}", KINDS[device % KINDS.len()])).collect();
        let schema = context.schema.clone();
        let decoder = move |_: &TaskInfo| {
            let names = Arc::clone(&names);
            let frames =
                move || -> Box<dyn RecordDecoder> { Box::new(FrameDecoder { names: Arc::clone(&names) }) };
            let decoder: Box<dyn Decoder> = Box::new(SourceDecoder::new(&context, frames)?);
            Ok(decoder)
        };
        // The bus cannot be asked for old frames: the engine keeps them.
        let replay = Replay::Journal(BlockCodec::new(None));
        Ok(BuiltSource::new(Box::new(source), Box::new(decoder), schema, replay))
    }
}

struct SensorSource {
    bus: Bus,
    next: Offset,
    count: Option<u64>,
    is_draining: bool,
}

impl Source for SensorSource {
    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        let left = self.count.map_or(u64::MAX, |count| count - self.next);
        if left == 0 || self.is_draining {
            return Ok(Poll::End);
        }
        let count = ((max_bytes / FRAME) as u64).clamp(1, BLOCK).min(left);
        let first = self.next;
        self.next += count;
        let data: Vec<u8> = (first..self.next).flat_map(|number| self.bus.frame(number)).collect();
        let payload = Payload::Bytes { data: data.into(), context: None };
        Ok(Poll::Block(RawBlock { partition: 0, first, count: count as u32, payload }))
    }

    fn drain(&mut self) {
        self.is_draining = true;
    }

    fn progress(&self) -> Option<SourceProgress> {
        Some(SourceProgress { done: self.next, total: self.count })
    }
}

/// Stands for the hardware: the devices take turns, and the value of each wanders.
struct Bus {
    random: u64,
    values: Vec<i32>,
    damage: Option<u64>,
}

impl Bus {
    fn frame(&mut self, number: u64) -> [u8; FRAME] {
        let device = (number % self.values.len() as u64) as usize;
        // Knuth's generator for MMIX; its high bits are the good ones.
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.values[device] += (self.random >> 33) as i32 % 41 - 20;
        let mut frame = [0; FRAME];
        frame[..8].copy_from_slice(&(START_MS + number as i64 * GAP_MS).to_le_bytes());
        frame[8..10].copy_from_slice(&(device as u16).to_le_bytes());
        frame[10..14].copy_from_slice(&self.values[device].to_le_bytes());
        let check = check_of(&frame);
        frame[14..].copy_from_slice(&check.to_le_bytes());
        if self.damage.is_some_and(|every| (number + 1).is_multiple_of(every)) {
            frame[10] ^= 0x40;
        }
        frame
    }
}

fn check_of(frame: &[u8]) -> u16 {
    frame[..FRAME - 2].iter().map(|byte| u16::from(*byte)).sum()
}

/// Makes columns of frames.
struct FrameDecoder {
    names: Arc<[String]>,
}

impl FrameDecoder {
    /// Time, device and value of a frame, or the code and the reason why it has none.
    fn read(&self, frame: &[u8]) -> Result<(i64, &str, f64), (&'static str, String)> {
        let part = |range: Range<usize>| {
            frame[range].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (expected, got) = (check_of(frame), part(14..16));
        if u64::from(expected) != got {
            return Err(("check", format!("expected the check {expected}, got {got}")));
        }
        let device = part(8..10);
        let Some(name) = self.names.get(device as usize) else {
            return Err(("device", format!("expected a device below {}, got {device}", self.names.len())));
        };
        Ok((part(0..8) as i64, name, f64::from(part(10..14) as u32 as i32) / 100.0))
    }
}

impl RecordDecoder for FrameDecoder {
    fn decode(&mut self, data: &Bytes, count: usize, _: Option<&Preamble>) -> Result<Columns, Error> {
        if data.len() != count * FRAME {
            return Err(Error::internal(format!("a block of {count} frames has {} bytes", data.len())));
        }
        let (mut times, mut devices, mut values) = (Vec::new(), StringViewBuilder::new(), Vec::new());
        let mut bad = Vec::new();
        for (index, frame) in data.chunks_exact(FRAME).enumerate() {
            match self.read(frame) {
                Ok((time, device, value)) => {
                    times.push(time);
                    devices.append_value(device);
                    values.push(value);
                }
                Err((code, reason)) => {
                    let raw = index * FRAME..(index + 1) * FRAME;
                    bad.push(BadRecord { index: index as u32, raw, code, reason: Cow::Owned(reason) });
                }
            }
        }
        let rows = values.len();
        let times = TimestampMillisecondArray::from(times);
        let values = Float64Array::from(values);
        Ok(Columns {
            columns: vec![Arc::new(times), Arc::new(devices.finish()), Arc::new(values)],
            rows,
            bad,
        })
    }

    fn locate(&self, _: &[u8], indexes: &[u32]) -> Vec<Range<usize>> {
        indexes.iter().map(|index| *index as usize * FRAME..(*index as usize + 1) * FRAME).collect()
    }
}
