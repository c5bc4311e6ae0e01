//! Cases of hand-over and restoring, one a rule.

use std::collections::BTreeSet;

use thalweg_types::{Class, LatePolicy, RecordPlace};

use super::world::{Commit, World};
use super::*;
use crate::stage::{Gone, Manifest, Missed};

const SECOND: Micros = 1_000_000;

fn record(card: &str, seconds: i64, x: f64) -> Record {
    Record { time: seconds * SECOND, card: Some(card.to_owned()), x: Some(x), ..Record::default() }
}

fn queries(queries: &[(&str, &str)]) -> Vec<(String, String)> {
    queries.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

const SUM: &str = "SELECT sum(x) AS s FROM s GROUP BY card OVER SLIDING 10 SECONDS";
const COUNT: &str = "SELECT count(*) AS n FROM s OVER INFINITE";

fn world(texts: &[(&str, &str)]) -> World {
    World::new(&queries(texts), &StageOptions { chunk_rows: 2, ..StageOptions::default() })
}

fn answer(world: &mut World, records: &[Record], count: usize) -> Vec<Vec<Value>> {
    let (count, answers) = world.answer(records, count);
    values(&answers, count)
}

/// Kinds of the keys that a cycle changes, and whether each is gone.
fn changed(world: &World) -> Vec<(u8, bool)> {
    let changes = &world.waiting.last().unwrap().changes;
    let mut kinds: Vec<(u8, bool)> =
        changes.iter().map(|change| (change.key[0], change.value.is_none())).collect();
    kinds.sort_unstable();
    kinds
}

fn committed(world: &World) -> &Commit {
    world.commit.as_ref().unwrap()
}

#[test]
fn a_cycle_without_records_changes_nothing() {
    let mut world = world(&[("sum", SUM), ("count", COUNT)]);
    world.begin();
    world.hand_over(0);
    assert_eq!(changed(&world), [], "nothing has ever come");
    answer(&mut world, &[record("a", 0, 1.0), record("b", 1, 2.0)], 2);
    world.begin();
    world.hand_over(usize::MAX);
    assert_eq!(
        changed(&world),
        [(1, false), (1, false), (1, false), (2, false), (4, false)],
        "two cards, all, the rows, tags"
    );
    world.begin();
    world.hand_over(0);
    assert_eq!(changed(&world), []);
}

#[test]
fn only_groups_that_a_record_enters_or_leaves_are_written_again() {
    let mut world = world(&[("sum", SUM)]);
    let records: Vec<Record> =
        (0..20).map(|card| record(&format!("card {card}"), 0, 1.0)).chain([record("x", 1, 1.0)]).collect();
    answer(&mut world, &records, 20);
    world.begin();
    world.hand_over(usize::MAX);
    answer(&mut world, &records, 1);
    world.begin();
    world.hand_over(usize::MAX);
    let groups = changed(&world).iter().filter(|(kind, _)| *kind == 1).count();
    assert_eq!(groups, 1);
}

#[test]
fn groups_that_only_edges_have_changed_are_written_in_turn_and_a_restart_does_what_edges_did() {
    let cards = |second: i64| (0..40).map(move |card| record(&format!("card {card}"), second, 1.0));
    let records: Vec<Record> =
        cards(0).chain(cards(1)).chain((0..45).map(|_| record("x", 10, 1.0))).collect();
    let options = StageOptions { chunk_rows: 2, turn: 1, ..StageOptions::default() };
    let mut world = World::new(&queries(&[("sum", SUM)]), &options);
    answer(&mut world, &records, 80);
    world.begin();
    world.hand_over(usize::MAX);
    assert!(world.commit());
    // Half of what all forty cards had leaves their windows, and no card has a record.
    let mut written = BTreeSet::new();
    for round in 1..=40 {
        answer(&mut world, &records, 1);
        world.begin();
        world.hand_over(usize::MAX);
        let changes = &world.waiting.last().unwrap().changes;
        let keys = changes.iter().map(|change| change.key.to_vec());
        let groups: Vec<Vec<u8>> = keys.filter(|key| key[0] == 1).collect();
        assert_eq!(groups.len(), 2, "that of the record, and the next in turn");
        written.extend(groups);
        assert_eq!(written.len(), 1 + round);
        assert!(world.commit());
        world.crash().unwrap();
        for card in ["card 0", "card 20", "card 39"] {
            let key: ArrayRef = Arc::new(StringViewArray::from(vec![card]));
            let present = world.stage.read("sum", &[key]).unwrap().unwrap();
            let Value::Struct(outputs) = Value::at(&present.values, 0) else { panic!("a struct") };
            assert_eq!(outputs[0].1, Value::Float64(1.0), "{card} after {round} markers");
        }
    }
    answer(&mut world, &records, 1);
    world.begin();
    world.hand_over(usize::MAX);
    assert_eq!(changed(&world).iter().filter(|(kind, _)| *kind == 1).count(), 1);
}

#[test]
fn a_group_is_saved_as_of_the_marker_though_a_batch_changed_it_before_its_turn() {
    let records = [record("a", 0, 1.0), record("b", 0, 2.0), record("a", 1, 4.0), record("b", 20, 8.0)];
    let mut world = world(&[("sum", SUM)]);
    answer(&mut world, &records, 2);
    world.begin();
    answer(&mut world, &records, 1);
    world.hand_over(1);
    answer(&mut world, &records, 1);
    world.hand_over(usize::MAX);
    assert!(world.commit());
    world.crash().unwrap();
    assert_eq!(world.position, 2);
    let float = Value::Float64;
    assert_eq!(answer(&mut world, &records, 2), [[float(5.0)], [float(8.0)]]);
}

#[test]
fn a_crash_while_the_second_cycle_is_handed_over_goes_back_to_the_first() {
    let records: Vec<Record> = (0..12).map(|second| record("a", second, f64::from(second as i32))).collect();
    let mut world = world(&[("sum", SUM), ("count", COUNT)]);
    let straight = answer(&mut self::world(&[("sum", SUM), ("count", COUNT)]), &records, 12);
    answer(&mut world, &records, 4);
    world.begin();
    world.hand_over(usize::MAX);
    assert!(world.commit());
    answer(&mut world, &records, 4);
    world.begin();
    world.hand_over(1);
    answer(&mut world, &records, 2);
    world.crash().unwrap();
    assert_eq!(world.position, 4);
    assert_eq!(answer(&mut world, &records, 8), straight[4..]);
}

#[test]
fn a_number_that_was_freed_and_given_again_is_the_new_groups() {
    let mut world = world(&[("sum", SUM)]);
    // Each card is dead when the next comes; two slots are swept per record.
    let records: Vec<Record> =
        (0..40).map(|card| record(&format!("card {}", card / 2), card / 2 * 20, 1.0)).collect();
    let straight = answer(&mut self::world(&[("sum", SUM)]), &records, 40);
    let mut positions = Vec::new();
    for _ in 0..13 {
        let from = world.position;
        assert_eq!(answer(&mut world, &records, 3), straight[from..world.position]);
        world.begin();
        let from = world.position;
        assert_eq!(answer(&mut world, &records, 1), straight[from..world.position], "numbers change hands");
        world.hand_over(usize::MAX);
        assert!(world.commit());
        world.crash().unwrap();
        positions.push(world.position);
    }
    assert!(positions.is_sorted_by(|a, b| a < b));
    let groups: std::collections::BTreeSet<&Vec<u8>> =
        committed(&world).entries.keys().filter(|key| key[0] == 1).collect();
    assert!(groups.len() <= 4, "{} groups are kept for one or two live ones", groups.len());
    assert!(world.stage.groups() <= 4);
}

#[test]
fn a_query_keeps_its_state_under_another_name_and_what_was_dropped_does_not_come_back() {
    let max = "SELECT max(x) AS hi FROM s WHERE x > 0 GROUP BY shop OVER INFINITE";
    let records: Vec<Record> = (0..9).map(|second| record("a", second, 1.0)).collect();
    let mut world = world(&[("sum", SUM), ("max", max)]);
    answer(&mut world, &records, 3);
    world.begin();
    world.hand_over(usize::MAX);
    assert!(world.commit());
    world.queries = queries(&[("total", "select sum(x) as other from s group by card over sliding 10s")]);
    world.crash().unwrap();
    assert_eq!(answer(&mut world, &records, 2), [[Value::Float64(4.0)], [Value::Float64(5.0)]]);
    world.begin();
    world.hand_over(usize::MAX);
    assert!(changed(&world).contains(&(1, true)), "groups of the dropped query are gone");
    assert!(world.commit());
    let ids: std::collections::BTreeSet<&[u8]> =
        committed(&world).entries.keys().filter(|key| key[0] == 1).map(|key| &key[1..5]).collect();
    assert_eq!(ids.len(), 1, "one GROUP BY is left");

    world.queries = queries(&[("max", max), ("sum", SUM)]);
    world.crash().unwrap();
    let rows = answer(&mut world, &records, 1);
    let since = Value::Timestamp(4 * SECOND, thalweg_types::TimeUnit::Micro);
    assert_eq!(rows, [[Value::Float64(1.0), since, Value::Float64(6.0)]]);
}

/// Commits what there is, and goes on from it with other queries.
fn restart(world: &mut World, texts: &[(&str, &str)]) {
    world.begin();
    world.hand_over(usize::MAX);
    assert!(world.commit());
    world.queries = queries(texts);
    world.crash().unwrap();
}

#[test]
fn an_output_more_or_less_leaves_the_others_alone() {
    let records: Vec<Record> = (0..20).map(|second| record("a", second, 2.0)).collect();
    let (int, float) = (Value::Int64, Value::Float64);
    let since = |seconds: i64| Value::Timestamp(seconds * SECOND, thalweg_types::TimeUnit::Micro);
    let of =
        |names: &[&str]| Value::List(names.iter().map(|name| Value::String((*name).to_owned())).collect());
    let over = |outputs: &str| format!("SELECT {outputs} FROM s GROUP BY card OVER SLIDING 10 SECONDS");
    for is_bounded in [false, true] {
        let mut world = world(&[("q", &over("count(*) AS n"))]);
        if is_bounded {
            world = world.bounded(Some(super::world::Bound { memory: 1 << 20, is_lazy: true }));
        }
        answer(&mut world, &records, 3);
        restart(&mut world, &[("q", &over("sum(x) AS s, count(*) AS n"))]);
        let rows = answer(&mut world, &records, 2);
        assert_eq!(rows[0], [float(2.0), int(4), since(2), of(&["s"])]);
        assert_eq!(rows[1], [float(4.0), int(5), since(2), of(&["s"])]);
        // One more that begins later, then one less; another name and another order.
        restart(&mut world, &[("q", &over("count(*) AS n, max(x) AS hi, sum(x) AS s"))]);
        let rows = answer(&mut world, &records, 1);
        assert_eq!(rows[0], [int(6), float(2.0), float(6.0), since(4), of(&["hi", "s"])]);
        restart(&mut world, &[("p", &over("sum(x) AS s, count(*) AS n"))]);
        let rows = answer(&mut world, &records, 1);
        assert_eq!(rows[0], [float(8.0), int(7), since(2), of(&["s"])]);
        // What was away has not been kept.
        restart(&mut world, &[("p", &over("max(x) AS hi, count(*) AS n, sum(x) AS s"))]);
        let rows = answer(&mut world, &records, 1);
        assert_eq!(rows[0], [float(2.0), int(8), float(10.0), since(6), of(&["hi", "s"])]);
        let rows = answer(&mut world, &records, 10);
        assert_eq!(
            rows[4],
            [float(2.0), int(10), float(20.0), since(6), of(&["hi"])],
            "the window of s has filled"
        );
        assert_eq!(rows[9], [float(2.0), int(10), float(20.0), Value::Null, Value::Null]);
        // Alone it is like any query.
        restart(&mut world, &[("p", &over("max(x) AS hi"))]);
        assert_eq!(answer(&mut world, &records, 1), [[float(2.0), Value::Null]]);
    }
}

#[test]
fn outputs_find_their_state_in_whatever_query_has_it() {
    let over = |outputs: &str| format!("SELECT {outputs} FROM s GROUP BY card OVER SLIDING 10 SECONDS");
    let records: Vec<Record> = (0..9).map(|second| record("a", second, 2.0)).collect();
    let (int, float) = (Value::Int64, Value::Float64);
    let mut world = world(&[("one", &over("count(*)")), ("two", &over("sum(x), min(x)"))]);
    answer(&mut world, &records, 2);
    restart(&mut world, &[("both", &over("min(x), count(*)")), ("sum", &over("sum(x)"))]);
    assert_eq!(answer(&mut world, &records, 1), [[float(2.0), int(3), float(6.0)]]);
    // The stream, the condition and the window are no less a part of it.
    let since = Value::Timestamp(2 * SECOND, thalweg_types::TimeUnit::Micro);
    restart(
        &mut world,
        &[
            ("a", &over("count(*)").replace("FROM s", "FROM t")),
            ("b", &over("count(*)").replace("GROUP", "WHERE x > 1 GROUP")),
            ("c", &over("count(*)").replace("10", "11")),
            ("d", &over("count(*)").replace("GROUP BY card ", "")),
            ("e", &over("count(*)")),
        ],
    );
    let mut expected: Vec<Value> = (0..4).flat_map(|_| [int(1), since.clone()]).collect();
    expected.push(int(4));
    assert_eq!(answer(&mut world, &records, 1), [expected]);
}

#[test]
fn a_checkpoint_says_what_goes_on_with_it_and_what_goes() {
    let over = |outputs: &str| format!("SELECT {outputs} FROM s GROUP BY card OVER SLIDING 10 SECONDS");
    let mut world = world(&[("one", &over("count(*)")), ("two", &over("sum(x), min(x), max(x)"))]);
    answer(&mut world, &[record("a", 0, 1.0)], 1);
    world.begin();
    world.hand_over(usize::MAX);
    assert!(world.commit());
    let manifest = Manifest::parse(&committed(&world).manifest).unwrap();
    let query = Query::parse(&over("max(x), avg(x)")).unwrap();
    let continued = manifest.continued(&schema(), &[("new", &query)]).unwrap();
    assert_eq!(continued.kept, [[true, false]]);
    let gone = |query: &str, aggregates: &[&str], is_whole| Gone {
        query: query.to_owned(),
        aggregates: aggregates.iter().map(|text| (*text).to_owned()).collect(),
        is_whole,
    };
    let whole = gone("one", &["count(*)"], true);
    assert_eq!(
        continued.gone,
        [whole, gone("two", &["sum of \"x\":float64", "min of \"x\":float64"], false)]
    );
}

/// A stage that is new to a job that has run.
#[test]
fn a_stage_that_missed_records_says_so_until_its_windows_have_filled() {
    let missed = |missed| StageOptions { chunk_rows: 2, missed, ..StageOptions::default() };
    let since = |seconds: i64| Value::Timestamp(seconds * SECOND, thalweg_types::TimeUnit::Micro);
    let (float, int) = (Value::Float64, Value::Int64);
    for (told, first) in [(Missed::UpTo(5 * SECOND), 5), (Missed::Some, 4)] {
        // The first record is not the newest that there has been.
        let records: Vec<Record> =
            [4, 6, 13, 14, 15, 16].into_iter().map(|second| record("a", second, 1.0)).collect();
        for crash_at in 0..4 {
            let texts = [("sum", SUM), ("count", COUNT)];
            let mut world = World::new(&queries(&texts), &missed(told));
            let mut rows = answer(&mut world, &records, crash_at);
            // A part of a commit without a record does not mean that nothing is missing.
            restart(&mut world, &texts);
            rows.extend(answer(&mut world, &records, 6 - crash_at));
            let sums: Vec<&[Value]> = rows.iter().map(|row| &row[..2]).collect();
            let filled = |second: i64| if second - 10 < first { since(first) } else { Value::Null };
            let expected = [(4, 1.0), (6, 2.0), (13, 3.0), (14, 3.0), (15, 4.0), (16, 4.0)]
                .map(|(second, sum)| [float(sum), filled(second)]);
            assert_eq!(sums, expected, "{told:?}, restarted after {crash_at}");
            assert_eq!(rows[5][2..], [int(6), since(first)]);
        }
    }
}

#[test]
fn a_query_that_comes_to_a_stage_before_its_first_record_has_missed_what_the_stage_has() {
    let since = |seconds: i64| Value::Timestamp(seconds * SECOND, thalweg_types::TimeUnit::Micro);
    let options = StageOptions { missed: Missed::UpTo(9 * SECOND), ..StageOptions::default() };
    let mut world = World::new(&[], &options);
    restart(&mut world, &[("count", COUNT)]);
    let records = [record("a", 7, 1.0), record("a", 8, 1.0), record("a", 30, 1.0)];
    assert_eq!(answer(&mut world, &records, 1), [[Value::Int64(1), since(9)]]);
    restart(&mut world, &[("sum", SUM), ("count", COUNT)]);
    let row = [Value::Float64(1.0), since(9), Value::Int64(2), since(9)];
    assert_eq!(answer(&mut world, &records, 1), [row], "records up to 9 s were missed");
}

/// Ids and rows in several frames, ids that expire before they are written, rows that are sealed before.
#[test]
fn large_cycles_are_cut_into_frames_and_stay_those_of_the_marker() {
    let options = StageOptions {
        lateness: 50_000,
        dedup: Some((ID, 20_000)),
        chunk_rows: 1000,
        ..StageOptions::default()
    };
    // One record a microsecond, each third late; after 20,000 a jump, then the same ids again.
    let records: Vec<Record> = (0..30_000_i64)
        .map(|number| {
            let late = if number % 3 == 0 { number % 40 } else { 0 };
            let jump = if number < 20_000 { 0 } else { 1_000_000 };
            Record {
                time: number - late + jump,
                card: Some(format!("c{}", number % 7)),
                x: Some(number as f64),
                id: Some(format!("id {}", number % 19_000)),
                ..Record::default()
            }
        })
        .collect();
    let texts = queries(&[(
        "q",
        "SELECT count(*) AS n, sum(x) AS s, first(x) AS f, last(x) AS l FROM s GROUP BY card OVER SLIDING 9 MILLISECONDS",
    )]);
    let straight = answer(&mut World::new(&texts, &options), &records, records.len());
    let mut world = World::new(&texts, &options);
    world.file_bytes = 1 << 20;
    answer(&mut world, &records, 18_500);
    world.begin();
    // Past the jump, before anything is written.
    answer(&mut world, &records, 3_000);
    while world.waiting.is_empty() {
        world.hand_over(1);
        answer(&mut world, &records, 1);
    }
    let count = |kind: u8| world.waiting[0].changes.iter().filter(|change| change.key[0] == kind).count();
    assert!(count(2) >= 3 && count(3) >= 4, "{} frames of rows, {} of ids", count(2), count(3));
    assert!(world.commit());
    world.crash().unwrap();
    assert_eq!(world.position, 18_500);
    let duplicates = world.answer(&records, 1_500).1.duplicate.len();
    assert_eq!(duplicates, 1_000, "ids of before the marker are known");
    assert_eq!(answer(&mut world, &records, 9_000), straight[20_000..29_000]);
    world.begin();
    world.hand_over(usize::MAX);
    assert!(
        changed(&world).contains(&(2, true)) && changed(&world).contains(&(3, true)),
        "old frames are gone"
    );
    assert!(world.commit());
    world.crash().unwrap();
    assert_eq!(answer(&mut world, &records, 1_000), straight[29_000..]);
}

#[test]
fn damaged_missing_and_misplaced_entries_are_refused() {
    let options = StageOptions { dedup: Some((ID, 100 * SECOND)), ..StageOptions::default() };
    let mut world = World::new(&queries(&[("sum", SUM), ("count", COUNT)]), &options);
    let records: Vec<Record> = (0..6)
        .map(|second| Record {
            id: Some(format!("id{second}")),
            ..record(["a", "b"][second as usize % 2], second, 0.5)
        })
        .collect();
    answer(&mut world, &records, 6);
    world.begin();
    world.hand_over(usize::MAX);
    assert!(world.commit());
    let whole = committed(&world).clone();
    let mut check = |what: &str, damage: &dyn Fn(&mut Commit)| {
        let mut commit = whole.clone();
        damage(&mut commit);
        world.commit = Some(commit);
        let class = world.crash().err().map(|error| error.class());
        assert_eq!(class, Some(Class::Corrupt), "{what}");
    };
    for (key, value) in &whole.entries {
        for at in 0..value.len() {
            check(&format!("byte {at} of {key:02x?}"), &|commit| {
                commit.entries.get_mut(key).unwrap()[at] ^= 0x10;
            });
            check(&format!("{key:02x?} cut at {at}"), &|commit| {
                commit.entries.get_mut(key).unwrap().truncate(at);
            });
        }
        check(&format!("{key:02x?} is missing"), &|commit| {
            commit.entries.remove(key);
        });
        for other in whole.entries.keys().filter(|other| *other != key) {
            check(&format!("{key:02x?} under {other:02x?}"), &|commit| {
                commit.entries.insert(other.clone(), value.clone());
            });
        }
    }
    for at in 0..whole.manifest.len() {
        check(&format!("byte {at} of the manifest"), &|commit| commit.manifest[at] ^= 1);
        check(&format!("the manifest cut at {at}"), &|commit| commit.manifest.truncate(at));
    }
    check("a key of another length", &|commit| {
        commit.entries.insert(vec![1], Vec::new());
    });
    world.commit = Some(whole);
    world.crash().unwrap();
}

/// A record a second in chunks of two, up to `seconds`, committed.
fn sealed(options: &StageOptions, seconds: i64) -> World {
    let texts = queries(&[
        ("sum", "SELECT sum(x) AS s FROM s OVER SLIDING 40 SECONDS"),
        ("past", "SELECT sum(x) AS s FROM s OVER SLIDING 10 SECONDS DELAYED BY 20 SECONDS"),
    ]);
    let mut world = World::new(&texts, options);
    let records: Vec<Record> = (0..=seconds).map(|second| record("a", second, 1.0)).collect();
    answer(&mut world, &records, records.len());
    world.begin();
    world.hand_over(usize::MAX);
    assert!(world.commit());
    world
}

#[test]
fn a_larger_lateness_takes_no_record_that_was_late_before_it() {
    let float = Value::Float64;
    let old = StageOptions { lateness: 5 * SECOND, chunk_rows: 2, ..StageOptions::default() };
    for (late, first) in [(LatePolicy::Reject, [40.0, 10.0]), (LatePolicy::Clamp, [140.0, 10.0])] {
        let mut world = sealed(&old, 50);
        world.options = StageOptions { lateness: 60 * SECOND, late, ..old.clone() };
        world.crash().unwrap();
        assert_eq!(world.stage.records.judge.bound(), Some(45 * SECOND));
        let batch = batch(&[record("a", 25, 100.0), record("a", 45, 10.0), record("a", 75, 1.0)], 51);
        let answers = world.stage.answer(&batch).unwrap();
        assert_eq!((&answers.late[..], &answers.closed[..]), (&[0][..], &[0][..]), "{late:?}");
        let clamped = first[0] - 40.0;
        let expected = [
            first.map(float),
            [float(first[0] + 10.0), float(10.0)],
            // 36 s to 75 s; 46 s to 55 s.
            [float(15.0 + 10.0 + 1.0 + clamped), float(5.0)],
        ];
        assert_eq!(values(&answers, 3), expected, "{late:?}");
    }
}

#[test]
fn a_manifest_of_the_first_version_goes_on_and_has_what_was_sealed_as_its_bound() {
    let options = StageOptions { lateness: 5 * SECOND, chunk_rows: 2, ..StageOptions::default() };
    for (lateness, bound) in [(5, 46), (60, 45)] {
        let mut world = sealed(&options, 51);
        let commit = world.commit.as_mut().unwrap();
        let manifest = Manifest::parse(&commit.manifest).unwrap();
        assert_eq!((manifest.bound, manifest.to_bytes()), (Some(46 * SECOND), commit.manifest.clone()));
        commit.manifest = manifest.to_bytes_of_version(1);
        world.options.lateness = lateness * SECOND;
        world.crash().unwrap();
        assert_eq!(world.stage.records.judge.bound(), Some(bound * SECOND));
        let answers = world.stage.answer(&batch(&[record("a", 52, 1.0)], 52)).unwrap();
        assert_eq!(values(&answers, 1), [[Value::Float64(40.0), Value::Float64(10.0)]]);
    }
}

#[test]
fn the_newest_record_outlives_a_restart_where_the_manifest_has_it() {
    let place = RecordPlace { source: "payments".into(), offset: 12 };
    for missed in [Missed::Nothing, Missed::UpTo(9 * SECOND)] {
        let options = StageOptions { missed, ..StageOptions::default() };
        let mut world = World::new(&queries(&[("q", SUM)]), &options);
        world.answer(&[record("a", 10, 1.0)], 1);
        world.stage.set_newest(Some(place.clone()));
        world.begin();
        world.hand_over(usize::MAX);
        assert!(world.commit());
        let manifest = Manifest::parse(&world.commit.as_ref().unwrap().manifest).unwrap();
        assert_eq!(manifest.begins.is_some(), missed != Missed::Nothing);
        world.crash().unwrap();
        assert_eq!(world.stage.newest(), Some(&place));

        // As a build wrote it that did not know which record it was.
        let earlier = Manifest { newest: None, ..manifest };
        let version = if missed == Missed::Nothing { 3 } else { 4 };
        world.commit.as_mut().unwrap().manifest = earlier.to_bytes_of_version(version);
        world.crash().unwrap();
        assert_eq!((world.stage.newest(), world.stage.task_time()), (None, Some(10 * SECOND)));
    }
}

#[test]
fn a_stage_that_is_held_closes_nothing_after_a_restart_until_it_is_told_the_time() {
    let options = StageOptions { is_held: true, lateness: 5 * SECOND, ..StageOptions::default() };
    let mut world = World::new(&queries(&[("q", SUM)]), &options);
    world.stage.hold(10 * SECOND);
    world.answer(&[record("a", 10, 1.0), record("a", 60, 1.0)], 2);
    for _ in 0..2 {
        world.begin();
        world.hand_over(usize::MAX);
        assert!(world.commit());
        // Whether or not a record has come since the last restart.
        let manifest = Manifest::parse(&world.commit.as_ref().unwrap().manifest).unwrap();
        assert_eq!((manifest.task_time, manifest.bound), (Some(60 * SECOND), Some(5 * SECOND)));
        world.crash().unwrap();
    }
    world.stage.hold(10 * SECOND);
    let answers = world.stage.answer(&batch(&[record("a", 6, 1.0), record("a", 4, 1.0)], 2)).unwrap();
    assert_eq!(answers.late, [1]);
}

/// The pairs of a join have the order number of the record that completed them.
#[test]
fn records_of_one_order_number_stay_in_the_order_in_which_they_came() {
    let texts = queries(&[
        ("rows", "SELECT first(x) AS f, last(x) AS l, prev(x) AS p FROM s OVER ROWS 3"),
        ("all", "SELECT first(x) AS f, last(x) AS l, prev(x) AS p, max(x) AS m FROM s OVER INFINITE"),
    ]);
    let pairs: Vec<Record> =
        (0..9).map(|pair| Record { seq: Some(4), ..record("a", 10, f64::from(pair)) }).collect();
    for size in [1, 2, 4, 9] {
        let mut world = World::new(&texts, &StageOptions::default());
        while world.position < pairs.len() {
            let from = world.position;
            let (count, answers) = world.answer(&pairs, size);
            for (row, got) in values(&answers, count).into_iter().enumerate() {
                let x = (from + row) as f64;
                let float = Value::Float64;
                let prev = if x > 0.0 { float(x - 1.0) } else { Value::Null };
                let rows = [float((x - 2.0).max(0.0)), float(x), prev.clone()];
                let all = [float(0.0), float(x), prev, float(x)];
                assert_eq!(got, [&rows[..], &all[..]].concat(), "{size} at once");
            }
            world.begin();
            world.hand_over(usize::MAX);
            assert!(world.commit());
            world.crash().unwrap();
        }
    }
}

#[test]
fn chunks_that_a_query_stands_in_are_kept_though_the_cycle_before_it_came_needed_none() {
    let options = StageOptions { chunk_rows: 4, lateness: 0, ..StageOptions::default() };
    let query = |span: i64| {
        let text = format!("SELECT count(*) AS n FROM s GROUP BY card OVER SLIDING {span} SECONDS");
        (format!("q{span}"), text)
    };
    let records: Vec<Record> = (0..80)
        .map(|second| Record { time: second * 1_000_000, card: Some("a".to_owned()), ..Record::default() })
        .collect();
    let mut world = World::new(&[query(2)], &options);
    world.answer(&records, 24);
    world.change(&[]);
    world.begin();
    world.change(&[query(25)]);
    world.begin();
    world.answer(&records, 40);
    assert!(world.commit());
    world.answer(&records, 4);
    world.hand_over(usize::MAX);
    assert!(world.commit());
    world.crash().unwrap();
    assert_eq!(world.position, 24);
    world.answer(&records, 40);
}
