//! Peak resident memory of a process, compared with the ceilings that its job file sets: the table by which a machine
//! is sized.
//!
//! Each case is a process of its own. Peaks are the kernel's (`VmHWM`, `ru_maxrss`); child processes count apart.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::process;
use super::report::{Report, Table, count};
use super::server::Server;
use thalweg_harness::Tally;
use thalweg_harness::http::Connection;
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A hundredth of everything: shows that it works
    #[arg(long)]
    quick: bool,
}

/// Sizes of a run.
struct Sizes {
    keys: u64,
    distinct: u64,
    line: u64,
    body: usize,
}

const WHOLE: Sizes = Sizes { keys: 5_000_000, distinct: 1_000_000, line: 1 << 30, body: 8 << 20 };
const QUICK: Sizes = Sizes { keys: 50_000, distinct: 10_000, line: 16 << 20, body: 80 << 10 };

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut report = Report::new("memory", "Resident memory and the ceilings of a job");
    report.heading("Cases");
    report.say("Each case is a process of its own with a data directory; what is resident at most is the kernel's figure.");
    let binary = project::thalweg(Profile::Release)?;
    let sizes = if options.quick { QUICK } else { WHOLE };
    let bench = Bench::new(&binary, &sizes)?;
    let mut table =
        Table::new(["case", "ceiling", "resident at most", "beyond an empty node", "bytes for each"]);
    let empty = bench.empty()?;
    table.row(["a node with one job and nothing in it".into(), "".into(), mib(empty), "".into(), "".into()]);
    for case in bench.cases()? {
        let beyond = case.peak.saturating_sub(empty);
        let each = case.pieces.map_or(String::new(), |pieces| count(beyond as f64 / pieces as f64));
        table.row([case.name, case.ceiling.to_owned(), mib(case.peak), mib(beyond), each]);
    }
    report.table(&table);
    report.finish(options.quick)
}

/// Every case in tiny, answers included.
pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let binary = project::thalweg(Profile::Dev)?;
    let bench = Bench::new(&binary, &QUICK)?;
    for case in bench.cases()? {
        // A tenth of a gibibyte of code, threads and buffers, and what little such cases hold.
        let most: u64 = 768 << 20;
        let fits =
            if case.peak <= most { Ok(()) } else { Err(anyhow::anyhow!("{} resident", mib(case.peak))) };
        tally.check(&format!("memory: {}", case.name), fits);
    }
    Ok(())
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

struct Case {
    name: String,
    ceiling: &'static str,
    peak: u64,
    /// Keys or values, each of which takes its part.
    pieces: Option<u64>,
}

struct Bench<'a> {
    binary: &'a Path,
    sizes: &'a Sizes,
    folder: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    fn new(binary: &'a Path, sizes: &'a Sizes) -> Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("memory").tempdir_in(project::scratch("bench-memory")?)?;
        Ok(Self { binary, sizes, folder })
    }

    fn empty(&self) -> Result<u64> {
        let server = Server::start(self.binary, &over_http())?;
        let peak = server.peak_bytes();
        server.stop()?;
        Ok(peak)
    }

    fn cases(&self) -> Result<Vec<Case>> {
        let Sizes { keys, distinct, line, body } = *self.sizes;
        let all = self.file("keys.csv", "k,v\n", keys, |number| {
            format!("k{:08},{}\n", scattered(number, keys), number % 97)
        })?;
        let one = self.file("one.csv", "k,v\n", distinct, |number| format!("k,{number}\n"))?;
        let long = self.file("long.csv", "k,v\n", line >> 16, |_| "x".repeat(1 << 16))?;
        let sums = "SELECT sum(v) AS s, count(*) AS n FROM p GROUP BY k OVER INFINITE";
        let values = "SELECT count(distinct v) AS n FROM p GROUP BY k OVER INFINITE";
        let metrics = |query: &str| json!({ "type": "metrics", "input": "p", "partition_by": ["k"], "queries": { "q": query } });
        let counts = json!({ "type": "count", "input": "p", "key": "k" });
        let name = |what: &str| format!("{} {what}", count(keys as f64));
        let name_one = |what: &str| format!("{} {what}", count(distinct as f64));
        let mut cases = Vec::new();
        for (name, ceiling, path, operator, pieces) in [
            (name("keys of windows, sum and count"), "state.memory 64MiB", &all, metrics(sums), Some(keys)),
            (name("keys of windows, sum and count"), "state.memory 256MiB", &all, metrics(sums), Some(keys)),
            (name("keys of windows, sum and count"), "none", &all, metrics(sums), Some(keys)),
            (name("keys of `count`"), "state.memory 64MiB", &all, counts, Some(keys)),
            (
                name_one("distinct values of one key"),
                "state.memory 64MiB",
                &one,
                metrics(values),
                Some(distinct),
            ),
            (format!("a line of {}", mib(line)), "none", &long, metrics(sums), None),
        ] {
            let peak = self.over_file(path, ceiling, &operator).with_context(|| name.clone())?;
            cases.push(Case { name, ceiling, peak, pieces });
        }
        let bodies = [
            ("lines that are no records", b"0\n".repeat(body / 2)),
            ("arrays in arrays", b"[".repeat(body)),
            ("empty lines", b"\n".repeat(body)),
            ("records of 34 bytes", b"{\"ts\":1700000000000,\"k\":\"a\",\"v\":1}\n".repeat(body / 35)),
            (
                "one record",
                format!("{{\"ts\":1700000000000,\"k\":\"{}\",\"v\":1}}", "k".repeat(body)).into_bytes(),
            ),
        ];
        for (what, bytes) in bodies {
            let name = format!("a body of {} KiB, {what}", bytes.len() >> 10);
            let peak = self.over_http(&bytes).with_context(|| name.clone())?;
            cases.push(Case { name, ceiling: "queue 16MiB", peak, pieces: None });
        }
        Ok(cases)
    }

    fn file(&self, name: &str, head: &str, lines: u64, line: impl Fn(u64) -> String) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        let mut file = BufWriter::new(std::fs::File::create(&path)?);
        file.write_all(head.as_bytes())?;
        for number in 0..lines {
            file.write_all(line(number).as_bytes())?;
        }
        file.flush()?;
        Ok(path)
    }

    fn over_file(&self, path: &Path, ceiling: &str, operator: &Value) -> Result<u64> {
        let mut job = json!({
            "name": "m",
            "sources": { "p": { "type": "file", "path": path, "format": "csv", "schema": { "k": "string", "v": "int64" } } },
            "operators": { "m": operator },
            "sinks": { "o": { "type": "null", "input": "m" } },
        });
        if let Some(memory) = ceiling.strip_prefix("state.memory ") {
            job["state"] = json!({ "memory": memory });
        }
        let folder = tempfile::tempdir_in(self.folder.path())?;
        let file = folder.path().join("job.json");
        std::fs::write(&file, job.to_string())?;
        let mut command = Command::new(self.binary);
        command.arg("run").arg(&file).arg("--data-dir").arg(folder.path().join("D"));
        Ok(process::run(command)?.usage.peak_bytes)
    }

    fn over_http(&self, body: &[u8]) -> Result<u64> {
        let mut server = Server::start(self.binary, &over_http())?;
        // A refusal may come before all was sent, and the connection then breaks.
        let _ = Connection::open(server.address())?.post("/v1/jobs/m/sources/p", &[body]);
        server.check_running()?;
        let (status, _) = {
            let mut connection = Connection::open(server.address())?;
            let (status, reply) = connection.get("/healthz")?;
            (status, reply.len())
        };
        ensure!(status == 200, "the node is not well: status {status}");
        let peak = server.peak_bytes();
        server.stop()?;
        Ok(peak)
    }
}

/// Another order of the numbers below `most`, so that keys do not come sorted.
fn scattered(number: u64, most: u64) -> u64 {
    (number * 2_654_435_761) % most
}

fn over_http() -> Value {
    json!({
        "name": "m",
        "sources": { "p": { "type": "http", "queue": "16MiB", "time": "ts", "schema": { "ts": "timestamp(ms)", "k": "string", "v": "int64" } } },
        "operators": { "m": { "type": "metrics", "input": "p", "partition_by": ["k"], "queries": { "q": "SELECT count(*) AS n FROM p GROUP BY k OVER INFINITE" } } },
        "sinks": { "o": { "type": "null", "input": "m" } },
    })
}
