//! QuestDB, one jar of Maven's.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Found, Running, start as start_program};
use crate::port::free_port;
use crate::project;

const VERSION: &str = "9.1.0";

pub(super) fn find() -> Result<Found> {
    if !project::has("java") {
        return Ok(Found::Missing("no java on the path".to_owned()));
    }
    let Some(jar) = jar() else { return Ok(Found::Missing("no home folder for Maven".to_owned())) };
    if jar.is_file() {
        return Ok(Found::At(jar));
    }
    if !project::has("mvn") {
        return Ok(Found::Missing("no mvn on the path to get it with".to_owned()));
    }
    let mut get = Command::new("mvn");
    get.args(["--quiet", "--batch-mode", "dependency:get", "-Dtransitive=false"]);
    get.arg(format!("-Dartifact=org.questdb:questdb:{VERSION}"));
    let got = get.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    Ok(if got && jar.is_file() { Found::At(jar) } else { Found::Missing("Maven cannot get it".to_owned()) })
}

/// Where Maven keeps it.
fn jar() -> Option<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    let folder = home.join(".m2/repository/org/questdb/questdb").join(VERSION);
    Some(folder.join(format!("questdb-{VERSION}.jar")))
}

pub(super) fn start(found: &Found, folder: &Path) -> Result<Running> {
    let Found::At(jar) = found else { anyhow::bail!("it is not there") };
    let port = free_port()?;
    let address = format!("127.0.0.1:{port}");
    let settings = format!(
        "http.bind.to={address}\nhttp.min.enabled=false\npg.enabled=false\nline.tcp.enabled=false\n\
         telemetry.enabled=false\nshared.worker.count=1\n"
    );
    std::fs::create_dir(folder.join("conf")).context("make a folder")?;
    std::fs::write(folder.join("conf/server.conf"), settings).context("write its settings")?;
    let mut server = Command::new("java");
    server
        .args(["-Xmx512m", "-p"])
        .arg(jar)
        .args(["-m", "io.questdb/io.questdb.ServerMain", "-d"])
        .arg(folder);
    let environment = vec![("THALWEG_QUESTDB", address.clone())];
    start_program(server, &folder.join("questdb.log"), environment, || answers(&address).unwrap_or(false))
}

/// Whether it answers a query.
fn answers(address: &str) -> Result<bool> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET /exec?query=select%201 HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    Ok(head.ends_with(b" 200"))
}
