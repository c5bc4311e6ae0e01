//! `thalweg-VERSION-TARGET-container/`: the folder that a container is built from, `podman build FOLDER`.
//!
//! It has the container file, the program, and the folders that the program writes to, empty: a container from scratch
//! has no command that could make them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Release;
use super::program::Program;
use super::tree::PROGRAM;

/// The container file in the repository.
pub(super) const FILE: &str = "packaging/container/Containerfile";

/// Folders of the container that the program writes to.
const WRITTEN: [&str; 2] = ["tmp", "var/lib/thalweg"];

pub(super) fn write(release: &Release, program: &Program, out: &Path) -> Result<PathBuf> {
    let folder = out.join(format!("thalweg-{}-{}-container", release.version, program.target.triple()));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    let failed = || format!("write {}", folder.display());
    for written in WRITTEN {
        let path = folder.join("root").join(written);
        fs::create_dir_all(&path).with_context(failed)?;
        // Only the node's user may look into its data.
        fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).with_context(failed)?;
    }
    fs::write(folder.join("Containerfile"), release.read(FILE)?).with_context(failed)?;
    let path = folder.join("thalweg");
    fs::write(&path, &program.bytes).with_context(failed)?;
    fs::set_permissions(&path, PermissionsExt::from_mode(PROGRAM)).with_context(failed)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::program::made_up;
    use crate::dist::target::Target;

    #[test]
    fn the_folder_has_what_the_container_file_copies() {
        let out = tempfile::tempdir().unwrap();
        let release = Release::of_this_commit().unwrap();
        let program = made_up(Target::X86_64);
        // A second run replaces what a first one left.
        for _ in 0..2 {
            let folder = write(&release, &program, out.path()).unwrap();
            fs::write(folder.join("left"), "").unwrap();
        }
        let folder = write(&release, &program, out.path()).unwrap();
        assert!(!folder.join("left").exists());
        let text = fs::read_to_string(folder.join("Containerfile")).unwrap();
        let mut copied = 0;
        for line in text.lines().filter(|line| line.starts_with("COPY ")) {
            let source = line.split(' ').skip(1).find(|word| !word.starts_with("--")).unwrap();
            assert!(folder.join(source).exists(), "{line}");
            copied += 1;
        }
        assert_eq!(copied, 2);
        let mode = |path: &str| fs::metadata(folder.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("thalweg"), mode("root/var/lib/thalweg"), mode("root/tmp")), (0o755, 0o700, 0o700));
    }

    #[test]
    fn the_container_runs_as_nobody_and_keeps_its_data_in_a_volume() {
        let text = Release::of_this_commit().unwrap().read_text(FILE).unwrap();
        let value =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        assert_eq!(value("FROM"), "scratch");
        // A root without `passwd` knows users by number alone.
        assert!(value("USER").split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)), "{text}");
        assert!(WRITTEN.contains(&value("VOLUME").trim_start_matches('/')), "{text}");
        assert!(value("CMD").contains(&format!("\"--data-dir\", \"{}\"", value("VOLUME"))), "{text}");
    }
}
