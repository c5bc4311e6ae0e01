//! Space on disk while all keys are overwritten again and again.

use anyhow::Result;

use super::Options;
use super::stores::Stores;
use crate::bench::report::{Report, Table, count, mebibytes, times};

const KEYS: u64 = 100_000;

/// How often each key is overwritten, on average.
const TIMES: u64 = 10;

pub(super) fn table(options: &Options, stores: &Stores, report: &mut Report) -> Result<()> {
    let keys = if options.quick { KEYS / 100 } else { KEYS };
    report.heading("Space under overwrites");
    report.say(&format!(
        "{} keys of 1 KiB, each overwritten {TIMES} times on average, cycles of 10,000 writes; blocks of files as the file system counts them. The target is twice the live data.",
        count(keys as f64)
    ));
    let mut table = Table::new(["store", "live", "at the end", "of live", "most on the way", "of live"]);
    let (keys, writes) = (keys.to_string(), (keys * TIMES).to_string());
    for store in stores.wanted() {
        if matches!(store.name, "files" | "memory" | "indexed+commit") || store.scheme.is_some() {
            continue;
        }
        let arguments = ["--keys", &keys, "--sync", "cycle", "--seconds", "600", "--writes", &writes];
        let figures = stores.run(options, store, &arguments)?.figures("rate")?;
        let [live, disk, most] =
            ["live_bytes", "disk_bytes", "most_disk_bytes"].map(|key| figures.number(key));
        let (live, disk, most) = (live?, disk?, most?);
        table.row([
            store.name.to_owned(),
            mebibytes(live as u64),
            mebibytes(disk as u64),
            times(disk / live),
            mebibytes(most as u64),
            times(most / live),
        ]);
    }
    report.table(&table);
    report.say("One file per key takes a block or two for each, whatever is overwritten.");
    Ok(())
}
