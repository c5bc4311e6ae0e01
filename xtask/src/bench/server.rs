//! A node in a process of its own that runs one job over HTTP, in a fresh folder.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::usage;
use crate::http::Connection;
use crate::project;

/// No job takes longer to be ready, whatever it reads first.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) struct Server {
    child: Child,
    address: SocketAddr,
    binary: PathBuf,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts the job with an empty data directory in the build folder, and waits until it takes records.
    pub(super) fn start(binary: &Path, job: &Value) -> Result<Self> {
        Self::start_in(&project::scratch("bench-server")?, binary, job)
    }

    /// The same with a data directory in this folder.
    pub(super) fn start_in(parent: &Path, binary: &Path, job: &Value) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("server").tempdir_in(parent)?;
        write_job(folder.path(), job)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = spawn(binary, folder.path(), address)?;
        let mut server = Self { child, address, binary: binary.to_owned(), folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Kills the process at once, and waits until it is gone.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts the job again in the same data directory. It may not take records yet.
    pub(super) fn start_again(&mut self, job: &Value) -> Result<()> {
        write_job(self.folder.path(), job)?;
        self.child = spawn(&self.binary, self.folder.path(), self.address)?;
        Ok(())
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// An error with what the server said, if it has ended.
    pub(super) fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the server ended with {status}\n{}", self.log()),
            None => Ok(()),
        }
    }

    pub(super) fn wait_until_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let ready = Connection::open(self.address)
                .and_then(|mut connection| connection.get("/readyz").map(|(status, _)| status == 200));
            if ready.unwrap_or(false) {
                return Ok(());
            }
            self.check_running()?;
            thread::sleep(Duration::from_millis(20));
        }
        bail!("the server was not ready within {PATIENCE:?}\n{}", self.log())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }

    /// Memory that is resident now.
    pub(super) fn resident_bytes(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most memory that was resident at once.
    pub(super) fn peak_bytes(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, line: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = text.lines().find_map(|other| other.strip_prefix(line));
        let kib =
            line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }

    /// Asks it to drain and end, and waits for that.
    pub(super) fn stop(mut self) -> Result<()> {
        usage::terminate(&self.child);
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}\n{}", self.log());
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After `stop` it is gone already, and this does nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_job(folder: &Path, job: &Value) -> Result<()> {
    std::fs::write(folder.join("job.json"), format!("{job:#}\n")).context("write the job file")
}

fn spawn(binary: &Path, folder: &Path, address: SocketAddr) -> Result<Child> {
    let log = File::create(folder.join("stderr"))?;
    let mut command = Command::new(binary);
    command.arg("run").arg(folder.join("job.json")).args(["--listen", &address.to_string()]);
    command.arg("--data-dir").arg(folder.join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().context("start the server")
}
