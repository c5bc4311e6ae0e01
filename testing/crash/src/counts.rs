//! What a run came to, and whether it has shown anything.

use std::fmt;

use anyhow::{Result, ensure};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// SIGKILLs, at any moment or at a call.
    pub(super) kills: u64,
    /// Of these, at a call that was named.
    pub(super) at_calls: u64,
    pub(super) cuts: u64,
    /// Runs that gave up after an error of ours.
    pub(super) errors: u64,
    /// How often what a job writes to has gone away.
    pub(super) outages: u64,
    /// Ends between a restart that found a commit and the first one that it made itself.
    pub(super) nested: u64,
    /// Kills and cuts that came after something was seen to be written.
    pub(super) at_work: u64,
    pub(super) restarts: u64,
    /// Restarts that found a committed cycle.
    pub(super) recovered: u64,
    /// Restarts that had to follow the order after it.
    pub(super) followed: u64,
    pub(super) rounds: u64,
    /// Records that were recounted.
    pub(super) records: u64,
    pub(super) mismatches: u64,
}

impl Counts {
    /// Ends of the engine that it did not choose.
    pub(super) fn crashes(&self) -> u64 {
        self.kills + self.cuts + self.errors
    }

    /// A run in which nothing was disturbed, or nothing recovered, has shown nothing. `has_outages`: what the job writes to
    /// should have gone away.
    pub(super) fn check(&self, has_outages: bool) -> Result<()> {
        ensure!(self.mismatches == 0, "{} mismatches", self.mismatches);
        ensure!(self.rounds > 0 && self.records > 0, "nothing was recounted");
        ensure!(self.at_work > 0, "no crash came while work was going on");
        ensure!(self.recovered > 0, "no restart found a committed cycle");
        // A power cut takes unsynced writes, and nobody waits for the order of a job that publishes nothing.
        ensure!(self.followed > 0 || self.cuts > 0, "no restart had an order to follow");
        ensure!(self.outages > 0 || !has_outages, "what the job writes to never went away");
        Ok(())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cycles={} kills={} at_calls={}", self.crashes(), self.kills, self.at_calls)?;
        write!(f, " power_cuts={} errors={} outages={}", self.cuts, self.errors, self.outages)?;
        write!(f, " nested={} at_work={}", self.nested, self.at_work)?;
        write!(f, " restarts={} recovered={} followed={}", self.restarts, self.recovered, self.followed)?;
        write!(f, " rounds={} records={} mismatches={}", self.rounds, self.records, self.mismatches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_shows_nothing_fails() {
        let good =
            Counts { rounds: 1, records: 1, at_work: 1, recovered: 1, followed: 1, ..Counts::default() };
        assert!(good.check(false).is_ok());
        assert!(good.check(true).is_err(), "no outage");
        assert!(Counts { outages: 1, ..good }.check(true).is_ok());
        for vacuous in [
            Counts { records: 0, ..good },
            Counts { at_work: 0, ..good },
            Counts { recovered: 0, ..good },
            Counts { followed: 0, ..good },
            Counts { mismatches: 1, ..good },
        ] {
            assert!(vacuous.check(false).is_err(), "{vacuous}");
        }
    }
}
