//! The bytes of one frame of each kind, as `docs/formats/frame.md` has them.

use arrow_array::{Float64Array, StringViewArray, TimestampMillisecondArray};
use expect_test::{Expect, expect};

use super::*;

#[track_caller]
fn check(frame: &[u8], expected: &Expect) {
    let lines: Vec<String> = frame
        .chunks(16)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
        .collect();
    expected.assert_eq(&format!("{}\n", lines.join("\n")));
}

fn payments(cards: &[&str]) -> RecordBatch {
    let rows = cards.len();
    let times = (0..rows as i64).map(|row| ARRIVAL / 1_000 - 21 + 3 * row);
    let columns: [(&str, ArrayRef); 3] = [
        ("ts", Arc::new(TimestampMillisecondArray::from_iter_values(times))),
        ("card", Arc::new(StringViewArray::from_iter_values(cards))),
        ("amount", Arc::new(Float64Array::from_iter((0..rows).map(|row| (row != 1).then_some(9.5))))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn a_request_of_one_row() {
    let incarnation = 0x1122_3344_5566_7788;
    let sender = Sender { spec: 1, origin: Origin::Door { incarnation }, lineage: None };
    let after = Mark { position: at(4_000, 0), made: 1 };
    let mut builder = Builder::new(sender, after, Settings::default());
    let door = Arc::new(Door { node: "alpha".into(), incarnation });
    let reply = Some(Reply { door, request: 300, line: 2 });
    let payment = Row { row: 0, position: at(4_001, 0), arrival: ARRIVAL, reply };
    builder.push(0, &payments(&["c1"]), [payment]).unwrap();
    check(
        &builder.cut(Some(ARRIVAL - 21_000)).unwrap(),
        &expect![[r#"
            f7 54 4b 01 ce 8c b6 e9 01 01 45 01 88 77 66 55
            44 33 22 11 a0 1f 00 01 00 a0 22 04 a3 44 06 00
            90 c8 02 01 01 15 00 01 0b 61 6c 70 68 61 01 d8
            04 04 04 01 29 02 63 31 01 be 01
        "#]],
    );
}

#[test]
fn rows_of_two_inputs() {
    let after = Mark { position: at(70, 4), made: 2 };
    let mut builder = Builder::new(sender(), after, Settings::default());
    let records = payments(&["c1", "c2", "c1"]);
    builder.push(0, &records, [row(0, at(70, 4)), row(2, at(70, 5))]).unwrap();
    builder.push(1, &records, [row(1, at(72, 0))]).unwrap();
    check(
        &builder.cut(None).unwrap(),
        &expect![[r#"
            f7 54 4b 01 91 9a 48 c0 01 01 32 03 02 3d ef cd
            ab 89 67 45 23 01 46 04 02 00 a0 22 04 a3 44 06
            00 03 00 1d 02 00 02 01 01 04 05 04 01 04 01 29
            0c 02 63 31 02 63 31 01 be 01 00 01 04 23 02 63
            32
        "#]],
    );
}

#[test]
fn a_tick() {
    let Sender { spec, origin, lineage } = sender();
    let after = Mark { position: at(70, 4), made: 2 };
    let head = Head { spec, origin, lineage, after, arrival: ARRIVAL, task_time: Some(ARRIVAL - 60_000_000) };
    check(
        &tick(&head),
        &expect![[r#"
        f7 54 4b 01 df af a9 69 02 00 06 03 02 3d ef cd
        ab 89 67 45 23 01 46 04 02 00 a0 22 04 a3 44 06
        00 80 9c 9c 39
    "#]],
    );
}

#[test]
fn a_spec() {
    let spec = |job: &str| Spec { number: 300, semantics: 1, job: job.to_owned() };
    let settings = Settings::default();
    check(
        &spec("name: fraud\n").encode(&settings).unwrap(),
        &expect![[r#"
        f7 54 4b 01 d9 b2 cc c8 03 02 00 ac 02 01 0c 6e
        61 6d 65 3a 20 66 72 61 75 64 0a
    "#]],
    );
    let long = "# fraud\n".repeat(128);
    check(
        &spec(&long).encode(&settings).unwrap(),
        &expect![[r#"
        f7 54 4b 01 6a 43 62 e0 03 02 08 ac 02 01 18 80
        08 8f 23 20 66 72 61 75 64 0a 08 00 ff ff ff e2
        60 66 72 61 75 64 0a
    "#]],
    );
}
