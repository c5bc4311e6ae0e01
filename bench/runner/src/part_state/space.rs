//! Space on disk while all keys are overwritten again and again.

use anyhow::Result;

use super::Options;
use super::stores::Stores;
use crate::report::{Report, Table, count, mebibytes, times};

/// From few keys, of which a cycle changes most, to many, of which it changes a hundredth.
const KEYS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Writes of a cycle, at most: a job hands over a key once, however often a cycle changes it.
const CYCLE: u64 = 10_000;

/// How often each key is overwritten, on average.
const TIMES: u64 = 10;

pub(super) fn table(options: &Options, stores: &Stores, report: &mut Report) -> Result<()> {
    report.heading("Space under overwrites");
    report.say(&format!(
        "Keys with 1 KiB each, each overwritten {TIMES} times on average, cycles of 10,000 writes or as many as there are keys; blocks of files as the file system counts them, looked at after each tenth commit. The target is twice the live data.",
    ));
    let mut table =
        Table::new(["keys", "store", "live", "at the end", "of live", "most on the way", "of live"]);
    for keys in KEYS {
        let keys = if options.quick { keys / 100 } else { keys };
        for store in stores.wanted() {
            if matches!(store.name, "files" | "memory" | "indexed+commit") || store.scheme.is_some() {
                continue;
            }
            let [many, cycle, writes] = [keys, keys.min(CYCLE), keys * TIMES].map(|n| n.to_string());
            let arguments = ["--keys", &many, "--at-once", &cycle, "--seconds", "600", "--writes", &writes];
            let figures = stores.run(options, store, &arguments)?.figures("rate")?;
            let [live, disk, most] =
                ["live_bytes", "disk_bytes", "most_disk_bytes"].map(|key| figures.number(key));
            let (live, disk, most) = (live?, disk?, most?);
            table.row([
                count(keys as f64),
                store.name.to_owned(),
                mebibytes(live as u64),
                mebibytes(disk as u64),
                times(disk / live),
                mebibytes(most as u64),
                times(most / live),
            ]);
        }
    }
    report.table(&table);
    report.say("One file per key takes a block or two for each, whatever is overwritten.");
    Ok(())
}
