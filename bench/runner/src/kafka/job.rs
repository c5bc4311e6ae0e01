//! Job files: the same query between files and topics.

use std::path::Path;

use serde_json::{Value, json};

pub(crate) const QUERY: &str =
    "SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 60 MINUTES";

fn schema() -> Value {
    json!({"ts": "timestamp(ms)", "card": "string", "merchant": "string", "amount": "float64"})
}

pub(super) fn file_source(input: &Path) -> Value {
    json!({"type": "file", "path": input, "format": "csv", "schema": schema(), "time": "ts"})
}

/// Everything that the topic has, in the order of event time over its partitions, as the file has it.
pub(super) fn bounded_source(brokers: &str, topic: &str) -> Value {
    let mut source = live_source(brokers, topic);
    source["from"] = json!("earliest");
    source["until"] = json!("latest");
    source["order"] = json!("time");
    source
}

/// The same as partitions come, none of it too late.
pub(super) fn arriving_source(brokers: &str, topic: &str) -> Value {
    let mut source = bounded_source(brokers, topic);
    source["order"] = json!("arrival");
    source["lateness"] = json!("1d");
    source
}

/// What comes to the topic.
pub(crate) fn live_source(brokers: &str, topic: &str) -> Value {
    json!({
        "type": "kafka",
        "brokers": [brokers],
        "topics": [topic],
        "format": "csv",
        "header": false,
        "schema": schema(),
        "time": "ts",
    })
}

pub(super) fn file_sink(output: &Path) -> Value {
    json!({"type": "file", "input": "features", "path": output, "format": "csv"})
}

/// `delivery` is `positions` or `transactions`.
pub(crate) fn topic_sink(brokers: &str, topic: &str, delivery: &str) -> Value {
    json!({
        "type": "kafka",
        "input": "features",
        "brokers": [brokers],
        "topic": topic,
        "key": "card",
        "delivery": delivery,
        "format": "csv",
        "header": false,
    })
}

/// A name of its own for each run: what a sink with transactions has written belongs to the name of its job.
pub(super) fn job(name: &str, source: &Value, sink: &Value) -> Value {
    json!({
        "name": name,
        "cycle": {"every": "1s"},
        "sources": {"payments": source},
        "operators": {"features": {
            "type": "metrics",
            "input": "payments",
            "partition_by": ["card"],
            "queries": {"card_1h": QUERY},
        }},
        "sinks": {"answers": sink},
    })
}
