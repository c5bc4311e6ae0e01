//! What a client hears whose answer does not come: where its records are, and whether they may count.
//!
//! A door keeps the partition of each record that somebody waits for ([`Routes`]), as long as the oldest of them is waited
//! for. Whatever has been with a producer may count, for good or not; only records that no producer ever had, and that are
//! thrown away, are said not to count.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thalweg_cluster::control::Unit as UnitName;
use thalweg_cluster::fold::State;
use thalweg_connect::{Fate, Late};
use thalweg_types::{Seq, SeqRange};

use super::inbox::InboxCounts;

/// The partitions of records that somebody waits for, by ascending numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes(VecDeque<(Seq, u32)>);

impl Routes {
    /// Takes the records of a range, which is above all earlier ones.
    pub(super) fn note(&mut self, mut records: Vec<(Seq, u32)>) {
        records.sort_unstable();
        self.0.extend(records);
    }

    /// The end of what is noted.
    pub(super) fn end(&self) -> Seq {
        self.0.back().map_or(0, |(last, _)| last + 1)
    }

    pub(super) fn forget_below(&mut self, first: Seq) {
        while self.0.front().is_some_and(|(seq, _)| *seq < first) {
            self.0.pop_front();
        }
    }

    pub(super) fn of(&self, range: SeqRange) -> impl Iterator<Item = (Seq, u32)> {
        let start = self.0.partition_point(|(seq, _)| *seq < range.start);
        self.0.range(start..).take_while(move |(seq, _)| *seq < range.end).copied()
    }
}

/// How far a record has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Come {
    /// No producer has had it.
    Waiting,
    /// The brokers have not acknowledged it.
    Sent,
    /// It counts.
    Written,
}

/// Why a piece of a request is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Because {
    /// It has waited for so long; what waits to be sent is sent all the same.
    TooLate(Duration),
    /// Brokers have refused something for good, and the door threw away what it had.
    Failed,
    /// A unit has refused rows, as others before them were lost, and the door threw away what it had.
    Refused,
}

/// What becomes of a piece. `come` says how far a record is, and `at` where a partition is, as in `at node "b"`.
pub(super) fn fate(
    late: &Late,
    because: Because,
    stage: &str,
    routes: &Routes,
    come: impl Fn(Seq, u32) -> Come,
    at: impl Fn(u32) -> String,
) -> Fate {
    let mut said = match because {
        Because::TooLate(patience) => format!("no answer within {patience:?}"),
        Because::Failed => "the brokers failed while records were on their way to them".to_owned(),
        Because::Refused => {
            "records were lost among the brokers while these were on their way after them".to_owned()
        }
    };
    said.push_str("; the outcome is unknown: the records may count or not");
    let is_open = |seq: &Seq| late.open.binary_search(seq).is_ok();
    let mut open: Vec<(u32, Come)> = Vec::new();
    let (mut is_any, mut is_untouched) = (false, true);
    for (seq, partition) in routes.of(late.range) {
        let come = come(seq, partition);
        is_any = true;
        is_untouched &= come == Come::Waiting;
        if is_open(&seq) && !open.iter().any(|(known, _)| *known == partition) {
            open.push((partition, come));
        }
    }
    match open.first() {
        Some((partition, come)) => {
            let what = match come {
                Come::Written => "a record waits for its answer from",
                Come::Sent | Come::Waiting => "the brokers have not acknowledged a record for",
            };
            let _ = write!(said, "; {what} stage {stage:?} partition {partition}, {}", at(*partition));
            if open.len() > 1 {
                let _ = write!(said, ", and others for {} more partitions", open.len() - 1);
            }
        }
        None if late.open.is_empty() => said.push_str("; the brokers have not acknowledged all of them"),
        None => {}
    }
    let dropped = match because {
        Because::TooLate(_) => None,
        Because::Failed => Some("the brokers failed before the records were sent to them"),
        Because::Refused => Some("others were lost among the brokers before the records were sent to them"),
    };
    if let Some(dropped) = dropped.filter(|_| late.is_passed && is_any && is_untouched) {
        let dropped = format!("{dropped}: none of the records counts");
        return Fate::Unsent { said: dropped, otherwise: said };
    }
    Fate::Unknown(said)
}

/// Where a unit is, as a node sees it on which `here` runs, if it does.
pub(super) fn whereabouts(state: &State, unit: &UnitName, here: Option<&InboxCounts>) -> String {
    let Some(node) = state.active(unit) else {
        return "which no node has until the next plan".to_owned();
    };
    let mut said = format!("which is at node {:?}", node.as_str());
    let holder = state.unit(unit).and_then(|known| known.holders.get(node));
    let _ = match (here, holder) {
        (Some(here), _) if here.is_known.load(Ordering::Relaxed) => {
            let position = here.position.load(Ordering::Relaxed);
            let left = here.end.load(Ordering::Relaxed).saturating_sub(position);
            write!(said, " and lags by {left} messages, at offset {position}")
        }
        (_, Some(holder)) => {
            let lag = if holder.ready { "no lag" } else { "a lag" };
            write!(said, " and had {lag} when that said so last, at offset {}", holder.position)
        }
        (_, None) => write!(said, ", which has not said how far it is"),
    };
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(open: &[Seq], is_passed: bool) -> Late {
        Late { range: SeqRange::new(10, 14), open: open.to_vec(), is_passed, wants_lines: true }
    }

    /// Records 10 to 12 are for partitions 5, 6 and 5; 13 is for none.
    fn routes() -> Routes {
        let mut routes = Routes::default();
        routes.note(vec![(8, 1), (9, 2)]);
        routes.note(vec![(11, 6), (10, 5), (12, 5), (14, 7)]);
        routes
    }

    #[track_caller]
    fn check(because: Because, late: &Late, come: [Come; 3], expected: &Fate) {
        let come = |seq: Seq, _| come[usize::try_from(seq - 10).unwrap()];
        let at = |partition| format!("at node {partition}");
        assert_eq!(fate(late, because, "features", &routes(), come, at), *expected);
    }

    const SECONDS: Because = Because::TooLate(Duration::from_secs(9));
    const UNKNOWN: &str = "the outcome is unknown: the records may count or not";

    #[test]
    fn an_overdue_request_hears_for_which_partition_it_waits_and_where_that_is() {
        use Come::{Sent, Waiting, Written};
        let said = |rest: &str| Fate::Unknown(format!("no answer within 9s; {UNKNOWN}; {rest}"));
        let one = said("a record waits for its answer from stage \"features\" partition 5, at node 5");
        check(SECONDS, &late(&[12], true), [Written; 3], &one);
        let two = said(
            "a record waits for its answer from stage \"features\" partition 6, at node 6, and others for 1 more partitions",
        );
        check(SECONDS, &late(&[11, 12], true), [Written; 3], &two);
        let sent = said(
            "the brokers have not acknowledged a record for stage \"features\" partition 5, at node 5, and others for 1 more \
             partitions",
        );
        check(SECONDS, &late(&[10, 11, 12], true), [Sent, Written, Written], &sent);
        // What waits is sent later.
        check(SECONDS, &late(&[10, 11, 12], true), [Waiting; 3], &sent);
        let quiet = said("the brokers have not acknowledged all of them");
        check(SECONDS, &late(&[], true), [Written; 3], &quiet);
    }

    #[test]
    fn records_that_no_producer_ever_had_do_not_count() {
        use Come::{Sent, Waiting, Written};
        let all = [10, 11, 12, 13];
        let is_unsent = |late: &Late, come: [Come; 3]| {
            let come = |seq: Seq, _| come[usize::try_from(seq - 10).unwrap()];
            let fate = fate(late, Because::Failed, "features", &routes(), come, |_| String::new());
            matches!(fate, Fate::Unsent { said, otherwise } if said.contains("none") && otherwise.contains(UNKNOWN))
        };
        assert!(is_unsent(&late(&all, true), [Waiting; 3]));
        assert!(!is_unsent(&late(&all, true), [Waiting, Sent, Waiting]), "one was sent");
        assert!(!is_unsent(&late(&[10], true), [Waiting, Written, Written]), "others count");
        assert!(!is_unsent(&late(&all, false), [Waiting; 3]), "some are yet to come here, and will be sent");
        let none = Late { range: SeqRange::new(20, 22), open: vec![20, 21], ..late(&[], true) };
        assert!(!is_unsent(&none, [Waiting; 3]), "nothing is known of them");
    }

    #[test]
    fn routes_are_forgotten_once_nobody_waits() {
        let mut routes = routes();
        assert_eq!(routes.end(), 15);
        routes.forget_below(11);
        assert_eq!(routes.of(SeqRange::new(0, 100)).collect::<Vec<_>>(), [(11, 6), (12, 5), (14, 7)]);
        routes.forget_below(15);
        assert_eq!((routes.end(), routes.0.len()), (0, 0));
    }
}
