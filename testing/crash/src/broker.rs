//! A Kafka broker that a job reads from and writes to, and that goes away and comes back while it does.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use thalweg_harness::service::Found;
use thalweg_harness::service::kafka::{self, Broker, Release};

/// No broker takes longer to come up, on a machine with much to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// One that was asked to end and has not done so after this time is killed.
const GRACE: Duration = Duration::from_secs(20);

/// How it goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outage {
    /// SIGKILL, and a start after a while.
    Kill,
    /// SIGSTOP for a while: connections stay and are not answered.
    Pause,
    /// SIGTERM, and a start once it has ended.
    Stop,
}

/// One broker for all rounds.
pub(super) struct MortalBroker {
    broker: Broker,
    state: State,
}

enum State {
    /// Started, not necessarily up.
    Runs,
    /// Goes on at this time.
    Paused(Instant),
    /// Was killed; started at this time.
    Down(Instant),
    /// Was asked to end, at the second time; started again once it has ended and the first time has come.
    Ends(Instant, Instant),
}

thread_local! {
    /// That of the jobs that have one now.
    static SHARED: RefCell<Weak<RefCell<MortalBroker>>> = const { RefCell::new(Weak::new()) };
}

impl MortalBroker {
    /// The one that a job of this run has started, else a fresh one; `Err` of the inner kind says why there is none.
    ///
    /// Its process ends with the thread that has started it.
    pub(super) fn shared() -> Result<Result<Rc<RefCell<Self>>, String>> {
        SHARED.with_borrow_mut(|shared| {
            if let Some(broker) = shared.upgrade() {
                return Ok(Ok(broker));
            }
            if let Found::Missing(reason) = kafka::find(Release::Steady)? {
                return Ok(Err(reason));
            }
            let broker = Broker::start(Release::Steady, &std::env::temp_dir()).context("start a broker")?;
            let broker = Rc::new(RefCell::new(Self { broker, state: State::Runs }));
            *shared = Rc::downgrade(&broker);
            Ok(Ok(broker))
        })
    }

    pub(super) fn address(&self) -> String {
        self.broker.address()
    }

    /// Whether it was started and nothing has ended or paused it since.
    pub(super) fn runs(&self) -> bool {
        matches!(self.state, State::Runs)
    }

    /// Lets it go away for at least this long.
    pub(super) fn go_away(&mut self, outage: Outage, away: Duration) {
        if !self.runs() {
            return;
        }
        let now = Instant::now();
        self.state = match outage {
            Outage::Kill => {
                self.broker.kill();
                State::Down(now + away)
            }
            Outage::Pause => {
                self.broker.pause();
                State::Paused(now + away)
            }
            Outage::Stop => {
                self.broker.ask_to_end();
                State::Ends(now + away, now)
            }
        };
    }

    /// Lets it come back where the time has come for it; called again and again.
    pub(super) fn look(&mut self) -> Result<()> {
        let now = Instant::now();
        match self.state {
            State::Paused(until) if now >= until => {
                self.broker.resume();
                self.state = State::Runs;
            }
            State::Down(until) if now >= until => {
                self.broker.launch()?;
                self.state = State::Runs;
            }
            State::Ends(until, asked) if now >= until => {
                let before = self.broker.id();
                self.broker.launch()?;
                if self.broker.id() != before {
                    self.state = State::Runs;
                } else if now >= asked + GRACE {
                    self.broker.kill();
                    self.state = State::Down(now);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits until it answers.
    pub(super) fn bring_up(&mut self) -> Result<()> {
        let from = Instant::now();
        loop {
            self.look()?;
            if self.runs() {
                let before = self.broker.id();
                self.broker.launch()?;
                ensure!(self.broker.id() == before, "the broker has ended by itself: {}", self.said());
                if self.broker.is_up() {
                    return Ok(());
                }
            }
            ensure!(from.elapsed() < PATIENCE, "the broker is not up within {PATIENCE:?}: {}", self.said());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The end of its output.
    fn said(&self) -> String {
        let said = std::fs::read_to_string(self.broker.log()).unwrap_or_default();
        let lines: Vec<&str> = said.lines().rev().take(10).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}
