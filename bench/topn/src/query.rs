//! One query, and what a run of it comes to.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use thalweg_sql::{Arrow, Engine, Format, Sql};

use crate::timed;

#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) name: String,
    sql: String,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) time: Duration,
    pub(crate) rows: usize,
    /// The sum of the last column.
    pub(crate) answer: i128,
}

impl FromStr for Query {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, sql) = text.split_once('=').ok_or_else(|| format!("expected NAME=SQL, got {text:?}"))?;
        Ok(Self { name: name.to_owned(), sql: sql.to_owned() })
    }
}

impl Query {
    /// From the text to the last row.
    pub(crate) fn run(&self, engine: &Engine) -> Result<Run> {
        let ask = || -> Result<Vec<RecordBatch>> {
            Ok(engine.query_blocking(&self.sql)?.collect::<Result<Vec<_>, _>>()?)
        };
        self.judged(ask)
    }

    /// As a node answers: from the text to the last byte of Arrow IPC, read.
    pub(crate) fn run_encoded(&self, queries: &Sql) -> Result<Run> {
        self.judged(|| {
            let chunks = queries.ask_blocking(&self.sql, Format::Arrow(Arrow::default()))?;
            let bytes = chunks.blocking().collect::<Result<Vec<_>, _>>()?.concat();
            Ok(StreamReader::try_new(bytes.as_slice(), None)?.collect::<Result<Vec<_>, _>>()?)
        })
    }

    fn judged(&self, ask: impl FnOnce() -> Result<Vec<RecordBatch>>) -> Result<Run> {
        let (time, batches) = timed(ask).with_context(|| format!("query {}", self.name))?;
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let answer = batches.iter().map(last_column).sum::<Result<i128>>()?;
        Ok(Run { time, rows, answer })
    }
}

fn last_column(batch: &RecordBatch) -> Result<i128> {
    let last = batch.columns().last().context("an answer has columns")?;
    ensure!(last.null_count() == 0, "the last column has nulls");
    let signed =
        last.as_primitive_opt::<Int64Type>().map(|n| n.values().iter().map(|n| i128::from(*n)).sum());
    let unsigned =
        last.as_primitive_opt::<UInt64Type>().map(|n| n.values().iter().map(|n| i128::from(*n)).sum());
    signed.or(unsigned).with_context(|| format!("the last column is no integer but {}", last.data_type()))
}
