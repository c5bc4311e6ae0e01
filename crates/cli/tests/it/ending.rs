//! How runs end that do not end by themselves: signals, readers that go away.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};

use super::{Ended, Place};

const ENDLESS: &str = "\
name: endless
sources:
  made: { type: generator, rate: 2000 }
sinks:
  out: { type: stdout, input: made }
";

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

/// Starts an endless job and waits until it has put something out.
fn start(place: &Place) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = place.command(&["run", "job.yaml"]).spawn().expect("the binary runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a first line");
    assert!(line.starts_with('{'), "{line}");
    (child, stdout)
}

#[test]
fn a_signal_drains() {
    for name in ["-TERM", "-INT"] {
        let place = Place::with(&[("job.yaml", ENDLESS)]);
        let (child, mut stdout) = start(&place);
        signal(&child, name);
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).expect("the rest");
        let ended = Ended::of(child.wait_with_output().expect("it ends")).ends_with(0);
        let (records, answers, _) = ended.counts();
        assert_eq!(records, answers, "what came in has gone out");
        assert_eq!(records, rest.lines().count() as u64 + 1);
        assert!(ended.stderr.contains("draining"), "{}", ended.stderr);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::with(&[]);
    let mut child =
        place.command(&["gen", "payments", "--count", "1000000"]).spawn().expect("the binary runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
    stdout.read_line(&mut String::new()).expect("a first line");
    drop(stdout);
    let ended = Ended::of(child.wait_with_output().expect("it ends")).ends_with(0);
    assert_eq!(ended.stderr, "");

    let place = Place::with(&[("job.yaml", &ENDLESS.replace("rate: 2000", "count: 200000"))]);
    let (child, stdout) = start(&place);
    drop(stdout);
    let ended = Ended::of(child.wait_with_output().expect("it ends")).ends_with(0);
    assert_eq!(ended.counts().0, 200_000);
}

/// Output that no reader has got stays out of every commit, except bytes in the pipe.
#[test]
fn a_reader_that_goes_away_ends_a_job_that_goes_on_at_its_last_commit() {
    const RECORDS: usize = 300_000;
    const JOB: &str = "\
name: head
cycle: { every: 10ms }
sources:
  made: { type: file, path: n.csv, format: csv, schema: { n: int64 } }
sinks:
  out: { type: stdout, input: made }
";
    let numbers: String = (0..RECORDS).map(|n| format!("{n}\n")).collect();
    let place = Place::with(&[("job.yaml", JOB), ("n.csv", &format!("n\n{numbers}"))]);
    let run = ["run", "job.yaml", "--data-dir", "D"];
    let mut child = place.command(&run).spawn().expect("the binary runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
    stdout.read_line(&mut String::new()).expect("a first line");
    drop(stdout);
    Ended::of(child.wait_with_output().expect("it ends")).ends_with(0);

    let again = place.thalweg(&run).ends_with(0);
    let number = |line: Option<&str>| -> usize {
        let line = line.expect("lines that nobody has read");
        line.strip_prefix("{\"n\":").and_then(|line| line.strip_suffix('}')?.parse().ok()).expect("a number")
    };
    let (first, last) = (number(again.stdout.lines().next()), number(again.stdout.lines().last()));
    // The pipe and the reader's buffer, at eight bytes a line or more.
    assert!(first <= (64 + 8) * 1024 / 8, "{first} is the first");
    assert_eq!((last, again.stdout.lines().count()), (RECORDS - 1, RECORDS - first));
    assert_eq!(place.thalweg(&run).ends_with(0).stdout, "", "all of it is committed now");
}

/// Waits until the process says something.
fn until_said(stderr: &mut impl BufRead, what: &str) {
    let mut line = String::new();
    while !line.contains(what) {
        line.clear();
        assert!(stderr.read_line(&mut line).expect("stderr") > 0, "{what:?} was not said");
    }
}

#[test]
fn a_second_signal_ends_a_job_whose_reader_does_not_read() {
    let place = Place::with(&[("job.yaml", &ENDLESS.replace("rate: 2000", "kind: payments"))]);
    let (mut child, stdout) = start(&place);
    let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
    signal(&child, "-INT");
    until_said(&mut stderr, "draining");
    signal(&child, "-INT");
    let code = child.wait().expect("it ends").code();
    assert_eq!(code, Some(1), "it was ended at once");
    drop(stdout);
}

#[test]
fn a_pipe_that_nobody_has_opened_holds_back_its_sink_and_nothing_else() {
    const JOB: &str = "\
name: pipes
sources:
  made: { type: generator, rate: 2000 }
  few: { type: generator, count: 3 }
sinks:
  out: { type: file, input: made, path: pipe }
  other: { type: file, input: few, path: other.ndjson }
";
    let place = Place::with(&[("job.yaml", JOB)]);
    let made = Command::new("mkfifo").arg(place.path().join("pipe")).status().expect("mkfifo runs");
    assert!(made.success());
    let mut child = place.command(&["run", "job.yaml", "--data-dir", "D"]).spawn().expect("the binary runs");
    while std::fs::read_to_string(place.path().join("other.ndjson")).unwrap_or_default().lines().count() < 3 {
        assert!(child.try_wait().expect("its state").is_none(), "it has ended");
        std::thread::yield_now();
    }
    let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
    signal(&child, "-TERM");
    until_said(&mut stderr, "draining");
    signal(&child, "-TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));

    // With a reader the job goes on where it was, which is the beginning.
    let reader =
        std::fs::File::options().read(true).write(true).open(place.path().join("pipe")).expect("a reader");
    let child = place.command(&["run", "job.yaml", "--data-dir", "D"]).spawn().expect("the binary runs");
    let mut line = String::new();
    BufReader::new(reader.try_clone().expect("a reader")).read_line(&mut line).expect("a line");
    assert!(line.starts_with('{'), "{line}");
    signal(&child, "-KILL");
    child.wait_with_output().expect("it ends");
}

#[test]
fn a_pipe_without_a_writer_holds_up_no_end() {
    const JOB: &str = "\
name: pipe
sources: { lines: { type: file, path: pipe, format: lines, schema: { line: string } } }
sinks: { out: { type: 'null', input: lines } }
";
    for extra in [&["--data-dir", "D"][..], &[]] {
        let place = Place::with(&[("job.yaml", JOB)]);
        let made = Command::new("mkfifo").arg(place.path().join("pipe")).status().expect("mkfifo runs");
        assert!(made.success());
        let args = [&["run", "job.yaml", "--listen", "127.0.0.1:0"], extra].concat();
        let mut child = place.command(&args).spawn().expect("the binary runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        until_said(&mut stderr, "listening on");
        signal(&child, "-INT");
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{extra:?}");
    }
}
