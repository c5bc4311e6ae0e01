//! The node under attack: one process with 256 file handles and a limit on its memory, and two jobs.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::crash::sys;
use crate::http::Connection;
use crate::project;

/// Open files of the node.
const HANDLES: u64 = 256;

/// What the node may take of memory before an allocation fails, in bytes; its children inherit it.
const DATA: u64 = 2 << 30;

/// What the node itself may have resident: bodies that are held (256 MiB), queues and state of two jobs, and what the
/// allocator keeps for its threads.
const RESIDENT: u64 = 1 << 30;

/// No start and no end takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Node {
    binary: PathBuf,
    folder: TempDir,
    address: SocketAddr,
    tcp: SocketAddr,
    child: Child,
    peak: u64,
}

impl Node {
    pub(super) fn start(binary: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("node").tempdir_in(project::scratch("hostile")?)?;
        // Both are held until both are known, so that they differ.
        let (http, tcp) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
        let (address, tcp) = (http.local_addr()?, {
            let address = tcp.local_addr()?;
            drop(tcp);
            address
        });
        drop(http);
        for (name, job) in [("live", live()), ("mud", mud(tcp))] {
            std::fs::write(folder.path().join(format!("{name}.json")), format!("{job:#}\n"))?;
        }
        let child = spawn(binary, folder.path(), address)?;
        let mut node = Self { binary: binary.to_owned(), folder, address, tcp, child, peak: 0 };
        node.wait_until_ready()?;
        Ok(node)
    }

    pub(super) fn start_again(&mut self) -> Result<()> {
        self.child = spawn(&self.binary, self.folder.path(), self.address)?;
        self.wait_until_ready()
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the job `mud` takes lines.
    pub(super) fn tcp(&self) -> SocketAddr {
        self.tcp
    }

    /// What who may change jobs has to show.
    pub(super) fn token(&self) -> Result<String> {
        let path = self.folder.path().join("D/admin.token");
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(text.trim().to_owned())
    }

    /// An error with what the node said last, if it has ended.
    pub(super) fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the node ended with {status}\n{}", self.log()),
            None => Ok(()),
        }
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let ready = Connection::open(self.address)
                .and_then(|mut connection| connection.get("/readyz").map(|reply| reply.0));
            if ready.is_ok_and(|status| status == 200) {
                return Ok(());
            }
            self.check_running()?;
            thread::sleep(Duration::from_millis(20));
        }
        bail!("the node was not ready within {PATIENCE:?}\n{}", self.log())
    }

    fn log(&self) -> String {
        let text = std::fs::read(self.folder.path().join("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(15).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// The most memory that was resident at once.
    pub(super) fn peak_bytes(&mut self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let kib: u64 = line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
        self.peak = self.peak.max(kib << 10);
        self.peak
    }

    pub(super) fn handles(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    pub(super) fn within_memory(&mut self) -> Result<()> {
        let peak = self.peak_bytes();
        ensure!(peak > 0, "the node's memory could not be read");
        ensure!(peak <= RESIDENT, "{} MiB were resident, expected at most {}", peak >> 20, RESIDENT >> 20);
        Ok(())
    }

    /// Asks it to drain and end, and waits for that.
    pub(super) fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            sys::terminate(&self.child);
        }
        let started = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the node ended with {status}\n{}", self.log()),
                None if started.elapsed() > PATIENCE => {
                    bail!("the node did not end within {PATIENCE:?}\n{}", self.log())
                }
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Checks every byte of the data directory of a node that has ended.
    pub(super) fn verify(&self) -> Result<()> {
        let output = Command::new(&self.binary).arg("verify").arg(self.folder.path().join("D")).output()?;
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "verify ended with {}\n{said}", output.status);
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Gone already where all went well.
        if matches!(self.child.try_wait(), Ok(None)) {
            sys::kill(&self.child);
        }
        let _ = self.child.wait();
    }
}

fn spawn(binary: &Path, folder: &Path, address: SocketAddr) -> Result<Child> {
    let log = File::options().create(true).append(true).open(folder.join("stderr"))?;
    let mut command = Command::new("prlimit");
    command.args([
        format!("--nofile={HANDLES}:{HANDLES}"),
        format!("--data={DATA}:{DATA}"),
        "--core=0:0".to_owned(),
    ]);
    command.arg(binary).arg("run");
    command.args([folder.join("live.json"), folder.join("mud.json")]);
    command.arg("--data-dir").arg(folder.join("D")).args(["--listen", &address.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    sys::tie(&mut command);
    command.spawn().context("start the node")
}

fn live() -> Value {
    json!({
        "name": "live",
        "cycle": { "every": "200ms" },
        "state": { "memory": "64MiB" },
        "sources": { "p": { "type": "http", "time": "ts", "lateness": "2h", "schema": { "ts": "timestamp(ms)", "k": "string", "v": "int64" } } },
        "operators": { "m": { "type": "metrics", "input": "p", "partition_by": ["k"], "queries": {
            "all": "SELECT sum(v) AS s, count(*) AS n FROM p GROUP BY k OVER INFINITE",
            "hour": "SELECT count(*) AS n, max(v) AS most FROM p GROUP BY k OVER SLIDING 1 HOUR",
        } } },
        "sinks": { "t": { "type": "table", "input": "p", "seal_rows": 2000 } },
    })
}

fn mud(tcp: SocketAddr) -> Value {
    json!({
        "name": "mud",
        "cycle": { "every": "200ms" },
        "state": { "memory": "32MiB" },
        "sources": {
            "h": { "type": "http", "queue": "8MiB", "schema": { "ts": "timestamp(ms)", "k": "string", "v": "int64" }, "time": "ts", "lateness": "2h" },
            "l": { "type": "tcp", "listen": tcp.to_string(), "format": "ndjson", "queue": "8MiB", "schema": { "k": "string" } },
        },
        "operators": { "m": { "type": "metrics", "input": "h", "partition_by": ["k"], "queries": {
            "n": "SELECT count(*) AS n FROM h GROUP BY k OVER INFINITE",
        } } },
        "sinks": {
            "m": { "type": "null", "input": "m" },
            "l": { "type": "null", "input": "l" },
            "t": { "type": "table", "input": "h", "seal_rows": 5000 },
        },
    })
}
