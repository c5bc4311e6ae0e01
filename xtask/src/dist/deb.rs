//! `thalweg_VERSION_ARCHITECTURE.deb`: the program, a systemd service, and `/etc/thalweg`.
//!
//! A Debian package is an `ar` archive of three members, in this order: `debian-binary` with the version of the format,
//! `control.tar.gz` with fields and scripts, `data.tar.gz` with the installed files.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use md5::{Digest, Md5};

use super::Release;
use super::program::Program;
use super::sums::hex;
use super::target::Target;
use super::tree::{DATA, PROGRAM, SECRET, Tree};

/// Scripts of the package manager.
const SCRIPTS: [&str; 3] = ["postinst", "postrm", "prerm"];

/// Where files of `packaging/debian` are installed.
const INSTALLED: [(&str, &str, u32); 4] = [
    ("copyright", "usr/share/doc/thalweg/copyright", DATA),
    ("example.yaml", "etc/thalweg/example.yaml", DATA),
    ("thalweg.env", "etc/thalweg/thalweg.env", SECRET),
    ("thalweg.service", "usr/lib/systemd/system/thalweg.service", DATA),
];

pub(super) fn make(release: &Release, program: &Program) -> Result<(String, Vec<u8>)> {
    let data = data(release, program)?;
    let control = control(release, program.target, &data)?;
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", control.tar_gz(release.time)?),
        ("data.tar.gz", data.tar_gz(release.time)?),
    ];
    let mut package = ar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = ar::Header::new(name.into(), bytes.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(release.time);
        package.append(&header, &bytes[..]).with_context(|| format!("pack {name}"))?;
    }
    let name = format!("thalweg_{}_{}.deb", release.version, program.target.debian());
    Ok((name, package.into_inner()?))
}

/// What is installed.
fn data(release: &Release, program: &Program) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.file("usr/bin/thalweg", PROGRAM, &*program.bytes);
    for (name, path, mode) in INSTALLED {
        tree.file(path, mode, release.read(&format!("packaging/debian/{name}"))?);
    }
    tree.file("usr/share/doc/thalweg/README.md", DATA, release.read("README.md")?);
    // Debian requires it compressed.
    let mut packer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    packer.write_all(&release.read("CHANGELOG.md")?)?;
    tree.file("usr/share/doc/thalweg/changelog.gz", DATA, packer.finish()?);
    Ok(tree)
}

/// What the package manager reads.
fn control(release: &Release, target: Target, data: &Tree) -> Result<Tree> {
    let fields = release.read_text("packaging/debian/control")?;
    let fields = fields.replace("@VERSION@", release.version).replace("@ARCHITECTURE@", target.debian());
    let conffiles = release.read_text("packaging/debian/conffiles")?;
    let mut sums = String::new();
    for (path, bytes) in data.files() {
        // Those are an operator's to change.
        if !conffiles.lines().any(|conffile| conffile.strip_prefix('/') == Some(path)) {
            writeln!(sums, "{}  {path}", hex(&Md5::digest(bytes)))?;
        }
    }
    let mut tree = Tree::default();
    tree.file("control", DATA, fields.replace("@SIZE@", &data.kilobytes().to_string()));
    tree.file("conffiles", DATA, conffiles);
    tree.file("md5sums", DATA, sums);
    for script in SCRIPTS {
        tree.file(script, PROGRAM, release.read(&format!("packaging/debian/{script}"))?);
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::dist::program::made_up;

    /// The members of a package, in their order.
    fn members(package: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut archive = ar::Archive::new(package);
        let mut members = Vec::new();
        while let Some(entry) = archive.next_entry() {
            let mut entry = entry.unwrap();
            let name = String::from_utf8(entry.header().identifier().to_vec()).unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            members.push((name, bytes));
        }
        members
    }

    /// The files of an archive, with their modes.
    fn files(tar_gz: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(GzDecoder::new(tar_gz));
        let mut files = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.header().entry_type().is_file() {
                let path = entry.path().unwrap().display().to_string();
                let mode = entry.header().mode().unwrap();
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).unwrap();
                files.insert(path, (mode, bytes));
            }
        }
        files
    }

    fn package(target: Target) -> (String, Vec<u8>) {
        make(&Release::of_this_commit().unwrap(), &made_up(target)).unwrap()
    }

    #[test]
    fn a_package_has_three_members_in_their_order_and_the_same_bytes_each_time() {
        let (name, bytes) = package(Target::X86_64);
        assert_eq!(name, format!("thalweg_{}_amd64.deb", env!("CARGO_PKG_VERSION")));
        assert_eq!(bytes, package(Target::X86_64).1);
        let members = members(&bytes);
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
        assert_eq!(members[0].1, b"2.0\n");
    }

    #[test]
    fn control_fields_are_filled_in() {
        let members = members(&package(Target::Aarch64).1);
        let text = String::from_utf8(files(&members[1].1)["control"].1.clone()).unwrap();
        let fields: BTreeMap<&str, &str> = text
            .lines()
            .filter(|line| !line.starts_with(' '))
            .map(|line| line.split_once(": ").unwrap())
            .collect();
        assert_eq!(fields["Package"], "thalweg");
        assert_eq!(fields["Version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(fields["Architecture"], "arm64");
        assert!(fields["Installed-Size"].parse::<u64>().unwrap() > 0);
        for field in ["Maintainer", "Description", "Section", "Priority", "Depends"] {
            assert!(fields.contains_key(field), "{field} is not in {text}");
        }
        assert!(
            !text.contains('@') || fields["Maintainer"].contains('@') && text.matches('@').count() == 1,
            "{text}"
        );
    }

    #[test]
    fn each_installed_file_is_a_conffile_or_has_its_digest() {
        let members = members(&package(Target::X86_64).1);
        let (control, data) = (files(&members[1].1), files(&members[2].1));
        let text = |name: &str| String::from_utf8(control[name].1.clone()).unwrap();
        let (conffiles, sums) = (text("conffiles"), text("md5sums"));
        for (path, (_, bytes)) in &data {
            let sum = format!("{}  {path}", hex(&Md5::digest(bytes)));
            let is_conffile = conffiles.lines().any(|line| line == format!("/{path}"));
            assert_eq!(is_conffile, path.starts_with("etc/"), "{path}");
            assert_ne!(is_conffile, sums.lines().any(|line| line == sum), "{path}");
        }
        for conffile in conffiles.lines() {
            assert!(data.contains_key(conffile.trim_start_matches('/')), "{conffile} is not installed");
        }
    }

    #[test]
    fn scripts_and_the_program_can_be_run_and_secrets_are_for_root() {
        let members = members(&package(Target::X86_64).1);
        let (control, data) = (files(&members[1].1), files(&members[2].1));
        for script in SCRIPTS {
            assert_eq!(control[script].0, 0o755, "{script}");
            assert!(control[script].1.starts_with(b"#!/bin/sh\nset -e\n"), "{script}");
        }
        assert_eq!(data["usr/bin/thalweg"].0, 0o755);
        assert_eq!(data["etc/thalweg/thalweg.env"].0, 0o600);
    }
}
