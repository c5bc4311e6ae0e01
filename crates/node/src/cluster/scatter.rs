//! Rows of a stage's inputs, spread over its partitions, until they leave as frames.
//!
//! A row's partition is what the embedded job would give it with as many: [`partition_of`] of the hash of its key.

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use thalweg_cluster::frame::{Builder, FrameError, Refused, Reply, Row, Sender, Settings};
use thalweg_cluster::positions::{Mark, Position};

use thalweg_types::{Batch, Error, Micros, Seq, hash_columns, partition_of};

use super::cut::StageCut;
use super::wire::{to_wire, wire_schema};

/// Where a row comes from.
pub struct Origin {
    /// In the input of the sender; not before that of the row before it.
    pub position: Position,
    pub arrival: Micros,
    pub reply: Option<Reply>,
}

struct Input {
    key: Vec<usize>,
    wire: SchemaRef,
}

/// The rows of one sender for all partitions of a stage.
pub struct Scatter {
    inputs: Vec<Input>,
    builders: Vec<Builder>,
}

impl Scatter {
    /// `after` gives the mark of the last row that the sender has made for each partition before.
    pub fn new(stage: &StageCut, sender: Sender, settings: Settings, after: impl Fn(u32) -> Mark) -> Self {
        let inputs = stage.keys.iter().zip(stage.streams.iter());
        let inputs = inputs
            .map(|(key, stream)| Input { key: key.clone(), wire: wire_schema(stream).arrow().clone() })
            .collect();
        let builders =
            (0..stage.partitions).map(|partition| Builder::new(sender, after(partition), settings)).collect();
        Self { inputs, builders }
    }

    /// Takes the rows of a batch of an input; those that no frame can hold come back. `origin` is asked for each row, by its
    /// order number and partition.
    ///
    /// # Errors
    /// Of class internal where the batch is of another stream.
    ///
    /// # Panics
    /// If positions go back.
    pub fn push(
        &mut self,
        input: u32,
        batch: &Batch,
        mut origin: impl FnMut(Seq, u32) -> Origin,
    ) -> Result<Vec<Refused>, Error> {
        let of = self.inputs.get(input as usize);
        let of = of.ok_or_else(|| Error::internal(format!("rows for input {input} of a stage")))?;
        let records = to_wire(batch.records(), batch.times(), &of.wire)?;
        let key: Vec<ArrayRef> = of.key.iter().map(|column| batch.column(*column).clone()).collect();
        let partitions = self.builders.len() as u32;
        let mut rows: Vec<Vec<Row>> = vec![Vec::new(); self.builders.len()];
        let hashes = if key.is_empty() { Vec::new() } else { hash_columns(&key, records.num_rows()) };
        for row in batch.row_numbers() {
            let partition = hashes.get(row as usize).map_or(0, |hash| partition_of(*hash, partitions));
            let Origin { position, arrival, reply } = origin(batch.seq(row), partition);
            rows[partition as usize].push(Row { row, position, arrival, reply });
        }
        let mut refused = Vec::new();
        for (builder, rows) in self.builders.iter_mut().zip(rows).filter(|(_, rows)| !rows.is_empty()) {
            let push: Result<Vec<Refused>, FrameError> = builder.push(input, &records, rows);
            refused.extend(push.map_err(|error| Error::internal(format!("rows for a stage: {error}")))?);
        }
        Ok(refused)
    }

    /// A frame for a partition; `None` if there are no rows for it.
    pub fn cut(&mut self, partition: u32, task_time: Option<Micros>) -> Option<Vec<u8>> {
        self.builders.get_mut(partition as usize)?.cut(task_time)
    }

    /// Bytes that wait for a partition, at most.
    pub fn waiting(&self, partition: u32) -> usize {
        self.builders.get(partition as usize).map_or(0, Builder::bytes)
    }

    /// Rows that wait for a partition.
    pub fn rows(&self, partition: u32) -> usize {
        self.builders.get(partition as usize).map_or(0, Builder::rows)
    }

    /// The mark of the last row that was made for a partition.
    pub fn last(&self, partition: u32) -> Mark {
        self.builders.get(partition as usize).map_or(Mark::START, Builder::last)
    }

    /// The mark of the last row for a partition that is in a frame.
    pub fn left(&self, partition: u32) -> Mark {
        self.builders.get(partition as usize).map_or(Mark::START, Builder::left)
    }

    pub fn partitions(&self) -> u32 {
        self.builders.len() as u32
    }
}
