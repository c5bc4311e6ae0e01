//! `/healthz`, `/readyz`, `/metrics`, and requests that are refused while the node is not ready.

use std::collections::HashMap;

use serde_json::json;
use thalweg_server::control::{FailedJob, Readiness};

use crate::client::Site;

const RECORDS: &str = "/v1/jobs/payments/sources/payments";
const QUERY: &str = "/v1/jobs/payments/operators/features/queries/card_1h?card=c1";

#[test]
fn a_node_that_is_not_ready_takes_nothing_new() {
    let site = Site::new();
    assert_eq!(site.get("/readyz").json(), json!({"status": "ready"}));
    assert_eq!(site.get("/healthz").json(), json!({"status": "ok"}));

    site.node.set_readiness(Readiness::Starting);
    let refused = [
        site.get("/readyz"),
        site.post(RECORDS, "{}"),
        site.get(QUERY),
        site.get("/v1/jobs/payments"),
        site.delete("/v1/jobs/payments"),
        site.post("/v1/jobs/readings", "name: readings"),
    ];
    for reply in refused {
        reply.expect_error(503, "starting");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    for path in ["/healthz", "/v1/jobs", "/metrics", "/openapi.json"] {
        assert_eq!(site.get(path).status, 200, "{path}");
    }

    site.node.set_readiness(Readiness::Draining);
    for reply in
        [site.get("/readyz"), site.post(RECORDS, "{}"), site.post("/v1/jobs/readings", "name: readings")]
    {
        reply.expect_error(503, "draining");
        assert!(reply.header("retry-after").is_some());
    }
    assert_eq!(site.get(QUERY).status, 200);
    assert_eq!(site.get("/v1/jobs/payments").status, 200);
    assert_eq!(site.get("/healthz").status, 200);
}

#[test]
fn a_node_with_a_job_that_takes_nothing_is_not_ready_and_names_it() {
    let site = Site::new();
    let failed = |name: &str, is_read_only, why: &str| FailedJob {
        name: name.to_owned(),
        is_read_only,
        why: why.to_owned(),
    };
    site.node.set_failed(vec![
        failed("payments", true, "write \"d/x\": no space left on device"),
        failed("flows", false, "operator \"f\" panicked"),
    ]);
    let reply = site.get("/readyz");
    assert_eq!(reply.header("retry-after"), Some("5"));
    let error = reply.expect_error(503, "not_ready");
    let message = error["message"].as_str().unwrap();
    for part in ["job \"payments\" is only read: write", "no space", "job \"flows\" has failed: operator"] {
        assert!(message.contains(part), "{message}");
    }
    let states: Vec<_> =
        error["detail"]["jobs"].as_array().unwrap().iter().map(|job| &job["state"]).collect();
    assert_eq!(states, ["read_only", "failed"]);
    assert_eq!(site.get("/healthz").status, 200, "the process answers all the same");
    assert_eq!(site.post(RECORDS, "{\"a\":1}").status, 200, "others work on");
    assert!(site.get("/metrics").body.contains("\nthalweg_ready_info 0\n"));
    site.node.set_failed(Vec::new());
    assert_eq!(site.get("/readyz").status, 200);
}

#[test]
fn a_node_is_not_ready_before_each_job_takes_records() {
    let site = Site::new();
    site.node.set_unopened(&["pay", "flows"]);
    let error = site.get("/readyz").expect_error(503, "not_ready");
    let message = error["message"].as_str().unwrap();
    for job in ["pay", "flows"] {
        assert!(message.contains(&format!("job {job:?} takes no records on this node yet")), "{message}");
    }
    assert_eq!(error["detail"]["jobs"][0], json!({"job": "pay", "state": "opening"}));
    assert_eq!(site.post(RECORDS, "{\"a\":1}").status, 200, "others work on");
    assert!(site.get("/metrics").body.contains("\nthalweg_ready_info 0\n"));
    site.node.set_unopened(&[]);
    assert_eq!(site.get("/readyz").status, 200);
}

/// Series by name and labels, as written. Panics over anything that is not the text format.
fn parse(text: &str) -> HashMap<String, f64> {
    let mut kinds: HashMap<&str, &str> = HashMap::new();
    let mut series = HashMap::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(kinds.insert(name, kind).is_none(), "{name} twice");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (series_name, value) = line.rsplit_once(' ').unwrap();
        let name = series_name.split('{').next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
            name.strip_suffix(suffix).filter(|family| kinds.get(family) == Some(&"histogram"))
        });
        let kind = kinds.get(family.unwrap_or(name)).unwrap_or_else(|| panic!("{name} has no type"));
        assert_eq!(*kind == "counter", name.ends_with("_total"), "{name}");
        if let Some(labels) = series_name.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            assert!(labels.starts_with('{') && labels.ends_with("\"}"), "{line}");
        }
        let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(series.insert(series_name.to_owned(), value).is_none(), "{series_name} twice");
    }
    series
}

#[test]
fn metrics_say_what_jobs_and_requests_did() {
    let site = Site::new();
    assert_eq!(site.post(RECORDS, "{\"a\":1}").status, 200);
    assert_eq!(site.post(RECORDS, "{\"a\":1}").status, 200);
    assert_eq!(site.post("/v1/jobs/x/sources/y", "{}").status, 404);
    assert_eq!(site.get("/nowhere").status, 404);

    let reply = site.get("/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let series = parse(&reply.body);
    let route = "method=\"POST\",route=\"/v1/jobs/{job}/sources/{source}\"";
    let (features, source) =
        ("job=\"payments\",operator=\"features\"", "job=\"payments\",source=\"payments\"");
    for (name, value) in [
        ("thalweg_records_total{job=\"payments\",source=\"payments\"}".to_owned(), 1_000.0),
        ("thalweg_rejects_total{job=\"payments\",source=\"payments\"}".to_owned(), 10.0),
        ("thalweg_answers_total{job=\"payments\"}".to_owned(), 990.0),
        ("thalweg_cycles_total{job=\"payments\"}".to_owned(), 9.0),
        ("thalweg_job_state_info{job=\"payments\",state=\"running\"}".to_owned(), 1.0),
        ("thalweg_job_state_info{job=\"payments\",state=\"failed\"}".to_owned(), 0.0),
        ("thalweg_operator_records_in_total{job=\"payments\",operator=\"features\"}".to_owned(), 1_000.0),
        ("thalweg_operator_records_out_total{job=\"payments\",operator=\"features\"}".to_owned(), 980.0),
        ("thalweg_operator_busy_seconds_total{job=\"payments\",operator=\"features\"}".to_owned(), 5.0),
        ("thalweg_operator_queued_bytes{job=\"payments\",operator=\"features\"}".to_owned(), 128.0),
        ("thalweg_operator_cache_misses_total{job=\"payments\",operator=\"features\"}".to_owned(), 60.0),
        ("thalweg_operator_state_bytes{job=\"payments\",operator=\"features\"}".to_owned(), 8_192.0),
        ("thalweg_operator_blocked_tasks{job=\"payments\",operator=\"features\"}".to_owned(), 1.0),
        ("thalweg_operator_lag_seconds{job=\"payments\",operator=\"features\"}".to_owned(), 2.5),
        ("thalweg_operator_task_time_seconds{job=\"payments\",operator=\"features\"}".to_owned(), 1.7e9),
        (format!("thalweg_operator_latency_seconds_bucket{{{features},le=\"0.000256\"}}"), 0.0),
        (format!("thalweg_operator_latency_seconds_bucket{{{features},le=\"0.001024\"}}"), 980.0),
        (format!("thalweg_operator_latency_seconds_bucket{{{features},le=\"0.004096\"}}"), 995.0),
        (format!("thalweg_operator_latency_seconds_bucket{{{features},le=\"+Inf\"}}"), 1_000.0),
        (format!("thalweg_operator_latency_seconds_count{{{features}}}"), 1_000.0),
        (format!("thalweg_operator_latency_seconds_sum{{{features}}}"), 0.369),
        (format!("thalweg_operator_marker_seconds_bucket{{{features},le=\"0.000064\"}}"), 0.0),
        (format!("thalweg_operator_marker_seconds_bucket{{{features},le=\"0.000256\"}}"), 9.0),
        (format!("thalweg_operator_marker_seconds_count{{{features}}}"), 9.0),
        (format!("thalweg_operator_marker_cpu_seconds_bucket{{{features},le=\"0.000064\"}}"), 9.0),
        (format!("thalweg_operator_marker_cpu_seconds_count{{{features}}}"), 9.0),
        ("thalweg_source_lag_seconds{job=\"payments\",source=\"payments\"}".to_owned(), 1.5),
        (format!("thalweg_source_datagrams_total{{{source}}}"), 100.0),
        (format!("thalweg_source_lost_datagrams_total{{{source},reason=\"queue_full\"}}"), 7.0),
        (format!("thalweg_source_lost_datagrams_total{{{source},reason=\"not_allowed\"}}"), 3.0),
        (format!("thalweg_source_lost_records_total{{{source}}}"), 70.0),
        ("thalweg_ready_info".to_owned(), 1.0),
        (format!("thalweg_http_requests_total{{{route},status=\"200\"}}"), 2.0),
        (format!("thalweg_http_requests_total{{{route},status=\"404\"}}"), 1.0),
        ("thalweg_http_requests_total{method=\"\",route=\"none\",status=\"404\"}".to_owned(), 1.0),
        (format!("thalweg_http_request_duration_seconds_count{{{route}}}"), 3.0),
        (format!("thalweg_http_request_duration_seconds_bucket{{{route},le=\"+Inf\"}}"), 3.0),
        ("thalweg_http_requests_in_flight".to_owned(), 1.0),
    ] {
        assert_eq!(series.get(&name), Some(&value), "{name}\n{}", reply.body);
    }
}

#[test]
fn names_of_users_cannot_break_the_format_or_make_it_grow_without_bound() {
    let site = Site::new();
    site.node.set_snapshot(|job| {
        job.operators[0].name = "a\"b\\c\nd".to_owned();
        let one = job.operators[0].clone();
        job.operators.push(thalweg_server::snapshot::OperatorSnapshot { name: "e".to_owned(), ..one });
    });
    let series = parse(&site.get("/metrics").body);
    let name = "thalweg_operator_queued_bytes{job=\"payments\",operator=\"a\\\"b\\\\c\\nd\"}";
    assert_eq!(series.get(name), Some(&128.0));
    assert_eq!(series["thalweg_metrics_omitted_jobs"], 0.0);

    site.node.set_snapshot(|job| {
        let one = job.operators[0].clone();
        let named = |number: i32| thalweg_server::snapshot::OperatorSnapshot {
            name: format!("o{number}"),
            ..one.clone()
        };
        job.operators = (0..5_000).map(named).collect();
    });
    let series = parse(&site.get("/metrics").body);
    assert_eq!(series["thalweg_metrics_omitted_jobs"], 1.0);
    assert!(series.len() < 500, "{} series", series.len());
}
