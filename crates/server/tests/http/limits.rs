//! Bad clients: too much, too slowly, too many, not at all.

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::client::Site;
use crate::fake::Mode;

const PATH: &str = "/v1/jobs/payments/sources/payments";

#[test]
fn a_body_over_the_limit_is_413_whichever_way_it_comes() {
    let site = Site::with(|options| options.max_body_bytes = 1_000);
    assert_eq!(site.post(PATH, &format!("{{\"a\":\"{}\"}}", "x".repeat(900))).status, 200);
    // Announced, and large enough that most of it is still on its way when the reply is made.
    let reply = site.post(PATH, &"x".repeat(4 << 20));
    reply.expect_error(413, "body_too_large");

    // In chunks, so that only reading shows it.
    let mut connection = site.connect();
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    connection.write(head.as_bytes());
    let chunk = "x".repeat(600);
    for _ in 0..2 {
        connection.write(format!("{:x}\r\n{chunk}\r\n", chunk.len()).as_bytes());
    }
    connection.write(b"0\r\n\r\n");
    connection.reply(false).expect_error(413, "body_too_large");

    // A client that asks first is spared the sending.
    let mut connection = site.connect();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\nExpect: 100-continue\r\n\r\n"
    );
    connection.write(head.as_bytes());
    connection.reply(false).expect_error(413, "body_too_large");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap()
}

#[test]
fn a_packed_body_is_unpacked_within_the_same_limits() {
    let site = Site::with(|options| {
        options.max_body_bytes = 100_000;
        options.max_held_bytes = 300_000;
    });
    let send = |encoding: &str, body: &[u8]| {
        let mut connection = site.connect();
        let length = body.len();
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: {encoding}\r\nContent-Length: {length}\r\n\r\n"
        );
        connection.write(head.as_bytes());
        connection.write(body);
        connection.reply(false)
    };
    let two = [gzip(b"{\"a\":1}\n{\"a\""), gzip(b":2}\n")].concat();
    for encoding in ["gzip", "GZIP", "x-gzip"] {
        let reply = send(encoding, &two);
        assert_eq!((reply.status, reply.lines().len()), (200, 2), "{encoding}: {}", reply.body);
    }
    assert_eq!(send("identity", b"{\"a\":1}").status, 200);
    send("br", &two).expect_error(415, "unsupported_media_type");
    send("gzip", b"{\"a\":1}").expect_error(400, "invalid_request");
    send("gzip", &two[..two.len() - 3]).expect_error(400, "invalid_request");
    // A hundred times as large.
    let bomb = gzip(&vec![b' '; 20_000_000]);
    send("gzip", &gzip(&vec![b' '; 100_001])).expect_error(413, "body_too_large");
    send("gzip", &bomb[..90_000]).expect_error(413, "body_too_large");
    // The room that was taken is given back.
    assert_eq!(send("gzip", &gzip(format!("{{\"a\":\"{}\"}}", "x".repeat(90_000)).as_bytes())).status, 200);
}

#[test]
fn a_client_that_asks_first_is_told_to_go_on() {
    let site = Site::new();
    let mut connection = site.connect();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\nExpect: 100-continue\r\n\r\n"
    );
    connection.write(head.as_bytes());
    assert_eq!(connection.reply(false).status, 100);
    connection.write(b"{\"a\":1}");
    assert_eq!(connection.reply(false).status, 200);
}

#[test]
fn job_files_and_queries_have_a_limit_of_their_own() {
    let site = Site::with(|options| options.max_text_bytes = 100);
    site.post("/v1/jobs/readings", &"x".repeat(101)).expect_error(413, "body_too_large");
    let query = "/v1/jobs/payments/operators/features/queries/q";
    site.post(query, &"x".repeat(101)).expect_error(413, "body_too_large");
}

#[test]
fn all_bodies_together_are_bounded() {
    let site = Site::with(|options| options.max_held_bytes = 1_000);
    let reply = site.post(PATH, &"x".repeat(1_500));
    reply.expect_error(503, "overloaded");
    assert!(reply.header("retry-after").is_some());
    // The room that was held is given back.
    for _ in 0..5 {
        assert_eq!(site.post(PATH, &format!("{{\"a\":\"{}\"}}", "x".repeat(900))).status, 200);
    }
}

#[test]
fn requests_over_the_limit_are_503_and_health_goes_on() {
    let site = Site::with(|options| options.max_requests = 2);
    site.node.set_mode(Mode::Hold);
    let mut waiting: Vec<_> = (0..2)
        .map(|_| {
            let mut connection = site.connect();
            connection.send("POST", PATH, "", b"{\"a\":1}");
            connection
        })
        .collect();
    site.node.wait_for_held(2);
    let reply = site.post(PATH, "{\"a\":1}");
    reply.expect_error(503, "overloaded");
    assert_eq!(reply.header("retry-after"), Some("1"));
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(site.get(path).status, 200, "{path}");
    }
    site.node.release();
    for connection in &mut waiting {
        assert_eq!(connection.reply(false).status, 200);
    }
    site.node.set_mode(Mode::Answer);
    assert_eq!(site.post(PATH, "{\"a\":1}").status, 200);
}

#[test]
fn connections_over_the_limit_wait_for_their_turn() {
    let site = Site::with(|options| options.max_connections = 1);
    let mut first = site.connect();
    first.send("GET", "/healthz", "", b"");
    assert_eq!(first.reply(false).status, 200);
    let mut second = site.connect();
    second.send("GET", "/healthz", "", b"");
    drop(first);
    assert_eq!(second.reply(false).status, 200);
}

#[test]
fn a_body_that_does_not_come_is_given_up() {
    let site = Site::with(|options| options.body_timeout = Duration::from_millis(100));
    let mut connection = site.connect();
    connection.write(
        format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{{\"a").as_bytes(),
    );
    let reply = connection.reply(false);
    reply.expect_error(408, "body_timeout");
    assert_eq!(reply.header("connection"), Some("close"));
    connection.expect_end();
}

#[test]
fn a_head_that_does_not_come_ends_the_connection() {
    let site = Site::with(|options| options.idle_timeout = Duration::from_millis(100));
    let mut connection = site.connect();
    connection.write(b"GET /healthz HTT");
    connection.expect_end();

    let mut idle = site.connect();
    idle.send("GET", "/healthz", "", b"");
    assert_eq!(idle.reply(false).status, 200);
    idle.expect_end();
}

#[test]
fn a_client_that_reads_nothing_is_given_up() {
    let site = Site::with(|options| options.write_timeout = Duration::from_millis(100));
    let mut stuck = site.connect();
    // One request after the other, and replies of more than sockets buffer.
    let length = site.get("/openapi.json").body.len();
    stuck.write(
        "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat((64 << 20) / length).as_bytes(),
    );
    let until = Instant::now() + Duration::from_secs(20);
    // The one that asks, and no other.
    while !site.get("/metrics").body.contains("\nthalweg_http_connections 1\n") {
        assert!(Instant::now() < until, "the connection is kept");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_node_that_hangs_is_not_waited_for() {
    let site = Site::with(|options| options.control_timeout = Duration::from_millis(100));
    site.node.set_hanging(true);
    let error = site.get("/v1/jobs/payments").expect_error(503, "unavailable");
    assert_eq!(error["retry"], "with_backoff");
    assert_eq!(site.post(PATH, "{\"a\":1}").status, 200, "records do not wait for such calls");
    site.node.set_hanging(false);
    assert_eq!(site.get("/v1/jobs/payments").status, 200);
}

#[test]
fn a_panic_of_the_node_is_a_500() {
    let site = Site::new();
    site.get("/v1/jobs/panics").expect_error(500, "internal");
    assert_eq!(site.get("/v1/jobs/payments").status, 200);
}

#[test]
fn a_client_that_goes_away_does_no_harm() {
    let site = Site::new();
    site.node.set_mode(Mode::Hold);
    let mut connection = site.connect();
    connection.send("POST", PATH, "", b"{\"a\":1}");
    site.node.wait_for_held(1);
    drop(connection);
    // It may only have closed its writing side: that it has gone shows when it is answered.
    site.node.release();
    let until = Instant::now() + Duration::from_secs(20);
    while !site.get("/metrics").body.contains("\nthalweg_http_connections 1\n") {
        assert!(Instant::now() < until, "the connection is kept");
        std::thread::sleep(Duration::from_millis(10));
    }
    site.node.set_mode(Mode::Answer);
    assert_eq!(site.post(PATH, "{\"a\":1}").status, 200);
}
