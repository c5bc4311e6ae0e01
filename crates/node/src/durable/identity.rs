//! What of a job its state lives by: it is in every commit record, and a job file that changes it is refused.
//!
//! Queries, filters, sinks and schemas may change. The names and types of sources, the keys by which an operator splits
//! its records, the number of its partitions, and the back end may not: state stands where it does because of them.

use serde_json::{Value, json};
use thalweg_types::Error;

use crate::job_file::CheckedJob;

/// Sources by name and type, keyed operators by name, type, keys and partitions, and the back end of those.
pub(super) fn of(job: &CheckedJob) -> Value {
    let sources: Vec<Value> = job
        .sources
        .iter()
        .map(|source| json!({ "name": source.name.as_ref(), "type": source.plugin.name() }))
        .collect();
    let operators: Vec<Value> = job
        .operators
        .iter()
        .filter_map(|operator| {
            let keys: Vec<String> = match &operator.prepared.metrics {
                Some(metrics) => metrics.stages.iter().map(|stage| stage.label.clone()).collect(),
                None if operator.prepared.keyed.is_empty() => return None,
                None => operator.prepared.keyed.iter().map(|(_, fields)| format!("{fields:?}")).collect(),
            };
            Some(json!({
                "name": operator.name.as_ref(),
                "type": operator.plugin.name(),
                "keys": keys,
                "partitions": operator.partitions,
            }))
        })
        .collect();
    // Without state it may be kept anywhere.
    let backend = (!operators.is_empty()).then_some(&job.state.backend);
    json!({ "sources": sources, "operators": operators, "backend": backend })
}

/// Whether a job may go on with what an earlier one has left.
///
/// # Errors
/// Of class user: what differs, and the way out.
pub(super) fn check(before: &Value, now: &Value, job: &str) -> Result<(), Error> {
    let refuse = |what: String| {
        Err(Error::user(format!("job {job:?} cannot go on with its state: {what}")).with_hint(
            "change it back, or begin anew: give the job another name, name another --data-dir, or remove the job's folder",
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
        if other["partitions"] != operator["partitions"] {
            return refuse(format!(
                "operator {name} had {} partitions, it has {} now",
                operator["partitions"], other["partitions"]
            ));
        }
        let keys = list(&other, "keys");
        if let Some(gone) = list(&operator, "keys").into_iter().find(|key| !keys.contains(key)) {
            return refuse(format!(
                "operator {name} was split by {gone}, it is split by {} now",
                other["keys"]
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Value {
        json!({
            "sources": [{ "name": "a", "type": "file" }, { "name": "b", "type": "http" }],
            "operators": [{ "name": "m", "type": "metrics", "keys": ["card", "global"], "partitions": 4 }],
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
        now["operators"][0]["keys"] = json!(["merchant", "card", "global"]);
        assert!(check(&identity(), &now, "j").is_ok());
        now["operators"] = json!([]);
        now["backend"] = Value::Null;
        assert!(check(&identity(), &now, "j").is_ok());
    }

    #[test]
    fn what_it_lives_by_may_not() {
        type Change = fn(&mut Value);
        let changes: [(Change, &str); 6] = [
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
                |now| now["operators"][0]["keys"] = json!(["merchant", "global"]),
                "operator \"m\" was split by \"card\", it is split by [\"merchant\",\"global\"] now",
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
