//! `percentile_cont` against the definition, to the bit.

use proptest::prelude::*;
use thalweg_sql::Limits;

use crate::fake::{Flow, START, world};

fn expected(values: &[f64], share: f64, is_descending: bool) -> String {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    if is_descending {
        values.reverse();
    }
    let Some(last) = values.len().checked_sub(1) else { return String::new() };
    let rank = share * last as f64;
    let (lower, upper) = (values[rank.floor() as usize], values[rank.ceil() as usize]);
    let value = if lower == upper { lower } else { lower + (upper - lower) * rank.fract() };
    format!("{value:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn percentiles_are_exact(
        rows in prop::collection::vec((0..2_u64, prop::option::weighted(0.9, 0..1_000_000_i64)), 0..60),
        shares in prop::collection::vec(0..=1_000_000_u32, 3),
        is_descending in any::<bool>(),
    ) {
        let world = world(Limits::default());
        // Thirds have no end in a float.
        let flows: Vec<Flow> = rows
            .iter()
            .map(|(src_as, load)| Flow {
                time: START,
                src_as: Some(*src_as),
                load: load.map(|load| load as f64 / 3.0),
                ..Flow::default()
            })
            .collect();
        let (files, fresh) = flows.split_at(flows.len() / 2);
        world.add("net", "flows", &if files.is_empty() { vec![] } else { vec![files] }, fresh);
        let order = if is_descending { "DESC" } else { "ASC" };
        for share in shares {
            let share = f64::from(share) / 1_000_000.0;
            let percentile = format!("percentile_cont({share:?}) WITHIN GROUP (ORDER BY load {order})");
            let of = |wanted: Option<u64>| -> Vec<f64> {
                let rows = flows.iter().filter(|flow| wanted.is_none_or(|wanted| flow.src_as == Some(wanted)));
                rows.filter_map(|flow| flow.load).collect()
            };
            let number = |line: &str| if line.is_empty() { String::new() } else { format!("{:?}", line.parse::<f64>().unwrap()) };
            let all: Vec<String> = world.rows(&format!("SELECT {percentile} FROM flows")).iter().map(|line| number(line)).collect();
            prop_assert_eq!(all.concat(), expected(&of(None), share, is_descending), "{}", percentile);
            for line in world.rows(&format!("SELECT src_as, {percentile} FROM flows GROUP BY 1")) {
                let (key, value) = line.split_once(',').unwrap();
                let wanted = expected(&of(Some(key.parse().unwrap())), share, is_descending);
                prop_assert_eq!(number(value), wanted, "{} of {}", percentile, key);
            }
        }
    }
}

#[test]
fn percentiles_of_few_values() {
    let world = world(Limits::default());
    let flow = |bytes, load| Flow { time: START, bytes: Some(bytes), load: Some(load), ..Flow::default() };
    world.add("net", "flows", &[&[flow(1, 1.0), flow(2, 1.0)]], &[flow(3, 7.0)]);
    for (call, value) in [
        ("percentile_cont(0.3) WITHIN GROUP (ORDER BY bytes)", "1.6"),
        ("percentile_cont(0.3) WITHIN GROUP (ORDER BY bytes DESC)", "2.4"),
        ("percentile_cont(0.1234567) WITHIN GROUP (ORDER BY bytes)", "1.2469134"),
        ("quantile_cont(bytes, 0.5)", "2.0"),
        ("percentile_cont(0) WITHIN GROUP (ORDER BY bytes)", "1.0"),
        ("percentile_cont(1.0) WITHIN GROUP (ORDER BY bytes)", "3.0"),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY load)", "1.0"),
        ("percentile_cont(DISTINCT load, 0.5)", "4.0"),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY load) FILTER (WHERE bytes > 9)", ""),
    ] {
        let rows = world.rows(&format!("SELECT {call} FROM flows"));
        let numbers: Vec<f64> = rows.iter().filter_map(|row| row.parse().ok()).collect();
        assert_eq!(numbers, value.parse().into_iter().collect::<Vec<f64>>(), "{call}: {rows:?}");
    }
    for share in ["2", "-0.1", "bytes"] {
        let error =
            world.error(&format!("SELECT percentile_cont({share}) WITHIN GROUP (ORDER BY bytes) FROM flows"));
        assert_eq!(error.class(), thalweg_types::Class::User, "{share}: {}", error.chain());
    }
}
