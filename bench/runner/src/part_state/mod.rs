//! A part by itself, not a job: back ends of keyed state under S4's workload (Vallés, 2012, chapter 4), compared with RocksDB and fjall: operations
//! a second, space under overwrites, and how long the index takes to be rebuilt.
//!
//! Stores are driven by `bench/checkpoint` and `bench/peers/stores`, one configuration per run, with the same
//! operations; this module chooses the configurations and writes the results.

mod rebuild;
mod smoke;
mod space;
mod speed;
mod stores;
mod writers;

use std::path::PathBuf;

use anyhow::Result;

use self::stores::Stores;
use super::report::Report;
use thalweg_harness::project::{self, Profile};

pub(crate) use smoke::smoke;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// One short run of each with few keys: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Runs of each configuration, one store after the other in each turn; the median counts
    #[arg(long, default_value_t = 2)]
    repeat: usize,
    /// Seconds of operations in each run
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// How many keys there are, one figure after the other
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000])]
    keys: Vec<u64>,
    /// Leave the other systems out
    #[arg(long)]
    no_peers: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = ["speed", "writers", "space", "rebuild"])]
    only: Vec<String>,
    /// Only these stores
    #[arg(long, value_delimiter = ',')]
    stores: Vec<String>,
    /// Where the server of a store listens, as in redis=redis://127.0.0.1:6379; without, one is started
    #[arg(long, value_name = "STORE=URL")]
    url: Vec<String>,
    /// A folder on the disk that is to be measured; the build folder if there is none
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    fn keys(&self) -> Vec<u64> {
        if self.quick { vec![1_000] } else { self.keys.clone() }
    }

    fn repeat(&self) -> usize {
        if self.quick { 1 } else { self.repeat.max(1) }
    }

    fn seconds(&self) -> String {
        if self.quick { "0.2".to_owned() } else { self.seconds.to_string() }
    }

    fn folder(&self) -> Result<PathBuf> {
        self.dir.clone().map_or_else(|| project::scratch("bench-state"), Ok)
    }

    fn url_of(&self, store: &str) -> Option<&str> {
        self.url.iter().find_map(|pair| pair.strip_prefix(store)?.strip_prefix('='))
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let stores = Stores::build(options, Profile::Release)?;
    let mut report =
        Report::new("part-state", "Back ends of keyed state by themselves").of_parts(&options.only);
    for reason in stores.skipped() {
        report.say(reason);
    }
    if options.wants("speed") {
        speed::tables(options, &stores, &mut report)?;
    }
    if options.wants("writers") {
        writers::tables(options, &stores, &mut report)?;
    }
    if options.wants("space") {
        space::table(options, &stores, &mut report)?;
    }
    if options.wants("rebuild") {
        rebuild::table(options, &stores, &mut report)?;
    }
    report.finish(options.quick)
}
