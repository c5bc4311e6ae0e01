//! Gives the rows of batches one after the other, in the order of the stream, and gathers the output.

use thalweg_types::{Batch, Error, Micros, Schema, Seq};

use super::column::Column;
use super::emit::{Emit, Outlet};
use super::row::Row;
use crate::Output;

/// Who takes rows.
pub(crate) trait Rows {
    /// Rows that come next, perhaps together with those of other batches, so that they can be prepared for at once.
    /// `first` is the number of the first of them; from 0 on, all that have been prepared for are through.
    fn ahead(
        &mut self,
        first: usize,
        port: usize,
        batch: &Batch,
        columns: &[Column<'_>],
    ) -> Result<(), Error> {
        let _ = (first, port, batch, columns);
        Ok(())
    }

    /// A row; `number` counts those that were prepared for.
    fn row(&mut self, number: usize, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error>;
}

pub(crate) struct Feed {
    input_count: usize,
    outlets: Vec<Outlet>,
    /// Batches of a range that is not complete, by port; only where there are several inputs.
    waiting: Vec<(usize, Batch)>,
    /// The last tick.
    now: Micros,
}

impl Feed {
    pub(crate) fn new(inputs: &[Schema], outputs: &[Schema]) -> Self {
        let outlets = outputs.iter().enumerate().map(|(port, schema)| Outlet::new(port, schema, inputs));
        Self { input_count: inputs.len(), outlets: outlets.collect(), waiting: Vec::new(), now: 0 }
    }

    pub(crate) fn set_now(&mut self, now: Micros) {
        self.now = now;
    }

    pub(crate) fn process(
        &mut self,
        rows: &mut impl Rows,
        port: usize,
        batch: Batch,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        if self.input_count > 1 {
            // Rows of other ports may be between these; `complete` says that all are there.
            self.waiting.push((port, batch));
            return Ok(());
        }
        self.run(rows, port, &batch, out)
    }

    pub(crate) fn complete(&mut self, rows: &mut impl Rows, out: &mut Output<'_>) -> Result<(), Error> {
        if self.waiting.is_empty() { Ok(()) } else { self.run_merged(rows, out) }
    }

    /// The rows of one batch.
    fn run(
        &mut self,
        rows: &mut impl Rows,
        port: usize,
        batch: &Batch,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        let columns = Column::all(batch);
        rows.ahead(0, port, batch, &columns)?;
        for (number, physical) in batch.row_numbers().enumerate() {
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
            rows.row(number, record, &mut emit)?;
        }
        self.flush(Some(batch), out)
    }

    /// The rows of several batches by order number, equal numbers by port.
    fn run_merged(&mut self, rows: &mut impl Rows, out: &mut Output<'_>) -> Result<(), Error> {
        let waiting = std::mem::take(&mut self.waiting);
        let columns: Vec<Vec<Column<'_>>> = waiting.iter().map(|(_, batch)| Column::all(batch)).collect();
        let mut order: Vec<(Seq, usize, u32, usize)> = Vec::new();
        for (place, ((port, batch), columns)) in waiting.iter().zip(&columns).enumerate() {
            let first = order.len();
            rows.ahead(first, *port, batch, columns)?;
            let all = batch.row_numbers().zip(first..);
            order.extend(all.map(|(physical, number)| (batch.seq(physical), place, physical, number)));
        }
        order.sort_by_key(|(seq, ..)| *seq);
        for (seq, place, physical, number) in order {
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
            rows.row(number, record, &mut emit)?;
        }
        self.flush(None, out)
    }

    /// A call that belongs to no record.
    pub(crate) fn between(
        &mut self,
        out: &mut Output<'_>,
        call: impl FnOnce(&mut Emit<'_>) -> Result<(), Error>,
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
        call(&mut emit)?;
        self.flush(None, out)
    }

    fn flush(&mut self, source: Option<&Batch>, out: &mut Output<'_>) -> Result<(), Error> {
        for outlet in &mut self.outlets {
            outlet.flush(source, out.range, out.emitted)?;
        }
        Ok(())
    }
}
