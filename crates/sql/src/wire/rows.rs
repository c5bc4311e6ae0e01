//! Rows that are in no file yet, which a worker is sent once each.
//!
//! A table's newest rows are batches that do not change, and the next snapshot has most of them again. So the node gives each
//! a number and remembers by identity which ones a worker has; batches without a holder are forgotten on both sides.
//! Remembering keeps no rows alive: it holds on to the places of the columns (`Weak`), so that no other column can come to
//! are there.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;

use super::message::Rows;

/// What one worker has been sent.
#[derive(Default)]
pub(crate) struct Sent {
    /// By the place of the first column.
    known: HashMap<usize, Known>,
    last: u64,
}

struct Known {
    number: u64,
    columns: Vec<Weak<dyn Array>>,
}

impl Known {
    fn is(&self, batch: &RecordBatch) -> bool {
        let mut pairs = self.columns.iter().zip(batch.columns());
        self.columns.len() == batch.num_columns()
            && pairs.all(|(known, column)| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(column)))
    }

    fn is_gone(&self) -> bool {
        self.columns.iter().any(|column| column.strong_count() == 0)
    }
}

fn place(column: &ArrayRef) -> usize {
    Arc::as_ptr(column).addr()
}

impl Sent {
    /// The number of a batch; a new one where the worker does not have it yet.
    pub(crate) fn number(&mut self, batch: &RecordBatch) -> Rows {
        let first = batch.columns().first().map(place);
        if let Some(known) = first.and_then(|place| self.known.get(&place))
            && known.is(batch)
        {
            return Rows { number: known.number, is_new: false };
        }
        self.last += 1;
        if let Some(place) = first {
            let columns = batch.columns().iter().map(Arc::downgrade).collect();
            // One that began with the same column is sent once more when it is used again.
            self.known.insert(place, Known { number: self.last, columns });
        }
        Rows { number: self.last, is_new: true }
    }

    /// Forgets all, as the last numbered ones did not arrive.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    /// The numbers that are still in use, where there are others.
    pub(crate) fn forget_gone(&mut self) -> Option<Vec<u64>> {
        let before = self.known.len();
        self.known.retain(|_, known| !known.is_gone());
        (self.known.len() < before).then(|| self.known.values().map(|known| known.number).collect())
    }
}

/// A batch as a stream of Arrow IPC.
///
/// # Errors
/// If a type has no form there.
pub(crate) fn encode(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
    writer.write(batch)?;
    writer.finish()?;
    writer.into_inner()
}

/// What a worker has been sent, by number.
#[derive(Default)]
pub(crate) struct Kept {
    batches: HashMap<u64, (RecordBatch, usize)>,
    bytes: usize,
}

impl Kept {
    /// Bytes that all take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, number: u64) -> Option<RecordBatch> {
        self.batches.get(&number).map(|(batch, _)| batch.clone())
    }

    /// Takes a batch in, without a copy of its columns.
    ///
    /// # Errors
    /// If the bytes are no batch.
    pub(crate) fn add(&mut self, number: u64, bytes: Vec<u8>) -> Result<(), ArrowError> {
        let size = bytes.len();
        let mut bytes = Buffer::from_vec(bytes);
        let batch = StreamDecoder::new().decode(&mut bytes)?;
        let batch = batch.ok_or_else(|| ArrowError::IpcError("a stream without a batch".to_owned()))?;
        self.batches.insert(number, (batch, size));
        self.bytes += size;
        Ok(())
    }

    /// Keeps these, and no others.
    pub(crate) fn retain(&mut self, numbers: &[u64]) {
        let numbers: std::collections::HashSet<&u64> = numbers.iter().collect();
        self.batches.retain(|number, _| numbers.contains(number));
        self.bytes = self.batches.values().map(|(_, size)| size).sum();
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, StringArray};

    use super::*;

    fn batch(n: i64) -> RecordBatch {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from(vec![n, n + 1])) as ArrayRef),
            ("t", texts),
        ])
        .unwrap()
    }

    #[test]
    fn a_batch_is_new_once_and_forgotten_when_nobody_has_it() {
        let mut sent = Sent::default();
        let (one, two) = (batch(1), batch(1));
        assert_eq!(sent.number(&one), Rows { number: 1, is_new: true });
        assert_eq!(sent.number(&two), Rows { number: 2, is_new: true });
        assert_eq!(sent.number(&one.clone()), Rows { number: 1, is_new: false });
        // A part of it is another.
        assert!(sent.number(&one.slice(0, 1)).is_new);
        let narrower = one.project(&[0]).unwrap();
        assert!(sent.number(&narrower).is_new, "the same first column does not do");
        assert_eq!(
            sent.forget_gone().map(sorted),
            Some(vec![2, 4]),
            "the part is gone, and one that was replaced"
        );
        drop(two);
        assert_eq!(sent.forget_gone().map(sorted), Some(vec![4]));
        assert_eq!(sent.forget_gone(), None);
    }

    fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn rows_come_as_they_were() {
        let mut kept = Kept::default();
        kept.add(3, encode(&batch(5)).unwrap()).unwrap();
        kept.add(4, encode(&batch(6)).unwrap()).unwrap();
        assert_eq!(kept.get(3), Some(batch(5)));
        let bytes = kept.bytes();
        kept.retain(&[4, 9]);
        assert_eq!((kept.get(3), kept.get(4), kept.bytes()), (None, Some(batch(6)), bytes / 2));
        assert!(kept.add(5, b"no batch".to_vec()).is_err());
        kept.retain(&[]);
        assert_eq!(kept.bytes(), 0);
    }
}
