//! Records as they are in the log: each kind once, and what is refused.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::{Expect, expect};
use proptest::prelude::*;
use thalweg_types::{Class, Error};

use super::*;
use crate::positions::{Mark, Position};

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn process(text: &str) -> Process {
    Process { name: name(text), incarnation: Incarnation(0x4d2) }
}

fn unit(partition: u32) -> Unit {
    Unit { job: name("fraud"), stage: name("card"), partition }
}

fn plan(units: BTreeMap<Unit, Placement>) -> Record {
    Record::Plan(Plan { process: process("alpha"), replaces: Some(17), read: 40, more: false, units })
}

fn quiet() -> Beat {
    let (trouble, dropped) = (BTreeSet::new(), BTreeSet::new());
    let (reports, gaps) = (Vec::new(), Vec::new());
    Beat { process: process("alpha"), read: 1, trouble, reports, dropped, gaps }
}

/// A unit of the second stage waits for rows of unit 2 of the first one.
fn gap(partition: u32) -> Gap {
    Gap {
        unit: Unit { stage: name("shop"), ..unit(partition) },
        origin: unit(2),
        through: Mark { position: Position { offset: 12, row: 3 }, made: 1 },
        read: 99,
    }
}

#[track_caller]
fn check(record: &Record, expected: &Expect) {
    let bytes = encode(record).unwrap();
    expected.assert_eq(std::str::from_utf8(&bytes).unwrap());
    assert_eq!(decode(&bytes), Ok(Decoded::Record(record.clone())));
}

/// As `docs/formats/control.md` has them.
#[test]
fn each_kind_is_one_object() {
    check(
        &Record::Join(Join {
            process: process("alpha"),
            read: 12,
            host: Text::new("rack 1, machine 7").unwrap(),
            capacity: 8,
            address: Text::new("10.0.0.7:8080").unwrap(),
            semantics: BTreeSet::from([1, 2]),
            newest: 1,
        }),
        &expect![[
            r#"{"v":1,"kind":"join","body":{"process":{"name":"alpha","incarnation":"00000000000004d2"},"read":12,"host":"rack 1, machine 7","capacity":8,"address":"10.0.0.7:8080","semantics":[1,2],"newest":1}}"#
        ]],
    );
    check(
        &Record::Leave(Leave { process: process("alpha") }),
        &expect![[
            r#"{"v":1,"kind":"leave","body":{"process":{"name":"alpha","incarnation":"00000000000004d2"}}}"#
        ]],
    );
    check(
        &Record::Drain(Drain { name: name("alpha"), on: true }),
        &expect![[r#"{"v":1,"kind":"drain","body":{"name":"alpha","on":true}}"#]],
    );
    check(
        &Record::Beat(Beat {
            process: process("alpha"),
            read: 1_234,
            trouble: BTreeSet::from([unit(3), unit(5)]),
            reports: vec![Report {
                unit: unit(4),
                load: 1_200,
                bytes: 52_428_800,
                position: 99_000,
                ready: true,
            }],
            dropped: BTreeSet::from([unit(9)]),
            gaps: Vec::new(),
        }),
        &expect![[
            r#"{"v":1,"kind":"beat","body":{"process":{"name":"alpha","incarnation":"00000000000004d2"},"read":1234,"trouble":[{"job":"fraud","stage":"card","partitions":[3,5]}],"reports":[{"unit":{"job":"fraud","stage":"card","partition":4},"load":1200,"bytes":52428800,"position":99000,"ready":true}],"dropped":[{"job":"fraud","stage":"card","partitions":[9]}]}}"#
        ]],
    );
    check(
        &Record::Beat(Beat { gaps: vec![gap(4)], ..quiet() }),
        &expect![[
            r#"{"v":1,"kind":"beat","body":{"process":{"name":"alpha","incarnation":"00000000000004d2"},"read":1,"trouble":[],"reports":[],"dropped":[],"gaps":[{"unit":{"job":"fraud","stage":"shop","partition":4},"origin":{"job":"fraud","stage":"card","partition":2},"through":{"position":{"offset":12,"row":3},"made":1},"read":99}]}}"#
        ]],
    );
    let why = Why { cause: Cause::New, choice: Choice::Budget };
    let placed = |active: &str| Placement { active: Some(name(active)), ..Placement::default() };
    check(
        &plan(BTreeMap::from([
            (unit(0), Placement { why: Some(why), ..placed("alpha") }),
            (unit(1), Placement { target: Some(name("gamma")), ..placed("alpha") }),
            (
                unit(2),
                Placement { replicas: BTreeSet::from([name("alpha"), name("gamma")]), ..placed("beta") },
            ),
        ])),
        &expect![[
            r#"{"v":1,"kind":"plan","body":{"process":{"name":"alpha","incarnation":"00000000000004d2"},"replaces":17,"read":40,"more":false,"stages":[{"job":"fraud","stage":"card","active":{"alpha":[0,1],"beta":[2]},"target":{"gamma":[1]},"replicas":{"alpha":[2],"gamma":[2]},"why":{"new: most budget":[0]}}]}}"#
        ]],
    );
    check(
        &Record::Handed(Handed {
            process: process("alpha"),
            unit: unit(7),
            plan: 17,
            position: Position { offset: 1_000, row: 3 },
            lineage: Lineage(0x0123_4567_89ab_cdef),
        }),
        &expect![[
            r#"{"v":1,"kind":"handed","body":{"process":{"name":"alpha","incarnation":"00000000000004d2"},"unit":{"job":"fraud","stage":"card","partition":7},"plan":17,"position":{"offset":1000,"row":3},"lineage":"0123456789abcdef"}}"#
        ]],
    );
    check(
        &Record::Spec(Spec {
            job: name("fraud"),
            number: 3,
            semantics: 1,
            stages: BTreeMap::from([(name("card"), Stage::new(64, 1))]),
            text: "name: fraud\n".to_owned(),
        }),
        &expect![[
            r#"{"v":1,"kind":"spec","body":{"job":"fraud","number":3,"semantics":1,"stages":{"card":{"partitions":64,"replicas":1}},"text":"name: fraud\n"}}"#
        ]],
    );
    check(
        &Record::Stop(Stop { job: name("fraud"), number: 3 }),
        &expect![[r#"{"v":1,"kind":"stop","body":{"job":"fraud","number":3}}"#]],
    );
    check(
        &Record::Version(Version { process: process("alpha"), to: 2 }),
        &expect![[
            r#"{"v":1,"kind":"version","body":{"process":{"name":"alpha","incarnation":"00000000000004d2"},"to":2}}"#
        ]],
    );
}

#[track_caller]
fn refused(bytes: &str, expected: &Expect) {
    let error = decode(bytes.as_bytes()).unwrap_err();
    expected.assert_eq(&error.to_string());
    assert_eq!(error.class(), Class::Corrupt);
}

#[test]
fn what_is_no_record_is_refused_with_place_and_expectation() {
    let leave = |process: &str| format!(r#"{{"v":1,"kind":"leave","body":{{"process":{process}}}}}"#);
    for (bytes, expected) in [
        (
            "hello".to_owned(),
            expect![[r#"damaged control record of kind "any" at column 1: expected value"#]],
        ),
        (
            r#"{"v":1,"kind":"leave""#.to_owned(),
            expect![[r#"damaged control record of kind "any" at column 21: EOF while parsing an object"#]],
        ),
        (
            r#"{"v":0,"kind":"leave","body":{}}"#.to_owned(),
            expect![[r#"damaged control record of kind "leave": version: expected 1 or more, got 0"#]],
        ),
        (
            r#"{"v":1,"kind":"hello","body":{}}"#.to_owned(),
            expect![[r#"damaged control record of kind "unknown": kind: expected one of version 1, got "hello""#]],
        ),
        (
            leave(r#"{"name":"alpha"}"#),
            expect![[r#"damaged control record of kind "leave" at column 56: missing field `incarnation`"#]],
        ),
        (
            leave(r#"{"name":"alpha","incarnation":"00000000000004d2","more":1}"#),
            expect![[
                r#"damaged control record of kind "leave" at column 95: unknown field `more`, expected `name` or `incarnation`"#
            ]],
        ),
        (
            leave(r#"{"name":"al pha","incarnation":"00000000000004d2"}"#),
            expect![[
                r#"damaged control record of kind "leave" at column 56: invalid value: string "al pha", expected a name of 1 to 64 letters, digits, '.', '_' and '-'"#
            ]],
        ),
        (
            leave(r#"{"name":"alpha","incarnation":1234}"#),
            expect![[
                r#"damaged control record of kind "leave" at column 74: invalid type: integer `1234`, expected 16 hexadecimal digits, small letters"#
            ]],
        ),
        (
            r#"{"v":1,"kind":"stop","body":{"job":"fraud","number":-3}}"#.to_owned(),
            expect![[
                r#"damaged control record of kind "stop" at column 54: invalid value: integer `-3`, expected u64"#
            ]],
        ),
        (
            r#"{"v":1,"kind":"spec","body":{"job":"fraud","number":3,"semantics":1,"stages":{"card":{"partitions":4097,"replicas":0}},"text":""}}"#.to_owned(),
            expect![[
                r#"damaged control record of kind "spec": partitions: expected 1 to 4096, got 4097"#
            ]],
        ),
    ] {
        refused(&bytes, &expected);
    }
    let process = r#""process":{"name":"alpha","incarnation":"00000000000004d2"}"#;
    let stage = |fields: &str| {
        let stage = format!(r#"{{"job":"fraud","stage":"card",{fields}}}"#);
        format!(
            r#"{{"v":1,"kind":"plan","body":{{{process},"replaces":null,"read":4,"more":false,"stages":[{stage}]}}}}"#
        )
    };
    for (bytes, expected) in [
        (
            stage(r#""active":{"alpha":[1],"beta":[1]}"#),
            expect![[
                r#"damaged control record of kind "plan" at column 203: active: expected partition 1 once, got it twice"#
            ]],
        ),
        (
            stage(r#""active":{"alpha":[1]},"replicas":{"alpha":[1]}"#),
            expect![[
                r#"damaged control record of kind "plan": unit fraud/card/1: expected each node once, got one twice"#
            ]],
        ),
        (
            stage(r#""active":{"alpha":[1]},"why":{"for fun":[1]}"#),
            expect![[
                r#"damaged control record of kind "plan" at column 206: invalid value: string "for fun", expected a cause and a choice, as in "new: most budget""#
            ]],
        ),
    ] {
        refused(&bytes, &expected);
    }
}

#[test]
fn a_newer_version_is_told_apart_whatever_else_it_has() {
    let newer = r#"{"v":7,"kind":"moon","phase":"full"}"#;
    assert_eq!(decode(newer.as_bytes()), Ok(Decoded::Newer { version: 7, kind: "moon".to_owned() }));
}

#[test]
fn bounds_hold_when_a_record_is_written() {
    let beat = |reports: usize| {
        let report = Report { unit: unit(4), load: 0, bytes: 0, position: 0, ready: false };
        Record::Beat(Beat { reports: vec![report; reports], ..quiet() })
    };
    assert!(encode(&beat(MAX_REPORTS)).is_ok());
    let error = encode(&beat(MAX_REPORTS + 1)).unwrap_err().to_string();
    assert_eq!(error, r#"damaged control record of kind "beat": reports: expected 0 to 256, got 257"#);
    let refused =
        |gaps: Vec<Gap>| encode(&Record::Beat(Beat { gaps, ..quiet() })).map_err(|error| error.to_string());
    assert!(refused((0..64).map(gap).collect()).is_ok());
    let error = refused((0..65).map(gap).collect()).unwrap_err();
    assert_eq!(error, r#"damaged control record of kind "beat": gaps: expected 0 to 64, got 65"#);
    let error = refused(vec![gap(1), gap(2), gap(1)]).unwrap_err();
    assert!(
        error.contains("gaps: expected that of fraud/shop/1 with fraud/card/2 once, got it twice"),
        "{error}"
    );
    let (stages, text) = (BTreeMap::new(), "x".repeat(MAX_JOB_BYTES + 1));
    let spec = Spec { job: name("a"), number: 1, semantics: 1, stages, text };
    assert!(encode(&Record::Spec(spec)).is_err());
    assert_eq!(
        decode(&vec![b' '; MAX_RECORD_BYTES + 1]),
        Err(ControlError::TooLarge { bytes: MAX_RECORD_BYTES + 1, most: MAX_RECORD_BYTES })
    );
}

#[test]
fn names_are_those_of_topics() {
    for text in ["a", "Node-7.example_1", &"x".repeat(64)] {
        assert_eq!(Name::new(text).unwrap().as_str(), text);
    }
    for text in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
        assert_eq!(Name::new(text), None, "{text:?}");
    }
    assert_eq!(Text::new("line\nbreak"), None);
}

#[test]
fn text_of_a_record_is_for_the_log_alone() {
    let error = decode(br#"{"v":1,"kind":"leave","body":{"process":{"name":"a secret"}}}"#).unwrap_err();
    let error = Error::from(error);
    assert_eq!(error.public_chain(), "damaged control record at column 58");
    assert!(error.chain().contains("a secret"), "{}", error.chain());
    assert!(error.hint().is_some());
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
    }

    /// Bytes of records, cut and changed.
    #[test]
    fn damaged_records_are_read_without_a_panic(cut in 0_usize..400, at in 0_usize..400, byte in any::<u8>()) {
        let placed = Placement { active: Some(name("alpha")), ..Placement::default() };
        let mut bytes = encode(&plan((0..8).map(|partition| (unit(partition), placed.clone())).collect())).unwrap();
        let length = bytes.len();
        bytes[at % length] = byte;
        bytes.truncate(length.saturating_sub(cut % 3));
        let _ = decode(&bytes);
    }

    #[test]
    fn plans_read_back(placements in prop::collection::btree_map(0_u32..64, (0_usize..4, 0_usize..5, prop::collection::btree_set(4_usize..8, 0..3), any::<bool>()), 0..20)) {
        let node = |number: usize| name(&format!("node-{number}"));
        let units = placements.into_iter().map(|(partition, (active, target, replicas, is_new))| {
            let target = (target != active).then(|| node(target)).filter(|_| !replicas.contains(&target));
            let why = is_new.then_some(Why { cause: Cause::Gone, choice: Choice::Stale });
            let replicas = replicas.into_iter().map(node).collect();
            (unit(partition), Placement { active: Some(node(active)), target, replicas, why })
        });
        let record = plan(units.collect());
        prop_assert_eq!(decode(&encode(&record).unwrap()), Ok(Decoded::Record(record)));
    }
}
