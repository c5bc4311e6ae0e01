//! `cargo xtask hostile`: a node with little memory and few file handles, attacked from all sides for minutes, with a
//! live job during the attack.
//!
//! Attackers have connections of all bad habits ([`habits`]), bodies that ask for much ([`bombs`]), and hostile queries
//! ([`queries`]); they address the job `mud`. The job `live` gets records at a steady rate ([`live`]). [`watch`] asks
//! for the health of the node and for `SELECT 1`. In the end the node has to be there, the live job's answers have to be
//! those of a recount, its tail near that of the quiet time before, and a new start has to go on with the same values.
//!
//! A run in which nothing was disturbed has failed: each kind of attack counts what it did.

mod attack;
mod bombs;
mod habits;
mod live;
mod node;
mod queries;
mod watch;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::attack::Attack;
use self::live::{Live, Model};
use self::node::Node;
use self::watch::Watch;
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};
use thalweg_harness::random::Random;

/// How long the live job runs before anybody attacks.
const QUIET: Duration = Duration::from_secs(10);

/// The suite's share of a change's checks.
const SUITE: Duration = Duration::from_secs(170);

/// The tail of the live job may grow to this under attack, or by [`GROWTH`], whatever is more: both cores are in use
/// then. A request that waits for an attacker's takes seconds.
const TAIL: Duration = Duration::from_millis(250);
const GROWTH: u32 = 10;

/// A monitor that looks at both on new connections, after a thousand others in the queue of the kernel, has them by
/// then.
const HEALTH: Duration = Duration::from_secs(20);

/// `SELECT 1` next to any other query.
const SELECT: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Options {
    /// Seconds of attack
    #[arg(long, default_value_t = SUITE.as_secs())]
    seconds: u64,
    /// Connections of bad habits at once
    #[arg(long, default_value_t = 2_000)]
    connections: usize,
    /// Where all choices come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let tally = attack(options)?;
    for note in &tally.notes {
        println!("{note}");
    }
    println!("{} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped);
    Ok(if tally.failed == 0 && tally.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The attack of `cargo xtask test`.
pub fn suite() -> Result<Tally> {
    attack(&Options { seconds: SUITE.as_secs(), connections: 2_000, seed: 1 })
}

fn attack(options: &Options) -> Result<Tally> {
    let mut tally = Tally::default();
    if !project::has("prlimit") {
        tally.skip("hostile: no prlimit: it is part of util-linux");
        return Ok(tally);
    }
    allow_handles(options.connections as u64 + 256)?;
    let binary = project::thalweg(Profile::Dev)?;
    let mut node = Node::start(&binary)?;
    let live = Live::start(node.address())?;
    thread::sleep(QUIET);
    let quiet = live.take_times();

    let watch = Watch::start(node.address())?;
    let attack = Arc::new(Attack::new(&node, options.connections)?);
    let random = Random::new(options.seed);
    let attackers = attack::start(&attack, &random);
    let until = Instant::now() + Duration::from_secs(options.seconds);
    let mut died = None;
    while Instant::now() < until && died.is_none() {
        thread::sleep(Duration::from_millis(100));
        died = node.check_running().err();
    }
    let loud = live.take_times();
    let model = live.stop();
    attack.stop();
    for attacker in attackers {
        attacker.join().map_err(|_| anyhow::anyhow!("an attacker panicked"))?;
    }
    let seen = watch.stop()?;
    println!("{}", attack.figures());
    println!("live job quiet: {quiet}");
    println!("live job under attack: {loud}");
    println!("{seen}");
    println!("node: {} MiB resident at most, {} handles", node.peak_bytes() >> 20, node.handles());

    tally.check("the node is there", died.map_or(Ok(()), Err));
    tally.check("each kind of attack took place", attack.was_complete());
    tally.check("what may not be done was refused", attack.refusals());
    let (model, right) = model.map_or_else(|error| (None, Err(error)), |model| (Some(model), Ok(())));
    tally.check("answers of the live job are those of a recount", right);
    tally.check("the tail of the live job", loud.is_near(&quiet, TAIL, GROWTH));
    tally.check("the node says how it is", seen.health(HEALTH));
    tally.check("SELECT 1 is answered", seen.select(SELECT));
    tally.check("memory", node.within_memory());
    tally.check("the node ends when it is asked to", node.stop());
    tally.check("a new start goes on with the same values", go_on(&mut node, model));
    tally.check("what is on the disk is whole", node.verify());
    Ok(tally)
}

fn go_on(node: &mut Node, model: Option<Model>) -> Result<()> {
    let model = model.context("the live job was not answered to the end")?;
    node.start_again()?;
    model.go_on(node.address()).context("after the new start")?;
    node.stop()
}

/// Attackers need more handles than a process usually may have.
fn allow_handles(count: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    ensure!(
        limit.maximum.is_none_or(|most| most >= count),
        "this user may have {:?} open files, and the attack needs {count}",
        limit.maximum
    );
    if limit.current.is_some_and(|now| now < count) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum: limit.maximum })
            .context("raise the limit of open files")?;
    }
    Ok(())
}
