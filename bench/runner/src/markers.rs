//! For how long cycle markers stopped tasks, as a node says it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::server::Server;
use thalweg_harness::http::Connection;

/// The bound of `/metrics` that is next to a millisecond, in seconds.
pub(super) const WITHIN: f64 = 0.001_024;

/// How often cycle markers stopped tasks.
pub(super) struct Markers {
    pub(super) all: u64,
    /// Of these, for less than [`WITHIN`] by the clock.
    pub(super) short: u64,
    /// With less than [`WITHIN`] of processor time.
    pub(super) short_by_cpu: u64,
}

impl Markers {
    pub(super) fn of(server: &Server) -> Result<Self> {
        let text = page(server, "/metrics")?;
        let series = |name: &str, end: &str| {
            let values = text.lines().filter_map(|line| {
                let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.split_once("} ")?;
                labels.ends_with(end).then(|| value.parse::<f64>().ok())?
            });
            values.sum::<f64>() as u64
        };
        let within = format!("le=\"{WITHIN}\"");
        Ok(Self {
            all: series("thalweg_operator_marker_seconds_bucket", "le=\"+Inf\""),
            short: series("thalweg_operator_marker_seconds_bucket", &within),
            short_by_cpu: series("thalweg_operator_marker_cpu_seconds_bucket", &within),
        })
    }

    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            all: self.all - earlier.all,
            short: self.short - earlier.short,
            short_by_cpu: self.short_by_cpu - earlier.short_by_cpu,
        }
    }
}

/// The longest marker since the start of a job, by the clock and by processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Longest {
    pub(super) clock: Duration,
    pub(super) cpu: Duration,
}

impl Longest {
    pub(super) fn of(server: &Server, job: &str) -> Result<Self> {
        let text = page(server, &format!("/v1/jobs/{job}"))?;
        let job = serde_json::from_str(&text).context("read the live graph")?;
        Self::among(&job).context("the live graph has no markers")
    }

    fn among(job: &Value) -> Option<Self> {
        let most = |name: &str| {
            let seconds = job["operators"]
                .as_array()?
                .iter()
                .filter_map(|operator| operator[name]["max_seconds"].as_f64());
            seconds.reduce(f64::max).map(Duration::from_secs_f64)
        };
        Some(Self { clock: most("markers")?, cpu: most("marker_cpu")? })
    }
}

fn page(server: &Server, path: &str) -> Result<String> {
    let mut connection = Connection::open(server.address())?;
    let (status, body) = connection.get(path)?;
    let text = String::from_utf8_lossy(body).into_owned();
    ensure!(status == 200, "{path} was answered {status}: {text}");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_that_of_any_operator() {
        let job = serde_json::json!({"operators": [
            {"markers": null, "marker_cpu": null},
            {"markers": {"max_seconds": 0.5}, "marker_cpu": {"max_seconds": 0.001}},
            {"markers": {"max_seconds": 0.25}, "marker_cpu": {"max_seconds": 0.002}},
        ]});
        let expected = Longest { clock: Duration::from_millis(500), cpu: Duration::from_millis(2) };
        assert_eq!(Longest::among(&job), Some(expected));
        assert_eq!(Longest::among(&serde_json::json!({"operators": []})), None);
    }
}
