//! Cuts a job before each of its keyed operators.
//!
//! What is above the first runs where records enter; a keyed operator and all that reads it, up to the next one, is a stage,
//! which runs once per partition of a topic, by the key of its rows, and sends what the next one reads to the topic of that.
//! A row's partition is that of the embedded job with as many partitions: the same hash, the same ranges.
//!
//! An operator of several keys is a *chain* of stages ([`Links`]): each adds what it says of a record to the row and sends it to
//! the topic of the next key; the last one has all, and everything below. One message per record at the door is the
//! moment at which it counts, for all keys alike.
//!
//! Where records do not enter by doors, a stage in front of the first key reads them, has what is above the key, and sends
//! rows as any other ([`Reads`]): it has a unit for each partition of a topic of others, or one that has the sources of the
//! job at the node which they name.
//!
//! Sinks that one node writes are a stage of one unit after the last key, at that node.
//!
//! Not here yet: operators with keys that read the same rows side by side.

use std::path::Path;
use std::sync::Arc;

use thalweg_cluster::control::Name;
use thalweg_connect::sink::null::NullPlugin;
use thalweg_connect::source::kafka::SharedTopic;
use thalweg_connect::{Options, SinkPlugin, SourcePlugin, SourceTime};
use thalweg_flow::Partitioning;
use thalweg_types::{DataType, Error, Field, Schema};

use super::topic::Elsewhere;
use crate::durable;
use crate::graph::source_context;
use crate::job_file::{
    Ack, CheckedInput, CheckedJob, CheckedOperator, CheckedSink, CheckedSource, Endpoint, NodeRef, Spread,
};
use crate::operator::{Links, PartInput, PartName, Tasks};

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
    if levels.keyed.len() > 1 {
        levels.check_ids(job, &mut refusals);
    }
    let entry = entry(job, &levels.at(0), &mut refusals);
    let mut exit = levels.exit(job, &mut refusals);
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let mut stages: Vec<StageCut> = Vec::new();
    for (number, (place, keys)) in levels.keyed.iter().zip(keys).enumerate() {
        let operator = &job.operators[*place];
        let part = Inside {
            keyed: *place,
            operators: levels.at(number + 1),
            sinks: levels.sinks_at(job, number + 1),
            reply: reply.filter(|reply| levels.level(reply.node) == number + 1),
            next: match levels.keyed.get(number + 1) {
                Some(next) => {
                    let next = &job.operators[*next];
                    Some(sending(job, &next.name, next.inputs.clone()))
                }
                None => exit.as_mut().map(|exit| exit.sending(job)),
            },
        };
        let streams: Vec<Schema> =
            operator.inputs.iter().map(|input| schema_of(job, input.endpoint)).collect();
        match &operator.prepared.links {
            Some(links) => stages.extend(chain(job, &part, links, &streams[0])),
            None => stages.push(StageCut {
                operator: Arc::clone(&operator.name),
                name: Arc::clone(&operator.name),
                place: 0,
                streams: streams.into(),
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
    let mut door = door_job(job, first, &above);
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

/// How many keys rows have passed at each operator.
struct Levels {
    /// By operator, its own included.
    of: Vec<usize>,
    /// Operators with a key, in the order of their levels: the first has level 1.
    keyed: Vec<usize>,
}

impl Levels {
    fn of(job: &CheckedJob, refusals: &mut Vec<Refusal>) -> Self {
        let mut levels = Self { of: Vec::new(), keyed: Vec::new() };
        for (place, operator) in job.operators.iter().enumerate() {
            let inputs = operator.inputs.iter().map(|input| levels.level(input.endpoint.node));
            let level = inputs.max().unwrap_or(0);
            if let Some(input) =
                operator.inputs.iter().find(|input| levels.level(input.endpoint.node) < level)
            {
                refusals.push(Refusal::new(
                    format!(
                        "operator {:?} reads {:?}, which is above the key of {:?}, and rows that are below it",
                        operator.name, input.name, job.operators[levels.keyed[level - 1]].name
                    ),
                    "let it read one side alone",
                ));
            }
            let is_keyed = is_keyed(operator);
            levels.of.push(level + usize::from(is_keyed));
            match levels.keyed.get(level).filter(|_| is_keyed) {
                Some(other) => refusals.push(Refusal::new(
                    format!(
                        "operators {:?} and {:?} have keys, and neither reads what the other makes",
                        job.operators[*other].name, operator.name
                    ),
                    "put one before the other, or into a job of its own: keys of a job are one after the other so far",
                )),
                None if is_keyed => levels.keyed.push(place),
                None => {}
            }
        }
        levels
    }

    /// How many keys rows have passed that come from a node.
    fn level(&self, node: NodeRef) -> usize {
        match node {
            NodeRef::Source(_) => 0,
            NodeRef::Operator(place) => self.of[place],
        }
    }

    /// Operators of a level.
    fn at(&self, level: usize) -> Vec<usize> {
        (0..self.of.len()).filter(|place| self.of[*place] == level).collect()
    }

    fn sinks_at(&self, job: &CheckedJob, level: usize) -> Vec<CheckedSink> {
        let is_here =
            |sink: &&CheckedSink| sink.node.is_none() && self.level(sink.inputs[0].endpoint.node) == level;
        job.sinks.iter().filter(is_here).cloned().collect()
    }

    fn check_sink(&self, job: &CheckedJob, sink: &CheckedSink, refusals: &mut Vec<Refusal>) {
        if let Some(input) = sink.inputs.iter().find(|input| self.level(input.endpoint.node) == 0) {
            refusals.push(Refusal::new(
                format!(
                    "sink {:?} reads {:?}, which is above the key of {:?}",
                    sink.name, input.name, job.operators[self.keyed[0]].name
                ),
                "let it read the keyed operator, or an operator below it",
            ));
        } else if sink
            .inputs
            .iter()
            .any(|input| self.level(input.endpoint.node) != self.level(sink.inputs[0].endpoint.node))
        {
            refusals.push(Refusal::new(
                format!("sink {:?} reads rows from both sides of a key", sink.name),
                "give each of its inputs a sink of its own",
            ));
        }
    }

    /// The sinks that a node writes.
    fn exit(&self, job: &CheckedJob, refusals: &mut Vec<Refusal>) -> Option<Exit> {
        let at_nodes = || job.sinks.iter().filter_map(|sink| Some((sink, sink.node.as_ref()?)));
        let (CheckedSink { name: first, .. }, node) = at_nodes().next()?;
        for (sink, other) in at_nodes() {
            let name = &sink.name;
            if check_node(|| format!("sink {name:?} is written"), other, refusals) && other != node {
                refusals.push(Refusal::new(
                    format!(
                        "sink {first:?} is written at node {node:?}, and sink {name:?} at node {other:?}"
                    ),
                    "give them the same `node`, or jobs of their own",
                ));
            }
            if sink.plugin.name() == "table" || sink.plugin.writes_for_units(&sink.options).unwrap_or(false) {
                refusals.push(Refusal::new(
                    format!(
                        "sink {name:?} is of type {}, which the units write wherever they are, and names node {other:?}",
                        sink.plugin.name()
                    ),
                    "leave out `node`",
                ));
            }
            let above = sink.inputs.iter().find(|input| {
                let level = self.level(input.endpoint.node);
                level > 0 && level < self.keyed.len()
            });
            if let Some(input) = above {
                refusals.push(Refusal::new(
                    format!(
                        "sink {name:?} is written at node {other:?}, and reads {:?}, which is above the key of {:?}",
                        input.name,
                        job.operators[self.keyed[self.keyed.len() - 1]].name
                    ),
                    "let it read an operator below the last key",
                ));
            }
        }
        if job.operators.iter().any(|operator| operator.name == *first)
            || job.sources.iter().any(|source| source.name == *first)
        {
            refusals.push(Refusal::new(
                format!("sink {first:?} is written at a node, and something else of the job has its name"),
                "give the sink another name: its stage is called by it",
            ));
        }
        let (name, node) = (Arc::clone(first), Arc::clone(node));
        let sinks = at_nodes().map(|(sink, _)| sink.clone()).collect();
        Some(Exit { name, node, sinks, inputs: Vec::new() })
    }

    /// What doors answer with, where that is below a key.
    fn reply(&self, job: &CheckedJob, refusals: &mut Vec<Refusal>) -> Option<Endpoint> {
        let doors = (0..job.sources.len()).filter(|source| job.sources[*source].plugin.is_door());
        let mut replies: Vec<Endpoint> =
            doors.map(|source| job.reply_of(source)).filter(|reply| self.level(reply.node) > 0).collect();
        replies.dedup();
        if replies.len() > 1 {
            refusals.push(Refusal::new(
                "sources have replies from different operators",
                "give them the same `reply`, or a job of their own",
            ));
        }
        let reply = replies.first().copied()?;
        let before = &self.keyed[..(self.level(reply.node) - 1).min(self.keyed.len())];
        if let (Some(other), NodeRef::Operator(place)) =
            (before.iter().find(|place| job.operators[**place].prepared.answers.is_none()), reply.node)
        {
            refusals.push(Refusal::new(
                format!(
                    "replies come from operator {:?}, and operator {:?} above it does not answer each record",
                    job.operators[place].name, job.operators[*other].name
                ),
                "let `reply` of the source name an operator that is not below it",
            ));
        }
        Some(reply)
    }

    /// Rows that were made of one record have positions of their own in the next stage, so ids would take all but the first
    /// for duplicates (cluster rules, 5).
    fn check_ids(&self, job: &CheckedJob, refusals: &mut Vec<Refusal>) {
        let Some(source) = job.sources.iter().find(|source| source.id.is_some()) else { return };
        let before = &self.keyed[..self.keyed.len() - 1];
        if let Some(place) = before.iter().find(|place| job.operators[**place].prepared.answers.is_none()) {
            refusals.push(Refusal::new(
                format!(
                    "source {:?} has an `id`, and operator {:?}, which may make several rows of one record, is above \
                     another key",
                    source.name, job.operators[*place].name
                ),
                "leave out `id`, or put the operator into a job of its own",
            ));
        }
    }
}

/// The part of a job from one key to the next.
struct Inside {
    keyed: usize,
    /// In their order, the keyed one included.
    operators: Vec<usize>,
    sinks: Vec<CheckedSink>,
    reply: Option<Endpoint>,
    /// What sends its rows on.
    next: Option<CheckedSink>,
}

/// The sinks that a node writes, in a stage after the last key.
struct Exit {
    name: Arc<str>,
    node: Arc<str>,
    sinks: Vec<CheckedSink>,
    /// What they read, each once.
    inputs: Vec<CheckedInput>,
}

impl Exit {
    /// Has the sinks read from their stage what they read in the job, and gives the sink that sends it there.
    fn sending(&mut self, job: &CheckedJob) -> CheckedSink {
        for input in self.sinks.iter_mut().flat_map(|sink| &mut sink.inputs) {
            let known = self.inputs.iter().position(|known| known.endpoint == input.endpoint);
            let number = known.unwrap_or_else(|| {
                self.inputs.push(input.clone());
                self.inputs.len() - 1
            });
            input.endpoint = from_log(number);
            input.spread = None;
        }
        sending(job, &self.name, self.inputs.clone())
    }

    fn stage(self, job: &CheckedJob) -> StageCut {
        let Self { name, node, sinks, inputs } = self;
        let streams: Vec<Schema> = inputs.iter().map(|input| schema_of(job, input.endpoint)).collect();
        let mut source = job.sources[0].clone();
        source.reply = None;
        let (operators, sources) = (Vec::new(), vec![source]);
        StageCut {
            operator: Arc::clone(&name),
            name,
            place: 0,
            keys: vec![Vec::new(); streams.len()],
            streams: streams.into(),
            said: Arc::default(),
            answers_later: false,
            senders: 0,
            partitions: 1,
            reads: Reads::Log,
            node: Some(node),
            job: CheckedJob { operators, sinks, sources, warnings: Vec::new(), ..job.clone() },
        }
    }
}

/// An input of a stage, by its number.
fn from_log(number: usize) -> Endpoint {
    // Output 1 carries rejects.
    Endpoint { node: NodeRef::Source(0), output: if number == 0 { 0 } else { number + 1 } }
}

impl Inside {
    /// Where something of the job is in this part.
    fn moved(&self, endpoint: Endpoint) -> Endpoint {
        match endpoint.node {
            NodeRef::Operator(place) => {
                let place = self.operators.iter().position(|other| *other == place).expect("it is inside");
                Endpoint { node: NodeRef::Operator(place), ..endpoint }
            }
            NodeRef::Source(_) => endpoint,
        }
    }
}

/// A sink whose plug-in is missing yet, which sends `inputs` to another stage.
fn onward(name: Arc<str>, inputs: Vec<CheckedInput>, schema: Schema) -> CheckedSink {
    CheckedSink {
        name,
        plugin: Arc::new(NullPlugin),
        inputs: inputs.into_iter().map(|input| CheckedInput { spread: None, ..input }).collect(),
        union: None,
        format: None,
        options: Options::default(),
        schema,
        unit: None,
        node: None,
    }
}

/// A sink that sends on to the stage of `name` what that reads.
fn sending(job: &CheckedJob, name: &str, inputs: Vec<CheckedInput>) -> CheckedSink {
    let schema = schema_of(job, inputs[0].endpoint);
    onward(format!("({name})").into(), inputs, schema)
}

/// The name of the column with what a stage of a chain says of a record. No field of a job has brackets in its name.
fn said_name(place: usize) -> String {
    format!("(said {place})")
}

/// The stages of an operator of several keys, which reads `records`.
fn chain(job: &CheckedJob, part: &Inside, links: &Links, records: &Schema) -> Vec<StageCut> {
    let operator = &job.operators[part.keyed];
    let last = links.keys.len() - 1;
    let stage = |(place, key): (usize, &Vec<usize>)| {
        let said: Vec<Schema> = links.says[..place.min(last)].to_vec();
        let columns = said
            .iter()
            .enumerate()
            .map(|(number, said)| Field::new(said_name(number), DataType::Struct(said.fields().to_vec())));
        let streams = vec![Schema::new(records.fields().iter().cloned().chain(columns).collect::<Vec<_>>())];
        let input = |output: usize| CheckedInput {
            endpoint: Endpoint { node: NodeRef::Source(0), output },
            spread: None,
            ..operator.inputs[0].clone()
        };
        // Output 1 carries rejects.
        let inputs: Vec<CheckedInput> =
            std::iter::once(0).chain((0..said.len()).map(|place| place + 2)).map(input).collect();
        let link = CheckedOperator {
            prepared: (links.link)(place),
            tasks: 1,
            partitions: 1,
            parallelism: None,
            inputs: if place == last { inputs.clone() } else { vec![input(0)] },
            ..operator.clone()
        };
        let job = if place == last {
            let mut job = stage_job(job, part);
            let at = part.operators.iter().position(|other| *other == part.keyed).expect("it is inside");
            job.operators[at] = link;
            job
        } else {
            let own = CheckedInput {
                endpoint: Endpoint { node: NodeRef::Operator(0), output: 0 },
                ..operator.inputs[0].clone()
            };
            let inputs = inputs.into_iter().chain([own]).collect();
            let sink = onward(said_name(place).into(), inputs, records.clone());
            let mut source = job.sources[0].clone();
            source.reply = None;
            let (operators, sinks) = (vec![link], vec![sink]);
            CheckedJob { operators, sinks, sources: vec![source], warnings: Vec::new(), ..job.clone() }
        };
        StageCut {
            name: format!("{}-{}", operator.name, place + 1).into(),
            operator: Arc::clone(&operator.name),
            place: 0,
            streams: streams.into(),
            said: said.into(),
            keys: vec![key.clone()],
            answers_later: false,
            senders: 0,
            partitions: if key.is_empty() { 1 } else { operator.partitions },
            reads: Reads::Log,
            node: None,
            job,
        }
    };
    links.keys.iter().enumerate().map(stage).collect()
}

/// What a stage in front of the first key reads, and at which node if that is one; none where records are pushed to whichever
/// node listens.
fn entry(
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
fn check_node(what: impl Fn() -> String, node: &str, refusals: &mut Vec<Refusal>) -> bool {
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
fn reading(door: &CheckedJob, (reads, node): (Reads, Option<Arc<str>>)) -> StageCut {
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

/// Tells each stage how many units send to it.
pub(super) fn join(stages: &mut [StageCut]) {
    let mut senders = 0;
    for stage in stages {
        stage.senders = std::mem::replace(&mut senders, stage.partitions);
    }
}

fn is_keyed(operator: &CheckedOperator) -> bool {
    operator.prepared.judges()
        || operator.prepared.takes_partitions
        || operator.prepared.parts.iter().any(|part| part.tasks == Tasks::Partitions)
}

/// By input of an operator, the fields by which its rows are spread; of one that is a chain, none.
fn keys_of(operator: &CheckedOperator, refusals: &mut Vec<Refusal>) -> Vec<Vec<usize>> {
    if operator.prepared.links.is_some() {
        if operator.union.is_some() {
            refusals.push(Refusal::new(
                format!("operator {:?} has several keys and several inputs", operator.name),
                "put a `union` before it",
            ));
        }
        return Vec::new();
    }
    one_key_of(operator).unwrap_or_else(|refusal| {
        refusals.push(refusal);
        Vec::new()
    })
}

fn one_key_of(operator: &CheckedOperator) -> Result<Vec<Vec<usize>>, Refusal> {
    let mut keys: Vec<Option<Vec<usize>>> = vec![None; operator.inputs.len()];
    let mut is_split = false;
    let inputs = operator.prepared.parts.iter().filter(|part| part.judges || part.tasks == Tasks::Partitions);
    for input in inputs.flat_map(|part| &part.inputs) {
        let (port, columns) = match input {
            PartInput::Outer { port, partitioning: Partitioning::Key(columns) } => (*port, columns.clone()),
            PartInput::Outer { port, partitioning: Partitioning::Global } => (*port, Vec::new()),
            PartInput::Declared { port } => match operator.inputs.get(*port).map(|input| &input.spread) {
                Some(Some(Spread::Key(columns))) => (*port, columns.clone()),
                Some(Some(Spread::Global)) => (*port, Vec::new()),
                _ => return Err(spread_otherwise(operator)),
            },
            PartInput::Outer { .. } => return Err(spread_otherwise(operator)),
            PartInput::Part { .. } => continue,
        };
        // A union before the operator makes its one port of all inputs.
        let ports = if operator.union.is_some() { 0..keys.len() } else { port..port + 1 };
        for known in keys.get_mut(ports).into_iter().flatten() {
            is_split |= known.as_ref().is_some_and(|known| *known != columns);
            known.get_or_insert_with(|| columns.clone());
        }
    }
    if is_split {
        return Err(Refusal::new(
            format!("operator {:?} has several keys, and one may so far", operator.name),
            "split it into operators of jobs of their own, or run the job on one node, without --cluster",
        ));
    }
    Ok(keys.into_iter().map(Option::unwrap_or_default).collect())
}

fn spread_otherwise(operator: &CheckedOperator) -> Refusal {
    Refusal::new(
        format!("the rows of operator {:?} are not spread by a key", operator.name),
        "spread its input by a key: `partition: key(FIELD)`",
    )
}

fn schema_of(job: &CheckedJob, endpoint: Endpoint) -> Schema {
    match endpoint.node {
        NodeRef::Source(place) => {
            let source = &job.sources[place];
            let kinds = source.plugin.outputs(&source.options);
            // Output 1 carries rejects.
            let kind = endpoint.output.saturating_sub(1);
            kinds
                .get(kind)
                .filter(|_| endpoint.output > 1)
                .map_or_else(|| source.schema.clone(), |kind| kind.schema.clone())
        }
        NodeRef::Operator(place) => job.operators[place].prepared.outputs[endpoint.output].schema.clone(),
    }
}

/// A part of a job, with one source in place of all that its keyed operator reads. Its first sink takes what the next keyed
/// operator reads, where there is one.
fn stage_job(job: &CheckedJob, part: &Inside) -> CheckedJob {
    let operators = part.operators.iter().map(|place| {
        let operator = job.operators[*place].clone();
        let inputs = operator.inputs.iter().enumerate().map(|(number, input)| CheckedInput {
            endpoint: match *place == part.keyed {
                true => from_log(number),
                false => part.moved(input.endpoint),
            },
            ..input.clone()
        });
        CheckedOperator { inputs: inputs.collect(), tasks: 1, partitions: 1, parallelism: None, ..operator }
    });
    let operators: Vec<CheckedOperator> = operators.collect();
    let moved = |mut sink: CheckedSink| {
        sink.inputs.iter_mut().for_each(|input| input.endpoint = part.moved(input.endpoint));
        sink
    };
    let sinks = part.next.iter().chain(&part.sinks).cloned().map(moved).collect();
    let mut source = job.sources[0].clone();
    source.reply = part.reply.map(|reply| part.moved(reply));
    CheckedJob { operators, sinks, sources: vec![source], warnings: Vec::new(), ..job.clone() }
}

/// What is above the key, with a sink that takes what the keyed operator reads; its plug-in is missing yet.
fn door_job(job: &CheckedJob, keyed: usize, above: &[usize]) -> CheckedJob {
    let moved = |mut input: CheckedInput| {
        if let NodeRef::Operator(place) = input.endpoint.node {
            let place = above.iter().position(|other| *other == place).expect("what it reads is above");
            input.endpoint.node = NodeRef::Operator(place);
        }
        input
    };
    let operators = above.iter().map(|place| {
        let operator = job.operators[*place].clone();
        let inputs = operator.inputs.into_iter().map(moved).collect();
        CheckedOperator { inputs, ..operator }
    });
    let operators: Vec<CheckedOperator> = operators.collect();
    let inputs = job.operators[keyed].inputs.iter().cloned();
    let inputs = inputs.map(moved).collect();
    let name = Arc::clone(&job.operators[keyed].name);
    let sink = onward(name, inputs, schema_of(job, job.operators[keyed].inputs[0].endpoint));
    let mut sources = job.sources.clone();
    for (place, source) in sources.iter_mut().enumerate() {
        // Their answers come from elsewhere: it does not matter what the sink of replies is given.
        source.reply = Some(Endpoint { node: NodeRef::Source(place), output: 0 });
    }
    let sinks = vec![sink];
    CheckedJob { operators, sources, sinks, warnings: Vec::new(), is_door: true, ..job.clone() }
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

impl StageCut {
    /// `state.chunk_memory` of the job.
    pub(super) fn chunk_memory(&self) -> Option<u64> {
        self.job.state.chunk_memory
    }

    /// Whether doors wait for answers of the stage.
    pub(super) fn answers(&self) -> bool {
        self.job.sources[0].reply.is_some()
    }

    /// Whether operators of it emit at ticks.
    pub(super) fn has_ticks(&self) -> bool {
        self.job.operators.iter().any(|operator| operator.prepared.at_ticks)
    }

    /// The part of the operator that judges rows by the time that those hold who send them, as the graph names it; `None` where
    /// only doors send.
    pub(super) fn judge(&self) -> Option<Arc<str>> {
        let operator = self.job.operators.iter().find(|operator| operator.name == self.operator)?;
        let part = operator.prepared.parts.iter().find(|part| part.judges)?;
        let name = PartName { operator: Arc::clone(&self.operator), label: part.label.clone() };
        (self.place > 0).then(|| name.to_string().into())
    }

    /// Its sinks that write to other systems, by place.
    pub(super) fn outside(&self) -> Vec<usize> {
        // That which sends to the next stage is not there yet.
        let sinks = self.job.sinks.iter().enumerate();
        let writes = |sink: &CheckedSink| sink.plugin.writes_for_units(&sink.options).unwrap_or(false);
        sinks.filter(|(_, sink)| writes(sink)).map(|(place, _)| place).collect()
    }

    /// Its sinks of type `table`: their names, what they read, and their options.
    #[cfg(feature = "tables")]
    pub(super) fn tables(&self) -> impl Iterator<Item = (&str, &Schema, &Options)> {
        self.table_sinks().map(|sink| (&*sink.name, &sink.schema, &sink.options))
    }

    fn table_sinks(&self) -> impl Iterator<Item = &CheckedSink> {
        self.job.sinks.iter().filter(|sink| sink.plugin.name() == "table")
    }

    /// The names of its tables.
    pub fn table_names(&self) -> impl Iterator<Item = &str> {
        self.table_sinks().map(|sink| &*sink.name)
    }

    /// The names of those that write to other systems.
    pub fn outside_names(&self) -> impl Iterator<Item = &str> {
        self.outside().into_iter().map(|sink| &*self.job.sinks[sink].name)
    }

    /// Its name in the control log.
    pub(super) fn name_in_cluster(&self) -> Result<Name, Error> {
        Name::new(&self.name)
            .ok_or_else(|| Error::internal(format!("stage {:?} has no name in a cluster", self.name)))
    }

    /// The name of the job of one of its units.
    pub(super) fn unit_name(&self, partition: u32) -> Arc<str> {
        format!("{}/{}/{partition}", self.job.name, self.name).into()
    }

    /// Whether its units may go on with the state that those of `before` have kept.
    ///
    /// # Errors
    /// Of class user: says what differs.
    pub(super) fn goes_on_from(&self, before: &StageCut) -> Result<(), Error> {
        durable::check_change(&before.job, &self.job)
    }

    /// The streams of one of its units: records, and what was said of them.
    pub(super) fn outputs(&self) -> Vec<Schema> {
        if self.said.is_empty() {
            return self.streams.to_vec();
        }
        let fields = self.streams[0].fields();
        let records = Schema::new(fields[..fields.len() - self.said.len()].to_vec());
        std::iter::once(records).chain(self.said.iter().cloned()).collect()
    }

    /// The topic of others that it reads.
    pub fn topic(&self) -> Option<&Arc<str>> {
        match &self.reads {
            Reads::Topic(topic) => Some(topic),
            Reads::Log | Reads::Sources => None,
        }
    }

    /// The names of its sinks that are written at its node.
    pub fn written_names(&self) -> impl Iterator<Item = &str> {
        let written = self.job.sinks.iter().filter(|sink| sink.node.is_some());
        written.map(|sink| &*sink.name)
    }

    /// Opens the topic of others that it reads.
    ///
    /// # Errors
    /// As [`SourcePlugin::open_topic`].
    pub(super) fn open_topic(&self, data_dir: &Path) -> Result<SharedTopic, Error> {
        let source = &self.job.sources[0];
        let topic = source.plugin.open_topic(&source_context(&self.job, source, data_dir))?;
        topic.ok_or_else(|| Error::internal(format!("stage {} reads no topic of others", self.name)))
    }

    /// The job of one of its units, which reads `plugin` if that is not the sources of the job, and sends to the next stage by
    /// `outlet` where there is one.
    pub(super) fn job(
        &self,
        partition: u32,
        plugin: Option<Arc<dyn SourcePlugin>>,
        outlet: Option<Arc<dyn SinkPlugin>>,
    ) -> CheckedJob {
        let mut job = self.job.clone();
        if let Some(outlet) = outlet {
            job.sinks[0].plugin = outlet;
        }
        job.name = self.unit_name(partition);
        job.is_held = self.place > 0;
        job.state.memory = job.state.memory.map(|bytes| bytes / u64::from(self.partitions.max(1)));
        let Some(plugin) = plugin else { return job };
        if self.topic().is_some() {
            let source = &mut job.sources[0];
            (source.plugin, source.by_time, source.ack) = (plugin, false, Ack::None);
            (source.tasks, source.declared_tasks) = (1, Some(1));
            return job;
        }
        job.sources[0] = CheckedSource {
            name: "log".into(),
            plugin,
            format: None,
            options: Options::default(),
            schema: self.outputs()[0].clone(),
            time: SourceTime::Arrival,
            id: None,
            dedup: None,
            by_time: false,
            max_ahead: None,
            ack: Ack::None,
            reject_limit: None,
            tasks: 1,
            declared_tasks: Some(1),
            reply_name: None,
            node: None,
            ..job.sources[0].clone()
        };
        job
    }
}
