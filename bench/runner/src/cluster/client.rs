//! Payments with ids, which are sent again until they are answered, at a fixed rate or as fast as they are taken.
//!
//! A latency counts from the time at which the payment was *meant* to leave until it is answered, its repeats included.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use serde_json::Value;

use super::nodes::JOB;
use crate::load::{WARM_UP, door, mixed};
use crate::usage;
use thalweg_harness::http::Connection;

/// Event time of the first payment; each is a millisecond after the one before.
const BASE: u64 = 1_767_225_600_000;

/// Numbers of payments that come between those of a load, one of each card.
const PROBES: u64 = 1 << 40;

/// Cards and shops that are asked whether they answer: so many that each partition has some.
pub(super) const PROBED: u64 = 128;

/// No payment may have to be sent again for longer.
const PATIENCE: Duration = Duration::from_secs(300);

const PAUSE: Duration = Duration::from_millis(20);

/// Records of one request without a reply, and requests on their way at once.
pub(super) const BATCH: u64 = 500;
const SENDERS: usize = 8;

pub(super) const CONNECTIONS: usize = 64;

/// Payments of so many cards, and what was sent of them. Doors come and go.
pub(super) struct Payments {
    cards: u64,
    doors: RwLock<Vec<SocketAddr>>,
    next: AtomicU64,
    next_probe: AtomicU64,
}

/// What came of some payments.
pub(super) struct Outcome {
    /// In nanoseconds, of the measured ones.
    pub(super) latencies: Histogram<u64>,
    pub(super) requests: u64,
    pub(super) repeats: u64,
    /// Replies that say that the outcome is not known.
    pub(super) unknown: u64,
}

/// Counts that are not those of the recount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub(super) lost: u64,
    pub(super) double: u64,
}

impl Outcome {
    fn new() -> Self {
        Self {
            latencies: Histogram::new_with_bounds(1, 600_000_000_000, 3)
                .expect("ten minutes in nanoseconds to three digits are within what a histogram holds"),
            requests: 0,
            repeats: 0,
            unknown: 0,
        }
    }

    pub(super) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e6
    }
}

/// A client's connections, one to each door that it has sent to.
#[derive(Default)]
struct Connections(BTreeMap<SocketAddr, Connection>);

impl Connections {
    fn post(&mut self, door: SocketAddr, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>)> {
        let mut connection = match self.0.remove(&door) {
            Some(connection) => connection,
            None => Connection::open(door)?,
        };
        let (status, reply) = connection.post(path, &[body])?;
        let reply = (status, reply.to_vec());
        self.0.insert(door, connection);
        Ok(reply)
    }
}

impl Payments {
    pub(super) fn new(cards: u64, doors: Vec<SocketAddr>) -> Self {
        let (next, next_probe) = (AtomicU64::new(0), AtomicU64::new(PROBES));
        Self { cards: cards.max(PROBED), doors: RwLock::new(doors), next, next_probe }
    }

    /// Where payments go from now on.
    pub(super) fn set_doors(&self, doors: Vec<SocketAddr>) {
        *self.doors.write().expect("nobody panics with the doors") = doors;
    }

    fn door(&self, number: u64) -> SocketAddr {
        let doors = self.doors.read().expect("nobody panics with the doors");
        doors[(number % doors.len() as u64) as usize]
    }

    fn card(&self, number: u64) -> u64 {
        number.checked_sub(PROBES).map_or_else(|| mixed(number) % self.cards, |probe| probe % PROBED)
    }

    fn record(&self, number: u64) -> String {
        let (card, noise) = (self.card(number), mixed(!number));
        let shop = if number < PROBES { noise % PROBED } else { card };
        let (ts, amount) = (BASE + number % PROBES, 1 + noise / 7 % 10_000);
        format!(
            "{{\"tx\":\"t{number}\",\"ts\":{ts},\"card\":\"c{card}\",\"shop\":\"s{shop}\",\"amount\":{amount}}}\n"
        )
    }

    /// Sends a payment until it is answered: how many there are of its card.
    fn settle(
        &self,
        number: u64,
        connections: &mut Connections,
        outcome: &mut Outcome,
    ) -> Result<Option<u64>> {
        let (path, record, begun) = (door(JOB, "payments", true), self.record(number), Instant::now());
        for attempt in 0.. {
            outcome.requests += 1;
            outcome.repeats += u64::from(attempt > 0);
            let reply = connections.post(self.door(number.wrapping_add(attempt)), &path, record.as_bytes());
            match reply {
                Ok((200, text)) => {
                    let answer: Value = serde_json::from_slice(&text)
                        .with_context(|| format!("read {:?}", String::from_utf8_lossy(&text)))?;
                    if answer.get("error").is_none() {
                        ensure!(answer.get("late").is_none_or(Value::is_null), "late: {answer}");
                        return Ok(answer["by_card"]["n"].as_u64());
                    }
                    outcome.unknown += 1;
                }
                Ok((504, _)) => outcome.unknown += 1,
                // The door has no place, does not take records yet or any more, or is gone.
                Ok((404 | 429 | 503, _)) | Err(_) => {}
                Ok((status, text)) => bail!("{status} {}", String::from_utf8_lossy(&text)),
            }
            ensure!(begun.elapsed() < PATIENCE, "not answered within {PATIENCE:?}: {record}");
            thread::sleep(PAUSE);
        }
        bail!("more attempts than there are numbers")
    }

    /// Sends payments on a schedule, whether earlier ones were answered or not, as far as connections go.
    pub(super) fn at_rate(&self, rate: u32, seconds: u32) -> Result<Outcome> {
        let count = u64::from(rate) * u64::from(seconds + WARM_UP);
        let warm_up = u64::from(rate) * u64::from(WARM_UP);
        let (first, taken) = (self.next.fetch_add(count, Ordering::Relaxed), AtomicU64::new(0));
        let interval = Duration::from_secs(1).as_nanos() as u64 / u64::from(rate.max(1));
        let start = Instant::now() + Duration::from_millis(200);
        let client = || -> Result<Outcome> {
            usage::wake_up_promptly();
            let (mut connections, mut outcome) = (Connections::default(), Outcome::new());
            loop {
                let number = taken.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(outcome);
                }
                let due = start + Duration::from_nanos(interval * number);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                self.settle(first + number, &mut connections, &mut outcome)?;
                if number >= warm_up {
                    outcome.latencies.saturating_record(due.elapsed().as_nanos() as u64);
                }
            }
        };
        all(CONNECTIONS, client)
    }

    /// Sends payments in large requests without replies, as fast as the doors take them.
    pub(super) fn at_once(&self, count: u64) -> Result<()> {
        let (first, taken) = (self.next.fetch_add(count, Ordering::Relaxed), AtomicU64::new(0));
        let path = door(JOB, "payments", false);
        let client = || -> Result<Outcome> {
            let mut connections = Connections::default();
            loop {
                let from = taken.fetch_add(BATCH, Ordering::Relaxed);
                if from >= count {
                    return Ok(Outcome::new());
                }
                let numbers = first + from..first + count.min(from + BATCH);
                let body: String = numbers.map(|number| self.record(number)).collect();
                loop {
                    match connections.post(self.door(from / BATCH), &path, body.as_bytes())? {
                        (202, _) => break,
                        (429, _) => thread::sleep(Duration::from_millis(2)),
                        (status, text) => {
                            bail!("records were answered {status}: {}", String::from_utf8_lossy(&text))
                        }
                    }
                }
            }
        };
        all(SENDERS, client).map(|_| ())
    }

    /// How long it takes from now until a payment of each card that is asked, and of each shop, is answered.
    pub(super) fn all_answer(&self) -> Result<Duration> {
        let begun = Instant::now();
        let last = self.next_probe.load(Ordering::Relaxed) + PROBED;
        all(CONNECTIONS, || {
            let (mut connections, mut outcome) = (Connections::default(), Outcome::new());
            loop {
                let number = self.next_probe.fetch_add(1, Ordering::Relaxed);
                if number >= last {
                    self.next_probe.fetch_min(last, Ordering::Relaxed);
                    return Ok(outcome);
                }
                self.settle(number, &mut connections, &mut outcome)?;
            }
        })?;
        Ok(begun.elapsed())
    }

    /// Compares one more payment of each card that is asked with all that were sent.
    pub(super) fn recount(&self) -> Result<Mismatch> {
        let (next, probes) = (self.next.load(Ordering::Relaxed), self.next_probe.load(Ordering::Relaxed));
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for number in (0..next).chain(PROBES..probes) {
            *counts.entry(self.card(number)).or_default() += 1;
        }
        let (mut connections, mut outcome) = (Connections::default(), Outcome::new());
        let mut mismatch = Mismatch::default();
        for _ in 0..PROBED {
            let number = self.next_probe.fetch_add(1, Ordering::Relaxed);
            let found = self.settle(number, &mut connections, &mut outcome)?;
            let found =
                found.with_context(|| format!("no count in the answer to {}", self.record(number)))?;
            let expected = counts.get(&self.card(number)).copied().unwrap_or(0) + 1;
            mismatch.lost += expected.saturating_sub(found);
            mismatch.double += found.saturating_sub(expected);
        }
        Ok(mismatch)
    }

    /// An error where payments are lost or counted twice.
    pub(super) fn must_be_exact(&self) -> Result<()> {
        let found = self.recount()?;
        ensure!(found == Mismatch::default(), "expected every payment once, got {found:?}");
        Ok(())
    }
}

/// What clients come to that run at the same time.
fn all(count: usize, client: impl Fn() -> Result<Outcome> + Sync) -> Result<Outcome> {
    let outcomes = thread::scope(|scope| {
        let clients: Vec<_> = (0..count).map(|_| scope.spawn(&client)).collect();
        let join = |client: thread::ScopedJoinHandle<'_, _>| client.join().expect("a client does not panic");
        clients.into_iter().map(join).collect::<Vec<Result<Outcome>>>()
    });
    let mut all = Outcome::new();
    for outcome in outcomes {
        let outcome = outcome?;
        all.latencies.add(&outcome.latencies).context("add histograms")?;
        all.requests += outcome.requests;
        all.repeats += outcome.repeats;
        all.unknown += outcome.unknown;
    }
    Ok(all)
}
