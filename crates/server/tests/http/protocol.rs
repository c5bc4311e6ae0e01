//! HTTP itself, and browsers.

use crate::client::Site;

const PATH: &str = "/v1/jobs/payments/sources/payments";

#[test]
fn what_is_no_http_is_refused_and_the_server_goes_on() {
    let site = Site::new();
    for nonsense in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..],
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost localhost\r\n\r\n",
    ] {
        let mut connection = site.connect();
        connection.write(nonsense);
        let reply = connection.try_reply(false).expect("a reply");
        assert_eq!(reply.status, 400, "{}", nonsense.escape_ascii());
        connection.expect_end();
    }
    assert_eq!(site.get("/healthz").status, 200);
}

#[test]
fn heads_are_bounded() {
    let site = Site::with(|options| options.max_header_bytes = 8 << 10);
    for (path, header, status, code) in [
        ("/healthz".to_owned(), 9 << 10, 431, "head_too_large"),
        ("/nowhere".to_owned(), 9 << 10, 431, "head_too_large"),
        (format!("/healthz?{}", "x".repeat(7 << 10)), 2 << 10, 431, "head_too_large"),
        (format!("/healthz?{}", "x".repeat(9 << 10)), 0, 414, "uri_too_long"),
        (format!("/{}", "x".repeat(9 << 10)), 0, 414, "uri_too_long"),
    ] {
        let mut connection = site.connect();
        connection.send("GET", &path, &format!("X-Long: {}\r\n", "x".repeat(header)), b"");
        let error = connection.reply(false).expect_error(status, code);
        assert!(error["hint"].is_string(), "{error}");
        connection.send("GET", "/healthz", "", b"");
        assert_eq!(connection.reply(false).status, 200, "the connection goes on");
    }

    // hyper's own refusals have no body.
    let mut connection = site.connect();
    connection.send("GET", "/healthz", &format!("X-Long: {}\r\n", "x".repeat(17 << 10)), b"");
    assert_eq!(connection.try_reply(false).map(|reply| reply.status), Some(431));

    let many: String = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect();
    let mut connection = site.connect();
    connection.send("GET", "/healthz", &many, b"");
    assert_eq!(connection.try_reply(false).map(|reply| reply.status), Some(431));
    assert_eq!(site.get("/healthz").status, 200);
}

#[test]
fn a_body_that_breaks_off_is_no_request() {
    let site = Site::new();
    let mut connection = site.connect();
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    connection.write(head.as_bytes());
    connection.write(b"7\r\n{\"a\":1}\r\nzz\r\n");
    let reply = connection.try_reply(false).expect("a reply");
    assert_eq!(reply.expect_error(400, "invalid_request")["retry"], "never");
}

#[test]
fn http_1_0_works() {
    let site = Site::new();
    let mut connection = site.connect();
    connection.write(format!("POST {PATH} HTTP/1.0\r\nContent-Length: 7\r\n\r\n{{\"a\":1}}").as_bytes());
    assert_eq!(connection.reply(false).status, 200);
    connection.expect_end();
}

#[test]
fn paths_that_lead_nowhere_list_the_routes() {
    let site = Site::new();
    for path in ["/", "/v1", "/v1/jobs/", "/v1/jobs/a/b", "/METRICS"] {
        let error = site.get(path).expect_error(404, "not_found");
        assert!(error["detail"]["routes"].as_array().unwrap().len() > 10, "{path}: {error}");
    }
    let long = site.get(&format!("/{}", "x".repeat(10_000)));
    assert!(long.expect_error(404, "not_found")["message"].as_str().unwrap().len() < 300);
}

#[test]
fn pages_of_other_sites_are_refused() {
    let site = Site::new();
    let reply = site.call("POST", PATH, "Origin: http://evil.example\r\n", b"{\"a\":1}");
    reply.expect_error(403, "forbidden");

    let mut connection = site.connect();
    connection.write(b"GET /v1/jobs HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    connection.reply(false).expect_error(403, "forbidden");
    assert_eq!(site.call("POST", PATH, "Origin: http://localhost\r\n", b"{\"a\":1}").status, 200);
}
