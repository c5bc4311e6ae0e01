//! Truncated, flipped, dropped, doubled and zeroed bytes of the files: found on opening or on reading.

use super::*;
use std::path::PathBuf;

fn chunk_files(fs: &MemFs) -> Vec<PathBuf> {
    let dir = Path::new(DIR);
    fs.list(dir).unwrap().iter().filter(|name| name.ends_with(".thc")).map(|name| dir.join(name)).collect()
}

/// A store of `count` chunks and its chunk files.
fn store_of(count: u64) -> (MemFs, Vec<PathBuf>) {
    let fs = disk();
    let mut store = open(&fs, &IoPool::inline(), None).unwrap();
    seal(&mut store, count);
    store.close().unwrap();
    let files = chunk_files(&fs);
    (fs, files)
}

/// Opens and reads everything: the chunks that are left, or the first error.
fn examine(fs: &MemFs, committed: Option<Range<ChunkId>>) -> Result<u64, ChunkError> {
    let mut store = open(fs, &IoPool::inline(), committed)?;
    for meta in store.index().to_vec() {
        for projection in projections() {
            let read = store.read(meta.id, &projection)?;
            assert_eq!(*read, expected(meta.id.0, &projection), "wrong content of {}", meta.id);
        }
    }
    Ok(store.next().0)
}

#[test]
fn truncation_of_the_last_file_leaves_whole_chunks_and_of_others_is_damage() {
    let (fs, files) = store_of(9);
    assert!(files.len() >= 2);
    let (last, other) = (files.last().unwrap(), &files[0]);
    let first_of_last = file::first_of(last.file_name().unwrap().to_str().unwrap()).unwrap().0;
    let whole = fs.bytes(last).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for len in 0..whole.len() {
        fs.set_bytes(last, whole[..len].to_vec()).unwrap();
        let left = examine(&fs, None).unwrap();
        assert!((first_of_last..9).contains(&left), "cut at {len}");
        seen.insert(left);
        // The cut is repaired: chunks go on after the remaining ones.
        let mut store = open(&fs, &IoPool::inline(), None).unwrap();
        seal(&mut store, 1);
        assert_whole(&mut store);
        store.close().unwrap();
        for file in chunk_files(&fs).iter().filter(|file| *file >= last) {
            fs.remove(file).unwrap();
        }
        fs.open(last, crate::OpenMode::CreateNew).unwrap();
        let committed = Some(ChunkId(0)..ChunkId(9));
        fs.set_bytes(last, whole[..len].to_vec()).unwrap();
        assert!(
            matches!(examine(&fs, committed), Err(ChunkError::Damaged { .. })),
            "committed, cut at {len}"
        );
        if chunk_files(&fs).iter().all(|file| file != last) {
            fs.open(last, crate::OpenMode::CreateNew).unwrap();
        }
    }
    assert_eq!(seen.len() as u64, 9 - first_of_last, "every number of chunks was left once");
    fs.set_bytes(last, whole).unwrap();
    let whole = fs.bytes(other).unwrap();
    for len in 0..whole.len() {
        fs.set_bytes(other, whole[..len].to_vec()).unwrap();
        match examine(&fs, None) {
            Err(ChunkError::Damaged { path, .. }) => assert!(&path == other || files.contains(&path)),
            other => panic!("cut at {len}: {other:?}"),
        }
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let (fs, files) = store_of(5);
    for file in &files {
        let is_last = file == files.last().unwrap();
        let whole = fs.bytes(file).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs.set_bytes(file, flipped.clone()).unwrap();
            // With a commit every flip is damage; without one the last chunk may be a torn tail.
            match examine(&fs, Some(ChunkId(0)..ChunkId(5))) {
                Err(ChunkError::Damaged { path, pos, .. }) => {
                    assert_eq!(&path, file);
                    assert!(pos <= whole.len() as u64);
                }
                other => panic!("{file:?}, bit {bit}: {other:?}"),
            }
            match examine(&fs, None) {
                Err(ChunkError::Damaged { path, .. }) => assert_eq!(&path, file),
                Ok(4) if is_last => {
                    // Cut, or the whole file removed: put it back.
                    if chunk_files(&fs).len() < files.len() {
                        fs.open(file, crate::OpenMode::CreateNew).unwrap();
                    }
                }
                other => panic!("{file:?}, bit {bit}: {other:?}"),
            }
        }
        fs.set_bytes(file, whole).unwrap();
    }
}

#[test]
fn dropped_doubled_swapped_and_zeroed_pieces_are_damage() {
    let (fs, files) = store_of(30);
    let file = &files[1];
    let whole = fs.bytes(file).unwrap();
    let check = |name: &str, bytes: Vec<u8>| {
        fs.set_bytes(file, bytes).unwrap();
        for committed in [None, Some(ChunkId(0)..ChunkId(30))] {
            let found = examine(&fs, committed);
            assert!(
                matches!(&found, Err(ChunkError::Damaged { path, .. }) if path == file),
                "{name}: {found:?}"
            );
        }
        fs.set_bytes(file, whole.clone()).unwrap();
    };
    const BLOCK: usize = 512;
    for start in (0..whole.len() - BLOCK).step_by(BLOCK) {
        let block = whole[start..start + BLOCK].to_vec();
        let mut zeroed = whole.clone();
        zeroed[start..start + BLOCK].fill(0);
        check("zeroed", zeroed);
        let mut dropped = whole.clone();
        dropped.drain(start..start + BLOCK);
        check("dropped", dropped);
        let mut doubled = whole.clone();
        doubled.splice(start..start, block.clone());
        check("doubled", doubled);
        if start + 2 * BLOCK <= whole.len() {
            let mut swapped = whole.clone();
            let next = swapped[start + BLOCK..start + 2 * BLOCK].to_vec();
            swapped[start..start + BLOCK].copy_from_slice(&next);
            swapped[start + BLOCK..start + 2 * BLOCK].copy_from_slice(&block);
            check("swapped", swapped);
        }
    }
    // Another file under this name, another task's store, a file that is gone.
    check("misplaced", fs.bytes(&files[2]).unwrap());
    let other = ChunkStoreOptions { task: 8, ..options(None) };
    let opened = ChunkStore::open(Arc::new(fs.clone()), DIR, IoPool::inline(), ChunkBudget::new(1), other);
    assert!(matches!(opened, Err(ChunkError::Damaged { .. })));
    fs.remove(file).unwrap();
    assert!(matches!(examine(&fs, None), Err(ChunkError::Damaged { path, .. }) if path == files[2]));
}

#[test]
fn a_chunk_of_an_earlier_life_of_the_file_is_not_taken_for_the_next() {
    let (fs, files) = store_of(3);
    let [file] = &files[..] else { panic!("one file, got {files:?}") };
    let old = fs.bytes(file).unwrap();
    let old_store = open(&fs, &IoPool::inline(), None).unwrap();
    let old_end = old.len() - old_store.meta(ChunkId(2)).unwrap().bytes as usize;
    drop(old_store);
    // Chunk 1 is written again with other times; the old chunk 2 still follows it.
    let mut store = open(&fs, &IoPool::inline(), Some(ChunkId(0)..ChunkId(1))).unwrap();
    let (again, batch) = sealed(1);
    store.seal(Seal { first_time: again.first_time - 1, ..again }, batch).unwrap();
    store.close().unwrap();
    let mut bytes = fs.bytes(file).unwrap();
    assert_eq!(bytes.len(), old_end);
    bytes.extend_from_slice(&old[old_end..]);
    fs.set_bytes(file, bytes).unwrap();
    let found = open(&fs, &IoPool::inline(), None).unwrap_err();
    assert!(found.to_string().contains("checksum of the previous head"), "{found}");
    assert_eq!(open(&fs, &IoPool::inline(), Some(ChunkId(0)..ChunkId(2))).unwrap().next(), ChunkId(2));
}
