//! Looking without changing: it knows what opening knows, finds what reading finds, and leaves every byte alone.

use super::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn files(fs: &MemFs) -> Files {
    let names = fs.list(Path::new(DIR)).unwrap();
    names
        .iter()
        .map(|name| Path::new(DIR).join(name))
        .map(|path| (path.clone(), fs.bytes(&path).unwrap()))
        .collect()
}

fn store_of(count: u64) -> MemFs {
    let fs = disk();
    let mut store = open(&fs, &IoPool::inline(), None).unwrap();
    seal(&mut store, count);
    store.close().unwrap();
    fs
}

fn verify(fs: &MemFs) -> ChunkSummary {
    verify_chunks(fs, Path::new(DIR), None).unwrap()
}

#[test]
fn a_look_knows_what_opening_knows() {
    let fs = store_of(9);
    let before = files(&fs);
    let store = open(&fs, &IoPool::inline(), None).unwrap();
    assert!(is_chunk_folder(&fs, Path::new(DIR)).unwrap());
    for summary in [inspect_chunks(&fs, Path::new(DIR), None).unwrap(), verify(&fs)] {
        assert_eq!(summary.chunks, store.index());
        assert_eq!((summary.first(), summary.next()), (ChunkId(0), ChunkId(9)));
        assert_eq!((summary.task, summary.schemas.len()), (Some(7), 2));
        assert!(summary.torn.is_empty() && summary.damage.is_none() && summary.files.len() > 1);
        for file in &summary.files {
            assert_eq!((file.bytes, file.file_bytes), (before[&file.path].len() as u64, file.bytes));
        }
    }
    assert_eq!(files(&fs), before);
}

#[test]
fn every_flipped_bit_is_named_with_its_file_or_lies_in_a_last_write() {
    let fs = store_of(5);
    let whole = files(&fs);
    let last = whole.keys().rfind(|path| path.extension().is_some_and(|kind| kind == "thc")).unwrap();
    let (mut damaged, mut torn) = (0, 0);
    for (path, bytes) in &whole {
        for byte in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[byte] ^= 1 << (byte % 8);
            fs.set_bytes(path, flipped).unwrap();
            let summary = verify(&fs);
            match summary.damage {
                Some(ChunkError::Damaged { path: named, .. }) if named == *path => {
                    damaged += 1;
                }
                Some(other) => panic!("{path:?} byte {byte}: {other}"),
                None => {
                    assert!(path == last && !summary.torn.is_empty(), "{path:?} byte {byte}");
                    torn += 1;
                }
            }
            fs.set_bytes(path, bytes.clone()).unwrap();
        }
    }
    assert!(damaged > 500 && torn > 100, "{damaged} {torn}");
    assert_eq!(files(&fs), whole);
}

#[test]
fn the_header_of_an_only_file_is_judged_by_the_task_of_the_schemas() {
    let fs = store_of(1);
    let (path, bytes) = files(&fs).into_iter().next().unwrap();
    for byte in 0..file::HEADER as usize {
        let mut flipped = bytes.clone();
        flipped[byte] ^= 4;
        fs.set_bytes(&path, flipped).unwrap();
        let found = verify(&fs);
        assert!(
            matches!(found.damage, Some(ChunkError::Damaged { path: named, .. }) if named == path),
            "byte {byte}"
        );
    }
}

#[test]
fn a_torn_tail_is_named_and_left() {
    let fs = store_of(5);
    let whole = files(&fs);
    let (last, bytes) =
        whole.iter().rfind(|(path, _)| path.extension().is_some_and(|kind| kind == "thc")).unwrap();
    let summary = verify(&fs);
    let kept = |len: u64| {
        let in_last = summary.files.last().unwrap();
        let mut end = file::HEADER;
        let mut count = 0;
        for meta in summary.chunks.iter().filter(|meta| meta.id >= in_last.first) {
            if end + meta.bytes > len {
                break;
            }
            end += meta.bytes;
            count += 1;
        }
        if len < file::HEADER { (0, 0) } else { (count, end) }
    };
    for len in 0..bytes.len() {
        fs.set_bytes(last, bytes[..len].to_vec()).unwrap();
        let found = verify(&fs);
        assert!(found.damage.is_none(), "cut at {len}: {:?}", found.damage);
        let (count, pos) = kept(len as u64);
        let file = found.files.last().unwrap();
        assert_eq!((file.next.0 - file.first.0, file.bytes), (count, pos), "cut at {len}");
        let torn = ChunkTail { path: last.clone(), pos, bytes: len as u64 - pos };
        let is_torn = len == 0 || torn.bytes > 0;
        assert_eq!(found.torn, if is_torn { vec![torn] } else { Vec::new() }, "cut at {len}");
        assert_eq!(fs.bytes(last).unwrap(), bytes[..len]);
    }
}

#[test]
fn what_a_commit_names_must_be_there_and_what_is_behind_does_not_count() {
    let fs = store_of(9);
    let look = |fs: &MemFs, range: Range<u64>| {
        let committed = ChunkId(range.start)..ChunkId(range.end);
        verify_chunks(fs, Path::new(DIR), Some(&committed)).unwrap()
    };
    let whole = look(&fs, 0..9);
    assert!(whole.damage.is_none() && whole.torn.is_empty());
    assert!(matches!(look(&fs, 0..10).damage, Some(ChunkError::Damaged { pos, .. }) if pos > 0));
    let last = whole.files.last().unwrap().clone();
    assert!(last.next.0 - last.first.0 > 1, "{last:?}");
    // All but the last chunk count: it is cut, and there is no damage.
    let found = look(&fs, 2..8);
    let [torn] = found.torn.as_slice() else { panic!("{found:?}") };
    assert_eq!((&torn.path, torn.pos + torn.bytes), (&last.path, last.bytes));
    let mut bytes = fs.bytes(&last.path).unwrap();
    bytes[torn.pos as usize + 200] ^= 1;
    fs.set_bytes(&last.path, bytes).unwrap();
    let found = look(&fs, 2..8);
    assert!(found.damage.is_none() && found.torn[0] == *torn, "{found:?}");
    assert!(look(&fs, 2..9).damage.is_some());
    // Files after the commit are passed over.
    assert!(look(&fs, 0..1).damage.is_none());
    fs.remove(&whole.files[0].path).unwrap();
    assert!(look(&fs, 0..8).damage.is_some());
}
