//! What runs on a node of a cluster: for each job of the control log a door and the units that the plan gives to the node.
//!
//! The member only notes what the log says; an actor of its own makes it so, because opening a unit may take as long as a
//! disk or a broker takes, and the node has to beat meanwhile. What ends takes its time, and is looked at in each step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_cluster::control::{self, Gap, MAX_GAPS, MAX_REPORTS, Name, Record, Report, Unit as UnitName};
use thalweg_cluster::fold::{Job, Membership as _, Standing, State};
use thalweg_cluster::frame::Spec;
use thalweg_kafka::Bus;
use thalweg_types::{Class, Error, Micros};

use super::actor::{Actor, Bell, Next, Outside, Started, since};
use super::answering::{Post, reply_topic};
use super::asked::{Asked, check_change, find_outside, keep_partitions, spec_for, texts_of};
use super::cut::{Cut, Reads, StageCut, cut, join};
use super::door::{Door, DoorOptions, DoorPlace, DoorPlugin, Sender};
use super::failures::Failures;
use super::growing::Growing;
use super::member::{Life, Member, MemberOptions, Work, control_topic, make_topic};
use super::outlet::{Carrier, CarrierOptions, Carrying};
use super::placed::{Closing, Entry, LeavingEntry, Placed, PlacedStage, crash, place_units};
#[cfg(feature = "tables")]
use super::tables::Gathered;
use super::texts::Texts;
use super::units::{UnitOptions, Units, UnitsFolder};
use super::view::{Board, View, locator};
use crate::cluster_view::ClusterView;
use crate::job_file::CheckedJob;
use crate::node::{Node, RunningJob};

/// How often the host looks at its units when the log says nothing.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// A plan that was in force so long ago is one to start units by.
const RECENT: Duration = Duration::from_millis(1_500);

/// How often it looks at what ends.
const GLANCE: Duration = Duration::from_millis(20);

/// How long a unit or a job that did not start is left alone.
pub(super) const AGAIN: Duration = Duration::from_secs(5);

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
    let is_read = cut.stages.iter().any(|stage| stage.reads != Reads::Log);
    if let Some(source) = job.sources.iter().find(|source| !source.plugin.is_pushed() && !is_read) {
        return Err(refused(
            format!(
                "job {:?} cannot run on several nodes: source {:?} is of type {}, and names no node that reads it",
                job.name,
                source.name,
                source.plugin.name()
            ),
            "give it `node: NAME`, the name of a node; http, tcp, udp, sflow and kafka need none".to_owned(),
        ));
    }
    for sink in job.sinks.iter().filter(|sink| sink.node.is_none()) {
        sink.plugin.writes_for_units(&sink.options).map_err(|error| {
            let what = format!(
                "job {:?} cannot run on several nodes: sink {:?} {}",
                job.name,
                sink.name,
                error.message()
            );
            refused(what, error.hint().unwrap_or_default().to_owned())
        })?;
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
    actors: Vec<Started>,
    /// It may wait for brokers of others, so nobody waits for it.
    growing: (Arc<Bell>, Started),
}

/// Called with the part of each job where records enter.
pub type OnDoor = Box<dyn Fn(&Arc<RunningJob>, DoorEvent) + Send + Sync>;

/// What has become of a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorEvent {
    /// It takes records; one of the same job before it takes none any more.
    Opened,
    /// The job has ended, and there is no other one.
    Closed,
}

struct Shared {
    node: Arc<Node>,
    bus: Arc<dyn Bus>,
    member: Arc<Member>,
    options: ClusterOptions,
    on_door: OnDoor,
    board: Arc<Board>,
    asked: Arc<Asked>,
    inner: Mutex<Inner>,
    /// Of the host.
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Inner {
    /// What the log says and the host has not done yet.
    news: Option<Arc<State>>,
    /// Jobs that are to be in the log as this process has them.
    submitted: Vec<(CheckedJob, control::Spec)>,
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
        let outside = Outside { clock: Arc::clone(&node.site().clock), ids: Arc::clone(&node.site().ids) };
        let member = Member::new(Arc::clone(&bus), options.member.clone(), outside);
        let (inner, bell) = Default::default();
        let board = Arc::<Board>::default();
        let check = node.check_options().clone();
        let asked =
            Asked::new(Arc::clone(&member), Arc::clone(&bus), Arc::clone(&board), check, options.partitions);
        let asked = Arc::new(asked);
        #[cfg(feature = "tables")]
        node.show_cluster_tables(Arc::new(Gathered::new(Arc::clone(&asked), node.running_tables(), None)));
        let shared = Arc::new(Shared { node, bus, member, options, on_door, board, asked, inner, bell });
        let member = &shared.member;
        let bell = Arc::<Bell>::default();
        let growing =
            Growing::new(Arc::clone(member), shared.node.check_options().clone(), shared.options.partitions);
        let growing = shared.start("cluster:topics".to_owned(), Arc::clone(&bell), growing)?;
        let mut cluster = Self { shared: Arc::clone(&shared), actors: Vec::new(), growing: (bell, growing) };
        let life = Life::new(Arc::clone(member), Following(Arc::clone(&shared)));
        cluster.actors.push(shared.start("cluster:member".to_owned(), member.bell(), life)?);
        let host = Host::new(Arc::clone(&shared));
        cluster.actors.push(shared.start("cluster:host".to_owned(), Arc::clone(&shared.bell), host)?);
        Ok(cluster)
    }

    /// Has the cluster run a job as this process has it; where it runs another text of it, this one counts from now on.
    ///
    /// # Errors
    /// As [`cut_for`], and for a name that is none in a cluster; where a topic that the job reads or writes is not there.
    pub fn submit(&self, job: &CheckedJob) -> Result<(), Error> {
        let spec = spec_for(job, self.shared.options.partitions, 0)?;
        find_outside(job)?;
        self.shared.lock().submitted.push((job.clone(), spec));
        self.shared.bell.ring();
        Ok(())
    }

    /// What the control log says, as far as this node has read it.
    pub fn state(&self) -> Arc<State> {
        self.shared.member.state()
    }

    /// The cluster as this node sees it, for whoever shows it; does not keep the node in the cluster.
    pub fn view(&self) -> Arc<dyn ClusterView> {
        let Shared { member, board, options, asked, .. } = &*self.shared;
        let snapshots = options.units.snapshots.as_ref().map(|snapshots| Arc::clone(&snapshots.counts));
        Arc::new(View::new(
            Arc::clone(member),
            Arc::clone(board),
            snapshots,
            Arc::clone(asked),
            #[cfg(feature = "tables")]
            self.shared.node.running_tables(),
        ))
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
        self.shared.bell.ring();
        self.growing.0.ring();
        self.actors.drain(..).for_each(Started::join);
    }
}

/// The member's view of the host: it notes, and does not wait.
struct Following(Arc<Shared>);

impl Work for Following {
    fn follow(&mut self, state: &Arc<State>) {
        self.0.lock().news = Some(Arc::clone(state));
        self.0.bell.ring();
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

    fn over(&mut self, outcome: Result<(), Error>) {
        let mut inner = self.0.lock();
        inner.has_left = outcome.is_ok();
        inner.failure = outcome.err();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, name: String, bell: Arc<Bell>, actor: impl Actor + 'static) -> Result<Started, Error> {
        let site = self.node.site();
        site.actors.start(name, &site.clock, bell, actor)
    }

    /// Has the log have the jobs that this process was started with.
    fn submit(&self, state: &State) {
        if state.standing(self.member.process(), 0) != Standing::Member {
            return;
        }
        let submitted = std::mem::take(&mut self.lock().submitted);
        for (file, mut spec) in submitted {
            if let Some(job) = state.job(&spec.job) {
                if let Err(error) = keep_partitions(&mut spec, job, &file) {
                    self.lock().failure.get_or_insert(error);
                    continue;
                }
                if !job.stopped && job.text == spec.text {
                    continue;
                }
                spec.number = job.number;
                let checked = if job.stopped { Ok(()) } else { check_change(&self.texts(), job, &spec) };
                if let Err(error) = checked {
                    // Whoever started this node has to know that the cluster does something else.
                    self.lock().failure.get_or_insert(error);
                    continue;
                }
                if !job.stopped {
                    tracing::warn!(
                        job = %spec.job,
                        number = job.number,
                        "the job file of this node takes the place of the text that the cluster runs"
                    );
                }
            }
            spec.number += 1;
            self.member.append(Record::Spec(spec));
        }
    }

    /// Takes note that a job has ended here.
    fn closed(&self, name: &Name, door: Option<Arc<RunningJob>>) {
        tracing::info!(job = %name, "the job was stopped, and has ended on this node");
        if let Some(door) = door {
            let _ = self.node.remove(name.as_str());
            (self.on_door)(&door, DoorEvent::Closed);
        }
    }

    /// How this node reads texts of jobs.
    fn texts(&self) -> Arc<Texts> {
        texts_of(self.node.check_options().clone(), self.options.partitions)
    }

    /// Makes the units of a job ready to be started. It has no door yet.
    fn place(&self, spec: &Arc<Spec>, now: Micros) -> Result<Placed, Error> {
        let texts = self.texts();
        let cut = texts.cut(spec)?;
        let MemberOptions { prefix, replication, .. } = &self.options.member;
        let topic = |stage: &StageCut| stage_topic(prefix, cut.job(), &stage.name);
        for stage in cut.stages.iter().filter(|stage| stage.reads == Reads::Log) {
            let partitions = i32::try_from(stage.partitions).unwrap_or(i32::MAX);
            let largest = [("max.message.bytes", "2097152")];
            make_topic(&*self.bus, &topic(stage), partitions, *replication, &largest)?;
        }
        let clock = Arc::clone(&self.node.site().clock);
        let post = Arc::new(Post::new(Arc::clone(&self.bus), prefix.clone(), clock));
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
                name: stage.name_in_cluster()?,
                units,
                carrier,
                again: BTreeMap::new(),
                not_started: BTreeMap::new(),
                leaving: BTreeMap::new(),
                ending: BTreeMap::new(),
                ticked: BTreeMap::new(),
                failures: Failures::default(),
                loads: BTreeMap::new(),
                looked: now,
            });
        }
        for carrier in placed.stages.iter().filter_map(|stage| stage.carrier.clone()) {
            let name = format!("carrier:{}", cut.job());
            placed.carriers.push(self.start(name, carrier.bell(), Carrying::new(carrier))?);
        }
        Ok(placed)
    }

    /// Opens the door of a job by a text of it; records enter by this one from now on.
    fn enter(&self, placed: &Placed, spec: &Arc<Spec>) -> Result<Entry, Error> {
        let cut = placed.texts.cut(spec)?;
        let MemberOptions { prefix, name, .. } = &self.options.member;
        let first = cut.first();
        let place = DoorPlace {
            prefix: prefix.clone(),
            node: name.as_str().into(),
            topic: stage_topic(prefix, cut.job(), &first.name).into(),
        };
        let site = self.node.site();
        let outside = Outside { clock: Arc::clone(&site.clock), ids: Arc::clone(&site.ids) };
        let (bus, options) = (Arc::clone(&self.bus), self.options.door.clone());
        let door = Door::new(bus, place, first.clone(), Arc::clone(spec), options, outside)?;
        let replies = door.replies()?;
        let job = self.node.start_door(cut.job(), cut.door(Arc::new(DoorPlugin(Arc::clone(&door)))))?;
        door.attend(job.answers());
        placed.post.attend(&door);
        door.locate_by(locator(&self.member, &self.board, job.name(), &first.name_in_cluster()?));
        let sender = Sender::new(Arc::clone(&door), replies);
        let sender = self.start(format!("door:{}", cut.job()), door.bell(), sender)?;
        self.node.show(&job);
        (self.on_door)(&job, DoorEvent::Opened);
        Ok(Entry { number: spec.number, door, sender, job })
    }

    /// Has records of a job enter by another text of it, or for the first time; `false` where the door before it has to end
    /// first.
    fn change_door(
        &self,
        placed: &mut Placed,
        leaving: &mut Vec<LeavingEntry>,
        job: &Name,
        spec: &Arc<Spec>,
        now: Micros,
    ) -> Result<bool, Error> {
        // An address is one door's at a time.
        let listens = placed.entry.as_ref().is_some_and(Entry::listens);
        let before = placed.entry.take_if(|_| listens);
        leaving.extend(before.map(|entry| LeavingEntry::new(entry, now)));
        if leaving.iter().any(|leaving| leaving.holds_addresses(job)) {
            return Ok(false);
        }
        placed.stages.iter().try_for_each(|stage| stage.units.set_text(spec))?;
        // What has entered by the old one goes to its end: its clients wait for answers, and nobody else for them.
        let before = placed.entry.replace(self.enter(placed, spec)?);
        leaving.extend(before.map(|entry| LeavingEntry::new(entry, now)));
        Ok(true)
    }

    fn report(&self, state: &State, placed: &mut BTreeMap<Name, Placed>, now: Micros) {
        let (mut reports, mut trouble, mut gaps) = (Vec::new(), BTreeSet::new(), Vec::new());
        for (job, placed) in placed {
            placed.name_gaps(job, &mut gaps);
            for stage in &mut placed.stages {
                stage.report(state, job, now, &mut reports, &mut trouble);
                stage.let_time_go_on(now);
            }
        }
        // One that is bound to this node nobody else can have.
        trouble.retain(|unit| state.bound_to(unit).is_none());
        let mut inner = self.lock();
        (inner.reports, inner.trouble, inner.gaps) = (reports, trouble, gaps);
    }
}

/// Runs jobs on this node.
struct Host {
    shared: Arc<Shared>,
    placed: BTreeMap<Name, Placed>,
    /// Jobs that are there no more, until they have ended.
    closing: BTreeMap<Name, Closing>,
    /// Doors that another one has replaced.
    leaving: Vec<LeavingEntry>,
    state: Arc<State>,
    tried: BTreeMap<Name, Micros>,
}

impl Host {
    fn new(shared: Arc<Shared>) -> Self {
        let (placed, closing, tried) = Default::default();
        Self { shared, placed, closing, leaving: Vec::new(), state: Arc::new(State::new()), tried }
    }

    /// Ends all as a crash would.
    fn crash(&mut self) {
        std::mem::take(&mut self.leaving).into_iter().for_each(|leaving| leaving.entry.crash());
        for closing in std::mem::take(&mut self.closing).into_values() {
            closing.entry.into_iter().for_each(|leaving| leaving.entry.crash());
            crash(closing.placed);
        }
        std::mem::take(&mut self.placed).into_values().for_each(crash);
    }

    /// Starts the jobs of the log, and ends those that are there no more. One with a new text gets a new door: units hear of
    /// it from their logs, and run where no door can be opened.
    fn place_jobs(&mut self, now: Micros) {
        let Self { shared, placed, closing, leaving, state, tried } = self;
        let wanted: BTreeMap<&Name, Arc<Spec>> =
            state.jobs().map(|(name, job)| (name, spec_of(job))).collect();
        let gone: Vec<Name> = placed.keys().filter(|name| !wanted.contains_key(name)).cloned().collect();
        for name in gone {
            if let Some(placed) = placed.remove(&name) {
                closing.insert(name, Closing::new(placed, now));
            }
        }
        for (name, spec) in wanted {
            let number = spec.number;
            let entry = placed.get(name).and_then(|placed| placed.entry.as_ref());
            if entry.is_some_and(|entry| entry.number == number)
                || closing.contains_key(name)
                || tried.get(name).is_some_and(|at| since(*at, now) < AGAIN)
            {
                continue;
            }
            let is_new = entry.is_none();
            if !placed.contains_key(name) {
                match shared.place(&spec, now) {
                    Ok(running) => drop(placed.insert(name.clone(), running)),
                    Err(error) => {
                        tried.insert(name.clone(), now);
                        log(&error, name, number, "the job does not run on this node");
                        continue;
                    }
                }
            }
            let Some(placed) = placed.get_mut(name) else { continue };
            match shared.change_door(placed, leaving, name, &spec, now) {
                // In a moment.
                Ok(false) => {}
                Ok(true) if is_new => tracing::info!(job = %name, number, "the job runs on this node"),
                Ok(true) => tracing::info!(job = %name, number, "records enter by a new text of the job"),
                Err(error) => {
                    tried.insert(name.clone(), now);
                    log(&error, name, number, "records of the job do not enter on this node");
                }
            }
        }
    }
}

/// Says what fails, and is tried again.
fn log(error: &Error, job: &Name, number: u64, what: &str) {
    match error.class() {
        Class::External => tracing::warn!(%job, number, error = error.chain(), "{what} yet"),
        _ => tracing::error!(%job, number, error = error.chain(), "{what}"),
    }
}

impl Actor for Host {
    fn step(&mut self, now: Micros) -> Next {
        let shared = Arc::clone(&self.shared);
        {
            let mut inner = shared.lock();
            if inner.is_over {
                drop(inner);
                self.crash();
                return Next::Over;
            }
            if let Some(news) = inner.news.take() {
                self.state = news;
            }
        }
        // Before anything begins or ends here: what that comes to, the next step sees.
        let state = Arc::clone(&self.state);
        shared.report(&state, &mut self.placed, now);
        shared.submit(&self.state);
        self.leaving.retain_mut(|leaving| !leaving.step(now));
        self.closing.retain(|name, closing| {
            let has_ended = closing.step(now);
            if has_ended {
                shared.closed(name, closing.door.take());
            }
            !has_ended
        });
        self.place_jobs(now);
        let me = &shared.options.member.name;
        let active = self.state.active_units(me);
        let followed = self.state.followed_units(me);
        let is_recent = shared.member.is_recent(now, RECENT);
        for (job, placed) in &mut self.placed {
            placed.post.look();
            placed.post.set_nodes(self.state.members().map(|(name, _)| name.as_str()));
            placed.mend(job, &self.state);
            for stage in &mut placed.stages {
                for error in stage.units.go_on() {
                    tracing::error!(
                        error = error.chain(),
                        "a unit does not go on by another text of its job"
                    );
                }
                place_units(job, stage, (now, is_recent), &active, &followed);
            }
        }
        let here = self.placed.iter().flat_map(|(job, placed)| placed.here(job)).collect();
        shared.board.set(here, self.closing.keys().cloned().collect());
        let mut stages = self.placed.values().flat_map(|placed| &placed.stages);
        let is_any_ending = !self.leaving.is_empty()
            || !self.closing.is_empty()
            || stages.any(|stage| !stage.ending.is_empty());
        Next::Within(if is_any_ending { GLANCE } else { LOOK })
    }
}

/// The text of a job of the control log.
pub(super) fn spec_of(job: &Job) -> Arc<Spec> {
    Arc::new(Spec { number: job.number, semantics: job.semantics, job: job.text.clone() })
}
