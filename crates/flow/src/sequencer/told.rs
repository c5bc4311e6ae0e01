//! A job that is told its order: its source says what comes, and when that was.
//!
//! What tasks get is a function of what is told, but for the places of markers and of commands that change nothing.
//! So the same log makes the same answers wherever and however often it is followed. Order numbers count markers too, and
//! are nobody's business outside of the process.
//!
//! The first number of a job is a tick, as in other jobs: at the time of what is told first. A run that goes on after a
//! commit has none of its own: operators would do for it what the log has them do later.

use std::sync::Arc;
use std::time::Duration;

use thalweg_types::{Error, Micros};

use super::{Pace, Sequencer};
use crate::{RawBlock, Told};

/// A job that is told nothing but the time has so many times longer cycles: there is little to read again, and a commit
/// has its price.
const QUIET: u32 = 6;

impl Sequencer {
    pub(super) fn take_told(&mut self, index: usize, now: Micros, event: Told) -> Result<(), Error> {
        if !self.options.is_told {
            return Err(Error::internal(format!(
                "source {:?} tells an order in a job that makes its own",
                self.feeds[index].name
            )));
        }
        self.clock.follow(now);
        if !std::mem::replace(&mut self.has_begun, true) && self.next == 0 {
            self.make_tick()?;
        }
        if !std::mem::replace(&mut self.has_news, true) {
            self.cycle = Pace(self.clock.steady());
        }
        match event {
            Told::Block(RawBlock { count: 0, .. }) => {}
            Told::Block(block) => self.number(index, block)?,
            Told::Tick => {
                let seq = self.next;
                self.feeds[index].source.ticked(seq);
                self.make_tick()?;
            }
            Told::Command(command) => self.make_command(Arc::new(command))?,
        }
        Ok(())
    }

    /// How long a cycle is; `None` where there is nothing to commit.
    pub(super) fn cycle_time(&self) -> Option<Duration> {
        let every = self.options.cycle.every?;
        match (self.options.is_told, self.has_news, self.cycle_records) {
            (false, ..) => Some(every),
            (true, false, _) => None,
            (true, true, 0) => Some(every.saturating_mul(QUIET)),
            (true, true, _) => Some(every),
        }
    }
}

pub(super) fn not_told(source: &str) -> Error {
    Error::internal(format!(
        "source {source:?} gives a block without its time in a job that is told its order"
    ))
}
