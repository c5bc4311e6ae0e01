//! Rows that a cursor passed in a batch, as columns, and which of them a filter lets through.
//!
//! Not here: what a leaf makes of them (`leaf`).

use std::cell::OnceCell;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow_buffer::ScalarBuffer;
use arrow_select::concat::concat;
use arrow_select::take::take;
use thalweg_types::Micros;

use crate::columns::times_of;
use crate::reservoir::{CursorId, Passed, Piece};

/// Place of the time in the layout.
pub(super) const TIME: usize = 0;

/// A stream of elements: those that enter undelayed windows, or that a cursor passed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum StreamId {
    Batch,
    Cursor(CursorId),
}

/// The streams of a batch.
pub(super) struct Streams {
    batch: Elements,
    /// By the cursor's number.
    cursors: Vec<Option<Elements>>,
}

impl Streams {
    /// `width`: columns of the layout.
    pub(super) fn new(batch: Elements, passed: Vec<(CursorId, Passed)>, width: usize) -> Self {
        let count = passed.iter().map(|(id, _)| id.0 + 1).max().unwrap_or(0);
        let mut cursors: Vec<Option<Elements>> = std::iter::repeat_with(|| None).take(count).collect();
        for (id, passed) in passed {
            cursors[id.0] = Some(Elements::new(passed, width));
        }
        Self { batch, cursors }
    }

    /// # Panics
    /// For a cursor that the reservoir does not have; those of the plan are there.
    pub(super) fn get(&self, id: StreamId) -> &Elements {
        match id {
            StreamId::Batch => &self.batch,
            StreamId::Cursor(id) => self.cursors[id.0].as_ref().expect("a cursor of the plan"),
        }
    }

    /// # Panics
    /// As [`Streams::get`].
    pub(super) fn get_mut(&mut self, id: StreamId) -> &mut Elements {
        match id {
            StreamId::Batch => &mut self.batch,
            StreamId::Cursor(id) => self.cursors[id.0].as_mut().expect("a cursor of the plan"),
        }
    }
}

/// Elements in order of application, `counts[i]` of them at step i.
pub(super) struct Elements {
    pieces: SmallVec<[Piece; 1]>,
    pub(super) counts: Vec<u32>,
    len: usize,
    /// None where there are no elements.
    columns: SmallVec<[OnceCell<ArrayRef>; 8]>,
}

impl Elements {
    pub(super) fn new(passed: Passed, width: usize) -> Self {
        let len = passed.pieces.iter().map(|piece| piece.rows.len()).sum();
        let columns = std::iter::repeat_with(OnceCell::new).take(if len == 0 { 0 } else { width }).collect();
        Self { pieces: passed.pieces, counts: passed.counts, len, columns }
    }

    /// The rows of a batch that were accepted, each at its own step.
    pub(super) fn of_batch(columns: &Arc<[ArrayRef]>, rows: usize, accepted: Option<&[bool]>) -> Self {
        let mut passed = Passed { pieces: smallvec![], counts: vec![1; rows] };
        let Some(accepted) = accepted else {
            passed.pieces.push(Piece { columns: Arc::clone(columns), rows: 0..rows });
            return Self::new(passed, columns.len());
        };
        let mut from = 0;
        for (row, is_accepted) in accepted.iter().enumerate() {
            if !is_accepted {
                passed.counts[row] = 0;
                if from < row {
                    passed.pieces.push(Piece { columns: Arc::clone(columns), rows: from..row });
                }
                from = row + 1;
            }
        }
        if from < rows {
            passed.pieces.push(Piece { columns: Arc::clone(columns), rows: from..rows });
        }
        Self::new(passed, columns.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One column of the layout, put together from the pieces; only where there are elements.
    pub(super) fn column(&self, index: usize) -> &ArrayRef {
        self.columns[index].get_or_init(|| {
            let slice = |piece: &Piece| piece.columns[index].slice(piece.rows.start, piece.rows.len());
            match self.pieces.as_slice() {
                [one] => slice(one),
                many => {
                    let slices: Vec<ArrayRef> = many.iter().map(slice).collect();
                    concat(&slices.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>())
                        .expect("pieces have one layout")
                }
            }
        })
    }

    /// Replaces what one column of the layout says of the elements.
    pub(super) fn set_column(&mut self, index: usize, column: ArrayRef) {
        self.columns[index] = OnceCell::from(column);
    }

    pub(super) fn times(&self) -> ScalarBuffer<Micros> {
        if self.len == 0 { ScalarBuffer::from(Vec::new()) } else { times_of(self.column(TIME)).clone() }
    }
}

/// Elements that a leaf sees: all of a stream, or those that its filter and its window let through.
#[derive(Clone)]
pub(super) struct Selection {
    /// Places in the stream, ascending; `None`: all.
    pub(super) places: Option<UInt32Array>,
    /// How many of them at each step, where they are not all.
    counts: Option<Vec<u32>>,
}

impl Selection {
    pub(super) const ALL: Self = Self { places: None, counts: None };

    /// How many of the elements at each step.
    pub(super) fn counts<'a>(&'a self, elements: &'a Elements) -> &'a [u32] {
        self.counts.as_ref().unwrap_or(&elements.counts)
    }

    /// The elements for which `keep(step, place)` holds.
    pub(super) fn keep(elements: &Elements, mut keep: impl FnMut(usize, usize) -> bool) -> Self {
        let mut places = Vec::with_capacity(elements.len);
        let mut counts = Vec::with_capacity(elements.counts.len());
        let mut place = 0;
        for (step, count) in elements.counts.iter().enumerate() {
            let before = places.len();
            for _ in 0..*count {
                if keep(step, place) {
                    places.push(place as u32);
                }
                place += 1;
            }
            counts.push((places.len() - before) as u32);
        }
        if places.len() == elements.len {
            return Self::ALL;
        }
        Self { places: Some(UInt32Array::from(places)), counts: Some(counts) }
    }

    /// The elements whose bit in a filter's column is set.
    pub(super) fn filtered(elements: &Elements, filter: usize) -> Self {
        if elements.is_empty() {
            return Self::ALL;
        }
        let bits: &BooleanArray = elements.column(filter).as_boolean();
        if bits.null_count() == 0 && bits.values().count_set_bits() == bits.len() {
            return Self::ALL;
        }
        Self::keep(elements, |_, place| bits.is_valid(place) && bits.value(place))
    }

    pub(super) fn len(&self, elements: &Elements) -> usize {
        self.places.as_ref().map_or(elements.len, Array::len)
    }

    /// The selected elements of one column; `None` if there are none.
    pub(super) fn column(&self, elements: &Elements, index: usize) -> Option<ArrayRef> {
        if self.len(elements) == 0 {
            return None;
        }
        let column = elements.column(index);
        Some(match &self.places {
            None => Arc::clone(column),
            Some(places) => take(column, places, None).expect("selected places are in the column"),
        })
    }
}

/// Group numbers, times, arrival numbers and values of selected elements, owned.
#[derive(Default)]
pub(super) struct Gathered {
    groups: Option<ScalarBuffer<u32>>,
    times: Option<ScalarBuffer<Micros>>,
    seqs: Option<ScalarBuffer<u64>>,
    /// One per argument of the leaf, in its order; `None` where there are no elements.
    pub(super) values: SmallVec<[Option<ArrayRef>; 4]>,
    /// Slots of values that are groups of their own, one list per argument that has them; none where there are no
    /// elements.
    slots: SmallVec<[ScalarBuffer<u32>; 1]>,
}

/// Places in the layout of what a leaf reads of elements beside its arguments.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    /// Of the group numbers; `None` for the one group of a query without GROUP BY.
    pub(super) group: Option<usize>,
    /// Of the arrival numbers; with it, times and arrival numbers are gathered too.
    pub(super) seq: Option<usize>,
    pub(super) has_times: bool,
    /// Of the slots of values that are groups of their own.
    pub(super) values: &'a [usize],
}

impl Gathered {
    pub(super) fn new(
        elements: &Elements,
        selection: &Selection,
        columns: &Columns<'_>,
        args: &[usize],
    ) -> Self {
        let count = selection.len(elements);
        if count == 0 {
            return Self::empty(args.len());
        }
        let column = |index| selection.column(elements, index).expect("there are elements");
        let numbers = |index| column(index).as_primitive::<UInt32Type>().values().clone();
        let groups = columns.group.map_or_else(|| vec![0; count].into(), numbers);
        Self {
            groups: Some(groups),
            times: (columns.has_times || columns.seq.is_some()).then(|| times_of(&column(TIME)).clone()),
            seqs: columns.seq.map(|seq| column(seq).as_primitive::<UInt64Type>().values().clone()),
            values: args.iter().map(|arg| Some(column(*arg))).collect(),
            slots: columns.values.iter().map(|values| numbers(*values)).collect(),
        }
    }

    /// Of these parts, one value of each argument for each element.
    pub(super) fn of(
        groups: Vec<u32>,
        times: Vec<Micros>,
        seqs: Vec<u64>,
        values: SmallVec<[Option<ArrayRef>; 4]>,
    ) -> Self {
        let (groups, times, seqs) = (Some(groups.into()), Some(times.into()), Some(seqs.into()));
        Self { groups, times, seqs, values, slots: smallvec![] }
    }

    pub(super) fn empty(args: usize) -> Self {
        Self { values: smallvec![None; args], ..Self::default() }
    }

    pub(super) fn groups(&self) -> &[u32] {
        self.groups.as_deref().unwrap_or_default()
    }

    /// Those of the values of this number; none where there are no elements.
    pub(super) fn slots(&self, number: usize) -> &[u32] {
        self.slots.get(number).map_or(&[], |slots| slots)
    }

    /// None where they were not asked for.
    pub(super) fn times(&self) -> &[Micros] {
        self.times.as_deref().unwrap_or_default()
    }

    /// None where they were not asked for.
    pub(super) fn seqs(&self) -> &[u64] {
        self.seqs.as_deref().unwrap_or_default()
    }
}
