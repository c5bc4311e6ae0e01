//! The jobs of the benchmark, and the tables that they join with.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::process;

/// Where flows go that are to be kept for queries.
const TABLE_SINK: &str = "table";

/// What becomes of the flows of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// To a table, or its replacement: see [`TABLE_SINK`].
    Table,
    /// To a file of JSON lines.
    Lines,
}

impl Output {
    pub(super) fn describe(self) -> String {
        match self {
            Output::Table => format!("ours, `type: {TABLE_SINK}`"),
            Output::Lines => "ours, JSON lines to a file".to_owned(),
        }
    }

    fn sink(self, input: &str, folder: &Path) -> Value {
        match self {
            Output::Table => json!({ "type": TABLE_SINK, "input": input }),
            Output::Lines => {
                json!({ "type": "file", "input": input, "path": folder.join("flows.ndjson"), "format": "ndjson" })
            }
        }
    }
}

/// Listens for samples and passes them on; every sample is an answer of one of the sinks.
pub(super) fn collector(output: Output, folder: &Path) -> Value {
    json!({
        "name": "collector",
        "sources": { "switches": { "type": "sflow", "receive_buffer": "64MiB", "queue": "64MiB" } },
        "sinks": {
            "flows": output.sink("switches.flows", folder),
            "counters": { "type": "null", "input": "switches.counters" },
        },
    })
}

/// Made-up flows through both joins, as fast as they are taken.
pub(crate) fn joins(tables: &Tables, count: u64) -> Value {
    json!({
        "name": "joins",
        "sources": { "switches": { "type": "generator", "kind": "flows", "seed": SEED, "count": count } },
        "operators": {
            "networks": {
                "type": "range_join",
                "input": "switches.flows",
                "table": tables.folder.join("asn.tsv"),
                "schema": { "first": "ip", "last": "ip", "asn": "uint64", "country": "string", "as_name": "string" },
                "on": { "src": "src_addr", "dst": "dst_addr" },
            },
            "names": {
                "type": "lookup_join",
                "input": "networks",
                "table": tables.names(),
                "on": { "src": "src_addr", "dst": "dst_addr" },
            },
        },
        "sinks": { "flows": { "type": TABLE_SINK, "input": "names" } },
    })
}

/// The same flows without joins.
pub(super) fn flows(count: u64) -> Value {
    json!({
        "name": "flows",
        "sources": { "switches": { "type": "generator", "kind": "flows", "seed": SEED, "count": count } },
        "sinks": { "flows": { "type": TABLE_SINK, "input": "switches.flows" } },
    })
}

const SEED: u32 = 1;

/// The tables that fit the made-up flows and datagrams.
pub(crate) struct Tables {
    folder: PathBuf,
}

impl Tables {
    /// Writes them into a folder.
    pub(crate) fn make(binary: &Path, folder: &Path) -> Result<Self> {
        let tables = Self { folder: folder.to_owned() };
        let mut gen_tables = Command::new(binary);
        gen_tables.args(["gen", "flows", "--seed", &SEED.to_string(), "--tables"]).arg(folder);
        process::run(gen_tables)?;
        tables.add_made_up_datagrams().context("add the addresses of made-up datagrams")?;
        let mut build = Command::new(binary);
        build.args(["table", "build-lookup"]).arg(folder.join("names.csv")).arg("--out").arg(tables.names());
        process::run(build)?;
        Ok(tables)
    }

    /// The datagrams that the sender makes up are between two networks for documentation, of which every address has a name.
    fn add_made_up_datagrams(&self) -> std::io::Result<()> {
        let append = |file: &str| File::options().append(true).open(self.folder.join(file));
        let (mut networks, mut names) = (append("asn.tsv")?, append("names.csv")?);
        for (asn, network) in [(64_496, "198.51.100"), (64_497, "203.0.113")] {
            writeln!(networks, "{network}.0\t{network}.255\t{asn}\tZZ\tDOCUMENTATION-{asn}")?;
            for host in 0..=255 {
                writeln!(names, "{network}.{host},host{host}.as{asn}.example")?;
            }
        }
        Ok(())
    }

    fn names(&self) -> PathBuf {
        self.folder.join("names.thl")
    }

    pub(crate) fn networks(&self) -> PathBuf {
        self.folder.join("asn.tsv")
    }
}

/// Runs a job to its end; records that came out, and how many a second.
pub(super) fn run(mut command: Command, job: &Value, folder: &Path) -> Result<(f64, f64)> {
    let path = folder.join("job.json");
    std::fs::write(&path, format!("{job:#}\n")).context("write the job file")?;
    command.arg("run").arg(path).args(["--quiet", "--workers", "2"]);
    let figures = process::run(command)?.figures("rate")?;
    Ok((figures.number("answers")?, figures.number("rate")?))
}
