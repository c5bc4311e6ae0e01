//! Under load: a node is killed, a node joins, a node leaves, the broker hangs.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Options;
use super::client::{Mismatch, Outcome, Payments};
use super::nodes::{self, Nodes, job};
use crate::load::WARM_UP;
use crate::report::{Report, Table, count};
use thalweg_harness::service::kafka::Broker;

const CARDS: u64 = 10_000;

const NODES: [&str; 3] = ["a", "b", "c"];

/// How long the broker hangs.
const FROZEN: Duration = Duration::from_secs(8);

/// The load goes on for at least this long after the fault.
const AFTER: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Kill,
    Join,
    Leave,
    Freeze,
}

/// What a fault came to.
pub(super) struct Run {
    /// From the fault until a payment of each key that was sent after it is answered.
    pub(super) all_answer: Duration,
    pub(super) moves: usize,
    /// The fewest with which a fault like this can be done.
    pub(super) fewest: usize,
    pub(super) mismatch: Mismatch,
    pub(super) outcome: Outcome,
}

impl Fault {
    pub(super) const ALL: [Self; 4] = [Self::Kill, Self::Join, Self::Leave, Self::Freeze];

    fn title(self) -> &'static str {
        match self {
            Self::Kill => "`kill -9` of one of three nodes",
            Self::Join => "a third node joins",
            Self::Leave => "one of three nodes leaves",
            Self::Freeze => "the broker hangs for 8 s, three nodes",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Join => "join",
            Self::Leave => "leave",
            Self::Freeze => "freeze",
        }
    }

    fn asked(self) -> String {
        match self {
            Self::Kill => "keys answer in < 15 s, 0 lost, 0 double".to_owned(),
            Self::Join | Self::Leave => "the fewest moves, no 504".to_owned(),
            Self::Freeze => "0 moves".to_owned(),
        }
    }
}

pub(super) fn table(options: &Options, binary: &Path, broker: &Broker, report: &mut Report) -> Result<()> {
    report.heading("Faults");
    report.say(&format!(
        "{} payments a second over two stages, to all nodes that run; each is sent again with its id until it is answered. All keys answer when a payment of each of {} cards and shops is answered that was sent after the fault. In the end one more payment of each is compared with a recount.",
        count(f64::from(options.load())),
        super::client::PROBED
    ));
    let mut table = Table::new([
        "fault",
        "all keys answer after",
        "moves",
        "fewest",
        "lost",
        "double",
        "504",
        "repeats of requests",
        "p50",
        "the longest wait",
        "asked for",
    ]);
    for fault in Fault::ALL {
        let run = measure(fault, binary, broker, options.load(), if options.quick { 3 } else { AFTER });
        let run = run.with_context(|| fault.title())?;
        table.row([
            fault.title().to_owned(),
            format!("{:.1} s", run.all_answer.as_secs_f64()),
            run.moves.to_string(),
            run.fewest.to_string(),
            run.mismatch.lost.to_string(),
            run.mismatch.double.to_string(),
            run.outcome.unknown.to_string(),
            format!("{} of {}", run.outcome.repeats, run.outcome.requests),
            format!("{:.1} ms", run.outcome.quantile_ms(0.5)),
            format!("{:.1} s", run.outcome.quantile_ms(1.0) / 1e3),
            fault.asked(),
        ]);
    }
    report.table(&table);
    report.say("The fewest moves are the units that a node had which is gone, and those that a new one has in the end. A unit weighs what it computes and keeps, so nodes may have different numbers of them.");
    report.say("Payments that are due while a fault lasts wait for one of the client's connections, which wait for replies: p50 and the longest wait have that in them.");
    Ok(())
}

pub(super) fn measure(fault: Fault, binary: &Path, broker: &Broker, rate: u32, after: u32) -> Result<Run> {
    let prefix = format!("fault-{}", fault.name());
    let names = if fault == Fault::Join { &NODES[..2] } else { &NODES[..] };
    let mut nodes = Nodes::start(binary, broker, &prefix, &job(&["card", "shop"]), names)?;
    let payments = Payments::new(CARDS, nodes.doors());
    payments.all_answer()?;
    // The first node sees it all.
    let seen_by = nodes.doors()[0];
    let mut strike = || -> Result<Duration> {
        thread::scope(|scope| {
            let begun = Instant::now();
            let asked = match fault {
                Fault::Kill => {
                    nodes.kill("c")?;
                    payments.set_doors(nodes.doors());
                    payments.all_answer()
                }
                Fault::Join => {
                    nodes.launch("c")?;
                    nodes.settle()?;
                    payments.set_doors(nodes.doors());
                    payments.all_answer()
                }
                Fault::Leave => {
                    // Clients are sent elsewhere before a node leaves.
                    payments.set_doors(nodes.doors().into_iter().take(2).collect());
                    nodes.leave("c")?;
                    payments.all_answer()
                }
                Fault::Freeze => {
                    broker.pause();
                    let asking = scope.spawn(|| payments.all_answer());
                    thread::sleep(FROZEN);
                    broker.resume();
                    asking.join().expect("a client does not panic")
                }
            };
            asked?;
            Ok(begun.elapsed())
        })
    };
    let load = || payments.at_rate(rate, 2 + after);
    // A new node has no units yet.
    let had = nodes::units_of(seen_by, "c")?;
    let ((outcome, all_answer), moves) = nodes::moves(seen_by, || {
        thread::scope(|scope| {
            let load = scope.spawn(load);
            thread::sleep(Duration::from_secs(u64::from(WARM_UP) + 2));
            let struck = strike();
            let outcome = load.join().expect("a client does not panic");
            Ok((outcome?, struck?))
        })
    })?;
    nodes.settle()?;
    let fewest = match fault {
        Fault::Kill | Fault::Leave => had,
        Fault::Join => nodes::units_of(seen_by, "c")?,
        Fault::Freeze => 0,
    };
    Ok(Run { all_answer, moves, fewest, mismatch: payments.recount()?, outcome })
}
