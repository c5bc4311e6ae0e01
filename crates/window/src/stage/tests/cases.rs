//! One case a rule. A record is written `card@seconds`, `card@seconds=x`, with `#id` after it if it has one.

use expect_test::{Expect, expect};
use thalweg_types::LatePolicy;

use super::*;

const SECOND: Micros = 1_000_000;

fn parse(text: &str) -> Record {
    let (text, id) = text.split_once('#').map_or((text, None), |(text, id)| (text, Some(id.to_owned())));
    let (text, x) = text.split_once('=').map_or((text, None), |(text, x)| (text, Some(x)));
    let (card, time) = text.split_once('@').expect("card@seconds");
    let x = match x {
        None => Some(1.0),
        Some("null") => None,
        Some(number) => Some(number.parse().unwrap()),
    };
    Record {
        time: (time.parse::<f64>().unwrap() * SECOND as f64) as Micros,
        card: (card != "null").then(|| card.to_owned()),
        x,
        k: x.map(|x| x as i64),
        id,
        ..Record::default()
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Int64(number) => number.to_string(),
        Value::Float64(number) => number.to_string(),
        Value::String(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

/// Runs records through one query, in one batch and one by one, and shows each answer.
fn check_with(options: StageOptions, query: &str, records: &str, expected: Expect) {
    let texts: Vec<&str> = records.split_whitespace().collect();
    let parsed: Vec<Record> = texts.iter().map(|text| parse(text)).collect();
    let mut shown = Vec::new();
    for size in [parsed.len(), 1, 3] {
        let mut stage = stage(&[("q", query)], options.clone());
        let mut answer = String::new();
        let mut first = 0;
        for chunk in parsed.chunks(size) {
            let answers = stage.answer(&batch(chunk, first as u64)).unwrap();
            for (row, values) in values(&answers, chunk.len()).iter().enumerate() {
                let outputs: Vec<String> = values.iter().map(show).collect();
                let row = row as u32;
                let late = if answers.late.contains(&row) { "  late" } else { "" };
                let duplicate = if answers.duplicate.contains(&row) { "  duplicate" } else { "" };
                let misfit =
                    if answers.misfits.iter().any(|misfit| misfit.0 == row) { "  misfit" } else { "" };
                let text = texts[first + row as usize];
                answer.push_str(&format!("{text:<8} {}{late}{duplicate}{misfit}\n", outputs.join(" ")));
            }
            first += chunk.len();
        }
        shown.push(answer);
    }
    assert_eq!(shown[0], shown[1], "one batch and one by one");
    assert_eq!(shown[0], shown[2], "one batch and three by three");
    expected.assert_eq(&shown[0]);
}

fn lateness(seconds: i64) -> StageOptions {
    StageOptions { lateness: seconds * SECOND, chunk_rows: 2, ..StageOptions::default() }
}

fn check(query: &str, records: &str, expected: Expect) {
    check_with(lateness(5), query, records, expected);
}

#[test]
fn a_sliding_window_is_open_at_its_lower_end() {
    check(
        "SELECT count(*) AS n, sum(x) AS s FROM s GROUP BY card OVER SLIDING 10 SECONDS",
        "a@0=1 a@5=2 a@9.999999=4 a@10=8 b@10=16 a@15=32 a@30=64",
        expect![[r#"
            a@0=1    1 1
            a@5=2    2 3
            a@9.999999=4 3 7
            a@10=8   3 14
            b@10=16  1 16
            a@15=32  3 44
            a@30=64  1 64
        "#]],
    );
}

#[test]
fn late_record_within_lateness_enters_the_windows_that_still_cover_it() {
    check(
        "SELECT count(*) AS n FROM s GROUP BY card OVER SLIDING 10 SECONDS",
        "a@1 a@9 a@12 a@8 a@19",
        expect![[r#"
            a@1      1
            a@9      2
            a@12     2
            a@8      3
            a@19     2
        "#]],
    );
}

#[test]
fn a_record_below_the_bound_is_late_and_answered_with_present_values() {
    check(
        "SELECT count(*) AS n, sum(x) AS s FROM s GROUP BY card OVER INFINITE",
        "a@10=1 a@4.9=2 a@5=4 b@0=8 a@11=16",
        expect![[r#"
            a@10=1   1 1
            a@4.9=2  1 1  late
            a@5=4    2 5
            b@0=8    0 null  late
            a@11=16  3 21
        "#]],
    );
}

#[test]
fn clamped_records_count_at_the_bound() {
    check_with(
        StageOptions { late: LatePolicy::Clamp, ..lateness(5) },
        "SELECT count(*) AS n, last(x) AS l FROM s GROUP BY card OVER SLIDING 6 SECONDS",
        "a@10=1 a@0=2 a@11=3 a@12=4",
        expect![[r#"
            a@10=1   1 1
            a@0=2    2 1  late
            a@11=3   2 3
            a@12=4   3 4
        "#]],
    );
}

#[test]
fn a_tumbling_window_is_answered_so_far_and_starts_at_multiples_below_zero_too() {
    check(
        "SELECT count(*) AS n FROM s GROUP BY card OVER TUMBLING 10 SECONDS",
        "a@-11 a@-10 a@-1 a@0 a@9 a@10 b@19 a@19 a@12 a@45",
        expect![[r#"
            a@-11    1
            a@-10    1
            a@-1     2
            a@0      1
            a@9      2
            a@10     1
            b@19     1
            a@19     2
            a@12     2  late
            a@45     1
        "#]],
    );
}

#[test]
fn a_delayed_window_holds_what_was_there_then() {
    check(
        "SELECT count(*) AS n FROM s GROUP BY card OVER SLIDING 10 SECONDS DELAYED BY 5 SECONDS",
        "a@0 a@4 a@5 a@9 a@12 a@15 a@30",
        expect![[r#"
            a@0      0
            a@4      0
            a@5      1
            a@9      2
            a@12     3
            a@15     3
            a@30     0
        "#]],
    );
}

#[test]
fn a_delayed_tumbling_window_starts_again_for_every_group() {
    check(
        "SELECT count(*) AS n FROM s GROUP BY card OVER TUMBLING 10 SECONDS DELAYED BY 2 SECONDS",
        "a@0 b@1 a@3 a@11 b@12 a@14 b@40",
        expect![[r#"
            a@0      0
            b@1      0
            a@3      1
            a@11     2
            b@12     0
            a@14     1
            b@40     0
        "#]],
    );
}

#[test]
fn rows_are_the_last_of_the_group_by_time_then_arrival() {
    check(
        "SELECT count(*) AS n, sum(x) AS s, first(x) AS f, last(x) AS l, prev(x) AS p FROM s GROUP BY card OVER ROWS 3",
        "a@1=1 a@2=2 b@2=9 a@3=4 a@2=8 a@1=16 a@9=32",
        expect![[r#"
            a@1=1    1 1 1 1 null
            a@2=2    2 3 1 2 1
            b@2=9    1 9 9 9 null
            a@3=4    3 7 1 4 2
            a@2=8    3 14 2 4 8
            a@1=16   3 14 2 4 8
            a@9=32   3 44 8 32 4
        "#]],
    );
}

#[test]
fn a_record_that_where_refuses_is_answered_with_present_values() {
    check(
        "SELECT count(*) AS n, sum(x) AS s FROM s WHERE x > 2 GROUP BY card OVER SLIDING 10 SECONDS",
        "a@0=1 a@1=3 a@2=2 a@11=2 a@12=5",
        expect![[r#"
            a@0=1    0 null
            a@1=3    1 3
            a@2=2    1 3
            a@11=2   0 null
            a@12=5   1 5
        "#]],
    );
}

#[test]
fn nulls_are_ignored_but_a_null_key_is_a_group() {
    check(
        "SELECT count(*) AS n, count(x) AS c, sum(x) AS s, min(x) AS lo FROM s GROUP BY card OVER INFINITE",
        "null@0=null null@1=3 a@2=null null@3=1",
        expect![[r#"
            null@0=null 1 0 null null
            null@1=3 2 1 3 3
            a@2=null 1 0 null null
            null@3=1 3 2 4 1
        "#]],
    );
}

#[test]
fn without_group_by_all_records_are_one_group() {
    check(
        "SELECT count(*) AS n, max(x) AS hi FROM s OVER SLIDING 10 SECONDS",
        "a@0=9 b@5=1 c@10=2 a@16=1",
        expect![[r#"
            a@0=9    1 9
            b@5=1    2 9
            c@10=2   2 2
            a@16=1   2 2
        "#]],
    );
}

#[test]
fn a_second_record_with_an_id_is_not_added_within_the_span() {
    check_with(
        StageOptions { dedup: Some((ID, 10 * SECOND)), ..lateness(5) },
        "SELECT count(*) AS n FROM s GROUP BY card OVER INFINITE",
        "a@0#x a@1#x a@2 a@2 a@9#x a@10#x",
        expect![[r#"
            a@0#x    1
            a@1#x    1  duplicate
            a@2      2
            a@2      3
            a@9#x    3  duplicate
            a@10#x   4
        "#]],
    );
}

#[test]
fn sums_do_not_drift_and_infinities_leave_with_their_record() {
    check(
        "SELECT sum(x) AS s, avg(x) AS a FROM s GROUP BY card OVER SLIDING 10 SECONDS",
        "a@0=1e40 a@1=1 a@2=inf a@10=1 a@11=1 a@12=1 a@13=NaN a@30=0.1",
        expect![[r#"
            a@0=1e40 10000000000000000000000000000000000000000 10000000000000000000000000000000000000000
            a@1=1    10000000000000000000000000000000000000000 5000000000000000000000000000000000000000
            a@2=inf  inf inf
            a@10=1   inf inf
            a@11=1   inf inf
            a@12=1   3 1
            a@13=NaN NaN NaN
            a@30=0.1 0.1 0.1
        "#]],
    );
}

#[test]
fn a_sum_that_does_not_fit_is_null_and_named_and_comes_back() {
    check(
        "SELECT sum(k * 4611686018427387904) AS s FROM s GROUP BY card OVER SLIDING 10 SECONDS",
        "a@0=1 a@1=1 a@9=0 a@10=0 a@11=0",
        expect![[r#"
            a@0=1    4611686018427387904
            a@1=1    null  misfit
            a@9=0    null  misfit
            a@10=0   4611686018427387904
            a@11=0   0
        "#]],
    );
}

#[test]
fn a_jump_of_time_empties_what_it_leaves_behind() {
    check(
        "SELECT count(*) AS n, min(x) AS lo, count(DISTINCT x) AS d FROM s GROUP BY card OVER SLIDING 3 SECONDS",
        "a@0=1 a@1=2 a@2=3 a@1000=4 a@999=5 a@996=6 a@1002=7",
        expect![[r#"
            a@0=1    1 1 1
            a@1=2    2 1 2
            a@2=3    3 1 3
            a@1000=4 1 4 1
            a@999=5  2 4 2
            a@996=6  2 4 2
            a@1002=7 2 4 2
        "#]],
    );
}

#[test]
fn a_filter_decides_what_one_aggregate_counts() {
    let outputs = "count(*) AS n, count(*) FILTER (WHERE x > 2) AS big, sum(x) FILTER (WHERE x > 2) AS s";
    check(
        &format!("SELECT {outputs} FROM s GROUP BY card OVER SLIDING 10 SECONDS"),
        "a@1=3 a@2=1 b@3=5 a@4=null a@11=4 a@12=2",
        expect![[r#"
            a@1=3    1 1 3
            a@2=1    2 1 3
            b@3=5    1 1 5
            a@4=null 3 1 3
            a@11=4   3 1 4
            a@12=2   3 1 4
        "#]],
    );
    check(
        &format!("SELECT {outputs} FROM s WHERE x < 5 OVER ROWS 2"),
        "a@1=3 a@2=1 b@3=5 a@4=2 a@5=4",
        expect![[r#"
            a@1=3    1 1 3
            a@2=1    2 1 3
            b@3=5    2 1 3
            a@4=2    2 0 null
            a@5=4    2 1 4
        "#]],
    );
}

#[test]
fn an_output_is_made_of_several_aggregates() {
    check(
        "SELECT sum(x) / count(*) AS mean, max(x) - min(x) AS range, sum(k) / count(k) AS whole, \
         100.0 * count(*) FILTER (WHERE x > 2) / count(*) AS percent FROM s WHERE x <> 9 GROUP BY card \
         OVER SLIDING 10 SECONDS",
        "a@1=3 a@2=1 b@3=9 b@4=null a@11=4 a@12=2",
        expect![[r#"
            a@1=3    3 0 3 100
            a@2=1    2 2 2 50
            b@3=9    null null null NaN
            b@4=null null null null NaN
            a@11=4   2.5 3 2 50
            a@12=2   3 2 3 50
        "#]],
    );
}

#[test]
fn what_an_output_is_made_of_is_named_where_it_does_not_fit() {
    let k = |time: Micros, k: i64| Record { time, k: Some(k), ..Record::default() };
    let mut stage = stage(
        &[(
            "q",
            "SELECT count(*) AS n, sum(k) / count(*) AS mean, max(k) + max(k) AS twice FROM s OVER INFINITE",
        )],
        lateness(5),
    );
    let answers = stage.answer(&batch(&[k(1, i64::MAX), k(2, i64::MAX)], 0)).unwrap();
    assert_eq!(
        values(&answers, 2),
        [[Value::Int64(1), Value::Int64(i64::MAX), Value::Null], [Value::Int64(2), Value::Null, Value::Null],]
    );
    assert_eq!(answers.misfits, [(1, 0, 1)], "the sum does not fit; arithmetic beyond its type is null");
}

#[test]
fn quantiles_are_between_the_least_and_the_greatest_value_in_the_window() {
    check(
        "SELECT quantile(x, 0) AS lo, quantile(x, 1) AS hi, quantile(x, 0.5) / 2 AS half, quantile(k, 1) AS k \
         FROM s GROUP BY card OVER ROWS 3",
        "a@1=100 a@2=100 a@3=107 a@4=nan a@5=-0.001 a@6=null",
        expect![[r#"
            a@1=100  100 100 50 100
            a@2=100  100 100 50 100
            a@3=107  100 107 50.24728385428251 107
            a@4=nan  100 NaN 53.35450907643016 107
            a@5=-0.001 -0.001 NaN 53.35450907643016 107
            a@6=null -0.001 NaN -0.0004987390573185113 0
        "#]],
    );
}
