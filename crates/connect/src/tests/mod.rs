//! Tests of what several modules do together; rules of one module are tested next to it.

mod csv;
mod cutting;
mod drive;
mod fake_influx;
mod files;
mod flows;
mod generators;
mod growing;
mod http;
mod influx;
mod journal;
#[cfg(feature = "kafka")]
mod kafka_by_time;
#[cfg(feature = "kafka")]
mod kafka_sink;
#[cfg(feature = "kafka")]
mod kafka_source;
#[cfg(feature = "kafka")]
mod kafka_unit;
mod line_protocol;
mod ndjson;
mod real_service;
mod replay;
mod round_trip;
mod samples;
mod sinks;
mod sources;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use bytes::Bytes;
use thalweg_flow::{Decoded, Decoder, Payload, Poll, RawBlock, Source, TaskInfo};
use thalweg_types::{Batch, DataType, Error, Field, Micros, Reject, Rejects, Schema, SeqRange, Value};

use crate::format::{RecordDecoder, RecordFormat};
use crate::source::SourceDecoder;
use crate::source::cut::Cutter;
use crate::{FormatSpec, OptionValue, Options, Reach, Registry, SecretRef, SourceContext, SourceTime};

/// `ts: timestamp(ms), card: string?`
fn schema(text: &str) -> Schema {
    let fields: Vec<Field> = text
        .split(';')
        .map(str::trim)
        .filter(|field| !field.is_empty())
        .map(|field| {
            let (name, data_type) = field.split_once(": ").expect("name: type");
            Field::declared(name, data_type).expect("a type")
        })
        .collect();
    Schema::new(fields)
}

fn options(entries: &[(&str, OptionValue)]) -> Options {
    Options(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
}

fn path_value(path: impl AsRef<std::path::Path>) -> OptionValue {
    OptionValue::Path(path.as_ref().to_path_buf().into())
}

fn paths_value(paths: impl IntoIterator<Item = impl AsRef<std::path::Path>>) -> OptionValue {
    OptionValue::Paths(paths.into_iter().map(|path| path.as_ref().to_path_buf().into()).collect())
}

/// One gzip member.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes)
        .and_then(|()| encoder.finish())
        .expect("a vector takes every byte")
}

fn secret(reference: &str) -> OptionValue {
    OptionValue::Secret(SecretRef::parse(reference, &Reach::anything()).expect("a reference"))
}

fn text(text: &str) -> OptionValue {
    OptionValue::Text(text.to_owned())
}

fn spec(name: &str, entries: &[(&str, OptionValue)]) -> FormatSpec {
    let plugin = Arc::clone(Registry::builtin().format(name).expect("a format of this build"));
    FormatSpec { plugin, options: options(entries) }
}

pub(crate) fn context(
    schema: &Schema,
    format: Option<FormatSpec>,
    entries: &[(&str, OptionValue)],
) -> SourceContext {
    SourceContext {
        job: "test".into(),
        name: "payments".into(),
        schema: schema.clone(),
        format,
        options: options(entries),
        time: SourceTime::Arrival,
        max_ahead: None,
        data_dir: PathBuf::new(),
        skip: [].into(),
        acknowledges: false,
        goes_on: false,
        is_answered_elsewhere: false,
    }
}

fn task() -> TaskInfo {
    TaskInfo::alone("test", "test")
}

/// When test blocks arrive: 2026-01-01T00:00:00Z.
const ARRIVAL: Micros = 1_767_225_600_000_000;

/// Cuts `input`, given `step` bytes at a time, into blocks numbered from 0.
fn cut(format: &dyn RecordFormat, input: &[u8], step: usize) -> Result<Vec<RawBlock>, Error> {
    cut_by(Cutter::new(format), input, step)
}

fn cut_by(mut cutter: Cutter, input: &[u8], step: usize) -> Result<Vec<RawBlock>, Error> {
    let mut blocks = Vec::new();
    let mut first = 0;
    let mut take = |cutter: &mut Cutter, at_end: bool| -> Result<(), Error> {
        while let Some(cut) = cutter.next(at_end)? {
            let count = cut.count;
            blocks.push(RawBlock { partition: 0, first, count, payload: cut.into_payload() });
            first += u64::from(count);
        }
        Ok(())
    };
    for chunk in input.chunks(step) {
        cutter.buffer().extend_from_slice(chunk);
        take(&mut cutter, false)?;
    }
    take(&mut cutter, true)?;
    Ok(blocks)
}

fn decode(decoder: &mut dyn Decoder, block: &RawBlock) -> Result<Decoded, Error> {
    decoder.decode(block, SeqRange::new(block.first, block.first + u64::from(block.count)), ARRIVAL)
}

/// Everything that `input` holds, one line per row or reject, in order of their offsets.
fn read(context: &SourceContext, input: &[u8], step: usize) -> Result<String, Error> {
    let format = context.format.as_ref().expect("a format").reader(&context.schema)?;
    let mut decoder = SourceDecoder::new(context, decoders(&format))?;
    let mut lines = BTreeMap::new();
    for block in cut(&*format, input, step)? {
        let decoded = decode(&mut decoder, &block)?;
        render(&decoded, &mut lines);
    }
    let mut out = String::new();
    for (offset, line) in lines {
        writeln!(out, "{offset} {line}").expect("a string takes every byte");
    }
    Ok(out)
}

fn render(decoded: &Decoded, lines: &mut BTreeMap<u64, String>) {
    for row in decoded.records.row_numbers() {
        let cells: Vec<String> =
            decoded.records.records().columns().iter().map(|column| cell(column, row as usize)).collect();
        let previous = lines.insert(decoded.records.seq(row), cells.join(" | "));
        assert_eq!(previous, None, "an offset is there twice");
    }
    let Some(rejects) = &decoded.rejects else { return };
    for row in rejects.row_numbers() {
        let Reject { offset, line, code, reason, raw, .. } = Rejects::of(rejects).get(row);
        let line = line.map_or_else(|| "null".to_owned(), |line| line.to_string());
        let text = format!("! {code} line {line}: {reason} <{}>", raw.escape_ascii());
        let previous = lines.insert(rejects.seq(row), text);
        assert_eq!(previous, None, "an offset is there twice");
        assert_eq!(offset, rejects.seq(row));
    }
}

fn cell(column: &ArrayRef, row: usize) -> String {
    match Value::at(column, row) {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int64(value) => value.to_string(),
        Value::UInt64(value) => value.to_string(),
        Value::Float64(value) => format!("{value:?}"),
        Value::Decimal(value, scale) => format!("{value}e-{scale}"),
        Value::String(value) => value,
        Value::Bytes(value) => format!("{:?}", value.escape_ascii().to_string()),
        Value::Timestamp(value, unit) => format!("{value}{}", unit.name()),
        Value::Ip(value) => std::net::Ipv6Addr::from(value).to_string(),
        other => format!("{other:?}"),
    }
}

/// Polls until the source has given `records` records, or ended.
fn poll_all(source: &mut dyn Source, records: u64) -> Vec<RawBlock> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut blocks = Vec::new();
    let mut count = 0;
    while count < records {
        match source.poll(1 << 18, ARRIVAL).expect("a source that can be read") {
            Poll::Block(block) => {
                assert_eq!(block.first, count, "offsets are dense");
                count += u64::from(block.count);
                blocks.push(block);
            }
            Poll::End => return blocks,
            Poll::Told { .. } => panic!("it makes no order"),
            Poll::Pending | Poll::PendingUntil(_) => {
                assert!(Instant::now() < deadline, "got {count} of {records} records in 20 s");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    blocks
}

/// Polls until the source ends, and returns how many records came.
fn poll_to_end(source: &mut dyn Source) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut count = 0;
    loop {
        match source.poll(1 << 18, ARRIVAL).expect("a source that can be read") {
            Poll::Block(block) => count += u64::from(block.count),
            Poll::Told { .. } => panic!("it makes no order"),
            Poll::End => return count,
            Poll::Pending | Poll::PendingUntil(_) => {
                assert!(Instant::now() < deadline, "no end within 20 s");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "20 s, and not yet: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn rows_of(decoder: &mut dyn Decoder, blocks: &[RawBlock]) -> String {
    let mut lines = BTreeMap::new();
    for block in blocks {
        render(&decode(decoder, block).expect("blocks of this source"), &mut lines);
    }
    lines.into_values().map(|line| line + "\n").collect()
}

fn block(data: &str, count: u32) -> RawBlock {
    let data = Bytes::copy_from_slice(data.as_bytes());
    RawBlock { partition: 0, first: 0, count, payload: Payload::Bytes { data, context: None } }
}

fn batch(schema: &Schema, columns: Vec<ArrayRef>) -> Batch {
    let rows = columns.first().map_or(0, |column| column.len());
    let records = crate::source::record_batch(schema, columns, rows).expect("columns of the schema");
    let times = vec![0; rows];
    Batch::new(SeqRange::new(0, rows as u64), records, times.into(), thalweg_types::Seqs::Dense(0))
}

fn encoded(format: &FormatSpec, schema: &Schema, batch: &Batch) -> String {
    let mut encoder = format.encoder(schema).expect("a format that writes");
    let mut out = Vec::new();
    encoder.start(&mut out);
    encoder.encode(batch, &mut out);
    String::from_utf8(out).expect("text formats write UTF-8")
}

/// Makes decoders of a format.
fn decoders(format: &Arc<dyn RecordFormat>) -> impl Fn() -> Box<dyn RecordDecoder> + Send + 'static {
    let format = Arc::clone(format);
    move || format.decoder()
}
