//! The cluster as this node sees it: what the control log says, who was heard of when, and figures of what runs here.
//!
//! The fold keeps no times of beats and no authors of plans, as nothing depends on them; [`Heard`] notes both while the
//! member reads. The host lists on the [`Board`] what runs here. Neither keeps anything alive or holds anybody up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use thalweg_cluster::assign::explain;
use thalweg_cluster::control::{Drain, Name, Record, Unit as UnitName};
use thalweg_cluster::fold::{MAX_MEMBERS, Member as Seen, State};
use thalweg_flow::JobState;
#[cfg(feature = "tables")]
use thalweg_types::Error;
use thalweg_types::{Micros, Offset};

use super::actor::since;
use super::answering::Post;
use super::asked::{Asked, find, not_said};
use super::door::Door;
use super::inbox::InboxCounts;
use super::member::Member;
use super::overdue::whereabouts;
use super::snapshot::SnapshotCounts;
#[cfg(feature = "tables")]
use super::tables::{Gathered, Part};
use super::units::Unit;
use crate::cluster_view::{
    Change, ClusterFigures, ClusterSnapshot, ClusterView, DoorFigures, FollowerSnapshot, GapSnapshot, KeyOf,
    MOST_UNITS, MemberSnapshot, NodeFigures, NotDone, PlacedJobSnapshot, PlanSnapshot, Present,
    ReportSnapshot, StageSnapshot, UnitFigures, UnitLabels, UnitSnapshot,
};
use crate::job_file::CheckedJob;

/// Plans whose authors are remembered: the one in force, and those after it that are void.
const PLANS: usize = 64;

/// When members were heard of, and who made which plan.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// When the last beat of each was appended.
    beats: BTreeMap<Name, Micros>,
    /// When the newest record was appended, and read here by the steady face of the node's clock.
    newest: Option<(Micros, Micros)>,
    authors: BTreeMap<Offset, Name>,
}

impl Heard {
    /// Takes note of a record; one that was read before changes nothing.
    pub(super) fn note(&mut self, offset: Offset, appended: Micros, now: Micros, record: &Record) {
        if self.newest.is_none_or(|(newest, _)| appended >= newest) {
            self.newest = Some((appended, now));
        }
        match record {
            Record::Beat(beat) => {
                let last = self.beats.entry(beat.process.name.clone()).or_insert(appended);
                *last = appended.max(*last);
                if self.beats.len() > 2 * MAX_MEMBERS {
                    let oldest = self.beats.iter().min_by_key(|(_, at)| **at);
                    let oldest = oldest.map(|(name, _)| name.clone());
                    oldest.and_then(|oldest| self.beats.remove(&oldest));
                }
            }
            Record::Plan(plan) => {
                self.authors.insert(offset, plan.process.name.clone());
                if self.authors.len() > PLANS {
                    self.authors.pop_first();
                }
            }
            _ => {}
        }
    }

    /// How long ago a node has beaten: between two appends by the brokers' clock, from then on by ours.
    pub(super) fn age(&self, name: &Name, now: Micros) -> Option<Duration> {
        let (newest, read) = self.newest?;
        let last = *self.beats.get(name)?;
        let between = Duration::from_micros(u64::try_from(newest.saturating_sub(last)).unwrap_or(0));
        Some(between + since(read, now))
    }
}

/// What runs here, as the host last said.
#[derive(Default)]
pub(super) struct Board {
    here: Mutex<Vec<Here>>,
    /// Jobs that end.
    closing: Mutex<BTreeSet<Name>>,
}

impl Board {
    pub(super) fn set(&self, here: Vec<Here>, closing: BTreeSet<Name>) {
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner) = closing;
        *self.here.lock().unwrap_or_else(PoisonError::into_inner) = here;
    }

    /// Whether something of a job runs here, if only to its end.
    pub(super) fn has(&self, job: &Name) -> bool {
        let ends = self.closing.lock().unwrap_or_else(PoisonError::into_inner).contains(job);
        ends || self.with(|board| board.iter().any(|here| here.job == *job))
    }

    /// A unit that runs here.
    pub(super) fn unit(&self, of: &UnitName) -> Option<Arc<Unit>> {
        self.with(|board| {
            let here = board.iter().find(|here| here.job == of.job && here.stage == of.stage)?;
            here.units().find(|unit| unit.partition == of.partition)
        })
    }

    /// What it has found.
    fn counts(&self, of: &UnitName) -> Option<Arc<InboxCounts>> {
        self.unit(of).map(|unit| Arc::clone(&unit.counts))
    }

    /// The text of a job by which records enter here; `None` where they do not.
    pub(super) fn number(&self, job: &Name) -> Option<u64> {
        self.with(|board| board.iter().filter(|here| here.job == *job).find_map(|here| here.number))
    }

    fn with<T>(&self, work: impl FnOnce(&[Here]) -> T) -> T {
        work(&self.here.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A stage of a job on this node, and the job's door with the first one. Weak, so that what ends here is not kept.
pub(super) struct Here {
    job: Name,
    stage: Name,
    /// The text by which records enter, where the door is.
    number: Option<u64>,
    door: Weak<Door>,
    post: Weak<Post>,
    units: Vec<Weak<Unit>>,
    /// Units that do not start here, and why.
    not_started: BTreeMap<u32, String>,
}

impl Here {
    pub(super) fn new(
        job: Name,
        stage: Name,
        number: Option<u64>,
        door: Option<(&Arc<Door>, &Arc<Post>)>,
        (units, not_started): (&[Arc<Unit>], BTreeMap<u32, String>),
    ) -> Self {
        let units = units.iter().map(Arc::downgrade).collect();
        let (door, post) = match door {
            Some((door, post)) => (Arc::downgrade(door), Arc::downgrade(post)),
            None => (Weak::new(), Weak::new()),
        };
        Self { job, stage, number, door, post, units, not_started }
    }

    fn units(&self) -> impl Iterator<Item = Arc<Unit>> {
        self.units.iter().filter_map(Weak::upgrade)
    }
}

/// Says where the units of a stage are.
pub(super) fn locator(
    member: &Arc<Member>,
    board: &Arc<Board>,
    job: &str,
    stage: &Name,
) -> impl Fn(u32) -> String + Send + Sync + 'static {
    let (member, board, stage) = (Arc::clone(member), Arc::clone(board), stage.clone());
    let job = Name::new(job);
    move |partition| {
        let Some(job) = job.clone() else { return String::new() };
        let unit = UnitName { job, stage: stage.clone(), partition };
        let state = member.state();
        let is_mine = state.active(&unit) == Some(&member.process().name);
        let here = board.counts(&unit).filter(|_| is_mine);
        whereabouts(&state, &unit, here.as_deref())
    }
}

/// [`ClusterView`] of a member.
pub(super) struct View {
    member: Arc<Member>,
    board: Arc<Board>,
    /// Of the node, where it has a store.
    snapshots: Option<Arc<SnapshotCounts>>,
    asked: Arc<Asked>,
    #[cfg(feature = "tables")]
    tables: Arc<thalweg_table::Tables>,
}

impl View {
    pub(super) fn new(
        member: Arc<Member>,
        board: Arc<Board>,
        snapshots: Option<Arc<SnapshotCounts>>,
        asked: Arc<Asked>,
        #[cfg(feature = "tables")] tables: Arc<thalweg_table::Tables>,
    ) -> Self {
        Self {
            member,
            board,
            snapshots,
            asked,
            #[cfg(feature = "tables")]
            tables,
        }
    }

    fn age(&self, name: &Name) -> Option<Duration> {
        let now = self.member.clock().read().steady;
        self.member.with_heard(|heard| heard.age(name, now))
    }

    /// Why units of this node have stopped, or do not start.
    fn failures(&self) -> HashMap<UnitName, String> {
        self.board.with(|board| {
            let name = |here: &Here, partition| {
                let (job, stage) = (here.job.clone(), here.stage.clone());
                UnitName { job, stage, partition }
            };
            let not_started = board.iter().flat_map(|here| {
                let of = here.not_started.iter();
                of.map(move |(partition, why)| (name(here, *partition), format!("does not start: {why}")))
            });
            let units = board.iter().flat_map(|here| here.units().map(move |unit| (here, unit)));
            let failed = units.filter_map(|(here, unit)| match unit.job.state() {
                JobState::Failed(failure) => Some((name(here, unit.partition), failure.for_everybody())),
                _ => None,
            });
            not_started.chain(failed).collect()
        })
    }
}

impl ClusterView for View {
    fn has_read(&self) -> bool {
        self.member.has_read()
    }

    fn doors(&self) -> Vec<(String, bool)> {
        let state = self.member.state();
        state.jobs().map(|(name, _)| (name.to_string(), self.board.number(name).is_some())).collect()
    }

    fn snapshot(&self, job: Option<&str>) -> Result<ClusterSnapshot, NotDone> {
        let state = self.member.state();
        job.map(|job| find(&state, job)).transpose()?;
        let failures = self.failures();
        let wanted = || state.units().filter(|(unit, _)| job.is_none_or(|job| unit.job.as_str() == job));
        let unit = |unit| unit_of(&state, unit, failures.get(unit).cloned());
        let units: Vec<UnitSnapshot> = wanted().take(MOST_UNITS).filter_map(|(name, _)| unit(name)).collect();
        let options = self.member.options();
        let author = |plan| self.member.with_heard(|heard| heard.authors.get(&plan).map(Name::to_string));
        let jobs = state.jobs().map(|(name, job)| PlacedJobSnapshot {
            name: name.to_string(),
            spec: job.number,
            semantics: job.semantics,
            stages: job
                .stages
                .iter()
                .map(|(name, stage)| StageSnapshot {
                    name: name.to_string(),
                    partitions: stage.partitions,
                    replicas: stage.replicas,
                })
                .collect(),
        });
        Ok(ClusterSnapshot {
            node: options.name.to_string(),
            prefix: options.prefix.clone(),
            read: state.next(),
            plan: state.plan().map(|offset| PlanSnapshot { offset, author: author(offset) }),
            unplanned: state.events().len() as u64,
            members: members(&state, |name| self.age(name)),
            jobs: jobs.collect(),
            units_left_out: (wanted().count() - units.len()) as u64,
            units,
        })
    }

    fn figures(&self) -> NodeFigures {
        let state = self.member.state();
        let me = &self.member.process().name;
        let (mut doors, mut units, mut omitted) = (Vec::new(), Vec::new(), 0);
        let now = self.member.clock().read().wall;
        self.board.with(|board| {
            for here in board {
                if let (Some(door), Some(post)) = (here.door.upgrade(), here.post.upgrade()) {
                    doors.push((here.job.to_string(), door_figures(&door, &post)));
                }
                for unit in here.units() {
                    if units.len() == MOST_UNITS {
                        omitted += 1;
                        continue;
                    }
                    let labels = UnitLabels {
                        job: here.job.to_string(),
                        stage: here.stage.to_string(),
                        partition: unit.partition.to_string(),
                    };
                    units.push((labels, unit_figures(&unit, now)));
                }
            }
        });
        let (active, followed) = shares(&state).remove(me).unwrap_or_default();
        let cluster = ClusterFigures {
            members: state.members().count() as u64,
            plan: state.plan(),
            beat_age: self.age(me),
            units_active: active,
            units_followed: followed,
            restore_bytes_left: self
                .snapshots
                .as_ref()
                .map_or(0, |counts| counts.restore_left.load(Ordering::Relaxed)),
            omitted,
        };
        NodeFigures { cluster, doors, units }
    }

    fn drain(&self, node: &str, on: bool) -> Result<MemberSnapshot, NotDone> {
        let state = self.member.state();
        let Some((name, _)) = state.members().find(|(name, _)| name.as_str() == node) else {
            return Err(no_node(&state, node));
        };
        let drains = |state: &State| state.member(name).map(|member| member.drains);
        if drains(&state) != Some(on) {
            self.member.append(Record::Drain(Drain { name: name.clone(), on }));
        }
        let said = self.asked.until(|state| {
            // Or the node has gone.
            let is_done = drains(state) != Some(!on);
            is_done.then(|| {
                let mut all = members(state, |name| self.age(name)).into_iter();
                all.find(|member| member.name == node).ok_or_else(|| no_node(state, node))
            })
        });
        said.unwrap_or_else(|| Err(not_said(&format!("that node {node:?} drains: {on}"))))
    }

    fn run(&self, job: &CheckedJob, change: Change) -> Result<bool, NotDone> {
        self.asked.run(job, change)
    }

    fn stop(&self, job: &str) -> Result<(), NotDone> {
        self.asked.stop(job)
    }

    fn change_query(&self, job: &str, operator: &str, query: &str, sql: Option<&str>) -> Result<(), NotDone> {
        self.asked.change_query(job, operator, query, sql)
    }

    fn present(
        &self,
        job: &str,
        operator: &str,
        query: &str,
        key: &[KeyOf],
        plan: Option<Offset>,
    ) -> Result<Present, NotDone> {
        self.asked.present(job, operator, query, key, plan)
    }

    #[cfg(feature = "tables")]
    fn tables_of(&self, plan: Offset, partitions: &str) -> Result<Arc<dyn thalweg_table::Catalog>, Error> {
        let part = Part::parse(plan, partitions)?;
        Ok(Arc::new(Gathered::new(Arc::clone(&self.asked), Arc::clone(&self.tables), Some(part))))
    }
}

fn no_node(state: &State, node: &str) -> NotDone {
    NotDone::NoNode {
        name: node.to_owned(),
        known: state.members().map(|(name, _)| name.to_string()).collect(),
    }
}

/// How many units each node has, and how many it follows.
fn shares(state: &State) -> HashMap<&Name, (u64, u64)> {
    let mut shares: HashMap<&Name, (u64, u64)> = HashMap::new();
    for (name, unit) in state.units() {
        if let Some(active) = state.active(name) {
            shares.entry(active).or_default().0 += 1;
        }
        // A target may be a replica, too.
        let target = unit.target.iter().filter(|target| !unit.replicas.contains(*target));
        for follower in unit.replicas.iter().chain(target) {
            shares.entry(follower).or_default().1 += 1;
        }
    }
    shares
}

fn members(state: &State, age: impl Fn(&Name) -> Option<Duration>) -> Vec<MemberSnapshot> {
    let shares = shares(state);
    let oldest = state.by_age().first().copied();
    let member = |(name, member): (&Name, &Seen)| {
        let (units_active, units_followed) = shares.get(name).copied().unwrap_or_default();
        MemberSnapshot {
            name: name.to_string(),
            host: member.host.to_string(),
            capacity: member.capacity,
            address: member.address.to_string(),
            semantics: member.semantics.iter().copied().collect(),
            plans: oldest == Some(name),
            drains: member.drains,
            beat_age: member.last_beat().and_then(|_| age(name)),
            units_active,
            units_followed,
        }
    };
    state.members().map(member).collect()
}

fn unit_of(state: &State, unit: &UnitName, failure: Option<String>) -> Option<UnitSnapshot> {
    let known = state.unit(unit)?;
    let active = state.active(unit);
    let holder = |node: &Name| known.holders.get(node);
    let target = known.target.iter().map(|node| (node, true));
    let replicas = known.replicas.iter().filter(|node| Some(*node) != known.target.as_ref());
    let followers = target.chain(replicas.map(|node| (node, false)));
    let banned = known.bans.iter().filter(|(_, until)| **until > state.log_time());
    Some(UnitSnapshot {
        job: unit.job.to_string(),
        stage: unit.stage.to_string(),
        partition: unit.partition,
        active: active.map(Name::to_string),
        since: known.since,
        why: known.why.map(|why| why.to_string()),
        from: known.from.as_ref().map(Name::to_string),
        followers: followers
            .map(|(node, takes_over)| FollowerSnapshot {
                node: node.to_string(),
                takes_over,
                position: holder(node).map(|holder| holder.position),
                ready: holder(node).is_some_and(|holder| holder.ready),
            })
            .collect(),
        report: active.and_then(holder).map(|holder| ReportSnapshot {
            rows_per_second: known.load,
            bytes: known.bytes,
            position: holder.position,
            ready: holder.ready,
        }),
        trouble: banned.map(|(node, _)| node.to_string()).collect(),
        gaps: gaps_of(state, unit),
        failure,
        explanation: explain(state, unit).map(|said| said.to_string()).unwrap_or_default(),
    })
}

fn gaps_of(state: &State, unit: &UnitName) -> Vec<GapSnapshot> {
    let gaps = state.gaps().filter(|(gap, _)| gap.unit == *unit);
    let shown = gaps.map(|(gap, _)| GapSnapshot {
        stage: gap.origin.stage.to_string(),
        partition: gap.origin.partition,
        through: gap.through.to_string(),
        read: gap.read,
    });
    shown.collect()
}

fn door_figures(door: &Door, post: &Post) -> DoorFigures {
    let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    let (counts, posted) = (&door.counts, &post.counts);
    DoorFigures {
        rows: read(&counts.rows),
        frames: read(&counts.frames),
        answers: read(&counts.answers),
        unknown: read(&counts.unknown),
        failures: read(&counts.failures),
        refusals: read(&counts.refusals),
        sent: read(&posted.sent),
        dropped: read(&posted.dropped),
    }
}

fn unit_figures(unit: &Unit, now: Micros) -> UnitFigures {
    let counts = &unit.counts;
    let stats = unit.job.stats();
    let tasks = stats.operators.iter().flat_map(|operator| &operator.tasks);
    let committed = unit.job.cycles().and_then(|cycles| cycles.committed_at);
    let (lag, lag_seconds) = lag(counts, now);
    let snapshot = unit.snapshots.as_ref().and_then(|snapshots| snapshots.newest());
    UnitFigures {
        active: unit.is_active.load(Ordering::Relaxed),
        failed: matches!(unit.job.state(), JobState::Failed(_)),
        position: counts.position.load(Ordering::Relaxed),
        lag,
        lag_seconds,
        rows: counts.rows.load(Ordering::Relaxed),
        duplicates: counts.duplicates.load(Ordering::Relaxed),
        gaps: counts.gaps.load(Ordering::Relaxed),
        open_gaps: counts.open.count() as u64,
        state_bytes: tasks.map(|task| task.state_bytes).sum(),
        commit_age: committed.map(|at| at.elapsed()),
        snapshot_position: snapshot.map(|snapshot| snapshot.position),
        snapshot_age: snapshot.map(|snapshot| snapshot.at.elapsed()),
    }
}

/// Messages that a unit has not read, and how old the last one is that it has read; `None` for what is not known yet.
pub(super) fn lag(counts: &InboxCounts, now: Micros) -> (Option<u64>, Option<Duration>) {
    if !counts.is_known.load(Ordering::Relaxed) {
        return (None, None);
    }
    let end = counts.end.load(Ordering::Relaxed);
    let lag = end.saturating_sub(counts.position.load(Ordering::Relaxed));
    let age = match (lag, counts.appended.load(Ordering::Relaxed)) {
        (0, _) => Some(Duration::ZERO),
        (_, 0) => None,
        (_, appended) => {
            Some(Duration::from_micros(u64::try_from(now.saturating_sub(appended)).unwrap_or(0)))
        }
    };
    (Some(lag), age)
}

#[cfg(test)]
mod tests {
    use thalweg_cluster::control::{Beat, Incarnation, Plan, Process};

    use super::*;

    fn process(name: &str) -> Process {
        Process { name: Name::new(name).unwrap(), incarnation: Incarnation(1) }
    }

    fn beat(name: &str) -> Record {
        let (trouble, dropped) = Default::default();
        let (reports, gaps) = Default::default();
        Record::Beat(Beat { process: process(name), read: 0, trouble, reports, dropped, gaps })
    }

    #[test]
    fn a_beat_ages_by_the_brokers_clock_and_then_by_ours() {
        let (a, b) = (Name::new("a").unwrap(), Name::new("b").unwrap());
        let mut heard = Heard::default();
        assert_eq!(heard.age(&a, 0), None);
        // A broker whose clock is an hour wrong is as good as any.
        let hour = 3_600_000_000;
        let now = 7_000_000;
        heard.note(0, hour, now, &beat("a"));
        heard.note(1, hour + 2_000_000, now, &beat("b"));
        let seconds = |age: Option<Duration>| age.unwrap().as_secs();
        assert_eq!((seconds(heard.age(&a, now)), seconds(heard.age(&b, now))), (2, 0));
        let later = now + 5_000_000;
        assert_eq!((seconds(heard.age(&a, later)), seconds(heard.age(&b, later))), (7, 5));
        // Read once more, from where the fold begins.
        heard.note(0, hour, later, &beat("a"));
        assert_eq!(seconds(heard.age(&b, later)), 5);
        heard.note(2, hour + 3_000_000, later, &beat("a"));
        assert_eq!(seconds(heard.age(&a, later)), 0);
    }

    #[test]
    fn names_and_plans_are_remembered_within_bounds() {
        let mut heard = Heard::default();
        for number in 0..3 * MAX_MEMBERS {
            heard.note(number as Offset, number as Micros, 0, &beat(&format!("n{number}")));
        }
        assert_eq!(heard.beats.len(), 2 * MAX_MEMBERS);
        assert!(heard.beats.contains_key(&Name::new(&format!("n{}", 3 * MAX_MEMBERS - 1)).unwrap()));
        for offset in 0..200 {
            let (process, units) = (process("a"), BTreeMap::new());
            heard.note(
                offset,
                0,
                0,
                &Record::Plan(Plan { process, replaces: None, read: 0, more: false, units }),
            );
        }
        assert_eq!((heard.authors.len(), heard.authors.first_key_value().unwrap().0), (PLANS, &136));
    }

    #[test]
    fn lag_is_none_before_a_broker_has_said_where_the_end_is_and_has_an_age_while_there_is_some() {
        let counts = InboxCounts::default();
        assert_eq!(lag(&counts, 9_000_000), (None, None));
        counts.is_known.store(true, Ordering::Relaxed);
        counts.end.store(7, Ordering::Relaxed);
        assert_eq!(lag(&counts, 9_000_000), (Some(7), None), "nothing was read yet");
        counts.position.store(5, Ordering::Relaxed);
        counts.appended.store(4_000_000, Ordering::Relaxed);
        assert_eq!(lag(&counts, 9_000_000), (Some(2), Some(Duration::from_secs(5))));
        assert_eq!(lag(&counts, 1), (Some(2), Some(Duration::ZERO)), "a broker's clock may be ahead");
        counts.position.store(7, Ordering::Relaxed);
        assert_eq!(lag(&counts, 9_000_000), (Some(0), Some(Duration::ZERO)));
    }
}
