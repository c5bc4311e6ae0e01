//! Rollups: rows of a table summed up by interval and keys.
//!
//! Keys are compared as bytes that sort like their columns (`arrow-row`), so that rows come out in order of interval, then
//! keys, and equal ones stand once. The rows of a rollup can be summed up again by the same code: that is how files are
//! merged.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, UInt64Array};
use arrow_buffer::{NullBuffer, ScalarBuffer};
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
    /// Signed ones as their bits: wrapping sums are the same.
    values: Vec<u64>,
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

    /// One row per interval and keys, in their order.
    pub(crate) fn finish(self) -> Result<RecordBatch, Error> {
        let mut order: Vec<usize> = (0..self.counts.len()).collect();
        order.sort_unstable_by(|a, b| self.keys.row(*a).data().cmp(self.keys.row(*b).data()));
        let keys = order.iter().map(|group| self.keys.row(*group));
        let mut columns = self.converter.convert_rows(keys).map_err(rolling)?;
        let first = 1 + self.plan.spec.by.len();
        for (place, sum) in self.sums.iter().enumerate() {
            columns.push(sum.column(&order, self.plan.schema.field(first + place).data_type()));
        }
        let counts: Vec<i64> = order.iter().map(|group| self.counts[*group]).collect();
        columns.push(Arc::new(Int64Array::from(counts)));
        RecordBatch::try_new(Arc::clone(&self.plan.schema), columns).map_err(rolling)
    }
}

impl Sum {
    fn add(&mut self, column: &ArrayRef, groups: &[u32]) {
        let bits: ScalarBuffer<u64> = match column.data_type() {
            ArrowType::Int64 => column.as_primitive::<Int64Type>().values().inner().clone().into(),
            _ => column.as_primitive::<UInt64Type>().values().clone(),
        };
        for (row, group) in groups.iter().enumerate() {
            if column.is_valid(row) {
                let group = *group as usize;
                self.values[group] = self.values[group].wrapping_add(bits[row]);
                self.has_value[group] = true;
            }
        }
    }

    fn column(&self, order: &[usize], data_type: &ArrowType) -> ArrayRef {
        let mut valid = BooleanBufferBuilder::new(order.len());
        order.iter().for_each(|group| valid.append(self.has_value[*group]));
        let nulls = Some(NullBuffer::new(valid.finish()));
        let values = order.iter().map(|group| self.values[*group]);
        match data_type {
            ArrowType::Int64 => {
                Arc::new(Int64Array::new(values.map(u64::cast_signed).collect(), nulls)) as ArrayRef
            }
            _ => Arc::new(UInt64Array::new(values.collect(), nulls)),
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
