//! `thalweg-VERSION-TARGET.tar.gz`: the program, the licence, the README and the first example, in one folder.

use anyhow::Result;

use super::Release;
use super::program::Program;
use super::tree::{DATA, PROGRAM, Tree};

/// Files of the repository, where they are in the folder too. The README's first job runs there as it is.
const FILES: [&str; 4] =
    ["LICENSE", "README.md", "examples/first/payments.csv", "examples/first/payments.yaml"];

pub(super) fn make(release: &Release, program: &Program) -> Result<(String, Vec<u8>)> {
    let folder = format!("thalweg-{}-{}", release.version, program.target.triple());
    let mut tree = Tree::default();
    tree.file(&format!("{folder}/thalweg"), PROGRAM, &*program.bytes);
    for path in FILES {
        tree.file(&format!("{folder}/{path}"), DATA, release.read(path)?);
    }
    Ok((format!("{folder}.tar.gz"), tree.tar_gz(release.time)?))
}

#[cfg(test)]
mod tests {
    use flate2::read::GzDecoder;

    use super::*;
    use crate::dist::program::made_up;
    use crate::dist::target::Target;

    #[test]
    fn the_first_example_lies_next_to_the_program() {
        let release = Release::of_this_commit().unwrap();
        let program = made_up(Target::Aarch64);
        let (name, bytes) = make(&release, &program).unwrap();
        assert_eq!(name, format!("thalweg-{}-aarch64-unknown-linux-musl.tar.gz", release.version));
        assert_eq!(bytes, make(&release, &program).unwrap().1);
        let mut archive = tar::Archive::new(GzDecoder::new(&bytes[..]));
        let entries = archive.entries().unwrap();
        let paths: Vec<String> =
            entries.map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
        let folder = name.trim_end_matches(".tar.gz");
        for path in ["thalweg", "LICENSE", "README.md", "examples/first/payments.yaml"] {
            assert!(paths.contains(&format!("{folder}/{path}")), "{path} is not in {paths:?}");
        }
    }
}
