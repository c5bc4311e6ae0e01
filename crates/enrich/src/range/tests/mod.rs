//! Tables from files, against scans that know nothing of sorting.

mod delimited;
mod errors;
mod lookup;
mod mmdb;
mod mmdb_file;
mod real_data;

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use thalweg_types::{DataType, Error, Value};

use crate::BadLines;

use super::{Column, Delimited, Layout, RangeColumns, RangeOptions, RangeTable, ValueColumn};

/// A folder of files that goes with the test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    }
}

fn gzip(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes.as_ref()).expect("memory");
    encoder.finish().expect("memory")
}

fn name(name: &str) -> Column {
    Column::Name(name.to_owned())
}

fn options(layout: Layout, values: Vec<ValueColumn>) -> RangeOptions {
    RangeOptions { files: Vec::new(), layout, values, memory_limit: RangeOptions::MEMORY_LIMIT }
}

/// Columns `first`, `last`, `asn` (uint64) and `who` under a header.
fn with_header() -> RangeOptions {
    let range = RangeColumns::FirstLast { first: name("first"), last: name("last") };
    options(
        Layout::Delimited(Delimited { delimiter: None, header: true, range, bad_lines: BadLines::Skip }),
        vec![
            ValueColumn::string(name("asn"), "asn").with_type(DataType::UInt64),
            ValueColumn::string(name("who"), "who"),
        ],
    )
}

/// A network and a text, without header.
fn prefixes() -> RangeOptions {
    let range = RangeColumns::Prefix(Column::Position(1));
    options(
        Layout::Delimited(Delimited { delimiter: None, header: false, range, bad_lines: BadLines::Skip }),
        vec![ValueColumn::string(Column::Position(2), "who")],
    )
}

/// First, last, AS number, country and name, as iptoasn.com has them.
fn autonomous_systems() -> RangeOptions {
    let range = RangeColumns::FirstLast { first: Column::Position(1), last: Column::Position(2) };
    options(
        Layout::Delimited(Delimited { delimiter: None, header: false, range, bad_lines: BadLines::Skip }),
        vec![
            ValueColumn::string(Column::Position(3), "asn").with_type(DataType::UInt64),
            ValueColumn::string(Column::Position(4), "country"),
            ValueColumn::string(Column::Position(5), "name"),
        ],
    )
}

fn ip(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The values at an address, joined by blanks; `-` where it is in no range.
fn answer(table: &RangeTable, address: &str) -> String {
    let Some(row) = table.find(ip(address.parse().expect("an address"))) else {
        return "-".to_owned();
    };
    let values: Vec<String> = table
        .columns()
        .iter()
        .map(|column| match Value::at(column, row as usize) {
            Value::Null => "null".to_owned(),
            Value::String(text) => text,
            Value::UInt64(number) => number.to_string(),
            Value::Int64(number) => number.to_string(),
            Value::Float64(number) => number.to_string(),
            Value::Bool(value) => value.to_string(),
            other => panic!("a type that tables do not keep: {other:?}"),
        })
        .collect();
    values.join(" ")
}

/// Loads files of these names and contents.
fn load(options: RangeOptions, files: &[(&str, &[u8])]) -> RangeTable {
    try_load(options, files).unwrap_or_else(|error| panic!("{} ({:?})", error.chain(), error.hint()))
}

fn try_load(mut options: RangeOptions, files: &[(&str, &[u8])]) -> Result<RangeTable, Error> {
    let folder = Folder::new();
    options.files = files.iter().map(|(name, bytes)| folder.write(name, bytes)).collect();
    RangeTable::load(&options)
}

fn check(table: &RangeTable, answers: &[(&str, &str)]) {
    for (address, expected) in answers {
        assert_eq!(answer(table, address), *expected, "{address}");
    }
}
