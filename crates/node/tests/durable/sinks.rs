//! Sinks of jobs that go on: how a file is identified, and what a sink requires of its job.

use super::*;

const FILE: &str = "
name: files
sources:
  a: { type: file, path: DIR/a.csv, format: csv, schema: { n: int64, k: string } }
sinks:
  out: { type: file, input: a, path: DIR/out.csv, format: csv }
";

/// A folder in which `FILE` has run with `records` records.
fn ran(records: u32) -> Folder {
    let folder = Folder::new();
    give(&folder, records);
    folder.run(FILE);
    folder
}

fn give(folder: &Folder, records: u32) {
    let lines: String = (0..records).map(|n| format!("{n},k{n}\n")).collect();
    fs::write(folder.path("a.csv"), format!("n,k\n{lines}")).unwrap();
}

fn written(records: u32) -> String {
    format!("n,k\n{}", (0..records).map(|n| format!("{n},k{n}\n")).collect::<String>())
}

/// The job, with some text of it changed, is refused as a mistake of its user; returns the message.
fn refused(folder: &Folder, from: &str, to: &str) -> String {
    let changed = FILE.replace(from, to);
    assert_ne!(changed, FILE);
    let error = folder.try_run(&changed).err().unwrap();
    assert_eq!(error.class(), Class::User, "{}", error.chain());
    assert!(error.hint().is_some_and(|hint| hint.contains("another name")), "{error:?}");
    error.chain().replace(&folder.0.path().canonicalize().unwrap().display().to_string(), "DIR")
}

#[test]
fn a_sink_goes_on_with_no_file_but_its_own() {
    let folder = ran(3);
    let other = "precious data line\n".repeat(100);
    fs::write(folder.path("other.csv"), &other).unwrap();
    let said = refused(&folder, "DIR/out.csv", "DIR/other.csv");
    assert!(
        said.contains("was \"DIR/out.csv\", with 19 bytes committed, and is to be \"DIR/other.csv\" now"),
        "{said}"
    );
    assert_eq!(folder.read("other.csv"), other);
    // The same where there is nothing, where the file is too short, and where it is no file.
    fs::write(folder.path("short.csv"), "n,k\n").unwrap();
    for path in ["DIR/nothing.csv", "DIR/short.csv", "/dev/null"] {
        let said = refused(&folder, "DIR/out.csv", path);
        assert!(said.contains("which does not go on from there"), "{said}");
    }
    assert!(!folder.path("nothing.csv").exists());
    assert_eq!(folder.read("short.csv"), "n,k\n");
    give(&folder, 5);
    folder.run(FILE);
    assert_eq!(folder.read("out.csv"), written(5));
}

#[test]
fn a_file_may_be_moved_or_copied_to_another_place() {
    let folder = ran(3);
    give(&folder, 4);
    fs::create_dir(folder.path("new")).unwrap();
    fs::rename(folder.path("out.csv"), folder.path("new/out.csv")).unwrap();
    let moved = FILE.replace("DIR/out.csv", "DIR/new/out.csv");
    folder.run(&moved);
    assert_eq!(folder.read("new/out.csv"), written(4));
    // A copy, with the rows that a killed process has written after the last commit.
    fs::copy(folder.path("new/out.csv"), folder.path("copy.csv")).unwrap();
    append_text(&folder.path("copy.csv"), "4,k");
    give(&folder, 6);
    folder.run(&FILE.replace("DIR/out.csv", "DIR/copy.csv"));
    assert_eq!(folder.read("copy.csv"), written(6));
    assert_eq!(folder.read("new/out.csv"), written(4));
    // Where links lead does not matter.
    std::os::unix::fs::symlink(".", folder.path("link")).unwrap();
    give(&folder, 7);
    folder.run(&FILE.replace("DIR/out.csv", "DIR/link/copy.csv"));
    assert_eq!(folder.read("copy.csv"), written(7));
}

#[test]
fn a_file_with_other_bytes_than_those_that_were_committed_is_damaged() {
    let folder = ran(3);
    fs::write(folder.path("out.csv"), written(3).replace("k2", "XX")).unwrap();
    give(&folder, 5);
    let error = folder.try_run(FILE).err().unwrap();
    assert_eq!(error.class(), Class::Corrupt);
    assert!(
        error.chain().contains("has other bytes before byte 19 than those that were committed"),
        "{error}"
    );
    assert_eq!(folder.read("out.csv"), written(3).replace("k2", "XX"));
}

#[test]
fn a_file_keeps_its_format_and_its_first_line() {
    let folder = ran(3);
    let said = refused(&folder, "out.csv, format: csv", "out.csv, format: ndjson");
    assert!(
        said.contains("the format of file") && said.contains("was \"csv\", and is to be \"ndjson\""),
        "{said}"
    );
    let said = refused(&folder, "n: int64, k: string", "k: string");
    assert!(
        said.contains("the first line of file") && said.contains("was \"n,k\", and is to be \"k\""),
        "{said}"
    );
    let said = refused(&folder, "out.csv, format: csv", "out.csv, format: csv, header: false");
    assert!(said.contains("was \"n,k\", and is to be \"\""), "{said}");
    assert_eq!(folder.read("out.csv"), written(3));
}

#[test]
fn a_cycle_ends_before_its_rows_are_more_than_a_database_sink_may_keep() {
    let folder = Folder::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!(
        "
name: long
cycle: {{ every: 1h }}
sources:
  a: {{ type: generator }}
sinks:
  out: {{ type: postgres, input: a, url: \"postgres://me@{nobody}/x\", table: t, cycle_bytes: 256KiB, queue: 1GiB }}
"
    );
    let node = folder.node(2);
    let job = folder.start(&node, &text).unwrap();
    // The database is away, so no cycle is committed: the second has its marker, and the third waits for it.
    eventually("two markers that no time has brought", || job.stats().cycles == 2);
    eventually("the source is held", || job.stats().sources[0].blocked);
    assert_eq!(job.stats().cycles, 2);
    job.abort();
    assert_eq!(job.wait().state, JobState::Aborted);
}

#[test]
fn a_record_that_a_format_has_no_way_to_write_is_a_reject_and_no_answer() {
    let text = "
name: points
cycle: { every: 5ms }
sources:
  a: { type: file, path: DIR/a.ndjson, format: ndjson, schema: { k: string?, v: float64? } }
sinks:
  out: { type: file, input: a, path: DIR/out.lp, format: line_protocol, measurement: m, tags: [k] }
";
    let folder = Folder::new();
    let first = r#"{"k":"a","v":1}
{"k":"b\nc","v":2}
{"k":"d\\","v":3}
"#;
    fs::write(folder.path("a.ndjson"), first).unwrap();
    let end = folder.run(text);
    assert_eq!((end.summary.records, end.summary.answers, end.summary.rejects), (3, 1, 2));
    // A job that goes on counts on.
    fs::write(folder.path("a.ndjson"), format!("{first}{{\"k\":\"e\"}}\n{{\"v\":5}}\n")).unwrap();
    let end = folder.run(text);
    assert_eq!((end.summary.records, end.summary.answers, end.summary.rejects), (2, 1, 3));
    let lines = folder.read("out.lp");
    let lines: Vec<&str> = lines.lines().map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(lines, ["m,k=a v=1.0", "m v=5.0"]);
    let rejects = folder.read("data/jobs/points/rejects/rejects-0.ndjson");
    let tag = r#""reason":"tag \"k\": expected no line end, and no backslash at its end, got "#;
    let expected = [
        format!(
            r#"{{"source":"a","offset":1,"line":null,"code":"unwritable",{tag}\"b\\nc\"","raw":"{{\"k\":\"b\\nc\",\"v\":2.0}}"}}"#
        ),
        format!(
            r#"{{"source":"a","offset":2,"line":null,"code":"unwritable",{tag}\"d\\\\\"","raw":"{{\"k\":\"d\\\\\",\"v\":3.0}}"}}"#
        ),
        r#"{"source":"a","offset":3,"line":null,"code":"unwritable","reason":"expected a field with a value, got none","raw":"{\"k\":\"e\",\"v\":null}"}"#
            .to_owned(),
    ];
    assert_eq!(rejects.lines().collect::<Vec<_>>(), expected);
}
