//! A PostgreSQL that a job writes to, and that goes away and comes back while it does.

use std::fs::OpenOptions;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use thalweg_harness::process;
use thalweg_harness::service::Found;
use thalweg_harness::service::postgres::{self, Cluster};

/// No server takes longer to come up, and to recover.
const PATIENCE: Duration = Duration::from_secs(60);

/// How it goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outage {
    /// SIGKILL; its other processes notice soon.
    Kill,
    /// Connections are ended, then the server.
    Stop,
}

/// One server for all rounds of a job.
pub(super) struct Database {
    cluster: Cluster,
    server: Server,
    _folder: TempDir,
}

/// A server that was asked this long ago has missed it: before it has set up its signals, an interrupt is lost if they
/// are ignored, as under a shell that runs this in the background.
const DEAF: Duration = Duration::from_secs(5);

enum Server {
    /// Started, not necessarily up.
    Runs(Child),
    /// Asked to end, or killed; started again once it has ended and this time has come.
    Ends(Child, Instant),
    /// To be started at this time.
    Down(Instant),
}

impl Database {
    /// Starts a fresh one; `Err` of the inner kind says why there is none.
    pub(super) fn open() -> Result<Result<Self, String>> {
        let programs = match postgres::find()? {
            Found::At(programs) => programs,
            Found::Missing(reason) => return Ok(Err(reason)),
        };
        let folder = tempfile::Builder::new().prefix("thalweg-crash-").tempdir().context("make a folder")?;
        let cluster = Cluster::make(&programs, folder.path()).context("lay out a database")?;
        let mut database = Self { cluster, server: Server::Down(Instant::now()), _folder: folder };
        database.bring_up()?;
        Ok(Ok(database))
    }

    pub(super) fn address(&self) -> String {
        self.cluster.address()
    }

    pub(super) fn password(&self) -> &str {
        &self.cluster.password
    }

    /// Rows, a line each, with `|` between values.
    pub(super) fn query(&self, sql: &str) -> Result<String> {
        self.cluster.query(sql)
    }

    /// Whether it was started and nothing has ended it since.
    pub(super) fn runs(&self) -> bool {
        matches!(self.server, Server::Runs(_))
    }

    /// Lets it go away for at least this long.
    pub(super) fn go_away(&mut self, outage: Outage, down: Duration) {
        let until = Instant::now() + down;
        let now = std::mem::replace(&mut self.server, Server::Down(until));
        self.server = match now {
            Server::Runs(child) => {
                match outage {
                    Outage::Kill => process::kill(&child),
                    Outage::Stop => process::interrupt(&child),
                }
                Server::Ends(child, until)
            }
            gone => gone,
        };
    }

    /// Starts it again where the time has come for it; called again and again.
    pub(super) fn look(&mut self) -> Result<()> {
        match &mut self.server {
            // It does not start while processes of a killed one are left.
            Server::Runs(child) => {
                if child.try_wait()?.is_some() {
                    self.server = Server::Down(Instant::now() + Duration::from_millis(20));
                }
            }
            Server::Ends(child, until) => {
                if child.try_wait()?.is_some() {
                    self.server = Server::Down(*until);
                } else if Instant::now() >= *until + DEAF {
                    process::kill(child);
                }
            }
            Server::Down(until) => {
                if Instant::now() >= *until {
                    self.server = Server::Runs(spawn(self.cluster.server(), &self.cluster)?);
                }
            }
        }
        Ok(())
    }

    /// Waits until it takes connections.
    pub(super) fn bring_up(&mut self) -> Result<()> {
        let from = Instant::now();
        loop {
            self.look()?;
            if self.runs() && self.cluster.is_up() {
                return Ok(());
            }
            ensure!(from.elapsed() < PATIENCE, "the database is not up within {PATIENCE:?}: {}", self.said());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The end of its output.
    fn said(&self) -> String {
        let said = std::fs::read_to_string(self.cluster.log()).unwrap_or_default();
        let lines: Vec<&str> = said.lines().rev().take(10).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Server::Runs(child) | Server::Ends(child, _) = &mut self.server
            && matches!(child.try_wait(), Ok(None))
        {
            // Asked, it frees the memory that its processes share.
            process::interrupt(child);
            let _ = child.wait();
        }
    }
}

fn spawn(mut server: Command, cluster: &Cluster) -> Result<Child> {
    let log = OpenOptions::new().create(true).append(true).open(cluster.log()).context("make a log")?;
    server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    process::tie(&mut server);
    server.spawn().context("start the database")
}
