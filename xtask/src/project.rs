//! Where things are, and how the project's own programs are built.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The repository's folder.
pub(crate) fn root() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("xtask"), PathBuf::from);
    manifest.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The folder of real data: `THALWEG_DATA`, else `../shared/data` beside the repository.
pub(crate) fn data() -> PathBuf {
    env::var_os("THALWEG_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from)
}

/// Whether a skipped suite is a failure.
pub(crate) fn in_ci() -> bool {
    env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// The cargo that started us, in the repository's folder.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Whether a program is on the path.
pub(crate) fn has(program: &str) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Whether a program is there, or is now that its package was installed, where we may do that.
pub(crate) fn has_or_gets(program: &str, package: &str) -> bool {
    if !has(program) && has("apt-get") {
        let mut install = Command::new("apt-get");
        install.args(["install", "--yes", "--no-install-recommends", package]);
        install.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        // Who is not root is told so, and goes on without.
        let _ = install.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    has(program)
}

/// A folder for what benchmarks generate, kept between runs and out of the repository.
pub(crate) fn scratch(name: &str) -> Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let folder = target.join(name);
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(folder)
}

/// How a program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As the tests are; built already when they have run.
    Dev,
    Release,
}

/// Builds one program and says where it is.
pub(crate) fn build(package: &str, name: &str, profile: Profile) -> Result<PathBuf> {
    build_target(package, "bin", name, profile)
}

/// The same for an example.
pub(crate) fn example(package: &str, name: &str, profile: Profile) -> Result<PathBuf> {
    build_target(package, "example", name, profile)
}

fn build_target(package: &str, kind: &str, name: &str, profile: Profile) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--quiet", "--message-format", "json-render-diagnostics"]);
    match profile {
        // With all of the workspace and its tests dependencies have the features that `cargo test` gave them, so
        // nothing is built twice.
        Profile::Dev => command.args(["--workspace", "--bins", "--tests", "--examples"]),
        // Beside the one binary, whose features dependencies then have for all.
        Profile::Release => {
            command.args(["--release", "--package", "thalweg-cli", "--package", package]);
            command.args([&format!("--{kind}"), name])
        }
    };
    let output = command.stderr(Stdio::inherit()).output().context("start cargo")?;
    ensure!(output.status.success(), "build of {name} in {package} failed");
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: serde_json::Value = serde_json::from_slice(line).context("read what cargo says")?;
        // The tests of a program have its name, too.
        if message["target"]["name"] == name
            && message["target"]["kind"][0] == kind
            && message["profile"]["test"] == false
            && let Some(path) = message["executable"].as_str()
        {
            return Ok(PathBuf::from(path));
        }
    }
    bail!("cargo built {name} in {package} and named no executable")
}

/// Builds the one binary; `THALWEG_BINARY` names one that is there already, for comparing two builds.
pub(crate) fn thalweg(profile: Profile) -> Result<PathBuf> {
    if let Some(path) = env::var_os("THALWEG_BINARY") {
        return Ok(PathBuf::from(path));
    }
    build("thalweg-cli", "thalweg", profile)
}
