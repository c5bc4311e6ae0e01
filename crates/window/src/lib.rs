//! Exact sliding windows: queries, plans, reservoir, cursors, aggregates.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests compare with other ways to compute"))]

pub mod agg;
mod columns;
mod groups;
mod ids;
pub mod image;
mod judge;
mod key;
mod long;
pub mod pieces;
pub mod plan;
pub mod query;
mod reservoir;
mod slots;
pub mod stage;
mod warm;

/// A store in memory for tests: chunks are encoded, written and read back like any others.
#[cfg(test)]
pub(crate) fn test_store() -> thalweg_storage::ChunkStore {
    use std::sync::Arc;
    use thalweg_storage::{ChunkBudget, ChunkStore, ChunkStoreOptions, IoPool, MemFs};
    ChunkStore::open(
        Arc::new(MemFs::new()),
        "chunks",
        IoPool::inline(),
        ChunkBudget::new(1 << 20),
        ChunkStoreOptions::new(1),
    )
    .expect("a store in memory opens")
}
