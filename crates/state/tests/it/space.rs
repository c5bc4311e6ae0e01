//! The disk space of `indexed`: bounded by live bytes, whatever came before.

use thalweg_state::{Backend, Changes, Version};

use crate::harness::{Disk, commit, numbered, scanned, small};

const SEGMENT: u64 = 4096;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

/// Runs cycles on; `space` sees the back end after each commit.
fn run(
    disk: &Disk,
    cycles: std::ops::Range<u64>,
    fill: impl Fn(u64, &mut Changes),
    mut space: impl FnMut(&dyn Backend, u64),
) -> (Box<dyn Backend>, Option<Version>) {
    let backend = disk.open(None).unwrap();
    let (mut changes, mut version) = (Changes::new(), None);
    for cycle in cycles {
        changes.clear();
        fill(cycle, &mut changes);
        version = Some(commit(backend.as_ref(), cycle, &changes));
        space(backend.as_ref(), cycle);
    }
    (backend, version)
}

/// A fixed mixing of numbers.
fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xd1b5_4a32_d192_ed03)
}

/// Segments after a commit, index files left out.
fn in_segments(disk: &Disk) -> u64 {
    let fs = disk.fs();
    let dir = std::path::Path::new(crate::harness::DIR);
    let names = thalweg_storage::Fs::list(fs, dir).unwrap();
    names
        .iter()
        .filter(|name| name.starts_with("segment-"))
        .map(|name| fs.bytes(&dir.join(name)).unwrap().len() as u64)
        .sum()
}

/// The key of a change, by cycle and number in it.
type Pattern = fn(u64, u64) -> u64;

#[test]
fn overwrites_take_less_than_twice_the_live_bytes() {
    // Random keys; all keys in turn; many hot keys and in each cycle one that then rests for long.
    let patterns: [(&str, Pattern); 3] = [
        ("random", |cycle, number| mixed(cycle * 100 + number) % 2000),
        ("in turn", |cycle, number| (cycle * 20 + number) % 2000),
        ("hot", |cycle, number| if number == 0 { 100 + cycle % 900 } else { number }),
    ];
    for (name, pattern) in patterns {
        let disk = Disk::indexed(small(SEGMENT));
        let mut most = 0.0_f64;
        let fill = |cycle: u64, changes: &mut Changes| {
            for number in 0..20 {
                changes.push(&key(pattern(cycle, number)), &[cycle as u8; 60]);
            }
        };
        let (backend, version) = run(&disk, 1..1500, fill, |backend, cycle| {
            if cycle > 300 && cycle.is_multiple_of(7) {
                most = most.max(in_segments(&disk) as f64 / backend.stats().live_bytes as f64);
            }
        });
        let stats = backend.stats();
        assert!(most <= 2.0, "{name}: {most} times the live bytes");
        assert!(name == "in turn" || stats.compactions > 10, "{name}: {stats:?}");
        let written = 1500 * 20 * 90;
        // What is copied out of a frame is one again, so that frames of few small entries become costly ones.
        assert!(stats.copied_bytes * 2 <= 5 * written, "{name}: {} bytes copied", stats.copied_bytes);
        let state = scanned(backend.as_ref()).unwrap();
        drop(backend);
        disk.power_cut(None);
        assert_eq!(scanned(disk.open(version.as_ref()).unwrap().as_ref()).unwrap(), state);
    }
}

#[test]
fn a_single_old_live_key_keeps_no_file() {
    let disk = Disk::indexed(small(SEGMENT));
    let fill = |cycle: u64, changes: &mut Changes| {
        if cycle == 1 {
            changes.push(b"old", b"and alive");
        }
        for number in 0..20 {
            changes.push(&key(number), &[cycle as u8; 60]);
        }
    };
    let (backend, version) = run(&disk, 1..60, fill, |_, _| {});
    assert_eq!(backend.get(b"old").unwrap().unwrap(), b"and alive");
    let oldest = thalweg_storage::Fs::list(disk.fs(), std::path::Path::new(crate::harness::DIR)).unwrap();
    let oldest = oldest.into_iter().find(|name| name.starts_with("segment-")).unwrap();
    assert!(oldest > format!("segment-{:020}", 10), "{oldest}");
    drop(backend);
    let backend = disk.open(version.as_ref()).unwrap();
    assert_eq!(backend.get(b"old").unwrap().unwrap(), b"and alive");
}

#[test]
fn tombstones_go_but_never_before_what_they_hide() {
    let disk = Disk::indexed(small(SEGMENT));
    // A base that stays, and keys that live for three cycles.
    let fill = |cycle: u64, changes: &mut Changes| {
        for number in 0..20 {
            let base = if cycle < 20 { 1_000_000 } else { 2_000_000 };
            changes.push(&key(base + cycle * 20 + number), &[1; 60]);
            if cycle >= 23 {
                changes.remove(&key(2_000_000 + (cycle - 3) * 20 + number));
            }
        }
    };
    let base = 19 * 20;
    let (mut most, mut entries) = (0, 0);
    let (backend, version) = run(&disk, 1..1200, fill, |backend, cycle| {
        if cycle > 100 {
            let stats = backend.stats();
            assert_eq!(stats.keys, base + 60);
            most = most.max(in_segments(&disk));
            entries = entries.max(stats.index_bytes);
        }
    });
    let live = backend.stats().live_bytes;
    assert!(most <= 2 * live + 2 * SEGMENT, "{most} bytes on disk, {live} live");
    // Over 20,000 keys came and went; tombstones of all would take 400 KB.
    assert!(entries < 64 * 2048, "{entries} bytes of index");
    let state = scanned(backend.as_ref()).unwrap();
    assert_eq!(state.len() as u64, base + 60);
    drop(backend);
    // From the segments alone: removed keys stay removed.
    let dir = std::path::Path::new(crate::harness::DIR);
    for name in thalweg_storage::Fs::list(disk.fs(), dir).unwrap() {
        if name.starts_with("index-") {
            thalweg_storage::Fs::remove(disk.fs(), &dir.join(name)).unwrap();
        }
    }
    assert_eq!(scanned(disk.open(version.as_ref()).unwrap().as_ref()).unwrap(), state);
}

#[test]
fn a_start_reads_the_index_file_and_what_is_behind_it() {
    let disk = Disk::indexed(small(1 << 20));
    let fill = |cycle: u64, changes: &mut Changes| {
        for number in 0..100 {
            changes.push(&key(cycle * 100 + number), &[7; 40]);
        }
    };
    let (backend, version) = run(&disk, 1..20, fill, |_, _| {});
    backend.close().unwrap();
    let state = scanned(backend.as_ref()).unwrap();
    drop(backend);
    // Bytes in the middle are not read on opening: a read of the key finds damage there.
    let dir = std::path::Path::new(crate::harness::DIR);
    let path = dir.join(format!("segment-{:020}.ths", 1));
    let whole = disk.fs().bytes(&path).unwrap();
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    disk.fs().set_bytes(&path, bytes).unwrap();
    let backend = disk.open(version.as_ref()).unwrap();
    let failed = state.keys().filter(|key| backend.get(key).is_err()).count();
    assert_eq!(failed, 1);
    drop(backend);
    disk.fs().set_bytes(&path, whole).unwrap();
    assert_eq!(scanned(disk.open(version.as_ref()).unwrap().as_ref()).unwrap(), state);
}

/// Keys of a cycle after which a start has so much to read that a thread reads it ahead.
const MANY: u64 = 16_000;

/// New keys, numbered ones among them, and some old ones that go.
fn changed_much(cycle: u64, changes: &mut Changes) {
    let any_key =
        |number: u64| if number.is_multiple_of(2) { numbered(1, number as u32) } else { key(number) };
    for number in cycle * MANY..(cycle + 1) * MANY {
        changes.push(&any_key(number), &vec![number as u8; 400]);
        if number.is_multiple_of(50) {
            changes.remove(&any_key(number - MANY / 2));
        }
    }
}

#[test]
fn a_long_tail_is_read_ahead_and_gives_the_same_index() {
    // No index file comes by itself: the tail begins after the one in the middle, or with the first segment.
    let disk = Disk::indexed(small(64 << 20));
    let (backend, version) = run(&disk, 1..2, changed_much, |_, _| {});
    backend.close().unwrap();
    drop(backend);
    let backend = disk.open(version.as_ref()).unwrap();
    let mut changes = Changes::new();
    changed_much(2, &mut changes);
    let version = Some(commit(backend.as_ref(), 2, &changes));
    let (state, stats) = (scanned(backend.as_ref()).unwrap(), backend.stats());
    assert!(stats.keys > MANY && stats.live_bytes > 12 << 20, "{stats:?}");
    drop(backend);
    let dir = std::path::Path::new(crate::harness::DIR);
    let names = || thalweg_storage::Fs::list(disk.fs(), dir).unwrap();
    let dumps = || names().into_iter().filter(|name| name.starts_with("index-")).count();
    for left in [1, 0] {
        assert_eq!(dumps(), left);
        let opened = disk.open(version.as_ref()).unwrap();
        assert!(scanned(opened.as_ref()).unwrap() == state, "another state with {left} index files");
        assert_eq!((opened.stats().keys, opened.stats().live_bytes), (stats.keys, stats.live_bytes));
        assert!(opened.stats().index_bytes <= stats.index_bytes * 5 / 4, "{stats:?}, {:?}", opened.stats());
        drop(opened);
        for name in names().into_iter().filter(|name| name.starts_with("index-")) {
            thalweg_storage::Fs::remove(disk.fs(), &dir.join(name)).unwrap();
        }
    }
    // Damage that the thread finds is reported.
    let last = names().into_iter().rfind(|name| name.starts_with("segment-")).unwrap();
    let bytes = disk.fs().bytes(&dir.join(&last)).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    disk.fs().set_bytes(&dir.join(&last), flipped).unwrap();
    let error = disk.open(version.as_ref()).unwrap_err();
    assert!(
        matches!(&error, thalweg_state::StateError::Corrupt { path, .. } if path.ends_with(&last)),
        "{error}"
    );
}

#[test]
fn small_syncs_seldom_change_the_length_of_a_file_and_an_orderly_end_leaves_no_zeros() {
    let disk = Disk::indexed(small(64 << 20));
    let (mut lengths, mut last) = (std::collections::BTreeSet::new(), None);
    let fill = |cycle: u64, changes: &mut Changes| changes.push(&key(cycle % 10), &[cycle as u8; 1000]);
    let (backend, version) = run(&disk, 1..1001, fill, |_, _| {
        lengths.insert(in_segments(&disk));
        last = Some(in_segments(&disk));
    });
    // A megabyte, by a quarter of one at a time.
    assert!((3..=8).contains(&lengths.len()), "{lengths:?}");
    backend.close().unwrap();
    assert!(Some(in_segments(&disk)) < last, "zeros are left");
    let state = scanned(backend.as_ref()).unwrap();
    drop(backend);
    assert_eq!(scanned(disk.open(version.as_ref()).unwrap().as_ref()).unwrap(), state);
}

#[test]
fn zeros_that_find_the_disk_full_are_done_without() {
    use thalweg_storage::{Fault, FaultKind, FaultyFs, Fs};

    let mut spared = 0;
    for call in 1..40 {
        let disk = Disk::indexed(small(64 << 20));
        let version = run(&disk, 1..2, |_, changes| changes.push(b"key", b"old"), |_, _| {}).1;
        drop(disk.open(version.as_ref()).unwrap());
        let fs: std::sync::Arc<dyn Fs> = std::sync::Arc::new(disk.fs().clone());
        let fault = Fault { call, kind: FaultKind::Enospc, stays: false };
        let faulty = FaultyFs::new(fs, Some(fault));
        let Ok(backend) = disk.open_on(std::sync::Arc::new(faulty.clone()), version.as_ref()) else {
            continue;
        };
        let opened = faulty.calls();
        let mut changes = Changes::new();
        changes.push(b"key", b"new");
        let committed = backend.write(2, &changes).is_ok() && backend.prepare(2).is_ok();
        if committed && opened < call && call <= faulty.calls() {
            spared += 1;
            assert_eq!(backend.get(b"key").unwrap().unwrap(), b"new");
        }
    }
    assert_eq!(spared, 1, "of the calls of a write and a sync only the zeros can be done without");
}
