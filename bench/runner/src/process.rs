//! Runs a command to its end and measures it.

use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use super::figures::Figures;
use super::usage::{self, Usage};

/// A command that ended well.
#[derive(Clone, Debug)]
pub(super) struct Finished {
    pub(super) usage: Usage,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Finished {
    /// The last line of `key=value` pairs that has `key`, on stdout or stderr.
    pub(super) fn figures(&self, key: &str) -> Result<Figures> {
        let last_first = self.stderr.lines().rev().chain(self.stdout.lines().rev());
        let found = last_first.filter_map(Figures::parse).find(|figures| figures.text(key).is_ok());
        found.with_context(|| format!("no line with {key}=… in\n{}{}", self.stdout, self.stderr))
    }

    /// The line of pairs on stdout in which `key` has this value.
    pub(super) fn figures_where(&self, key: &str, value: &str) -> Result<Figures> {
        let mut lines = self.stdout.lines().filter_map(Figures::parse);
        let found = lines.find(|figures| figures.text(key).is_ok_and(|text| text == value));
        found.with_context(|| format!("no line with {key}={value} in\n{}", self.stdout))
    }
}

/// Runs a command; one that ends badly is an error with the end of its output.
pub(super) fn run(command: Command) -> Result<Finished> {
    run_on(command, Stdio::null())
}

/// The same with something on standard input.
pub(super) fn run_on(mut command: Command, input: Stdio) -> Result<Finished> {
    let described = describe(&command);
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("start {described}"))?;
    let mut stdout = child.stdout.take().context("stdout is a pipe")?;
    let mut stderr = child.stderr.take().context("stderr is a pipe")?;
    let errors = thread::spawn(move || {
        let mut text = Vec::new();
        stderr.read_to_end(&mut text).map(|_| text)
    });
    let mut output = Vec::new();
    stdout.read_to_end(&mut output).with_context(|| format!("read from {described}"))?;
    let errors = errors.join().expect("reading does not panic")?;
    let (status, usage) = usage::wait(&child).with_context(|| format!("wait for {described}"))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (stdout, stderr) = (text(output), text(errors));
    if !status.success() {
        let tail: Vec<&str> = stderr.lines().rev().take(20).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        bail!("{described} ended with {status}\n{}", tail.join("\n"));
    }
    Ok(Finished { usage, stdout, stderr })
}

/// A command as it would be typed, with file names instead of paths.
pub(super) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let short = |word: &std::ffi::OsStr| {
        let word = word.to_string_lossy();
        if word.starts_with('/') {
            word.rsplit('/').next().unwrap_or_default().to_owned()
        } else {
            word.into_owned()
        }
    };
    words.map(short).collect::<Vec<_>>().join(" ")
}
