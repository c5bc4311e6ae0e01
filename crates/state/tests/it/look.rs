//! Looking into a folder of the `indexed` back end: it knows what opening knows, and leaves every byte alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thalweg_state::indexed::{IndexedOptions, StateSummary, inspect, is_state_folder, version_in};
use thalweg_state::{Changes, StateError, Version};
use thalweg_storage::{Fs, MemFs};

use crate::harness::{DIR, Disk, IDENTITY, commit, listed, small};

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Few keys that come and go, above many that rest: without those nothing would be worth more than one segment.
fn changes_of(cycle: u64) -> Changes {
    let mut changes = Changes::new();
    for number in 0..4 {
        changes.push(format!("rests{cycle}-{number}").as_bytes(), &[9; 24]);
    }
    for number in 0..6_u64 {
        changes.push(format!("k{}", (cycle * 2 + number) % 9).as_bytes(), &[cycle as u8; 24]);
    }
    changes.remove(format!("k{}", cycle % 9).as_bytes());
    changes
}

/// Some committed cycles, with sealed segments and an index file.
fn disk(options: IndexedOptions) -> (Disk, Version) {
    let disk = Disk::indexed(options);
    let backend = disk.open(None).unwrap();
    let mut version = None;
    for cycle in 1..=9 {
        version = Some(commit(backend.as_ref(), cycle, &changes_of(cycle)));
    }
    backend.close().unwrap();
    (disk, version.unwrap())
}

fn files(fs: &MemFs) -> Files {
    let names = fs.list(Path::new(DIR)).unwrap();
    names
        .iter()
        .map(|name| Path::new(DIR).join(name))
        .map(|path| (path.clone(), fs.bytes(&path).unwrap()))
        .collect()
}

fn look(disk: &Disk, version: Option<&Version>) -> StateSummary {
    inspect(disk.fs(), Path::new(DIR), version).unwrap()
}

#[test]
fn a_look_knows_what_opening_knows() {
    for options in [small(350), listed(350)] {
        let (disk, version) = disk(options);
        let before = files(disk.fs());
        let looks = [look(&disk, Some(&version)), look(&disk, None)];
        assert_eq!(files(disk.fs()), before, "nothing changed");
        assert!(is_state_folder(disk.fs(), Path::new(DIR)).unwrap());
        let stats = disk.open(Some(&version)).unwrap().stats();
        for found in looks {
            assert_eq!((found.keys, found.live_bytes), (stats.keys, stats.live_bytes));
            assert_eq!(found.segments.len() as u64, stats.segments);
            assert!(
                found.segments.len() > 1
                    && found.segments.iter().filter(|segment| !segment.is_sealed).count() == 1
            );
            assert_eq!(found.identity, Some(IDENTITY));
            assert_eq!(found.cycles.unwrap().1, 9);
            assert_eq!(found.disk_bytes, before.values().map(|bytes| bytes.len() as u64).sum::<u64>());
            assert!(
                found.damage.is_empty() && found.torn.is_empty() && found.leftovers.is_empty(),
                "{found:?}"
            );
            assert_eq!(found.index_files.len(), 1);
            let live: u64 = found.segments.iter().map(|segment| segment.live_entries).sum();
            assert!(
                live >= found.keys
                    && found.segments.iter().all(|segment| segment.entries >= segment.live_entries)
            );
        }
    }
}

#[test]
fn every_flipped_bit_of_what_counts_is_named_with_its_file() {
    for options in [small(350), listed(350)] {
        let (disk, version) = disk(options);
        let whole = files(disk.fs());
        assert!(whole.len() > 3, "{:?}", whole.keys());
        for (path, bytes) in &whole {
            for byte in 0..bytes.len() {
                let mut flipped = bytes.clone();
                flipped[byte] ^= 1 << (byte % 8);
                disk.fs().set_bytes(path, flipped).unwrap();
                let found = look(&disk, Some(&version));
                let named = |damage: &StateError| matches!(damage, StateError::Corrupt { path: named, .. } if named == path);
                assert!(found.damage.iter().any(named), "{path:?} byte {byte}: {:?}", found.damage);
            }
            disk.fs().set_bytes(path, bytes.clone()).unwrap();
        }
    }
}

#[test]
fn what_no_commit_names_is_named_and_no_damage() {
    let (disk, version) = disk(small(4000));
    let backend = disk.open(Some(&version)).unwrap();
    let mut changes = Changes::new();
    changes.push(b"k1", &[1; 40]);
    backend.write(10, &changes).unwrap();
    let found = look(&disk, Some(&version));
    assert!(found.damage.is_empty());
    let [behind] = found.torn.as_slice() else { panic!("{found:?}") };
    assert!(
        behind.path == found.segments.last().unwrap().path
            && behind.pos == found.segments.last().unwrap().bytes
    );
    // Without the version it counts, and a cut at its end is torn.
    let active = behind.path.clone();
    let bytes = disk.fs().bytes(&active).unwrap();
    assert!(look(&disk, None).torn.is_empty());
    disk.fs().set_bytes(&active, bytes[..bytes.len() - 1].to_vec()).unwrap();
    let found = look(&disk, None);
    assert!(found.damage.is_empty() && found.torn.len() == 1, "{found:?}");
    assert_eq!(found.torn[0].pos + found.torn[0].bytes, bytes.len() as u64 - 1);
    // A commit that names more than there is.
    disk.fs().set_bytes(&active, bytes[..found.torn[0].pos as usize - 1].to_vec()).unwrap();
    assert!(
        matches!(look(&disk, Some(&version)).damage[..], [StateError::Corrupt { ref path, .. }] if *path == active)
    );
}

#[test]
fn a_version_is_found_wherever_it_stands_in_a_part() {
    let (_, version) = disk(small(4000));
    let part = [b"\x01.\0\0\0", version.as_bytes(), b"and more"].concat();
    assert_eq!(version_in(&part), Some(version.clone()));
    let mut flipped = part.clone();
    flipped[20] ^= 1;
    assert_eq!(version_in(&flipped), None);
    assert_eq!(version_in(&part[..40]), None);
}
