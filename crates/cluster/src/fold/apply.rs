//! One record after the other: what it changes, or why it is void.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use thalweg_types::{Micros, Offset};

use super::silence::{silent, twelve_since};
use super::{
    Event, EventCause, Holder, Job, LONGEST_STEP, MAX_BANS, MAX_EVENTS, MAX_HOLDERS, MAX_JOBS, MAX_MEMBERS,
    MAX_TEXTS, MAX_UNITS, Member, SILENT_BEATS, STATE_EVERY, State, TROUBLE_LASTS, Turn, UnitState,
};
use crate::control::{
    Beat, Gap, Handed, Incarnation, Join, Name, Plan, Process, Record, Report, Spec, StateRecord, Unit,
    Version,
};
use crate::rules::{self, Rule, holds};

/// What a record did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Applied {
    /// Why the record does not count.
    pub void: Option<Void>,
    /// What changed, in order.
    pub changes: Vec<Change>,
    /// Whether the state as it is now is to be recorded.
    pub cut: bool,
}

/// A change of the state that a node acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A process is a member. If `ended` is this process's own, another one has taken its name: it exits.
    Joined {
        process: Process,
        ended: Option<Incarnation>,
    },
    /// A process is no member any more, because it said so.
    Left {
        process: Process,
    },
    /// A process is no member any more, because nothing has come from it since `heard`.
    Silent {
        process: Process,
        heard: Offset,
    },
    /// A node is to have no units, or may have some again.
    Drains {
        name: Name,
        on: bool,
    },
    /// The record is the plan in force.
    Planned,
    /// A unit has another active, which sends from `handed` or from a checkpoint.
    Moved {
        unit: Unit,
        from: Option<Name>,
        to: Option<Name>,
    },
    /// The former active of a unit has sent all.
    Handed {
        unit: Unit,
    },
    /// A node names a unit that it has as in trouble.
    Trouble {
        unit: Unit,
        name: Name,
    },
    /// A target or a replica of a unit has caught up.
    Ready {
        unit: Unit,
        name: Name,
    },
    /// A job has another number.
    Job {
        job: Name,
        number: u64,
    },
    Stopped {
        job: Name,
    },
    /// Records may be of this version.
    Version {
        to: u32,
    },
    /// The state as of this offset is in the log.
    Recorded {
        at: Offset,
    },
}

/// Why a record does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Void {
    /// The author is no member: it was silent, has left, or another incarnation has its name.
    NotMember,
    /// The process is a member already: a doubled Join.
    AlreadyMember,
    /// The author of the Join had not read the Join of this incarnation. A process that reads this of its own Join exits.
    NameTaken { by: Incarnation },
    /// The author of the Join had not read that its name ceased to be a member: a doubled Join of a former process.
    NotReadEnd,
    /// The binary does not know the version of the log.
    TooOld { version: u32 },
    /// The author had not read its last beat.
    NotReadBack,
    /// The author claims to have read beyond the record itself.
    Ahead,
    /// Another plan is in force than the one to be replaced.
    NotInForce { plan: Option<Offset> },
    /// The unit is not being handed over by this node under this plan, or was already.
    NotHandedOver,
    /// The job has this number, which is not below that of the Spec, or not that of the Stop.
    Number { has: Option<u64> },
    /// A member does not compute the semantic version.
    NotAllCompute,
    /// A member does not know the version of the log.
    NotAllKnow,
    /// The state is not as of the last cut, or is recorded already.
    NotTheCut,
    /// A bound of the state would be exceeded.
    Full { what: &'static str, most: usize },
    /// The record says what is so already.
    Nothing,
    /// Above the version of the log.
    Newer { version: u32 },
    /// Not a record.
    Unreadable,
}

impl fmt::Display for Void {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Void::NotMember => f.write_str("its author is no member"),
            Void::AlreadyMember => f.write_str("its author is a member already"),
            Void::NameTaken { by } => write!(f, "incarnation {by} has taken the name"),
            Void::NotReadEnd => f.write_str("its author had not read that its name was no member any more"),
            Void::TooOld { version } => {
                write!(f, "the log has version {version}, which its author does not know")
            }
            Void::NotReadBack => f.write_str("its author had not read its last beat"),
            Void::Ahead => f.write_str("its author claims to have read later records"),
            Void::NotInForce { plan: Some(plan) } => write!(f, "the plan at offset {plan} is in force"),
            Void::NotInForce { plan: None } => f.write_str("no plan is in force"),
            Void::NotHandedOver => f.write_str("the plan does not take the unit from its author"),
            Void::Number { has: Some(has) } => write!(f, "the job has number {has}"),
            Void::Number { has: None } => f.write_str("there is no such job"),
            Void::NotAllCompute => f.write_str("a member does not compute its semantic version"),
            Void::NotAllKnow => f.write_str("a member does not know the version"),
            Void::NotTheCut => f.write_str("it is not the state as of the last cut"),
            Void::Full { what, most } => write!(f, "there are {most} {what} already"),
            Void::Nothing => f.write_str("it changes nothing"),
            Void::Newer { version } => write!(f, "version {version} is above that of the log"),
            Void::Unreadable => f.write_str("it is no record"),
        }
    }
}

impl State {
    /// Takes the record at `offset`, which the broker appended at `appended` (microseconds since 1970).
    ///
    /// Offsets ascend, with gaps: a log has markers of its own.
    ///
    /// # Panics
    /// If `offset` is below [`State::next`].
    pub fn apply(&mut self, offset: Offset, appended: Micros, record: &Record) -> Applied {
        self.step(offset, appended);
        let mut applied = Applied::default();
        match self.take(offset, record) {
            Ok(changes) => applied.changes = changes,
            Err(void) => applied.void = Some(void),
        }
        self.finish(offset, applied, matches!(record, Record::Beat(_)))
    }

    /// Takes the place of a message that is no record for this version: every node counts it, and nothing else.
    ///
    /// # Panics
    /// If `offset` is below [`State::next`].
    pub fn pass(&mut self, offset: Offset, appended: Micros, void: Void) -> Applied {
        self.step(offset, appended);
        self.finish(offset, Applied { void: Some(void), ..Applied::default() }, false)
    }

    fn step(&mut self, offset: Offset, appended: Micros) {
        assert!(offset >= self.next, "offset {offset} was read before: next is {}", self.next);
        self.next = offset + 1;
        let before = self.appended.unwrap_or(appended);
        if holds(Rule::LogTimeIsSteady) {
            self.age += appended.saturating_sub(before).clamp(0, LONGEST_STEP);
        } else {
            self.age = self.age.saturating_add(appended.saturating_sub(before)).max(0);
        }
        self.appended = Some(appended);
        self.records += 1;
    }

    fn take(&mut self, offset: Offset, record: &Record) -> Result<Vec<Change>, Void> {
        match record {
            Record::Join(join) => self.join(offset, join),
            Record::Leave(leave) => {
                self.member_of(&leave.process)?;
                self.remove(&leave.process.name, offset);
                self.event(offset, EventCause::Gone);
                Ok(vec![Change::Left { process: leave.process.clone() }])
            }
            Record::Drain(drain) => {
                let member = self.members.get_mut(&drain.name).ok_or(Void::NotMember)?;
                if member.drains == drain.on {
                    return Err(Void::Nothing);
                }
                member.drains = drain.on;
                self.event(offset, EventCause::Drain);
                Ok(vec![Change::Drains { name: drain.name.clone(), on: drain.on }])
            }
            Record::Beat(beat) => self.beat(offset, beat),
            Record::Plan(plan) => self.plan_in_force(offset, plan),
            Record::Handed(handed) => self.hand_over(handed),
            Record::Spec(spec) => self.spec(offset, spec),
            Record::Stop(stop) => {
                let job = self.jobs.get_mut(&stop.job).ok_or(Void::Number { has: None })?;
                if job.number != stop.number || job.stopped {
                    return Err(Void::Number { has: Some(job.number) });
                }
                *job = Job {
                    number: job.number,
                    semantics: job.semantics,
                    at: offset,
                    stopped: true,
                    stages: BTreeMap::new(),
                    text: String::new(),
                };
                self.units.retain(|unit, _| unit.job != stop.job);
                self.event(offset, EventCause::Job);
                Ok(vec![Change::Stopped { job: stop.job.clone() }])
            }
            Record::Version(version) => self.raise(version),
            Record::State(state) => self.recorded(offset, state),
        }
    }

    /// The rules that follow from any record: silence, turns, reviews, cuts.
    fn finish(&mut self, offset: Offset, mut applied: Applied, is_beat: bool) -> Applied {
        if applied.void.is_none() {
            loop {
                let silent = silent(&self.members);
                if silent.is_empty() {
                    break;
                }
                for name in silent {
                    let Some(member) = self.remove(&name, offset) else { continue };
                    let process = Process { name, incarnation: member.incarnation };
                    applied.changes.push(Change::Silent { process, heard: member.heard });
                }
                self.event(offset, EventCause::Gone);
            }
        }
        if is_beat && applied.void.is_none() {
            if !self.events.is_empty() && holds(Rule::NextOldestMayPlan) {
                self.plan_turn.after_beat(offset, &self.members);
            }
            if self.cut != self.recorded {
                self.record_turn.after_beat(offset, &self.members);
            }
        }
        if self.plan.is_some() && self.events.is_empty() && self.age - self.planned_age >= STATE_EVERY {
            self.event(offset, EventCause::Review);
        }
        if self.records >= rules::records_per_state() || self.age - self.cut_age >= STATE_EVERY {
            self.records = 0;
            self.cut_age = self.age;
            // Where the last one was not recorded yet, its turn goes on: a cut may come before twelve beats do.
            if self.cut == self.recorded {
                self.record_turn = Turn { rank: 0, since: offset };
            }
            self.cut = Some(self.next);
            applied.cut = true;
        }
        applied
    }

    fn event(&mut self, at: Offset, cause: EventCause) {
        if self.events.is_empty() {
            self.plan_turn.since = at;
        }
        if self.events.len() == MAX_EVENTS {
            self.events.pop();
        }
        self.events.push(Event { at, cause });
    }

    fn member_of(&mut self, process: &Process) -> Result<&mut Member, Void> {
        let member = self.members.get_mut(&process.name);
        member.filter(|member| member.incarnation == process.incarnation).ok_or(Void::NotMember)
    }

    /// Takes a member out, with what it said of its data; its units are nobody's then.
    fn remove(&mut self, name: &Name, offset: Offset) -> Option<Member> {
        self.forget_data(name);
        if self.gone.len() >= MAX_MEMBERS {
            let oldest = self.gone.iter().min_by_key(|(_, offset)| **offset).map(|(name, _)| name.clone());
            oldest.map(|oldest| self.gone.remove(&oldest));
        }
        self.gone.insert(name.clone(), offset);
        self.members.remove(name)
    }

    fn forget_data(&mut self, name: &Name) {
        for unit in self.units.values_mut() {
            unit.holders.remove(name);
        }
    }

    fn join(&mut self, offset: Offset, join: &Join) -> Result<Vec<Change>, Void> {
        if join.read > offset {
            return Err(Void::Ahead);
        }
        if join.newest < self.version {
            return Err(Void::TooOld { version: self.version });
        }
        let Process { name, incarnation } = &join.process;
        let mut heard = offset;
        let mut trusted = false;
        let mut ended = None;
        if let Some(member) = self.members.get(name) {
            if member.incarnation == *incarnation {
                return Err(Void::AlreadyMember);
            }
            let has_read = join.read > member.joined || !holds(Rule::JoinHasRead);
            if !has_read || !holds(Rule::JoinEndsEarlier) {
                return Err(Void::NameTaken { by: member.incarnation });
            }
            // Otherwise a process that fails at each start, sooner than others notice, keeps its units for ever.
            if holds(Rule::SilenceIsInherited) {
                heard = member.heard;
            }
            trusted = member.trusted || member.has_beaten();
            ended = Some(member.incarnation);
        } else if self.gone.get(name).is_some_and(|gone| join.read <= *gone) && holds(Rule::JoinHasRead) {
            return Err(Void::NotReadEnd);
        } else if self.members.len() >= MAX_MEMBERS {
            return Err(Void::Full { what: "members", most: MAX_MEMBERS });
        }
        self.gone.remove(name);
        // Its disk may be another one: it reports what it has.
        self.forget_data(name);
        let member = Member {
            incarnation: *incarnation,
            joined: offset,
            host: join.host.clone(),
            capacity: join.capacity,
            address: join.address.clone(),
            semantics: join.semantics.clone(),
            newest: join.newest,
            drains: false,
            read: join.read,
            trusted,
            heard,
            beats: VecDeque::new(),
            trouble: BTreeSet::new(),
            gaps: Vec::new(),
        };
        self.members.insert(name.clone(), member);
        Ok(vec![Change::Joined { process: join.process.clone(), ended }])
    }

    fn beat(&mut self, offset: Offset, beat: &Beat) -> Result<Vec<Change>, Void> {
        let name = &beat.process.name;
        let member = self.member_of(&beat.process)?;
        if beat.read > offset {
            return Err(Void::Ahead);
        }
        // Beats that a client has queued while its broker was away would prove the others silent, all at once.
        if beat.read <= member.own() && holds(Rule::BeatsAreReadBack) {
            return Err(Void::NotReadBack);
        }
        let is_first = !member.has_beaten();
        if member.beats.len() == SILENT_BEATS {
            member.beats.pop_front();
        }
        member.beats.push_back(offset);
        member.heard = offset;
        member.read = beat.read;
        let before = std::mem::take(&mut member.trouble);
        let mut changes = Vec::new();
        let mut events = BTreeSet::new();
        if is_first {
            self.event(offset, EventCause::Member);
        }
        for unit in &beat.dropped {
            if let Some(state) = self.units.get_mut(unit) {
                state.holders.remove(name);
            }
        }
        for report in &beat.reports {
            if self.report(name, report) {
                changes.push(Change::Ready { unit: report.unit.clone(), name: name.clone() });
                events.insert(1);
            }
        }
        let age = self.age;
        let mut trouble = BTreeSet::new();
        for unit in &beat.trouble {
            let Some(state) = self.units.get_mut(unit) else { continue };
            if !state.has(name) {
                continue;
            }
            trouble.insert(unit.clone());
            if !holds(Rule::TroubleIsTakenAway) {
                continue;
            }
            state.ban(name, age);
            let is_new = !before.contains(unit);
            // While it is in trouble, other nodes may get well: the plan is looked at again, once a minute.
            if is_new || state.troubled.is_none_or(|then| age - then >= TROUBLE_LASTS) {
                state.troubled = Some(age);
                events.insert(0);
                if is_new {
                    changes.push(Change::Trouble { unit: unit.clone(), name: name.clone() });
                }
            }
        }
        // Where most nodes were in trouble nothing was moved: now it may be the others alone.
        let is_well = !before.is_empty() && trouble.is_empty();
        let is_there =
            |gap: &&Gap| self.units.contains_key(&gap.unit) && self.units.contains_key(&gap.origin);
        let gaps = beat.gaps.iter().filter(is_there).cloned().collect();
        if let Some(member) = self.members.get_mut(name) {
            (member.trouble, member.gaps) = (trouble, gaps);
        }
        if is_well && self.members.values().any(Member::names_trouble) {
            events.insert(0);
        }
        for event in events {
            self.event(offset, if event == 0 { EventCause::Trouble } else { EventCause::Ready });
        }
        Ok(changes)
    }

    /// Whether a target or a replica has caught up by it.
    fn report(&mut self, name: &Name, report: &Report) -> bool {
        let Some(state) = self.units.get_mut(&report.unit) else { return false };
        if state.planned.as_ref() == Some(name) {
            (state.load, state.bytes) = (report.load, report.bytes);
        }
        let follows = state.target.as_ref() == Some(name) || state.replicas.contains(name);
        let holder = Holder { position: report.position, ready: report.ready && state.has(name) };
        if !state.holders.contains_key(name) && state.holders.len() >= MAX_HOLDERS {
            let needless = state.holders.iter().filter(|(name, _)| !state.has(name));
            let oldest = needless.min_by_key(|(_, holder)| holder.position).map(|(name, _)| name.clone());
            match oldest {
                Some(oldest) => state.holders.remove(&oldest),
                None => return false,
            };
        }
        let before = state.holders.insert(name.clone(), holder);
        follows && holder.ready && !before.is_some_and(|before| before.ready)
    }

    fn plan_in_force(&mut self, offset: Offset, plan: &Plan) -> Result<Vec<Change>, Void> {
        if holds(Rule::PlanOfMember) {
            self.member_of(&plan.process)?;
        }
        if plan.read > offset {
            return Err(Void::Ahead);
        }
        if plan.replaces != self.plan && holds(Rule::PlanReplaces) {
            return Err(Void::NotInForce { plan: self.plan });
        }
        let has_changed = |member: &Member| member.joined >= plan.read;
        if !holds(Rule::MembersVoidNothing) && self.members.values().any(has_changed) {
            return Err(Void::NotInForce { plan: self.plan });
        }
        let mut changes = vec![Change::Planned];
        let age = self.age;
        let mut can_go_on = plan.more;
        for (unit, state) in &mut self.units {
            let placement = plan.units.get(unit);
            let active = placement.and_then(|placement| placement.active.clone());
            if active != state.planned {
                state.since = Some(offset);
                state.why = placement.and_then(|placement| placement.why);
                state.from = std::mem::replace(&mut state.planned, active.clone());
                state.handed = None;
                changes.push(Change::Moved { unit: unit.clone(), from: state.from.clone(), to: active });
            }
            state.target = placement.and_then(|placement| placement.target.clone());
            state.replicas = placement.map(|placement| placement.replicas.clone()).unwrap_or_default();
            state.bans.retain(|_, until| *until > age);
            // A node that no longer follows has old data from here on.
            let UnitState { planned, target, replicas, holders, .. } = state;
            for (name, holder) in holders.iter_mut().filter(|(_, holder)| holder.ready) {
                holder.ready = planned.as_ref() == Some(name)
                    || target.as_ref() == Some(name)
                    || replicas.contains(name);
            }
        }
        // A target that caught up before it became one says so no second time.
        let is_ready = |state: &UnitState| {
            state
                .target
                .as_ref()
                .is_some_and(|target| state.holders.get(target).is_some_and(|holder| holder.ready))
        };
        can_go_on |= self.units.values().any(is_ready);
        self.plan = Some(offset);
        self.planned_age = age;
        self.events.retain(|event| event.at >= plan.read);
        if can_go_on {
            self.event(offset, EventCause::More);
        }
        // Older members that let others plan are not waited for again, until one of them plans.
        let rank = if holds(Rule::NextOldestMayPlan) { self.rank(&plan.process.name) } else { 0 };
        self.plan_turn = Turn { rank, since: offset };
        Ok(changes)
    }

    fn hand_over(&mut self, handed: &Handed) -> Result<Vec<Change>, Void> {
        self.member_of(&handed.process)?;
        let state = self.units.get_mut(&handed.unit).ok_or(Void::NotHandedOver)?;
        let is_taken = state.from.as_ref() == Some(&handed.process.name) && state.since == Some(handed.plan);
        if !is_taken || state.handed.is_some() {
            return Err(Void::NotHandedOver);
        }
        state.handed = Some((handed.position, handed.lineage));
        Ok(vec![Change::Handed { unit: handed.unit.clone() }])
    }

    fn spec(&mut self, offset: Offset, spec: &Spec) -> Result<Vec<Change>, Void> {
        let before = self.jobs.get(&spec.job);
        if let Some(job) = before.filter(|job| job.number >= spec.number) {
            return Err(Void::Number { has: Some(job.number) });
        }
        if !self.all_compute(spec.semantics) {
            return Err(Void::NotAllCompute);
        }
        let others = || self.jobs.iter().filter(|(name, _)| **name != spec.job);
        let texts: usize = others().map(|(_, job)| job.text.len()).sum();
        if texts + spec.text.len() > MAX_TEXTS {
            return Err(Void::Full { what: "bytes of jobs", most: MAX_TEXTS });
        }
        let own: usize = spec.stages.values().map(|stage| stage.partitions as usize).sum();
        let rest = self.units.keys().filter(|unit| unit.job != spec.job).count();
        if rest + own > MAX_UNITS {
            return Err(Void::Full { what: "units", most: MAX_UNITS });
        }
        if before.is_none() && self.jobs.len() >= MAX_JOBS {
            let stopped = self.jobs.iter().filter(|(_, job)| job.stopped).min_by_key(|(_, job)| job.at);
            let Some(first) = stopped.map(|(name, _)| name.clone()) else {
                return Err(Void::Full { what: "jobs", most: MAX_JOBS });
            };
            self.jobs.remove(&first);
        }
        let job = Job {
            number: spec.number,
            semantics: spec.semantics,
            at: offset,
            stopped: false,
            stages: spec.stages.clone(),
            text: spec.text.clone(),
        };
        self.jobs.insert(spec.job.clone(), job);
        self.units.retain(|unit, _| {
            let stage = spec.stages.get(&unit.stage);
            unit.job != spec.job || stage.is_some_and(|stage| unit.partition < stage.partitions)
        });
        for (name, stage) in &spec.stages {
            for partition in 0..stage.partitions {
                let unit = Unit { job: spec.job.clone(), stage: name.clone(), partition };
                self.units.entry(unit).or_default();
            }
        }
        self.event(offset, EventCause::Job);
        Ok(vec![Change::Job { job: spec.job.clone(), number: spec.number }])
    }

    fn raise(&mut self, version: &Version) -> Result<Vec<Change>, Void> {
        self.member_of(&version.process)?;
        if version.to <= self.version {
            return Err(Void::Nothing);
        }
        if self.members.values().any(|member| member.newest < version.to) {
            return Err(Void::NotAllKnow);
        }
        self.version = version.to;
        Ok(vec![Change::Version { to: version.to }])
    }

    fn recorded(&mut self, offset: Offset, record: &StateRecord) -> Result<Vec<Change>, Void> {
        self.member_of(&record.process)?;
        let at = record.state.next;
        if at > offset || Some(at) != self.cut || self.recorded == Some(at) {
            return Err(Void::NotTheCut);
        }
        self.recorded_before = self.recorded.replace(at);
        Ok(vec![Change::Recorded { at }])
    }
}

impl UnitState {
    /// Whether the plan in force gives the unit to a node, in whatever role.
    pub fn has(&self, name: &Name) -> bool {
        self.planned.as_ref() == Some(name)
            || self.target.as_ref() == Some(name)
            || self.replicas.contains(name)
    }

    fn ban(&mut self, name: &Name, age: Micros) {
        if !self.bans.contains_key(name) && self.bans.len() >= MAX_BANS {
            let first = self.bans.iter().min_by_key(|(_, until)| **until).map(|(name, _)| name.clone());
            first.map(|first| self.bans.remove(&first));
        }
        let until = if holds(Rule::TroubleIsNotGivenBack) { age + TROUBLE_LASTS } else { age + 1 };
        self.bans.insert(name.clone(), until);
    }
}

impl Turn {
    /// Passes on to the next oldest once twelve beats of the median have gone by.
    fn after_beat(&mut self, offset: Offset, members: &BTreeMap<Name, Member>) {
        if twelve_since(members, self.since) {
            self.rank = self.rank.saturating_add(1);
            self.since = offset;
        }
    }
}
