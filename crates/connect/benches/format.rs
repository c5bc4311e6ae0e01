//! How fast formats read and write, on one thread.
//!
//! `cargo bench -p thalweg-connect --bench format`
//!
//! One item is a record; inputs are made payments. The argument is the number of a record's fields.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray};
use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use expect_test::expect;
use thalweg_connect::format::RecordFormat;
use thalweg_connect::generate::GeneratorSpec;
use thalweg_connect::source::SourceDecoder;
use thalweg_connect::{FormatSpec, OptionValue, Options, Registry, SourceContext, SourceTime, sink};
use thalweg_flow::{Decoder, Payload, Poll, RawBlock, TaskInfo};
use thalweg_types::{Batch, DataType, Field, Schema, SeqRange, Seqs, TimeUnit};

/// Records per block, about what a file source cuts at 256 KiB.
const BLOCK: usize = 7_000;
const FORMATS: [&str; 2] = ["csv", "ndjson"];
const FIELDS: [usize; 2] = [4, 103];

/// Fields of all records of a run: 300,000 payments, or fewer that are wider.
static VALUES: LazyLock<usize> = LazyLock::new(|| {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    if is_measured { 1_200_000 } else { 4 * BLOCK }
});

/// Made payments as batches, and as blocks of a format.
struct Payments {
    schema: Schema,
    batches: Vec<Batch>,
    records: usize,
}

impl Payments {
    fn new(fields: usize, values: usize) -> Self {
        let mut generator = GeneratorSpec::new("payments");
        generator.fields = Some(fields);
        let generator = generator.build().expect("a spec within its bounds");
        let batch =
            |block: usize| numbered(generator.batch((block * BLOCK) as u64, BLOCK), (block * BLOCK) as u64);
        let batches: Vec<Batch> = (0..(values / fields).div_ceil(BLOCK)).map(batch).collect();
        let records = batches.iter().map(Batch::len).sum();
        Self { schema: generator.schema().clone(), batches, records }
    }

    fn encode(&self, format: &str) -> Vec<Bytes> {
        let mut encoder = spec(format).encoder(&self.schema).expect("a format that writes");
        let encode = |batch: &Batch| {
            let mut bytes = Vec::new();
            encoder.encode(batch, &mut bytes);
            Bytes::from(bytes)
        };
        self.batches.iter().map(encode).collect()
    }

    fn context(&self, format: &str, options: Options) -> SourceContext {
        SourceContext {
            job: "speed".into(),
            name: "payments".into(),
            schema: self.schema.clone(),
            format: Some(without_header(format)),
            options,
            time: SourceTime::Field(0),
            max_ahead: None,
            data_dir: PathBuf::new(),
            skip: [].into(),
            acknowledges: false,
            goes_on: false,
            is_answered_elsewhere: false,
        }
    }

    fn reader(&self, format: &str) -> Arc<dyn RecordFormat> {
        without_header(format).reader(&self.schema).expect("a schema to read")
    }

    /// Decodes blocks as a source does, and hands the batches to `see`; how many records it read.
    fn decode(&self, format: &str, blocks: &[Bytes], mut see: impl FnMut(&Batch)) -> usize {
        let reader = self.reader(format);
        let made = Arc::clone(&reader);
        let context = self.context(format, Options::default());
        let mut decoder = SourceDecoder::new(&context, move || made.decoder()).expect("a timestamp");
        let mut splitter = reader.splitter();
        let (mut first, mut place) = (0, 0);
        for data in blocks {
            let split = splitter.split(place, data, false).expect("records");
            place += data.len() as u64;
            let range = SeqRange::new(first, first + u64::from(split.records));
            let payload = Payload::Bytes { data: data.clone(), context: None };
            let block = RawBlock { partition: 0, first, count: split.records, payload };
            let decoded = decoder.decode(&block, range, 0).expect("records");
            assert!(decoded.rejects.is_none());
            first = range.end;
            see(&decoded.records);
        }
        first as usize
    }
}

fn spec(name: &str) -> FormatSpec {
    let plugin = Arc::clone(Registry::builtin().format(name).expect("a format of this build"));
    FormatSpec { plugin, options: Options::default() }
}

fn without_header(name: &str) -> FormatSpec {
    let mut format = spec(name);
    if name == "csv" {
        format.options.0.insert("header".to_owned(), OptionValue::Bool(false));
    }
    format
}

fn numbered(records: RecordBatch, first: u64) -> Batch {
    let rows = records.num_rows();
    Batch::new(SeqRange::new(first, first + rows as u64), records, vec![0; rows].into(), Seqs::Dense(first))
}

fn digest<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> u64 {
    batches.into_iter().fold(0, |sum: u64, batch| sum.wrapping_add(sink::digest(batch)))
}

/// Formats and widths, as names of a table.
fn cases() -> impl Iterator<Item = String> {
    FORMATS.iter().flat_map(|format| FIELDS.map(|fields| format!("{format} {fields}")))
}

fn case(name: &str) -> (&str, usize) {
    let (format, fields) = name.split_once(' ').expect("a format and its fields");
    (format, fields.parse().expect("a number of fields"))
}

#[divan::bench(args = cases(), sample_count = 10)]
fn encode(bencher: Bencher<'_, '_>, name: &str) {
    let (format, fields) = case(name);
    let payments = Payments::new(fields, *VALUES);
    bencher.counter(ItemsCount::new(payments.records)).bench_local(|| {
        let blocks = payments.encode(format);
        assert_eq!(blocks.len(), payments.batches.len());
        blocks
    });
}

#[divan::bench(args = cases(), sample_count = 10)]
fn split(bencher: Bencher<'_, '_>, name: &str) {
    let (format, fields) = case(name);
    let payments = Payments::new(fields, *VALUES);
    let (blocks, reader) = (payments.encode(format), payments.reader(format));
    bencher.counter(ItemsCount::new(payments.records)).bench_local(|| {
        let mut splitter = reader.splitter();
        let (mut records, mut place) = (0, 0);
        for block in &blocks {
            records += splitter.split(place, block, false).expect("records").records as usize;
            place += block.len() as u64;
        }
        assert_eq!(records, payments.records);
    });
}

#[divan::bench(args = cases(), sample_count = 10)]
fn split_and_decode(bencher: Bencher<'_, '_>, name: &str) {
    let (format, fields) = case(name);
    let payments = Payments::new(fields, *VALUES);
    let blocks = payments.encode(format);
    bencher.counter(ItemsCount::new(payments.records)).bench_local(|| {
        let read = payments.decode(format, &blocks, |batch| {
            divan::black_box(batch);
        });
        assert_eq!(read, payments.records);
    });
}

/// The whole way of a CSV file: read, cut, decoded.
#[divan::bench(args = FIELDS, sample_count = 10)]
fn csv_file(bencher: Bencher<'_, '_>, fields: usize) {
    let payments = Payments::new(fields, *VALUES);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("payments.csv");
    std::fs::write(&path, payments.encode("csv").concat()).expect("room for the file");
    let options = Options([("path".to_owned(), OptionValue::Paths(vec![path.into()]))].into());
    let context = payments.context("csv", options);
    bencher.counter(ItemsCount::new(payments.records)).bench_local(|| {
        assert_eq!(read_file(&context, |_| ()), payments.records);
    });
}

fn read_file(context: &SourceContext, mut see: impl FnMut(&Batch)) -> usize {
    let registry = Registry::builtin();
    let task = TaskInfo::alone("speed", "payments");
    let mut built = registry.source("file").expect("a source").build(context.clone()).expect("the file");
    let mut decoder = (built.decoder)(&task).expect("a decoder");
    let mut read = 0;
    while let Poll::Block(block) = built.source.poll(256 << 10, 0).expect("a readable file") {
        let range = SeqRange::new(block.first, block.first + u64::from(block.count));
        read += block.count as usize;
        see(&decoder.decode(&block, range, 0).expect("records").records);
    }
    read
}

/// The digest of a sink, over six numeric columns.
#[divan::bench(sample_count = 10)]
fn digest_of_numbers(bencher: Bencher<'_, '_>) {
    let batch = numbers();
    bencher.counter(ItemsCount::new(BLOCK)).bench_local(|| sink::digest(divan::black_box(&batch)));
}

fn numbers() -> Batch {
    let fields = vec![
        Field::new("ts", DataType::Timestamp(TimeUnit::Micro)),
        Field::new("a", DataType::Int64),
        Field::new("b", DataType::Int64),
        Field::new("c", DataType::Float64),
        Field::new("d", DataType::Float64),
        Field::new("e", DataType::Float64),
    ];
    let schema = Schema::new(fields);
    let numbers = || 0..BLOCK as i64;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from_iter_values(numbers())),
        Arc::new(Int64Array::from_iter_values(numbers())),
        Arc::new(Int64Array::from_iter_values(numbers().map(|n| n * 7))),
        Arc::new(Float64Array::from_iter_values(numbers().map(|n| n as f64 / 3.0))),
        Arc::new(Float64Array::from_iter_values(numbers().map(|n| n as f64))),
        Arc::new(Float64Array::from_iter_values(numbers().map(|n| -n as f64))),
    ];
    numbered(RecordBatch::try_new(Arc::clone(schema.arrow()), columns).expect("six columns"), 0)
}

#[divan::bench(args = ["payments 4", "readings 66"], sample_count = 10)]
fn generate(bencher: Bencher<'_, '_>, name: &str) {
    let (kind, fields) = case(name);
    let mut spec = GeneratorSpec::new(kind);
    spec.fields = Some(fields);
    let generator = spec.build().expect("a spec within its bounds");
    bencher.counter(ItemsCount::new(BLOCK)).bench_local(|| generator.batch(0, BLOCK));
}

/// The records that were made are read back, in equal number, through each format and from a file.
fn check() {
    let mut table = String::new();
    for fields in FIELDS {
        let payments = Payments::new(fields, 4 * BLOCK);
        let made = digest(&payments.batches);
        table += &format!("{fields} fields: {} records, digest {made:016x}\n", payments.records);
        for format in FORMATS {
            let blocks = payments.encode(format);
            let mut seen = 0_u64;
            let read =
                payments.decode(format, &blocks, |batch| seen = seen.wrapping_add(sink::digest(batch)));
            let bytes: usize = blocks.iter().map(Bytes::len).sum();
            assert_eq!(seen, made, "{format}");
            table += &format!("  {format}: {read} records read back from {bytes} bytes\n");
        }
    }
    table += &format!("numbers: digest {:016x}\n", sink::digest(&numbers()));
    expect![[r#"
        4 fields: 7000 records, digest b9be5e41539ab7d0
          csv: 7000 records read back from 249644 bytes
          ndjson: 7000 records read back from 515644 bytes
        103 fields: 7000 records, digest b300e7981a5c8b7c
          csv: 7000 records read back from 5690491 bytes
          ndjson: 7000 records read back from 11258723 bytes
        numbers: digest 6e05b822c8c50c51
    "#]]
    .assert_eq(&table);
}

fn main() {
    check();
    divan::main();
}
