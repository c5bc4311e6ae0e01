//! Each rule by itself, and all of them in schedules at random, in which nothing is lost, or something is.

use std::collections::VecDeque;

use fastrand::Rng;
use thalweg_cluster::positions::{Origin, Position, Through, Verdict};

use super::*;

fn mark(offset: u64) -> Mark {
    match offset {
        0 => Mark::START,
        _ => Mark { position: Position { offset, row: 0 }, made: 1 },
    }
}

fn sent(opened: u64, written: u64) -> SentTo {
    SentTo { opened: mark(opened), written: mark(written) }
}

/// Looks at a gap that waits after `through`, once for each of `beats`, until something is to be done; what that is, and in which beat.
fn looks(
    watch: &mut Watch,
    through: u64,
    read: u64,
    sent: SentTo,
    beats: impl IntoIterator<Item = u64>,
) -> Option<(Step, u64)> {
    beats.into_iter().find_map(|beat| {
        let gap = NamedGap { from: 1, to: 2, through: mark(through), read, beat };
        let step = watch.look(&gap, sent, || Some(100));
        (step != Step::Wait).then_some((step, beat))
    })
}

#[test]
fn a_unit_goes_back_once_and_stops_where_its_commit_is_after_the_gap() {
    let mut watch = Watch::default();
    assert_eq!(looks(&mut watch, 5, 100, sent(7, 9), 1..100), Some((Step::GoBack, 4)));
    assert_eq!(looks(&mut watch, 5, 100, sent(7, 7), 5..100), Some((Step::Stop, 16)));
    // Another mark is another gap.
    let mut watch = Watch::default();
    assert_eq!(looks(&mut watch, 5, 100, sent(7, 9), 1..100), Some((Step::GoBack, 4)));
    assert_eq!(looks(&mut watch, 6, 100, sent(7, 9), 5..100), Some((Step::GoBack, 8)));
}

#[test]
fn rows_that_can_be_made_again_stop_no_unit_however_often_they_are_lost() {
    let mut watch = Watch::default();
    let mut beat = 1;
    for needed in [4, 8, 16, 32, 64, 128, 256, 512, 1_024, 1_024] {
        // It has not sent them again yet.
        assert_eq!(looks(&mut watch, 5, 100, sent(3, 5), beat..beat + 9), None);
        let (step, at) = looks(&mut watch, 5, 100, sent(3, 9), beat + 9..beat + 9_000).unwrap();
        assert_eq!((step, at - beat - 8), (Step::GoBack, needed));
        beat = at + 1;
    }
}

#[test]
fn nothing_is_done_about_what_may_be_an_old_view() {
    let mut watch = Watch::default();
    assert_eq!(looks(&mut watch, 9, 100, sent(7, 9), 1..50), None, "nothing is missing of what was written");
    assert_eq!(looks(&mut watch, 5, 99, sent(3, 9), 50..99), None, "the receiver has more to read");
    assert_eq!(looks(&mut watch, 5, 100, sent(3, 9), [99; 50]), None, "one beat says so again and again");
    // A gap that closes meanwhile, and one that moves, begin anew.
    assert_eq!(looks(&mut watch, 5, 100, sent(3, 9), 100..102), None);
    watch.keep(&[NamedGap { from: 1, to: 3, through: mark(5), read: 100, beat: 1 }]);
    assert_eq!(looks(&mut watch, 5, 100, sent(3, 9), 102..105), None);
    assert_eq!(looks(&mut watch, 6, 100, sent(3, 9), 105..108), None);
    // No broker says where the end is.
    let gap = NamedGap { from: 1, to: 2, through: mark(7), read: 100, beat: 0 };
    for beat in 200..250 {
        assert_eq!(watch.look(&NamedGap { beat, ..gap }, sent(3, 9), || None), Step::Wait);
    }
}

const ORIGIN: Origin = Origin::Unit { stage: 0, partition: 1 };

/// A frame: the rows after one mark up to another.
#[derive(Clone, Copy, Debug)]
struct Sent {
    after: u64,
    last: u64,
}

/// A copy of the sending unit on one node, with the commit on its disk.
#[derive(Default)]
struct Copy {
    commit: u64,
    opened: u64,
    made: u64,
    written: u64,
    /// Frames that its client has, in order, and whether one was given up.
    queue: VecDeque<Sent>,
    has_failed: bool,
    watch: Watch,
    stopped: bool,
}

impl Copy {
    fn open(&mut self) {
        (self.opened, self.made, self.written) = (self.commit, self.commit, self.commit);
        self.queue.clear();
        self.has_failed = false;
    }
}

/// A copy of the receiving unit, with what its last beat said.
#[derive(Clone, Default)]
struct Receiver {
    through: Through,
    read: usize,
    open: Option<(Mark, Mark)>,
}

impl Receiver {
    fn step(&mut self, log: &[Sent]) {
        let Some(frame) = log.get(self.read) else { return };
        self.read += 1;
        let marks: Vec<Mark> = (frame.after + 1..=frame.last).map(mark).collect();
        match self.through.take(ORIGIN, mark(frame.after), &marks) {
            Verdict::Gap(through) => {
                let end = self.open.map_or(mark(frame.last), |(_, end)| end.max(mark(frame.last)));
                self.open = (mark(frame.last) > through).then_some((through, end));
            }
            Verdict::From(_) => {
                let through = self.through.of(ORIGIN);
                self.open = self.open.filter(|(_, end)| through < *end).map(|(_, end)| (through, end));
            }
        }
    }
}

struct Outcome {
    returns: usize,
    stops: usize,
    has_all: bool,
    gaps: usize,
}

/// Two copies of a sender and two of a receiver, which die, pause, lag and move; of what is acknowledged `lost` frames are not
/// there. Each node believes for a while in an old beat, and that it is the active.
fn schedule(seed: u64, mut lost: u32) -> Outcome {
    let mut rng = Rng::with_seed(seed);
    let mut log: Vec<Sent> = Vec::new();
    let mut copies = [Copy::default(), Copy::default()];
    let mut receivers = [Receiver::default(), Receiver::default()];
    let mut checkpoint = Receiver::default();
    let mut beats: VecDeque<NamedGap> = VecDeque::new();
    let (mut beat, mut active, mut outcome) =
        (0, 0, Outcome { returns: 0, stops: 0, has_all: false, gaps: 0 });
    const ROWS: u64 = 200;
    for step in 0..20_000 {
        let calms = step > 6_000;
        let at = rng.usize(0..2);
        let copy = &mut copies[at];
        match rng.u32(0..100) {
            0..20 if !copy.stopped && !copy.has_failed => {
                // In the end there is nothing new but what shows a gap at the end.
                let end = (copy.made + rng.u64(1..5)).min(if calms { ROWS } else { ROWS - 10 });
                if end > copy.made {
                    copy.queue.push_back(Sent { after: copy.made, last: end });
                    copy.made = end;
                }
            }
            20..45 => {
                let Some(frame) = copy.queue.pop_front() else { continue };
                if !calms && rng.u32(0..100) < 4 {
                    // Given up; what is after it may be written all the same.
                    copy.has_failed = true;
                } else if lost > 0 && !copy.has_failed && rng.u32(0..100) < 10 {
                    lost -= 1;
                    copy.written = frame.last;
                } else {
                    log.push(frame);
                    copy.has_failed |= !calms && rng.u32(0..100) < 4;
                    if !copy.has_failed {
                        copy.written = frame.last;
                    }
                }
            }
            45..50 if copy.queue.is_empty() && !copy.has_failed => copy.commit = copy.written,
            // It goes on from its commit, after a failure or a kill.
            50..52 if !copy.stopped && (copy.has_failed || !calms) => copy.open(),
            52..53 if !calms => active = rng.usize(0..2),
            // A snapshot of the other one's.
            53..54 if !calms => {
                let commit = copies[1 - at].commit;
                copies[at].commit = commit;
                copies[at].open();
            }
            54..75 => receivers[at].step(&log),
            75..76 => checkpoint = receivers[at].clone(),
            76..77 if !calms => receivers[at] = Receiver { open: None, ..checkpoint.clone() },
            77..88 => {
                beat += 1;
                if let Some((through, _)) = receivers[at].open {
                    outcome.gaps += 1;
                    let read = receivers[at].read as u64;
                    beats.push_back(NamedGap { from: 1, to: 2, through, read, beat });
                } else {
                    beats.clear();
                }
            }
            _ => {
                // It may have read less of the control log than there is.
                if beats.len() > 1 && rng.bool() {
                    beats.pop_front();
                }
                let gap = beats.front().copied();
                let named: Vec<NamedGap> = gap.into_iter().collect();
                copy.watch.keep(&named);
                let believes = at == active || (!calms && rng.u32(0..10) == 0);
                let (Some(gap), true) = (gap, believes && !copy.stopped && !copy.has_failed) else {
                    continue;
                };
                let sent = sent(copy.opened, copy.written);
                match copy.watch.look(&gap, sent, || Some(log.len() as u64)) {
                    Step::Wait => {}
                    Step::GoBack => {
                        outcome.returns += 1;
                        copy.open();
                    }
                    Step::Stop => {
                        outcome.stops += 1;
                        copy.stopped = true;
                    }
                }
            }
        }
    }
    let mut last = Receiver::default();
    log.iter().for_each(|_| last.step(&log));
    outcome.has_all = last.through.of(ORIGIN) == mark(ROWS);
    outcome
}

#[test]
fn ordinary_disturbance_stops_no_unit_and_has_none_go_back() {
    let mut gaps = 0;
    for seed in 0..2_000 {
        let outcome = schedule(seed, 0);
        assert_eq!((outcome.returns, outcome.stops), (0, 0), "seed {seed}");
        assert!(outcome.has_all, "seed {seed}");
        gaps += outcome.gaps;
    }
    assert!(gaps > 1_000, "{gaps} gaps: nothing was disturbed");
}

#[test]
fn what_is_lost_is_sent_again_or_stops_the_unit() {
    let (mut returns, mut stops, mut mended) = (0, 0, 0);
    for seed in 0..2_000 {
        let outcome = schedule(seed, 1);
        assert!(outcome.has_all || outcome.stops > 0, "seed {seed}: rows are missing, and nothing stops");
        returns += outcome.returns;
        stops += outcome.stops;
        mended += usize::from(outcome.has_all && outcome.returns > 0 && outcome.stops == 0);
    }
    // Commits are frequent here, so most losses lie before one when they are found.
    assert!(returns > 100 && stops > 10 && mended > 0, "{returns} returns, {stops} stops, {mended} mended");
}
