//! Keys that were chosen to share a public hash are keys of their own, and what earlier builds found keys by is read.

use std::path::{Path, PathBuf};

use thalweg_state::indexed::inspect;
use thalweg_state::memory::MemoryDisk;
use thalweg_state::testing::twin;
use thalweg_state::{Changes, Version, wire};
use thalweg_storage::{Fs, MemFs};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::harness::{DIR, Disk, State, apply, assert_state, commit, small};

fn changes(changes: &[(&[u8], Option<&[u8]>)]) -> Changes {
    let mut all = Changes::new();
    for (key, value) in changes {
        match value {
            Some(value) => all.push(key, value),
            None => all.remove(key),
        }
    }
    all
}

#[test]
fn anybody_makes_as_many_keys_of_one_public_hash_as_they_like() {
    let hashes: std::collections::BTreeSet<u128> =
        (0..1000).map(|number| xxh3_128(&twin(number * 0x9e37_79b9))).collect();
    assert_eq!(hashes.len(), 1);
}

#[test]
fn keys_of_one_public_hash_share_nothing() {
    let twins: Vec<Vec<u8>> = (0..200).map(twin).collect();
    for disk in [
        Disk::indexed(small(3_000)),
        Disk::Files { fs: MemFs::new() },
        Disk::Memory { disk: MemoryDisk::new() },
    ] {
        let (mut state, mut version, mut backend) = (State::new(), None, disk.open(None).unwrap());
        for cycle in 1..12 {
            let mut some = Changes::new();
            for (number, twin) in twins.iter().enumerate() {
                match (number as u64 * 7 + cycle) % 5 {
                    0 => some.remove(twin),
                    1 | 2 => some.push(twin, format!("{number} of {cycle}").as_bytes()),
                    _ => {}
                }
            }
            version = Some(commit(backend.as_ref(), cycle, &some));
            apply(&mut state, &some);
            assert_state(backend.as_ref(), &state, &twins);
            if cycle % 2 == 0 {
                backend.close().unwrap();
            }
            drop(backend);
            backend = disk.open(version.as_ref()).unwrap();
            assert_state(backend.as_ref(), &state, &twins);
        }
        assert!(version.is_some() && state.len() > 50);
    }
}

fn index_files(fs: &MemFs) -> Vec<PathBuf> {
    let names = fs.list(Path::new(DIR)).unwrap();
    names.iter().filter(|name| name.starts_with("index-")).map(|name| Path::new(DIR).join(name)).collect()
}

/// Format 2 had no key of the hash, and fingerprints that anybody can make.
#[test]
fn an_index_file_of_an_earlier_format_is_left_out_and_is_no_damage() {
    let disk = Disk::indexed(small(1 << 20));
    let Disk::Indexed { fs, .. } = &disk else { unreachable!() };
    let backend = disk.open(None).unwrap();
    let some = changes(&[(&twin(1), Some(b"one")), (&twin(2), Some(b"two")), (b"short", Some(b"three"))]);
    let version = commit(backend.as_ref(), 1, &some);
    backend.close().unwrap();
    drop(backend);
    let path = index_files(fs).pop().unwrap();
    let new = fs.bytes(&path).unwrap();
    // Magic 8, format 2, zero 2, identity 8, place 20, then the key.
    let mut old = [&new[..8], &2_u16.to_le_bytes(), &new[10..40], &new[56..new.len() - 4]].concat();
    wire::seal(&mut old);
    fs.set_bytes(&path, old).unwrap();
    let summary = inspect(fs, Path::new(DIR), Some(&version)).unwrap();
    assert!(summary.damage.is_empty(), "{:?}", summary.damage);
    let backend = disk.open(Some(&version)).unwrap();
    assert!(index_files(fs).is_empty(), "it was removed");
    let mut state = State::new();
    apply(&mut state, &some);
    assert_state(backend.as_ref(), &state, &[twin(1), twin(2)]);
    backend.close().unwrap();
    assert_eq!(fs.bytes(&path).unwrap()[8..10], 3_u16.to_le_bytes());
}

#[test]
fn each_folder_has_a_hash_of_its_own_and_keeps_it() {
    let keys: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let disk = Disk::indexed(small(1 << 20));
            let Disk::Indexed { fs, .. } = &disk else { unreachable!() };
            let mut version: Option<Version> = None;
            let mut keys = Vec::new();
            for cycle in 1..3 {
                let backend = disk.open(version.as_ref()).unwrap();
                version = Some(commit(backend.as_ref(), cycle, &changes(&[(b"a key", Some(b"a value"))])));
                backend.close().unwrap();
                keys.push(fs.bytes(&index_files(fs).pop().unwrap()).unwrap()[40..56].to_vec());
            }
            assert_eq!(keys[0], keys[1], "the index file has it");
            keys.pop().unwrap()
        })
        .collect();
    assert_ne!(keys[0], keys[1]);
}

/// As a build before SHA-256 named and counted files.
#[test]
fn files_that_an_earlier_build_named_go_on_until_their_keys_are_written() {
    let fs = MemFs::new();
    let disk = Disk::Files { fs: fs.clone() };
    let keys = [vec![1; 200], vec![2; 300], vec![3; 101], vec![4; 100]];
    let mut state = State::new();
    let first = changes(&keys.each_ref().map(|key| (&key[..], Some(&b"early"[..]))));
    apply(&mut state, &first);
    commit(disk.open(None).unwrap().as_ref(), 4, &first);
    let early_name = |key: &[u8]| {
        let hex: String = xxh3_128(key).to_be_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("h{hex}.{:020}", 4)
    };
    let mut bytes = 1_u16.to_le_bytes().to_vec();
    let mut digest = 0;
    for name in fs.list(Path::new(DIR)).unwrap() {
        let content = fs.bytes(&Path::new(DIR).join(&name)).unwrap();
        let key_len = u32::from_le_bytes(content[28..32].try_into().unwrap()) as usize;
        let key = &content[40..40 + key_len];
        let early = if key_len > 100 { early_name(key) } else { name.clone() };
        fs.rename(&Path::new(DIR).join(name), &Path::new(DIR).join(&early)).unwrap();
        digest ^= xxh3_64(early.as_bytes());
    }
    fs.sync_dir(Path::new(DIR)).unwrap();
    for field in [4_u64, 4, digest] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    wire::seal(&mut bytes);
    let version = Version::from_bytes(bytes);

    let backend = disk.open(Some(&version)).unwrap();
    assert_state(backend.as_ref(), &state, &keys);
    // One is changed, one goes, one is left as it is; a crash before the commit undoes it.
    let more = changes(&[(&keys[0], Some(b"changed")), (&keys[1], None)]);
    backend.write(5, &more).unwrap();
    drop(backend);
    fs.crash();
    let backend = disk.open(Some(&version)).unwrap();
    assert_state(backend.as_ref(), &state, &keys);
    let version = commit(backend.as_ref(), 5, &more);
    apply(&mut state, &more);
    assert_state(backend.as_ref(), &state, &keys);
    drop(backend);
    let backend = disk.open(Some(&version)).unwrap();
    assert_state(backend.as_ref(), &state, &keys);
    let left: Vec<bool> =
        keys[..3].iter().map(|key| fs.list(Path::new(DIR)).unwrap().contains(&early_name(key))).collect();
    assert_eq!(left, [false, false, true]);
}
