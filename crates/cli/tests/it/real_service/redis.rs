//! State in Redis.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use super::{Run, answered, assert_same, calm, eventually, place, signal, start_fails, told};

/// A server of a test's own, with files in a folder.
struct Server {
    folder: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = lasting_port();
        let child = spawn(folder.path(), port);
        Self { folder, port, child }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it is gone");
    }

    fn start_again(&mut self) {
        self.child = spawn(self.folder.path(), self.port);
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody is given while the server is away: systems take those of connections from above, and a client that
/// tries again and again would in the end be given this one and meet itself.
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

fn spawn(folder: &std::path::Path, port: u16) -> Child {
    let mut command = Command::new(told("THALWEG_REDIS_SERVER"));
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]).arg(folder);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the server runs");
    eventually("a server", || {
        assert!(child.try_wait().expect("its state").is_none(), "the server ended");
        // Behind the loading of its files.
        answer(port).filter(|answer| answer == b"+PONG")
    });
    child
}

/// What the server says to a ping.
fn answer(port: u16) -> Option<[u8; 5]> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"PING\r\n").ok()?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).ok()?;
    Some(answer)
}

#[test]
#[ignore = "needs Redis"]
fn a_job_that_is_killed_goes_on() {
    super::a_job_that_is_killed_goes_on(&format!("redis, url: \"redis://{}\"", told("THALWEG_REDIS")));
}

#[test]
#[ignore = "needs Redis"]
fn a_job_waits_for_its_store_and_loses_nothing() {
    let expected = calm();
    let mut server = Server::start();
    let place = place(&format!("redis, url: \"{}\", timeout: 500ms", server.url()));
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

#[test]
#[ignore = "needs Redis"]
fn a_second_signal_ends_the_wait() {
    let server = Server::start();
    let place = place(&format!("redis, url: \"{}\", timeout: 500ms", server.url()));
    let mut run = Run::start(&place);
    eventually("some answers", || (answered(&place) > 0).then_some(()));
    signal(&server.child, "-STOP");
    eventually("a word of it", || place.read("log").contains("waiting for the store").then_some(()));
    for signals in 1..3 {
        assert!(!run.has_ended());
        signal(run.child(), "-INT");
        let word = if signals == 1 { "draining" } else { "records=" };
        eventually("a word of the signal", || place.read("log").contains(word).then_some(()));
    }
    eventually("its end", || run.has_ended().then_some(()));
    signal(&server.child, "-CONT");
    drop(run);
    // And nothing is lost by it.
    Run::start(&place).end(&place);
    assert_same(&place, &calm());
}

#[test]
#[ignore = "needs Redis"]
fn a_start_without_the_store_says_what_to_do() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its number").port();
    drop(listener);
    let ended = start_fails(&format!("redis, url: \"redis://127.0.0.1:{port}\""), 1);
    let said =
        format!("job \"payments\": redis at 127.0.0.1:{port}: connect: expected an answer, got none: ");
    assert!(ended.stderr.contains(&said), "{}", ended.stderr);
    assert!(ended.stderr.contains("hint: look whether the server runs"), "{}", ended.stderr);
    // A password where none is wanted is wrong: a mistake of whoever wrote the job.
    let address = told("THALWEG_REDIS");
    let ended =
        start_fails(&format!("redis, url: \"redis://{address}\", user: nobody, password: \"env:PATH\""), 2);
    assert!(ended.stderr.contains("look at user and password"), "{}", ended.stderr);
    let path = std::env::var("PATH").expect("a path");
    assert!(!ended.stderr.contains(&path), "{}", ended.stderr);
}
