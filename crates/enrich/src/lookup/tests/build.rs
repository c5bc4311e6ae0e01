//! Sources that are not all rows, disks that fill up, builds that stop.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use thalweg_storage::{Fault, FaultKind, FaultyFs, Fs, MemFs, RealFs, make_dir};

use super::*;
use crate::lookup::{CsvOptions, Found, LookupError, Stage};

fn from_csv(
    place: &Place,
    text: &[u8],
    max_bad: u64,
    options: CsvOptions,
) -> Result<BuildReport, LookupError> {
    let source = place.0.path().join("source.csv");
    std::fs::write(&source, text).unwrap();
    let mut builder = TableBuilder::new(place.table(), BuildOptions { max_bad, ..BuildOptions::default() });
    let pushed = builder.push_csv(&source, options);
    std::fs::remove_file(&source).unwrap();
    pushed?;
    builder.finish()
}

fn name_of(place: &Place, address: &str) -> (Found, String) {
    let mut out = Vec::new();
    let found = LookupTable::open(place.table()).unwrap().find(key(address), &mut out).unwrap();
    (found, String::from_utf8(out).unwrap())
}

const SOURCE: &str = "1.2.3.4,first.example\n2001:db8::1,\"six, quoted\"\n1.2.3.5,\n1.2.3.4,last.example\n";

#[test]
fn rows_come_from_csv_plain_and_packed() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(SOURCE.as_bytes()).unwrap();
    for text in [SOURCE.as_bytes().to_vec(), packed.finish().unwrap()] {
        let place = Place::new();
        let report = from_csv(&place, &text, 0, CsvOptions::default()).unwrap();
        assert_eq!((report.rows, report.duplicates, report.empty, report.bad), (3, 1, 1, 0));
        assert_eq!(name_of(&place, "1.2.3.4"), (Found::Value, "last.example".to_owned()));
        assert_eq!(name_of(&place, "1.2.3.5"), (Found::Empty, String::new()));
        assert_eq!(name_of(&place, "2001:db8::1"), (Found::Value, "six, quoted".to_owned()));
        assert_eq!(name_of(&place, "1.2.3.6"), (Found::Absent, String::new()));
        assert_eq!(place.files(), ["names.tbl"]);
    }
}

#[test]
fn columns_delimiter_and_header_are_as_told() {
    let place = Place::new();
    let options = CsvOptions { delimiter: b';', has_header: true, address_column: 2, name_column: 0 };
    from_csv(&place, b"name;x;ip\na.example;1;1.2.3.4\n", 0, options).unwrap();
    assert_eq!(name_of(&place, "1.2.3.4"), (Found::Value, "a.example".to_owned()));
}

#[test]
fn lines_that_are_no_rows_are_named_and_counted() {
    let long = "a".repeat(256);
    for (line, reason) in [
        ("1.2.3,x", "expected an address, got \"1.2.3\""),
        ("1.2.3.4", "the name is column 2, got 1 columns"),
        (&format!("1.2.3.4,{long}"), "a name has at most 255 bytes, got 256"),
    ] {
        let place = Place::new();
        let text = format!("9.9.9.9,good.example\n{line}\n");
        let error = from_csv(&place, text.as_bytes(), 0, CsvOptions::default()).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(&format!("source.csv\" line 2: {reason}, and 1 such lines")), "{message}");
        assert_eq!(place.files(), Vec::<String>::new());

        let report = from_csv(&place, text.as_bytes(), 1, CsvOptions::default()).unwrap();
        assert_eq!((report.rows, report.bad), (1, 1));
        assert!(
            report.first_bad[0].to_string().ends_with(&format!("line 2: {reason}")),
            "{:?}",
            report.first_bad
        );
        let public = thalweg_types::Error::from(error).public_chain();
        assert!(public.contains("line 2: ") && !public.contains("1.2.3"), "{public}");
    }
    let place = Place::new();
    let error = from_csv(&place, b"1.2.3.4,\xff\xfe\n", 0, CsvOptions::default()).unwrap_err();
    assert!(error.to_string().contains("line 1: a name is UTF-8, got byte 0xff at 0"), "{error}");
    let report = from_csv(&place, "?\n".repeat(50).as_bytes(), 60, CsvOptions::default()).unwrap();
    assert_eq!((report.bad, report.first_bad.len(), report.rows), (50, 10, 0));
}

#[test]
fn a_row_that_is_handed_over_is_checked_too() {
    let mut builder = TableBuilder::new(Place::new().table(), BuildOptions::default());
    builder.push(key("1.2.3.4"), &[b'a'; 255]).unwrap();
    for name in [&[b'a'; 256][..], b"\xff"] {
        assert!(matches!(builder.push(key("1.2.3.4"), name), Err(LookupError::Row { .. })));
    }
}

/// Pushes all rows and finishes.
fn build_on(fs: Arc<dyn Fs>, path: &Path) -> Result<BuildReport, LookupError> {
    let mut builder = TableBuilder::on(fs, path.to_owned(), BuildOptions { memory: 4000, max_bad: 0 });
    for (key, name) in mixed_rows() {
        builder.push(key, name.as_bytes())?;
    }
    builder.finish()
}

#[test]
fn a_full_disk_leaves_the_old_table_and_no_other_file() {
    let counting = FaultyFs::new(Arc::new(RealFs), None);
    build_on(Arc::new(counting.clone()), &Place::new().table()).unwrap();
    let mut hits = 0;
    for call in (1..=counting.calls()).step_by(3) {
        let place = Place::new();
        build(&place.table(), &[(key("1.2.3.4"), "old.example".to_owned())]);
        let fault = Fault { call, kind: FaultKind::Enospc, stays: false };
        let faulty = FaultyFs::new(Arc::new(RealFs), Some(fault));
        let built = build_on(Arc::new(faulty.clone()), &place.table());
        hits += faulty.hits();
        match built {
            Err(error) => {
                assert!(matches!(&error, LookupError::Io(disk) if disk.is_full()), "call {call}: {error}");
                let is_renamed = error.to_string().contains("sync") && place.files() == ["names.tbl"];
                assert!(is_renamed || name_of(&place, "1.2.3.4") == (Found::Value, "old.example".to_owned()));
                assert_eq!(place.files(), ["names.tbl"], "call {call}");
            }
            // A temporary file could not be removed; the table is there.
            Ok(_) => assert!(LookupTable::open(place.table()).is_ok()),
        }
    }
    assert!(hits > 5, "{hits}");
}

#[test]
fn a_table_is_durable_when_it_is_built() {
    let fs = MemFs::new();
    make_dir(&fs, Path::new("t")).unwrap();
    let report = build_on(Arc::new(fs.clone()), Path::new("t/names.tbl")).unwrap();
    fs.crash();
    assert_eq!(fs.list(Path::new("t")).unwrap(), ["names.tbl"]);
    let file = fs.open(Path::new("t/names.tbl"), thalweg_storage::OpenMode::Read).unwrap();
    assert_eq!(file.len().unwrap(), report.file_bytes);
}

#[test]
fn a_build_tells_how_far_it_is_and_can_be_stopped() {
    for stop_at in [None, Some(Stage::Reading), Some(Stage::Writing)] {
        let place = Place::new();
        let mut seen = Vec::new();
        let mut builder =
            TableBuilder::new(place.table(), BuildOptions::default()).with_progress(|progress| {
                seen.push(*progress);
                if stop_at == Some(progress.stage) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
        let pushed = (0..70_000_u32)
            .try_for_each(|address| builder.push(crate::lookup::address::from_v4(address), b"a.example"));
        let built = pushed.and_then(|()| builder.finish());
        match stop_at {
            None => {
                assert_eq!(built.unwrap().rows, 70_000);
                let stages: Vec<_> = seen.iter().map(|progress| (progress.stage, progress.rows)).collect();
                assert_eq!(stages, [(Stage::Reading, 65_536), (Stage::Writing, 65_536)]);
                assert_eq!(seen[1].rows_expected, 70_000);
            }
            Some(_) => {
                assert!(matches!(built, Err(LookupError::Stopped { .. })));
                assert_eq!(place.files(), Vec::<String>::new());
            }
        }
    }
}
