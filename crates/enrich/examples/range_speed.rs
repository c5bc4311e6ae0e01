//! How many addresses a range table answers in a second, on one core.
//!
//! `cargo run --release -p thalweg-enrich --example range_speed -- ip2asn-v4.tsv.gz [ip2asn-v6.tsv.gz …]`
//!
//! The files have lines of first address, last address, AS number, country and name, without header.

use std::env;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use arrow_array::{Array, FixedSizeBinaryArray};
use thalweg_enrich::range::{Column, Delimited, Layout, RangeColumns, RangeOptions, RangeTable, ValueColumn};
use thalweg_types::{DataType, Error, format_size};

const ROUNDS: usize = 7;
const BATCH: usize = 8192;
const BATCHES: usize = 512;

fn main() -> Result<(), Error> {
    let files: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let options = RangeOptions {
        files,
        layout: Layout::Delimited(Delimited {
            delimiter: None,
            header: false,
            range: RangeColumns::FirstLast { first: Column::Position(1), last: Column::Position(2) },
        }),
        values: vec![
            ValueColumn::string(Column::Position(3), "asn").with_type(DataType::UInt64),
            ValueColumn::string(Column::Position(4), "country"),
            ValueColumn::string(Column::Position(5), "name"),
        ],
        memory_limit: RangeOptions::MEMORY_LIMIT,
    };
    let begin = Instant::now();
    let table = RangeTable::load(&options)?;
    println!("loaded in {:.0} ms: {:?}", begin.elapsed().as_secs_f64() * 1e3, table.stats());
    println!("memory: {}", format_size(table.stats().memory_bytes));

    let mut random = Random(1);
    let mut v4 = || 0xffff_0000_0000 | u128::from(random.next() as u32);
    let uniform: Vec<u128> = (0..BATCH * BATCHES).map(|_| v4()).collect();
    report("IPv4, uniformly random", &table, &uniform);

    // Mostly between two ranges there is nothing: draw until it is in one.
    let within = |mut draw: Box<dyn FnMut(&mut Random) -> u128>| -> Vec<u128> {
        let mut random = Random(2);
        let hits = std::iter::repeat_with(|| draw(&mut random))
            .filter(|address| table.find(address.to_be_bytes()).is_some());
        hits.take(BATCH * BATCHES).collect()
    };
    if table.stats().v4_count > 0 {
        let hits = within(Box::new(|random| 0xffff_0000_0000 | u128::from(random.next() as u32)));
        report("IPv4, within ranges", &table, &hits);
    }
    if table.stats().v6_count > 0 {
        // 2000::/3 is what is given out; ranges are dense where /32 networks are, up to 2c00::.
        let hits = within(Box::new(|random| {
            let high = 0x2001_0000_0000_0000 + random.next() % 0x0fff_0000_0000_0000;
            (u128::from(high) << 64) | u128::from(random.next())
        }));
        report("IPv6, within ranges", &table, &hits);
    }
    Ok(())
}

/// Prints the median of some rounds over all batches.
fn report(what: &str, table: &RangeTable, addresses: &[u128]) {
    let batches: Vec<FixedSizeBinaryArray> = addresses
        .chunks(BATCH)
        .map(|batch| {
            FixedSizeBinaryArray::new(16, batch.iter().flat_map(|a| a.to_be_bytes()).collect(), None)
        })
        .collect();
    let mut found = 0;
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            found = 0;
            let begin = Instant::now();
            for batch in &batches {
                let rows = black_box(table.find_all(black_box(batch)));
                found += rows.len() - rows.null_count();
            }
            addresses.len() as f64 / begin.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let share = 100.0 * found as f64 / addresses.len() as f64;
    println!("{what}: {:.1} M addresses/s, {share:.1}% found", rates[ROUNDS / 2]);
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
