//! `aggregate`: count, min, max, mean and variance of fields, per key and aligned interval of event time.
//!
//! Intervals begin at multiples of `every` from the epoch. One is emitted when task time reaches its end plus the
//! stream's `lateness`; until then records out of order find it open.
//!
//! Numbers are taken as float64. Mean and variance are updated record by record as Welford and Finch have it, in
//! the order of the stream; the variance is that of the population, `S / n`. NaN sorts above everything, and nulls are
//! not counted. A key is forgotten when none of its intervals is open.

use smallvec::SmallVec;
use thalweg_connect::OptionKind;
use thalweg_flow::{Element, FieldType, Get, Packed, Row, Set, Timestamp, Turn};
use thalweg_types::{DataType, Error, Field, Micros, Schema, TimeUnit, Value, format_duration};

use crate::job_file::keys::{KeySpec, Shape};
use crate::operator::{Later, NamedOutput, OperatorCheck, OperatorPlugin, Prepared, TEXTS};

use super::{CHECKPOINT, ElementPlan, KEY, distinct, places, setters};

pub struct Aggregate;

const OPTIONS: &[KeySpec] = &[
    KEY,
    KeySpec::new("fields", TEXTS, "numeric fields to aggregate").required(),
    KeySpec::new("every", Shape::Option(OptionKind::Duration), "length of the intervals").required(),
    CHECKPOINT,
];

impl OperatorPlugin for Aggregate {
    fn name(&self) -> &'static str {
        "aggregate"
    }

    fn doc(&self) -> &'static str {
        "computes count, min, max, mean and variance of fields for each key and interval of event time"
    }

    fn page(&self) -> &'static str {
        include_str!("aggregate.md")
    }

    fn options(&self) -> &'static [KeySpec] {
        OPTIONS
    }

    fn partitions_itself(&self) -> bool {
        true
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let plan = ElementPlan::read(check);
        let stream = check.input();
        let input = &stream.schema;
        let names = check.options().list("fields").unwrap_or_default();
        let numbers = places(check, "fields", names, input).and_then(|places| {
            let numbers = places.iter().map(|place| Number::of(input, &input.fields()[*place]));
            check.accept("fields", numbers.collect::<Result<Vec<_>, _>>())
        });
        let every = check.options().duration("every");
        if every.is_some_and(|every| every <= 0) {
            check.error("every", "\"every\" is 0", Some("give a length, as in `every: 1m`".to_owned()));
        }
        let (plan, numbers, every) = (plan?, numbers?, every?);
        let key: Vec<Field> = plan.keys[0].iter().map(|place| input.fields()[*place].clone()).collect();
        let mut fields = key.clone();
        fields.push(Field::new("start", DataType::Timestamp(TimeUnit::Micro)));
        for name in names {
            fields.push(Field::new(format!("{name}_count"), DataType::Int64));
            for figure in ["min", "max", "mean", "variance"] {
                fields.push(Field::new(format!("{name}_{figure}"), DataType::Float64).nullable());
            }
        }
        let schema = distinct(check, fields)?;
        if check.failed.get() {
            return None;
        }
        let shared = Plan {
            every,
            lateness: stream.lateness,
            numbers,
            key: check.accept("key", setters(&schema, &key))?,
            start: check.accept("key", Set::of(&schema, "start"))?,
            figures: check.accept("fields", names.iter().map(|name| Figures::of(&schema, name)).collect())?,
        };
        let outputs = vec![NamedOutput { name: "aggregates".to_owned(), schema }];
        let prepared = Prepared::elements::<Series>(check, plan, outputs, shared).also_kept_by(|kept| {
            kept.parts.insert("fields".to_owned(), format!("[{}]", names.join(", ")));
            // An open interval would get records of another length.
            kept.parts.insert("every".to_owned(), format_duration(every));
        });
        // A task emits intervals by their ends, so none is older than one before it.
        let key = key.into_iter().map(|field| field.name).collect();
        let prepared = prepared.emits_later(Later { behind: 0, key });
        Some(prepared)
    }
}

/// Where a number is read.
enum Number {
    Int(Get<Option<i64>>),
    UInt(Get<Option<u64>>),
    Float(Get<Option<f64>>),
}

impl Number {
    fn of(schema: &Schema, field: &Field) -> Result<Self, Error> {
        Ok(match &field.data_type {
            data_type if i64::fits(data_type) => Number::Int(Get::of(schema, &field.name)?),
            data_type if u64::fits(data_type) => Number::UInt(Get::of(schema, &field.name)?),
            data_type if f64::fits(data_type) => Number::Float(Get::of(schema, &field.name)?),
            other => {
                return Err(Error::user(format!("field {:?} is of type {other}", field.name)).with_hint(
                    "name fields of type int64, uint64 or float64; a `map` before makes others so",
                ));
            }
        })
    }

    fn read(&self, record: Row<'_>) -> Option<f64> {
        match self {
            Number::Int(field) => record.get(*field).map(|value| value as f64),
            Number::UInt(field) => record.get(*field).map(|value| value as f64),
            Number::Float(field) => record.get(*field),
        }
    }
}

/// Where the figures of a field are written.
struct Figures {
    count: Set<i64>,
    /// Min, max, mean, variance.
    values: [Set<Option<f64>>; 4],
}

impl Figures {
    fn of(schema: &Schema, name: &str) -> Result<Self, Error> {
        let value = |figure: &str| Set::of(schema, &format!("{name}_{figure}"));
        Ok(Self {
            count: Set::of(schema, &format!("{name}_count"))?,
            values: [value("min")?, value("max")?, value("mean")?, value("variance")?],
        })
    }
}

struct Plan {
    every: Micros,
    lateness: Micros,
    numbers: Vec<Number>,
    key: Vec<Set<Value>>,
    start: Set<Timestamp>,
    figures: Vec<Figures>,
}

impl Plan {
    /// When an interval is emitted.
    fn due(&self, start: Micros) -> Micros {
        start.saturating_add(self.every).saturating_add(self.lateness)
    }
}

/// The aggregates of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stats {
    pub(super) count: u64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) mean: f64,
    /// Sum of the squares of the differences from the mean.
    pub(super) squares: f64,
}

impl Stats {
    pub(super) const EMPTY: Self = Self { count: 0, min: f64::NAN, max: f64::NAN, mean: 0.0, squares: 0.0 };

    pub(super) fn add(&mut self, value: f64) {
        self.count += 1;
        if self.count == 1 {
            (self.min, self.max) = (value, value);
        } else {
            // NaN is above everything: it is the least only among its own.
            self.min = if value < self.min || self.min.is_nan() { value } else { self.min };
            self.max = if value > self.max || value.is_nan() { value } else { self.max };
        }
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    pub(super) fn variance(&self) -> f64 {
        self.squares / self.count as f64
    }
}

/// The bits of a NaN that is computed are the processor's choice.
fn one_nan(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

/// The open intervals of a key, ascending; most keys have one, which is then in the element itself.
struct Series {
    /// Their beginnings.
    starts: SmallVec<[Micros; 1]>,
    /// Of each interval, one for each field.
    stats: SmallVec<[Stats; 1]>,
}

impl Series {
    /// The statistics of the interval at `place` among the open ones.
    fn stats(&self, place: usize, fields: usize) -> &[Stats] {
        &self.stats[place * fields..][..fields]
    }
}

impl Element for Series {
    type Shared = Plan;

    fn create(_: &Plan, _: Packed<'_>) -> Self {
        Self { starts: SmallVec::new(), stats: SmallVec::new() }
    }

    fn process(&mut self, plan: &Plan, record: Row<'_>, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        let start = record.time().div_euclid(plan.every).saturating_mul(plan.every);
        let fields = plan.numbers.len();
        // From the newest on: records that are out of order are few.
        let after = self.starts.iter().rposition(|open| *open <= start).map_or(0, |place| place + 1);
        let place = match after.checked_sub(1).filter(|place| self.starts[*place] == start) {
            Some(place) => place,
            None => {
                turn.wake_at(plan.due(start));
                self.starts.insert(after, start);
                let at = after * fields;
                self.stats.insert_many(at, std::iter::repeat_n(Stats::EMPTY, fields));
                after
            }
        };
        for (stats, number) in self.stats[place * fields..].iter_mut().zip(&plan.numbers) {
            if let Some(value) = number.read(record) {
                stats.add(value);
            }
        }
        Ok(())
    }

    fn wake(&mut self, plan: &Plan, due: Micros, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        let fields = plan.numbers.len();
        let is_due = self.starts.iter().any(|start| plan.due(*start) == due);
        let over = self.starts.iter().take_while(|start| plan.due(**start) <= due).count();
        for (place, start) in self.starts[..over].iter().enumerate() {
            let end = start.saturating_add(plan.every);
            let mut record =
                turn.keyed(0, &plan.key)?.time(end).set(plan.start, Timestamp::from_micros(*start));
            for (stats, figures) in self.stats(place, fields).iter().zip(&plan.figures) {
                let values = [stats.min, stats.max, stats.mean, stats.variance()].map(one_nan);
                record = record.set(figures.count, stats.count as i64);
                for (field, value) in figures.values.iter().zip(values) {
                    record = record.set(*field, (stats.count > 0).then_some(value));
                }
            }
            record.send()?;
        }
        self.starts.drain(..over);
        self.stats.drain(..over * fields);
        if !is_due {
            // The stream's lateness has been changed: one of them would have been due now.
            self.starts.iter().for_each(|start| turn.wake_at(plan.due(*start)));
        }
        if self.starts.is_empty() {
            turn.forget();
        }
        Ok(())
    }

    /// Per interval: start (8), then per field count (8), min, max, mean and sum of squares (8 each).
    fn save(&self, into: &mut Vec<u8>) {
        let fields = self.stats.len() / self.starts.len().max(1);
        for (place, start) in self.starts.iter().enumerate() {
            into.extend_from_slice(&start.to_le_bytes());
            for stats in self.stats(place, fields) {
                into.extend_from_slice(&stats.count.to_le_bytes());
                for value in [stats.min, stats.max, stats.mean, stats.squares] {
                    into.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
    }

    fn load(plan: &Plan, bytes: &[u8]) -> Result<Self, Error> {
        let words = bytes.chunks_exact(8).map(|word| word.try_into().unwrap_or_default());
        let words: Vec<[u8; 8]> = words.collect();
        let length = 1 + 5 * plan.numbers.len();
        if !bytes.len().is_multiple_of(8 * length) {
            return Err(Error::corrupt(format!(
                "{} bytes of open intervals, expected a multiple of {}",
                bytes.len(),
                8 * length
            )));
        }
        let intervals = || words.chunks_exact(length);
        let stats = intervals().flat_map(|words| words[1..].chunks_exact(5)).map(|words| Stats {
            count: u64::from_le_bytes(words[0]),
            min: f64::from_le_bytes(words[1]),
            max: f64::from_le_bytes(words[2]),
            mean: f64::from_le_bytes(words[3]),
            squares: f64::from_le_bytes(words[4]),
        });
        let starts = intervals().map(|words| Micros::from_le_bytes(words[0])).collect();
        Ok(Self { starts, stats: stats.collect() })
    }

    fn heap_bytes(&self) -> usize {
        let starts = if self.starts.spilled() { self.starts.capacity() * size_of::<Micros>() } else { 0 };
        let stats = if self.stats.spilled() { self.stats.capacity() * size_of::<Stats>() } else { 0 };
        starts + stats
    }
}
