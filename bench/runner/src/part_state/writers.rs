//! S4's way of measuring (Vallés, 2012, section 4.1): writers are added until a store gives no more.

use anyhow::{Context, Result};

use super::Options;
use super::stores::{STORES, Store, Stores};
use crate::median;
use crate::report::{Report, Table, count, times};

/// Writers that each wait for their own write.
const WRITERS: [u64; 7] = [1, 8, 32, 64, 100, 1_000, 10_000];

/// Writers that are threads; more would measure how threads are switched.
const MOST_THREADS: u64 = 64;

/// Keys above which one turn has to do: `files` loads some thousand a second.
const MANY: u64 = 10_000;

/// Keys above which nothing is measured: each number of writers would load them again.
const MOST_KEYS: u64 = 100_000;

/// Operations a second of each number of writers in one turn.
struct Turn {
    /// A thread and a store each, up to the number of threads.
    files: Vec<f64>,
    indexed: Vec<f64>,
    /// One store, which syncs at once what all writers wait for.
    gathered: Vec<f64>,
}

pub(super) fn tables(options: &Options, stores: &Stores, report: &mut Report) -> Result<()> {
    report.heading("Writers beside each other");
    report.say("S4's storage queue is emptied by several threads, and its benchmark adds client threads until a store gives no more (Vallés, 2012, sections 3.4 and 4.1). The same workload here, all writes synced before their writer goes on.");
    report.say("Each for itself: a thread with a store of its own and its share of the keys for each writer, so that the file system may sync for several at once. Gathered: one store, which syncs at once what all writers wait for; that they are woken and called is not in it.");
    let named = |name: &str| STORES.iter().find(|store| store.name == name).context("a store of ours");
    let (files, indexed) = (named("files")?, named("indexed")?);
    let mut ratios = Table::new(["keys", "files, at its best", "indexed, at its best", "ratio", "asked for"]);
    for keys in options.keys().into_iter().filter(|keys| *keys <= MOST_KEYS) {
        let turns = if keys > MANY { 1 } else { options.repeat() };
        let turns =
            (0..turns).map(|_| turn(options, stores, files, indexed, keys)).collect::<Result<Vec<_>>>()?;
        let rate = |rates: fn(&Turn) -> &Vec<f64>, place: usize| {
            let rates: Option<Vec<f64>> = turns.iter().map(|turn| rates(turn).get(place).copied()).collect();
            rates.map(median)
        };
        let mut table = Table::new([
            "writers",
            "files, each for itself",
            "indexed, each for itself",
            "indexed, gathered",
            "of files",
        ]);
        let (mut best_files, mut best_indexed) = (0.0_f64, 0.0_f64);
        for (place, writers) in WRITERS.iter().enumerate() {
            let [files, indexed, gathered] = [
                rate(|turn| &turn.files, place),
                rate(|turn| &turn.indexed, place),
                rate(|turn| &turn.gathered, place),
            ];
            best_files = best_files.max(files.unwrap_or_default());
            best_indexed = best_indexed.max(gathered.unwrap_or_default());
            let print = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), count);
            let ratio =
                gathered.zip(files).map_or_else(|| "–".to_owned(), |(ours, files)| times(ours / files));
            table.row([count(*writers as f64), print(files), print(indexed), print(gathered), ratio]);
        }
        report.say(&format!("Operations a second, {} keys:", count(keys as f64)));
        report.table(&table);
        ratios.row([
            count(keys as f64),
            count(best_files),
            count(best_indexed),
            times(best_indexed / best_files),
            "≥ 30 ×".to_owned(),
        ]);
    }
    report.say("The largest figures of `files`, and of `indexed` gathered, above:");
    report.table(&ratios);
    Ok(())
}

fn turn(options: &Options, stores: &Stores, files: &Store, indexed: &Store, keys: u64) -> Result<Turn> {
    let mut turn = Turn { files: Vec::new(), indexed: Vec::new(), gathered: Vec::new() };
    for writers in WRITERS {
        if writers <= MOST_THREADS {
            turn.files.push(rate(options, stores, files, keys, writers, 1)?);
            turn.indexed.push(rate(options, stores, indexed, keys, writers, 1)?);
        }
        turn.gathered.push(rate(options, stores, indexed, keys, 1, writers)?);
    }
    Ok(turn)
}

fn rate(
    options: &Options,
    stores: &Stores,
    store: &Store,
    keys: u64,
    writers: u64,
    at_once: u64,
) -> Result<f64> {
    let [keys, writers, at_once] = [keys, writers, at_once].map(|number| number.to_string());
    let seconds = options.seconds();
    let arguments = ["--keys", &keys, "--writers", &writers, "--at-once", &at_once, "--seconds", &seconds];
    stores.run(options, store, &arguments)?.figures("rate")?.number("rate")
}
