//! File-system seam, frames, logs and the chunk store of Thalweg.
//!
//! * [`Fs`] and [`File`]: the only way to the disk, implemented by [`RealFs`], [`MemFs`] and [`FaultyFs`].
//! * [`frame`]: a length-prefixed, chained, checksummed unit in an append-only file.
//! * [`log`]: an append-only log of records in segments, and the thread that makes logs durable for many at once.
//! * [`chunk`]: one sealed, compressed, columnar piece of a task's records, as bytes.
//! * [`ChunkStore`]: a task's chunks in files, written in the background and read ahead on an [`IoPool`], cached within
//!   a [`ChunkBudget`].
//! * [`Writeback`]: background syncs of much that was written.
//!
//! Three words for durability: *written* (in the kernel), *synced* (survives power loss), *committed* (named by
//! a commit record). This crate writes and syncs; commits are made above it.
//!
//! Not here: what the records mean, which chunks a window still needs, when a checkpoint is due.

#![deny(unsafe_code)]

pub mod chunk;
mod commit_log;
mod error;
pub mod frame;
mod fs;
pub mod handles;
mod io_pool;
pub mod log;
mod schemas;
mod store;
mod writeback;

pub use commit_log::{CommitLog, CommitSummary, OpenedCommits, is_commit_log, read_commits};
pub use error::ChunkError;
pub use fs::{
    Fault, FaultKind, Faults, FaultyFs, File, Fs, Layer, Layered, MemFs, OpenMode, RealFs, failed_sync,
    is_full, make_dir, note_sync, publish,
};
pub use io_pool::IoPool;
pub use schemas::{SchemaId, SchemaRegistry, StoredField};
pub use store::{
    ChunkBudget, ChunkFileSummary, ChunkId, ChunkMeta, ChunkStats, ChunkStore, ChunkStoreOptions,
    ChunkSummary, ChunkTail, Projection, Seal, SyncTicket, inspect_chunks, is_chunk_folder, verify_chunks,
};
pub use writeback::Writeback;
