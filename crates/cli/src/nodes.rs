//! `nodes`, `cluster explain` and `drain`: a node of a cluster is asked over HTTP, and says what it knows of all.

use std::fmt::Write as _;
use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

use crate::Outcome;
use crate::args::{Asked, Drain, ExplainUnit, Nodes, Shown};
use crate::client;
use crate::output::{Failure, talk, with_hint, write};

/// How long a node may take to answer.
const LIMIT: Duration = Duration::from_secs(30);

/// As much of the answer as is shown. Fields that a newer node adds are passed over.
#[derive(Deserialize)]
struct Cluster {
    node: String,
    prefix: String,
    plan: Option<Plan>,
    unplanned: u64,
    members: Vec<Member>,
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Plan {
    offset: u64,
    author: Option<String>,
}

#[derive(Deserialize)]
struct Member {
    name: String,
    host: String,
    capacity: u32,
    address: String,
    plans: bool,
    drains: bool,
    beat_age_seconds: Option<f64>,
    units_active: u64,
    units_followed: u64,
}

#[derive(Deserialize)]
struct Job {
    name: String,
    stages: Vec<Stage>,
}

#[derive(Deserialize)]
struct Stage {
    name: String,
    partitions: u32,
}

#[derive(Deserialize)]
struct Unit {
    stage: String,
    partition: u32,
    report: Option<Report>,
    failure: Option<String>,
    explanation: String,
}

#[derive(Deserialize)]
struct Report {
    rows_per_second: u64,
    bytes: u64,
    position: u64,
    ready: bool,
}

pub(crate) fn list(args: &Nodes) -> Outcome {
    let mut said = ask(&args.asked, None)?;
    match args.format {
        Shown::Json => write(&format!("{}\n", said["members"].take())),
        Shown::Table => write(&table(&parsed(said)?)),
    }
}

pub(crate) fn explain(args: &ExplainUnit) -> Outcome {
    let mut said = ask(&args.asked, Some(&args.job))?;
    let units = match said["units"].take() {
        Value::Array(units) => units,
        _ => return Err(strange()),
    };
    let cluster: Cluster = parsed(said)?;
    let mut found = Vec::new();
    for json in units {
        let unit: Unit = parsed(json.clone())?;
        let is_wanted = args.unit.as_ref().is_none_or(|(stage, partition)| {
            unit.partition == *partition && stage.as_ref().is_none_or(|stage| *stage == unit.stage)
        });
        if is_wanted {
            found.push((json, unit));
        }
    }
    if found.is_empty() {
        return Err(no_unit(&cluster, &args.job));
    }
    match args.format {
        Shown::Json => write(&format!("{}\n", Value::from_iter(found.into_iter().map(|(json, _)| json)))),
        Shown::Table => {
            let texts: Vec<String> = found.iter().map(|(_, unit)| explained(unit)).collect();
            write(&texts.join("\n"))
        }
    }
}

pub(crate) fn drain(args: &Drain) -> Outcome {
    let file = &args.token_file;
    let token = std::fs::read_to_string(file)
        .map_err(|error| Failure::Usage(format!("error: --token-file: read {file:?}: {error}")))?;
    let mut url = url_of(&args.asked)?;
    if let Ok(mut path) = url.path_segments_mut() {
        path.extend(["v1", "cluster", "nodes", &args.node, "drain"]);
    }
    let http = client::client(Some(LIMIT))?;
    let request = if args.undo { http.delete(url) } else { http.post(url) };
    let member: Member = parsed(answer(request.bearer_auth(token.trim()))?)?;
    let (name, count) = (&member.name, member.units_active);
    let said = match member.drains {
        true => format!("node {name:?} is to have no units; it has {count} now"),
        false => format!("node {name:?} may have units again; it has {count} now"),
    };
    talk(&said);
    Ok(())
}

/// `GET /v1/cluster`.
fn ask(asked: &Asked, job: Option<&str>) -> Result<Value, Failure> {
    let mut url = url_of(asked)?;
    if let Ok(mut path) = url.path_segments_mut() {
        path.extend(["v1", "cluster"]);
    }
    if let Some(job) = job {
        url.query_pairs_mut().append_pair("job", job);
    }
    answer(client::client(Some(LIMIT))?.get(url))
}

fn url_of(asked: &Asked) -> Result<Url, Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        let hint = "name the node as http://127.0.0.1:8080";
        Failure::Usage(with_hint(&format!("--server {:?}: {why}", asked.url), Some(hint)))
    };
    let mut url = Url::parse(&client::address(&asked.url)).map_err(|error| wrong(&error))?;
    // So that a path is put after it.
    let has_host = match url.path_segments_mut() {
        Ok(mut path) => {
            path.pop_if_empty();
            true
        }
        Err(()) => false,
    };
    if has_host { Ok(url) } else { Err(wrong(&"expected a URL with a host")) }
}

fn answer(request: reqwest::blocking::RequestBuilder) -> Result<Value, Failure> {
    let response = request.send().map_err(client::unreached)?;
    let status = response.status();
    let body = response.text().map_err(client::unreached)?;
    if !status.is_success() {
        return Err(client::refused(status.as_u16(), &body));
    }
    serde_json::from_str(&body).map_err(|_| strange())
}

fn parsed<T: for<'a> Deserialize<'a>>(value: Value) -> Result<T, Failure> {
    serde_json::from_value(value).map_err(|_| strange())
}

fn strange() -> Failure {
    let hint = "see that --server is a node of a cluster, of this version or a newer one";
    Failure::Run(with_hint("the answer is not that of a node of a cluster", Some(hint)))
}

fn table(cluster: &Cluster) -> String {
    let plan = match &cluster.plan {
        Some(Plan { offset, author: Some(author) }) => format!("plan {offset} by {author}"),
        Some(Plan { offset, author: None }) => format!("plan {offset}"),
        None => "no plan yet".to_owned(),
    };
    let next = if cluster.unplanned > 0 { ", another one is to come" } else { "" };
    let mut text = format!("cluster {} as node {} sees it: {plan}{next}\n", cluster.prefix, cluster.node);
    let mut rows =
        vec![["node", "host", "address", "capacity", "active", "followed", "beat", ""].map(str::to_owned)];
    rows.extend(cluster.members.iter().map(|member| {
        let notes = [(member.plans, "plans"), (member.drains, "drains")];
        let notes: Vec<&str> = notes.iter().filter(|(is_so, _)| *is_so).map(|(_, note)| *note).collect();
        [
            member.name.clone(),
            member.host.clone(),
            member.address.clone(),
            member.capacity.to_string(),
            member.units_active.to_string(),
            member.units_followed.to_string(),
            member.beat_age_seconds.map_or("none".to_owned(), |age| format!("{age:.1} s ago")),
            notes.join(", "),
        ]
    }));
    let widths: Vec<usize> =
        (0..8).map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn explained(unit: &Unit) -> String {
    let mut text = unit.explanation.clone();
    match &unit.report {
        Some(Report { rows_per_second, bytes, position, ready }) => {
            let lag = if *ready { "without lag" } else { "with lag" };
            let bytes = thalweg_types::format_size(*bytes);
            let _ = writeln!(
                text,
                "last report: at offset {position}, {lag}; {rows_per_second} rows/s, {bytes} of state"
            );
        }
        None => text.push_str("last report: none\n"),
    }
    if let Some(failure) = &unit.failure {
        let _ = writeln!(text, "failure: {failure}");
    }
    text
}

fn no_unit(cluster: &Cluster, job: &str) -> Failure {
    let stages = cluster.jobs.iter().filter(|known| known.name == job).flat_map(|job| &job.stages);
    let units: Vec<String> = stages
        .map(|stage| format!("{}/0 to {}/{}", stage.name, stage.name, stage.partitions.saturating_sub(1)))
        .collect();
    let hint = format!("its units are {}", units.join(", "));
    Failure::Usage(with_hint(&format!("job {job:?} has no such unit"), Some(&hint)))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_are_a_table() {
        let member = |name: &str, plans, drains, age: Option<f64>| {
            json!({
                "name": name, "host": "h1", "capacity": 1, "address": "127.0.0.1:8080", "semantics": [1], "plans": plans,
                "drains": drains, "beat_age_seconds": age, "units_active": 43, "units_followed": 0,
            })
        };
        let cluster = json!({
            "node": "b", "prefix": "thalweg", "read": 9, "plan": { "offset": 17, "author": "a" }, "unplanned": 1, "jobs": [],
            "members": [member("a", true, false, Some(0.26)), member("long-name", false, true, None)],
        });
        expect![[r#"
            cluster thalweg as node b sees it: plan 17 by a, another one is to come
            node       host  address         capacity  active  followed  beat
            a          h1    127.0.0.1:8080  1         43      0         0.3 s ago  plans
            long-name  h1    127.0.0.1:8080  1         43      0         none       drains
        "#]]
        .assert_eq(&table(&parsed(cluster).ok().unwrap()));
    }

    #[test]
    fn the_address_of_a_node_may_have_a_path_and_needs_no_scheme() {
        let path = |url: &str| {
            let mut url = url_of(&Asked { url: url.to_owned() }).ok()?;
            url.path_segments_mut().ok()?.push("v1");
            Some(url.to_string())
        };
        assert_eq!(path("127.0.0.1:80").unwrap(), "http://127.0.0.1/v1");
        assert_eq!(path("https://proxy/node-a/").unwrap(), "https://proxy/node-a/v1");
        assert_eq!(path("http://[::1]:8080").unwrap(), "http://[::1]:8080/v1");
        assert!(path("http://").is_none() && path("mailto://").is_none());
    }
}
