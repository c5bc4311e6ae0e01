//! What an operator emits, record by record.
//!
//! Each output gathers in an [`Outlet`]: first row numbers of the batch that is being read, as long as its records go
//! on as they are, then columns of new records. So an operator that filters copies nothing.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use thalweg_types::{Batch, Error, Micros, Offset, Schema, Seq, SeqRange, Seqs};

use super::build::Builder;
use super::{FieldType, Row, Set};
use crate::job::JobCore;
use crate::received::Received;

/// Rows that are gathered before they become a batch, so that one call which emits much holds little of it twice.
const MOST_ROWS: usize = 1 << 16;

/// Where a [`super::RecordOperator`] puts what it emits.
pub struct Emit<'a> {
    pub(super) outlets: &'a mut [Outlet],
    pub(super) emitted: &'a mut Vec<(usize, Batch)>,
    pub(super) core: Option<&'a JobCore>,
    pub(super) range: SeqRange,
    pub(super) seq: Seq,
    pub(super) time: Micros,
    /// The batch whose rows are given, where it is the only one.
    pub(super) source: Option<&'a Batch>,
}

impl Emit<'_> {
    /// Emits a record as it is, on an output with the fields of its input. Outputs are numbered in the order in
    /// which they are declared.
    ///
    /// # Errors
    /// If the output has other fields.
    pub fn forward(&mut self, port: usize, record: Row<'_>) -> Result<(), Error> {
        let outlet = outlet(self.outlets, port)?;
        if !outlet.is_like(record.port()) {
            return Err(Error::internal(format!(
                "output {port} has other fields than input {}",
                record.port()
            ))
            .with_hint("use `record` and `copy`"));
        }
        // Only rows of the batch at hand, each once, and not after new records.
        let is_pick =
            self.source.is_some_and(|batch| batch.times()[record.physical as usize] == record.time())
                && record.seq() == self.seq
                && outlet.times.is_empty()
                && outlet.picks.last().is_none_or(|last| *last < record.physical);
        if is_pick {
            outlet.picks.push(record.physical);
            return Ok(());
        }
        self.record(port).copy(record).time(record.time()).send()
    }

    /// Begins a record on an output; it is emitted by [`NewRecord::send`], and not at all without.
    pub fn record(&mut self, port: usize) -> NewRecord<'_> {
        let (seq, time) = (self.seq, self.time);
        let source = self.source;
        match outlet(self.outlets, port) {
            Ok(outlet) => {
                outlet.begin();
                let (emitted, range) = (&mut *self.emitted, self.range);
                NewRecord { state: Ok(outlet), seq, time, emitted, range, source }
            }
            Err(error) => {
                NewRecord { state: Err(error), seq, time, emitted: self.emitted, range: self.range, source }
            }
        }
    }

    /// What is emitted from here on has this event time, where it is not given another.
    pub(crate) fn set_time(&mut self, time: Micros) {
        self.time = time;
    }

    /// Source and offset of a record by its order number; as [`crate::Output::place_of`].
    pub fn place_of(&self, seq: Seq) -> Option<(Arc<str>, Offset)> {
        self.core?.place_of(seq)
    }

    /// A record as its source received it; as [`crate::Output::received`].
    pub fn received(&self, seq: Seq) -> Option<Received> {
        self.core?.received.find(seq)
    }
}

fn outlet(outlets: &mut [Outlet], port: usize) -> Result<&mut Outlet, Error> {
    let count = outlets.len();
    outlets
        .get_mut(port)
        .ok_or_else(|| Error::internal(format!("emitted on output {port}; the operator has {count}")))
}

/// A record that is being put together.
///
/// It carries the order number and the event time of the record that is worked on, and the last tick as its time where
/// there is no record. `send` reports mistakes in values.
#[must_use = "a record is emitted by `send`"]
pub struct NewRecord<'a> {
    state: Result<&'a mut Outlet, Error>,
    seq: Seq,
    time: Micros,
    emitted: &'a mut Vec<(usize, Batch)>,
    range: SeqRange,
    source: Option<&'a Batch>,
}

impl NewRecord<'_> {
    /// Sets the fields that have the name and the type of one of `record`'s fields.
    pub fn copy(mut self, record: Row<'_>) -> Self {
        self.change(|outlet| outlet.copy(record));
        self
    }

    /// Sets a field; the last value counts.
    #[inline]
    pub fn set<T: FieldType>(mut self, field: Set<T>, value: T::Value<'_>) -> Self {
        self.change(|outlet| {
            let rows = outlet.times.len();
            let Some(column) = outlet.columns.get_mut(field.place()) else {
                return Err(Error::internal(format!(
                    "output {} has no field {}",
                    outlet.port,
                    field.place()
                )));
            };
            column.truncate(rows);
            T::write(column, value)
        });
        self
    }

    /// Gives it another event time.
    pub fn time(mut self, time: Micros) -> Self {
        self.time = time;
        self
    }

    /// Emits it. Fields that were not set are null.
    ///
    /// # Errors
    /// If a value does not fit its field, or one that is not nullable was not set.
    pub fn send(self) -> Result<(), Error> {
        let outlet = self.state?;
        let rows = outlet.times.len();
        for column in &mut outlet.columns {
            if column.len() == rows {
                column.push_null()?;
            }
        }
        outlet.times.push(self.time);
        outlet.seqs.push(self.seq);
        if rows + 1 >= MOST_ROWS {
            outlet.flush(self.source, self.range, self.emitted)?;
        }
        Ok(())
    }

    #[inline]
    fn change(&mut self, change: impl FnOnce(&mut Outlet) -> Result<(), Error>) {
        if let Ok(outlet) = &mut self.state
            && let Err(error) = change(outlet)
        {
            self.state = Err(error);
        }
    }
}

/// What one output gathers.
pub(super) struct Outlet {
    port: usize,
    schema: Schema,
    /// For each input, where its fields go.
    inputs: Vec<Like>,
    /// Rows of the batch at hand that go on as they are; before the new ones.
    picks: Vec<u32>,
    columns: Vec<Builder>,
    times: Vec<Micros>,
    seqs: Vec<Seq>,
}

/// What an output has in common with an input.
struct Like {
    /// All fields, in the same order.
    is_whole: bool,
    /// Place in the output and in the input.
    places: Vec<(usize, usize)>,
}

impl Outlet {
    pub(super) fn new(port: usize, schema: &Schema, inputs: &[Schema]) -> Self {
        let like = |input: &Schema| {
            let places: Vec<(usize, usize)> = schema
                .fields()
                .iter()
                .enumerate()
                .filter_map(|(place, field)| {
                    let (from, _) =
                        input.field(&field.name).filter(|(_, f)| f.data_type == field.data_type)?;
                    Some((place, from))
                })
                .collect();
            let is_promised = |place: &(usize, usize)| {
                schema.fields()[place.0].nullable || !input.fields()[place.1].nullable
            };
            let is_whole = input.arrow() == schema.arrow() && places.iter().all(is_promised);
            Like { is_whole, places }
        };
        Self {
            port,
            schema: schema.clone(),
            inputs: inputs.iter().map(like).collect(),
            picks: Vec::new(),
            columns: schema.fields().iter().map(Builder::new).collect(),
            times: Vec::new(),
            seqs: Vec::new(),
        }
    }

    fn is_like(&self, input: usize) -> bool {
        self.inputs.get(input).is_some_and(|like| like.is_whole)
    }

    /// Forgets a record that was begun and not sent.
    fn begin(&mut self) {
        let rows = self.times.len();
        for column in &mut self.columns {
            if column.len() > rows {
                column.truncate(rows);
            }
        }
    }

    fn copy(&mut self, record: Row<'_>) -> Result<(), Error> {
        let rows = self.times.len();
        let Some(like) = self.inputs.get(record.port()) else {
            return Err(Error::internal(format!("a record of input {} is copied", record.port())));
        };
        for (place, from) in &like.places {
            let column = &mut self.columns[*place];
            column.truncate(rows);
            column.push_copy(&record.columns[*from], record.physical as usize)?;
        }
        Ok(())
    }

    /// Makes batches of the gathered rows; `source` is where the picks are from.
    pub(super) fn flush(
        &mut self,
        source: Option<&Batch>,
        range: SeqRange,
        emitted: &mut Vec<(usize, Batch)>,
    ) -> Result<(), Error> {
        if let Some(source) = source
            && !self.picks.is_empty()
        {
            let batch = if self.picks.len() == source.len() {
                self.picks.clear();
                source.clone()
            } else {
                source.with_rows(std::mem::take(&mut self.picks).into())
            };
            emitted.push((self.port, batch));
        }
        if self.times.is_empty() {
            return Ok(());
        }
        self.begin();
        let columns = self.columns.iter_mut().map(Builder::finish).collect::<Result<Vec<_>, Error>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.times.len()));
        let records =
            RecordBatch::try_new_with_options(Arc::clone(self.schema.arrow()), columns, &options)
                .map_err(|error| Error::internal("make a batch of emitted records").with_source(error))?;
        let first = self.seqs[0];
        let is_dense = self.seqs.iter().zip(first..).all(|(seq, dense)| *seq == dense);
        let seqs = if is_dense { Seqs::Dense(first) } else { Seqs::Each(self.seqs[..].into()) };
        self.seqs.clear();
        let times = std::mem::take(&mut self.times);
        emitted.push((self.port, Batch::new(range, records, times.into(), seqs)));
        Ok(())
    }
}
