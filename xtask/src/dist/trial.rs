//! Before a program is packaged it is started as the service and the container start it, and checks the example.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::target::Target;
use super::{Release, command_line, container};

/// What a node says when it can be reached.
const LISTENS: &str = "listening on ";

/// Tries a program of this machine; one of another machine cannot be tried, and that is said.
///
/// # Errors
/// If a node does not start, or does not end in order, or the example has a mistake.
pub(super) fn run(release: &Release, program: &Path, target: Target) -> Result<()> {
    if !target.is_here() {
        eprintln!("note: {} was not tried, as it is for {}", program.display(), target.machine());
        return Ok(());
    }
    let unit = release.read_text(command_line::SERVICE)?;
    let environment = release.read_text(command_line::ENVIRONMENT)?;
    let service = command_line::of_service(&unit, &environment)?;
    let container = command_line::of_container(&release.read_text(container::FILE)?)?;
    let program = std::path::absolute(program)?;
    for (words, of) in [(service, command_line::SERVICE), (container, container::FILE)] {
        started(&program, words).with_context(|| format!("start a node as {of} does"))?;
    }
    let mut check = Command::new(&program);
    check.args(["check", "packaging/debian/example.yaml"]).current_dir(&release.root);
    let output =
        check.stdin(Stdio::null()).output().with_context(|| format!("start {}", program.display()))?;
    ensure!(
        output.status.success(),
        "check the example: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Starts a node until it listens, and ends it.
fn started(program: &Path, words: Vec<String>) -> Result<()> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let words = elsewhere(words, &folder.path().join("D").to_string_lossy());
    let mut command = Command::new(program);
    command.args(&words).current_dir(folder.path()).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut node = command.spawn().with_context(|| format!("start {}", program.display()))?;
    let mut said = String::new();
    let mut lines = BufReader::new(node.stderr.take().context("read what it says")?);
    // One that does not start says why, and ends.
    while lines.read_line(&mut said)? > 0 && !said.contains(LISTENS) {}
    if said.contains(LISTENS) {
        kill_process(Pid::from_child(&node), Signal::TERM).context("end the node")?;
        while lines.read_line(&mut said)? > 0 {}
    }
    let status = node.wait().context("wait for the node")?;
    ensure!(said.contains(LISTENS) && status.success(), "thalweg {}: {status}\n{said}", words.join(" "));
    Ok(())
}

/// The same command line with another data directory and any free port of the loopback.
fn elsewhere(mut words: Vec<String>, folder: &str) -> Vec<String> {
    for (option, value) in [("--data-dir", folder), ("--listen", "127.0.0.1:0")] {
        if let Some(at) = words.iter().position(|word| word == option)
            && let Some(word) = words.get_mut(at + 1)
        {
            value.clone_into(word);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_trial_touches_no_folder_and_port_of_a_service() {
        let line = words("run --data-dir /var/lib/thalweg --listen 0.0.0.0:8080 job.yaml");
        assert_eq!(elsewhere(line, "/x"), words("run --data-dir /x --listen 127.0.0.1:0 job.yaml"));
    }

    /// A shell in the place of a node.
    fn node(script: &str) -> Result<()> {
        started(Path::new("/bin/sh"), vec!["-c".to_owned(), script.to_owned()])
    }

    #[test]
    fn a_node_has_to_start_and_to_end_in_order() {
        let waits = "echo listening on http://127.0.0.1:1 >&2; while :; do :; done";
        node(&format!("trap 'exit 0' TERM; {waits}")).unwrap();
        let error = node(&format!("trap 'exit 7' TERM; {waits}")).unwrap_err();
        assert!(error.to_string().contains('7'), "{error}");
        let error = node("echo error: no such option >&2; exit 2").unwrap_err();
        assert!(error.to_string().contains("no such option"), "{error}");
        assert!(node("exit 0").is_err(), "it has to listen");
    }
}
