//! A Python with DuckDB, in an environment of its own in the build folder.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::process;
use thalweg_harness::project;

/// The interpreter; DuckDB is installed where it is not there yet.
pub(super) fn python() -> Result<PathBuf> {
    let folder = project::scratch("peers-venv")?;
    let (python, done) = (folder.join("bin/python"), folder.join("requirements-installed"));
    if !done.is_file() {
        ensure!(project::has("python3"), "no python3");
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&folder);
        process::run(make).context("make a Python environment")?;
        let mut install = Command::new(folder.join("bin/pip"));
        install.args(["install", "--quiet", "--disable-pip-version-check", "-r"]);
        install.arg(scripts().join("requirements.txt"));
        process::run(install).context("install DuckDB")?;
        std::fs::write(&done, "")?;
    }
    Ok(python)
}

/// The folder of DuckDB's queries.
pub(super) fn scripts() -> PathBuf {
    project::root().join("bench/peers/duckdb")
}
