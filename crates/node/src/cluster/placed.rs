//! The jobs that run on a node: their units, which start and end as the plan says, and what of them is at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thalweg_cluster::control::{Gap, Name, Report, Unit as UnitName};
use thalweg_cluster::fold::State;
use thalweg_types::{Class, Micros};

use super::actor::{Started, micros, since};
use super::answering::Post;
use super::door::Door;
use super::failures::Failures;
use super::host::{AGAIN, LOOK};
use super::load::Load;
use super::mend::NamedGap;
use super::outlet::Carrier;
use super::texts::Texts;
use super::units::{Unit, Units};
use super::view::Here;
use crate::node::RunningJob;

/// How long a unit goes on that the plan gives to another node. Both answer meanwhile, with the same bits; a unit that
/// ended sooner could leave records unanswered that the other one had passed before it heard of the plan.
const GRACE: Duration = Duration::from_secs(2);

/// How often time is said to go on in the log of a unit that waits for it (cluster rules, 8).
const TICK: Duration = Duration::from_secs(1);

/// How long a unit may take to end before it is ended at once.
const PATIENCE: Duration = Duration::from_secs(30);

/// A job of the log on this node.
pub(super) struct Placed {
    pub(super) texts: Arc<Texts>,
    /// In the order in which rows go through them.
    pub(super) stages: Vec<PlacedStage>,
    pub(super) post: Arc<Post>,
    /// Send the rows of those stages that have a next one.
    pub(super) carriers: Vec<Started>,
    /// Where records enter, by the newest text of the job that could be opened; `None` while the job is being placed.
    pub(super) entry: Option<Entry>,
}

/// Where the records of a job enter, by one of its texts.
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) door: Arc<Door>,
    /// Sends, and brings answers.
    pub(super) sender: Started,
    pub(super) job: Arc<RunningJob>,
}

/// A stage of such a job.
pub(super) struct PlacedStage {
    pub(super) name: Name,
    pub(super) units: Units,
    pub(super) carrier: Option<Arc<Carrier>>,
    /// When a unit that did not start is tried again.
    pub(super) again: BTreeMap<u32, Micros>,
    /// Units that did not start, and why.
    pub(super) not_started: BTreeMap<u32, String>,
    /// Units that the plan has given to another node, and since when.
    pub(super) leaving: BTreeMap<u32, Micros>,
    /// Units that were told to end, and since when.
    pub(super) ending: BTreeMap<u32, Micros>,
    /// When time was last said to go on in the logs of units that wait for it.
    pub(super) ticked: BTreeMap<u32, Micros>,
    /// Units that have failed.
    pub(super) failures: Failures<Unit>,
    /// How much work each unit is.
    pub(super) loads: BTreeMap<u32, Load>,
    pub(super) looked: Micros,
}

impl Placed {
    /// What of it runs here: stage by stage, the first one with the door.
    pub(super) fn here(&self, job: &Name) -> impl Iterator<Item = Here> {
        self.stages.iter().enumerate().map(|(place, stage)| {
            let entry = self.entry.as_ref().filter(|_| place == 0);
            let number = entry.map(|entry| entry.number);
            let door = entry.map(|entry| (&entry.door, &self.post));
            let not_started = stage.not_started.clone();
            Here::new(job.clone(), stage.name.clone(), number, door, (&stage.units.list(), not_started))
        })
    }

    /// Has units that send go back, or stop, whose rows those of the next stage have not got.
    pub(super) fn mend(&self, job: &Name, state: &State) {
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
    pub(super) fn name_gaps(&self, job: &Name, gaps: &mut Vec<Gap>) {
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

impl PlacedStage {
    pub(super) fn report(
        &mut self,
        state: &State,
        job: &Name,
        now: Micros,
        reports: &mut Vec<Report>,
        trouble: &mut BTreeSet<UnitName>,
    ) {
        let passed = since(std::mem::replace(&mut self.looked, now), now);
        let name = |partition| UnitName { job: job.clone(), stage: self.name.clone(), partition };
        // Another node may have more than is here, or in the store.
        let lost = self.not_started.keys().filter(|_| self.units.has_store());
        trouble.extend(lost.map(|partition| name(*partition)));
        let units = self.units.list();
        self.failures.forget(now);
        self.loads.retain(|partition, _| units.iter().any(|unit| unit.partition == *partition));
        for unit in units {
            let name = name(unit.partition);
            if unit.job.state().is_final() && !unit.is_done() {
                // One that has only met another text is opened again at once, and one that goes elsewhere was told to end.
                let partition = unit.partition;
                let is_told = self.leaving.contains_key(&partition) || self.ending.contains_key(&partition);
                let has_failed = !is_told && !self.units.is_restoring(partition) && !unit.goes_on();
                if has_failed && self.failures.note(partition, &unit, now) {
                    trouble.insert(name);
                }
                self.loads.remove(&unit.partition);
                continue;
            }
            let stats = unit.job.stats();
            unit.show_sources(&stats, now);
            let counts = &unit.counts;
            let rows = counts.rows.load(Ordering::Relaxed);
            let appended = counts.appended.load(Ordering::Relaxed);
            let position = counts.position.load(Ordering::Relaxed);
            let known = || state.unit(&name).map_or(0, |known| known.load);
            let load = self.loads.entry(unit.partition).or_insert_with(|| Load::new(known(), rows, appended));
            let load = load.look(rows, appended, passed, unit.is_at_end());
            reports.push(Report {
                unit: name,
                load,
                bytes: stats.operators.iter().flat_map(|of| &of.tasks).map(|task| task.state_bytes).sum(),
                position,
                ready: unit.is_ready(),
            });
        }
    }
}

impl PlacedStage {
    /// Has time go on in the logs of units here that wait for it.
    pub(super) fn let_time_go_on(&mut self, now: Micros) {
        for unit in self.units.list() {
            let is_due = self.ticked.get(&unit.partition).is_none_or(|last| since(*last, now) >= TICK);
            if is_due && !unit.job.state().is_final() && unit.waits_for_tick() {
                self.units.append_tick(&unit);
                self.ticked.insert(unit.partition, now);
            }
        }
    }

    /// Has a unit end after what is in flight, if it was not told to.
    fn let_end(&mut self, unit: &Unit, now: Micros) {
        self.ending.entry(unit.partition).or_insert_with(|| {
            unit.job.drain();
            now
        });
    }
}

/// Has a unit that goes elsewhere end, and forgets those that have.
fn end_units(placed: &mut PlacedStage, now: Micros) {
    for (partition, began) in placed.ending.clone() {
        let Some(unit) = placed.units.get(partition) else {
            placed.ending.remove(&partition);
            continue;
        };
        let is_over = unit.job.wait_timeout(Duration::ZERO).is_some();
        if !is_over && since(began, now) < PATIENCE {
            continue;
        }
        if !is_over {
            unit.job.abort();
            tracing::warn!(unit = %unit.job.name(), "a unit that goes elsewhere has not ended for {PATIENCE:?}");
        }
        placed.units.forget(partition);
        placed.ending.remove(&partition);
        placed.leaving.remove(&partition);
        // It may be given back at once.
        placed.again.remove(&partition);
    }
}

/// Starts and ends units as the plan says. None is started where the plan may be an old one: whoever has the unit by now would
/// be fenced off by its sinks.
pub(super) fn place_units(
    job: &Name,
    placed: &mut PlacedStage,
    (now, is_recent): (Micros, bool),
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
    end_units(placed, now);
    for unit in placed.units.list() {
        let Some(is_active) = wanted.get(&unit.partition) else {
            unit.is_planned.store(false, Ordering::Relaxed);
            let began = *placed.leaving.entry(unit.partition).or_insert(now);
            // One that follows has passed nothing that was not written, so this one can go at once.
            let grace = if unit.writes() { Duration::ZERO } else { GRACE };
            if since(began, now) >= grace || unit.job.state().is_final() {
                placed.let_end(&unit, now);
            }
            continue;
        };
        placed.leaving.remove(&unit.partition);
        if unit.writes() && !*is_active && unit.is_active.load(Ordering::Relaxed) {
            // It follows from its last commit: what it has read may be ahead of what the other one writes.
            unit.is_planned.store(false, Ordering::Relaxed);
            placed.let_end(&unit, now);
            continue;
        }
        unit.set_active(*is_active);
    }
    placed.not_started.retain(|partition, _| wanted.contains_key(partition));
    if !is_recent {
        return;
    }
    for (partition, is_active) in wanted {
        // It would lose more of its rows.
        if placed.units.is_stopped(partition) {
            continue;
        }
        let runs =
            placed.units.get(partition).is_some_and(|unit| !unit.job.state().is_final() || unit.is_done());
        if runs
            || placed.ending.contains_key(&partition)
            || placed.again.get(&partition).is_some_and(|at| *at > now)
        {
            continue;
        }
        let started = match placed.units.is_ready(partition) {
            Ok(false) => continue,
            Ok(true) => placed.units.start(partition, is_active).map(drop),
            Err(error) => Err(error),
        };
        match started {
            Ok(()) => {
                placed.not_started.remove(&partition);
            }
            Err(error) => {
                match error.class() {
                    // Such as brokers that have just begun to lead its log.
                    Class::External => {
                        tracing::warn!(
                            error = error.chain(),
                            "a unit does not start here yet, and is tried again"
                        );
                    }
                    _ => tracing::error!(error = error.chain(), "a unit does not start here"),
                }
                placed.not_started.insert(partition, error.chain());
            }
        }
        // One that fails at once is not started in a spin.
        placed.again.insert(partition, now + micros(AGAIN));
    }
}

/// A job that ends after what is in flight. Stages end in the order in which rows go through them, and what sends their rows
/// after all of them.
pub(super) struct Closing {
    pub(super) placed: Placed,
    /// What took records.
    pub(super) door: Option<Arc<RunningJob>>,
    pub(super) entry: Option<LeavingEntry>,
    /// The first stage that has not ended, and when it was told to.
    stage: usize,
    began: Option<Micros>,
}

impl Closing {
    pub(super) fn new(mut placed: Placed, now: Micros) -> Self {
        let door = placed.entry.as_ref().map(|entry| Arc::clone(&entry.job));
        let entry = placed.entry.take().map(|entry| LeavingEntry::new(entry, now));
        Self { placed, door, entry, stage: 0, began: None }
    }

    /// Whether it has ended.
    pub(super) fn step(&mut self, now: Micros) -> bool {
        if self.entry.as_mut().is_some_and(|entry| !entry.step(now)) {
            return false;
        }
        self.entry = None;
        while let Some(stage) = self.placed.stages.get(self.stage) {
            let units = stage.units.list();
            let Some(began) = self.began else {
                units.iter().for_each(|unit| unit.job.drain());
                self.began = Some(now);
                return false;
            };
            if since(began, now) < PATIENCE
                && units.iter().any(|unit| unit.job.wait_timeout(Duration::ZERO).is_none())
            {
                return false;
            }
            (self.stage, self.began) = (self.stage + 1, None);
        }
        end(&mut self.placed);
        true
    }
}

/// Ends a job as a crash would.
pub(super) fn crash(mut placed: Placed) {
    placed.entry.take().into_iter().for_each(Entry::crash);
    end(&mut placed);
}

/// Ends what is left of a job.
fn end(placed: &mut Placed) {
    let Placed { stages, carriers, .. } = placed;
    // Those that run still are over before what carries their rows is, and do not fail for it.
    for unit in stages.iter().flat_map(|stage| stage.units.list()) {
        unit.job.abort();
    }
    stages.iter().filter_map(|stage| stage.carrier.as_ref()).for_each(|carrier| carrier.end());
    carriers.drain(..).for_each(Started::join);
    stages.clear();
}

impl Entry {
    /// Whether sources of it listen at addresses of their own.
    pub(super) fn listens(&self) -> bool {
        self.job.addresses().next().is_some()
    }

    pub(super) fn crash(self) {
        let Self { door, sender, job, .. } = self;
        job.abort();
        let _ = job.wait_timeout(AGAIN);
        door.end();
        sender.join();
    }
}

/// A door that ends after all that waits for something of it.
pub(super) struct LeavingEntry {
    pub(super) entry: Entry,
    began: Micros,
    has_ended: bool,
}

impl LeavingEntry {
    pub(super) fn new(entry: Entry, now: Micros) -> Self {
        entry.job.drain();
        Self { entry, began: now, has_ended: false }
    }

    /// Whether it may still listen where the next door of a job is to.
    pub(super) fn holds_addresses(&self, job: &Name) -> bool {
        let Entry { job: entry, .. } = &self.entry;
        **entry.name() == *job.as_str()
            && self.entry.listens()
            && entry.wait_timeout(Duration::ZERO).is_none()
    }

    /// Whether it has ended.
    pub(super) fn step(&mut self, now: Micros) -> bool {
        let Entry { door, sender, job, .. } = &self.entry;
        let passed = since(self.began, now);
        let is_passed = job.wait_timeout(Duration::ZERO).is_some() || passed >= AGAIN;
        // The door gives up those that wait for longer.
        let is_waited_for = door.is_waited_for() && passed < AGAIN + door.patience() + LOOK;
        if is_passed && !is_waited_for && !std::mem::replace(&mut self.has_ended, true) {
            door.end();
        }
        self.has_ended && sender.is_over()
    }
}
