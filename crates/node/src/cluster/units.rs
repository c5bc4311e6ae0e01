//! The units of a stage on one node: each a small job with a folder of its own, all on the threads of the node.
//!
//! ```text
//! jobs/JOB/units/STAGE/PARTITION/commit.log   as of any job; there is no order log and no journal
//!                                tasks/…      state of its tasks
//!                                texts/N      texts of the job that the log has named
//!                                lineage      where there is a store of snapshots
//!                                order/…      where it has the sources of the job: its order is its own
//!                                journal/…
//! ```
//!
//! A unit works by the text that its log names ([`Texts`]); one whose log names none yet is opened by that of the job.
//!
//! They share the node's workers, one thread that commits, one client of the brokers and one budget for chunks, so a unit
//! that is told nothing costs memory, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_cluster::frame::{Head, Spec, tick};
use thalweg_cluster::positions::{Mark, Origin, Position};
use thalweg_connect::SourcePlugin;
use thalweg_connect::source::kafka::SharedTopic;
use thalweg_flow::{CycleSettings, JobState, JobStats};
use thalweg_kafka::{Bus, TopicPartition};
use thalweg_storage::ChunkBudget;
use thalweg_types::{Error, Micros};

use super::answering::Post;
use super::arrived::{Arrived, Asker};
use super::cut::{Reads, StageCut};
use super::inbox::{Goes, InboxCounts, InboxPlugin, Input, Reader};
use super::mend::{NamedGap, Step, Watch};
use super::outlet::{Carrier, SentTo, Shown};
use super::outside::{Limit, Outside};
use super::place::Place;
use super::snapshot::{OfStage, Snapshots, StageSnapshots, UnitSnapshots};
use super::texts::{self, Texts};
use super::topic::{News, TopicPlugin};
use crate::data_dir::{JobDir, JobLock};
use crate::durable::{self, CommitThread};
use crate::node::{JobEnd, Node, RunningJob};
use crate::starting::{CHUNK_MEMORY, Opened};

/// How long a unit may take to end before whoever waits gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the units of a stage run.
#[derive(Clone)]
pub struct UnitOptions {
    /// When a unit commits that has been told rows: nothing that can be seen waits for it. One that was told nothing does
    /// not.
    pub cycle: CycleSettings,
    /// Bytes that wait in the client for each partition.
    pub queue: usize,
    /// Sends answers to doors; `None`: nobody gets any.
    pub post: Option<Arc<Post>>,
    /// Takes snapshots of the units, and restores them; `None`: a unit without its folder reads its log from the beginning.
    pub snapshots: Option<Arc<Snapshots>>,
}

impl Default for UnitOptions {
    fn default() -> Self {
        let cycle =
            CycleSettings { every: Some(Duration::from_secs(10)), bytes: Some(256 << 20), records: None };
        Self { cycle, queue: 1 << 20, post: None, snapshots: None }
    }
}

/// The units of a stage that run here.
pub struct Units {
    /// By the text of the job when they were opened.
    stage: StageCut,
    topic: Arc<str>,
    reads: Reading,
    options: UnitOptions,
    folder: Arc<UnitsFolder>,
    thread: Arc<CommitThread>,
    chunks: Arc<ChunkBudget>,
    /// By partition. Held for moments, and while one is started or ends.
    running: Mutex<BTreeMap<u32, Arc<Unit>>>,
    /// Where its rows go, where there is a next stage.
    carrier: Option<Arc<Carrier>>,
    /// What the next stage misses of what these units send.
    mending: Mutex<Mending>,
    snapshots: Option<StageSnapshots>,
}

/// What they read. Only a log of the cluster names texts of the job; the others are opened by the text of the moment.
enum Reading {
    Log(Reader),
    /// A topic of others.
    Topic {
        group: Arc<str>,
        by: Mutex<SharedBy>,
    },
    /// The sources of the job.
    Sources(Mutex<Arc<Spec>>),
}

/// The text by which units are opened, and the topic with its client as that says.
#[derive(Clone)]
struct SharedBy {
    text: Arc<Spec>,
    topic: Arc<SharedTopic>,
    reader: Reader,
}

impl SharedBy {
    fn open(text: Arc<Spec>, stage: &StageCut, group: &str, folder: &JobDir) -> Result<Self, Error> {
        let topic = Arc::new(stage.open_topic(folder.path())?);
        let reader = Reader::of_topic(&topic, group, stage.partitions)?;
        Ok(Self { text, topic, reader })
    }
}

/// The group that units which read a topic of others tell how far they are; `stage` is the topic that their stage would have.
pub(super) fn units_group(stage: &str) -> String {
    format!("{stage}.units")
}

#[derive(Default)]
struct Mending {
    watch: Watch,
    /// Units that were stopped, as they cannot make rows again that the next stage waits for.
    stopped: BTreeSet<u32>,
}

/// A job's folder on a node, with the units of all its stages in it; no other process has it meanwhile.
pub struct UnitsFolder {
    node: Arc<Node>,
    job: Arc<str>,
    folder: JobDir,
    texts: Arc<Texts>,
    /// The text of the job when this was opened.
    spec: Arc<Spec>,
    _lock: JobLock,
}

impl UnitsFolder {
    /// `spec` is the text of the job as of now.
    ///
    /// # Errors
    /// Where another process has the folder, or it cannot be made.
    pub fn open(node: Arc<Node>, job: &str, texts: Arc<Texts>, spec: Arc<Spec>) -> Result<Arc<Self>, Error> {
        let folder = node.folder_of(job)?;
        let lock = folder.lock().map_err(|error| error.context(format!("start job {job:?}")))?;
        Ok(Arc::new(Self { node, job: job.into(), folder, texts, spec, _lock: lock }))
    }
}

/// The last commit of a unit.
struct Commit {
    /// The text by which it is to be gone on from.
    text: Arc<Spec>,
    /// Where it is, in what the unit reads.
    position: Position,
    /// There is none.
    is_first: bool,
}

/// A stage's work on one partition.
pub struct Unit {
    pub partition: u32,
    pub job: RunningJob,
    /// The number of the text by which it was opened.
    text: u64,
    /// Operators of it emit at ticks.
    has_ticks: bool,
    pub counts: Arc<InboxCounts>,
    /// Whether it sends answers; one that follows does not.
    pub is_active: Arc<AtomicBool>,
    /// Whether the plan in force has it active here: one that goes elsewhere still answers for a while.
    pub is_planned: Arc<AtomicBool>,
    pub(super) snapshots: Option<Arc<UnitSnapshots>>,
    /// How far it may read while it follows; `None`: to the end.
    limit: Option<Arc<Limit>>,
    /// How far its rows for the next stage have got.
    sent: Arc<Shown>,
    /// Where its last commit was when it was opened.
    opened: Position,
    /// Where it reads a topic of others: what its source hears.
    news: Option<Arc<News>>,
    /// It has the sources of the job.
    has_sources: bool,
}

impl Unit {
    /// Whether it writes to other systems, as one copy at a time should.
    pub(super) fn writes(&self) -> bool {
        self.limit.is_some()
    }

    /// Makes it the copy that answers and writes, or one that follows.
    pub(super) fn set_active(&self, is_active: bool) {
        // It reads on once it sees this.
        self.is_active.store(is_active, Ordering::Release);
        self.is_planned.store(is_active, Ordering::Relaxed);
        if let Some(limit) = &self.limit {
            limit.wake();
        }
    }

    /// Shows how far its sources are, where it has those of the job: others show it themselves.
    pub(super) fn show_sources(&self, stats: &JobStats, now: Micros) {
        if self.has_sources {
            let records = stats.records;
            self.counts.rows.store(records, Ordering::Relaxed);
            self.counts.position.store(self.opened.offset + records, Ordering::Relaxed);
            self.counts.appended.store(now, Ordering::Relaxed);
        }
    }

    /// Whether it has read all that there is, as it is known now.
    pub(super) fn is_at_end(&self) -> bool {
        self.has_sources || self.counts.has_read_to(None)
    }

    /// Whether its sources have ended, and nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        self.has_sources && self.job.state() == JobState::Done && !self.counts.has_met.load(Ordering::Relaxed)
    }

    /// Whether it has read all that it may, as it is known now.
    pub(super) fn is_ready(&self) -> bool {
        self.has_sources || self.counts.has_read_to(self.limit.as_ref().and_then(|limit| limit.below()))
    }

    /// Whether it is the active one by all that is known here, and a task of it emits at the next tick.
    pub(super) fn waits_for_tick(&self) -> bool {
        self.has_ticks
            && self.is_active.load(Ordering::Relaxed)
            && self.is_planned.load(Ordering::Relaxed)
            && self.job.stats().operators.iter().flat_map(|of| &of.tasks).any(|task| task.waits_for_tick)
    }

    /// Whether it has ended where its log goes on with another text of the job.
    pub(super) fn goes_on(&self) -> bool {
        self.job.state() == JobState::Done && self.counts.has_met.load(Ordering::Relaxed)
    }
}

impl Reading {
    /// The text by which units are opened; `None` where their logs name it.
    fn text(&self) -> Option<Arc<Spec>> {
        match self {
            Reading::Log(_) => None,
            Reading::Topic { by, .. } => Some(Arc::clone(&locked(by).text)),
            Reading::Sources(text) => Some(Arc::clone(&locked(text))),
        }
    }
}

fn locked<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Units {
    /// The units of the stage at a place of the chain, which reads `topic`; none of them runs yet. One that reads a topic of
    /// others names a group after that. Where there is a next stage, `carrier` sends their rows.
    ///
    /// # Errors
    /// Where the text has no such stage, a setting of the client is wrong, or there is no thread.
    pub fn open(
        folder: Arc<UnitsFolder>,
        place: usize,
        bus: Arc<dyn Bus>,
        topic: impl Into<Arc<str>>,
        carrier: Option<Arc<Carrier>>,
        options: UnitOptions,
    ) -> Result<Self, Error> {
        let job = &folder.job;
        let stage = folder.texts.stage(&folder.spec, place)?;
        let own: Arc<str> = topic.into();
        let topic = stage.topic().cloned().unwrap_or_else(|| Arc::clone(&own));
        let text = Arc::clone(&folder.spec);
        let reads = match &stage.reads {
            Reads::Log => {
                let group = format!("thalweg.{job}.{}", stage.name);
                Reading::Log(Reader::new(Arc::clone(&bus), group, options.queue)?)
            }
            Reads::Topic(_) => {
                let group = units_group(&own);
                let by = Mutex::new(SharedBy::open(text, &stage, &group, &folder.folder)?);
                Reading::Topic { group: group.into(), by }
            }
            Reads::Sources => Reading::Sources(Mutex::new(text)),
        };
        // A unit that reads a topic of others has nothing but its place, which the group has, too; and what has the sources of
        // the job is nowhere else.
        let snapshots = options.snapshots.clone().filter(|_| stage.reads == Reads::Log).map(|shared| {
            let of = OfStage {
                bus: Arc::clone(&bus),
                fs: Arc::clone(&folder.node.site().fs),
                topic: Arc::clone(&topic),
                job: Arc::clone(job),
                stage: Arc::from(&*stage.name),
                folder: folder.folder.clone(),
            };
            StageSnapshots::open(shared, of)
        });
        let snapshots = snapshots.transpose()?;
        let thread = Arc::new(CommitThread::start(format!("commit:{job}"), &folder.node.site().busy)?);
        let chunks = ChunkBudget::new(stage.chunk_memory().unwrap_or(CHUNK_MEMORY));
        let (running, mending) = (Mutex::default(), Mutex::default());
        Ok(Self {
            stage,
            topic,
            reads,
            options,
            folder,
            thread,
            chunks,
            running,
            carrier,
            mending,
            snapshots,
        })
    }

    /// Has units go on by this text of the job whose logs do not name it.
    ///
    /// # Errors
    /// Where the text has no such stage, or a setting of the client is wrong.
    pub(super) fn set_text(&self, spec: &Arc<Spec>) -> Result<(), Error> {
        if self.reads.text().is_none_or(|text| text.number == spec.number) {
            return Ok(());
        }
        match &self.reads {
            Reading::Log(_) => {}
            Reading::Topic { group, by } => {
                let stage = self.folder.texts.stage(spec, self.stage.place as usize)?;
                *locked(by) = SharedBy::open(Arc::clone(spec), &stage, group, &self.folder.folder)?;
                for unit in self.list() {
                    unit.news.iter().for_each(|news| news.set_text(spec.number));
                }
            }
            Reading::Sources(text) => {
                *locked(text) = Arc::clone(spec);
                for unit in self.list().into_iter().filter(|unit| unit.text != spec.number) {
                    unit.counts.has_met.store(true, Ordering::Relaxed);
                    unit.job.drain();
                }
            }
        }
        Ok(())
    }

    /// Starts the unit of a partition, or goes on with it from its last commit. One that is not `active` sends no answers.
    ///
    /// # Errors
    /// Where it runs, or the partition is none of the stage; damage, another log, the disk's errors, those of brokers.
    pub fn start(&self, partition: u32, active: bool) -> Result<Arc<Unit>, Error> {
        let mut running = self.lock();
        let stage = &self.stage;
        let partitions = match self.reads.text() {
            None => stage.partitions,
            // A topic of others may have got more.
            Some(text) => self.folder.texts.stage(&text, stage.place as usize)?.partitions,
        };
        if partition >= partitions {
            return Err(Error::internal(format!(
                "unit {}/{partition} of a stage with {partitions} partitions",
                stage.name
            )));
        }
        if running.get(&partition).is_some_and(|unit| !unit.job.state().is_final()) {
            return Err(Error::internal(format!("unit {}/{partition} runs already", stage.name)));
        }
        // Here it waits for the fetch: who must not asks `is_ready` first.
        let restored = self.snapshots.as_ref().map_or(Ok(()), |snapshots| snapshots.restore_now(partition));
        let unit = restored.and_then(|()| self.start_unit(partition, active));
        let unit = unit.map_err(|error| error.context(format!("start unit {}/{partition}", stage.name)))?;
        running.insert(partition, Arc::clone(&unit));
        Ok(unit)
    }

    /// Whether a unit that does not run can be started at once; where it has to be restored first, that begins.
    ///
    /// # Errors
    /// Where it can go on from nothing, and the log has lost its beginning; damage, the disk's errors, those of the store.
    pub fn is_ready(&self, partition: u32) -> Result<bool, Error> {
        let ready = self.snapshots.as_ref().map_or(Ok(true), |snapshots| snapshots.is_ready(partition));
        ready.map_err(|error| error.context(format!("restore unit {}/{partition}", self.stage.name)))
    }

    /// Whether a unit is being restored.
    pub fn is_restoring(&self, partition: u32) -> bool {
        self.snapshots.as_ref().is_some_and(|snapshots| snapshots.is_restoring(partition))
    }

    /// Whether there is a store of snapshots.
    pub fn has_store(&self) -> bool {
        self.snapshots.is_some()
    }

    fn start_unit(&self, partition: u32, active: bool) -> Result<Arc<Unit>, Error> {
        let counts = Arc::<InboxCounts>::default();
        let is_active = Arc::new(AtomicBool::new(active));
        let is_planned = Arc::new(AtomicBool::new(active));
        let number = i32::try_from(partition).map_err(|_| Error::internal("a partition above 2^31 − 1"))?;
        let folder = self.folder.folder.unit(&self.stage.name, partition)?;
        let site = self.folder.node.site();
        let kept = texts::Kept::of(&folder, &site.fs);
        let Commit { text: spec, position, is_first } = self.opened_from(partition, &folder, &kept)?;
        let snapshots = self.snapshots.as_ref();
        let snapshots =
            snapshots.map(|of| of.begin(partition, spec.number, &counts, &is_planned)).transpose()?;
        let cut = self.folder.texts.cut(&spec)?;
        let place = self.stage.place as usize;
        let stage = self.folder.texts.stage(&spec, place)?;
        let sent = Arc::<Shown>::default();
        let refuses = (self.options.post.clone(), Arc::clone(&is_active));
        let post = self.options.post.clone().filter(|_| stage.answers() || stage.answers_later);
        let lines = post.map(|post| (post, Arc::clone(&is_active)));
        let answers = lines.is_some() && stage.answers();
        let sinks = stage.outside();
        let goes = Goes { lines, answers, asks: self.carrier.is_some() || !sinks.is_empty() };
        let askers = [(self.carrier.is_some(), Asker::Outlet), (answers, Asker::Answers)];
        let askers = askers.into_iter().filter_map(|(asks, asker)| asks.then_some(asker));
        let askers = askers.chain((0..sinks.len()).map(Asker::Sink));
        let has_sources = matches!(self.reads, Reading::Sources(_));
        let arrived = Arc::new(if has_sources { Arrived::in_order() } else { Arrived::new(askers) });
        let limit = (!sinks.is_empty()).then(|| Arc::new(Limit::new(Arc::clone(&is_active), sinks.len())));
        let outlet = match (&self.carrier, cut.stages.get(place + 1)) {
            (None, _) => None,
            (Some(carrier), Some(next)) => {
                if has_sources && is_first {
                    self.check_beginning(carrier, next)?;
                }
                let unit = Origin::Unit { stage: stage.place, partition };
                let (spec, arrived) = (Arc::clone(&spec), Arc::clone(&arrived));
                let doings = self.thread.doings();
                let lines = goes.lines.clone().filter(|_| stage.answers_later);
                Some(carrier.outlet(unit, (next.clone(), spec), (arrived, lines), doings, Arc::clone(&sent)))
            }
            (Some(_), None) => {
                return Err(Error::internal(format!("text {} of the job has no next stage", spec.number)));
            }
        };
        let of = TopicPartition::new(Arc::clone(&self.topic), number);
        let mut news = None;
        let plugin: Option<Arc<dyn SourcePlugin>> = match &self.reads {
            Reading::Sources(_) => None,
            Reading::Topic { group, by } => {
                let SharedBy { topic, reader, .. } = locked(by).clone();
                let news = news.insert(Arc::new(News::new(spec.number)));
                Some(Arc::new(TopicPlugin {
                    shared: topic,
                    group: Arc::clone(group),
                    reader,
                    of,
                    text: spec.number,
                    counts: Arc::clone(&counts),
                    arrived: Arc::clone(&arrived),
                    news: Arc::clone(news),
                }))
            }
            Reading::Log(reader) => Some(Arc::new(InboxPlugin(Input {
                reader: reader.clone(),
                of,
                stage: stage.clone(),
                text: spec.number,
                texts: Arc::clone(&self.folder.texts),
                kept,
                counts: Arc::clone(&counts),
                goes,
                refuses,
                arrived: Arc::clone(&arrived),
                limit: limit.clone(),
                on_commit: snapshots.as_ref().map(UnitSnapshots::on_commit),
            }))),
        };
        let mut job = stage.job(partition, plugin, outlet);
        // Nothing that can be seen waits for a commit, but what sinks of the job write at a node.
        if stage.written_names().next().is_none() {
            job.cycle = self.options.cycle;
        }
        if let Some(limit) = &limit {
            let outside = Outside {
                log: (Arc::clone(&self.topic), partition, stage.partitions),
                job: Arc::clone(&self.folder.job),
                arrived,
                limit: Arc::clone(limit),
            };
            for (number, place) in sinks.into_iter().enumerate() {
                let sink = &mut job.sinks[place];
                sink.unit = Some(outside.of_sink(number, &sink.name));
            }
        }
        let opened = Opened::inside(&Arc::clone(&job.name), folder, &site.fs)?;
        let wired = opened.adopt(job, &[])?.wire(site, Some(Arc::clone(&self.chunks)), &[])?;
        let job = wired.run(|| Ok(Arc::clone(&self.thread)))?;
        Ok(Arc::new(Unit {
            partition,
            job,
            text: spec.number,
            has_ticks: stage.has_ticks(),
            counts,
            is_active,
            is_planned,
            snapshots,
            limit,
            sent,
            opened: position,
            news,
            has_sources,
        }))
    }

    /// Refuses to begin with sources of whose records rows have gone on: numbers begin anew with the folder, so the next stage
    /// would take other records for those that it has. Nobody else sends to that.
    fn check_beginning(&self, carrier: &Carrier, next: &StageCut) -> Result<(), Error> {
        for partition in 0..next.partitions {
            let of = carrier.partition(partition);
            match carrier.end_of(partition) {
                None => return Err(Error::external(format!("no broker says whether {of} has messages"))),
                Some(0) => {}
                Some(end) => {
                    let (stage, node) = (&self.stage.name, self.stage.node.as_deref().unwrap_or_default());
                    let folder = self.folder.folder.unit(stage, 0)?;
                    return Err(Error::corrupt(format!(
                        "source {stage:?} was read before: {of} has {end} messages of it; how far, the folder of its unit says, and \
                         {:?} has no commit",
                        folder.path()
                    ))
                    .with_hint(format!(
                        "bring that folder back to node {node:?}, from a copy or from the node that read the source; or give the job \
                         another name, and it begins anew"
                    )));
                }
            }
        }
        Ok(())
    }

    /// What a unit goes on from.
    fn opened_from(&self, partition: u32, folder: &JobDir, kept: &texts::Kept) -> Result<Commit, Error> {
        let name = self.stage.unit_name(partition);
        let record = durable::look(&*self.folder.node.site().fs, &name, folder)?;
        let is_first = record.is_none();
        if let Reading::Sources(text) = &self.reads {
            let next = record.map_or(0, |record| record.sources.iter().map(|source| source.next).sum());
            let position = Position { offset: next, row: 0 };
            return Ok(Commit { text: Arc::clone(&locked(text)), position, is_first });
        }
        let place = record.as_ref().and_then(|record| record.sources.first()).map(|source| &source.place.0);
        let place = match place.filter(|place| !place.is_empty()) {
            Some(place) => Place::decode(place)?,
            None => Place::default(),
        };
        let position = place.position;
        if let Some(text) = self.reads.text() {
            return Ok(Commit { text, position, is_first });
        }
        let texts = &place.texts;
        texts.first().into_iter().for_each(|lowest| kept.forget_below(*lowest));
        let spec =
            texts.last().map_or_else(|| Ok(Arc::clone(&self.folder.spec)), |highest| kept.read(*highest));
        Ok(Commit { text: spec?, position, is_first })
    }

    /// Opens units again whose logs go on with another text of the job, by that. Those that do not start are given as errors.
    pub fn go_on(&self) -> Vec<Error> {
        let met: Vec<Arc<Unit>> = self.list().into_iter().filter(|unit| unit.goes_on()).collect();
        let again = met.into_iter().filter_map(|unit| {
            self.stop(unit.partition)
                .and_then(|_| self.start(unit.partition, unit.is_active.load(Ordering::Relaxed)))
                .err()
        });
        again.collect()
    }

    /// Appends a message without rows to the log of a unit, so that time goes on there. It may be lost: it is asked for again as
    /// long as a task waits.
    pub(super) fn append_tick(&self, unit: &Unit) {
        let Some(post) = &self.options.post else { return };
        let head = Head {
            spec: unit.text,
            origin: Origin::Unit { stage: self.stage.place, partition: unit.partition },
            lineage: None,
            after: Mark::START,
            arrival: post.now(),
            task_time: None,
        };
        post.append(&self.topic, unit.partition, &tick(&head));
    }

    /// Looks at all gaps that the control log names between these units and those of the next stage, and does what is to be
    /// done: a unit whose rows are lost goes back to its last commit once, and stops where that does not help. What is given
    /// are units that do not start again.
    pub fn mend(&self, named: &[NamedGap]) -> Vec<Error> {
        let Some(carrier) = &self.carrier else { return Vec::new() };
        let mut mending = self.mending();
        mending.watch.keep(named);
        let mut errors = Vec::new();
        // What was noted of one that has gone back is another one's.
        let mut again = BTreeSet::new();
        for gap in named {
            let runs = |unit: &Arc<Unit>| {
                unit.is_planned.load(Ordering::Relaxed)
                    && !unit.job.state().is_final()
                    && !again.contains(&unit.partition)
            };
            let Some(unit) = self.lock().get(&gap.from).filter(|unit| runs(unit)).cloned() else { continue };
            let Some(sent) = unit.sent.sent_to(gap.to) else { continue };
            match mending.watch.look(gap, sent, || carrier.end_of(gap.to)) {
                Step::Wait => {}
                Step::GoBack => {
                    again.insert(gap.from);
                    let (unit, to) = (unit.job.name(), carrier.partition(gap.to));
                    tracing::warn!(
                        %unit,
                        %to,
                        through = %gap.through,
                        written = %sent.written,
                        commit = %sent.opened,
                        "rows were acknowledged and are not there: the unit goes back to its last commit"
                    );
                    carrier.counts.returns.fetch_add(1, Ordering::Relaxed);
                    errors.extend(self.go_back(gap.from).err());
                }
                Step::Stop => {
                    again.insert(gap.from);
                    mending.stopped.insert(gap.from);
                    unit.job.job().fail("outlet", lost_rows(&unit, carrier, gap, sent));
                }
            }
        }
        errors
    }

    /// Whether a unit was stopped for rows that it cannot make again, and is not to be started here.
    pub fn is_stopped(&self, partition: u32) -> bool {
        self.mending().stopped.contains(&partition)
    }

    fn mending(&self) -> MutexGuard<'_, Mending> {
        self.mending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a unit again from its last commit, without another one.
    fn go_back(&self, partition: u32) -> Result<(), Error> {
        let Some(unit) = self.lock().remove(&partition) else { return Ok(()) };
        unit.job.abort();
        if unit.job.wait_timeout(PATIENCE).is_none() {
            return Err(not_ended(&unit));
        }
        self.start(partition, unit.is_active.load(Ordering::Relaxed)).map(drop)
    }

    /// The units that were started and not stopped, those that have failed among them.
    pub fn list(&self) -> Vec<Arc<Unit>> {
        self.lock().values().cloned().collect()
    }

    /// The unit of a partition, if it was started and not stopped.
    pub(super) fn get(&self, partition: u32) -> Option<Arc<Unit>> {
        self.lock().get(&partition).cloned()
    }

    /// Takes a unit that has ended out of the list.
    pub(super) fn forget(&self, partition: u32) {
        self.mending().stopped.remove(&partition);
        self.lock().remove(&partition);
    }

    /// Ends a unit after a last commit; `None` if it does not run.
    ///
    /// # Errors
    /// Where it does not end; what it was is in the error.
    pub fn stop(&self, partition: u32) -> Result<Option<JobEnd>, Error> {
        self.mending().stopped.remove(&partition);
        let Some(unit) = self.lock().remove(&partition) else { return Ok(None) };
        unit.job.drain();
        match unit.job.wait_timeout(PATIENCE) {
            Some(end) => Ok(Some(end)),
            None => {
                unit.job.abort();
                Err(not_ended(&unit))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Unit>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_ended(unit: &Unit) -> Error {
    let name = unit.job.name();
    Error::external(format!(
        "unit {name:?} has not ended for {PATIENCE:?}: a call to the disk or another system does not return"
    ))
}

/// Why a unit stops whose rows are lost.
fn lost_rows(unit: &Unit, carrier: &Carrier, gap: &NamedGap, sent: SentTo) -> Error {
    let (name, to) = (unit.job.name(), carrier.partition(gap.to));
    let SentTo { opened, written } = sent;
    Error::corrupt(format!(
        "unit {name:?} cannot send rows again that were acknowledged and are lost: the unit that reads {to} has rows up to mark \
         {}, expected those up to {written}, and has read its log up to offset {}; the last commit of the sender is at position {} \
         of its own log, after mark {opened}, and it went back to that once",
        gap.through, gap.read, unit.opened
    ))
    .with_hint(
        "look how the brokers of the topic lost messages that they had acknowledged (too few copies, an unclean election); stop the \
         node, remove the folder of this unit in `units` and start it: the unit begins anew, or at a snapshot, and sends all again",
    )
}

impl Drop for Units {
    /// Ends them at once, as a crash would; their files are closed when this returns.
    fn drop(&mut self) {
        let units = std::mem::take(&mut *self.lock());
        units.values().for_each(|unit| unit.job.abort());
        for unit in units.values() {
            if unit.job.wait_timeout(PATIENCE).is_none() {
                tracing::warn!(unit = %unit.job.name(), "a unit does not end: a call to the disk does not return");
            }
        }
    }
}
