//! Operators written record by record; the engine batches for them.
//!
//! [`PerRecord`] runs a [`RecordOperator`] as an [`Operator`]: it gives it the rows of each batch one after the
//! other, in the order of the stream whatever the number of inputs, and makes columns of what it emits.
//! Fields are found once, when the job is built ([`Get`], [`Set`]); per record nothing is looked up by name.
//!
//! Invariants
//! * What an operator sees and emits does not depend on where the stream was cut into batches.
//! * What is emitted for a record carries its order number, so numbers ascend on every output.
//! * While a record is worked on it is the one that a failure names.
//!
//! Cost: a record that goes on as it is (`forward`) costs a row number, as in an operator over batches. Reading a
//! field is a branch and an index, emitting one an append. Where an operator can work on whole columns at a time,
//! the trait over batches is faster still.

mod build;
mod column;
mod emit;
mod field;
mod row;
#[cfg(test)]
mod tests;

use thalweg_types::{Batch, Error, Micros, Schema, Seq, SeqRange};

use crate::{Command, InputId, Operator, Output};

use column::Column;
use emit::Outlet;

pub use emit::{Emit, NewRecord};
pub use field::{Decimal, FieldType, Get, Set, Timestamp};
pub use row::Row;

/// An operator over records: one record in, any number out on any of its outputs. All state is its own.
///
/// Calls come in the order of the stream; an `Err` or a panic stops the job and names operator, task and record.
/// `tick`, `cycle`, `command` and `finish` mean what they mean in [`Operator`].
///
/// ```
/// use thalweg_flow::{Emit, Get, RecordOperator, Row, Set};
/// use thalweg_types::Error;
///
/// /// How much a reading differs from the one before.
/// struct Change { value: Get<f64>, change: Set<f64>, last: f64 }
///
/// impl RecordOperator for Change {
///     fn process(&mut self, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
///         let value = record.get(self.value);
///         let last = std::mem::replace(&mut self.last, value);
///         out.record(0).copy(record).set(self.change, value - last).send()
///     }
/// }
/// ```
pub trait RecordOperator: Send {
    fn process(&mut self, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error>;

    /// Wall-clock time as the order saw it, microseconds since the epoch.
    fn tick(&mut self, now: Micros, out: &mut Emit<'_>) -> Result<(), Error> {
        let _ = (now, out);
        Ok(())
    }

    /// The end of a cycle.
    fn cycle(&mut self, cycle: u64, out: &mut Emit<'_>) -> Result<(), Error> {
        let _ = (cycle, out);
        Ok(())
    }

    fn command(&mut self, command: &Command, out: &mut Emit<'_>) -> Result<(), Error> {
        let _ = (command, out);
        Ok(())
    }

    /// No more input. Called once, last.
    fn finish(&mut self, out: &mut Emit<'_>) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }

    /// Heap bytes that the task's state holds, for the live graph.
    fn state_bytes(&self) -> usize {
        0
    }
}

/// A [`RecordOperator`] as an [`Operator`].
pub struct PerRecord<O> {
    operator: O,
    input_count: usize,
    outlets: Vec<Outlet>,
    /// Batches of a range that is not complete, by port; only where there are several inputs.
    waiting: Vec<(usize, Batch)>,
    /// The last tick.
    now: Micros,
}

impl<O: RecordOperator> PerRecord<O> {
    /// `inputs` and `outputs` are the schemas of its inputs and outputs, in the order of their ports.
    pub fn new(operator: O, inputs: impl AsRef<[Schema]>, outputs: impl AsRef<[Schema]>) -> Self {
        let (inputs, outputs) = (inputs.as_ref(), outputs.as_ref());
        let outlets = outputs.iter().enumerate().map(|(port, schema)| Outlet::new(port, schema, inputs));
        Self { operator, input_count: inputs.len(), outlets: outlets.collect(), waiting: Vec::new(), now: 0 }
    }

    /// The rows of one batch.
    fn run(&mut self, port: usize, batch: &Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let columns = Column::all(batch);
        for physical in batch.row_numbers() {
            let record = Row::new(port, batch, &columns, physical);
            out.working_on(record.seq());
            let mut emit = Emit {
                outlets: &mut self.outlets,
                emitted: &mut *out.emitted,
                core: out.core,
                range: out.range,
                seq: record.seq(),
                time: record.time(),
                source: Some(batch),
            };
            self.operator.process(record, &mut emit)?;
        }
        self.flush(Some(batch), out)
    }

    /// The rows of several batches by order number, equal numbers by port.
    fn run_merged(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        let waiting = std::mem::take(&mut self.waiting);
        let columns: Vec<Vec<Column<'_>>> = waiting.iter().map(|(_, batch)| Column::all(batch)).collect();
        let rows = waiting.iter().enumerate().flat_map(|(place, (_, batch))| {
            batch.row_numbers().map(move |physical| (batch.seq(physical), place, physical))
        });
        let mut order: Vec<(Seq, usize, u32)> = rows.collect();
        order.sort_by_key(|(seq, ..)| *seq);
        for (seq, place, physical) in order {
            let (port, batch) = &waiting[place];
            let record = Row::new(*port, batch, &columns[place], physical);
            out.working_on(seq);
            let mut emit = Emit {
                outlets: &mut self.outlets,
                emitted: &mut *out.emitted,
                core: out.core,
                range: out.range,
                seq,
                time: record.time(),
                source: None,
            };
            self.operator.process(record, &mut emit)?;
        }
        self.flush(None, out)
    }

    /// A call that belongs to no record.
    fn between(
        &mut self,
        out: &mut Output<'_>,
        call: impl FnOnce(&mut O, &mut Emit<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut emit = Emit {
            outlets: &mut self.outlets,
            emitted: &mut *out.emitted,
            core: out.core,
            range: out.range,
            seq: out.range.start,
            time: self.now,
            source: None,
        };
        call(&mut self.operator, &mut emit)?;
        self.flush(None, out)
    }

    fn flush(&mut self, source: Option<&Batch>, out: &mut Output<'_>) -> Result<(), Error> {
        for outlet in &mut self.outlets {
            outlet.flush(source, out.range, out.emitted)?;
        }
        Ok(())
    }
}

impl<O: RecordOperator> Operator for PerRecord<O> {
    fn process(&mut self, input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        if self.input_count > 1 {
            // Rows of other ports may stand between these; `complete` says that all are there.
            self.waiting.push((input.port, batch));
            return Ok(());
        }
        self.run(input.port, &batch, out)
    }

    fn complete(&mut self, _: SeqRange, out: &mut Output<'_>) -> Result<(), Error> {
        if self.waiting.is_empty() { Ok(()) } else { self.run_merged(out) }
    }

    fn tick(&mut self, now: Micros, out: &mut Output<'_>) -> Result<(), Error> {
        self.now = now;
        self.between(out, |operator, emit| operator.tick(now, emit))
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        self.between(out, |operator, emit| operator.cycle(cycle, emit))
    }

    fn command(&mut self, command: &Command, out: &mut Output<'_>) -> Result<(), Error> {
        self.between(out, |operator, emit| operator.command(command, emit))
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        self.between(out, |operator, emit| operator.finish(emit))
    }

    fn state_bytes(&self) -> usize {
        self.operator.state_bytes()
    }
}
