//! PostgreSQL of Debian's package, or any other whose programs are on the path.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::{Found, Running, finish, free_port, start as start_program};
use crate::project;

/// The folder of `initdb` and `postgres`, and the version that is highest where there are several.
pub(super) fn find() -> Result<Found> {
    if let Some(folder) = folder() {
        return Ok(Found::At(folder));
    }
    if !is_root() || !project::has("apt-get") {
        return Ok(Found::Missing("no initdb; Debian has it in the package postgresql".to_owned()));
    }
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--no-install-recommends", "postgresql"]);
    install.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
    let installed = install.status().is_ok_and(|status| status.success());
    Ok(match folder().filter(|_| installed) {
        Some(folder) => Found::At(folder),
        None => Found::Missing("the package postgresql cannot be installed".to_owned()),
    })
}

fn folder() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect())
        .unwrap_or_default();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    // A link to a program leads to the folder of all of them.
    let real = |folder: &PathBuf| Some(folder.join("initdb").canonicalize().ok()?.parent()?.to_owned());
    folders
        .iter()
        .filter_map(real)
        .find(|folder| ["postgres", "pg_isready"].iter().all(|name| folder.join(name).is_file()))
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

pub(super) fn start(found: &Found, folder: &Path) -> Result<Running> {
    let Found::At(programs) = found else { anyhow::bail!("it is not there") };
    // It refuses to run as root.
    let user = if is_root() { Some(user_id("postgres").context("find the user postgres")?) } else { None };
    let program = |name: &str| {
        let mut command = Command::new(programs.join(name));
        if let Some(user) = user {
            std::os::unix::process::CommandExt::uid(&mut command, user);
        }
        command.current_dir(folder);
        command
    };
    let password = format!("pw-{}", std::process::id());
    let password_file = folder.join("password");
    std::fs::write(&password_file, &password).context("write a password")?;
    for path in [folder, &password_file] {
        chown(path, user, None).with_context(|| format!("give {path:?} to the user postgres"))?;
    }
    let data = folder.join("data");
    let mut init = program("initdb");
    init.args(["--no-sync", "--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8"]);
    init.arg("--pwfile").arg(&password_file).arg("--pgdata").arg(&data);
    finish(init, &folder.join("initdb.log"))?;

    let port = free_port()?;
    let address = format!("127.0.0.1:{port}");
    let mut server = program("postgres");
    server.arg("-D").arg(&data).args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
    // Nothing here outlives a power cut, and nothing has to.
    server.args(["-c", "fsync=off", "-c"]).arg(format!("unix_socket_directories={}", folder.display()));
    let ready = program("pg_isready");
    let is_up = || {
        let mut ready = Command::new(ready.get_program());
        ready.args(["--quiet", "--host=127.0.0.1", &format!("--port={port}")]);
        ready.status().is_ok_and(|status| status.success())
    };
    let environment = vec![("THALWEG_POSTGRES", address), ("THALWEG_POSTGRES_PASSWORD", password)];
    start_program(server, &folder.join("postgres.log"), environment, is_up)
}
