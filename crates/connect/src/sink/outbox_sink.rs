//! The operator of every sink that delivers through an outbox: it writes records as text, hands that over and goes on.
//!
//! They differ in a [`Dialect`]: how records become text, and the guarantee of its cycles. In a durable job a cycle
//! waits until everything before its marker has been delivered.
//!
//! Not here: the queue (`outbox`), how it is delivered (`delivery`, or a task of the sink's own).

use std::sync::Arc;

use bytes::Bytes;
use thalweg_flow::{CyclePart, InputId, Operator, Output, Waker};
use thalweg_types::{Batch, Error, Micros, Seq, SeqRange};

use super::delivery::Item;
use super::outbox::{Courier, Outbox, stopped};
use super::parts::parts;
use crate::{SinkContext, SinkReport};

/// The part that each sink of this kind has of its own.
pub(super) trait Dialect: Send + 'static {
    /// Bytes of text at which it is handed over in the middle of a step.
    const GATHER: usize;
    /// When text is handed over that is not [`Dialect::GATHER`] bytes yet.
    const LEAVES: Leaves;

    /// Writes the records of a batch, and says how many count as written.
    ///
    /// # Errors
    /// Where a record cannot be written, and the job is to fail for it.
    fn encode(&mut self, batch: &Batch, text: &mut Vec<u8>, out: &mut Output<'_>) -> Result<u64, Error>;

    /// A step is over, with all records below `end`.
    fn complete(&mut self, end: Seq, _: &mut Output<'_>) {
        let _ = end;
    }

    fn tick(&mut self) {}

    /// A cycle of a durable job ends here.
    fn end_cycle(&mut self, cycle: u64) -> Box<dyn Settlement>;

    /// No more records come; the last text has been handed over.
    ///
    /// # Errors
    /// Where the sink was not used as it has to be.
    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// When text leaves that has not gathered to a size; at ticks and markers it does in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    AtTicks,
    /// After a step where nothing is under way: while something is, text gathers, so that the next delivery takes more
    /// of it.
    #[cfg_attr(
        not(any(feature = "influxdb", feature = "postgres")),
        expect(dead_code, reason = "of sinks that this build leaves out")
    )]
    WhenIdle,
    /// After each step.
    #[cfg_attr(not(feature = "kafka"), expect(dead_code, reason = "of a sink that this build leaves out"))]
    AtOnce,
}

/// One cycle of a sink.
pub(super) trait Settlement: Send {
    /// The cycle is being committed.
    fn begin(&mut self) {}

    /// The position of the sink for the commit record; everything up to the cycle's marker has been delivered.
    fn position(&mut self) -> Vec<u8>;
}

/// A position that the deliveries do not change.
impl Settlement for Vec<u8> {
    fn position(&mut self) -> Vec<u8> {
        std::mem::take(self)
    }
}

/// State that the operator and the parts of its cycles share.
struct Shared {
    outbox: Arc<Outbox<Item>>,
    _courier: Courier,
}

pub(super) struct OutboxSink<D> {
    /// The task that delivers ends before the state that the dialect shares with it is gone.
    shared: Arc<Shared>,
    dialect: D,
    /// Text that is not handed over yet, and how many records it has.
    gathered: Vec<u8>,
    records: u64,
    report: SinkReport,
    is_durable: bool,
}

impl<D: Dialect> OutboxSink<D> {
    /// `begin` is written before the first record; `deliver` takes things out of the outbox.
    ///
    /// # Errors
    /// Where the I/O runtime cannot be started.
    pub(super) fn start(
        context: &SinkContext,
        dialect: D,
        begin: Vec<u8>,
        outbox: Arc<Outbox<Item>>,
        deliver: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> Result<Self, Error> {
        let courier = Courier::start(&outbox, deliver)?;
        Ok(Self {
            dialect,
            gathered: begin,
            records: 0,
            shared: Arc::new(Shared { outbox, _courier: courier }),
            report: context.report.clone(),
            is_durable: context.durable.is_some(),
        })
    }

    fn hand_over(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        // The failure is about records that were handed over before.
        out.working_on_no_record();
        if self.gathered.is_empty() {
            return self.shared.outbox.check();
        }
        let text = Bytes::from(std::mem::take(&mut self.gathered));
        let (bytes, records) = (text.len(), std::mem::take(&mut self.records));
        self.shared.outbox.push(Item::Text { text, records }, bytes).map(|_| ())
    }

    /// Whether nothing waits or is under way.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.shared.outbox.is_idle()
    }
}

impl<D: Dialect> Operator for OutboxSink<D> {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        for part in parts(batch) {
            let written = self.dialect.encode(&part, &mut self.gathered, out)?;
            self.records += written;
            self.report.add_records(written);
            if self.gathered.len() >= D::GATHER {
                self.hand_over(out)?;
            }
        }
        Ok(())
    }

    fn complete(&mut self, range: SeqRange, out: &mut Output<'_>) -> Result<(), Error> {
        self.dialect.complete(range.end, out);
        let leaves = match D::LEAVES {
            Leaves::AtTicks => false,
            Leaves::WhenIdle => self.shared.outbox.is_idle(),
            Leaves::AtOnce => true,
        };
        if leaves && !self.gathered.is_empty() {
            self.hand_over(out)?;
        }
        Ok(())
    }

    fn tick(&mut self, _: Micros, out: &mut Output<'_>) -> Result<(), Error> {
        self.dialect.tick();
        self.hand_over(out)
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        self.hand_over(out)?;
        if self.is_durable {
            let settlement = self.dialect.end_cycle(cycle);
            let number = self.shared.outbox.push(Item::Marker(cycle), 0)?;
            out.hand_over(cycle, Box::new(Part { shared: Arc::clone(&self.shared), number, settlement }));
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        self.hand_over(out)?;
        self.dialect.finish()?;
        self.shared.outbox.close();
        Ok(())
    }

    fn takes_part(&self) -> bool {
        self.is_durable
    }

    fn is_ready(&mut self, waker: &Waker) -> bool {
        self.shared.outbox.has_room(waker)
    }

    fn is_drained(&mut self, waker: &Waker) -> Result<bool, Error> {
        self.shared.outbox.is_drained(waker)
    }

    fn state_bytes(&self) -> usize {
        self.gathered.capacity() + self.shared.outbox.bytes()
    }
}

impl<D> Drop for OutboxSink<D> {
    /// A caller that still waits for a part of a cycle stops waiting.
    fn drop(&mut self) {
        self.shared.outbox.fail(stopped());
    }
}

/// A cycle is durable once everything before its marker, and the marker, have been delivered.
struct Part {
    shared: Arc<Shared>,
    /// Of the marker in the outbox.
    number: u64,
    settlement: Box<dyn Settlement>,
}

impl CyclePart for Part {
    fn prepare(&mut self) -> Result<Vec<u8>, Error> {
        self.settlement.begin();
        self.shared.outbox.wait_for(self.number)?;
        Ok(self.settlement.position())
    }
}
