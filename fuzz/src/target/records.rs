//! What holds for every text format: splitter and decoder agree, and written records read back.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use bytes::Bytes;
use thalweg_connect::format::{Preamble, RecordFormat};
use thalweg_connect::{FormatPlugin, OptionValue, Options};
use thalweg_types::{Batch, DataType, Field, Schema, SeqRange, Seqs, TimeUnit};

/// Records larger than this are rejects, so that inputs of a few hundred bytes reach that code.
const MAX_RECORD: u64 = 512;

/// A schema that the input picks; together they have every type, nullable and not.
pub(super) fn schema(choice: u8) -> Schema {
    let payments = || {
        vec![
            Field::new("ts", DataType::Timestamp(TimeUnit::Milli)),
            Field::new("card", DataType::String),
            Field::new("amount", DataType::Float64),
        ]
    };
    Schema::new(match choice % 4 {
        0 => payments(),
        1 => payments().into_iter().map(Field::nullable).collect(),
        2 => vec![
            Field::new("flag", DataType::Bool),
            Field::new("int", DataType::Int64),
            Field::new("uint", DataType::UInt64).nullable(),
            Field::new("price", DataType::Decimal { precision: 12, scale: 2 }),
            Field::new("wide", DataType::Decimal { precision: 60, scale: 9 }).nullable(),
        ],
        _ => vec![
            Field::new("raw", DataType::Bytes).nullable(),
            Field::new("from", DataType::Ip).nullable(),
            Field::new("s", DataType::Timestamp(TimeUnit::Second)).nullable(),
            Field::new("us", DataType::Timestamp(TimeUnit::Micro)).nullable(),
            Field::new("ns", DataType::Timestamp(TimeUnit::Nano)).nullable(),
            Field::new("user.id", DataType::String).nullable(),
        ],
    })
}

/// Options of a format, with a small bound for the length of records.
pub(super) fn options(more: impl IntoIterator<Item = (&'static str, OptionValue)>) -> Options {
    let mut options = Options::default();
    options.0.insert("max_record".to_owned(), OptionValue::Size(MAX_RECORD));
    options.0.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
    options
}

/// Reads `data` whole and byte by byte, and writes the decoded records back.
pub(super) fn check(plugin: &dyn FormatPlugin, schema: &Schema, options: &Options, data: &[u8]) {
    let format = plugin.reader(schema, options).expect("the schema and the options are good ones");
    let whole = decode(&*format, data, data.len());
    let pieces = decode(&*format, data, 7);
    match (whole, pieces) {
        (Some(whole), Some(pieces)) => {
            let bad = |read: &Read| (read.records, read.bad);
            assert_eq!(bad(&whole), bad(&pieces), "the records depend on how bytes arrive");
            let kept: usize = pieces.batches.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(whole.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), kept);
            for records in whole.batches {
                round_trip(plugin, schema, options, &records);
            }
        }
        (None, None) => {}
        (whole, _) => panic!(
            "the stream is readable {} only",
            if whole.is_some() { "as a whole" } else { "piece by piece" }
        ),
    }
}

/// What a stream came to.
#[derive(Default)]
struct Read {
    records: u64,
    bad: u64,
    batches: Vec<RecordBatch>,
}

/// Splits and decodes a stream that arrives `step` bytes at a time; `None` where it cannot be read as a whole.
fn decode(format: &dyn RecordFormat, data: &[u8], step: usize) -> Option<Read> {
    let mut splitter = format.splitter();
    let mut decoder = format.decoder();
    let mut read = Read::default();
    let (mut at, mut arrived) = (0, step.min(data.len()));
    let mut in_comment = false;
    loop {
        let at_end = arrived == data.len();
        if in_comment {
            match data[at..arrived].iter().position(|byte| *byte == b'\n') {
                Some(end) => at += end + 1,
                None if at_end => return Some(read),
                None => {
                    (at, arrived) = (arrived, (arrived + step).min(data.len()));
                    continue;
                }
            }
        }
        let split = splitter.split(at as u64, &data[at..arrived], at_end).ok()?;
        assert!(split.skip + split.bytes <= arrived - at, "a split goes beyond the bytes");
        let block = Bytes::copy_from_slice(&data[at + split.skip..][..split.bytes]);
        at += split.skip + split.bytes;
        in_comment = split.is_in_comment;
        if split.records > 0 {
            assert!(split.bytes >= split.records as usize, "each record has a byte");
            let preamble: Option<Preamble> = splitter.preamble();
            let columns = decoder
                .decode(&block, split.records as usize, preamble.as_ref())
                .expect("splitter and decoder agree about the count");
            assert_eq!(columns.rows + columns.bad.len(), split.records as usize, "a record became nothing");
            for bad in &columns.bad {
                assert!(bad.raw.start <= bad.raw.end && bad.raw.end <= block.len(), "a reject is elsewhere");
            }
            assert!(columns.bad.is_sorted_by_key(|bad| bad.index));
            let indexes: Vec<u32> = (0..split.records).collect();
            let places = decoder.locate(&block, &indexes);
            assert_eq!(places.len(), indexes.len(), "a record cannot be found again");
            read.records += u64::from(split.records);
            read.bad += columns.bad.len() as u64;
            if columns.rows > 0 {
                read.batches.push(batch_of(columns.columns, columns.rows));
            }
        } else if split.skip + split.bytes == 0 {
            if at_end {
                return Some(read);
            }
            arrived = (arrived + step).min(data.len());
        }
    }
}

fn batch_of(columns: Vec<ArrayRef>, rows: usize) -> RecordBatch {
    assert!(columns.iter().all(|column| column.len() == rows), "columns of different lengths");
    let columns = columns.into_iter().enumerate().map(|(index, column)| (index.to_string(), column, true));
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
}

/// What the encoder writes, the decoder reads back as the same values.
fn round_trip(plugin: &dyn FormatPlugin, schema: &Schema, options: &Options, records: &RecordBatch) {
    let records = RecordBatch::try_new(Arc::clone(schema.arrow()), records.columns().to_vec())
        .expect("columns have the types of their fields");
    let (text, skipped) = encode(plugin, schema, options, &records);
    let rows = records.num_rows() as u64 - skipped;
    // The written text may be longer than the one read (`1e300` has 301 digits then).
    let mut options = options.clone();
    options.0.insert("max_record".to_owned(), OptionValue::Size(1 << 20));
    let format = plugin.reader(schema, &options).expect("as before");
    let again = decode(&*format, &text, text.len()).expect("written records can be read");
    assert_eq!((again.records, again.bad), (rows, 0), "{:?}", String::from_utf8_lossy(&text));
    for again in again.batches {
        let again = RecordBatch::try_new(Arc::clone(schema.arrow()), again.columns().to_vec())
            .expect("columns have the types of their fields");
        let (second, skipped) = encode(plugin, schema, &options, &again);
        assert_eq!(skipped, 0, "written once and not again");
        assert_eq!(
            String::from_utf8_lossy(&text),
            String::from_utf8_lossy(&second),
            "not read back as written"
        );
    }
}

/// What is written, and how many records the format has no way to write.
fn encode(
    plugin: &dyn FormatPlugin,
    schema: &Schema,
    options: &Options,
    records: &RecordBatch,
) -> (Vec<u8>, u64) {
    let mut encoder = plugin.encoder(schema, options).expect("the schema and the options are good ones");
    let rows = records.num_rows();
    let range = SeqRange::new(0, rows as u64);
    let batch = Batch::new(range, records.clone(), vec![0; rows].into(), Seqs::Dense(0));
    let mut out = Vec::new();
    encoder.start(&mut out);
    encoder.encode(&batch, &mut out);
    (out, encoder.take_refused().len() as u64)
}
