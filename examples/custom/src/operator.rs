//! `deadband`: an operator of its own. Passes a reading only when it differs from the last one passed by the same
//! device by more than a threshold; the others leave by the output `rest`.
//!
//! State: the last value passed of each device, per task. So all readings of a device have to reach the same task:
//! read with `partition: key(device)`, or with a partitioning that keeps a device together.
//! A reading without a device, or whose value is no finite number, leaves by `rest` and changes nothing.

use std::collections::HashMap;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use thalweg_connect::OptionKind;
use thalweg_flow::{InputId, Operator, Output};
use thalweg_node::job_file::keys::{KeySpec, Shape};
use thalweg_node::operator::{NamedOutput, OperatorCheck, OperatorPlugin, Prepared, Tasks};
use thalweg_types::{Batch, DataType, Error};

/// The plug-in.
pub(crate) struct Deadband;

const OPTIONS: &[KeySpec] = &[
    KeySpec::new("device", Shape::Field, "field that names the device").required(),
    KeySpec::new("value", Shape::Field, "field with the reading").required(),
    KeySpec::new("threshold", Shape::Option(OptionKind::Number), "a reading passes when it differs by more")
        .required(),
];

impl OperatorPlugin for Deadband {
    fn name(&self) -> &'static str {
        "deadband"
    }

    fn doc(&self) -> &'static str {
        "passes readings that differ from the last one passed; the others leave by the output `rest`"
    }

    fn options(&self) -> &'static [KeySpec] {
        OPTIONS
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let schema = check.input().schema.clone();
        // Each key is looked at before the first is needed, so that every mistake is told at once.
        let field = |key, expected: DataType| {
            let place = check.field(key, &schema)?;
            let field = &schema.fields()[place];
            if field.data_type != expected {
                let message = format!("{key:?} is field {:?} of type {}", field.name, field.data_type);
                check.error(key, message, Some(format!("name a field of type {expected}")));
            }
            Some(place)
        };
        let device = field("device", DataType::String);
        let value = field("value", DataType::Float64);
        let threshold = check.options().number("threshold");
        if threshold.is_some_and(|threshold| threshold < 0.0) {
            let hint = "0 passes every change; the threshold is the largest difference that is held back";
            check.error("threshold", "\"threshold\" is below 0", Some(hint.to_owned()));
        }
        let (device, value, threshold) = (device?, value?, threshold?);
        let outputs = vec![
            NamedOutput { name: "pass".to_owned(), schema: schema.clone() },
            NamedOutput { name: "rest".to_owned(), schema },
        ];
        Some(Prepared::one(1, outputs, Tasks::Declared, move |_| {
            Ok(Box::new(DeadbandOperator { device, value, threshold, last: HashMap::new(), text_bytes: 0 }))
        }))
    }
}

struct DeadbandOperator {
    device: usize,
    value: usize,
    threshold: f64,
    /// Value last passed, by device.
    last: HashMap<String, f64>,
    text_bytes: usize,
}

impl DeadbandOperator {
    fn passes(&mut self, device: &str, value: f64) -> bool {
        match self.last.get_mut(device) {
            Some(last) if (value - *last).abs() <= self.threshold => false,
            Some(last) => {
                *last = value;
                true
            }
            None => {
                self.text_bytes += device.len();
                self.last.insert(device.to_owned(), value);
                true
            }
        }
    }
}

impl Operator for DeadbandOperator {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let devices = batch.column(self.device).as_string_view();
        let values = batch.column(self.value).as_primitive::<Float64Type>();
        let (mut pass, mut rest) = (Vec::new(), Vec::new());
        for row in batch.row_numbers() {
            out.working_on(batch.seq(row));
            let at = row as usize;
            let is_reading = devices.is_valid(at) && values.is_valid(at) && values.value(at).is_finite();
            let passes = is_reading && self.passes(devices.value(at), values.value(at));
            if passes { pass.push(row) } else { rest.push(row) }
        }
        // Columns are shared with the input; only row numbers are new.
        out.emit(0, batch.with_rows(pass.into()));
        out.emit(1, batch.with_rows(rest.into()));
        Ok(())
    }

    fn state_bytes(&self) -> usize {
        self.text_bytes + self.last.capacity() * size_of::<(String, f64)>()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringViewArray};
    use thalweg_flow::collect;
    use thalweg_types::{Field, Schema, SeqRange, Seqs};

    use super::*;

    /// Values of device `a`, one batch each; those that pass are given.
    fn passed(threshold: f64, values: &[Option<f64>]) -> Vec<f64> {
        let schema = Schema::new(vec![Field::new("d", DataType::String), Field::new("v", DataType::Float64)]);
        let mut operator =
            DeadbandOperator { device: 0, value: 1, threshold, last: HashMap::new(), text_bytes: 0 };
        let mut passed = Vec::new();
        for (seq, value) in values.iter().enumerate() {
            let columns: Vec<ArrayRef> = vec![
                Arc::new(StringViewArray::from_iter([Some("a")])),
                Arc::new(Float64Array::from(vec![*value])),
            ];
            let records = RecordBatch::try_new(Arc::clone(schema.arrow()), columns).unwrap();
            let range = SeqRange::new(seq as u64, seq as u64 + 1);
            let batch = Batch::new(range, records, vec![0].into(), Seqs::Dense(range.start));
            let emitted = collect(|out| operator.process(InputId { port: 0, task: 0 }, batch, out)).unwrap();
            assert_eq!(emitted.len(), 1, "a reading leaves once");
            passed.extend(emitted.iter().filter(|(port, _)| *port == 0).filter_map(|_| *value));
        }
        passed
    }

    #[test]
    fn slow_drift_passes_once_it_adds_up() {
        let drift = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5].map(Some);
        assert_eq!(passed(1.0, &drift), [0.0, 1.5]);
        assert_eq!(passed(0.0, &[1.0, 1.0, 2.0, 2.0, 1.0].map(Some)), [1.0, 2.0, 1.0]);
    }

    #[test]
    fn what_is_no_number_changes_nothing() {
        let values = [None, Some(f64::NAN), Some(1.0), None, Some(f64::INFINITY), Some(1.5), Some(3.0)];
        assert_eq!(passed(1.0, &values), [1.0, 3.0]);
    }
}
