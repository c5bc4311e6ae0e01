//! Runs `cargo test` and counts what the test programs say.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::Tally;

/// Runs a `cargo test` command, shows its output but for the tests that passed, and counts.
///
/// A command that ends badly without a failed test (a build error, a test program that died) is one failure.
pub fn run(mut command: Command) -> Result<Tally> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("start cargo test")?;
    let stdout = child.stdout.take().context("read what cargo test says")?;
    let mut tally = Tally::default();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("read what cargo test says")?;
        let line = String::from_utf8_lossy(&line);
        count(&line, &mut tally);
        if !passed(&line) {
            println!("{line}");
        }
    }
    let status = child.wait().context("wait for cargo test")?;
    if !status.success() && tally.failed == 0 {
        tally.fail(format!("cargo test ended with {status} before its tests did"));
    }
    Ok(tally)
}

fn passed(line: &str) -> bool {
    line.starts_with("test ") && line.ends_with("... ok")
}

/// Adds what a line of a test program's output says.
fn count(line: &str, tally: &mut Tally) {
    if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
        tally.notes.push(format!("failed: {name}"));
    }
    if let Some((name, reason)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ignored"))
    {
        tally.notes.push(format!("skipped: {name}{reason}"));
    }
    let Some(result) = line.strip_prefix("test result: ") else { return };
    let counts = result.split_once(". ").map_or("", |(_, counts)| counts);
    for part in counts.split("; ") {
        match part.split_once(' ') {
            Some((number, "passed")) => tally.passed += number.parse().unwrap_or(0),
            Some((number, "failed")) => tally.failed += number.parse().unwrap_or(0),
            Some((number, "ignored")) => tally.skipped += number.parse().unwrap_or(0),
            _ => {}
        }
    }
}

/// Names of the tests that a `--list` shows.
pub fn list(mut command: Command) -> Result<Vec<String>> {
    let output = command.stderr(Stdio::inherit()).output().context("start cargo test")?;
    anyhow::ensure!(output.status.success(), "listing the tests failed");
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str) -> Tally {
        let mut tally = Tally::default();
        for line in output.lines() {
            count(line, &mut tally);
        }
        tally
    }

    #[test]
    fn results_of_all_test_programs_add_up() {
        let found = tally(
            "running 4 tests\n\
             test a::b ... ok\n\
             test a::c ... FAILED\n\
             test a::d ... ignored, needs a printer\n\
             test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.01s\n\
             test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s\n",
        );
        let notes = vec!["failed: a::c".to_owned(), "skipped: a::d, needs a printer".to_owned()];
        assert_eq!(found, Tally { passed: 32, failed: 1, skipped: 1, notes });
    }

    #[test]
    fn what_a_test_prints_is_not_counted() {
        assert_eq!(tally("3 passed; 4 failed\nthe test result: ok. 3 passed; 0 failed"), Tally::default());
    }
}
