//! The list of sealed segments, and the version that holds or names it.
//!
//! A version says which segments are sealed and which part of the active one counts. The few segments of most states
//! are in the version itself, so that sealing one takes no file more; many are in a *list*, so that a version is as
//! small as a commit record needs it. A list is a file that is published whole and never changed; a new one is made
//! when a segment is sealed or has nothing live any more.
//!
//! List (little-endian): magic 8, format 2, zero 2, identity 8, number 8, count 4, per segment number 8, length 8,
//! checksum of its last frame 4; checksum 4.
//! Version: format 2, cycle 8, list number 8 (0: no file), list checksum 4, active segment number 8 (0: none), length
//! 8, checksum of its last frame 4, count of sealed segments 2 (0 where a list names them), per segment as in a list;
//! checksum 4. Format 1 had neither count nor segments.

use std::path::{Path, PathBuf};

use thalweg_storage::{Fs, OpenMode};

use super::Kind;
use super::segment::Extent;
use crate::wire::{self, Fields};
use crate::{StateError, Version};

const MAGIC: [u8; 8] = *b"\xf7ThStLs\n";
const LIST_FORMAT: u16 = 1;
const VERSION_FORMAT: u16 = 2;

/// Bytes of a version of format 1; those of format 2 have two more, and twenty for each segment that they name.
const PLAIN_LEN: usize = 46;
const EXTENT_LEN: usize = 20;

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

/// The bytes of a list, and its name.
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
    let path = path(dir, id.number);
    let file = fs.open(&path, OpenMode::Read).map_err(StateError::io_of_named("open", &path))?;
    let bytes = super::read_all(file.as_ref(), &path)?;
    let kind = Kind {
        magic: MAGIC,
        what: "a list of segments",
        checksum: "checksum",
        oldest: 1,
        newest: LIST_FORMAT,
    };
    let content = super::check_head(&path, &bytes, kind)?;
    let hex = |crc: u32| format!("{crc:#010x}");
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
    extents(&mut fields, count)
        .filter(|_| fields.rest().is_empty())
        .ok_or_else(|| StateError::corrupt(&path, 28, "segments", count, "another number, or out of order"))
}

/// So many extents, in the order of their numbers.
fn extents(fields: &mut Fields<'_>, count: u32) -> Option<Vec<Extent>> {
    let extents: Vec<_> = (0..count).map(|_| extent(fields)).collect::<Option<_>>()?;
    extents.is_sorted_by(|a, b| a.number < b.number).then_some(extents)
}

/// Where the sealed segments of a version are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sealed {
    Here(Vec<Extent>),
    Listed(ListId),
}

impl Sealed {
    /// The list that is needed, if there is one.
    pub(super) fn list(&self) -> Option<ListId> {
        match self {
            Self::Here(_) => None,
            Self::Listed(id) => Some(*id),
        }
    }

    /// The segments.
    ///
    /// # Errors
    /// Of [`read`].
    pub(super) fn read(&self, fs: &dyn Fs, dir: &Path, identity: u64) -> Result<Vec<Extent>, StateError> {
        match self {
            Self::Here(sealed) => Ok(sealed.clone()),
            Self::Listed(id) => read(fs, dir, identity, *id),
        }
    }
}

/// What a commit record says of this back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) cycle: u64,
    pub(super) sealed: Sealed,
    /// `None` before the first change.
    pub(super) active: Option<Extent>,
}

impl Named {
    pub(super) fn encode(&self) -> Version {
        let mut bytes = VERSION_FORMAT.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.cycle.to_le_bytes());
        let list = self.sealed.list().unwrap_or_default();
        bytes.extend_from_slice(&list.number.to_le_bytes());
        bytes.extend_from_slice(&list.crc.to_le_bytes());
        put_extent(self.active.unwrap_or(Extent { number: 0, len: 0, chain: 0 }), &mut bytes);
        let here: &[Extent] = if let Sealed::Here(sealed) = &self.sealed { sealed } else { &[] };
        bytes.extend_from_slice(&(here.len() as u16).to_le_bytes());
        for extent in here {
            put_extent(*extent, &mut bytes);
        }
        wire::seal(&mut bytes);
        Version::from_bytes(bytes)
    }

    /// The bytes of the version that begins with these, if one does.
    pub(super) fn at_start(bytes: &[u8]) -> Option<&[u8]> {
        let len = match Fields::new(bytes).u16()? {
            1 => PLAIN_LEN,
            VERSION_FORMAT => {
                let count = Fields::new(bytes.get(PLAIN_LEN - 4..)?).u16()?;
                PLAIN_LEN + 2 + usize::from(count) * EXTENT_LEN
            }
            _ => return None,
        };
        let bytes = bytes.get(..len)?;
        Self::decode(&Version::from_bytes(bytes), Path::new("")).is_ok().then_some(bytes)
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
            let format = fields.u16().filter(|format| (1..=VERSION_FORMAT).contains(format))?;
            let cycle = fields.u64()?;
            let list = ListId { number: fields.u64()?, crc: fields.u32()? };
            let active = extent(&mut fields)?;
            let active = (active.number > 0).then_some(active);
            let count = if format == 1 { 0 } else { fields.u16()? };
            let here = extents(&mut fields, count.into())?;
            let sealed = match list.number {
                0 => Sealed::Here(here),
                _ if here.is_empty() => Sealed::Listed(list),
                _ => return None,
            };
            fields.rest().is_empty().then_some(Self { cycle, sealed, active })
        };
        read().ok_or_else(|| {
            fault("layout", "an indexed back end's version".to_owned(), format!("{version:?}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use thalweg_storage::{MemFs, make_dir, publish};

    use super::*;

    #[test]
    fn lists_come_back_and_every_flipped_bit_and_cut_is_found() {
        let (fs, dir) = (MemFs::new(), Path::new("/d"));
        make_dir(&fs, dir).unwrap();
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
        let active = Extent { number: 6, len: 700, chain: 8 };
        let sealed = vec![Extent { number: 3, len: 40, chain: 7 }, Extent { number: 5, len: 50, chain: 8 }];
        for (sealed, active) in [
            (Sealed::Here(Vec::new()), None),
            (Sealed::Here(sealed), Some(active)),
            (Sealed::Listed(ListId { number: 4, crc: 5 }), Some(active)),
        ] {
            let named = Named { cycle: 12, sealed, active };
            let version = named.encode();
            assert_eq!(Named::decode(&version, dir).unwrap(), named);
            let longer = [version.as_bytes(), &[0; 50]].concat();
            assert_eq!(Named::at_start(&longer), Some(version.as_bytes()));
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

    #[test]
    fn versions_of_the_first_format_are_read() {
        let active = Extent { number: 6, len: 700, chain: 8 };
        for list in [ListId::default(), ListId { number: 4, crc: 5 }] {
            let mut bytes = 1_u16.to_le_bytes().to_vec();
            bytes.extend_from_slice(&12_u64.to_le_bytes());
            bytes.extend_from_slice(&list.number.to_le_bytes());
            bytes.extend_from_slice(&list.crc.to_le_bytes());
            put_extent(active, &mut bytes);
            wire::seal(&mut bytes);
            let sealed = if list.number == 0 { Sealed::Here(Vec::new()) } else { Sealed::Listed(list) };
            let named = Named { cycle: 12, sealed, active: Some(active) };
            assert_eq!(Named::at_start(&bytes), Some(bytes.as_slice()));
            assert_eq!(Named::decode(&Version::from_bytes(bytes), Path::new("/d")).unwrap(), named);
        }
    }
}
