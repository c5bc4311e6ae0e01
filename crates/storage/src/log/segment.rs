//! One file of a log: its name, its header, and which frames are its own.
//!
//! Layout (little-endian): magic 8, format 2, header length 2, zero 4, log identity 8, base 8, link 4, zero 4,
//! created 8, zero 12, checksum 4; then frames ([`crate::frame`]), each with a group of records
//! ([`super::group`]).
//! * Magic, format and header length come first and the checksum last in every version, so that a newer version is
//!   distinguished from damage.
//! * The base (number of the first record) is in the name, too: a misplaced file is found on opening.
//! * The link is the checksum of the last frame of the segment before (0 for the first), so segments chain.
//!
//! Identity, base and link are mixed into the checksum of each frame: what a recycled or misplaced file holds is
//! none of this segment's, whatever its name and header say.

use std::path::{Path, PathBuf};

use thalweg_types::Micros;

use super::{LogError, LogPosition};
use crate::File;
use crate::frame::Chain;

/// First bytes of a segment. Persisted.
const MAGIC: [u8; 8] = *b"\xf7ThLog1\n";
/// Persisted.
pub(super) const FORMAT: u16 = 1;
pub(super) const HEADER: u64 = 64;

const SUFFIX: &str = ".thl";

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Identity of the log.
    pub(super) identity: u64,
    /// Number of the first record.
    pub(super) base: LogPosition,
    /// Checksum of the last frame of the segment before, 0 for the first segment of all.
    pub(super) link: u32,
    /// Wall clock at which the segment was made: no record before it is younger.
    pub(super) created: Micros,
}

/// What is wrong with bytes that should be a header.
#[derive(Debug)]
pub(super) enum HeaderFault {
    Newer(u16),
    Damaged { pos: u64, what: &'static str, expected: String, got: String },
}

impl HeaderFault {
    pub(super) fn at(self, path: &Path) -> LogError {
        let path = path.to_owned();
        match self {
            HeaderFault::Newer(got) => LogError::NewerFormat { path, known: FORMAT, got },
            HeaderFault::Damaged { pos, what, expected, got } => {
                LogError::Damaged { path, pos, what, expected, got }
            }
        }
    }
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER as usize] {
        let mut bytes = [0; HEADER as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[10..12].copy_from_slice(&(HEADER as u16).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.identity.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.link.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.created.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let damaged =
            |pos, what, expected: String, got: String| Err(HeaderFault::Damaged { pos, what, expected, got });
        let short = |wanted: usize| {
            let got = format!("the end of the file at {}", bytes.len());
            damaged(bytes.len() as u64, "header of the segment", format!("{wanted} bytes"), got)
        };
        let found = bytes.iter().zip(&MAGIC).take_while(|(byte, expected)| byte == expected).count();
        if found < MAGIC.len() {
            let got = bytes.get(found).map_or("the end".to_owned(), |byte| format!("{byte:#04x}"));
            return damaged(found as u64, "first bytes of a segment", format!("{:#04x}", MAGIC[found]), got);
        }
        let Some((format, len)) = number(bytes, 8).zip(number(bytes, 10)) else { return short(12) };
        let (format, len) = (u16::from_le_bytes(format), u16::from_le_bytes(len));
        let len = usize::from(len);
        if len < 16 || (format == FORMAT && len != HEADER as usize) {
            return damaged(10, "header length", HEADER.to_string(), len.to_string());
        }
        let Some(crc) = number(bytes, len - 4).map(u32::from_le_bytes) else { return short(len) };
        let actual = crc32fast::hash(&bytes[..len - 4]);
        if actual != crc {
            let (expected, got) = (format!("{crc:#010x}"), format!("{actual:#010x}"));
            return damaged(0, "checksum of the header", expected, got);
        }
        if format > FORMAT {
            return Err(HeaderFault::Newer(format));
        }
        match (number(bytes, 16), number(bytes, 24), number(bytes, 32), number(bytes, 40)) {
            (Some(identity), Some(base), Some(link), Some(created)) if format == FORMAT => Ok(Self {
                identity: u64::from_le_bytes(identity),
                base: LogPosition(u64::from_le_bytes(base)),
                link: u32::from_le_bytes(link),
                created: Micros::from_le_bytes(created),
            }),
            _ => damaged(8, "format version", FORMAT.to_string(), format.to_string()),
        }
    }

    /// Reads and checks the header of an open segment.
    pub(super) fn read(
        file: &dyn File,
        path: &Path,
        len: u64,
    ) -> Result<Result<Self, HeaderFault>, LogError> {
        // A newer header may be longer.
        let mut bytes = vec![0; usize::try_from(len.min(4 * HEADER)).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0).map_err(LogError::io("read", path))?;
        Ok(Self::decode(&bytes))
    }

    /// The chain of the segment's frames.
    pub(super) fn chain(&self) -> Chain {
        Chain::new(self.frame_identity())
    }

    /// Identity of the segment's frames.
    pub(super) fn frame_identity(&self) -> u64 {
        [self.base.0, u64::from(self.link)]
            .into_iter()
            .fold(mix(self.identity), |mixed, part| mix(mixed ^ part))
    }
}

/// The finalizer of SplitMix64: one-to-one, and each bit depends on each. Persisted through checksums.
fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The `N` bytes at `at`, if they are there.
pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(super) fn path(dir: &Path, name: &str, base: LogPosition) -> PathBuf {
    dir.join(format!("{name}-{:020}{SUFFIX}", base.0))
}

/// Whether a name may be part of a file's name.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    !name.is_empty() && name.len() <= 64 && name.bytes().all(plain)
}

/// The log's name and the base that a file's name promises; `None` if the name is not one of a segment.
pub(super) fn split_name(file_name: &str) -> Option<(&str, LogPosition)> {
    let (name, digits) = file_name.strip_suffix(SUFFIX)?.rsplit_once('-')?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let base = digits.parse().ok().filter(|_| plain && is_name(name))?;
    Some((name, LogPosition(base)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Header = Header { identity: 7, base: LogPosition(1000), link: 9, created: -5 };

    #[test]
    fn headers_round_trip_and_every_flipped_bit_is_found() {
        let bytes = SAMPLE.encode();
        assert_eq!(Header::decode(&bytes).unwrap(), SAMPLE);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Header::decode(&flipped), Err(HeaderFault::Damaged { .. })), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Header::decode(&bytes[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn a_newer_format_is_named_and_older_ones_do_not_exist() {
        let mut bytes = [SAMPLE.encode().as_slice(), &[0; 40]].concat();
        bytes[8] = 2;
        bytes[10] = 80;
        let crc = crc32fast::hash(&bytes[..76]);
        bytes[76..80].copy_from_slice(&crc.to_le_bytes());
        let error = Header::decode(&bytes).unwrap_err().at(Path::new("/d/a.thl"));
        assert_eq!(
            error.to_string(),
            "segment \"/d/a.thl\" has format version 2, this program reads versions up to 1"
        );
        bytes[8] = 0;
        let crc = crc32fast::hash(&bytes[..76]);
        bytes[76..80].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(Header::decode(&bytes), Err(HeaderFault::Damaged { pos: 8, .. })));
    }

    #[test]
    fn names_round_trip_and_others_are_told_apart() {
        let path = path(Path::new("/d"), "http-in", LogPosition(42));
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(name, "http-in-00000000000000000042.thl");
        assert_eq!(split_name(name), Some(("http-in", LogPosition(42))));
        for other in ["a-42.thl", "a-0000000000000000004x.thl", "-00000000000000000042.thl", "a.thl", "x"] {
            assert_eq!(split_name(other), None, "{other}");
        }
    }

    #[test]
    fn frames_of_other_segments_have_another_identity() {
        let others = [
            Header { identity: 8, ..SAMPLE },
            Header { base: LogPosition(1001), ..SAMPLE },
            Header { link: 10, ..SAMPLE },
        ];
        for other in others {
            assert_ne!(other.frame_identity(), SAMPLE.frame_identity());
        }
    }
}
