//! Before a program is packaged: that it takes the command lines and the example that the packages have.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::target::Target;
use super::{Release, command_line, container};

/// Tries a program of this machine; one of another machine cannot be tried, and that is said.
pub(super) fn run(release: &Release, program: &Path, target: Target) -> Result<()> {
    if !target.is_here() {
        eprintln!("note: {} was not tried, as it is for {}", program.display(), target.machine());
        return Ok(());
    }
    let unit = release.read_text(command_line::SERVICE)?;
    let environment = release.read_text(command_line::ENVIRONMENT)?;
    let service = command_line::of_service(&unit, &environment)?;
    let container = command_line::of_container(&release.read_text(container::FILE)?)?;
    for (mut words, of) in [(service, command_line::SERVICE), (container, container::FILE)] {
        // Whatever comes before it has to be understood, and nothing is run.
        words.push("--help".to_owned());
        tried(program, &words, &release.root).with_context(|| format!("try the command line of {of}"))?;
    }
    let example = ["check".to_owned(), "packaging/debian/example.yaml".to_owned()];
    tried(program, &example, &release.root)
}

fn tried(program: &Path, words: &[String], folder: &Path) -> Result<()> {
    let program = std::path::absolute(program)?;
    let mut command = Command::new(&program);
    command.args(words).current_dir(folder).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "thalweg {}: {}\n{said}", words.join(" "), output.status);
    Ok(())
}
