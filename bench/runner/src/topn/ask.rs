//! The same queries to both systems.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::stored::Stored;
use super::{CORES, THREADS};
use crate::figures::Figures;
use crate::{duckdb, pinned, process};

/// A query by name.
#[derive(Clone, Debug)]
pub(super) struct Query {
    pub(super) name: &'static str,
    pub(super) sql: String,
}

/// How it is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) clients: usize,
    /// Times that each client asks.
    pub(super) repeat: usize,
    /// It goes on for so long at least, so that a query of a millisecond is not measured by nine.
    pub(super) seconds: f64,
    pub(super) cold: bool,
}

/// Who is asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum System<'a> {
    Ours { topn: &'a Path, rollups: bool },
    DuckDb,
}

/// What one query came to.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) ms: f64,
    /// Of the fastest and the slowest.
    pub(super) span: (f64, f64),
    rows: String,
    answer: String,
}

impl Answer {
    fn of(figures: &Figures) -> Result<Self> {
        Ok(Self {
            ms: figures.number("median_ms")?,
            span: (figures.number("least_ms")?, figures.number("most_ms")?),
            rows: figures.text("rows")?.to_owned(),
            answer: figures.text("answer")?.to_owned(),
        })
    }

    /// Both have the same rows, as far as their number and the sum of the last column show.
    pub(super) fn must_equal(&self, other: &Answer) -> Result<()> {
        ensure!(
            (&self.rows, &self.answer) == (&other.rows, &other.answer),
            "answers differ: {self:?} and {other:?}"
        );
        Ok(())
    }

    /// `12.3 ms`.
    pub(super) fn print(&self) -> String {
        milliseconds(self.ms)
    }
}

pub(super) fn milliseconds(ms: f64) -> String {
    match ms {
        100.0.. => format!("{ms:.0} ms"),
        10.0.. => format!("{ms:.1} ms"),
        _ => format!("{ms:.2} ms"),
    }
}

/// An answer for each query, in their order.
pub(super) fn ask(system: System<'_>, stored: &Stored, queries: &[Query], how: How) -> Result<Vec<Answer>> {
    let mut command: Command = match system {
        System::Ours { topn, rollups } => {
            let mut command = pinned(Some(CORES), topn);
            command.arg("--data-dir").arg(&stored.data_dir).arg("ask");
            if !rollups {
                command.arg("--no-rollups");
            }
            command
        }
        System::DuckDb => {
            let mut command = pinned(Some(CORES), &duckdb::python()?);
            command.arg(duckdb::scripts().join("topn.py")).arg("--files").arg(&stored.listed);
            command
        }
    };
    command.args(["--threads", THREADS, "--repeat", &how.repeat.to_string()]);
    match how.cold {
        true => command.arg("--cold"),
        false => command.args(["--clients", &how.clients.to_string(), "--seconds", &how.seconds.to_string()]),
    };
    command.args(queries.iter().map(|query| format!("{}={}", query.name, query.sql)));
    let finished = process::run(command)?;
    let lines: Vec<Figures> = finished.stdout.lines().filter_map(Figures::parse).collect();
    let answer = |query: &Query| {
        let line = lines.iter().find(|line| line.text("query").is_ok_and(|name| name == query.name));
        Answer::of(line.with_context(|| format!("no answer to {}", query.name))?)
    };
    queries.iter().map(answer).collect()
}
