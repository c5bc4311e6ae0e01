//! State in HBase, through its gateway.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Server, eventually, start_fails, told};

/// A gateway of a test's own before the HBase of all.
fn spawn(folder: &Path, port: u16) -> Child {
    let mut command = Command::new(told("THALWEG_HBASE_GATEWAY"));
    command.arg(port.to_string()).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the gateway runs");
    eventually("a gateway", || {
        assert!(child.try_wait().expect("its state").is_none(), "the gateway ended");
        status(port).filter(|status| status.contains("1 live servers"))
    });
    child
}

/// What the gateway says of the cluster.
fn status(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /status/cluster HTTP/1.0\r\nAccept: text/plain\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
#[ignore = "needs HBase"]
fn a_job_that_is_killed_goes_on() {
    super::a_job_that_is_killed_goes_on(&format!(
        "hbase, url: \"http://{}\", table: jobs, timeout: 60s",
        told("THALWEG_HBASE")
    ));
}

#[test]
#[ignore = "needs HBase"]
fn a_job_waits_for_its_gateway_and_loses_nothing() {
    super::a_job_waits_for_its_store_and_loses_nothing(Server::start(spawn), |gateway| {
        format!("hbase, url: \"http://127.0.0.1:{}\", table: outages, timeout: 5s", gateway.port)
    });
}

#[test]
#[ignore = "needs HBase"]
fn a_start_without_the_gateway_says_what_to_do() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its number").port();
    drop(listener);
    let ended = start_fails(&format!("hbase, url: \"http://127.0.0.1:{port}\""), 1);
    let said = "look at the table: expected an answer, got none: ";
    assert!(
        ended.stderr.contains(said) && ended.stderr.contains(&format!("127.0.0.1:{port}")),
        "{}",
        ended.stderr
    );
}
