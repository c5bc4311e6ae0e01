//! Access rights.

use std::collections::BTreeMap;

use serde_json::json;
use thalweg_server::Server;

use crate::client::{Reply, Site, admin, document, options};
use crate::fake::FakeNode;

/// Method, path and role of every route, as the document has them.
fn routes() -> Vec<(String, String, String)> {
    let mut routes = Vec::new();
    for (path, item) in document()["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
            let path = path
                .replace("{job}", "payments")
                .replace("{source}", "payments")
                .replace("{operator}", "features")
                .replace("{query}", "card_1h");
            routes.push((method.to_uppercase(), path, operation["x-role"].as_str().unwrap().to_owned()));
        }
    }
    routes
}

fn told_where(reply: &Reply, code: &str) {
    let error = reply.error();
    let path = admin().path().display().to_string();
    assert_eq!((error["code"].as_str(), error["retry"].as_str()), (Some(code), Some("never")));
    assert_eq!(error["detail"], json!({ "token_file": path }));
    assert!(error["hint"].as_str().unwrap().contains(&path), "{error}");
    assert!(!reply.body.contains(admin().reveal()), "the token itself is shown");
}

#[test]
fn every_route_that_changes_something_wants_the_token_and_no_other() {
    let mut roles: BTreeMap<String, usize> = BTreeMap::new();
    for (method, path, role) in routes() {
        *roles.entry(role.clone()).or_default() += 1;
        let what = format!("{method} {path}");
        let site = Site::new();
        let ask = |headers: &str| site.call_as_anyone(&method, &path, headers, b"");
        let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
        let (without, with) = (ask(""), ask(&bearer(admin().reveal())));
        // A drop has happened by now; the others do the same again.
        assert!(![401, 403].contains(&with.status), "{what}: {with:?}");
        let wrongs =
            ["x", &admin().reveal()[1..], &format!("{}0", admin().reveal())].map(|token| ask(&bearer(token)));
        if role == "admin" {
            assert_eq!(without.status, 401, "{what}: {without:?}");
            assert_eq!(without.header("www-authenticate"), Some("Bearer"));
            told_where(&without, "unauthorized");
            for wrong in wrongs {
                assert_eq!(wrong.status, 403, "{what}: {wrong:?}");
                told_where(&wrong, "forbidden");
            }
        } else {
            for reply in wrongs.iter().chain([&without]) {
                assert!(![401, 403].contains(&reply.status), "{what}: {reply:?}");
            }
        }
    }
    assert_eq!(
        roles,
        [("admin", 7), ("read", 9), ("write", 1)].map(|(role, count)| (role.to_owned(), count)).into()
    );
}

#[test]
fn what_is_refused_has_not_happened() {
    let site = Site::new();
    let jobs = || site.get("/v1/jobs").json()["jobs"].as_array().unwrap().len();
    let before = jobs();
    site.call_as_anyone("DELETE", "/v1/jobs/payments?drain=false", "", b"").expect_error(401, "unauthorized");
    site.call_as_anyone("POST", "/v1/jobs/readings", "", b"name: readings").expect_error(401, "unauthorized");
    assert_eq!(jobs(), before);
    // Refused before the body is read: one that never comes holds nothing up.
    let mut connection = site.connect();
    connection
        .write(b"POST /v1/jobs/readings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n");
    assert_eq!(connection.reply(false).status, 401);
}

#[test]
fn routes_that_want_the_token_say_so_in_the_document() {
    let document = document();
    let scheme = &document["components"]["securitySchemes"]["adminToken"];
    assert_eq!((scheme["type"].as_str(), scheme["scheme"].as_str()), (Some("http"), Some("bearer")));
    for item in document["paths"].as_object().unwrap().values() {
        for (_, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
            let wants = operation["x-role"] == "admin";
            assert_eq!(operation["security"] == json!([{ "adminToken": [] }]), wants, "{operation}");
            assert_eq!(operation["responses"]["401"].is_object(), wants, "{operation}");
        }
    }
}

#[test]
fn a_server_without_a_token_lets_nobody_change_anything() {
    let options = thalweg_server::Options { admin: None, ..options() };
    let site =
        Site::of(Server::bind("127.0.0.1:0", std::sync::Arc::new(FakeNode::default()), options).unwrap());
    for headers in ["", "Authorization: Bearer \r\n", "Authorization: Bearer x\r\n"] {
        site.call_as_anyone("DELETE", "/v1/jobs/payments", headers, b"").expect_error(403, "forbidden");
    }
    assert_eq!(site.get("/v1/jobs").status, 200);
}
