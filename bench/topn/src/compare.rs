//! What it costs that a query runs in a process of its own, as it does for a user.
//!
//! Both answer with the same bytes, from the text of a query to the end of its Arrow IPC. They take turns, and who is first
//! changes, so that what else the machine does hits both.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use thalweg_node::tables::CommittedTables;
use thalweg_sql::{Engine, Limits, Program, Setup, Sql, Workers};
use thalweg_table::Catalog;

use crate::query::Query;

#[derive(Args)]
pub(crate) struct Compare {
    /// NAME=SQL
    #[arg(required = true)]
    queries: Vec<Query>,
    /// The program `thalweg`
    #[arg(long)]
    program: PathBuf,
    /// Times that both are asked
    #[arg(long, default_value_t = 51)]
    turns: usize,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Memory of a query, in MiB
    #[arg(long, default_value_t = 256)]
    memory: u64,
    /// Answer from rows alone
    #[arg(long)]
    no_rollups: bool,
}

impl Compare {
    pub(crate) fn run(&self, tables: &Arc<CommittedTables>) -> Result<()> {
        let tables: Arc<dyn Catalog> = tables.clone();
        let limits = Limits {
            threads: self.threads,
            use_rollups: !self.no_rollups,
            time: Duration::from_secs(600),
            memory: self.memory << 20,
            ..Limits::default()
        };
        let here = Sql::from(Engine::new(Arc::clone(&tables), limits.clone())?);
        let program = Program { path: self.program.clone(), args: vec!["sql-worker".into()] };
        let worker = Sql::from(Workers::start(tables, Setup { program, limits, is_node: true })?);
        self.queries.iter().try_for_each(|query| self.compare(query, &here, &worker))
    }

    fn compare(&self, query: &Query, here: &Sql, worker: &Sql) -> Result<()> {
        let mut times = Vec::new();
        // The first turns warm caches, of more than one process.
        const WARMING: usize = 4;
        for turn in 0..self.turns + WARMING {
            let (of_here, of_worker) = if turn % 2 == 0 {
                let of_here = query.run_encoded(here)?;
                (of_here, query.run_encoded(worker)?)
            } else {
                let of_worker = query.run_encoded(worker)?;
                (query.run_encoded(here)?, of_worker)
            };
            let same = (of_here.rows, of_here.answer) == (of_worker.rows, of_worker.answer);
            ensure!(same, "query {} gave different answers", query.name);
            if turn >= WARMING {
                times.push((of_here.time.as_secs_f64() * 1e3, of_worker.time.as_secs_f64() * 1e3));
            }
        }
        let here = median(times.iter().map(|(here, _)| *here))?;
        let worker = median(times.iter().map(|(_, worker)| *worker))?;
        let difference = median(times.iter().map(|(here, worker)| worker - here))?;
        println!(
            "query={} turns={} here_ms={here:.3} worker_ms={worker:.3} difference_ms={difference:.3} percent={:.1}",
            query.name,
            times.len(),
            difference / here * 1e2,
        );
        Ok(())
    }
}

fn median(values: impl Iterator<Item = f64>) -> Result<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().context("no turn was asked for")
}
