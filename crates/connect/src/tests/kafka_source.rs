//! The source `kafka` over a bus in memory, in which clients and brokers do their worst.

use std::sync::Arc;

use thalweg_flow::{ReplayRun, SourcePosition, Waker};
use thalweg_kafka::memory::{Faults, MemoryBus, Stored};
use thalweg_kafka::{Bus, TopicPartition};
use thalweg_types::Class;

use super::*;
use crate::source::kafka::KafkaPlugin;
use crate::{BuiltSource, SourcePlugin};

const FIELDS: &str = "a: string?; n: int64";

fn list(texts: &[&str]) -> OptionValue {
    OptionValue::List(texts.iter().map(|text| (*text).to_owned()).collect())
}

pub(super) fn stored(value: &str) -> Stored {
    Stored {
        offset: 0,
        timestamp: 0,
        key: Some(b"key".to_vec()),
        value: Some(value.as_bytes().to_vec()),
        headers: vec![("trace".to_owned(), Some(b"t-1".to_vec())), ("none".to_owned(), None)],
    }
}

pub(super) fn at(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn context_of(fields: &str, more: &[(&str, OptionValue)], goes_on: bool) -> SourceContext {
    let mut entries = vec![("brokers", list(&["127.0.0.1:1"])), ("topics", list(&["t"]))];
    entries.extend_from_slice(more);
    SourceContext { goes_on, ..context(&schema(fields), Some(spec("ndjson", &[])), &entries) }
}

fn plugin(bus: &MemoryBus) -> KafkaPlugin {
    let bus = bus.clone();
    KafkaPlugin::on(Arc::new(move |_| Ok(Arc::new(bus.clone()) as Arc<dyn Bus>)))
}

pub(super) fn build(bus: &MemoryBus, fields: &str, more: &[(&str, OptionValue)]) -> BuiltSource {
    plugin(bus).build(context_of(fields, more, true)).expect("a source that can be built")
}

pub(super) fn started(mut built: BuiltSource) -> BuiltSource {
    built.source.start(Waker::new(|| {})).expect("a source that starts");
    built
}

/// What a source gives until it ends, by offsets.
fn all(built: &mut BuiltSource, block_bytes: usize) -> String {
    let mut decoder = (built.decoder)(&task()).unwrap();
    let blocks = blocks_to_end(built, block_bytes).expect("a source that can be read");
    rows_of(&mut *decoder, &blocks)
}

fn blocks_to_end(built: &mut BuiltSource, block_bytes: usize) -> Result<Vec<RawBlock>, Error> {
    let mut blocks = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match built.source.poll(block_bytes, ARRIVAL)? {
            Poll::Block(block) => blocks.push(block),
            Poll::End => return Ok(blocks),
            _ => assert!(Instant::now() < deadline, "no end within 20 s"),
        }
    }
}

pub(super) fn until_latest() -> (&'static str, OptionValue) {
    ("until", text("latest"))
}

#[test]
fn a_message_is_a_record_or_many_and_its_parts_are_fields() {
    let bus = MemoryBus::new(1, Faults::default());
    bus.make_topic("t", 1);
    for value in ["{\"a\":\"x\",\"n\":1}", "{\"n\":2}\n\n{\"n\":3}\n", "bad", "", "{\"n\":4}"] {
        bus.append(&at(0), stored(value));
    }
    bus.append(&at(0), Stored { value: None, ..stored("") });
    bus.append(&at(0), stored("\u{0}\u{0}\u{0}\u{0}\u{7}avro"));
    bus.append(&at(0), Stored { key: None, headers: Vec::new(), ..stored("{\"n\":5}") });
    let fields = "_key: string?; a: string?; n: int64; _offset: int64; _partition: int64; _timestamp: timestamp(s); \
                  _headers.trace: bytes?; _headers.none: string?; _topic: string";
    for block_bytes in [1, 10, 1 << 16] {
        let mut built = build(&bus, fields, &[until_latest()]);
        let rows = all(&mut built, block_bytes);
        expect_test::expect![[r#"
            key | x | 1 | 0 | 0 | 1700000000s | "t-1" | null | t
            key | null | 2 | 1 | 0 | 1700000000s | "t-1" | null | t
            key | null | 3 | 1 | 0 | 1700000000s | "t-1" | null | t
            ! parse line null: expected a JSON object at byte 1, got "bad", in "t[0]@2" <bad>
            key | null | 4 | 4 | 0 | 1700000000s | "t-1" | null | t
            ! tombstone line null: expected a value, and the message has none (a tombstone; its key is the raw bytes): `tombstones: ignore` leaves such messages out, in "t[0]@5" <key>
            ! wire_format line null: expected a record of the source's format, got a message of Confluent's wire format (schema 7): Avro, Protobuf and JSON with a schema registry are not read; have the producer, or a connector, write plain JSON or CSV, in "t[0]@6" <\x00\x00\x00\x00\x07avro>
            null | null | 5 | 7 | 0 | 1700000000s | null | null | t
        "#]]
        .assert_eq(&rows);
        let counts = built.source.partitions().unwrap()();
        let [(name, counts)] = &counts[..] else { panic!("one partition") };
        assert_eq!((&**name, counts.records, counts.tombstones, counts.empty), ("t[0]", 8, 1, 1));
        assert_eq!((counts.position, counts.end, counts.lag), (8, 8, 0));
    }
    let mut built = build(&bus, FIELDS, &[until_latest(), ("tombstones", text("ignore"))]);
    assert!(!all(&mut built, 1 << 16).contains("tombstone"));
    let mut built = build(&bus, "n: int64; _key: string", &[until_latest()]);
    let rows = all(&mut built, 1 << 16);
    assert!(
        rows.contains("! field line null: field \"_key\": expected a value, and the message has none"),
        "{rows}"
    );
}

#[test]
fn a_message_of_json_is_laid_out_as_its_writer_likes() {
    let bus = MemoryBus::new(1, Faults::default());
    bus.make_topic("t", 1);
    for value in [
        "[{\"n\":1},\n {\"n\":2}, nothing, {\"n\":3}]",
        "{\n  \"a\": \"x\\ny\",\n  \"n\": 4\n}\n",
        " [ ]\n",
        "{\"n\":5} {\"n\":6}\n{\"n\":\n7}",
        "{\"n\":8}\r\n{\"n\":\n",
        "[{\"n\":9}, {\"n\":",
    ] {
        bus.append(&at(0), stored(value));
    }
    for block_bytes in [1, 10, 1 << 16] {
        let mut built = build(&bus, FIELDS, &[until_latest()]);
        let rows = all(&mut built, block_bytes);
        expect_test::expect![[r#"
            null | 1
            null | 2
            ! parse line null: expected a JSON object at byte 1, got "nothing", in "t[0]@0+2" <nothing>
            null | 3
            x
            y | 4
            null | 5
            null | 6
            null | 7
            null | 8
            ! parse line null: expected a JSON value at byte 6, got the end, in "t[0]@4+1" <{\"n\":>
            null | 9
            ! parse line null: element 2 of the array: expected a comma or the end of the array, got the end of the body, in "t[0]@5+1" <{\"n\":>
        "#]]
        .assert_eq(&rows);
        let counts = built.source.partitions().unwrap()();
        assert_eq!(counts[0].1.empty, 1);
    }
}

/// Messages of one to four records over three partitions, with gaps in the offsets.
pub(super) fn filled(seed: u64, messages: usize) -> (MemoryBus, u64) {
    let faults = Faults { delays: 100, ..Faults::default() };
    let bus = MemoryBus::new(seed, faults);
    bus.make_topic("t", 3);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut n = 0;
    for _ in 0..messages {
        let lines: Vec<String> = (0..random.usize(1..5))
            .map(|_| {
                n += 1;
                match random.u32(0..10) {
                    0 => format!("bad {n}"),
                    _ => format!("{{\"n\":{n}}}"),
                }
            })
            .collect();
        let value = match random.u32(0..4) {
            0 => format!("[{}\n]", lines.join(",\n ")),
            _ => lines.join("\n"),
        };
        bus.append(&at(random.i32(0..3)), stored(&value));
    }
    (bus, n)
}

/// A run that ends anywhere, and one that goes on from a position of it: each record comes once, and what the order log
/// names is given again the same.
#[test]
fn a_source_goes_on_in_the_middle_of_a_message_and_gives_again_what_it_gave() {
    let mut in_the_middle = 0;
    for seed in 0..60 {
        let (bus, count) = filled(seed, 40);
        let mut random = fastrand::Rng::with_seed(seed);
        let block_bytes = random.usize(1..200);
        let mut first = started(build(&bus, FIELDS, &[]));
        let (mut committed, mut before): (Option<SourcePosition>, Vec<RawBlock>) = (None, Vec::new());
        let stop = random.u64(1..count);
        let mut runs = Vec::new();
        let mut given = 0;
        while given < stop {
            let Poll::Block(block) = first.source.poll(block_bytes, ARRIVAL).unwrap() else { continue };
            given += u64::from(block.count);
            runs.push((block.partition, block.first, u64::from(block.count)));
            before.push(block);
            if committed.is_none() && random.u32(0..4) == 0 {
                committed = Some(first.source.position());
                runs.clear();
            }
        }
        let mut decoder = (first.decoder)(&task()).unwrap();
        let told = rows_of(&mut *decoder, &before);
        drop(first);
        let position = committed.unwrap_or_default();
        let mut second = build(&bus, FIELDS, &[]);
        if position != SourcePosition::default() {
            second.source.restore(&position).unwrap();
        }
        let mut second = started(second);
        let mut again: Vec<RawBlock> =
            before.iter().take_while(|block| block.first < position.next).cloned().collect();
        for (partition, mut first, mut left) in runs {
            while left > 0 {
                let run = ReplayRun { partition, first, count: left };
                let block = second.source.replay(run, random.usize(1..200)).unwrap();
                assert!(
                    block.partition == partition && block.first == first && u64::from(block.count) <= left
                );
                (first, left) = (first + u64::from(block.count), left - u64::from(block.count));
                in_the_middle += u32::from(left > 0);
                again.push(block);
            }
        }
        assert_eq!(rows_of(&mut *decoder, &again), told, "seed {seed}");
        let mut numbers: Vec<u64> = Vec::new();
        let rest = {
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut given = given;
            let mut blocks = Vec::new();
            while given < count {
                match second.source.poll(block_bytes, ARRIVAL).unwrap() {
                    Poll::Block(block) => {
                        assert_eq!(block.first, given);
                        given += u64::from(block.count);
                        blocks.push(block);
                    }
                    _ => assert!(Instant::now() < deadline, "seed {seed}: {given} of {count}"),
                }
            }
            rows_of(&mut *decoder, &blocks)
        };
        for line in told.lines().chain(rest.lines()) {
            let number = line.rsplit(['|', '<', ' ']).next().unwrap().trim_end_matches('>');
            numbers.push(number.parse().unwrap_or_else(|_| panic!("{line}")));
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=count).collect::<Vec<_>>(), "seed {seed}");
    }
    assert!(in_the_middle > 20, "runs were given in pieces: {in_the_middle}");
}

/// A source that has read five of ten messages of a partition, and its position.
fn half_read() -> (MemoryBus, SourcePosition) {
    let bus = MemoryBus::new(7, Faults::default());
    bus.make_topic("t", 1);
    for n in 0..10 {
        bus.append(&at(0), stored(&format!("{{\"n\":{n}}}")));
    }
    let mut built = started(build(&bus, FIELDS, &[]));
    for _ in 0..5 {
        let Poll::Block(block) = built.source.poll(1, ARRIVAL).unwrap() else { panic!("a record") };
        assert_eq!(block.count, 1);
    }
    (bus, built.source.position())
}

fn refusal(bus: &MemoryBus, position: &SourcePosition) -> Error {
    let mut built = build(bus, FIELDS, &[]);
    if let Err(error) = built.source.restore(position) {
        return error;
    }
    let mut built = started(built);
    let told = (0..1_000).find_map(|_| built.source.poll(1 << 16, ARRIVAL).err());
    told.expect("the source refuses to go on")
}

#[test]
fn a_topic_that_is_not_what_was_read_is_refused() {
    let (bus, position) = half_read();
    bus.retain_from(&at(0), 8);
    let error = refusal(&bus, &position);
    assert_eq!(error.class(), Class::Corrupt);
    let said = "t[0] begins at offset 8, expected offset 5: 3 messages were deleted before they were read";
    assert_eq!(error.message(), said);
    assert!(error.hint().unwrap().contains("--set sources.payments.missing=skip"));

    let (bus, position) = half_read();
    bus.cut_from(&at(0), 3);
    let error = refusal(&bus, &position);
    assert_eq!(error.class(), Class::Corrupt);
    assert_eq!(
        error.message(),
        "t[0] ends at offset 3, expected offset 5 at least: messages that were read are not there any more"
    );

    // The same length again, with other messages.
    for n in 90..99 {
        bus.append(&at(0), stored(&format!("{{\"n\":{n}}}")));
    }
    let error = refusal(&bus, &position);
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.message().contains("another message at offset 4"), "{error}");

    let (bus, position) = half_read();
    bus.make_topic("t", 1);
    for n in 0..10 {
        bus.append(&at(0), stored(&format!("{{\"n\":{n}}}")));
    }
    let error = refusal(&bus, &position);
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.message().contains("deleted and made anew"), "{error}");
}

#[test]
fn messages_that_were_deleted_are_left_out_if_the_job_says_so() {
    let (bus, position) = half_read();
    bus.retain_from(&at(0), 8);
    let mut built = build(&bus, FIELDS, &[("missing", text("skip")), until_latest()]);
    built.source.restore(&position).unwrap();
    let mut built = started(built);
    // The order log names two records beyond the commit: they keep their numbers, and are rejects.
    let mut blocks = Vec::new();
    for first in [5, 6] {
        blocks
            .push(built.source.replay(ReplayRun { partition: 0, first, count: 7 - first }, 1 << 16).unwrap());
    }
    blocks.extend(blocks_to_end(&mut built, 1 << 16).unwrap());
    let mut decoder = (built.decoder)(&task()).unwrap();
    let rows = rows_of(&mut *decoder, &blocks);
    assert_eq!(rows.lines().filter(|line| line.starts_with("! missing")).count(), 2, "{rows}");
    assert!(rows.ends_with("null | 8\nnull | 9\n"), "{rows}");
    assert_eq!(built.source.partitions().unwrap()()[0].1.missing, 3);
}

/// Retention that has taken what was read, and nothing else, is no loss: before the start, or between the look at the
/// offsets and the first message.
#[test]
fn messages_that_were_read_may_be_deleted() {
    for is_later in [false, true] {
        let (bus, position) = half_read();
        if !is_later {
            bus.retain_from(&at(0), 5);
        }
        let mut built = build(&bus, FIELDS, &[until_latest()]);
        built.source.restore(&position).unwrap();
        if is_later {
            bus.retain_from(&at(0), 5);
        }
        let mut built = started(built);
        assert_eq!(all(&mut built, 1 << 16).lines().count(), 5, "{is_later}");
    }
}

#[test]
fn retention_that_overtakes_a_running_source_stops_it() {
    let (bus, position) = half_read();
    let mut built = build(&bus, FIELDS, &[]);
    built.source.restore(&position).unwrap();
    let mut built = started(built);
    assert!(matches!(built.source.poll(1, ARRIVAL).unwrap(), Poll::Block(_)));
    bus.retain_from(&at(0), 9);
    let told = (0..100).find_map(|_| built.source.poll(1 << 16, ARRIVAL).err()).unwrap();
    assert_eq!(told.class(), Class::Corrupt);
    assert!(told.message().contains("3 messages were deleted"), "{told}");
}

/// A partition that is found while a job runs has a number in the order log only after a commit record has it.
#[test]
fn a_new_partition_waits_for_a_commit_record() {
    let bus = MemoryBus::new(3, Faults::default());
    bus.make_topic("t", 1);
    bus.append(&at(0), stored("{\"n\":0}"));
    let soon = ("refresh", OptionValue::Duration(10_000));
    let mut built = started(build(&bus, FIELDS, std::slice::from_ref(&soon)));
    let commits = built.source.on_commit().unwrap();
    assert_eq!(poll_all(&mut *built.source, 1).len(), 1);
    bus.widen_topic("t", 2);
    bus.append(&at(1), stored("{\"n\":1}"));
    let view = built.source.partitions().unwrap();
    until("the partition is found", || {
        assert!(!matches!(built.source.poll(1 << 16, ARRIVAL).unwrap(), Poll::Block(_)), "not committed yet");
        view().len() == 2
    });
    let position = built.source.position();
    commits(&position);
    let Poll::Block(block) = built.source.poll(1 << 16, ARRIVAL).unwrap() else { panic!("it is read now") };
    assert_eq!((block.partition, block.first), (1, 1));
    assert_eq!(bus.group_offset("thalweg.test.payments", &at(0)).map(|offset| offset.offset), Some(1));

    // A job that goes on has the numbers of its commit record, and waits with what is new since.
    bus.widen_topic("t", 3);
    bus.append(&at(2), stored("{\"n\":2}"));
    let mut built = build(&bus, FIELDS, &[soon]);
    built.source.restore(&position).unwrap();
    let mut built = started(built);
    let commits = built.source.on_commit().unwrap();
    let Poll::Block(block) = built.source.poll(1 << 16, ARRIVAL).unwrap() else { panic!("the known one") };
    assert_eq!((block.partition, block.first), (1, 1));
    assert!(!matches!(built.source.poll(1 << 16, ARRIVAL).unwrap(), Poll::Block(_)));
    commits(&built.source.position());
    let Poll::Block(block) = built.source.poll(1 << 16, ARRIVAL).unwrap() else { panic!("the new one") };
    assert_eq!((block.partition, block.first), (2, 2));
}

#[test]
fn a_new_job_begins_where_it_is_told_to() {
    let bus = MemoryBus::new(3, Faults::default());
    bus.make_topic("t", 1);
    for n in 0..4 {
        bus.append(&at(0), Stored { timestamp: 1_000 * (n + 1), ..stored(&format!("{{\"n\":{n}}}")) });
    }
    let first = |from: &str| {
        let built = build(&bus, FIELDS, &[("from", text(from))]);
        built.source.position()
    };
    let offset = |position: &SourcePosition| {
        let mut built = build(&bus, FIELDS, &[("from", text("latest")), until_latest()]);
        built.source.restore(position).unwrap();
        all(&mut built, 1 << 16).lines().count()
    };
    assert_eq!(offset(&first("earliest")), 4);
    assert_eq!(offset(&first("latest")), 0, "the first commit record says where that was");
    assert_eq!(offset(&first("1970-01-01T00:00:02.500Z")), 2);
    assert_eq!(offset(&first("3000")), 2);
}

#[test]
fn an_open_transaction_holds_a_bounded_source_up_to_its_end() {
    let bus = MemoryBus::new(3, Faults::default());
    bus.make_topic("t", 1);
    let options = thalweg_kafka::ProducerOptions {
        transactional_id: Some("id".to_owned()),
        ..thalweg_kafka::ProducerOptions::new(1_000, 1_000)
    };
    let mut producer = bus.producer(options).unwrap();
    producer.begin().unwrap();
    let value = "{\"n\":1}".as_bytes();
    let message = thalweg_kafka::Outgoing { topic: "t", partition: Some(0), key: None, value, headers: &[] };
    producer.send(&message, 1).unwrap();
    producer.acknowledged();
    let mut built = build(&bus, FIELDS, &[until_latest()]);
    for _ in 0..10 {
        assert!(matches!(built.source.poll(1, ARRIVAL).unwrap(), Poll::PendingUntil(_)));
    }
    producer.commit("g", &[]).unwrap();
    assert_eq!(all(&mut built, 1), "null | 1\n");
}

#[test]
fn topics_that_are_not_there_are_named() {
    let bus = MemoryBus::new(3, Faults::default());
    let error = plugin(&bus).build(context_of(FIELDS, &[], true)).err().unwrap();
    assert!(error.message().contains("look up topic \"t\": it does not exist"), "{error}");
    assert!(error.hint().unwrap().contains("make the topic first"));
    bus.set_faults(Faults { outages: 1_000, ..Faults::default() });
    let error = plugin(&bus).build(context_of(FIELDS, &[], true)).err().unwrap();
    assert_eq!(error.class(), Class::External);
    assert!(error.hint().unwrap().contains("whether a broker listens"), "{error:?}");
}

#[test]
fn a_pattern_takes_whole_names_and_topics_that_come_later() {
    let bus = MemoryBus::new(3, Faults::default());
    for name in ["pay.eu", "pay.us", "repay.eu", "__pay"] {
        bus.make_topic(name, 1);
        bus.append(&TopicPartition::new(name, 0), stored("{\"n\":1}"));
    }
    let entries = [
        ("brokers", list(&["127.0.0.1:1"])),
        ("pattern", text("pay\\..*|_.*")),
        ("refresh", OptionValue::Duration(10_000)),
    ];
    let context = context(&schema("n: int64; _topic: string"), Some(spec("ndjson", &[])), &entries);
    let mut built = started(plugin(&bus).build(context).unwrap());
    let mut blocks = poll_all(&mut *built.source, 2);
    bus.make_topic("pay.jp", 1);
    bus.append(&TopicPartition::new("pay.jp", 0), stored("{\"n\":2}"));
    until("the new topic is read", || match built.source.poll(1 << 16, ARRIVAL).unwrap() {
        Poll::Block(block) => {
            blocks.push(block);
            true
        }
        _ => false,
    });
    let mut decoder = (built.decoder)(&task()).unwrap();
    assert_eq!(rows_of(&mut *decoder, &blocks), "1 | pay.eu\n1 | pay.us\n2 | pay.jp\n");
}

#[test]
fn wrong_options_are_told_with_their_keys() {
    let mistakes = |more: &[(&str, OptionValue)]| -> Vec<String> {
        let mut entries = vec![("brokers", list(&["127.0.0.1:1"]))];
        entries.extend_from_slice(more);
        let mistakes = KafkaPlugin::default().check(&options(&entries));
        mistakes.iter().map(|mistake| format!("{}: {}", mistake.key, mistake.error.message())).collect()
    };
    let property =
        |name: &str, value: &str| OptionValue::Lists(vec![(name.to_owned(), vec![value.to_owned()])]);
    expect_test::expect![[r#"
        type: expected "topics" or "pattern", got neither
        pattern: "topics" and "pattern" are both given
        pattern: "(" is no pattern
        from: expected earliest, latest or a time, got "yesterday"
        brokers: expected host:port, got "kafka"
        user: "user" has no use here
        sasl: sasl: plain needs "password", got none
        certificate: "certificate" needs "private_key", got none
        properties: "acks" is not for a job file: what counts as written stands on it
    "#]]
    .assert_eq(
        &[
            mistakes(&[]),
            mistakes(&[("topics", list(&["t"])), ("pattern", text("t"))]),
            mistakes(&[("pattern", text("("))]),
            mistakes(&[("topics", list(&["t"])), ("from", text("yesterday"))]),
            mistakes(&[("topics", list(&["t"])), ("brokers", list(&["kafka"]))]),
            mistakes(&[("topics", list(&["t"])), ("user", text("me"))]),
            mistakes(&[("topics", list(&["t"])), ("sasl", text("plain")), ("user", text("me"))]),
            mistakes(&[("topics", list(&["t"])), ("certificate", path_value("c.pem"))]),
            mistakes(&[("topics", list(&["t"])), ("properties", property("acks", "1"))]),
        ]
        .concat()
        .iter()
        .map(|line| format!("{line}\n"))
        .collect::<String>(),
    );
    let unknown = mistakes(&[("topics", list(&["t"])), ("properties", property("no.such", "1"))]);
    assert!(unknown.len() == 1 && unknown[0].contains("no.such"), "{unknown:?}");
    assert_eq!(
        mistakes(&[("topics", list(&["t"])), ("properties", property("socket.keepalive.enable", "true"))]),
        [""; 0]
    );
}
