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
fn a_late_record_leaves_once_though_nothing_was_kept_before_the_query_came() {
    let options =
        StageOptions { late: thalweg_types::LatePolicy::Clamp, lateness: 1, ..StageOptions::default() };
    let mut stage = stage(&[], options);
    run(&mut stage, &[record("a", 10, 1.0)], &[1]);
    add(&mut stage, "new", "SELECT count(*) AS n FROM s OVER SLIDING 1 MICROSECOND");
    let answers = stage.answer(&batch(&[record("a", 0, 1.0), record("a", 10, 1.0)], 1)).unwrap();
    let counts: Vec<Value> = values(&answers, 2).into_iter().map(|mut row| row.remove(0)).collect();
    assert_eq!(counts, [Value::Int64(0), Value::Int64(1)]);
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
    assert_eq!(values(&answers, 1)[0][1], Value::Float64(5.0), "dropped values do not come back");
}

/// Queries that share everything, something and nothing with those before them, over and over.
#[test]
fn queries_that_come_and_go_leave_nothing_behind_and_do_not_disturb_the_others() {
    let options = StageOptions { chunk_rows: 4, lateness: 0, ..StageOptions::default() };
    let mut stage = stage(&[OLD], options);
    let guests = [
        "SELECT sum(x) AS v FROM s WHERE x > 1 GROUP BY card OVER SLIDING 3 SECONDS",
        "SELECT sum(x) AS v FROM s OVER SLIDING 20 SECONDS DELAYED BY 1 SECOND",
        "SELECT max(x * 2) AS v FROM s GROUP BY card OVER ROWS 2",
        "SELECT first(x) AS v FROM s GROUP BY card, x OVER SLIDING 10 SECONDS",
    ];
    let mut second = 0;
    let mut widths = Vec::new();
    for round in 0..40_usize {
        let name = format!("guest {round}");
        add(&mut stage, &name, guests[round % guests.len()]);
        for _ in 0..7 {
            let answers = stage.answer(&batch(&[record("a", second, 2.0)], second as u64)).unwrap();
            let expected = (second + 1).min(10);
            assert_eq!(values(&answers, 1)[0][0], Value::Int64(expected), "round {round}");
            second += 1;
        }
        let guest = &stage.answer(&batch(&[], second as u64)).unwrap();
        assert_eq!(guest.values.len(), 2);
        assert!(stage.drop_query(&name));
        let plan = &stage.plan;
        widths.push((
            plan.layout.len(),
            plan.filters.len(),
            plan.leaves.nodes.len(),
            plan.leaves.windows.len(),
        ));
    }
    let seen_all = widths[guests.len() - 1];
    assert_eq!(widths.last(), Some(&seen_all), "places are used again");
    assert_eq!(stage.records.reservoir.cursors().len(), 1);
    assert_eq!(
        stage.explain().bytes_per_record,
        super::stage(&[OLD], StageOptions::default()).explain().bytes_per_record
    );
}

#[test]
fn a_column_takes_the_place_of_another_and_is_null_in_rows_that_came_before() {
    let options = StageOptions { chunk_rows: 3, lateness: 0, ..StageOptions::default() };
    let mut stage = stage(&[OLD], options);
    let mut second = 0;
    let mut step = |stage: &mut Stage, x: f64| {
        let answers = stage.answer(&batch(&[record("a", second, x)], second as u64)).unwrap();
        second += 1;
        values(&answers, 1).remove(0)
    };
    add(&mut stage, "one", "SELECT sum(x) AS v FROM s GROUP BY card OVER SLIDING 4 SECONDS");
    for _ in 0..5 {
        step(&mut stage, 1.0);
    }
    assert!(stage.drop_query("one"));
    add(
        &mut stage,
        "two",
        "SELECT sum(x + 1) AS v, count(*) AS n FROM s GROUP BY card OVER SLIDING 4 SECONDS",
    );
    let sums: Vec<Value> = (0..7).map(|_| step(&mut stage, 10.0).remove(1)).collect();
    let expected = [11.0, 22.0, 33.0, 44.0, 44.0, 44.0, 44.0].map(Value::Float64);
    assert_eq!(sums, expected, "rows of before are in no window of a query that came later");
}

#[test]
fn present_values_are_as_of_task_time() {
    let mut stage = stage(
        &[OLD, ("day", "SELECT count(*) AS n FROM s GROUP BY card OVER TUMBLING 10 SECONDS")],
        StageOptions::default(),
    );
    run(&mut stage, &[record("a", 1, 1.0), record("a", 9, 1.0), record("b", 10, 1.0)], &[3]);
    let mut read = |query: &str, card: &str| {
        let key: ArrayRef = Arc::new(StringViewArray::from_iter_values([card]));
        let present = stage.read(query, &[key]).unwrap().unwrap();
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
fn a_present_value_is_asked_for_by_the_fields_that_group_by_reads() {
    let sql = "SELECT sum(x) AS s FROM s GROUP BY upper(card) || '!', x > 2, card OVER INFINITE";
    let mut stage = stage(&[("q", sql)], StageOptions::default());
    run(
        &mut stage,
        &[record("a", 1, 1.0), record("a", 2, 1.5), record("a", 3, 5.0), record("b", 4, 7.0)],
        &[4],
    );
    assert_eq!(stage.group_fields("q"), Some(vec![2, 0]), "x and card, each once");
    let mut read = |card: &str, x: f64| {
        let card: ArrayRef = Arc::new(StringViewArray::from_iter_values([card]));
        let x: ArrayRef = Arc::new(arrow_array::Float64Array::from(vec![x]));
        let present = stage.read("q", &[x, card]).unwrap().unwrap();
        let Value::Struct(outputs) = Value::at(&present.values, 0) else { panic!("a struct") };
        outputs[0].1.clone()
    };
    assert_eq!(read("a", 0.0), Value::Float64(2.5));
    assert_eq!(read("a", 9.0), Value::Float64(5.0));
    assert_eq!(read("b", 9.0), Value::Float64(7.0));
    assert_eq!(read("b", 0.0), Value::Null);
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
