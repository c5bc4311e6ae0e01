//! `/v1/cluster`, by script.

use serde_json::{Value, json};
use crate::client::Site;
use crate::schema::check;

#[test]
fn a_node_in_no_cluster_says_so() {
    let site = Site::new();
    let replies = [
        site.get("/v1/cluster"),
        site.post("/v1/cluster/nodes/a/drain", ""),
        site.delete("/v1/cluster/nodes/a/drain"),
    ];
    for reply in replies {
        let error = reply.expect_error(404, "not_found");
        assert_eq!(error["message"], "this node is in no cluster");
        assert!(error["hint"].as_str().unwrap().contains("--cluster"), "{error}");
    }
}

#[test]
fn the_cluster_is_as_documented() {
    let site = Site::new();
    site.node.join_cluster();
    for path in ["/v1/cluster", "/v1/cluster?job=pay"] {
        let cluster = site.get(path).json();
        check("Cluster", &cluster);
        assert_eq!(cluster["plan"], json!({"offset": 7, "author": "a"}));
        assert_eq!(cluster["members"][0]["beat_age_seconds"], 0.125);
        assert_eq!(cluster["members"][1]["beat_age_seconds"], Value::Null);
        let unit = &cluster["units"][0];
        assert_eq!(
            (&unit["active"], &unit["since"], &unit["why"]),
            (&json!("a"), &json!(7), &json!("new: most budget"))
        );
        assert_eq!(
            unit["followers"][0],
            json!({"node": "b", "takes_over": true, "position": 90, "ready": false})
        );
        assert_eq!(
            unit["report"],
            json!({"rows_per_second": 5, "bytes": 600, "position": 100, "ready": true})
        );
        assert_eq!(cluster["units"][1]["active"], Value::Null);
    }
    let error = site.get("/v1/cluster?job=x").expect_error(404, "not_found");
    assert_eq!((&error["message"], &error["detail"]), (&json!("no job \"x\""), &json!({"known": ["pay"]})));
    for query in ["job=", "job", "jobs=pay"] {
        site.get(&format!("/v1/cluster?{query}")).expect_error(400, "invalid_request");
    }
}

#[test]
fn who_may_change_something_drains_a_node_and_takes_it_back() {
    const DRAIN: &str = "/v1/cluster/nodes/b/drain";
    let site = Site::new();
    site.node.join_cluster();
    for method in ["POST", "DELETE"] {
        site.call_as_anyone(method, DRAIN, "", b"").expect_error(401, "unauthorized");
    }
    let member = site.post(DRAIN, "").json();
    check("ClusterMember", &member);
    assert_eq!((&member["name"], &member["drains"]), (&json!("b"), &json!(true)));
    assert_eq!(site.get("/v1/cluster").json()["members"][1]["drains"], true);
    assert_eq!(site.delete(DRAIN).json()["drains"], false);
    let error = site.post("/v1/cluster/nodes/x/drain", "").expect_error(404, "not_found");
    assert_eq!(error["hint"], "the nodes are \"a\", \"b\"");
    let error = site.post("/v1/cluster/nodes/slow/drain", "").expect_error(504, "timeout");
    assert_eq!(error["retry"], "unknown");
}
