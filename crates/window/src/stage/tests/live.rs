//! Queries that come and go while records flow, and present values.

use arrow_array::StringViewArray;

use super::*;

fn add(stage: &mut Stage, name: &str, text: &str) {
    let query = Query::parse(text).unwrap();
    let planned = stage.plan(name, &query).unwrap();
    stage.add_queries(&[planned]).unwrap();
}

fn record(card: &str, seconds: i64, x: f64) -> Record {
    Record { time: seconds * 1_000_000, card: Some(card.to_owned()), x: Some(x), ..Record::default() }
}

const OLD: (&str, &str) = ("old", "SELECT count(*) AS n FROM s GROUP BY card OVER SLIDING 10 SECONDS");

#[test]
fn a_query_added_later_counts_from_then_on_and_says_so_until_its_window_has_filled() {
    let options = StageOptions { chunk_rows: 2, ..StageOptions::default() };
    let mut stage = stage(&[OLD], options);
    let before: Vec<Record> = (0..6).map(|second| record("a", second, 1.0)).collect();
    run(&mut stage, &before, &[4]);
    add(&mut stage, "new", "SELECT count(*) AS n, max(x) AS hi FROM s GROUP BY card OVER SLIDING 10 SECONDS");
    let after = [
        record("a", 6, 2.0),
        record("a", 4, 3.0),
        record("a", 14, 4.0),
        record("a", 15, 5.0),
        record("a", 16, 6.0),
    ];
    let answers = stage.answer(&batch(&after, 6)).unwrap();
    let since = Value::Timestamp(5_000_000, thalweg_types::TimeUnit::Micro);
    let rows = values(&answers, after.len());
    let int = Value::Int64;
    assert_eq!(rows[0], [int(7), int(1), Value::Float64(2.0), since.clone()]);
    assert_eq!(rows[1], [int(8), int(2), Value::Float64(3.0), since.clone()]);
    assert_eq!(rows[2], [int(3), int(2), Value::Float64(4.0), since]);
    assert_eq!(rows[3], [int(3), int(3), Value::Float64(5.0), Value::Null], "the window has filled");
    assert_eq!(rows[4], [int(3), int(3), Value::Float64(6.0), Value::Null]);
}

#[test]
fn a_dropped_query_leaves_the_others_alone() {
    let mut stage = stage(
        &[OLD, ("other", "SELECT sum(x) AS s FROM s WHERE x > 1 GROUP BY card OVER SLIDING 3 SECONDS")],
        StageOptions::default(),
    );
    run(&mut stage, &[record("a", 0, 1.0), record("a", 1, 2.0)], &[2]);
    assert!(stage.drop_query("other"));
    assert!(!stage.drop_query("other"));
    let answers = stage.answer(&batch(&[record("a", 2, 2.0)], 2)).unwrap();
    assert_eq!(values(&answers, 1), [[Value::Int64(3)]]);
    add(&mut stage, "other", "SELECT sum(x) AS s FROM s WHERE x > 1 GROUP BY card OVER SLIDING 3 SECONDS");
    let answers = stage.answer(&batch(&[record("a", 3, 5.0)], 3)).unwrap();
    assert_eq!(values(&answers, 1)[0][1], Value::Float64(5.0), "what was dropped does not come back");
}

#[test]
fn present_values_are_as_of_task_time() {
    let mut stage = stage(
        &[OLD, ("day", "SELECT count(*) AS n FROM s GROUP BY card OVER TUMBLING 10 SECONDS")],
        StageOptions::default(),
    );
    run(&mut stage, &[record("a", 1, 1.0), record("a", 9, 1.0), record("b", 10, 1.0)], &[3]);
    let read = |query: &str, card: &str| {
        let key: ArrayRef = Arc::new(StringViewArray::from_iter_values([card]));
        let present = stage.read(query, &[key]).unwrap();
        assert_eq!(present.as_of, Some(10_000_000));
        let Value::Struct(outputs) = Value::at(&present.values, 0) else { panic!("a struct") };
        outputs[0].1.clone()
    };
    assert_eq!(read("old", "a"), Value::Int64(2));
    assert_eq!(read("old", "b"), Value::Int64(1));
    assert_eq!(read("old", "nobody"), Value::Int64(0));
    assert_eq!(read("day", "a"), Value::Int64(0), "a's records are in the window before");
    assert_eq!(read("day", "b"), Value::Int64(1));
}

#[test]
fn groups_that_no_window_holds_are_forgotten() {
    let mut stage = stage(&[OLD], StageOptions::default());
    for round in 0..200 {
        let records: Vec<Record> = (0..50)
            .map(|card| record(&format!("card {round}/{card} with a long name"), round * 20, 1.0))
            .collect();
        stage.answer(&batch(&records, round as u64 * 50)).unwrap();
    }
    assert!(stage.groups() <= 150, "{} groups for 50 live ones", stage.groups());
}
