//! The head of a table: what it is, how long, and where its sections are.
//!
//! | field | bytes | |
//! |---|---|---|
//! | magic | 8 | `f7 54 68 4c 6f 6f 6b 0a` |
//! | format, zero | 2, 2 | 1 |
//! | sections | 4 | their count |
//! | length | 8 | of the file |
//! | rows, empty, duplicates | 8, 8, 8 | all rows; those whose name is empty; rows of the source that a later one replaced |
//! | per section: kind, checksum, offset, length, rows | 4, 4, 8, 8, 8 | |
//! | checksum | 4 | CRC-32 of all before it |
//!
//! The head takes the first page and is written last, so a file with a sound head is whole.
//! A section's checksum covers it all where the section is read on opening, and is 0 where its pieces have
//! their own. Sections begin at whole pages. A kind of which this build does not know is refused, unless its
//! highest bit is set: then a reader may leave it out.

use std::path::Path;

use super::error::LookupError;

pub(crate) const PAGE: u64 = 4096;
pub(super) const MAGIC: [u8; 8] = *b"\xf7ThLook\n";
const FORMAT: u16 = 1;
const FIXED: usize = 48;
const ENTRY: usize = 32;
const SECTIONS_MAX: usize = 64;

/// What a section holds. Persisted, do not renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SectionKind {
    Templates = 1,
    Model = 2,
    V4Groups = 0x10,
    V4Chunks = 0x11,
    V4Presence = 0x12,
    V4Names = 0x13,
    V6Blocks = 0x20,
    V6Filter = 0x21,
    V6Names = 0x22,
}

impl SectionKind {
    pub(crate) const ALL: [SectionKind; 9] = [
        SectionKind::Templates,
        SectionKind::Model,
        SectionKind::V4Groups,
        SectionKind::V4Chunks,
        SectionKind::V4Presence,
        SectionKind::V4Names,
        SectionKind::V6Blocks,
        SectionKind::V6Filter,
        SectionKind::V6Names,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SectionKind::Templates => "templates",
            SectionKind::Model => "model",
            SectionKind::V4Groups => "v4 groups",
            SectionKind::V4Chunks => "v4 chunks",
            SectionKind::V4Presence => "v4 presence",
            SectionKind::V4Names => "v4 names",
            SectionKind::V6Blocks => "v6 blocks",
            SectionKind::V6Filter => "v6 filter",
            SectionKind::V6Names => "v6 names",
        }
    }

    /// Whether it is read whole, and its checksum compared, when the table is opened.
    pub(crate) fn is_small(self) -> bool {
        matches!(
            self,
            SectionKind::Templates
                | SectionKind::Model
                | SectionKind::V4Groups
                | SectionKind::V4Chunks
                | SectionKind::V6Blocks
        )
    }
}

/// Where a section is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    pub kind: SectionKind,
    pub checksum: u32,
    pub offset: u64,
    pub length: u64,
    pub rows: u64,
}

/// The head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) length: u64,
    pub(crate) rows: u64,
    pub(crate) empty: u64,
    pub(crate) duplicates: u64,
    pub(crate) sections: Vec<Section>,
}

impl Head {
    pub(crate) fn section(&self, kind: SectionKind) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind == kind)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE as usize);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&(self.sections.len() as u32).to_le_bytes());
        for number in [self.length, self.rows, self.empty, self.duplicates] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for section in &self.sections {
            out.extend_from_slice(&(section.kind as u32).to_le_bytes());
            out.extend_from_slice(&section.checksum.to_le_bytes());
            for number in [section.offset, section.length, section.rows] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        let checksum = crc32fast::hash(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.resize(PAGE as usize, 0);
        out
    }

    /// Reads the head of a file of `file_length` bytes from its first page.
    pub(crate) fn from_bytes(page: &[u8], file_length: u64, path: &Path) -> Result<Self, LookupError> {
        let damaged = |pos: u64, what: &'static str, expected: String, got: String| LookupError::Damaged {
            path: path.to_owned(),
            pos,
            what,
            expected,
            got,
        };
        let short = || {
            damaged(
                file_length,
                "length of the file",
                format!("a head of {PAGE} bytes"),
                "its end".to_owned(),
            )
        };
        let magic = page.get(..8).ok_or_else(short)?;
        if magic != MAGIC {
            return Err(damaged(0, "magic", format!("{MAGIC:02x?}"), format!("{magic:02x?}")));
        }
        let u32_at = |pos: usize| page.get(pos..pos + 4).map(le_u32).ok_or_else(short);
        let u64_at = |pos: usize| page.get(pos..pos + 8).map(le_u64).ok_or_else(short);
        let found = u32_at(8)? as u16;
        if found > FORMAT {
            return Err(LookupError::NewerFormat { path: path.to_owned(), found, newest: FORMAT });
        }
        let count = u32_at(12)? as usize;
        if count > SECTIONS_MAX {
            return Err(damaged(12, "sections", format!("at most {SECTIONS_MAX}"), count.to_string()));
        }
        let end = FIXED + count * ENTRY;
        let (expected, got) = (crc32fast::hash(page.get(..end).ok_or_else(short)?), u32_at(end)?);
        if expected != got {
            let (expected, got) = (format!("{expected:#010x}"), format!("{got:#010x}"));
            return Err(damaged(end as u64, "checksum of the head", expected, got));
        }
        let mut head = Self {
            length: u64_at(16)?,
            rows: u64_at(24)?,
            empty: u64_at(32)?,
            duplicates: u64_at(40)?,
            sections: Vec::new(),
        };
        if head.length != file_length {
            let (expected, got) = (head.length.to_string(), file_length.to_string());
            return Err(damaged(file_length.min(head.length), "length of the file", expected, got));
        }
        for place in (FIXED..end).step_by(ENTRY) {
            let number = u32_at(place)?;
            let Some(kind) = SectionKind::ALL.into_iter().find(|kind| *kind as u32 == number) else {
                if number >> 31 == 1 {
                    continue;
                }
                return Err(damaged(
                    place as u64,
                    "kind of a section",
                    "a known one".to_owned(),
                    number.to_string(),
                ));
            };
            let (offset, length) = (u64_at(place + 8)?, u64_at(place + 16)?);
            if offset % PAGE != 0 || offset.checked_add(length).is_none_or(|end| end > file_length) {
                let got = format!("{offset} and {length} bytes more");
                return Err(damaged(place as u64, "place of a section", "one in the file".to_owned(), got));
            }
            let (checksum, rows) = (u32_at(place + 4)?, u64_at(place + 24)?);
            head.sections.push(Section { kind, checksum, offset, length, rows });
        }
        Ok(head)
    }
}

/// The first four bytes as a number; the caller has them.
pub(crate) fn le_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The first eight bytes as a number; the caller has them.
pub(crate) fn le_u64(bytes: &[u8]) -> u64 {
    u64::from(le_u32(bytes)) | u64::from(le_u32(&bytes[4..])) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        let section = |kind, offset| Section { kind, checksum: 7, offset, length: 10, rows: 3 };
        Head {
            length: 9000,
            rows: 3,
            empty: 1,
            duplicates: 2,
            sections: vec![section(SectionKind::Templates, 4096), section(SectionKind::V4Names, 8192)],
        }
    }

    #[test]
    fn a_head_comes_back() {
        assert_eq!(Head::from_bytes(&head().to_bytes(), 9000, Path::new("x")).unwrap(), head());
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let mut bytes = head().to_bytes();
        bytes[8] = 2;
        let error = Head::from_bytes(&bytes, 9000, Path::new("names.tbl")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"names.tbl\" has format 2 of lookup tables, and this build reads up to 1"
        );
    }

    #[test]
    fn a_kind_that_may_be_left_out_is_and_others_are_refused() {
        for (number, is_fine) in [(0x8000_0077_u32, true), (0x77, false)] {
            let mut bytes = head().to_bytes();
            bytes[FIXED..FIXED + 4].copy_from_slice(&number.to_le_bytes());
            let end = FIXED + 2 * ENTRY;
            let checksum = crc32fast::hash(&bytes[..end]);
            bytes[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
            assert_eq!(Head::from_bytes(&bytes, 9000, Path::new("x")).is_ok(), is_fine);
        }
    }
}
