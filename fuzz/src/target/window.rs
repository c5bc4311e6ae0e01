//! Query text together with records: a stage is made of the query, and answers what it is given.
//!
//! The input is the query, then after a line of its own `--` the records as NDJSON. Records are given at once and one by
//! one, and the answers must agree to the bit.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, RecordBatch};
use bytes::Bytes;
use thalweg_connect::format::ndjson::Ndjson;
use thalweg_connect::{FormatPlugin, Options};
use thalweg_storage::{ChunkBudget, ChunkStore, ChunkStoreOptions, IoPool, MemFs};
use thalweg_types::{Batch, DataType, Field, Schema, SeqRange, Seqs, TimeUnit, Value};
use thalweg_window::query::Query;
use thalweg_window::stage::{Stage, StageOptions};

use crate::Target;

pub const TARGET: Target = Target { name: "window", run, seeds, words: WORDS, allowance };

const WORDS: &[&str] = &[
    "SELECT ",
    " FROM s",
    " WHERE ",
    " GROUP BY card",
    " OVER INFINITE",
    " OVER SLIDING 1 SECOND",
    " OVER TUMBLING 1 HOUR",
    " OVER ROWS 2",
    "sum(",
    "last(",
    "max(",
    "count(DISTINCT ",
    "quantile(amount, 0.5)",
    "length(",
    "replace(",
    "upper(",
    " || ",
    "concat(",
    " LIKE ",
    " ILIKE ",
    "'%_%a'",
    "'a'",
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'",
    "card",
    "amount",
    "price",
    "count",
    "flag",
    "ts",
    "addr",
    "raw",
    "\n--\n",
    "\n{\"card\":\"aaaa\",\"amount\":1}",
    "\"NaN\"",
    "-9223372036854775808",
    "\\u0000",
    "null",
];

/// Most records of an input: more of them find nothing else.
const MOST_RECORDS: usize = 64;

/// A text that an expression makes, in a buffer that has grown by doubling; folded characters; a stage's own tables.
fn allowance(_: &[u8]) -> usize {
    16 << 20
}

fn schema() -> Schema {
    Schema::new(vec![
        Field::new("card", DataType::String).nullable(),
        Field::new("amount", DataType::Float64).nullable(),
        Field::new("price", DataType::Decimal { precision: 40, scale: 2 }).nullable(),
        Field::new("count", DataType::Int64).nullable(),
        Field::new("flag", DataType::Bool).nullable(),
        Field::new("ts", DataType::Timestamp(TimeUnit::Milli)).nullable(),
        Field::new("addr", DataType::Ip).nullable(),
        Field::new("raw", DataType::Bytes).nullable(),
    ])
}

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (text, lines) = text.split_once("\n--\n").unwrap_or((text, ""));
    let Ok(query) = Query::parse(text) else { return };
    let schema = schema();
    let Some(mut whole) = stage(&schema, &query) else { return };
    let Some(columns) = records(&schema, lines) else { return };
    let rows = columns.first().map_or(0, |column| column.len());
    let records = RecordBatch::try_new(Arc::clone(schema.arrow()), columns).expect("the schema's columns");
    let answers = answer(&mut whole, &records, 0, rows);
    let mut single = stage(&schema, &query).expect("planned before");
    let one_by_one: Vec<String> = (0..rows).flat_map(|row| answer(&mut single, &records, row, 1)).collect();
    assert_eq!(answers, one_by_one, "answers depend on how records are cut into batches");
    if let Some(fields) = whole.group_fields("q").filter(|_| rows > 0) {
        let key: Vec<ArrayRef> = fields.iter().map(|field| records.column(*field).slice(0, 1)).collect();
        whole.read("q", &key).expect("everything is in memory").expect("the query is there");
    }
}

fn stage(schema: &Schema, query: &Query) -> Option<Stage> {
    let store = ChunkStore::open(
        Arc::new(MemFs::new()),
        "reservoir",
        IoPool::inline(),
        ChunkBudget::new(1 << 20),
        ChunkStoreOptions::new(0),
    );
    let options = StageOptions { chunk_rows: 16, ..StageOptions::default() };
    let mut stage = Stage::new(schema, options, store.expect("a store in memory"));
    let planned = stage.plan("q", query).ok()?;
    stage.add_queries(&[planned]).ok()?;
    Some(stage)
}

fn records(schema: &Schema, lines: &str) -> Option<Vec<ArrayRef>> {
    let lines: Vec<&str> = lines.lines().filter(|line| !line.is_empty()).take(MOST_RECORDS).collect();
    let format = Ndjson.reader(schema, &Options::default()).expect("a schema of every type");
    let text = Bytes::from(lines.join("\n"));
    Some(format.decoder().decode(&text, lines.len(), None).ok()?.columns)
}

/// The answers of some records, a line each, with the names of values beyond a bound.
fn answer(stage: &mut Stage, records: &RecordBatch, first: usize, rows: usize) -> Vec<String> {
    let times: Vec<i64> = (first..first + rows).map(|row| row as i64 * 300_000).collect();
    let range = SeqRange::new(first as u64, (first + rows) as u64);
    let batch = Batch::new(range, records.slice(first, rows), times.into(), Seqs::Dense(first as u64));
    assert!((1..=rows.max(1)).contains(&stage.rows_at_once(&batch)));
    let answers = stage.answer(&batch).expect("nothing fails while a stream runs");
    let show = |row: usize| {
        let values: Vec<Value> = answers.values.iter().map(|query| Value::at(query, row)).collect();
        let misfits = answers.misfits.iter().filter(|(other, ..)| *other as usize == row);
        format!("{values:?} {:?}", misfits.map(|(_, _, output)| output).collect::<Vec<_>>())
    };
    (0..rows).map(show).collect()
}

fn seeds() -> Vec<Vec<u8>> {
    let bomb =
        (0..6).fold("card".to_owned(), |text, _| format!("replace({text}, 'a', '{}')", "a".repeat(32)));
    let records = concat!(
        r#"{"card":"aaaa","amount":1.5,"price":"1.25","count":7,"flag":true,"ts":1600000000000,"addr":"::1","raw":"AA=="}"#,
        "\n{}\n",
        r#"{"card":"e\u0301%_\u0000","amount":"NaN","count":-9223372036854775808,"flag":false,"ts":0,"addr":"1.2.3.4"}"#,
        "\n",
        r#"{"card":"aaaa","amount":"-inf","price":"-99999999999999999999999999999999999999.99","count":9223372036854775807}"#,
    );
    [
        "SELECT sum(amount) AS spent, count(*) AS n FROM s GROUP BY card OVER SLIDING 1 SECOND".to_owned(),
        format!("SELECT sum(length({bomb})) AS n FROM s GROUP BY card OVER INFINITE"),
        format!("SELECT count(*) AS n FROM s WHERE card LIKE '{}' GROUP BY card OVER INFINITE", "%a".repeat(1_000)),
        "SELECT last(upper(card) || raw) AS t, min(card || card) AS u FROM s WHERE card ILIKE card OVER ROWS 2".to_owned(),
        "SELECT count(DISTINCT concat(card, count)) AS d, quantile(amount, 0.5) AS q FROM s WHERE NOT flag OR flag IS NULL OVER TUMBLING 1 SECOND".to_owned(),
        "SELECT max(price * price) AS p, sum(count + count) AS c, prev(ts) AS t FROM s GROUP BY card, addr OVER SLIDING 1 SECOND DELAYED BY 1 SECOND".to_owned(),
    ]
    .map(|query| format!("{query}\n--\n{records}").into_bytes())
    .into()
}
