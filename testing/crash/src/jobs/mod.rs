//! The jobs that are killed. Each feeds the engine, and recounts from what it fed.
//!
//! Recounts are naive on purpose and share no code with the engine: they read inputs and outputs by themselves, and
//! compare every value.
//!
//! A new job is a module here that implements [`Job`], and a line in [`KINDS`].

mod answers;
mod clients;
mod elements;
mod files;
mod grown;
mod http;
mod kafka;
mod payments;
mod postgres;
mod rejects;
mod samples;
mod sql;
mod table;
mod windows;

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use super::counts::{Outages, Wanted};
use super::decide::Tuning;
use super::disk::Found;
use super::engine::Engine;
use super::ledger::Ledger;
use thalweg_harness::random::Random;

/// Makes one round with fresh input.
pub(super) type Make = Box<dyn Fn(&Setting<'_>) -> Result<Box<dyn Job>>>;

/// A kind of job.
pub(super) struct Kind {
    pub(super) name: &'static str,
    setup: Setup,
    /// What a run of it has to show.
    pub(super) wanted: Wanted,
    /// Crashes in the suite, where they take so much time that it has a number of its own.
    pub(super) share: Option<u64>,
}

enum Setup {
    /// It needs nothing else.
    Alone(fn(&Setting<'_>) -> Result<Box<dyn Job>>),
    /// It needs a service that all rounds share; the inner error says why it is missing.
    Beside(fn() -> Result<Result<Make, String>>),
}

impl Kind {
    const fn alone(name: &'static str, make: fn(&Setting<'_>) -> Result<Box<dyn Job>>) -> Self {
        Self { name, setup: Setup::Alone(make), wanted: Wanted::CRASHES, share: None }
    }

    /// What makes its rounds; the inner error says why it cannot run here.
    pub(super) fn open(&self) -> Result<Result<Make, String>> {
        match self.setup {
            Setup::Alone(make) => Ok(Ok(Box::new(make))),
            Setup::Beside(open) => open(),
        }
    }
}

pub(super) static KINDS: [Kind; 11] = [
    Kind::alone("files", files::whole),
    Kind::alone("follow", files::followed),
    Kind::alone("http", http::posted),
    Kind::alone("windows", windows::asked),
    Kind::alone("answers", answers::repeated),
    Kind::alone("elements", elements::kept),
    Kind::alone("table", table::stored),
    Kind::alone("samples", samples::received),
    Kind {
        name: "postgres",
        setup: Setup::Beside(postgres::open),
        wanted: Wanted { outages: true, moments: true, repeats: false },
        share: None,
    },
    Kind {
        name: "kafka",
        setup: Setup::Beside(kafka::by_positions),
        wanted: Wanted { outages: true, moments: true, repeats: true },
        share: Some(KAFKA_SHARE),
    },
    Kind {
        name: "kafka-transactions",
        setup: Setup::Beside(kafka::by_transactions),
        wanted: Wanted { outages: true, moments: true, repeats: false },
        share: Some(KAFKA_SHARE),
    },
];

/// A round has this many; each takes seconds, as a broker takes them to come back.
const KAFKA_SHARE: u64 = 8;

pub const NAMES: [&str; 11] = [
    "files",
    "follow",
    "http",
    "windows",
    "answers",
    "elements",
    "table",
    "samples",
    "postgres",
    "kafka",
    "kafka-transactions",
];

/// Where a round takes place.
pub(super) struct Setting<'a> {
    /// The program.
    pub(super) binary: &'a Path,
    /// For inputs.
    pub(super) folder: &'a Path,
    /// For the files of sinks. The data directory is next to them.
    pub(super) disk: &'a Path,
    pub(super) random: Random,
    /// Number of the round, from 0 on.
    pub(super) round: u64,
    /// Power is cut, too: only synced writes can be expected.
    pub(super) power: bool,
}

pub(super) trait Job {
    /// The job file for one start.
    fn job_file(&self, tuning: &Tuning) -> Value;

    /// The files of sinks, by name.
    fn sinks(&self) -> &[(String, PathBuf)];

    /// Sources that have a journal.
    fn journals(&self) -> &'static [&'static str] {
        &[]
    }

    /// It listens, and is asked to end when it was fed; otherwise it ends with its input.
    fn is_served(&self) -> bool {
        false
    }

    /// Whether it is ended before its input is through. One that is not shows the output without a crash.
    fn is_disturbed(&self) -> bool {
        true
    }

    /// How many starts of a round are disturbed; the next one runs to its end.
    fn disturbed_starts(&self) -> u64 {
        16
    }

    /// A sink of it commits a cycle elsewhere before the commit record names the cycle, or a source of it does so
    /// after: every other start of the engine is disturbed right before or after a commit record.
    fn commits_elsewhere(&self) -> bool {
        false
    }

    /// Whether the engine has to be asked to end once all input was given.
    fn is_drained(&self) -> bool {
        self.is_served()
    }

    /// Called before each start of the engine.
    ///
    /// # Errors
    /// What keeps it from being started.
    fn starting(&mut self) -> Result<()> {
        Ok(())
    }

    /// The engine runs, and listens where it does that.
    ///
    /// # Errors
    /// What keeps it from being fed.
    fn started(&mut self, _: &Engine) -> Result<()> {
        Ok(())
    }

    /// Called again and again while the engine runs.
    ///
    /// # Errors
    /// What keeps it from being fed.
    fn feed(&mut self) -> Result<()> {
        Ok(())
    }

    /// All input has been given.
    fn is_fed(&self) -> bool {
        true
    }

    /// The engine has ended, whatever way.
    ///
    /// # Errors
    /// An answer that was wrong.
    fn stopped(&mut self) -> Result<()> {
        Ok(())
    }

    /// How often what it writes to has gone away.
    fn outages(&self) -> Outages {
        Outages::default()
    }

    /// Whether the engine may end by itself with what it has said, as what the job reads from or writes to was away when it
    /// started.
    fn may_refuse(&self, _said: &str) -> bool {
        false
    }

    /// How many rows were there twice that a reader has to drop, as the recount has found.
    fn repeats(&self) -> u64 {
        0
    }

    /// Checks the output against the input, once the engine has ended by itself; returns the number of records.
    ///
    /// # Errors
    /// What differs.
    fn recount(&mut self, found: &Found, ledger: &Ledger) -> Result<u64>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_can_be_asked_for() {
        assert_eq!(KINDS.each_ref().map(|kind| kind.name), NAMES);
    }
}
