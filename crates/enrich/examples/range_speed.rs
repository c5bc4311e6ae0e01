//! How many addresses a range table answers in a second, on one core.
//!
//! `cargo run --release -p thalweg-enrich --example range_speed -- ip2asn-v4.tsv.gz [ip2asn-v6.tsv.gz …]`
//!
//! With `--quick` before them few addresses are asked for.
//! Lines of `case=… rate=… found=…` are for programs.
//!
//! The files have lines of first address, last address, AS number, country and name, without header.

use std::env;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufRead, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use arrow_array::{Array, FixedSizeBinaryArray};
use fastrand::Rng;
use flate2::bufread::MultiGzDecoder;
use thalweg_enrich::BadLines;
use thalweg_enrich::range::{Column, Delimited, Layout, RangeColumns, RangeOptions, RangeTable, ValueColumn};
use thalweg_types::{DataType, Error, format_size};

const ROUNDS: usize = 7;
const BATCH: usize = 8192;
const BATCHES: usize = 512;

fn main() -> Result<(), Error> {
    let mut files: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let is_quick = files.first().is_some_and(|first| first.as_os_str() == "--quick");
    let batches = if is_quick { 4 } else { BATCHES };
    files.drain(..usize::from(is_quick));
    let mut ranges = Vec::new();
    for path in &files {
        ranges.extend(read_ranges(path)?);
    }
    let options = RangeOptions {
        files,
        layout: Layout::Delimited(Delimited {
            delimiter: None,
            header: false,
            range: RangeColumns::FirstLast { first: Column::Position(1), last: Column::Position(2) },
            bad_lines: BadLines::Refuse,
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

    let mut random = Random(Rng::with_seed(1));
    let mut draw = |address: &dyn Fn(&mut Random) -> u128| -> Vec<u128> {
        (0..BATCH * batches).map(|_| address(&mut random)).collect()
    };
    let uniform = draw(&|random| V4 | u128::from(random.next() as u32));
    report("IPv4, uniformly random", &table, &uniform);
    let (v4, v6): (Vec<_>, Vec<_>) = ranges.into_iter().partition(|range| range.0 >> 32 == V4 >> 32);
    for (what, ranges) in [("IPv4, within random ranges", v4), ("IPv6, within random ranges", v6)] {
        if !ranges.is_empty() {
            report(what, &table, &draw(&|random| random.within(&ranges)));
        }
    }
    Ok(())
}

/// `::ffff:0:0`, under which IPv4 is.
const V4: u128 = 0xffff_0000_0000;

/// First and last address of each line.
fn read_ranges(path: &Path) -> Result<Vec<(u128, u128)>, Error> {
    let failed = |error: io::Error| Error::external(format!("read {path:?}")).with_source(error);
    let file = BufReader::new(File::open(path).map_err(failed)?);
    let input: Box<dyn BufRead> = match path.extension() {
        Some(name) if name == "gz" => Box::new(BufReader::new(MultiGzDecoder::new(file))),
        _ => Box::new(file),
    };
    let address = |text: &str| match text.parse() {
        Ok(IpAddr::V4(address)) => Ok(address.to_ipv6_mapped().to_bits()),
        Ok(IpAddr::V6(address)) => Ok(address.to_bits()),
        Err(error) => Err(Error::user(format!("expected an address, got {text:?}")).with_source(error)),
    };
    let mut ranges = Vec::new();
    for line in input.lines() {
        let line = line.map_err(failed)?;
        let mut cells = line.split(['\t', ',']);
        ranges.push((address(cells.next().unwrap_or(""))?, address(cells.next().unwrap_or(""))?));
    }
    Ok(ranges)
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
    let case = what.replace([' ', ','], "");
    println!("case={case} rate={:.0} found={found} addresses={}", rates[ROUNDS / 2] * 1e6, addresses.len());
}

struct Random(Rng);

impl Random {
    /// An address of one of the ranges, each as likely as the others.
    fn within(&mut self, ranges: &[(u128, u128)]) -> u128 {
        let (first, last) = ranges[self.next() as usize % ranges.len()];
        let any = u128::from(self.next()) << 64 | u128::from(self.next());
        // Only a range of all addresses has a width that fits no number.
        (last - first).checked_add(1).map_or(any, |width| first + any % width)
    }

    fn next(&mut self) -> u64 {
        self.0.u64(..)
    }
}
