//! A table whose bytes changed says so, or gives the answers that it gave before.

use super::*;
use crate::lookup::{Found, LookupError};

/// All answers for the rows and some addresses without a row, or the first error.
fn answers(path: &Path, keys: &[[u8; 16]]) -> Result<Vec<(Found, Vec<u8>)>, LookupError> {
    LookupTable::verify(path)?;
    let table = LookupTable::open(path)?;
    keys.iter()
        .map(|key| {
            let mut out = Vec::new();
            Ok((table.find(*key, &mut out)?, out))
        })
        .collect()
}

fn small_table(place: &Place) -> (Vec<[u8; 16]>, Vec<u8>) {
    let mut rows = mixed_rows();
    rows.retain(|(key, _)| key[15] % 16 == 3 || key[0] == 0xff);
    build(&place.table(), &rows);
    let mut keys: Vec<[u8; 16]> = rows.iter().map(|(key, _)| *key).collect();
    keys.extend([key("9.9.9.9"), key("10.0.0.4"), key("2001:db8::77")]);
    (keys, std::fs::read(place.table()).unwrap())
}

/// `place.table()` is written anew: mapped bytes must not be changed in place.
fn rewrite(place: &Place, bytes: &[u8]) {
    let beside = place.0.path().join("changed");
    std::fs::write(&beside, bytes).unwrap();
    std::fs::rename(beside, place.table()).unwrap();
}

fn is_said(error: &LookupError) -> bool {
    matches!(error, LookupError::Damaged { .. } | LookupError::NewerFormat { .. })
        && error.to_string().contains("names.tbl")
}

#[test]
fn every_flipped_bit_is_found_or_changes_nothing() {
    let place = Place::new();
    let (keys, sound) = small_table(&place);
    let expected = answers(&place.table(), &keys).unwrap();
    let mut found = 0_u64;
    // Zeros between sections are skipped, but for a few: nobody reads them.
    let places: Vec<usize> = (0..sound.len())
        .filter(|place| {
            let around = &sound[place.saturating_sub(40)..(place + 40).min(sound.len())];
            place % 512 == 0 || around.iter().any(|byte| *byte != 0)
        })
        .collect();
    for at in places {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at * 7 % 8);
        rewrite(&place, &bytes);
        match answers(&place.table(), &keys) {
            Ok(answers) => assert!(answers == expected, "byte {at} changed an answer"),
            Err(error) => {
                assert!(is_said(&error), "byte {at}: {error}");
                found += 1;
            }
        }
    }
    assert!(found > 3_000, "{found}");
}

#[test]
fn every_truncation_is_found() {
    let place = Place::new();
    let (keys, sound) = small_table(&place);
    for end in (0..sound.len()).filter(|end| end % 97 == 0 || *end < 200 || sound.len() - end < 200) {
        rewrite(&place, &sound[..end]);
        let error = answers(&place.table(), &keys).unwrap_err();
        assert!(is_said(&error), "cut at {end}: {error}");
    }
    rewrite(&place, &[&sound[..], &[0]].concat());
    assert!(is_said(&answers(&place.table(), &keys).unwrap_err()));
}

#[test]
fn damage_is_named_by_file_and_byte() {
    let place = Place::new();
    let (_, sound) = small_table(&place);
    let mut bytes = sound;
    // The first page of names.
    bytes[4100] ^= 1;
    rewrite(&place, &bytes);
    let error = LookupTable::verify(place.table()).unwrap_err();
    assert!(error.to_string().contains("names.tbl\" at byte 4096: checksum of a chunk"), "{error}");
    assert_eq!(error.class(), thalweg_types::Class::Corrupt);
    let table = LookupTable::open(place.table()).unwrap();
    assert!(table.find(key("0.0.0.3"), &mut Vec::new()).is_err());
}

#[test]
fn a_newer_format_is_refused() {
    let place = Place::new();
    let (_, mut bytes) = small_table(&place);
    bytes[8] = 9;
    rewrite(&place, &bytes);
    let error = LookupTable::open(place.table()).unwrap_err();
    assert!(matches!(error, LookupError::NewerFormat { found: 9, newest: 1, .. }), "{error}");
}

#[test]
fn what_is_no_table_is_refused() {
    let place = Place::new();
    for bytes in [&b""[..], b"address,name\n", &[0; 5000]] {
        rewrite(&place, bytes);
        assert!(is_said(&LookupTable::open(place.table()).unwrap_err()));
    }
    std::fs::remove_file(place.table()).unwrap();
    let error = LookupTable::open(place.table()).unwrap_err();
    assert!(matches!(&error, LookupError::Io(disk) if disk.action == "open"), "{error}");
}
