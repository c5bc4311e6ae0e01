//! What all attackers share: the target, the word to stop, and how often each kind of attack did its work.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::node::Node;
use super::{bombs, habits, queries};
use thalweg_harness::random::Random;

pub(super) struct Attack {
    pub(super) http: SocketAddr,
    pub(super) tcp: SocketAddr,
    pub(super) token: String,
    /// Connections of bad habits at once.
    pub(super) connections: usize,
    stops: AtomicBool,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// The first things that were allowed and should not have been.
    allowed: Mutex<Vec<String>>,
}

impl Attack {
    pub(super) fn new(node: &Node, connections: usize) -> Result<Self> {
        Ok(Self {
            http: node.address(),
            tcp: node.tcp(),
            token: node.token()?,
            connections,
            stops: AtomicBool::new(false),
            counts: Mutex::default(),
            allowed: Mutex::default(),
        })
    }

    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    pub(super) fn goes_on(&self) -> bool {
        !self.stops.load(Ordering::Relaxed)
    }

    /// Sleeps, but not beyond the end of the attack.
    pub(super) fn pause(&self, time: Duration) {
        let step = Duration::from_millis(20);
        let mut left = time;
        while self.goes_on() && !left.is_zero() {
            thread::sleep(left.min(step));
            left = left.saturating_sub(step);
        }
    }

    /// An attack of this kind was made.
    pub(super) fn count(&self, kind: &'static str) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
    }

    /// Something was allowed that must not be.
    pub(super) fn allowed(&self, what: String) {
        let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        if allowed.len() < 10 {
            allowed.push(what);
        }
    }

    pub(super) fn figures(&self) -> String {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let parts: Vec<String> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        format!("attacks: {}", parts.join(", "))
    }

    /// Every kind took place.
    pub(super) fn was_complete(&self) -> Result<()> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = habits::KINDS.iter().chain(&bombs::KINDS).chain(&queries::KINDS);
        let missing: Vec<&str> = kinds.copied().filter(|kind| !counts.contains_key(kind)).collect();
        ensure!(missing.is_empty(), "nothing was done of: {}", missing.join(", "));
        Ok(())
    }

    pub(super) fn refusals(&self) -> Result<()> {
        let allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        if allowed.is_empty() { Ok(()) } else { bail!("{}", allowed.join("; ")) }
    }
}

/// Attackers sit on other machines: their own work should take neither the node's processors nor those of the thread
/// that measures.
fn give_way() {
    // The calling thread alone, on Linux. Where it is refused they compete.
    let _ = rustix::process::setpriority_process(None, 19);
}

/// Starts all attackers, each with choices of its own.
pub(super) fn start(attack: &Arc<Attack>, random: &Random) -> Vec<JoinHandle<()>> {
    type Attacker = (&'static str, fn(&Attack, Random));
    let attackers: [Attacker; 9] = [
        ("habits-0", habits::hold),
        ("habits-1", habits::hold),
        ("habits-2", habits::hold),
        ("habits-3", habits::hold),
        ("bombs", bombs::throw),
        ("sql-0", queries::sql),
        ("sql-1", queries::sql),
        ("sql-2", queries::sql),
        ("windows", queries::windows),
    ];
    let spawn = |(name, run): Attacker| {
        let (attack, random) = (Arc::clone(attack), random.of(name, 0));
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                give_way();
                run(&attack, random);
            })
            .context("start an attacker")
    };
    attackers.into_iter().filter_map(|attacker| spawn(attacker).ok()).collect()
}
