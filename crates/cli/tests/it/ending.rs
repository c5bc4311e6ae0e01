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
