//! Files and folders of a package, and the tar archive of them.
//!
//! The same tree gives the same bytes: entries are sorted, belong to root and have one time, and the compressed file has
//! neither a name nor a time of its own.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

#[derive(Clone, Debug, Default)]
pub(super) struct Tree(BTreeMap<String, Entry>);

#[derive(Clone, Debug)]
enum Entry {
    Folder,
    File { mode: u32, bytes: Vec<u8> },
}

/// Mode of files that anybody may read, and the owner write.
pub(super) const DATA: u32 = 0o644;

/// The same for what can be executed.
pub(super) const PROGRAM: u32 = 0o755;

/// What only root may read.
pub(super) const SECRET: u32 = 0o600;

impl Tree {
    /// Adds a file and the folders it is in. The path is relative.
    pub(super) fn file(&mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) -> &mut Self {
        let folders = path.match_indices('/').map(|(end, _)| path[..end].to_owned());
        self.0.extend(folders.map(|folder| (folder, Entry::Folder)));
        self.0.insert(path.to_owned(), Entry::File { mode, bytes: bytes.into() });
        self
    }

    /// Paths and bytes of files, sorted.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().filter_map(|(path, entry)| match entry {
            Entry::Folder => None,
            Entry::File { bytes, .. } => Some((path.as_str(), bytes.as_slice())),
        })
    }

    /// Kilobytes that it takes when it is installed, counted as Debian does: each file is rounded up, a folder counts one.
    pub(super) fn kilobytes(&self) -> u64 {
        let size = |entry: &Entry| match entry {
            Entry::Folder => 1,
            Entry::File { bytes, .. } => (bytes.len() as u64).div_ceil(1024),
        };
        self.0.values().map(size).sum()
    }

    /// The tree as a compressed tar archive.
    pub(super) fn tar_gz(&self, time: u64) -> Result<Vec<u8>> {
        let mut packer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
        {
            let mut archive = Builder::new(&mut packer);
            for (path, entry) in &self.0 {
                let (kind, mode, bytes) = match entry {
                    Entry::Folder => (EntryType::Directory, PROGRAM, &[][..]),
                    Entry::File { mode, bytes } => (EntryType::Regular, *mode, bytes.as_slice()),
                };
                let mut header = Header::new_gnu();
                header.set_entry_type(kind);
                header.set_mode(mode);
                header.set_size(bytes.len() as u64);
                header.set_mtime(time);
                header.set_uid(0);
                header.set_gid(0);
                header.set_username("root")?;
                header.set_groupname("root")?;
                // A folder's name ends in a slash.
                let slash = if matches!(entry, Entry::Folder) { "/" } else { "" };
                let packed = archive.append_data(&mut header, format!("{path}{slash}"), bytes);
                packed.with_context(|| format!("pack {path}"))?;
            }
            archive.finish().context("end the archive")?;
        }
        packer.flush()?;
        packer.finish().context("end the compressed file")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    const TIME: u64 = 1_700_000_000;

    fn tree(order: &[usize]) -> Tree {
        let files = [("b/c/run", PROGRAM, "x"), ("a", DATA, "y"), ("b/secret", SECRET, "z")];
        let mut tree = Tree::default();
        for (path, mode, text) in order.iter().map(|at| files[*at]) {
            tree.file(path, mode, text);
        }
        tree
    }

    #[test]
    fn an_archive_is_a_function_of_the_tree() {
        let packed = tree(&[0, 1, 2]).tar_gz(TIME).unwrap();
        assert_eq!(packed, tree(&[2, 0, 1]).tar_gz(TIME).unwrap());
        // Bytes 4 to 8 of a gzip file are its time.
        assert_eq!(packed[4..8], [0; 4]);
    }

    #[test]
    fn entries_are_sorted_and_belong_to_root() {
        let packed = tree(&[0, 1, 2]).tar_gz(TIME).unwrap();
        let mut archive = tar::Archive::new(GzDecoder::new(&packed[..]));
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, TIME));
            let mode = header.mode().unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.push(format!("{path} {mode:o} {text}"));
        }
        assert_eq!(found, ["a 644 y", "b/ 755 ", "b/c/ 755 ", "b/c/run 755 x", "b/secret 600 z"]);
    }

    #[test]
    fn files_are_rounded_up_to_kilobytes() {
        let mut tree = Tree::default();
        tree.file("f/empty", DATA, []).file("f/one", DATA, [0]).file("f/large", DATA, [0; 1025]);
        assert_eq!(tree.kilobytes(), 1 + 1 + 2);
    }
}
