//! `gen`.

use super::Place;

#[test]
fn the_same_seed_gives_the_same_records() {
    let place = Place::with(&[]);
    let records = |args: &[&str]| place.thalweg(args).ends_with(0).stdout;
    let first = records(&["gen", "payments", "--count", "100", "--seed", "3"]);
    assert_eq!(first.lines().next(), Some("ts,card,merchant,amount"));
    assert_eq!(first.lines().count(), 101);
    assert_eq!(first, records(&["gen", "payments", "--count", "100", "--seed", "3"]));
    assert_ne!(first, records(&["gen", "payments", "--count", "100", "--seed", "4"]));
    let more = records(&["gen", "payments", "--count", "20000", "--seed", "3"]);
    assert!(more.starts_with(&first), "a longer run begins with the shorter one");
}

#[test]
fn fields_and_format_can_be_chosen() {
    let place = Place::with(&[]);
    let ended = place
        .thalweg(&["gen", "payments", "--count", "2", "--fields", "2", "--format", "ndjson"])
        .ends_with(0);
    let first: serde_json::Value = serde_json::from_str(ended.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(first.as_object().unwrap().keys().collect::<Vec<_>>(), ["ts", "card"]);
    assert_eq!(place.thalweg(&["gen", "readings", "--count", "0"]).ends_with(0).stdout.lines().count(), 1);
}
