//! Decisions about each start of the engine: its options, and the way it ends.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use thalweg_harness::process::Shutdown;
use thalweg_harness::random::Random;

/// Options of a job that must change no result.
#[derive(Clone, Debug)]
pub(super) struct Tuning {
    pub(super) workers: u64,
    pub(super) cycle: Map<String, Value>,
    /// `state.memory`.
    pub(super) memory: Option<&'static str>,
    /// `state.recovery`.
    pub(super) recovery: &'static str,
    /// `state.chunk_memory`.
    pub(super) chunk_memory: Option<&'static str>,
    /// `checkpoint` of elements.
    pub(super) checkpoint: Option<&'static str>,
    /// `buffer` and `flush` of links.
    pub(super) buffer: Option<&'static str>,
    pub(super) flush: Option<&'static str>,
    /// `poll` of followed files.
    pub(super) poll: &'static str,
}

impl Tuning {
    pub(super) fn decide(random: &mut Random) -> Self {
        let mut cycle = Map::new();
        // Mostly short: a cycle that does not end before the kill recovers nothing but the order.
        cycle
            .insert("every".to_owned(), json!(random.pick(&["1ms", "3ms", "10ms", "10ms", "30ms", "300ms"])));
        if random.percent(30) {
            cycle.insert("records".to_owned(), json!(random.pick(&[50, 1_000, 20_000])));
        }
        if random.percent(30) {
            cycle.insert("bytes".to_owned(), json!(random.pick(&["1KiB", "64KiB", "1MiB"])));
        }
        Self {
            workers: random.between(1, 4),
            cycle,
            memory: random.percent(50).then(|| random.pick(&["64KiB", "1MiB"])),
            recovery: random.pick(&["eager", "lazy"]),
            chunk_memory: random.percent(50).then(|| random.pick(&["16KiB", "1MiB"])),
            checkpoint: random.percent(30).then(|| random.pick(&["10 records", "500 records", "20ms"])),
            buffer: random.percent(50).then(|| random.pick(&["1KiB", "16KiB", "1MiB"])),
            flush: random.percent(30).then(|| random.pick(&["1ms", "5ms"])),
            poll: random.pick(&["1ms", "5ms"]),
        }
    }

    /// An input of an operator or a sink, with the options of its link.
    pub(super) fn input(&self, from: &str) -> Value {
        let mut input = json!({ "from": from });
        if let Some(buffer) = self.buffer {
            input["buffer"] = json!(buffer);
        }
        if let Some(flush) = self.flush {
            input["flush"] = json!(flush);
        }
        input
    }

    /// The state section of a job.
    pub(super) fn state(&self) -> Value {
        let mut state = json!({ "recovery": self.recovery });
        for (key, size) in [("memory", self.memory), ("chunk_memory", self.chunk_memory)] {
            if let Some(size) = size {
                state[key] = json!(size);
            }
        }
        state
    }
}

/// What ends a run of the engine before its input does.
#[derive(Clone, Debug)]
pub(super) enum Disturbance {
    /// Nothing: it runs until its input is through.
    None,
    Kill(Moment),
    /// SIGKILL at, or an error from, a call that strace waits for. Where the call does not come: a kill.
    Call(Injection, Moment),
    PowerCut(Moment, Shutdown),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// After the start. Meant for the start and the recovery.
    Started(Duration),
    /// After something was seen to be written.
    Worked(Duration),
    /// After the commit log was seen to grow so often: however slow the machine is, there is something to recover.
    Committed(u64, Duration),
}

/// The `nth` call of a thread to `syscall` on a file of this kind.
#[derive(Clone, Debug)]
pub(super) struct Injection {
    pub(super) syscall: &'static str,
    pub(super) target: Target,
    pub(super) nth: u64,
    pub(super) effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Any,
    CommitLog,
    Order,
    Journal,
    Sink,
    JobFile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Kill,
    Error(&'static str),
}

use Target::{Any, CommitLog, JobFile, Journal, Order, Sink};

/// Where a kill may hit: the call, the file, and how often it is called in a short run.
const KILLS: [(&str, Target, u64); 13] = [
    ("fdatasync", Any, 12),
    ("fdatasync", CommitLog, 6),
    ("fdatasync", Order, 8),
    ("fdatasync", Journal, 20),
    ("fdatasync", Sink, 6),
    ("fsync", Any, 4),
    ("rename", Any, 2),
    ("ftruncate", Any, 2),
    ("unlink", Any, 1),
    ("pwrite64", CommitLog, 6),
    ("pwrite64", Order, 8),
    ("pwrite64", Journal, 20),
    ("write", Sink, 10),
];

/// What a commit record takes, on the commit log.
const WRITES_RECORD: &str = "pwrite64";
const SYNCS_RECORD: &str = "fdatasync";

/// When a call has not come so long after something was written, it is a kill instead.
const LATE: Moment = Moment::Worked(Duration::from_millis(400));

/// Which call may fail how.
const FAULTS: [(&str, Target, &str, u64); 12] = [
    ("fdatasync", Any, "EIO", 12),
    ("fdatasync", CommitLog, "EIO", 6),
    ("fdatasync", Order, "EIO", 8),
    ("fdatasync", Journal, "EIO", 20),
    ("fdatasync", Sink, "EIO", 6),
    ("pwrite64", CommitLog, "ENOSPC", 6),
    ("pwrite64", Order, "ENOSPC", 8),
    ("pwrite64", Journal, "ENOSPC", 20),
    ("write", Sink, "ENOSPC", 10),
    ("rename", JobFile, "EIO", 1),
    ("openat", Sink, "EACCES", 1),
    ("openat", CommitLog, "EACCES", 1),
];

/// What may be done to the engine on this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means {
    pub(super) strace: bool,
    pub(super) power: bool,
}

impl Disturbance {
    /// For jobs to whose sources and sinks it matters whether a commit record is written: right before that, when what
    /// it names is there, and right after, before anybody has heard of it, are each sought in a quarter of all starts.
    pub(super) fn decide_near_commits(random: &mut Random, means: Means, number: u64) -> Self {
        if means.strace && number % 2 == 1 {
            let syscall = if number % 4 == 1 { WRITES_RECORD } else { SYNCS_RECORD };
            let nth = random.between(1, 6);
            return Self::Call(Injection { syscall, target: CommitLog, nth, effect: Effect::Kill }, LATE);
        }
        Self::decide(random, means)
    }

    pub(super) fn decide(random: &mut Random, means: Means) -> Self {
        let moment = match random.between(0, 9) {
            0..2 => Moment::Started(random.time(Duration::from_millis(60))),
            2..6 => Moment::Worked(random.time(Duration::from_millis(60))),
            _ => Moment::Committed(random.between(1, 4), random.time(Duration::from_millis(10))),
        };
        if means.power {
            let how = if random.percent(15) { Shutdown::FlushLog } else { Shutdown::Now };
            // A kill between two cuts: what was only written then must not count as synced later.
            return if random.percent(20) { Self::Kill(moment) } else { Self::PowerCut(moment, how) };
        }
        let (kind, kill, fault) = (random.between(0, 99), random.pick(&KILLS), random.pick(&FAULTS));
        match kind {
            0..20 if means.strace => {
                let (syscall, target, most) = kill;
                let nth = random.between(1, most);
                Self::Call(Injection { syscall, target, nth, effect: Effect::Kill }, LATE)
            }
            20..30 if means.strace => {
                let (syscall, target, error, most) = fault;
                let nth = random.between(1, most);
                Self::Call(Injection { syscall, target, nth, effect: Effect::Error(error) }, LATE)
            }
            _ => Self::Kill(moment),
        }
    }

    /// A kill at the call that writes a commit record.
    pub(super) fn is_before_record(&self) -> bool {
        self.is_kill_at(WRITES_RECORD)
    }

    /// A kill at the call that syncs a commit record, which is written.
    pub(super) fn is_after_record(&self) -> bool {
        self.is_kill_at(SYNCS_RECORD)
    }

    fn is_kill_at(&self, of_the_commit_log: &str) -> bool {
        let Self::Call(Injection { syscall, target, effect, .. }, _) = self else { return false };
        *syscall == of_the_commit_log && (*target, *effect) == (CommitLog, Effect::Kill)
    }

    pub(super) fn moment(&self) -> Option<Moment> {
        match self {
            Self::None => None,
            Self::Kill(moment) | Self::Call(_, moment) | Self::PowerCut(moment, _) => Some(*moment),
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(f, "runs to its end"),
            Self::Kill(moment) => write!(f, "kill {moment}"),
            Self::PowerCut(moment, how) => write!(f, "power cut ({how:?}) {moment}"),
            Self::Call(injection, moment) => {
                let Injection { syscall, target, nth, effect } = injection;
                match effect {
                    Effect::Kill => write!(f, "kill at {syscall} {nth} of {target:?}, else {moment}"),
                    Effect::Error(error) => {
                        write!(f, "{error} from {syscall} {nth} of {target:?}, else kill {moment}")
                    }
                }
            }
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(time) => write!(f, "{time:?} after the start"),
            Self::Worked(time) => write!(f, "{time:?} after something was written"),
            Self::Committed(count, time) => write!(f, "{time:?} after {count} commits"),
        }
    }
}
