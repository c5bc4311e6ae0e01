//! The ranges of all autonomous systems of 2015, where they are at hand.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use flate2::read::MultiGzDecoder;

use super::*;

/// Folder of real data: where `THALWEG_DATA` says, or next to the project.
fn data(name: &str) -> PathBuf {
    let named = std::env::var_os("THALWEG_DATA").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"));
    folder.join("asn").join(name)
}

/// The lines of both files in their order: first, last, and the values as the table prints them.
struct Lines(Vec<(u128, u128, String)>);

impl Lines {
    fn read(name: &str) -> Self {
        let file = std::fs::File::open(data(name)).expect("the data");
        let lines = BufReader::new(MultiGzDecoder::new(file)).lines().map(|line| {
            let line = line.expect("a line");
            let cells: Vec<&str> = line.split('\t').collect();
            let number = |text: &str| u128::from_be_bytes(ip(text.parse().expect("an address")));
            let values = cells[2..5].iter().map(|cell| if cell.is_empty() { "null" } else { cell });
            (number(cells[0]), number(cells[1]), values.collect::<Vec<_>>().join(" "))
        });
        Self(lines.collect())
    }

    /// Copies each line into every bucket that it touches, unsorted; a scan of one bucket is one of all lines.
    ///
    /// Sixteen bits from `shift` on choose the bucket; they are enough to leave a few hundred lines in each.
    fn buckets(&self, shift: u32) -> Vec<Vec<&(u128, u128, String)>> {
        let mut buckets = vec![Vec::new(); 1 << 16];
        for line in &self.0 {
            let bucket = |address: u128| (address >> shift) as usize & 0xffff;
            for bucket in &mut buckets[bucket(line.0)..=bucket(line.1)] {
                bucket.push(line);
            }
        }
        buckets
    }
}

fn agree(name: &str, shift: u32, mut draw: impl FnMut(&Lines, u64) -> u128) {
    let mut options = autonomous_systems();
    options.files = vec![data(name)];
    let table = RangeTable::load(&options).expect("a table");
    let lines = Lines::read(name);
    assert_eq!(table.stats().given_count, lines.0.len() as u64);
    let buckets = lines.buckets(shift);
    let mut random = Rng::with_seed(1);
    let mut found = 0;
    for _ in 0..200_000 {
        let address = draw(&lines, random.u64(..));
        let bucket = &buckets[(address >> shift) as usize & 0xffff];
        let holding = bucket.iter().filter(|line| line.0 <= address && address <= line.1);
        let expected = holding.max_by_key(|line| !(line.1 - line.0)).map_or("-", |line| line.2.as_str());
        let text = Ipv6Addr::from_bits(address).to_canonical().to_string();
        assert_eq!(answer(&table, &text), expected, "{text}");
        found += u32::from(expected != "-");
    }
    assert!((100_000..200_000).contains(&found), "{found} of 200000 are in a range");
}

#[test]
#[ignore = "reads real data that is no part of the project: cargo xtask test runs it where it is there"]
fn ipv4_agrees_with_a_scan_of_the_lines() {
    agree("ip2asn-v4-2015.tsv.gz", 16, |_, random| {
        u128::from_be_bytes(Ipv4Addr::from_bits(random as u32).to_ipv6_mapped().octets())
    });
}

#[test]
#[ignore = "reads real data that is no part of the project: cargo xtask test runs it where it is there"]
fn ipv6_agrees_with_a_scan_of_the_lines() {
    // Most of IPv6 is empty: the first or last address of a line, or one next to it.
    agree("ip2asn-v6-2015.tsv.gz", 112, |lines, random| {
        let line = &lines.0[(random >> 8) as usize % lines.0.len()];
        let end = if random & 1 == 0 { line.0 } else { line.1 };
        end.wrapping_add(u128::from(random >> 1 & 3)).wrapping_sub(1)
    });
}
