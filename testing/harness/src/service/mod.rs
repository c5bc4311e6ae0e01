//! Real components that tests talk to: how each is had, started on the loopback in a fresh folder, and stopped.
//!
//! Tests of them carry `real_service` and the name of the service in their path and are `#[ignore]`d. Where the service is
//! they learn from the environment.

mod hbase;
pub mod kafka;
mod maven;
pub mod postgres;
mod questdb;
mod redis;

use std::any::Any;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{Tally, libtest, project};

/// Tests of real services carry this in their path.
pub const REAL_SERVICE: &str = "real_service";

/// No service takes longer to start, on a machine with much to do.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long a service may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(10);

/// A component, and the facts that its tests need.
struct Service {
    /// As in the path of its tests.
    name: &'static str,
    /// Where its tests are, as arguments of cargo.
    tests: &'static [&'static [&'static str]],
    /// Whether it can be had here; gets it where that takes no more than a package.
    find: fn() -> Result<Found>,
    start: fn(&Found, &Path) -> Result<Running>,
}

/// What is there of a service.
pub enum Found {
    /// Where its program is, or the folder of all that it needs.
    At(PathBuf),
    /// Why it cannot be had.
    Missing(String),
}

/// A service that runs; stopped when it is dropped.
struct Running {
    /// What stops when it is dropped, in this order.
    hosts: Vec<Box<dyn Any>>,
    /// For the tests.
    environment: Vec<(&'static str, String)>,
}

/// A process that is asked to end when it is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // Asked first, so that it ends its own processes and gives back what it shares between them.
        let _ = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        let asked = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && asked.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// Of the whole workspace, with all but these left out by name: for a part of it dependencies would be built
// once more, with the features of that part.
const LIBRARIES: &[&[&str]] = &[&["--workspace", "--lib"]];
const LIBRARIES_AND_JOBS: &[&[&str]] = &[&["--workspace", "--lib"], &["--workspace", "--test", "it"]];

const SERVICES: [Service; 5] = [
    Service { name: "postgres", tests: LIBRARIES, find: postgres::find, start: postgres::start },
    Service { name: "questdb", tests: LIBRARIES, find: questdb::find, start: questdb::start },
    Service { name: "redis", tests: LIBRARIES_AND_JOBS, find: redis::find, start: redis::start },
    Service { name: "hbase", tests: LIBRARIES_AND_JOBS, find: hbase::find, start: hbase::start },
    Service {
        name: "kafka",
        tests: LIBRARIES_AND_JOBS,
        find: || kafka::find(kafka::Release::Newest),
        start: kafka::start,
    },
];

/// A service in a folder of its own.
pub struct Hosted {
    running: Running,
    /// Goes after it.
    _folder: tempfile::TempDir,
}

impl Hosted {
    /// Starts the service with this name, with all that it keeps below `parent`; why it cannot be had is the error.
    pub fn named(name: &str, parent: &Path) -> Result<Self> {
        let service = SERVICES.iter().find(|service| service.name == name);
        let service = service.with_context(|| format!("no service is called {name}"))?;
        let found = (service.find)()?;
        if let Found::Missing(reason) = found {
            bail!(reason);
        }
        Self::start(service, &found, parent)
    }

    fn start(service: &Service, found: &Found, parent: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("thalweg-service-").tempdir_in(parent);
        let folder = folder.context("make a folder")?;
        let running =
            (service.start)(found, folder.path()).with_context(|| format!("start {}", service.name))?;
        Ok(Self { running, _folder: folder })
    }

    /// Host and port: what the service's tests learn first.
    pub fn address(&self) -> &str {
        self.running.environment.first().map_or("", |(_, address)| address)
    }
}

pub fn run() -> Result<Tally> {
    let mut tally = Tally::default();
    for service in &SERVICES {
        match (service.find)() {
            Ok(Found::Missing(reason)) => tally.skip(format!("{}: {reason}", service.name)),
            Ok(found) => match test(service, &found) {
                Ok(tested) => {
                    tally.add(&tested);
                    tally.notes.extend(tested.notes);
                }
                Err(error) => tally.fail(format!("{}: {error:#}", service.name)),
            },
            Err(error) => tally.fail(format!("{}: {error:#}", service.name)),
        }
    }
    Ok(tally)
}

fn test(service: &Service, found: &Found) -> Result<Tally> {
    let hosted = Hosted::start(service, found, &std::env::temp_dir())?;
    let mut tally = Tally::default();
    for tests in service.tests {
        let mut command = project::cargo();
        command.args(["test", "--quiet", "--no-fail-fast"]).args(*tests);
        command.args(["--", "--ignored", "--format", "pretty", &format!("{REAL_SERVICE}::{}", service.name)]);
        command.envs(hosted.running.environment.iter().map(|(name, value)| (*name, value)));
        let tested = libtest::run(command)?;
        tally.add(&tested);
        tally.notes.extend(tested.notes);
    }
    Ok(tally)
}

/// Starts a program that says what it does into `log`, and waits until it is up.
fn start(
    mut command: Command,
    log: &Path,
    environment: Vec<(&'static str, String)>,
    is_up: impl Fn() -> bool,
) -> Result<Running> {
    let file = OpenOptions::new().create(true).append(true).open(log).context("make a log")?;
    let child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .with_context(|| format!("start {:?}", command.get_program()))?;
    let mut program = Program(child);
    await_up(&mut program.0, log, is_up)?;
    Ok(Running { hosts: vec![Box::new(program)], environment })
}

/// Waits until a service is up; if it ends or takes too long, the error has the last that it said into `log`.
fn await_up(child: &mut Child, log: &Path, is_up: impl Fn() -> bool) -> Result<()> {
    let started = Instant::now();
    while !is_up() {
        let ended = child.try_wait()?;
        if ended.is_some() || started.elapsed() > PATIENCE {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<&str> = said.lines().rev().take(10).collect();
            let what = ended.map_or_else(
                || "it is not up in time".to_owned(),
                |status| format!("it ended with {status}"),
            );
            bail!("{what}: {}", lines.into_iter().rev().collect::<Vec<_>>().join(" | "));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Installs a package of Debian's; why it is not there then.
fn install(package: &str) -> Result<(), String> {
    if !is_root() || !project::has("apt-get") {
        return Err(format!("Debian has it in the package {package}"));
    }
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--no-install-recommends", package]);
    install.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
    match install.status().is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err(format!("the package {package} cannot be installed")),
    }
}

fn is_root() -> bool {
    user_id("root").is_some_and(|root| id(&[]) == Some(root))
}

fn user_id(name: &str) -> Option<u32> {
    id(&[name])
}

fn id(of: &[&str]) -> Option<u32> {
    let output = Command::new("id").arg("-u").args(of).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Runs a program to its end.
fn finish(mut command: Command, log: &Path) -> Result<()> {
    let file = File::create(log).context("make a log")?;
    let status = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .with_context(|| format!("start {:?}", command.get_program()))?;
    if !status.success() {
        let said = std::fs::read_to_string(log).unwrap_or_default();
        bail!("{:?} ended with {status}: {}", command.get_program(), said.trim());
    }
    Ok(())
}
