//! `cargo xtask faults`: each way in which a disk lets the real program down, one after the other and always the same.
//!
//! Each check runs a job into a fault, expects an exit code and a message that says what, where, why, and what to do,
//! takes the fault away, starts the job again, and expects the output of an undisturbed run, byte by byte.
//!
//! Not here: faults at random moments and kills ([`crate`]); what a program that is not root can show, which its
//! own tests do.

mod calls;
mod disk;
mod job;
mod reads;

use std::process::ExitCode;

use anyhow::Result;

use self::job::Bench;
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub struct Options {
    /// Run only this check
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

/// One fault.
struct Check {
    name: &'static str,
    /// Why it cannot be made here, if so.
    missing: fn() -> Option<String>,
    run: fn(&Bench) -> Result<()>,
}

const CHECKS: [Check; 10] = [
    Check { name: "data-disk-full", missing: disk::missing, run: disk::data_full },
    Check { name: "disk-full-is-read", missing: disk::missing, run: reads::full },
    Check { name: "sink-disk-full", missing: disk::missing, run: disk::sink_full },
    Check { name: "disk-read-only", missing: disk::missing, run: disk::read_only },
    Check { name: "disk-becomes-read-only", missing: disk::no_disk_that_fails, run: disk::becomes_read_only },
    Check { name: "data-dir-not-allowed", missing: disk::no_other_user, run: disk::not_allowed },
    Check { name: "sync-fails", missing: calls::missing, run: calls::sync_fails },
    Check { name: "write-finds-no-room", missing: calls::missing, run: calls::no_room },
    Check { name: "file-cannot-be-opened", missing: calls::missing, run: calls::not_opened },
    Check { name: "file-cannot-be-renamed", missing: calls::missing, run: calls::not_renamed },
];

/// Names of all checks.
pub fn names() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|check| check.name)
}

/// Runs the checks that `options` name, and prints what failed.
///
/// # Errors
/// What kept the checks from running.
pub fn run(options: &Options) -> Result<ExitCode> {
    let tally = checks(|name| options.only.is_empty() || options.only.iter().any(|only| only == name))?;
    for note in &tally.notes {
        println!("{note}");
    }
    println!("{} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped);
    Ok(if tally.failed == 0 && tally.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All checks, for `cargo xtask test`.
pub fn suite() -> Result<Tally> {
    checks(|_| true)
}

fn checks(is_wanted: impl Fn(&str) -> bool) -> Result<Tally> {
    let bench = Bench::open(&project::thalweg(Profile::Dev)?)?;
    let mut tally = Tally::default();
    for check in CHECKS.iter().filter(|check| is_wanted(check.name)) {
        match (check.missing)() {
            Some(reason) if project::in_ci() => tally.fail(format!("{}: {reason}", check.name)),
            Some(reason) => tally.skip(format!("{}: {reason}", check.name)),
            None => tally.check(check.name, (check.run)(&bench)),
        }
    }
    Ok(tally)
}
