//! What stays in memory, and for how long.

use super::*;

fn budgeted(limit: u64, pool: &Arc<IoPool>) -> (ChunkStore, Arc<ChunkBudget>) {
    let budget = ChunkBudget::new(limit);
    let store = ChunkStore::open(Arc::new(disk()), DIR, Arc::clone(pool), Arc::clone(&budget), options(None))
        .unwrap();
    (store, budget)
}

#[test]
fn written_chunks_leave_memory_unless_kept_or_read() {
    let [all, amounts] = projections();
    let (mut store, budget) = budgeted(1 << 20, &IoPool::inline());
    seal(&mut store, 50);
    assert_eq!(budget.used(), 0);
    let (next, batch) = sealed(50);
    let kept = store.seal(Seal { keep: true, ..next }, batch).unwrap();
    assert!(budget.used() > 0);
    store.read(kept, &amounts).unwrap();
    assert_eq!((store.stats().cache_hits, store.stats().cache_misses), (1, 0));
    store.release(kept);
    assert_eq!(budget.used(), 0);
    store.read(kept, &all).unwrap();
    store.read(kept, &all).unwrap();
    assert_eq!((store.stats().cache_hits, store.stats().cache_misses), (2, 1));
    store.release(kept);
    store.prefetch(kept, &all).unwrap();
    store.read(kept, &all).unwrap();
    assert_eq!((store.stats().cache_hits, store.stats().cache_misses), (3, 1));
    assert_eq!(store.stats().sealed_chunks, 51);
    drop(store);
    assert_eq!(budget.used(), 0);
}

#[test]
fn cached_chunks_give_way_and_read_ahead_is_skipped_when_memory_is_short() {
    let [all, _] = projections();
    let (mut store, budget) = budgeted(12_000, &IoPool::inline());
    seal(&mut store, 60);
    let mut held = Vec::new();
    for id in (0..60).map(ChunkId) {
        let batch = store.read(id, &all).unwrap();
        let one = project::memory(&batch);
        assert!(budget.used() <= budget.limit() + one, "{} after {id}", budget.used());
        if id.0 < 4 {
            held.push(batch);
        }
    }
    // Held batches are in memory whether the cache has them or not, so they stay in it.
    let misses = store.stats().cache_misses;
    for id in (0..4).map(ChunkId) {
        store.read(id, &all).unwrap();
    }
    assert_eq!(store.stats().cache_misses, misses);
    let mut id = 10;
    while store.stats().skipped_prefetches == 0 {
        assert!(id < 60, "{} bytes used", budget.used());
        store.prefetch(ChunkId(id), &all).unwrap();
        assert!(budget.used() <= budget.limit() + 3_000);
        id += 1;
    }
    let skipped = ChunkId(id - 1);
    assert_eq!(*store.read(skipped, &all).unwrap(), expected(skipped.0, &all), "reading goes on");
}

#[test]
fn a_seal_blocks_until_earlier_chunks_are_written() {
    let pool = IoPool::new(1);
    let (mut store, budget) = budgeted(1, &pool);
    for _ in 0..200 {
        seal(&mut store, 1);
        // Memory is always short: no second chunk may wait next to the first.
        let (_, batch) = sealed(store.next().0 - 1);
        assert!(budget.used() <= project::memory(&batch) + 4096, "{} bytes wait", budget.used());
    }
    assert_eq!(store.sync().unwrap(), ChunkId(200));
    assert_eq!(budget.used(), 0);
    assert_whole(&mut store);
}

#[test]
fn stores_share_a_budget_and_return_what_they_took() {
    let pool = IoPool::new(2);
    let budget = ChunkBudget::new(30_000);
    let fs = disk();
    let mut stores: Vec<ChunkStore> = (0..3)
        .map(|task| {
            let dir = format!("/data/tasks/card/{task}");
            let options = ChunkStoreOptions { file_bytes: FILE_BYTES, ..ChunkStoreOptions::new(task) };
            ChunkStore::open(Arc::new(fs.clone()), dir, Arc::clone(&pool), Arc::clone(&budget), options)
                .unwrap()
        })
        .collect();
    let [all, amounts] = projections();
    for round in 0..40 {
        for store in &mut stores {
            seal(store, 1);
            let id = ChunkId(round / 2);
            store.prefetch(id, &amounts).unwrap();
            assert_eq!(*store.read(id, &all).unwrap(), expected(id.0, &all));
            assert_eq!(*store.read(id, &amounts).unwrap(), expected(id.0, &amounts));
        }
    }
    let counted: u64 = stores.iter().map(|store| store.stats().memory_bytes).sum();
    for store in &mut stores {
        store.sync().unwrap();
    }
    assert!(counted > 0);
    drop(stores);
    assert_eq!(budget.used(), 0);
}
