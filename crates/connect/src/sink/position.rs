//! The position of a file that a sink writes, for commit records: its length, and how to recognize that it is still the
//! same one, written in the same way.
//!
//! The path says where the file was. A file that was moved or copied, with its folder or alone, is known by its last
//! bytes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::running::Sum;

/// How many of a file's last bytes are looked at to know it again. Records differ sooner than that.
pub(super) const LAST_BYTES: usize = 4 << 10;

/// The position of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePosition {
    /// The committed bytes; rows after them are written again.
    pub bytes: u64,
    /// `None` from builds that did not know.
    pub identity: Option<FileIdentity>,
}

/// What has to stay the same while a sink goes on with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Absolute, with the links in its folder followed.
    pub path: String,
    /// Name of the format.
    pub format: String,
    /// The bytes that the format writes before the first record: the header of CSV.
    pub begin: String,
    /// Hash of the last [`LAST_BYTES`] committed bytes, or of all if there are fewer.
    pub last: u64,
    /// Of all that was committed; older builds do not say.
    pub sum: Option<Sum>,
}

/// As it is in a commit record: JSON.
#[derive(Serialize, Deserialize)]
struct Written {
    bytes: u64,
    path: String,
    format: String,
    begin: String,
    last: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sum: Option<Sum>,
}

impl FilePosition {
    /// Reads a position; `None` if the bytes are not one. Older builds wrote the length alone: 8 bytes, little-endian.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if let Ok(length) = bytes.try_into() {
            return Some(Self { bytes: u64::from_le_bytes(length), identity: None });
        }
        let Written { bytes, path, format, begin, last, sum } = serde_json::from_slice(bytes).ok()?;
        Some(Self { bytes, identity: Some(FileIdentity { path, format, begin, last, sum }) })
    }
}

impl FileIdentity {
    pub(super) fn encode(&self, bytes: u64) -> Vec<u8> {
        let Self { path, format, begin, last, sum } = self.clone();
        let written = Written { bytes, path, format, begin, last, sum };
        serde_json::to_vec(&written).expect("texts and numbers are JSON")
    }
}

/// Hash of the last bytes of a file.
pub fn hash_of_last(bytes: &[u8]) -> u64 {
    thalweg_types::hash_bytes(&bytes[bytes.len().saturating_sub(LAST_BYTES)..])
}

/// Where a file is, whatever folder the process was started in and whatever links led there.
pub(super) fn place_of(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (absolute.parent().and_then(|folder| folder.canonicalize().ok()), absolute.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => absolute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let identity = FileIdentity {
            path: "/a/ü \"x\".csv".to_owned(),
            format: "csv".to_owned(),
            begin: "a,b\n".to_owned(),
            last: u64::MAX,
            sum: Some(Sum { from: 1, crc: u32::MAX, mark: (u64::MAX, 2) }),
        };
        let written = identity.encode(u64::MAX - 1);
        let read = FilePosition { bytes: u64::MAX - 1, identity: Some(identity) };
        assert_eq!(FilePosition::decode(&written), Some(read));
    }

    #[test]
    fn a_position_of_an_older_build_is_a_length() {
        let position = FilePosition::decode(&77_u64.to_le_bytes());
        assert_eq!(position, Some(FilePosition { bytes: 77, identity: None }));
    }

    #[test]
    fn other_bytes_are_no_position() {
        for bytes in [b"".as_slice(), b"1234567", b"123456789", br#"{"number":0,"bytes":9,"counts":{}}"#] {
            assert_eq!(FilePosition::decode(bytes), None);
        }
    }

    #[test]
    fn a_place_does_not_depend_on_how_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", folder.path().join("link")).unwrap();
        let places = ["real/out", "link/out", "real/./out", "link/../real/out"]
            .map(|name| place_of(&folder.path().join(name)));
        assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
        assert!(places[0].is_absolute());
        assert_ne!(place_of(Path::new("out")), place_of(Path::new("other")));
        assert!(place_of(Path::new("out")).is_absolute());
    }
}
