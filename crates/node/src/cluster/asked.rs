//! What is asked of any node, and concerns all of them: jobs that start, change and stop, their queries, and present values.
//!
//! A job that starts or changes is a new text in the control log, and a query that is added or dropped is one, too: units
//! change to it at one place of their logs each (`texts`). Whoever asks is answered when the log has the text, and this
//! node works by it.
//!
//! A present value is read where the unit of its key is active. A node that has it not says who has, and by which plan; the
//! node that is asked next waits until it knows that plan (cluster rules, 4: *Reads*). The unit has all records in it that the
//! brokers had when it was asked: whoever has an answer reads no value from before it, also where the unit has just moved.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thalweg_cluster::control::{self, Name, Record, Stage, Unit as UnitName};
use thalweg_cluster::fold::{Job, State};
use thalweg_kafka::{Bus, BusError, TopicPartition};
use thalweg_types::{Error, Offset, Retry, SEMANTICS};

use super::host::{cut_for, spec_of, stage_topic};
use super::member::Member;
use super::texts::{self, Texts};
use super::units::Unit;
use super::view::Board;
use crate::cluster_view::{Change, KeyOf, NotDone, Present};
use crate::graph::sink_context;
use crate::job_file::{CheckOptions, CheckedJob, JobFile};
use crate::queries::{LiveQueries, Queries, QueryError};

/// How long a record of ours may take until the log says what it wants.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long this node may take to work by a text that the log has.
const OPENING: Duration = Duration::from_secs(30);

/// How long a read waits for a plan, and for a unit that has just come.
pub(super) const WAIT: Duration = Duration::from_secs(1);

/// A node that has not heard its own beat for so long may have lost its units.
const DEAF: Duration = Duration::from_secs(3);

/// How often that is looked at, and how often whether a unit has read its log.
pub(super) const GLANCE: Duration = Duration::from_millis(20);
pub(super) const SHORT: Duration = Duration::from_millis(1);

/// The record by which the log has a job as it was checked here; `number` is that of its text.
///
/// # Errors
/// As [`cut_for`], and for a name that is none in a cluster; where a topic is read, also if no broker says how many partitions
/// it has.
pub(super) fn spec_for(
    job: &CheckedJob,
    partitions: Option<u32>,
    number: u64,
) -> Result<control::Spec, Error> {
    let mut cut = cut_for(job, partitions)?;
    let mut json = job.json.clone();
    for stage in cut.stages.iter_mut().filter(|stage| stage.topic().is_some()) {
        if stage.partitions == 0 {
            stage.partitions = stage.open_topic(Path::new(""))?.partitions()?;
        }
        if stage.partitions > control::MAX_PARTITIONS {
            return Err(Error::user(format!(
                "source {:?} reads a topic with {} partitions, expected {} at most",
                stage.name,
                stage.partitions,
                control::MAX_PARTITIONS
            ))
            .with_hint("read it on one node, without --cluster"));
        }
        // All nodes go by the same number, whenever they look.
        json["sources"][&*stage.name]["partitions"] = stage.partitions.into();
    }
    let name = |text: &str| {
        Name::new(text).ok_or_else(|| {
            Error::user(format!("{text:?} is no name in a cluster"))
                .with_hint("take letters, digits, _ and -, at most 64 of them")
        })
    };
    let stages = cut.stages.iter().map(|stage| {
        let node = stage.node.as_deref().map(name).transpose()?;
        Ok((name(&stage.name)?, Stage { node, ..Stage::new(stage.partitions, 0) }))
    });
    Ok(control::Spec {
        job: name(&job.name)?,
        number,
        semantics: SEMANTICS,
        stages: stages.collect::<Result<_, Error>>()?,
        text: json.to_string(),
    })
}

/// Lets a text read as many partitions of each topic as the one before it, if the job runs. A topic that has got more gives
/// them to the job later, and in one way only (`growing`); one that has fewer is left to [`check_change`].
pub(super) fn keep_partitions(spec: &mut control::Spec, known: &Job, job: &CheckedJob) -> Result<(), Error> {
    // The log keeps no text of one that was stopped.
    if known.stopped {
        return Ok(());
    }
    let (mut json, before) = (json_of(&spec.text)?, json_of(&known.text)?);
    for source in &job.sources {
        let (of, was) = (&mut json["sources"][&*source.name], &before["sources"][&*source.name]);
        let (Some(has), Some(had)) = (of["partitions"].as_u64(), was["partitions"].as_u64()) else {
            continue;
        };
        let is_asked = source.options.integer("partitions").is_none();
        let stage = Name::new(&source.name).and_then(|name| spec.stages.get_mut(&name));
        let (Some(stage), Ok(count)) = (stage, u32::try_from(had)) else { continue };
        if of["topics"] == was["topics"] && (has > had || !is_asked) {
            stage.partitions = count;
            of["partitions"] = had.into();
        }
    }
    spec.text = json.to_string();
    Ok(())
}

fn json_of(text: &str) -> Result<serde_json::Value, Error> {
    serde_json::from_str(text)
        .map_err(|error| Error::corrupt("the text of a job in the control log").with_source(error))
}

/// The record of a text of a job that is `known`, with one thing changed. Nothing of its cut may change but numbers of
/// partitions.
pub(super) fn changed(
    texts: &Texts,
    known: &Job,
    (check, partitions): (&CheckOptions, Option<u32>),
    change: impl FnOnce(&mut serde_json::Value) -> Result<(), Error>,
) -> Result<control::Spec, Error> {
    let mut json = json_of(&known.text)?;
    change(&mut json)?;
    let changed = JobFile::parse("the changed job", &json.to_string(), &[])
        .and_then(|file| file.check(check))
        .map_err(|mistakes| Error::user(mistakes.to_string()))?;
    let spec = spec_for(&changed, partitions, known.number + 1)?;
    check_change(texts, known, &spec)?;
    Ok(spec)
}

/// Looks whether what the sinks of a job write to is there. A unit that has met a text in its log goes on by no other one, so
/// it would wait there.
///
/// # Errors
/// Where it is not there.
pub(super) fn find_outside(job: &CheckedJob) -> Result<(), Error> {
    for sink in &job.sinks {
        match sink.plugin.find(&sink_context(job, sink, Path::new(""))) {
            // It may be there: a node has to start while another system is away.
            Err(error) if error.retry() == Retry::WithBackoff => {
                tracing::warn!(
                    job = &*job.name,
                    error = error.chain(),
                    "nobody says whether the job can write"
                );
            }
            outcome => outcome?,
        }
    }
    Ok(())
}

/// How a node reads texts of jobs.
pub(super) fn texts_of(options: CheckOptions, partitions: Option<u32>) -> Arc<Texts> {
    Texts::new(move |text| {
        let job = JobFile::parse("the control log", text, &[]).and_then(|file| file.check(&options));
        let job = job.map_err(|mistakes| Error::user(mistakes.to_string()))?;
        cut_for(&job, partitions)
    })
}

/// Whether units of a job that runs may go on by another text.
///
/// # Errors
/// Of class user: says what differs.
pub(super) fn check_change(texts: &Texts, before: &Job, now: &control::Spec) -> Result<(), Error> {
    let after =
        Job { number: now.number, semantics: now.semantics, text: now.text.clone(), ..before.clone() };
    texts::check_change(&*texts.cut(&spec_of(before))?, &*texts.cut(&spec_of(&after))?)
}

/// Asks the cluster by way of one member.
pub(super) struct Asked {
    member: Arc<Member>,
    bus: Arc<dyn Bus>,
    board: Arc<Board>,
    check: CheckOptions,
    partitions: Option<u32>,
    /// Of jobs that were asked for.
    texts: Mutex<BTreeMap<Name, Arc<Texts>>>,
}

impl Asked {
    pub(super) fn new(
        member: Arc<Member>,
        bus: Arc<dyn Bus>,
        board: Arc<Board>,
        check: CheckOptions,
        partitions: Option<u32>,
    ) -> Self {
        Self { member, bus, board, check, partitions, texts: Mutex::default() }
    }

    pub(super) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// A unit that runs here.
    pub(super) fn unit(&self, of: &UnitName) -> Option<Arc<Unit>> {
        self.board.unit(of)
    }

    /// Where the log of a unit ends.
    ///
    /// # Errors
    /// If no broker says.
    pub(super) fn end_of(&self, of: &UnitName) -> Result<u64, BusError> {
        let topic = stage_topic(&self.member.options().prefix, of.job.as_str(), of.stage.as_str());
        let log = TopicPartition::new(topic, i32::try_from(of.partition).unwrap_or(i32::MAX));
        Ok(u64::try_from(self.bus.bounds(&log)?.end).unwrap_or(0))
    }

    /// Whether this node has read a beat of its own that left lately: one that has not may have lost its units.
    pub(super) fn hears_itself(&self) -> bool {
        self.member.is_recent(self.member.clock().read().steady, DEAF)
    }

    pub(super) fn texts(&self, job: &Name, state: &State) -> Arc<Texts> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.retain(|name, _| name == job || state.jobs().any(|(known, _)| known == name));
        let make = || texts_of(self.check.clone(), self.partitions);
        Arc::clone(texts.entry(job.clone()).or_insert_with(make))
    }

    /// Has all nodes run a job; whether one of its name ran before, which only a change that [replaces](Change::Replace) takes
    /// away.
    pub(super) fn run(&self, job: &CheckedJob, change: Change) -> Result<bool, NotDone> {
        let state = self.member.state();
        let mut spec = spec_for(job, self.partitions, 1)?;
        let known = state.job(&spec.job);
        if let Some(known) = known {
            spec.number = known.number + 1;
            keep_partitions(&mut spec, known, job)?;
        }
        let running = known.filter(|known| !known.stopped);
        if let Some(running) = running {
            if change == Change::Start {
                return Err(NotDone::Exists { name: spec.job.to_string() });
            }
            if running.text == spec.text {
                return Ok(true);
            }
            check_change(&self.texts(&spec.job, &state), running, &spec)?;
        }
        find_outside(job)?;
        let was_there = running.is_some();
        self.put(spec)?;
        Ok(was_there)
    }

    /// Puts a text in the log, and waits until this node works by it.
    fn put(&self, spec: control::Spec) -> Result<(), NotDone> {
        let (name, number) = (spec.job.clone(), spec.number);
        let text = spec.text.clone();
        self.member.append(Record::Spec(spec));
        let first = self.until(|state| {
            let job = state.job(&name).filter(|job| job.number >= number)?;
            Some(!job.stopped && job.number == number && job.text == text)
        });
        match first {
            None => return Err(not_said(&format!("that job {:?} has text {number}", name.as_str()))),
            Some(false) => {
                return Err(NotDone::Conflict {
                    what: format!("job {:?} was changed by somebody else at the same time", name.as_str()),
                    hint: "look at the job, and ask again".to_owned(),
                });
            }
            Some(true) => {}
        }
        let since = Instant::now();
        loop {
            match self.board.number(&name) {
                Some(has) if has >= number => return Ok(()),
                _ if since.elapsed() > OPENING => {
                    return Err(Error::external(format!(
                        "text {number} of job {:?} is in the control log, and this node does not work by it within {OPENING:?}",
                        name.as_str()
                    ))
                    .with_retry(Retry::OutcomeUnknown)
                    .with_hint("the log of the node says why; it tries again by itself")
                    .into());
                }
                _ => std::thread::sleep(GLANCE),
            }
        }
    }

    /// Has all nodes end a job, and waits until it has ended here.
    pub(super) fn stop(&self, job: &str) -> Result<(), NotDone> {
        let state = self.member.state();
        let (name, known) = find(&state, job)?;
        self.member.append(Record::Stop(control::Stop { job: name.clone(), number: known.number }));
        let number = known.number;
        // A newer text than the one that was to be stopped is somebody else's wish.
        let stopped = self.until(|state| {
            let job = state.job(name)?;
            (job.stopped || job.number != number).then_some(job.stopped)
        });
        match stopped {
            None => return Err(not_said(&format!("that job {job:?} has ended"))),
            Some(false) => {
                return Err(NotDone::Conflict {
                    what: format!("job {job:?} was changed by somebody else at the same time"),
                    hint: "look at the job, and stop it again".to_owned(),
                });
            }
            Some(true) => {}
        }
        let since = Instant::now();
        while self.board.has(name) && since.elapsed() < OPENING {
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Adds a query to an operator of a job, or drops it where no text is given.
    pub(super) fn change_query(
        &self,
        job: &str,
        operator: &str,
        query: &str,
        sql: Option<&str>,
    ) -> Result<(), NotDone> {
        let state = self.member.state();
        let (name, known) = find(&state, job)?;
        let texts = self.texts(name, &state);
        let cut = texts.cut(&spec_of(known))?;
        let queries = queries_of(cut.whole(), operator)?;
        let listed = queries.list();
        let is_there = listed.iter().any(|other| other.name == query);
        match sql {
            Some(_) if is_there => return Err(QueryError::Exists { name: query.to_owned() }.into()),
            Some(sql) => drop(queries.plan(query, sql)?),
            None if is_there => {}
            None => {
                let known = listed.into_iter().map(|query| query.name).collect();
                return Err(QueryError::Missing { name: query.to_owned(), known }.into());
            }
        }
        let spec = changed(&texts, known, (&self.check, self.partitions), |json| {
            let list = json["operators"][operator]["queries"].as_object_mut().ok_or_else(|| {
                Error::internal(format!(
                    "operator {operator:?} of job {job:?} has queries, and none in its text"
                ))
            })?;
            match sql {
                Some(sql) => drop(list.insert(query.to_owned(), sql.into())),
                None => drop(list.remove(query)),
            }
            Ok(())
        })?;
        self.put(spec)
    }

    /// The present values of a query for one group, or the node that has them. `plan` is the one by which whoever asks was sent
    /// here: it is not sent on.
    pub(super) fn present(
        &self,
        job: &str,
        operator: &str,
        query: &str,
        key: &[KeyOf],
        plan: Option<Offset>,
    ) -> Result<Present, NotDone> {
        let since = Instant::now();
        loop {
            let is_late = since.elapsed() > WAIT;
            let state = self.member.state();
            if plan.is_some_and(|plan| state.plan().is_none_or(|known| known < plan)) {
                if is_late {
                    return Err(later("this node does not know the plan by which it was asked"));
                }
                std::thread::sleep(GLANCE);
                continue;
            }
            let unit = self.unit_of(&state, job, operator, query, key)?;
            let me = &self.member.process().name;
            match state.active(&unit) {
                Some(active) if active == me => {
                    if !self.hears_itself() {
                        return Err(later("this node has not heard of itself for some seconds"));
                    }
                    if let Some(read) = self.read(&unit, operator, query, key) {
                        return read;
                    }
                }
                Some(active) if plan.is_none() => {
                    let member = state.member(active);
                    let address = member.map(|member| member.address.to_string()).unwrap_or_default();
                    let plan = state.plan().unwrap_or_default();
                    return Ok(Present::Elsewhere { node: active.to_string(), address, plan });
                }
                // It was given to another one since, or it is on its way.
                _ => {}
            }
            if is_late {
                return Err(later(&format!("no node answers for unit {unit} at the moment")));
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// The unit that has the group of a query.
    fn unit_of(
        &self,
        state: &State,
        job: &str,
        operator: &str,
        query: &str,
        key: &[KeyOf],
    ) -> Result<UnitName, NotDone> {
        let (name, known) = find(state, job)?;
        let cut = self.texts(name, state).cut(&spec_of(known))?;
        let queries = queries_of(cut.whole(), operator)?;
        let listed = queries.list();
        let Some(found) = listed.iter().find(|other| other.name == query) else {
            let known = listed.into_iter().map(|query| query.name).collect();
            return Err(QueryError::Missing { name: query.to_owned(), known }.into());
        };
        let plan = queries.plan(query, &found.text)?;
        let mut stages = cut.stages.iter().filter(|stage| *stage.operator == *operator);
        let stage = stages.nth(plan.part).ok_or_else(|| {
            Error::internal(format!("no stage runs query {query:?} of operator {operator:?}"))
        })?;
        let partition = plan.task_of(query, key, stage.partitions)?;
        Ok(UnitName { job: name.clone(), stage: stage.name_in_cluster()?, partition })
    }

    /// Asks a unit that runs here; `None` where it does not yet, or works by a text without the query.
    fn read(
        &self,
        of: &UnitName,
        operator: &str,
        query: &str,
        key: &[KeyOf],
    ) -> Option<Result<Present, NotDone>> {
        let unit = self.board.unit(of)?;
        let end = match self.end_of(of) {
            Ok(end) => end,
            Err(error) => {
                return Some(Err(later(&format!(
                    "the brokers do not say where the log of {of} ends: {error}"
                ))));
            }
        };
        let since = Instant::now();
        while unit.counts.position.load(Ordering::Relaxed) < end {
            if since.elapsed() > WAIT || unit.job.state().is_final() {
                return None;
            }
            std::thread::sleep(SHORT);
        }
        let queries: &LiveQueries = unit.job.queries(operator)?;
        match queries.read(unit.job.job(), query, key) {
            Ok(value) => Some(Ok(Present::Here(value))),
            Err(QueryError::Missing { .. }) => None,
            Err(_) if unit.job.state().is_final() => None,
            Err(error) => Some(Err(error.into())),
        }
    }

    /// What a look at the log says in time.
    pub(super) fn until<T>(&self, look: impl Fn(&State) -> Option<T>) -> Option<T> {
        let since = Instant::now();
        loop {
            if let Some(found) = look(&self.member.state()) {
                return Some(found);
            }
            if since.elapsed() > PATIENCE {
                return None;
            }
            std::thread::sleep(GLANCE);
        }
    }
}

pub(super) fn find<'a>(state: &'a State, job: &str) -> Result<(&'a Name, &'a Job), NotDone> {
    state.jobs().find(|(name, _)| name.as_str() == job).ok_or_else(|| NotDone::NoJob {
        name: job.to_owned(),
        known: state.jobs().map(|(name, _)| name.to_string()).collect(),
    })
}

fn queries_of<'a>(job: &'a CheckedJob, operator: &str) -> Result<&'a Arc<dyn Queries>, NotDone> {
    let queried = || {
        let with = job.operators.iter();
        with.filter_map(|operator| operator.prepared.queries.as_ref().map(|queries| (operator, queries)))
    };
    let found = queried().find(|(other, _)| *other.name == *operator);
    found.map(|(_, queries)| queries).ok_or_else(|| NotDone::NoOperator {
        name: operator.to_owned(),
        known: queried().map(|(operator, _)| operator.name.to_string()).collect(),
    })
}

pub(super) fn not_said(what: &str) -> NotDone {
    Error::external(format!("the control log has not said within {PATIENCE:?} {what}"))
        .with_retry(Retry::OutcomeUnknown)
        .with_hint("look at the brokers; it may still come about, and may be asked for again")
        .into()
}

fn later(what: &str) -> NotDone {
    NotDone::NotNow { what: what.to_owned() }
}
