//! Requests over HTTP that leave on a fixed schedule, whether earlier ones were answered or not.
//!
//! A latency counts from the time at which the request was *meant* to leave. So a server that stalls is charged for
//! everything that would have come meanwhile (coordinated omission), and so is a load generator that is late.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;

use super::counters::Counters;
use super::server::Server;
use super::usage;
use thalweg_harness::http::Connection;

/// Seconds before the measured ones, which count for nothing.
pub(super) const WARM_UP: u32 = 3;

/// What was posted has to be worked off within this time.
const SETTLING: Duration = Duration::from_secs(600);

/// What is sent, and where to.
pub(super) struct Load<'a> {
    pub(super) path: &'a str,
    /// Requests a second.
    pub(super) rate: u32,
    /// Measured seconds.
    pub(super) seconds: u32,
    /// Connections that are kept alive.
    pub(super) connections: usize,
}

/// What came of it.
pub(super) struct Outcome {
    /// In nanoseconds, of the measured requests.
    pub(super) latencies: Histogram<u64>,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    /// What the server used, for all requests.
    pub(super) used: Counters,
    /// All requests, those of the warm-up too.
    pub(super) requests: u64,
}

impl Outcome {
    fn new() -> Self {
        Self {
            latencies: Histogram::new_with_bounds(1, 600_000_000_000, 3)
                .expect("ten minutes in nanoseconds to three digits are within what a histogram holds"),
            errors: 0,
            first_error: None,
            used: Counters::default(),
            requests: 0,
        }
    }

    fn error(&mut self, error: String) {
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }

    /// An error if a request had one.
    pub(super) fn must_have_no_errors(&self) -> Result<()> {
        match &self.first_error {
            None => Ok(()),
            Some(error) => bail!("{} errors, the first: {error}", self.errors),
        }
    }

    /// Of the measured requests.
    pub(super) fn quantile(&self, quantile: f64) -> String {
        milliseconds(self.latencies.value_at_quantile(quantile))
    }

    pub(super) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e6
    }
}

impl Load<'_> {
    /// Sends requests with the body that `record` makes of a number and of the time in milliseconds; `lacks` says what a reply
    /// lacks. Each connection takes the next request that is due.
    pub(super) fn run(
        &self,
        server: &Server,
        record: impl Fn(u64, u64) -> Vec<u8> + Sync,
        lacks: impl Fn(&[u8]) -> Option<String> + Sync,
    ) -> Result<Outcome> {
        let total = u64::from(self.rate) * u64::from(self.seconds + WARM_UP);
        let warm_up = u64::from(self.rate) * u64::from(WARM_UP);
        let interval = Duration::from_secs(1).as_nanos() as u64 / u64::from(self.rate.max(1));
        let next = AtomicU64::new(0);
        let before = server.counters()?;
        let start = Instant::now() + Duration::from_millis(200);
        let worker = || -> Result<Outcome> {
            usage::wake_up_promptly();
            let mut connection = Connection::open(server.address())?;
            let mut outcome = Outcome::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= total {
                    return Ok(outcome);
                }
                let due = start + Duration::from_nanos(interval * number);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let body = record(number, now().as_millis() as u64);
                let reply = connection.post(self.path, &[&body]);
                let took = due.elapsed();
                match reply {
                    Ok((200, answer)) => {
                        if let Some(error) = lacks(answer) {
                            outcome.error(error);
                        }
                    }
                    Ok((status, body)) => {
                        outcome.error(format!("{status} {}", String::from_utf8_lossy(body).trim_end()));
                    }
                    Err(error) => {
                        outcome.error(format!("{error:#}"));
                        connection = Connection::open(server.address())?;
                    }
                }
                if number >= warm_up {
                    outcome.latencies.saturating_record(took.as_nanos() as u64);
                }
            }
        };
        let outcomes = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.connections.max(1)).map(|_| scope.spawn(worker)).collect();
            let join =
                |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("a connection does not panic");
            threads.into_iter().map(join).collect::<Vec<_>>()
        });
        let mut all = Outcome::new();
        for outcome in outcomes {
            let outcome = outcome?;
            all.latencies.add(&outcome.latencies).context("add histograms")?;
            all.errors += outcome.errors;
            all.first_error = all.first_error.or(outcome.first_error);
        }
        all.used = server.counters()?.since(&before);
        all.requests = total;
        Ok(all)
    }
}

pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Where records of a source are posted.
pub(super) fn door(job: &str, source: &str, has_reply: bool) -> String {
    format!("/v1/jobs/{job}/sources/{source}{}", if has_reply { "" } else { "?reply=none" })
}

/// Posts bodies without waiting for answers, again as long as the server is full.
pub(super) fn post_all(server: &Server, path: &str, bodies: impl IntoIterator<Item = Vec<u8>>) -> Result<()> {
    let mut connection = Connection::open(server.address())?;
    for body in bodies {
        loop {
            match connection.post(path, &[&body])? {
                (202, _) => break,
                (429, _) => thread::sleep(Duration::from_millis(5)),
                (status, body) => bail!("records were answered {status}: {}", String::from_utf8_lossy(body)),
            }
        }
    }
    Ok(())
}

/// Posts one record with a reply: it comes after all that was posted before. A record that took too long is sent again.
pub(super) fn settle(server: &Server, path: &str, record: &[u8]) -> Result<()> {
    let begun = Instant::now();
    loop {
        let mut connection = Connection::open(server.address())?;
        match connection.post(path, &[record]) {
            Ok((200, _)) => return Ok(()),
            Ok((status, body)) if !matches!(status, 429 | 504) || begun.elapsed() > SETTLING => {
                bail!("a record was answered {status}: {}", String::from_utf8_lossy(body))
            }
            Err(error) if begun.elapsed() > SETTLING => return Err(error),
            Ok(_) | Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Another number for each number, evenly over all (SplitMix64).
pub(super) fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(super) fn milliseconds(nanoseconds: u64) -> String {
    format!("{:.3} ms", nanoseconds as f64 / 1e6)
}
