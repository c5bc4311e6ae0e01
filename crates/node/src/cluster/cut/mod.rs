//! Cuts a job before each of its keyed operators.
//!
//! What is above the first runs where records enter; a keyed operator and all that reads it, up to the next one, is a stage,
//! which runs once per partition of a topic, by the key of its rows, and sends what the next one reads to the topic of that.
//! A row's partition is that of the embedded job with as many partitions: the same hash, the same ranges.
//!
//! Operators with keys are in line ([`levels`]), also where they read the same rows side by side: what a later one reads passes
//! through the stages before it, by that one's key. One message per record at the door is the moment at which it counts, for
//! all keys alike.
//!
//! An operator of several keys is a *chain* of stages ([`Links`](crate::operator::Links)): each adds what it says of a record to the
//! row and sends it to the topic of the next key; the last one has all, and everything below.
//!
//! Where records do not enter by doors, a stage in front of the first key reads them, has what is above the key, and sends
//! rows as any other ([`Reads`], [`entry`]): it has a unit for each partition of a topic of others, or one that has the sources
//! of the job at the node which they name.
//!
//! Sinks that one node writes are a stage of one unit after the last key, at that node. `parts` has all these as jobs of their
//! own.

mod entry;
mod levels;
mod parts;
mod stage;

use std::sync::Arc;

use thalweg_connect::SinkPlugin;
use thalweg_types::Schema;

use self::entry::{entry, reading};
use self::levels::{Levels, Stream, comes_to, keys_of};
use self::parts::{Inside, chain, door_job, schema_of, sending, stage_job};
use super::topic::Elsewhere;
use crate::job_file::{CheckedJob, CheckedOperator};

/// Why a job cannot run on several nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub what: String,
    pub hint: String,
}

impl Refusal {
    fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }
}

/// A job in its parts.
#[derive(Clone)]
pub struct Cut {
    /// Names of the operators that run where records enter, in their order.
    pub above: Vec<Arc<str>>,
    /// At least one. Rows go from each to the next.
    pub stages: Vec<StageCut>,
    /// The part where records enter, but for what sends them on.
    door: CheckedJob,
    whole: CheckedJob,
}

/// What the units of a stage read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Their partitions of a topic of the cluster, to which doors or the units of the stage before it send.
    Log,
    /// Those of a topic that others write.
    Topic(Arc<str>),
    /// The sources of the job, at a node.
    Sources,
}

/// A part of a job that runs per partition.
#[derive(Clone)]
pub struct StageCut {
    /// That of the keyed operator, with a number where it is a chain.
    pub name: Arc<str>,
    /// The keyed operator.
    pub operator: Arc<str>,
    /// Its place in the chain.
    pub place: u32,
    /// What it reads, by the number that frames give its inputs. Records of a chain are followed by what earlier stages said of
    /// them.
    pub streams: Arc<[Schema]>,
    /// What each of the earlier stages of the chain says of a record.
    pub said: Arc<[Schema]>,
    /// Inputs of whose rows no door hears: they go past the operator that answers.
    pub unanswered: Arc<[u32]>,
    /// By input, the places of the fields that decide a row's partition; none where there is one partition.
    pub keys: Vec<Vec<usize>>,
    /// Doors wait for answers of a later stage.
    pub answers_later: bool,
    /// Units of the stage before that send to it; 0 where doors do.
    pub senders: u32,
    /// 0 where they are those of a topic of others, and nobody has said how many it has.
    pub partitions: u32,
    pub reads: Reads,
    /// The only node that may have its unit, where there is only one.
    pub node: Option<Arc<str>>,
    job: CheckedJob,
}

/// Cuts a job.
///
/// # Errors
/// All reasons for which it cannot run on several nodes.
pub fn cut(job: &CheckedJob) -> Result<Cut, Vec<Refusal>> {
    let mut refusals = Vec::new();
    let levels = Levels::of(job, &mut refusals);
    let Some(first) = levels.keyed.first().copied() else {
        return Err(vec![Refusal::new(
            "the job has no operator with a key: there is nothing to spread over nodes",
            "run it on one node, without --cluster",
        )]);
    };
    let keys: Vec<Vec<Vec<usize>>> =
        levels.keyed.iter().map(|place| keys_of(&job.operators[*place], &mut refusals)).collect();
    for (place, operator) in job.operators.iter().enumerate().filter(|(place, _)| levels.of[*place] > 0) {
        check_state(operator, &job.operators[levels.keyed[levels.of[place] - 1]].name, &mut refusals);
    }
    for sink in &job.sinks {
        levels.check_sink(job, sink, &mut refusals);
    }
    let reply = levels.reply(job, &mut refusals);
    levels.check_ids(job, &mut refusals);
    let streams = levels.streams(job, &keys, &mut refusals);
    let entry = entry(job, &levels.at(0), &mut refusals);
    if entry.is_none() {
        levels.check_doors(job, &streams[0], &mut refusals);
    }
    let mut exit = levels.exit(job, &mut refusals);
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let answered_by = reply.map(|reply| levels.level(reply.node)).unwrap_or(0);
    let comes_to_reply = reply.map(|reply| comes_to(job, reply.node)).unwrap_or_default();
    let mut stages: Vec<StageCut> = Vec::new();
    for (number, place) in levels.keyed.iter().enumerate() {
        let operator = &job.operators[*place];
        let part = Inside {
            keyed: *place,
            operators: levels.at(number + 1),
            sinks: levels.sinks_at(job, number + 1),
            reply: reply.filter(|reply| levels.level(reply.node) == number + 1),
            streams: streams[number].iter().map(|stream| stream.endpoint).collect(),
            next: match levels.keyed.get(number + 1) {
                Some(next) => {
                    let inputs = streams[number + 1].iter().map(|stream| stream.input.clone());
                    Some(sending(job, &job.operators[*next].name, inputs.collect()))
                }
                None => exit.as_mut().map(|exit| exit.sending(job)),
            },
        };
        let schemas: Vec<Schema> =
            streams[number].iter().map(|stream| schema_of(job, stream.endpoint)).collect();
        let keys: Vec<Vec<usize>> = streams[number].iter().map(|stream| stream.key.clone()).collect();
        let is_answered =
            |stream: &Stream| number >= answered_by || comes_to_reply.contains(&stream.endpoint);
        let unanswered = (0..).zip(&streams[number]).filter(|(_, stream)| !is_answered(stream));
        match &operator.prepared.links {
            Some(links) => stages.extend(chain(job, &part, links, &schemas[0])),
            None => stages.push(StageCut {
                operator: Arc::clone(&operator.name),
                name: Arc::clone(&operator.name),
                place: 0,
                streams: schemas.into(),
                unanswered: unanswered.map(|(input, _)| input).collect(),
                said: Arc::default(),
                partitions: if keys.iter().all(Vec::is_empty) { 1 } else { operator.partitions },
                keys,
                answers_later: false,
                senders: 0,
                reads: Reads::Log,
                node: None,
                job: stage_job(job, &part),
            }),
        }
    }
    stages.extend(exit.map(|exit| exit.stage(job)));
    let above = levels.at(0);
    let mut door = door_job(job, first, &above, &streams[0]);
    if let Some(entry) = entry {
        stages.insert(0, reading(&door, entry));
        for source in &mut door.sources {
            source.plugin = Arc::new(Elsewhere(Arc::clone(&source.plugin)));
            source.by_time = false;
        }
    }
    let is_taken = |name: &Arc<str>| stages.iter().filter(|other| other.name == *name).count() > 1;
    if let Some(StageCut { name, .. }) = stages.iter().find(|stage| is_taken(&stage.name)) {
        return Err(vec![Refusal::new(
            format!("two stages of the job have the name {name:?}"),
            "give the source, operator or sink of that name another one",
        )]);
    }
    let answering = stages.iter().position(StageCut::answers).unwrap_or(0);
    for (place, stage) in stages.iter_mut().enumerate() {
        stage.place = u32::try_from(place).expect("few keys");
        stage.answers_later = place < answering;
    }
    join(&mut stages);
    let above = above.iter().map(|place| Arc::clone(&job.operators[*place].name)).collect();
    Ok(Cut { above, stages, door, whole: job.clone() })
}
/// What an operator at or below the key of `keyed` emits has to be a function of the log, wherever and whenever a unit reads
/// that.
fn check_state(operator: &CheckedOperator, keyed: &str, refusals: &mut Vec<Refusal>) {
    if operator.prepared.loads.is_some() {
        refusals.push(Refusal::new(
            format!(
                "operator {:?} joins a table that is loaded from files, and is below the key of {keyed:?}: nodes may have other \
                 files, and load them at other moments",
                operator.name
            ),
            "put it above the operator with the key: each record is joined once there",
        ));
    }
    if operator.prepared.forgets {
        refusals.push(Refusal::new(
            format!(
                "operator {:?} has `checkpoint: none`: a unit that goes on elsewhere would go on without its state",
                operator.name
            ),
            "leave out `checkpoint`",
        ));
    }
}

/// Tells each stage how many units send to it.
pub(super) fn join(stages: &mut [StageCut]) {
    let mut senders = 0;
    for stage in stages {
        stage.senders = std::mem::replace(&mut senders, stage.partitions);
    }
}

impl Cut {
    /// The name of the job.
    pub(super) fn job(&self) -> &str {
        &self.door.name
    }

    /// The stage to which doors send.
    pub(super) fn first(&self) -> &StageCut {
        let first = self.stages.iter().find(|stage| stage.reads == Reads::Log);
        first.expect("a job without a key is refused")
    }

    /// The job before it was cut.
    pub(super) fn whole(&self) -> &CheckedJob {
        &self.whole
    }

    /// The part of the job where records enter, with what sends them on.
    pub(super) fn door(&self, plugin: Arc<dyn SinkPlugin>) -> CheckedJob {
        let mut job = self.door.clone();
        job.sinks[0].plugin = plugin;
        job
    }
}
