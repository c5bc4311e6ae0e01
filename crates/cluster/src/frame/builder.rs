//! Rows for one destination, until they leave as frames.
//!
//! Rows come in the order of their positions, from any of the destination's inputs. They stay in the columns that they
//! came in until a frame is cut from the oldest ones; a frame may end between two rows of one position.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use thalweg_types::Micros;

use super::head::{Head, Kind};
use super::packed::{self, Piece, Rows, Weights};
use super::place::{MAX_NAME, Places, Reply, Run, put_position};
use super::{FrameError, MAX_GROWTH, Settings, varint, with_body};
use crate::positions::{Mark, Origin, Position};

/// What is the same in all frames of a builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    pub spec: u64,
    pub origin: Origin,
    pub lineage: Option<u64>,
}

/// A row of a batch, and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number in the batch.
    pub row: u32,
    /// The position in the sender's input from which it was made; not before that of the row before it.
    pub position: Position,
    pub arrival: Micros,
    pub reply: Option<Reply>,
}

/// A row that no frame holds: the caller has to reject it. Every sender of the same input refuses the same rows, and none
/// of them has a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its number in the batch.
    pub row: u32,
    pub position: Position,
    pub error: FrameError,
}

/// Collects rows for one destination and cuts them into frames.
#[derive(Debug)]
pub struct Builder {
    sender: Sender,
    settings: Settings,
    /// The mark before the first row that is held.
    after: Mark,
    /// The mark after the last one.
    last: Mark,
    inputs: Vec<Input>,
    batches: VecDeque<Held>,
    /// Bytes of all rows that are held, at most.
    bytes: usize,
}

/// An input whose rows have come.
#[derive(Debug)]
struct Input {
    number: u32,
    schema: SchemaRef,
    weights: Weights,
}

/// Rows of one batch.
#[derive(Debug)]
struct Held {
    input: u32,
    columns: Vec<ArrayRef>,
    /// Their numbers in the columns.
    rows: Vec<u32>,
    places: Places,
    /// Bytes of each, at most.
    bytes: Vec<usize>,
    /// How many of them have left.
    left: usize,
}

impl Builder {
    /// A builder of the frames after `after`, the mark of the last row that the sender has made for this destination.
    pub fn new(sender: Sender, after: Mark, settings: Settings) -> Self {
        Self { sender, settings, after, last: after, inputs: Vec::new(), batches: VecDeque::new(), bytes: 0 }
    }

    /// The mark after the last row, whether it is held or has left.
    pub fn last(&self) -> Mark {
        self.last
    }

    /// The mark after the last row that has left.
    pub fn left(&self) -> Mark {
        self.after
    }

    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Rows that are held.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(|held| held.rows.len() - held.left).sum()
    }

    /// Bytes that the rows which are held take in frames, at most.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes rows of a batch of an input, and returns those that are too large.
    ///
    /// # Errors
    /// [`FrameError::Unsupported`], with no row taken, if a column has a type that is no field's.
    ///
    /// # Panics
    /// If a position is before that of the row before it, a row is not in the batch, the batch has other types than the
    /// input's batches before it, or the name of a door's node has more than 255 bytes.
    pub fn push(
        &mut self,
        input: u32,
        records: &RecordBatch,
        rows: impl IntoIterator<Item = Row>,
    ) -> Result<Vec<Refused>, FrameError> {
        let at = self.input(input, records.schema_ref())?;
        let columns = records.columns();
        let weights = self.inputs[at].weights.of(columns);
        let (mut numbers, mut places, mut bytes) = (Vec::new(), Places::default(), Vec::new());
        let mut refused = Vec::new();
        for Row { row, position, arrival, reply } in rows {
            assert!(position >= self.last.position, "a row of position {position} comes after {}", self.last);
            assert!(reply.as_ref().is_none_or(|reply| reply.door.node.len() <= MAX_NAME), "name of a node");
            match weights.check(row as usize, arrival) {
                Ok(weight) => {
                    self.last = self.last.next(position).expect("a position makes fewer than 2^32 rows");
                    self.bytes += weight;
                    numbers.push(row);
                    places.push(input, self.last, arrival, reply);
                    bytes.push(weight);
                }
                Err(error) => refused.push(Refused { row, position, error }),
            }
        }
        if !numbers.is_empty() {
            let columns = columns.to_vec();
            self.batches.push_back(Held { input, columns, rows: numbers, places, bytes, left: 0 });
        }
        Ok(refused)
    }

    fn input(&mut self, number: u32, schema: &SchemaRef) -> Result<usize, FrameError> {
        let Some(at) = self.inputs.iter().position(|input| input.number == number) else {
            let weights = Weights::new(schema.fields())?;
            self.inputs.push(Input { number, schema: Arc::clone(schema), weights });
            return Ok(self.inputs.len() - 1);
        };
        let known = &self.inputs[at].schema;
        if !Arc::ptr_eq(known, schema) {
            let types = |schema: &'_ SchemaRef| -> Vec<_> {
                schema.fields().iter().map(|field| field.data_type().clone()).collect()
            };
            assert_eq!(types(known), types(schema), "types of input {number}");
        }
        Ok(at)
    }

    /// A frame of the oldest rows, as many as it may hold; `None` if there are no rows. The others stay.
    pub fn cut(&mut self, task_time: Option<Micros>) -> Option<Vec<u8>> {
        let oldest = self.batches.front()?;
        let arrival = oldest.places.arrivals[oldest.left];
        let Sender { spec, origin, lineage } = self.sender;
        let head = Head { spec, origin, lineage, after: self.after, arrival, task_time };

        let parts = self.leading();
        let mut places = Places::default();
        for (held, part) in self.batches.iter().zip(&parts) {
            places.extend(held.input, &held.places, part.clone());
        }
        let flags = places.flags();
        let mut body = Vec::with_capacity(256);
        places.put(flags, origin, &mut body);
        for Run { input, .. } in places.inputs() {
            let of_input = self.batches.iter().zip(&parts).filter(|(held, _)| held.input == input);
            let pieces: Vec<Piece<'_>> = of_input
                .map(|(held, part)| Piece {
                    columns: &held.columns,
                    rows: Rows::of(&held.rows[part.clone()]),
                })
                .collect();
            packed::write(&pieces, arrival, &mut body).expect("types were checked when the rows came");
        }
        self.drop_leading(&parts);

        let flags = flags | head.flags();
        let put_fields = |frame: &mut Vec<u8>| {
            head.put(frame);
            varint::put(places.marks.len() as u64, frame);
            put_position(head.after.position, places.marks[0].position, frame);
        };
        let frame = with_body(Kind::Rows, flags, put_fields, &body, self.settings.compress_below);
        self.after = *places.marks.last()?;
        Some(frame)
    }

    /// The rows that fit a frame: of each of the oldest batches some.
    fn leading(&self) -> Vec<Range<usize>> {
        let most = self.settings.grow_to.min(MAX_GROWTH);
        let (mut bytes, mut is_first) = (0, true);
        let mut parts = Vec::with_capacity(self.batches.len());
        for held in &self.batches {
            let fits = |weight: &&usize| {
                bytes += **weight;
                std::mem::take(&mut is_first) || bytes <= most
            };
            let count = held.bytes[held.left..].iter().take_while(fits).count();
            if count > 0 {
                parts.push(held.left..held.left + count);
            }
            if held.left + count < held.rows.len() {
                break;
            }
        }
        parts
    }

    fn drop_leading(&mut self, parts: &[Range<usize>]) {
        for part in parts {
            let held = &mut self.batches[0];
            self.bytes -= held.bytes[part.clone()].iter().sum::<usize>();
            held.left = part.end;
            if held.left == held.rows.len() {
                self.batches.pop_front();
            }
        }
    }
}
