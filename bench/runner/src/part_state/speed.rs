//! Nine writes and a read by key, in turn, at three durabilities.

use anyhow::Result;

use super::Options;
use super::stores::{Store, Stores};
use crate::median;
use crate::process::Finished;
use crate::report::{Report, Table, count, mebibytes, times};

/// How many writes are synced at once, and what the tables call it.
const DURABILITIES: [(u64, &str, &str); 3] = [
    (1, "Every write synced", "write with sync"),
    (100, "100 writes synced at once", "group with sync"),
    (PER_CYCLE, "10,000 writes synced at once", "cycle with sync"),
];

/// Changes of a cycle.
const PER_CYCLE: u64 = 10_000;

/// Keys from which on one run has to do: loading them is most of it.
const MANY: u64 = 1_000_000;
/// The same for one file per key.
const MANY_FILES: u64 = 10_000;

/// How long a store may take to load all keys, for each durability and once for all.
const LOAD_SECONDS: &str = "60";
const LOAD_ONCE_SECONDS: &str = "900";

/// What one store came to at one number of keys and one durability.
struct Cell {
    store: Store,
    /// In the order of the turns.
    runs: Vec<Rates>,
    /// Why there are no figures.
    reason: Option<String>,
}

impl Cell {
    /// How many times the operations of another, turn by turn, for runs in the same seconds.
    fn beside(&self, other: &Cell) -> Option<f64> {
        let turns = self.runs.iter().zip(&other.runs);
        let ratios: Vec<f64> = turns.map(|(ours, theirs)| ours.operations / theirs.operations).collect();
        (!ratios.is_empty()).then(|| median(ratios))
    }
}

#[derive(Clone, Copy)]
struct Rates {
    operations: f64,
    sync_p50: f64,
    sync_p99: f64,
    read_p50: f64,
    read_p99: f64,
    disk: f64,
    live: f64,
    index: Option<f64>,
    peak_bytes: f64,
    /// Microseconds of processor time for each operation.
    cpu: f64,
}

impl Rates {
    fn of(finished: &Finished, at_once: &str) -> Result<Self> {
        let figures = finished.figures_where("at_once", at_once)?;
        let number = |key: &str| figures.number(key);
        Ok(Self {
            operations: number("rate")?,
            sync_p50: number("sync_p50_us")?,
            sync_p99: number("sync_p99_us")?,
            read_p50: number("read_p50_us")?,
            read_p99: number("read_p99_us")?,
            disk: number("disk_bytes")?,
            live: number("live_bytes")?,
            index: number("index_bytes").ok(),
            peak_bytes: finished.usage.peak_bytes as f64,
            cpu: number("cpu_seconds")? * 1e6 / number("operations")?.max(1.0),
        })
    }

    fn median(runs: &[Rates]) -> Self {
        let of = |figure: fn(&Rates) -> f64| median(runs.iter().map(figure).collect());
        Self {
            operations: of(|run| run.operations),
            sync_p50: of(|run| run.sync_p50),
            sync_p99: of(|run| run.sync_p99),
            read_p50: of(|run| run.read_p50),
            read_p99: of(|run| run.read_p99),
            disk: of(|run| run.disk),
            live: of(|run| run.live),
            index: runs.first().and_then(|run| run.index),
            peak_bytes: of(|run| run.peak_bytes),
            cpu: of(|run| run.cpu),
        }
    }
}

pub(super) fn tables(options: &Options, stores: &Stores, report: &mut Report) -> Result<()> {
    report.heading("Operations");
    report.say("S4's workload: 90 % writes of 1 KiB, 10 % reads by key as recovery does them, uniform over keys that were all loaded before; one thread. A read is held against what was written last.");
    report.say("A hundred writes synced at once are what a group commit makes of so many writers that each wait for the disk. `files` writes one file after the other here. One writer that waits for each of its writes measures the disk: one sync, beside the two of a file with a new name. What S4 measured, writers added until a store gives no more, stands below, with files that are synced beside each other.");
    report.say("A cycle's changes are handed over at once, to all stores alike. `indexed+commit` writes and syncs the job's commit record with each cycle, which a job does once for all of its tasks; it stands here to show what that adds.");
    report.say("`bench/peers/README.md` says what is set in RocksDB and fjall. Peak memory includes the workload's own 8 MiB for a million keys, and loading. `files` and `hbase` load 100,000 keys and more once and not for each durability; their peak memory is then that of all three.");
    report.say("`files` writes a file for each change, also where a cycle changes a key more than once, and the file system may flush a file that is emptied and written again: with fewer keys than changes in a cycle that is most of its time. `memory` is for tests; it goes over all keys at each commit.");
    let mut ratios = Table::new([
        "keys",
        "durability",
        "indexed beside files",
        "asked for",
        "indexed beside RocksDB",
        "asked for",
        "indexed beside fjall",
    ]);
    let mut index = Table::new(["keys", "index", "bytes a key"]);
    for keys in options.keys() {
        let once = measure_once(options, stores, keys)?;
        for (at_once, title, unit) in DURABILITIES {
            report.say(&format!("{title}, {} keys:", count(keys as f64)));
            let cells = measure(options, stores, keys, at_once, &once)?;
            report.table(&table(&cells, unit));
            let cell = |name: &str| cells.iter().find(|cell| cell.store.name == name);
            let Some(indexed) = cell("indexed").filter(|cell| !cell.runs.is_empty()) else { continue };
            let beside = |name| {
                let ratio = cell(name).and_then(|other| indexed.beside(other));
                ratio.map_or_else(|| "–".to_owned(), times)
            };
            ratios.row([
                count(keys as f64),
                title.to_lowercase(),
                beside("files"),
                "≥ 30 ×".to_owned(),
                beside("rocksdb"),
                "≥ 1 ×".to_owned(),
                beside("fjall"),
            ]);
            if let Some(bytes) = Rates::median(&indexed.runs).index.filter(|_| at_once == PER_CYCLE) {
                index.row([
                    count(keys as f64),
                    mebibytes_or_kib(bytes),
                    format!("{:.1}", bytes / keys as f64),
                ]);
            }
        }
    }
    report.heading("Ratios");
    report.say("Of operations a second, the median over turns in which both ran; to `files` with 100,000 keys and more, of its one run, which came before them.");
    report.table(&ratios);
    report.heading("Memory of the index");
    report.table(&index);
    Ok(())
}

fn mebibytes_or_kib(bytes: f64) -> String {
    if bytes < f64::from(1 << 20) { format!("{:.0} KiB", bytes / 1024.0) } else { mebibytes(bytes as u64) }
}

/// The stores that take long to load this number of keys, each with all durabilities after one load.
fn measure_once(options: &Options, stores: &Stores, keys: u64) -> Result<Vec<(&'static str, Finished)>> {
    let (keys_text, seconds) = (keys.to_string(), options.seconds());
    let all = DURABILITIES.map(|(at_once, ..)| at_once.to_string()).join(",");
    let slow = stores.wanted().iter().filter(|store| keys >= store.loaded_once_from);
    slow.map(|store| {
        let arguments = ["--keys", &keys_text, "--at-once", &all, "--seconds", &seconds];
        let arguments = [&arguments[..], &["--load-seconds", LOAD_ONCE_SECONDS]].concat();
        Ok((store.name, stores.run(options, store, &arguments)?))
    })
    .collect()
}

/// All stores in turn, then all again: a disturbed minute meets all of them. A single measurement is taken as it is.
fn measure(
    options: &Options,
    stores: &Stores,
    keys: u64,
    at_once: u64,
    once: &[(&'static str, Finished)],
) -> Result<Vec<Cell>> {
    let mut runs: Vec<Vec<Rates>> = vec![Vec::new(); stores.wanted().len()];
    let mut reasons: Vec<Option<String>> = vec![None; stores.wanted().len()];
    let (keys_text, at_once, seconds) = (keys.to_string(), at_once.to_string(), options.seconds());
    for turn in 0..options.repeat() {
        for (place, store) in stores.wanted().iter().enumerate() {
            if let Some((_, finished)) = once.iter().find(|(name, _)| *name == store.name) {
                reasons[place] = not_loaded(finished, LOAD_ONCE_SECONDS)?;
                if turn == 0 && reasons[place].is_none() {
                    runs[place].push(Rates::of(finished, &at_once)?);
                }
                continue;
            }
            let many = if store.name == "files" { MANY_FILES } else { MANY };
            if reasons[place].is_some() || (turn > 0 && keys >= many) {
                continue;
            }
            let arguments = ["--keys", &keys_text, "--at-once", &at_once, "--seconds", &seconds];
            let arguments = [&arguments[..], &["--load-seconds", LOAD_SECONDS]].concat();
            let finished = stores.run(options, store, &arguments)?;
            reasons[place] = not_loaded(&finished, LOAD_SECONDS)?;
            if reasons[place].is_none() {
                runs[place].push(Rates::of(&finished, &at_once)?);
            }
        }
    }
    let cells = stores.wanted().iter().zip(runs).zip(reasons);
    let cells = cells.map(|((store, runs), reason)| Cell { store: *store, runs, reason });
    Ok(cells.collect())
}

/// Why there are no figures, where loading all keys took too long.
fn not_loaded(finished: &Finished, within: &str) -> Result<Option<String>> {
    let Ok(figures) = finished.figures("loaded") else { return Ok(None) };
    let loaded = count(figures.number("loaded")?);
    Ok(Some(format!("{loaded} keys were loaded in {within} s")))
}

fn table(cells: &[Cell], unit: &str) -> Table {
    let p50 = format!("{unit}, p50");
    let mut table = Table::new([
        "store",
        "operations/s",
        &p50,
        "p99",
        "read, p50",
        "p99",
        "disk, of live",
        "peak memory",
        "CPU an operation",
    ]);
    for cell in cells {
        let none = || "–".to_owned();
        match &cell.reason {
            None => {
                let rates = Rates::median(&cell.runs);
                table.row([
                    cell.store.name.to_owned(),
                    count(rates.operations),
                    time(rates.sync_p50),
                    time(rates.sync_p99),
                    time(rates.read_p50),
                    time(rates.read_p99),
                    // A server's bytes are not in the store's folder.
                    cell.store.scheme.map_or_else(|| times(rates.disk / rates.live), |_| none()),
                    mebibytes(rates.peak_bytes as u64),
                    time(rates.cpu),
                ]);
            }
            Some(reason) => table.row([
                format!("{}: {reason}", cell.store.name),
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
            ]),
        }
    }
    table
}

/// Microseconds as one reads them.
fn time(microseconds: f64) -> String {
    match microseconds {
        1e6.. => format!("{:.2} s", microseconds / 1e6),
        1e3.. => format!("{:.2} ms", microseconds / 1e3),
        _ => format!("{microseconds:.1} µs"),
    }
}
