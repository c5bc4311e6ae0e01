//! Queries that run, queries that wait, and the short try of those that find all places taken.
//!
//! Policy when all places are taken: a query waits in the order of arrival, for as long as a query may take, and is refused
//! if the line is full. Meanwhile it gets one short try ([`TRY`]) by a worker that is kept for that, so that a
//! quick query is answered at once, however many queries compute for long. Of those that want to try, the one that came
//! last is first: in a crowd some query is answered at once, and none loses its place in the line. A try gives out
//! nothing before its reply is whole; one that takes longer begins anew when a place is free.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thalweg_table::Catalog;
use thalweg_types::Class;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::sleep;

use super::call::{Call, Ended};
use super::counts::{Counts, Stopped};
use super::outlet::{Asker, Outlet};
use super::pool::{Kind, Pool};
use crate::admission::InLine;
use crate::limits::{Exceeded, Limits};
use crate::output::Format;

/// How long a short try may take, where it gets a processor: see [`Call::run`].
const TRY: Duration = Duration::from_millis(300);

/// Queries that want a try; one more, and the one that came first goes without.
const TRIERS: usize = 64;

/// Where queries come in.
pub(super) struct Desk {
    catalog: Arc<dyn Catalog>,
    limits: Limits,
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    tries: Option<Arc<Tries>>,
    pool: Arc<Pool>,
}

impl Desk {
    pub(super) fn new(catalog: Arc<dyn Catalog>, limits: Limits, is_node: bool, pool: Arc<Pool>) -> Self {
        let places = Arc::new(Semaphore::new(limits.queries.clamp(1, Semaphore::MAX_PERMITS)));
        let tries = is_node.then(Arc::default);
        Self { catalog, limits, places, waiting: AtomicUsize::new(0), tries, pool }
    }

    pub(super) fn counts(&self) -> Counts {
        self.pool.tallies.read()
    }

    /// Takes a query to its end, over the tables of another catalog where one is given.
    pub(super) async fn serve(
        self: Arc<Self>,
        catalog: Option<Arc<dyn Catalog>>,
        sql: String,
        format: Format,
        asker: Asker,
    ) {
        let call = |is_try: bool| Call {
            pool: &self.pool,
            catalog: catalog.as_ref().unwrap_or(&self.catalog),
            sql: &sql,
            format,
            time: if is_try { TRY } else { self.limits.time },
            patience: self.limits.time,
            is_try,
        };
        let mut asker = Some(asker);
        if let Some(_place) = self.enter(&call(true), &mut asker).await {
            ordinary(&call(false), &mut asker).await;
        }
    }

    /// A place to run; `None` where the query needs none any more.
    async fn enter(&self, call: &Call<'_>, asker: &mut Option<Asker>) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        let line = InLine::enter(&self.waiting, self.limits.waiting);
        let mut turn = self.tries.as_ref().map(Tries::enter);
        let mut place = std::pin::pin!(Arc::clone(&self.places).acquire_owned());
        let mut patience = std::pin::pin!(sleep(self.limits.time));
        loop {
            let gone = async {
                if let Some(asker) = asker.as_mut() {
                    asker.closed().await;
                }
            };
            let tried = tokio::select! {
                place = &mut place, if line.is_some() => return place.ok(),
                () = gone => return None,
                () = &mut patience => {
                    refuse(asker, Exceeded::Place { limit: self.limits.time });
                    return None;
                }
                turn = wait_for(&mut turn), if turn.is_some() => turn,
                else => None,
            };
            turn = None;
            if let Some(turn) = tried
                && quick(call, turn, asker).await
            {
                return None;
            }
            if line.is_none() {
                let (running, waiting) = (self.limits.queries, self.limits.waiting);
                refuse(asker, Exceeded::Waiting { running, waiting });
                return None;
            }
        }
    }
}

fn refuse(asker: &mut Option<Asker>, exceeded: Exceeded) {
    let _ = asker.take().map(|asker| asker.send(Err(exceeded.into_error())));
}

/// Runs a query that has a place.
async fn ordinary(call: &Call<'_>, asker: &mut Option<Asker>) {
    let worker = match call.pool.hire(Kind::Ordinary).await {
        Ok(worker) => worker,
        Err(error) => {
            let _ = asker.take().map(|asker| asker.send(Err(error)));
            return;
        }
    };
    let mut outlet = Outlet::Waiting(asker);
    let (ended, worker) = call.run(worker, &mut outlet).await;
    let why = if matches!(ended, Ended::Whole) { Stopped::Slow } else { Stopped::Reader };
    let ended = match ended {
        Ended::Whole => Some(Ok(())),
        Ended::Failed(error) | Ended::Stopped(error) => Some(Err(error)),
        Ended::Left | Ended::NeedsMore => None,
    };
    // Its place is taken until it has stopped, and its reply does not wait for that, nor it for the reader. Where it has stopped
    // already its worker is there for the next query before anybody knows the end of this one.
    let finish = async {
        if let Some(ended) = ended {
            outlet.finish(ended, call.patience).await;
        }
    };
    let settle = async {
        if let Some(worker) = worker {
            call.settle(worker, why).await;
        }
    };
    tokio::join!(settle, finish);
}

/// Runs a query for a short time; whether that was enough.
async fn quick(call: &Call<'_>, turn: Turn, asker: &mut Option<Asker>) -> bool {
    // A query with a place in the line learns there why workers do not start.
    let Ok(worker) = call.pool.hire(Kind::Express).await else { return false };
    let mut outlet = Outlet::held(asker);
    let (ended, worker) = call.run(worker, &mut outlet).await;
    let is_answered = match ended {
        Ended::Whole => {
            outlet.finish(Ok(()), call.patience).await;
            true
        }
        // What is wrong with its text stays wrong. A limit is another one in the line.
        Ended::Failed(error) if error.class() == Class::User && Exceeded::of(&error).is_none() => {
            outlet.finish(Err(error), call.patience).await;
            true
        }
        Ended::Left => true,
        Ended::Failed(_) | Ended::Stopped(_) | Ended::NeedsMore => false,
    };
    // There is another worker for the query that tries next.
    drop(turn);
    if let Some(worker) = worker {
        call.settle(worker, Stopped::Slow).await;
    }
    is_answered
}

/// The turn to try, once it comes; none where others came later, too many of them.
async fn wait_for(turn: &mut Option<oneshot::Receiver<Turn>>) -> Option<Turn> {
    match turn {
        Some(turn) => turn.await.ok(),
        None => None,
    }
}

/// The queries that want to try. One does at a time.
#[derive(Default)]
struct Tries(Mutex<Triers>);

#[derive(Default)]
struct Triers {
    is_taken: bool,
    /// Whoever came last is at the end.
    waiting: Vec<oneshot::Sender<Turn>>,
}

/// The right to try; goes to the next one when it is dropped.
struct Turn(Option<Arc<Tries>>);

impl Tries {
    fn enter(self: &Arc<Self>) -> oneshot::Receiver<Turn> {
        let (sender, turn) = oneshot::channel();
        let mut triers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        triers.waiting.push(sender);
        if triers.waiting.len() > TRIERS {
            triers.waiting.remove(0);
        }
        let is_free = !std::mem::replace(&mut triers.is_taken, true);
        drop(triers);
        if is_free {
            self.pass_on();
        }
        turn
    }

    /// Gives the turn to the query that came last of those that are still there.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut triers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let next = triers.waiting.pop();
                triers.is_taken = next.is_some();
                next
            };
            let Some(next) = next else { return };
            match next.send(Turn(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // It stays here, for the next one.
                Err(mut back) => drop(back.0.take()),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(tries) = self.0.take() {
            tries.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_tries_first_and_who_has_gone_is_passed_over() {
        let tries = Arc::new(Tries::default());
        let mut first = tries.enter();
        let turn = first.try_recv().expect("nobody else is there");
        let (mut second, third, mut fourth) = (tries.enter(), tries.enter(), tries.enter());
        assert!(fourth.try_recv().is_err());
        drop(turn);
        let turn = fourth.try_recv().expect("it came last");
        drop(third);
        assert!(second.try_recv().is_err());
        drop(turn);
        // A turn without a waiter goes on, too.
        drop(second);
        assert!(tries.enter().try_recv().is_ok());
    }

    #[test]
    fn a_crowd_has_a_bound() {
        let tries = Arc::new(Tries::default());
        let turn = tries.enter();
        let mut crowd: Vec<_> = (0..=TRIERS).map(|_| tries.enter()).collect();
        assert!(matches!(crowd[0].try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        drop(turn);
        assert!(crowd[TRIERS].try_recv().is_ok());
    }
}
