//! The n-th call to the disk fails, for every n: errors come out, nothing synced is lost, reading goes on.

use super::*;
use crate::{Fault, FaultKind};

/// A fixed life of a store; the last chunk number that a sync has promised, and the first error.
fn workload(fs: &FaultyFs) -> (u64, Option<ChunkError>) {
    let mut synced = 0;
    let outcome = (|| {
        for _ in 0..2 {
            let budget = ChunkBudget::new(20_000);
            let mut store =
                ChunkStore::open(Arc::new(fs.clone()), DIR, IoPool::inline(), budget, options(None))?;
            assert!(store.next().0 >= synced, "opening has cut synced chunks");
            for round in 0..6 {
                let (seal, batch) = sealed(store.next().0);
                let sealed_id = store.seal(Seal { keep: round == 3, ..seal }, batch)?;
                // What was sealed can be read whatever the writer met.
                let [all, amounts] = projections();
                match store.read(sealed_id, &all) {
                    Ok(batch) => assert_eq!(*batch, expected(sealed_id.0, &all)),
                    Err(error) => return Err(error),
                }
                store.release(sealed_id);
                store.prefetch(store.first(), &amounts)?;
                if round % 2 == 1 {
                    synced = store.sync()?.0;
                }
            }
            store.delete_before(ChunkId(store.next().0 / 2))?;
            store.close()?;
            synced = synced.max(6);
        }
        Ok(())
    })();
    (synced, outcome.err())
}

#[test]
fn every_failing_call_is_an_error_and_loses_nothing_synced() {
    let clean = FaultyFs::new(Arc::new(disk()), None);
    let (synced, error) = workload(&clean);
    assert!(synced == 12 && error.is_none(), "{synced}, {error:?}");
    let calls = clean.calls();
    assert!(calls > 80, "{calls} calls");
    let (mut hits, mut failures) = (0, 0);
    for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite, FaultKind::BitFlip] {
        for stays in [false, true] {
            // Reads that always flip a bit leave no store to look at.
            if stays && kind == FaultKind::BitFlip {
                continue;
            }
            for call in 1..=calls {
                let disk = disk();
                let faulty = FaultyFs::new(Arc::new(disk.clone()), Some(Fault { call, kind, stays }));
                let (synced, error) = workload(&faulty);
                hits += u64::from(faulty.hits() > 0);
                failures += u64::from(error.is_some());
                if stays && matches!(kind, FaultKind::Eio | FaultKind::Enospc) {
                    assert!(error.is_some(), "{kind:?} from call {call} on went unseen");
                }
                disk.crash();
                let needed = 6.min(synced / 2);
                let mut store = open(&disk, &IoPool::inline(), Some(ChunkId(needed)..ChunkId(synced)))
                    .unwrap_or_else(|left| panic!("{kind:?} at call {call}: {error:?}, then {left}"));
                assert_eq!(store.next(), ChunkId(synced));
                assert_whole(&mut store);
            }
        }
    }
    assert!(hits > calls * 4 && failures > calls * 3, "{hits} hits, {failures} failures of {calls} calls");
}

#[test]
fn a_failed_write_poisons_the_store_and_reading_goes_on() {
    let disk = disk();
    let count = FaultyFs::new(Arc::new(disk.clone()), None);
    let budget = || ChunkBudget::new(1 << 20);
    let mut store =
        ChunkStore::open(Arc::new(count.clone()), DIR, IoPool::inline(), budget(), options(None)).unwrap();
    seal(&mut store, 3);
    store.close().unwrap();
    let opened = {
        let counted = FaultyFs::new(Arc::new(disk.clone()), None);
        drop(
            ChunkStore::open(Arc::new(counted.clone()), DIR, IoPool::inline(), budget(), options(None))
                .unwrap(),
        );
        counted.calls()
    };
    let fault = Fault { call: opened + 1, kind: FaultKind::Enospc, stays: false };
    let faulty = FaultyFs::new(Arc::new(disk.clone()), Some(fault));
    let mut store =
        ChunkStore::open(Arc::new(faulty.clone()), DIR, IoPool::inline(), budget(), options(None)).unwrap();
    seal(&mut store, 1);
    assert_eq!(faulty.hits(), 1);
    let (next, batch) = sealed(4);
    let error = store.seal(next, batch.clone()).unwrap_err();
    assert!(matches!(&error, ChunkError::Io(disk) if disk.action == "write"), "{error}");
    let error = store.seal(next, batch).unwrap_err();
    assert!(matches!(&error, ChunkError::Poisoned { .. }), "{error}");
    assert!(store.draw_sync().is_err() && store.delete_before(ChunkId(1)).is_err());
    assert_whole(&mut store);
    assert_eq!(store.index().len(), 4, "chunks sealed before the failure are readable");
}

#[test]
fn an_interrupted_deletion_leaves_no_gap() {
    let mut interrupted = 0;
    for call in 1..200 {
        let disk = disk();
        let mut store = open(&disk, &IoPool::inline(), None).unwrap();
        seal(&mut store, 60);
        store.close().unwrap();
        let faulty =
            FaultyFs::new(Arc::new(disk.clone()), Some(Fault { call, kind: FaultKind::Eio, stays: true }));
        let budget = ChunkBudget::new(1 << 20);
        if let Ok(mut store) =
            ChunkStore::open(Arc::new(faulty.clone()), DIR, IoPool::inline(), budget, options(None))
        {
            let count = store.delete_before(ChunkId(56)).unwrap();
            assert!(count > 30, "several files go at once");
            interrupted += u64::from(store.check().is_err());
        }
        disk.crash_torn(call);
        let mut store = open(&disk, &IoPool::inline(), None).unwrap();
        assert_eq!(store.next(), ChunkId(60));
        assert_whole(&mut store);
        if faulty.hits() == 0 {
            break;
        }
    }
    assert!(interrupted > 6, "{interrupted}");
}

#[test]
fn a_sync_that_is_drawn_ends_well_though_the_store_is_dropped() {
    for round in 0..50 {
        let (fs, pool) = (disk(), IoPool::new(2));
        let mut store = open(&fs, &pool, None).unwrap();
        seal(&mut store, 3);
        let mut ticket = store.draw_sync().unwrap();
        if round % 2 == 0 {
            ticket.begin();
        }
        drop(store);
        assert_eq!(ticket.wait().unwrap(), ChunkId(3));
        fs.crash();
        assert_eq!(open(&fs, &pool, None).unwrap().next(), ChunkId(3));
    }
}
