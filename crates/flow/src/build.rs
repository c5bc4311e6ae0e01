//! From a graph to tasks on workers: checks, chains, places and wires them.
//!
//! *Chains*: an operator whose only input is a forward link from as many tasks, which no other operator reads,
//! runs inside the task that feeds it. Such an operator has one input, so a chain never closes a loop.
//!
//! *Placement*: a job begins at the next worker in turn. Groups of several tasks go round robin over the
//! workers, or as many of them as `parallelism` allows. Groups of one task are cut into as many runs as there
//! are workers, so that a pipeline crosses from worker to worker as seldom as balance allows.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use thalweg_types::{Error, Seq};

use crate::job::{Job, JobCore};
use crate::link::Link;
use crate::ring::{Bounds, Flow, Receiver, Sender, ring};
use crate::sequencer::{Feed, Scouts, Sequencer};
use crate::shell::{Kind, Shell};
use crate::stage::{Body, Port, Stage};
use crate::stats::{
    Counter, JobStats, LinkStats, OperatorStats, SourceCounters, SourceStats, TaskCounters, TaskStats,
};
use crate::task::{Beginning, Inlet, Task};
use crate::worker::{Mailbox, TaskCell};
use crate::{
    Clock, DatagramView, Durability, FindReceived, Followed, Graph, Input, InputOrder, JobOptions,
    LastCommit, NodeId, OperatorNode, OrderLog, PartitionView, Partitioning, Schedule, SourceProgress,
    TaskInfo, Waker,
};

/// Ticks and their like that a sequencer can send over a ring that is full, before it has to wait: seconds of
/// ticks, so that one source's slow decoder does not stop the clock of the others at once.
const CONTROL_RESERVE: usize = 64;

/// Where a job's tasks go.
pub(crate) struct Site<'a> {
    pub workers: &'a [Arc<Mailbox>],
    /// The worker to begin at.
    pub first: usize,
    pub clock: &'a Arc<dyn Clock>,
}

/// A job whose tasks nobody runs yet.
pub(crate) struct Wired {
    pub(crate) job: Job,
    sequencer: (Arc<TaskCell>, Box<Sequencer>),
    tasks: Vec<(Arc<TaskCell>, Box<Task>)>,
}

impl Wired {
    /// Gives the tasks to their workers.
    pub(crate) fn run(self, log: Box<dyn OrderLog>, followed: Option<Followed>) -> Job {
        let Self { job, sequencer: (cell, mut sequencer), tasks } = self;
        sequencer.begin(log, followed);
        let fill = |cell: &TaskCell, kind| cell.fill(Box::new(Shell::new(Arc::clone(&job.core), kind)));
        fill(&cell, Kind::Sequencer(sequencer));
        for (cell, task) in tasks {
            fill(&cell, Kind::Task(task));
        }
        cell.wake();
        job
    }

    /// Ends the job without having run it.
    pub(crate) fn abort(self) {
        let Self { job, sequencer, tasks } = self;
        job.abort();
        let count = 1 + tasks.len();
        drop((sequencer, tasks));
        (0..count).for_each(|_| job.core.task_gone());
    }
}

pub(crate) fn wire(
    graph: Graph,
    options: JobOptions,
    durability: Durability,
    site: &Site<'_>,
) -> Result<Wired, Error> {
    if options.is_told && (graph.sources.len() != 1 || graph.sources[0].by_time) {
        return Err(Error::internal("a job that is told its order has one source, which says it"));
    }
    let layout = Layout::of(&graph, durability.order.is_some())?;
    Builder::new(graph, options, layout, site, &durability)?.build(&durability)
}

/// Makes every task of every operator, in their order: a task that has state reads it back from the disk, so as many are
/// made at once as there are cores. A panic of one is this call's.
fn make_at_once<T: Send>(
    operators: &[OperatorNode],
    make: impl Fn(&OperatorNode, u32) -> T + Sync,
) -> Vec<T> {
    let tasks: Vec<(&OperatorNode, u32)> = operators
        .iter()
        .flat_map(|operator| (0..operator.tasks).map(move |index| (operator, index)))
        .collect();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(tasks.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut made = Vec::new();
        // Relaxed: it only gives out numbers.
        while let at = next.fetch_add(1, Ordering::Relaxed)
            && let Some((operator, index)) = tasks.get(at)
        {
            made.push((at, make(operator, *index)));
        }
        made
    };
    let mut made = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut made = work();
        for other in others {
            made.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        made
    });
    made.sort_unstable_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, made)| made).collect()
}

/// What follows from the graph's shape alone. Nodes are numbered: sources first, then operators.
struct Layout {
    source_count: usize,
    tasks: Vec<u32>,
    /// The node that runs the task which this one is chained into; itself if not chained.
    host: Vec<usize>,
    /// Some task downstream of (or at) the node has several rings, so it must hear of empty ranges at once.
    prompt: Vec<bool>,
}

impl Layout {
    /// `publishers_wait`: an operator that publishes has a task of its own, so that those before it do not wait with it.
    fn of(graph: &Graph, publishers_wait: bool) -> Result<Self, Error> {
        let source_count = graph.sources.len();
        let node = |id: NodeId| match id {
            NodeId::Source(index) => index,
            NodeId::Operator(index) => source_count + index,
        };
        let mut tasks: Vec<u32> = graph.sources.iter().map(|source| source.parallelism).collect();
        tasks.extend(graph.operators.iter().map(|operator| operator.tasks));
        let names = graph.sources.iter().map(|source| &source.name);
        let names: Vec<&Arc<str>> = names.chain(graph.operators.iter().map(|op| &op.name)).collect();
        for (name, tasks) in names.iter().zip(&tasks) {
            if *tasks == 0 {
                return Err(Error::user(format!("{name:?} has no tasks; expected at least 1")));
            }
        }

        // Readers of every output.
        let mut readers: Vec<Vec<u32>> =
            graph.sources.iter().map(|source| vec![0; 2 + source.others.len()]).collect();
        readers.extend(graph.operators.iter().map(|operator| vec![0; operator.outputs.len()]));
        for (index, operator) in graph.operators.iter().enumerate() {
            if operator.inputs.is_empty() {
                return Err(Error::user(format!("operator {:?} has no input", operator.name)));
            }
            for input in &operator.inputs {
                let from = node(input.from);
                if from >= source_count + index {
                    return Err(Error::user(format!(
                        "operator {:?} reads a node that does not come before it",
                        operator.name
                    )));
                }
                let Some(count) = readers[from].get_mut(input.output) else {
                    return Err(Error::user(format!(
                        "operator {:?} reads output {} of {:?}, which has {}",
                        operator.name,
                        input.output,
                        names[from],
                        readers[from].len()
                    )));
                };
                *count += 1;
                if matches!(input.partitioning, Partitioning::Forward) && tasks[from] != operator.tasks {
                    return Err(Error::user(format!(
                        "forward link from {:?} with {} tasks to {:?} with {}",
                        names[from], tasks[from], operator.name, operator.tasks
                    ))
                    .with_hint("give both the same parallelism, or use another partitioning"));
                }
            }
        }

        let mut host: Vec<usize> = (0..tasks.len()).collect();
        for (index, operator) in graph.operators.iter().enumerate() {
            if let [input] = operator.inputs.as_slice()
                && matches!(input.partitioning, Partitioning::Forward)
                && operator.schedule == Schedule::default()
                && !(publishers_wait && operator.publishes)
                && !operator.apart
            {
                let from = node(input.from);
                let same_spread = match input.from {
                    NodeId::Operator(from) => operator.parallelism == graph.operators[from].parallelism,
                    NodeId::Source(_) => operator.parallelism.is_none(),
                };
                if readers[from][input.output] == 1 && same_spread {
                    host[source_count + index] = host[from];
                }
            }
        }

        let mut prompt = vec![false; tasks.len()];
        for (index, operator) in graph.operators.iter().enumerate().rev() {
            let this = source_count + index;
            let rings: u32 = operator
                .inputs
                .iter()
                .map(|input| match input.partitioning {
                    Partitioning::Forward => 1,
                    _ => tasks[node(input.from)],
                })
                .sum();
            prompt[this] |= rings > 1;
            if prompt[this] {
                for input in &operator.inputs {
                    prompt[node(input.from)] = true;
                }
            }
        }
        Ok(Self { source_count, tasks, host, prompt })
    }

    fn node(&self, id: NodeId) -> usize {
        match id {
            NodeId::Source(index) => index,
            NodeId::Operator(index) => self.source_count + index,
        }
    }

    /// The worker of every task of every node; a chained node's tasks are where their hosts are.
    fn place(&self, graph: &Graph, workers: usize, first: usize) -> Vec<Vec<usize>> {
        let is_single = |node: usize| self.host[node] == node && self.tasks[node] == 1;
        let singles = (0..self.tasks.len()).filter(|node| is_single(*node)).count();
        let mut single = 0;
        let mut turn = first;
        let mut placed: Vec<Vec<usize>> = Vec::with_capacity(self.tasks.len());
        for node in 0..self.tasks.len() {
            let count = self.tasks[node] as usize;
            let place = if self.host[node] != node {
                placed[self.host[node]].clone()
            } else if count == 1 {
                single += 1;
                vec![(first + (single - 1) * workers / singles) % workers]
            } else {
                let parallelism = node
                    .checked_sub(self.source_count)
                    .and_then(|operator| graph.operators[operator].parallelism)
                    .map_or(workers, |limit| (limit as usize).clamp(1, workers));
                let begin = turn;
                turn += count % workers;
                (0..count).map(|task| (begin + task % parallelism) % workers).collect()
            };
            placed.push(place);
        }
        placed
    }
}

/// What is known of a task while it is being built.
struct TaskParts {
    cell: Arc<TaskCell>,
    stages: Vec<Stage>,
    inlets: Vec<Inlet>,
    order: InputOrder,
    schedule: Schedule,
    /// One of its stages does.
    publishes: bool,
}

struct Builder<'a> {
    graph: Graph,
    options: JobOptions,
    layout: Layout,
    site: &'a Site<'a>,
    workers: Vec<Vec<usize>>,
    /// By host node and task; empty for chained nodes.
    parts: Vec<Vec<TaskParts>>,
    /// By node: the stage's place in its host's tasks.
    stage_of: Vec<usize>,
    counters: Vec<Vec<Arc<TaskCounters>>>,
    /// By node and task: the flows into it.
    inflows: Vec<Vec<Vec<Arc<Flow>>>>,
    links: Vec<LinkView>,
    /// By source, where its blocks are kept.
    received: Vec<Option<Arc<dyn FindReceived>>>,
    core: Arc<JobCore>,
    /// The number at which the order begins.
    start: Seq,
}

impl<'a> Builder<'a> {
    fn new(
        graph: Graph,
        options: JobOptions,
        layout: Layout,
        site: &'a Site<'a>,
        durability: &Durability,
    ) -> Result<Self, Error> {
        let node_count = layout.tasks.len();
        let workers = layout.place(&graph, site.workers.len(), site.first);
        let cells = |node: usize| workers[node].iter().map(|worker| TaskCell::new(&site.workers[*worker]));
        let parts: Vec<Vec<TaskParts>> = (0..node_count)
            .map(|node| {
                let hosts = layout.host[node] == node;
                cells(node)
                    .filter(|_| hosts)
                    .map(|cell| TaskParts {
                        cell,
                        stages: Vec::new(),
                        inlets: Vec::new(),
                        order: InputOrder::Merged,
                        schedule: Schedule::default(),
                        publishes: false,
                    })
                    .collect()
            })
            .collect();
        let alive = 1 + parts.iter().map(Vec::len).sum::<usize>();
        let core = JobCore::new(
            Arc::clone(&graph.job),
            graph.sources.iter().map(|source| Arc::clone(&source.name)).collect(),
            graph.operators.iter().map(|operator| Arc::clone(&operator.name)).collect(),
            alive,
            durability.order.clone(),
            durability.cycles.clone(),
        );
        let core = core.read_only_when_full(options.read_only_when_full).told(options.is_told);
        let core = Arc::new(core.keep(durability.keep.clone()));
        let mut builder = Self {
            stage_of: vec![0; node_count],
            counters: Vec::with_capacity(node_count),
            inflows: layout.tasks.iter().map(|tasks| vec![Vec::new(); *tasks as usize]).collect(),
            links: Vec::new(),
            received: vec![None; graph.sources.len()],
            graph,
            options,
            layout,
            site,
            workers,
            parts,
            core,
            start: durability.last.map_or(0, |last| last.next),
        };
        builder.make_stages()?;
        Ok(builder)
    }

    /// Calls every factory.
    fn make_stages(&mut self) -> Result<(), Error> {
        let job = Arc::clone(&self.graph.job);
        let info = |operator: &Arc<str>, index: u32, tasks: u32, upstream: Vec<u32>| TaskInfo {
            job: Arc::clone(&job),
            operator: Arc::clone(operator),
            index,
            tasks,
            upstream,
        };
        for (node, source) in self.graph.sources.iter().enumerate() {
            let mut counters = Vec::new();
            for index in 0..source.parallelism {
                let decoder = (source.decoder)(&info(&source.name, index, source.parallelism, Vec::new()))
                    .map_err(|error| error.context(format_args!("start source {:?}", source.name)))?;
                if index == 0 && self.options.keep_received {
                    self.received[node] = decoder.find_received();
                }
                let counter = Arc::<TaskCounters>::default();
                counters.push(Arc::clone(&counter));
                let ports = (0..2 + source.others.len()).map(|_| Port::default()).collect();
                let name = Arc::clone(&source.name);
                let stage =
                    Stage::new(Arc::clone(&self.core), name, index, Body::Decoder(decoder), ports, counter);
                self.parts[node][index as usize].stages.push(stage);
            }
            self.counters.push(counters);
        }
        let decoders: Vec<u32> = self.graph.sources.iter().map(|source| source.parallelism).collect();
        let operators = &self.graph.operators;
        let mut all = make_at_once(operators, |operator, index| {
            let upstream = operator.inputs.iter().map(|input| match input.from {
                NodeId::Source(place) => decoders[place],
                NodeId::Operator(place) => operators[place].tasks,
            });
            (operator.factory)(&info(&operator.name, index, operator.tasks, upstream.collect()))
                .map_err(|error| error.context(format_args!("start operator {:?}", operator.name)))
        })
        .into_iter();
        let mut parts = Vec::new();
        for (number, operator) in operators.iter().enumerate() {
            let node = self.layout.source_count + number;
            let host = self.layout.host[node];
            let mut counters = Vec::new();
            for (index, made) in (0..operator.tasks).zip(all.by_ref()) {
                let made = made?;
                if made.takes_part() {
                    parts.push((Arc::clone(&operator.name), index));
                }
                let part = &mut self.parts[host][index as usize];
                part.publishes |= operator.publishes;
                if host == node {
                    part.order = made.input_order();
                    part.schedule = operator.schedule;
                }
                let counter = Arc::<TaskCounters>::default();
                counters.push(Arc::clone(&counter));
                self.stage_of[node] = part.stages.len();
                let ports = operator.outputs.iter().map(|_| Port::default()).collect();
                let name = Arc::clone(&operator.name);
                part.stages.push(Stage::new(
                    Arc::clone(&self.core),
                    name,
                    index,
                    Body::Operator(made),
                    ports,
                    counter,
                ));
            }
            self.counters.push(counters);
        }
        if let Some(cycles) = &self.core.cycles {
            cycles.expect(parts);
        }
        Ok(())
    }

    fn build(mut self, durability: &Durability) -> Result<Wired, Error> {
        for number in 0..self.graph.operators.len() {
            let inputs = std::mem::take(&mut self.graph.operators[number].inputs);
            for (port, input) in inputs.iter().enumerate() {
                self.connect(self.layout.source_count + number, port, input);
            }
        }
        let sequencer_cell = TaskCell::new(&self.site.workers[self.site.first % self.site.workers.len()]);
        let sequencer = self.sequencer(&sequencer_cell, durability.last)?;

        let stats = self.stats_view(&sequencer);
        let core = Arc::clone(&self.core);
        let now = Instant::now();
        let (mut tasks, mut watched) = (Vec::new(), Vec::new());
        for part in self.parts.into_iter().flatten() {
            let durable = core.order.clone().filter(|_| part.publishes);
            if let Some(durable) = &durable {
                durable.subscribe(waker(&part.cell));
            }
            let passed = Arc::new(AtomicU64::new(self.start));
            watched.push(Arc::clone(&passed));
            let beginning = Beginning { now, start: self.start, durable, waker: waker(&part.cell), passed };
            let task = Task::new(part.inlets, part.order, part.stages, part.schedule, beginning);
            tasks.push((part.cell, Box::new(task)));
        }
        core.watch(watched);
        let wakers = std::iter::once(&sequencer_cell).chain(tasks.iter().map(|(cell, _)| cell)).map(waker);
        core.wire(waker(&sequencer_cell), wakers.collect(), move || stats.look());
        Ok(Wired { job: Job { core }, sequencer: (sequencer_cell, Box::new(sequencer)), tasks })
    }

    /// Makes the rings of one link, or the chain.
    fn connect(&mut self, to: usize, port: usize, input: &Input) {
        let from = self.layout.node(input.from);
        let (from_host, from_stage) = (self.layout.host[from], self.stage_of[from]);
        let mut view = LinkView {
            from: self.name(from),
            output: input.output,
            to: self.name(to),
            partitioning: input.partitioning.describe(match input.from {
                NodeId::Source(from) => Some(&self.graph.sources[from].schema).filter(|_| input.output == 0),
                NodeId::Operator(from) => self.graph.operators[from].outputs.get(input.output),
            }),
            flows: Vec::new(),
            chained: Vec::new(),
        };
        if self.layout.host[to] != to {
            let next = self.stage_of[to];
            for part in &mut self.parts[from_host] {
                let bytes = Arc::<Counter>::default();
                view.chained.push(Arc::clone(&bytes));
                part.stages[from_stage].ports[input.output].chained = Some((next, bytes));
            }
            self.links.push(view);
            return;
        }
        let forward = matches!(input.partitioning, Partitioning::Forward);
        let (upstream, downstream) = (self.layout.tasks[from] as usize, self.layout.tasks[to] as usize);
        let rings = if forward { upstream } else { upstream * downstream };
        let bounds = Bounds::new(self.options.ring_bytes, rings);
        let mut inlets: Vec<Vec<(u32, Receiver)>> = (0..self.layout.tasks[to]).map(|_| Vec::new()).collect();
        for upstream in 0..self.layout.tasks[from] {
            let mut senders: Vec<Sender> = Vec::new();
            for downstream in 0..self.layout.tasks[to] {
                if forward && upstream != downstream {
                    continue;
                }
                let producer = &self.parts[from_host][upstream as usize].cell;
                let consumer = &self.parts[to][downstream as usize].cell;
                let (sender, receiver) = ring(bounds, producer, consumer);
                view.flows.push(Arc::clone(sender.flow()));
                self.inflows[to][downstream as usize].push(Arc::clone(receiver.flow()));
                senders.push(sender);
                inlets[downstream as usize].push((upstream, receiver));
            }
            let link = Link::new(
                input.partitioning.clone(),
                senders,
                input.buffer,
                input.flush,
                self.layout.prompt[to],
                self.start,
            );
            let stage = &mut self.parts[from_host][upstream as usize].stages[from_stage];
            stage.ports[input.output].links.push(link);
        }
        for (part, receivers) in self.parts[to].iter_mut().zip(inlets) {
            part.inlets
                .extend(receivers.into_iter().map(|(task, receiver)| Inlet::new(port, task, receiver)));
        }
        self.links.push(view);
    }

    fn sequencer(&mut self, cell: &Arc<TaskCell>, last: Option<LastCommit>) -> Result<Sequencer, Error> {
        let mut feeds = Vec::new();
        for (node, source) in std::mem::take(&mut self.graph.sources).into_iter().enumerate() {
            let woken = Arc::new(AtomicBool::new(false));
            let mut senders = Vec::new();
            let bounds =
                Bounds::new(self.options.ring_bytes, self.parts[node].len()).with_reserve(CONTROL_RESERVE);
            for (index, part) in self.parts[node].iter_mut().enumerate() {
                let (sender, receiver) = ring(bounds, cell, &part.cell);
                self.inflows[node][index].push(Arc::clone(receiver.flow()));
                part.inlets.push(Inlet::new(0, 0, receiver));
                senders.push(sender);
            }
            let mut feed = Feed::new(
                source.name,
                source.source,
                Arc::clone(&woken),
                senders,
                self.layout.prompt[node],
                self.start,
            );
            feed.keep_received(self.received[node].take());
            let wake = waker(cell);
            let waker = Waker::new(move || {
                woken.store(true, Ordering::Release);
                wake.wake();
            });
            let name = Arc::clone(&feed.name);
            let not_started = |error: Error| error.context(format_args!("start source {name:?}"));
            if source.by_time {
                let info = TaskInfo::alone(&self.graph.job, &feed.name);
                feed.scouts = Some(Scouts::new((source.decoder)(&info).map_err(not_started)?));
            }
            feed.source.start(waker).map_err(not_started)?;
            feeds.push(feed);
        }
        let by_hand = self.site.clock.by_hand(waker(cell));
        Ok(Sequencer::new(
            Arc::clone(&self.core),
            Arc::clone(self.site.clock),
            by_hand,
            self.options.clone(),
            last,
            feeds,
        ))
    }

    fn name(&self, node: usize) -> Arc<str> {
        let core = &self.core;
        Arc::clone(match node.checked_sub(self.layout.source_count) {
            None => &core.sources[node],
            Some(operator) => &core.operators[operator],
        })
    }

    fn stats_view(&mut self, sequencer: &Sequencer) -> StatsView {
        let tasks = (0..self.layout.tasks.len()).map(|node| {
            let each = self.counters[node].iter().zip(&self.workers[node]).zip(&self.inflows[node]);
            each.map(|((counters, worker), inflows)| TaskView {
                counters: Arc::clone(counters),
                worker: *worker,
                inflows: inflows.clone(),
            })
            .collect()
        });
        let mut tasks: Vec<Vec<TaskView>> = tasks.collect();
        let operators = tasks.split_off(self.layout.source_count);
        StatsView {
            sources: sequencer
                .feeds()
                .iter()
                .zip(tasks)
                .map(|(feed, tasks)| SourceView {
                    name: Arc::clone(&feed.name),
                    counters: Arc::clone(&feed.counters),
                    progress: Arc::clone(&feed.progress),
                    datagrams: feed.datagrams.clone(),
                    partitions: feed.partitions.clone(),
                    tasks,
                })
                .collect(),
            operators: self.core.operators.iter().cloned().zip(operators).collect(),
            links: std::mem::take(&mut self.links),
            figures: Arc::clone(sequencer.figures()),
            clock: Arc::clone(self.site.clock),
        }
    }
}

fn waker(cell: &Arc<TaskCell>) -> Waker {
    let cell = Arc::clone(cell);
    Waker::new(move || cell.wake())
}

/// Where the figures of a job are to be found.
struct StatsView {
    sources: Vec<SourceView>,
    operators: Vec<(Arc<str>, Vec<TaskView>)>,
    links: Vec<LinkView>,
    figures: Arc<crate::sequencer::Figures>,
    clock: Arc<dyn Clock>,
}

struct SourceView {
    name: Arc<str>,
    counters: Arc<SourceCounters>,
    progress: Arc<std::sync::Mutex<Option<SourceProgress>>>,
    datagrams: Option<DatagramView>,
    partitions: Option<PartitionView>,
    tasks: Vec<TaskView>,
}

struct TaskView {
    counters: Arc<TaskCounters>,
    worker: usize,
    inflows: Vec<Arc<Flow>>,
}

struct LinkView {
    from: Arc<str>,
    output: usize,
    to: Arc<str>,
    partitioning: String,
    flows: Vec<Arc<Flow>>,
    chained: Vec<Arc<Counter>>,
}

impl TaskView {
    fn look(&self) -> TaskStats {
        let counters = &self.counters;
        TaskStats {
            records_in: counters.records_in.get(),
            records_out: counters.records_out.get(),
            batches_in: counters.batches_in.get(),
            busy_nanos: counters.busy_nanos.get(),
            queued_bytes: self.inflows.iter().map(|flow| flow.gauge.bytes()).sum(),
            state_bytes: counters.state_bytes.get(),
            cache: *counters.cache.lock().unwrap_or_else(PoisonError::into_inner),
            judged: *counters.judged.lock().unwrap_or_else(PoisonError::into_inner),
            table: *counters.table.lock().unwrap_or_else(PoisonError::into_inner),
            blocked: counters.blocked.load(Ordering::Relaxed),
            worker: self.worker,
            waits_for_tick: counters.waits_for_tick.load(Ordering::Relaxed),
            newest: counters.newest.get(),
            task_time: counters.task_time.get(),
            latency: counters.latency.look(),
            markers: counters.markers.look(),
            marker_cpu: counters.marker_cpu.look(),
        }
    }
}

impl StatsView {
    fn look(&self) -> JobStats {
        let sources: Vec<SourceStats> = self.sources.iter().map(SourceView::look).collect();
        JobStats {
            records: sources.iter().map(|source| source.records).sum(),
            rejects: sources.iter().map(|source| source.rejects).sum(),
            cycles: self.figures.cycles.get(),
            tick: self.figures.tick.get() as i64,
            now: self.figures.now(&*self.clock),
            clock: self.figures.clock(),
            sources,
            operators: self
                .operators
                .iter()
                .map(|(name, tasks)| OperatorStats {
                    name: Arc::clone(name),
                    tasks: tasks.iter().map(TaskView::look).collect(),
                })
                .collect(),
            links: self.links.iter().map(LinkView::look).collect(),
        }
    }
}

impl SourceView {
    fn look(&self) -> SourceStats {
        SourceStats {
            name: Arc::clone(&self.name),
            records: self.counters.records.get(),
            bytes: self.counters.bytes.get(),
            rejects: self.tasks.iter().map(|task| task.counters.rejects.get()).sum(),
            progress: *self.progress.lock().unwrap_or_else(PoisonError::into_inner),
            datagrams: self.datagrams.as_ref().map(|look| look()),
            partitions: self.partitions.as_ref().map(|look| look()),
            ended: self.counters.ended.load(Ordering::Relaxed),
            blocked: self.counters.blocked.load(Ordering::Relaxed),
            tasks: self.tasks.iter().map(TaskView::look).collect(),
        }
    }
}

impl LinkView {
    fn look(&self) -> LinkStats {
        let chained: u64 = self.chained.iter().map(|bytes| bytes.get()).sum();
        LinkStats {
            from: Arc::clone(&self.from),
            output: self.output,
            to: Arc::clone(&self.to),
            partitioning: self.partitioning.clone(),
            bytes: chained + self.flows.iter().map(|flow| flow.sent.load(Ordering::Relaxed)).sum::<u64>(),
            queued_bytes: self.flows.iter().map(|flow| flow.gauge.bytes()).sum(),
            high_watermark_hits: self.flows.iter().map(|flow| flow.gauge.hits()).sum(),
            chained: !self.chained.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(name: &str, tasks: u32) -> OperatorNode {
        OperatorNode {
            name: name.into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            factory: Box::new(|_| Err(Error::internal("not called"))),
            tasks,
            parallelism: None,
            schedule: Schedule::default(),
            publishes: false,
            apart: false,
        }
    }

    #[test]
    fn tasks_come_in_their_order_however_many_are_made_at_once() {
        let operators = [operator("a", 40), operator("none", 0), operator("b", 60)];
        let made = make_at_once(&operators, |operator, index| {
            // The first ones take longest.
            std::thread::sleep(std::time::Duration::from_micros(u64::from(300 / (index + 1))));
            (operator.name.to_string(), index)
        });
        let names = |name: &'static str, tasks| (0..tasks).map(move |index| (name.to_owned(), index));
        assert_eq!(made, names("a", 40).chain(names("b", 60)).collect::<Vec<_>>());
        assert!(make_at_once(&[], |_, index| index).is_empty());
    }

    #[test]
    #[should_panic(expected = "planted")]
    fn a_panic_while_a_task_is_made_is_the_callers() {
        make_at_once(&[operator("a", 8)], |_, _| panic!("planted"));
    }
}
