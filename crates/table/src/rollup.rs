//! Rollups: rows of a table summed up by interval and keys.
//!
//! Rows come out in order of interval, then keys, and equal ones occur once. The rows of a rollup can be summed up again by
//! the same code: that is how files are merged.
//!
//! Each value of a key has a number (`values`), and groups are found, compared and sorted by such numbers alone: rollups of
//! short intervals have nearly as many rows as their table. A coarser rollup takes the groups of a finer one with their
//! numbers ([`Roller::add_groups`]).

mod values;

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, UInt32Array, UInt64Array};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{
    ArrowError, DataType as ArrowType, Field as ArrowField, Schema as ArrowSchema, SchemaRef,
};
use arrow_select::take::take;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use thalweg_types::{DataType, Error, Micros, Schema, TimeUnit};

use crate::{Rollup, RollupSpec};
use values::Values;

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

/// A group in the table. The tag is part of its hash, so that a look-up meets other groups next to never.
#[derive(Clone, Copy)]
struct Mark {
    tag: u32,
    group: u32,
}

/// Sums rows up.
pub(crate) struct Roller<'a> {
    plan: &'a RollupPlan,
    /// Of the interval and each key. They are shared with coarser rollups once all rows have been added.
    values: Vec<Arc<Values>>,
    /// Numbers of values, as many for each group as there are key columns.
    keys: Vec<u32>,
    /// A seed of its own, as keys come from outside; groups are in the order of their rows.
    hasher: RandomState,
    groups: HashTable<Mark>,
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
        let fields = plan.schema.fields().iter().take(1 + plan.spec.by.len());
        let values = fields.map(|field| Ok(Arc::new(Values::new(field)?))).collect::<Result<_, Error>>()?;
        let sums = plan.spec.sum.iter().map(|_| Sum::default()).collect();
        let (hasher, groups) = (RandomState::default(), HashTable::new());
        Ok(Self { plan, values, keys: Vec::new(), hasher, groups, sums, counts: Vec::new() })
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
        let first = self.values.len();
        let mut keys = Vec::with_capacity(first);
        for place in 0..first {
            let column = if place == 0 { self.intervals(&column(0))? } else { column(place) };
            keys.push(self.own_values(place)?.numbers(&column)?);
        }
        let mut key = vec![0; first];
        let groups: Vec<u32> = (0..rows.num_rows())
            .map(|row| {
                key.iter_mut().zip(&keys).for_each(|(key, numbers)| *key = numbers[row]);
                self.group(&key)
            })
            .collect();
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

    /// Adds the groups of a rollup that this one is made of ([`RollupPlan::is_made_of`]). Nothing was added before, and no
    /// rows are added after.
    pub(crate) fn add_groups(&mut self, finer: &Self) -> Result<(), Error> {
        let place = |names: &[String], name: &String| {
            let place = names.iter().position(|other| other == name);
            place.ok_or_else(|| Error::internal("a rollup is made of one without its columns"))
        };
        let (own, of) = (&self.plan.spec, &finer.plan.spec);
        let mut from = vec![0];
        for (at, name) in own.by.iter().enumerate() {
            from.push(1 + place(&of.by, name)?);
            self.values[1 + at] = Arc::clone(&finer.values[from[1 + at]]);
        }
        let sums = own.sum.iter().map(|name| place(&of.sum, name)).collect::<Result<Vec<_>, _>>()?;
        let intervals = self.intervals(&finer.values[0].column()?)?;
        let intervals = self.own_values(0)?.numbers(&intervals)?;
        let mut key = vec![0; from.len()];
        for (theirs, numbers) in finer.keys.chunks_exact(finer.values.len()).enumerate() {
            key.iter_mut().zip(&from).for_each(|(key, from)| *key = numbers[*from]);
            key[0] = intervals[key[0] as usize];
            let group = self.group(&key) as usize;
            self.counts[group] += finer.counts[theirs];
            for (sum, from) in self.sums.iter_mut().zip(&sums) {
                let from = &finer.sums[*from];
                sum.values[group] += from.values[theirs];
                sum.has_value[group] |= from.has_value[theirs];
            }
        }
        Ok(())
    }

    fn own_values(&mut self, place: usize) -> Result<&mut Values, Error> {
        Arc::get_mut(&mut self.values[place])
            .ok_or_else(|| Error::internal("rows are added to a rollup that others are made of"))
    }

    fn group(&mut self, key: &[u32]) -> u32 {
        let hash = self.hasher.hash_one(key);
        let tag = (hash >> 32) as u32;
        let (keys, width) = (&self.keys, key.len());
        let is_same = |mark: &Mark| {
            let start = mark.group as usize * width;
            mark.tag == tag && keys[start..start + width] == *key
        };
        if let Some(found) = self.groups.find(spread(tag), is_same) {
            return found.group;
        }
        let group = self.counts.len() as u32;
        self.keys.extend_from_slice(key);
        self.counts.push(0);
        for sum in &mut self.sums {
            sum.values.push(0);
            sum.has_value.push(false);
        }
        self.groups.insert_unique(spread(tag), Mark { tag, group }, |mark| spread(mark.tag));
        group
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
    pub(crate) fn finish(&self) -> Result<RecordBatch, Error> {
        let first = self.values.len();
        let ranked = self.values.iter().map(|values| values.ranked()).collect::<Result<Vec<_>, _>>()?;
        let ranges: Vec<Range> =
            (0..self.sums.len()).map(|place| Range::of(self.plan.schema.field(first + place))).collect();
        // Group, and which row of it.
        let mut rows: Vec<(usize, usize)> = Vec::with_capacity(self.counts.len());
        for group in self.order(&ranked) {
            let sums = self.sums.iter().zip(&ranges);
            let parts = sums.map(|(sum, range)| range.parts(sum.values[group])).max().unwrap_or(1);
            rows.extend((0..parts).map(|part| (group, part)));
        }
        let mut columns = Vec::with_capacity(first + self.sums.len() + 1);
        for (place, (column, ranks)) in ranked.iter().enumerate() {
            let ranks = rows.iter().map(|(group, _)| ranks[self.keys[group * first + place] as usize]);
            let ranks = UInt32Array::from_iter_values(ranks);
            columns.push(take(column, &ranks, None).map_err(rolling)?);
        }
        for (sum, range) in self.sums.iter().zip(&ranges) {
            columns.push(sum.column(&rows, *range));
        }
        let counts = rows.iter().map(|(group, part)| if *part == 0 { self.counts[*group] } else { 0 });
        columns.push(Arc::new(counts.collect::<Int64Array>()));
        RecordBatch::try_new(Arc::clone(&self.plan.schema), columns).map_err(rolling)
    }

    /// Groups in the order of interval and keys. Where the ranks of a group fit into one word, the words are sorted.
    fn order(&self, ranked: &[(ArrayRef, Vec<u32>)]) -> Vec<usize> {
        let bits = |ranks: &Vec<u32>| usize::BITS - ranks.len().saturating_sub(1).leading_zeros();
        let keys = self.keys.chunks_exact(ranked.len());
        if ranked.iter().map(|(_, ranks)| bits(ranks)).sum::<u32>() <= u128::BITS {
            let word = |key: &[u32]| {
                let ranks = key.iter().zip(ranked);
                ranks.fold(0_u128, |word, (number, (_, ranks))| {
                    word << bits(ranks) | u128::from(ranks[*number as usize])
                })
            };
            let mut order: Vec<(u128, u32)> = keys.map(word).zip(0..).collect();
            order.sort_unstable();
            return order.into_iter().map(|(_, group)| group as usize).collect();
        }
        let ranks = |group: usize| {
            let key = &self.keys[group * ranked.len()..][..ranked.len()];
            key.iter().zip(ranked).map(|(number, (_, ranks))| ranks[*number as usize])
        };
        let mut order: Vec<usize> = (0..self.counts.len()).collect();
        order.sort_unstable_by(|a, b| ranks(*a).cmp(ranks(*b)));
        order
    }
}

/// The table's hash of a tag: it takes buckets from the low bits and marks from the high ones, so both must vary.
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
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
        if (self.least..=self.most).contains(&sum) {
            // Nearly always, and dividing such wide numbers takes long.
            return 1;
        }
        let whole = if sum < 0 { sum / self.least } else { sum / self.most };
        let rest = if sum < 0 { sum % self.least } else { sum % self.most };
        (usize::try_from(whole).unwrap_or(usize::MAX) + usize::from(rest != 0)).max(1)
    }

    /// The part of a sum that is in one of its rows.
    fn part(self, sum: i128, part: usize) -> i128 {
        if part == 0 && (self.least..=self.most).contains(&sum) {
            return sum;
        }
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

    /// A rollup by so many columns, of rows with these values in them, and null where there is no number.
    fn wide(every: i64, names: &[&str], rows: &[(i64, Vec<Option<i64>>)]) -> (RollupPlan, RecordBatch) {
        let all: Vec<String> = (0..rows[0].1.len()).map(|place| format!("k{place}")).collect();
        let mut fields = vec![Field::new("ts", DataType::Timestamp(TimeUnit::Micro))];
        fields.extend(all.iter().map(|name| Field::new(name, DataType::Int64).nullable()));
        let by = if names.is_empty() { all.clone() } else { names.iter().map(|&n| n.to_owned()).collect() };
        let spec =
            RollupSpec { name: "wide".to_owned(), every, by, sum: vec!["k0".to_owned()], retention: None };
        let spec = RollupSpec { by: spec.by.iter().filter(|name| *name != "k0").cloned().collect(), ..spec };
        let plan = RollupPlan::new(&spec, &Schema::new(fields), 0).unwrap();
        let times = TimeUnit::Micro.column(rows.iter().map(|(time, _)| *time).collect(), None);
        let keys = all.iter().enumerate().map(|(place, name)| {
            let values = rows.iter().map(|(_, values)| values[place]).collect::<Int64Array>();
            (name.as_str(), Arc::new(values) as ArrayRef)
        });
        let batch = RecordBatch::try_from_iter(std::iter::once(("ts", times)).chain(keys)).unwrap();
        (plan, batch)
    }

    /// Interval and keys of each row of a rollup.
    fn keys_of(rollup: &RecordBatch) -> Vec<Vec<Option<i64>>> {
        let keys = &rollup.columns()[..rollup.num_columns() - 2];
        let keys: Vec<Int64Array> = keys
            .iter()
            .map(|column| {
                let data = column.to_data().into_builder().data_type(ArrowType::Int64);
                Int64Array::from(data.build().unwrap())
            })
            .collect();
        (0..rollup.num_rows())
            .map(|row| keys.iter().map(|key| key.iter().nth(row).flatten()).collect())
            .collect()
    }

    #[test]
    fn rows_are_in_the_order_of_their_keys_where_these_fit_into_no_word() {
        // 70 columns of 4 values.
        let rows: Vec<(i64, Vec<Option<i64>>)> = (0..300_i64)
            .map(|row| {
                let value = |column: i64| (row >> (2 * (column % 4))) % 4;
                let values = (0..71).map(|column| Some(value(column) - 1).filter(|value| *value < 2));
                (row * 1_000_000, values.collect())
            })
            .collect();
        let (plan, batch) = wide(60_000_000, &[], &rows);
        let keys = keys_of(&rolled(&plan, &[batch]));
        let mut sorted = keys.clone();
        // Null is first.
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(keys, sorted);
        assert_eq!((keys.len(), keys[0].len()), (300, 71), "each row is its own group");
    }

    proptest! {
        #[test]
        fn a_coarser_rollup_is_the_same_of_rows_and_of_the_groups_of_a_finer_one(
            rows in prop::collection::vec(
                (0..300_i64, prop::collection::vec(prop::option::of(-3..3_i64), 4)),
                1..60,
            ),
        ) {
            let (fine, batch) = wide(10, &["k3", "k1", "k2"], &rows);
            let (coarse, _) = wide(60, &["k2", "k3"], &rows);
            let mut finer = Roller::new(&fine).unwrap();
            finer.add(&batch).unwrap();
            let mut coarser = Roller::new(&coarse).unwrap();
            coarser.add_groups(&finer).unwrap();
            prop_assert_eq!(coarser.finish().unwrap(), rolled(&coarse, &[batch]));
        }

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
