//! Job files: parse, check, print mistakes. The bytes after the first zero byte are an override (`PATH=VALUE`).

use std::sync::OnceLock;

use thalweg_node::job_file::CheckOptions;
use thalweg_node::{JobFile, Node};

use crate::{Target, nothing_more};

pub const TARGET: Target = Target { name: "job_file", run, seeds, words: WORDS, allowance: nothing_more };

const WORDS: &[&str] = &[
    "name: ",
    "sources:\n",
    "operators:\n",
    "sinks:\n",
    "  payments:\n",
    "    type: ",
    "file",
    "stdin",
    "generator",
    "metrics",
    "filter",
    "map",
    "union",
    "relay",
    "input: ",
    "partition_by: [card]",
    "queries:\n",
    "schema: { ",
    "timestamp(ms)",
    "decimal(10,2)",
    "string?",
    "partition: key(a, b)",
    "buffer: 64KiB",
    "flush: 2ms",
    "every: 5s",
    "&a ",
    "*a",
    "!!str ",
    "|\n",
    ">-\n",
    "---\n",
    "...\n",
    "? ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "#",
    "\t",
    "\n",
    "\n  ",
    "\n    ",
    "null",
    "true",
    "1e999",
    "\u{feff}",
    "\0sources.payments.path=x",
];

fn options() -> &'static CheckOptions {
    static OPTIONS: OnceLock<CheckOptions> = OnceLock::new();
    OPTIONS.get_or_init(|| Node::builder().workers(2).check_options())
}

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut parts = text.split('\0');
    let text = parts.next().unwrap_or_default();
    let overrides: Vec<String> = parts.map(str::to_owned).collect();
    let mistakes = match JobFile::parse("job.yaml", text, &overrides) {
        Ok(file) => {
            file.to_json();
            match file.check(options()) {
                Ok(_) => return,
                Err(mistakes) => mistakes,
            }
        }
        Err(mistakes) => mistakes,
    };
    assert!(!mistakes.0.is_empty(), "refused without a reason");
    assert!(!mistakes.to_string().is_empty());
}

fn seeds() -> Vec<Vec<u8>> {
    let payments = r#"version: 1
name: payments
cycle: { every: 1s }
state: { backend: indexed, memory: 512MiB }
sources:
  payments:
    type: file
    path: payments.csv
    format: csv
    schema: { ts: timestamp(ms), card: string, merchant: string, amount: float64 }
    time: ts
    lateness: 5s
operators:
  features:
    type: metrics
    input: payments
    partition_by: [card, merchant]
    queries:
      card_1h: SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR
      shop_5m: SELECT avg(amount) AS mean FROM payments WHERE amount > 1 GROUP BY merchant OVER SLIDING 5 MINUTES
sinks:
  answers: { type: file, input: features, path: answers.ndjson, format: ndjson }
"#;
    let general = r#"{"name": "general",
 "sources": {"a": {"type": "generator", "kind": "readings", "count": 10}, "b": {"type": "stdin", "format": "ndjson",
   "schema": {"x": "int64?", "user.id": "string"}, "id": "x", "dedup": "10m", "late": "clamp", "reject_limit": 3}},
 "operators": {"f": {"type": "filter", "input": {"from": "b", "partition": "key(x)", "buffer": "64KiB", "flush": "2ms"},
   "where": "x > 1", "parallelism": 2}, "u": {"type": "union", "input": ["b", "f"]}},
 "sinks": {"s": {"type": "null", "input": "u"}, "t": {"type": "stdout", "input": "a"}}}
"#;
    let shared = "name: &n x\nsources: {a: &s {type: generator}, b: *s}\nsinks: {s: {type: \"null\", input: [a, b]}}\n";
    let changed = format!("{payments}\0sources.payments.path=other.csv\0cycle.every=5s");
    [payments, general, shared, changed.as_str(), "name: x\n  - y: [\n", ""]
        .map(|text| text.as_bytes().to_vec())
        .into()
}
