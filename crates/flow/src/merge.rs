//! Several batches of one stream made one: in a row, or merged by order number.
//!
//! Records are copied here and only here; a reader that can do with several batches needs no merge.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteViewType;
use arrow_array::{Array, ArrayRef, GenericByteViewArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_select::concat::concat;
use arrow_select::interleave::interleave;
use thalweg_types::{Batch, Error, Micros, Rows, Seq, SeqRange, Seqs};

/// First and last order number of a batch's rows; `None` where it has none.
#[inline]
pub(crate) fn bounds(batch: &Batch) -> Option<(Seq, Seq)> {
    let last = batch.len().checked_sub(1)?;
    Some((batch.seq(batch.row(0)), batch.seq(batch.row(last))))
}

/// Whether the order numbers of a batch's rows ascend, as they must.
pub(crate) fn ascends(batch: &Batch) -> bool {
    match (batch.seqs(), batch.rows()) {
        (Seqs::Dense(_), Rows::Run { .. }) => true,
        (Seqs::Each(each), Rows::Run { start, end }) => each[*start as usize..*end as usize].is_sorted(),
        (_, Rows::Some { .. }) => batch.row_numbers().map(|row| batch.seq(row)).is_sorted(),
    }
}

/// Whether the rows of each batch come after those of the ones before; equal numbers may meet.
pub(crate) fn ascend(batches: &[Batch]) -> bool {
    follow(batches, |last, first| last <= first)
}

/// Whether the rows of each batch come after those of the ones before, with other numbers.
pub(crate) fn stand_apart(batches: &[Batch]) -> bool {
    follow(batches, |last, first| last < first)
}

fn follow(batches: &[Batch], holds: impl Fn(Seq, Seq) -> bool) -> bool {
    let mut previous = None;
    batches
        .iter()
        .filter_map(bounds)
        .all(|(first, last)| previous.replace(last).is_none_or(|previous| holds(previous, first)))
}

/// One batch of the rows of all, in the order in which the batches are.
pub(crate) fn append(batches: &[Batch], range: SeqRange) -> Result<Batch, Error> {
    if let [only] = batches {
        return Ok(only.clone().with_range(range));
    }
    if batches.iter().all(|batch| matches!(batch.rows(), Rows::Run { .. })) {
        return append_runs(batches, range);
    }
    let mut picks = Vec::with_capacity(batches.iter().map(Batch::len).sum());
    for (index, batch) in batches.iter().enumerate() {
        picks.extend(batch.row_numbers().map(|row| (index, row as usize)));
    }
    pick(batches, &picks, range)
}

/// One batch of the rows of all by order number; equal numbers in the order in which the batches are.
///
/// # Errors
/// If their schemas differ.
pub fn merge(batches: &[Batch], range: SeqRange) -> Result<Batch, Error> {
    if ascend(batches) {
        return append(batches, range);
    }
    pick(batches, &merge_order(batches), range)
}

/// (batch, physical row) of every row in merged order.
fn merge_order(batches: &[Batch]) -> Vec<(usize, usize)> {
    let total = batches.iter().map(Batch::len).sum();
    let mut picks = Vec::with_capacity(total);
    // The next row of each batch with its order number, in the order of the batches: a scan for the least
    // number then finds the first batch that has it. Batches are few, as many as an operator has tasks.
    let mut heads: Vec<(Seq, usize, usize)> = batches
        .iter()
        .enumerate()
        .filter(|(_, batch)| !batch.is_empty())
        .map(|(index, batch)| (batch.seq(batch.row(0)), index, 0))
        .collect();
    while heads.len() > 1 {
        let mut least = 0;
        // What the least has to stay below (or at, for batches after it) to go on.
        let mut next = Seq::MAX;
        for place in 1..heads.len() {
            if heads[place].0 < heads[least].0 {
                next = heads[least].0;
                least = place;
            } else {
                next = next.min(heads[place].0);
            }
        }
        let (mut seq, index, mut at) = heads[least];
        let batch = &batches[index];
        let mut left = true;
        // The least row itself, and all after it that come before every other batch's next row.
        let first = seq;
        while left && (seq == first || seq < next) {
            picks.push((index, batch.row(at) as usize));
            at += 1;
            left = at < batch.len();
            if left {
                seq = batch.seq(batch.row(at));
            }
        }
        if left {
            heads[least] = (seq, index, at);
        } else {
            heads.remove(least);
        }
    }
    if let Some((_, index, at)) = heads.pop() {
        let batch = &batches[index];
        picks.extend((at..batch.len()).map(|place| (index, batch.row(place) as usize)));
    }
    picks
}

fn append_runs(batches: &[Batch], range: SeqRange) -> Result<Batch, Error> {
    let runs: Vec<Batch> = batches.iter().map(Batch::compact).collect();
    let total = runs.iter().map(Batch::len).sum();
    let mut times: Vec<Micros> = Vec::with_capacity(total);
    let mut seqs = SeqList::with_capacity(total);
    for run in &runs {
        times.extend_from_slice(run.times());
        for row in 0..run.len() as u32 {
            seqs.push(run.seq(row));
        }
    }
    assemble(&runs, total, range, times, seqs, |columns| concat(columns))
}

/// The rows at these places, in this order.
fn pick(batches: &[Batch], picks: &[(usize, usize)], range: SeqRange) -> Result<Batch, Error> {
    let mut times: Vec<Micros> = Vec::with_capacity(picks.len());
    let mut seqs = SeqList::with_capacity(picks.len());
    for (index, row) in picks {
        times.push(batches[*index].times()[*row]);
        seqs.push(batches[*index].seq(*row as u32));
    }
    assemble(batches, picks.len(), range, times, seqs, |columns| interleave(columns, picks))
}

fn assemble(
    batches: &[Batch],
    count: usize,
    range: SeqRange,
    times: Vec<Micros>,
    seqs: SeqList,
    column: impl Fn(&[&dyn Array]) -> Result<ArrayRef, arrow_schema::ArrowError>,
) -> Result<Batch, Error> {
    let schema = batches[0].records().schema();
    let mut columns = Vec::with_capacity(schema.fields().len());
    let mut parts: Vec<&dyn Array> = Vec::with_capacity(batches.len());
    let differ = |cause| {
        Error::internal("batches of one link have different columns or too much text").with_source(cause)
    };
    for index in 0..schema.fields().len() {
        parts.clear();
        parts.extend(batches.iter().map(|batch| batch.column(index).as_ref()));
        columns.push(tidy(column(&parts).map_err(differ)?));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    let records = RecordBatch::try_new_with_options(schema, columns, &options).map_err(differ)?;
    Ok(Batch::new(range, records, times.into(), seqs.finish()))
}

/// Copies texts out of shared buffers where most of the held bytes are not used: pieces of one batch that meet
/// again each bring its buffers along, so their number would grow with every merge.
fn tidy(column: ArrayRef) -> ArrayRef {
    fn wasteful<T: ByteViewType>(array: &GenericByteViewArray<T>) -> bool {
        let held: usize = array.data_buffers().iter().map(Buffer::capacity).sum();
        held > 2 * array.total_buffer_bytes_used() + SPARE
    }
    /// Not worth a copy.
    const SPARE: usize = 4 << 10;
    if let Some(array) = column.as_string_view_opt().filter(|array| wasteful(array)) {
        Arc::new(array.gc())
    } else if let Some(array) = column.as_binary_view_opt().filter(|array| wasteful(array)) {
        Arc::new(array.gc())
    } else {
        column
    }
}

/// Order numbers that may turn out to be dense.
struct SeqList {
    each: Vec<Seq>,
    dense: bool,
}

impl SeqList {
    fn with_capacity(count: usize) -> Self {
        Self { each: Vec::with_capacity(count), dense: true }
    }

    #[inline]
    fn push(&mut self, seq: Seq) {
        self.dense &= self.each.first().is_none_or(|first| seq == first + self.each.len() as u64);
        self.each.push(seq);
    }

    fn finish(self) -> Seqs {
        match self.each.first() {
            Some(first) if self.dense => Seqs::Dense(*first),
            _ => Seqs::Each(self.each.into()),
        }
    }
}

/// The same rows, all with this one order number: what an operator emitted on a tick or its like.
pub(crate) fn renumber(batch: &Batch, seq: Seq) -> Batch {
    if bounds(batch).is_none_or(|(first, last)| first == seq && last == seq) {
        return batch.clone();
    }
    let compact = batch.compact();
    let each: Arc<[Seq]> = std::iter::repeat_n(seq, compact.len()).collect();
    Batch::new(batch.range(), compact.records().clone(), compact.times().clone(), Seqs::Each(each))
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int64Type;
    use arrow_array::{Int64Array, StringViewArray};
    use proptest::prelude::*;
    use thalweg_types::{DataType, Field, Schema};

    use super::*;

    /// Rows of (order number, value); event time = value.
    fn batch(rows: &[(Seq, i64)]) -> Batch {
        let schema = Schema::new(vec![Field::new("n", DataType::Int64)]);
        let values: Vec<i64> = rows.iter().map(|(_, value)| *value).collect();
        let records = RecordBatch::try_new(
            Arc::clone(schema.arrow()),
            vec![Arc::new(Int64Array::from(values.clone()))],
        )
        .unwrap();
        let seqs = Seqs::Each(rows.iter().map(|(seq, _)| *seq).collect());
        Batch::new(SeqRange::new(0, 1000), records, values.into(), seqs)
    }

    fn contents(batch: &Batch) -> Vec<(Seq, i64)> {
        let column = batch.column(0).as_primitive::<Int64Type>();
        batch
            .row_numbers()
            .map(|row| {
                assert_eq!(column.value(row as usize), batch.times()[row as usize]);
                (batch.seq(row), column.value(row as usize))
            })
            .collect()
    }

    #[test]
    fn rows_of_equal_number_stay_in_the_order_of_their_batches() {
        let merged = merge(
            &[batch(&[(1, 10), (3, 11), (3, 12)]), batch(&[(1, 20), (2, 21), (3, 22)]), batch(&[(0, 30)])],
            SeqRange::new(0, 4),
        )
        .unwrap();
        assert_eq!(contents(&merged), [(0, 30), (1, 10), (1, 20), (2, 21), (3, 11), (3, 12), (3, 22)]);
        assert_eq!(merged.range(), SeqRange::new(0, 4));
    }

    #[test]
    fn dense_pieces_make_a_dense_batch() {
        let joined = append(&[batch(&[(5, 1)]), batch(&[(6, 2), (7, 3)])], SeqRange::new(5, 8)).unwrap();
        assert!(matches!(joined.seqs(), Seqs::Dense(5)));
        assert_eq!(contents(&joined), [(5, 1), (6, 2), (7, 3)]);
    }

    #[test]
    fn splitting_and_merging_again_does_not_pile_up_buffers() {
        let schema = Schema::new(vec![Field::new("text", DataType::String)]);
        let texts: Vec<String> = (0..1000).map(|row| format!("a text of some length {row}")).collect();
        let column = Arc::new(StringViewArray::from_iter_values(&texts));
        let records = RecordBatch::try_new(Arc::clone(schema.arrow()), vec![column]).unwrap();
        let range = SeqRange::new(0, 1000);
        let mut whole = Batch::new(range, records, vec![0; 1000].into(), Seqs::Dense(0));
        let bytes = whole.bytes();
        for _ in 0..5 {
            let parts: Vec<Batch> = (0..4)
                .map(|part| whole.with_rows((0..1000).filter(|row| row % 4 == part).collect()))
                .collect();
            whole = merge(&parts, range).unwrap();
        }
        assert!(whole.bytes() < 2 * bytes, "{} of {bytes}", whole.bytes());
        let column = whole.column(0).as_string_view();
        assert!(column.data_buffers().len() <= 4);
        assert!(column.iter().zip(&texts).all(|(got, expected)| got == Some(expected)));
    }

    proptest! {
        #[test]
        fn merging_is_a_stable_sort(
            mut parts in proptest::collection::vec(proptest::collection::vec(0_u64..20, 0..12), 1..6),
            keep in any::<u64>(),
        ) {
            let mut value = 0;
            let mut expected = Vec::new();
            let batches: Vec<Batch> = parts.iter_mut().map(|seqs| {
                seqs.sort_unstable();
                let rows: Vec<(Seq, i64)> = seqs.iter().map(|seq| { value += 1; (*seq, value) }).collect();
                let some: Vec<u32> = (0..rows.len() as u32).filter(|row| keep >> row & 1 == 1).collect();
                expected.extend(some.iter().map(|row| rows[*row as usize]));
                batch(&rows).with_rows(some.into())
            }).collect();
            expected.sort_by_key(|(seq, _)| *seq);
            let merged = merge(&batches, SeqRange::new(0, 20)).unwrap();
            prop_assert_eq!(contents(&merged), expected);
        }
    }
}
