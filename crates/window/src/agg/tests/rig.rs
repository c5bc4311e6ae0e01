//! A set of calls over one argument, fed in batches, together with the elements that ought to be in each window.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{BinaryViewBuilder, FixedSizeBinaryBuilder, StringViewBuilder};
use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array, PrimitiveArray,
    UInt64Array,
};
use thalweg_types::{DataType, TimeUnit, Value};

use crate::agg::{Aggregate, Call, Function, NO_GROUP, Steps, Stream, plan};
use crate::image::{Malformed, Reader};

/// One step of a schedule; times order elements, arrival breaks ties.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    pub(super) reset: bool,
    pub(super) adds: Vec<(u32, i64, Value)>,
    /// Groups whose oldest element leaves, if they have one.
    pub(super) removes: Vec<u32>,
    pub(super) read: u32,
}

/// The values of a step, and the elements in the window.
#[derive(Debug)]
pub(super) struct Reading {
    /// One per call; `true` with a value that did not fit.
    pub(super) values: Vec<(Value, bool)>,
    pub(super) window: Vec<Value>,
}

pub(super) struct Rig {
    data_type: DataType,
    calls: Vec<Call>,
    slots: usize,
    pub(super) states: Vec<Box<dyn Aggregate>>,
    windows: BTreeMap<u32, BTreeMap<(i64, u64), Value>>,
    arrivals: u64,
}

#[derive(Default)]
struct Side {
    groups: Vec<u32>,
    times: Vec<i64>,
    seqs: Vec<u64>,
    values: Vec<Value>,
}

impl Side {
    fn push(&mut self, group: u32, (time, seq): (i64, u64), value: Value) {
        self.groups.push(group);
        self.times.push(time);
        self.seqs.push(seq);
        self.values.push(value);
    }

    fn stream<'a>(&'a self, values: &'a ArrayRef) -> Stream<'a> {
        Stream {
            groups: &self.groups,
            times: &self.times,
            seqs: &self.seqs,
            values: Some(values),
            slots: &[],
        }
    }
}

impl Rig {
    pub(super) fn new(functions: &[Function], data_type: &DataType, groups: usize) -> Self {
        let calls: Vec<Call> = functions
            .iter()
            .map(|function| match function {
                Function::CountAll => Call { function: *function, arg: None, arg_index: None },
                _ => Call { function: *function, arg: Some(data_type.clone()), arg_index: Some(0) },
            })
            .collect();
        let mut states = plan(&calls).unwrap();
        for state in &mut states {
            // In two steps: a state grows while it is in use.
            state.grow(1);
            state.grow(groups);
        }
        Self {
            data_type: data_type.clone(),
            calls,
            slots: groups,
            states,
            windows: BTreeMap::new(),
            arrivals: 0,
        }
    }

    /// The image of each group in each state.
    pub(super) fn images(&self) -> Vec<Vec<Vec<u8>>> {
        let image = |state: &dyn Aggregate, group: usize| {
            let mut image = Vec::new();
            state.save(group as u32, &mut image);
            image
        };
        let states = self.states.iter();
        states.map(|state| (0..self.slots).map(|group| image(state.as_ref(), group)).collect()).collect()
    }

    /// Goes on with states that were loaded from the images of these, groups in another order.
    pub(super) fn reload(&mut self) {
        let images = self.images();
        self.states = plan(&self.calls).unwrap();
        for (state, images) in self.states.iter_mut().zip(images) {
            for (group, image) in images.iter().enumerate().rev() {
                state.grow(group + 1);
                let mut reader = Reader::new(image);
                state.load(group as u32, &mut reader).unwrap();
                reader.finish("image").unwrap();
            }
            state.grow(self.slots);
        }
    }

    /// Loads a group's image, damaged or not, into new states of this kind.
    pub(super) fn load_foreign(&self, state: usize, image: &[u8]) -> Result<(), Malformed> {
        let mut states = plan(&self.calls).unwrap();
        states[state].grow(1);
        let mut reader = Reader::new(image);
        states[state].load(0, &mut reader)?;
        reader.finish("image")
    }

    /// Applies a batch and reads it, at its steps.
    pub(super) fn run(&mut self, batch: &[Step]) -> Vec<Reading> {
        let (mut added, mut removed) = (Side::default(), Side::default());
        let (mut adds, mut removes, mut groups, mut resets) = (vec![], vec![], vec![], vec![]);
        let mut readings = Vec::new();
        for step in batch {
            resets.push(step.reset);
            groups.push(step.read);
            adds.push(step.adds.len() as u32);
            if step.reset {
                self.windows.remove(&step.read);
            }
            for (group, time, value) in &step.adds {
                let key = (*time, self.arrivals);
                self.arrivals += 1;
                added.push(*group, key, value.clone());
                self.windows.entry(*group).or_default().insert(key, value.clone());
            }
            let mut left = 0;
            for group in &step.removes {
                if let Some((key, value)) = self.windows.entry(*group).or_default().pop_first() {
                    removed.push(*group, key, value);
                    left += 1;
                }
            }
            removes.push(left);
            let window = self.windows.get(&step.read).map(|window| window.values().cloned().collect());
            readings.push(Reading { values: Vec::new(), window: window.unwrap_or_default() });
        }
        let (added_values, removed_values) =
            (column(&self.data_type, &added.values), column(&self.data_type, &removed.values));
        let steps = Steps { adds: &adds, removes: &removes, groups: &groups, resets: Some(&resets) };
        let mut by_call = vec![None; self.calls.len()];
        for state in &mut self.states {
            let columns = state.run(&steps, &added.stream(&added_values), &removed.stream(&removed_values));
            assert_eq!(columns.len(), state.calls().len());
            for (call, column) in state.calls().iter().zip(columns) {
                assert!(column.errors.is_sorted());
                assert_eq!(column.values.len(), batch.len());
                by_call[*call] = Some(column);
            }
        }
        for (row, reading) in readings.iter_mut().enumerate() {
            for column in by_call.iter().map(|column| column.as_ref().unwrap()) {
                let did_not_fit = column.errors.contains(&(row as u32));
                reading.values.push((Value::at(&column.values, row), did_not_fit));
            }
        }
        readings
    }

    /// The present values of a group.
    pub(super) fn read(&self, group: u32) -> Reading {
        let mut values = vec![(Value::Null, false); self.calls.len()];
        for state in &self.states {
            for (call, column) in state.calls().iter().zip(state.read(group)) {
                assert_eq!(column.values.len(), 1);
                values[*call] = (Value::at(&column.values, 0), column.errors == [0]);
            }
        }
        let window = self.windows.get(&group).map(|window| window.values().cloned().collect());
        Reading { values, window: window.unwrap_or_default() }
    }

    pub(super) fn groups(&self) -> Vec<u32> {
        self.windows.keys().copied().chain([NO_GROUP]).collect()
    }
}

/// A column of values of one type.
pub(super) fn column(data_type: &DataType, values: &[Value]) -> ArrayRef {
    macro_rules! each {
        ($pattern:pat => $value:expr) => {
            values.iter().map(|value| match value {
                Value::Null => None,
                $pattern => Some($value),
                other => panic!("{other:?} is no {data_type}"),
            })
        };
    }
    match data_type {
        DataType::Bool => Arc::new(each!(Value::Bool(x) => *x).collect::<BooleanArray>()),
        DataType::Int64 => Arc::new(each!(Value::Int64(x) => *x).collect::<Int64Array>()),
        DataType::UInt64 => Arc::new(each!(Value::UInt64(x) => *x).collect::<UInt64Array>()),
        DataType::Float64 => Arc::new(each!(Value::Float64(x) => *x).collect::<Float64Array>()),
        DataType::Decimal { precision, scale } if *precision <= 38 => {
            let array: Decimal128Array = each!(Value::Decimal(x, _) => x.to_i128().unwrap()).collect();
            Arc::new(array.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Decimal { precision, scale } => {
            let array: Decimal256Array = each!(Value::Decimal(x, _) => *x).collect();
            Arc::new(array.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::String => {
            let mut builder = StringViewBuilder::new();
            each!(Value::String(x) => x).for_each(|value| builder.append_option(value));
            Arc::new(builder.finish())
        }
        DataType::Bytes => {
            let mut builder = BinaryViewBuilder::new();
            each!(Value::Bytes(x) => x).for_each(|value| builder.append_option(value));
            Arc::new(builder.finish())
        }
        DataType::Ip => {
            let mut builder = FixedSizeBinaryBuilder::new(16);
            for value in each!(Value::Ip(x) => x) {
                match value {
                    Some(value) => builder.append_value(value).unwrap(),
                    None => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        DataType::Timestamp(unit) => {
            let counts = each!(Value::Timestamp(x, _) => *x);
            match unit {
                TimeUnit::Second => Arc::new(counts.collect::<PrimitiveArray<TimestampSecondType>>()),
                TimeUnit::Milli => Arc::new(counts.collect::<PrimitiveArray<TimestampMillisecondType>>()),
                TimeUnit::Micro => Arc::new(counts.collect::<PrimitiveArray<TimestampMicrosecondType>>()),
                TimeUnit::Nano => Arc::new(counts.collect::<PrimitiveArray<TimestampNanosecondType>>()),
            }
        }
        DataType::List(_) | DataType::Struct(_) => panic!("no column of {data_type} here"),
    }
}
