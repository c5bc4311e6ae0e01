//! Keys that were chosen to share a public hash make no table work longer than others do. Work is counted, not timed.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{BinaryViewArray, Int64Array};
use thalweg_types::hash_column;

use super::*;
use crate::key::for_each_key;

const COUNT: usize = 20_000;

fn column(keys: impl Iterator<Item = Vec<u8>>) -> ArrayRef {
    Arc::new(BinaryViewArray::from_iter_values(keys))
}

/// Keys of 32 bytes that have one XXH3-64: of the product of two words, each xored with one that everybody knows, the first
/// is zero, whatever the second is.
fn of_one_long_hash() -> ArrayRef {
    let word = [0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe];
    let key = |number: usize| [&word[..], &number.to_le_bytes(), &[b'.'; 16]].concat();
    column((0..COUNT).map(key))
}

/// Keys of twelve bytes that have one placement hash, for the same reason.
fn of_one_short_hash() -> ArrayRef {
    let word = 0xd1b5_4a32_d192_ed03_u64.to_le_bytes();
    column((0..COUNT as u32).map(|number| [&number.to_le_bytes()[..], &word].concat()))
}

/// Numbers whose placement hashes have their low twelve bits in common.
fn of_one_bucket() -> ArrayRef {
    let mut found = Vec::new();
    let mut next = 0;
    while found.len() < COUNT / 10 {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(next..next + 65_536));
        let hashes = hash_column(&numbers);
        found.extend((next..).zip(hashes).filter(|(_, hash)| hash & 0xfff == 0).map(|(number, _)| number));
        next += 65_536;
    }
    Arc::new(Int64Array::from(found))
}

fn families() -> Vec<Vec<ArrayRef>> {
    let texts = column((0..COUNT).map(|_| b"the same".to_vec()));
    vec![
        vec![of_one_long_hash()],
        vec![of_one_short_hash()],
        vec![of_one_bucket()],
        vec![texts, of_one_short_hash()],
    ]
}

/// Comparisons that some work takes.
fn looks(work: impl FnOnce()) -> u64 {
    let before = LOOKS.get();
    work();
    LOOKS.get() - before
}

#[test]
fn the_families_have_what_they_are_named_for() {
    for column in [of_one_long_hash(), of_one_short_hash()] {
        assert_eq!(hash_column(&column).into_iter().collect::<BTreeSet<_>>().len(), 1);
    }
}

#[test]
fn groups_in_memory_are_found_with_few_looks() {
    for columns in families() {
        let rows = columns[0].len();
        let mut groups = Dense::new(HashKey::draw());
        let times = vec![1; rows];
        let number = |groups: &mut Dense| groups.number(&columns, &times, None, |_, _| {});
        let first = looks(|| drop(number(&mut groups)));
        let again = looks(|| drop(number(&mut groups)));
        assert_eq!(groups.live(), rows);
        assert!(first.max(again) < 4 * rows as u64, "{first} and {again} looks at {rows} groups");
        assert!(looks(|| groups.sweep(rows, 1, |_, _| {})) < 4 * rows as u64);
    }
}

#[test]
fn of_cold_groups_few_more_are_read_than_are_asked_for() {
    for columns in families() {
        let rows = columns[0].len();
        let mut groups = Cached::new(HashKey::draw());
        let mut tags = Vec::new();
        for_each_key(&columns, rows, |_, key| tags.push(groups.tag_of(key)));
        let number = looks(|| {
            for (number, tag) in tags.iter().enumerate() {
                groups.add(number as u32, *tag);
            }
        });
        let mut wanted = Vec::new();
        let looked = looks(|| groups.wanted(&columns, rows, &mut wanted));
        assert!(wanted.len() >= rows && wanted.len() <= rows + rows / 100, "{} for {rows}", wanted.len());
        assert!(number + looked < 4 * rows as u64, "{number} and {looked} looks at {rows} groups");
    }
}

#[test]
fn no_two_tables_hash_alike_and_both_number_groups_alike() {
    let columns = [of_one_long_hash()];
    let (mut one, mut other) = (Dense::new(HashKey::draw()), Dense::new(HashKey::draw()));
    let times = vec![1; COUNT];
    let numbers = one.number(&columns, &times, None, |_, _| {});
    assert_eq!(numbers, other.number(&columns, &times, None, |_, _| {}));
    assert_ne!(one.first_tags(), other.first_tags());
}
