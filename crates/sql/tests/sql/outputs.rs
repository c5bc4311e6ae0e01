//! How replies are written.

use std::io::Cursor;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_ipc::reader::StreamReader;
use futures_util::StreamExt;
use thalweg_sql::{Addresses, Arrow, Compression, Format, Limits};

use crate::fake::{Flow, START, World, world};

fn odd_rows() -> World {
    let world = world(Limits::default());
    let row = Flow {
        time: START + 1_500_000,
        src_addr: Some("10.1.2.3"),
        src_as: Some(u64::MAX),
        ..Flow::default()
    };
    let rows = [
        Flow { src_name: Some("a,\"b\"\n\u{1}"), bytes: Some(1), load: Some(f64::NAN), ..row.clone() },
        Flow {
            time: START + 1,
            src_addr: Some("2001:db8::1"),
            src_name: Some(""),
            load: Some(-0.5),
            ..row.clone()
        },
        Flow { time: START, src_addr: None, load: Some(f64::INFINITY), ..Flow::default() },
    ];
    world.add("net", "flows", &[&rows], &[]);
    world
}

const COLUMNS: &str = "SELECT time, src_addr, src_as, src_name, load FROM flows ORDER BY time DESC";

#[test]
fn csv_has_a_head_and_quotes() {
    assert_eq!(
        odd_rows().in_format(COLUMNS, Format::Csv),
        "time,src_addr,src_as,src_name,load\n\
         2026-01-05T00:00:01.5Z,10.1.2.3,18446744073709551615,\"a,\"\"b\"\"\n\u{1}\",NaN\n\
         2026-01-05T00:00:00.000001Z,2001:db8::1,18446744073709551615,\"\",-0.5\n\
         2026-01-05T00:00:00Z,,,,inf\n"
    );
}

#[test]
fn json_keeps_what_numbers_cannot_say_as_text() {
    let lines = [
        r#"{"time":"2026-01-05T00:00:01.5Z","src_addr":"10.1.2.3","src_as":18446744073709551615,"src_name":"a,\"b\"\n\u0001","load":"NaN"}"#,
        r#"{"time":"2026-01-05T00:00:00.000001Z","src_addr":"2001:db8::1","src_as":18446744073709551615,"src_name":"","load":-0.5}"#,
        r#"{"time":"2026-01-05T00:00:00Z","src_addr":null,"src_as":null,"src_name":null,"load":"inf"}"#,
    ];
    let world = odd_rows();
    assert_eq!(world.in_format(COLUMNS, Format::Ndjson), lines.map(|line| format!("{line}\n")).concat());
    assert_eq!(world.in_format(COLUMNS, Format::Json), format!("[\n{}\n]\n", lines.join(",\n")));
    assert_eq!(world.in_format("SELECT 1 WHERE false", Format::Json), "[\n]\n");
    assert_eq!(
        world.in_format(
            "SELECT 1.25::decimal(5,2) AS d, [1, NULL] AS l, named_struct('a', x'0aff') AS s, DATE '2026-02-03' AS t, \
             arrow_cast('x', 'Dictionary(Int32, Utf8)') AS k, true AS b",
            Format::Ndjson
        ),
        "{\"d\":\"1.25\",\"l\":[1,null],\"s\":{\"a\":\"0aff\"},\"t\":\"2026-02-03\",\"k\":\"x\",\"b\":true}\n"
    );
}

#[test]
fn the_table_lines_up() {
    assert_eq!(
        odd_rows().in_format("SELECT src_addr, load, bytes FROM flows ORDER BY time", Format::Table),
        "src_addr     load  bytes\n\
         -----------  ----  -----\n\
         \x20             inf\n\
         2001:db8::1  -0.5\n\
         10.1.2.3      NaN      1\n"
    );
    let many = world(Limits::default());
    let rows: Vec<Flow> = (0..2_500).map(|n| Flow { time: START + n, ..Flow::default() }).collect();
    many.add("net", "flows", &[&rows], &[]);
    assert_eq!(many.in_format("SELECT time FROM flows", Format::Table).lines().count(), 2_502);
    assert_eq!(many.in_format("SELECT 'a\u{1b}[2J' AS x", Format::Table), "x\n----------\na\\u{1b}[2J\n");
}

#[test]
fn arrow_keeps_the_types() {
    let world = odd_rows();
    let reply = world.reply(COLUMNS).unwrap();
    let schema = reply.schema().clone();
    let mut bytes = Vec::new();
    thalweg_sql::write(reply, Format::Arrow(Arrow::default()), &mut bytes).unwrap();
    let reader = StreamReader::try_new(Cursor::new(bytes), None).unwrap();
    assert_eq!(reader.schema().fields(), schema.fields());
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 3);
    assert_eq!(batches[0].column(1).data_type(), &arrow_schema::DataType::FixedSizeBinary(16));
    assert!(batches[0].column(1).is_valid(0));
}

#[test]
fn arrow_has_addresses_as_texts_and_lz4_on_request() {
    let world = odd_rows();
    let how = Arrow { compression: Compression::Lz4, addresses: Addresses::Text };
    let mut bytes = Vec::new();
    thalweg_sql::write(world.reply(COLUMNS).unwrap(), Format::Arrow(how), &mut bytes).unwrap();
    let batches: Vec<_> =
        StreamReader::try_new(Cursor::new(bytes), None).unwrap().map(Result::unwrap).collect();
    let addresses: Vec<_> = batches.iter().flat_map(|batch| batch.column(1).as_string::<i32>()).collect();
    assert_eq!(addresses, [Some("10.1.2.3"), Some("2001:db8::1"), None]);
}

#[test]
fn chunks_are_the_same_bytes() {
    let world = odd_rows();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for format in [Format::Table, Format::Csv, Format::Json, Format::Ndjson] {
        let bytes = runtime.block_on(async {
            let mut chunks = world.engine.query(COLUMNS).await.unwrap().encode(format);
            let mut bytes = Vec::new();
            while let Some(chunk) = chunks.next().await {
                bytes.extend_from_slice(&chunk.unwrap());
            }
            bytes
        });
        assert_eq!(String::from_utf8(bytes).unwrap(), world.in_format(COLUMNS, format), "{format:?}");
    }
}
