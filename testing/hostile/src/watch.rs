//! Observations of a monitor, and of a client that asks `SELECT 1`, while the node is attacked.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use thalweg_harness::http::Connection;

/// Between two questions.
const PACE: Duration = Duration::from_millis(250);

pub(super) struct Watch {
    stops: Arc<AtomicBool>,
    monitor: JoinHandle<Result<Times>>,
    asker: JoinHandle<Result<Times>>,
}

pub(super) struct Seen {
    health: Result<Times>,
    select: Result<Times>,
}

struct Times(Histogram<u64>);

impl Watch {
    pub(super) fn start(address: SocketAddr) -> Result<Self> {
        let stops = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stops);
        let monitor = thread::Builder::new().name("monitor".to_owned()).spawn(move || {
            every(&stop, || {
                // A monitor has a new connection each time.
                for path in ["/healthz", "/readyz"] {
                    let (status, body) = {
                        let mut connection = Connection::open(address).with_context(|| path.to_owned())?;
                        let (status, body) = connection.get(path).with_context(|| path.to_owned())?;
                        (status, String::from_utf8_lossy(body).into_owned())
                    };
                    ensure!(status == 200, "{path}: status {status}: {body}");
                }
                Ok(())
            })
        })?;
        let stop = Arc::clone(&stops);
        let mut connection = Connection::open(address)?;
        let asker = thread::Builder::new().name("asker".to_owned()).spawn(move || {
            every(&stop, || {
                let (status, body) = connection.post_text("/v1/sql?format=csv", b"SELECT 1 AS one")?;
                let body = String::from_utf8_lossy(body);
                ensure!(status == 200 && body.trim_end() == "one\n1", "SELECT 1: status {status}: {body}");
                Ok(())
            })
        })?;
        Ok(Self { stops, monitor, asker })
    }

    pub(super) fn stop(self) -> Result<Seen> {
        self.stops.store(true, Ordering::Relaxed);
        let ended = |thread: JoinHandle<Result<Times>>| {
            thread.join().map_err(|_| anyhow::anyhow!("a watching thread panicked"))
        };
        Ok(Seen { health: ended(self.monitor)?, select: ended(self.asker)? })
    }
}

/// Asks again and again; the first failure ends it.
fn every(stops: &AtomicBool, mut ask: impl FnMut() -> Result<()>) -> Result<Times> {
    let mut times = Histogram::new(3)?;
    while !stops.load(Ordering::Relaxed) {
        let from = Instant::now();
        ask().with_context(|| format!("question {}", times.len() + 1))?;
        times.record(from.elapsed().as_micros() as u64)?;
        thread::sleep(PACE);
    }
    Ok(Times(times))
}

impl Seen {
    /// Each look at both, one after the other, took at most this long.
    pub(super) fn health(&self, most: Duration) -> Result<()> {
        within(&self.health, 1.0, most)
    }

    /// Ninety-nine in a hundred answers were there in time: the machine itself may stop once.
    pub(super) fn select(&self, most: Duration) -> Result<()> {
        within(&self.select, 0.99, most)
    }
}

fn within(times: &Result<Times>, share: f64, most: Duration) -> Result<()> {
    let times = times.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
    ensure!(!times.0.is_empty(), "nothing was asked");
    let took = Duration::from_micros(times.0.value_at_quantile(share));
    ensure!(took <= most, "it took {took:?}, expected at most {most:?}");
    Ok(())
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, times) in [("health", &self.health), ("SELECT 1", &self.select)] {
            match times {
                Ok(Times(times)) => {
                    let at = |quantile| Duration::from_micros(times.value_at_quantile(quantile));
                    write!(
                        f,
                        "{name}: asked {} times, p50 {:?}, p99 {:?}, longest {:?}; ",
                        times.len(),
                        at(0.5),
                        at(0.99),
                        at(1.0)
                    )?;
                }
                Err(error) => write!(f, "{name}: {error:#}; ")?,
            }
        }
        Ok(())
    }
}
