//! The twenty features, and the job file that a user would write for them.

use std::path::Path;

use serde_json::{Map, Value, json};

/// A query: one key, one window, some of the features.
pub(super) struct Query {
    pub(super) name: &'static str,
    key: &'static str,
    window: &'static str,
    /// Name and aggregate of each.
    pub(super) features: &'static [(&'static str, &'static str)],
}

pub(super) const QUERIES: [Query; 11] = [
    Query { name: "card_1m", key: "card", window: "1 MINUTE", features: &[("n", "count(*)")] },
    Query {
        name: "card_1h",
        key: "card",
        window: "1 HOUR",
        features: &[("n", "count(*)"), ("spent", "sum(amount)"), ("shop", "last(merchant)")],
    },
    Query {
        name: "card_24h",
        key: "card",
        window: "24 HOURS",
        features: &[("spent", "sum(amount)"), ("mean", "avg(amount)"), ("before", "prev(country)")],
    },
    Query {
        name: "card_30d",
        key: "card",
        window: "30 DAYS",
        features: &[
            ("deviation", "stddev(amount)"),
            ("shops", "count(DISTINCT merchant)"),
            ("median", "quantile(amount, 0.5)"),
        ],
    },
    Query {
        name: "device_1h",
        key: "device",
        window: "1 HOUR",
        features: &[("cards", "count(DISTINCT card)")],
    },
    Query {
        name: "device_24h",
        key: "device",
        window: "24 HOURS",
        features: &[("spent", "sum(amount)"), ("least", "min(amount)")],
    },
    Query {
        name: "device_30d",
        key: "device",
        window: "30 DAYS",
        features: &[("most", "max(amount)"), ("n", "count(*)")],
    },
    Query { name: "merchant_1m", key: "merchant", window: "1 MINUTE", features: &[("taken", "sum(amount)")] },
    Query {
        name: "merchant_1h",
        key: "merchant",
        window: "1 HOUR",
        features: &[("mean", "avg(amount)"), ("deviation", "stddev(amount)")],
    },
    Query {
        name: "merchant_24h",
        key: "merchant",
        window: "24 HOURS",
        features: &[("cards", "count(DISTINCT card)")],
    },
    Query {
        name: "merchant_30d",
        key: "merchant",
        window: "30 DAYS",
        features: &[("median", "quantile(amount, 0.5)")],
    },
];

/// As in `card_1h.spent`.
pub(super) fn names() -> impl Iterator<Item = String> {
    QUERIES.iter().flat_map(|query| query.features.iter().map(|(name, _)| format!("{}.{name}", query.name)))
}

/// Payments from a file, with ids that are remembered for ten minutes; answers go to a CSV file, or are digested.
pub(super) fn job(input: &Path, answers: Option<&Path>) -> Value {
    let text = |query: &Query| {
        let features: Vec<String> =
            query.features.iter().map(|(name, aggregate)| format!("{aggregate} AS {name}")).collect();
        let features = features.join(", ");
        format!("SELECT {features} FROM payments GROUP BY {} OVER SLIDING {}", query.key, query.window)
    };
    let queries: Map<String, Value> =
        QUERIES.iter().map(|query| (query.name.to_owned(), json!(text(query)))).collect();
    let sink = match answers {
        Some(path) => json!({"type": "file", "input": "features", "path": path, "format": "csv"}),
        None => json!({"type": "null", "input": "features"}),
    };
    json!({
        "name": "features",
        "cycle": {"every": "1s"},
        "sources": {"payments": {
            "type": "file",
            "path": input,
            "format": "csv",
            "schema": {
                "ts": "timestamp(ms)", "tx": "string", "card": "string", "device": "string",
                "merchant": "string", "country": "string", "amount": "float64",
            },
            "time": "ts",
            "id": "tx",
            "dedup": "10m",
        }},
        "operators": {"features": {
            "type": "metrics",
            "input": "payments",
            "partition_by": ["card", "device", "merchant"],
            "queries": queries,
        }},
        "sinks": {"answers": sink},
    })
}

#[test]
fn there_are_twenty() {
    assert_eq!(names().count(), 20);
    assert_eq!(names().nth(2).as_deref(), Some("card_1h.spent"));
}
