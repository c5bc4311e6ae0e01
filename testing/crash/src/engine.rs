//! One process of the engine: started, watched, ended.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::decide::{Effect, Injection, Target};
use thalweg_harness::process;
use thalweg_harness::project;

/// How often the engine is looked at.
pub(super) const LOOK: Duration = Duration::from_micros(500);

pub(crate) struct Engine {
    child: Child,
    pub(super) started: Instant,
    stderr: PathBuf,
    /// What strace writes, where it is there.
    trace: Option<PathBuf>,
}

/// Where the files are that strace can wait for.
pub(super) struct Files<'a> {
    /// The job's folder in the data directory.
    pub(super) job: &'a Path,
    pub(super) sinks: &'a [(String, PathBuf)],
    /// Sources that have a journal.
    pub(super) journals: &'a [&'static str],
}

impl Files<'_> {
    fn of(&self, target: Target) -> Vec<PathBuf> {
        let first = |name: &str, folder: PathBuf| folder.join(format!("{name}-{:020}.thl", 0));
        match target {
            Target::Any => Vec::new(),
            Target::CommitLog => vec![self.job.join("commit.log")],
            Target::Order => vec![first("order", self.job.join("order"))],
            Target::Journal => self
                .journals
                .iter()
                .map(|name| first("journal", self.job.join("journal").join(name)))
                .collect(),
            // Without one there is nothing to wait for: calls to any other file would be too many.
            Target::Sink if self.sinks.is_empty() => vec![self.job.join("none")],
            Target::Sink => self.sinks.iter().map(|(_, path)| path.clone()).collect(),
            Target::JobFile => vec![self.job.join("job.json")],
        }
    }
}

impl Engine {
    /// Starts a program, as it is, that is the engine or becomes it; `folder` is for what it says.
    pub(crate) fn start_under(words: &[String], folder: &Path) -> Result<Self> {
        let (program, arguments) = words.split_first().context("no program to start")?;
        Self::start(Path::new(program), arguments, folder, None)
    }

    /// Starts `binary arguments`; `folder` is for what it says.
    pub(super) fn start(
        binary: &Path,
        arguments: &[String],
        folder: &Path,
        injection: Option<(&Injection, &Files<'_>)>,
    ) -> Result<Self> {
        let (stderr, trace) = (folder.join("stderr"), folder.join("trace"));
        let _ = std::fs::remove_file(&trace);
        let mut command = match injection {
            None => Command::new(binary),
            Some((injection, files)) => {
                let mut command = strace(injection, files, &trace);
                if project::has("setpriv") {
                    // A traced process goes on when strace is killed.
                    command.args(["setpriv", "--pdeathsig", "KILL"]);
                }
                command.arg(binary);
                command
            }
        };
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&stderr)?);
        process::tie(&mut command);
        let child = command.spawn().context("start the engine")?;
        Ok(Self { child, started: Instant::now(), stderr, trace: injection.map(|_| trace) })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Where it listens, once it does.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let said = self.said();
        let (line, _) = said.split_once("listening on http://")?.1.split_once('\n')?;
        line.trim().parse().ok()
    }

    /// Whether it has said that its job takes no more records for want of room, and stays to be read.
    pub(super) fn is_only_read(&self) -> bool {
        self.said().contains("is only read, until the process ends")
    }

    /// Whether strace has changed the outcome of a call.
    pub(super) fn was_injected(&self) -> bool {
        let Some(trace) = &self.trace else { return false };
        std::fs::read(trace).is_ok_and(|text| String::from_utf8_lossy(&text).contains("(INJECTED)"))
    }

    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("look at the engine")
    }

    /// SIGKILL, for it and whatever traces it.
    pub(super) fn kill(&mut self) -> Result<ExitStatus> {
        process::end(&mut self.child).context("wait for the engine")
    }

    /// Asks it to drain and end.
    pub(crate) fn drain(&self) {
        process::terminate(&self.child);
    }

    /// Waits for its end, for at most this long; whether it came.
    pub(super) fn ends_within(&mut self, limit: Duration) -> Result<bool> {
        let from = Instant::now();
        while from.elapsed() < limit {
            if self.ended()?.is_some() {
                return Ok(true);
            }
            std::thread::sleep(LOOK);
        }
        Ok(false)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Where it goes on for longer than `limit`; it is killed then.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        if !self.ends_within(limit)? {
            let said = self.said();
            self.kill()?;
            bail!("the engine has not ended within {limit:?}; it said: {said}")
        }
        self.child.wait().context("wait for the engine")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Where it has been waited for its number may be another's.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.kill();
        }
    }
}

fn strace(injection: &Injection, files: &Files<'_>, trace: &Path) -> Command {
    let Injection { syscall, target, nth, effect } = injection;
    let effect = match effect {
        Effect::Kill => "signal=KILL".to_owned(),
        Effect::Error(error) => format!("error={error}"),
    };
    let mut command = Command::new("strace");
    command.args(["-qq", "-f", "-o"]).arg(trace);
    for path in files.of(*target) {
        command.arg("-P").arg(path);
    }
    command.args(["-e", &format!("trace={syscall}"), "-e", &format!("inject={syscall}:{effect}:when={nth}")]);
    command
}
