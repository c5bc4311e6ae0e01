//! HBase and its REST gateway, from Maven's jars: one process that is master, region server and ZooKeeper, and the
//! gateway as a second one.
//!
//! The jars (112 MB) are kept next to Maven's own, so that they are gathered once per machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::{Found, Running, start as start_program};
use crate::port::free_port;
use crate::{http, project};

const VERSION: &str = "2.6.1";

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
    if !project::has("java") {
        return Ok(Found::Missing("no java on the path".to_owned()));
    }
    let Some(folder) = folder() else { return Ok(Found::Missing("no home folder for Maven".to_owned())) };
    if folder.is_dir() {
        return Ok(Found::At(folder));
    }
    if !project::has("mvn") {
        return Ok(Found::Missing("no mvn on the path to get it with".to_owned()));
    }
    gather(&folder)
}

/// Where its jars are kept.
fn folder() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(format!(".m2/thalweg/hbase-{VERSION}")))
}

/// Has Maven copy the jars; the folder has its name once all of them are there.
fn gather(folder: &Path) -> Result<Found> {
    let parent = folder.parent().context("a folder has a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("make {parent:?}"))?;
    let work = tempfile::Builder::new().prefix("hbase-").tempdir_in(parent).context("make a folder")?;
    let project = work.path().join("pom.xml");
    fs::write(&project, pom()).context("write a project for Maven")?;
    let jars = work.path().join("jars");
    let mut get = Command::new("mvn");
    get.args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "--file"]).arg(&project);
    get.arg(format!("-DoutputDirectory={}", jars.display()));
    let got = get.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if !got {
        return Ok(Found::Missing("Maven cannot get it".to_owned()));
    }
    // Somebody else may have been quicker.
    if fs::rename(&jars, folder).is_err() && !folder.is_dir() {
        anyhow::bail!("move {jars:?} to {folder:?}");
    }
    Ok(Found::At(folder.to_owned()))
}

/// The gateway comes without dependencies of its own: they are those of another Hadoop.
fn pom() -> String {
    let exclusions: String = ["org.apache.hadoop", "org.apache.hbase"]
        .map(|group| format!("<exclusion><groupId>{group}</groupId><artifactId>*</artifactId></exclusion>"))
        .concat();
    let dependency = |name: &str, version: &str, more: &str| {
        format!(
            "<dependency><groupId>org.apache.hbase</groupId><artifactId>{name}</artifactId>\
             <version>{version}</version>{more}</dependency>"
        )
    };
    let hadoop = format!("{VERSION}-hadoop3");
    let dependencies = [
        dependency("hbase-server", &hadoop, ""),
        dependency("hbase-mapreduce", &hadoop, ""),
        dependency("hbase-rest", VERSION, &format!("<exclusions>{exclusions}</exclusions>")),
    ];
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>org.thalweg</groupId><artifactId>hbase-for-tests</artifactId><version>1</version>\
         <packaging>pom</packaging><dependencies>{}</dependencies></project>",
        dependencies.concat()
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
    let script = script(&gateway, &folder.join("gateway"))?;
    gateway.arg(port.to_string());
    let address = format!("127.0.0.1:{port}");
    let is_up = || status(&address).is_some_and(|said| said.starts_with("1 live servers"));
    let environment = vec![("THALWEG_HBASE", address.clone()), ("THALWEG_HBASE_GATEWAY", script)];
    let mut running = start_program(gateway, &folder.join("gateway.log"), environment, is_up)?;
    running.upon = Some(Box::new(master));
    Ok(running)
}

/// Makes a program of a command, for tests that start one of their own; its path.
fn script(command: &Command, path: &Path) -> Result<String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
    fs::write(path, format!("#!/bin/sh\nexec {} \"$@\"\n", quoted.join(" "))).context("write a script")?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).context("make a script a program")?;
    Ok(path.display().to_string())
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
