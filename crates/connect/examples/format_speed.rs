//! How fast formats read and write, in records per second on one core.
//!
//! `cargo run --release -p thalweg-connect --example format_speed`
//!
//! Inputs are made payments. Each line names the work, the best of several rounds, and a digest of what came out,
//! so that a change of meaning shows.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use thalweg_connect::format::{RecordDecoder, RecordFormat};
use thalweg_connect::generate::GeneratorSpec;
use thalweg_connect::source::SourceDecoder;
use thalweg_connect::{FormatSpec, OptionValue, Options, Registry, SourceContext, SourceTime, sink};
use thalweg_flow::{Decoder, Payload, Poll, RawBlock, TaskInfo};
use thalweg_types::{Batch, DataType, Field, Schema, SeqRange, Seqs, TimeUnit};

/// Records per block, about what a file source cuts at 256 KiB.
const BLOCK: usize = 7_000;
const ROUNDS: usize = 3;

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(300_000);
    formats("payments, 4 fields", 4, count);
    formats("payments, 103 fields", 103, count / 50);
    digests(count);
    generators(count);
}

fn spec(name: &str) -> FormatSpec {
    let plugin = Arc::clone(Registry::builtin().format(name).expect("a format of this build"));
    FormatSpec { plugin, options: Options::default() }
}

fn numbered(records: arrow_array::RecordBatch, first: u64) -> Batch {
    let rows = records.num_rows();
    Batch::new(SeqRange::new(first, first + rows as u64), records, vec![0; rows].into(), Seqs::Dense(first))
}

fn formats(what: &str, fields: usize, count: usize) {
    let mut generator = GeneratorSpec::new("payments");
    generator.fields = Some(fields);
    let generator = generator.build().expect("a spec within its bounds");
    let schema = generator.schema().clone();
    let batches: Vec<Batch> = (0..count.div_ceil(BLOCK))
        .map(|block| numbered(generator.batch((block * BLOCK) as u64, BLOCK), (block * BLOCK) as u64))
        .collect();
    let records: usize = batches.iter().map(Batch::len).sum();
    let digest = batches.iter().fold(0_u64, |sum, batch| sum.wrapping_add(sink::digest(batch)));
    println!("{what}: digest of what was made {digest:016x}");
    for name in ["csv", "ndjson"] {
        let format = spec(name);
        let mut blocks = Vec::new();
        let seconds = best(|| {
            blocks.clear();
            let mut encoder = format.encoder(&schema).expect("a format that writes");
            for batch in &batches {
                let mut bytes = Vec::new();
                encoder.encode(batch, &mut bytes);
                blocks.push(Bytes::from(bytes));
            }
        });
        let bytes: usize = blocks.iter().map(Bytes::len).sum();
        println!("  {name}: {} bytes a record", bytes / records);
        line(&format!("{name} encode"), records, seconds, "");

        let context = SourceContext {
            job: "speed".into(),
            name: "payments".into(),
            schema: schema.clone(),
            format: Some(without_header(name)),
            options: Options::default(),
            time: SourceTime::Field(0),
            max_ahead: None,
            data_dir: PathBuf::new(),
            skip: [].into(),
            acknowledges: false,
            goes_on: false,
        };
        let format = context.format.as_ref().expect("a format").reader(&schema).expect("a schema to read");
        let (mut cut, mut place) = (0, 0);
        let seconds = best(|| {
            let mut splitter = format.splitter();
            (cut, place) = (0, 0);
            for block in &blocks {
                cut += splitter.split(place, block, false).expect("records").records as usize;
                place += block.len() as u64;
            }
        });
        assert_eq!(cut, records);
        line(&format!("{name} split"), records, seconds, "");

        let mut digest = 0_u64;
        let seconds = best(|| digest = decode_all(&format, &context, &blocks, false));
        let digest_of_read = decode_all(&format, &context, &blocks, true);
        line(&format!("{name} split + decode"), records, seconds, &format!("{digest_of_read:016x}"));
        black_box(digest);
        if name == "csv" {
            file(&schema, &blocks, records);
        }
    }
}

/// The whole way of a CSV file: read, cut, decoded, on one thread.
fn file(schema: &Schema, blocks: &[Bytes], records: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("payments.csv");
    std::fs::write(&path, blocks.concat()).expect("room for the file");
    let path = OptionValue::Paths(vec![path.into()]);
    let context = SourceContext {
        job: "speed".into(),
        name: "payments".into(),
        schema: schema.clone(),
        format: Some(without_header("csv")),
        options: Options([("path".to_owned(), path)].into()),
        time: SourceTime::Field(0),
        max_ahead: None,
        data_dir: PathBuf::new(),
        skip: [].into(),
        acknowledges: false,
        goes_on: false,
    };
    let registry = Registry::builtin();
    let task = TaskInfo { job: "speed".into(), operator: "payments".into(), index: 0, tasks: 1 };
    let seconds = best(|| {
        let mut built = registry.source("file").expect("a source").build(context.clone()).expect("the file");
        let mut decoder = (built.decoder)(&task).expect("a decoder");
        let mut read = 0;
        while let Poll::Block(block) = built.source.poll(256 << 10, 0).expect("a readable file") {
            let range = SeqRange::new(block.first, block.first + u64::from(block.count));
            read += block.count as usize;
            black_box(decoder.decode(&block, range, 0).expect("records"));
        }
        assert_eq!(read, records);
    });
    line("csv file, read + cut + decode", records, seconds, "");
}

fn without_header(name: &str) -> FormatSpec {
    let mut format = spec(name);
    if name == "csv" {
        format.options.0.insert("header".to_owned(), OptionValue::Bool(false));
    }
    format
}

fn decode_all(
    format: &Arc<dyn RecordFormat>,
    context: &SourceContext,
    blocks: &[Bytes],
    digest: bool,
) -> u64 {
    let mut decoder = SourceDecoder::new(context, decoders(format)).expect("a timestamp");
    let mut splitter = format.splitter();
    let (mut first, mut sum, mut place) = (0, 0_u64, 0);
    for data in blocks {
        let split = splitter.split(place, data, false).expect("records");
        place += data.len() as u64;
        let range = SeqRange::new(first, first + u64::from(split.records));
        let payload = Payload::Bytes { data: data.clone(), context: None };
        let block = RawBlock { partition: 0, first, count: split.records, payload };
        let decoded = decoder.decode(&block, range, 0).expect("records");
        assert!(decoded.rejects.is_none());
        first = range.end;
        sum = sum.wrapping_add(if digest {
            sink::digest(&decoded.records)
        } else {
            decoded.records.len() as u64
        });
        black_box(&decoded.records);
    }
    sum
}

fn digests(count: usize) {
    use arrow_array::{ArrayRef, Float64Array, Int64Array, TimestampMicrosecondArray};
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
    let records =
        arrow_array::RecordBatch::try_new(Arc::clone(schema.arrow()), columns).expect("six columns");
    let batch = numbered(records, 0);
    let rounds = count.div_ceil(BLOCK);
    let mut sum = 0_u64;
    let seconds = best(|| {
        sum = (0..rounds).fold(0_u64, |sum, _| sum.wrapping_add(sink::digest(black_box(&batch))));
    });
    line("digest, 6 numeric columns", rounds * BLOCK, seconds, &format!("{sum:016x}"));
}

fn generators(count: usize) {
    for (kind, fields) in [("payments", 4), ("readings", 66)] {
        let mut spec = GeneratorSpec::new(kind);
        spec.fields = Some(fields);
        let generator = spec.build().expect("a spec within its bounds");
        let blocks = (count / fields * 4).div_ceil(BLOCK);
        let seconds = best(|| {
            for block in 0..blocks {
                black_box(generator.batch((block * BLOCK) as u64, BLOCK));
            }
        });
        line(&format!("generate {kind}, {fields} fields"), blocks * BLOCK, seconds, "");
    }
}

/// Seconds that the work takes: the best of several rounds, each long enough for the system's accounting, which
/// is only brought up to date every few milliseconds.
fn best(mut work: impl FnMut()) -> f64 {
    (0..ROUNDS)
        .map(|_| {
            let (start, on_processor) = (Instant::now(), processor_seconds());
            let mut times = 0;
            loop {
                work();
                times += 1;
                let spent = match (on_processor, processor_seconds()) {
                    (Some(before), Some(after)) => after - before,
                    _ => start.elapsed().as_secs_f64(),
                };
                if spent > 0.3 {
                    return spent / f64::from(times);
                }
            }
        })
        .fold(f64::INFINITY, f64::min)
}

/// Time that this thread has spent on a processor, where the system says so: waiting for others is not counted.
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(|nanos: u64| nanos as f64 / 1e9)
}

fn line(what: &str, records: usize, seconds: f64, digest: &str) {
    let nanos = seconds * 1e9 / records as f64;
    println!("  {what:<32} {:>8.2} M records/s  {nanos:>8.1} ns  {digest}", records as f64 / seconds / 1e6);
}

/// Makes decoders of a format.
fn decoders(format: &Arc<dyn RecordFormat>) -> impl Fn() -> Box<dyn RecordDecoder> + Send + 'static {
    let format = Arc::clone(format);
    move || format.decoder()
}
