//! A node in a process of its own that serves over HTTP: started, waited for, asked to end, and killed at the latest with
//! us.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::http::Connection;
use crate::process;

/// How often a process is looked at while it is waited for.
const PAUSE: Duration = Duration::from_millis(20);

/// Lines of a node's output that are shown.
const LINES: usize = 15;

pub struct Serving {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
    /// How long anything that is waited for may take.
    patience: Duration,
}

impl Serving {
    /// Starts a node that listens at `address`, and appends its standard error to `log`.
    /// It may not take records yet.
    pub fn start(
        mut command: Command,
        address: SocketAddr,
        log: PathBuf,
        patience: Duration,
    ) -> Result<Self> {
        let said = File::options().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        process::tie(&mut command);
        let child = command.spawn().context("start the node")?;
        Ok(Self { child, address, log, patience })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The last that it said.
    fn said(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(LINES).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// An error with what the node said last, if it has ended.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the node ended with {status}\n{}", self.said()),
            None => Ok(()),
        }
    }

    pub fn wait_until_ready(&mut self) -> Result<()> {
        let address = self.address;
        self.wait("ready", || {
            let status = Connection::open(address)
                .and_then(|mut connection| connection.get("/readyz").map(|(status, _)| status));
            Ok(status.is_ok_and(|status| status == 200))
        })
    }

    /// Waits until something holds, of a node that runs on.
    pub fn wait(&mut self, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let started = Instant::now();
        while !holds()? {
            self.check_running()?;
            if started.elapsed() > self.patience {
                bail!("the node was not {what} within {:?}\n{}", self.patience, self.said());
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// A line of `/proc/PID/status`, in bytes; 0 where it cannot be read.
    pub fn status_bytes(&self, line: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let line = text.lines().find_map(|other| other.strip_prefix(line)).unwrap_or_default();
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
    }

    /// Asks it to drain and end, and waits for that.
    pub fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            process::terminate(&self.child);
        }
        let started = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the node ended with {status}\n{}", self.said()),
                None if started.elapsed() > self.patience => {
                    bail!("the node did not end within {:?}\n{}", self.patience, self.said())
                }
                None => thread::sleep(PAUSE),
            }
        }
    }

    /// Kills it at once, and waits until it is gone.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        if self.child.try_wait()?.is_none() {
            process::kill(&self.child);
        }
        self.child.wait().context("wait for a node that was killed")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Gone already where all went well.
        let _ = self.kill();
    }
}

/// A job file of one job, as JSON.
pub fn write_job(path: &Path, job: &serde_json::Value) -> Result<()> {
    std::fs::write(path, format!("{job:#}\n")).with_context(|| format!("write {}", path.display()))
}
