//! A node in a process of its own that runs one job over HTTP, in a fresh folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::counters::Counters;
use thalweg_harness::port;
use thalweg_harness::project;
use thalweg_harness::serving::{self, Serving};

/// No job takes longer to be ready, or to end, whatever it reads first.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) struct Server {
    serving: Serving,
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
        let address = port::free_address()?;
        let serving = spawn(binary, folder.path(), job, address)?;
        let mut server = Self { serving, binary: binary.to_owned(), folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The same with a command that runs a job, to which the address and a data directory are added.
    pub(super) fn start_command(parent: &Path, command: Command) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("server").tempdir_in(parent)?;
        let data_dir = folder.path().join("data");
        Self::start_over(folder, command, &data_dir)
    }

    /// The same in a data directory that is there.
    pub(super) fn start_command_in(parent: &Path, command: Command, data_dir: &Path) -> Result<Self> {
        Self::start_over(tempfile::Builder::new().prefix("server").tempdir_in(parent)?, command, data_dir)
    }

    fn start_over(folder: tempfile::TempDir, mut command: Command, data_dir: &Path) -> Result<Self> {
        let address = port::free_address()?;
        let binary = PathBuf::from(command.get_program());
        command.args(["--listen", &address.to_string(), "--data-dir"]).arg(data_dir);
        let serving = Serving::start(command, address, folder.path().join("stderr"), PATIENCE)?;
        let mut server = Self { serving, binary, folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Kills the process at once, and waits until it is gone.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.serving.kill()?;
        Ok(())
    }

    /// Starts the job again in the same data directory. It may not take records yet.
    pub(super) fn start_again(&mut self, job: &Value) -> Result<()> {
        self.serving = spawn(&self.binary, self.folder.path(), job, self.serving.address())?;
        Ok(())
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// An error with what the server said, if it has ended.
    pub(super) fn check_running(&mut self) -> Result<()> {
        self.serving.check_running()
    }

    pub(super) fn wait_until_ready(&mut self) -> Result<()> {
        self.serving.wait_until_ready()
    }

    /// Memory that is resident now.
    pub(super) fn resident_bytes(&self) -> u64 {
        self.serving.status_bytes("VmRSS:")
    }

    /// The most memory that was resident at once.
    pub(super) fn peak_bytes(&self) -> u64 {
        self.serving.status_bytes("VmHWM:")
    }

    /// Processor time and bytes written, so far.
    pub(super) fn counters(&self) -> Result<Counters> {
        Counters::of(self.serving.id())
    }

    /// Asks it to drain and end, and waits for that.
    pub(super) fn stop(mut self) -> Result<()> {
        self.serving.stop()
    }
}

fn spawn(binary: &Path, folder: &Path, job: &Value, address: SocketAddr) -> Result<Serving> {
    let file = folder.join("job.json");
    serving::write_job(&file, job)?;
    let mut command = Command::new(binary);
    command.arg("run").arg(file).args(["--listen", &address.to_string()]);
    command.arg("--data-dir").arg(folder.join("data"));
    Serving::start(command, address, folder.join("stderr"), PATIENCE)
}
