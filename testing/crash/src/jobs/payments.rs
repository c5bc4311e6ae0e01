//! Payments in files that grow, for jobs with windows and with elements: one file, or two whose order is the order log's.
//!
//! Not here: which payments, and what a job makes of them.

use std::io::Write as _;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::Setting;
use super::grown::Grown;
use crate::decide::Tuning;
use thalweg_harness::random::Random;

/// A record of the input. Amounts are in quarters, so that all sums are exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) ts: i64,
    pub(super) id: String,
    pub(super) card: String,
    pub(super) shop: String,
    pub(super) quarters: i64,
}

pub(super) struct Input {
    pub(super) name: &'static str,
    pub(super) file: Grown,
    pub(super) records: Vec<Record>,
}

/// One input, ascending in time, if tasks share the work; else two.
pub(super) fn inputs(
    setting: &Setting<'_>,
    random: &mut Random,
    is_split: bool,
    records: fn(&mut Random, &str, bool) -> Vec<Record>,
) -> Result<Vec<Input>> {
    let names: &[&str] = if is_split { &["a"] } else { &["a", "b"] };
    let mut inputs = Vec::new();
    for name in names {
        let records = records(random, name, is_split);
        let mut text = b"ts,id,card,shop,amount\n".to_vec();
        for Record { ts, id, card, shop, quarters } in &records {
            writeln!(text, "{ts},{id},{card},{shop},{}.{:02}", quarters / 4, quarters % 4 * 25)?;
        }
        let file = Grown::begun(setting.folder.join(format!("{name}.csv")), text)?;
        inputs.push(Input { name, file, records });
    }
    Ok(inputs)
}

/// The fields of a record.
pub(super) fn schema() -> Value {
    json!({ "ts": "timestamp(ms)", "id": "string", "card": "string", "shop": "string", "amount": "float64" })
}

/// Sources of a job file, with `lateness` in milliseconds and what else a job says of each.
pub(super) fn sources(
    inputs: &[Input],
    tuning: &Tuning,
    lateness: i64,
    more: &[(&str, Value)],
) -> Map<String, Value> {
    let source = |input: &Input| {
        let mut source = json!({
            "type": "file",
            "path": input.file.path,
            "follow": true,
            "poll": tuning.poll,
            "format": "csv",
            "schema": schema(),
            "time": "ts",
            "lateness": format!("{lateness}ms"),
        });
        for (key, value) in more {
            source[*key] = value.clone();
        }
        (input.name.to_owned(), source)
    };
    inputs.iter().map(source).collect()
}
