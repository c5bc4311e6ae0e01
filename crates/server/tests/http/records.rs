//! `POST /v1/jobs/{job}/sources/{source}`

use serde_json::json;

use crate::client::{Reply, Site};
use crate::fake::Mode;

const PATH: &str = "/v1/jobs/payments/sources/payments";

#[test]
fn an_object_is_answered_with_one_line() {
    let site = Site::new();
    let reply = site.post_as(PATH, "application/json", r#"{"card":"c1","amount":3.5}"#);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(reply.body, "{\"card\":\"c1\",\"amount\":3.5,\"card_1h\":{\"n\":1}}\n");
}

#[test]
fn an_error_stands_in_the_place_of_its_record() {
    let site = Site::new();
    let reply = site.post_as(PATH, "application/x-ndjson", "{\"card\":\"c1\"}\n{card\n{\"card\":\"c2\"}\n");
    assert_eq!(reply.status, 200);
    let error =
        json!({"error": {"code": "parse", "message": "\"{card\" is no JSON object", "hint": "quote names"}});
    let lines = reply.lines();
    assert_eq!(lines[0], json!({"card": "c1", "card_1h": {"n": 1}}));
    assert_eq!(lines[1], error);
    assert_eq!(lines[2], json!({"card": "c2", "card_1h": {"n": 3}}));
    assert_eq!(lines.len(), 3);
}

#[test]
fn a_body_without_a_good_record_is_400_with_a_line_each() {
    let site = Site::new();
    let reply = site.post(PATH, "[1]\nnope\n");
    assert_eq!(reply.status, 400);
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    let codes: Vec<_> = reply.lines().iter().map(|line| line["error"]["code"].clone()).collect();
    assert_eq!(codes, ["parse", "parse"]);
}

#[test]
fn without_reply_there_is_a_count_once_the_records_are_safe() {
    let site = Site::new();
    let post = || site.post(&format!("{PATH}?reply=none"), "{\"a\":1}\n\n{\"a\":2}\n");
    let assert_accepted = |reply: Reply| {
        assert_eq!(reply.status, 202);
        assert_eq!(reply.json(), json!({"accepted": 2}));
    };
    assert_accepted(post());
    site.node.set_mode(Mode::Hold);
    std::thread::scope(|scope| {
        let waits = scope.spawn(post);
        site.node.wait_for_held(1);
        assert!(!waits.is_finished());
        site.node.release();
        assert_accepted(waits.join().unwrap());
    });
    site.node.set_mode(Mode::Stop);
    post().expect_error(504, "job_stopped");
}

#[test]
fn other_parameters_are_refused() {
    let site = Site::new();
    for query in ["reply=maybe", "reply", "replay=none", "reply=none&reply=none", "reply=%zz"] {
        site.post(&format!("{PATH}?{query}"), "{}").expect_error(400, "invalid_request");
    }
    assert_eq!(site.post(&format!("{PATH}?reply=answers"), "{}").status, 200);
}

#[test]
fn names_that_are_not_there_are_404_with_those_that_are() {
    let site = Site::new();
    let error = site.post("/v1/jobs/pay/sources/payments", "{}").expect_error(404, "not_found");
    assert_eq!(error["message"], "no job \"pay\"");
    assert_eq!(error["detail"], json!({"known": ["payments"]}));
    assert_eq!(error["hint"], "the jobs are \"payments\"");
    let error = site.post("/v1/jobs/payments/sources/pay%20ments", "{}").expect_error(404, "not_found");
    assert_eq!(error["message"], "no HTTP source \"pay ments\"");
    site.post("/v1/jobs/payments/sources/%ff", "{}").expect_error(400, "invalid_request");
}

#[test]
fn a_job_that_has_ended_is_a_conflict() {
    let error = Site::new().post("/v1/jobs/payments/sources/ended", "{}").expect_error(409, "conflict");
    assert_eq!(error["hint"], "start it again");
}

#[test]
fn a_job_that_is_only_read_says_why_and_what_to_do() {
    let reply = Site::new().post("/v1/jobs/payments/sources/full", "{}");
    assert_eq!(reply.header("retry-after"), Some("60"));
    let error = reply.expect_error(507, "disk_full");
    assert_eq!(error["message"], "job \"payments\" takes nothing any more, and is only read: write \"d/x\"");
    let hint = "make room; then start it again with POST /v1/jobs/payments, or the process";
    assert_eq!((error["hint"].as_str(), error["retry"].as_str()), (Some(hint), Some("with_backoff")));
}

#[test]
fn what_the_queue_says_becomes_a_status() {
    let site = Site::new();
    for (mode, status, code, retry_after) in [
        (Mode::Full, 429, "queue_full", Some("1")),
        (Mode::Draining, 503, "draining", Some("5")),
        (Mode::TooLarge, 413, "body_too_large", None),
    ] {
        site.node.set_mode(mode);
        let reply = site.post(PATH, "{\"a\":1}");
        let error = reply.expect_error(status, code);
        assert_eq!(reply.header("retry-after"), retry_after, "{mode:?}");
        assert_eq!(error["retry"], if retry_after.is_some() { "with_backoff" } else { "never" });
    }
    site.node.set_mode(Mode::Answer);
    site.post(PATH, " \n").expect_error(400, "invalid_request");
    site.post(PATH, "").expect_error(400, "invalid_request");
}

#[test]
fn an_outcome_that_is_not_known_is_504() {
    let site = Site::with(|options| options.answer_timeout = std::time::Duration::from_millis(50));
    site.node.set_mode(Mode::Hold);
    let error = site.post(PATH, "{\"a\":1}").expect_error(504, "timeout");
    assert_eq!(error["retry"], "unknown");
    assert!(error["message"].as_str().unwrap().contains("outcome is unknown"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("`id`"), "{error}");

    site.node.set_mode(Mode::Stop);
    let error = site.post(PATH, "{\"a\":1}").expect_error(504, "job_stopped");
    assert_eq!(error["retry"], "unknown");
    assert!(error["message"].as_str().unwrap().contains("(value out of range)"), "{error}");
}

#[test]
fn what_is_clearly_not_json_is_415() {
    let site = Site::new();
    for content_type in ["image/png", "multipart/form-data; boundary=x"] {
        site.post_as(PATH, content_type, "{}").expect_error(415, "unsupported_media_type");
    }
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8"]
    {
        assert_eq!(site.post_as(PATH, content_type, "{}").status, 200, "{content_type}");
    }
    let reply = site.call("POST", PATH, "Content-Encoding: br\r\n", b"{}");
    reply.expect_error(415, "unsupported_media_type");
}

#[test]
fn bodies_may_come_in_chunks() {
    let site = Site::new();
    let mut connection = site.connect();
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    connection.write(head.as_bytes());
    for chunk in ["{\"ca", "rd\":\"c1\"}\n", "{\"card\":\"c2\"}"] {
        connection.write(format!("{:x}\r\n{chunk}\r\n", chunk.len()).as_bytes());
    }
    connection.write(b"0\r\n\r\n");
    let cards: Vec<_> = connection.reply(false).lines().iter().map(|line| line["card"].clone()).collect();
    assert_eq!(cards, ["c1", "c2"]);
}

#[test]
fn a_connection_takes_one_request_after_the_other() {
    let site = Site::new();
    let mut connection = site.connect();
    for number in 0..3 {
        connection.send("POST", PATH, "", format!("{{\"a\":{number}}}").as_bytes());
        assert_eq!(connection.reply(false).lines()[0]["a"], number);
    }
    // Two at once: answered in their order.
    connection.send("POST", PATH, "", b"{\"a\":10}");
    connection.send("POST", PATH, "", b"{\"a\":11}");
    assert_eq!(connection.reply(false).lines()[0]["a"], 10);
    assert_eq!(connection.reply(false).lines()[0]["a"], 11);
    // An error does not end it.
    connection.send("POST", "/v1/jobs/pay/sources/payments", "", b"{\"a\":12}");
    assert_eq!(connection.reply(false).status, 404);
    connection.send("POST", PATH, "", b"{\"a\":13}");
    assert_eq!(connection.reply(false).status, 200);
}
