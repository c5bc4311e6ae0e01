//! Schemas by number, so that a chunk names its columns with four bytes and old chunks stay readable after a
//! change.
//!
//! File `schemas.ths`, append-only; layout (little-endian): magic 8, format 2, zero 2, task 8, checksum 4, then one
//! frame for each schema in the order of their ids from 0: id 4, field count 4, for each field name length 4, name,
//! type length 4, type. Types are written as job files write them, because text outlives the numbers of an enum;
//! besides those there are `uint32` and, for 256-bit decimals of few digits, `decimal256(p,s)`.
//!
//! Invariants
//! * A schema's frame is synced before the first chunk that names it is written.
//! * Equal names and types in equal order have equal ids; nothing is ever removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::DataType;
use thalweg_types::DataType as FieldType;
use thalweg_types::TimeUnit as Unit;

use crate::frame::{Chain, FrameError, FrameReader};
use crate::fs::write_again;
use crate::store::file::{FORMAT_AT, newer_format};
use crate::store::recover::reads_differ;
use crate::{ChunkError, File, Fs, OpenMode, publish};

/// Number of a schema in its store.
pub type SchemaId = u32;

pub(crate) const FILE_NAME: &str = "schemas.ths";

const MAGIC: [u8; 8] = *b"\xf7ThSchm\n";
const FORMAT: u16 = 1;
const HEADER: usize = 24;

/// A column as it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredField {
    pub name: String,
    pub data_type: DataType,
}

impl std::fmt::Display for StoredField {
    /// `card: string`, with the type as the file has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = type_text(&self.data_type).unwrap_or_else(|| self.data_type.to_string());
        write!(f, "{}: {text}", self.name)
    }
}

/// The schemas of a store.
#[derive(Clone, Debug, Default)]
pub struct SchemaRegistry {
    schemas: Vec<Arc<[StoredField]>>,
}

impl SchemaRegistry {
    pub fn len(&self) -> usize {
        self.schemas.len()
    }

    pub fn is_empty(&self) -> bool {
        self.schemas.is_empty()
    }

    /// The columns of a schema, in order.
    pub fn get(&self, id: SchemaId) -> Option<&Arc<[StoredField]>> {
        self.schemas.get(id as usize)
    }

    /// The id of a schema; new ones are added, and their frame's payload returned for the file.
    ///
    /// # Errors
    /// [`ChunkError::Unsupported`] for a type without a stored form.
    pub(crate) fn id_of(
        &mut self,
        schema: &arrow_schema::Schema,
    ) -> Result<(SchemaId, Option<Vec<u8>>), ChunkError> {
        let fields: Arc<[StoredField]> = schema
            .fields()
            .iter()
            .map(|field| StoredField { name: field.name().clone(), data_type: field.data_type().clone() })
            .collect();
        if let Some(id) = self.schemas.iter().position(|known| *known == fields) {
            return Ok((id as SchemaId, None));
        }
        let id = self.schemas.len() as SchemaId;
        let payload = encode(id, &fields)?;
        self.schemas.push(fields);
        Ok((id, Some(payload)))
    }
}

fn encode(id: SchemaId, fields: &[StoredField]) -> Result<Vec<u8>, ChunkError> {
    let mut out = Vec::new();
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&(fields.len() as u32).to_le_bytes());
    for field in fields {
        let text = type_text(&field.data_type).ok_or_else(|| ChunkError::Unsupported {
            name: field.name.clone(),
            data_type: field.data_type.clone(),
        })?;
        for part in [field.name.as_str(), &text] {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
            out.extend_from_slice(part.as_bytes());
        }
    }
    Ok(out)
}

fn decode(mut bytes: &[u8]) -> Option<(SchemaId, Vec<StoredField>)> {
    fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = bytes.split_at_checked(len)?;
        *bytes = rest;
        Some(taken)
    }
    let number = |bytes: &mut &[u8]| Some(u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?));
    let id = number(&mut bytes)?;
    let count = number(&mut bytes)?;
    let mut fields = Vec::new();
    for _ in 0..count {
        let mut text = || {
            let len = number(&mut bytes)?;
            std::str::from_utf8(take(&mut bytes, len as usize)?).ok()
        };
        let (name, data_type) = (text()?.to_owned(), parse_type(text()?)?);
        fields.push(StoredField { name, data_type });
    }
    bytes.is_empty().then_some((id, fields))
}

/// The text of a stored type.
fn type_text(data_type: &DataType) -> Option<String> {
    use arrow_schema::TimeUnit;
    let written = match data_type {
        DataType::UInt32 => return Some("uint32".to_owned()),
        DataType::Decimal256(precision, scale) if *precision <= 38 => {
            return Some(format!("decimal256({precision},{scale})"));
        }
        DataType::Boolean => FieldType::Bool,
        DataType::Int64 => FieldType::Int64,
        DataType::UInt64 => FieldType::UInt64,
        DataType::Float64 => FieldType::Float64,
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            FieldType::Decimal { precision: *precision, scale: *scale }
        }
        DataType::Utf8View => FieldType::String,
        DataType::BinaryView => FieldType::Bytes,
        DataType::Timestamp(unit, None) => FieldType::Timestamp(match unit {
            TimeUnit::Second => Unit::Second,
            TimeUnit::Millisecond => Unit::Milli,
            TimeUnit::Microsecond => Unit::Micro,
            TimeUnit::Nanosecond => Unit::Nano,
        }),
        DataType::FixedSizeBinary(16) => FieldType::Ip,
        _ => return None,
    };
    Some(written.to_string())
}

fn parse_type(text: &str) -> Option<DataType> {
    if text == "uint32" {
        return Some(DataType::UInt32);
    }
    if let Some(figures) = text.strip_prefix("decimal256(").and_then(|rest| rest.strip_suffix(')')) {
        let (precision, scale) = figures.split_once(',')?;
        return Some(DataType::Decimal256(precision.parse().ok()?, scale.parse().ok()?));
    }
    Some(FieldType::parse(text).ok()?.to_arrow())
}

fn header(task: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[12..20].copy_from_slice(&task.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..20]);
    bytes[20..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The writing end of a registry's file.
#[derive(Debug)]
pub(crate) struct SchemaFile {
    path: PathBuf,
    task: u64,
    chain: Chain,
    /// Absent until the first schema.
    file: Option<Arc<dyn File>>,
    len: u64,
}

impl SchemaFile {
    /// Reads the registry of a store, cuts what a crash has left of the last schema.
    pub(crate) fn open(fs: &dyn Fs, dir: &Path, task: u64) -> Result<(SchemaRegistry, Self), ChunkError> {
        let path = dir.join(FILE_NAME);
        let Some(content) = Content::read(fs, &path, OpenMode::Write)? else {
            let opened = Self { path, task, chain: Chain::new(task), file: None, len: 0 };
            return Ok((SchemaRegistry::default(), opened));
        };
        let found = content.parse(&path, task)?;
        if let Some(torn) = found.torn {
            // Cutting is for good: a bit that flipped on the way from the disk must not lead to it.
            let mut again = vec![0; content.bytes.len()];
            content.file.read_exact_at(&mut again, 0).map_err(ChunkError::io("read", &path))?;
            if again != content.bytes {
                return Err(reads_differ(path.clone(), found.len));
            }
            tracing::warn!(path = %path.display(), pos = found.len, bytes = torn, "cut torn schema");
            content.file.truncate(found.len).map_err(ChunkError::io("cut", &path))?;
        }
        // What a killed process wrote may not be synced, and from here on chunks may name it.
        let synced = found.last.unwrap_or(found.len);
        write_again(content.file.as_ref(), synced..found.len)
            .map_err(ChunkError::io("write again", &path))?;
        content.file.sync_data().map_err(ChunkError::io("sync", &path))?;
        let opened = Self { path, task, chain: found.chain, file: Some(content.file), len: found.len };
        Ok((found.registry, opened))
    }

    /// Appends a schema and makes it durable.
    pub(crate) fn append(&mut self, fs: &dyn Fs, payload: &[u8]) -> Result<(), ChunkError> {
        let mut bytes = Vec::new();
        match &self.file {
            None => {
                bytes.extend_from_slice(&header(self.task));
                self.chain.push(payload, &mut bytes);
                publish(fs, &self.path, &bytes).map_err(ChunkError::io("write", &self.path))?;
                let file =
                    fs.open(&self.path, OpenMode::Write).map_err(ChunkError::io("open", &self.path))?;
                self.file = Some(file);
            }
            Some(file) => {
                self.chain.push(payload, &mut bytes);
                file.write_all_at(&bytes, self.len).map_err(ChunkError::io("write", &self.path))?;
                file.sync_data().map_err(ChunkError::io("sync", &self.path))?;
            }
        }
        self.len += bytes.len() as u64;
        Ok(())
    }
}

/// The bytes of a registry's file.
struct Content {
    file: Arc<dyn File>,
    bytes: Vec<u8>,
}

/// What they say.
pub(crate) struct Found {
    pub(crate) task: u64,
    pub(crate) registry: SchemaRegistry,
    chain: Chain,
    /// Where the last schema begins.
    last: Option<u64>,
    /// Bytes up to its end.
    pub(crate) len: u64,
    /// Bytes after it, which a crash has left of the last one.
    pub(crate) torn: Option<u64>,
}

impl Content {
    /// `None` where there is no file.
    fn read(fs: &dyn Fs, path: &Path, mode: OpenMode) -> Result<Option<Self>, ChunkError> {
        let file = match fs.open(path, mode) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ChunkError::io("open", path)(error)),
        };
        let len = file.len().map_err(ChunkError::io("read", path))?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, 0).map_err(ChunkError::io("read", path))?;
        Ok(Some(Self { file, bytes }))
    }

    fn parse(&self, path: &Path, task: u64) -> Result<Found, ChunkError> {
        let damage = |pos: u64, what, expected: String, got: String| ChunkError::Damaged {
            path: path.to_owned(),
            pos,
            what,
            expected,
            got,
        };
        let (bytes, expected) = (&self.bytes, header(task));
        let newer = bytes.get(..HEADER).and_then(|header| newer_format(header, &MAGIC, FORMAT));
        if let Some(found) = newer {
            let (path, what) = (path.to_owned(), "a schema file");
            return Err(ChunkError::NewerFormat { path, pos: FORMAT_AT, what, found, newest: FORMAT });
        }
        // The file appeared under its name whole: a header that differs is damage, not a torn write.
        if !bytes.starts_with(&expected) {
            let pos = bytes.iter().zip(&expected).take_while(|(byte, expected)| byte == expected).count();
            let got = format!("{:02x?}", bytes.get(pos));
            let expected = format!("{:02x}", expected[pos]);
            return Err(damage(pos as u64, "header of the schema file", expected, got));
        }
        let mut registry = SchemaRegistry::default();
        let mut frames = FrameReader::new(bytes, HEADER, Chain::new(task));
        let mut last = None;
        let torn = loop {
            match frames.next_frame() {
                Ok(None) => break None,
                Ok(Some(frame)) => match decode(frame.payload) {
                    Some((id, fields)) if id as usize == registry.schemas.len() => {
                        registry.schemas.push(fields.into());
                        last = Some(frame.pos);
                    }
                    _ => {
                        let expected = format!("schema {}", registry.schemas.len());
                        return Err(damage(frame.pos, "schema", expected, "another or none".to_owned()));
                    }
                },
                Err(FrameError::Torn { bytes, .. }) => break Some(bytes),
                Err(FrameError::Damaged { pos, what, expected, got }) => {
                    return Err(damage(pos, what, format!("{expected:#010x}"), format!("{got:#010x}")));
                }
            }
        };
        Ok(Found { task, registry, chain: frames.chain(), last, len: frames.position(), torn })
    }
}

/// Reads the registry of a store, and changes nothing. `task` is the store's, or, if there is no chunk file to name
/// it, the one that the header names. `None` if there is no file.
pub(crate) fn look(fs: &dyn Fs, dir: &Path, task: Option<u64>) -> Result<Option<Found>, ChunkError> {
    let path = dir.join(FILE_NAME);
    let Some(content) = Content::read(fs, &path, OpenMode::Read)? else { return Ok(None) };
    let named = content.bytes.get(12..20).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    content.parse(&path, task.or(named).unwrap_or_default()).map(Some)
}

#[cfg(test)]
mod tests {
    use arrow_schema::{Field, Schema, TimeUnit};

    use super::*;
    use crate::{MemFs, make_dir};

    fn schema(fields: &[(&str, DataType)]) -> Schema {
        Schema::new(
            fields
                .iter()
                .map(|(name, data_type)| Field::new(*name, data_type.clone(), true))
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn every_stored_type_reads_back_from_its_text() {
        for tag in 0..20 {
            for precision in [0, 5, 38, 39, 76] {
                let Some(data_type) = crate::chunk::head::tagged_type([tag, precision, precision / 2, 0])
                else {
                    continue;
                };
                let text = type_text(&data_type).unwrap();
                assert_eq!(parse_type(&text), Some(data_type), "{text}");
            }
        }
    }

    #[test]
    fn a_schema_that_a_killed_process_did_not_sync_outlives_a_power_cut_once_it_is_known() {
        for is_lost in [false, true] {
            let (fs, dir) = (MemFs::new(), Path::new("/s"));
            make_dir(&fs, dir).unwrap();
            let schemas = [("a", DataType::Int64), ("b", DataType::UInt32)].map(|field| schema(&[field]));
            let (mut registry, mut file) = SchemaFile::open(&fs, dir, 7).unwrap();
            file.append(&fs, &registry.id_of(&schemas[0]).unwrap().1.unwrap()).unwrap();
            let path = dir.join(FILE_NAME);
            let payload = registry.id_of(&schemas[1]).unwrap().1.unwrap();
            let mut bytes = Vec::new();
            file.chain.push(&payload, &mut bytes);
            fs.open(&path, OpenMode::Write).unwrap().write_all_at(&bytes, file.len).unwrap();
            if is_lost {
                fs.lose_unsynced(&path).unwrap();
            }

            assert_eq!(SchemaFile::open(&fs, dir, 7).unwrap().0.len(), 2);
            fs.crash();
            assert_eq!(SchemaFile::open(&fs, dir, 7).unwrap().0.len(), 2, "lost by a failed sync: {is_lost}");
        }
    }

    #[test]
    fn ids_survive_and_a_torn_schema_is_cut() {
        let (fs, dir) = (MemFs::new(), Path::new("/s"));
        make_dir(&fs, dir).unwrap();
        let old = schema(&[("a", DataType::Int64)]);
        let new = schema(&[("a", DataType::Timestamp(TimeUnit::Nanosecond, None)), ("b", DataType::UInt32)]);
        let (mut registry, mut file) = SchemaFile::open(&fs, dir, 7).unwrap();
        for (schema, expected) in [(&old, 0), (&new, 1), (&old, 0)] {
            let (id, payload) = registry.id_of(schema).unwrap();
            assert_eq!(id, expected);
            if let Some(payload) = payload {
                file.append(&fs, &payload).unwrap();
            }
        }
        fs.crash();
        let path = dir.join(FILE_NAME);
        let whole = fs.bytes(&path).unwrap();
        let (mut registry, _) = SchemaFile::open(&fs, dir, 7).unwrap();
        assert_eq!(registry.id_of(&new).unwrap(), (1, None));
        assert!(
            matches!(SchemaFile::open(&fs, dir, 8), Err(ChunkError::Damaged { pos: 12, .. })),
            "another task"
        );

        for len in HEADER..whole.len() {
            fs.set_bytes(&path, whole[..len].to_vec()).unwrap();
            let (mut registry, mut file) = SchemaFile::open(&fs, dir, 7).unwrap();
            assert!(registry.len() < 2);
            for schema in [&old, &new] {
                if let (_, Some(payload)) = registry.id_of(schema).unwrap() {
                    file.append(&fs, &payload).unwrap();
                }
            }
            assert_eq!(fs.bytes(&path).unwrap(), whole);
        }
    }
}
