//! Counts of received and lost datagrams, from the engine's `/metrics`.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use thalweg_harness::http::Connection;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Datagrams that reached the source, those among them that found its queue full.
    pub(super) received: u64,
    pub(super) queue_full: u64,
    pub(super) kernel_drops: u64,
    /// Gaps between the numbers of those that were received.
    pub(super) gaps: u64,
}

impl Counters {
    pub(super) fn read(engine: SocketAddr) -> Result<Self> {
        let mut connection = Connection::open(engine)?;
        let (status, body) = connection.get("/metrics")?;
        ensure!(status == 200, "metrics were answered {status}");
        Self::parse(std::str::from_utf8(body)?)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut counters = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let place = match line.split_once('{') {
                Some(("thalweg_source_datagrams_total", _)) => &mut counters.received,
                Some(("thalweg_source_lost_datagrams_total", labels)) if labels.contains("queue_full") => {
                    &mut counters.queue_full
                }
                Some(("thalweg_source_kernel_drops_total", _)) => &mut counters.kernel_drops,
                Some(("thalweg_agent_lost_datagrams_total", _)) => &mut counters.gaps,
                _ => continue,
            };
            let value = line.rsplit(' ').next().unwrap_or_default();
            *place += value.parse::<u64>().with_context(|| format!("no count: {line}"))?;
        }
        Ok(counters)
    }
}

#[test]
fn counters_of_all_agents_add_up() {
    let text = "# TYPE thalweg_source_datagrams_total counter\n\
        thalweg_source_datagrams_total{job=\"crash\",source=\"switches\"} 7\n\
        thalweg_source_lost_datagrams_total{job=\"crash\",source=\"switches\",reason=\"queue_full\"} 2\n\
        thalweg_source_lost_datagrams_total{job=\"crash\",source=\"switches\",reason=\"not_allowed\"} 9\n\
        thalweg_source_kernel_drops_total{job=\"crash\",source=\"switches\"} 3\n\
        thalweg_agent_lost_datagrams_total{job=\"crash\",source=\"switches\",agent=\"10.0.0.1\"} 1\n\
        thalweg_agent_lost_datagrams_total{job=\"crash\",source=\"switches\",agent=\"10.0.0.2\"} 2\n";
    let expected = Counters { received: 7, queue_full: 2, kernel_drops: 3, gaps: 3 };
    assert_eq!(Counters::parse(text).unwrap(), expected);
}
