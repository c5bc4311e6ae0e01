//! What runs on a node of a cluster: for each job of the control log a door and the units that the plan gives to the node.
//!
//! The member's thread only notes what the log says; a thread of the host's own makes it so, because opening a unit may take
//! as long as a disk or a broker takes, and the node has to beat meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thalweg_cluster::control::{
    self, Gap, MAX_GAPS, MAX_REPORTS, Name, Record, Report, Stage, Unit as UnitName,
};
use thalweg_cluster::fold::{Job, Membership as _, Standing, State};
use thalweg_cluster::frame::Spec;
use thalweg_kafka::Bus;
use thalweg_types::{Class, Error, SEMANTICS};

use super::answering::{Post, reply_topic};
use super::cut::{Cut, StageCut, cut, join};
use super::door::{Door, DoorOptions, DoorPlugin};
use super::member::{Member, MemberOptions, Work, control_topic, make_topic};
use super::mend::NamedGap;
use super::outlet::{Carrier, CarrierOptions};
use super::texts::{self, Texts};
use super::units::{UnitOptions, Units, UnitsFolder};
use super::view::{Board, Here, View, locator};
use crate::cluster_view::ClusterView;
use crate::job_file::{CheckedJob, JobFile};
use crate::node::{Node, RunningJob};

/// How often the host looks at its units when the log says nothing.
const LOOK: Duration = Duration::from_millis(500);

/// How often a door that ends is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// How long a unit or a job that did not start is left alone.
const AGAIN: Duration = Duration::from_secs(5);

/// How long a unit goes on that the plan gives to another node. Both answer meanwhile, with the same bits; a unit that
/// ended sooner could leave records unanswered that the other one had passed before it heard of the plan.
const GRACE: Duration = Duration::from_secs(2);

/// Partitions of a stage whose job file does not say.
const PARTITIONS: u32 = 64;

/// How a node takes part in a cluster.
#[derive(Clone)]
pub struct ClusterOptions {
    pub member: MemberOptions,
    /// Partitions of a stage whose job file does not say; a power of two.
    pub partitions: Option<u32>,
    pub units: UnitOptions,
    pub door: DoorOptions,
    pub carrier: CarrierOptions,
}

/// The topic that a stage reads.
pub fn stage_topic(prefix: &str, job: &str, stage: &str) -> String {
    format!("{prefix}.{job}.{stage}")
}

/// Cuts a job for a cluster: with as many partitions as its file says, else as the cluster's address says, else 64.
///
/// # Errors
/// All that is refused, in one error of class user.
pub fn cut_for(job: &CheckedJob, partitions: Option<u32>) -> Result<Cut, Error> {
    let refused = |what: String, hint: String| Error::user(what).with_hint(hint);
    let mut cut = cut(job).map_err(|refusals| {
        let all: Vec<String> = refusals.iter().map(|refusal| refusal.what.clone()).collect();
        let hint = refusals.first().map(|refusal| refusal.hint.clone()).unwrap_or_default();
        refused(format!("job {:?} cannot run on several nodes: {}", job.name, all.join("; ")), hint)
    })?;
    if let Some(source) = job.sources.iter().find(|source| !source.plugin.is_door()) {
        return Err(refused(
            format!(
                "job {:?} cannot run on several nodes: source {:?} is of type {}, and only http works there so far",
                job.name,
                source.name,
                source.plugin.name()
            ),
            "run it on one node, without --cluster".to_owned(),
        ));
    }
    if let Some(sink) = job.sinks.iter().find(|sink| sink.plugin.name() != "null") {
        return Err(refused(
            format!(
                "job {:?} cannot run on several nodes: sink {:?} is of type {}, and units have answers alone so far",
                job.name,
                sink.name,
                sink.plugin.name()
            ),
            "let clients take the answers as replies, or run it on one node, without --cluster".to_owned(),
        ));
    }
    for stage in cut.stages.iter_mut().filter(|stage| !stage.keys.iter().all(Vec::is_empty)) {
        let says = !job.json["operators"][&*stage.operator]["partitions"].is_null();
        if !says {
            stage.partitions = partitions.unwrap_or(PARTITIONS);
        }
        if !stage.partitions.is_power_of_two() || stage.partitions > control::MAX_PARTITIONS {
            return Err(refused(
                format!(
                    "operator {:?} of job {:?} has {} partitions, expected a power of two up to {}",
                    stage.operator,
                    job.name,
                    stage.partitions,
                    control::MAX_PARTITIONS
                ),
                "then doubling them splits each in two".to_owned(),
            ));
        }
    }
    join(&mut cut.stages);
    Ok(cut)
}

/// A node in a cluster.
pub struct Cluster {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Called with the part of each job where records enter, once it runs here.
pub type OnDoor = Box<dyn Fn(&Arc<RunningJob>) + Send + Sync>;

struct Shared {
    node: Arc<Node>,
    bus: Arc<dyn Bus>,
    member: Arc<Member>,
    options: ClusterOptions,
    on_door: OnDoor,
    board: Arc<Board>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// What the log says and the host has not done yet.
    news: Option<Arc<State>>,
    /// Jobs that are to be in the log as this process has them.
    submitted: Vec<control::Spec>,
    /// How the units here are.
    reports: Vec<Report>,
    trouble: BTreeSet<UnitName>,
    /// Rows that active units here wait for.
    gaps: Vec<Gap>,
    /// Where the next beat's reports begin.
    turn: usize,
    is_over: bool,
    /// Why the node has to stop.
    failure: Option<Error>,
    has_left: bool,
}

/// A job of the log on this node.
struct Placed {
    texts: Arc<Texts>,
    /// In the order in which rows go through them.
    stages: Vec<PlacedStage>,
    post: Arc<Post>,
    /// Send the rows of those stages that have a next one.
    carriers: Vec<JoinHandle<()>>,
    /// Where records enter, by the newest text of the job that could be opened; `None` while the job is being placed.
    entry: Option<Entry>,
}

/// Where the records of a job enter, by one of its texts.
struct Entry {
    number: u64,
    door: Arc<Door>,
    /// Sends, and brings answers.
    thread: JoinHandle<()>,
    job: Arc<RunningJob>,
}

/// A stage of such a job.
struct PlacedStage {
    name: Name,
    units: Units,
    carrier: Option<Arc<Carrier>>,
    /// When a unit that did not start is tried again.
    again: BTreeMap<u32, Instant>,
    /// Units that can go on from nothing that is here or in the store.
    lost: BTreeSet<u32>,
    /// Units that the plan has given to another node, and since when.
    leaving: BTreeMap<u32, Instant>,
    /// Rows of each unit at the last look.
    rows: BTreeMap<u32, u64>,
    looked: Instant,
}

impl Placed {
    /// What of it runs here: stage by stage, the first one with the door.
    fn here(&self, job: &Name) -> impl Iterator<Item = Here> {
        self.stages.iter().enumerate().map(|(place, stage)| {
            let door = self.entry.as_ref().filter(|_| place == 0).map(|entry| (&entry.door, &self.post));
            Here::new(job.clone(), stage.name.clone(), door, &stage.units.list())
        })
    }

    /// Has units that send go back, or stop, whose rows those of the next stage have not got.
    fn mend(&self, job: &Name, state: &State) {
        for stages in self.stages.windows(2) {
            let [stage, next] = stages else { continue };
            let is_between = |gap: &Gap| {
                (&gap.origin.job, &gap.origin.stage) == (job, &stage.name)
                    && (&gap.unit.job, &gap.unit.stage) == (job, &next.name)
            };
            let named = state.gaps().filter(|(gap, _)| is_between(gap)).map(|(gap, beat)| NamedGap {
                from: gap.origin.partition,
                to: gap.unit.partition,
                through: gap.through,
                read: gap.read,
                beat,
            });
            for error in stage.units.mend(&named.collect::<Vec<NamedGap>>()) {
                tracing::error!(error = error.chain(), "a unit does not go on from its last commit");
            }
        }
    }

    /// Names the rows that units here wait for.
    fn name_gaps(&self, job: &Name, gaps: &mut Vec<Gap>) {
        for stage in &self.stages {
            let unit = |stage: &PlacedStage, partition| UnitName {
                job: job.clone(),
                stage: stage.name.clone(),
                partition,
            };
            for receiver in stage.units.list() {
                let runs = !receiver.job.state().is_final() && receiver.is_planned.load(Ordering::Relaxed);
                for gap in receiver.counts.open.list().into_iter().filter(|_| runs) {
                    let Some(sender) = self.stages.get(gap.stage as usize) else { continue };
                    gaps.push(Gap {
                        unit: unit(stage, receiver.partition),
                        origin: unit(sender, gap.partition),
                        through: gap.through,
                        read: gap.read,
                    });
                }
            }
        }
    }
}

impl Cluster {
    /// Takes part in the cluster of `bus`, whose topics are made where they are missing.
    ///
    /// # Errors
    /// A wrong setting, a lack of threads, brokers that do not answer.
    pub fn join(
        node: Arc<Node>,
        bus: Arc<dyn Bus>,
        options: ClusterOptions,
        on_door: OnDoor,
    ) -> Result<Self, Error> {
        let MemberOptions { prefix, name, replication, .. } = &options.member;
        let replication = *replication;
        let largest = (control::MAX_RECORD_BYTES + 4_096).to_string();
        make_topic(&*bus, &control_topic(prefix), 1, replication, &[("max.message.bytes", &largest)])?;
        let hour = [("retention.ms", "3600000")];
        make_topic(&*bus, &reply_topic(prefix, name.as_str()), 1, replication, &hour)?;
        let member = Member::new(Arc::clone(&bus), options.member.clone());
        let inner = Mutex::default();
        let changed = Condvar::new();
        let board = Arc::default();
        let shared = Arc::new(Shared { node, bus, member, options, on_door, board, inner, changed });
        let mut cluster = Self { shared, threads: Vec::new() };
        let (member, host) = (Arc::clone(&cluster.shared), Arc::clone(&cluster.shared));
        cluster.spawn("cluster:member", move || {
            let outcome = member.member.run(&mut Following(Arc::clone(&member)));
            let mut inner = member.lock();
            inner.has_left = outcome.is_ok();
            inner.failure = outcome.err();
            member.changed.notify_all();
        })?;
        cluster.spawn("cluster:host", move || host.run())?;
        Ok(cluster)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        self.threads.push(spawn(name.to_owned(), run)?);
        Ok(())
    }

    /// Has the cluster run a job as this process has it; where it runs another text of it, this one counts from now on.
    ///
    /// # Errors
    /// As [`cut_for`], and for a name that is none in a cluster.
    pub fn submit(&self, job: &CheckedJob) -> Result<(), Error> {
        let cut = cut_for(job, self.shared.options.partitions)?;
        let name = |text: &str| {
            Name::new(text).ok_or_else(|| {
                Error::user(format!("{text:?} is no name in a cluster"))
                    .with_hint("take letters, digits, _ and -, at most 64 of them")
            })
        };
        let stages = cut
            .stages
            .iter()
            .map(|stage| Ok((name(&stage.name)?, Stage { partitions: stage.partitions, replicas: 0 })));
        let spec = control::Spec {
            job: name(&job.name)?,
            number: 0,
            semantics: SEMANTICS,
            stages: stages.collect::<Result<_, Error>>()?,
            text: job.json.to_string(),
        };
        self.shared.lock().submitted.push(spec);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// What the control log says, as far as this node has read it.
    pub fn state(&self) -> Arc<State> {
        self.shared.member.state()
    }

    /// The cluster as this node sees it, for whoever shows it; does not keep the node in the cluster.
    pub fn view(&self) -> Arc<dyn ClusterView> {
        let Shared { member, board, options, .. } = &*self.shared;
        let snapshots = options.units.snapshots.as_ref().map(|snapshots| Arc::clone(&snapshots.counts));
        Arc::new(View::new(Arc::clone(member), Arc::clone(board), snapshots))
    }

    pub fn name(&self) -> &Name {
        &self.shared.options.member.name
    }

    /// Why the node has to stop, if it has to.
    pub fn failure(&self) -> Option<Error> {
        self.shared.lock().failure.take()
    }

    /// Whether the node has left in order.
    pub fn has_left(&self) -> bool {
        self.shared.lock().has_left
    }

    /// Hands over all units, and then leaves: [`Cluster::has_left`].
    pub fn leave(&self) {
        self.shared.member.leave();
    }
}

impl Drop for Cluster {
    /// Ends all that runs here, as a crash would.
    fn drop(&mut self) {
        self.shared.member.end();
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The member's view of the host: it notes, and does not wait.
struct Following(Arc<Shared>);

impl Work for Following {
    fn follow(&mut self, state: &Arc<State>) {
        self.0.lock().news = Some(Arc::clone(state));
        self.0.changed.notify_all();
    }

    fn reports(&mut self) -> Vec<Report> {
        let mut inner = self.0.lock();
        let count = inner.reports.len();
        let first = if inner.turn < count { inner.turn } else { 0 };
        let last = count.min(first + MAX_REPORTS);
        inner.turn = if last == count { 0 } else { last };
        inner.reports[first..last].to_vec()
    }

    fn gaps(&mut self) -> Vec<Gap> {
        self.0.lock().gaps.iter().take(MAX_GAPS).cloned().collect()
    }

    fn trouble(&mut self) -> BTreeSet<UnitName> {
        self.0.lock().trouble.iter().take(control::MAX_TROUBLE).cloned().collect()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of the host's thread.
    fn run(&self) {
        let mut placed: BTreeMap<Name, Placed> = BTreeMap::new();
        let mut state = Arc::new(State::new());
        let mut tried: BTreeMap<Name, Instant> = BTreeMap::new();
        loop {
            {
                let inner = self.lock();
                let waits = |inner: &mut Inner| inner.news.is_none() && !inner.is_over;
                let waited = self.changed.wait_timeout_while(inner, LOOK, waits);
                let mut inner = waited.unwrap_or_else(PoisonError::into_inner).0;
                if inner.is_over {
                    break;
                }
                state = inner.news.take().unwrap_or(state);
            }
            self.submit(&state);
            self.place_jobs(&state, &mut placed, &mut tried);
            let me = &self.options.member.name;
            let active = state.active_units(me);
            let followed = state.followed_units(me);
            for (job, placed) in &mut placed {
                placed.post.look();
                placed.post.set_nodes(state.members().map(|(name, _)| name.as_str()));
                placed.mend(job, &state);
                for stage in &mut placed.stages {
                    for error in stage.units.go_on() {
                        tracing::error!(
                            error = error.chain(),
                            "a unit does not go on by another text of its job"
                        );
                    }
                    place_units(job, stage, &active, &followed);
                }
            }
            self.report(&mut placed);
            self.board.set(placed.iter().flat_map(|(job, placed)| placed.here(job)).collect());
        }
        for (_, placed) in placed {
            end(placed, true);
        }
    }

    /// Has the log have the jobs that this process was started with.
    fn submit(&self, state: &State) {
        if state.standing(self.member.process(), 0) != Standing::Member {
            return;
        }
        let submitted = std::mem::take(&mut self.lock().submitted);
        for mut spec in submitted {
            if let Some((_, job)) = state.jobs().find(|(name, _)| **name == spec.job) {
                if job.text == spec.text {
                    continue;
                }
                spec.number = job.number;
                if let Err(error) = self.check_change(&spec_of(job), &spec) {
                    // Whoever started this node has to know that the cluster does something else.
                    self.lock().failure.get_or_insert(error);
                    continue;
                }
            }
            spec.number += 1;
            self.member.append(Record::Spec(spec));
        }
    }

    /// Whether units of a job that runs may go on by another text.
    fn check_change(&self, before: &Arc<Spec>, now: &control::Spec) -> Result<(), Error> {
        let texts = self.texts();
        let after = Spec { number: before.number + 1, semantics: now.semantics, job: now.text.clone() };
        texts::check_change(&*texts.cut(before)?, &*texts.cut(&Arc::new(after))?)
    }

    /// How this node reads texts of jobs.
    fn texts(&self) -> Arc<Texts> {
        let (options, partitions) = (self.node.check_options().clone(), self.options.partitions);
        Texts::new(move |text| {
            let job = JobFile::parse("the control log", text, &[]).and_then(|file| file.check(&options));
            let job = job.map_err(|mistakes| Error::user(mistakes.to_string()))?;
            cut_for(&job, partitions)
        })
    }

    /// Starts the jobs of the log, and ends those that are there no more. One with a new text gets a new door: units hear of
    /// it from their logs.
    fn place_jobs(
        &self,
        state: &State,
        placed: &mut BTreeMap<Name, Placed>,
        tried: &mut BTreeMap<Name, Instant>,
    ) {
        let wanted: BTreeMap<&Name, Arc<Spec>> =
            state.jobs().map(|(name, job)| (name, spec_of(job))).collect();
        let gone: Vec<Name> = placed.keys().filter(|name| !wanted.contains_key(name)).cloned().collect();
        for name in gone {
            if let Some(placed) = placed.remove(&name) {
                end(placed, false);
            }
        }
        for (name, spec) in wanted {
            let number = spec.number;
            let entry = placed.get(name).and_then(|placed| placed.entry.as_ref());
            if entry.is_some_and(|entry| entry.number == number)
                || tried.get(name).is_some_and(|at| at.elapsed() < AGAIN)
            {
                continue;
            }
            let is_new = entry.is_none();
            let outcome = match placed.get_mut(name) {
                Some(placed) => self.enter(placed, &spec),
                None => self.place(&spec).map(|running| {
                    placed.insert(name.clone(), running);
                }),
            };
            match outcome {
                Ok(()) if is_new => tracing::info!(job = %name, number, "the job runs on this node"),
                Ok(()) => tracing::info!(job = %name, number, "records enter by a new text of the job"),
                Err(error) if error.class() == Class::External => {
                    tried.insert(name.clone(), Instant::now());
                    tracing::warn!(job = %name, number, error = error.chain(), "the job does not run on this node yet");
                }
                Err(error) => {
                    tried.insert(name.clone(), Instant::now());
                    tracing::error!(job = %name, number, error = error.chain(), "the job does not run on this node");
                }
            }
        }
    }

    /// Makes the units of a job ready to be started, and starts its door.
    fn place(&self, spec: &Arc<Spec>) -> Result<Placed, Error> {
        let texts = self.texts();
        let cut = texts.cut(spec)?;
        let MemberOptions { prefix, replication, .. } = &self.options.member;
        let topic = |stage: &StageCut| stage_topic(prefix, cut.job(), &stage.name);
        for stage in &cut.stages {
            let partitions = i32::try_from(stage.partitions).unwrap_or(i32::MAX);
            let largest = [("max.message.bytes", "2097152")];
            make_topic(&*self.bus, &topic(stage), partitions, *replication, &largest)?;
        }
        let post = Arc::new(Post::new(Arc::clone(&self.bus), prefix.clone()));
        let folder =
            UnitsFolder::open(Arc::clone(&self.node), cut.job(), Arc::clone(&texts), Arc::clone(spec))?;
        let mut placed = Placed {
            texts: Arc::clone(&texts),
            stages: Vec::with_capacity(cut.stages.len()),
            post: Arc::clone(&post),
            carriers: Vec::new(),
            entry: None,
        };
        for (place, stage) in cut.stages.iter().enumerate() {
            let carrier = cut
                .stages
                .get(place + 1)
                .map(|next| Carrier::new(Arc::clone(&self.bus), topic(next), self.options.carrier.clone()));
            let units = Units::open(
                Arc::clone(&folder),
                place,
                Arc::clone(&self.bus),
                topic(stage),
                carrier.clone(),
                UnitOptions { post: Some(Arc::clone(&post)), ..self.options.units.clone() },
            )?;
            placed.stages.push(PlacedStage {
                name: Name::new(&stage.name)
                    .ok_or_else(|| Error::user(format!("{:?} is no name in a cluster", stage.name)))?,
                units,
                carrier,
                again: BTreeMap::new(),
                lost: BTreeSet::new(),
                leaving: BTreeMap::new(),
                rows: BTreeMap::new(),
                looked: Instant::now(),
            });
        }
        self.enter(&mut placed, spec)?;
        for carrier in placed.stages.iter().filter_map(|stage| stage.carrier.clone()) {
            placed.carriers.push(spawn(format!("carrier:{}", cut.job()), move || carrier.run())?);
        }
        Ok(placed)
    }

    /// Opens the door of a job by a text of it, in the place of the one that it has.
    fn enter(&self, placed: &mut Placed, spec: &Arc<Spec>) -> Result<(), Error> {
        let cut = placed.texts.cut(spec)?;
        let MemberOptions { prefix, name, .. } = &self.options.member;
        let first = &cut.stages[0];
        let door = Door::new(
            Arc::clone(&self.bus),
            prefix.clone(),
            name.as_str(),
            stage_topic(prefix, cut.job(), &first.name),
            first.clone(),
            Arc::clone(spec),
            self.options.door.clone(),
        )?;
        let replies = door.replies()?;
        let job = self.node.start_door(cut.job(), cut.door(Arc::new(DoorPlugin(Arc::clone(&door)))))?;
        door.attend(job.answers());
        door.locate_by(locator(&self.member, &self.board, job.name(), &placed.stages[0].name));
        let sending = Arc::clone(&door);
        let thread = spawn(format!("door:{}", cut.job()), move || sending.run(replies))?;
        self.node.show(&job);
        (self.on_door)(&job);
        // Records enter by the new one from now on; what has entered by the old one goes to its end.
        let before = placed.entry.replace(Entry { number: spec.number, door, thread, job });
        if let Some(before) = before {
            // Its clients wait for answers, and nobody else for them.
            spawn(format!("door:{}", cut.job()), move || before.end(false))?;
        }
        Ok(())
    }

    fn report(&self, placed: &mut BTreeMap<Name, Placed>) {
        let (mut reports, mut trouble, mut gaps) = (Vec::new(), BTreeSet::new(), Vec::new());
        for (job, placed) in placed {
            placed.name_gaps(job, &mut gaps);
            for stage in &mut placed.stages {
                stage.report(job, &mut reports, &mut trouble);
            }
        }
        let mut inner = self.lock();
        (inner.reports, inner.trouble, inner.gaps) = (reports, trouble, gaps);
    }
}

impl PlacedStage {
    fn report(&mut self, job: &Name, reports: &mut Vec<Report>, trouble: &mut BTreeSet<UnitName>) {
        let passed = self.looked.elapsed().as_secs_f64().max(0.001);
        self.looked = Instant::now();
        let name = |partition| UnitName { job: job.clone(), stage: self.name.clone(), partition };
        trouble.extend(self.lost.iter().map(|partition| name(*partition)));
        for unit in self.units.list() {
            let name = name(unit.partition);
            // One that has only met another text is opened again at once.
            if unit.job.state().is_final() {
                if !self.units.is_restoring(unit.partition) && !unit.goes_on() {
                    trouble.insert(name);
                }
                continue;
            }
            let counts = &unit.counts;
            let rows = counts.rows.load(Ordering::Relaxed);
            let before = self.rows.insert(unit.partition, rows).unwrap_or(rows);
            let position = counts.position.load(Ordering::Relaxed);
            let end = counts.end.load(Ordering::Relaxed);
            let operators = unit.job.stats().operators;
            reports.push(Report {
                unit: name,
                load: (rows.saturating_sub(before) as f64 / passed) as u64,
                bytes: operators.iter().flat_map(|of| &of.tasks).map(|task| task.state_bytes).sum(),
                position,
                ready: counts.is_known.load(Ordering::Relaxed) && position >= end,
            });
        }
    }
}

/// Starts and ends units as the plan says.
fn place_units(
    job: &Name,
    placed: &mut PlacedStage,
    active: &BTreeSet<UnitName>,
    followed: &BTreeSet<UnitName>,
) {
    let of_job = |unit: &&UnitName| unit.job == *job && unit.stage == placed.name;
    let wanted: BTreeMap<u32, bool> = followed
        .iter()
        .filter(of_job)
        .map(|unit| (unit.partition, false))
        .chain(active.iter().filter(of_job).map(|unit| (unit.partition, true)))
        .collect();
    for unit in placed.units.list() {
        let Some(is_active) = wanted.get(&unit.partition) else {
            unit.is_planned.store(false, Ordering::Relaxed);
            let since = *placed.leaving.entry(unit.partition).or_insert_with(Instant::now);
            if since.elapsed() >= GRACE || unit.job.state().is_final() {
                placed.leaving.remove(&unit.partition);
                // It may be given back at once.
                placed.again.remove(&unit.partition);
                if let Err(error) = placed.units.stop(unit.partition) {
                    tracing::warn!(error = error.chain(), "a unit that goes elsewhere");
                }
            }
            continue;
        };
        placed.leaving.remove(&unit.partition);
        unit.is_active.store(*is_active, Ordering::Relaxed);
        unit.is_planned.store(*is_active, Ordering::Relaxed);
    }
    placed.lost.retain(|partition| wanted.contains_key(partition));
    for (partition, is_active) in wanted {
        let runs = placed
            .units
            .list()
            .iter()
            .any(|unit| unit.partition == partition && !unit.job.state().is_final());
        // It would lose more of its rows.
        if placed.units.is_stopped(partition) {
            continue;
        }
        if runs || placed.again.get(&partition).is_some_and(|at| *at > Instant::now()) {
            continue;
        }
        let started = match placed.units.is_ready(partition) {
            Ok(false) => continue,
            Ok(true) => placed.units.start(partition, is_active).map(drop),
            Err(error) => Err(error),
        };
        match started {
            Ok(()) => {
                placed.lost.remove(&partition);
            }
            Err(error) => {
                tracing::error!(error = error.chain(), "a unit does not start here");
                if placed.units.has_store() {
                    placed.lost.insert(partition);
                }
            }
        }
        // One that fails at once is not started in a spin.
        placed.again.insert(partition, Instant::now() + AGAIN);
    }
}

/// Ends a job on this node: at once, or after what is in flight. Stages end in the order in which rows go through them, and
/// what sends their rows after all of them.
fn end(placed: Placed, is_crash: bool) {
    let Placed { stages, carriers, entry, .. } = placed;
    if let Some(entry) = entry {
        entry.end(is_crash);
    }
    if !is_crash {
        for (stage, unit) in
            stages.iter().flat_map(|stage| stage.units.list().into_iter().map(move |unit| (stage, unit)))
        {
            if let Err(error) = stage.units.stop(unit.partition) {
                tracing::warn!(error = error.chain(), "a unit of a job that ends");
            }
        }
    }
    // Those that run still are over before what carries their rows is, and do not fail for it.
    for unit in stages.iter().flat_map(|stage| stage.units.list()) {
        unit.job.abort();
    }
    stages.iter().filter_map(|stage| stage.carrier.as_ref()).for_each(|carrier| carrier.end());
    for thread in carriers {
        let _ = thread.join();
    }
    drop(stages);
}

impl Entry {
    /// Ends it at once, or after all that waits for something of it.
    fn end(self, is_crash: bool) {
        let Self { door, thread, job, .. } = self;
        if is_crash {
            job.abort();
        } else {
            job.drain();
        }
        let _ = job.wait_timeout(AGAIN);
        // The door gives up those that wait for longer.
        let start = Instant::now();
        while !is_crash && door.is_waited_for() && start.elapsed() < door.patience() + LOOK {
            std::thread::sleep(GLANCE);
        }
        door.end();
        let _ = thread.join();
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let spawned = std::thread::Builder::new().name(name).spawn(run);
    spawned.map_err(|error| Error::external("start a thread").with_source(error))
}

/// The text of a job of the control log.
fn spec_of(job: &Job) -> Arc<Spec> {
    Arc::new(Spec { number: job.number, semantics: job.semantics, job: job.text.clone() })
}
