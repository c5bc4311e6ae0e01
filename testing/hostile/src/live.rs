//! The sender of the live job: a record at a time on one connection, each answer held against a recount.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use thalweg_harness::http::Connection;

/// Time between two records.
const PACE: Duration = Duration::from_millis(10);

/// Keys of its records.
const KEYS: u64 = 97;

/// Event time of the first record, in milliseconds.
const BEGIN: u64 = 1_700_000_000_000;

const PATH: &str = "/v1/jobs/live/sources/p";

pub(super) struct Live {
    stops: Arc<AtomicBool>,
    times: Arc<Mutex<Histogram<u64>>>,
    sender: JoinHandle<Result<Model>>,
}

/// What the job has to answer.
#[derive(Debug, Default)]
pub(super) struct Model {
    sent: u64,
    keys: BTreeMap<u64, Key>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Key {
    sum: u64,
    count: u64,
    most: u64,
}

/// Times from a record to its answer, in microseconds.
pub(super) struct Times(Histogram<u64>);

impl Live {
    pub(super) fn start(address: SocketAddr) -> Result<Self> {
        let mut connection = Connection::open(address)?;
        let stops = Arc::new(AtomicBool::new(false));
        let times = Arc::new(Mutex::new(Histogram::new(3)?));
        let (stop, measured) = (Arc::clone(&stops), Arc::clone(&times));
        let sender = thread::Builder::new().name("live".to_owned()).spawn(move || {
            let mut model = Model::default();
            while !stop.load(Ordering::Relaxed) {
                let from = Instant::now();
                model.send(&mut connection)?;
                let took = from.elapsed();
                let mut times = measured.lock().unwrap_or_else(PoisonError::into_inner);
                times.record(took.as_micros() as u64)?;
                drop(times);
                thread::sleep(PACE.saturating_sub(took));
            }
            Ok(model)
        })?;
        Ok(Self { stops, times, sender })
    }

    /// The times since the last call.
    pub(super) fn take_times(&self) -> Times {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = times.clone();
        times.reset();
        Times(taken)
    }

    /// Ends the sender. The error is the first record that was not taken, or not answered as a recount says.
    pub(super) fn stop(self) -> Result<Model> {
        self.stops.store(true, Ordering::Relaxed);
        self.sender.join().map_err(|_| anyhow::anyhow!("the sender of the live job panicked"))?
    }
}

impl Model {
    /// Sends a record of each key over a new connection.
    pub(super) fn go_on(mut self, address: SocketAddr) -> Result<()> {
        let mut connection = Connection::open(address)?;
        (0..KEYS).try_for_each(|_| self.send(&mut connection))
    }

    fn send(&mut self, connection: &mut Connection) -> Result<()> {
        let number = self.sent;
        let (key, value) = (number % KEYS, number.wrapping_mul(0x9e37_79b9) % 1_000);
        self.sent += 1;
        let state = self.keys.entry(key).or_default();
        state.sum += value;
        state.count += 1;
        state.most = state.most.max(value);
        // Ten milliseconds a record: all of them are within the hour.
        let (ts, name) = (BEGIN + number * 10, format!("k{key}"));
        let record = json!({ "ts": ts, "k": name, "v": value });
        let right = json!({
            "ts": ts, "k": name, "v": value,
            "all": { "s": state.sum, "n": state.count },
            "hour": { "n": state.count, "most": state.most },
        });
        let reply = connection.post(PATH, &[record.to_string().as_bytes()]);
        let (status, body) = reply.with_context(|| format!("record {number} of the live job"))?;
        let text = String::from_utf8_lossy(body);
        ensure!(status == 200, "record {number} of the live job: status {status}: {text}");
        let got: Value = serde_json::from_str(&text).with_context(|| format!("record {number}: {text}"))?;
        ensure!(got == right, "record {number} of the live job: expected {right}, got {got}");
        Ok(())
    }
}

impl Times {
    /// The 99th percentile is at most `least`, or `growth` times that of the quiet time.
    pub(super) fn is_near(&self, quiet: &Times, least: Duration, growth: u32) -> Result<()> {
        ensure!(self.0.len() >= 100, "only {} records were answered under attack", self.0.len());
        let most = least.max(quiet.tail() * growth);
        ensure!(self.tail() <= most, "p99 was {:?}, expected at most {most:?}", self.tail());
        Ok(())
    }

    fn tail(&self) -> Duration {
        Duration::from_micros(self.0.value_at_quantile(0.99))
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |quantile| Duration::from_micros(self.0.value_at_quantile(quantile));
        let most = Duration::from_micros(self.0.max());
        write!(f, "{} records, p50 {:?}, p99 {:?}, longest {most:?}", self.0.len(), at(0.5), at(0.99))
    }
}
