//! A collector in a process of its own, on the loopback: ours or goflow2, and how many samples have come out of it.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::counters::Counters;
use crate::pinned;
use anyhow::{Context, Result, bail};
use thalweg_harness::http::Connection;
use thalweg_harness::project;

/// No collector takes longer to start, tables and all.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to start a collector.
pub(super) enum Kind<'a> {
    /// A command that runs a job of ours whose source listens at an address; a data directory is added.
    Ours { command: &'a dyn Fn(SocketAddr) -> Command },
    /// JSON to `/dev/null`.
    Goflow2 { binary: &'a Path },
}

impl Kind<'_> {
    /// The counter of output records, and the page that says when it is up.
    fn pages(&self) -> (&'static str, &'static str) {
        match self {
            Kind::Ours { .. } => ("thalweg_answers_total", "/readyz"),
            Kind::Goflow2 { .. } => ("goflow2_flow_process_sf_samples_total", "/__health"),
        }
    }
}

pub(super) struct Collector {
    child: Child,
    /// Where it takes datagrams.
    pub(super) udp: SocketAddr,
    http: SocketAddr,
    counter: &'static str,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

/// Processor time of a collector that is over, and what came out of it.
pub(super) struct Collected {
    pub(super) samples: f64,
    pub(super) cpu: Duration,
}

impl Collector {
    /// Starts one on some cores and waits until it listens.
    pub(super) fn start(kind: &Kind<'_>, cores: &str) -> Result<Self> {
        let folder = tempfile::tempdir_in(project::scratch("bench-sflow")?)?;
        let loopback = (Ipv4Addr::LOCALHOST, 0);
        let udp = UdpSocket::bind(loopback)?.local_addr()?;
        let http = TcpListener::bind(loopback)?.local_addr()?;
        let mut command = match kind {
            Kind::Ours { command } => {
                let mut command = command(udp);
                command.args(["--listen", &http.to_string(), "--data-dir"]).arg(folder.path().join("data"));
                command
            }
            Kind::Goflow2 { binary } => {
                let mut command = pinned(Some(cores), binary);
                command.args(["-listen", &format!("sflow://{udp}"), "-format", "json", "-transport", "file"]);
                command.args(["-transport.file", "/dev/null", "-addr", &http.to_string()]);
                command
            }
        };
        let log = folder.path().join("log");
        let child = spawn(&mut command, &log)?;
        let (counter, up) = kind.pages();
        let mut collector = Self { child, udp, http, counter, log, _folder: folder };
        collector.wait_until_up(up)?;
        Ok(collector)
    }

    fn wait_until_up(&mut self, page: &str) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if self.page(page).is_ok_and(|(status, _)| status == 200) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the collector ended with {status}\n{}", self.said());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("the collector was not up within {PATIENCE:?}\n{}", self.said())
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn page(&self, page: &str) -> Result<(u16, String)> {
        let mut connection = Connection::open(self.http)?;
        let (status, body) = connection.get(page)?;
        Ok((status, String::from_utf8_lossy(body).into_owned()))
    }

    /// Samples that have come out so far.
    pub(super) fn samples(&self) -> Result<f64> {
        let (_, text) = self.page("/metrics")?;
        Ok(sum(&text, self.counter))
    }

    /// Samples that have come out once `expected` have, or none has come for a while, or `patience` is over.
    pub(super) fn samples_after(&self, expected: f64, patience: Duration) -> Result<Collected> {
        let started = Instant::now();
        loop {
            let samples = self.samples()?;
            if samples >= expected || started.elapsed() > patience {
                return Ok(Collected { samples, cpu: Counters::of(self.child.id())?.cpu });
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(command: &mut Command, log: &Path) -> Result<Child> {
    let file = File::create(log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    command.spawn().with_context(|| format!("start {:?}", command.get_program()))
}

/// The sum of a counter over all its labels.
fn sum(metrics: &str, counter: &str) -> f64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(counter)?;
        let is_it = rest.starts_with(['{', ' ']);
        is_it.then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
    });
    values.sum()
}

#[test]
fn counters_are_summed_over_their_labels() {
    let text = "# TYPE a counter\na{x=\"1 2\"} 3\na{x=\"2\"} 4e1\na_b 7\na 0.5\n";
    assert_eq!(sum(text, "a"), 43.5);
    assert_eq!(sum(text, "c"), 0.0);
}
