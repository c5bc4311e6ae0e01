//! `SHA256SUMS`, which `sha256sum --check` reads.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

const NAME: &str = "SHA256SUMS";

/// Writes the digests of all packages in the folder, those of earlier runs too: a release may be made machine by machine.
pub(super) fn write(folder: &Path) -> Result<PathBuf> {
    let mut packages = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "gz" || kind == "deb" || kind == "whl") {
            packages.push(path);
        }
    }
    packages.sort();
    let mut lines = String::new();
    for path in packages {
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        writeln!(lines, "{}  {name}", hex(&Sha256::digest(&bytes)))?;
    }
    let path = folder.join(NAME);
    fs::write(&path, lines).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_has_a_line_and_nothing_else_has() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.whl", "a.tar.gz", "notes.txt"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let text = fs::read_to_string(write(folder.path()).unwrap()).unwrap();
        // As `printf a.tar.gz | sha256sum` has it.
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], format!("{A_TAR_GZ}  a.tar.gz"));
        assert!(lines[1].ends_with("  b.whl"), "{text}");
    }

    const A_TAR_GZ: &str = "0a67bba7da46793c9f1908a7eec3d06a11ba7bc00bf749c31bb134f4f45ebcad";
}
