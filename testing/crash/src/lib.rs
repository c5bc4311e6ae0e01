//! `cargo xtask crash`: the real program is killed again and again, and what came out is recounted.
//!
//! A parent (this) starts the engine, feeds it, and ends it: with SIGKILL at random moments, at named calls (by strace),
//! by errors of calls, or by a power cut of the file system that it writes to. Each start has other options. When all
//! input is through, outputs are recounted from inputs by code that shares nothing with the engine.
//!
//! * [`round`] is its course, [`decide`] chooses the faults, [`jobs`] are run and recounted.
//! * [`disk`] reads what the engine has left, [`ledger`] knows what of that must not change any more.
//! * [`database`] and [`broker`] are services that go away, too, while a job writes to them.
//! * [`power`] is the disk whose power is cut; [`plants`] shows that the harness finds planted bugs.
//!
//! Every decision is a function of the seed, the job, and the numbers of round and start. Their effects depend on
//! the machine: a seed repeats the attempts, not the outcomes.

mod broker;
mod counts;
mod database;
mod decide;
mod disk;
mod engine;
pub mod faults;
mod jobs;
mod ledger;
mod plants;
mod power;
mod round;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

pub use self::jobs::NAMES as JOBS;

use self::counts::{Counts, Wanted};
use self::decide::Means;
use self::jobs::{KINDS, Kind, Make};
use self::power::Power;
use self::round::Harness;
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub struct Options {
    /// Kills, power cuts and errors, spread over the jobs
    #[arg(long, default_value_t = 200)]
    cycles: u64,
    /// Where decisions come from; a new one each time where not given
    #[arg(long)]
    seed: Option<u64>,
    /// Run only these jobs
    #[arg(long, value_name = "NAME", value_parser = jobs::NAMES)]
    job: Vec<String>,
    /// Begin with this round instead of the first: the way back to one that failed
    #[arg(long, default_value_t = 0)]
    round: u64,
    /// Cut the power of an ext4 in a loop file instead of only killing; takes root
    #[arg(long)]
    power: bool,
    /// Put known bugs back in, and see that each is found
    #[arg(long, conflicts_with_all = ["job", "power", "cycles"])]
    plants: bool,
    /// A mount namespace of its own is there
    #[arg(long, hide = true)]
    in_namespace: bool,
}

/// Runs what `options` ask for: rounds of jobs, power cuts, or plants.
///
/// # Errors
/// What kept a round from running; a mismatch is an exit code.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.power && !options.in_namespace {
        if let Some(reason) = power::missing() {
            bail!("power cannot be cut here: {reason}");
        }
        let arguments: Vec<String> = std::env::args().skip(1).chain(["--in-namespace".to_owned()]).collect();
        let status = power::in_namespace(&arguments)?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let seed = options.seed.unwrap_or_else(new_seed);
    if options.plants {
        return Ok(if plants::run(seed)? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let binary = project::thalweg(Profile::Dev)?;
    let kinds =
        KINDS.iter().filter(|kind| options.job.is_empty() || options.job.iter().any(|job| job == kind.name));
    let (jobs, missing) = open(kinds)?;
    for (name, reason) in missing {
        println!("crash {name}: skipped: {reason}");
    }
    ensure!(!jobs.is_empty(), "none of these jobs can run here");
    let share = options.cycles.div_ceil(jobs.len() as u64);
    let mut is_good = true;
    for (kind, make) in &jobs {
        let (counts, outcome) = job(&binary, kind, make, share, seed, options)?;
        println!("crash {}: seed={seed} {counts}", kind.name);
        if let Err(error) = outcome {
            println!("FAILED {error:#}");
            is_good = false;
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Jobs that can run here, and names of those that cannot with the reason.
type Opened = (Vec<(&'static Kind, Make)>, Vec<(&'static str, String)>);

fn open(kinds: impl Iterator<Item = &'static Kind>) -> Result<Opened> {
    let (mut jobs, mut missing) = (Vec::new(), Vec::new());
    for kind in kinds {
        match kind.open().with_context(|| format!("prepare job {}", kind.name))? {
            Ok(make) => jobs.push((kind, make)),
            Err(reason) => missing.push((kind.name, reason)),
        }
    }
    Ok((jobs, missing))
}

fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ now.as_secs()
}

/// Crashes of a run from which on it has to show all that its job can.
const LONG: u64 = 100;

/// How many times as many crashes as were asked for a run may have until it has shown something.
const PATIENCE: u64 = 4;

/// Runs rounds of a job until there were enough crashes, and reports the failure, if there was one.
fn job(
    binary: &Path,
    kind: &Kind,
    make: &Make,
    crashes: u64,
    seed: u64,
    options: &Options,
) -> Result<(Counts, Result<()>)> {
    let scratch = project::scratch("crash")?;
    let folder = tempfile::Builder::new().prefix(kind.name).tempdir_in(scratch)?;
    let power = if options.power { Some(Power::open(folder.path())?) } else { None };
    let means = Means { strace: !options.power && project::has("strace"), power: power.is_some() };
    let harness = Harness { binary, folder: folder.path().to_owned(), means, power, seed };
    let wanted = Wanted {
        outages: kind.wanted.outages,
        moments: kind.wanted.moments && means.strace,
        // A kill has to come between a write and the commit record that counts it: a short run may have none.
        repeats: kind.wanted.repeats && crashes >= LONG,
    };
    let mut counts = Counts::default();
    let started = Instant::now();
    let mut shown = 0;
    for number in options.round.. {
        let mut decisions = Vec::new();
        if let Err(error) = harness.round(kind.name, make, number, &mut counts, &mut decisions) {
            counts.mismatches += 1;
            for decision in decisions {
                println!("  {decision}");
            }
            let again = if options.power { " --power" } else { "" };
            let error = error.context(format!(
                "round {number}; files are in {}; again: cargo xtask crash --job {} --seed {seed} --round {number} --cycles 1{again}",
                folder.path().display(),
                kind.name
            ));
            drop(harness);
            let _ = folder.keep();
            return Ok((counts, Err(error)));
        }
        // Chance may leave out what a run has to show: then it goes on for a while.
        let is_vacuous = counts.check(&wanted).is_err();
        if counts.crashes() >= if is_vacuous { PATIENCE * crashes } else { crashes } {
            break;
        }
        if started.elapsed().as_secs() / 60 > shown {
            shown += 1;
            println!("crash {}: {counts} so far", kind.name);
        }
    }
    let outcome = counts.check(&wanted);
    Ok((counts, outcome))
}

/// Crashes of the suite, all jobs together: some more than the 200 kills and 50 power cuts that are required, as some
/// end in an error instead, or between two cuts in a kill.
const SUITE_KILLS: u64 = 224;
const SUITE_CUTS: u64 = 70;

/// A short run for `cargo xtask test`, with fresh seeds: each job is one check, and so is the power cut.
pub fn suite() -> Result<Tally> {
    let binary = project::thalweg(Profile::Dev)?;
    let mut tally = Tally::default();
    if !project::has_or_gets("strace", "strace") {
        tally.skip("kills at named calls: there is no strace");
    }
    match project::has("git") {
        true => tally.check("crash: plants apply", plants::still_apply()),
        false => tally.skip("plants apply: there is no git"),
    }
    let seed = new_seed();
    let options = Options {
        cycles: 0,
        seed: None,
        job: Vec::new(),
        round: 0,
        power: false,
        plants: false,
        in_namespace: false,
    };
    let (jobs, missing) = open(KINDS.iter())?;
    for (name, reason) in missing {
        tally.skip(format!("{name}: {reason}"));
    }
    let share = SUITE_KILLS.div_ceil(jobs.len() as u64);
    for (kind, make) in &jobs {
        let share = kind.share.unwrap_or(share);
        let (counts, outcome) = job(&binary, kind, make, share, seed, &options)?;
        tally.check(&format!("crash {}: seed={seed} {counts}", kind.name), outcome);
    }
    match power::missing() {
        Some(reason) => tally.skip(format!("power cuts: {reason}")),
        None => {
            let cycles = SUITE_CUTS.to_string();
            let arguments =
                ["crash", "--power", "--in-namespace", "--cycles", &cycles, "--seed", &seed.to_string()];
            let status = power::in_namespace(&arguments.map(str::to_owned))?;
            let outcome = if status.success() { Ok(()) } else { Err(anyhow::anyhow!("{status}, see above")) };
            tally.check(&format!("crash: power cuts, seed={seed}"), outcome);
        }
    }
    Ok(tally)
}
