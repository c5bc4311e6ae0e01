//! `/openapi.json` against the server.

use std::collections::BTreeSet;

use serde_json::Value;
use thalweg_flow::LatencyCounts;

use crate::client::{Site, document};
use crate::schema::check;

const QUERY: &str = "/v1/jobs/payments/operators/features/queries";

/// `GET /v1/jobs` of every operation.
fn documented() -> BTreeSet<String> {
    let mut routes = BTreeSet::new();
    for (path, item) in document()["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            routes.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    routes
}

#[test]
fn every_route_is_documented_and_every_documented_one_is_there() {
    let site = Site::new();
    let served: BTreeSet<String> = site.get("/nowhere").expect_error(404, "not_found")["detail"]["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|route| route.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(served, documented());
    assert_eq!(served.len(), 17);

    for route in documented() {
        let (method, path) = route.split_once(' ').unwrap();
        let path = path
            .replace("{job}", "j")
            .replace("{source}", "s")
            .replace("{operator}", "o")
            .replace("{query}", "q")
            .replace("{node}", "n");
        let reply = site.call(method, &path, "", b"");
        assert_ne!(reply.status, 405, "{route}");
        let is_routed = reply.status != 404 || reply.error()["detail"]["routes"].is_null();
        assert!(is_routed, "{route}: {reply:?}");
    }
}

#[test]
fn methods_that_are_not_documented_are_405() {
    let site = Site::new();
    let documented = documented();
    for (path, _) in document()["paths"].as_object().unwrap() {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            if documented.contains(&format!("{method} {path}")) {
                continue;
            }
            let reply = site.call(method, &path.replace(['{', '}'], ""), "", b"");
            reply.expect_error(405, "method_not_allowed");
            let allowed: BTreeSet<String> =
                reply.header("allow").unwrap().split(", ").map(|method| format!("{method} {path}")).collect();
            assert!(!allowed.is_empty() && allowed.is_subset(&documented), "{allowed:?}");
        }
    }
    let reply = site.call("HEAD", "/healthz", "", b"");
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
}

#[test]
fn the_document_holds_together() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{method} {path}: id twice");
            assert!(["read", "write", "admin"].contains(&operation["x-role"].as_str().unwrap()));
            assert!(!operation["responses"].as_object().unwrap().is_empty());
        }
        let named = item["parameters"].as_array().unwrap().len();
        assert_eq!(named, path.matches('{').count(), "{path}");
    }
    let mut references = BTreeSet::new();
    collect_references(document, &mut references);
    for reference in references {
        let name = reference.strip_prefix("#/components/schemas/").unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{reference}");
    }
}

fn collect_references<'a>(value: &'a Value, into: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            into.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| collect_references(value, into));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_references(value, into)),
        _ => {}
    }
}

#[test]
fn replies_are_as_documented() {
    let site = Site::new();
    let records = "/v1/jobs/payments/sources/payments";
    check("Jobs", &site.get("/v1/jobs").json());
    check("Job", &site.get("/v1/jobs/payments").json());
    check("Present", &site.get(&format!("{QUERY}/card_1h?card=c1")).json());
    check("AddedQuery", &site.post(&format!("{QUERY}/new"), "SELECT 1").json());
    check("Accepted", &site.post(&format!("{records}?reply=none"), "{}").json());
    check("ErrorLine", &site.post(records, "nope").lines()[0]);
    check("Status", &site.get("/healthz").json());
    check("Status", &site.get("/readyz").json());
    check("Error", &site.get("/nowhere").json());
    check("Error", &site.get("/v1/jobs/x").json());
    let mistaken = site.post(&format!("{QUERY}/bad"), "sume").json();
    check("Error", &mistaken);
    check("Mistake", &mistaken["error"]["detail"][0]);
    check("Summary", &site.delete("/v1/jobs/payments").json());

    site.node.set_snapshot(|job| {
        job.failure = None;
        job.tick = None;
        job.sources[0].progress = None;
        job.sources[0].has_door = false;
        job.sources[0].datagrams = None;
        job.sources[0].lag = None;
        job.operators[0].latency = LatencyCounts::default();
        job.operators[0].lag = None;
        job.operators[0].task_time = None;
    });
    let reply = site.post("/v1/jobs/readings", "name: readings");
    check("Job", &reply.json());
}
