//! Files that are read and written.

use expect_test::expect;

use crate::job_file::tests::{check, read};

#[test]
fn a_file_is_written_by_one_sink_and_read_by_no_source() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in.csv"), "ts\n").unwrap();
    std::os::unix::fs::symlink("in.csv", folder.path().join("link.csv")).unwrap();
    let text = "\
name: x
sources:
  in: { type: file, path: D/in.csv, format: csv, schema: { ts: int64 } }
sinks:
  one: { type: file, input: in, path: D/out.csv, format: csv }
  two: { type: file, input: in, path: D/./out.csv, format: csv }
  three: { type: file, input: in, path: D/link.csv, format: csv }
  four: { type: file, input: in, path: D/other.csv, format: csv }
  five: { type: file, input: in, path: /dev/null, format: csv }
  six: { type: file, input: in, path: /dev/null, format: csv }
";
    let told = read(&text.replace('D', &folder.path().display().to_string()), &[]).err().unwrap();
    let told = told.replace(&folder.path().display().to_string(), "D");
    let lines: Vec<&str> =
        told.lines().filter(|line| line.starts_with("error") || line.contains("-->")).collect();
    expect![[r#"
        error: sink "two" writes a file that sink "one" writes, too
         --> job.yaml:6:39
        error: sink "three" writes a file that source "in" reads, too
         --> job.yaml:7:41
    "#]]
    .assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn a_file_that_is_not_there_yet_is_known_by_its_folder() {
    check(
        "\
name: x
sources:
  in: { type: file, path: no/such/folder/in.csv, format: csv, schema: { ts: int64 } }
sinks:
  out: { type: file, input: in, path: no/such/folder/in.csv, format: csv }
",
        expect![[r#"
            error: sink "out" writes a file that source "in" reads, too
             --> job.yaml:5:39
              |
            5 |   out: { type: file, input: in, path: no/such/folder/in.csv, format: csv }
              |                                       ^^^^^^^^^^^^^^^^^^^^^
              = expected: a file of its own
        "#]],
    );
}
