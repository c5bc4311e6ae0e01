//! `cargo xtask test`: all suites, one after the other, and one count at the end.
//!
//! A suite ends with a [`Tally`]. Tests that cannot run here are counted as skipped and named; in CI a suite that
//! skips as a whole has failed, except for real data, which is no part of the repository.
//!
//! The very last line is `N passed, N failed, N skipped`; the exit code is 0 only if nothing failed.

mod benches;
#[cfg(test)]
mod promises;
mod suite;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};

use thalweg_harness::{Tally, project};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only these suites, in the usual order
    #[arg(long, value_name = "SUITE", value_parser = suite::NAMES)]
    only: Vec<String>,
}

/// The line that ends a run.
fn closing_line(total: &Tally) -> String {
    format!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped)
}

/// A suite that ran no test has failed where it had to run.
fn judge(mut tally: Tally, required: bool, in_ci: bool) -> Tally {
    if required && in_ci && tally.skipped > 0 && tally.passed + tally.failed == 0 {
        tally.fail("the suite was skipped, and this is CI");
    }
    tally
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let mut total = Tally::default();
    let mut lines = Vec::new();
    for suite in suite::SUITES.iter().filter(|suite| wanted(suite.name)) {
        println!("── {}", suite.name);
        let started = Instant::now();
        let tally = (suite.run)().unwrap_or_else(|error| {
            let mut tally = Tally::default();
            tally.fail(format!("{error:#}"));
            tally
        });
        let tally = judge(tally, suite.required, project::in_ci());
        total.add(&tally);
        lines.push(format!(
            "{:<12} {:>7} passed {:>4} failed {:>4} skipped {:>7.1} s",
            suite.name,
            tally.passed,
            tally.failed,
            tally.skipped,
            started.elapsed().as_secs_f64()
        ));
        lines.extend(tally.notes.iter().map(|note| format!("    {note}")));
    }
    ensure!(!lines.is_empty(), "no suite was run");
    println!();
    for line in lines {
        println!("{line}");
    }
    println!("{}", closing_line(&total));
    Ok(if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_suite_that_skips_fails_in_ci_only() {
        let mut skipped = Tally::default();
        skipped.skip("nothing here");
        assert_eq!(judge(skipped.clone(), true, false).failed, 0);
        assert_eq!(judge(skipped.clone(), true, true).failed, 1);
        assert_eq!(judge(skipped.clone(), false, true).failed, 0);
        skipped.passed = 1;
        assert_eq!(judge(skipped, true, true).failed, 0, "a single skipped test is no skipped suite");
    }

    #[test]
    fn the_closing_line_is_plain() {
        let total = Tally { passed: 12, failed: 0, skipped: 3, notes: Vec::new() };
        assert_eq!(closing_line(&total), "12 passed, 0 failed, 3 skipped");
    }
}
