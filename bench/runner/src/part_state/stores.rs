//! The stores, and the programs that drive them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Options;
use crate::pinned;
use crate::process::{self, Finished};
use thalweg_harness::project::{self, Profile};
use thalweg_harness::service::Hosted;

/// Cores of all runs.
const CORES: &str = "0,1";

/// Which program has a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Ours,
    Peers,
}

/// A store as the tables have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    /// As the program calls it.
    pub(super) name: &'static str,
    pub(super) from: From,
    /// Keys from which on loading them takes so long that one load has to do for all durabilities.
    pub(super) loaded_once_from: u64,
    /// How its URL begins, if it has a server.
    pub(super) scheme: Option<&'static str>,
}

const fn store(name: &'static str, from: From) -> Store {
    Store { name, from, loaded_once_from: u64::MAX, scheme: None }
}

/// All of them; one that has a server is a line with its `scheme`.
pub(super) const STORES: &[Store] = &[
    store("indexed", From::Ours),
    store("indexed+commit", From::Ours),
    Store { loaded_once_from: 100_000, ..store("files", From::Ours) },
    Store { scheme: Some("redis"), ..store("redis", From::Ours) },
    Store { loaded_once_from: 100_000, scheme: Some("http"), ..store("hbase", From::Ours) },
    store("memory", From::Ours),
    store("rocksdb", From::Peers),
    store("fjall", From::Peers),
];

pub(super) struct Stores {
    ours: PathBuf,
    peers: Option<PathBuf>,
    wanted: Vec<Store>,
    /// Store and URL.
    urls: Vec<(&'static str, String)>,
    /// The servers that were started for this.
    _hosted: Vec<Hosted>,
    skipped: Vec<String>,
}

impl Stores {
    pub(super) fn build(options: &Options, profile: Profile) -> Result<Self> {
        let ours = project::build("thalweg-bench-checkpoint", "checkpoint", profile)?;
        let mut skipped = Vec::new();
        let (mut peers, mut has_rocksdb) = (None, false);
        if !options.no_peers {
            has_rocksdb = rocksdb_folder().is_some();
            if !has_rocksdb {
                skipped.push(
                    "Skipped: RocksDB: there is no librocksdb.so (Debian: librocksdb-dev, libclang-dev)."
                        .to_owned(),
                );
            }
            match build_peers() {
                Ok(path) => peers = Some(path),
                Err(error) => skipped.push(format!("Skipped: RocksDB and fjall: {error:#}.")),
            }
        }
        let is_named =
            |name: &str| options.stores.is_empty() || options.stores.iter().any(|other| other == name);
        let (mut wanted, mut urls, mut hosted) = (Vec::new(), Vec::new(), Vec::new());
        for store in STORES.iter().filter(|store| is_named(store.name)) {
            let is_there = match store.from {
                From::Ours => true,
                From::Peers => peers.is_some() && (store.name != "rocksdb" || has_rocksdb),
            };
            if !is_there {
                continue;
            }
            if let Some(scheme) = store.scheme {
                match options.url_of(store.name) {
                    Some(url) => urls.push((store.name, url.to_owned())),
                    None if options.quick => continue,
                    None => match Hosted::named(store.name, &options.folder()?) {
                        Ok(server) => {
                            urls.push((store.name, format!("{scheme}://{}", server.address())));
                            hosted.push(server);
                        }
                        Err(error) => {
                            skipped.push(format!("Skipped: {}: {error:#}.", store.name));
                            continue;
                        }
                    },
                }
            }
            wanted.push(*store);
        }
        Ok(Self { ours, peers, wanted, urls, _hosted: hosted, skipped })
    }

    /// What could not be had, and why.
    pub(super) fn skipped(&self) -> &[String] {
        &self.skipped
    }

    pub(super) fn wanted(&self) -> &[Store] {
        &self.wanted
    }

    /// One run of a store, in an empty folder that goes afterwards.
    pub(super) fn run(&self, options: &Options, store: &Store, arguments: &[&str]) -> Result<Finished> {
        let folder = tempfile::tempdir_in(options.folder()?).context("make a folder for a store")?;
        let mut command = match store.from {
            From::Ours => {
                let mut command = pinned(Some(CORES), &self.ours);
                command.arg("run");
                command
            }
            From::Peers => pinned(Some(CORES), self.peers.as_deref().context("the peers were not built")?),
        };
        command.args(["--store", store.name, "--dir"]).arg(folder.path().join("store")).args(arguments);
        if let Some((_, url)) = self.urls.iter().find(|(name, _)| *name == store.name) {
            command.args(["--url", url]);
        }
        process::run(command)
    }

    /// The program with our back ends.
    pub(super) fn ours(&self) -> Command {
        pinned(Some(CORES), &self.ours)
    }
}

/// Where the system's RocksDB is, as the C compiler finds it.
fn rocksdb_folder() -> Option<PathBuf> {
    let output = Command::new("cc").arg("-print-file-name=librocksdb.so").output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    path.is_absolute().then(|| path.parent().map(Path::to_path_buf))?
}

/// Builds `bench/peers/stores`, with RocksDB where the system has it.
fn build_peers() -> Result<PathBuf> {
    let target = project::scratch("peers-stores")?;
    let mut command = project::cargo();
    command.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]);
    command.arg(project::root().join("bench/peers/stores/Cargo.toml"));
    command.arg("--target-dir").arg(&target);
    if let Some(folder) = rocksdb_folder() {
        command.args(["--features", "rocksdb"]).env("ROCKSDB_LIB_DIR", folder);
    }
    let status = command.stdout(Stdio::null()).status().context("start cargo")?;
    ensure!(status.success(), "build of bench/peers/stores ended with {status}");
    Ok(target.join("release/stores"))
}
