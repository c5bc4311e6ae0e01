//! `deadband`: an operator of its own. Passes a reading only when it differs from the last one passed by the same
//! device by more than a threshold; the others leave by the output `rest`.
//!
//! State: the last value passed of each device, per task. So all readings of a device have to reach the same task, and
//! the plug-in insists on it (`keyed_by`): `partition: key(device)`, or a partitioning that keeps a device together.
//! A reading without a device, or whose value is no finite number, leaves by `rest` and changes nothing.

use std::collections::HashMap;

use thalweg_prelude::*;

const PASS: usize = 0;
const REST: usize = 1;

struct DeadbandOperator {
    device: Get<Option<String>>,
    value: Get<Option<f64>>,
    threshold: f64,
    /// Value last passed, by device.
    last: HashMap<String, f64>,
    text_bytes: usize,
}

impl RecordOperator for DeadbandOperator {
    fn process(&mut self, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
        let (Some(device), Some(value)) = (record.get(self.device), record.get(self.value)) else {
            return out.forward(REST, record);
        };
        let passes = value.is_finite() && self.passes(device, value);
        out.forward(if passes { PASS } else { REST }, record)
    }

    fn state_bytes(&self) -> usize {
        self.text_bytes + self.last.capacity() * size_of::<(String, f64)>()
    }
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
        let device = check.get("device", &schema);
        let value = check.get("value", &schema);
        let threshold = check.options().number("threshold");
        if threshold.is_some_and(|threshold| threshold < 0.0) {
            let hint = "0 passes every change; the threshold is the largest difference that is held back";
            check.error("threshold", "\"threshold\" is below 0", Some(hint.to_owned()));
        }
        let (device, value, threshold): (Get<Option<String>>, _, _) = (device?, value?, threshold?);
        let outputs =
            ["pass", "rest"].map(|name| NamedOutput { name: name.to_owned(), schema: schema.clone() });
        let operator = move |_: &TaskContext<'_>| {
            Ok(DeadbandOperator { device, value, threshold, last: HashMap::new(), text_bytes: 0 })
        };
        let prepared = Prepared::per_record(check, outputs.into(), Tasks::Declared, operator);
        Some(prepared.keyed_by(0, [device.place()]))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thalweg_prelude::arrow_array::{ArrayRef, Float64Array, RecordBatch, StringViewArray};

    use super::*;

    /// Values of device `a`, one batch each; those that pass are given.
    fn passed(threshold: f64, values: &[Option<f64>]) -> Vec<f64> {
        let schema = Schema::new(vec![
            Field::new("d", DataType::String),
            Field::new("v", DataType::Float64).nullable(),
        ]);
        let (device, value) = (Get::of(&schema, "d").unwrap(), Get::of(&schema, "v").unwrap());
        let operator = DeadbandOperator { device, value, threshold, last: HashMap::new(), text_bytes: 0 };
        let mut operator = PerRecord::new(operator, [schema.clone()], [schema.clone(), schema.clone()]);
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
            passed.extend(emitted.iter().filter(|(port, _)| *port == PASS).filter_map(|_| *value));
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
