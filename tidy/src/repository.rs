//! The files of this repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The repository's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// A text file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// Relative to the repository, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// The folder of the file, without a slash at its end; empty for the repository's own.
    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

/// All files with one of these extensions, sorted by path; build folders and hidden ones are left out.
pub fn files(extensions: &[&str]) -> Result<Vec<File>> {
    let root = root();
    let mut found = Vec::new();
    walk(&root, &root, extensions, &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn walk(root: &Path, folder: &Path, extensions: &[&str], found: &mut Vec<File>) -> Result<()> {
    let context = || format!("read {}", folder.display());
    for entry in fs::read_dir(folder).with_context(context)? {
        let path = entry.with_context(context)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_symlink() || name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            if !path.join("CACHEDIR.TAG").exists() {
                walk(root, &path, extensions, found)?;
            }
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| extensions.contains(&e)) {
            let relative = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            found.push(File { path: relative, text });
        }
    }
    Ok(())
}
