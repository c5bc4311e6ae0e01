//! What was committed is there once, whatever happened after it.

use std::path::Path;

use proptest::prelude::*;
use thalweg_connect::{OptionValue, Options, SinkResume};

use thalweg_table::read_committed;

use crate::drive::{Driven, Row, committed, folder, name, options, rollups, rows_of, sums_in, sums_of};

const DAY: i64 = 86_400_000;

fn row() -> impl Strategy<Value = Row> {
    let key =
        prop_oneof![Just(String::new()), "[a-c]", Just("a text that is longer than twelve bytes".to_owned())];
    let addr = proptest::option::of([0_u8..2, 0_u8..2, 0_u8..2, 0_u8..2]);
    let bytes = proptest::option::of(prop_oneof![0_i64..10, Just(i64::MAX), Just(i64::MIN)]);
    // A few days and both sides of 1970.
    let time = prop_oneof![-DAY..2 * DAY, 0_i64..120_000];
    (time, key, addr, bytes)
}

#[derive(Clone, Debug)]
enum Step {
    Give(Vec<Row>),
    Commit,
    /// The process ends while a cycle is synced, and not committed.
    CrashBehindSync,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::collection::vec(row(), 1..40).prop_map(Step::Give),
        4 => Just(Step::Commit),
        1 => Just(Step::CrashBehindSync),
        1 => Just(Step::Crash),
    ]
}

/// The folder as a killed process leaves it: copied while the keeper works. The manifest is copied first, so that
/// nothing it names comes too late.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let manifest = from.join("manifest");
    std::fs::copy(&manifest, to.join("manifest")).unwrap();
    let mut open = vec![from.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.strip_prefix(from).unwrap());
            if path.is_dir() {
                std::fs::create_dir_all(&target).unwrap();
                open.push(path);
            } else if path != manifest {
                // It may just have been renamed.
                _ = std::fs::copy(&path, &target);
            }
        }
    }
}

fn sorted(rows: &[Row]) -> Vec<Row> {
    let mut rows = rows.to_vec();
    rows.sort();
    rows
}

fn table_options() -> Options {
    options(&[("seal_rows", OptionValue::Integer(50)), ("rollups", rollups())])
}

fn check(snapshot: &thalweg_table::Snapshot, expected: &[Row]) {
    let rows = rows_of(snapshot);
    assert_eq!(rows, sorted(expected));
    // Rollups cover the rows in files; all else is fresh.
    let fresh: usize = snapshot.fresh.iter().map(|rows| rows.num_rows()).sum();
    let mut stored = snapshot.clone();
    stored.fresh.clear();
    let stored = rows_of(&stored);
    assert_eq!(stored.len() + fresh, rows.len());
    let names: Vec<&str> = snapshot.rollups.iter().map(|rollup| rollup.spec.name.as_str()).collect();
    assert_eq!(names, ["minute", "hour"]);
    assert_eq!(sums_in(&snapshot.rollups[0]), sums_of(&stored, 60_000));
    assert_eq!(sums_in(&snapshot.rollups[1]), sums_of(&stored, 3_600_000));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_there_once_after_any_crash(steps in proptest::collection::vec(step(), 1..40)) {
        let root = tempfile::tempdir().unwrap();
        let mut dir = root.path().join("0").join("job");
        let begin = SinkResume::default();
        let (mut resume, mut cycle) = (begin.clone(), 0);
        let (mut durable, mut all): (Vec<Row>, Vec<Row>) = (Vec::new(), Vec::new());
        let mut driven = Driven::open(&dir, &table_options(), Some(begin)).unwrap();
        for (place, step) in steps.into_iter().enumerate() {
            match step {
                Step::Give(rows) => {
                    driven.give(&rows);
                    all.extend(rows);
                }
                Step::Commit => {
                    cycle += 1;
                    resume = driven.commit(cycle);
                    durable.clone_from(&all);
                }
                Step::CrashBehindSync | Step::Crash => {
                    let part = matches!(step, Step::CrashBehindSync).then(|| driven.prepare(cycle + 1));
                    let next = root.path().join((place + 1).to_string()).join("job");
                    copy(&folder(&dir), &folder(&next));
                    drop((part, driven));
                    dir = next;
                    if resume.position.is_some() {
                        check(&committed(&dir, Some(&resume)), &durable);
                    }
                    driven = Driven::open(&dir, &table_options(), Some(resume.clone())).unwrap();
                    all.clone_from(&durable);
                }
            }
            check(&driven.snapshot(), &all);
            if resume.position.is_some() {
                check(&committed(&dir, Some(&resume)), &durable);
            }
        }
        drop(driven);
        if resume.position.is_some() {
            check(&committed(&dir, Some(&resume)), &durable);
        }
    }
}

#[test]
fn a_table_without_a_commit_is_empty() {
    let root = tempfile::tempdir().unwrap();
    let mut driven = Driven::open(root.path(), &table_options(), Some(SinkResume::default())).unwrap();
    driven.give(&[(1, "a".to_owned(), None, Some(3))]);
    check(&driven.snapshot(), &[(1, "a".to_owned(), None, Some(3))]);
    check(&committed(root.path(), None), &[]);
}

#[test]
fn what_was_never_committed_goes_when_the_table_begins() {
    let root = tempfile::tempdir().unwrap();
    let rows: Vec<Row> = (0..200).map(|n| (n, "a".to_owned(), None, Some(n))).collect();
    let mut driven = Driven::open(root.path(), &table_options(), Some(SinkResume::default())).unwrap();
    driven.give(&rows);
    let part = driven.prepare(1);
    drop((part, driven));
    let fresh = || std::fs::read_dir(folder(root.path()).join("fresh")).unwrap().count();
    assert!(fresh() > 0);
    let driven = Driven::open(root.path(), &table_options(), Some(SinkResume::default())).unwrap();
    check(&driven.snapshot(), &[]);
    assert_eq!(fresh(), 0);
}

#[test]
fn committed_rows_that_the_job_knows_nothing_of_are_not_removed() {
    let root = tempfile::tempdir().unwrap();
    let rows: Vec<Row> = (0..200).map(|n| (n, "a".to_owned(), None, Some(n))).collect();
    let mut driven = Driven::open(root.path(), &table_options(), Some(SinkResume::default())).unwrap();
    driven.give(&rows);
    driven.commit(1);
    driven.wait_until("files", |snapshot| snapshot.fresh.is_empty());
    let resume = driven.commit(2);
    drop(driven);
    // The sink was dropped once; before the first cycle it cannot have been.
    for (cycle, class) in [(3, thalweg_types::Class::User), (0, thalweg_types::Class::Corrupt)] {
        let lost = SinkResume { cycle, ..SinkResume::default() };
        let error = Driven::open(root.path(), &table_options(), Some(lost)).err().unwrap();
        assert_eq!(error.class(), class);
        assert!(error.message().contains("holds 200 rows that were committed"), "{error}");
    }
    let error = read_committed(&name(), &folder(root.path()), || Ok(None)).unwrap_err();
    assert_eq!(error.class(), thalweg_types::Class::User);
    assert!(error.message().contains("a sink that its job had before"), "{error}");
    check(&committed(root.path(), Some(&resume)), &rows);
}

/// The last commit records are lost, and rows that they named are sealed: given again, those would be there twice.
#[test]
fn a_manifest_that_is_ahead_of_the_commit_is_refused_and_nothing_removed() {
    let root = tempfile::tempdir().unwrap();
    let rows: Vec<Row> = (0..80).map(|n| (n, "a".to_owned(), None, Some(n))).collect();
    let mut driven = Driven::open(root.path(), &table_options(), Some(SinkResume::default())).unwrap();
    let empty = driven.commit(1);
    driven.give(&rows[..20]);
    let begun = driven.commit(2);
    // The same file grows, is full, and is sealed.
    driven.give(&rows[20..]);
    driven.commit(3);
    driven.wait_until("files", |snapshot| snapshot.fresh.is_empty());
    let last = driven.commit(4);
    drop(driven);
    let manifest = std::fs::read(folder(root.path()).join("manifest")).unwrap();
    let fs: std::sync::Arc<dyn thalweg_storage::Fs> = std::sync::Arc::new(thalweg_storage::RealFs);
    for (resume, said) in [
        (empty, "below 1 as sealed, and the job's last commit knows of those below 0"),
        (begun, "has sealed 80 rows"),
    ] {
        let opened = Driven::open(root.path(), &table_options(), Some(resume.clone())).err().unwrap();
        let position = || Ok(resume.position.clone());
        let read = read_committed(&name(), &folder(root.path()), position).unwrap_err();
        for error in [opened, read] {
            assert_eq!(error.class(), thalweg_types::Class::Corrupt, "{error}");
            assert!(error.message().contains(said), "{error}");
        }
        let looked = thalweg_table::inspect(&fs, &folder(root.path()), resume.position.as_deref(), true);
        let damage = looked.unwrap().damage;
        assert!(damage.len() == 1 && damage[0].1.contains(said), "{damage:?}");
        assert_eq!(std::fs::read(folder(root.path()).join("manifest")).unwrap(), manifest);
    }
    // Who reads while the job commits has read the older record.
    let reads = std::cell::Cell::new(0);
    let position = || {
        reads.set(reads.get() + 1);
        Ok(if reads.get() == 1 {
            Some(br#"{"version":1,"next":0,"frames":[]}"#.to_vec())
        } else {
            last.position.clone()
        })
    };
    check(&read_committed(&name(), &folder(root.path()), position).unwrap().unwrap(), &rows);
    check(&Driven::open(root.path(), &table_options(), Some(last)).unwrap().snapshot(), &rows);
}

#[test]
fn a_manifest_that_is_short_of_what_was_committed_is_refused_and_nothing_removed() {
    let root = tempfile::tempdir().unwrap();
    let rows: Vec<Row> = (0..120).map(|n| (n, "a".to_owned(), None, Some(n))).collect();
    let mut driven = Driven::open(root.path(), &table_options(), Some(SinkResume::default())).unwrap();
    let mut resume = SinkResume::default();
    for (cycle, some) in (1..).zip(rows.chunks(60)) {
        driven.give(some);
        driven.commit(cycle);
        driven.wait_until("files", |snapshot| snapshot.fresh.is_empty());
        resume = driven.commit(cycle + 10);
    }
    drop(driven);
    let manifest = folder(root.path()).join("manifest");
    let whole = std::fs::read(&manifest).unwrap();
    let parquet = || std::fs::read_dir(folder(root.path()).join("rows").join("1970-01-01")).unwrap().count();
    let files = parquet();
    assert!(files > 0);
    let refusals = || {
        let opened = Driven::open(root.path(), &table_options(), Some(resume.clone())).err().unwrap();
        let position = || Ok(resume.position.clone());
        let read = read_committed(&name(), &folder(root.path()), position).err().unwrap();
        [opened, read]
    };
    for (left, byte) in [(Some(24), 24), (None, 0)] {
        match left {
            Some(bytes) => std::fs::write(&manifest, &whole[..bytes]).unwrap(),
            None => std::fs::remove_file(&manifest).unwrap(),
        }
        for error in refusals() {
            assert_eq!(error.class(), thalweg_types::Class::Corrupt, "{error}");
            let said = format!("manifest\" is damaged at byte {byte}");
            assert!(error.message().contains(&said), "{error}");
        }
        assert_eq!(std::fs::read(&manifest).ok().map(|bytes| bytes.len()), left, "nothing is changed");
        assert_eq!(parquet(), files, "nothing is removed");
    }
    std::fs::write(&manifest, &whole).unwrap();
    let driven = Driven::open(root.path(), &table_options(), Some(resume)).unwrap();
    check(&driven.snapshot(), &rows);
}

/// A change that is cut short is one that a crash has left, unless it had removed what the one before names.
#[test]
fn a_start_without_a_file_that_the_manifest_names_is_refused_and_nothing_removed() {
    let root = tempfile::tempdir().unwrap();
    let rows: Vec<Row> = (0..120).map(|n| (n, "a".to_owned(), None, Some(n))).collect();
    let mut driven = Driven::open(root.path(), &table_options(), Some(SinkResume::default())).unwrap();
    driven.give(&rows);
    driven.commit(1);
    driven.wait_until("files", |snapshot| snapshot.fresh.is_empty());
    let resume = driven.commit(2);
    drop(driven);
    let partition = folder(root.path()).join("rows").join("1970-01-01");
    let list = || {
        let mut paths: Vec<_> =
            std::fs::read_dir(&partition).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let named = list();
    let merged = partition.join("00000099.parquet");
    std::fs::rename(&named[0], &merged).unwrap();
    let error = Driven::open(root.path(), &table_options(), Some(resume.clone())).err().unwrap();
    assert_eq!(error.class(), thalweg_types::Class::Corrupt);
    assert!(error.message().contains(&format!("{:?}, and there is no such file", named[0])), "{error}");
    assert!(merged.exists());
    std::fs::rename(&merged, &named[0]).unwrap();
    std::fs::write(&merged, "a stranger").unwrap();
    check(&Driven::open(root.path(), &table_options(), Some(resume)).unwrap().snapshot(), &rows);
    assert_eq!(list(), named);
}

#[test]
fn a_table_that_is_being_made_is_none_to_readers() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder(root.path()).join("fresh")).unwrap();
    assert!(read_committed(&name(), &folder(root.path()), || Ok(None)).unwrap().is_none());
}

#[test]
fn damaged_rows_are_named_with_file_and_byte() {
    let root = tempfile::tempdir().unwrap();
    let mut driven = Driven::open(root.path(), &options(&[]), Some(SinkResume::default())).unwrap();
    driven.give(&[(1, "a".to_owned(), None, Some(3))]);
    let resume = driven.commit(1);
    drop(driven);
    let path = folder(root.path()).join("fresh").join("00000000.frames");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = Driven::open(root.path(), &options(&[]), Some(resume.clone())).err().unwrap();
    assert_eq!(error.class(), thalweg_types::Class::Corrupt);
    assert!(error.message().contains("00000000.frames") && error.message().contains("byte 48"), "{error}");
    // Shorter than the committed bytes.
    std::fs::write(&path, &bytes[..middle]).unwrap();
    let error = Driven::open(root.path(), &options(&[]), Some(resume.clone())).err().unwrap();
    assert_eq!(error.class(), thalweg_types::Class::Corrupt);
    // Not there at all.
    std::fs::remove_file(&path).unwrap();
    let position = || Ok(resume.position.clone());
    let read = read_committed(&name(), &folder(root.path()), position).unwrap_err();
    let opened = Driven::open(root.path(), &options(&[]), Some(resume.clone())).err().unwrap();
    for error in [read, opened] {
        assert_eq!(error.class(), thalweg_types::Class::Corrupt, "{error}");
        assert!(error.message().contains("00000000.frames\" is named by the last commit"), "{error}");
    }
}

#[test]
fn a_parquet_file_of_another_length_is_damage() {
    let root = tempfile::tempdir().unwrap();
    let rows: Vec<Row> = (0..60).map(|n| (n, "a".to_owned(), None, Some(n))).collect();
    let mut driven = Driven::open(root.path(), &table_options(), Some(SinkResume::default())).unwrap();
    driven.give(&rows);
    driven.commit(1);
    driven.wait_until("files", |snapshot| snapshot.fresh.is_empty());
    let position = driven.commit(2).position;
    drop(driven);
    let partition = folder(root.path()).join("rows").join("1970-01-01");
    let path = std::fs::read_dir(&partition).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&path).unwrap();
    let fs: std::sync::Arc<dyn thalweg_storage::Fs> = std::sync::Arc::new(thalweg_storage::RealFs);
    for left in [0, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..left]).unwrap();
        for verify in [false, true] {
            let found =
                thalweg_table::inspect(&fs, &folder(root.path()), position.as_deref(), verify).unwrap();
            assert!(found.damage.iter().any(|(at, _)| *at == path), "{left} {verify}: {found:?}");
        }
    }
}

#[test]
fn a_format_version_that_changed_is_damage_to_who_looks() {
    let root = tempfile::tempdir().unwrap();
    let mut driven = Driven::open(root.path(), &options(&[]), Some(SinkResume::default())).unwrap();
    driven.give(&[(1, "a".to_owned(), None, Some(3))]);
    let resume = driven.commit(1);
    drop(driven);
    let path = folder(root.path()).join("fresh").join("00000000.frames");
    let mut bytes = std::fs::read(&path).unwrap();
    let fs: std::sync::Arc<dyn thalweg_storage::Fs> = std::sync::Arc::new(thalweg_storage::RealFs);
    use thalweg_types::Class::{Corrupt, User};
    // A changed bit, a newer build, and one of an older build, which has no checksum there.
    let sealed = |bytes: &[u8]| crc32fast::hash(&bytes[..44]).to_le_bytes();
    for (version, seal, class) in
        [(0, 0, Corrupt), (3, 0, Corrupt), (3, 1, User), (3, 2, User), (1, 1, Corrupt)]
    {
        bytes[8] = version;
        match seal {
            0 => {}
            1 => {
                let crc = sealed(&bytes);
                bytes[44..48].copy_from_slice(&crc);
            }
            _ => bytes[44..48].fill(0),
        }
        if version == 1 {
            // A bit of the zeros.
            bytes[20] ^= 1;
        }
        std::fs::write(&path, &bytes).unwrap();
        let looked = thalweg_table::inspect(&fs, &folder(root.path()), resume.position.as_deref(), false);
        assert_eq!(looked.unwrap().damage.len(), 1);
        let error = Driven::open(root.path(), &options(&[]), Some(resume.clone())).err().unwrap();
        assert_eq!(error.class(), class, "{error}");
    }
}
