//! What goes wrong, when, and how often it has.

use std::collections::BTreeMap;

use fastrand::Rng;
use thalweg_types::Micros;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Consumers of a node get nothing of some partitions for a while.
    Delay,
    /// Brokers write what they report as not written, or give a message up and write the next one.
    LostAcknowledgements,
    /// A node does nothing, as one whose machine sleeps.
    Stall,
    /// What a node sends stays in its clients.
    CutWrites,
    /// A node hears nothing.
    CutReads,
    /// A node is killed, and its data is there when it starts again.
    Kill,
    /// A node is killed, and its disk is gone.
    Lose,
    /// A node comes that was not there before.
    Join,
    /// A node hands over what it has, and goes.
    Leave,
}

impl Fault {
    pub(crate) const ALL: [Self; 9] = [
        Self::Delay,
        Self::LostAcknowledgements,
        Self::Stall,
        Self::CutWrites,
        Self::CutReads,
        Self::Kill,
        Self::Lose,
        Self::Join,
        Self::Leave,
    ];
}

/// Faults by the time at which they happen.
pub(crate) fn plan(rng: &mut Rng, from: Micros, until: Micros) -> Vec<(Micros, Fault)> {
    let count = rng.usize(3..9);
    let mut plan: Vec<(Micros, Fault)> =
        (0..count).map(|_| (rng.i64(from..until), Fault::ALL[rng.usize(0..Fault::ALL.len())])).collect();
    // A node that cannot send, and is killed then, has rows that nobody has.
    if rng.bool() {
        let at = rng.i64(from..until);
        plan.extend([(at, Fault::CutWrites), (at + rng.i64(100_000..3_000_000), Fault::Kill)]);
    }
    plan.sort_unstable();
    plan
}

/// What a run has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) faults: BTreeMap<Fault, u64>,
    pub(crate) steps: u64,
    pub(crate) deliveries: u64,
    pub(crate) records: u64,
    /// Records that were answered, whose outcome clients do not know, and that count for nothing.
    pub(crate) answered: u64,
    pub(crate) unknown: u64,
    pub(crate) unsent: u64,
    /// Records of a topic that were recounted.
    pub(crate) read: u64,
    /// And of files.
    pub(crate) filed: u64,
    /// Answers and rows of the next stage that were compared.
    pub(crate) compared: u64,
    pub(crate) rows: u64,
    /// Rows of stages that were there before, and frames that began after a gap.
    pub(crate) duplicates: u64,
    pub(crate) gaps: u64,
    /// States of folds that were compared.
    pub(crate) folds: u64,
}

impl Counts {
    pub(crate) fn note(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (fault, times) in &other.faults {
            *self.faults.entry(*fault).or_default() += times;
        }
        let pairs = [
            (&mut self.steps, other.steps),
            (&mut self.deliveries, other.deliveries),
            (&mut self.records, other.records),
            (&mut self.answered, other.answered),
            (&mut self.unknown, other.unknown),
            (&mut self.unsent, other.unsent),
            (&mut self.compared, other.compared),
            (&mut self.read, other.read),
            (&mut self.filed, other.filed),
            (&mut self.rows, other.rows),
            (&mut self.duplicates, other.duplicates),
            (&mut self.gaps, other.gaps),
            (&mut self.folds, other.folds),
        ];
        for (mine, more) in pairs {
            *mine += more;
        }
    }

    /// Each checker has had something to check.
    pub(crate) fn assert_checked(&self) {
        let counts = [self.steps, self.deliveries, self.records, self.answered];
        let checked = [self.compared, self.read, self.filed, self.rows, self.folds];
        assert!(
            counts.iter().chain(&checked).all(|count| *count > 0),
            "a checker had nothing to check: {self:?}"
        );
        let asked = self.records - self.read - self.filed;
        assert!(self.answered > asked / 3, "clients hear too little: {self:?}");
    }
}
