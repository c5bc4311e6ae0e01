//! What a run came to, and whether it has shown anything.

use std::fmt;

use anyhow::{Result, ensure};

/// How often what a job reads from or writes to has gone away, and in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outages {
    pub(super) kills: u64,
    pub(super) pauses: u64,
    pub(super) stops: u64,
}

impl Outages {
    pub(super) fn add(&mut self, more: Self) {
        self.kills += more.kills;
        self.pauses += more.pauses;
        self.stops += more.stops;
    }

    fn all(self) -> u64 {
        self.kills + self.pauses + self.stops
    }
}

impl fmt::Display for Outages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, pauses, stops } = self;
        write!(f, "outages={} (killed={kills} paused={pauses} stopped={stops})", self.all())
    }
}

/// What a run has to show in addition to crashes and what comes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// What the job writes to has gone away.
    pub(super) outages: bool,
    /// Kills right before a commit record was written, and right after.
    pub(super) moments: bool,
    /// Rows that were there twice.
    pub(super) repeats: bool,
}

impl Wanted {
    /// Crashes are enough.
    pub(super) const CRASHES: Self = Self { outages: false, moments: false, repeats: false };
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// SIGKILLs, at any moment or at a call.
    pub(super) kills: u64,
    /// Of these, at a call that was named.
    pub(super) at_calls: u64,
    pub(super) cuts: u64,
    /// Runs that gave up after an error of ours.
    pub(super) errors: u64,
    /// Starts that found a service away, and gave up. They are no crashes.
    pub(super) refused: u64,
    /// Of these, at the one that writes a commit record, and at the one that syncs it.
    pub(super) before_records: u64,
    pub(super) after_records: u64,
    pub(super) outages: Outages,
    /// Rows that were there twice, which readers drop.
    pub(super) repeats: u64,
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

    /// A run in which nothing was disturbed, or nothing recovered, has shown nothing.
    pub(super) fn check(&self, wanted: &Wanted) -> Result<()> {
        ensure!(self.mismatches == 0, "{} mismatches", self.mismatches);
        ensure!(self.rounds > 0 && self.records > 0, "nothing was recounted");
        ensure!(self.at_work > 0, "no crash came while work was going on");
        ensure!(self.recovered > 0, "no restart found a committed cycle");
        // A power cut takes unsynced writes, and nobody waits for the order of a job that publishes nothing.
        ensure!(self.followed > 0 || self.cuts > 0, "no restart had an order to follow");
        ensure!(self.outages.all() > 0 || !wanted.outages, "what the job writes to never went away");
        ensure!(self.before_records > 0 || !wanted.moments, "no kill came right before a commit record");
        ensure!(self.after_records > 0 || !wanted.moments, "no kill came right after a commit record");
        ensure!(self.repeats > 0 || !wanted.repeats, "no row was written again");
        Ok(())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cycles={} kills={} at_calls={}", self.crashes(), self.kills, self.at_calls)?;
        write!(f, " before_records={} after_records={}", self.before_records, self.after_records)?;
        write!(f, " power_cuts={} errors={} refused={}", self.cuts, self.errors, self.refused)?;
        write!(f, " {} repeats={}", self.outages, self.repeats)?;
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
        assert!(good.check(&Wanted::CRASHES).is_ok());
        let wanted = Wanted { outages: true, moments: true, repeats: true };
        let outages = Outages { pauses: 1, ..Outages::default() };
        let better = Counts { outages, before_records: 1, after_records: 1, repeats: 1, ..good };
        assert!(better.check(&wanted).is_ok());
        for vacuous in [
            Counts { outages: Outages::default(), ..better },
            Counts { before_records: 0, ..better },
            Counts { after_records: 0, ..better },
            Counts { repeats: 0, ..better },
        ] {
            assert!(vacuous.check(&wanted).is_err(), "{vacuous}");
        }
        for vacuous in [
            Counts { records: 0, ..good },
            Counts { at_work: 0, ..good },
            Counts { recovered: 0, ..good },
            Counts { followed: 0, ..good },
            Counts { mismatches: 1, ..good },
        ] {
            assert!(vacuous.check(&Wanted::CRASHES).is_err(), "{vacuous}");
        }
    }
}
