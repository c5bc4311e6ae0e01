//! A batch in parts that are written one after the other.
//!
//! Records that were made of one share its texts in memory, and are written each by itself: a batch of a
//! megabyte may be gigabytes of text.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_buffer::Buffer;
use thalweg_types::{Batch, TextLengths};

/// Bytes of texts in a part, where it has more than a record.
const PART: usize = 4 << 20;

/// A batch as it is, or in parts whose texts have about [`PART`] bytes each.
pub(super) fn parts(batch: Batch) -> Vec<Batch> {
    let columns = batch.records().columns();
    let lengths: Vec<TextLengths<'_>> = columns.iter().filter_map(TextLengths::of).collect();
    let texts = |row: u32| lengths.iter().map(|lengths| lengths.at(row)).sum::<usize>();
    // Texts that are shared are longer together than all buffers are.
    let held: usize = columns.iter().flat_map(buffers).map(Buffer::len).sum();
    if batch.row_numbers().map(texts).sum::<usize>() <= PART.max(held) {
        drop(lengths);
        return vec![batch];
    }
    let (mut parts, mut rows, mut bytes) = (Vec::new(), Vec::new(), 0);
    for row in batch.row_numbers() {
        let more = texts(row);
        if bytes + more > PART && !rows.is_empty() {
            parts.push(batch.with_rows(Arc::from(std::mem::take(&mut rows))));
            bytes = 0;
        }
        rows.push(row);
        bytes += more;
    }
    parts.push(batch.with_rows(rows.into()));
    parts
}

/// The buffers of a column's texts or bytes.
fn buffers(column: &ArrayRef) -> &[Buffer] {
    let texts = column.as_string_view_opt().map(|texts| texts.data_buffers());
    texts.or_else(|| column.as_binary_view_opt().map(|blobs| blobs.data_buffers())).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, RecordBatch, StringViewArray};
    use arrow_buffer::ScalarBuffer;
    use arrow_schema::{DataType, Field, Schema};
    use thalweg_types::{SeqRange, Seqs};

    use super::*;

    fn batch(texts: StringViewArray) -> Batch {
        let count = texts.len();
        let schema = Schema::new(vec![Field::new("t", DataType::Utf8View, false)]);
        let records = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(texts)]).unwrap();
        Batch::new(SeqRange::new(0, 9), records, vec![0; count].into(), Seqs::Each(vec![7; count].into()))
    }

    #[test]
    fn texts_that_are_shared_are_written_in_parts() {
        let long = Buffer::from(vec![b'x'; PART / 3]);
        let view = arrow_array::builder::make_view(&long, 0, 0);
        let shared = batch(StringViewArray::new(ScalarBuffer::from(vec![view; 10]), vec![long], None));
        let parts = parts(shared.clone());
        assert_eq!(parts.iter().map(Batch::len).collect::<Vec<_>>(), [3, 3, 3, 1]);
        let rows: Vec<u32> = parts.iter().flat_map(|part| part.row_numbers().collect::<Vec<_>>()).collect();
        assert_eq!(rows, shared.row_numbers().collect::<Vec<_>>());
    }

    #[test]
    fn what_is_in_memory_anyway_is_written_at_once() {
        let own = batch(StringViewArray::from_iter_values((0..9).map(|n| n.to_string().repeat(PART / 3))));
        assert_eq!(parts(own).len(), 1);
        assert_eq!(parts(batch(StringViewArray::from_iter_values(["a", "b"]))).len(), 1);
    }
}
