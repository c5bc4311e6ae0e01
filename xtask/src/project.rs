//! Where things are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
