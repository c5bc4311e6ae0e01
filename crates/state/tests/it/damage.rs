//! Cut, flipped, lost and misplaced bytes: found with file and byte, or of no consequence; never a wrong value.

use std::ops::Range;
use std::path::{Path, PathBuf};

use thalweg_state::{Changes, StateError, Version};
use thalweg_storage::MemFs;
use thalweg_types::Class;

use crate::harness::{DIR, Disk, State, apply, assert_state, commit, listed, numbered, scanned, small};

fn changes_of(cycle: u64) -> Changes {
    let mut changes = Changes::new();
    for number in 0..6_u64 {
        changes.push(&key((cycle * 2 + number) % 9), &[cycle as u8; 24]);
    }
    changes.remove(&key(cycle % 9));
    changes
}

fn key(number: u64) -> Vec<u8> {
    if number.is_multiple_of(3) { numbered(1, number as u32) } else { format!("k{number}").into_bytes() }
}

fn state_at(cycle: u64) -> State {
    let mut state = State::new();
    (1..=cycle).for_each(|cycle| apply(&mut state, &changes_of(cycle)));
    state
}

/// Seven committed cycles and one after them that is written only; with an index file in the middle.
fn disk_of(disk: Disk) -> (Disk, Version) {
    let backend = disk.open(None).unwrap();
    let mut version = None;
    for cycle in 1..=7 {
        version = Some(commit(backend.as_ref(), cycle, &changes_of(cycle)));
        if cycle == 5 {
            backend.close().unwrap();
        }
    }
    backend.write(8, &changes_of(8)).unwrap();
    (disk, version.unwrap())
}

fn files(fs: &MemFs, part: &str) -> Vec<PathBuf> {
    let dir = Path::new(DIR);
    let names = thalweg_storage::Fs::list(fs, dir).unwrap();
    names.iter().filter(|name| name.contains(part)).map(|name| dir.join(name)).collect()
}

/// Opens and reads everything, by scan and by key; whether all of it was right. An error names the damaged file, and a
/// byte of its `len`.
fn examine(disk: &Disk, version: &Version, damaged: &Path, len: usize, what: &str) -> bool {
    let read = || {
        let backend = disk.open(Some(version))?;
        let expected = state_at(7);
        for number in 0..9 {
            let key = key(number);
            assert_eq!(backend.get(&key)?.as_ref(), expected.get(&key), "wrong value, {what}");
        }
        assert_eq!(scanned(backend.as_ref())?, expected, "wrong state, {what}");
        Ok(())
    };
    match read() {
        Ok(()) => true,
        Err(StateError::Corrupt { path, pos, .. }) => {
            assert!(path == damaged && pos <= len as u64, "{path:?} at byte {pos}, {what}");
            false
        }
        Err(error @ StateError::NewerFormat { .. }) => {
            assert_eq!(error.class(), Class::User);
            false
        }
        Err(other) => panic!("{what}: {other:?}"),
    }
}

/// Every file in turn, its bytes damaged in every way: how many times that was found, and not.
fn damage(make: impl Fn() -> (Disk, Version), part: &str, (kind, change): (&str, Damage)) -> (u32, u32) {
    let (disk, version) = make();
    let fs = disk.fs().clone();
    let (mut found, mut harmless) = (0, 0);
    let all: Vec<(PathBuf, Vec<u8>)> =
        files(&fs, "").into_iter().map(|path| (path.clone(), fs.bytes(&path).unwrap())).collect();
    assert!(!files(&fs, part).is_empty());
    let restore = || {
        for path in files(&fs, "") {
            thalweg_storage::Fs::remove(&fs, &path).unwrap();
        }
        for (path, bytes) in &all {
            thalweg_storage::Fs::open(&fs, path, thalweg_storage::OpenMode::Create).unwrap();
            fs.set_bytes(path, bytes.clone()).unwrap();
        }
    };
    for path in files(&fs, part) {
        let whole = fs.bytes(&path).unwrap();
        // A block of zeros that is zeroed, say, is no damage.
        let changed = change(&whole).into_iter().filter(|bytes| *bytes != whole);
        for (number, bytes) in changed.enumerate() {
            let len = whole.len().max(bytes.len());
            fs.set_bytes(&path, bytes).unwrap();
            let what = format!("{path:?}, {kind} {number}");
            if examine(&disk, &version, &path, len, &what) {
                harmless += 1
            } else {
                found += 1
            }
            restore();
        }
    }
    (found, harmless)
}

/// A way to damage bytes, at every place.
type Damage = fn(&[u8]) -> Vec<Vec<u8>>;

const DAMAGES: [(&str, Damage); 6] = [
    ("cut", cuts),
    ("flip", flips),
    ("zeroed block", zeros),
    ("dropped block", drops),
    ("doubled block", doubles),
    ("swap", swaps),
];

/// More damages of a kind than this have to be tried: each byte is cut and flipped, of blocks there are few.
fn least(kind: &str) -> u32 {
    if ["cut", "flip"].contains(&kind) { 100 } else { 4 }
}

fn cuts(bytes: &[u8]) -> Vec<Vec<u8>> {
    (0..bytes.len()).map(|len| bytes[..len].to_vec()).collect()
}

/// One bit of each byte.
fn flips(bytes: &[u8]) -> Vec<Vec<u8>> {
    let flip = |at: usize| {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        flipped
    };
    (0..bytes.len()).map(flip).collect()
}

/// What is lost or misplaced at once: so little that every file has two of them.
const BLOCK: usize = 32;

fn blocks(bytes: &[u8]) -> Vec<Range<usize>> {
    (0..bytes.len()).step_by(BLOCK).map(|at| at..bytes.len().min(at + BLOCK)).collect()
}

fn zeros(bytes: &[u8]) -> Vec<Vec<u8>> {
    let zero = |block: Range<usize>| {
        let mut zeroed = bytes.to_vec();
        zeroed[block].fill(0);
        zeroed
    };
    blocks(bytes).into_iter().map(zero).collect()
}

fn drops(bytes: &[u8]) -> Vec<Vec<u8>> {
    let without = |block: Range<usize>| [&bytes[..block.start], &bytes[block.end..]].concat();
    blocks(bytes).into_iter().map(without).collect()
}

fn doubles(bytes: &[u8]) -> Vec<Vec<u8>> {
    let double = |block: Range<usize>| [&bytes[..block.end], &bytes[block.start..]].concat();
    blocks(bytes).into_iter().map(double).collect()
}

/// Every two blocks in each other's place.
fn swaps(bytes: &[u8]) -> Vec<Vec<u8>> {
    let blocks = blocks(bytes);
    let mut swapped = Vec::new();
    for (number, first) in blocks.iter().enumerate() {
        for second in &blocks[number + 1..] {
            let between = first.end..second.start;
            let parts = [0..first.start, second.clone(), between, first.clone(), second.end..bytes.len()];
            swapped.push(parts.map(|part| &bytes[part]).concat());
        }
    }
    swapped
}

#[test]
fn damaged_segments_and_lists_are_named_or_behind_the_commit() {
    // Of smaller segments more is dead: of those that are sealed, the copied entries.
    let cases = [(small(700), "segment-", 1), (small(300), "segment-", 3), (listed(300), "list-", 1)];
    for (options, part, share) in cases {
        // With the index file and without, where all frames are read on opening.
        for with_index in [true, false] {
            let make = || {
                let (disk, version) = disk_of(Disk::indexed(options));
                if !with_index {
                    for path in files(disk.fs(), "index-") {
                        thalweg_storage::Fs::remove(disk.fs(), &path).unwrap();
                    }
                }
                (disk, version)
            };
            for change in DAMAGES {
                let (found, harmless) = damage(make, part, change);
                let kind = change.0;
                assert!(
                    found * share > harmless,
                    "{options:?} {part} {with_index} {kind}: {found} found, {harmless} not"
                );
                // What is dead or after the commit may be damaged, a list may not.
                assert!(part == "segment-" || harmless == 0, "{kind}: {harmless} not found");
            }
        }
    }
}

#[test]
fn a_damaged_index_file_is_rebuilt() {
    let make = || disk_of(Disk::indexed(small(700)));
    for change in DAMAGES {
        let (found, harmless) = damage(make, "index-", change);
        assert!(found == 0 && harmless > least(change.0), "{}: {found} found, {harmless} not", change.0);
    }
}

#[test]
fn damaged_files_are_named_or_behind_the_commit() {
    let make = || disk_of(Disk::Files { fs: MemFs::new() });
    for change in DAMAGES {
        let (found, harmless) = damage(make, "k", change);
        let is_found = found > harmless && found > least(change.0);
        assert!(is_found && harmless > 0, "{}: {found} found, {harmless} not", change.0);
    }
}

#[test]
fn a_missing_file_is_found_on_opening() {
    for (disk, part) in [
        (Disk::indexed(small(700)), "segment-"),
        (Disk::indexed(listed(300)), "list-"),
        (Disk::Files { fs: MemFs::new() }, "k"),
    ] {
        let (disk, version) = disk_of(disk);
        // The first file holds something committed.
        thalweg_storage::Fs::remove(disk.fs(), &files(disk.fs(), part)[0]).unwrap();
        let error = disk.open(Some(&version)).unwrap_err();
        assert_eq!(error.class(), thalweg_types::Class::Corrupt, "{part}: {error}");
    }
}

#[test]
fn a_newer_format_is_refused_by_name() {
    for (part, make) in [("segment-", Disk::indexed(small(700))), ("list-", Disk::indexed(listed(300)))] {
        let (disk, version) = disk_of(make);
        let path = files(disk.fs(), part).remove(0);
        let mut bytes = disk.fs().bytes(&path).unwrap();
        bytes[8] = 2;
        disk.fs().set_bytes(&path, bytes.clone()).unwrap();
        let error = disk.open(Some(&version)).unwrap_err();
        assert!(matches!(error, StateError::Corrupt { .. }), "a changed bit is no newer format: {error}");
        // The checksum of a segment ends its header, that of a list the file.
        let len = if part == "segment-" { 32 } else { bytes.len() };
        let crc = crc32fast::hash(&bytes[..len - 4]);
        bytes[len - 4..len].copy_from_slice(&crc.to_le_bytes());
        disk.fs().set_bytes(&path, bytes).unwrap();
        let error = disk.open(Some(&version)).unwrap_err();
        assert!(
            matches!(&error, StateError::NewerFormat { found: 2, newest: 1, path: named, .. } if *named == path)
        );
    }
}

#[test]
fn the_state_of_another_task_is_refused() {
    let (disk, version) = disk_of(Disk::indexed(small(700)));
    let fs = std::sync::Arc::new(disk.fs().clone());
    let stranger = thalweg_state::indexed::Indexed::open(fs, Path::new(DIR), 99, small(700), Some(&version));
    assert!(matches!(stranger, Err(StateError::Corrupt { .. })));
    assert_state(disk.open(Some(&version)).unwrap().as_ref(), &state_at(7), &[b"k1".to_vec()]);
}
