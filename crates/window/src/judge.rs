//! Which records a task accepts, at what time, and what time it is then.
//!
//! Duplicates are judged before lateness: a request that is sent again is answered as the duplicate it is, however
//! late it has become. Neither moves time. Records that were made of one record share its identity, and are no
//! duplicates of each other.

use arrow_array::{Array, ArrayRef};
use arrow_buffer::ScalarBuffer;
use thalweg_types::{Identity, LatePolicy, Lateness, Micros, Origin, TakenIds, Timeliness};

use crate::ids::Ids;
use crate::key::{Key, KeyRef, for_each_key};

/// Judgement of a batch, record by record.
pub(crate) struct Verdicts {
    /// Time at which each record counts (its own, or the bound it was clamped to).
    pub(crate) times: ScalarBuffer<Micros>,
    /// Task time ahead of the batch.
    pub(crate) before: Option<Micros>,
    /// Task time after each record; the same buffer as `times` where these ascend.
    pub(crate) task_times: ScalarBuffer<Micros>,
    /// Whether each record is added; `None` where all are.
    pub(crate) accepted: Option<Vec<bool>>,
    /// Records that are below the task time before them, so that they go between others; `None` where none is.
    pub(crate) out_of_order: Option<Vec<bool>>,
    pub(crate) late: Vec<u32>,
    /// Those of them that are within `lateness`, but below the floor.
    pub(crate) closed: Vec<u32>,
    pub(crate) duplicate: Vec<u32>,
}

impl Verdicts {
    pub(crate) fn over_batch(&self) -> TaskTimes {
        TaskTimes { before: self.before, after: self.task_times.clone() }
    }
}

/// Verdicts in the making.
struct OneByOne {
    times: Vec<Micros>,
    task_times: Vec<Micros>,
    accepted: Vec<bool>,
    out_of_order: Vec<bool>,
    late: Vec<u32>,
    closed: Vec<u32>,
    duplicate: Vec<u32>,
}

/// Task time over a batch.
#[derive(Clone, Debug)]
pub struct TaskTimes {
    before: Option<Micros>,
    /// After each record; ascends.
    after: ScalarBuffer<Micros>,
}

impl TaskTimes {
    /// Task time after a record of the batch, and the record of the batch that moved it there; `None` where one before the
    /// batch did.
    pub fn newest(&self, row: u32) -> (Micros, Option<u32>) {
        let now = self.after[row as usize];
        let has_moved = self.before.is_none_or(|before| before < now);
        let first = || self.after.partition_point(|time| *time < now) as u32;
        (now, has_moved.then(first))
    }

    /// The record of the batch that moved task time to where it is after the batch; `None` where none did.
    pub fn mover(&self) -> Option<u32> {
        self.newest(self.after.len().checked_sub(1)? as u32).1
    }
}

pub(crate) struct Judge {
    task_time: Option<Micros>,
    /// Chunks were sealed, and windows closed, at its floor.
    lateness: Lateness,
    ids: Option<Ids>,
    taken: TakenIds<Key>,
}

impl Judge {
    pub(crate) fn new(lateness: Micros, policy: LatePolicy, dedup: Option<Micros>) -> Self {
        Self {
            task_time: None,
            lateness: Lateness::new(lateness, policy),
            ids: dedup.map(Ids::new),
            taken: TakenIds::default(),
        }
    }

    /// Largest event time accepted so far.
    pub(crate) fn task_time(&self) -> Option<Micros> {
        self.task_time
    }

    /// What is below it is late, now and after a restart with any other `lateness`; `None` before the first record.
    pub(crate) fn bound(&self) -> Option<Micros> {
        self.task_time.map(|now| self.lateness.bound(now))
    }

    /// The same without what a smaller `lateness` has closed before.
    pub(crate) fn closed(&self) -> Option<Micros> {
        self.task_time.map(|now| self.lateness.closed(now))
    }

    /// See [`Lateness::hold`].
    pub(crate) fn hold(&mut self, time: Micros) {
        self.lateness.hold(time);
    }

    /// Sets task time and the bound to those of a checkpoint.
    pub(crate) fn restore(&mut self, task_time: Option<Micros>, bound: Option<Micros>) {
        // Never above task time: a record that is clamped to it must not move time.
        self.lateness = self.lateness.with_floor(bound.min(task_time).unwrap_or(Micros::MIN));
        self.task_time = task_time;
    }

    /// Ids that records are compared with, where there is a span for it.
    pub(crate) fn ids(&mut self) -> Option<&mut Ids> {
        self.ids.as_mut()
    }

    /// The same, to look at.
    pub(crate) fn known_ids(&self) -> Option<&Ids> {
        self.ids.as_ref()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.ids.as_ref().map_or(0, Ids::bytes)
    }

    /// The last record of each sender and the ids that were taken from it.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (Origin, Vec<&Key>)> {
        self.taken.of_senders()
    }

    /// Takes over an id that was taken before a checkpoint; in the order of [`Judge::taken`].
    pub(crate) fn restore_taken(&mut self, origin: Origin, key: &Key) {
        self.taken.add(Identity::Origin(origin), key);
    }

    /// Judges records in order. `keys` are their ids, where duplicates are looked for; `identity` says of which record each
    /// was made.
    pub(crate) fn judge(
        &mut self,
        times: &ScalarBuffer<Micros>,
        keys: Option<&[Option<Key>]>,
        identity: impl Fn(usize) -> Identity,
    ) -> Verdicts {
        if self.ids.is_none()
            && let Some(verdicts) = self.all_in_order(times)
        {
            return verdicts;
        }
        let before = self.task_time;
        let mut one_by_one = OneByOne {
            times: times.to_vec(),
            task_times: Vec::with_capacity(times.len()),
            accepted: vec![true; times.len()],
            out_of_order: vec![false; times.len()],
            late: Vec::new(),
            closed: Vec::new(),
            duplicate: Vec::new(),
        };
        let keys = keys.unwrap_or_default();
        for row in 0..times.len() {
            let key = keys.get(row).and_then(Option::as_ref);
            let key = key.filter(|key| !self.taken.has(identity(row), key));
            if self.judge_one(row, key, &mut one_by_one)
                && let Some(key) = key
            {
                self.taken.add(identity(row), key);
            }
        }
        let OneByOne { times, task_times, accepted, out_of_order, late, closed, duplicate } = one_by_one;
        let is_any_refused = self.lateness.refuses() && !late.is_empty();
        Verdicts {
            times: times.into(),
            before,
            task_times: task_times.into(),
            accepted: (is_any_refused || !duplicate.is_empty()).then_some(accepted),
            out_of_order: out_of_order.contains(&true).then_some(out_of_order),
            late,
            closed,
            duplicate,
        }
    }

    /// The common case, without a look at single records: times ascend and nothing is late.
    fn all_in_order(&mut self, times: &ScalarBuffer<Micros>) -> Option<Verdicts> {
        let first = *times.first()?;
        if self.task_time.is_some_and(|now| first < now) || !times.is_sorted() {
            return None;
        }
        let before = std::mem::replace(&mut self.task_time, times.last().copied());
        Some(Verdicts {
            before,
            times: times.clone(),
            task_times: times.clone(),
            accepted: None,
            out_of_order: None,
            late: Vec::new(),
            closed: Vec::new(),
            duplicate: Vec::new(),
        })
    }

    /// Whether the record is accepted. `key` is its id, if it is to be looked for and taken.
    fn judge_one(&mut self, row: usize, key: Option<&Key>, verdicts: &mut OneByOne) -> bool {
        let time = verdicts.times[row];
        let now = self.task_time.map_or(time, |now| now.max(time));
        let refuse = |verdicts: &mut OneByOne, task_time: Option<Micros>| {
            verdicts.task_times.push(task_time.unwrap_or(time));
            verdicts.accepted[row] = false;
            false
        };
        if let (Some(ids), Some(key)) = (&self.ids, key)
            && ids.has_seen(key, now)
        {
            verdicts.duplicate.push(row as u32);
            return refuse(verdicts, self.task_time);
        }
        if let Timeliness::Late { taken_at, is_closed } = self.lateness.judge(time, now) {
            verdicts.late.push(row as u32);
            if is_closed {
                verdicts.closed.push(row as u32);
            }
            let Some(bound) = taken_at else { return refuse(verdicts, self.task_time) };
            verdicts.times[row] = bound;
        }
        verdicts.out_of_order[row] = verdicts.times[row] < now;
        self.task_time = Some(now);
        verdicts.task_times.push(now);
        if let (Some(ids), Some(key)) = (&mut self.ids, key) {
            ids.saw(key.clone(), now);
        }
        true
    }
}

/// Ids of records; null is no id.
pub(crate) fn id_keys(column: &ArrayRef) -> Vec<Option<Key>> {
    let mut keys = Vec::with_capacity(column.len());
    for_each_key(std::slice::from_ref(column), column.len(), |row, key| {
        keys.push((key != KeyRef::Null && column.is_valid(row)).then(|| key.to_key()));
    });
    keys
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::StringViewArray;
    use thalweg_types::CATCH_UP;

    use super::*;

    fn keys(ids: &[Option<&str>]) -> Vec<Option<Key>> {
        let column: ArrayRef = Arc::new(StringViewArray::from(ids.to_vec()));
        id_keys(&column)
    }

    #[test]
    fn late_records_are_refused_or_clamped_and_move_no_time() {
        let mut judge = Judge::new(5, LatePolicy::Reject, None);
        let verdicts = judge.judge(&vec![10, 4, 5, 20, 14].into(), None, |row| Identity::Number(row as u64));
        assert_eq!(verdicts.late, [1, 4], "5 is at the bound and not late");
        assert_eq!(*verdicts.task_times, [10, 10, 10, 20, 20]);
        assert_eq!(verdicts.out_of_order, Some(vec![false, false, true, false, false]));

        let mut judge = Judge::new(5, LatePolicy::Clamp, None);
        let verdicts = judge.judge(&vec![10, 4, 20, 14].into(), None, |row| Identity::Number(row as u64));
        assert_eq!(verdicts.late, [1, 3]);
        assert_eq!(*verdicts.times, [10, 5, 20, 15]);
        assert_eq!(verdicts.accepted, None);
    }

    #[test]
    fn the_newest_record_is_the_first_that_moved_task_time_there() {
        let mut judge = Judge::new(5, LatePolicy::Reject, None);
        let mut judged = |times: Vec<Micros>| {
            let times = judge.judge(&times.into(), None, |row| Identity::Number(row as u64)).over_batch();
            let rows = 0..times.after.len() as u32;
            (rows.map(|row| times.newest(row)).collect::<Vec<_>>(), times.mover())
        };
        assert_eq!(judged(vec![10, 10, 4]), (vec![(10, Some(0)); 3], Some(0)));
        assert_eq!(judged(vec![9, 3, 10]), (vec![(10, None); 3], None));
        let moved = vec![(10, None), (20, Some(1)), (20, Some(1)), (21, Some(3))];
        assert_eq!(judged(vec![10, 20, 2, 21]), (moved, Some(3)));
        assert_eq!(judged(vec![21, 22, 22]), (vec![(21, None), (22, Some(1)), (22, Some(1))], Some(1)));
        assert_eq!(judged(Vec::new()), (Vec::new(), None));
    }

    #[test]
    fn a_time_that_others_hold_is_that_by_which_records_are_late_for_so_long() {
        let judged = |judge: &mut Judge, times: Vec<Micros>| {
            judge.judge(&times.into(), None, |row| Identity::Number(row as u64)).late
        };
        let mut judge = Judge::new(5, LatePolicy::Reject, None);
        judge.hold(80);
        assert_eq!(judged(&mut judge, vec![100, 75, 74, 90]), [2]);
        assert_eq!((judge.bound(), judge.task_time()), (Some(75), Some(100)));
        judge.hold(95);
        judge.hold(20);
        assert_eq!(judged(&mut judge, vec![90, 89]), [1], "it does not go back");
        // Not above task time, and not far below it.
        judge.hold(500);
        assert_eq!(judged(&mut judge, vec![110, 104]), [1]);
        assert_eq!(judged(&mut judge, vec![CATCH_UP + 505, 500, 499]), [2]);
        let bound = judge.bound();
        let mut restored = Judge::new(50, LatePolicy::Reject, None);
        restored.restore(judge.task_time(), bound);
        restored.hold(510);
        assert_eq!(judged(&mut restored, vec![500, 499]), [1], "what a checkpoint says is closed stays so");
    }

    #[test]
    fn what_a_smaller_lateness_left_behind_is_late_until_the_larger_one_reaches_it() {
        for (policy, times) in
            [(LatePolicy::Reject, [94, 95, 150, 96]), (LatePolicy::Clamp, [95, 95, 150, 100])]
        {
            let mut judge = Judge::new(5, policy, None);
            judge.judge(&vec![100].into(), None, |row| Identity::Number(row as u64));
            let bound = judge.bound();
            let mut judge = Judge::new(50, policy, None);
            judge.restore(Some(100), bound);
            let verdicts =
                judge.judge(&vec![94, 95, 150, 96].into(), None, |row| Identity::Number(row as u64));
            assert_eq!((&*verdicts.times, &*verdicts.late), (&times[..], &[0, 3][..]), "{policy:?}");
            assert_eq!(verdicts.closed, [0], "96 is more than 50 late");
            assert_eq!(judge.bound(), Some(100));
        }
    }

    #[test]
    fn the_same_lateness_has_the_same_bound_after_a_restart() {
        let mut judge = Judge::new(5, LatePolicy::Reject, None);
        judge.judge(&vec![100].into(), None, |row| Identity::Number(row as u64));
        for lateness in [5, 3] {
            let mut restored = Judge::new(lateness, LatePolicy::Reject, None);
            restored.restore(Some(100), judge.bound());
            assert_eq!(restored.bound(), Some(100 - lateness));
        }
        judge.restore(None, Some(7));
        assert_eq!(judge.bound(), None);
    }

    #[test]
    fn an_id_is_a_duplicate_within_the_span_of_task_time() {
        let ids = keys(&[Some("a"), Some("a"), None, None, Some("a"), Some("a")]);
        let mut judge = Judge::new(100, LatePolicy::Reject, Some(10));
        let verdicts =
            judge.judge(&vec![0, 9, 9, 9, 10, 19].into(), Some(&ids), |row| Identity::Number(row as u64));
        assert_eq!(verdicts.duplicate, [1, 5], "at 10 the first is 10 old; at 19 the second is 9 old");
        assert_eq!(*verdicts.task_times, [0, 0, 9, 9, 10, 10], "a duplicate moves no time");
    }

    #[test]
    fn a_repeated_request_is_a_duplicate_even_when_it_has_become_late() {
        let ids = keys(&[Some("a"), Some("b"), Some("a"), Some("c")]);
        let mut judge = Judge::new(5, LatePolicy::Reject, Some(1000));
        let verdicts =
            judge.judge(&vec![0, 100, 0, 0].into(), Some(&ids), |row| Identity::Number(row as u64));
        assert_eq!((verdicts.duplicate, verdicts.late), (vec![2], vec![3]));
    }

    #[test]
    fn records_that_were_made_of_one_are_no_duplicates_of_each_other() {
        let ids = keys(&[Some("a"), Some("b"), Some("a"), Some("a"), Some("b"), Some("c")]);
        let mut judge = Judge::new(100, LatePolicy::Reject, Some(10));
        let mut judge = |times: Vec<Micros>, ids: &[Option<Key>], seqs: &[u64]| {
            judge.judge(&times.into(), Some(ids), |row| Identity::Number(seqs[row])).duplicate
        };
        assert!(judge(vec![0, 0], &ids[..2], &[7, 7]).is_empty());
        let duplicate = judge(vec![0, 1, 1, 1], &ids[2..], &[7, 8, 8, 8]);
        assert_eq!(duplicate, [1, 2], "another record has the ids, whatever its other parts have");
        assert_eq!(judge(vec![1, 1], &ids[4..], &[8, 8]), [0], "`b` is that of the first record");
    }
}
