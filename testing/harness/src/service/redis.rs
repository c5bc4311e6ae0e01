//! Redis of Debian's package, or any other on the path. Tests that stop it start one of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{Found, Running, install, start as start_program};
use crate::port::free_port;
use crate::project;

const PROGRAM: &str = "redis-server";

pub(super) fn find() -> Result<Found> {
    if project::has(PROGRAM) {
        return Ok(Found::At(PathBuf::from(PROGRAM)));
    }
    if let Err(reason) = install(PROGRAM) {
        return Ok(Found::Missing(format!("no {PROGRAM}: {reason}")));
    }
    Ok(match project::has(PROGRAM) {
        true => Found::At(PathBuf::from(PROGRAM)),
        false => Found::Missing(format!("no {PROGRAM} in its package")),
    })
}

pub(super) fn start(found: &Found, folder: &Path) -> Result<Running> {
    let Found::At(program) = found else { anyhow::bail!("it is not there") };
    let port = free_port()?;
    let mut server = Command::new(program);
    server.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--appendonly", "yes"]);
    server.args(["--appendfsync", "always", "--save", "", "--dir"]).arg(folder);
    let address = format!("127.0.0.1:{port}");
    let environment =
        vec![("THALWEG_REDIS", address), ("THALWEG_REDIS_SERVER", program.display().to_string())];
    let log = folder.join("redis.log");
    start_program(server, &log, environment, || answers(port).unwrap_or(false))
}

fn answers(port: u16) -> Result<bool> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    Ok(&answer == b"+PONG")
}
