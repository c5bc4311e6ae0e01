//! Parts of a node that go on in steps, on threads of their own or by hand.
//!
//! A step is given the time and never waits for long: it does what there is to do, and says when it wants to be called next
//! at the latest. Its [`Bell`] calls it sooner. A thread is a loop around the steps of one actor ([`Actors::OnThreads`]);
//! a simulation calls the steps of many nodes, one at a time and in an order of its own ([`Actors::ByHand`]).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_flow::Clock;
use thalweg_types::{Error, Micros};

use crate::durable::new_run;

/// A part of a node that goes on in steps.
pub trait Actor: Send {
    /// Does what there is to do. `now` is of the steady face of the node's clock.
    fn step(&mut self, now: Micros) -> Next;
}

/// What an actor wants after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another step when its bell rings, and after this long at the latest.
    Within(Duration),
    /// None.
    Over,
}

/// Gives the numbers by which processes and doors are told apart.
pub type Ids = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What a part of a node has from outside.
#[derive(Clone)]
pub struct Outside {
    pub clock: Arc<dyn Clock>,
    pub ids: Ids,
}

/// Numbers that no other process has.
pub fn random_ids() -> Ids {
    Arc::new(new_run)
}

/// What passes between two moments of a steady clock.
pub(super) fn since(then: Micros, now: Micros) -> Duration {
    Duration::from_micros(now.saturating_sub(then).max(0).unsigned_abs())
}

/// A duration as clocks count it.
pub(super) fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}

/// Calls an actor; rung while that works, it does not sleep after that.
#[derive(Debug, Default)]
pub struct Bell {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        *self.lock() = true;
        self.changed.notify_one();
    }

    /// What rings it.
    pub(super) fn wake(self: &Arc<Self>) -> thalweg_kafka::Wake {
        let bell = Arc::clone(self);
        Arc::new(move || bell.ring())
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, at_most: Duration) {
        let waited = self.changed.wait_timeout_while(self.lock(), at_most, |is_rung| !*is_rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }

    fn answer(&self) {
        *self.lock() = false;
    }
}

/// Calls an actor until it is over.
pub fn drive(clock: &dyn Clock, bell: &Bell, actor: &mut dyn Actor) {
    while let Next::Within(wait) = actor.step(clock.read().steady) {
        bell.wait(wait);
    }
}

/// Who calls the actors of a node.
#[derive(Clone, Debug, Default)]
pub enum Actors {
    /// A thread for each.
    #[default]
    OnThreads,
    /// Whoever has the list.
    ByHand(Arc<ByHand>),
}

/// An actor that was started. Whoever drops it leaves the actor alone.
#[derive(Debug)]
pub(super) enum Started {
    Thread(JoinHandle<()>),
    ByHand { list: Arc<ByHand>, number: u64, clock: ByHandClock },
}

/// A clock that can be shown.
pub(super) struct ByHandClock(Arc<dyn Clock>);

impl fmt::Debug for ByHandClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a clock")
    }
}

impl Actors {
    /// Has an actor called until it is over; `bell` calls it sooner.
    ///
    /// # Errors
    /// A lack of threads.
    pub(super) fn start(
        &self,
        name: String,
        clock: &Arc<dyn Clock>,
        bell: Arc<Bell>,
        mut actor: impl Actor + 'static,
    ) -> Result<Started, Error> {
        match self {
            Self::OnThreads => {
                let clock = Arc::clone(clock);
                let run = move || drive(&*clock, &bell, &mut actor);
                let spawned = std::thread::Builder::new().name(name).spawn(run);
                let spawned = spawned.map_err(|error| Error::external("start a thread").with_source(error));
                Ok(Started::Thread(spawned?))
            }
            Self::ByHand(list) => {
                let number = list.add(name, bell, Box::new(actor));
                let (list, clock) = (Arc::clone(list), ByHandClock(Arc::clone(clock)));
                Ok(Started::ByHand { list, number, clock })
            }
        }
    }
}

impl Started {
    /// Whether the actor is over.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Thread(thread) => thread.is_finished(),
            Self::ByHand { list, number, .. } => !list.lock().running.contains_key(number),
        }
    }

    /// Waits until the actor is over, which was told to end.
    pub(super) fn join(self) {
        match self {
            Self::Thread(thread) => {
                let _ = thread.join();
            }
            Self::ByHand { list, number, clock } => {
                let Some(running) = list.take(number) else { return };
                let mut actor = running.actor.lock().unwrap_or_else(PoisonError::into_inner);
                while let Next::Within(_) = actor.step(clock.0.read().steady) {}
            }
        }
    }
}

/// The actors of a node that somebody calls by hand.
#[derive(Default)]
pub struct ByHand(Mutex<List>);

#[derive(Default)]
struct List {
    running: BTreeMap<u64, Running>,
    next: u64,
}

#[derive(Clone)]
struct Running {
    name: Arc<str>,
    bell: Arc<Bell>,
    due: Micros,
    actor: Arc<Mutex<Box<dyn Actor>>>,
}

impl fmt::Debug for ByHand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock().running.values().map(|running| &*running.name)).finish()
    }
}

impl ByHand {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, name: String, bell: Arc<Bell>, actor: Box<dyn Actor>) -> u64 {
        let mut list = self.lock();
        let number = list.next;
        list.next += 1;
        let running =
            Running { name: name.into(), bell, due: Micros::MIN, actor: Arc::new(Mutex::new(actor)) };
        list.running.insert(number, running);
        number
    }

    fn take(&self, number: u64) -> Option<Running> {
        self.lock().running.remove(&number)
    }

    /// The actors that want a step by now, in the order in which they were started.
    pub fn due(&self, now: Micros) -> Vec<(u64, Arc<str>)> {
        let list = self.lock();
        let due = list.running.iter().filter(|(_, running)| running.due <= now || *running.bell.lock());
        due.map(|(number, running)| (*number, Arc::clone(&running.name))).collect()
    }

    /// When the next of them wants one that does not want it by now; `None` where there is none.
    pub fn next_due(&self) -> Option<Micros> {
        self.lock().running.values().map(|running| running.due).min()
    }

    /// Has one go a step; whether it was there.
    pub fn step(&self, number: u64, now: Micros) -> bool {
        let Some(running) = self.lock().running.get(&number).cloned() else { return false };
        running.bell.answer();
        let next = running.actor.lock().unwrap_or_else(PoisonError::into_inner).step(now);
        let mut list = self.lock();
        match next {
            // It may have been waited for meanwhile.
            Next::Within(wait) => {
                if let Some(running) = list.running.get_mut(&number) {
                    running.due = now.saturating_add(micros(wait));
                }
            }
            Next::Over => {
                let over = list.running.remove(&number);
                drop(list);
                drop(over);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use thalweg_flow::ManualClock;

    use super::*;

    struct Counting {
        steps: Arc<Mutex<Vec<Micros>>>,
        left: usize,
    }

    impl Actor for Counting {
        fn step(&mut self, now: Micros) -> Next {
            self.steps.lock().unwrap().push(now);
            self.left -= 1;
            if self.left == 0 { Next::Over } else { Next::Within(Duration::from_micros(10)) }
        }
    }

    #[test]
    fn an_actor_by_hand_is_due_when_it_said_so_or_when_its_bell_rings_and_is_gone_once_it_is_over() {
        let list = Arc::new(ByHand::default());
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(0));
        let (bell, steps) = (Arc::<Bell>::default(), Arc::default());
        let actor = Counting { steps: Arc::clone(&steps), left: 4 };
        let actors = Actors::ByHand(Arc::clone(&list));
        let started = actors.start("one".to_owned(), &clock, Arc::clone(&bell), actor).unwrap();
        let due = |now| list.due(now).iter().map(|(number, _)| *number).collect::<Vec<u64>>();
        assert_eq!(due(0), [0], "at once");
        assert!(list.step(0, 0));
        assert_eq!((due(9), list.next_due()), (vec![], Some(10)));
        bell.ring();
        assert_eq!(due(9), [0]);
        assert!(list.step(0, 9));
        assert_eq!((due(18), due(19)), (vec![], vec![0]));
        assert!(!started.is_over());
        started.join();
        assert_eq!((steps.lock().unwrap().len(), due(99)), (4, vec![]));
        assert!(!list.step(0, 99));
    }

    #[test]
    fn an_actor_on_a_thread_sleeps_between_its_steps_until_the_bell_rings() {
        struct Waiting(Arc<Mutex<usize>>);
        impl Actor for Waiting {
            fn step(&mut self, _: Micros) -> Next {
                let mut steps = self.0.lock().unwrap();
                *steps += 1;
                if *steps == 3 { Next::Over } else { Next::Within(Duration::from_secs(3_600)) }
            }
        }
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(0));
        let (bell, steps) = (Arc::<Bell>::default(), Arc::default());
        let actor = Waiting(Arc::clone(&steps));
        let started = Actors::OnThreads.start("one".to_owned(), &clock, Arc::clone(&bell), actor).unwrap();
        while !started.is_over() {
            bell.ring();
            std::thread::yield_now();
        }
        started.join();
        assert_eq!(*steps.lock().unwrap(), 3);
    }
}
