//! The node under attack: one process with 256 file handles and a limit on its memory, and two jobs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use thalweg_harness::port;
use thalweg_harness::project;
use thalweg_harness::serving::{self, Serving};

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
    tcp: SocketAddr,
    serving: Serving,
    peak: u64,
}

impl Node {
    pub(super) fn start(binary: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("node").tempdir_in(project::scratch("hostile")?)?;
        let (address, port) = (port::free_address()?, port::free_address()?);
        for (name, job) in [("live", live()), ("mud", mud(port))] {
            serving::write_job(&folder.path().join(format!("{name}.json")), &job)?;
        }
        let mut serving = spawn(binary, folder.path(), address)?;
        serving.wait_until_ready()?;
        Ok(Self { binary: binary.to_owned(), folder, tcp: port, serving, peak: 0 })
    }

    pub(super) fn start_again(&mut self) -> Result<()> {
        self.serving = spawn(&self.binary, self.folder.path(), self.serving.address())?;
        self.serving.wait_until_ready()
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// Where the job `mud` takes lines.
    pub(super) fn tcp(&self) -> SocketAddr {
        self.tcp
    }

    /// The token of a client that may change jobs.
    pub(super) fn token(&self) -> Result<String> {
        let path = self.folder.path().join("D/admin.token");
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(text.trim().to_owned())
    }

    /// An error with what the node said last, if it has ended.
    pub(super) fn check_running(&mut self) -> Result<()> {
        self.serving.check_running()
    }

    /// The most memory that was resident at once.
    pub(super) fn peak_bytes(&mut self) -> u64 {
        self.peak = self.peak.max(self.serving.status_bytes("VmHWM:"));
        self.peak
    }

    pub(super) fn handles(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.serving.id())).map_or(0, Iterator::count)
    }

    pub(super) fn within_memory(&mut self) -> Result<()> {
        let peak = self.peak_bytes();
        ensure!(peak > 0, "the node's memory could not be read");
        ensure!(peak <= RESIDENT, "{} MiB were resident, expected at most {}", peak >> 20, RESIDENT >> 20);
        Ok(())
    }

    /// Asks it to drain and end, and waits for that.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.serving.stop()
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

fn spawn(binary: &Path, folder: &Path, address: SocketAddr) -> Result<Serving> {
    let mut command = Command::new("prlimit");
    command.args([
        format!("--nofile={HANDLES}:{HANDLES}"),
        format!("--data={DATA}:{DATA}"),
        "--core=0:0".to_owned(),
    ]);
    command.arg(binary).arg("run");
    command.args([folder.join("live.json"), folder.join("mud.json")]);
    command.arg("--data-dir").arg(folder.join("D")).args(["--listen", &address.to_string()]);
    Serving::start(command, address, folder.join("stderr"), PATIENCE)
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
