//! Records that travel over a link, with the range of the order that they cover.
//!
//! A batch *covers* a range of the order: every record of that range which reaches this link is in it, so an
//! empty batch says "nothing here" and lets a reader with several inputs go on.
//! Rows can be a selection of shared columns: splitting a stream by key copies row numbers, not records.
//!
//! Invariants
//! * Order numbers of the rows ascend (equal ones are in the order in which they were emitted) and lie in `range`.
//! * Every physical row has an event time and an order number, selected or not.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_buffer::ScalarBuffer;
use arrow_schema::DataType;
use arrow_select::take::take_record_batch;

use crate::{Micros, Seq, SeqRange};

/// The order number of each physical row.
#[derive(Clone, Debug)]
pub enum Seqs {
    /// Row `r` has number `first + r`.
    Dense(Seq),
    Each(Arc<[Seq]>),
}

/// Which physical rows belong to a batch.
#[derive(Clone, Debug)]
pub enum Rows {
    /// A run of rows, `start <= row < end`.
    Run { start: u32, end: u32 },
    /// Ascending row numbers; shared, and `start..end` are the selected ones.
    Some { rows: Arc<[u32]>, start: u32, end: u32 },
}

/// Records of a stream and the range of the order that they cover.
#[derive(Clone, Debug)]
pub struct Batch {
    range: SeqRange,
    records: RecordBatch,
    times: ScalarBuffer<Micros>,
    seqs: Seqs,
    rows: Rows,
    /// Bytes that a physical row takes by itself, for byte-bounded links.
    row_bytes: u32,
}

impl Batch {
    /// A batch of all rows of `records`.
    ///
    /// `times` (event time of each row) and an explicit `seqs` have one element per row.
    ///
    /// # Panics
    /// If their lengths differ.
    pub fn new(range: SeqRange, records: RecordBatch, times: ScalarBuffer<Micros>, seqs: Seqs) -> Self {
        let count = records.num_rows();
        assert_eq!(times.len(), count, "one event time per row");
        if let Seqs::Each(each) = &seqs {
            assert_eq!(each.len(), count, "one order number per row");
        }
        let bytes: usize = records.columns().iter().map(column_bytes).sum();
        let row_bytes = u32::try_from(bytes.checked_div(count).unwrap_or(0)).unwrap_or(u32::MAX).max(16);
        let rows =
            Rows::Run { start: 0, end: u32::try_from(count).expect("a batch holds fewer than 2^32 rows") };
        Self { range, records, times, seqs, rows, row_bytes }
    }

    /// An empty batch with the columns of `schema`: it covers `range` and says that nothing is there.
    pub fn empty(range: SeqRange, schema: &arrow_schema::SchemaRef) -> Self {
        Self {
            range,
            records: RecordBatch::new_empty(Arc::clone(schema)),
            times: ScalarBuffer::from(Vec::new()),
            seqs: Seqs::Dense(range.start),
            rows: Rows::Run { start: 0, end: 0 },
            row_bytes: 16,
        }
    }

    pub fn range(&self) -> SeqRange {
        self.range
    }

    #[must_use]
    pub fn with_range(mut self, range: SeqRange) -> Self {
        self.range = range;
        self
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        match &self.rows {
            Rows::Run { start, end } | Rows::Some { start, end, .. } => (end - start) as usize,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the records take, for the bounds of links; shared columns count by the rows taken.
    pub fn bytes(&self) -> usize {
        self.len() * self.row_bytes as usize
    }

    /// The physical columns; see [`Batch::rows`] for which of their rows belong to this batch.
    pub fn records(&self) -> &RecordBatch {
        &self.records
    }

    pub fn column(&self, index: usize) -> &ArrayRef {
        self.records.column(index)
    }

    /// Event time of every physical row.
    pub fn times(&self) -> &ScalarBuffer<Micros> {
        &self.times
    }

    pub fn seqs(&self) -> &Seqs {
        &self.seqs
    }

    /// Order number of a physical row.
    #[inline]
    pub fn seq(&self, row: u32) -> Seq {
        match &self.seqs {
            Seqs::Dense(first) => first + u64::from(row),
            Seqs::Each(each) => each[row as usize],
        }
    }

    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The selected row numbers, or `None` where a run of rows is selected.
    pub fn selection(&self) -> Option<&[u32]> {
        match &self.rows {
            Rows::Run { .. } => None,
            Rows::Some { rows, start, end } => Some(&rows[*start as usize..*end as usize]),
        }
    }

    /// Physical row of the batch's `index`-th record.
    #[inline]
    pub fn row(&self, index: usize) -> u32 {
        match &self.rows {
            Rows::Run { start, .. } => start + index as u32,
            Rows::Some { rows, start, .. } => rows[*start as usize + index],
        }
    }

    /// Physical rows of the batch's records, in order.
    pub fn row_numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len()).map(|index| self.row(index))
    }

    /// The same columns, other rows; `rows` are ascending physical row numbers.
    #[must_use]
    pub fn with_rows(&self, rows: Arc<[u32]>) -> Self {
        let end = rows.len() as u32;
        Self { rows: Rows::Some { rows, start: 0, end }, ..self.clone() }
    }

    /// Splits at an order number: the rows before it, and those at or after it.
    ///
    /// # Panics
    /// If `at` is outside the range.
    pub fn split(&self, at: Seq) -> (Batch, Batch) {
        assert!(self.range.start <= at && at <= self.range.end, "split at {at} outside {}", self.range);
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.seq(self.row(middle)) < at { low = middle + 1 } else { high = middle }
        }
        let part = |from: usize, to: usize| match &self.rows {
            Rows::Run { start, .. } => Rows::Run { start: start + from as u32, end: start + to as u32 },
            Rows::Some { rows, start, .. } => {
                Rows::Some { rows: Arc::clone(rows), start: start + from as u32, end: start + to as u32 }
            }
        };
        let before = Self { range: SeqRange::new(self.range.start, at), rows: part(0, low), ..self.clone() };
        let after =
            Self { range: SeqRange::new(at, self.range.end), rows: part(low, self.len()), ..self.clone() };
        (before, after)
    }

    /// The same records in columns of their own: physical row = record index. Cheap for a run of rows.
    #[must_use]
    pub fn compact(&self) -> Batch {
        let (start, end) = match &self.rows {
            Rows::Run { start, end } if *start == 0 && *end as usize == self.records.num_rows() => {
                return self.clone();
            }
            Rows::Run { start, end } => (*start as usize, *end as usize),
            Rows::Some { .. } => return self.gather(),
        };
        let seqs = match &self.seqs {
            Seqs::Dense(first) => Seqs::Dense(first + start as u64),
            Seqs::Each(each) => Seqs::Each(each[start..end].into()),
        };
        Self {
            range: self.range,
            records: self.records.slice(start, end - start),
            times: self.times.slice(start, end - start),
            seqs,
            rows: Rows::Run { start: 0, end: (end - start) as u32 },
            row_bytes: self.row_bytes,
        }
    }

    fn gather(&self) -> Batch {
        let rows: Vec<u32> = self.row_numbers().collect();
        let seqs: Arc<[Seq]> = rows.iter().map(|row| self.seq(*row)).collect();
        let times: Vec<Micros> = rows.iter().map(|row| self.times[*row as usize]).collect();
        let count = rows.len() as u32;
        let records = take_record_batch(&self.records, &UInt32Array::from(rows))
            .expect("selected rows exist in the columns they select from");
        Self {
            range: self.range,
            records,
            times: times.into(),
            seqs: Seqs::Each(seqs),
            rows: Rows::Run { start: 0, end: count },
            row_bytes: self.row_bytes,
        }
    }

    /// The same rows with other columns: `records` has one row per *physical* row of this batch.
    ///
    /// # Panics
    /// If the row counts differ.
    #[must_use]
    pub fn with_records(&self, records: RecordBatch) -> Self {
        assert_eq!(records.num_rows(), self.records.num_rows(), "one new row per physical row");
        let replaced = Self::new(self.range, records, self.times.clone(), self.seqs.clone());
        Self { rows: self.rows.clone(), ..replaced }
    }
}

/// What a column takes however few rows it has: of wide rows that come one by one, most of all.
const COLUMN: usize = 128;

/// Bytes that a column takes by itself. A buffer may be far larger: wide rows share one of zeros for all columns without a value,
/// and texts of a join are in the table that they come from.
fn column_bytes(column: &ArrayRef) -> usize {
    const VIEW: usize = size_of::<u128>();
    let rows = column.len();
    if column.null_count() == rows {
        return COLUMN;
    }
    let values = match column.data_type() {
        DataType::Boolean => rows.div_ceil(8),
        DataType::FixedSizeBinary(width) => rows * usize::try_from(*width).unwrap_or(0),
        DataType::Utf8View => rows * VIEW + column.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => rows * VIEW + column.as_binary_view().total_buffer_bytes_used(),
        other => {
            other.primitive_width().map_or_else(|| column.get_buffer_memory_size(), |width| rows * width)
        }
    };
    COLUMN + values
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int64Type;
    use arrow_array::{Int64Array, StringViewArray, new_null_array};

    use super::*;
    use crate::{DataType, Field, Schema};

    fn numbers(first: Seq, count: usize) -> Batch {
        let schema = Schema::new(vec![Field::new("n", DataType::Int64)]);
        let values: Vec<i64> = (0..count as i64).collect();
        let records =
            RecordBatch::try_new(Arc::clone(schema.arrow()), vec![Arc::new(Int64Array::from(values))])
                .unwrap();
        let times: Vec<Micros> = (0..count as i64).collect();
        Batch::new(SeqRange::new(first, first + count as u64), records, times.into(), Seqs::Dense(first))
    }

    fn contents(batch: &Batch) -> Vec<(Seq, i64)> {
        let column = batch.column(0).as_primitive::<Int64Type>();
        batch.row_numbers().map(|row| (batch.seq(row), column.value(row as usize))).collect()
    }

    #[test]
    fn split_cuts_runs_and_selections_at_an_order_number() {
        let (before, after) = numbers(10, 4).split(12);
        assert_eq!(contents(&before), [(10, 0), (11, 1)]);
        assert_eq!(contents(&after), [(12, 2), (13, 3)]);
        assert_eq!((before.range(), after.range()), (SeqRange::new(10, 12), SeqRange::new(12, 14)));

        let (before, after) = numbers(10, 6).with_rows([1, 3, 5].into()).split(13);
        assert_eq!(contents(&before), [(11, 1)]);
        assert_eq!(contents(&after), [(13, 3), (15, 5)]);
        assert_eq!(contents(&after.split(16).0), [(13, 3), (15, 5)], "a piece splits again");
    }

    #[test]
    fn compact_keeps_records_times_and_order_numbers() {
        let picked = numbers(10, 6).with_rows([1, 3, 5].into()).compact();
        assert_eq!(contents(&picked), [(11, 1), (13, 3), (15, 5)]);
        assert_eq!(picked.times().as_ref(), [1, 3, 5]);
        let run = numbers(10, 6).split(12).1.compact();
        assert_eq!(contents(&run), [(12, 2), (13, 3), (14, 4), (15, 5)]);
        assert_eq!(run.records().num_rows(), 4);
    }

    #[test]
    fn rows_count_by_themselves_whatever_buffers_they_share() {
        let text = "longer than what a view holds by itself";
        let all = StringViewArray::from(vec![text; 10_000]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("n", Arc::new(Int64Array::from(vec![1; 10_000]).slice(0, 2))),
            ("s", Arc::new(all.slice(0, 2))),
            ("nothing", new_null_array(&arrow_schema::DataType::Int64, 10_000).slice(0, 2)),
        ];
        let records = RecordBatch::try_from_iter(columns).unwrap();
        let batch = Batch::new(SeqRange::new(0, 2), records, vec![0; 2].into(), Seqs::Dense(0));
        assert_eq!(batch.bytes(), 3 * COLUMN + 2 * (8 + 16 + text.len()));
    }
}
