//! Size and speed of frames, beside Arrow IPC and a row at a time; and what the entropy switch is worth.
//!
//! `cargo bench -p thalweg-cluster --bench frames`
//!
//! One item is a row. A measured run prints the tables of sizes that [`check`] holds. The entropy switch is tried on
//! readings of the DEBS 2012 Grand Challenge, which are no part of the project: `THALWEG_DATA` names the folder that has
//! them, else they are looked for in `../shared/data`; where they are not, that part is left out by name.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::{
    ArrayRef, BinaryViewArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray, StringViewArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::Buffer;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_ipc::{CompressionType, MetadataVersion, root_as_message};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType, Schema, SchemaRef};
use divan::Bencher;
use divan::counter::ItemsCount;
use expect_test::{Expect, expect};
use fastrand::Rng;
use thalweg_cluster::frame::{Builder, Frame, Row, Sender, Settings};
use thalweg_cluster::positions::{Mark, Origin, Position};
use thalweg_connect::generate::GeneratorSpec;
use thalweg_types::Micros;

const ROWS: [usize; 4] = [1, 8, 64, 4_096];
const CASES: [(&str, usize); 3] = [("payments", 4), ("payments", 103), ("readings", 66)];

/// When the first row arrived: live, the event times are near it.
const ARRIVAL: Micros = 1_700_000_000_000_000;

/// Settings that never compress, those of every node, and settings that always compress.
const SWITCHES: [(&str, f32); 3] = [("never", 0.0), ("by entropy", DEFAULT), ("always", 9.0)];
const DEFAULT: f32 = 6.3;

static IS_MEASURED: LazyLock<bool> = LazyLock::new(|| std::env::args().any(|argument| argument == "--bench"));

fn settings(compress_below: f32) -> Settings {
    Settings { compress_below, ..Settings::default() }
}

/// The first rows of a kind of made-up records.
fn records(kind: &str, fields: usize, rows: usize) -> RecordBatch {
    let mut spec = GeneratorSpec::new(kind);
    spec.fields = Some(fields);
    spec.build().expect("a spec within its bounds").batch(0, rows)
}

/// Frames of a unit that sends every third row of its input, one each microsecond or so, to this destination.
fn encode(records: &RecordBatch, settings: Settings) -> Vec<Vec<u8>> {
    let origin = Origin::Unit { stage: 1, partition: 17 };
    let sender = Sender { spec: 3, origin, lineage: Some(0x0123_4567_89ab_cdef) };
    let after = Mark { position: Position { offset: 1_000_000, row: 5 }, made: 1 };
    let mut builder = Builder::new(sender, after, settings);
    let rows = (0..records.num_rows() as u32).map(|row| Row {
        row,
        position: Position { offset: 1_000_001 + u64::from(row) / 1_000, row: row % 1_000 * 3 },
        arrival: ARRIVAL + i64::from(row) * 5 / 4,
        reply: None,
    });
    let refused = builder.push(0, records, rows).expect("types of fields");
    assert!(refused.is_empty());
    std::iter::from_fn(|| builder.cut(Some(ARRIVAL - 1_000_000))).collect()
}

fn decode(frames: &[Vec<u8>], schema: &SchemaRef) -> Vec<RecordBatch> {
    let read = |bytes: &Vec<u8>| {
        let Ok(Frame::Rows(rows)) = Frame::parse(bytes) else { panic!("a frame of rows") };
        let inputs = rows.decode(|_| Some(Arc::clone(schema))).expect("what was just written");
        inputs.into_iter().map(|input| input.records)
    };
    frames.iter().flat_map(read).collect()
}

fn bytes(frames: &[Vec<u8>]) -> usize {
    frames.iter().map(Vec::len).sum()
}

/// Texts as Arrow IPC has them shortest: offsets of 4 bytes, rather than views of 16.
fn without_views(records: &RecordBatch) -> RecordBatch {
    let columns = records.columns().iter().map(|column| match column.as_string_view_opt() {
        Some(texts) => Arc::new(StringArray::from_iter(texts.iter())) as ArrayRef,
        None => Arc::clone(column),
    });
    let fields = records.schema();
    RecordBatch::try_from_iter(fields.fields().iter().map(|field| field.name()).zip(columns))
        .expect("columns of one length")
}

/// A record batch message without its schema, aligned to 8.
fn ipc_encode(records: &RecordBatch, compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)
        .and_then(|options| options.try_with_compression(compression))
        .expect("options of the format");
    let records = without_views(records);
    let mut dictionaries = DictionaryTracker::new(true);
    let (_, message) = IpcDataGenerator::default()
        .encode(&records, &mut dictionaries, &options, &mut Default::default())
        .expect("types of the format");
    let mut out = Vec::new();
    write_message(&mut out, message, &options).expect("memory");
    out
}

fn ipc_decode(bytes: &[u8], schema: &SchemaRef) -> RecordBatch {
    let buffer = Buffer::from(bytes);
    let metadata = 8 + u32::from_le_bytes(buffer[4..8].try_into().expect("four bytes")) as usize;
    let message = root_as_message(&buffer[8..metadata]).expect("what was just written");
    let batch = message.header_as_record_batch().expect("a record batch");
    let version = MetadataVersion::V5;
    let none = std::collections::HashMap::new();
    let records =
        read_record_batch(&buffer.slice(metadata), batch, Arc::clone(schema), &none, None, &version)
            .expect("what was just written");
    let columns = records.columns().iter().map(|column| match column.data_type() {
        DataType::Utf8 => Arc::new(StringViewArray::from(column.as_string::<i32>())) as ArrayRef,
        _ => Arc::clone(column),
    });
    RecordBatch::try_from_iter(schema.fields().iter().map(|field| field.name()).zip(columns))
        .expect("columns of one length")
}

/// Bytes of all rows in the form of `arrow-row`.
fn arrow_row(records: &RecordBatch) -> usize {
    let fields = records.schema();
    let fields = fields.fields().iter().map(|field| SortField::new(field.data_type().clone()));
    let converter = RowConverter::new(fields.collect()).expect("types that have an order");
    let rows = converter.convert_columns(records.columns()).expect("the same types");
    rows.iter().map(|row| row.as_ref().len()).sum()
}

/// Bytes of a frame without columns: what is there before any value.
fn empty_frame(rows: usize) -> usize {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let records = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options);
    bytes(&encode(&records.expect("no columns"), settings(0.0)))
}

/// Bytes of the values of each row by itself.
fn each_alone(records: &RecordBatch) -> usize {
    let alone = |row| bytes(&encode(&records.slice(row, 1), settings(0.0))) - empty_frame(1);
    (0..records.num_rows()).map(alone).sum()
}

fn sizes(kind: &str, fields: usize) -> String {
    let mut table = format!(
        "{kind}, {fields} fields\n  rows    frame   values  row alone  arrow-row      ipc  ipc lz4  to the better\n"
    );
    for rows in ROWS {
        let records = records(kind, fields, rows);
        let frames = encode(&records, settings(DEFAULT));
        let read = decode(&frames, &records.schema());
        let read = arrow_select::concat::concat_batches(&records.schema(), &read).expect("one schema");
        assert_eq!(read, records);
        let plain = without_views(&records).schema();
        let ipc = [None, Some(CompressionType::LZ4_FRAME)].map(|compression| {
            let written = ipc_encode(&records, compression);
            assert_eq!(ipc_decode(&written, &plain).columns(), records.columns());
            written.len()
        });
        let (frame, alone) = (bytes(&frames), each_alone(&records));
        let values = bytes(&encode(&records, settings(0.0))) - empty_frame(rows);
        // The better of a row at a time and Arrow IPC, in the same frame.
        let better = alone.min(ipc[0]).min(ipc[1]) + empty_frame(rows);
        let ratio = frame as f64 / better as f64;
        assert!(ratio <= 1.1, "{kind} {rows}: {frame} bytes, {better} in another form");
        let each = |bytes: usize| bytes as f64 / rows as f64;
        let _ = writeln!(
            table,
            "{rows:>6} {:8.1} {:8.1} {:10.1} {:10.1} {:8.1} {:8.1} {ratio:14.2}",
            each(frame),
            each(values),
            each(alone),
            each(arrow_row(&records)),
            each(ipc[0]),
            each(ipc[1]),
        );
    }
    table
}

/// What the entropy switch is tried on; real data only where it is.
static STREAMS: LazyLock<Vec<(&'static str, RecordBatch)>> = LazyLock::new(|| {
    let mut streams = vec![("noise", noise()), ("payments", records("payments", 103, 4_096))];
    match debs2012() {
        Some(readings) => streams.push(("debs2012", readings)),
        None => eprintln!("debs2012 is left out: there is no {}", debs2012_path().display()),
    }
    streams
});

/// Random bytes, as many in a row as a reading of the challenge takes.
fn noise() -> RecordBatch {
    let mut random = Rng::with_seed(1);
    let mut row = || (0..60).map(|_| random.u8(..)).collect::<Vec<u8>>();
    let rows: Vec<Vec<u8>> = (0..17_000).map(|_| row()).collect();
    let column: ArrayRef = Arc::new(BinaryViewArray::from_iter_values(rows));
    RecordBatch::try_from_iter([("bytes", column)]).expect("one column")
}

fn debs2012_path() -> PathBuf {
    let named = std::env::var_os("THALWEG_DATA").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"));
    folder.join("debs2012/DEBS2012-manufacturing-small.tsv")
}

/// The readings: a time and 55 whole numbers.
fn debs2012() -> Option<RecordBatch> {
    let text = std::fs::read_to_string(debs2012_path()).ok()?;
    let mut times = Vec::new();
    let mut numbers: Vec<Vec<i64>> = vec![Vec::new(); 55];
    for line in text.lines() {
        let mut fields = line.split('\t');
        let time = fields.next().and_then(thalweg_types::parse_timestamp).expect("a time");
        times.push(i64::try_from(time / 1_000).expect("microseconds of 64 bits"));
        for (column, field) in numbers.iter_mut().zip(fields) {
            column.push(field.parse().expect("a whole number"));
        }
    }
    let times = ("ts".to_owned(), Arc::new(TimestampMicrosecondArray::from(times)) as ArrayRef);
    let numbers = numbers
        .into_iter()
        .enumerate()
        .map(|(number, column)| (format!("c{number:02}"), Arc::new(Int64Array::from(column)) as ArrayRef));
    RecordBatch::try_from_iter(std::iter::once(times).chain(numbers)).ok()
}

fn stream(name: &str) -> &'static RecordBatch {
    &STREAMS.iter().find(|(known, _)| *known == name).expect("a stream of the list").1
}

fn switched(name: &str) -> String {
    let records = stream(name);
    let mut line = format!("{name:<9} {} rows:", records.num_rows());
    for (switch, below) in SWITCHES {
        let frames = encode(records, settings(below));
        let read = decode(&frames, &records.schema());
        let read = arrow_select::concat::concat_batches(&records.schema(), &read).expect("one schema");
        assert_eq!(&read, records, "{name} {switch}");
        let each = bytes(&frames) as f64 / records.num_rows() as f64;
        let _ = write!(line, " {switch} {each:.1} in {} frames,", frames.len());
    }
    line.truncate(line.len() - 1);
    line + "\n"
}

/// What benchmarks of rows take: kind, fields, rows.
fn rows_cases() -> impl Iterator<Item = String> {
    CASES.iter().flat_map(|(kind, fields)| ROWS.map(|rows| format!("{kind} {fields} {rows}")))
}

fn rows_case(name: &str) -> RecordBatch {
    let mut words = name.split(' ');
    let kind = words.next().expect("a kind");
    let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
    records(kind, number(), number())
}

#[divan::bench(args = rows_cases())]
fn frame_encode(bencher: Bencher<'_, '_>, name: &str) {
    let records = rows_case(name);
    bencher
        .counter(ItemsCount::new(records.num_rows()))
        .bench_local(|| encode(divan::black_box(&records), settings(DEFAULT)));
}

#[divan::bench(args = rows_cases())]
fn frame_decode(bencher: Bencher<'_, '_>, name: &str) {
    let records = rows_case(name);
    let (frames, schema) = (encode(&records, settings(DEFAULT)), records.schema());
    bencher
        .counter(ItemsCount::new(records.num_rows()))
        .bench_local(|| decode(divan::black_box(&frames), &schema));
}

#[divan::bench(args = rows_cases())]
fn ipc_plain_encode(bencher: Bencher<'_, '_>, name: &str) {
    bench_ipc_encode(bencher, name, None);
}

#[divan::bench(args = rows_cases())]
fn ipc_plain_decode(bencher: Bencher<'_, '_>, name: &str) {
    bench_ipc_decode(bencher, name, None);
}

#[divan::bench(args = rows_cases())]
fn ipc_lz4_encode(bencher: Bencher<'_, '_>, name: &str) {
    bench_ipc_encode(bencher, name, Some(CompressionType::LZ4_FRAME));
}

#[divan::bench(args = rows_cases())]
fn ipc_lz4_decode(bencher: Bencher<'_, '_>, name: &str) {
    bench_ipc_decode(bencher, name, Some(CompressionType::LZ4_FRAME));
}

fn bench_ipc_encode(bencher: Bencher<'_, '_>, name: &str, compression: Option<CompressionType>) {
    let records = rows_case(name);
    bencher
        .counter(ItemsCount::new(records.num_rows()))
        .bench_local(|| ipc_encode(divan::black_box(&records), compression));
}

fn bench_ipc_decode(bencher: Bencher<'_, '_>, name: &str, compression: Option<CompressionType>) {
    let records = rows_case(name);
    let bytes = ipc_encode(&records, compression);
    let schema = without_views(&records).schema();
    bencher
        .counter(ItemsCount::new(records.num_rows()))
        .bench_local(|| ipc_decode(divan::black_box(&bytes), &schema));
}

/// Streams and switches, as names of a table.
fn switch_cases() -> impl Iterator<Item = String> {
    STREAMS.iter().flat_map(|(name, _)| SWITCHES.map(|(switch, _)| format!("{name}, {switch}")))
}

fn switch_case(name: &str) -> (&'static RecordBatch, Settings) {
    let (name, switch) = name.split_once(", ").expect("a stream and a switch");
    let (_, below) = SWITCHES.iter().find(|(known, _)| *known == switch).expect("a switch of the list");
    (stream(name), settings(*below))
}

#[divan::bench(args = switch_cases())]
fn switch_encode(bencher: Bencher<'_, '_>, name: &str) {
    let (records, settings) = switch_case(name);
    bencher
        .counter(ItemsCount::new(records.num_rows()))
        .bench_local(|| encode(divan::black_box(records), settings));
}

#[divan::bench(args = switch_cases())]
fn switch_decode(bencher: Bencher<'_, '_>, name: &str) {
    let (records, settings) = switch_case(name);
    let (frames, schema) = (encode(records, settings), records.schema());
    bencher
        .counter(ItemsCount::new(records.num_rows()))
        .bench_local(|| decode(divan::black_box(&frames), &schema));
}

/// Every row reads back as it was, in this many bytes a row.
fn check() {
    let hold = |table: String, expected: &Expect| {
        if *IS_MEASURED {
            println!("{table}");
        }
        expected.assert_eq(&table);
    };
    assert_eq!(Settings::default(), settings(DEFAULT));
    let table: Vec<String> = CASES.iter().map(|(kind, fields)| sizes(kind, *fields)).collect();
    hold(
        table.concat(),
        &expect![[r#"
            payments, 4 fields
              rows    frame   values  row alone  arrow-row      ipc  ipc lz4  to the better
                 1     69.0     26.0       26.0       38.0    368.0    424.0           1.00
                 8     27.2     20.1       26.1       38.0     80.0     86.0           0.82
                64     16.5     19.2       26.1       38.0     43.2     37.9           0.57
              4096     12.3     19.1       26.1       38.0     38.1     26.1           0.44
            payments, 103 fields
              rows    frame   values  row alone  arrow-row      ipc  ipc lz4  to the better
                 1    512.0    469.0      469.0      869.0   6504.0   7536.0           1.00
                 8    437.1    430.0      470.9      871.2   1502.0   1605.0           0.91
                64    423.9    421.2      470.6      869.6    866.1    787.0           0.90
              4096    423.4    421.4      470.3      869.9    779.4    584.7           0.90
            readings, 66 fields
              rows    frame   values  row alone  arrow-row      ipc  ipc lz4  to the better
                 1     99.0     56.0       56.0      300.0   3792.0   4328.0           1.00
                 8     41.5     34.4       56.0      300.0    642.0    674.0           0.66
                64     25.6     31.6       56.0      300.0    248.2    140.9           0.44
              4096     20.6     31.3       57.5      300.0    198.0     65.7           0.35
        "#]],
    );
    hold(
        ["noise", "payments"].map(switched).concat(),
        &expect![[r#"
            noise     17000 rows: never 63.0 in 3 frames, by entropy 63.0 in 3 frames, always 61.3 in 3 frames
            payments  4096 rows: never 423.4 in 9 frames, by entropy 423.4 in 9 frames, always 358.5 in 9 frames
        "#]],
    );
    if STREAMS.iter().any(|(name, _)| *name == "debs2012") {
        hold(
            switched("debs2012"),
            &expect![[r#"
                debs2012  17000 rows: never 60.1 in 21 frames, by entropy 7.6 in 21 frames, always 7.6 in 21 frames
            "#]],
        );
    }
}

fn main() {
    check();
    divan::main();
}
