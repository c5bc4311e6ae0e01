//! The micro-benchmarks in `crates/*/benches`, each run once: one check for each program.
//!
//! A program first compares digests and counts of its results with those that it has, and then runs each of its
//! benchmarks once with little input. Nothing is measured here; `cargo bench` does that.

use anyhow::{Result, ensure};
use thalweg_harness::{Tally, project};

pub(super) fn run() -> Result<Tally> {
    let programs = project::benches()?;
    ensure!(!programs.is_empty(), "no benchmark was built");
    let mut tally = Tally::default();
    for program in programs {
        let output = program.command().output()?;
        let outcome = if output.status.success() {
            Ok(())
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(anyhow::anyhow!("{}\n{}", output.status, said.trim()))
        };
        tally.check(&format!("bench {} {}", program.package, program.name), outcome);
    }
    Ok(tally)
}
