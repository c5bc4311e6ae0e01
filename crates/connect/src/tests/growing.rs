//! Files that are written while they are read: grown, emptied, written anew, edited, exchanged; and the next run.

use std::path::{Path, PathBuf};

use thalweg_flow::{SourcePosition, Waker};

use super::*;
use crate::BuiltSource;

/// How one format writes a record, and how a file of it begins.
struct Form {
    format: FormatSpec,
    header: &'static str,
    line: fn(i64) -> String,
}

fn forms() -> Vec<Form> {
    let headless = [("header", OptionValue::Bool(false))];
    let report = [("comment", text("#")), ("skip_lines", OptionValue::Integer(2))];
    vec![
        Form { format: spec("csv", &[]), header: "ts,k,x\n", line: |n| format!("{n},a,{n}.5\n") },
        Form { format: spec("csv", &headless), header: "", line: |n| format!("{n},a,{n}.5\n") },
        Form {
            format: spec("ndjson", &[]),
            header: "",
            line: |n| format!("{{\"ts\":{n},\"k\":\"a\",\"x\":{n}.5}}\n"),
        },
        Form {
            format: spec("line_protocol", &[("precision", text("ms"))]),
            header: "",
            line: |n| format!("m,k=a x={n}.5 {n}\n"),
        },
        Form {
            format: spec("csv", &report),
            header: "\"Report\n\n# c\nts,k,x\n",
            line: |n| format!("{n},a,{n}.5\n"),
        },
        Form {
            format: spec("csv", &report[..1]),
            header: "# c\nts,k,x\n",
            line: |n| format!("{n},a,{n}.5\n"),
        },
    ]
}

impl Form {
    fn lines(&self, numbers: std::ops::Range<i64>) -> String {
        numbers.map(self.line).collect()
    }

    /// A source of a job that goes on.
    fn build(&self, path: &Path, follow: bool) -> Result<BuiltSource, Error> {
        let schema = schema("ts: timestamp(ms); k: string; x: float64");
        let entries = [("path", paths_value([path])), ("follow", OptionValue::Bool(follow))];
        let context = context(&schema, Some(self.format.clone()), &entries);
        Registry::builtin().source("file").unwrap().build(SourceContext { goes_on: true, ..context })
    }

    fn open(&self, path: &Path, follow: bool) -> BuiltSource {
        let mut built = self.build(path, follow).unwrap();
        built.source.start(Waker::new(|| {})).unwrap();
        built
    }

    /// A source that goes on at a place.
    fn go_on(&self, path: &Path, follow: bool, position: &SourcePosition) -> Result<BuiltSource, Error> {
        let mut built = self.build(path, follow)?;
        built.source.restore(position)?;
        built.source.start(Waker::new(|| {}))?;
        Ok(built)
    }
}

/// The times of the records that can be read, or the beginning of a refused one.
fn read(built: &mut BuiltSource) -> Result<Vec<String>, Error> {
    let mut decoder = (built.decoder)(&task()).unwrap();
    let mut lines = BTreeMap::new();
    while let Poll::Block(block) = built.source.poll(1 << 16, ARRIVAL)? {
        render(&decode(&mut *decoder, &block).unwrap(), &mut lines);
    }
    Ok(lines.into_values().map(|line| line.split("ms | ").next().unwrap_or_default().to_owned()).collect())
}

fn times(numbers: std::ops::Range<i64>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    (folder, path)
}

/// Each case: every form, followed or not.
fn each(check: impl Fn(&Form, &Path, bool)) {
    for form in forms() {
        for follow in [false, true] {
            let (_folder, path) = folder();
            check(&form, &path, follow);
        }
    }
}

#[test]
fn a_line_without_its_end_is_no_record_of_a_job_that_goes_on() {
    each(|form, path, follow| {
        let whole = form.header.to_owned() + &form.lines(1..4);
        for cut in form.header.len()..whole.len() {
            std::fs::write(path, &whole[..cut]).unwrap();
            let mut first = form.open(path, follow);
            let mut all = read(&mut first).unwrap();
            let position = first.source.position();
            std::fs::write(path, &whole).unwrap();
            all.extend(read(&mut form.go_on(path, follow, &position).unwrap()).unwrap());
            assert_eq!(all, times(1..4), "stopped after {:?}", &whole[..cut]);
        }
    });
}

#[test]
fn a_stray_quote_at_the_end_of_a_file_costs_its_line_in_a_job_that_goes_on() {
    let form = &forms()[0];
    let (_folder, path) = folder();
    std::fs::write(&path, "ts,k,x\n1,a,1\n2,\"5 inch,2\n3,a,3\n4,a,4\n").unwrap();
    let mut built = form.open(&path, false);
    let read_of = read(&mut built).unwrap();
    assert_eq!(
        (read_of.len(), &read_of[0], &read_of[2], &read_of[3]),
        (4, &"1".into(), &"3".into(), &"4".into())
    );
    // A record over several lines that is not all there may come to its end.
    std::fs::write(&path, "ts,k,x\n1,a,1\n2,\"two\nlines\n").unwrap();
    let mut built = form.open(&path, false);
    assert_eq!(read(&mut built).unwrap(), ["1"]);
    let position = built.source.position();
    std::fs::write(&path, "ts,k,x\n1,a,1\n2,\"two\nlines\n\",2\n").unwrap();
    assert_eq!(read(&mut form.go_on(&path, false, &position).unwrap()).unwrap(), ["2"]);
}

#[test]
fn a_file_that_was_emptied_and_written_past_the_place_is_read_from_its_beginning() {
    for form in forms() {
        for header in [form.header, ""] {
            let (_folder, path) = folder();
            std::fs::write(&path, form.header.to_owned() + &form.lines(1..3)).unwrap();
            let mut built = form.open(&path, true);
            let mut all = read(&mut built).unwrap();
            std::fs::write(&path, header.to_owned() + &form.lines(3..9)).unwrap();
            all.extend(read(&mut built).unwrap());
            // The place in the new file is known, too, also by the next run.
            let position = built.source.position();
            std::fs::write(&path, header.to_owned() + &form.lines(3..11)).unwrap();
            all.extend(read(&mut form.go_on(&path, true, &position).unwrap()).unwrap());
            all.extend(read(&mut built).unwrap());
            std::fs::write(&path, header.to_owned() + &form.lines(11..30)).unwrap();
            all.extend(read(&mut form.go_on(&path, true, &position).unwrap()).unwrap());
            let expected = [times(1..11), times(9..11), times(11..30)].concat();
            assert_eq!(all, expected, "header {header:?}");
        }
    }
}

/// The place is within a line of the new contents.
#[test]
fn half_a_line_of_a_file_that_was_emptied_is_not_joined_with_the_new_one() {
    let form = &forms()[0];
    let (_folder, path) = folder();
    std::fs::write(&path, "ts,k,x\n1,a,1\n2,a,").unwrap();
    let mut built = form.open(&path, true);
    assert_eq!(read(&mut built).unwrap(), ["1"]);
    std::fs::write(&path, "ts,k,x\n1,a,1\n3,b,3\n4,b,4\n").unwrap();
    let all = read(&mut built).unwrap();
    assert_eq!(all[1..], times(1..2).into_iter().chain(times(3..5)).collect::<Vec<_>>());
    assert!(all[0].starts_with("! parse"), "{all:?}");
}

#[test]
fn a_header_with_other_columns_holds_for_a_file_that_was_emptied() {
    let form = &forms()[0];
    let (_folder, path) = folder();
    std::fs::write(&path, "ts,k,x\n1,a,1\n").unwrap();
    let mut built = form.open(&path, true);
    assert_eq!(read(&mut built).unwrap(), ["1"]);
    std::fs::write(&path, "k,x,more,ts\na,1,,2\nb,2,,3\n").unwrap();
    assert_eq!(read(&mut built).unwrap(), ["2", "3"]);
}

/// A file of 600 records, and the same with one of them written otherwise and another one at the end.
fn edited(form: &Form, place: usize) -> (String, String) {
    let mut lines: Vec<String> = (1000..1600).map(form.line).collect();
    let before = form.header.to_owned() + &lines.concat();
    lines[place] = lines[place].replace(".5", ".50000000");
    (before, form.header.to_owned() + &lines.concat() + &(form.line)(2000))
}

#[test]
fn a_file_that_was_edited_is_refused() {
    each(|form, path, follow| {
        let (before, after) = edited(form, 520);
        for is_stopped in [true, false] {
            std::fs::write(path, &before).unwrap();
            let mut first = form.open(path, follow);
            assert_eq!(read(&mut first).unwrap().len(), 600);
            let position = first.source.position();
            std::fs::write(path, &after).unwrap();
            let error = match is_stopped {
                true => form.go_on(path, follow, &position).err().unwrap(),
                false if follow => read(&mut first).unwrap_err(),
                false => continue,
            };
            assert_eq!(error.class(), thalweg_types::Class::User);
            let said = if is_stopped { "the 4096 bytes before that differ" } else { "written otherwise" };
            assert!(error.message().contains(said), "{error}");
            assert!(error.hint().is_some());
        }
    });
}

#[test]
fn a_file_that_is_written_anew_with_all_that_was_read_goes_on() {
    each(|form, path, follow| {
        let before = form.header.to_owned() + &form.lines(1000..1600);
        std::fs::write(path, &before).unwrap();
        let mut built = form.open(path, follow);
        assert_eq!(read(&mut built).unwrap().len(), 600);
        if follow {
            // On the way of being written again.
            std::fs::write(path, &before[..before.len() / 2]).unwrap();
            assert_eq!(read(&mut built).unwrap(), [] as [String; 0]);
            std::fs::write(path, before.clone() + &form.lines(1600..1602)).unwrap();
            assert_eq!(read(&mut built).unwrap(), times(1600..1602));
            // Put in the place of the old one.
            let new = path.with_extension("new");
            std::fs::write(&new, before + &form.lines(1600..1604)).unwrap();
            std::fs::rename(&new, path).unwrap();
            assert_eq!(read(&mut built).unwrap(), times(1602..1604));
            return;
        }
        let position = built.source.position();
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, before + &form.lines(1600..1602)).unwrap();
        assert_eq!(read(&mut form.go_on(path, follow, &position).unwrap()).unwrap(), times(1600..1602));
    });
}

#[test]
fn a_file_that_becomes_another_while_it_is_read_once_is_no_end() {
    let form = &forms()[1];
    let (_folder, path) = folder();
    std::fs::write(&path, form.lines(0..100_000)).unwrap();
    let mut built = form.open(&path, false);
    for _ in 0..3 {
        assert!(matches!(built.source.poll(1 << 10, ARRIVAL).unwrap(), Poll::Block(_)));
    }
    std::fs::write(&path, form.lines(1..10)).unwrap();
    let error = read(&mut built).unwrap_err();
    assert!(error.message().contains("was written otherwise while it was read"), "{error}");
}

/// A place as builds before this one wrote it, after a line that they took for a whole one.
#[test]
fn a_place_of_an_earlier_build_within_a_line_is_refused() {
    let form = &forms()[0];
    let (_folder, path) = folder();
    let place = |byte: u64| {
        let words = [byte, 1, 0, 7, thalweg_types::hash_bytes(b"ts,k,x\n")];
        SourcePosition { next: 1, place: words.iter().flat_map(|word| word.to_le_bytes()).collect() }
    };
    std::fs::write(&path, "ts,k,x\n1,a,12345.67\n2,a,1\n").unwrap();
    let error = form.go_on(&path, false, &place(13)).err().unwrap();
    assert!(error.message().ends_with("a line goes on there that was taken for a whole one"), "{error}");
    // It has its end, and nothing else.
    assert_eq!(read(&mut form.go_on(&path, false, &place(19)).unwrap()).unwrap(), ["2"]);
    assert_eq!(read(&mut form.go_on(&path, false, &place(20)).unwrap()).unwrap(), ["2"]);
}
