//! An open table: names by address, one at a time or by the column.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::dictionary::Dictionary;
use super::error::LookupError;
use super::layout::{Head, MAGIC, Section, SectionKind};
use super::map::Map;
use super::text::{MODEL_BYTES, Model};
use super::v4_reader::{V4Place, V4Reader};
use super::v6_reader::V6Reader;
use super::{address, block, presence};

/// What a table has for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A row, and its name has been appended.
    Value,
    /// A row whose name is empty.
    Empty,
    /// No row.
    Absent,
}

/// How a table is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Bytes of names that may stay in the page cache on this table's account; more are given back to the
    /// kernel. Filter and templates come on top: a ninth and a twelfth of a byte a row of reverse DNS, 545
    /// MiB at most for the filter of IPv4.
    pub resident: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { resident: 1 << 30 }
    }
}

/// A table in a mapped file. Tasks share one through an `Arc`.
#[derive(Debug)]
pub struct LookupTable {
    pub(super) map: Map,
    pub(super) head: Head,
    templates: Range<usize>,
    pub(super) template_count: usize,
    pub(super) model: Model,
    pub(super) v4: Option<V4Reader>,
    pub(super) v6: Option<V6Reader>,
    pub(super) counters: Counters,
}

/// Relaxed everywhere: counts, not hand-overs.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) hits: AtomicU64,
    pub(super) empty: AtomicU64,
    pub(super) absent: AtomicU64,
    pub(super) filter_stops: AtomicU64,
    pub(super) blocks_read: AtomicU64,
    pub(super) bytes_given_back: AtomicU64,
}

/// What a table has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupStats {
    /// Addresses with a name.
    pub hits: u64,
    /// Addresses with a row whose name is empty.
    pub empty: u64,
    pub absent: u64,
    /// Of the absent ones, those of which the filter knew it.
    pub filter_stops: u64,
    /// Pieces of names that were read from the file, or again after they were given back.
    pub blocks_read: u64,
    pub bytes_given_back: u64,
    /// Bytes of names that are kept now.
    pub resident_bytes: u64,
}

impl LookupTable {
    /// Opens a table.
    ///
    /// Reads the head and the sections that say where names are, and compares their checksums; the kernel
    /// begins to read the filter. Names are checked block by block when they are first read.
    ///
    /// # Errors
    /// A file that cannot be read, that is damaged, or that a newer build wrote.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, LookupError> {
        Self::open_with(path, OpenOptions::default())
    }

    /// Whether a file begins as lookup tables do; one that cannot be read does not.
    pub fn is_at(path: impl AsRef<Path>) -> bool {
        let mut magic = [0; MAGIC.len()];
        let read =
            std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
        read.is_ok() && magic == MAGIC
    }

    /// Opens a table with options of its own; errors are those of [`LookupTable::open`].
    pub fn open_with(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, LookupError> {
        let map = Map::open(path.as_ref())?;
        let bytes = map.bytes();
        let head = Head::from_bytes(&bytes[..bytes.len().min(4096)], bytes.len() as u64, map.path())?;
        let templates = small_section(&map, &head, SectionKind::Templates)?;
        let template_count = Dictionary::from_bytes(templates.1)
            .ok_or_else(|| damaged(&map, templates.0.offset, "templates", "a dictionary", "something else"))?
            .len();
        let model = small_section(&map, &head, SectionKind::Model)?;
        let model = Model::from_bytes(model.1).ok_or_else(|| {
            damaged(&map, model.0.offset, "model", &format!("code lengths in {MODEL_BYTES} bytes"), "others")
        })?;
        let v4 = match head.section(SectionKind::V4Names) {
            Some(_) => Some(V4Reader::new(&map, &head, options.resident)?),
            None => None,
        };
        let v6 = match head.section(SectionKind::V6Names) {
            Some(_) => Some(V6Reader::new(&map, &head, options.resident)?),
            None => None,
        };
        let start = templates.0.offset as usize;
        let templates = start..start + templates.0.length as usize;
        Ok(Self { map, head, templates, template_count, model, v4, v6, counters: Counters::default() })
    }

    /// Appends the name of an address to `out`.
    ///
    /// # Errors
    /// Damage in the file; `out` may then have the front of a name.
    pub fn find(&self, address: [u8; 16], out: &mut Vec<u8>) -> Result<Found, LookupError> {
        let found = match address::v4(&address) {
            Some(v4) => self.find_v4(v4, &address, out),
            None => self.find_v6(&address, out),
        }?;
        let counter = match found {
            Found::Value => &self.counters.hits,
            Found::Empty => &self.counters.empty,
            Found::Absent => &self.counters.absent,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(found)
    }

    /// Rows of the table.
    pub fn rows(&self) -> u64 {
        self.head.rows
    }

    /// Bytes of the heap that the open table takes.
    pub fn heap_bytes(&self) -> usize {
        let v4 = self.v4.as_ref().map_or(0, V4Reader::heap_bytes);
        let v6 = self.v6.as_ref().map_or(0, V6Reader::heap_bytes);
        v4 + v6
    }

    /// The templates, in the map.
    #[inline]
    pub(super) fn dictionary(&self) -> Dictionary<'_> {
        let bytes = &self.map.bytes()[self.templates.clone()];
        // It was sound when the table was opened, and the file does not change.
        Dictionary::from_bytes(bytes).unwrap_or_default()
    }

    pub fn stats(&self) -> LookupStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LookupStats {
            hits: load(&self.counters.hits),
            empty: load(&self.counters.empty),
            absent: load(&self.counters.absent),
            filter_stops: load(&self.counters.filter_stops),
            blocks_read: load(&self.counters.blocks_read),
            bytes_given_back: load(&self.counters.bytes_given_back),
            resident_bytes: self.v4.as_ref().map_or(0, |v4| v4.residency.bytes())
                + self.v6.as_ref().map_or(0, |v6| v6.residency.bytes()),
        }
    }

    fn find_v4(&self, v4: u32, key: &[u8; 16], out: &mut Vec<u8>) -> Result<Found, LookupError> {
        let Some(place) = self.place_v4(v4)? else {
            self.counters.filter_stops.fetch_add(1, Ordering::Relaxed);
            return Ok(Found::Absent);
        };
        self.name_v4(&place, key, out)
    }

    /// Where the name of an IPv4 address is; `None` if the filter says that it has none.
    #[inline]
    pub(super) fn place_v4(&self, v4: u32) -> Result<Option<V4Place>, LookupError> {
        let Some(reader) = &self.v4 else { return Ok(None) };
        let Some(group) = reader.group(&self.map, (v4 >> 16) as u16)? else { return Ok(None) };
        let Some(rank) = presence::find(group, (v4 >> 8) as u8, v4 as u8) else { return Ok(None) };
        Ok(Some(V4Place { row: rank.row as u16, rows: rank.rows as u16, chunk: reader.chunk_of(v4 >> 8) }))
    }

    /// Appends the name at a place.
    #[inline]
    pub(super) fn name_v4(
        &self,
        place: &V4Place,
        key: &[u8; 16],
        out: &mut Vec<u8>,
    ) -> Result<Found, LookupError> {
        let Some(reader) = &self.v4 else { return Ok(Found::Absent) };
        let chunk = reader.chunk(&self.map, place.chunk as usize, &self.counters)?;
        let before = out.len();
        super::chunk::block(chunk, key[14])
            .and_then(|block| {
                let names = (&self.dictionary(), &self.model);
                block::decode(block, usize::from(place.rows), usize::from(place.row), key, names, out)
            })
            .ok_or_else(|| {
                let pos = reader.chunk_range(place.chunk as usize).start;
                damaged(&self.map, pos, "block of names", "the names of a /24", "something else")
            })?;
        Ok(if out.len() == before { Found::Empty } else { Found::Value })
    }

    fn find_v6(&self, key: &[u8; 16], out: &mut Vec<u8>) -> Result<Found, LookupError> {
        match self.place_v6(key)? {
            Some(piece) => self.name_v6(piece, key, out),
            None => {
                self.counters.filter_stops.fetch_add(1, Ordering::Relaxed);
                Ok(Found::Absent)
            }
        }
    }

    /// The block that may have a key; `None` where the filter says that none has it.
    pub(super) fn place_v6(&self, key: &[u8; 16]) -> Result<Option<u32>, LookupError> {
        match &self.v6 {
            Some(reader) => reader.piece_of(&self.map, key),
            None => Ok(None),
        }
    }

    /// Appends the name of a key that block `piece` may have.
    pub(super) fn name_v6(
        &self,
        piece: u32,
        key: &[u8; 16],
        out: &mut Vec<u8>,
    ) -> Result<Found, LookupError> {
        let Some(reader) = &self.v6 else { return Ok(Found::Absent) };
        let keyed = reader.block(&self.map, piece as usize, &self.counters)?;
        let Some(row) = keyed.find(key) else { return Ok(Found::Absent) };
        let before = out.len();
        let names = (&self.dictionary(), &self.model);
        block::decode(keyed.names, keyed.rows, row, key, names, out).ok_or_else(|| {
            let pos = reader.range(piece as usize).start;
            damaged(&self.map, pos, "block of names", "the names of its keys", "something else")
        })?;
        Ok(if out.len() == before { Found::Empty } else { Found::Value })
    }
}

/// A section that is read whole, after its checksum was compared.
pub(super) fn small_section<'a>(
    map: &'a Map,
    head: &Head,
    kind: SectionKind,
) -> Result<(Section, &'a [u8]), LookupError> {
    let (section, bytes) = section(map, head, kind)?;
    // The map is read at random elsewhere, so without this each page would be waited for.
    map.prefetch(section.offset..section.offset + section.length);
    let checksum = crc32fast::hash(bytes);
    if checksum != section.checksum {
        let (expected, got) = (format!("{:#010x}", section.checksum), format!("{checksum:#010x}"));
        return Err(damaged(map, section.offset, "checksum of a section", &expected, &got));
    }
    Ok((section, bytes))
}

/// A section; the head has been checked, so it is in the file.
pub(super) fn section<'a>(
    map: &'a Map,
    head: &Head,
    kind: SectionKind,
) -> Result<(Section, &'a [u8]), LookupError> {
    let missing = || damaged(map, 0, "sections", kind.name(), "none of that kind");
    let section = *head.section(kind).ok_or_else(missing)?;
    let bytes = map.bytes().get(section.offset as usize..(section.offset + section.length) as usize);
    Ok((section, bytes.ok_or_else(missing)?))
}

pub(super) fn damaged(map: &Map, pos: u64, what: &'static str, expected: &str, got: &str) -> LookupError {
    LookupError::Damaged {
        path: map.path().to_owned(),
        pos,
        what,
        expected: expected.to_owned(),
        got: got.to_owned(),
    }
}
