//! Job files of the windows benchmark.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// The query of the comparison.
pub(super) fn hourly() -> Vec<(String, String)> {
    let query =
        "SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 60 MINUTES";
    vec![("card_1h".to_owned(), query.to_owned())]
}

/// A job over a file of payments.
#[derive(Clone, Debug)]
pub(super) struct Job {
    input: PathBuf,
    queries: Vec<(String, String)>,
    answers: Option<PathBuf>,
    chunk_memory: Option<String>,
}

impl Job {
    /// Answers are counted and digested.
    pub(super) fn new(input: &Path, queries: Vec<(String, String)>) -> Self {
        Self { input: input.to_path_buf(), queries, answers: None, chunk_memory: None }
    }

    /// Answers go to a CSV file instead.
    pub(super) fn answers_to(mut self, path: &Path) -> Self {
        self.answers = Some(path.to_path_buf());
        self
    }

    pub(super) fn chunk_memory(mut self, size: &str) -> Self {
        self.chunk_memory = Some(size.to_owned());
        self
    }

    /// The job file's text.
    pub(super) fn text(&self) -> String {
        let queries: Map<String, Value> =
            self.queries.iter().map(|(name, query)| (name.clone(), json!(query))).collect();
        let sink = match &self.answers {
            Some(path) => json!({"type": "file", "input": "features", "path": path, "format": "csv"}),
            None => json!({"type": "null", "input": "features"}),
        };
        let mut job = json!({
            "name": "windows",
            "cycle": {"every": "1s"},
            "sources": {"payments": {
                "type": "file",
                "path": self.input,
                "format": "csv",
                "schema": {"ts": "timestamp(ms)", "card": "string", "merchant": "string", "amount": "float64"},
                "time": "ts",
            }},
            "operators": {"features": {
                "type": "metrics",
                "input": "payments",
                "partition_by": ["card"],
                "queries": queries,
            }},
            "sinks": {"answers": sink},
        });
        if let Some(size) = &self.chunk_memory {
            job["state"] = json!({ "chunk_memory": size });
        }
        format!("{job:#}\n")
    }
}
