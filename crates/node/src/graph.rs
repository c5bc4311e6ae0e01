//! A checked job as the runtime takes it: names become numbers, plug-ins are opened.
//!
//! Order of the operators: those of the job file with their unions and parts, then sinks, then the operators that carry
//! replies back to requests, and last the one that writes rejects.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thalweg_connect::sink::rejects::{RejectCounts, RejectsSettings, rejects_writer};
use thalweg_connect::source::connections::ConnectionCounts;
use thalweg_connect::{Answers, Ingress, Replay, SinkContext, SinkReport, SourceContext};
use thalweg_flow::{
    Graph, Input, JobOptions, NodeId, Operator, OperatorNode, Partitioning, Schedule, SourceNode, TaskFactory,
};
use thalweg_types::{Error, Micros, Schema, rejects_schema};

use crate::data_dir::JobDir;
use crate::durable::{Adopted, Resumes};
use crate::job_file::{
    Ack, CheckedInput, CheckedJob, CheckedOperator, CheckedSink, CheckedSource, Endpoint, NO_RETENTION,
    NodeRef,
};
use crate::operator::{Memory, Part, PartInput, PartName, Prepared, Services, TaskContext};
use crate::queries::LivePart;
use crate::skip::{Skip, skipping};

/// A graph that can be started, and what belongs to it outside.
pub(crate) struct BuiltJob {
    pub graph: Graph,
    pub options: JobOptions,
    /// By operator of the job, its parts in the graph.
    pub parts: Vec<Vec<LivePart>>,
    pub outside: Outside,
}

/// The objects of a job that others ask while it runs.
pub(crate) struct Outside {
    /// Doors of HTTP sources.
    pub ingresses: BTreeMap<Arc<str>, Arc<dyn Ingress>>,
    /// Where answers from elsewhere go, by source.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "a door of a cluster asks for them"))]
    pub answers: BTreeMap<Arc<str>, Arc<dyn Answers>>,
    /// Where listening sources can be reached.
    pub addresses: BTreeMap<Arc<str>, SocketAddr>,
    /// Where sources that take connections count them.
    pub connections: BTreeMap<Arc<str>, Arc<ConnectionCounts>>,
    /// What each sink has taken, by their names in the graph.
    pub sinks: Vec<(Arc<str>, SinkReport)>,
    pub rejects: RejectCounts,
    /// The operators whose answers leave the job; `None` where no operator of it answers records.
    pub answering: Option<Vec<Arc<str>>>,
    /// What each operator of the graph is.
    pub roles: BTreeMap<Arc<str>, Role>,
}

/// What an operator of the graph is in the job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// An operator, or a part of it that has a label.
    Operator(PartName),
    /// It brings the inputs of this operator together.
    InputOf(Arc<str>),
    /// A sink, by its place in the job.
    Sink(usize),
    /// It brings the inputs of a sink together.
    InputOfSink,
    /// It carries replies back to requests.
    Replies,
    /// It writes rejects.
    Rejects,
}

/// Opens everything that the job names and lays out its graph.
///
/// # Errors
/// What a source or a sink says when it is opened.
pub(crate) fn build(
    job: &CheckedJob,
    folder: &JobDir,
    services: &Services,
    skips: &[Skip],
    mut store: Option<&mut Adopted>,
) -> Result<BuiltJob, Error> {
    let mut builder = Builder {
        job,
        folder,
        services,
        resumes: store.as_ref().map(|store| store.resumes()),
        names: Vec::new(),
        operators: Vec::new(),
        outputs: Vec::new(),
        roles: BTreeMap::new(),
        parts: Vec::new(),
        ingresses: BTreeMap::new(),
        answers: BTreeMap::new(),
        addresses: BTreeMap::new(),
        connections: BTreeMap::new(),
        replies: Vec::new(),
        is_told: false,
    };
    let sources = builder.sources(skips, store.as_deref_mut())?;
    let is_told = builder.is_told;
    if let (Some(store), true) = (store.as_deref_mut(), is_told) {
        store.told();
    }
    let mut rejecting: Vec<Endpoint> =
        (0..sources.len()).map(|source| Endpoint { node: NodeRef::Source(source), output: 1 }).collect();
    for (place, operator) in job.operators.iter().enumerate() {
        builder.operator(operator);
        if let Some(output) = operator.prepared.rejects {
            rejecting.push(Endpoint { node: NodeRef::Operator(place), output });
        }
    }
    let keep_received = rejecting.len() > sources.len() && !job.operators.iter().any(waits);
    let (mut sinks, mut refusing) = (Vec::new(), Vec::new());
    for (place, sink) in job.sinks.iter().enumerate() {
        let report = SinkReport::default();
        let name = builder.unique(&sink.name, "sink", Role::Sink(place));
        let context = SinkContext {
            report: report.clone(),
            durable: store.as_mut().map(|store| store.sink(&sink.name, &name)),
            ..sink_context(job, sink, folder.path())
        };
        let factory = sink.plugin.build(context).map_err(in_sink(sink))?;
        refusing.extend(builder.sink(&name, sink, factory));
        sinks.push((name, report));
    }
    let replies: Vec<Endpoint> = builder.replies.iter().map(|(source, _)| job.reply_of(*source)).collect();
    builder.replies();
    let rejects = RejectCounts::default();
    builder.rejects(&rejecting, &refusing, rejects.clone(), store);
    Ok(BuiltJob {
        options: JobOptions { cycle: job.cycle, keep_received, is_told, ..JobOptions::default() },
        outside: Outside {
            ingresses: builder.ingresses,
            answers: builder.answers,
            addresses: builder.addresses,
            connections: builder.connections,
            sinks,
            rejects,
            answering: answering(job, &replies),
            roles: builder.roles,
        },
        parts: builder.parts,
        graph: Graph { job: Arc::clone(&job.name), sources, operators: builder.operators },
    })
}

/// Tries everything that [`build`] opens and that the operators load, without making or changing anything, for a job
/// without a data directory. The errors are those of a start, all of them.
pub fn probe(job: &CheckedJob) -> Vec<Error> {
    let nowhere = Path::new("");
    let sources = job
        .sources
        .iter()
        .map(|source| source.plugin.probe(&source_context(job, source, nowhere)).map_err(in_source(source)));
    let sinks = job
        .sinks
        .iter()
        .map(|sink| sink.plugin.probe(&sink_context(job, sink, nowhere)).map_err(in_sink(sink)));
    let made: Vec<PathBuf> =
        job.sources.iter().flat_map(|source| source.plugin.makes(&source.options)).collect();
    let will_be = |file: &PathBuf| made.contains(file) && !file.exists();
    let operators = job.operators.iter().filter_map(|operator| {
        let loads = operator.prepared.loads.as_ref()?;
        (!loads.files.iter().any(will_be)).then(|| {
            (loads.probe)().map_err(|error| error.context(format!("start operator {:?}", operator.name)))
        })
    });
    let found = sources.chain(sinks).chain(operators).filter_map(Result::err);
    found.map(|error| error.context(format!("job {:?}", job.name))).collect()
}

/// The context of a source of `job`, for looking at its input without starting it.
pub(crate) fn looking(job: &CheckedJob, source: &CheckedSource) -> SourceContext {
    source_context(job, source, Path::new(""))
}

fn in_source(source: &CheckedSource) -> impl Fn(Error) -> Error {
    move |error| error.context(format!("open source {:?}", source.name))
}

fn in_sink(sink: &CheckedSink) -> impl Fn(Error) -> Error {
    move |error| error.context(format!("open sink {:?}", sink.name))
}

/// A source of a run that leaves nothing out and outlives no process.
pub(crate) fn source_context(job: &CheckedJob, source: &CheckedSource, data_dir: &Path) -> SourceContext {
    SourceContext {
        job: Arc::clone(&job.name),
        name: Arc::clone(&source.name),
        schema: source.schema.clone(),
        format: source.format.clone(),
        options: source.options.clone(),
        time: source.time.clone(),
        max_ahead: source.max_ahead,
        data_dir: data_dir.to_owned(),
        skip: Vec::new().into(),
        acknowledges: false,
        goes_on: false,
        is_answered_elsewhere: job.is_door,
    }
}

/// A sink of such a run.
pub(crate) fn sink_context(job: &CheckedJob, sink: &CheckedSink, data_dir: &Path) -> SinkContext {
    SinkContext {
        job: Arc::clone(&job.name),
        name: Arc::clone(&sink.name),
        schema: sink.schema.clone(),
        format: sink.format.clone(),
        follows: follows(job, sink),
        options: sink.options.clone(),
        report: SinkReport::default(),
        data_dir: data_dir.to_owned(),
        durable: None,
        unit: sink.unit.clone(),
    }
}

/// Whether an operator, or a link to it, waits for a time or for a number of records.
fn waits(operator: &CheckedOperator) -> bool {
    let flushes = operator.inputs.iter().any(|input| input.flush.is_some_and(|flush| flush > MOST_FLUSH));
    flushes || operator.schedule != Schedule::default()
}

/// A link that waits no longer than this is as one that does not.
const MOST_FLUSH: Micros = 100_000;

/// Where answers come in the shape of the moment; any other endpoint as it is.
fn live(job: &CheckedJob, endpoint: Endpoint) -> Endpoint {
    let NodeRef::Operator(place) = endpoint.node else { return endpoint };
    match job.operators[place].prepared.answers.and_then(|answers| answers.live) {
        Some(output) if endpoint.output == 0 => Endpoint { output, ..endpoint },
        _ => endpoint,
    }
}

/// Whether a sink writes answers in the shape of the moment: its format has to be one that can, and nothing
/// may be between.
fn follows(job: &CheckedJob, sink: &CheckedSink) -> bool {
    let [input] = sink.inputs.as_slice() else { return false };
    live(job, input.endpoint) != input.endpoint
        && sink.format.as_ref().is_some_and(|format| format.plugin.following(&format.options).is_some())
}

/// The operators from whose answers a sink or a reply is reached without another operator that answers between.
fn answering(job: &CheckedJob, replies: &[Endpoint]) -> Option<Vec<Arc<str>>> {
    let answers = |place: usize| job.operators[place].prepared.answers.is_some();
    if !(0..job.operators.len()).any(answers) {
        return None;
    }
    let ends = job.sinks.iter().flat_map(|sink| &sink.inputs).map(|input| input.endpoint);
    let mut open: Vec<Endpoint> = ends.chain(replies.iter().copied()).collect();
    let mut seen: Vec<Endpoint> = Vec::new();
    while let Some(endpoint) = open.pop() {
        if seen.contains(&endpoint) {
            continue;
        }
        seen.push(endpoint);
        if let NodeRef::Operator(place) = endpoint.node
            && !answers(place)
        {
            open.extend(job.operators[place].inputs.iter().map(|input| input.endpoint));
        }
    }
    let leaves = |place: usize| seen.contains(&Endpoint { node: NodeRef::Operator(place), output: 0 });
    let operators = job.operators.iter().enumerate();
    Some(
        operators
            .filter(|(place, _)| answers(*place) && leaves(*place))
            .map(|(_, operator)| Arc::clone(&operator.name))
            .collect(),
    )
}

struct Builder<'a> {
    job: &'a CheckedJob,
    folder: &'a JobDir,
    services: &'a Services,
    /// `None` where the job does not outlive its process.
    resumes: Option<Resumes>,
    /// Names taken in the graph.
    names: Vec<Arc<str>>,
    operators: Vec<OperatorNode>,
    /// Where each checked operator's outputs are, and how many tasks emit them.
    outputs: Vec<(NodeId, u32)>,
    roles: BTreeMap<Arc<str>, Role>,
    parts: Vec<Vec<LivePart>>,
    ingresses: BTreeMap<Arc<str>, Arc<dyn Ingress>>,
    answers: BTreeMap<Arc<str>, Arc<dyn Answers>>,
    addresses: BTreeMap<Arc<str>, SocketAddr>,
    connections: BTreeMap<Arc<str>, Arc<ConnectionCounts>>,
    /// Source and the operator that carries its replies.
    replies: Vec<(usize, TaskFactory<dyn Operator>)>,
    /// A source tells the order of the job.
    is_told: bool,
}

/// Whose tasks those of a part are.
struct Owner {
    operator: Arc<str>,
    memory: Option<Memory>,
}

/// How many tasks a part has, and when they run.
struct Pace {
    tasks: u32,
    parallelism: Option<u32>,
    schedule: Schedule,
}

impl Pace {
    fn of_tasks(tasks: u32) -> Self {
        Self { tasks, parallelism: None, schedule: Schedule::default() }
    }
}

impl Builder<'_> {
    fn sources(&mut self, skips: &[Skip], store: Option<&mut Adopted>) -> Result<Vec<SourceNode>, Error> {
        let mut opened = Vec::new();
        // One partition alone needs no other to be read by time.
        let are_merged = self.job.sources.iter().filter(|source| source.by_time).count() > 1;
        for (place, source) in self.job.sources.iter().enumerate() {
            let offsets: Vec<u64> =
                skips.iter().filter(|skip| *skip.source == *source.name).map(|skip| skip.offset).collect();
            let context = SourceContext {
                skip: offsets.clone().into(),
                acknowledges: self.job.is_door || (store.is_some() && source.ack != Ack::None),
                goes_on: store.is_some(),
                ..source_context(self.job, source, self.folder.path())
            };
            let built = source.plugin.build(context).map_err(in_source(source))?;
            let kinds = source.plugin.outputs(&source.options).into_iter();
            let others: Vec<Schema> = kinds.skip(1).map(|kind| kind.schema).collect();
            let mut decoder = built.decoder;
            if !offsets.is_empty() {
                let schemas = std::iter::once(&built.schema).chain(&others).cloned().collect();
                decoder = skipping(decoder, Arc::clone(&source.name), offsets, schemas);
            }
            if let Some(ingress) = built.ingress {
                self.ingresses.insert(Arc::clone(&source.name), ingress);
            }
            if let Some(replies) = built.replies {
                self.replies.push((place, replies));
            }
            if let Some(answers) = built.answers {
                self.answers.insert(Arc::clone(&source.name), answers);
            }
            if let Some(address) = built.address {
                self.addresses.insert(Arc::clone(&source.name), address);
            }
            if let Some(connections) = built.connections {
                self.connections.insert(Arc::clone(&source.name), connections);
            }
            let name = self.free(&source.name, "source");
            let node = SourceNode {
                name,
                by_time: source.by_time && (are_merged || built.source.is_parted()),
                source: built.source,
                decoder,
                parallelism: source.tasks,
                schema: built.schema,
                others,
            };
            self.is_told |= matches!(built.replay, Replay::Told);
            opened.push((node, built.replay));
        }
        self.journals(opened, store)
    }

    /// Puts journals before the sources that need one.
    fn journals(
        &self,
        opened: Vec<(SourceNode, Replay)>,
        mut store: Option<&mut Adopted>,
    ) -> Result<Vec<SourceNode>, Error> {
        let journalled = |place: &usize| matches!(opened[*place].1, Replay::Journal(_));
        let acks = (0..opened.len()).filter(journalled).map(|place| self.job.sources[place].ack);
        if let (Some(store), Some(strongest)) = (store.as_deref_mut(), acks.max()) {
            store.log_durability(strongest);
        }
        let mut nodes = Vec::new();
        for ((place, source), (node, replay)) in self.job.sources.iter().enumerate().zip(opened) {
            let source = match (replay, store.as_deref_mut()) {
                (Replay::Journal(codec), Some(store)) => store
                    .journalled(place, &node.name, source.retention, node.source, codec)
                    .map_err(|error| error.context(format!("journal of source {:?}", source.name)))?,
                (replay, store) => {
                    if source.retention != NO_RETENTION {
                        let why = match replay {
                            Replay::Itself | Replay::Told => {
                                "the source is read again from its own place, and has no journal"
                            }
                            Replay::Journal(_) => "without a data directory there is no journal",
                        };
                        tracing::warn!(source = %node.name, is_durable = store.is_some(), "retention is not used: {why}");
                    }
                    node.source
                }
            };
            nodes.push(SourceNode { source, ..node });
        }
        Ok(nodes)
    }

    /// The name, marked where something else in the graph has it: sinks may be called like operators.
    fn free(&mut self, name: &str, kind: &str) -> Arc<str> {
        let mut name: Arc<str> = name.into();
        while self.names.contains(&name) {
            name = format!("{name} ({kind})").into();
        }
        self.names.push(Arc::clone(&name));
        name
    }

    /// A free name for an operator of the graph.
    fn unique(&mut self, name: &str, kind: &str, role: Role) -> Arc<str> {
        let name = self.free(name, kind);
        self.roles.insert(Arc::clone(&name), role);
        name
    }

    fn upstream(&self, endpoint: Endpoint) -> (NodeId, u32) {
        match endpoint.node {
            NodeRef::Source(source) => (NodeId::Source(source), self.job.sources[source].tasks),
            NodeRef::Operator(operator) => self.outputs[operator],
        }
    }

    /// A link as declared, into an operator of `tasks` tasks.
    fn link(&self, input: &CheckedInput, tasks: u32) -> Input {
        let (from, upstream) = self.upstream(input.endpoint);
        let partitioning = match &input.spread {
            Some(spread) => spread.partitioning(),
            None if tasks == upstream => Partitioning::Forward,
            None if tasks == 1 => Partitioning::Global,
            None => Partitioning::Shuffle,
        };
        buffered(Input::new(from, input.endpoint.output, partitioning), input)
    }

    /// Puts the union before an operator of one input that has a list of them; readers of the list then read the union.
    fn union(&mut self, name: &Arc<str>, inputs: &[CheckedInput], union: &Prepared, role: Role) -> NodeId {
        let links = inputs.iter().map(|input| self.link(input, 1)).collect();
        let of = Owner { operator: Arc::clone(name), memory: None };
        let name = self.unique(&format!("{name}/input"), "union", role);
        self.part(name, of, &union.parts[0], links, Pace::of_tasks(1))
    }

    fn operator(&mut self, operator: &CheckedOperator) {
        let united = operator.union.as_ref().map(|union| {
            let role = Role::InputOf(Arc::clone(&operator.name));
            self.union(&operator.name, &operator.inputs, union, role)
        });
        let mut live = Vec::new();
        let mut parts: Vec<NodeId> = Vec::new();
        let count = operator.prepared.parts.len();
        for (index, part) in operator.prepared.parts.iter().enumerate() {
            let tasks = operator.part_tasks(part.tasks);
            let links = part.inputs.iter().map(|input| match input {
                PartInput::Declared { port } => match united {
                    Some(union) if tasks == 1 => Input::new(union, 0, Partitioning::Forward),
                    Some(union) => Input::new(union, 0, Partitioning::Shuffle),
                    None => self.link(&operator.inputs[*port], tasks),
                },
                PartInput::Outer { port, partitioning } => match united {
                    Some(union) => Input::new(union, 0, partitioning.clone()),
                    None => {
                        let input = &operator.inputs[*port];
                        let (from, _) = self.upstream(input.endpoint);
                        buffered(Input::new(from, input.endpoint.output, partitioning.clone()), input)
                    }
                },
                PartInput::Part { index, output, partitioning } => {
                    Input::new(parts[*index], *output, partitioning.clone())
                }
            });
            let links: Vec<Input> = links.collect();
            let name = PartName { operator: Arc::clone(&operator.name), label: part.label.clone() };
            let name = self.unique(&name.to_string(), "operator", Role::Operator(name));
            live.push(LivePart { node: Arc::clone(&name), tasks });
            let of = Owner { operator: Arc::clone(&operator.name), memory: operator.prepared.memory };
            // A schedule is the operator's own: its stages keep pace with their input.
            let schedule = if index + 1 == count { operator.schedule } else { Schedule::default() };
            let pace = Pace { tasks, parallelism: operator.parallelism, schedule };
            parts.push(self.part(name, of, part, links, pace));
            self.operators.last_mut().expect("a part has been pushed").apart = operator.prepared.apart;
        }
        let last = parts.last().copied().expect("every operator has a part");
        self.outputs.push((last, operator.output_tasks()));
        self.parts.push(live);
    }

    fn part(&mut self, name: Arc<str>, of: Owner, part: &Part, inputs: Vec<Input>, pace: Pace) -> NodeId {
        let factory = Arc::clone(&part.factory);
        let services = self.services.clone();
        let folder = self.folder.clone();
        let resumes = self.resumes.clone();
        let factory: TaskFactory<dyn Operator> = Box::new(move |info| {
            let folder = folder.task(&info.operator, info.index);
            let durable = resumes.as_ref().map(|resumes| resumes.task(&info.operator, info.index));
            let memory = services.shares.of_task(of.memory, info.tasks);
            let operator = &of.operator;
            factory(&TaskContext { info, operator, folder, services: &services, memory, durable })
        });
        self.push(OperatorNode {
            name,
            inputs,
            outputs: part.outputs.clone(),
            factory,
            tasks: pace.tasks,
            parallelism: pace.parallelism,
            schedule: pace.schedule,
            publishes: false,
            apart: false,
        })
    }

    fn push(&mut self, node: OperatorNode) -> NodeId {
        self.operators.push(node);
        NodeId::Operator(self.operators.len() - 1)
    }

    /// The sink, where it has rejects.
    fn sink(
        &mut self,
        name: &Arc<str>,
        sink: &CheckedSink,
        factory: TaskFactory<dyn Operator>,
    ) -> Option<NodeId> {
        let inputs = match &sink.union {
            Some(union) => {
                let union = self.union(name, &sink.inputs, union, Role::InputOfSink);
                vec![Input::new(union, 0, Partitioning::Forward)]
            }
            None if follows(self.job, sink) => {
                let mut input = sink.inputs[0].clone();
                input.endpoint = live(self.job, input.endpoint);
                vec![self.link(&input, 1)]
            }
            None => sink.inputs.iter().map(|input| self.link(input, 1)).collect(),
        };
        let node = self.end(Arc::clone(name), inputs, factory, sink.plugin.publishes());
        let rejects = sink.plugin.rejects(sink.format.as_ref());
        rejects.then(|| {
            self.operators.last_mut().expect("the sink is the last one").outputs = vec![rejects_schema()];
            node
        })
    }

    /// An operator of one task that emits nothing.
    fn end(
        &mut self,
        name: Arc<str>,
        inputs: Vec<Input>,
        factory: TaskFactory<dyn Operator>,
        publishes: bool,
    ) -> NodeId {
        self.push(OperatorNode {
            name,
            inputs,
            outputs: Vec::new(),
            factory,
            tasks: 1,
            parallelism: None,
            schedule: Schedule::default(),
            publishes,
            apart: false,
        })
    }

    fn replies(&mut self) {
        for (source, factory) in std::mem::take(&mut self.replies) {
            let answers = live(self.job, self.job.reply_of(source));
            let (from, _) = self.upstream(answers);
            let inputs = vec![
                Input::new(from, answers.output, Partitioning::Global),
                Input::new(NodeId::Source(source), 1, Partitioning::Global),
            ];
            let name = format!("{}/reply", self.job.sources[source].name);
            let name = self.unique(&name, "replies", Role::Replies);
            self.end(name, inputs, factory, true);
        }
    }

    fn rejects(
        &mut self,
        rejecting: &[Endpoint],
        refusing: &[NodeId],
        counts: RejectCounts,
        store: Option<&mut Adopted>,
    ) {
        let limits = self.job.sources.iter();
        let limits =
            limits.filter_map(|source| Some((source.name.to_string(), source.reject_limit?))).collect();
        let name = self.unique("rejects", "writer", Role::Rejects);
        // No sink of a job file has such a name.
        let durable = store.map(|store| store.sink("(rejects)", &name));
        let settings = RejectsSettings {
            folder: self.folder.rejects(),
            limits,
            counts,
            max_bytes: self.job.rejects,
            durable,
        };
        let inputs = rejecting
            .iter()
            .map(|endpoint| {
                let (from, _) = self.upstream(*endpoint);
                Input::new(from, endpoint.output, Partitioning::Global)
            })
            .chain(refusing.iter().map(|sink| Input::new(*sink, 0, Partitioning::Global)))
            .collect();
        self.end(name, inputs, rejects_writer(settings), true);
    }
}

fn buffered(mut link: Input, input: &CheckedInput) -> Input {
    if let Some(bytes) = input.buffer {
        link.buffer = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    if let Some(micros) = input.flush {
        link.flush = duration(micros);
    }
    link
}

fn duration(micros: Micros) -> Duration {
    Duration::from_micros(micros.unsigned_abs())
}
