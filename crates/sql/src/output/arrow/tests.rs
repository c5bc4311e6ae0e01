//! Streams have their rows and nothing else.

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray,
    FixedSizeListArray, Int32Array, Int64Array, LargeListArray, ListArray, ListViewArray, MapArray,
    RecordBatch, RunArray, StringArray, StringViewArray, StructArray, UInt32Array, UnionArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{DataType, Field, Fields};
use arrow_select::take::take_record_batch;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

/// A text, a list of texts, and a number.
type Row = (Option<String>, Vec<Option<String>>, Option<i64>);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let text = || option::weighted(0.8, prop_oneof!["[a-d]", "[a-z]{0,12}", "[a-zä]{13,80}"]);
    vec((text(), vec(text(), 0..4), option::weighted(0.8, any::<i64>())), 1..300)
}

/// Columns of all kinds; the lists of some rows are null and have values all the same.
fn batch(rows: &[Row]) -> RecordBatch {
    let nulls = || Some(NullBuffer::from_iter(rows.iter().map(|(_, _, number)| number.is_some())));
    let texts = rows.iter().map(|(text, ..)| text.as_deref());
    let items: Vec<Option<&str>> =
        rows.iter().flat_map(|(_, items, _)| items.iter().map(Option::as_deref)).collect();
    let lengths = || rows.iter().map(|(_, items, _)| items.len());
    let view = || {
        let mut builder = StringViewBuilder::new().with_fixed_block_size(256);
        items.iter().for_each(|item| builder.append_option(*item));
        Arc::new(builder.finish()) as ArrayRef
    };
    let field = |name, kind| Arc::new(Field::new(name, kind, true));
    let item = || field("item", DataType::Utf8View);

    let names: ArrayRef = Arc::new(texts.clone().collect::<StringViewArray>());
    let bytes = rows.iter().map(|(text, ..)| text.as_ref().map(String::as_bytes));
    let strings = StringArray::from_iter(texts.clone());
    let hidden = StringArray::new(strings.offsets().clone(), strings.values().clone(), nulls());
    let numbers: ArrayRef = Arc::new(rows.iter().map(|(_, _, number)| *number).collect::<Int64Array>());
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths());
    let list: ArrayRef = Arc::new(ListArray::new(item(), offsets.clone(), view(), nulls()));
    let pair = Fields::from(vec![field("a", DataType::Utf8View), field("b", DataType::Utf8)]);
    let second: ArrayRef = Arc::new(items.iter().copied().collect::<StringArray>());
    let pairs = StructArray::new(pair.clone(), vec![view(), Arc::clone(&second)], None);
    let large = LargeListArray::new(
        field("item", DataType::Struct(pair)),
        OffsetBuffer::from_lengths(lengths()),
        Arc::new(pairs),
        nulls(),
    );
    let sizes: ScalarBuffer<i32> = lengths().map(|length| length as i32).collect();
    let starts = offsets.inner().slice(0, rows.len());
    let viewed = ListViewArray::new(item(), starts, sizes, view(), nulls());
    let fixed = FixedSizeListArray::new(item(), 1, Arc::clone(&names), None);
    let keys: ArrayRef = Arc::new((0..items.len() as i32).collect::<Int32Array>());
    let entry = Fields::from(vec![
        Field::new("k", DataType::Int32, false),
        Field::new("v", DataType::Utf8View, true),
    ]);
    let entries = StructArray::new(entry.clone(), vec![keys, view()], None);
    let map = MapArray::new(
        Arc::new(Field::new("entries", DataType::Struct(entry), false)),
        offsets,
        entries,
        nulls(),
        false,
    );
    let words: DictionaryArray<Int32Type> = texts.clone().collect();
    let word_views = arrow_cast::cast(words.values(), &DataType::Utf8View).unwrap();
    let words = DictionaryArray::new(words.keys().clone(), word_views);
    let nested = Fields::from(vec![field("l", list.data_type().clone()), field("n", DataType::Int64)]);
    let nested = StructArray::new(nested, vec![Arc::clone(&list), Arc::clone(&numbers)], nulls());
    let kinds = [(0, field("s", DataType::Utf8View)), (3, field("n", DataType::Int64))];
    let ids: ScalarBuffer<i8> = (0..rows.len()).map(|row| [0, 3][row % 2]).collect();
    let places: ScalarBuffer<i32> = (0..rows.len() as i32).collect();
    let union = |offsets| {
        let children = vec![Arc::clone(&names), Arc::clone(&numbers)];
        UnionArray::try_new(kinds.clone().into_iter().collect(), ids.clone(), offsets, children).unwrap()
    };
    let ends = Int32Array::from_iter_values(1..=rows.len() as i32);
    let runs = RunArray::try_new(&ends, &names).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("names", Arc::clone(&names)),
        ("bytes", Arc::new(bytes.collect::<BinaryViewArray>())),
        ("strings", Arc::new(strings)),
        ("hidden", Arc::new(hidden)),
        ("numbers", Arc::clone(&numbers)),
        (
            "flags",
            Arc::new(rows.iter().map(|(_, _, number)| number.map(|n| n > 0)).collect::<BooleanArray>()),
        ),
        ("list", list),
        ("large", Arc::new(large)),
        ("viewed", Arc::new(viewed)),
        ("fixed", Arc::new(fixed)),
        ("map", Arc::new(map)),
        ("words", Arc::new(words)),
        ("nested", Arc::new(nested)),
        ("sparse", Arc::new(union(None))),
        ("dense", Arc::new(union(Some(places)))),
        ("runs", Arc::new(runs)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
        .unwrap()
}

fn encoded(batches: &[RecordBatch], how: Arrow) -> Vec<u8> {
    let mut ipc = Ipc::new(batches[0].schema_ref(), how);
    let mut out = Vec::new();
    ipc.head(&mut out).unwrap();
    batches.iter().for_each(|batch| ipc.batch(batch, &mut out).unwrap());
    ipc.end(&mut out).unwrap();
    out
}

fn decoded(bytes: &[u8]) -> Vec<RecordBatch> {
    StreamReader::try_new(Cursor::new(bytes), None).unwrap().map(Result::unwrap).collect()
}

const LZ4: Arrow = Arrow { compression: Compression::Lz4, addresses: Addresses::Binary };

proptest! {
    /// A stream of some rows of a batch is not a twentieth larger than one of a batch that has been made of them alone, but for
    /// the padding of buffers to 64 bytes.
    #[test]
    fn parts_of_batches_are_as_small_as_their_rows(
        rows in rows(), from in any::<prop::sample::Index>(), length in any::<prop::sample::Index>(),
        picked in vec(any::<prop::sample::Index>(), 1..50),
    ) {
        let whole = batch(&rows);
        let from = from.index(rows.len());
        let length = length.index(rows.len() - from) + 1;
        let slice = whole.slice(from, length);
        let alone = encoded_as_is(&batch(&rows[from..from + length]));
        let bytes = encoded(std::slice::from_ref(&slice), Arrow::default());
        prop_assert!(bytes.len() <= alone + alone / 20 + 1_024, "{} bytes, {alone} alone", bytes.len());
        prop_assert_eq!(decoded(&bytes), std::slice::from_ref(&slice));
        prop_assert_eq!(decoded(&encoded(std::slice::from_ref(&slice), LZ4)), [slice]);

        let places: Vec<usize> = picked.iter().map(|place| place.index(rows.len())).collect();
        let taken: Vec<Row> = places.iter().map(|place| rows[*place].clone()).collect();
        let places = UInt32Array::from_iter_values(places.iter().map(|place| *place as u32));
        let taken_batch = take_record_batch(&whole, &places).unwrap();
        let alone = encoded_as_is(&batch(&taken));
        let both = [taken_batch, whole];
        let bytes = encoded(&both[..1], Arrow::default());
        prop_assert!(bytes.len() <= alone + alone / 20 + 1_024, "{} bytes, {alone} alone", bytes.len());
        // Dictionaries change from batch to batch.
        prop_assert_eq!(decoded(&encoded(&both, Arrow::default())), both);
    }
}

/// The length of the stream.
fn encoded_as_is(batch: &RecordBatch) -> usize {
    let mut writer = begin(batch.schema_ref(), Compression::None).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    writer.get_ref().len()
}

/// As Parquet is read: batches of 8,192 rows whose views point into a page of a dictionary.
#[test]
fn views_bring_no_pages_along() {
    let page = StringViewArray::from_iter_values(
        (0..20_000).map(|n| format!("a-name-of-49-bytes.as{n:020}.example")),
    );
    let batches: Vec<RecordBatch> = (0..4u32)
        .map(|number| {
            let places = UInt32Array::from_iter_values((0..8_192).map(|row| (row % 1_000) * 19 + number));
            let names = arrow_select::take::take(&page, &places, None).unwrap();
            RecordBatch::try_from_iter([("name", names)]).unwrap()
        })
        .collect();
    let bytes = encoded(&batches, Arrow::default());
    assert_eq!(decoded(&bytes), batches);
    // Views are 16 bytes, and each of 1,000 names is there once a batch.
    let least = 4 * (8_192 * 16 + 1_000 * page.value(0).len());
    assert!((least..least + 4_096).contains(&bytes.len()), "{} bytes, not {least}", bytes.len());
    assert!(batches.iter().map(encoded_as_is).sum::<usize>() > 5 * least);
    let small = encoded(&batches, LZ4);
    assert_eq!(decoded(&small), batches);
    assert!(small.len() * 2 < bytes.len(), "{} bytes", small.len());
}

#[test]
fn what_is_shared_does_not_grow() {
    let long = "x".repeat(1 << 20);
    let mut builder = StringViewBuilder::new().with_deduplicate_strings();
    (0..8_192).for_each(|_| builder.append_value(&long));
    let names: ArrayRef = Arc::new(builder.finish());
    let batch = RecordBatch::try_from_iter([("name", names)]).unwrap();
    assert!(encoded(&[batch.slice(0, 8_000)], Arrow::default()).len() < 2 << 20);
}

#[test]
fn addresses_are_texts_at_any_depth() {
    let four = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];
    let six = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let values = [Some(four), None, Some(six)];
    let plain: ArrayRef =
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.into_iter(), 16).unwrap());
    let field = Arc::new(
        Field::new("addr", plain.data_type().clone(), true)
            .with_metadata([("kind".to_owned(), "x".to_owned())].into()),
    );
    let list = ListArray::new(
        Arc::clone(&field),
        OffsetBuffer::from_lengths([2, 0, 1]),
        Arc::clone(&plain),
        Some(vec![true, false, true].into()),
    );
    let inner = StructArray::new(vec![Arc::clone(&field)].into(), vec![Arc::clone(&plain)], None);
    let keys = arrow_array::PrimitiveArray::<Int8Type>::from(vec![2, 0, 2]);
    let words = DictionaryArray::new(keys, Arc::clone(&plain));
    let other: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter([[1u8; 6]; 3].iter()).unwrap());
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("plain", plain, true),
        ("list", Arc::new(list) as ArrayRef, true),
        ("struct", Arc::new(inner) as ArrayRef, true),
        ("words", Arc::new(words) as ArrayRef, true),
        ("mac", Arc::clone(&other), true),
    ])
    .unwrap();
    let text = Arrow { compression: Compression::None, addresses: Addresses::Text };
    let came = decoded(&encoded(&[batch.slice(0, 3)], text)).remove(0);
    let expected = StringArray::from(vec![Some("10.1.2.3"), None, Some("2001:db8::1")]);
    assert_eq!(came.column(0).as_string::<i32>(), &expected);
    let list = came.column(1).as_list::<i32>();
    assert_eq!(list.value(0).as_string::<i32>(), &expected.slice(0, 2));
    assert!(list.is_null(1));
    assert_eq!(came.column(2).as_struct().column(0).as_string::<i32>(), &expected);
    assert_eq!(came.column(2).as_struct().fields()[0].metadata(), field.metadata());
    let words = arrow_cast::cast(came.column(3), &DataType::Utf8).unwrap();
    assert_eq!(words.as_string::<i32>(), &StringArray::from(vec!["2001:db8::1", "10.1.2.3", "2001:db8::1"]));
    assert_eq!(came.column(4), &other);
    // No rows, no columns.
    assert_eq!(decoded(&encoded(&[batch.slice(1, 0)], text))[0].num_rows(), 0);
    let none = batch.project(&[]).unwrap();
    assert_eq!(decoded(&encoded(&[none], text))[0].num_rows(), 3);
    let lists = ListBuilder::new(StringViewBuilder::new()).finish();
    let empty = RecordBatch::try_from_iter([("lists", Arc::new(lists) as ArrayRef)]).unwrap();
    assert_eq!(decoded(&encoded(std::slice::from_ref(&empty), LZ4)), [empty]);
}
