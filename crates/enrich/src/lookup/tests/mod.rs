//! Whole tables: rows that are put in come back, and damage is reported.

mod build;
mod damage;
mod find;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::address::parse;
use super::{BuildOptions, BuildReport, LookupTable, OpenOptions, TableBuilder};

/// A folder that is removed, and a path in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn table(&self) -> PathBuf {
        self.0.path().join("names.tbl")
    }

    /// Names of the files in the folder.
    fn files(&self) -> Vec<String> {
        files(self.0.path())
    }
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn key(text: &str) -> [u8; 16] {
    parse(text).unwrap()
}

/// Builds with so little memory that rows are sorted in runs.
fn build(path: &Path, rows: &[([u8; 16], String)]) -> BuildReport {
    let options = BuildOptions { memory: 4000, ..BuildOptions::default() };
    let mut builder = TableBuilder::new(path, options);
    for (key, name) in rows {
        builder.push(*key, name.as_bytes()).unwrap();
    }
    builder.finish().unwrap()
}

fn last_of_each(rows: &[([u8; 16], String)]) -> BTreeMap<[u8; 16], String> {
    rows.iter().cloned().collect()
}

/// Rows of the kinds that there are: names with their own address in many styles, hosts, random ones, empty
/// ones, IPv6, the first and the last address.
fn mixed_rows() -> Vec<([u8; 16], String)> {
    let mut rows = Vec::new();
    for net in [0_u32, 0x01_02_03, 0x0a_00_00, 0x0a_00_01, 0x0a_01_ff, 0x00c6_3364, 0xff_ff_ff] {
        for host in 0..=255_u32 {
            if net == 0x0a_00_01 && host % 11 != 0 {
                continue;
            }
            let address = net << 8 | host;
            let [a, b, c, d] = address.to_be_bytes();
            let name = match (net % 7 + host / 50) % 9 {
                0 => format!("host-{a}-{b}-{c}-{d}.pool.isp.example"),
                1 => format!("{d}.{c}.{b}.{a}.dsl.isp.net"),
                2 => format!("ip-{a:02x}{b:02x}{c:02x}{d:02x}.isp.net"),
                3 => format!("{a:03}.{b:03}.{c:03}.{d:03}.isp.net"),
                4 => format!("srv{:02}.fra.isp.net", address.wrapping_mul(7919) % 100),
                5 => format!("x{:x}.cust.isp.net", u64::from(address).wrapping_mul(0x9e37_79b9)),
                6 => String::new(),
                7 => format!("N{address}.Isp.NET"),
                _ => format!("{a:02X}{b:02X}{c:02X}{d:02X}.isp.net"),
            };
            rows.push((super::address::from_v4(address), name));
        }
    }
    for number in 0..400_u128 {
        let address = 0x2001_0db8_0000_0000_0000_0000_0000_0000 + number * 0x1_0001_0000_0003;
        let name = match number % 3 {
            0 => format!("{address:032x}.v6.isp.net"),
            1 => format!("h{number}.v6.isp.net"),
            _ => String::new(),
        };
        rows.push((address.to_be_bytes(), name));
    }
    rows.push((key("::"), "zero.example".to_owned()));
    rows.push(([0xff; 16], "ones.example".to_owned()));
    rows
}

fn open_tight(path: &Path) -> LookupTable {
    // One byte: every piece but the last is given back.
    LookupTable::open_with(path, OpenOptions { resident: 1 }).unwrap()
}
