//! Rejects of elements: a line for each late record that is not taken.

use std::sync::Arc;

use arrow_array::Array;
use thalweg_flow::{Emit, InputRules, LateAt, LateRecords, Row};
use thalweg_types::{Error, Schema};

use super::super::late::{LateRecord, late_reason, refused_by};
use super::super::reject::RejectLines;

/// The state that the reject lines of an operator's tasks share.
pub(super) struct LateLines {
    pub(super) operator: Arc<str>,
    /// The operators among the inputs: whom a record comes from that no source has.
    pub(super) from: Arc<str>,
    /// The output for rejects, the last one.
    pub(super) output: usize,
    pub(super) inputs: Vec<Schema>,
    pub(super) rules: Vec<InputRules>,
    /// By input, the field that says of a record that it was late further up, and has a line.
    pub(super) told: Vec<Option<usize>>,
}

impl LateLines {
    pub(super) fn writer(self: &Arc<Self>) -> Result<Box<dyn LateRecords>, Error> {
        let lines = RejectLines::new(Arc::clone(&self.from), self.output, self.inputs.clone())?;
        Ok(Box::new(Writer { lines, late: Arc::clone(self) }))
    }
}

struct Writer {
    lines: RejectLines,
    late: Arc<LateLines>,
}

impl LateRecords for Writer {
    fn refuse(&mut self, record: Row<'_>, at: LateAt<'_>, emit: &mut Emit<'_>) -> Result<(), Error> {
        let (late, port) = (&self.late, record.port());
        if let Some(place) = late.told[port]
            && record.alone(&late.inputs[port])?.column(place).is_valid(0)
        {
            return Ok(());
        }
        let LateAt { now, newest, is_closed } = at;
        let (time, lateness) = (record.time(), late.rules[port].lateness);
        let reason = late_reason(&LateRecord { time, now, newest, lateness, is_closed });
        let reason = refused_by(&reason, &late.operator);
        self.lines.write(record, "late", &reason, emit)
    }
}
