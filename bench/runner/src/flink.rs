//! Flink, as a project of Maven that its script builds where it is not there yet.

use std::process::Command;

use anyhow::{Result, ensure};

use super::pinned;
use thalweg_harness::project;

/// Its script, on these cores.
pub(super) fn script(cores: &str) -> Result<Command> {
    ensure!(project::has("java") || std::env::var_os("JAVA_HOME").is_some(), "no java");
    Ok(pinned(Some(cores), &project::root().join("bench/peers/flink/run.sh")))
}
