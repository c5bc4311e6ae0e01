//! What the keeper does: full files become Parquet, small ones one, old ones nothing.

use std::sync::Arc;

use thalweg_connect::{OptionValue, SinkResume};
use thalweg_flow::ManualClock;

use crate::drive::{
    Driven, Row, committed, folder, list, options, parquet_rows, rollups, rows_of, sums_in, sums_of,
};

const HOUR: i64 = 3_600_000;
const SECOND: i64 = 1_000_000;

fn rows(times: impl Iterator<Item = i64>) -> Vec<Row> {
    times.map(|time| (time, format!("k{}", time % 7), Some([10, 0, 0, 1]), Some(time))).collect()
}

fn files_of_rollups(snapshot: &thalweg_table::Snapshot) -> Vec<usize> {
    snapshot.rollups.iter().map(|rollup| rollup.files.len()).collect()
}

#[test]
fn full_files_become_parquet_and_their_frames_go() {
    let root = tempfile::tempdir().unwrap();
    let options =
        options(&[("seal_rows", OptionValue::Integer(100)), ("partition", OptionValue::Text("hour".into()))]);
    let mut driven = Driven::open(root.path(), &options, Some(SinkResume::default())).unwrap();
    // Two hours; the second half of the rows stays fresh.
    let first = rows((0..100).map(|n| n * HOUR / 50));
    driven.give(&first);
    let (part, _) = driven.prepare(1);
    assert!(driven.snapshot().files.is_empty(), "uncommitted rows become no Parquet");
    part.committed().unwrap();
    let snapshot = driven.wait_until("files", |snapshot| snapshot.files.len() == 2);
    assert!(
        snapshot.files[0].path.ends_with("rows/1970-01-01T00/00000000.parquet"),
        "{:?}",
        snapshot.files[0]
    );
    assert!(snapshot.files[1].path.ends_with("rows/1970-01-01T01/00000001.parquet"));
    // A column without a value is in no file.
    let stored = parquet_rows(&snapshot.files[0].path);
    let names: Vec<&str> =
        stored[0].schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["ts", "key", "addr", "bytes"]);
    let second = rows(100..110);
    driven.give(&second);
    let resume = driven.commit(2);
    drop(driven);
    let names = std::fs::read_dir(folder(root.path()).join("fresh")).unwrap();
    assert_eq!(names.count(), 1, "the full file's frames are gone, the open one's are there");
    let mut all = [first, second].concat();
    all.sort();
    assert_eq!(rows_of(&committed(root.path(), Some(&resume))), all);
}

#[test]
fn a_file_is_sealed_by_time_too() {
    let root = tempfile::tempdir().unwrap();
    let options = options(&[("seal_every", OptionValue::Duration(10 * SECOND))]);
    let clock = Arc::new(ManualClock::new(0));
    let mut driven =
        Driven::open_by(clock.clone(), root.path(), &options, Some(SinkResume::default())).unwrap();
    driven.give(&rows(0..5));
    driven.commit(1);
    clock.advance(9 * SECOND);
    driven.commit(2);
    clock.advance(SECOND);
    assert!(driven.snapshot().files.is_empty());
    driven.commit(3);
    driven.wait_until("file", |snapshot| snapshot.files.len() == 1 && snapshot.fresh.is_empty());
}

#[test]
fn small_files_are_merged_and_keep_their_rows_and_sums() {
    let root = tempfile::tempdir().unwrap();
    let options = options(&[
        ("seal_rows", OptionValue::Integer(1_000)),
        ("seal_every", OptionValue::Duration(SECOND)),
        ("rollups", rollups()),
    ]);
    let clock = Arc::new(ManualClock::new(0));
    let mut driven =
        Driven::open_by(clock.clone(), root.path(), &options, Some(SinkResume::default())).unwrap();
    let mut all = Vec::new();
    for cycle in 1..=20 {
        clock.advance(2 * SECOND);
        let some = rows((0..10).map(|n| cycle * 10 + n));
        driven.give(&some);
        all.extend(some);
        driven.commit(cycle.unsigned_abs());
    }
    clock.advance(60 * SECOND);
    driven.commit(21);
    let snapshot = driven.wait_until("merged files", |snapshot| {
        snapshot.fresh.is_empty() && snapshot.files.len() < 8 && snapshot.rollups[1].files.len() < 8
    });
    all.sort();
    assert_eq!(rows_of(&snapshot), all);
    assert_eq!(sums_in(&snapshot.rollups[0]), sums_of(&all, 60_000));
    assert_eq!(sums_in(&snapshot.rollups[1]), sums_of(&all, HOUR));
    // Merged rollups have one row per interval and keys again.
    let merged = snapshot.rollups[1].files.iter().map(|file| file.rows).max();
    assert_eq!(merged, Some(7));
    let paths: Vec<_> = snapshot.files.iter().map(|file| file.path.clone()).collect();
    drop((snapshot, driven));
    let folder = folder(root.path()).join("rows").join("1970-01-01");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), paths.len(), "merged files leave the disk");
}

#[test]
fn the_end_of_a_job_sums_each_rollup_up_to_a_file_a_partition() {
    let root = tempfile::tempdir().unwrap();
    let options = options(&[("seal_rows", OptionValue::Integer(100)), ("rollups", rollups())]);
    let mut driven = Driven::open(root.path(), &options, Some(SinkResume::default())).unwrap();
    let mut all = Vec::new();
    // Fewer full files than are merged while a job runs, in two days.
    for cycle in 1..=6 {
        let some = rows((0..100).map(|n| cycle / 4 * 24 * HOUR + n * 10 + cycle));
        driven.give(&some);
        all.extend(some);
        driven.commit(cycle.unsigned_abs());
    }
    let snapshot = driven.wait_until("files", |snapshot| snapshot.fresh.is_empty());
    assert_eq!(files_of_rollups(&snapshot), [6, 6]);
    let resume = driven.commit(7);
    drop((snapshot, driven));
    let snapshot = committed(root.path(), Some(&resume));
    assert_eq!(files_of_rollups(&snapshot), [2, 2]);
    assert_eq!(snapshot.files.len(), 6, "rows are not worth it");
    all.sort();
    assert_eq!(rows_of(&snapshot), all);
    assert_eq!(sums_in(&snapshot.rollups[0]), sums_of(&all, 60_000));
    assert_eq!(sums_in(&snapshot.rollups[1]), sums_of(&all, HOUR));
}

#[test]
fn rows_and_rollups_go_when_they_are_old() {
    let root = tempfile::tempdir().unwrap();
    let OptionValue::Sections(mut sections) = rollups() else { unreachable!() };
    let day = OptionValue::Duration(24 * 3_600 * SECOND);
    sections[1].1.0.insert("retention".to_owned(), day);
    let options = options(&[
        ("seal_rows", OptionValue::Integer(10)),
        ("retention", OptionValue::Duration(3_600 * SECOND)),
        ("rollups", OptionValue::Sections(sections)),
    ]);
    let mut driven = Driven::open(root.path(), &options, Some(SinkResume::default())).unwrap();
    let all: Vec<Vec<Row>> = (0..5).map(|n| rows((0..10).map(|row| n * 12 * HOUR + row))).collect();
    for (cycle, some) in (1..).zip(&all) {
        driven.give(some);
        driven.commit(cycle);
    }
    let snapshot = driven.wait_until("less", |snapshot| {
        snapshot.files.len() == 1 && snapshot.rollups[0].files.len() < 5 && snapshot.fresh.is_empty()
    });
    assert_eq!(rows_of(&snapshot), all[4]);
    // A day, and the interval that it begins in.
    assert_eq!(sums_in(&snapshot.rollups[0]), sums_of(&all[2..].concat(), 60_000));
    assert_eq!(sums_in(&snapshot.rollups[1]), sums_of(&all.concat(), HOUR));
    assert_eq!(snapshot.complete_from, Some((3 * 12 * HOUR + 9) * 1_000 + 1));
    assert_eq!(snapshot.rollups[0].complete_from, Some(12 * HOUR * 1_000 + 1));
    assert_eq!(snapshot.rollups[1].complete_from, None);
}

#[test]
fn a_rollup_that_is_new_or_changed_is_made_of_the_rows_there_are() {
    let root = tempfile::tempdir().unwrap();
    let plain = [("seal_rows", OptionValue::Integer(10))];
    let mut driven = Driven::open(root.path(), &options(&plain), Some(SinkResume::default())).unwrap();
    let all = rows((0..30).map(|n| n * 100_000));
    driven.give(&all);
    let resume = driven.commit(1);
    driven.wait_until("file", |snapshot| snapshot.fresh.is_empty());
    drop(driven);
    let with = options(&[plain[0].clone(), ("rollups", rollups())]);
    let mut driven = Driven::open(root.path(), &with, Some(resume)).unwrap();
    let built = |snapshot: &thalweg_table::Snapshot| snapshot.rollups.len() == 2;
    let snapshot = driven.wait_until("rollups", built);
    assert_eq!(sums_in(&snapshot.rollups[1]), sums_of(&all, HOUR));
    let resume = driven.commit(2);
    drop(driven);
    // Another interval under the same name.
    let OptionValue::Sections(mut sections) = rollups() else { unreachable!() };
    sections[1].1.0.insert("every".to_owned(), OptionValue::Duration(300 * SECOND));
    let with = options(&[plain[0].clone(), ("rollups", OptionValue::Sections(sections))]);
    let driven = Driven::open(root.path(), &with, Some(resume)).unwrap();
    let snapshot = driven.wait_until("rollups", built);
    assert_eq!(sums_in(&snapshot.rollups[0]), sums_of(&all, 300_000));
    assert_eq!(sums_in(&snapshot.rollups[1]), sums_of(&all, HOUR));
}

#[test]
fn columns_may_come_and_go_and_keep_their_type() {
    let root = tempfile::tempdir().unwrap();
    let some = [("seal_rows", OptionValue::Integer(10)), ("drop", list(&["bytes"]))];
    let mut driven = Driven::open(root.path(), &options(&some), Some(SinkResume::default())).unwrap();
    driven.give(&rows(0..15));
    let resume = driven.commit(1);
    drop(driven);
    let mut driven = Driven::open(root.path(), &options(&some[..1]), Some(resume)).unwrap();
    driven.give(&rows(15..20));
    let snapshot = driven.snapshot();
    let mut expected = rows(0..20);
    expected.iter_mut().take(15).for_each(|row| row.3 = None);
    expected.sort();
    assert_eq!(rows_of(&snapshot), expected);
}

#[test]
fn a_job_without_a_data_directory_keeps_its_table_while_it_runs() {
    let root = tempfile::tempdir().unwrap();
    let options = options(&[("seal_rows", OptionValue::Integer(10))]);
    let mut driven = Driven::open(root.path(), &options, None).unwrap();
    let all = rows(0..55);
    for some in all.chunks(10) {
        driven.give(some);
        driven.tick(0);
    }
    let mut expected = all;
    expected.sort();
    assert_eq!(rows_of(&driven.snapshot()), expected);
}

#[test]
fn a_keeper_that_cannot_write_ends_the_job_and_says_where() {
    let root = tempfile::tempdir().unwrap();
    let options = options(&[("seal_rows", OptionValue::Integer(10))]);
    let mut driven = Driven::open(root.path(), &options, Some(SinkResume::default())).unwrap();
    // Where the folder of partitions belongs.
    std::fs::write(folder(root.path()).join("rows"), "in the way").unwrap();
    driven.give(&rows(0..10));
    let (part, resume) = driven.prepare(1);
    let mut error = part.committed().err();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    for cycle in 2.. {
        assert!(std::time::Instant::now() < deadline, "no failure");
        error = error.or_else(|| driven.failure(cycle));
        if error.is_some() {
            break;
        }
    }
    let error = error.unwrap();
    assert!(error.message().starts_with("table job.rows: create ") && error.hint().is_some(), "{error}");
    drop(driven);
    // Nothing is lost by it.
    std::fs::remove_file(folder(root.path()).join("rows")).unwrap();
    let mut all = rows(0..10);
    all.sort();
    assert_eq!(rows_of(&committed(root.path(), Some(&resume))), all);
    let driven = Driven::open(root.path(), &options, Some(resume)).unwrap();
    driven.wait_until("file", |snapshot| snapshot.files.len() == 1 && snapshot.fresh.is_empty());
}

#[test]
fn a_job_that_has_ended_leaves_parquet_and_no_frames() {
    // Whether the last commit comes before the end or after it.
    for is_late in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let options = options(&[]);
        let mut driven = Driven::open(root.path(), &options, Some(SinkResume::default())).unwrap();
        driven.give(&rows(0..10));
        driven.commit(1);
        driven.give(&rows(10..25));
        let (part, resume) = driven.prepare(2);
        if is_late {
            driven.finish().unwrap();
            assert!(driven.snapshot().files.is_empty(), "uncommitted rows become no Parquet");
            part.committed().unwrap();
        } else {
            part.committed().unwrap();
            driven.finish().unwrap();
        }
        drop(driven);
        let snapshot = committed(root.path(), Some(&resume));
        assert_eq!((snapshot.files.len(), snapshot.fresh.len()), (1, 0));
        let mut all = rows(0..25);
        all.sort();
        assert_eq!(rows_of(&snapshot), all);
        let driven = Driven::open(root.path(), &options, Some(resume)).unwrap();
        assert_eq!(rows_of(&driven.snapshot()), all);
    }
}

/// What is left to do when a job ends may go wrong, too.
#[test]
fn a_keeper_that_cannot_write_at_the_end_fails_the_job() {
    for is_late in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let options = options(&[]);
        let mut driven = Driven::open(root.path(), &options, Some(SinkResume::default())).unwrap();
        std::fs::write(folder(root.path()).join("rows"), "in the way").unwrap();
        driven.give(&rows(0..10));
        let (part, resume) = driven.prepare(1);
        let error = if is_late {
            driven.finish().unwrap();
            part.committed().unwrap_err()
        } else {
            part.committed().unwrap();
            driven.finish().unwrap_err()
        };
        assert!(error.message().starts_with("table job.rows: create "), "{error}");
        drop(driven);
        let mut all = rows(0..10);
        all.sort();
        assert_eq!(rows_of(&committed(root.path(), Some(&resume))), all, "nothing is lost by it");
    }
}

/// A capture host whose clock leaps, and a wall that is set for a while.
#[test]
fn one_wrong_clock_deletes_nothing() {
    const THEN: i64 = 1_700_000_000_000;
    const YEAR: i64 = 365 * 24 * HOUR;
    let good = rows((0..120).map(|n| THEN + n * 333));
    let wrong = |ahead: i64| rows((0..3).map(|n| THEN + ahead + n));
    let now = THEN + 3 * YEAR;
    /// Rows, and the wall.
    type Start = (Vec<Row>, i64);
    let cases: [(&str, Vec<Start>); 5] = [
        ("stamps of the future", vec![([&good[..], &wrong(77 * YEAR)].concat(), now), (vec![], now)]),
        ("stamps that may be", vec![([&good[..], &wrong(YEAR)].concat(), now), (vec![], now)]),
        ("a file of their own", vec![(good.clone(), now), (wrong(YEAR), now), (vec![], now)]),
        (
            "a wall that leaps",
            vec![(good.clone(), THEN), (wrong(77 * YEAR), THEN + 77 * YEAR), (vec![], THEN)],
        ),
        (
            "and stays a while",
            vec![
                (good.clone(), THEN),
                (wrong(77 * YEAR), THEN + 77 * YEAR),
                (wrong(78 * YEAR), THEN + 77 * YEAR),
            ],
        ),
    ];
    for (what, starts) in cases {
        let root = tempfile::tempdir().unwrap();
        let OptionValue::Sections(mut sections) = rollups() else { unreachable!() };
        sections[1].1.0.insert("retention".to_owned(), OptionValue::Duration(90 * 24 * 3_600 * SECOND));
        let options = options(&[
            ("retention", OptionValue::Duration(30 * 24 * 3_600 * SECOND)),
            ("rollups", OptionValue::Sections(sections)),
        ]);
        let (mut resume, mut all) = (SinkResume::default(), Vec::new());
        for (cycle, (some, wall)) in (1..).zip(starts) {
            let clock = Arc::new(ManualClock::new(wall * 1_000));
            let mut driven = Driven::open_by(clock, root.path(), &options, Some(resume)).unwrap();
            if !some.is_empty() {
                driven.give(&some);
            }
            all.extend(some);
            resume = driven.commit(cycle);
            driven.finish().unwrap();
            drop(driven);
            all.sort();
            let snapshot = committed(root.path(), Some(&resume));
            assert_eq!(rows_of(&snapshot), all, "{what}, start {cycle}");
            assert_eq!(sums_in(&snapshot.rollups[0]), sums_of(&all, 60_000), "{what}, start {cycle}");
        }
    }
}

#[test]
fn what_is_deleted_is_counted() {
    let root = tempfile::tempdir().unwrap();
    let options = options(&[
        ("seal_rows", OptionValue::Integer(10)),
        ("retention", OptionValue::Duration(3_600 * SECOND)),
    ]);
    let mut driven = Driven::open(root.path(), &options, Some(SinkResume::default())).unwrap();
    for (cycle, hour) in [(1, 0), (2, 2), (3, 4)] {
        driven.give(&rows((0..10).map(|row| hour * HOUR + row)));
        driven.commit(cycle);
    }
    let report = driven.report.clone();
    drop(driven);
    let expired = report.expired();
    assert_eq!((expired.rows, expired.files), (20, 2));
    assert!(expired.bytes > 0);
}
