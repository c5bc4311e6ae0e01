//! Operators written record by record; the engine batches for them.
//!
//! [`PerRecord`] runs a [`RecordOperator`] as an [`Operator`]: it gives it the rows of each batch one after the
//! other, in the order of the stream whatever the number of inputs, and makes columns of its output.
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
mod feed;
mod field;
mod pack;
mod row;
#[cfg(test)]
mod tests;

use thalweg_types::{Batch, Error, Micros, Schema, SeqRange};

use crate::{Command, InputId, Operator, Output};

pub(crate) use column::Column;
pub(crate) use feed::{Feed, Rows};

pub use emit::{Emit, NewRecord};
pub use field::{Decimal, FieldType, Get, Set, Timestamp};
pub use pack::{Packed, Packer};
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

    /// How many records of a batch, from its first, it takes at once; as [`Operator::rows_at_once`].
    fn rows_at_once(&mut self, batch: &Batch) -> usize {
        batch.len()
    }

    /// Whether it will emit at a later tick; as [`Operator::waits_for_tick`].
    fn waits_for_tick(&self) -> bool {
        false
    }

    /// Heap bytes that the task's state holds, for the live graph.
    fn state_bytes(&self) -> usize {
        0
    }
}

/// A [`RecordOperator`] as an [`Operator`].
pub struct PerRecord<O> {
    operator: O,
    feed: Feed,
}

impl<O: RecordOperator> PerRecord<O> {
    /// `inputs` and `outputs` are the schemas of its inputs and outputs, in the order of their ports.
    pub fn new(operator: O, inputs: impl AsRef<[Schema]>, outputs: impl AsRef<[Schema]>) -> Self {
        Self { operator, feed: Feed::new(inputs.as_ref(), outputs.as_ref()) }
    }

    /// A call that belongs to no record.
    fn between(
        &mut self,
        out: &mut Output<'_>,
        call: impl FnOnce(&mut O, &mut Emit<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let operator = &mut self.operator;
        self.feed.between(out, |emit| call(operator, emit))
    }
}

impl<O: RecordOperator> Rows for O {
    #[inline]
    fn row(&mut self, _: usize, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
        self.process(record, out)
    }
}

impl<O: RecordOperator> Operator for PerRecord<O> {
    fn process(&mut self, input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        self.feed.process(&mut self.operator, input.port, batch, out)
    }

    fn complete(&mut self, _: SeqRange, out: &mut Output<'_>) -> Result<(), Error> {
        self.feed.complete(&mut self.operator, out)
    }

    fn tick(&mut self, now: Micros, out: &mut Output<'_>) -> Result<(), Error> {
        self.feed.set_now(now);
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

    fn rows_at_once(&mut self, batch: &Batch) -> usize {
        self.operator.rows_at_once(batch)
    }

    fn waits_for_tick(&self) -> bool {
        self.operator.waits_for_tick()
    }

    fn state_bytes(&self) -> usize {
        self.operator.state_bytes()
    }
}
