//! RocksDB and fjall under the workload of our checkpoint benchmark: one configuration per run, one line of figures.
//!
//! Workload, checks and figures are those of `bench/checkpoint`; what is set in the stores, and why, is said in
//! `bench/peers/README.md`.

mod fjall;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use anyhow::Result;
use clap::Parser;
use thalweg_bench_checkpoint::{Kind, run};

/// Bytes of cache for blocks: more than our index takes for a million keys, and the page cache is everybody's.
const CACHE: usize = 64 << 20;

const KINDS: &[Kind] = &[
    Kind { name: "fjall", open: fjall::open },
    #[cfg(feature = "rocksdb")]
    Kind { name: "rocksdb", open: rocksdb::open },
];

#[derive(Parser)]
#[command(name = "stores", about)]
struct Arguments {
    #[command(flatten)]
    options: run::Options,
}

fn main() -> Result<()> {
    run::run(&Arguments::parse().options, KINDS)
}
