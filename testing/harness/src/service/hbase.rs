//! HBase and its REST gateway, from Maven's jars: one process that is master, region server and ZooKeeper, and the
//! gateway as a second one. The jars are 112 MB.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::maven::{self, Artifact};
use super::{Found, Running, start as start_program};
use crate::http;
use crate::port::free_port;

const VERSION: &str = "2.6.1";
const HADOOP: &str = "2.6.1-hadoop3";

/// What Java 17 keeps from it otherwise.
const OPENED: [&str; 7] = [
    "java.base/java.nio",
    "java.base/sun.nio.ch",
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/jdk.internal.ref",
];

pub(super) fn find() -> Result<Found> {
    let artifact = |name, version, without| Artifact { group: "org.apache.hbase", name, version, without };
    maven::jars(
        &format!("hbase-{VERSION}"),
        &[
            artifact("hbase-server", HADOOP, &[]),
            artifact("hbase-mapreduce", HADOOP, &[]),
            // The gateway comes without dependencies of its own: they are those of another Hadoop.
            artifact("hbase-rest", VERSION, &["org.apache.hadoop", "org.apache.hbase"]),
        ],
    )
}

pub(super) fn start(found: &Found, folder: &Path) -> Result<Running> {
    let Found::At(jars) = found else { anyhow::bail!("it is not there") };
    let settings = folder.join("conf");
    fs::create_dir(&settings).context("make a folder")?;
    fs::write(settings.join("hbase-site.xml"), site(folder, free_port()?)).context("write its settings")?;
    let java = |memory: &str| {
        let mut command = Command::new("java");
        command.arg(memory).current_dir(folder);
        for opened in OPENED {
            command.arg("--add-opens").arg(format!("{opened}=ALL-UNNAMED"));
        }
        command.args(["--add-exports", "java.base/jdk.internal.misc=ALL-UNNAMED", "-cp"]);
        command.arg(format!("{}:{}/*", settings.display(), jars.display()));
        command
    };
    let mut master = java("-Xmx768m");
    master.args(["org.apache.hadoop.hbase.master.HMaster", "start"]);
    // Whether it is up is said through the gateway.
    let master = start_program(master, &folder.join("hbase.log"), Vec::new(), || true)?;

    let port = free_port()?;
    let mut gateway = java("-Xmx384m");
    gateway.args(["org.apache.hadoop.hbase.rest.RESTServer", "start", "-p"]);
    let script = maven::script(&gateway, &folder.join("gateway"))?;
    gateway.arg(port.to_string());
    let address = format!("127.0.0.1:{port}");
    let is_up = || status(&address).is_some_and(|said| said.starts_with("1 live servers"));
    let environment = vec![("THALWEG_HBASE", address.clone()), ("THALWEG_HBASE_GATEWAY", script)];
    let mut running = start_program(gateway, &folder.join("gateway.log"), environment, is_up)?;
    running.hosts.extend(master.hosts);
    Ok(running)
}

/// Everything on the loopback, in files of the folder.
fn site(folder: &Path, zookeeper: u16) -> String {
    let place = |name: &str| folder.join(name).display().to_string();
    let properties = [
        ("hbase.rootdir", format!("file://{}", place("data"))),
        ("hbase.tmp.dir", place("tmp")),
        ("hbase.zookeeper.property.dataDir", place("zookeeper")),
        ("hbase.zookeeper.property.clientPort", zookeeper.to_string()),
        ("hbase.zookeeper.property.clientPortAddress", "127.0.0.1".to_owned()),
        ("hbase.unsafe.stream.capability.enforce", "false".to_owned()),
        ("hbase.wal.provider", "filesystem".to_owned()),
        ("hbase.master.hostname", "localhost".to_owned()),
        ("hbase.master.ipc.address", "127.0.0.1".to_owned()),
        ("hbase.master.port", "0".to_owned()),
        ("hbase.master.info.port", "-1".to_owned()),
        ("hbase.regionserver.hostname", "localhost".to_owned()),
        ("hbase.regionserver.ipc.address", "127.0.0.1".to_owned()),
        ("hbase.regionserver.port", "0".to_owned()),
        ("hbase.regionserver.info.port", "-1".to_owned()),
        ("hbase.rest.host", "127.0.0.1".to_owned()),
        ("hbase.rest.info.port", "-1".to_owned()),
    ];
    let property =
        |(name, value)| format!("<property><name>{name}</name><value>{value}</value></property>\n");
    format!("<configuration>\n{}</configuration>\n", properties.map(property).concat())
}

/// What the gateway says of the cluster.
fn status(address: &str) -> Option<String> {
    let mut gateway = http::Connection::open(address.parse().ok()?).ok()?;
    let (code, body) = gateway.get("/status/cluster").ok()?;
    (code == 200).then(|| String::from_utf8_lossy(body).into_owned())
}
