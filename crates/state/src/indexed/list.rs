//! The list of sealed segments, and the version that names it.
//!
//! A list is a file that is published whole and never changed; a new one is made when a segment is sealed or has
//! nothing live any more. A version names a list and the part of the active segment that counts: as small as a
//! commit record wants it, however many segments there are.
//!
//! List (little-endian): magic 8, format 2, zero 2, identity 8, number 8, count 4, per segment number 8, length 8,
//! checksum of its last frame 4; checksum 4.
//! Version: format 2, cycle 8, list number 8 (0: no sealed segments, no file), list checksum 4, active segment
//! number 8 (0: none), length 8, checksum of its last frame 4; checksum 4.

use std::path::{Path, PathBuf};

use thalweg_storage::{Fs, OpenMode};

use super::segment::Extent;
use crate::wire::{self, Fields};
use crate::{StateError, Version};

const MAGIC: [u8; 8] = *b"\xf7ThStLs\n";
const LIST_FORMAT: u16 = 1;
const VERSION_FORMAT: u16 = 1;

/// Bytes of a version.
pub(super) const VERSION_LEN: usize = 46;

pub(super) const PREFIX: &str = "list-";
const SUFFIX: &str = ".thl";

pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{number:020}{SUFFIX}"))
}

pub(super) fn number_of(name: &str) -> Option<u64> {
    super::parse_name(name, PREFIX, SUFFIX)
}

/// A list as a version names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ListId {
    pub(super) number: u64,
    pub(super) crc: u32,
}

/// The bytes of a list, and what names it.
pub(super) fn encode(identity: u64, number: u64, sealed: &[Extent]) -> (Vec<u8>, ListId) {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&LIST_FORMAT.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&identity.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&(sealed.len() as u32).to_le_bytes());
    for extent in sealed {
        put_extent(*extent, &mut bytes);
    }
    let crc = crc32fast::hash(&bytes);
    wire::seal(&mut bytes);
    (bytes, ListId { number, crc })
}

fn put_extent(extent: Extent, out: &mut Vec<u8>) {
    out.extend_from_slice(&extent.number.to_le_bytes());
    out.extend_from_slice(&extent.len.to_le_bytes());
    out.extend_from_slice(&extent.chain.to_le_bytes());
}

pub(super) fn extent(fields: &mut Fields<'_>) -> Option<Extent> {
    Some(Extent { number: fields.u64()?, len: fields.u64()?, chain: fields.u32()? })
}

/// Reads the list that a version names.
pub(super) fn read(fs: &dyn Fs, dir: &Path, identity: u64, id: ListId) -> Result<Vec<Extent>, StateError> {
    if id.number == 0 {
        return Ok(Vec::new());
    }
    let path = path(dir, id.number);
    let file = fs.open(&path, OpenMode::Read).map_err(StateError::io("open", &path))?;
    let bytes = super::read_all(file.as_ref(), &path)?;
    super::check_head(&path, &bytes, MAGIC, "a list of segments", LIST_FORMAT)?;
    let hex = |crc: u32| format!("{crc:#010x}");
    let content = wire::checked(&bytes)
        .map_err(|(expected, got)| StateError::corrupt(&path, 0, "checksum", hex(expected), hex(got)))?;
    let actual = crc32fast::hash(content);
    if actual != id.crc {
        return Err(StateError::corrupt(&path, 0, "checksum in the commit record", hex(id.crc), hex(actual)));
    }
    let mut fields = Fields::new(&content[12..]);
    let head = (fields.u64(), fields.u64());
    if head != (Some(identity), Some(id.number)) {
        let expected = format!("task {identity:016x}, list {}", id.number);
        let got = format!("task {:016x}, list {}", head.0.unwrap_or_default(), head.1.unwrap_or_default());
        return Err(StateError::corrupt(&path, 12, "identity of the list", expected, got));
    }
    let count = fields.u32().unwrap_or_default();
    let sealed: Option<Vec<_>> = (0..count).map(|_| extent(&mut fields)).collect();
    match sealed.filter(|_| fields.rest().is_empty()) {
        Some(sealed) if sealed.is_sorted_by(|a, b| a.number < b.number) => Ok(sealed),
        _ => Err(StateError::corrupt(&path, 28, "segments", count, "another number, or out of order")),
    }
}

/// What a commit record says of this back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) cycle: u64,
    pub(super) list: ListId,
    /// `None` before the first change.
    pub(super) active: Option<Extent>,
}

impl Named {
    pub(super) fn encode(&self) -> Version {
        let mut bytes = VERSION_FORMAT.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.cycle.to_le_bytes());
        bytes.extend_from_slice(&self.list.number.to_le_bytes());
        bytes.extend_from_slice(&self.list.crc.to_le_bytes());
        put_extent(self.active.unwrap_or(Extent { number: 0, len: 0, chain: 0 }), &mut bytes);
        wire::seal(&mut bytes);
        Version::from_bytes(bytes)
    }

    pub(super) fn decode(version: &Version, dir: &Path) -> Result<Self, StateError> {
        let bytes = version.as_bytes();
        let fault = |what, expected: String, got: String| StateError::Version {
            dir: dir.to_owned(),
            what,
            expected,
            got,
        };
        let format = Fields::new(bytes).u16().unwrap_or_default();
        if format > VERSION_FORMAT {
            let (path, what) = (dir.to_owned(), "a version of keyed state");
            return Err(StateError::NewerFormat { path, what, found: format, newest: VERSION_FORMAT });
        }
        let content = wire::checked(bytes).map_err(|(expected, got)| {
            fault("checksum", format!("{expected:#010x}"), format!("{got:#010x}"))
        })?;
        let mut fields = Fields::new(content);
        let mut read = || {
            fields.u16().filter(|format| *format == VERSION_FORMAT)?;
            let cycle = fields.u64()?;
            let list = ListId { number: fields.u64()?, crc: fields.u32()? };
            let active = extent(&mut fields)?;
            let active = (active.number > 0).then_some(active);
            fields.rest().is_empty().then_some(Self { cycle, list, active })
        };
        read().ok_or_else(|| {
            fault("layout", "an indexed back end's version".to_owned(), format!("{version:?}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use thalweg_storage::{MemFs, publish};

    use super::*;

    #[test]
    fn lists_come_back_and_every_flipped_bit_and_cut_is_found() {
        let (fs, dir) = (MemFs::new(), Path::new("/d"));
        fs.create_dir_all(dir).unwrap();
        let sealed = [Extent { number: 3, len: 40, chain: 7 }, Extent { number: 9, len: 50, chain: 8 }];
        let (bytes, id) = encode(11, 2, &sealed);
        let path = path(dir, 2);
        publish(&fs, &path, &bytes).unwrap();
        let read = || read(&fs, dir, 11, id);
        assert_eq!(read().unwrap(), sealed);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs.set_bytes(&path, flipped).unwrap();
            assert!(
                matches!(read(), Err(StateError::Corrupt { .. } | StateError::NewerFormat { .. })),
                "{bit}"
            );
        }
        for len in 0..bytes.len() {
            fs.set_bytes(&path, bytes[..len].to_vec()).unwrap();
            assert!(matches!(read(), Err(StateError::Corrupt { .. })), "{len}");
        }
    }

    #[test]
    fn versions_come_back_and_every_flipped_bit_and_cut_is_found() {
        let dir = Path::new("/d");
        let list = ListId { number: 4, crc: 5 };
        for active in [None, Some(Extent { number: 6, len: 700, chain: 8 })] {
            let named = Named { cycle: 12, list, active };
            let version = named.encode();
            assert_eq!(Named::decode(&version, dir).unwrap(), named);
            for bit in 0..version.as_bytes().len() * 8 {
                let mut bytes = version.as_bytes().to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(Named::decode(&Version::from_bytes(bytes), dir).is_err(), "{bit}");
            }
            for len in 0..version.as_bytes().len() {
                assert!(Named::decode(&Version::from_bytes(&version.as_bytes()[..len]), dir).is_err());
            }
        }
    }
}
