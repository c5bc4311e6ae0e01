//! A format's decoder that panics: which record it was at, and how the others get past it.
//!
//! A block is decoded as a whole. Where that panics it is decoded again record by record, each time it happens with a
//! new decoder, as nobody knows what the panic has left in the old one. The panic of a single record goes on, now with
//! a record to name; with `--skip` for that record it becomes a reject.

use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use arrow_array::Array;
use arrow_select::concat::concat;
use bytes::Bytes;
use thalweg_types::{Error, Micros, Offset};

use crate::format::{BadRecord, Columns, Preamble, RecordDecoder};

/// Makes decoders, each as the first one.
pub(super) type DecoderMaker = Box<dyn Fn() -> Box<dyn RecordDecoder> + Send>;

/// A block as it arrived.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a> {
    pub(super) data: &'a Bytes,
    /// Offset of its first record.
    pub(super) first: Offset,
    pub(super) count: u32,
    pub(super) arrival: Micros,
}

pub(super) struct Guarded {
    make: DecoderMaker,
    decoder: Box<dyn RecordDecoder>,
    source: Arc<str>,
    skip: Arc<[Offset]>,
    /// The record of the block that is decoded by itself.
    at: Option<u32>,
}

impl Guarded {
    /// `skip` are the offsets of `source` that may be left out.
    pub(super) fn new(make: DecoderMaker, source: Arc<str>, skip: Arc<[Offset]>) -> Self {
        Self { decoder: make(), make, source, skip, at: None }
    }

    /// As [`RecordDecoder::decode`].
    ///
    /// # Panics
    /// As the decoder does, at a record that is not to be skipped; [`Guarded::at`] says which.
    pub(super) fn decode(
        &mut self,
        block: Arrived<'_>,
        preamble: Option<&Preamble>,
    ) -> Result<Columns, Error> {
        self.at = None;
        self.attempt(block, preamble).unwrap_or_else(|panic| self.one_by_one(block, preamble, panic))
    }

    /// As [`RecordDecoder::locate`].
    pub(super) fn locate(&self, data: &[u8], indexes: &[u32]) -> Vec<Range<usize>> {
        self.decoder.locate(data, indexes)
    }

    /// The number in its block of the record that panicked, where it was one by itself.
    pub(super) fn at(&self) -> Option<u32> {
        self.at
    }

    fn attempt(
        &mut self,
        block: Arrived<'_>,
        preamble: Option<&Preamble>,
    ) -> Result<Result<Columns, Error>, Box<dyn Any + Send>> {
        let decoder = &mut self.decoder;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            decoder.arrived(block.arrival);
            decoder.decode(block.data, block.count as usize, preamble)
        }));
        if outcome.is_err() {
            self.decoder = (self.make)();
        }
        outcome
    }

    #[cold]
    fn one_by_one(
        &mut self,
        block: Arrived<'_>,
        preamble: Option<&Preamble>,
        panic: Box<dyn Any + Send>,
    ) -> Result<Columns, Error> {
        let Arrived { data, first, count, .. } = block;
        let indexes: Vec<u32> = (0..count).collect();
        let places = self.decoder.locate(data, &indexes);
        let (mut parts, mut bad) = (Vec::new(), Vec::new());
        let mut is_found = false;
        for (index, place) in indexes.into_iter().zip(places) {
            self.at = Some(index);
            match self.attempt(Arrived { data: &data.slice(place.clone()), count: 1, ..block }, preamble) {
                Ok(columns) => {
                    let columns = columns?;
                    bad.extend(columns.bad.into_iter().map(|bad| BadRecord {
                        index,
                        raw: place.start + bad.raw.start..place.start + bad.raw.end,
                        ..bad
                    }));
                    parts.push(columns.columns);
                }
                Err(panic) => {
                    is_found = true;
                    let offset = first + u64::from(index);
                    if !self.skip.contains(&offset) {
                        resume_unwind(panic);
                    }
                    let reason = format!(
                        "left out by --skip {}@{offset}; its decoder panicked: {}",
                        self.source,
                        message(&*panic)
                    );
                    bad.push(BadRecord { index, raw: place, code: "skipped", reason: Cow::Owned(reason) });
                }
            }
        }
        self.at = None;
        if !is_found {
            // It takes several of them.
            resume_unwind(panic);
        }
        if parts.is_empty() {
            let empty = Arrived { data: &Bytes::new(), count: 0, ..block };
            let none = self.attempt(empty, preamble).unwrap_or_else(|panic| resume_unwind(panic))?;
            return Ok(Columns { bad, ..none });
        }
        let columns = (0..parts[0].len()).map(|column| {
            let parts: Vec<&dyn Array> =
                parts.iter().map(|columns| &*columns[column] as &dyn Array).collect();
            concat(&parts)
                .map_err(|error| Error::internal("bring the records of a block together").with_source(error))
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Ok(Columns { columns, rows: count as usize - bad.len(), bad })
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it did not say why")
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt64Type;
    use arrow_array::{ArrayRef, UInt64Array};

    use super::*;

    /// Lines of one number. It panics at `boom`, at blocks with both `a` and `b`, and always after a panic.
    struct Numbers {
        has_panicked: bool,
    }

    fn places(data: &[u8]) -> Vec<Range<usize>> {
        let mut at = 0;
        let line = |line: &[u8]| {
            at += line.len();
            at - line.len()..at - usize::from(line.ends_with(b"\n"))
        };
        data.split_inclusive(|byte| *byte == b'\n').map(line).collect()
    }

    impl RecordDecoder for Numbers {
        fn decode(&mut self, data: &Bytes, count: usize, _: Option<&Preamble>) -> Result<Columns, Error> {
            let text = std::str::from_utf8(data).unwrap();
            let panics = text.contains("boom") || text.contains('a') && text.contains('b');
            self.has_panicked |= panics;
            assert!(!self.has_panicked, "no number: {text:?}");
            let (mut numbers, mut bad) = (Vec::new(), Vec::new());
            for (index, raw) in places(data).into_iter().enumerate() {
                match text[raw.clone()].parse::<u64>() {
                    Ok(number) => numbers.push(number),
                    Err(_) => bad.push(BadRecord {
                        index: index as u32,
                        raw,
                        code: "parse",
                        reason: Cow::Borrowed("no number"),
                    }),
                }
            }
            assert_eq!(numbers.len() + bad.len(), count);
            let rows = numbers.len();
            Ok(Columns { columns: vec![Arc::new(UInt64Array::from(numbers)) as ArrayRef], rows, bad })
        }

        fn locate(&self, data: &[u8], indexes: &[u32]) -> Vec<Range<usize>> {
            let places = places(data);
            indexes.iter().map(|index| places[*index as usize].clone()).collect()
        }
    }

    fn decode(guarded: &mut Guarded, text: &str) -> (Vec<u64>, Vec<String>) {
        let data = Bytes::from(text.to_owned());
        let count = places(&data).len() as u32;
        let Columns { columns, rows, bad } =
            guarded.decode(Arrived { data: &data, first: 100, count, arrival: 0 }, None).unwrap();
        let numbers = columns[0].as_primitive::<UInt64Type>().values().to_vec();
        assert_eq!(numbers.len(), rows);
        let bad = bad.iter().map(|bad| format!("{} {} {}", bad.index, bad.code, &text[bad.raw.clone()]));
        (numbers, bad.collect())
    }

    fn guarded_of(skip: &[Offset]) -> Guarded {
        Guarded::new(Box::new(|| Box::new(Numbers { has_panicked: false })), "payments".into(), skip.into())
    }

    #[test]
    fn the_record_that_panics_is_known() {
        let mut guarded = guarded_of(&[107]);
        let panic =
            catch_unwind(AssertUnwindSafe(|| decode(&mut guarded, "1\n2\nx\nboom\n5\n"))).unwrap_err();
        assert_eq!(message(&*panic), r#"no number: "boom""#);
        assert_eq!(guarded.at(), Some(3));
        assert_eq!(decode(&mut guarded, "1\n2\n").0, [1, 2], "a new decoder");
        assert_eq!(guarded.at(), None);
    }

    #[test]
    fn a_record_that_is_skipped_is_a_reject_and_the_others_get_through() {
        let mut guarded = guarded_of(&[101, 103]);
        let (numbers, bad) = decode(&mut guarded, "1\nboom 2\nx\nboom 4\n5");
        assert_eq!((numbers, guarded.at()), (vec![1, 5], None));
        assert_eq!(bad, ["1 skipped boom 2", "2 parse x", "3 skipped boom 4"]);
        let (numbers, bad) = decode(&mut guarded, "7\n8\n");
        assert_eq!((numbers, bad.len()), (vec![7, 8], 0), "a record to skip does not panic here");
        let mut alone = guarded_of(&[100]);
        assert_eq!(decode(&mut alone, "boom\n"), (Vec::new(), vec!["0 skipped boom".to_owned()]));
    }

    #[test]
    fn a_panic_over_several_records_names_none_of_them() {
        let mut guarded = guarded_of(&[100, 101]);
        assert!(catch_unwind(AssertUnwindSafe(|| decode(&mut guarded, "a\nb\n"))).is_err());
        assert_eq!(guarded.at(), None);
    }
}
