//! The sink `kafka` over a bus in memory, in which clients and brokers do their worst: what a reader has in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, StringViewArray};
use thalweg_kafka::memory::{Faults, MemoryBus, Stored};
use thalweg_kafka::{Bus, ProducerOptions, TopicPartition};
use thalweg_types::Class;

use super::drive::{Driven, context, numbers};
use super::*;
use crate::sink::kafka::KafkaPlugin;
use crate::{SinkPlugin, SinkResume};

const PARTITIONS: i32 = 3;

pub(super) fn list(texts: &[&str]) -> OptionValue {
    OptionValue::List(texts.iter().map(|text| (*text).to_owned()).collect())
}

pub(super) fn plugin(bus: &MemoryBus) -> KafkaPlugin {
    let bus = bus.clone();
    KafkaPlugin::on(Arc::new(move |_| Ok(Arc::new(bus.clone()) as Arc<dyn Bus>)))
}

pub(super) fn entries(more: &[(&'static str, OptionValue)]) -> Vec<(&'static str, OptionValue)> {
    let mut entries = vec![
        ("brokers", list(&["127.0.0.1:1"])),
        ("topic", text("t")),
        ("key", text("host")),
        ("retry_wait", OptionValue::Duration(1_000)),
    ];
    entries.retain(|(key, _)| more.iter().all(|(other, _)| other != key));
    entries.extend_from_slice(more);
    entries.retain(|(_, value)| *value != OptionValue::Text(String::new()));
    entries
}

fn sink_of(
    bus: &MemoryBus,
    schema: &Schema,
    more: &[(&'static str, OptionValue)],
    durable: Option<SinkResume>,
) -> Result<Driven, Error> {
    let mut context = context(schema, &entries(more), durable);
    context.format = Some(spec("ndjson", &[]));
    Driven::of(&plugin(bus), context)
}

fn sink(bus: &MemoryBus, delivery: &str, durable: Option<SinkResume>) -> Driven {
    let more = [("delivery", text(delivery))];
    sink_of(bus, &numbers(), &more, durable).expect("a sink that can be opened")
}

fn header<'a>(stored: &'a Stored, name: &str) -> Option<&'a [u8]> {
    let found = stored.headers.iter().find(|(header, _)| header == name);
    found.and_then(|(_, value)| value.as_deref())
}

/// The number that a row of [`numbers`] has.
pub(super) fn number(stored: &Stored) -> i64 {
    let value = stored.value.as_deref().expect("a value");
    let row: serde_json::Value = serde_json::from_slice(value).expect("a JSON object");
    row["n"].as_i64().expect("a number")
}

/// What a reader has of each partition, in order.
pub(super) fn read(bus: &MemoryBus) -> Vec<Vec<Stored>> {
    (0..PARTITIONS).map(|partition| bus.committed(&TopicPartition::new("t", partition))).collect()
}

/// The reader's rule: a row whose position is not above the last one of its partition is there already.
pub(super) fn without_doubles(rows: &[Stored]) -> Vec<i64> {
    let mut last: Option<(u64, u32)> = None;
    let mut kept = Vec::new();
    for stored in rows {
        assert_eq!(header(stored, "thalweg-sink"), Some(&b"test/answers"[..]));
        let position = std::str::from_utf8(header(stored, "thalweg-position").unwrap()).unwrap();
        let (seq, index) = position.split_once('.').unwrap_or((position, "0"));
        let position = (seq.parse().unwrap(), index.parse().unwrap());
        if last.is_none_or(|last| position > last) {
            last = Some(position);
            kept.push(number(stored));
        }
    }
    kept
}

/// Each number once, those of one key in order.
fn assert_whole(partitions: &[Vec<i64>], count: u64, what: &str) {
    let mut all: Vec<i64> = partitions.concat();
    for partition in partitions {
        let mut last: BTreeMap<i64, i64> = BTreeMap::new();
        for n in partition {
            assert!(last.insert(n % 7, *n).is_none_or(|before| before < *n), "{what}: {n} is out of order");
        }
    }
    all.sort_unstable();
    let lost: Vec<i64> = (0..count as i64).filter(|n| all.binary_search(n).is_err()).collect();
    assert_eq!((lost, all.len() as u64), (Vec::new(), count), "{what}: lost, and how many there are");
}

pub(super) fn with_topic(seed: u64) -> MemoryBus {
    let bus = MemoryBus::new(seed, Faults::default());
    bus.make_topic("t", PARTITIONS);
    bus
}

/// A job that is killed again and again between and in its cycles, and repeats what no commit record has.
fn killed_job(bus: &MemoryBus, delivery: &str, seed: u64, faults: Faults) -> (u64, u32) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut resume = SinkResume { is_new: true, ..SinkResume::default() };
    // The first number after the last commit, and after all that was given.
    let (mut committed, mut furthest) = (0, 0);
    let mut kills = 0;
    for life in 0..6 {
        // A job begins only where there is a broker.
        bus.set_faults(Faults::default());
        let mut driven = sink(bus, delivery, Some(resume.clone()));
        bus.set_faults(faults);
        // A record says that the job has begun, before anything else happens.
        resume.is_new = false;
        driven.go_on_at(committed);
        let mut next = committed;
        let is_last = life == 5;
        for _ in 0..random.u64(1..5) {
            for _ in 0..random.u64(0..4) {
                let count = random.u64(1..40);
                driven.give(count).unwrap();
                next += count;
                furthest = furthest.max(next);
            }
            if is_last && next < furthest {
                // As an order log is followed to its end.
                driven.give(furthest - next).unwrap();
                next = furthest;
            }
            // Killed before the commit record, whether Kafka has the rows or not.
            if !is_last && random.u32(0..4) == 0 {
                let part = driven.mark(resume.cycle + 1).unwrap();
                if random.bool() {
                    let mut part = part;
                    part.prepare().unwrap();
                }
                kills += 1;
                break;
            }
            let position = driven.commit(resume.cycle + 1).unwrap();
            resume = position;
            committed = next;
        }
        if is_last {
            driven.finish().unwrap();
        }
    }
    (committed, kills)
}

#[test]
fn rows_with_positions_come_once_for_a_reader_that_looks_at_them() {
    let faults =
        Faults { delays: 100, lost_acknowledgements: 10, doubles: 30, outages: 100, ..Faults::default() };
    let (mut kills, mut doubles) = (0, 0);
    for seed in 0..40 {
        let bus = with_topic(seed);
        let (count, killed) = killed_job(&bus, "positions", seed, faults);
        let rows = read(&bus);
        let kept: Vec<Vec<i64>> = rows.iter().map(|rows| without_doubles(rows)).collect();
        assert_whole(&kept, count, &format!("seed {seed}"));
        doubles += rows.iter().map(Vec::len).sum::<usize>() as u64 - count;
        kills += killed;
    }
    assert!(kills > 20 && doubles > 100, "something was disturbed: {kills} kills, {doubles} doubles");
}

#[test]
fn rows_of_transactions_come_once_whatever_happens() {
    let faults = Faults {
        delays: 100,
        lost_acknowledgements: 5,
        given_up: 5,
        unknown_commits: 100,
        lost_commits: 100,
        aborts: 100,
        partial_loads: 200,
        outages: 100,
        ..Faults::default()
    };
    let (mut kills, mut loads) = (0, 0);
    for seed in 0..40 {
        let bus = with_topic(seed);
        let (count, killed) = killed_job(&bus, "transactions", seed, faults);
        let rows: Vec<Vec<i64>> = read(&bus).iter().map(|rows| rows.iter().map(number).collect()).collect();
        assert_whole(&rows, count, &format!("seed {seed}"));
        kills += killed;
        loads += bus.happened().partial_loads;
    }
    assert!(kills > 20 && loads > 20, "something was disturbed: {kills} kills, {loads} partial loads");
}

/// As in a topic that was made just now, or where a partition has a new leader.
#[test]
fn rows_come_in_order_where_a_broker_refuses_the_first_request_of_a_producer() {
    let faults = Faults { refused_firsts: 1_000, ..Faults::default() };
    for delivery in ["positions", "transactions"] {
        for seed in 0..5 {
            let bus = with_topic(seed);
            let mut driven = sink(&bus, delivery, Some(SinkResume { is_new: true, ..SinkResume::default() }));
            bus.set_faults(faults);
            for cycle in 1..4 {
                driven.give(30).unwrap();
                driven.commit(cycle).unwrap();
            }
            let rows = read(&bus).into_iter();
            let kept: Vec<Vec<i64>> = match delivery {
                "positions" => rows.map(|rows| without_doubles(&rows)).collect(),
                _ => rows.map(|rows| rows.iter().map(number).collect()).collect(),
            };
            assert_whole(&kept, 90, &format!("{delivery}, seed {seed}"));
        }
    }
}

/// A commit record counts only rows that Kafka has.
#[test]
fn a_part_waits_until_its_rows_are_there() {
    for delivery in ["positions", "transactions"] {
        let bus = with_topic(1);
        bus.set_faults(Faults { delays: 700, ..Faults::default() });
        let mut driven = sink(&bus, delivery, Some(SinkResume { is_new: true, ..SinkResume::default() }));
        for cycle in 1..20 {
            driven.give(9).unwrap();
            driven.commit(cycle).unwrap();
            let there: usize = read(&bus).iter().map(Vec::len).sum();
            assert!(there as u64 >= 9 * cycle, "{delivery}: {there} rows are there in cycle {cycle}");
        }
    }
}

#[test]
fn rows_of_a_transaction_are_visible_soon_without_a_commit_of_the_job() {
    let bus = with_topic(1);
    let more = [("delivery", text("transactions")), ("visible", OptionValue::Duration(20_000))];
    let mut driven = sink_of(&bus, &numbers(), &more, None).unwrap();
    driven.give(5).unwrap();
    until("the rows are visible", || read(&bus).iter().map(Vec::len).sum::<usize>() == 5);
    until("they are counted", || driven.report.delivery().unwrap().transactions == 1);
    assert_eq!(driven.report.delivery().unwrap().acknowledged, 5);
}

#[test]
fn a_sink_that_does_not_fit_what_kafka_has_is_refused() {
    let bus = with_topic(1);
    let new = || Some(SinkResume { is_new: true, ..SinkResume::default() });
    let mut driven = sink(&bus, "transactions", new());
    driven.give(5).unwrap();
    let first = driven.commit(1).unwrap();
    driven.give(5).unwrap();
    let second = driven.commit(2).unwrap();
    drop(driven);

    let error = sink(&bus, "transactions", new()).failure();
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.message().contains("the job has never run in its data directory"), "{error}");

    let other = with_topic(2);
    let error = sink(&other, "transactions", Some(second.clone())).failure();
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.message().contains("has no position, expected at least 9"), "{error}");

    // An older copy of the data directory.
    let mut driven = sink(&bus, "transactions", Some(second));
    driven.go_on_at(10);
    for cycle in 3..8 {
        driven.give(5).unwrap();
        driven.commit(cycle).unwrap();
    }
    drop(driven);
    let error = sink(&bus, "transactions", Some(first)).failure();
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.message().contains("has rows of cycle 7, and the job has come to cycle 1 only"), "{error}");
}

/// A crash after trouble with brokers is none with an older copy of the data directory.
#[test]
fn commits_whose_outcome_is_unknown_are_of_the_cycle_that_is_open() {
    let bus = with_topic(1);
    let more = [("delivery", text("transactions")), ("visible", OptionValue::Duration(0))];
    let sink = |durable| sink_of(&bus, &numbers(), &more, Some(durable)).unwrap();
    let mut driven = sink(SinkResume { is_new: true, ..SinkResume::default() });
    driven.give(5).unwrap();
    let resume = driven.commit(1).unwrap();
    bus.set_faults(Faults { unknown_commits: 1_000, ..Faults::default() });
    let there = || read(&bus).iter().map(Vec::len).sum::<usize>();
    for count in 2..9 {
        driven.give(5).unwrap();
        until("the rows are there", || there() == 5 * count);
    }
    drop(driven);
    bus.set_faults(Faults::default());
    let mut driven = sink(resume);
    driven.go_on_at(5);
    driven.give(40).unwrap();
    driven.commit(2).unwrap();
    assert_eq!(there(), 45);
}

#[test]
fn a_producer_that_another_process_has_fenced_off_fails_its_job() {
    let bus = with_topic(1);
    let mut driven = sink(&bus, "transactions", Some(SinkResume { is_new: true, ..SinkResume::default() }));
    driven.give(5).unwrap();
    driven.commit(1).unwrap();
    let options = ProducerOptions {
        transactional_id: Some("thalweg.test.answers".to_owned()),
        ..ProducerOptions::new(1_000, 1_000)
    };
    let _other = bus.producer(options).unwrap();
    driven.give(5).unwrap();
    let error = driven.failure();
    assert!(error.message().contains("another producer has taken over"), "{error}");
    assert!(error.hint().unwrap().contains("only one process"));
}

/// Brokers say of such a one that another producer has taken over.
#[test]
fn a_transaction_that_was_open_for_too_long_is_sent_again() {
    let bus = with_topic(1);
    bus.set_faults(Faults { timed_out: 300, ..Faults::default() });
    let timeout = OptionValue::Lists(vec![("transaction.timeout.ms".to_owned(), vec!["0".to_owned()])]);
    let more = [("delivery", text("transactions")), ("properties", timeout)];
    let new = SinkResume { is_new: true, ..SinkResume::default() };
    let mut driven = sink_of(&bus, &numbers(), &more, Some(new)).unwrap();
    for cycle in 1..40 {
        driven.give(5).unwrap();
        driven.commit(cycle).unwrap();
    }
    assert!(driven.report.delivery().unwrap().retried > 0, "something was disturbed");
    let rows: Vec<Vec<i64>> = read(&bus).iter().map(|rows| rows.iter().map(number).collect()).collect();
    assert_whole(&rows, 195, "transactions were timed out");
}

fn replies() -> Schema {
    schema("host: string?; n: int64; reply: string?; part: string?; id: bytes?")
}

/// A request: key, number, topic, partition and id.
type Asked<'a> = (Option<&'a str>, i64, Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn reply_batch(rows: &[Asked<'_>]) -> Batch {
    let strings = |of: fn(&Asked<'_>) -> Option<String>| {
        Arc::new(rows.iter().map(of).collect::<StringViewArray>()) as ArrayRef
    };
    let numbers: ArrayRef = Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>());
    let ids: arrow_array::BinaryViewArray = rows.iter().map(|row| row.4.map(str::as_bytes)).collect();
    batch(
        &replies(),
        vec![
            strings(|row| row.0.map(str::to_owned)),
            numbers,
            strings(|row| row.2.map(str::to_owned)),
            strings(|row| row.3.map(str::to_owned)),
            Arc::new(ids),
        ],
    )
}

/// An answer goes to the topic, and perhaps the partition, that the request named, with the header of the request.
#[test]
fn a_reply_goes_where_the_request_says() {
    let bus = with_topic(1);
    bus.make_topic("reply.one", 4);
    bus.make_topic("secret", 1);
    let headers = OptionValue::Lists(vec![("correlation-id".to_owned(), vec!["id".to_owned()])]);
    let more = [
        ("topic", text("")),
        ("topic_field", text("reply")),
        ("partition_field", text("part")),
        ("topic_pattern", text("reply\\..*")),
        ("headers", headers),
    ];
    let mut driven = sink_of(&bus, &replies(), &more, None).unwrap();
    let rows = reply_batch(&[
        (Some("a"), 0, Some("reply.one"), Some("3"), Some("id-0")),
        (Some("a"), 1, None, None, Some("id-1")),
        (Some("a"), 2, Some("reply.none"), None, Some("id-2")),
        (Some("a"), 3, Some("secret"), None, Some("id-3")),
        (Some("a"), 4, Some("no topic"), None, Some("id-4")),
        (Some("a"), 5, Some("reply.one"), Some("9"), Some("id-5")),
        (Some("a"), 6, Some("reply.one"), Some("x"), Some("id-6")),
        (None, 7, Some("reply.one"), Some("3"), None),
    ]);
    let rejects = driven.give_rows(rows).unwrap();
    driven.tick().unwrap();
    driven.finish().unwrap();
    let there = bus.committed(&TopicPartition::new("reply.one", 3));
    let told: Vec<_> =
        there.iter().map(|stored| (number(stored), header(stored, "correlation-id"))).collect();
    assert_eq!(told, [(0, Some(&b"id-0"[..])), (7, None)]);
    assert_eq!((there[0].key.as_deref(), there[1].key.as_deref()), (Some(&b"a"[..]), None));
    assert_eq!(bus.committed(&TopicPartition::new("secret", 0)), []);
    let reasons: BTreeSet<&str> = rejects.iter().map(String::as_str).collect();
    assert_eq!(
        reasons,
        BTreeSet::from([
            "topic \"secret\" does not match `topic_pattern`",
            "expected the name of a topic (1 to 249 of a-z, A-Z, 0-9, ., _, -), got \"no topic\"",
            "expected the number of a partition, got something else",
        ])
    );
    // One without a topic, one whose topic and one whose partition does not exist.
    assert_eq!(driven.report.delivery().unwrap().unaddressed, 3);
}

#[test]
fn a_row_that_is_too_large_goes_to_rejects() {
    let bus = with_topic(1);
    let mut driven = sink_of(&bus, &numbers(), &[("max_message", OptionValue::Size(1_000))], None).unwrap();
    let schema = numbers();
    let hosts: ArrayRef = Arc::new(StringViewArray::from_iter_values(["x".repeat(2_000), "y".to_owned()]));
    let rows = batch(&schema, vec![hosts, Arc::new(Int64Array::from(vec![1, 2]))]);
    let rejects = driven.give_rows(rows).unwrap();
    driven.finish().unwrap();
    assert!(
        rejects[0].starts_with("expected a message of at most 1000B (`max_message`), got "),
        "{rejects:?}"
    );
    let there: Vec<i64> = read(&bus).concat().iter().map(number).collect();
    assert_eq!(there, [2]);
}

/// The partition of a row without a key is a function of the row: sent again, it goes there again.
#[test]
fn rows_without_keys_are_spread_in_the_same_way_each_time() {
    let spread = |seed| {
        let bus = with_topic(seed);
        let mut driven = sink_of(&bus, &numbers(), &[("key", text(""))], None).unwrap();
        for _ in 0..20 {
            driven.give(100).unwrap();
        }
        driven.finish().unwrap();
        read(&bus).iter().map(|rows| rows.iter().map(number).collect()).collect::<Vec<Vec<i64>>>()
    };
    let (one, other) = (spread(1), spread(2));
    assert_eq!(one, other);
    assert!(one.iter().all(|rows| rows.len() > 200), "each has its share");
}

#[test]
fn wrong_options_are_told_with_their_keys() {
    let mistakes = |more: &[(&'static str, OptionValue)]| -> String {
        let mistakes = KafkaPlugin::default().check(&numbers(), &options(&entries(more)));
        mistakes.iter().map(|mistake| format!("{}: {}\n", mistake.key, mistake.error.message())).collect()
    };
    let own = OptionValue::Lists(vec![("thalweg-sink".to_owned(), vec!["n".to_owned()])]);
    expect_test::expect![[r#"
        type: expected "topic" or "topic_field", got neither
        topic: expected the name of a topic, got "a b"
        key: expected a field of the input, got "card"
        topic_pattern: "topic_pattern" needs "topic_field", got none
        topic_pattern: "(" is no pattern
        visible: "visible" is for delivery: transactions
        headers: expected the name of a header of your own, got "thalweg-sink"
        delivery: delivery: transactions needs "topic", got none
    "#]]
    .assert_eq(
        &[
            mistakes(&[]),
            mistakes(&[("topic", text(""))]),
            mistakes(&[("topic", text("a b"))]),
            mistakes(&[("key", text("card"))]),
            mistakes(&[("topic_pattern", text("x"))]),
            mistakes(&[("topic_field", text("host")), ("topic_pattern", text("("))]),
            mistakes(&[("visible", OptionValue::Duration(1))]),
            mistakes(&[("headers", own)]),
            mistakes(&[
                ("topic", text("")),
                ("topic_field", text("host")),
                ("delivery", text("transactions")),
            ]),
        ]
        .concat(),
    );
}
