//! Each rule by itself.

use std::collections::BTreeSet;

use super::kit::*;
use crate::control::{Beat, Cause, Choice, Decoded, Gap, Record, Report, Why, decode, encode};
use crate::fold::{
    Change, EventCause, MAX_HOLDERS, MAX_MEMBERS, Membership, STATE_EVERY, Standing, TROUBLE_LASTS, Void,
};

#[test]
fn a_member_is_silent_after_twelve_beats_of_the_median_of_those_that_beat_since() {
    let mut log = Log::with(&["alpha", "beta", "gamma"]);
    let heard = log.state().member(&name("alpha")).unwrap().last_beat().unwrap();
    log.beats("beta", 10);
    log.beats("gamma", 10);
    assert_eq!(log.members(), ["alpha", "beta", "gamma"]);
    // Of the two that have beaten the upper one is the median.
    let applied = log.beat("gamma");
    assert_eq!(applied.changes, [Change::Silent { process: process("alpha"), heard }]);
    assert_eq!(log.members(), ["beta", "gamma"]);
}

#[test]
fn gaps_are_what_the_node_that_has_the_unit_said_last() {
    let mut log = Log::with(&["alpha", "beta"]);
    log.counts(Record::Spec(spec(1, 2, 0)));
    log.counts(Record::Plan(plan("alpha", None, log.end(), &[placed("alpha"), placed("beta")])));
    let named = |log: &Log| -> Vec<_> { log.state().gaps().map(|(gap, beat)| (gap.clone(), beat)).collect() };
    let says = |log: &mut Log, who: &str, gaps: &[Gap]| {
        let record = Beat { gaps: gaps.to_vec(), ..beat(who, log.end()) };
        log.counts(Record::Beat(record))
    };
    let at = says(&mut log, "alpha", &[gap(0, 1)]);
    assert_eq!(named(&log), [(gap(0, 1), at)]);
    // It does not have this unit, and there is no unit 7.
    says(&mut log, "beta", &[gap(0, 0), gap(1, 7)]);
    assert_eq!(named(&log), [(gap(0, 1), at)]);
    let wider = Gap { read: 120, ..gap(0, 1) };
    let later = says(&mut log, "alpha", std::slice::from_ref(&wider));
    assert_eq!(named(&log), [(wider.clone(), later)]);
    // A fold that begins at a State record has them, too.
    let bytes = encode(&state("alpha", log.state())).unwrap();
    let Ok(Decoded::Record(Record::State(kept))) = decode(&bytes) else { panic!("a State record") };
    assert_eq!(kept.state, *log.state());
    assert!(bytes.windows(6).any(|bytes| bytes == b"\"gaps\""));
    // Whoever has the unit next says what it finds.
    says(&mut log, "beta", &[]);
    let before = log.state().plan();
    log.counts(Record::Plan(plan("alpha", before, log.end(), &[placed("beta"), placed("beta")])));
    assert_eq!(named(&log), []);
    says(&mut log, "beta", &[wider]);
    assert_eq!(named(&log).len(), 1);
    log.beats("beta", 1);
    assert_eq!(named(&log), []);
    // Otherwise builds that know of none could not read it.
    says(&mut log, "alpha", &[]);
    assert!(!encode(&state("alpha", log.state())).unwrap().windows(6).any(|bytes| bytes == b"\"gaps\""));
}

#[test]
fn all_that_died_at_once_are_noticed_at_once() {
    let names = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"];
    let mut log = Log::with(&names);
    log.beats("alpha", 11);
    assert_eq!(log.members().len(), 10);
    log.beats("alpha", 1);
    assert_eq!(log.members(), ["alpha"]);
}

#[test]
fn one_fast_member_proves_no_two_slow_ones_silent_while_they_beat() {
    let mut log = Log::with(&["alpha", "beta", "gamma"]);
    for _ in 0..20 {
        log.beats("alpha", 11);
        log.beats("beta", 1);
        log.beats("gamma", 1);
    }
    assert_eq!(log.members().len(), 3);
}

#[test]
fn a_member_that_is_alone_is_never_silent() {
    let mut log = Log::with(&["alpha"]);
    log.beats("alpha", 40);
    for _ in 0..40 {
        let _ = log.add(drain("nobody", true));
    }
    assert_eq!(log.members(), ["alpha"]);
}

#[test]
fn beats_that_were_queued_count_once() {
    let mut log = Log::with(&["alpha", "beta"]);
    let read = log.end();
    assert_eq!(log.add(Record::Beat(beat("alpha", read))).void, None);
    for _ in 0..30 {
        assert_eq!(log.add(Record::Beat(beat("alpha", read))).void, Some(Void::NotReadBack));
    }
    assert_eq!(log.members(), ["alpha", "beta"]);
    let ahead = log.end() + 1;
    assert_eq!(log.add(Record::Beat(beat("alpha", ahead))).void, Some(Void::Ahead));
}

#[test]
fn a_join_ends_earlier_incarnations_whose_records_are_void_then() {
    let mut log = Log::with(&["alpha"]);
    let applied = log.add(Record::Join(join("alpha2", log.end())));
    let ended = Some(process("alpha1").incarnation);
    assert_eq!(applied.changes, [Change::Joined { process: process("alpha2"), ended }]);
    let end = log.end();
    assert_eq!(log.add(Record::Beat(beat("alpha1", end))).void, Some(Void::NotMember));
    assert_eq!(log.add(Record::Plan(plan("alpha1", None, end, &[]))).void, Some(Void::NotMember));
    assert_eq!(log.add(leave("alpha1")).void, Some(Void::NotMember));

    let standing = |who, began| log.state().standing(&process(who), began);
    assert_eq!(standing("alpha1", 0), Standing::Ended { by: process("alpha2").incarnation });
    assert_eq!(standing("alpha2", 2), Standing::Member);
    assert_eq!(standing("alpha3", 2), Standing::Ended { by: process("alpha2").incarnation });
    assert_eq!(standing("alpha3", 3), Standing::Outside);
    assert_eq!(standing("beta", 0), Standing::Outside);
}

#[test]
fn a_join_that_has_not_read_the_one_that_it_ends_is_void() {
    let mut log = Log::with(&["alpha"]);
    let late = log.records[0].1.clone();
    log.counts(Record::Join(join("alpha2", log.end())));
    assert_eq!(log.add(late).void, Some(Void::NameTaken { by: process("alpha2").incarnation }));
    let twice = log.records[2].1.clone();
    assert_eq!(log.add(twice).void, Some(Void::AlreadyMember));
    let standing = log.state().standing(&process("alpha2"), 2);
    assert_eq!(standing, Standing::Member);
    // Nor is one that has left brought back by a client that repeats its Join.
    let late = log.records[2].1.clone();
    log.counts(leave("alpha2"));
    assert_eq!(log.add(late).void, Some(Void::NotReadEnd));
    log.counts(Record::Join(join("alpha2", log.end())));
}

#[test]
fn a_process_that_joins_without_ever_beating_is_as_silent_as_before() {
    let mut log = Log::with(&["alpha", "beta"]);
    for incarnation in 2..14 {
        log.counts(Record::Join(join(&format!("beta{incarnation}"), log.end())));
        log.beats("alpha", 1);
    }
    assert_eq!(log.members(), ["alpha"]);
    log.counts(Record::Join(join("beta20", log.end())));
    log.beats("alpha", 11);
    assert_eq!(log.members(), ["alpha", "beta"]);
}

#[test]
fn a_plan_is_void_unless_the_one_that_it_replaces_is_in_force() {
    let mut log = Log::with(&["alpha", "beta"]);
    log.counts(Record::Spec(spec(1, 2, 0)));
    let read = log.end();
    let first = Record::Plan(plan("alpha", None, read, &[placed("alpha"), placed("beta")]));
    let at = log.counts(first.clone());
    let second = log.counts(Record::Plan(plan("alpha", Some(at), read, &[placed("beta"), placed("beta")])));
    // A client repeats the first one.
    assert_eq!(log.add(first).void, Some(Void::NotInForce { plan: Some(second) }));
    assert_eq!(log.state().active(&unit(0)), Some(&name("beta")));
    assert_eq!(log.state().plan(), Some(second));
}

#[test]
fn joins_and_deaths_void_no_plan() {
    let mut log = Log::with(&["alpha", "beta"]);
    log.counts(Record::Spec(spec(1, 2, 0)));
    let read = log.end();
    log.counts(Record::Join(join("gamma", read)));
    log.counts(leave("beta"));
    log.counts(Record::Plan(plan("alpha", None, read, &[placed("alpha"), placed("beta")])));
    assert_eq!(log.state().active(&unit(0)), Some(&name("alpha")));
    // Nobody's until the next plan, which the death asks for.
    assert_eq!(log.state().active(&unit(1)), None);
    let causes: Vec<_> = log.state().events().iter().map(|event| event.cause).collect();
    assert_eq!(causes, [EventCause::Gone]);
    log.counts(Record::Join(join("beta2", log.end())));
    assert_eq!(log.state().active(&unit(1)), None);
    log.beats("beta2", 1);
    assert_eq!(log.state().active(&unit(1)), Some(&name("beta")));
    // A quick restart keeps its units.
    log.counts(Record::Join(join("beta3", log.end())));
    assert_eq!(log.state().active(&unit(1)), Some(&name("beta")));
    assert_eq!(log.state().active_units(&name("beta")), BTreeSet::from([unit(1)]));
}

#[test]
fn the_oldest_may_plan_and_after_twelve_beats_of_the_median_the_next_one() {
    let mut log = Log::with(&["alpha", "beta", "gamma"]);
    let read = log.end();
    let at = log.counts(Record::Plan(plan("alpha", None, read, &[])));
    let may = |log: &Log| ["alpha", "beta", "gamma"].map(|who| log.state().may_plan(&process(who)));
    for who in ["alpha", "beta", "gamma"] {
        log.beats(who, 1);
    }
    assert_eq!(may(&log), [false; 3], "nothing to plan");
    log.counts(Record::Spec(spec(1, 2, 0)));
    for beats in 0..36 {
        let passed = beats / 12;
        assert_eq!(may(&log), [true, passed >= 1, passed >= 2], "after {beats}");
        for who in ["alpha", "beta", "gamma"] {
            log.beats(who, 1);
        }
    }
    assert!(!log.state().may_plan(&process("beta9")), "another incarnation");
    log.counts(Record::Plan(plan("beta", Some(at), log.end(), &[])));
    assert_eq!(may(&log), [false; 3]);
}

#[test]
fn a_plan_answers_events_below_what_its_author_had_read() {
    let mut log = Log::with(&["alpha"]);
    log.counts(Record::Spec(spec(1, 2, 0)));
    let read = log.end();
    log.counts(Record::Spec(spec(2, 4, 0)));
    log.counts(Record::Plan(plan("alpha", None, read, &[placed("alpha"), placed("alpha")])));
    assert_eq!(log.state().events().len(), 1);
    assert!(log.state().may_plan(&process("alpha")));
    let ahead = log.end() + 1;
    let ahead = plan("alpha", log.state().plan(), ahead, &[]);
    assert_eq!(log.add(Record::Plan(ahead)).void, Some(Void::Ahead));
}

#[test]
fn an_old_plan_is_looked_at_again() {
    let mut log = Log::with(&["alpha"]);
    log.counts(Record::Plan(plan("alpha", None, log.end(), &[])));
    for _ in 0..STATE_EVERY / 10_000_000 {
        assert!(log.state().events().is_empty());
        log.now += 10_000_000;
        log.beats("alpha", 1);
    }
    let causes: Vec<_> = log.state().events().iter().map(|event| event.cause).collect();
    assert_eq!(causes, [EventCause::Review]);
}

fn in_trouble(log: &mut Log, who: &str, partition: u32) -> Vec<Change> {
    let mut beat = beat(who, log.end());
    beat.trouble.insert(unit(partition));
    log.add(Record::Beat(beat)).changes
}

#[test]
fn trouble_is_an_event_once_and_bars_the_node_for_a_minute() {
    let mut log = Log::with(&["alpha", "beta"]);
    log.counts(Record::Spec(spec(1, 2, 0)));
    log.counts(Record::Plan(plan("alpha", None, log.end(), &[placed("alpha"), placed("beta")])));
    assert_eq!(in_trouble(&mut log, "beta", 0), [], "it does not have that unit");
    let event = Change::Trouble { unit: unit(0), name: name("alpha") };
    assert_eq!(in_trouble(&mut log, "alpha", 0), [event]);
    assert_eq!(in_trouble(&mut log, "alpha", 0), []);
    assert_eq!(log.state().events().len(), 1);
    let until = log.state().unit(&unit(0)).unwrap().bans[&name("alpha")];
    assert_eq!(until, log.state().log_time() + TROUBLE_LASTS);
    // The clock of a broker that is an hour ahead moves it by seconds.
    log.now += 3_600_000_000;
    log.beats("alpha", 1);
    log.now -= 3_600_000_000;
    log.beats("alpha", 1);
    assert!(until > log.state().log_time());
}

#[test]
fn a_node_that_gets_well_is_an_event_while_others_are_in_trouble() {
    let mut log = Log::with(&["alpha", "beta"]);
    log.counts(Record::Spec(spec(1, 2, 0)));
    let first = plan("alpha", None, log.end(), &[placed("alpha"), placed("beta")]);
    let at = log.counts(Record::Plan(first));
    in_trouble(&mut log, "alpha", 0);
    in_trouble(&mut log, "beta", 1);
    log.counts(Record::Plan(plan("alpha", Some(at), log.end(), &[placed("alpha"), placed("beta")])));
    log.beats("alpha", 1);
    assert_eq!(log.state().events().len(), 1);
    log.beats("beta", 1);
    assert_eq!(log.state().events().len(), 1, "nobody is in trouble any more");
}

#[test]
fn a_target_that_catches_up_is_an_event_and_a_former_active_hands_over_once() {
    let mut log = Log::with(&["alpha", "beta"]);
    log.counts(Record::Spec(spec(1, 1, 0)));
    let first = log.counts(Record::Plan(plan("alpha", None, log.end(), &[to("alpha", "beta")])));
    let ready = |log: &mut Log, ready| {
        let mut beat = beat("beta", log.end());
        beat.reports.push(report(0, 100, ready));
        log.add(Record::Beat(beat)).changes
    };
    assert_eq!(ready(&mut log, false), []);
    assert_eq!(ready(&mut log, true), [Change::Ready { unit: unit(0), name: name("beta") }]);
    assert_eq!(ready(&mut log, true), []);
    assert_eq!(log.state().events().len(), 1);

    let too_early = handed("alpha", 0, first, 7);
    assert_eq!(log.add(too_early).void, Some(Void::NotHandedOver));
    let why = Why { cause: Cause::Balance, choice: Choice::CaughtUp };
    let second = plan("alpha", Some(first), log.end(), &[because("beta", why)]);
    let applied = log.add(Record::Plan(second));
    let moved = Change::Moved { unit: unit(0), from: Some(name("alpha")), to: Some(name("beta")) };
    assert_eq!(applied.changes, [Change::Planned, moved]);
    let at = log.end() - 1;
    assert_eq!(log.add(handed("beta", 0, at, 7)).void, Some(Void::NotHandedOver));
    assert_eq!(log.add(handed("alpha", 0, first, 7)).void, Some(Void::NotHandedOver));
    assert_eq!(log.add(handed("alpha", 0, at, 7)).changes, [Change::Handed { unit: unit(0) }]);
    assert_eq!(log.add(handed("alpha", 0, at, 8)).void, Some(Void::NotHandedOver));
    let known = log.state().unit(&unit(0)).unwrap();
    assert_eq!(known.handed.unwrap().0.offset, 7);
    assert_eq!((known.why, known.since), (Some(why), Some(at)));
}

#[test]
fn jobs_are_replaced_by_higher_numbers_and_a_stopped_one_does_not_come_back() {
    let mut log = Log::with(&["alpha"]);
    log.counts(Record::Spec(spec(3, 4, 0)));
    assert_eq!(log.add(Record::Spec(spec(3, 8, 0))).void, Some(Void::Number { has: Some(3) }));
    log.counts(Record::Spec(spec(4, 2, 0)));
    assert_eq!(log.state().units().count(), 2);
    assert_eq!(log.add(stop(3)).void, Some(Void::Number { has: Some(4) }));
    log.counts(stop(4));
    assert_eq!((log.state().units().count(), log.state().jobs().count()), (0, 0));
    assert_eq!(log.add(stop(4)).void, Some(Void::Number { has: Some(4) }));
    assert_eq!(log.add(Record::Spec(spec(4, 2, 0))).void, Some(Void::Number { has: Some(4) }));
    log.counts(Record::Spec(spec(5, 2, 0)));
    let mut unknown = spec(6, 2, 0);
    unknown.semantics = 2;
    assert_eq!(log.add(Record::Spec(unknown)).void, Some(Void::NotAllCompute));
}

#[test]
fn collections_are_bounded() {
    let mut log = Log::new();
    for number in 0..MAX_MEMBERS {
        let who: String = [number / 676, number / 26, number]
            .map(|part| (b'a' + (part % 26) as u8) as char)
            .iter()
            .collect();
        log.counts(Record::Join(join(&who, log.end())));
    }
    let full = Void::Full { what: "members", most: MAX_MEMBERS };
    assert_eq!(log.add(Record::Join(join("alpha", log.end()))).void, Some(full));

    for number in 0..4 {
        let mut spec = spec(1, 4_096, 0);
        spec.job = name(&format!("job-{number}"));
        log.counts(Record::Spec(spec));
    }
    assert!(matches!(log.add(Record::Spec(spec(1, 1, 0))).void, Some(Void::Full { what: "units", .. })));

    let mut log = Log::new();
    log.counts(Record::Spec(spec(1, 1, 0)));
    for number in 0..12_u8 {
        let who = char::from(b'a' + number).to_string();
        log.counts(Record::Join(join(&who, log.end())));
        let mut beat = beat(&who, log.end());
        beat.reports.push(Report { position: 100 + u64::from(number), ..report(0, 0, false) });
        log.counts(Record::Beat(beat));
    }
    let holders: Vec<_> =
        log.state().unit(&unit(0)).unwrap().holders.keys().map(|name| name.to_string()).collect();
    assert_eq!(holders.len(), MAX_HOLDERS);
    assert_eq!(holders, ["e", "f", "g", "h", "i", "j", "k", "l"]);
    for number in 2..200 {
        log.counts(Record::Spec(spec(number, 1, 0)));
    }
    assert_eq!(log.state().events().len(), crate::fold::MAX_EVENTS);
}
