//! fjall: what is put gathers in a batch, and a sync commits it with an fdatasync of the journal.

use anyhow::{Context, Result};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};
use thalweg_bench_checkpoint::{Place, Store};

struct Fjall {
    database: Database,
    keyspace: Keyspace,
    batch: Option<OwnedWriteBatch>,
}

pub(crate) fn open(place: &Place) -> Result<Box<dyn Store>> {
    let database = Database::builder(&place.dir).cache_size(crate::CACHE as u64).open()?;
    let keyspace = database.keyspace("state", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Fjall { database, keyspace, batch: None }))
}

impl Store for Fjall {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let batch = self
            .batch
            .get_or_insert_with(|| self.database.batch().durability(Some(PersistMode::SyncData)));
        batch.insert(&self.keyspace, key, value);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.batch.take().context("a batch is there once something was put")?.commit()?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.keyspace.get(key)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }
}
