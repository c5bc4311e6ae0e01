//! Rows and frames that are too large, and hostile lengths.

use arrow_array::builder::{ListBuilder, StringViewBuilder};
use arrow_array::{BinaryViewArray, Int64Array, UInt8Array};
use thalweg_types::Class;

use super::*;

fn text(bytes: usize) -> RecordBatch {
    let texts = vec![vec![7_u8; bytes], vec![1]];
    column(Arc::new(BinaryViewArray::from_iter_values(texts)))
}

fn list(items: usize) -> RecordBatch {
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    (0..items).for_each(|_| lists.values().append_value("x"));
    lists.append(true);
    column(Arc::new(lists.finish()))
}

#[test]
fn a_row_above_a_mebibyte_is_refused_and_leaves_no_mark() {
    let mut builder = Builder::new(sender(), Mark::START, Settings::default());
    let refused = builder.push(0, &text(MAX_ROW_BYTES), [row(0, at(3, 0)), row(1, at(4, 0))]).unwrap();
    let error = FrameError::RowTooLarge { bytes: MAX_ROW_BYTES + 4, most: MAX_ROW_BYTES };
    assert_eq!(refused, [Refused { row: 0, position: at(3, 0), error }]);
    assert_eq!(refused[0].error.class(), Class::User);
    let frame = parse_rows(&builder.cut(None).unwrap());
    assert_eq!((frame.len(), frame.places.marks[0]), (1, Mark { position: at(4, 0), made: 1 }));

    let largest = MAX_ROW_BYTES - 4;
    assert_eq!(builder.push(0, &text(largest), [row(0, at(5, 0)), row(1, at(5, 1))]), Ok(vec![]));
    let frames: Vec<_> = std::iter::from_fn(|| builder.cut(None)).map(|frame| parse_rows(&frame)).collect();
    assert_eq!(frames.iter().map(RowFrame::len).collect::<Vec<_>>(), [1, 1], "it has a frame of its own");
    assert_same(&decode(&frames[0], &[text(1).schema()])[0].records, &text(largest).slice(0, 1));
}

#[test]
fn lists_have_a_bound_of_items() {
    let mut builder = Builder::new(sender(), Mark::START, Settings::default());
    let refused = builder.push(0, &list(MAX_ROWS + 1), [row(0, at(0, 0))]).unwrap();
    let error = FrameError::TooManyItems { items: MAX_ROWS + 1, most: MAX_ROWS };
    assert_eq!(refused, [Refused { row: 0, position: at(0, 0), error }]);
    assert_eq!(builder.push(0, &list(MAX_ROWS), [row(0, at(0, 0))]), Ok(vec![]));
    for offset in 1..20 {
        assert_eq!(builder.push(0, &list(MAX_ROWS / 10), [row(0, at(offset, 0))]), Ok(vec![]));
    }
    let mut rows = 0;
    while let Some(frame) = builder.cut(None) {
        let frame = parse_rows(&frame);
        assert_eq!(decode(&frame, &[list(1).schema()])[0].records.num_rows(), frame.len());
        rows += frame.len();
    }
    assert_eq!(rows, 20);
}

#[test]
fn a_position_that_makes_twenty_megabytes_is_cut_into_frames() {
    let rows = 400_000;
    let records = column(Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row << 40))));
    let mut builder = Builder::new(sender(), Mark::START, Settings::default());
    builder.push(0, &records, (0..rows as u32).map(|number| row(number, at(9, 0)))).unwrap();
    let mut made = 0;
    while let Some(frame) = builder.cut(None) {
        let frame = parse_rows(&frame);
        assert_eq!(frame.head.after.made, made);
        assert!(frame.len() <= MAX_ROWS);
        made += frame.len() as u32;
    }
    assert_eq!(i64::from(made), rows);
}

#[test]
fn a_type_of_no_field_is_refused() {
    let records = column(Arc::new(UInt8Array::from(vec![1])));
    let mut builder = Builder::new(sender(), Mark::START, Settings::default());
    let error = FrameError::Unsupported { data_type: arrow_schema::DataType::UInt8 };
    assert_eq!(builder.push(0, &records, [row(0, at(0, 0))]), Err(error.clone()));
    assert!(builder.is_empty() && error.class() == Class::Internal);
}

#[test]
fn a_job_above_a_mebibyte_is_refused() {
    let spec = |bytes| Spec { number: 1, semantics: 1, job: "x".repeat(bytes) };
    let settings = Settings::default();
    assert!(spec(MAX_ROW_BYTES).encode(&settings).is_ok());
    let error = FrameError::JobTooLarge { bytes: MAX_ROW_BYTES + 1, most: MAX_ROW_BYTES };
    assert_eq!(spec(MAX_ROW_BYTES + 1).encode(&settings), Err(error));
}

/// A frame whose body has `rows` rows, as far as its head says.
fn forged(rows: u64, body: &[u8]) -> Vec<u8> {
    let Sender { spec, origin, lineage } = sender();
    let head = Head { spec, origin, lineage, after: Mark::START, arrival: 0, task_time: None };
    let put_fields = |frame: &mut Vec<u8>| {
        head.put(frame);
        varint::put(rows, frame);
        frame.push(0);
    };
    with_body(Kind::Rows, head.flags(), put_fields, body, 0.0)
}

#[test]
fn hostile_lengths_are_refused_by_name() {
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let texts = [[0, 0].as_slice(), &most].concat();
    let lists = [[0, 0].as_slice(), &most].concat();
    let longer = [[0, 0].as_slice(), &[0x81, 0x80, 2]].concat();
    let ints = column(Arc::new(Int64Array::from(vec![0]))).schema();
    for (what, rows, body, schema) in [
        ("rows", 0, &[][..], &ints),
        ("rows", MAX_ROWS as u64 + 1, &[], &ints),
        ("rows", u64::MAX, &[], &ints),
        ("position", 3, &[0, 0], &ints),
        ("bits of a section", 1, &[0, 1], &ints),
        ("flags of a section", 1, &[0, 8], &ints),
        ("length of a text", 1, &texts, &text(1).schema()),
        ("items of a list", 1, &lists, &list(1).schema()),
        ("items of a list", 1, &longer, &list(1).schema()),
        ("end", 1, &[0, 0, 7, 7], &ints),
    ] {
        let read = match Frame::parse(&forged(rows, body)) {
            Ok(Frame::Rows(rows)) => rows.decode(|_| Some(Arc::clone(schema))).map(|_| ()),
            other => other.map(|_| ()),
        };
        assert!(
            matches!(&read, Err(FrameError::Damaged { what: found, .. }) if *found == what),
            "{what}: {read:?}"
        );
    }
}
