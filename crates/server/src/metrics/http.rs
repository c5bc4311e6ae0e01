//! Counts of this server: requests, how long they took, connections.
//!
//! A fixed number of counters: labels are the routes of the table and the statuses that there are, so no client can
//! make series grow. Counters are relaxed atomics; a scrape sees each at a slightly different moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use super::text::Text;
use crate::figures::single;
use crate::route::ROUTES;

/// Statuses that we answer with; 499 is a client that went away. The last is for all others.
pub(crate) const STATUSES: [u16; 24] = [
    200, 201, 202, 204, 400, 401, 403, 404, 405, 408, 409, 413, 414, 415, 429, 431, 499, 500, 501, 502, 503,
    504, 507, 0,
];

const CLIENT_GONE: u16 = 499;

/// Upper bounds in microseconds. Dense around the promise of a millisecond.
const BOUNDS: [u64; 15] = [
    100, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
    5_000_000, 10_000_000,
];

pub(crate) struct Telemetry {
    /// By route, and one more for requests without a route.
    routes: Vec<RouteCounters>,
    in_flight: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) accepted: AtomicU64,
}

#[derive(Default)]
struct RouteCounters {
    statuses: [AtomicU64; STATUSES.len()],
    /// The last is above all bounds.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

/// A request that is being counted.
pub(crate) struct Counted<'a> {
    telemetry: &'a Telemetry,
    route: usize,
    started: Instant,
    status: u16,
}

impl Telemetry {
    pub(crate) fn new() -> Self {
        let routes = (0..=ROUTES.len()).map(|_| RouteCounters::default()).collect();
        Self {
            routes,
            in_flight: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
        }
    }

    pub(crate) fn begin(&self, route: usize, started: Instant) -> Counted<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Counted { telemetry: self, route, started, status: CLIENT_GONE }
    }

    /// Requests that are in work.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn write(&self, evicted: u64, text: &mut Text) {
        let labelled = || {
            let names = ROUTES.iter().map(|route| (route.method.as_str(), route.path)).chain([("", "none")]);
            self.routes.iter().zip(names)
        };
        text.family(&single::HTTP_REQUESTS);
        for (counters, (method, path)) in labelled() {
            for (status, counter) in STATUSES.iter().zip(&counters.statuses) {
                let count = counter.load(Ordering::Relaxed);
                if count > 0 {
                    let status = if *status == 0 { "other".to_owned() } else { status.to_string() };
                    text.series(&[("method", method), ("route", path), ("status", &status)], count);
                }
            }
        }
        text.family(&single::HTTP_DURATION);
        for (counters, (method, path)) in labelled() {
            let counts: Vec<u64> =
                counters.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
            let total: u64 = counts.iter().sum();
            if total == 0 {
                continue;
            }
            let mut below = 0;
            for (place, count) in counts.iter().enumerate() {
                below += count;
                let bound = match BOUNDS.get(place) {
                    Some(micros) => (*micros as f64 / 1e6).to_string(),
                    None => "+Inf".to_owned(),
                };
                text.part("_bucket", &[("method", method), ("route", path), ("le", &bound)], below);
            }
            let seconds = counters.nanos.load(Ordering::Relaxed) as f64 / 1e9;
            text.part("_sum", &[("method", method), ("route", path)], seconds);
            text.part("_count", &[("method", method), ("route", path)], total);
        }
        text.family(&single::HTTP_IN_FLIGHT);
        text.series(&[], self.in_flight());
        text.family(&single::HTTP_CONNECTIONS);
        text.series(&[], self.connections.load(Ordering::Relaxed));
        text.family(&single::HTTP_ACCEPTED);
        text.series(&[], self.accepted.load(Ordering::Relaxed));
        text.family(&single::HTTP_EVICTED);
        text.series(&[], evicted);
    }
}

impl Counted<'_> {
    pub(crate) fn end(mut self, status: StatusCode) {
        self.status = status.as_u16();
    }
}

/// Counts where the future is dropped, too.
impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let elapsed: Duration = self.started.elapsed();
        let counters = &self.telemetry.routes[self.route];
        let status = STATUSES.iter().position(|status| *status == self.status).unwrap_or(STATUSES.len() - 1);
        counters.statuses[status].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        counters.buckets[BOUNDS.partition_point(|bound| *bound < micros)].fetch_add(1, Ordering::Relaxed);
        counters.nanos.fetch_add(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.telemetry.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
