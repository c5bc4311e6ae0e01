//! `thalweg-VERSION-py3-none-PLATFORMS.whl`: `pip install` puts the program on the path. There is no Python code in it.
//!
//! A wheel is a zip archive. Files below `NAME-VERSION.data/scripts` go to the `bin` of the environment, with their
//! modes; `NAME-VERSION.dist-info` says what it is, and its `RECORD` has the digest of each other file
//! (Python Packaging User Guide, "Binary distribution format").

use std::io::{Cursor, Write as _};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::Release;
use super::program::Program;
use super::target::Target;
use super::tree::{DATA, PROGRAM};

pub(super) fn make(release: &Release, program: &Program) -> Result<(String, Vec<u8>)> {
    let version = release.version;
    let info = format!("thalweg-{version}.dist-info");
    let metadata = release.read_text("packaging/wheel/METADATA")?.replace("@VERSION@", version);
    let mut files = vec![
        (format!("thalweg-{version}.data/scripts/thalweg"), PROGRAM, program.bytes.clone()),
        (format!("{info}/METADATA"), DATA, metadata.into_bytes()),
        (format!("{info}/WHEEL"), DATA, wheel(program.target).into_bytes()),
        (format!("{info}/licenses/LICENSE"), DATA, release.read("LICENSE")?),
    ];
    let record = format!("{info}/RECORD");
    let mut lines: String = files.iter().map(|(path, _, bytes)| recorded(path, bytes)).collect();
    // Its own line has neither digest nor size.
    lines.push_str(&format!("{record},,\n"));
    files.push((record, DATA, lines.into_bytes()));

    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, mode, bytes) in files {
        // The default time is 1980-01-01, the first that a zip archive can say.
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(9))
            .last_modified_time(DateTime::default())
            .unix_permissions(mode);
        archive.start_file(path.as_str(), options).with_context(|| format!("pack {path}"))?;
        archive.write_all(&bytes).with_context(|| format!("pack {path}"))?;
    }
    let name = format!("thalweg-{version}-py3-none-{}.whl", program.target.wheel_platforms().join("."));
    Ok((name, archive.finish().context("end the wheel")?.into_inner()))
}

/// The file that tells an installer where the wheel can be used.
fn wheel(target: Target) -> String {
    let tags = target.wheel_platforms().map(|platform| format!("Tag: py3-none-{platform}\n"));
    format!("Wheel-Version: 1.0\nGenerator: thalweg-xtask\nRoot-Is-Purelib: false\n{}", tags.concat())
}

/// A line of `RECORD`.
fn recorded(path: &str, bytes: &[u8]) -> String {
    format!("{path},sha256={},{}\n", URL_SAFE_NO_PAD.encode(Sha256::digest(bytes)), bytes.len())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use zip::ZipArchive;

    use super::*;
    use crate::dist::program::made_up;

    #[test]
    fn record_has_the_digest_and_size_of_each_file() {
        let release = Release::of_this_commit().unwrap();
        let program = made_up(Target::X86_64);
        let (_, bytes) = make(&release, &program).unwrap();
        assert_eq!(bytes, make(&release, &program).unwrap().1, "the same bytes each time");
        let mut archive = ZipArchive::new(Cursor::new(bytes)).unwrap();
        let mut files = Vec::new();
        for at in 0..archive.len() {
            let mut file = archive.by_index(at).unwrap();
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            files.push((file.name().unwrap().into_owned(), bytes));
        }
        let record = format!("thalweg-{}.dist-info/RECORD", release.version);
        let (name, lines) = files.pop().unwrap();
        assert_eq!(name, record);
        let expected: String = files.iter().map(|(path, bytes)| recorded(path, bytes)).collect();
        assert_eq!(String::from_utf8(lines).unwrap(), format!("{expected}{record},,\n"));
        assert_eq!(files.len(), 4);
    }

    #[test]
    fn a_line_of_record_is_as_installers_compute_it() {
        // As `hashlib.sha256(b"abc")` has it, in base64 for URLs without padding.
        let digest = "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0";
        assert_eq!(recorded("a/b", b"abc"), format!("a/b,sha256={digest},3\n"));
    }

    #[test]
    fn the_program_can_be_run_and_the_name_says_where() {
        let release = Release::of_this_commit().unwrap();
        let (name, bytes) = make(&release, &made_up(Target::Aarch64)).unwrap();
        let platforms = "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64";
        assert_eq!(name, format!("thalweg-{}-py3-none-{platforms}.whl", release.version));
        let mut archive = ZipArchive::new(Cursor::new(bytes)).unwrap();
        let program = format!("thalweg-{}.data/scripts/thalweg", release.version);
        assert_eq!(archive.by_name(&program).unwrap().unix_mode(), Some(0o100_755));
        let mut text = String::new();
        let info = format!("thalweg-{}.dist-info", release.version);
        archive.by_name(&format!("{info}/WHEEL")).unwrap().read_to_string(&mut text).unwrap();
        for platform in platforms.split('.') {
            assert!(text.contains(&format!("Tag: py3-none-{platform}\n")), "{platform} is not in {text}");
        }
        text.clear();
        archive.by_name(&format!("{info}/METADATA")).unwrap().read_to_string(&mut text).unwrap();
        assert!(text.contains(&format!("\nVersion: {}\n", release.version)), "{text}");
    }
}
