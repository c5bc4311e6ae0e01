//! Answers of an HBase gateway: rows with their cells, and a table's description.

use thalweg_state_remote::testing;

use crate::{Target, nothing_more};

pub const TARGET: Target = Target { name: "hbase_answer", run, seeds, words: WORDS, allowance: nothing_more };

const WORDS: &[&str] = &[
    "{\"Row\":[",
    "{\"key\":\"",
    "\",\"Cell\":[",
    "{\"column\":\"czp2\",\"timestamp\":1,\"$\":\"",
    "\"}]}",
    "]}",
    "=",
    "==",
    "\"ColumnSchema\":[",
    "\"name\":\"s\"",
    "\"TTL\":\"",
    "2147483647",
    "FOREVER",
    "null",
    "1e999",
    "\\u0000",
    "{\"a\":",
    "[[",
];

pub fn run(data: &[u8]) {
    testing::hbase_answer(data);
}

fn seeds() -> Vec<Vec<u8>> {
    // Rows of a head, of a part, and of a key, each without a space.
    let row = |key: &str, value: &str| {
        format!(r#"{{"key":"{key}","Cell":[{{"column":"czp2","timestamp":2,"$":"{value}"}}]}}"#)
    };
    let part = row("bDAwMDAwMDAwMDAwMDAwMDEwMDAwMDAwMDAwMDAwMDAyMDAwMDAwMDM=", "AQAAAAAA");
    [
        r#"{"Row":[]}"#.to_owned(),
        format!(r#"{{"Row":[{}]}}"#, row("aA==", "AQAHAAAA")),
        format!(r#"{{"Row":[{part},{}]}}"#, row("cmEyVjU=", "dmFsdWUBAgME")),
        r#"{"name":"thalweg","ColumnSchema":[{"name":"s","TTL":"2147483647"}]}"#.to_owned(),
        r#"{"name":"thalweg","ColumnSchema":[{"name":"s","VERSIONS":"1"},{"name":"t"}]}"#.to_owned(),
    ]
    .map(String::into_bytes)
    .to_vec()
}

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_are_answers() {
        for seed in super::seeds() {
            assert!(thalweg_state_remote::testing::hbase_answer(&seed), "{}", seed.escape_ascii());
        }
    }
}
