//! The tables that made-up flows are joined with: AS, names and members, as their operators read them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use thalweg_types::Error;

use super::Flows;
use super::members::Members;
use super::networks::Networks;
use crate::sink::may_create;

/// Names of the files.
pub(crate) const TABLES: [&str; 3] = ["asn.tsv", "names.csv", "members.csv"];

fn no_folder(folder: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::external(format!("make folder {folder:?}")).with_source(error)
}

fn no_file(path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::external(format!("write {path:?}")).with_source(error)
}

/// Fails as [`Flows::write_tables`] would, without making anything.
pub(in crate::generate) fn probe_tables(folder: &Path) -> Result<(), Error> {
    if folder.is_dir() {
        let mut paths = TABLES.iter().map(|name| folder.join(name)).filter(|path| !path.exists());
        return paths.try_for_each(|path| may_create(&path).map_err(no_file(&path)));
    }
    let above = folder.ancestors().skip(1).find(|above| above.exists());
    let new: PathBuf = above.map_or_else(|| TABLES[0].into(), |above| above.join(TABLES[0]));
    may_create(&new).map_err(no_folder(folder))
}

impl Flows {
    /// Writes `asn.tsv`, `names.csv` and `members.csv`.
    pub(in crate::generate) fn write_tables(&self, folder: &Path) -> Result<(), Error> {
        std::fs::create_dir_all(folder).map_err(no_folder(folder))?;
        let write = |name: &str, rows: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
            let path = folder.join(name);
            let written = File::create(&path).and_then(|file| {
                let mut out = BufWriter::new(file);
                rows(&mut out)?;
                out.flush()
            });
            written.map_err(no_file(&path))
        };
        write("asn.tsv", &|out| self.write_asn(out))?;
        write("names.csv", &|out| self.write_names(out))?;
        write("members.csv", &|out| self.write_members(out))
    }

    /// First and last address, AS number, country and name; IPv4 before IPv6, by address.
    fn write_asn(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut spans: Vec<(u32, u32, usize)> = Vec::new();
        for (rank, network) in self.networks.ranked() {
            if network.is_announced {
                spans.extend(self.networks.ranges(rank).map(|(first, last)| (first, last, rank)));
            }
        }
        spans.sort_unstable();
        for (first, last, rank) in spans {
            write!(out, "{}\t{}\t", Ipv4Addr::from(first), Ipv4Addr::from(last))?;
            self.write_network(rank, out)?;
        }
        for (rank, network) in self.networks.ranked() {
            if network.is_announced && network.has_v6 {
                let first = u128::from(Networks::prefix6(rank)) << 96;
                let last = first | (u128::MAX >> 32);
                write!(out, "{}\t{}\t", Ipv6Addr::from(first), Ipv6Addr::from(last))?;
                self.write_network(rank, out)?;
            }
        }
        Ok(())
    }

    fn write_network(&self, rank: usize, out: &mut dyn Write) -> io::Result<()> {
        let (asn, country) = (Networks::asn(rank), self.networks.country(rank));
        writeln!(out, "{asn}\t{country}\t{}", Networks::name(rank))
    }

    /// Address and name, of the hosts that have one or are known to have none.
    fn write_names(&self, out: &mut dyn Write) -> io::Result<()> {
        for (rank, network) in self.networks.ranked() {
            for host in 0..network.host_count {
                if let Some(name) = self.networks.host_name(rank, host, false) {
                    writeln!(out, "{},{name}", Ipv4Addr::from(self.networks.v4(rank, host)))?;
                }
            }
            let host6_count = if network.has_v6 { network.host6_count } else { 0 };
            for host in 0..host6_count {
                if let Some(name) = self.networks.host_name(rank, host, true) {
                    writeln!(out, "{},{name}", Ipv6Addr::from(self.networks.v6(rank, host)))?;
                }
            }
        }
        Ok(())
    }

    fn write_members(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "mac,vlan,member")?;
        for member in 0..self.members.count() {
            let mac = Members::mac(member).map(|byte| format!("{byte:02x}")).join(":");
            writeln!(out, "{mac},{},{}", Members::vlan(member), Members::name(member))?;
        }
        Ok(())
    }
}
