//! `cargo xtask crash --plants`: known bugs, put back in one by one, which the harness has to find.
//!
//! A plant is `testing/crash/plants/NAME.patch`: what it does in a line, `job: NAME`, `power` where only a power cut shows it, and
//! then the change. Each is applied to a copy of the last commit in the target folder, built there, and run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::power;
use thalweg_harness::project;

/// A plant that has not been found after this number of crashes is missed.
const CYCLES: u64 = 400;

struct Plant {
    name: String,
    path: PathBuf,
    job: String,
    takes_power: bool,
}

/// Runs all plants; whether each was found.
pub(super) fn run(seed: u64) -> Result<bool> {
    let folder = project::scratch("plants")?;
    let tree = folder.join("tree");
    let mut report = Vec::new();
    let mut is_good = true;
    remove(&tree)?;
    let mut add = git(&["worktree", "add", "--quiet", "--detach", "--force"], &project::root());
    succeed(add.arg(&tree).arg("HEAD"))?;
    for plant in plants()? {
        let outcome = match power::missing() {
            Some(reason) if plant.takes_power => format!("skipped: {reason}"),
            _ => {
                let found = find(&plant, &tree, &folder.join("target"), seed);
                // One tree for all, so that little is built twice.
                succeed(&mut git(&["checkout", "--quiet", "--", "."], &tree))?;
                match found.with_context(|| format!("plant {}", plant.name))? {
                    Some(how) => format!("found: {how}"),
                    None => {
                        is_good = false;
                        format!("MISSED in {CYCLES} cycles")
                    }
                }
            }
        };
        report.push(format!("{:<24} {outcome}", plant.name));
    }
    remove(&tree)?;
    for line in report {
        println!("{line}");
    }
    Ok(is_good)
}

/// Holds that every plant still goes into the code as it is.
pub(super) fn still_apply() -> Result<()> {
    for plant in plants()? {
        let mut check = git(&["apply", "--check"], &project::root());
        let outcome = check.arg(&plant.path).output().context("start git")?;
        let said = String::from_utf8_lossy(&outcome.stderr);
        ensure!(outcome.status.success(), "plant {} does not apply any more: {}", plant.name, said.trim());
    }
    Ok(())
}

fn plants() -> Result<Vec<Plant>> {
    let folder = project::root().join("testing/crash/plants");
    let listing = std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let mut plants = Vec::new();
    for entry in listing {
        let path = entry?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let (job, takes_power) = head(&text).with_context(|| format!("{name} names no job"))?;
        plants.push(Plant { name, path, job, takes_power });
    }
    plants.sort_by(|one, other| one.name.cmp(&other.name));
    ensure!(!plants.is_empty(), "there are no plants in {}", folder.display());
    Ok(plants)
}

/// The job that shows a plant, and whether it takes a power cut.
fn head(text: &str) -> Option<(String, bool)> {
    let lines: Vec<&str> = text.lines().take_while(|line| !line.starts_with("diff ")).collect();
    let job = lines.iter().find_map(|line| line.strip_prefix("job: "))?;
    Some((job.to_owned(), lines.contains(&"power")))
}

/// Builds the program with the plant and runs the harness; how it was found.
fn find(plant: &Plant, tree: &Path, target: &Path, seed: u64) -> Result<Option<String>> {
    println!("── {}", plant.name);
    succeed(git(&["apply"], tree).arg(&plant.path))?;
    let mut build = project::cargo();
    // Most of the build of one plant is that of the one before, also in the crates that it changes.
    build.current_dir(tree).env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "1");
    succeed(build.args(["build", "--quiet", "--package", "thalweg-cli"]))?;

    let mut harness = Command::new(std::env::current_exe().context("find this program")?);
    harness.args([
        "crash",
        "--job",
        &plant.job,
        "--cycles",
        &CYCLES.to_string(),
        "--seed",
        &seed.to_string(),
    ]);
    if plant.takes_power {
        harness.arg("--power");
    }
    harness.env("THALWEG_BINARY", target.join("debug/thalweg")).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = harness.output().context("start the harness")?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let line = |start: &str| said.lines().find(|line| line.starts_with(start));
    let counts = line("crash ").with_context(|| format!("the harness ended early: {said}"))?;
    let cycles = counts.split(' ').find(|word| word.starts_with("cycles=")).unwrap_or("cycles=?");
    Ok(Some(format!("{cycles}: {}", line("FAILED ").unwrap_or(counts))))
}

/// Takes a tree away that an earlier run has left, if one has.
fn remove(tree: &Path) -> Result<()> {
    if tree.exists() {
        succeed(git(&["worktree", "remove", "--force"], &project::root()).arg(tree))?;
    }
    Ok(())
}

fn git(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).args(arguments);
    command
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plant_names_a_job_that_is_there() {
        for plant in plants().unwrap() {
            assert!(crate::jobs::NAMES.contains(&plant.job.as_str()), "{}", plant.name);
        }
    }

    #[test]
    fn the_head_of_a_plant_ends_with_the_change() {
        assert_eq!(head("What.\njob: http\npower\n\ndiff --git"), Some(("http".to_owned(), true)));
        assert_eq!(head("What.\njob: files\n\ndiff --git\npower\n"), Some(("files".to_owned(), false)));
        assert_eq!(head("What.\n\ndiff --git\njob: files\n"), None);
    }
}
