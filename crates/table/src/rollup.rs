//! Rollups: rows of a table summed up by interval and keys.
//!
//! Keys are compared as bytes that sort like their columns (`arrow-row`), so that rows come out in order of interval, then
//! keys, and equal ones occur once. The rows of a rollup can be summed up again by the same code: that is how files are
//! merged.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, UInt64Array};
use arrow_buffer::ScalarBuffer;
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{
    ArrowError, DataType as ArrowType, Field as ArrowField, Schema as ArrowSchema, SchemaRef,
};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use thalweg_types::{DataType, Error, Micros, Schema, TimeUnit};

use crate::{Rollup, RollupSpec};

/// How a rollup's columns are had from those of its table, or from its own.
#[derive(Clone, Debug)]
pub(crate) struct RollupPlan {
    pub spec: RollupSpec,
    /// Columns of the rollup.
    pub schema: SchemaRef,
    unit: TimeUnit,
    /// Length of an interval in units of the time column.
    every: i64,
}

impl RollupPlan {
    /// # Errors
    /// Columns that are not there, or cannot be keys or sums.
    pub(crate) fn new(spec: &RollupSpec, schema: &Schema, time: usize) -> Result<Self, Error> {
        let time = &schema.fields()[time];
        let DataType::Timestamp(unit) = time.data_type else {
            return Err(Error::internal("the time column is a timestamp"));
        };
        let column = |name: &String| {
            let names = || schema.names().collect::<Vec<_>>().join(", ");
            let found = schema.field(name).map(|(_, field)| field).ok_or_else(|| {
                Error::user(format!("rollup {:?}: {name:?} is no column of the table", spec.name))
                    .with_hint(format!("its columns are {}", names()))
            })?;
            Ok::<_, Error>(found)
        };
        let mut fields = vec![time.to_arrow()];
        for name in &spec.by {
            let field = column(name)?;
            if *name == time.name {
                return Err(Error::user(format!("rollup {:?}: the event time is a key already", spec.name))
                    .with_hint("leave it out of `by`"));
            }
            fields.push(field.to_arrow());
        }
        for name in &spec.sum {
            let field = column(name)?;
            if !matches!(field.data_type, DataType::Int64 | DataType::UInt64) {
                return Err(Error::user(format!(
                    "rollup {:?}: expected a column of integers to sum up, got {name:?} of type {}",
                    spec.name, field.data_type
                )));
            }
            fields.push(field.to_arrow());
        }
        fields.push(ArrowField::new(Rollup::COUNT, ArrowType::Int64, true));
        let mut names: Vec<&String> = fields.iter().map(ArrowField::name).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::user(format!("rollup {:?} has the column {:?} twice", spec.name, twice[0])));
        }
        let every = unit.from_micros(spec.every).unwrap_or(i64::MAX);
        Ok(Self { spec: spec.clone(), schema: Arc::new(ArrowSchema::new(fields)), unit, every })
    }

    /// Whether the rows of `finer` sum up to the rows of this one.
    pub(crate) fn is_made_of(&self, finer: &Self) -> bool {
        let (own, finer) = (&self.spec, &finer.spec);
        own.every % finer.every == 0
            && own.by.iter().all(|name| finer.by.contains(name))
            && own.sum.iter().all(|name| finer.sum.contains(name))
    }
}

/// Sums rows up.
pub(crate) struct Roller<'a> {
    plan: &'a RollupPlan,
    converter: RowConverter,
    keys: Rows,
    /// A seed of its own, as keys come from outside; groups are in the order of their rows.
    hasher: RandomState,
    /// Numbers of rows of `keys`, by their bytes.
    groups: HashTable<usize>,
    sums: Vec<Sum>,
    counts: Vec<i64>,
}

#[derive(Default)]
struct Sum {
    /// No number of rows fills 128 bits.
    values: Vec<i128>,
    has_value: Vec<bool>,
}

impl<'a> Roller<'a> {
    /// # Errors
    /// Where a key is of a type that cannot be compared.
    pub(crate) fn new(plan: &'a RollupPlan) -> Result<Self, Error> {
        let keys = 1 + plan.spec.by.len();
        let fields = plan.schema.fields().iter().take(keys);
        let fields = fields.map(|field| SortField::new(field.data_type().clone())).collect();
        let converter = RowConverter::new(fields).map_err(rolling)?;
        let keys = converter.empty_rows(0, 0);
        let sums = plan.spec.sum.iter().map(|_| Sum::default()).collect();
        let (hasher, groups) = (RandomState::default(), HashTable::new());
        Ok(Self { plan, converter, keys, hasher, groups, sums, counts: Vec::new() })
    }

    /// Adds rows of the table, or of the rollup itself; a column that is not there is null.
    pub(crate) fn add(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let fields = self.plan.schema.fields();
        let column = |place: usize| {
            let field = &fields[place];
            match rows.column_by_name(field.name()) {
                Some(column) => Arc::clone(column),
                None => arrow_array::new_null_array(field.data_type(), rows.num_rows()),
            }
        };
        let mut keys: Vec<ArrayRef> = vec![self.intervals(&column(0))?];
        keys.extend((1..=self.plan.spec.by.len()).map(column));
        let keys = self.converter.convert_columns(&keys).map_err(rolling)?;
        let groups: Vec<u32> = keys.iter().map(|key| self.group(key)).collect();
        let first = 1 + self.plan.spec.by.len();
        for (place, sum) in self.sums.iter_mut().enumerate() {
            sum.add(&column(first + place), &groups);
        }
        match rows.column_by_name(Rollup::COUNT).and_then(|counts| counts.as_primitive_opt::<Int64Type>()) {
            Some(counts) => {
                let counts = groups.iter().zip(counts.values());
                counts.for_each(|(group, count)| self.counts[*group as usize] += count);
            }
            None => groups.iter().for_each(|group| self.counts[*group as usize] += 1),
        }
        Ok(())
    }

    fn group(&mut self, key: arrow_row::Row<'_>) -> u32 {
        let (hasher, hash) = (&self.hasher, self.hasher.hash_one(key.data()));
        let (keys, counts, sums) = (&mut self.keys, &mut self.counts, &mut self.sums);
        if let Some(found) = self.groups.find(hash, |group| keys.row(*group).data() == key.data()) {
            return *found as u32;
        }
        let group = keys.num_rows();
        keys.push(key);
        counts.push(0);
        for sum in sums {
            sum.values.push(0);
            sum.has_value.push(false);
        }
        self.groups.insert_unique(hash, group, |group| hasher.hash_one(keys.row(*group).data()));
        group as u32
    }

    /// Starts of the intervals that times are in.
    fn intervals(&self, times: &ArrayRef) -> Result<ArrayRef, Error> {
        let every = self.plan.every;
        let counts = counts_of(times).map_err(rolling)?;
        let starts = counts.iter().map(|time| time.div_euclid(every) * every);
        Ok(self.plan.unit.column(starts.collect(), None))
    }

    /// Rows in the order of interval and keys. Equal ones occur once, but where a sum is more than its column holds:
    /// then it is stored in parts, in as many rows, of which the first has the number of all.
    pub(crate) fn finish(self) -> Result<RecordBatch, Error> {
        let mut order: Vec<usize> = (0..self.counts.len()).collect();
        order.sort_unstable_by(|a, b| self.keys.row(*a).data().cmp(self.keys.row(*b).data()));
        let first = 1 + self.plan.spec.by.len();
        let ranges: Vec<Range> =
            (0..self.sums.len()).map(|place| Range::of(self.plan.schema.field(first + place))).collect();
        // Group, and which row of it.
        let mut rows: Vec<(usize, usize)> = Vec::with_capacity(order.len());
        for group in order {
            let sums = self.sums.iter().zip(&ranges);
            let parts = sums.map(|(sum, range)| range.parts(sum.values[group])).max().unwrap_or(1);
            rows.extend((0..parts).map(|part| (group, part)));
        }
        let keys = rows.iter().map(|(group, _)| self.keys.row(*group));
        let mut columns = self.converter.convert_rows(keys).map_err(rolling)?;
        for (sum, range) in self.sums.iter().zip(&ranges) {
            columns.push(sum.column(&rows, *range));
        }
        let counts = rows.iter().map(|(group, part)| if *part == 0 { self.counts[*group] } else { 0 });
        columns.push(Arc::new(counts.collect::<Int64Array>()));
        RecordBatch::try_new(Arc::clone(&self.plan.schema), columns).map_err(rolling)
    }
}

/// What a column of sums holds.
#[derive(Clone, Copy)]
struct Range {
    least: i128,
    most: i128,
}

impl Range {
    fn of(field: &ArrowField) -> Self {
        match field.data_type() {
            ArrowType::Int64 => Self { least: i64::MIN.into(), most: i64::MAX.into() },
            _ => Self { least: 0, most: u64::MAX.into() },
        }
    }

    fn is_signed(self) -> bool {
        self.least < 0
    }

    /// How many rows a sum takes. One of unsigned numbers is never below zero.
    fn parts(self, sum: i128) -> usize {
        let whole = if sum < 0 { sum / self.least } else { sum / self.most };
        let rest = if sum < 0 { sum % self.least } else { sum % self.most };
        (usize::try_from(whole).unwrap_or(usize::MAX) + usize::from(rest != 0)).max(1)
    }

    /// The part of a sum that is in one of its rows.
    fn part(self, sum: i128, part: usize) -> i128 {
        let most = if sum < 0 { self.least } else { self.most };
        let before = most * part as i128;
        (sum - before).clamp(most.min(0), most.max(0))
    }
}

impl Sum {
    fn add(&mut self, column: &ArrayRef, groups: &[u32]) {
        match column.data_type() {
            ArrowType::Int64 => self.add_each(column, column.as_primitive::<Int64Type>().values(), groups),
            _ => self.add_each(column, column.as_primitive::<UInt64Type>().values(), groups),
        }
    }

    fn add_each<T: Copy + Into<i128>>(&mut self, column: &ArrayRef, numbers: &[T], groups: &[u32]) {
        for (row, group) in groups.iter().enumerate() {
            if column.is_valid(row) {
                let group = *group as usize;
                self.values[group] += numbers[row].into();
                self.has_value[group] = true;
            }
        }
    }

    /// A column for these groups, part by part.
    fn column(&self, rows: &[(usize, usize)], range: Range) -> ArrayRef {
        let parts = rows.iter().map(|(group, part)| {
            let sum = self.values[*group];
            // Rows after the last part of this sum are there for another one.
            let is_there = self.has_value[*group] && *part < range.parts(sum);
            is_there.then(|| range.part(sum, *part))
        });
        match range.is_signed() {
            true => {
                Arc::new(parts.map(|part| part.map(|part| part as i64)).collect::<Int64Array>()) as ArrayRef
            }
            false => Arc::new(parts.map(|part| part.map(|part| part as u64)).collect::<UInt64Array>()),
        }
    }
}

/// Counts of a timestamp column, without a copy.
fn counts_of(times: &ArrayRef) -> Result<ScalarBuffer<i64>, ArrowError> {
    let data = times.to_data().into_builder().data_type(ArrowType::Int64).build()?;
    Ok(Int64Array::from(data).values().clone())
}

/// Event times of a timestamp column in microseconds; `None` where it is no timestamp.
pub(crate) fn micros(times: &ArrayRef) -> Option<impl Iterator<Item = Micros>> {
    let ArrowType::Timestamp(unit, _) = times.data_type() else { return None };
    let unit = TimeUnit::of_arrow(*unit);
    let counts = counts_of(times).ok()?;
    Some((0..counts.len()).map(move |row| unit.to_micros(counts[row]).unwrap_or(i64::MAX)))
}

fn rolling(error: ArrowError) -> Error {
    Error::internal("sum rows up").with_source(error)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_types::Field;

    use super::*;

    fn plan() -> RollupPlan {
        let schema = Schema::new(vec![
            Field::new("ts", DataType::Timestamp(TimeUnit::Micro)),
            Field::new("k", DataType::Int64),
            Field::new("i", DataType::Int64),
            Field::new("u", DataType::UInt64),
        ]);
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let spec = RollupSpec {
            name: "hour".to_owned(),
            every: 3_600_000_000,
            by: texts(&["k"]),
            sum: texts(&["i", "u"]),
            retention: None,
        };
        RollupPlan::new(&spec, &schema, 0).unwrap()
    }

    type Row = (i64, Option<i64>, Option<u64>);

    fn batch(rows: &[Row]) -> RecordBatch {
        RecordBatch::try_from_iter([
            ("ts", TimeUnit::Micro.column(rows.iter().map(|_| 7).collect(), None)),
            ("k", Arc::new(rows.iter().map(|row| Some(row.0)).collect::<Int64Array>()) as ArrayRef),
            ("i", Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>())),
            ("u", Arc::new(rows.iter().map(|row| row.2).collect::<UInt64Array>())),
        ])
        .unwrap()
    }

    fn rolled(plan: &RollupPlan, batches: &[RecordBatch]) -> RecordBatch {
        let mut roller = Roller::new(plan).unwrap();
        batches.iter().for_each(|batch| roller.add(batch).unwrap());
        roller.finish().unwrap()
    }

    /// By key: the sums with 128 bits, null if there is no value, and the number of rows.
    fn totals(
        rows: impl Iterator<Item = (i64, Option<i64>, Option<u64>, i64)>,
    ) -> Vec<(i64, [Option<i128>; 3])> {
        let mut totals = std::collections::BTreeMap::<i64, [Option<i128>; 3]>::new();
        for (key, signed, unsigned, count) in rows {
            let total = totals.entry(key).or_default();
            let more = [signed.map(i128::from), unsigned.map(i128::from), Some(count.into())];
            for (total, more) in total.iter_mut().zip(more) {
                *total = more.map_or(*total, |more| Some(total.unwrap_or(0) + more));
            }
        }
        totals.into_iter().collect()
    }

    fn totals_of(rollup: &RecordBatch) -> Vec<(i64, [Option<i128>; 3])> {
        let signed = |name: &str| rollup.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        let (keys, sums, counts) = (signed("k"), signed("i"), signed(Rollup::COUNT));
        let unsigned = rollup.column_by_name("u").unwrap().as_primitive::<UInt64Type>();
        let value = |column: &Int64Array, row: usize| column.is_valid(row).then(|| column.value(row));
        totals((0..rollup.num_rows()).map(|row| {
            let unsigned = unsigned.is_valid(row).then(|| unsigned.value(row));
            (keys.value(row), value(&sums, row), unsigned, counts.value(row))
        }))
    }

    proptest! {
        #[test]
        fn sums_beyond_their_type_stand_in_parts_and_add_up(
            rows in prop::collection::vec(
                (
                    0..3_i64,
                    prop::option::of(prop_oneof![-5..5_i64, Just(i64::MAX), Just(i64::MIN)]),
                    prop::option::of(prop_oneof![0..5_u64, Just(u64::MAX), Just(1 << 63)]),
                ),
                1..40,
            ),
            cut in 0..40_usize,
        ) {
            let plan = plan();
            let exact = totals(rows.iter().map(|(key, signed, unsigned)| (*key, *signed, *unsigned, 1)));
            let at_once = rolled(&plan, &[batch(&rows)]);
            prop_assert_eq!(totals_of(&at_once), exact.clone());
            // Of parts, as files are merged, and once more.
            let (one, other) = rows.split_at(cut.min(rows.len()));
            let merged = rolled(&plan, &[rolled(&plan, &[batch(one)]), rolled(&plan, &[batch(other)])]);
            prop_assert_eq!(&merged, &at_once);
            prop_assert_eq!(rolled(&plan, std::slice::from_ref(&at_once)), at_once);
        }
    }
}
