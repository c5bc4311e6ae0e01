//! State in HBase, through its gateway.

use super::{start_fails, told};

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
