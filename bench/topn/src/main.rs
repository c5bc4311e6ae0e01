//! Asks the tables of a data directory again and again, by one client or by several at once; `cargo xtask bench topn`
//! measures with it.
//!
//! A line for each query: `query=NAME clients=… runs=… median_ms=… least_ms=… most_ms=… rows=… answer=…`, where the answer is
//! the sum of the last column. `files` prints one line for each Parquet file instead: `part=… rows=… bytes=… path=…`.
//! `compare` asks an engine in this process and one in a process of its own, turn by turn, and prints
//! `query=NAME turns=… here_ms=… worker_ms=… difference_ms=… percent=…`: medians, and the median of the differences.

mod compare;
mod query;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use rustix::fs::{Advice, fadvise};
use thalweg_node::tables::CommittedTables;
use thalweg_sql::{Engine, Limits};
use thalweg_table::{Catalog, Snapshot};

use self::query::{Query, Run};

#[derive(Parser)]
struct Program {
    /// Where a job has left its tables
    #[arg(long)]
    data_dir: PathBuf,
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Parquet files of the tables
    Files,
    /// Time of queries
    Ask(Ask),
    /// What a process for each query costs
    Compare(compare::Compare),
}

#[derive(Args)]
struct Ask {
    /// NAME=SQL
    #[arg(required = true)]
    queries: Vec<Query>,
    /// Who ask the same at once
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Times that each client asks; one more comes before and does not count
    #[arg(long, default_value_t = 7)]
    repeat: usize,
    /// Each client goes on for so many seconds at least
    #[arg(long, default_value_t = 0.0)]
    seconds: f64,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Answer from rows alone
    #[arg(long)]
    no_rollups: bool,
    /// Before each query its files leave the page cache, and the engine is a new one
    #[arg(long, conflicts_with = "clients")]
    cold: bool,
}

fn main() -> Result<()> {
    let program = Program::parse();
    let tables = Arc::new(CommittedTables::open(&program.data_dir)?);
    match program.task {
        Task::Files => files(&*tables),
        Task::Compare(compare) => compare.run(&tables),
        Task::Ask(ask) => ask.queries.iter().try_for_each(|query| {
            let runs = if ask.cold { cold(&tables, &ask, query)? } else { warm(&tables, &ask, query)? };
            print(query, &ask, &runs)
        }),
    }
}

fn snapshots(tables: &dyn Catalog) -> Result<Vec<Snapshot>> {
    let names = tables.tables()?;
    let snapshots = names.iter().map(|name| tables.snapshot(name)).collect::<Result<Vec<_>, _>>()?;
    Ok(snapshots.into_iter().flatten().collect())
}

fn files(tables: &dyn Catalog) -> Result<()> {
    for table in snapshots(tables)? {
        ensure!(table.fresh.is_empty(), "{} has rows that are in no Parquet file", table.name);
        let rollups = table.rollups.iter().map(|rollup| (rollup.spec.name.as_str(), &rollup.files));
        for (part, files) in std::iter::once(("rows", &table.files)).chain(rollups) {
            for file in files {
                println!("part={part} rows={} bytes={} path={}", file.rows, file.bytes, file.path.display());
            }
        }
    }
    Ok(())
}

fn engine(tables: &Arc<CommittedTables>, ask: &Ask) -> Result<Engine> {
    let limits = Limits {
        threads: ask.threads,
        use_rollups: !ask.no_rollups,
        time: Duration::from_secs(600),
        memory: 4 << 30,
        ..Limits::default()
    };
    Ok(Engine::new(Arc::clone(tables) as Arc<dyn Catalog>, limits)?)
}

/// Each client asks again as soon as it has its answer.
fn warm(tables: &Arc<CommittedTables>, ask: &Ask, query: &Query) -> Result<Vec<Run>> {
    let engine = engine(tables, ask)?;
    query.run(&engine)?;
    let client = || {
        let (started, mut runs) = (Instant::now(), Vec::new());
        while runs.len() < ask.repeat || started.elapsed().as_secs_f64() < ask.seconds {
            runs.push(query.run(&engine)?);
        }
        Ok(runs)
    };
    let runs: Vec<Result<Vec<Run>>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..ask.clients).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
    });
    Ok(runs.into_iter().collect::<Result<Vec<_>>>()?.concat())
}

fn cold(tables: &Arc<CommittedTables>, ask: &Ask, query: &Query) -> Result<Vec<Run>> {
    let run = |_| {
        for table in snapshots(&**tables)? {
            let rollups = table.rollups.iter().flat_map(|rollup| &rollup.files);
            for file in table.files.iter().chain(rollups) {
                let opened = File::open(&file.path).with_context(|| format!("open {:?}", file.path))?;
                fadvise(&opened, 0, None, Advice::DontNeed).context("drop a file from the page cache")?;
            }
        }
        query.run(&engine(tables, ask)?)
    };
    (0..ask.repeat).map(run).collect()
}

fn print(query: &Query, ask: &Ask, runs: &[Run]) -> Result<()> {
    let first = runs.first().context("no run was asked for")?;
    let same = runs.iter().all(|run| (run.rows, run.answer) == (first.rows, first.answer));
    ensure!(same, "query {} gave different answers", query.name);
    let mut times: Vec<Duration> = runs.iter().map(|run| run.time).collect();
    times.sort();
    let ms = |place: usize| times[place].as_secs_f64() * 1e3;
    println!(
        "query={} clients={} runs={} median_ms={:.3} least_ms={:.3} most_ms={:.3} rows={} answer={}",
        query.name,
        ask.clients,
        times.len(),
        ms(times.len() / 2),
        ms(0),
        ms(times.len() - 1),
        first.rows,
        first.answer,
    );
    Ok(())
}

/// Times something.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let begun = Instant::now();
    let done = work()?;
    Ok((begun.elapsed(), done))
}
