//! The suites, in the order in which they run.

use std::process::Command;

use anyhow::{Result, ensure};
use thalweg_bench as bench;
use thalweg_crash::{self as crash, faults};
use thalweg_harness::project::{self, Profile};
use thalweg_harness::service::{self, REAL_SERVICE};
use thalweg_harness::{Tally, libtest};
use thalweg_hostile as hostile;

use super::benches;

/// One suite of `cargo xtask test`.
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// Whether skipping it is a failure in CI.
    pub(super) required: bool,
    pub(super) run: fn() -> Result<Tally>,
}

/// Tests that read real data carry this in their path and are `#[ignore]`d, so that a plain `cargo test` needs
/// nothing but the repository.
const REAL_DATA: &str = "real_data";

/// Some of them need this program, which Debian has in a package of the same name, and carry its name too.
const TSHARK: &str = "tshark";

pub(super) const NAMES: [&str; 10] = [
    "workspace",
    "small",
    "real-data",
    "fuzz",
    "benches",
    "bench-smoke",
    "crash",
    "faults",
    "hostile",
    "services",
];

pub(super) const SUITES: &[Suite] = &[
    Suite { name: "workspace", required: true, run: workspace },
    Suite { name: "small", required: true, run: small },
    Suite { name: "real-data", required: false, run: real_data },
    Suite { name: "fuzz", required: true, run: fuzz },
    Suite { name: "benches", required: true, run: benches::run },
    Suite { name: "bench-smoke", required: true, run: bench::suite },
    Suite { name: "crash", required: true, run: crash::suite },
    Suite { name: "faults", required: true, run: faults::suite },
    Suite { name: "hostile", required: true, run: hostile::suite },
    Suite { name: "services", required: true, run: service::run },
];

fn workspace() -> Result<Tally> {
    let mut command = project::cargo();
    command.args([
        "test",
        "--workspace",
        "--no-fail-fast",
        "--",
        "--skip",
        REAL_DATA,
        "--skip",
        REAL_SERVICE,
    ]);
    libtest::run(command)
}

/// The program without features, as the first command of the README builds it.
fn small() -> Result<Tally> {
    let mut command = project::cargo();
    command.args(["test", "--package", "thalweg-cli", "--no-default-features", "--test", "small"]);
    libtest::run(command)
}

fn real_data() -> Result<Tally> {
    let tests = |more: &[&str]| {
        let mut command = project::cargo();
        command.args(["test", "--quiet", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"]);
        command.args(["--", "--ignored", REAL_DATA]).args(more);
        command
    };
    let data = project::data();
    if data.is_dir() {
        let has_oracle = project::has_or_gets(TSHARK, TSHARK);
        let skipped: &[&str] = if has_oracle { &[] } else { &["--skip", TSHARK] };
        let mut command = tests(&[&["--format", "pretty"], skipped].concat());
        command.env("THALWEG_DATA", data.canonicalize()?);
        let mut tally = libtest::run(command)?;
        if !has_oracle {
            for name in libtest::list(tests(&["--list"]))?.iter().filter(|name| name.contains(TSHARK)) {
                tally.skip(format!("{name}: no {TSHARK}: Debian has it in the package of this name"));
            }
        }
        return Ok(tally);
    }
    let mut tally = Tally::default();
    for name in libtest::list(tests(&["--list"]))? {
        tally.skip(format!("{name}: no folder {}", data.display()));
    }
    Ok(tally)
}

/// Seconds for each fuzz target.
const FUZZ_SECONDS: &str = "5";

/// Each target over mutated seeds; a target is one test.
fn fuzz() -> Result<Tally> {
    let driver = project::build("thalweg-fuzz", "thalweg-fuzz", Profile::Dev)?;
    let names = Command::new(&driver).arg("--list").output()?;
    let mut tally = Tally::default();
    for name in String::from_utf8_lossy(&names.stdout).lines() {
        let output = Command::new(&driver).args(["--seconds", FUZZ_SECONDS, name]).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        print!("{said}");
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        if output.status.success() {
            tally.passed += 1;
            continue;
        }
        // The summary may be all that is kept of a run.
        let why = said.lines().find(|line| line.contains("FAILED")).unwrap_or_default();
        tally.fail(format!("fuzz target {name}: {}: {why}", output.status));
    }
    ensure!(tally != Tally::default(), "there are no fuzz targets");
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_can_be_asked_for() {
        assert_eq!(SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>(), NAMES);
    }
}
