//! One CSV file that grows, into a table that seals small files, merges them and keeps a rollup.
//!
//! Every row has its offset in it, so after each start the committed rows have to be those before some offset, each
//! once. The table is read with the program's own SQL; the expected rows are counted here.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::grown::Grown;
use super::sql::Sql;
use super::{Job, Setting};
use crate::decide::Tuning;
use crate::disk::Found;
use crate::ledger::Ledger;
use thalweg_harness::random::Random;

/// What the rollup's intervals are long, in milliseconds.
const INTERVAL: i64 = 60_000;

struct Table {
    sql: Sql,
    file: Grown,
    rows: Vec<Row>,
    seal_rows: u64,
    seal_every: &'static str,
    random: Random,
    power: bool,
}

#[derive(Clone, Copy)]
struct Row {
    ts: i64,
    key: u64,
    bytes: u64,
}

pub(super) fn stored(setting: &Setting<'_>) -> Result<Box<dyn Job>> {
    let mut random = setting.random.clone();
    let count = random.between(2_000, 40_000);
    let mut ts = 0;
    let rows = (0..count).map(|_| {
        // Now and then back into an older interval.
        ts += random.between(0, 40) as i64;
        let late = if random.between(0, 99) == 0 { random.between(0, 400_000) as i64 } else { 0 };
        Row { ts: (ts - late).max(0), key: random.between(0, 20), bytes: random.between(0, 9_000) }
    });
    let rows: Vec<Row> = rows.collect();
    let mut text = b"ts,n,key,bytes\n".to_vec();
    for (offset, Row { ts, key, bytes }) in rows.iter().enumerate() {
        writeln!(text, "{ts},{offset},k{key},{bytes}")?;
    }
    let file = Grown::begun(setting.folder.join("rows.csv"), text)?;
    let seal_rows = random.pick(&[50, 500, 5_000, 1_000_000]);
    let seal_every = random.pick(&["50ms", "300ms", "5m"]);
    Ok(Box::new(Table {
        sql: Sql { binary: setting.binary.to_owned(), data: setting.disk.join("data") },
        file,
        rows,
        seal_rows,
        seal_every,
        random,
        power: setting.power,
    }))
}

impl Table {
    /// What is committed has to be the rows before some offset, each once.
    fn check(&self) -> Result<()> {
        let Some(lines) = self.sql.lines("SELECT count(*), count(DISTINCT n), min(n), max(n) FROM rows")?
        else {
            return Ok(());
        };
        let line = lines.first().context("a count has a row")?;
        let cells: Vec<&str> = line.split(',').collect();
        let [rows, distinct, first, last] = cells.as_slice() else { bail!("four cells, got {line}") };
        if *rows == "0" {
            return Ok(());
        }
        let rows: i64 = rows.parse()?;
        ensure!(
            *distinct == rows.to_string() && *first == "0" && *last == (rows - 1).to_string(),
            "the committed rows are not those before some offset: {rows} rows, {distinct} offsets from {first} to {last}"
        );
        Ok(())
    }
}

impl Job for Table {
    fn job_file(&self, tuning: &Tuning) -> Value {
        json!({
            "name": "crash",
            "cycle": tuning.cycle,
            "state": tuning.state(),
            "sources": { "a": {
                "type": "file",
                "path": self.file.path,
                "follow": true,
                "poll": tuning.poll,
                "format": "csv",
                "schema": { "ts": "timestamp(ms)", "n": "int64", "key": "string", "bytes": "uint64" },
                "time": "ts",
                "lateness": "1h",
            }},
            "sinks": { "rows": {
                "type": "table",
                "input": tuning.input("a"),
                "seal_rows": self.seal_rows,
                "seal_every": self.seal_every,
                "rollups": { "minute": { "every": "1m", "by": ["key"], "sum": ["bytes"] } },
            }},
        })
    }

    fn sinks(&self) -> &[(String, PathBuf)] {
        &[]
    }

    fn is_drained(&self) -> bool {
        true
    }

    fn feed(&mut self) -> Result<()> {
        // Beside the engine, which goes on meanwhile. Seldom: a query starts a program.
        if self.random.between(0, 199) == 0 {
            self.check()?;
        }
        self.file.grow(&mut self.random)
    }

    fn is_fed(&self) -> bool {
        self.file.is_whole()
    }

    fn stopped(&mut self) -> Result<()> {
        // A disk without power cannot be asked.
        if !self.power && self.random.between(0, 3) == 0 { self.check() } else { Ok(()) }
    }

    fn recount(&mut self, found: &Found, _: &Ledger) -> Result<u64> {
        let commit = found.commit.as_ref().context("there is no commit record at the end")?;
        let count = self.rows.len() as u64;
        ensure!(
            commit.sources.iter().all(|(_, next)| *next == count),
            "the source ended at {:?}",
            commit.sources
        );
        let lines = self.sql.lines("SELECT n, CAST(ts AS BIGINT), key, bytes FROM rows ORDER BY n")?;
        let lines = lines.context("there is no table at the end")?;
        ensure!(lines.len() as u64 == count, "{} rows, expected {count}", lines.len());
        for (offset, (line, Row { ts, key, bytes })) in lines.iter().zip(&self.rows).enumerate() {
            let expected = format!("{offset},{ts},k{key},{bytes}");
            ensure!(*line == expected, "row {offset} is {line}, expected {expected}");
        }
        // Whole intervals, so that the rollup answers for sealed rows; and the same with every row asked.
        let mut sums: BTreeMap<(i64, String), (u64, u64)> = BTreeMap::new();
        for Row { ts, key, bytes } in &self.rows {
            let sum = sums.entry((ts / INTERVAL * INTERVAL, format!("k{key}"))).or_default();
            *sum = (sum.0 + bytes, sum.1 + 1);
        }
        let sql = "SELECT CAST(date_bin(INTERVAL '1 minute', ts) AS BIGINT), key, sum(bytes), count(*) \
                   FROM rows GROUP BY 1, 2 ORDER BY 1, 2";
        let lines = self.sql.lines(sql)?.context("there is no table at the end")?;
        let expected: Vec<String> =
            sums.iter().map(|((ts, key), (sum, rows))| format!("{ts},{key},{sum},{rows}")).collect();
        if let Some((got, expected)) = lines.iter().zip(&expected).find(|(got, expected)| got != expected) {
            bail!("a sum is {got}, expected {expected}");
        }
        ensure!(lines.len() == expected.len(), "{} sums, expected {}", lines.len(), expected.len());
        Ok(count)
    }
}
