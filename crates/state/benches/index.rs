//! Keys of twenty bytes in the `indexed` back end: what its index costs, with files in memory.
//!
//! `cargo bench -p thalweg-state --bench index`
//!
//! One item is a change, or a key that is found again on opening.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use divan::Bencher;
use divan::counter::ItemsCount;
use expect_test::expect;
use thalweg_state::indexed::{Indexed, IndexedOptions};
use thalweg_state::{Backend, Changes, StateError, Version};
use thalweg_storage::{Fs, MemFs};
use thalweg_types::hash_bytes;

const DIR: &str = "state";
/// Changes of one call.
const SLICE: u64 = 100_000;
const SMALL: u64 = 20_000;

fn open(fs: &Arc<MemFs>, version: Option<&Version>) -> Result<Indexed, StateError> {
    let fs = Arc::clone(fs) as Arc<dyn Fs>;
    Indexed::open(fs, Path::new(DIR), 1, IndexedOptions::default(), version)
}

fn key(number: u64) -> [u8; 20] {
    let mut key = *b"key of twenty bytes.";
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

/// Changes that give each key its number plus `round`, in calls of [`SLICE`].
fn changes(numbers: impl Iterator<Item = u64>, round: u64) -> Vec<Changes> {
    let mut all = vec![Changes::new()];
    for number in numbers {
        if all.last().is_some_and(|last| last.len() as u64 == SLICE) {
            all.push(Changes::new());
        }
        let last = all.last_mut().expect("there is one from the start");
        last.push(&key(number), &(number + round).to_le_bytes());
    }
    all
}

/// Half of the keys, in random order.
fn changed(keys: u64) -> Vec<Changes> {
    changes((0..keys / 2).map(|number| number.wrapping_mul(0x9e37_79b9) % keys), 1)
}

fn write(backend: &Indexed, cycle: u64, changes: &[Changes]) {
    for changes in changes {
        backend.write(cycle, changes).expect("files in memory");
    }
}

fn filled(fs: &Arc<MemFs>, keys: Range<u64>) -> Indexed {
    let backend = open(fs, None).expect("files in memory");
    write(&backend, 1, &changes(keys, 0));
    backend
}

static KEYS: LazyLock<u64> = LazyLock::new(|| {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    if is_measured { 1_000_000 } else { SMALL }
});

#[divan::bench(sample_count = 10, sample_size = 1)]
fn new_keys(bencher: Bencher<'_, '_>) {
    let changes = changes(0..*KEYS, 0);
    bencher
        .counter(ItemsCount::new(*KEYS))
        .with_inputs(|| open(&Arc::new(MemFs::new()), None).expect("files in memory"))
        .bench_local_refs(|backend| {
            write(backend, 1, &changes);
            assert_eq!(backend.stats().keys, *KEYS);
        });
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn changed_keys(bencher: Bencher<'_, '_>) {
    let changes = changed(*KEYS);
    bencher
        .counter(ItemsCount::new(*KEYS / 2))
        .with_inputs(|| filled(&Arc::new(MemFs::new()), 0..*KEYS))
        .bench_local_refs(|backend| {
            write(backend, 2, &changes);
            assert_eq!(backend.stats().keys, *KEYS);
        });
}

#[divan::bench(args = ["index file", "segments"], sample_count = 10, sample_size = 1)]
fn open_from(bencher: Bencher<'_, '_>, what: &str) {
    bencher
        .counter(ItemsCount::new(*KEYS))
        .with_inputs(|| {
            let (fs, version) = closed(*KEYS);
            if what == "segments" {
                assert!(remove_index_files(&fs) > 0, "the back end writes an index file when it closes");
            }
            (fs, version)
        })
        .bench_local_refs(|(fs, version)| {
            let backend = open(fs, Some(version)).expect("what was just written");
            assert_eq!(backend.stats().keys, *KEYS);
            backend
        });
}

/// A back end that was closed after its last cycle.
fn closed(keys: u64) -> (Arc<MemFs>, Version) {
    let fs = Arc::new(MemFs::new());
    let backend = filled(&fs, 0..keys);
    write(&backend, 2, &changed(keys));
    let version = backend.prepare(2).expect("files in memory");
    backend.committed(2).expect("files in memory");
    backend.close().expect("files in memory");
    (fs, version)
}

fn remove_index_files(fs: &MemFs) -> usize {
    let names = fs.list(Path::new(DIR)).expect("the folder of the back end");
    let names = names.iter().filter(|name| name.starts_with("index-"));
    names.map(|name| fs.remove(&Path::new(DIR).join(name)).expect("it is there")).count()
}

/// Keys and values that are read back after a start, with an index file and from segments.
fn check() {
    let mut table = String::new();
    let (fs, version) = closed(SMALL);
    for with in ["an index file", "segments alone"] {
        let backend = open(&fs, Some(&version)).expect("what was just written");
        let (mut keys, mut digest) = (0, 0_u64);
        let scanned = backend.scan(&mut |key, value| {
            keys += 1;
            digest = digest.wrapping_add(hash_bytes(&[key, value].concat()));
            ControlFlow::Continue(())
        });
        scanned.expect("files in memory");
        table += &format!("from {with}: {keys} keys, digest {digest:016x}\n");
        drop(backend);
        remove_index_files(&fs);
    }
    expect![[r#"
        from an index file: 20000 keys, digest 6c3d10fde22f4da5
        from segments alone: 20000 keys, digest 6c3d10fde22f4da5
    "#]]
    .assert_eq(&table);
}

fn main() {
    check();
    divan::main();
}
