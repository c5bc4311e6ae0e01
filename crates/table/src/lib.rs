//! Tables: the rows of a stream, kept in columns in time partitions, and coarser rollups beside them.

#![deny(unsafe_code)]

mod catalog;

pub use catalog::{Catalog, Rollup, RollupSpec, Snapshot, StoredFile, TableName};
