//! How long the index takes to be there again when a process starts.

use std::path::Path;

use anyhow::{Context, Result};

use super::Options;
use super::stores::Stores;
use crate::report::{Report, Table, count, mebibytes};
use crate::{median, process};

/// Keys, as in S4's largest case.
const KEYS: u64 = 1_000_000;

/// Processes that open the same state, one after the other.
const OPENS: usize = 5;

/// How a state is left: end, bytes of a value, overwrites of each key, and what the table says.
const CASES: [(&str, &str, &str, &str); 5] = [
    ("close", "54", "2", "70 B, after an orderly close"),
    ("crash", "54", "2", "70 B, after a crash in a cycle"),
    ("no-index", "54", "2", "70 B, all index files lost"),
    ("close", "1024", "1", "1 KiB, after an orderly close"),
    ("crash", "1024", "1", "1 KiB, after a crash in a cycle"),
];

pub(super) fn table(options: &Options, stores: &Stores, report: &mut Report) -> Result<()> {
    report.heading("The index after a start");
    let keys = if options.quick { KEYS / 100 } else { KEYS };
    report.say(&format!(
        "Opening the `indexed` back end with {} keys in a new process, from the page cache; S4 took just under 250 ms for a million entries of some 70 bytes (Vallés, 2012, figure 4.2), and the target is 100 ms.",
        count(keys as f64)
    ));
    let mut table = Table::new(["entries", "open, median", "longest", "index", "bytes a key", "on disk"]);
    for (end, value, overwrites, what) in CASES {
        let folder = tempfile::tempdir_in(options.folder()?).context("make a folder for a state")?;
        let dir = folder.path().join("state");
        let keys_text = keys.to_string();
        let mut command = stores.ours();
        command.arg("leave").arg("--dir").arg(&dir).args(["--keys", &keys_text, "--end", end]);
        command.args(["--value-bytes", value, "--overwrites", overwrites]);
        process::run(command)?;
        let opened = (0..OPENS).map(|_| open(stores, &dir, &keys_text)).collect::<Result<Vec<_>>>()?;
        let longest = opened.iter().map(|open| open.milliseconds).fold(0.0, f64::max);
        let first = opened.first().context("a state was opened")?;
        table.row([
            what.to_owned(),
            format!("{:.0} ms", median(opened.iter().map(|open| open.milliseconds).collect())),
            format!("{longest:.0} ms"),
            mebibytes(first.index_bytes as u64),
            format!("{:.1}", first.index_bytes / keys as f64),
            mebibytes(first.disk_bytes as u64),
        ]);
    }
    report.table(&table);
    Ok(())
}

struct Open {
    milliseconds: f64,
    index_bytes: f64,
    disk_bytes: f64,
}

fn open(stores: &Stores, dir: &Path, keys: &str) -> Result<Open> {
    let mut command = stores.ours();
    command.arg("open").arg("--dir").arg(dir).args(["--keys", keys]);
    let figures = process::run(command)?.figures("open_ms")?;
    Ok(Open {
        milliseconds: figures.number("open_ms")?,
        index_bytes: figures.number("index_bytes")?,
        disk_bytes: figures.number("disk_bytes")?,
    })
}
