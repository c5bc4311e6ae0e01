//! What each file system promises, and that the strict ones break what they say they break.

use std::sync::Arc;

use super::*;

fn mem() -> MemFs {
    let fs = MemFs::new();
    make_dir(&fs, Path::new("/d")).unwrap();
    fs
}

#[test]
fn crash_loses_unsynced_bytes_and_names() {
    let fs = mem();
    let path = Path::new("/d/a");
    let file = fs.open(path, OpenMode::CreateNew).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    file.sync_data().unwrap();
    fs.sync_dir(Path::new("/d")).unwrap();
    file.write_all_at(b"lost", 4).unwrap();
    file.write_all_at(b"K", 0).unwrap();
    fs.open(Path::new("/d/b"), OpenMode::CreateNew).unwrap().sync_data().unwrap();
    assert_eq!(fs.list(Path::new("/d")).unwrap(), ["a", "b"]);

    fs.crash();
    assert_eq!(fs.list(Path::new("/d")).unwrap(), ["a"]);
    assert_eq!(fs.bytes(path).unwrap(), b"kept");
    assert!(file.len().is_err(), "handles die with the process");
}

#[test]
fn publish_is_all_or_nothing_at_every_failing_call_and_crash() {
    let path = Path::new("/d/pointer");
    for call in 1..=8 {
        for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite] {
            let disk = mem();
            publish(&disk, path, b"old").unwrap();
            let faulty = FaultyFs::new(Arc::new(disk.clone()), Some(Fault { call, kind, stays: false }));
            let outcome = publish(&faulty, path, b"newer");
            let now = disk.bytes(path).unwrap();
            assert!(now == b"old" || now == b"newer", "call {call}: {now:?}");
            disk.crash();
            let left = disk.bytes(path).unwrap();
            assert!(left == b"old" || left == b"newer", "call {call} and crash: {left:?}");
            assert!(outcome.is_err() || left == b"newer", "call {call}: ok means durable");
        }
    }
}

#[test]
fn a_sync_after_a_failed_one_keeps_nothing() {
    let disk = mem();
    let faulty =
        FaultyFs::new(Arc::new(disk.clone()), Some(Fault { call: 3, kind: FaultKind::Eio, stays: false }));
    let file = faulty.open(Path::new("/d/a"), OpenMode::CreateNew).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    assert!(file.sync_data().is_err());
    assert!(file.sync_data().is_ok(), "the kernel calls the pages clean");
    assert_eq!(faulty.hits(), 1);
    disk.crash();
    assert_eq!(disk.bytes(Path::new("/d/a")).unwrap(), b"");
}

#[test]
fn what_a_failed_sync_lost_comes_to_the_disk_where_it_is_written_again() {
    for is_again in [false, true] {
        let disk = mem();
        let path = Path::new("/d/a");
        let file = disk.open(path, OpenMode::CreateNew).unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_all_at(b"ab", 0).unwrap();
        file.sync_data().unwrap();
        file.write_all_at(b"cd", 2).unwrap();
        disk.lose_unsynced(path).unwrap();
        assert_eq!(disk.bytes(path).unwrap(), b"abcd", "readers see it");
        if is_again {
            write_again(&*file, 2..4).unwrap();
        }
        file.write_all_at(b"e", 4).unwrap();
        file.sync_data().unwrap();
        disk.crash();
        let expected: &[u8] = if is_again { b"abcde" } else { b"ab\0\0e" };
        assert_eq!(disk.bytes(path).unwrap(), expected);
    }
}

#[test]
fn torn_crash_keeps_some_sectors() {
    let mut images = std::collections::BTreeSet::new();
    for seed in 0..32 {
        let fs = mem();
        let file = fs.open(Path::new("/d/a"), OpenMode::CreateNew).unwrap();
        fs.sync_dir(Path::new("/d")).unwrap();
        file.write_all_at(&[7; 1500], 0).unwrap();
        fs.crash_torn(seed);
        images.insert(fs.bytes(Path::new("/d/a")).unwrap());
    }
    assert!(images.len() > 4, "{} different images", images.len());
}

#[test]
fn real_files_read_write_cut_and_list() {
    let dir = std::env::temp_dir().join(format!("thalweg-fs-{}", std::process::id()));
    let fs = RealFs;
    make_dir(&fs, &dir).unwrap();
    let path = dir.join("a");
    publish(&fs, &path, b"hello").unwrap();
    let file = fs.open(&path, OpenMode::Write).unwrap();
    assert_eq!(file.append(b" world").unwrap(), 5);
    file.truncate(8).unwrap();
    file.preallocate(100_000).unwrap();
    let mut buffer = [1; 10];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"hello wo\0\0");
    assert_eq!(file.len().unwrap(), 100_000);
    assert_eq!(fs.list(&dir).unwrap(), ["a"]);
    assert_eq!(fs.open(&path, OpenMode::CreateNew).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    fs.remove(&path).unwrap();
    fs.remove_dir(&dir).unwrap();
}

#[test]
fn files_and_folders_are_listed_apart() {
    let real = tempfile::tempdir().unwrap();
    let systems: [(Box<dyn Fs>, &Path); 2] =
        [(Box::new(RealFs), real.path()), (Box::new(mem()), Path::new("/d"))];
    for (fs, dir) in systems {
        make_dir(fs.as_ref(), &dir.join("b/below")).unwrap();
        make_dir(fs.as_ref(), &dir.join("a")).unwrap();
        fs.open(&dir.join("file"), OpenMode::CreateNew).unwrap();
        assert_eq!(fs.list_dirs(dir).unwrap(), ["a", "b"], "{fs:?}");
        assert_eq!(fs.list(dir).unwrap(), ["file"]);
        assert!(fs.list_dirs(&dir.join("none")).is_err());
    }
}

#[test]
fn a_folder_that_was_made_is_there_after_a_crash_at_every_failing_call_and_before_it() {
    let (dir, file) = (Path::new("/new/a/D/tasks/m"), Path::new("/new/a/D/tasks/m/file"));
    let whole = FaultyFs::new(Arc::new(MemFs::new()), None);
    make_dir(&whole, dir).unwrap();
    for call in 1..=whole.calls() {
        let disk = MemFs::new();
        let fault = Fault { call, kind: FaultKind::Eio, stays: true };
        // As a process that is killed there, whose successor finds its files.
        let killed = FaultyFs::new(Arc::new(disk.clone()), Some(fault));
        assert!(make_dir(&killed, dir).is_err(), "call {call}");
        make_dir(&disk, dir).unwrap();
        disk.open(file, OpenMode::CreateNew).unwrap().sync_data().unwrap();
        disk.sync_dir(dir).unwrap();
        disk.crash();
        assert_eq!(disk.list(dir).unwrap(), ["file"], "call {call}");
    }
}

#[test]
fn a_folder_whose_name_was_not_synced_is_lost_with_all_that_is_in_it() {
    let disk = mem();
    for dir in ["/d/a", "/d/a/b"] {
        disk.create_dir(Path::new(dir)).unwrap();
    }
    disk.open(Path::new("/d/a/b/file"), OpenMode::CreateNew).unwrap().sync_data().unwrap();
    for dir in ["/d/a/b", "/d/a"] {
        disk.sync_dir(Path::new(dir)).unwrap();
    }
    disk.crash();
    assert!(disk.list(Path::new("/d/a/b")).is_err() && disk.list_dirs(Path::new("/d")).unwrap().is_empty());
}

#[test]
fn a_real_folder_is_made_whole_or_found() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("new/a/D");
    for _ in 0..2 {
        make_dir(&RealFs, &dir).unwrap();
        assert!(dir.is_dir());
    }
    std::fs::write(root.path().join("file"), "").unwrap();
    assert!(make_dir(&RealFs, &root.path().join("file/below")).is_err());
    make_dir(&RealFs, Path::new(".")).unwrap();
}
