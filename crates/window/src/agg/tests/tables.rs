//! Each function on a small window that can be checked by hand.
//!
//! A script has one step per word: `a=1` adds 1 to group a and reads a, `a@3=1` does so at time 3, `-a` takes the
//! oldest element of a away, `!a` forgets a, `?` reads an empty window.

use arrow_buffer::i256;
use thalweg_types::{DataType, Value};

use super::rig::{Rig, Step};
use crate::agg::{Function, NO_GROUP};

fn check(function: Function, data_type: &str, script: &str, expected: &str) {
    let data_type = DataType::parse(data_type).unwrap();
    let mut rig = Rig::new(&[function], &data_type, 26);
    let group = |name: &str| u32::from(name.as_bytes()[0] - b'a');
    let steps: Vec<Step> = script
        .split_whitespace()
        .enumerate()
        .map(|(now, word)| match word.split_at(1) {
            ("?", _) => Step { read: NO_GROUP, ..Step::default() },
            ("-", name) => Step { read: group(name), removes: vec![group(name)], ..Step::default() },
            ("!", name) => Step { read: group(name), reset: true, ..Step::default() },
            (name, rest) => {
                let (time, value) = rest.split_once('=').expect("a word with a value");
                let time = time.strip_prefix('@').map_or(now as i64, |time| time.parse().unwrap());
                let adds = vec![(group(name), time, parse(&data_type, value))];
                Step { read: group(name), adds, ..Step::default() }
            }
        })
        .collect();
    let got: Vec<String> = rig.run(&steps).iter().map(|reading| print(&reading.values[0])).collect();
    assert_eq!(got.join(" "), expected, "{function} of {data_type}: {script}");
}

fn parse(data_type: &DataType, text: &str) -> Value {
    match data_type {
        _ if text == "null" => Value::Null,
        DataType::Int64 => Value::Int64(text.parse().unwrap()),
        DataType::UInt64 => Value::UInt64(text.parse().unwrap()),
        DataType::Float64 => Value::Float64(text.parse().unwrap()),
        DataType::String => Value::String(text.to_owned()),
        DataType::Decimal { scale, .. } => {
            let digits = text.replace('.', "");
            Value::Decimal(i256::from_string(&digits).unwrap(), *scale)
        }
        other => panic!("no text of {other}"),
    }
}

fn print((value, did_not_fit): &(Value, bool)) -> String {
    match value {
        Value::Null if *did_not_fit => "overflow".to_owned(),
        Value::Null => "null".to_owned(),
        Value::Int64(x) => x.to_string(),
        Value::UInt64(x) => x.to_string(),
        Value::Float64(x) => x.to_string(),
        Value::String(x) => x.clone(),
        Value::Decimal(x, scale) => format!("{x}e-{scale}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn count_counts_values_and_count_star_records() {
    check(Function::CountAll, "float64", "a=1 a=null b=2 -a ? !b", "1 2 1 1 0 0");
    check(Function::Count, "float64", "a=1 a=null b=2 -a ? !b", "1 1 1 0 0 0");
    check(Function::Count, "string", "a=x a=null -a -a", "1 1 0 0");
}

#[test]
fn sum_of_nothing_is_null() {
    check(
        Function::Sum,
        "float64",
        "? a=null a=1.5 b=2 a=1 -a -a -a !b",
        "null null 1.5 2 2.5 2.5 1 null null",
    );
    check(Function::Sum, "float64", "a=-0 -a", "0 null");
}

#[test]
fn sum_forgets_what_has_left_without_a_trace() {
    let expected = format!("{0} {0} 1 1 {1}", 1e100, 1e-300);
    check(Function::Sum, "float64", "a=1e100 a=1 -a a=1e-300 -a", &expected);
}

#[test]
fn nan_and_infinities_leave_with_their_record() {
    check(
        Function::Sum,
        "float64",
        "a=1 a=inf a=-inf a=NaN a=2 -a -a -a -a",
        "1 inf NaN NaN NaN NaN NaN NaN 2",
    );
    check(Function::Avg, "float64", "a=inf a=1 -a", "inf inf 1");
    check(Function::VarPop, "float64", "a=inf a=1 -a", "NaN NaN 0");
}

#[test]
fn a_sum_that_does_not_fit_comes_back() {
    check(
        Function::Sum,
        "int64",
        "a=9223372036854775807 a=1 a=-1 -a",
        "9223372036854775807 overflow 9223372036854775807 0",
    );
    check(Function::Sum, "uint64", "a=18446744073709551615 a=1 -a", "18446744073709551615 overflow 1");
    let nines = "9".repeat(76);
    check(
        Function::Sum,
        "decimal(76,0)",
        &format!("a={nines} a={nines} a={nines} -a -a"),
        &format!("{nines}e-0 overflow overflow overflow {nines}e-0"),
    );
    check(Function::Sum, "decimal(4,2)", "a=99.99 a=0.01 -a", "9999e-2 10000e-2 1e-2");
}

#[test]
fn a_float_sum_rounds_to_infinity_and_back() {
    check(Function::Sum, "float64", "a=1e308 a=1e308 a=-1e308", &format!("{0} inf {0}", 1e308));
    check(Function::Avg, "float64", "a=1e308 a=1e308", &format!("{0} {0}", 1e308));
    check(Function::StdDevPop, "float64", "a=1e-200 a=3e-200", &format!("0 {}", 1e-200));
}

#[test]
fn avg_var_and_stddev_of_small_windows() {
    check(Function::Avg, "int64", "a=1 a=2 -a -a", "1 1.5 2 null");
    check(Function::Avg, "decimal(5,2)", "a=0.10 a=0.20", "0.1 0.15");
    check(Function::Var, "float64", "a=1 a=2 a=4 -a", "null 0.5 2.3333333333333335 2");
    check(Function::VarPop, "uint64", "a=1 a=3 -a -a", "0 1 0 null");
    check(Function::StdDev, "decimal(5,1)", "a=1.0 a=3.0", "null 1.4142135623730951");
    check(Function::StdDevPop, "int64", "a=1 a=5", "0 2");
}

#[test]
fn min_and_max_put_nan_above_everything() {
    check(Function::Max, "float64", "a=1 a=NaN a=2 -a -a", "1 NaN NaN NaN 2");
    check(Function::Min, "float64", "a=NaN a=-0 a=inf -a -a -a", "NaN 0 0 0 inf null");
    check(Function::Max, "string", "a=b a=abc a=null -a -a", "b b b abc null");
    check(Function::Min, "int64", "a=3 a=1 a=2 -a -a -a", "3 1 1 1 2 null");
}

#[test]
fn a_late_value_takes_its_place_in_time() {
    check(Function::Max, "int64", "a@10=5 a@20=3 a@15=4 -a -a", "5 5 5 4 3");
    check(Function::First, "int64", "a@10=5 a@20=3 a@5=null a@7=1 -a -a -a", "5 5 5 1 1 5 3");
    check(Function::Last, "int64", "a@10=5 a@20=3 a@15=4 -a -a -a", "5 3 3 3 3 null");
    check(Function::Prev, "int64", "a@10=5 a@20=3 a@15=4 -a -a a@16=9", "null 5 4 4 null 9");
}

#[test]
fn of_equal_times_the_later_arrival_is_newer() {
    check(Function::Last, "string", "a@1=x a@1=y -a", "x y y");
    check(Function::First, "string", "a@1=x a@1=y -a", "x x y");
}

#[test]
fn distinct_values_are_counted_once_until_the_last_has_left() {
    check(Function::CountDistinct, "string", "a=x a=x a=y b=x -a -a -a", "1 1 2 1 2 1 0");
    check(Function::CountDistinct, "float64", "a=0 a=-0 a=NaN a=null a=-NaN !a", "1 1 2 2 2 0");
}

#[test]
fn quantiles_take_the_lower_rank() {
    // A bucket's value is within 1 % of each value in it.
    check(Function::Quantile(0.5), "int64", "a=0 a=10 -a", "0 0 10.074696689511333");
    check(Function::Quantile(1.0), "float64", "a=inf a=NaN ? !a", "inf NaN null null");
}
