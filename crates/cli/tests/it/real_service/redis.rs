//! State in Redis.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use super::{Run, Server, answered, assert_same, calm, eventually, place, signal, start_fails, told};

fn start() -> Server {
    Server::start(spawn)
}

fn store(server: &Server) -> String {
    format!("redis, url: \"redis://127.0.0.1:{}\", timeout: 500ms", server.port)
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
    super::a_job_waits_for_its_store_and_loses_nothing(start(), store);
}

#[test]
#[ignore = "needs Redis"]
fn a_second_signal_ends_the_wait() {
    let server = start();
    let place = place(&store(&server));
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
    // A password for a server without one is a mistake of the job's author.
    let address = told("THALWEG_REDIS");
    let ended =
        start_fails(&format!("redis, url: \"redis://{address}\", user: nobody, password: \"env:PATH\""), 2);
    assert!(ended.stderr.contains("look at user and password"), "{}", ended.stderr);
    let path = std::env::var("PATH").expect("a path");
    assert!(!ended.stderr.contains(&path), "{}", ended.stderr);
}

/// The machine with the data directory is gone, and the job is started on another one.
#[test]
#[ignore = "needs Redis"]
fn a_job_whose_data_directory_is_lost_does_not_begin_anew_without_a_word() {
    let server = start();
    let first = place(&store(&server));
    Run::start(&first).end(&first);
    let ended = start_fails(&store(&server), 2);
    assert!(ended.stderr.contains("belongs to the folder \"data/jobs/payments/"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--begin-anew deletes the state"), "{}", ended.stderr);

    let other = place(&store(&server));
    other.thalweg(&["run", "job.yaml", "--data-dir", "data", "--begin-anew"]).ends_with(0);
    assert_same(&other, &calm());
    // The first one has nothing to go on from.
    let ended = first.thalweg(&["run", "job.yaml", "--data-dir", "data"]).ends_with(2);
    assert!(ended.stderr.contains("the job has begun anew from the folder"), "{}", ended.stderr);
}
