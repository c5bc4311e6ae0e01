//! Every row comes back, and addresses without a row are absent.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{Array, FixedSizeBinaryArray};
use proptest::prelude::*;

use super::*;
use crate::lookup::made_up::MadeUp;
use crate::lookup::{Found, LookupError, Scratch};

/// Asks for keys one by one and by the column, and holds both against the rows.
fn check_answers(table: &LookupTable, rows: &BTreeMap<[u8; 16], String>, others: &[[u8; 16]]) {
    let keys: Vec<[u8; 16]> = rows.keys().chain(others).copied().collect();
    let mut out = b"before ".to_vec();
    for key in &keys {
        out.truncate(7);
        let found = table.find(*key, &mut out).unwrap();
        let expected = match rows.get(key).map(String::as_str) {
            None => Found::Absent,
            Some("") => Found::Empty,
            Some(_) => Found::Value,
        };
        let name = rows.get(key).cloned().unwrap_or_default();
        assert_eq!((found, &out[..]), (expected, format!("before {name}").as_bytes()), "{key:?}");
    }
    let mut builder = FixedSizeBinaryBuilder::new(16);
    for key in keys.iter().rev() {
        builder.append_null();
        builder.append_value(key).unwrap();
    }
    let column = builder.finish();
    let mut scratch = Scratch::default();
    // A slice begins within its column.
    for column in [column.clone(), column.slice(1, column.len() - 1)] {
        let names = table.find_all(&column, &mut scratch).unwrap();
        assert_eq!(names.values.len(), column.len());
        for row in 0..column.len() {
            let expected = column.is_valid(row).then(|| rows.get(column.value(row))).flatten();
            let got = names.values.is_valid(row).then(|| names.values.value(row));
            assert_eq!(got, expected.map(String::as_str));
            assert_eq!(names.found.value(row), expected.is_some());
        }
    }
}

#[test]
fn rows_of_every_kind_come_back_and_their_neighbours_are_absent() {
    let place = Place::new();
    let rows = mixed_rows();
    let report = build(&place.table(), &rows);
    assert_eq!((report.rows, report.duplicates), (rows.len() as u64, 0));
    let rows = last_of_each(&rows);
    let neighbours: Vec<[u8; 16]> = rows
        .keys()
        .flat_map(|key| {
            let key = u128::from_be_bytes(*key);
            [key.wrapping_add(1).to_be_bytes(), key.wrapping_sub(1).to_be_bytes()]
        })
        .filter(|key| !rows.contains_key(key))
        .collect();
    for table in [LookupTable::open(place.table()).unwrap(), open_tight(&place.table())] {
        check_answers(&table, &rows, &neighbours);
        let stats = table.stats();
        assert_eq!(stats.empty, 3 * rows.values().filter(|name| name.is_empty()).count() as u64);
        assert_eq!(stats.absent, 3 * neighbours.len() as u64);
        assert!(stats.filter_stops <= stats.absent && stats.filter_stops > stats.absent / 2);
        assert!(stats.hits + stats.empty + stats.absent > 0 && stats.blocks_read > 0);
    }
    assert!(LookupTable::verify(place.table()).unwrap().empty == report.empty);
}

#[test]
fn made_up_rows_come_back_at_a_few_bytes_each() {
    let place = Place::new();
    let set = MadeUp::new(3, 60_000);
    let mut name = Vec::new();
    let rows: Vec<_> = set
        .scattered_rows()
        .map(|address| {
            set.name(address, &mut name);
            (crate::lookup::address::from_v4(address), String::from_utf8(name.clone()).unwrap())
        })
        .collect();
    let mut builder = TableBuilder::new(place.table(), BuildOptions { memory: 300_000, max_bad: 0 });
    rows.iter().for_each(|(key, name)| builder.push(*key, name.as_bytes()).unwrap());
    builder.finish().unwrap();
    let table = open_tight(&place.table());
    check_answers(&table, &last_of_each(&rows), &[key("0.0.0.0"), key("::1")]);
    assert!(table.stats().bytes_given_back > 0);
    let bytes = table.summary().bytes_per_row();
    assert!(bytes < 4.0, "{bytes}");
}

#[test]
fn tables_of_no_rows_and_of_one_row_answer() {
    let place = Place::new();
    build(&place.table(), &[]);
    let absent = [key("1.2.3.4"), key("::"), [0xff; 16]];
    check_answers(&LookupTable::open(place.table()).unwrap(), &BTreeMap::new(), &absent);
    for address in ["0.0.0.0", "255.255.255.255", "::", "2001:db8::1"] {
        let rows = [(key(address), "one.example".to_owned())];
        build(&place.table(), &rows);
        let others: Vec<_> = absent.iter().copied().filter(|other| *other != rows[0].0).collect();
        check_answers(&LookupTable::open(place.table()).unwrap(), &last_of_each(&rows), &others);
        LookupTable::verify(place.table()).unwrap();
    }
}

#[test]
fn a_column_of_another_width_is_refused() {
    let place = Place::new();
    build(&place.table(), &[]);
    let column = FixedSizeBinaryArray::try_from_iter([[1_u8, 2, 3, 4]].iter()).unwrap();
    let table = LookupTable::open(place.table()).unwrap();
    let error = table.find_all(&column, &mut Scratch::default()).unwrap_err();
    assert!(matches!(error, LookupError::Width { width: 4 }), "{error}");
}

#[test]
fn tasks_share_a_table() {
    let place = Place::new();
    let rows = last_of_each(&mixed_rows());
    build(&place.table(), &mixed_rows());
    let table = Arc::new(open_tight(&place.table()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (table, rows) = (Arc::clone(&table), &rows);
            scope.spawn(move || check_answers(&table, rows, &[]));
        }
    });
}

#[test]
fn readers_keep_the_table_that_they_opened() {
    let place = Place::new();
    build(&place.table(), &[(key("1.2.3.4"), "old.example".to_owned())]);
    let old = LookupTable::open(place.table()).unwrap();
    build(&place.table(), &[(key("1.2.3.4"), "new.example".to_owned())]);
    for (table, expected) in
        [(&old, "old.example"), (&LookupTable::open(place.table()).unwrap(), "new.example")]
    {
        let mut out = Vec::new();
        table.find(key("1.2.3.4"), &mut out).unwrap();
        assert_eq!(out, expected.as_bytes());
    }
    assert_eq!(place.files(), ["names.tbl"]);
}

fn any_key() -> impl Strategy<Value = [u8; 16]> {
    prop_oneof![
        // Few /24s, so that blocks have many rows, and both ends.
        (0_u32..600).prop_map(|low| crate::lookup::address::from_v4(0x0a00_0000 + low)),
        (0_u32..600).prop_map(|low| crate::lookup::address::from_v4(low.wrapping_sub(300))),
        any::<u32>().prop_map(crate::lookup::address::from_v4),
        (0_u128..500).prop_map(|low| ((0x2001_0db8 << 96) + low * 77).to_be_bytes()),
        any::<[u8; 16]>(),
    ]
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z0-9-]{1,12}\\.isp\\.net",
        "mail[0-9]{1,3}\\.example\\.org",
        "\\PC{0,40}",
        "[a-z.]{200,255}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_rows_come_back(
        rows in prop::collection::vec((any_key(), any_name()), 0..700),
        others in prop::collection::vec(any_key(), 0..100),
    ) {
        let place = Place::new();
        let rows: Vec<_> = rows.into_iter().filter(|(_, name)| name.len() <= 255).collect();
        let report = build(&place.table(), &rows);
        let kept = last_of_each(&rows);
        prop_assert_eq!(report.rows, kept.len() as u64);
        prop_assert_eq!(report.duplicates, (rows.len() - kept.len()) as u64);
        prop_assert_eq!(report.empty, kept.values().filter(|name| name.is_empty()).count() as u64);
        let others: Vec<_> = others.into_iter().filter(|key| !kept.contains_key(key)).collect();
        check_answers(&LookupTable::open(place.table()).unwrap(), &kept, &others);
        prop_assert_eq!(LookupTable::verify(place.table()).unwrap().rows, kept.len() as u64);
    }
}
