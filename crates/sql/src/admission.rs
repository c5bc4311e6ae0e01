//! Places to run, and the line in front of them.
//!
//! The policy when all places are taken: wait, in order of arrival, for as long as a query may take; when the line is
//! full: refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use thalweg_types::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::limits::{Exceeded, Limits};

/// Who may run, and how many wait.
#[derive(Debug)]
pub(crate) struct Admission {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    limits: (usize, usize, Duration),
}

/// One waiting query; leaves the line when it is dropped.
pub(crate) struct InLine<'a>(&'a AtomicUsize);

impl<'a> InLine<'a> {
    /// A place in the line, unless it is full.
    pub(crate) fn enter(waiting: &'a AtomicUsize, most: usize) -> Option<Self> {
        // A count that is too high for a moment refuses one query more, never one less.
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        let in_line = Self(waiting);
        (before < most).then_some(in_line)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission {
    pub(crate) fn new(limits: &Limits) -> Self {
        let running = limits.queries.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            places: Arc::new(Semaphore::new(running)),
            waiting: AtomicUsize::new(0),
            limits: (running, limits.waiting, limits.time),
        }
    }

    /// A place to run, held until the permit is dropped.
    ///
    /// # Errors
    /// [`Exceeded::Waiting`] where the line is full, [`Exceeded::Place`] where it took too long.
    pub(crate) async fn enter(&self) -> Result<OwnedSemaphorePermit, Error> {
        let (running, most, time) = self.limits;
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let Some(_in_line) = InLine::enter(&self.waiting, most) else {
            return Err(Exceeded::Waiting { running, waiting: most }.into_error());
        };
        match timeout(time, Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) => Err(Error::internal("the places of queries are closed")),
            Err(_) => Err(Exceeded::Place { limit: time }.into_error()),
        }
    }
}
