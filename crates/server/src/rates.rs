//! Rates out of counts: a look at all jobs once a second, kept to compare later looks with.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::snapshot::JobSnapshot;

/// How often jobs are looked at.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Two looks less than this apart say little.
const SHORTEST: Duration = Duration::from_millis(400);

#[derive(Default)]
pub(crate) struct Rates {
    /// The two last looks, older first. Held for moments.
    looks: Mutex<Vec<Arc<Look>>>,
}

struct Look {
    at: Instant,
    jobs: HashMap<String, JobSnapshot>,
}

/// The look that a job is compared with.
pub(crate) struct Base<'a> {
    pub(crate) job: &'a JobSnapshot,
    /// How long ago that was.
    pub(crate) age: Duration,
}

impl Rates {
    pub(crate) fn look(&self, at: Instant, jobs: Vec<JobSnapshot>) {
        let jobs = jobs.into_iter().map(|job| (job.name.clone(), job)).collect();
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.push(Arc::new(Look { at, jobs }));
        let surplus = looks.len().saturating_sub(2);
        looks.drain(..surplus);
    }

    /// Hands over the newest look at a job that is old enough.
    pub(crate) fn with_base<T>(
        &self,
        job: &str,
        now: Instant,
        work: impl FnOnce(Option<Base<'_>>) -> T,
    ) -> T {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let base = looks.iter().rev().find_map(|look| {
            let age = now.saturating_duration_since(look.at);
            let job = look.jobs.get(job).filter(|_| age >= SHORTEST)?;
            Some(Base { job, age })
        });
        work(base)
    }
}
