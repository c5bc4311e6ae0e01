//! What of a job its state lives by: it is in every commit record, and a job file that changes it is refused.
//!
//! Queries, filters, sinks and schemas may change. The names and types of sources, the keys by which an operator splits
//! its records, the number of its partitions, the event time of its sources, everything else that its state cannot be
//! read without, and the back end may not: they decide where state is kept.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use thalweg_connect::SourceTime;
use thalweg_types::Error;

use crate::job_file::{CheckedJob, CheckedOperator, NodeRef};

/// Sources by name and type, operators that keep state by name, type and the keys of it, and the back end of those.
///
/// What sinks are called in the graph comes in as they are opened ([`super::Adopted::sink`]): positions are kept by that.
pub(super) fn of(job: &CheckedJob) -> Value {
    let sources: Vec<Value> = job
        .sources
        .iter()
        .map(|source| json!({ "name": source.name.as_ref(), "type": source.plugin.name() }))
        .collect();
    let operators: Vec<Value> =
        job.operators.iter().filter_map(|operator| of_operator(job, operator)).collect();
    // Without state it may be kept anywhere.
    let backend = (!operators.is_empty()).then_some(&job.state.backend);
    json!({ "sources": sources, "operators": operators, "backend": backend })
}

fn of_operator(job: &CheckedJob, operator: &CheckedOperator) -> Option<Value> {
    let prepared = &operator.prepared;
    let kept_by = prepared.kept_by.as_ref();
    let mut keys: Vec<String> = prepared.keyed.iter().map(|(_, fields)| format!("{fields:?}")).collect();
    keys.extend(kept_by.iter().flat_map(|kept_by| kept_by.keys.iter().cloned()));
    if keys.is_empty() && kept_by.is_none() {
        return None;
    }
    let is_split = !keys.is_empty() || kept_by.is_some_and(|kept_by| kept_by.is_split);
    Some(json!({
        "name": operator.name.as_ref(),
        "type": operator.plugin.name(),
        "keys": keys,
        "partitions": is_split.then_some(operator.partitions),
        "kept_by": kept_by.map(|kept_by| &kept_by.parts),
        "times": times(job, operator),
    }))
}

/// Names and types of the operators that kept state.
pub(super) fn operators(before: &Value) -> impl Iterator<Item = (&str, &str)> {
    let operators = before["operators"].as_array().into_iter().flatten();
    operators.filter_map(|operator| Some((operator["name"].as_str()?, operator["type"].as_str()?)))
}

/// What the event time of each source is from which records come to an operator.
fn times(job: &CheckedJob, operator: &CheckedOperator) -> BTreeMap<String, String> {
    let mut times = BTreeMap::new();
    let mut nodes: Vec<NodeRef> = operator.inputs.iter().map(|input| input.endpoint.node).collect();
    let mut seen = Vec::new();
    while let Some(node) = nodes.pop() {
        if seen.contains(&node) {
            continue;
        }
        seen.push(node);
        match node {
            NodeRef::Operator(place) => {
                nodes.extend(job.operators[place].inputs.iter().map(|input| input.endpoint.node));
            }
            NodeRef::Source(place) => {
                let source = &job.sources[place];
                let time = match &source.time {
                    SourceTime::Field(field) => format!("field {:?}", source.schema.fields()[*field].name),
                    SourceTime::Computed(compute) => compute.text().to_owned(),
                    SourceTime::Arrival => "arrival".to_owned(),
                };
                times.insert(source.name.to_string(), time);
            }
        }
    }
    times
}

/// What a record says of a job whose parts are those of an earlier one: its state may be used again.
pub(super) fn over(before: &Value, mut now: Value) -> Value {
    // Parts are found under the names that sinks had.
    now["sinks"] = before["sinks"].clone();
    if now["backend"].is_null() {
        now["backend"] = before["backend"].clone();
    }
    let mut operators = now["operators"].as_array().cloned().unwrap_or_default();
    for operator in before["operators"].as_array().into_iter().flatten() {
        if !operators.iter().any(|other| other["name"] == operator["name"]) {
            operators.push(operator.clone());
        }
    }
    now["operators"] = operators.into();
    now
}

/// What a sink's part of the last commit is called, where it has one.
pub(super) fn node_of_sink<'a>(before: &'a Value, name: &str, now: &'a str) -> Option<&'a str> {
    match &before["sinks"] {
        Value::Null => Some(now),
        nodes => nodes[name].as_str(),
    }
}

/// Whether the job of the last commit had a sink of this name. Records of older builds do not say.
pub(super) fn knows_sink(before: &Value, name: &str) -> bool {
    before["sinks"].as_object().is_none_or(|nodes| nodes.contains_key(name))
}

/// Names a sink that has no part in a commit yet.
pub(super) fn add_sink(job: &mut Value, name: &str) {
    job["sinks"][name] = Value::Null;
}

/// Whether a part of the last commit is that of a sink.
pub(super) fn is_sink(before: &Value, node: &str) -> bool {
    before["sinks"].as_object().is_some_and(|nodes| nodes.values().any(|other| other == node))
}

/// Whether a job may go on with the state of an earlier one.
///
/// # Errors
/// Of class user: says what differs, and how to go on.
pub(super) fn check(before: &Value, now: &Value, job: &str) -> Result<(), Error> {
    let refuse = |what: String| {
        Err(Error::user(format!("job {job:?} cannot go on with its state: {what}")).with_hint(
            "change it back, or begin anew: give the job another name (an operator by itself begins anew under another \
             name, too), name another --data-dir, or remove the job's folder",
        ))
    };
    if let (Some(was), Some(is)) = (before["backend"].as_str(), now["backend"].as_str())
        && was != is
    {
        return refuse(format!("it is kept in back end {was:?}, and state.backend is {is:?} now"));
    }
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    for source in list(before, "sources") {
        let name = &source["name"];
        match list(now, "sources").into_iter().find(|other| other["name"] == *name) {
            None => return refuse(format!("source {name} is gone")),
            Some(other) if other["type"] != source["type"] => {
                return refuse(format!(
                    "source {name} was of type {}, it is {} now",
                    source["type"], other["type"]
                ));
            }
            Some(_) => {}
        }
    }
    for operator in list(before, "operators") {
        let name = &operator["name"];
        // One that is gone takes its state with it.
        let Some(other) = list(now, "operators").into_iter().find(|other| other["name"] == *name) else {
            continue;
        };
        if other["type"] != operator["type"] {
            return refuse(format!(
                "operator {name} was of type {}, it is {} now",
                operator["type"], other["type"]
            ));
        }
        if let (Some(was), Some(is)) = (operator["partitions"].as_u64(), other["partitions"].as_u64())
            && was != is
        {
            return refuse(format!("operator {name} had {was} partitions, it has {is} now"));
        }
        let keys = list(&other, "keys");
        let mut before = list(&operator, "keys");
        if operator.get("kept_by").is_none() {
            // Records of builds before that have the stage without a key, too.
            let label = if before.iter().any(|key| key == "global_") { "global_" } else { "global" };
            before.retain(|key| key != label);
        }
        if let Some(gone) = before.into_iter().find(|key| !keys.contains(key)) {
            return refuse(format!(
                "operator {name} was split by {gone}, it is split by {} now",
                other["keys"]
            ));
        }
        if let (Some(was), Some(is)) = (operator["kept_by"].as_object(), other["kept_by"].as_object())
            && let Some((what, was)) = was.iter().find(|(what, was)| is.get(*what) != Some(*was))
        {
            let is = is.get(what).unwrap_or(&Value::Null);
            return refuse(format!("operator {name} kept its state by {what} {was}, by {what} {is} now"));
        }
        // Records of builds before do not say. A source that comes or goes is another matter.
        for (source, was) in operator["times"].as_object().into_iter().flatten() {
            if let Some(is) = other["times"].get(source).filter(|is| *is != was) {
                let (was, is) = (was.as_str().unwrap_or_default(), is.as_str().unwrap_or_default());
                return refuse(format!(
                    "operator {name} kept its state by the event time of source {source:?}, which was {was}, it is {is} now"
                ));
            }
        }
        // Elements without a key have one partition where nothing is said.
        let count = |operator: &Value| operator["partitions"].as_u64().unwrap_or(1);
        let (was, is) = (count(&operator), count(&other));
        if operator["kept_by"].is_object() && other["kept_by"].is_object() && was != is {
            return refuse(format!("operator {name} had {was} partitions, it has {is} now"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_is_found_under_the_name_that_it_had_in_the_graph() {
        let before = json!({ "sinks": { "out": "out (sink)", "(rejects)": "rejects" } });
        assert_eq!(node_of_sink(&before, "out", "out"), Some("out (sink)"));
        assert_eq!(node_of_sink(&before, "(rejects)", "rejects (writer)"), Some("rejects"));
        assert_eq!(
            node_of_sink(&before, "rejects", "rejects"),
            None,
            "it is new, and the writer had the name"
        );
        assert!(is_sink(&before, "rejects") && !is_sink(&before, "out"));
        assert_eq!(node_of_sink(&Value::Null, "out", "out"), Some("out"));
        assert!(!is_sink(&Value::Null, "out"));
    }

    fn identity() -> Value {
        json!({
            "sources": [{ "name": "a", "type": "file" }, { "name": "b", "type": "http" }],
            "operators": [
                { "name": "m", "type": "metrics", "keys": ["card", "shop"], "partitions": 4, "kept_by": null },
                { "name": "c", "type": "count", "keys": [], "partitions": 4, "kept_by": { "key": "[card string]" } },
                { "name": "all", "type": "count", "keys": [], "partitions": null, "kept_by": { "key": "[]" } },
            ],
            "backend": "indexed",
        })
    }

    #[test]
    fn what_state_does_not_live_by_may_change() {
        let mut now = identity();
        now["sources"] = json!([
            { "name": "b", "type": "http" },
            { "name": "c", "type": "file" },
            { "name": "a", "type": "file" }
        ]);
        now["operators"][0]["keys"] = json!(["merchant", "card", "shop"]);
        assert!(check(&identity(), &now, "j").is_ok());
        now["operators"] = json!([]);
        now["backend"] = Value::Null;
        assert!(check(&identity(), &now, "j").is_ok());
    }

    #[test]
    fn records_of_builds_before_have_a_stage_without_a_key() {
        let mut before = identity();
        before["operators"] =
            json!([{ "name": "m", "type": "metrics", "keys": ["card", "global"], "partitions": 4 }]);
        check(&before, &identity(), "j").unwrap();
        before["operators"][0]["keys"] = json!(["merchant", "global"]);
        assert!(check(&before, &identity(), "j").unwrap_err().message().contains("split by \"merchant\""));
    }

    #[test]
    fn an_operator_that_is_left_out_keeps_its_say_while_its_parts_are_there() {
        let mut now = identity();
        (now["operators"], now["backend"]) = (json!([]), Value::Null);
        let mut before = identity();
        before["sinks"] = json!({ "out": "out" });
        let both = over(&before, now);
        assert_eq!(both, before);
        let mut again = identity();
        again["operators"][0]["partitions"] = json!(2);
        assert!(check(&both, &again, "j").is_err());
    }

    #[test]
    fn what_it_lives_by_may_not() {
        type Change = fn(&mut Value);
        let changes: [(Change, &str); 9] = [
            (
                |now| now["backend"] = json!("redis"),
                "in back end \"indexed\", and state.backend is \"redis\" now",
            ),
            (|now| now["sources"] = json!([{ "name": "a", "type": "file" }]), "source \"b\" is gone"),
            (
                |now| now["sources"][0]["type"] = json!("tcp"),
                "source \"a\" was of type \"file\", it is \"tcp\" now",
            ),
            (
                |now| now["operators"][0]["partitions"] = json!(8),
                "operator \"m\" had 4 partitions, it has 8 now",
            ),
            (
                |now| now["operators"][0]["keys"] = json!(["merchant", "shop"]),
                "operator \"m\" was split by \"card\", it is split by [\"merchant\",\"shop\"] now",
            ),
            (
                |now| now["operators"][1]["kept_by"] = json!({ "key": "[shop string]" }),
                "operator \"c\" kept its state by key \"[card string]\", by key \"[shop string]\" now",
            ),
            (|now| now["operators"][1]["kept_by"] = json!({}), "by key \"[card string]\", by key null now"),
            (
                |now| now["operators"][2]["kept_by"] = json!({ "key": "[card string]" }),
                "operator \"all\" kept its state by key \"[]\", by key \"[card string]\" now",
            ),
            (|now| now["operators"][0]["type"] = json!("count"), "operator \"m\" was of type \"metrics\""),
        ];
        for (change, said) in changes {
            let mut now = identity();
            change(&mut now);
            let error = check(&identity(), &now, "j").unwrap_err();
            assert!(error.message().contains(said), "{error}");
            assert_eq!(error.class(), thalweg_types::Class::User);
            assert!(error.hint().is_some_and(|hint| hint.contains("begin anew")));
        }
    }
}
