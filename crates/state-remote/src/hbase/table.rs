//! The table: made where it is not there, and refused where it would lose state.

use serde_json::{Value, json};

use super::client::Client;
use crate::wait::Outcome;

const FAMILY: &str = "s";

/// Cells for ever, as HBase says it.
const FOR_EVER: [&str; 2] = ["2147483647", "FOREVER"];

pub(super) fn ensure(client: &Client) -> Outcome<()> {
    let name = client.table_name();
    if client.schema()?.is_none() {
        tracing::info!(table = name, "makes the table for state");
        client.create(&wanted(name))?;
    }
    let found = client.schema()?.unwrap_or_default();
    match unfit(&found) {
        None => Ok(()),
        Some((message, hint)) => Err(client.refused(format!("table {name:?}: {message}"), hint)),
    }
}

/// Rows have long keys with a common beginning, and are mostly asked for by key.
fn wanted(name: &str) -> Value {
    json!({
        "name": name,
        "ColumnSchema": [{
            "name": FAMILY,
            "VERSIONS": "1",
            "BLOOMFILTER": "ROW",
            "DATA_BLOCK_ENCODING": "FAST_DIFF",
        }],
    })
}

/// Why the table cannot keep state, and what to do.
pub(crate) fn unfit(schema: &Value) -> Option<(String, &'static str)> {
    let families = schema["ColumnSchema"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(family) = families.iter().find(|family| family["name"] == FAMILY) else {
        let names: Vec<&str> = families.iter().filter_map(|family| family["name"].as_str()).collect();
        let got = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Some((
            format!("expected a column family {FAMILY:?}, got {got}"),
            "name a table in state.table that is not there yet, and it will be made; or add the family",
        ));
    };
    let lives = family["TTL"].as_str().unwrap_or(FOR_EVER[0]);
    if !FOR_EVER.contains(&lives) {
        return Some((
            format!("expected cells to stay for ever, got TTL {lives} for family {FAMILY:?}"),
            "take the TTL away from the family: state would be gone after that time",
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_would_lose_state_is_refused() {
        assert!(unfit(&wanted("t")).is_none());
        let family = |family: Value| unfit(&json!({ "name": "t", "ColumnSchema": [family] }));
        assert!(family(json!({ "name": "s", "TTL": "2147483647" })).is_none());
        let (message, _) = family(json!({ "name": "s", "TTL": "86400" })).unwrap();
        assert!(message.contains("TTL 86400"), "{message}");
        let (message, _) = family(json!({ "name": "cf" })).unwrap();
        assert_eq!(message, "expected a column family \"s\", got cf");
        assert!(unfit(&json!({})).unwrap().0.ends_with("got none"));
    }
}
