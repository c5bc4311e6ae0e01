//! What the workload is run on.

use std::path::PathBuf;

use anyhow::Result;

/// Keeps the newest value of each key.
pub trait Store: Send {
    /// Takes a new value; readers need not see it before the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// What the store says.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// On return everything taken survives a power cut, and readers see it.
    ///
    /// # Errors
    /// What the store says.
    fn sync(&mut self) -> Result<()>;

    /// Reads the newest value of a key into `value`; whether there is one.
    ///
    /// # Errors
    /// What the store says.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Bytes in memory for finding keys, where the store counts them.
    fn index_bytes(&self) -> Option<u64> {
        None
    }

    /// Where the store keeps nothing in files, the bytes that it keeps instead.
    fn bytes_elsewhere(&self) -> Option<u64> {
        None
    }
}

/// Where a store keeps its bytes.
#[derive(Clone, Debug)]
pub struct Place {
    /// An empty folder.
    pub dir: PathBuf,
    /// Where its server listens, for stores that have one.
    pub url: Option<String>,
}

/// A store that can be named.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    pub open: fn(&Place) -> Result<Box<dyn Store>>,
}
