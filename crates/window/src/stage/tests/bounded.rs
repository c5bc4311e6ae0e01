//! Groups that leave memory and come back, one case a rule.

use arrow_array::StringViewArray;
use thalweg_types::Class;

use super::world::{Bound, World};
use super::*;
use crate::stage::CacheStats;

const SECOND: Micros = 1_000_000;
const SUM: &str = "SELECT sum(x) AS s, count(*) AS n FROM s GROUP BY card OVER SLIDING 100 SECONDS";

fn record(card: usize, seconds: i64) -> Record {
    let (time, card) = (seconds * SECOND, Some(format!("card number {card}")));
    Record { time, card, x: Some(1.0), ..Record::default() }
}

fn world(text: &str, memory: usize) -> World {
    let options = StageOptions { chunk_rows: 16, ..StageOptions::default() };
    let queries = [("q".to_owned(), text.to_owned())];
    World::new(&queries, &options).bounded(Some(Bound { memory, is_lazy: true }))
}

fn counts(world: &mut World, records: &[Record], count: usize) -> Vec<Value> {
    let (count, answers) = world.answer(records, count);
    values(&answers, count).into_iter().map(|mut row| row.remove(1)).collect()
}

fn cycle(world: &mut World) {
    world.begin();
    world.hand_over(usize::MAX);
    assert!(world.commit());
}

fn stats(world: &World) -> CacheStats {
    world.stage.cache_stats().unwrap()
}

#[test]
fn groups_leave_only_once_their_cycle_is_written_and_come_back_on_their_first_use() {
    let records: Vec<Record> = (0..40).map(|number| record(number % 20, 0)).collect();
    let mut world = world(SUM, 0);
    counts(&mut world, &records, 20);
    assert_eq!((stats(&world).resident, stats(&world).evictions), (20, 0), "no marker yet");
    assert!(stats(&world).overruns > 0 && world.stage.wants_cycle());
    world.begin();
    world.hand_over(usize::MAX);
    counts(&mut world, &records, 0);
    assert_eq!(stats(&world).resident, 20, "handed over, and nowhere yet");
    world.write();
    counts(&mut world, &records, 0);
    assert_eq!((stats(&world).resident, stats(&world).cold), (0, 20));
    assert_eq!(counts(&mut world, &records, 20), vec![Value::Int64(2); 20]);
    assert_eq!((stats(&world).resident, stats(&world).misses), (20, 20), "changed again");
}

/// `memory` has room for some hundred values, and one record changes one of thousands.
#[test]
fn values_of_one_group_leave_memory_and_are_written_one_by_one() {
    let distinct =
        "SELECT count(*) AS n, count(DISTINCT x) AS d FROM s GROUP BY card OVER SLIDING 2500 SECONDS";
    let mut world = world(distinct, 40_000);
    let records: Vec<Record> = (0..4_000_i64)
        .map(|second| Record { x: Some((second * 7 % 2_000) as f64), ..record(1, second) })
        .collect();
    for from in (0..3_000).step_by(100) {
        for (got, at) in counts(&mut world, &records, 100).iter().zip(from..) {
            assert_eq!(*got, Value::Int64(2_000.min(at + 1)), "record {at}");
        }
        cycle(&mut world);
    }
    let CacheStats { resident, cold, .. } = stats(&world);
    assert!(resident < 600 && resident + cold == 2_001, "{resident} in memory, {cold} not");
    world.answer(&records, 1);
    world.begin();
    world.hand_over(usize::MAX);
    let bytes = world.waiting[0].changes.byte_len();
    assert!(bytes < 600, "{bytes} bytes for a group, its values that came and left, and a row");
    world.crash().unwrap();
    while world.position < records.len() {
        assert_eq!(counts(&mut world, &records, 100), vec![Value::Int64(2_000); 100]);
        cycle(&mut world);
    }
}

/// Entries of a kind that the last commit has.
fn entries(world: &World, kind: u8) -> usize {
    world.commit.as_ref().unwrap().entries.keys().filter(|key| key[0] == kind).count()
}

const PIECE: u8 = 5;

/// Queries of one group whose lists grow with each record, with and without an end.
const LISTS: [&str; 4] = [
    "SELECT max(x) AS m, count(*) AS n FROM s GROUP BY card OVER SLIDING 2500 SECONDS",
    "SELECT first(x) AS m, count(*) AS n FROM s GROUP BY card OVER SLIDING 2500 SECONDS",
    "SELECT first(x) AS m, count(*) AS n FROM s OVER SLIDING 2500 SECONDS",
    "SELECT max(k) AS m, count(*) AS n, sum(x) AS s FROM s GROUP BY card OVER ROWS 2500",
];

/// Values fall, so that none of them is ever not the greatest of those that come later.
fn falling(card: usize, second: i64) -> Record {
    Record { x: Some(-second as f64), k: Some(second), ..record(card, second) }
}

#[test]
fn a_list_of_one_group_leaves_memory_and_is_written_piece_by_piece() {
    // Of 1,000 records a list is cut before the cycle ends.
    for (query, batches) in LISTS.into_iter().flat_map(|query| [(query, 1), (query, 10)]) {
        let mut world = world(query, 10_000);
        world.options.piece = 16;
        world.crash().unwrap();
        let records: Vec<Record> = (0..6_000).map(|second| falling(1, second)).collect();
        for at in (0..5_000).step_by(100) {
            for (got, at) in counts(&mut world, &records, 100).iter().zip(at..) {
                assert_eq!(*got, Value::Int64(2_500.min(at + 1)), "record {at}: {query}");
            }
            let is_hasty = world.stage.wants_cycle() || world.stage.is_over_memory();
            assert!(batches > 1 || !is_hasty, "record {at}: {query}");
            if (at / 100 + 1) % batches == 0 {
                cycle(&mut world);
            }
        }
        let pieces = entries(&world, PIECE);
        assert!((2_300 / 16..=2_500 / 16 + 8).contains(&pieces), "{pieces} pieces: {query}");
        let bytes = world.stage.state_bytes();
        assert!(bytes < 60_000, "{bytes} bytes of 2,500 values: {query}");
        world.answer(&records, 1);
        world.begin();
        world.hand_over(usize::MAX);
        let bytes = world.waiting[0].changes.byte_len();
        assert!(bytes < 2_000, "{bytes} bytes for one of 2,500 values that came and one that left: {query}");
        world.crash().unwrap();
        while world.position < records.len() {
            assert!(counts(&mut world, &records, 100).iter().all(|n| *n == Value::Int64(2_500)), "{query}");
            cycle(&mut world);
        }
    }
}

#[test]
fn pieces_go_with_the_values_the_group_or_the_query_that_they_are_of() {
    let [greatest, first, whole, rows] = LISTS;
    let both = |query: &str| vec![("q".to_owned(), query.to_owned()), ("n".to_owned(), SUM.to_owned())];
    let records: Vec<Record> = (0..500).map(|second| falling(1, second)).collect();
    // Greater than all: none of the others is ever the answer again.
    let mut greater = records.clone();
    greater.push(Record { x: Some(1.0), ..record(1, 500) });
    // Much later, of another group: the first one is gone.
    let mut later = records.clone();
    later.push(falling(2, 10_000));
    for (query, records) in [(greatest, &greater), (greatest, &later), (first, &later), (whole, &later)] {
        for is_bounded in [true, false] {
            let mut world = world(query, 10_000);
            world.options.piece = 16;
            world.bound = world.bound.filter(|_| is_bounded);
            world.crash().unwrap();
            world.answer(records, 500);
            cycle(&mut world);
            assert!(entries(&world, PIECE) >= 29, "{query}");
            world.crash().unwrap();
            world.answer(records, 1);
            for _ in 0..20 {
                world.answer(records, 0);
                cycle(&mut world);
            }
            assert_eq!(entries(&world, PIECE), 0, "{query}");
        }
    }
    for query in [greatest, first, whole, rows] {
        for is_restart in [true, false] {
            let mut world = world(query, 10_000);
            (world.options.piece, world.queries) = (16, both(query));
            world.crash().unwrap();
            world.answer(&records, 500);
            cycle(&mut world);
            assert!(entries(&world, PIECE) >= 29, "{query}");
            if is_restart {
                world.queries.remove(0);
                world.crash().unwrap();
            } else {
                assert!(world.stage.drop_query("q"));
            }
            cycle(&mut world);
            assert_eq!(entries(&world, PIECE), 0, "{query}");
        }
    }
}

/// A list is cut between a marker and the hand-over of another one that the marker has.
#[test]
fn pieces_of_a_cycle_are_below_the_number_that_its_marker_says() {
    for query in LISTS.into_iter().filter(|query| query.contains("GROUP BY")) {
        for is_lazy in [true, false] {
            let mut world = world(query, 10_000);
            world.options.piece = 16;
            world.bound = Some(Bound { memory: 10_000, is_lazy });
            world.crash().unwrap();
            let mut records: Vec<Record> = (0..500).map(|second| falling(1, second)).collect();
            records.extend((500..1_500).map(|second| falling(2, second)));
            records.extend((1_500..1_600).map(|second| falling(1, second)));
            world.answer(&records, 500);
            world.begin();
            world.answer(&records, 1_000);
            world.hand_over(usize::MAX);
            assert!(world.commit());
            world.crash().unwrap();
            assert_eq!(world.position, 500);
            counts(&mut world, &records, 1_000);
            cycle(&mut world);
            world.crash().unwrap();
            let expected: Vec<Value> = (501..=600).map(Value::Int64).collect();
            assert_eq!(counts(&mut world, &records, 100), expected, "{query}");
        }
    }
}

#[test]
fn a_piece_that_the_back_end_lost_or_damaged_ends_the_stage() {
    for (damage, is_lazy) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut world = world(LISTS[0], 10_000);
        world.options.piece = 16;
        world.bound = world.bound.filter(|_| is_lazy);
        world.crash().unwrap();
        let records: Vec<Record> = (0..5_000).map(|second| falling(1, second)).collect();
        world.answer(&records, 2_000);
        cycle(&mut world);
        let entries = &mut world.commit.as_mut().unwrap().entries;
        if damage {
            entries.iter_mut().filter(|(key, _)| key[0] == PIECE).for_each(|(_, value)| value[5] ^= 1);
        } else {
            entries.retain(|key, _| key[0] != PIECE);
        }
        let error = match world.crash() {
            Err(error) => error,
            Ok(()) => (0..3)
                .find_map(|_| world.stage.answer(&batch(&records[2_000..5_000], 2_000)).err())
                .expect("the oldest values leave, and their piece is not there"),
        };
        assert_eq!(error.class(), Class::Corrupt, "{error}");
        assert!(error.to_string().contains("piece"), "{error}");
    }
}

#[test]
fn present_values_of_a_cold_group_are_read_back_and_make_no_group() {
    let records: Vec<Record> = (0..20).map(|number| record(number, 0)).collect();
    let mut world = world(SUM, 0);
    counts(&mut world, &records, 20);
    cycle(&mut world);
    counts(&mut world, &records, 0);
    assert_eq!(stats(&world).cold, 20);
    let mut read = |card: &str| {
        let key: ArrayRef = Arc::new(StringViewArray::from_iter_values([card]));
        let present = world.stage.read("q", &[key]).unwrap().unwrap();
        let Value::Struct(outputs) = Value::at(&present.values, 0) else { panic!("a struct") };
        outputs[1].1.clone()
    };
    assert_eq!(read("card number 7"), Value::Int64(1));
    assert_eq!(read("nobody"), Value::Int64(0));
    assert_eq!((stats(&world).resident, world.stage.groups()), (1, 20));
}

#[test]
fn a_lazy_restart_reads_no_group_and_answers_as_if_it_had() {
    let records: Vec<Record> = (0..5_000).map(|number| record(number % 2_500, 0)).collect();
    let mut world = world(SUM, usize::MAX);
    counts(&mut world, &records, 2_500);
    cycle(&mut world);
    world.crash().unwrap();
    let cold = CacheStats { cold: 2_500, key_bytes: stats(&world).key_bytes, ..CacheStats::default() };
    assert_eq!(stats(&world), cold);
    assert_eq!(counts(&mut world, &records, 100), vec![Value::Int64(2); 100]);
    assert_eq!((stats(&world).resident, stats(&world).misses), (100, 100));
    while world.fill(1_000) {}
    assert_eq!((stats(&world).filled, stats(&world).misses), (2_400, 100));
    assert_eq!((stats(&world).resident, stats(&world).cold), (2_500, 0));
}

#[test]
fn a_scan_brings_no_value_of_a_group_that_has_changed_and_left_since_it_began() {
    let records: Vec<Record> = (0..60).map(|number| record(number % 20, 0)).collect();
    let mut world = world(SUM, usize::MAX);
    counts(&mut world, &records, 20);
    cycle(&mut world);
    world.crash().unwrap();
    counts(&mut world, &records, 10);
    let bind = |world: &mut World, memory: usize| {
        world.bound = Some(Bound { memory, is_lazy: true });
        world.bind();
    };
    bind(&mut world, 0);
    cycle(&mut world);
    counts(&mut world, &records, 0);
    assert_eq!(stats(&world).cold, 20, "the ten that have changed left again");
    bind(&mut world, usize::MAX);
    world.fill(usize::MAX);
    assert_eq!((stats(&world).filled, stats(&world).cold), (10, 10));
    let answers = counts(&mut world, &records, 30);
    assert_eq!(
        answers,
        [[2; 10], [3; 10], [3; 10]].concat().into_iter().map(Value::Int64).collect::<Vec<_>>()
    );
}

#[test]
fn a_scan_brings_in_no_more_than_memory_takes() {
    let records: Vec<Record> = (0..5_000).map(|number| record(number % 2_500, 0)).collect();
    let mut world = world(SUM, usize::MAX);
    counts(&mut world, &records, 2_500);
    cycle(&mut world);
    world.bound = Some(Bound { memory: 200_000, is_lazy: true });
    world.crash().unwrap();
    while world.fill(100) {}
    let now = stats(&world);
    assert!(now.filled > 100 && now.cold > 100 && world.stage.state_bytes() < 250_000, "{now:?}");
    assert_eq!(counts(&mut world, &records, 2_500), vec![Value::Int64(2); 2_500]);
}

#[test]
fn an_eager_restart_stops_reading_groups_in_when_memory_is_full() {
    let records: Vec<Record> = (0..5_000).map(|number| record(number % 2_500, 0)).collect();
    let mut world = world(SUM, usize::MAX);
    counts(&mut world, &records, 2_500);
    cycle(&mut world);
    world.bound = Some(Bound { memory: 200_000, is_lazy: false });
    world.crash().unwrap();
    let now = stats(&world);
    assert!(now.resident > 100 && now.cold > 100 && now.resident + now.cold == 2_500, "{now:?}");
    assert_eq!(counts(&mut world, &records, 2_500), vec![Value::Int64(2); 2_500]);
}

#[test]
fn slots_are_given_back_when_more_and_more_groups_are_cold() {
    let memory = 600_000;
    let records: Vec<Record> = (0..30_000).map(|number| record(number, 0)).collect();
    let text = "SELECT sum(x) AS s, count(*) AS n FROM s GROUP BY card OVER INFINITE";
    let (mut world, mut most) = (world(text, memory), 0);
    while world.position < records.len() {
        counts(&mut world, &records, 50);
        cycle(&mut world);
        most = most.max(stats(&world).resident);
    }
    let bytes = world.stage.state_bytes();
    assert!(bytes < memory + memory / 8, "{bytes} bytes, expected about {memory}");
    let now = stats(&world);
    assert!(now.resident > 400 && now.resident < most / 4 * 3, "{most}, then {now:?}");
    let again = records.len() - 5_000;
    world.position = again;
    let answers = counts(&mut world, &records, 5_000);
    assert_eq!(answers, vec![Value::Int64(2); 5_000], "groups in slots below and above the cut");
}

/// Windows that end without a row of the group, so that no record brings it in.
#[test]
fn cold_groups_that_die_are_freed_though_nobody_asks_for_them() {
    for window in ["TUMBLING 10 SECONDS", "SLIDING 10 SECONDS"] {
        let text = format!("SELECT sum(x) AS s, count(*) AS n FROM s GROUP BY card OVER {window}");
        let mut world = world(&text, 0);
        let records: Vec<Record> = (0..6_000).map(|number| record(number, number as i64 / 20)).collect();
        let (mut most, mut evictions) = (0, 0);
        while world.position < records.len() {
            assert_eq!(counts(&mut world, &records, 50), vec![Value::Int64(1); 50]);
            cycle(&mut world);
            most = most.max(world.stage.groups());
            if world.position.is_multiple_of(1_000) {
                evictions += stats(&world).evictions;
                world.crash().unwrap();
            }
        }
        assert!(evictions > 1_000 && most < 1_500, "{window}: {most} groups for some 200");
    }
}

#[test]
fn a_group_that_the_back_end_lost_or_damaged_ends_the_stage() {
    let records: Vec<Record> = (0..40).map(|number| record(number % 20, 0)).collect();
    let break_it: [fn(&mut Vec<u8>); 2] = [Vec::clear, |value| value[3] ^= 1];
    for damage in break_it {
        let mut world = world(SUM, 0);
        counts(&mut world, &records, 20);
        cycle(&mut world);
        world.crash().unwrap();
        world.written.damage(1, damage);
        let error = world.stage.answer(&batch(&records[20..], 20)).unwrap_err();
        assert_eq!(error.class(), Class::Corrupt, "{error}");
    }
}

#[test]
fn a_restart_whose_tags_are_damaged_or_missing_is_refused() {
    let records: Vec<Record> = (0..1_500).map(|number| record(number, 0)).collect();
    for is_lazy in [false, true] {
        let mut world = world(SUM, 0);
        counts(&mut world, &records, 1_500);
        cycle(&mut world);
        world.bound = Some(Bound { memory: 1 << 20, is_lazy });
        let whole = world.commit.clone();
        let blocks: Vec<Vec<u8>> =
            whole.as_ref().unwrap().entries.keys().filter(|key| key[0] == 4).cloned().collect();
        assert_eq!(blocks.len(), 2);
        for block in blocks {
            for damage in 0..3 {
                world.commit.clone_from(&whole);
                let entries = &mut world.commit.as_mut().unwrap().entries;
                match damage {
                    0 => drop(entries.remove(&block)),
                    1 => entries.get_mut(&block).unwrap()[40] ^= 4,
                    _ => entries.get_mut(&block).unwrap().truncate(100),
                }
                let class = world.crash().err().map(|error| error.class());
                assert_eq!(class, Some(Class::Corrupt), "lazy: {is_lazy}, damage {damage}");
            }
        }
        world.commit = whole;
        world.crash().unwrap();
    }
}

fn with_id(id: usize, seconds: i64) -> Record {
    Record { id: Some(format!("payment number {id}")), ..record(id % 7, seconds) }
}

/// Duplicates within `seconds`, in memory for few ids.
fn dedup_world(seconds: i64, memory: usize) -> World {
    let options =
        StageOptions { chunk_rows: 16, dedup: Some((ID, seconds * SECOND)), ..StageOptions::default() };
    let queries = [("q".to_owned(), SUM.to_owned())];
    World::new(&queries, &options).bounded(Some(Bound { memory, is_lazy: true }))
}

/// Rows among the next records that are duplicates.
fn duplicates(world: &mut World, records: &[Record], count: usize) -> Vec<u32> {
    world.answer(records, count).1.duplicate
}

#[test]
fn ids_leave_once_their_frames_are_written_and_are_still_known() {
    let mut records: Vec<Record> = (0..100).map(|id| with_id(id, 0)).collect();
    records.extend([3, 500, 99, 501].map(|id| with_id(id, 1)));
    let mut world = dedup_world(100, 0);
    assert!(duplicates(&mut world, &records, 100).is_empty());
    world.begin();
    world.hand_over(usize::MAX);
    duplicates(&mut world, &records, 0);
    assert_eq!((stats(&world).ids, stats(&world).cold_ids), (100, 0), "handed over, and nowhere yet");
    world.write();
    duplicates(&mut world, &records, 0);
    assert_eq!((stats(&world).ids, stats(&world).cold_ids), (0, 100));
    let before = stats(&world).misses;
    assert_eq!(duplicates(&mut world, &records, 4), [0, 2]);
    assert_eq!(stats(&world).ids, 2, "only the new ones came");
    assert!(
        stats(&world).misses > before,
        "the frame was read for ids that its hashes could not distinguish"
    );
}

#[test]
fn cold_ids_are_forgotten_with_their_span() {
    let mut records: Vec<Record> = (0..40).map(|id| with_id(id, 0)).collect();
    // Within the span, at its end, and again after that.
    records.extend([(5, 9), (5, 10), (5, 11), (6, 11), (5, 30)].map(|(id, seconds)| with_id(id, seconds)));
    let mut world = dedup_world(10, 0);
    duplicates(&mut world, &records, 40);
    cycle(&mut world);
    duplicates(&mut world, &records, 0);
    assert_eq!(stats(&world).cold_ids, 40);
    assert_eq!(duplicates(&mut world, &records, 1), [0]);
    assert!(duplicates(&mut world, &records, 1).is_empty());
    cycle(&mut world);
    duplicates(&mut world, &records, 0);
    assert_eq!(duplicates(&mut world, &records, 2), [0], "the newest of two cold ones counts");
    assert!(duplicates(&mut world, &records, 1).is_empty());
    cycle(&mut world);
    cycle(&mut world);
    duplicates(&mut world, &records, 0);
    assert_eq!((stats(&world).ids, stats(&world).cold_ids), (0, 1), "all others are out of the span");
}

#[test]
fn a_restart_takes_no_more_ids_into_memory_than_their_share() {
    let memory = 400_000;
    let mut records: Vec<Record> = (0..30_000).map(|id| with_id(id, id as i64 / 1_000)).collect();
    records.extend((0..30_000).step_by(1_000).map(|id| with_id(id, 30)));
    for is_lazy in [true, false] {
        let mut world = dedup_world(1_000, memory);
        world.bound = Some(Bound { memory, is_lazy });
        world.bind();
        while world.position < 30_000 {
            assert!(duplicates(&mut world, &records, 1_000).is_empty());
            cycle(&mut world);
        }
        let now = stats(&world);
        assert!(now.cold_ids > 20_000 && now.ids + now.cold_ids == 30_000, "{now:?}");
        world.crash().unwrap();
        let after = stats(&world);
        assert!(after.cold_ids > 20_000 && after.ids + after.cold_ids == 30_000, "{after:?}");
        let (bytes, cold) = (world.stage.state_bytes() as u64, after.key_bytes);
        assert!(bytes - cold < memory as u64 / 4 * 5, "{bytes} bytes, {cold} of them for cold groups");
        assert!((12..=32).contains(&(cold / after.cold_ids)), "{after:?}");
        assert_eq!(duplicates(&mut world, &records, 30), (0..30).collect::<Vec<_>>(), "{is_lazy}");
    }
}

#[test]
fn a_frame_of_ids_that_the_back_end_lost_or_damaged_ends_the_stage() {
    let break_it: [fn(&mut Vec<u8>); 2] = [Vec::clear, |value| value[3] ^= 1];
    for damage in break_it {
        let records: Vec<Record> = (0..20).chain([3]).map(|id| with_id(id, 0)).collect();
        let mut world = dedup_world(100, 0);
        duplicates(&mut world, &records, 20);
        cycle(&mut world);
        duplicates(&mut world, &records, 0);
        world.written.damage(3, damage);
        let error = world.stage.answer(&batch(&records[20..], 1)).unwrap_err();
        assert_eq!(error.class(), Class::Corrupt, "{error}");
    }
}
