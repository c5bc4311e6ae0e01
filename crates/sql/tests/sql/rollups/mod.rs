//! Rollups answer as rows do, to the bit, and only where they can.
//!
//! Rollups are made here by a map over rows; the engine has no part in it.

mod cases;
mod property;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray, UInt64Array};
use arrow_schema::{Field, Schema};
use thalweg_sql::{Engine, Format, Limits};
use thalweg_table::{Rollup, RollupSpec};

use crate::fake::{self, DAY, Flow, HOUR, MINUTE, World, world};

/// Keys of the rollups of these tests, the finer ones first.
const SPECS: [(&str, i64, &[&str], &[&str]); 3] = [
    ("ten_minutes", 10 * MINUTE, &["src_as", "dst_as", "src_addr"], &["bytes", "packets"]),
    ("hour", HOUR, &["src_as", "dst_as"], &["bytes", "packets"]),
    ("day", DAY, &["src_as"], &["bytes"]),
];

type Keys = (i64, Option<u64>, Option<u64>, Option<&'static str>);
type Sums = (Option<u64>, Option<i64>, i64);

/// Keys may come several times: a sum that its type does not hold is stored in parts.
fn sums(rows: &[Flow], every: i64, by: &[&str]) -> Vec<(Keys, Sums)> {
    let mut sums: BTreeMap<Keys, Sums> = BTreeMap::new();
    let mut full: Vec<(Keys, Sums)> = Vec::new();
    for row in rows {
        let keys = (
            row.time.div_euclid(every) * every,
            row.src_as.filter(|_| by.contains(&"src_as")),
            row.dst_as.filter(|_| by.contains(&"dst_as")),
            row.src_addr.filter(|_| by.contains(&"src_addr")),
        );
        let sum = sums.entry(keys).or_default();
        let is_full = sum.0.unwrap_or(0).checked_add(row.bytes.unwrap_or(0)).is_none()
            || sum.1.unwrap_or(0).checked_add(row.packets.unwrap_or(0)).is_none();
        if is_full {
            full.push((keys, std::mem::take(sum)));
        }
        let (bytes, packets, count) = sum;
        if let Some(more) = row.bytes {
            *bytes = Some(bytes.unwrap_or(0) + more);
        }
        if let Some(more) = row.packets {
            *packets = Some(packets.unwrap_or(0) + more);
        }
        *count += 1;
    }
    full.extend(sums);
    full.sort();
    full
}

fn rollup_batch(rows: &[(Keys, Sums)], by: &[&str], sum: &[&str]) -> RecordBatch {
    let mut addresses = FixedSizeBinaryBuilder::new(16);
    for ((_, _, _, address), _) in rows {
        match address {
            Some(text) => addresses.append_value(fake::address(text)).unwrap(),
            None => addresses.append_null(),
        }
    }
    let all: Vec<(&str, ArrayRef)> = vec![
        ("time", Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|(keys, _)| keys.0)))),
        ("src_as", Arc::new(UInt64Array::from_iter(rows.iter().map(|(keys, _)| keys.1)))),
        ("dst_as", Arc::new(UInt64Array::from_iter(rows.iter().map(|(keys, _)| keys.2)))),
        ("src_addr", Arc::new(addresses.finish())),
        ("bytes", Arc::new(UInt64Array::from_iter(rows.iter().map(|(_, sums)| sums.0)))),
        ("packets", Arc::new(Int64Array::from_iter(rows.iter().map(|(_, sums)| sums.1)))),
        (Rollup::COUNT, Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, sums)| sums.2)))),
    ];
    let kept =
        |name: &str| name == "time" || name == Rollup::COUNT || by.contains(&name) || sum.contains(&name);
    let columns: Vec<(&str, ArrayRef)> = all.into_iter().filter(|(name, _)| kept(name)).collect();
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| {
            Field::new(*name, column.data_type().clone(), *name != "time" && *name != Rollup::COUNT)
        })
        .collect();
    RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns.into_iter().map(|(_, column)| column).collect(),
    )
    .unwrap()
}

/// The rollups of some rows; each file of rows has files of its own, so that keys come several times.
fn rollups(folder: &Path, parts: &[&[Flow]]) -> Vec<Rollup> {
    let mut rollups = Vec::new();
    for (name, every, by, sum) in SPECS {
        let mut files = Vec::new();
        let mut schema = rollup_batch(&[], by, sum).schema();
        for (place, rows) in parts.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let batch = rollup_batch(&sums(rows, every, by), by, sum);
            schema = batch.schema();
            files.push(fake::file(&folder.join(format!("{name} {place}.parquet")), &batch));
        }
        let spec = RollupSpec {
            name: name.to_owned(),
            every,
            by: by.iter().map(|name| (*name).to_owned()).collect(),
            sum: sum.iter().map(|name| (*name).to_owned()).collect(),
            retention: None,
        };
        rollups.push(Rollup { spec, schema, files, complete_from: None });
    }
    rollups
}

/// A table with rollups of `gone` and of `files`.
fn tables(gone: &[Flow], files: &[&[Flow]], fresh: &[Flow]) -> World {
    let world = world(Limits::default());
    let files: Vec<&[Flow]> = files.iter().copied().filter(|rows| !rows.is_empty()).collect();
    world.add("net", "flows", &files, fresh);
    let mut parts = vec![gone];
    parts.extend(&files);
    let made = rollups(world.folder.path(), &parts);
    world.rollups("net", "flows", made);
    let mut tables = world.fake.tables.lock().unwrap();
    let table = tables.get_mut(&fake::name("net", "flows")).expect("it was added");
    table.complete_from = gone.iter().map(|flow| flow.time + 1).max();
    drop(tables);
    world
}

fn of_rows(world: &World) -> Engine {
    let catalog = world.fake.clone();
    Engine::new(catalog, Limits { use_rollups: false, ..Limits::default() }).unwrap()
}

fn sorted(engine: &Engine, sql: &str) -> Vec<String> {
    sorted_or_error(engine, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The rows, or the error of one of them.
fn sorted_or_error(engine: &Engine, sql: &str) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    let reply = engine.query_blocking(sql).and_then(|reply| thalweg_sql::write(reply, Format::Csv, &mut out));
    reply.map_err(|error| error.chain())?;
    let mut lines: Vec<String> = String::from_utf8(out).unwrap().lines().map(str::to_owned).collect();
    lines[1..].sort();
    Ok(lines)
}
