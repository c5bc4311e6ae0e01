//! The manifest of a snapshot ("docs/formats/snapshot.md"): which files a unit's folder had at a commit, and where it was.
//!
//! ```text
//! TOPIC/PARTITION/TOPIC-ID/manifests/POSITION-LINEAGE.json   one for each snapshot
//!                          files/HASH                        their files, each once
//! ```
//!
//! A topic that is made anew has another id, and so another folder: its positions are never compared with those of the
//! one before.

use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thalweg_kafka::{TopicId, TopicPartition};
use thalweg_types::{Class, Error};

use super::lineage::{Lineage, LineageId};

/// Persisted.
const VERSION: u32 = 1;

/// Bytes of a manifest at most.
const MOST_BYTES: u64 = 256 << 20;

/// All that a snapshot consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) version: u32,
    pub(super) job: String,
    pub(super) stage: String,
    pub(super) partition: u32,
    /// The number of the job's text.
    pub(super) spec: u64,
    pub(super) topic: String,
    /// In hexadecimal; none where the brokers know no ids.
    pub(super) topic_id: Option<String>,
    /// The offset of the message that the unit reads next.
    pub(super) position: u64,
    pub(super) lineage: Lineage,
    pub(super) files: Vec<ManifestFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ManifestFile {
    /// In the unit's folder, with `/` between the parts.
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) hash: Hash,
}

/// SHA-256 of a file's content, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Hash(pub(super) String);

impl Hash {
    fn of(digest: &[u8]) -> Self {
        Self(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Where the snapshots of a unit are in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Area(String);

impl Area {
    pub(super) fn new(of: &TopicPartition, topic: Option<TopicId>) -> Self {
        let id = topic.map_or_else(|| "none".to_owned(), |id| id.to_string());
        Self(format!("{}/{}/{id}", of.topic, of.partition))
    }

    pub(super) fn manifests(&self) -> String {
        format!("{}/manifests", self.0)
    }

    pub(super) fn files(&self) -> String {
        format!("{}/files", self.0)
    }

    pub(super) fn manifest(&self, name: &str) -> String {
        format!("{}/manifests/{name}", self.0)
    }

    pub(super) fn file(&self, hash: &str) -> String {
        format!("{}/files/{hash}", self.0)
    }
}

/// The name of a manifest: by it they are in the order of their positions.
pub(super) fn manifest_name(position: u64, lineage: LineageId) -> String {
    format!("{position:020}-{lineage}.json")
}

/// The position in the name of a manifest; `None` for another file.
pub(super) fn position_of(name: &str) -> Option<u64> {
    let (position, _) = name.strip_suffix(".json")?.split_once('-')?;
    (position.len() == 20).then(|| position.parse().ok())?
}

impl Manifest {
    pub(super) fn new_version() -> u32 {
        VERSION
    }

    /// Two lines: an object of JSON, and the SHA-256 of that line.
    pub(super) fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = serde_json::to_vec(self)
            .map_err(|error| Error::internal("write a manifest").with_source(error))?;
        let hash = Hash::of(&Sha256::digest(&bytes));
        bytes.push(b'\n');
        bytes.extend_from_slice(hash.0.as_bytes());
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// # Errors
    /// Of class corrupt where the bytes are not those that were written, of class user where a newer program wrote them.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let damaged = |got: &str| {
            Error::corrupt(format!("the manifest is damaged: expected JSON and its SHA-256, got {got}"))
        };
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let (Some(json), Some(hash), Some([]), None) =
            (lines.next(), lines.next(), lines.next(), lines.next())
        else {
            return Err(damaged("other lines"));
        };
        if Hash::of(&Sha256::digest(json)).0.as_bytes() != hash {
            return Err(damaged("another SHA-256"));
        }
        let head: Head = serde_json::from_slice(json).map_err(|error| damaged(&error.to_string()))?;
        if head.version > VERSION {
            let version = head.version;
            return Err(Error::user(format!(
                "the manifest has format version {version}, this program reads versions up to {VERSION}"
            ))
            .with_hint("run the version that wrote it, or a newer one"));
        }
        let manifest: Self = serde_json::from_slice(json).map_err(|error| damaged(&error.to_string()))?;
        if let Some(file) = manifest.files.iter().find(|file| !is_inside(&file.name)) {
            return Err(damaged(&format!("a file {:?}, which is not in the unit's folder", file.name)));
        }
        Ok(manifest)
    }

    /// Reads one of the store.
    ///
    /// # Errors
    /// Of [`ErrorKind::InvalidData`] where it is damaged, of [`ErrorKind::Unsupported`] where a newer program wrote it; those of
    /// the store.
    pub(super) fn read(content: &mut dyn Read) -> io::Result<Self> {
        let mut bytes = Vec::new();
        content.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Self::decode(&bytes).map_err(|error| {
            let kind = match error.class() {
                Class::User => ErrorKind::Unsupported,
                _ => ErrorKind::InvalidData,
            };
            io::Error::new(kind, error.chain())
        })
    }
}

fn is_inside(name: &str) -> bool {
    let mut parts = Path::new(name).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Reads so many bytes of a file and no more, and hashes them on the way.
pub(super) struct Hashing<R> {
    from: R,
    left: u64,
    hasher: Sha256,
    /// What they have to hash to.
    expected: Option<Hash>,
    /// Ends with an error once this says so.
    stop: Box<dyn Fn() -> bool + Send>,
}

impl<R: Read> Hashing<R> {
    pub(super) fn new(from: R, bytes: u64, stop: impl Fn() -> bool + Send + 'static) -> Self {
        Self { from, left: bytes, hasher: Sha256::new(), expected: None, stop: Box::new(stop) }
    }

    /// The last read fails with [`ErrorKind::InvalidData`] where the bytes have another hash.
    pub(super) fn expecting(self, expected: Hash) -> Self {
        Self { expected: Some(expected), ..self }
    }

    /// The hash of all.
    ///
    /// # Errors
    /// As reading.
    pub(super) fn hash(mut self) -> io::Result<Hash> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(Hash::of(&self.hasher.finalize()))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.stop)() {
            return Err(io::Error::other("the node ends"));
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.from.read(&mut buffer[..most])?;
        self.hasher.update(&buffer[..count]);
        self.left -= count as u64;
        if count == 0 && most > 0 {
            return Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                format!("the file ends {} bytes too early", self.left),
            ));
        }
        if self.left == 0
            && let Some(expected) = self.expected.take()
        {
            let got = Hash::of(&self.hasher.clone().finalize());
            if got != expected {
                let what = format!("expected a content with SHA-256 {}, got {}", expected.0, got.0);
                return Err(io::Error::new(ErrorKind::InvalidData, what));
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            version: VERSION,
            job: "j".to_owned(),
            stage: "features".to_owned(),
            partition: 3,
            spec: 2,
            topic: "thalweg.j.features".to_owned(),
            topic_id: Some("07".repeat(16)),
            position: 1 << 40,
            lineage: Lineage { id: LineageId(7), parent: Some(LineageId(5)), fork: 12 },
            files: vec![ManifestFile {
                name: "tasks/features/0/state/segment-1.ths".to_owned(),
                bytes: 3,
                hash: Hashing::new(&b"abc"[..], 3, || false).hash().unwrap(),
            }],
        }
    }

    #[test]
    fn a_manifest_comes_back_and_every_flipped_byte_of_one_is_found() {
        let manifest = manifest();
        assert!(manifest.files[0].hash.0.starts_with("ba7816bf"), "SHA-256 of abc");
        let bytes = manifest.encode().unwrap();
        assert_eq!(Manifest::decode(&bytes).unwrap(), manifest);
        for place in 0..bytes.len() {
            let mut other = bytes.clone();
            other[place] ^= 1;
            assert!(Manifest::decode(&other).is_err(), "byte {place}");
            assert!(Manifest::decode(&bytes[..place]).is_err(), "cut to {place}");
        }
        let newer = Manifest { version: VERSION + 1, ..manifest.clone() }.encode().unwrap();
        assert_eq!(Manifest::decode(&newer).unwrap_err().class(), Class::User);
        // What it names is not known, so nothing may be deleted for it.
        assert_eq!(Manifest::read(&mut newer.as_slice()).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(Manifest::read(&mut &newer[1..]).unwrap_err().kind(), ErrorKind::InvalidData);
        for outside in ["../x", "/x", "a/../b", "", "a/./../x"] {
            let mut other = manifest.clone();
            other.files[0].name = outside.to_owned();
            assert!(Manifest::decode(&other.encode().unwrap()).is_err(), "{outside:?}");
        }
    }

    #[test]
    fn names_are_in_the_order_of_positions() {
        let names =
            [(9, 3), (10, 1), (1 << 50, 0)].map(|(at, lineage)| manifest_name(at, LineageId(lineage)));
        assert!(names.is_sorted());
        assert_eq!(position_of(&names[1]), Some(10));
        for other in ["x", "1-2.json", "00000000000000000010-0000000000000001.json.1.tmp"] {
            assert_eq!(position_of(other), None, "{other}");
        }
    }

    #[test]
    fn bytes_with_another_hash_are_refused_at_their_end_and_those_after_them_are_not_read() {
        let abc = manifest().files[0].hash.clone();
        let read = |bytes: &[u8]| -> io::Result<Vec<u8>> {
            let mut out = Vec::new();
            Hashing::new(bytes, 3, || false).expecting(abc.clone()).read_to_end(&mut out)?;
            Ok(out)
        };
        assert_eq!(read(b"abcd").unwrap(), b"abc");
        assert_eq!(read(b"abd").unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(read(b"ab").unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert!(Hashing::new(&b"abc"[..], 3, || true).hash().is_err());
    }
}
