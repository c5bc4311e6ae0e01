//! From blocks to records: the part that all formats and sources share.
//!
//! The format's decoder makes columns; here each record gets its event time and its order number, and a record that
//! cannot be used becomes a line of rejects with its place and raw bytes.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::{DataType as ArrowType, TimeUnit as ArrowUnit};
use arrow_select::take::take;
use bytes::Bytes;
use thalweg_flow::{Decoded, Decoder, FindReceived, Payload, RawBlock, ReceivedPlace};
use thalweg_types::{
    Batch, DataType, Error, Field, Micros, Reject, RejectsBuilder, Schema, Seq, SeqRange, Seqs, TimeUnit,
    format_timestamp, reason_in_file,
};

use super::poison::{Arrived, Guarded};
use super::{BlockContext, MaxAhead};
use crate::format::{Columns, RecordDecoder, RecordFormat};
use crate::{SourceContext, SourceTime};

/// Decodes the blocks of one source.
pub struct SourceDecoder {
    /// Finds its records as they were received.
    received: Option<Arc<dyn FindReceived>>,
    source: Arc<str>,
    schema: Schema,
    format: Guarded,
    /// The first number of the block at hand.
    start: Seq,
    clock: EventClock,
}

/// Where event times come from and which are accepted.
pub(crate) struct EventClock {
    schema: Schema,
    source: Arc<str>,
    /// It was logged that times of the source look like another unit.
    is_told: Arc<AtomicBool>,
    time: SourceTime,
    max_ahead: MaxAhead,
}

/// A record without a line in the columns.
pub(crate) struct Refused {
    pub(crate) index: u32,
    pub(crate) raw: Range<usize>,
    pub(crate) code: Cow<'static, str>,
    pub(crate) reason: Cow<'static, str>,
}

impl SourceDecoder {
    /// `make` makes the format's decoder, and another one in its place after a panic.
    ///
    /// # Errors
    /// If the source's time field is not a timestamp.
    pub fn new(
        context: &SourceContext,
        make: impl Fn() -> Box<dyn RecordDecoder> + Send + 'static,
    ) -> Result<Self, Error> {
        Ok(Self {
            received: None,
            source: Arc::clone(&context.name),
            schema: context.schema.clone(),
            format: Guarded::new(Box::new(make), Arc::clone(&context.name), Arc::clone(&context.skip)),
            start: 0,
            clock: EventClock::new(&context.schema, context)?,
        })
    }

    /// Says by what format its blocks were cut, so that a record that is refused further down has the received bytes.
    #[must_use]
    pub fn cut_by(self, format: Arc<dyn RecordFormat>) -> Self {
        Self { received: Some(Arc::new(CutBy(format))), ..self }
    }

    /// Shares with other decoders of its source whether it was logged that its times look like another unit.
    pub(crate) fn telling_once(mut self, is_told: Arc<AtomicBool>) -> Self {
        self.clock.is_told = is_told;
        self
    }

    fn decode_bytes(
        &mut self,
        block: &RawBlock,
        data: &Bytes,
        context: Option<&BlockContext>,
        range: SeqRange,
        arrival: Micros,
    ) -> Result<Decoded, Error> {
        let place = Place { source: &self.source, first: block.first, range, arrival, context };
        if let Some((code, reason)) = context.and_then(|context| context.refused.clone()) {
            let refused = Refused { index: 0, raw: 0..data.len(), code, reason };
            let rejects = place.rejects(&[refused], data);
            return Ok(Decoded::new(Batch::empty(range, self.schema.arrow())).with_rejects(Some(rejects)));
        }
        let preamble = context.and_then(|context| context.preamble.as_ref());
        let Columns { mut columns, mut rows, bad } = self
            .format
            .decode(Arrived { data, first: block.first, count: block.count, arrival }, preamble)?;
        let mut refused: Vec<Refused> = bad
            .into_iter()
            .map(|bad| Refused {
                index: bad.index,
                raw: bad.raw,
                code: Cow::Borrowed(bad.code),
                reason: bad.reason,
            })
            .collect();
        let mut indexes = None;
        let (mut times, untimely) = self.clock.times(&columns, rows, arrival);
        if !refused.is_empty() || !untimely.is_empty() {
            let mut kept = good_indexes(block.count, &refused);
            if !untimely.is_empty() {
                let late_indexes: Vec<u32> = untimely.iter().map(|(row, ..)| kept[*row as usize]).collect();
                let places = self.format.locate(data, &late_indexes);
                let rows_kept = rows_without(rows, untimely.iter().map(|(row, ..)| *row));
                for (((_, code, reason), index), raw) in untimely.into_iter().zip(late_indexes).zip(places) {
                    refused.push(Refused { index, raw, code: Cow::Borrowed(code), reason });
                }
                refused.sort_by_key(|refused| refused.index);
                kept = rows_kept.iter().map(|row| kept[*row as usize]).collect();
                times = rows_kept.iter().map(|row| times[*row as usize]).collect();
                rows = rows_kept.len();
                let rows_kept = UInt32Array::from(rows_kept);
                for column in &mut columns {
                    *column = take(column, &rows_kept, None).map_err(|error| {
                        Error::internal("take the good rows of a block").with_source(error)
                    })?;
                }
            }
            indexes = Some(kept);
        }
        let records = record_batch(&self.schema, columns, rows)?;
        let seqs = match indexes {
            None => Seqs::Dense(range.start),
            Some(kept) => Seqs::Each(kept.iter().map(|index| range.start + Seq::from(*index)).collect()),
        };
        let rejects = (!refused.is_empty()).then(|| place.rejects(&refused, data));
        Ok(Decoded::new(Batch::new(range, records, times.into(), seqs)).with_rejects(rejects))
    }
}

impl Decoder for SourceDecoder {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, arrival: Micros) -> Result<Decoded, Error> {
        if range.len() != u64::from(block.count) {
            return Err(Error::internal(format!(
                "a block of {} records was given the order range {range}",
                block.count
            )));
        }
        self.start = range.start;
        match &block.payload {
            Payload::Bytes { data, context } => {
                let context = context.as_ref().and_then(|context| context.downcast_ref::<BlockContext>());
                self.decode_bytes(block, data, context, range, arrival)
            }
            _ => Err(Error::internal("a decoder of bytes was given a block of something else")),
        }
    }

    fn working_on(&self) -> Option<Seq> {
        self.format.at().map(|index| self.start + Seq::from(index))
    }

    fn find_received(&self) -> Option<Arc<dyn FindReceived>> {
        self.received.clone()
    }
}

/// Records of blocks that a format has cut.
struct CutBy(Arc<dyn RecordFormat>);

impl FindReceived for CutBy {
    fn places(&self, block: &RawBlock) -> Vec<ReceivedPlace> {
        let Payload::Bytes { data, .. } = &block.payload else { return Vec::new() };
        let indexes: Vec<u32> = (0..block.count).collect();
        let (mut lines, mut at) = (0, 0);
        let place = |range: Range<usize>| {
            lines += crate::format::line_ends(&data[at..range.start]);
            at = range.start;
            ReceivedPlace { start: range.start, end: range.end, lines }
        };
        self.0.decoder().locate(data, &indexes).into_iter().map(place).collect()
    }

    fn first_line(&self, block: &RawBlock) -> Option<u64> {
        let Payload::Bytes { context: Some(context), .. } = &block.payload else { return None };
        context.downcast_ref::<BlockContext>()?.first_line
    }

    fn file(&self, block: &RawBlock, index: u32) -> Option<Arc<str>> {
        let Payload::Bytes { context: Some(context), .. } = &block.payload else { return None };
        context.downcast_ref::<BlockContext>()?.origin_of(index)
    }
}

pub(crate) fn record_batch(
    schema: &Schema,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, Error> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema.arrow()), columns, &options)
        .map_err(|error| Error::internal("make a batch of decoded columns").with_source(error))
}

/// Rows with a time that cannot be used: row, code, reason.
type Untimely = Vec<(u32, &'static str, Cow<'static, str>)>;

impl EventClock {
    /// # Errors
    /// If the time field is not a timestamp.
    pub(crate) fn new(schema: &Schema, context: &SourceContext) -> Result<Self, Error> {
        if let SourceTime::Field(place) = context.time {
            match schema.fields().get(place) {
                Some(Field { data_type: DataType::Timestamp(_), .. }) => {}
                Some(field) => {
                    return Err(Error::user(format!(
                        "source {:?}: expected a timestamp for time, got field {:?} of type {}",
                        context.name, field.name, field.data_type
                    )));
                }
                None => {
                    return Err(Error::internal(format!("source {:?} has no field {place}", context.name)));
                }
            }
        }
        Ok(Self {
            schema: schema.clone(),
            source: Arc::clone(&context.name),
            is_told: Arc::default(),
            time: context.time.clone(),
            max_ahead: MaxAhead::of(context),
        })
    }

    /// Event time of each row in microseconds, and the rows whose time is missing or cannot be used.
    pub(crate) fn times(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        arrival: Micros,
    ) -> (Vec<Micros>, Untimely) {
        let computed;
        let (column, field) = match &self.time {
            SourceTime::Arrival => return (vec![arrival; rows], Vec::new()),
            SourceTime::Field(field) => (&columns[*field], Some(*field)),
            SourceTime::Computed(compute) => {
                let records = record_batch(&self.schema, columns.to_vec(), rows)
                    .expect("columns of the schema, as many rows as are said");
                computed = compute.times(&records);
                (&computed, None)
            }
        };
        let Some((values, unit)) = time_values(column) else { return (vec![arrival; rows], Vec::new()) };
        let bound = self.max_ahead.bound(arrival);
        let (low, high) = values
            .iter()
            .fold((i64::MAX, i64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
        if let Some(field) = field
            && rows > 0
            && !self.is_told.load(Ordering::Relaxed)
        {
            [low, high].into_iter().for_each(|value| self.look_at_unit(field, unit, value));
        }
        let fits = rows == 0
            || (column.null_count() == 0
                && event_time(unit, low).is_some()
                && event_time(unit, high).is_some_and(|high| high <= bound));
        if fits {
            let times = match unit {
                TimeUnit::Second => values.iter().map(|value| value * 1_000_000).collect(),
                TimeUnit::Milli => values.iter().map(|value| value * 1_000).collect(),
                TimeUnit::Micro => values.to_vec(),
                TimeUnit::Nano => values.iter().map(|value| value.div_euclid(1_000)).collect(),
            };
            return (times, Vec::new());
        }
        self.careful_times(column, values, unit, arrival, bound)
    }

    /// Says, once for each source, that an event time looks as if it were in another unit.
    fn look_at_unit(&self, field: usize, unit: TimeUnit, value: i64) {
        let Some(meant) = meant_unit(unit, value) else { return };
        if self.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        let name = &self.schema.fields()[field].name;
        let shown =
            |unit| event_time(unit, value).map_or_else(|| "out of range".to_owned(), format_timestamp);
        tracing::warn!(
            source = %self.source,
            field = name,
            value,
            declared = format!("timestamp({}): {}", unit.name(), shown(unit)),
            likely = format!("timestamp({}): {}", meant.name(), shown(meant)),
            "an event time looks as if it were in another unit than its field: if all are, declare the field in that unit"
        );
    }

    #[cold]
    fn careful_times(
        &self,
        column: &ArrayRef,
        values: &[i64],
        unit: TimeUnit,
        arrival: Micros,
        bound: Micros,
    ) -> (Vec<Micros>, Untimely) {
        let name = match &self.time {
            SourceTime::Field(field) => format!("field {:?}", self.schema.fields()[*field].name),
            SourceTime::Computed(compute) => format!("time {:?}", compute.text()),
            SourceTime::Arrival => "arrival".to_owned(),
        };
        let mut untimely = Untimely::new();
        let mut times = Vec::with_capacity(values.len());
        for (row, value) in values.iter().enumerate() {
            let (time, problem): (_, Option<(&str, Cow<'static, str>)>) = match event_time(unit, *value) {
                _ if column.is_null(row) => {
                    (0, Some(("time", format!("{name}: expected the event time, got null").into())))
                }
                None => (
                    0,
                    Some((
                        "time",
                        format!("{name}: {value} {} is out of range for an event time", unit.name()).into(),
                    )),
                ),
                Some(time) if time > bound => {
                    (time, Some((MaxAhead::CODE, self.max_ahead.reason(&name, time, arrival))))
                }
                Some(time) => (time, None),
            };
            times.push(time);
            if let Some((code, reason)) = problem {
                untimely.push((row as u32, code, reason));
            }
        }
        (times, untimely)
    }
}

/// The unit in which a count is a time from 1990 to 2100, if it is not in its own.
fn meant_unit(unit: TimeUnit, value: i64) -> Option<TimeUnit> {
    // No count is in these years in two units.
    const YEARS: std::ops::Range<i128> = 631_152_000..4_102_444_800;
    let is_likely = |unit: &TimeUnit| {
        let of_second = match unit {
            TimeUnit::Second => 1,
            TimeUnit::Milli => 1_000,
            TimeUnit::Micro => 1_000_000,
            TimeUnit::Nano => 1_000_000_000,
        };
        YEARS.contains(&i128::from(value).div_euclid(of_second))
    };
    let units = [TimeUnit::Second, TimeUnit::Milli, TimeUnit::Micro, TimeUnit::Nano];
    if is_likely(&unit) { None } else { units.into_iter().find(is_likely) }
}

/// The counts of a timestamp column and their unit.
fn time_values(column: &ArrayRef) -> Option<(&[i64], TimeUnit)> {
    let ArrowType::Timestamp(unit, _) = column.data_type() else { return None };
    Some(match unit {
        ArrowUnit::Second => (column.as_primitive::<TimestampSecondType>().values(), TimeUnit::Second),
        ArrowUnit::Millisecond => {
            (column.as_primitive::<TimestampMillisecondType>().values(), TimeUnit::Milli)
        }
        ArrowUnit::Microsecond => {
            (column.as_primitive::<TimestampMicrosecondType>().values(), TimeUnit::Micro)
        }
        ArrowUnit::Nanosecond => (column.as_primitive::<TimestampNanosecondType>().values(), TimeUnit::Nano),
    })
}

/// Numbers of the records that are not refused; `refused` ascends.
fn good_indexes(count: u32, refused: &[Refused]) -> Vec<u32> {
    let mut refused = refused.iter().map(|refused| refused.index).peekable();
    (0..count).filter(|index| refused.next_if_eq(index).is_none()).collect()
}

pub(crate) fn rows_without(rows: usize, without: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut without = without.peekable();
    (0..rows as u32).filter(|row| without.next_if_eq(row).is_none()).collect()
}

/// The place of a block, for its rejects.
pub(crate) struct Place<'a> {
    pub(crate) source: &'a str,
    pub(crate) first: u64,
    pub(crate) range: SeqRange,
    pub(crate) arrival: Micros,
    pub(crate) context: Option<&'a BlockContext>,
}

impl Place<'_> {
    /// The stream of rejects for records that are refused, in ascending order.
    pub(crate) fn rejects(&self, refused: &[Refused], data: &Bytes) -> Batch {
        let mut rejects = RejectsBuilder::default();
        let first_line = self.context.and_then(|context| context.first_line);
        let mut lines_at = (0, 0_u64);
        for record in refused {
            let start = record.raw.start.max(lines_at.0);
            lines_at = (start, lines_at.1 + crate::format::line_ends(&data[lines_at.0..start]));
            let origin = self.context.and_then(|context| context.origin_of(record.index));
            let reject = Reject {
                source: self.source,
                offset: self.first + u64::from(record.index),
                line: first_line.map(|first| first + lines_at.1),
                code: &record.code,
                reason: &reason_in_file(&record.reason, origin.as_deref()),
                raw: &data[record.raw.clone()],
            };
            rejects.push(self.range.start + Seq::from(record.index), self.arrival, reject);
        }
        rejects.finish(self.range)
    }
}

/// The event time that a number of some unit is, in microseconds. The first and the last possible one are not times:
/// windows need something before and after each record, and files mean "never" by them.
fn event_time(unit: TimeUnit, value: i64) -> Option<Micros> {
    unit.to_micros(value).filter(|time| ![Micros::MIN, Micros::MAX].contains(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_a_likely_time_in_one_unit() {
        use TimeUnit::{Micro, Milli, Nano, Second};
        for (unit, value, expected) in [
            (Milli, 1_700_000_000, Some(Second)),
            (Second, 1_700_000_000_000, Some(Milli)),
            (Milli, 1_700_000_000_000_000, Some(Micro)),
            (Micro, 1_700_000_000_000, Some(Milli)),
            (Milli, 1_700_000_000_000_000_000, Some(Nano)),
            (Nano, 1_700_000_000, Some(Second)),
            (Milli, 1_700_000_000_000, None),
            (Milli, 0, None),
            (Milli, 5_000, None),
            (Milli, 631_152_000, Some(Second)),
            (Milli, 631_151_999, None),
            (Milli, 4_102_444_800, None),
            (Second, -1, None),
            (Second, i64::MAX, None),
            (Second, i64::MIN, None),
        ] {
            assert_eq!(meant_unit(unit, value), expected, "{value} in {unit:?}");
        }
    }
}
