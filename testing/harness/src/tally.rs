//! Counts of a suite, and the names of the tests that did not pass.

use anyhow::Result;

/// What a suite came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
    /// What failed or was skipped, by name.
    pub notes: Vec<String>,
}

impl Tally {
    pub fn fail(&mut self, what: impl Into<String>) {
        self.failed += 1;
        self.notes.push(format!("failed: {}", what.into()));
    }

    pub fn skip(&mut self, what: impl Into<String>) {
        self.skipped += 1;
        self.notes.push(format!("skipped: {}", what.into()));
    }

    /// Counts one check, and prints its name and outcome.
    pub fn check(&mut self, name: &str, outcome: Result<()>) {
        match outcome {
            Ok(()) => {
                println!("{name} ... ok");
                self.passed += 1;
            }
            Err(error) => {
                println!("{name} ... FAILED");
                self.fail(format!("{name}: {error:#}"));
            }
        }
    }

    /// Adds the counts of another suite, without its notes.
    pub fn add(&mut self, other: &Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}
