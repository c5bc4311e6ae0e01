//! Nodes of a cluster in processes of their own, and what the cluster says of itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::counters::Counters;
use thalweg_harness::http::Connection;
use thalweg_harness::port;
use thalweg_harness::project;
use thalweg_harness::service::kafka::Broker;
use thalweg_harness::serving::{self, Serving};

pub(super) const PARTITIONS: usize = 8;

pub(super) const JOB: &str = "pay";

/// Nothing that a node or a cluster does takes longer.
const PATIENCE: Duration = Duration::from_secs(300);

/// A plan that stands for so long has nothing on its way.
const SETTLED: Duration = Duration::from_millis(1_500);

/// Counts of one or two keys; `queries` names them by their key.
pub(super) fn job(keys: &[&str]) -> Value {
    let query = |key: &&str| {
        let text = format!(
            "SELECT sum(amount) AS amount, count(*) AS n FROM payments GROUP BY {key} OVER SLIDING 1 DAY"
        );
        (format!("by_{key}"), Value::from(text))
    };
    let queries: serde_json::Map<String, Value> = keys.iter().map(query).collect();
    json!({
        "name": JOB,
        "sources": {"payments": {
            "type": "http",
            "format": "ndjson",
            "schema": {
                "tx": "string", "ts": "timestamp(ms)", "card": "string", "shop": "string", "amount": "int64",
            },
            "time": "ts",
            "max_ahead": "none",
            "lateness": "2h",
            "id": "tx",
            "dedup": "2h",
        }},
        "operators": {"features": {
            "type": "metrics",
            "input": "payments",
            "partition_by": keys,
            "partitions": PARTITIONS,
            "queries": queries,
        }},
        "sinks": {"out": {"type": "null", "input": "features"}},
    })
}

/// Who has each unit; `None` while nobody does.
type Places = BTreeMap<String, Option<String>>;

/// The cluster, as one of its nodes sees it.
struct View {
    /// Each member, and whether it has units.
    members: BTreeMap<String, bool>,
    places: Places,
    /// Nothing waits for a plan, and nobody follows what it takes over.
    is_still: bool,
}

pub(super) struct Nodes {
    nodes: BTreeMap<&'static str, Serving>,
    binary: PathBuf,
    cluster: String,
    /// Processes that have ended, for files of their own.
    folder: tempfile::TempDir,
}

impl Nodes {
    /// Starts nodes with empty data directories, and waits until each has its share. The prefix is used once.
    pub(super) fn start(
        binary: &Path,
        broker: &Broker,
        prefix: &str,
        job: &Value,
        names: &[&'static str],
    ) -> Result<Self> {
        let folder =
            tempfile::Builder::new().prefix(prefix).tempdir_in(project::scratch("bench-cluster")?)?;
        serving::write_job(&folder.path().join("job.json"), job)?;
        let cluster = format!("kafka://{}?replication=1&prefix={prefix}", broker.address());
        let mut nodes = Self { nodes: BTreeMap::new(), binary: binary.to_owned(), cluster, folder };
        for name in names {
            nodes.launch(name)?;
        }
        nodes.settle()?;
        Ok(nodes)
    }

    pub(super) fn launch(&mut self, name: &'static str) -> Result<()> {
        let address = port::free_address()?;
        let mut command = Command::new(&self.binary);
        command.arg("run").arg(self.folder.path().join("job.json"));
        command.args(["--cluster", &self.cluster, "--node", name, "--host-id", name]);
        command.args(["--listen", &address.to_string(), "--data-dir"]).arg(self.data(name));
        let log = self.folder.path().join(format!("{name}.log"));
        self.nodes.insert(name, Serving::start(command, address, log, PATIENCE)?);
        Ok(())
    }

    /// The data directory of a node.
    pub(super) fn data(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn doors(&self) -> Vec<SocketAddr> {
        self.nodes.values().map(Serving::address).collect()
    }

    /// Kills a node at once.
    pub(super) fn kill(&mut self, name: &str) -> Result<()> {
        self.nodes.remove(name).with_context(|| format!("no node {name} runs"))?.kill()?;
        Ok(())
    }

    /// Asks a node to hand over its units, and waits until it has ended.
    pub(super) fn leave(&mut self, name: &str) -> Result<()> {
        self.nodes.remove(name).with_context(|| format!("no node {name} runs"))?.stop()
    }

    /// What all nodes have used so far.
    pub(super) fn used(&self) -> Result<Counters> {
        self.nodes.values().try_fold(Counters::default(), |sum, node| {
            let used = Counters::of(node.id())?;
            Ok(Counters { cpu: sum.cpu + used.cpu, written: sum.written + used.written })
        })
    }

    /// Waits until all nodes are members that have units, and the places of units have not changed for a while.
    pub(super) fn settle(&mut self) -> Result<()> {
        let (begun, mut last) = (Instant::now(), None);
        loop {
            for node in self.nodes.values_mut() {
                node.check_running()?;
            }
            let views: Vec<Option<View>> =
                self.nodes.values().map(|node| view(node.address()).ok()).collect();
            let names: Vec<&str> = self.nodes.keys().copied().collect();
            let is_whole = |view: &View| {
                let members: Vec<&str> = view.members.keys().map(String::as_str).collect();
                let has_all = !view.places.is_empty() && view.places.values().all(Option::is_some);
                view.is_still && has_all && members == names && view.members.values().all(|has| *has)
            };
            let places: Option<Vec<Places>> =
                views.into_iter().map(|view| view.filter(is_whole).map(|view| view.places)).collect();
            let now = places.filter(|places| places.windows(2).all(|pair| pair[0] == pair[1]));
            match (now, &last) {
                (Some(now), Some((before, since))) if now == *before => {
                    let since: &Instant = since;
                    if since.elapsed() > SETTLED {
                        return Ok(());
                    }
                }
                (Some(now), _) => last = Some((now, Instant::now())),
                (None, _) => last = None,
            }
            ensure!(begun.elapsed() < PATIENCE, "{names:?} have not shared the units within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn view(address: SocketAddr) -> Result<View> {
    let mut connection = Connection::open(address)?;
    let (status, body) = connection.get("/v1/cluster")?;
    ensure!(status == 200, "GET /v1/cluster: {status} {}", String::from_utf8_lossy(body));
    let said: Value = serde_json::from_slice(body).context("read what GET /v1/cluster says")?;
    let list = |name: &str| said[name].as_array().with_context(|| format!("no {name} in {said}"));
    let members = list("members")?.iter().map(|member| {
        let name = member["name"].as_str().unwrap_or_default().to_owned();
        (name, member["units_active"].as_u64().is_some_and(|units| units > 0))
    });
    let units = list("units")?;
    let places = units.iter().map(|unit| {
        let name = format!("{}/{}", unit["stage"], unit["partition"]);
        (name, unit["active"].as_str().map(str::to_owned))
    });
    let moves = |unit: &Value| {
        let followers = unit["followers"].as_array();
        followers.is_some_and(|all| all.iter().any(|other| other["takes_over"] == true))
    };
    let is_still = said["unplanned"] == 0 && !units.iter().any(moves);
    Ok(View { members: members.collect(), places: places.collect(), is_still })
}

/// The units of a node, as another one sees them; none where it is unknown.
pub(super) fn units_of(seen_by: SocketAddr, name: &str) -> Result<usize> {
    let places = view(seen_by)?.places;
    Ok(places.values().filter(|node| node.as_deref() == Some(name)).count())
}

/// Counts moves of units, as one node sees them, while something runs.
pub(super) fn moves<T>(seen_by: SocketAddr, run: impl FnOnce() -> Result<T>) -> Result<(T, usize)> {
    let is_over = AtomicBool::new(false);
    let mut last = view(seen_by)?.places;
    let watch = || -> Result<usize> {
        let mut moves = 0;
        while !is_over.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(50));
            // A node that has no time to answer is asked once more.
            let Ok(View { places, .. }) = view(seen_by) else { continue };
            for (unit, node) in places.into_iter().filter(|(_, node)| node.is_some()) {
                if last.insert(unit, node.clone()).is_some_and(|before| before != node) {
                    moves += 1;
                }
            }
        }
        Ok(moves)
    };
    thread::scope(|scope| {
        let watching = scope.spawn(watch);
        let outcome = run();
        is_over.store(true, Ordering::Release);
        let moves = watching.join().expect("a watch does not panic")?;
        Ok((outcome?, moves))
    })
}
