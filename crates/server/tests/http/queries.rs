//! `…/operators/{operator}/queries/{query}`

use serde_json::json;

use crate::client::Site;

const PATH: &str = "/v1/jobs/payments/operators/features/queries/card_1h";
const NEW: &str = "/v1/jobs/payments/operators/features/queries/card_1d";
const SQL: &str = "SELECT sum(amount) AS spent FROM payments GROUP BY card OVER SLIDING 1 DAY";

#[test]
fn present_values_come_with_their_key_and_task_time() {
    let site = Site::new();
    let reply = site.get(&format!("{PATH}?card=c%201"));
    assert_eq!(reply.status, 200);
    let expected = json!({
        "query": "card_1h",
        "key": {"card": "c 1"},
        "values": {"spent": 12.25, "n": 4},
        "as_of": "2012-02-22T16:46:28.967032Z",
    });
    assert_eq!(reply.json(), expected);
    assert_eq!(site.get(&format!("{PATH}?card")).json()["key"], json!({"card": null}));
}

#[test]
fn keys_that_are_not_the_querys_are_refused() {
    let site = Site::new();
    for query in ["", "?merchant=m1", "?card=c1&merchant=m1"] {
        let error = site.get(&format!("{PATH}{query}")).expect_error(400, "invalid_request");
        assert_eq!(error["message"], "the key of query \"card_1h\" is card");
        assert_eq!(error["hint"], "for example ?card=c1");
    }
    site.get(&format!("{PATH}?card=c1&card=c2")).expect_error(400, "invalid_request");
}

#[test]
fn what_is_not_there_is_named() {
    let site = Site::new();
    for (path, message) in [
        ("/v1/jobs/x/operators/features/queries/card_1h?card=c1", "no job \"x\""),
        ("/v1/jobs/payments/operators/x/queries/card_1h?card=c1", "no operator \"x\""),
        ("/v1/jobs/payments/operators/features/queries/x?card=c1", "no query \"x\""),
    ] {
        let error = site.get(path).expect_error(404, "not_found");
        assert_eq!(error["message"], message);
    }
}

#[test]
fn a_query_comes_and_goes() {
    let site = Site::new();
    site.get(&format!("{NEW}?card=c1")).expect_error(404, "not_found");
    let reply = site.post_as(NEW, "text/plain", SQL);
    assert_eq!(reply.status, 201);
    assert_eq!(reply.header("location"), Some(NEW));
    let expected = json!({"job": "payments", "operator": "features", "name": "card_1d", "query": SQL});
    assert_eq!(reply.json(), expected);
    assert_eq!(site.get(&format!("{NEW}?card=c1")).status, 200);

    site.post_as(NEW, "text/plain", SQL).expect_error(409, "already_exists");
    let reply = site.delete(NEW);
    assert_eq!((reply.status, reply.body.as_str()), (204, ""));
    site.delete(NEW).expect_error(404, "not_found");
}

#[test]
fn a_query_may_come_as_json() {
    let site = Site::new();
    let body = json!({ "query": SQL }).to_string();
    assert_eq!(site.post_as(NEW, "application/json", &body).json()["query"], SQL);
    assert_eq!(site.delete(NEW).status, 204);
    // As `curl -d` sends it.
    assert_eq!(site.post_as(NEW, "application/x-www-form-urlencoded", &body).status, 201);
    for body in ["{\"sql\":\"x\"}", "\"x\"", "{"] {
        site.post_as(NEW, "application/json", body).expect_error(400, "invalid_request");
    }
}

#[test]
fn a_mistake_points_into_the_query() {
    let site = Site::new();
    let error = site.post(NEW, "SELECT\n  sume(amount) FROM payments").expect_error(400, "invalid_query");
    assert_eq!(error["message"], "no aggregate \"sume\" (line 2, column 3)");
    assert_eq!(error["hint"], "did you mean \"sum\"?");
    let mistake = json!({
        "line": 2, "column": 3, "text": "sume", "message": "no aggregate \"sume\"",
        "expected": "an aggregate", "hint": "did you mean \"sum\"?",
    });
    assert_eq!(error["detail"], json!([mistake]));
}

#[test]
fn a_query_has_to_be_text() {
    let site = Site::new();
    site.post(NEW, "  ").expect_error(400, "invalid_request");
    site.call("POST", NEW, "", b"SELECT \xff").expect_error(400, "invalid_request");
    site.post_as(NEW, "image/png", SQL).expect_error(415, "unsupported_media_type");
}
