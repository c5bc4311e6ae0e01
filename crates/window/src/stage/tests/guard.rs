//! Expressions that go beyond a bound, or fail: they are named, and nothing else changes.

use thalweg_expr::testing::TRIPWIRE;

use super::*;

/// Values of each answer, and the names of its errors.
type Told = (Vec<Vec<Value>>, Vec<Vec<String>>);

fn record(card: &str, shop: &str, second: i64) -> Record {
    Record {
        time: second * 1_000_000,
        card: Some(card.to_owned()),
        shop: Some(shop.to_owned()),
        ..Record::default()
    }
}

/// Names of the misfits of each record.
fn named(stage: &Stage, answers: &Answers, records: usize) -> Vec<Vec<String>> {
    let queries: Vec<(String, DataType)> =
        stage.queries().map(|(name, data_type)| (name.to_owned(), data_type.clone())).collect();
    let mut names = vec![Vec::new(); records];
    for (row, query, output) in &answers.misfits {
        let (name, DataType::Struct(fields)) = &queries[*query as usize] else {
            panic!("a query is a struct")
        };
        names[*row as usize].push(format!("{name}.{}", fields[*output as usize].name));
    }
    names
}

const BOMB: &str = "SELECT count(replace(shop, 'a', replace(shop, 'a', shop))) AS c, count(*) AS n FROM s GROUP BY card OVER INFINITE";
const FILTERED: &str = "SELECT count(*) AS n, max(length(shop)) AS hi FROM s WHERE length(shop || shop || shop) > 0 GROUP BY card OVER INFINITE";

#[test]
fn what_goes_beyond_a_bound_is_named_whatever_the_batches() {
    let large = "a".repeat(500_000);
    let records: Vec<Record> =
        (0..12).map(|second| record("c", if second % 5 == 3 { &large } else { "ab" }, second)).collect();
    let mut first: Option<Told> = None;
    for size in [12, 1, 5] {
        let mut stage = stage(&[("bomb", BOMB), ("filtered", FILTERED)], StageOptions::default());
        let (mut rows, mut names) = (Vec::new(), Vec::new());
        for (number, chunk) in records.chunks(size).enumerate() {
            let answers = stage.answer(&batch(chunk, (number * size) as u64)).unwrap();
            rows.extend(values(&answers, chunk.len()));
            names.extend(named(&stage, &answers, chunk.len()));
            assert!(answers.failed.is_empty());
        }
        for (row, names) in names.iter().enumerate() {
            let expected: &[&str] = if row % 5 == 3 { &["bomb.c", "filtered.n", "filtered.hi"] } else { &[] };
            assert_eq!(names, expected, "record {row}");
        }
        assert_eq!(rows[11], [Value::Int64(10), Value::Int64(12), Value::Int64(10), Value::Int64(2)]);
        let all = (rows, names);
        assert_eq!(*first.get_or_insert_with(|| all.clone()), all, "batches of {size}");
    }
}

#[test]
fn a_guarded_query_that_fails_is_told_and_others_end_the_stage() {
    let bad = "SELECT sum(length(shop)) AS len FROM s GROUP BY card OVER INFINITE";
    let records: Vec<Record> =
        (0..6).map(|second| record("c", if second == 2 { TRIPWIRE } else { "ab" }, second)).collect();
    let mut guarded = stage(
        &[("good", "SELECT count(*) AS n FROM s GROUP BY card OVER INFINITE"), ("bad", bad)],
        StageOptions::default(),
    );
    guarded.guard_query("bad");
    let answers = guarded.answer(&batch(&records, 0)).unwrap();
    assert_eq!(named(&guarded, &answers, 6)[2], ["bad.len"]);
    assert_eq!(answers.failed.len(), 1);
    assert_eq!(answers.failed[0].0, "bad");
    let rows = values(&answers, 6);
    assert_eq!(rows[5], [Value::Int64(6), Value::Int64(10)]);
    // One that shares the argument, and is not guarded.
    let mut open = stage(
        &[("bad", bad), ("file", "SELECT avg(length(shop)) AS len FROM s GROUP BY card OVER INFINITE")],
        StageOptions::default(),
    );
    open.guard_query("bad");
    let ended =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| open.answer(&batch(&records, 0)).is_ok()));
    let said = *ended.unwrap_err().downcast::<String>().expect("a text");
    assert!(said.contains("query \"bad\", \"file\": "), "{said}");
    open.drop_query("file");
    assert_eq!(open.answer(&batch(&records[3..], 3)).unwrap().failed, []);
}

#[test]
fn answers_of_long_texts_are_asked_for_in_pieces() {
    let mut stage = stage(
        &[("last", "SELECT last(shop) AS shop FROM s GROUP BY card OVER INFINITE")],
        StageOptions::default(),
    );
    let small: Vec<Record> = (0..1_000).map(|second| record("c", "ab", second)).collect();
    assert_eq!(stage.rows_at_once(&batch(&small, 0)), 1_000);
    stage.answer(&batch(&[record("c", &"a".repeat(1 << 20), 1_000)], 0)).unwrap();
    let some = stage.rows_at_once(&batch(&small, 1));
    assert!((8..=16).contains(&some), "every answer may have a text of 1 MiB, so {some} records");
    let mut counting = self::stage(&[("n", BOMB)], StageOptions::default());
    counting.answer(&batch(&[record("c", &"a".repeat(1 << 20), 1_000)], 0)).unwrap();
    assert_eq!(
        counting.rows_at_once(&batch(&small, 1)),
        1_000,
        "input and output are short, and no answer has a text"
    );
    let large: Vec<Record> = (0..1_000).map(|second| record("c", &"a".repeat(1_000), second)).collect();
    let some = counting.rows_at_once(&batch(&large, 1));
    assert!(
        (4..=16).contains(&some),
        "each reads and makes several texts of up to 64 KiB, so {some} records"
    );
}
