//! Chimera's table II: how many messages a second each stage takes, and all of them together.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{CORES, Driver, MESSAGE, Options};
use crate::report::{Report, Table};
use crate::{median, pinned, process};

/// A stage of ours and of Chimera's, with the millions of messages per second that it published.
struct Stage {
    name: &'static str,
    what: &'static str,
    chimera: &'static str,
}

/// Table II of the Chimera paper, the rows without a wire: inbound and outbound.
const PARSE: Stage =
    Stage { name: "parse", what: "parsing: line protocol into columns", chimera: "6 in, 4.3 out" };
const RING: Stage =
    Stage { name: "ring", what: "ring: whole batches between threads", chimera: "4.3 in, 4.3 out" };
const LINK: Stage = Stage {
    name: "link",
    what: "link: spread by key over tasks, each message copied where it arrives",
    chimera: "channel: 4.3 in, 4.2 out",
};
const STAGING: Stage = Stage {
    name: "staging",
    what: "staging: columns into line protocol, as a sink sends it",
    chimera: "0.9 in, 0.9 out; 3.5 alone",
};

const JOURNAL: &str = "4.3 in, 3.7 out";

fn millions(rate: f64) -> String {
    format!("{:.2}", rate / 1e6)
}

pub(super) fn table(
    options: &Options,
    driver: &Driver,
    binary: Option<&Path>,
    report: &mut Report,
) -> Result<()> {
    report.heading("Stage by stage");
    report.say("Chimera's table II: messages of 500 bytes, millions a second. Ours have four tags, sixteen numbers and a text.");
    report.say("Each stage of ours runs alone, on one thread and on two; this machine's cores stand above.");
    report.say("Chimera's figures are the published ones (Lau, Maresca, 2017, table II and section V-C, rows with a local processor), on two six-core processors, with its journal in tmpfs and parsing and extraction on up to 2N + 1 threads. They are no measurement of ours.");
    let mut table = Table::new(["stage", "ours, one thread", "ours, two threads", "Chimera, published"]);
    for stage in [PARSE, RING] {
        row(options, driver, &stage, &mut table)?;
    }
    let folder = options.folder()?;
    for (name, folder, ack) in [
        ("journal on the disk, `written`", folder.as_path(), "written"),
        ("journal on the disk, `synced`", folder.as_path(), "synced"),
        ("journal in tmpfs, `written`", Path::new("/dev/shm"), "written"),
    ] {
        if !folder.is_dir() {
            report.say(&format!("Skipped: {name}: there is no folder {}.", folder.display()));
            continue;
        }
        let rate = journal(options, driver, folder, ack)?;
        let chimera = if folder.starts_with("/dev/shm") { JOURNAL } else { "0.2 (115 MB/s, one hard disk)" };
        table.row([name.to_owned(), "–".to_owned(), millions(rate), chimera.to_owned()]);
    }
    row(options, driver, &LINK, &mut table)?;
    table.row([
        "extraction: bytes into objects".to_owned(),
        "–".to_owned(),
        "–".to_owned(),
        "0.9 in, 0.9 out".to_owned(),
    ]);
    row(options, driver, &STAGING, &mut table)?;
    if let Some(binary) = binary {
        let rate = end_to_end(options, driver, binary)?;
        table.row([
            "end to end: stdin, journal `synced`, parsed, spread by key, written to a file".to_owned(),
            "–".to_owned(),
            millions(rate),
            "0.9, its slowest stage".to_owned(),
        ]);
    }
    report.table(&table);
    report.say("The journal's rows take the thread that hands over and the thread that writes. Ours has no extraction: columns cross threads as they are.");
    Ok(())
}

fn row(options: &Options, driver: &Driver, stage: &Stage, table: &mut Table) -> Result<()> {
    let seconds = if options.quick { "0.1" } else { "1" };
    let rate = |threads: &str| -> Result<f64> {
        let run =
            || driver.run(&["stage", stage.name, "--threads", threads, "--seconds", seconds])?.number("rate");
        Ok(median((0..options.repeat()).map(|_| run()).collect::<Result<Vec<f64>>>()?))
    };
    // On one thread nothing is handed over.
    let one = if stage.name == "ring" { "–".to_owned() } else { millions(rate("1")?) };
    table.row([stage.what.to_owned(), one, millions(rate("2")?), stage.chimera.to_owned()]);
    Ok(())
}

fn journal(options: &Options, driver: &Driver, folder: &Path, ack: &str) -> Result<f64> {
    let folder = folder.join(format!("thalweg-bench-journal-{}", std::process::id()));
    let path = folder.display().to_string();
    let mebibytes = if options.quick { "4" } else { "256" };
    let arguments = ["append", "--dir", &path, "--record", "500", "--ack", ack, "--mebibytes", mebibytes];
    let rates = (0..options.repeat()).map(|_| driver.run(&arguments)?.number("rate"));
    let rates = rates.collect::<Result<Vec<f64>>>();
    let _ = std::fs::remove_dir(&folder);
    Ok(median(rates?))
}

/// The whole engine on the same messages, from a pipe to a file, with everything that a durable job does.
fn end_to_end(options: &Options, driver: &Driver, binary: &Path) -> Result<f64> {
    let folder = options.folder()?;
    let count: u64 = if options.quick { 20_000 } else { 1_000_000 };
    let input = messages(driver, &folder, count)?;
    let scratch = tempfile::tempdir_in(&folder).context("make a data directory")?;
    let job = scratch.path().join("stages.json");
    let out = scratch.path().join("out.lp");
    let text = job_text(&json!({"type": "file", "input": "spread", "path": out, "format": "line_protocol"}));
    std::fs::write(&job, text).with_context(|| format!("write {}", job.display()))?;
    let run = |turn: usize| -> Result<f64> {
        let mut command = pinned(Some(CORES), binary);
        command.arg("run").arg(&job).args(["--workers", "2", "--data-dir"]);
        command.arg(scratch.path().join(format!("data-{turn}")));
        let file = File::open(&input).with_context(|| format!("open {}", input.display()))?;
        let finished = process::run_on(command, Stdio::from(file))?;
        let figures = finished.figures("rate")?;
        let (records, rejects) = (figures.number("records")?, figures.number("rejects")?);
        ensure!(
            records == count as f64 && rejects == 0.0,
            "{records} records and {rejects} rejects of {count} messages"
        );
        let written = std::fs::metadata(&out).map_or(0, |metadata| metadata.len()) as f64;
        ensure!(written > count as f64 * MESSAGE / 2.0, "{written} bytes are no {count} messages");
        std::fs::remove_file(&out)?;
        figures.number("rate")
    };
    let rates = (0..options.repeat().min(3)).map(run).collect::<Result<Vec<f64>>>();
    std::fs::remove_file(&input)?;
    Ok(median(rates?))
}

/// A file of messages.
pub(super) fn messages(driver: &Driver, folder: &Path, count: u64) -> Result<std::path::PathBuf> {
    let path = folder.join(format!("messages-{count}.lp"));
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    let status = std::process::Command::new(&driver.binary)
        .args(["messages", "--count", &count.to_string()])
        .stdin(Stdio::null())
        .stdout(file)
        .status()
        .context("start bench/journal")?;
    ensure!(status.success(), "making messages ended with {status}");
    Ok(path)
}

/// A job that reads messages from standard input.
pub(super) fn job_text(sink: &serde_json::Value) -> String {
    let mut schema = serde_json::Map::new();
    for name in ["measurement", "host", "region", "rack", "service", "note"] {
        schema.insert(name.to_owned(), json!("string"));
    }
    for number in 0..16 {
        schema.insert(format!("f{number:02}"), json!("float64"));
    }
    schema.insert("time".to_owned(), json!("timestamp(us)"));
    let job = json!({
        "name": "stages",
        "sources": {"messages": {
            "type": "stdin",
            "format": "line_protocol",
            "tags": ["host", "region", "rack", "service"],
            "schema": schema,
            "time": "time",
            "ack": "synced",
        }},
        "operators": {"spread": {
            "type": "relay",
            "input": {"from": "messages", "partition": "key(host)"},
        }},
        "sinks": {"out": sink},
    });
    format!("{job:#}\n")
}
