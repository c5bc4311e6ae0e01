//! Golden tests of the messages about mistakes in job files.

mod ahead;
mod elements;
mod keyed;
mod overrides;
mod plugins;
mod queries;
mod reach;
mod schema;
mod state;
mod streams;
mod structure;
mod values;

use expect_test::Expect;
use thalweg_connect::Reach;

use crate::operator::Operators;

use super::{CheckOptions, CheckedJob, JobFile};

/// The job of `docs/jobs.md`.
const EXAMPLE: &str = "\
version: 1                          # optional
name: payments
cycle: { every: 1s }                # optional: every, bytes, records
state: { backend: indexed, memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
sources:
  payments:
    type: file                      # file | stdin | http | tcp | udp | generator | kafka | sflow | pcap | …
    path: payments.csv
    format: csv                     # csv | ndjson | line_protocol | …
    schema: { ts: timestamp(ms), card: string, merchant: string, amount: float64 }
    time: ts                        # absent: arrival time
    lateness: 5s
operators:
  features:
    type: metrics
    input: payments
    partition_by: [card, merchant]  # one keyed stage each; answers are merged per record
    queries:
      card_1h: SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR
      shop_5m: SELECT avg(amount) AS mean FROM payments WHERE amount > 1 GROUP BY merchant OVER SLIDING 5 MINUTES DELAYED BY 1 MINUTE
sinks:
  answers: { type: file, input: features, path: answers.ndjson, format: ndjson }
";

fn options() -> CheckOptions {
    CheckOptions {
        registry: plugins::registry(),
        operators: Operators::builtin(),
        workers: 2,
        reach: Reach::anything(),
    }
}

fn read(text: &str, overrides: &[&str]) -> Result<CheckedJob, String> {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    JobFile::parse("job.yaml", text, &overrides)
        .and_then(|file| file.check(&options()))
        .map_err(|mistakes| mistakes.to_string())
}

/// The mistakes of a job file, or its warnings, or `fine`.
fn check(text: &str, expected: Expect) {
    check_with(text, &[], expected);
}

fn check_with(text: &str, overrides: &[&str], expected: Expect) {
    let actual = match read(text, overrides) {
        Err(mistakes) => mistakes,
        Ok(job) if job.warnings.is_empty() => "fine".to_owned(),
        Ok(job) => job.warnings.iter().map(ToString::to_string).collect(),
    };
    expected.assert_eq(&actual);
}

/// The example with one text in it replaced.
fn check_example(old: &str, new: &str, expected: Expect) {
    assert!(EXAMPLE.contains(old), "{old:?} is not in the example");
    check(&EXAMPLE.replacen(old, new, 1), expected);
}
