//! Databases in MaxMind's format.

use super::mmdb_file::{MmdbFile, Value};
use super::*;

fn paths(values: &[(&str, DataType)]) -> RangeOptions {
    let values = values.iter().map(|(path, data_type)| {
        ValueColumn::string(name(path), path.replace('.', "_")).with_type(data_type.clone())
    });
    options(Layout::Mmdb, values.collect())
}

fn number_and_country() -> RangeOptions {
    paths(&[("autonomous_system_number", DataType::UInt64), ("country.iso_code", DataType::String)])
}

fn record(number: u32, country: &'static str) -> Value {
    Value::Map(vec![
        ("autonomous_system_number", Value::U32(number)),
        ("country", Value::Map(vec![("iso_code", Value::Text(country))])),
    ])
}

#[test]
fn a_database_of_both_families_answers_for_each_once() {
    let mut file = MmdbFile::v6();
    let google = file.record(&record(15169, "US"));
    let wide = file.record(&record(2500, "JP"));
    file.network("::1.0.0.0/120", google);
    file.network("::1.0.4.0/118", wide);
    file.network("2001:200::/32", wide);
    for alias in ["::ffff:0:0/96", "2002::/16", "2001::/32"] {
        file.alias(alias);
    }
    let table = load(number_and_country(), &[("a.mmdb", &file.bytes())]);
    check(
        &table,
        &[
            ("1.0.0.0", "15169 US"),
            ("1.0.0.255", "15169 US"),
            ("1.0.1.0", "-"),
            ("1.0.7.255", "2500 JP"),
            ("::ffff:1.0.0.1", "15169 US"),
            ("2001:200::1", "2500 JP"),
            ("2001:201::1", "-"),
            ("::1.0.0.1", "-"),
            ("2002:100::1", "-"),
        ],
    );
    let stats = table.stats();
    assert_eq!((stats.given_count, stats.v4_count, stats.v6_count, stats.row_count), (3, 2, 1, 2));
}

#[test]
fn a_database_of_ipv4_alone() {
    let mut file = MmdbFile::v4();
    let low = file.record(&record(1, "US"));
    let high = file.record(&record(2, "JP"));
    file.network("::0.0.0.0/1", low);
    file.network("::255.255.255.255/32", high);
    let table = load(number_and_country(), &[("a.mmdb", &file.bytes())]);
    check(
        &table,
        &[
            ("0.0.0.0", "1 US"),
            ("127.255.255.255", "1 US"),
            ("128.0.0.0", "-"),
            ("255.255.255.255", "2 JP"),
            ("::", "-"),
        ],
    );
}

#[test]
fn a_network_that_holds_all_of_ipv4_answers_for_it_too() {
    let mut file = MmdbFile::v6();
    let everything = file.record(&record(1, "US"));
    file.network("::/8", everything);
    // The same record elsewhere is no other way to IPv4.
    file.network("2001::/16", everything);
    let table = load(number_and_country(), &[("a.mmdb", &file.bytes())]);
    check(&table, &[("1.2.3.4", "1 US"), ("::1", "1 US"), ("2001::1", "1 US"), ("2002::1", "-")]);
}

#[test]
fn values_of_every_kind_by_their_paths() {
    let mut file = MmdbFile::v4();
    let full = file.record(&Value::Map(vec![
        ("location", Value::Map(vec![("latitude", Value::Double(-1.25))])),
        ("traits", Value::Map(vec![("is_anycast", Value::Bool(true))])),
        ("subdivisions", Value::List(vec![Value::Text("first"), Value::Text("second")])),
        ("number", Value::U32(7)),
    ]));
    let empty = file.record(&Value::Map(Vec::new()));
    file.network("::1.0.0.0/8", full);
    file.network("::2.0.0.0/8", empty);
    let options = paths(&[
        ("location.latitude", DataType::Float64),
        ("traits.is_anycast", DataType::Bool),
        ("subdivisions.1", DataType::String),
        ("number", DataType::String),
    ]);
    let table = load(options, &[("a.mmdb", &file.bytes())]);
    check(&table, &[("1.1.1.1", "-1.25 true second 7"), ("2.1.1.1", "null null null null")]);
}

#[test]
fn what_is_no_database_or_has_other_values() {
    let mut file = MmdbFile::v4();
    let place = file.record(&record(1, "US"));
    file.network("::1.0.0.0/8", place);
    let bytes = file.bytes();
    let refused = |options: RangeOptions, bytes: &[u8]| {
        let folder = Folder::new();
        let mut options = options;
        options.files = vec![folder.write("a.mmdb", bytes)];
        let error = RangeTable::load(&options).err().expect("an error");
        let message = error.chain().replace(&format!("{}/", folder.0.path().display()), "");
        format!("{message} | {}", error.hint().unwrap_or_default())
    };
    assert_eq!(
        refused(number_and_country(), b"first,last\n"),
        "read \"a.mmdb\": expected a database in MaxMind's format: \
         invalid database: could not find MaxMind DB metadata in file | unpack it if it is packed (.tar.gz), or fetch it again"
    );
    assert_eq!(
        refused(paths(&[("country.isocode", DataType::String)]), &bytes),
        "read \"a.mmdb\": no record has a value at column \"country.isocode\" | \
         records begin with the keys \"autonomous_system_number\", \"country\"; join keys by dots"
    );
    assert_eq!(
        refused(paths(&[("country.iso_code", DataType::UInt64)]), &bytes),
        "read \"a.mmdb\": network 1.0.0.0/8: column \"country.iso_code\": expected a whole number from 0 that fits \
         uint64, got \"US\" | take it as string where not all of its values are such"
    );
    let map = refused(paths(&[("country", DataType::String)]), &bytes);
    assert!(
        map.starts_with(
            "read \"a.mmdb\": network 1.0.0.0/8: column \"country\": expected a text, a number or a truth value: "
        ),
        "{map}"
    );
    assert!(map.ends_with(" | name the path of one value, such as country.iso_code"), "{map}");
    let mut position = number_and_country();
    position.values[0].from = Column::Position(1);
    assert_eq!(
        refused(position, &bytes),
        "read \"a.mmdb\": column 1: expected a path, as records have no columns, got a position | \
         name the path of one value, such as country.iso_code"
    );
    let mut small = number_and_country();
    small.memory_limit = 100;
    assert!(refused(small, &bytes).starts_with("read \"a.mmdb\": expected a file of at most 100B, got "));
    assert_eq!(
        refused(number_and_country(), &MmdbFile::v4().bytes()),
        "read \"a.mmdb\": expected at least one network with a record, got none | fetch the file again"
    );
    let mut tangled = MmdbFile::v6();
    tangled.tangle();
    assert_eq!(
        refused(number_and_country(), &tangled.bytes()),
        "read \"a.mmdb\": expected a tree, got one with over 64 ways to each place | \
         fetch the file again, from whom you trust"
    );
    for cut in 0..bytes.len() {
        refused(number_and_country(), &bytes[..cut]);
    }
}
