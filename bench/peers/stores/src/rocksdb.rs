//! RocksDB: what is put gathers in a batch, and a sync writes it with an fdatasync of the log.

use anyhow::Result;
use rocksdb::{BlockBasedOptions, Cache, DB, DBCompressionType, Options, WriteBatch, WriteOptions};
use thalweg_bench_checkpoint::{Place, Store};

struct RocksDb {
    db: DB,
    batch: WriteBatch,
    synced: WriteOptions,
}

pub(crate) fn open(place: &Place) -> Result<Box<dyn Store>> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(crate::CACHE)?);
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::None);
    options.increase_parallelism(2);
    let db = DB::open(&options, &place.dir)?;
    let mut synced = WriteOptions::default();
    synced.set_sync(true);
    Ok(Box::new(RocksDb { db, batch: WriteBatch::default(), synced }))
}

impl Store for RocksDb {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put(key, value);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.db.write_opt(std::mem::take(&mut self.batch), &self.synced)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.db.get_pinned(key)?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }
}
