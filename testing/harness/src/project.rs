//! Where things are, and how the project's own programs are built.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The repository's folder: that of the package which cargo runs (`xtask`, or a crate whose tests run) or the working
/// directory, or the nearest folder above it that has `xtask` in it.
pub fn root() -> PathBuf {
    let start = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
    let start = start.canonicalize().unwrap_or(start);
    let root = start.ancestors().find(|folder| folder.join("xtask/Cargo.toml").is_file());
    root.map_or_else(|| start.clone(), Path::to_path_buf)
}

/// The folder of real data: `THALWEG_DATA`, else `../shared/data` next to the repository.
pub fn data() -> PathBuf {
    env::var_os("THALWEG_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from)
}

/// Whether a skipped suite is a failure.
pub fn in_ci() -> bool {
    env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// The cargo that started us, in the repository's folder.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Whether a program is on the path.
pub fn has(program: &str) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Whether a program is there, or is now that its package was installed, where we may do that.
pub fn has_or_gets(program: &str, package: &str) -> bool {
    if !has(program) && has("apt-get") {
        let mut install = Command::new("apt-get");
        install.args(["install", "--yes", "--no-install-recommends", package]);
        install.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        // A user other than root gets an error, and goes on without.
        let _ = install.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    has(program)
}

/// A folder for inputs that benchmarks generate, kept between runs and out of the repository.
pub fn scratch(name: &str) -> Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let folder = target.join(name);
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(folder)
}

/// How a program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As the tests are; built already when they have run.
    Dev,
    Release,
}

/// Builds one program and says where it is.
pub fn build(package: &str, name: &str, profile: Profile) -> Result<PathBuf> {
    build_target(package, "bin", name, profile)
}

/// The same for an example.
pub fn example(package: &str, name: &str, profile: Profile) -> Result<PathBuf> {
    build_target(package, "example", name, profile)
}

fn build_target(package: &str, kind: &str, name: &str, profile: Profile) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--quiet"]);
    match profile {
        // With all of the workspace and its tests dependencies have the features that `cargo test` gave them, so
        // nothing is built twice.
        Profile::Dev => command.args(["--workspace", "--bins", "--tests", "--examples"]),
        // Together with the one binary, so that dependencies have its features in all builds.
        Profile::Release => {
            command.args(["--release", "--package", "thalweg-cli", "--package", package]);
            command.args([&format!("--{kind}"), name])
        }
    };
    let built = executables(command).with_context(|| format!("build {name} in {package}"))?;
    let program = built.into_iter().find(|program| program.name == name && program.kind == kind);
    program.map(|program| program.path).with_context(|| format!("cargo built no {kind} {name} in {package}"))
}

/// The micro-benchmarks of all crates, built as the tests are; by package and name.
///
/// # Errors
/// Where cargo cannot build them.
pub fn benches() -> Result<Vec<Executable>> {
    let mut command = cargo();
    // Of the whole workspace, for the same features as those of its tests.
    command.args(["build", "--quiet", "--workspace", "--bench", "*"]);
    let mut built = executables(command).context("build the benchmarks")?;
    built.retain(|program| program.kind == "bench");
    built.sort_by(|one, other| (&one.package, &one.name).cmp(&(&other.package, &other.name)));
    Ok(built)
}

/// A program that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// The folder of its package, such as `window`.
    pub package: String,
    pub name: String,
    /// `bin`, `example` or `bench`.
    kind: String,
    path: PathBuf,
    folder: PathBuf,
}

impl Executable {
    /// Starts it as cargo does, in the folder of its package.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).stdin(Stdio::null());
        command
    }
}

/// Runs a build and says which programs came out, without tests.
fn executables(mut build: Command) -> Result<Vec<Executable>> {
    build.args(["--message-format", "json-render-diagnostics"]);
    let output = build.stderr(Stdio::inherit()).output().context("start cargo")?;
    ensure!(output.status.success(), "cargo ended with {}", output.status);
    let mut built = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: serde_json::Value = serde_json::from_slice(line).context("read what cargo says")?;
        built.extend(executable(&message));
    }
    Ok(built)
}

/// What a message of cargo's names; tests of a program have its name, too, and are left out.
fn executable(message: &serde_json::Value) -> Option<Executable> {
    let path = PathBuf::from(message["executable"].as_str()?);
    let target = &message["target"];
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let kind = target["kind"][0].as_str()?;
    // Benchmarks count as tests although they have a `main` of their own.
    (kind == "bench" || message["profile"]["test"] == false).then_some(())?;
    Some(Executable {
        package: folder.file_name()?.to_string_lossy().into_owned(),
        name: target["name"].as_str()?.to_owned(),
        kind: kind.to_owned(),
        path,
        folder,
    })
}

/// Builds the one binary; `THALWEG_BINARY` names one that is there already, for comparing two builds.
pub fn thalweg(profile: Profile) -> Result<PathBuf> {
    if let Some(path) = env::var_os("THALWEG_BINARY") {
        return Ok(PathBuf::from(path));
    }
    build("thalweg-cli", "thalweg", profile)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_root_is_found_from_a_crate_that_is_deeper() {
        assert!(root().join("testing/harness/Cargo.toml").is_file());
        assert!(root().join("crates/cli/Cargo.toml").is_file());
    }

    #[test]
    fn programs_are_told_from_their_tests_and_from_libraries() {
        let message = |kind: &str, is_test: bool, path: Option<&str>| {
            json!({
                "reason": "compiler-artifact", "manifest_path": "/r/crates/window/Cargo.toml",
                "target": { "name": "agg", "kind": [kind] }, "profile": { "test": is_test }, "executable": path,
            })
        };
        let bench = executable(&message("bench", true, Some("/t/agg"))).unwrap();
        assert_eq!((bench.package.as_str(), bench.name.as_str()), ("window", "agg"));
        assert_eq!(bench.folder, Path::new("/r/crates/window"));
        assert_eq!(executable(&message("bin", true, Some("/t/agg-1"))), None);
        assert_eq!(executable(&message("lib", false, None)), None);
    }
}
