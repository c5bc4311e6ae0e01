//! Where records enter that no door takes: a stage in front of the first key.

use std::sync::Arc;

use thalweg_cluster::control::Name;

use super::{Reads, Refusal, StageCut};
use crate::job_file::{Ack, CheckedJob};

/// What a stage in front of the first key reads, and at which node if that is one; none where records are pushed to whichever
/// node listens.
pub(super) fn entry(
    job: &CheckedJob,
    above: &[usize],
    refusals: &mut Vec<Refusal>,
) -> Option<(Reads, Option<Arc<str>>)> {
    match node_of(job, refusals) {
        Some(node) => Some((Reads::Sources, Some(node))),
        None => shared_topic(job, above, refusals).map(|topic| (Reads::Topic(topic), None)),
    }
}

/// Whether a node of the job file can be one.
pub(super) fn check_node(what: impl Fn() -> String, node: &str, refusals: &mut Vec<Refusal>) -> bool {
    if Name::new(node).is_some() {
        return true;
    }
    refusals.push(Refusal::new(
        format!("{} at node {node:?}, which is no name of a node", what()),
        "take letters, digits, _ and -, at most 64 of them",
    ));
    false
}

/// The node that the sources of the job name.
fn node_of(job: &CheckedJob, refusals: &mut Vec<Refusal>) -> Option<Arc<str>> {
    let (first, node) = job.sources.iter().find_map(|source| Some((&source.name, source.node.as_ref()?)))?;
    check_node(|| format!("source {first:?} is read"), node, refusals);
    for source in &job.sources {
        let name = &source.name;
        if source.plugin.is_door() {
            refusals.push(Refusal::new(
                format!(
                    "source {name:?} is of type {}, and source {first:?} is read at node {node:?}: requests come to any node",
                    source.plugin.name()
                ),
                "give sources that are read at a node a job of their own",
            ));
        } else if source.node.as_ref() != Some(node) {
            let other = match &source.node {
                Some(other) => format!("at node {other:?}"),
                None => "at no node that it names".to_owned(),
            };
            refusals.push(Refusal::new(
                format!("source {first:?} is read at node {node:?}, and source {name:?} {other}"),
                "give all sources of the job the same `node`, or a job of their own",
            ));
        }
    }
    Some(Arc::clone(node))
}

/// The topic of others that units of the job read; none where records are pushed.
fn shared_topic(job: &CheckedJob, above: &[usize], refusals: &mut Vec<Refusal>) -> Option<Arc<str>> {
    let mut topics = Vec::new();
    for source in &job.sources {
        let (name, plugin) = (&source.name, &source.plugin);
        match plugin.topic(&source.options) {
            Ok(topic) => topics.extend(topic),
            Err(error) => refusals.push(Refusal::new(
                format!("source {name:?} {}", error.message()),
                error.hint().unwrap_or_default(),
            )),
        }
    }
    let topic = topics.first().cloned()?;
    if job.sources.len() > 1 {
        refusals.push(Refusal::new(
            format!("the job reads topic {topic:?} and has other sources, too"),
            "give each of them a job of its own: one that reads a topic has one source so far",
        ));
    }
    let at_ticks = above.iter().map(|place| &job.operators[*place]).filter(|of| of.prepared.at_ticks);
    refusals.extend(at_ticks.map(|operator| {
        Refusal::new(
            format!(
                "operator {:?} emits as time goes on, and reads a topic above any key: nobody says there what time it is",
                operator.name
            ),
            "put it below the operator with the key",
        )
    }));
    Some(topic)
}

/// The stage in front of the first key; `door` is what is above that.
pub(super) fn reading(door: &CheckedJob, (reads, node): (Reads, Option<Arc<str>>)) -> StageCut {
    let mut job = CheckedJob { is_door: false, ..door.clone() };
    for operator in &mut job.operators {
        (operator.tasks, operator.partitions, operator.parallelism) = (1, 1, None);
    }
    for source in &mut job.sources {
        source.reply = None;
        // What leaves the unit has to come out the same after a crash.
        source.ack = Ack::Synced;
    }
    let source = &job.sources[0];
    let partitions = match reads {
        Reads::Topic(_) => source.options.integer("partitions").and_then(|count| u32::try_from(count).ok()),
        Reads::Log | Reads::Sources => Some(1),
    };
    StageCut {
        name: Arc::clone(&source.name),
        operator: Arc::clone(&source.name),
        place: 0,
        streams: Arc::default(),
        unanswered: Arc::default(),
        said: Arc::default(),
        keys: Vec::new(),
        answers_later: false,
        senders: 0,
        partitions: partitions.unwrap_or(0),
        reads,
        node,
        job,
    }
}
