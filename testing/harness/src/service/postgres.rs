//! PostgreSQL of Debian's package, or any other whose programs are on the path.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{Found, Running, finish, install, is_root, start as start_program, user_id};
use crate::port::free_port;

/// The folder of `initdb` and `postgres`, and the version that is highest where there are several.
pub fn find() -> Result<Found> {
    if let Some(folder) = folder() {
        return Ok(Found::At(folder));
    }
    if let Err(reason) = install("postgresql") {
        return Ok(Found::Missing(format!("no initdb: {reason}")));
    }
    Ok(match folder() {
        Some(folder) => Found::At(folder),
        None => Found::Missing("no initdb in the package postgresql".to_owned()),
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

pub(super) fn start(found: &Found, folder: &Path) -> Result<Running> {
    let Found::At(programs) = found else { anyhow::bail!("it is not there") };
    let cluster = Cluster::make(programs, folder)?;
    let environment = vec![
        ("THALWEG_POSTGRES", cluster.address()),
        ("THALWEG_POSTGRES_PASSWORD", cluster.password.clone()),
    ];
    start_program(cluster.server(), &cluster.log(), environment, || cluster.is_up())
}

/// A database server in a folder of its own, whether it runs or not. Its user is `postgres`.
pub struct Cluster {
    programs: PathBuf,
    folder: PathBuf,
    /// Who runs it, where we are root.
    user: Option<u32>,
    port: u16,
    pub password: String,
}

impl Cluster {
    /// Lays it out in `folder`, with the programs that [`find`] has found.
    pub fn make(programs: &Path, folder: &Path) -> Result<Self> {
        // It refuses to run as root.
        let user =
            if is_root() { Some(user_id("postgres").context("find the user postgres")?) } else { None };
        let password = format!("pw-{}", std::process::id());
        let password_file = folder.join("password");
        std::fs::write(&password_file, &password).context("write a password")?;
        for path in [folder, &password_file] {
            chown(path, user, None).with_context(|| format!("give {path:?} to the user postgres"))?;
        }
        let (programs, folder) = (programs.to_owned(), folder.to_owned());
        let cluster = Self { programs, folder, user, port: free_port()?, password };
        let mut init = cluster.program("initdb");
        init.args(["--no-sync", "--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8"]);
        init.arg("--pwfile").arg(&password_file).arg("--pgdata").arg(cluster.data());
        finish(init, &cluster.folder.join("initdb.log"))?;
        Ok(cluster)
    }

    /// What starts the server, always on the same port.
    pub fn server(&self) -> Command {
        let mut server = self.program("postgres");
        server.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        server.args(["-c", "listen_addresses=127.0.0.1"]);
        // Nothing here outlives a power cut, and nothing has to.
        server.args(["-c", "fsync=off", "-c"]);
        server.arg(format!("unix_socket_directories={}", self.folder.display()));
        server
    }

    /// For what the server says.
    pub fn log(&self) -> PathBuf {
        self.folder.join("postgres.log")
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Whether it takes connections.
    pub fn is_up(&self) -> bool {
        let mut ready = Command::new(self.programs.join("pg_isready"));
        ready.args(["--quiet", "--host=127.0.0.1", &format!("--port={}", self.port)]);
        ready.status().is_ok_and(|status| status.success())
    }

    /// Runs statements, and gives the rows of the last one: a line each, with `|` between values.
    pub fn query(&self, sql: &str) -> Result<String> {
        // Some packages keep it apart from the server.
        let beside = self.programs.join("psql");
        let mut psql = Command::new(if beside.is_file() { beside } else { PathBuf::from("psql") });
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--host=127.0.0.1"]);
        psql.args(["--username=postgres", "--dbname=postgres", "--set=ON_ERROR_STOP=1"]);
        psql.args(["--port", &self.port.to_string(), "--command", sql]).env("PGPASSWORD", &self.password);
        let output = psql.stdin(Stdio::null()).output().context("start psql")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{sql:?} ended with {}: {}", output.status, said.trim());
        String::from_utf8(output.stdout).context("read what psql says")
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        if let Some(user) = self.user {
            std::os::unix::process::CommandExt::uid(&mut command, user);
        }
        command.current_dir(&self.folder);
        command
    }
}
