//! Builds static programs: cargo-zigbuild with the C compiler and linker of Zig, which has musl for all machines.
//!
//! Both come from PyPI, as wheels that carry their programs, into a folder of the target folder.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::target::Target;
use thalweg_harness::project;

/// Versions that a release is built with.
const PINNED: [&str; 2] = ["cargo-zigbuild==0.24.1", "ziglang==0.15.2"];

/// Features of the program, as cargo takes them.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Features {
    /// Build without the features that are built by default
    #[arg(long)]
    no_default_features: bool,
    /// Build with these features
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    features: Vec<String>,
}

impl Features {
    /// Whether a program has a feature that is on by default.
    pub(super) fn has(&self, name: &str) -> bool {
        !self.no_default_features || self.features.iter().any(|feature| feature == name)
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if self.no_default_features {
            arguments.push("--no-default-features".to_owned());
        }
        if !self.features.is_empty() {
            arguments.extend(["--features".to_owned(), self.features.join(",")]);
        }
        arguments
    }
}

/// The folder with the tools.
pub(super) struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Gets the pinned versions, unless they are there.
    pub(super) fn install() -> Result<Self> {
        let folder = project::scratch("dist-tools")?;
        let (note, pinned) = (folder.join("pinned"), PINNED.join("\n"));
        if fs::read_to_string(&note).is_ok_and(|there| there == pinned) {
            return Ok(Self { folder });
        }
        let mut make = Command::new("python3");
        done(make.args(["-m", "venv", "--clear"]).arg(&folder), "make a Python environment")?;
        let mut install = Command::new(folder.join("bin/pip"));
        install.args(["install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
        done(install.args(PINNED), "install cargo-zigbuild and ziglang")?;
        fs::write(&note, pinned).with_context(|| format!("write {}", note.display()))?;
        Ok(Self { folder })
    }

    /// Builds the program for a machine and says where it is.
    pub(super) fn build(&self, target: Target, features: &Features) -> Result<PathBuf> {
        library(target)?;
        // Started by its path: no other cargo-zigbuild is taken.
        let mut command = Command::new(self.folder.join("bin/cargo-zigbuild"));
        command.current_dir(project::root());
        command.args([
            "zigbuild",
            "--locked",
            "--profile",
            "dist",
            "--package",
            "thalweg-cli",
            "--bin",
            "thalweg",
        ]);
        command.args(["--target", target.triple()]).args(features.arguments());
        command.env("CARGO_TARGET_DIR", self.target()).env("PATH", self.path()?);
        command.env("CARGO_ZIGBUILD_CACHE_DIR", self.folder.join("cache"));
        command.env("CARGO_ENCODED_RUSTFLAGS", remapped(self.target())?);
        done(&mut command, &format!("build for {}", target.triple()))?;
        Ok(self.target().join(target.triple()).join("dist/thalweg"))
    }

    /// The target folder, which the tools are in.
    fn target(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    /// The tools' own Python first: cargo-zigbuild asks `python3` for Zig.
    fn path(&self) -> Result<OsString> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = [self.folder.join("bin")].into_iter().chain(env::split_paths(&path));
        env::join_paths(folders).context("put the tools on the path")
    }
}

/// Paths of this machine are not in the program: what a panic names begins at the registry, the target folder or the
/// repository.
fn remapped(target: &Path) -> Result<OsString> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).filter(|home| !home.as_os_str().is_empty());
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo"))).context("find the folder of cargo")?;
    let folders =
        [(home.join("registry/src"), "registry"), (target.to_owned(), "target"), (project::root(), ".")];
    let mut flags = OsString::new();
    for (folder, name) in folders {
        if !flags.is_empty() {
            flags.push("\u{1f}");
        }
        flags.push("--remap-path-prefix=");
        flags.push(folder);
        flags.push("=");
        flags.push(name);
    }
    Ok(flags)
}

/// Gets the standard library for a machine, unless it is there.
fn library(target: Target) -> Result<()> {
    let mut ask = Command::new("rustc");
    let output = ask
        .args(["--print", "target-libdir", "--target", target.triple()])
        .current_dir(project::root())
        .output();
    let folder = String::from_utf8(output.context("start rustc")?.stdout)?;
    if Path::new(folder.trim()).is_dir() {
        return Ok(());
    }
    let mut add = Command::new("rustup");
    add.args(["target", "add", target.triple()]).current_dir(project::root());
    done(&mut add, &format!("get the standard library for {}", target.triple()))
}

fn done(command: &mut Command, what: &str) -> Result<()> {
    // Standard output has the names of the packages, and nothing else.
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status();
    let status = status.with_context(|| format!("{what}: start {}", command.get_program().display()))?;
    ensure!(status.success(), "{what}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_passed_on_to_cargo() {
        let features = |no_default_features, names: &[&str]| Features {
            no_default_features,
            features: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert!(features(false, &[]).arguments().is_empty());
        assert!(features(false, &[]).has("http"));
        assert!(!features(true, &["sql"]).has("http"));
        assert!(features(true, &["http"]).has("http"));
        assert_eq!(
            features(true, &["http", "sql"]).arguments(),
            ["--no-default-features", "--features", "http,sql"]
        );
    }

    #[test]
    fn no_folder_of_this_machine_is_in_a_program() {
        let flags = remapped(Path::new("/somewhere/target")).unwrap();
        let flags = flags.to_string_lossy();
        let flags: Vec<&str> = flags.split('\u{1f}').collect();
        assert_eq!(flags.len(), 3);
        assert!(flags[0].ends_with("/registry/src=registry"), "{flags:?}");
        assert_eq!(flags[1], "--remap-path-prefix=/somewhere/target=target");
        assert_eq!(flags[2], format!("--remap-path-prefix={}=.", project::root().display()));
    }
}
