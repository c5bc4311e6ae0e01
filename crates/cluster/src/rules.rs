//! The rules of membership, assignment and positions by name, so that tests can take one away.
//!
//! Each rule is there because a schedule goes wrong without it. The model tests (`fold::tests::model`,
//! `positions::tests`, `times::tests`) take away one after the other and have to find such a schedule. Outside of tests every rule holds, and costs nothing to ask for.

/// A rule that a test can take away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A member is silent only if another one has beaten since.
    AloneIsNeverSilent,
    /// The median of those that have beaten since counts, rather than the mean of all.
    MedianOfBeats,
    /// A beat counts only if its author had read its last one.
    BeatsAreReadBack,
    /// A Join ends earlier incarnations of its name.
    JoinEndsEarlier,
    /// A Join counts only if its author had read the one that it ends.
    JoinHasRead,
    /// A new incarnation is as silent as the one that it ends, until it beats.
    SilenceIsInherited,
    /// A plan counts only if the plan that it replaces is in force.
    PlanReplaces,
    /// A plan counts only if its author is a member.
    PlanOfMember,
    /// Joins and deaths void no plan.
    MembersVoidNothing,
    /// Units of a node that is no member are nobody's.
    NobodysUntilPlanned,
    /// After twelve beats of the median without a plan the next oldest may plan.
    NextOldestMayPlan,
    /// Units in trouble are taken away.
    TroubleIsTakenAway,
    /// A unit in trouble is not given back for a minute.
    TroubleIsNotGivenBack,
    /// Log time follows differences of append times, and none of them far.
    LogTimeIsSteady,
    /// A log without its beginning and without a State record is refused.
    LogHasBeginning,
    /// A State record has all that the fold goes on from.
    StateIsWhole,
    /// A node stops where its own state differs from a State record.
    StateIsCompared,
    /// Records above the version of the log are void.
    NewerIsVoid,
    /// A node gets no units before its first beat.
    BeatsBeforeUnits,
    /// Copies of a unit are on different hosts.
    HostsDiffer,
    /// A unit moves to a node without data only after that one has caught up.
    CaughtUpFirst,
    /// Few units move at once.
    FewAtOnce,
    /// A unit stays where it is unless something asks for another place.
    KeepWhatYouHave,
    /// A node that caught up, then another copy, then stale data is preferred.
    DataIsPreferred,
    /// A node to be drained loses its units.
    DrainedLoseUnits,
    /// No node has much more than its share.
    SharesAreEven,
    /// A receiver remembers so many doors, and no more.
    DoorsAreFew,
    /// Those stay whose last frames are youngest.
    YoungestDoorsStay,
    /// A frame of an origin that is not known counts only if it is the first.
    UnknownBeginAtZero,
    /// A stage judges by the least of the times of those that send to it.
    LeastTimeHolds,
    /// One of which nothing has come yet holds the time back.
    UnheardHold,
    /// One that has been silent for long holds nothing.
    SilentDoNotHold,
    /// The time that is held never goes back.
    HeldNeverGoesBack,
}

#[cfg(test)]
thread_local! {
    static TAKEN_AWAY: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
    static RECORDS_PER_STATE: std::cell::Cell<u32> = const { std::cell::Cell::new(crate::fold::RECORDS_PER_STATE) };
}

/// Whether a rule holds.
#[inline]
pub(crate) fn holds(rule: Rule) -> bool {
    #[cfg(test)]
    return TAKEN_AWAY.get() != Some(rule);
    #[cfg(not(test))]
    {
        let _ = rule;
        true
    }
}

/// Records after which the state is recorded.
#[inline]
pub(crate) fn records_per_state() -> u32 {
    #[cfg(test)]
    return RECORDS_PER_STATE.get();
    #[cfg(not(test))]
    crate::fold::RECORDS_PER_STATE
}

/// Runs `work` on this thread without a rule.
#[cfg(test)]
pub(crate) fn without<T>(rule: Option<Rule>, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Rule>);
    impl Drop for Restore {
        fn drop(&mut self) {
            TAKEN_AWAY.set(self.0);
        }
    }
    let _restore = Restore(TAKEN_AWAY.replace(rule));
    work()
}

/// Records the state more often on this thread, so that short logs have some of these records.
#[cfg(test)]
pub(crate) fn set_records_per_state(records: u32) {
    RECORDS_PER_STATE.set(records);
}
