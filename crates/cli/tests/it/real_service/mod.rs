//! Jobs that stand on another system: killed, started again, and left without it in between.
//!
//! Ignored unless `cargo xtask test --only services` has started the system.

mod hbase;
#[cfg(feature = "kafka")]
mod kafka;
mod redis;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use super::{Ended, Place};

/// Windows and elements over three seconds of records, in cycles that are short compared with that; memory for the
/// elements is too small for all of them, so that they are read back.
const JOB: &str = "\
name: payments
cycle: { every: 50ms }
state: { backend: STORE, memory: 256KiB }
sources:
  payments: { type: generator, kind: payments, rate: 10000, count: 30000, cards: 5000, lateness: 5s }
operators:
  windows:
    type: metrics
    input: payments
    partition_by: [card]
    partitions: 2
    queries:
      hour: SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR
  seen: { type: count, input: payments, key: card, partitions: 2, emit: { every: 3 records } }
sinks:
  answers: { type: file, input: windows, path: answers.ndjson, format: ndjson }
  counts: { type: file, input: seen, path: counts.ndjson, format: ndjson }
";

/// What xtask says about a service.
fn told(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `cargo xtask test --only services`"))
}

/// Waits until something that another process does has come true.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{what} did not come true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A folder with the job, its state in a store.
fn place(store: &str) -> Place {
    Place::with(&[("job.yaml", &JOB.replace("STORE", store))])
}

/// A run of the job, killed when it is dropped.
struct Run(Option<Child>);

impl Run {
    fn start(place: &Place) -> Self {
        let mut command = place.command(&["run", "job.yaml", "--data-dir", "data"]);
        let log = std::fs::File::options().create(true).append(true).open(place.path().join("log"));
        command.stderr(log.expect("a log"));
        Self(Some(command.spawn().expect("the binary runs")))
    }

    /// How it ended, if before this, by itself.
    fn kill(mut self) -> ExitStatus {
        let mut child = self.0.take().expect("it runs");
        child.kill().expect("it is killed");
        child.wait().expect("it is gone")
    }

    /// Waits for its own end, which is a good one.
    fn end(mut self, place: &Place) {
        let mut child = self.0.take().expect("it runs");
        let mut said = String::new();
        child.stdout.take().expect("stdout is piped").read_to_string(&mut said).expect("it is text");
        let status = child.wait().expect("it ends");
        assert!(status.success(), "{status}: {}", place.read("log"));
    }

    fn child(&self) -> &Child {
        self.0.as_ref().expect("it runs")
    }

    fn has_ended(&mut self) -> bool {
        self.0.as_mut().is_some_and(|child| child.try_wait().expect("its state").is_some())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A server of a test's own, with files in a folder.
struct Server {
    folder: tempfile::TempDir,
    port: u16,
    child: Child,
    /// Starts it and waits until it is up.
    spawn: fn(&Path, u16) -> Child,
}

impl Server {
    fn start(spawn: fn(&Path, u16) -> Child) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = lasting_port();
        let child = spawn(folder.path(), port);
        Self { folder, port, child, spawn }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it is gone");
    }

    fn start_again(&mut self) {
        self.child = (self.spawn)(self.folder.path(), self.port);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that no process is given while the server is away: systems take those of connections from above, and a client
/// that tries again and again would in the end be given this one and meet itself.
fn lasting_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_001 + (std::process::id() % 5_000) as u16 * 2;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

/// Bytes that the job has put out.
fn answered(place: &Place) -> u64 {
    std::fs::metadata(place.path().join("answers.ndjson")).map_or(0, |file| file.len())
}

/// The output of an undisturbed job.
fn calm() -> (String, String) {
    let place = place("indexed");
    Run::start(&place).end(&place);
    (place.read("answers.ndjson"), place.read("counts.ndjson"))
}

#[track_caller]
fn assert_same(place: &Place, expected: &(String, String)) {
    for (name, expected) in [("answers.ndjson", &expected.0), ("counts.ndjson", &expected.1)] {
        let found = place.read(name);
        if let Some(line) =
            found.lines().zip(expected.lines()).position(|(found, expected)| found != expected)
        {
            let (found, expected) = (found.lines().nth(line), expected.lines().nth(line));
            panic!("{name}, line {line}: expected {expected:?}, got {found:?}; {}", place.read("log"));
        }
        assert_eq!(found.len(), expected.len(), "{name}; {}", place.read("log"));
    }
}

/// Killed at a third, killed at two thirds, and run to its end.
fn a_job_that_is_killed_goes_on(store: &str) {
    let expected = calm();
    let place = place(store);
    for third in [1, 2] {
        let mut run = Run::start(&place);
        let enough = expected.0.len() as u64 * third / 3;
        eventually("enough answers", || (answered(&place) >= enough || run.has_ended()).then_some(()));
        assert!(!run.has_ended(), "it ended before it was killed: {}", place.read("log"));
        run.kill();
    }
    Run::start(&place).end(&place);
    assert_same(&place, &expected);
}

/// Its store hangs, and dies, and dies together with the job.
fn a_job_waits_for_its_store_and_loses_nothing(mut server: Server, store: fn(&Server) -> String) {
    let expected = calm();
    let place = place(&store(&server));
    let mut run = Run::start(&place);
    let parts = |number: u64| expected.0.len() as u64 * number / 4;
    let is_said = |text: &str| place.read("log").contains(text).then_some(());
    eventually("a quarter", || (answered(&place) >= parts(1)).then_some(()));
    // It hangs, and goes on.
    signal(&server.child, "-STOP");
    eventually("a word of it", || is_said("waiting for the store of state"));
    signal(&server.child, "-CONT");
    eventually("a word of its end", || is_said("the store of state is well again"));
    eventually("a half", || (answered(&place) >= parts(2)).then_some(()));
    assert!(!run.has_ended());
    // It dies, and starts again; and so does the job, in another outage.
    server.kill();
    eventually("another word", || {
        (place.read("log").matches("waiting for the store").count() >= 2).then_some(())
    });
    server.start_again();
    eventually("three quarters", || (answered(&place) >= parts(3)).then_some(()));
    assert!(!run.has_ended());
    server.kill();
    run.kill();
    server.start_again();
    Run::start(&place).end(&place);
    assert_same(&place, &expected);
}

/// What a run says that cannot begin.
fn start_fails(store: &str, code: i32) -> Ended {
    let place = place(store);
    place.thalweg(&["run", "job.yaml", "--data-dir", "data"]).ends_with(code)
}
