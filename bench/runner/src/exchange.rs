//! `examples/ixp.yaml`, as it is, in a folder of its own with the tables that it joins.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{pinned, process};
use thalweg_harness::project;

/// Cores of all runs.
pub(super) const CORES: &str = "0,1";

/// Where the example looks for its tables.
const TABLES: &str = "ixp-tables";

pub(super) struct Exchange {
    binary: PathBuf,
    folder: tempfile::TempDir,
}

impl Exchange {
    /// Writes the tables into a folder in `parent`.
    pub(super) fn make(binary: &Path, parent: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("ixp").tempdir_in(parent)?;
        let mut gen_tables = Command::new(binary);
        gen_tables.args(["gen", "flows", "--seed", "1", "--tables"]).arg(folder.path().join(TABLES));
        process::run(gen_tables)?;
        add_made_up_datagrams(&folder.path().join(TABLES))
            .context("add the addresses of made-up datagrams")?;
        Ok(Self { binary: binary.to_owned(), folder })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The ranges of addresses and their networks.
    pub(super) fn networks(&self) -> PathBuf {
        self.folder.path().join(TABLES).join("asn.tsv")
    }

    /// Runs `examples/NAME` with these values set; a data directory is to be added.
    pub(super) fn command(&self, name: &str, set: &[String]) -> Command {
        let mut command = pinned(Some(CORES), &self.binary);
        command.current_dir(self.folder.path());
        command.arg("run").arg(project::root().join("examples").join(name)).args([
            "--quiet",
            "--workers",
            "2",
        ]);
        set.iter().for_each(|value| {
            command.args(["--set", value]);
        });
        command
    }

    /// The example with samples that come by UDP, and a column with the number of their datagram.
    pub(super) fn listening(&self, udp: SocketAddr) -> Result<Command> {
        let columns = columns(&std::fs::read_to_string(project::root().join("examples/ixp.yaml"))?)?;
        Ok(self.command("ixp.yaml", &[source(udp), format!("sinks.flows.columns=[{columns}, datagram]")]))
    }
}

/// Samples by UDP instead of made-up ones.
pub(super) fn source(udp: SocketAddr) -> String {
    format!("sources.switches={{type: sflow, listen: \"{udp}\", receive_buffer: 64MiB, queue: 64MiB}}")
}

/// The columns that the example names, between brackets.
fn columns(example: &str) -> Result<String> {
    let list = example.split_once("columns: [").and_then(|(_, rest)| rest.split_once(']'));
    let (columns, _) = list.context("examples/ixp.yaml names no columns")?;
    Ok(columns.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The datagrams that the sender makes up are between two networks for documentation, of which every address has a name.
fn add_made_up_datagrams(tables: &Path) -> std::io::Result<()> {
    let append = |file: &str| File::options().append(true).open(tables.join(file));
    let (mut networks, mut names) = (append("asn.tsv")?, append("names.csv")?);
    for (asn, network) in [(64_496, "198.51.100"), (64_497, "203.0.113")] {
        writeln!(networks, "{network}.0\t{network}.255\t{asn}\tZZ\tDOCUMENTATION-{asn}")?;
        for host in 0..=255 {
            writeln!(names, "{network}.{host},host{host}.as{asn}.example")?;
        }
    }
    Ok(())
}

#[test]
fn columns_are_one_line() {
    assert_eq!(columns("a:\n  columns: [x, y,\n    z]\n").unwrap(), "x, y, z");
    assert!(columns("a: 1").is_err());
}
