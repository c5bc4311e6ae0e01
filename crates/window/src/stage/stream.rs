//! Rows that a cursor passed in a batch, as columns, and which of them a filter lets through.

use std::cell::OnceCell;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow_buffer::ScalarBuffer;
use arrow_select::concat::concat;
use arrow_select::take::take;
use thalweg_types::Micros;

use crate::columns::times_of;
use crate::reservoir::{Passed, Piece};

/// Place of the time in the layout.
pub(super) const TIME: usize = 0;

/// Elements in order of application, `counts[i]` of them at step i.
pub(super) struct Elements {
    pieces: Vec<Piece>,
    pub(super) counts: Vec<u32>,
    len: usize,
    columns: Vec<OnceCell<ArrayRef>>,
}

impl Elements {
    pub(super) fn new(passed: Passed, width: usize) -> Self {
        let len = passed.pieces.iter().map(|piece| piece.rows.len()).sum();
        let columns = std::iter::repeat_with(OnceCell::new).take(width).collect();
        Self { pieces: passed.pieces, counts: passed.counts, len, columns }
    }

    /// The rows of a batch that were accepted, each at its own step.
    pub(super) fn of_batch(columns: &Arc<[ArrayRef]>, rows: usize, accepted: Option<&[bool]>) -> Self {
        let mut passed = Passed { pieces: Vec::new(), counts: vec![1; rows] };
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
            let slices: Vec<ArrayRef> = self
                .pieces
                .iter()
                .map(|piece| piece.columns[index].slice(piece.rows.start, piece.rows.len()))
                .collect();
            match slices.as_slice() {
                [one] => Arc::clone(one),
                many => concat(&many.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>())
                    .expect("pieces have one layout"),
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
    /// How many of them at each step.
    pub(super) counts: Arc<[u32]>,
}

impl Selection {
    pub(super) fn all(elements: &Elements) -> Self {
        Self { places: None, counts: elements.counts.as_slice().into() }
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
        let places = (places.len() < elements.len).then(|| UInt32Array::from(places));
        Self { places, counts: counts.into() }
    }

    /// The elements whose bit in a filter's column is set.
    pub(super) fn filtered(elements: &Elements, filter: Option<usize>) -> Self {
        let Some(filter) = filter.filter(|_| elements.len > 0) else { return Self::all(elements) };
        let bits: &BooleanArray = elements.column(filter).as_boolean();
        if bits.null_count() == 0 && bits.values().count_set_bits() == bits.len() {
            return Self::all(elements);
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
pub(super) struct Gathered {
    pub(super) groups: ScalarBuffer<u32>,
    pub(super) times: ScalarBuffer<Micros>,
    pub(super) seqs: ScalarBuffer<u64>,
    /// One per argument of the leaf, in its order; `None` where there are no elements.
    pub(super) values: Vec<Option<ArrayRef>>,
}

impl Gathered {
    /// `group`: layout column of the group numbers, `None` for the one group of a query without GROUP BY.
    /// `seq`: that of the arrival numbers; with it, times and arrival numbers are gathered too.
    pub(super) fn new(
        elements: &Elements,
        selection: &Selection,
        group: Option<usize>,
        seq: Option<usize>,
        args: &[usize],
    ) -> Self {
        let count = selection.len(elements);
        let groups = match group.filter(|_| count > 0) {
            Some(column) => selection
                .column(elements, column)
                .map(|numbers| numbers.as_primitive::<UInt32Type>().values().clone())
                .expect("there are elements"),
            None => vec![0; count].into(),
        };
        let (times, seqs) = if let Some(seq) = seq.filter(|_| count > 0) {
            let times = selection.column(elements, TIME).map(|times| times_of(&times).clone());
            let seqs = selection
                .column(elements, seq)
                .map(|seqs| seqs.as_primitive::<UInt64Type>().values().clone());
            (times.expect("there are elements"), seqs.expect("there are elements"))
        } else {
            (vec![].into(), vec![].into())
        };
        let values = args.iter().map(|arg| selection.column(elements, *arg)).collect();
        Self { groups, times, seqs, values }
    }

    pub(super) fn empty(args: usize) -> Self {
        Self { groups: vec![].into(), times: vec![].into(), seqs: vec![].into(), values: vec![None; args] }
    }
}
