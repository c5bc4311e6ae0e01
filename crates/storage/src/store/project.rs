//! Picking a projection's columns from a chunk: by name, widened, null where the chunk has none.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::file::{self, Place};
use crate::chunk::head::ChunkHead;
use crate::chunk::widen;
use crate::schemas::StoredField;
use crate::{ChunkError, ChunkId, Fs, OpenMode};

/// Unwanted bytes between two wanted columns that are read along: cheaper than a second call.
const GAP: u64 = 64 * 1024;

/// The columns (names and types, in order) that a read returns.
///
/// A chunk's columns are found by name, widened where the wanted type is wider ([`widen`]), and null where the chunk
/// has none of that name; so fields are nullable here whatever the given schema says. Make one for each reader and
/// clone it.
#[derive(Clone, Debug)]
pub struct Projection(SchemaRef);

impl Projection {
    pub fn new(schema: SchemaRef) -> Self {
        if schema.fields().iter().all(|field| field.is_nullable()) {
            return Self(schema);
        }
        let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
        let fields: Vec<Field> = schema.fields().iter().map(nullable).collect();
        Self(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.0
    }

    /// What a batch of `rows` takes in memory, texts counted by their views.
    pub(super) fn estimate(&self, rows: u32) -> u64 {
        let width = |data_type: &DataType| match data_type {
            DataType::Boolean => 1,
            DataType::UInt32 => 4,
            DataType::Decimal256(..) => 32,
            DataType::Decimal128(..)
            | DataType::Utf8View
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => 16,
            _ => 8,
        };
        self.0.fields().iter().map(|field| width(field.data_type())).sum::<u64>() * u64::from(rows)
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> RecordBatch {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.0), columns, &options)
            .expect("each column was made with its field's type and one value for each row")
    }
}

impl PartialEq for Projection {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

/// The projection of a batch in memory.
pub(super) fn from_batch(
    batch: &RecordBatch,
    projection: &Projection,
    id: ChunkId,
) -> Result<Arc<RecordBatch>, ChunkError> {
    let rows = batch.num_rows();
    let columns = projection
        .schema()
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(column) => widen(column, field.data_type())
                .map_err(|error| ChunkError::codec(error, Path::new(""), 0, id, field.name())),
            None => Ok(new_null_array(field.data_type(), rows)),
        })
        .collect::<Result<_, _>>()?;
    Ok(Arc::new(projection.batch(columns, rows)))
}

/// A chunk to read, with its owner's data about it.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) id: ChunkId,
    pub(super) task: u64,
    pub(super) place: Place,
    /// Columns of the chunk's schema.
    pub(super) fields: Arc<[StoredField]>,
}

/// The projection of a chunk on disk.
pub(super) fn from_disk(
    fs: &dyn Fs,
    dir: &Path,
    source: &Source,
    projection: &Projection,
) -> Result<Arc<RecordBatch>, ChunkError> {
    let Source { id, task, place, fields } = source;
    let path = file::path(dir, place.file);
    let file = fs.open(&path, OpenMode::Read).map_err(ChunkError::io("open", &path))?;
    let read = |pos: u64, len: u64| {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut bytes, pos).map_err(ChunkError::io("read", &path))?;
        Ok::<_, ChunkError>(bytes)
    };
    // A short chunk comes with its head in one call.
    let first_len = if place.len <= GAP { place.len } else { u64::from(place.head_len) };
    let first = read(place.pos, first_len)?;
    let damaged = |error| ChunkError::codec(error, &path, place.pos, *id, "");
    let head = ChunkHead::parse(&first).map_err(damaged)?;
    let stored: Vec<&DataType> = fields.iter().map(|field| &field.data_type).collect();
    let expected = (*task, id.0, place.len, stored);
    let types = head.columns.iter().map(|entry| &entry.data_type).collect();
    let got = (head.info.task, head.info.number, head.total_len(), types);
    if got != expected {
        return Err(ChunkError::Damaged {
            path,
            pos: place.pos,
            what: "task, number, length and columns of the chunk",
            expected: format!("{expected:?}"),
            got: format!("{got:?}"),
        });
    }

    let wanted: Vec<Option<usize>> = projection
        .schema()
        .fields()
        .iter()
        .map(|field| fields.iter().position(|stored| stored.name == *field.name()))
        .collect();
    let mut pieces = Pieces { parts: vec![(0, first)] };
    if first_len < place.len {
        for (start, end) in runs(&head, &wanted) {
            pieces.parts.push((start, read(place.pos + start, end - start)?));
        }
    }
    let rows = head.rows as usize;
    let columns = projection
        .schema()
        .fields()
        .iter()
        .zip(&wanted)
        .map(|(field, wanted)| match wanted {
            Some(index) => {
                let bytes = pieces.column(&head, *index);
                head.decode_column(*index, bytes, field.data_type())
                    .map_err(|error| ChunkError::codec(error, &path, place.pos, *id, field.name()))
            }
            None => Ok(new_null_array(field.data_type(), rows)),
        })
        .collect::<Result<_, _>>()?;
    Ok(Arc::new(projection.batch(columns, rows)))
}

/// Byte ranges of the chunk that hold the wanted columns, near ones joined.
fn runs(head: &ChunkHead, wanted: &[Option<usize>]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = wanted
        .iter()
        .flatten()
        .map(|index| {
            let entry = &head.columns[*index];
            let start = u64::from(head.head_len) + entry.offset;
            (start, start + u64::from(entry.len))
        })
        .collect();
    ranges.sort_unstable();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match runs.last_mut() {
            Some(last) if start <= last.1 + GAP => last.1 = last.1.max(end),
            _ => runs.push((start, end)),
        }
    }
    runs
}

/// Parts of a chunk, each with its first byte.
struct Pieces {
    parts: Vec<(u64, Vec<u8>)>,
}

impl Pieces {
    fn column(&self, head: &ChunkHead, index: usize) -> &[u8] {
        let entry = &head.columns[index];
        let (start, len) = (u64::from(head.head_len) + entry.offset, u64::from(entry.len));
        self.parts
            .iter()
            .find(|(first, bytes)| *first <= start && start + len <= first + bytes.len() as u64)
            .map(|(first, bytes)| &bytes[(start - first) as usize..(start - first + len) as usize])
            .expect("the runs cover every wanted column")
    }
}

/// Bytes that a batch takes in memory; slices of a larger batch count what they keep alive.
pub(super) fn memory(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(|column| column.get_array_memory_size() as u64).sum()
}
