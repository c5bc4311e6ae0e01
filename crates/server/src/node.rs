//! A node as the server controls it.
//!
//! Jobs are started on threads of their own ([`Starting`]), as opening their files may take for ever: one that does not
//! start holds up no other. A caller that starts a job on the node itself reports it with [`NodeControl::add`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use thalweg_connect::{Ingress, Reach};
use thalweg_flow::JobState;
use thalweg_node::cluster_view::{self, Change, ClusterView, NotDone};
use thalweg_node::continuing::foretell;
use thalweg_node::operator::PartName;
use thalweg_node::queries::{DroppedQuery, LiveQueries, PresentValue};
use thalweg_node::{CheckOptions, CheckedJob, Diagnostics, JobEnd, JobFile, Node, Role, RunningJob};
use thalweg_types::{Error, Micros, Offset};

use crate::control::{
    Control, ControlError, FailedJob, FileFormat, Found, KeyField, Kind, Mistake, Present, QueryPath,
    Readiness, Stop, StopSummary, TextKind,
};
use crate::snapshot::{Commits, DroppedSnapshot, JobSnapshot, OperatorSnapshot, QuerySnapshot, State};
use crate::starting::Starting;

/// [`Control`] over a [`Node`].
pub struct NodeControl {
    node: Arc<Node>,
    /// Paths and secrets that job files over HTTP may name.
    reach: Reach,
    readiness: AtomicU8,
    /// Held for moments. Ended jobs stay until they are stopped or started again.
    jobs: RwLock<BTreeMap<Arc<str>, Arc<RunningJob>>>,
    starting: Starting,
    /// Jobs that are being replaced. Held for moments.
    replaced: Mutex<BTreeSet<String>>,
    /// A job was stopped by a request.
    has_stopped: AtomicBool,
    /// Once the node has joined one.
    cluster: OnceLock<Arc<dyn ClusterView>>,
    /// Jobs that the node was started with, until the cluster knows them or they are there. Held for moments.
    awaited: Mutex<BTreeSet<String>>,
}

impl NodeControl {
    /// A node that is starting; [`NodeControl::set_readiness`] says when that is over. Job files that come over HTTP
    /// may name no path and no secret.
    pub fn new(node: Arc<Node>) -> Self {
        Self {
            node,
            reach: Reach::nothing(),
            readiness: AtomicU8::new(Readiness::Starting as u8),
            jobs: RwLock::default(),
            starting: Starting::default(),
            replaced: Mutex::default(),
            has_stopped: AtomicBool::new(false),
            cluster: OnceLock::new(),
            awaited: Mutex::default(),
        }
    }

    /// Whether a request has stopped a job: its client may start it again, or another one.
    pub fn has_stopped_jobs(&self) -> bool {
        self.has_stopped.load(Ordering::Acquire)
    }

    /// Allows paths and secrets in job files that come over HTTP.
    #[must_use]
    pub fn with_reach(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    pub fn set_readiness(&self, readiness: Readiness) {
        // Relaxed: nothing is published with it.
        self.readiness.store(readiness as u8, Ordering::Relaxed);
    }

    /// Shows the cluster that the node has joined. It is not ready before it knows all jobs of the cluster and those that
    /// are `awaited`, and records of each enter here.
    pub fn show_cluster<'a>(
        &self,
        cluster: Arc<dyn ClusterView>,
        awaited: impl IntoIterator<Item = &'a str>,
    ) {
        self.awaited().extend(awaited.into_iter().map(str::to_owned));
        let _ = self.cluster.set(cluster);
    }

    /// Serves a job that was started on the node.
    pub fn add(&self, job: Arc<RunningJob>) {
        self.awaited().remove(&**job.name());
        self.jobs_mut().insert(Arc::clone(job.name()), job);
    }

    /// Serves a job no more, unless another one of its name has come.
    pub fn remove(&self, job: &Arc<RunningJob>) {
        let mut jobs = self.jobs_mut();
        if jobs.get(job.name()).is_some_and(|listed| Arc::ptr_eq(listed, job)) {
            jobs.remove(job.name());
        }
    }

    /// Ends a job on all nodes; the summary is of what has entered here.
    fn stop_everywhere(
        &self,
        cluster: &dyn ClusterView,
        name: &str,
        how: Stop,
    ) -> Result<StopSummary, ControlError> {
        if how == Stop::Abort {
            return Err(ControlError::Conflict {
                message: format!("job {name:?} runs on several nodes, and ends after what is in flight"),
                hint: Some("send DELETE /v1/jobs/{job} without `drain`".to_owned()),
            });
        }
        let served = self.find(name).ok();
        cluster.stop(name)?;
        Ok(served.map_or_else(nothing_taken, |served| summary(&served.wait())))
    }

    fn jobs_ref(&self) -> RwLockReadGuard<'_, BTreeMap<Arc<str>, Arc<RunningJob>>> {
        self.jobs.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn awaited(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replaced(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn jobs_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<Arc<str>, Arc<RunningJob>>> {
        self.jobs.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &str) -> Result<Arc<RunningJob>, ControlError> {
        let jobs = self.jobs_ref();
        if !jobs.contains_key(name) && self.replaced().contains(name) {
            return Err(ControlError::Replaced { job: name.to_owned() });
        }
        if !jobs.contains_key(name) && self.starting.is_starting(name) {
            return Err(ControlError::Conflict {
                message: format!("job {name:?} is being started: its files and connections are being opened"),
                hint: Some("wait for it, or give it up with DELETE /v1/jobs/{job}".to_owned()),
            });
        }
        if let Some(job) = jobs.get(name) {
            return Ok(Arc::clone(job));
        }
        let missing = not_found(Kind::Job, name, jobs.keys());
        drop(jobs);
        match self.unopened().iter().any(|unopened| unopened == name) {
            true => Err(ControlError::NotNow {
                message: format!("job {name:?} takes no records on this node yet"),
            }),
            false => Err(missing),
        }
    }

    /// As [`refuse_ended`]; a job that has ended to be replaced is not spoken of as such.
    fn refuse_ended(&self, job: &Arc<RunningJob>) -> Result<(), ControlError> {
        refuse_ended(job).map_err(|error| {
            let name = &**job.name();
            let has_successor = self.jobs_ref().get(name).is_some_and(|listed| !Arc::ptr_eq(listed, job));
            let is_changed = || self.unopened().iter().any(|unopened| unopened == name);
            match has_successor || self.replaced().contains(name) || is_changed() {
                true => ControlError::Replaced { job: name.to_owned() },
                false => error,
            }
        })
    }

    /// Starts a job in the place of one that has ended, or that one again.
    fn start_instead(
        &self,
        name: &str,
        checked: CheckedJob,
        before: CheckedJob,
    ) -> Result<Arc<RunningJob>, ControlError> {
        let start = |job| self.starting.start(&self.node, job, |job| self.add(Arc::clone(job)));
        start(checked).map_err(|error| {
            let what = match start(before) {
                Ok(_) => format!("job {name:?}, which was to be replaced, runs on"),
                Err(again) => {
                    format!("nor does job {name:?} start, which was to be replaced: {}", again.chain())
                }
            };
            error.context(what).into()
        })
    }

    /// Runs `work` on the queries of an operator of a job that runs, or, where it only reads, is read-only.
    fn with_queries<T>(
        &self,
        path: &QueryPath,
        reads: bool,
        work: impl FnOnce(&RunningJob, &LiveQueries) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let job = self.find(&path.job)?;
        let queries = job
            .queries(&path.operator)
            .ok_or_else(|| not_found(Kind::Operator, &path.operator, job.queried()))?;
        if !(reads && job.is_read_only()) {
            self.refuse_ended(&job)?;
        }
        work(&job, queries)
    }

    /// A job file of a request for the job of this name.
    fn checked(&self, name: &str, file: &str, format: FileFormat) -> Result<CheckedJob, ControlError> {
        let shown = match format {
            FileFormat::Yaml => "the body (YAML)",
            FileFormat::Json => "the body (JSON)",
        };
        let options = CheckOptions { reach: self.reach.clone(), ..self.node.check_options().clone() };
        let checked =
            JobFile::parse(shown, file, &[]).and_then(|file| file.check(&options)).map_err(mistaken)?;
        if *checked.name == *name {
            return Ok(checked);
        }
        let message = format!("the job file names the job {:?}, the path {name:?}", checked.name);
        Err(Error::user(message).with_hint("give both the same name").into())
    }
}

impl Control for NodeControl {
    fn readiness(&self) -> Readiness {
        let readiness = self.readiness.load(Ordering::Relaxed);
        let all = [Readiness::Starting, Readiness::Ready, Readiness::Draining];
        match all.into_iter().find(|one| *one as u8 == readiness) {
            Some(Readiness::Ready) if self.cluster.get().is_some_and(|cluster| !cluster.has_read()) => {
                Readiness::Starting
            }
            readiness => readiness.unwrap_or(Readiness::Starting),
        }
    }

    fn failed(&self) -> Vec<FailedJob> {
        let jobs = self.jobs_ref();
        let failed = jobs.values().filter_map(|job| match job.state() {
            JobState::Failed(failure) => Some(FailedJob {
                name: job.name().to_string(),
                is_read_only: job.is_read_only(),
                why: failure.for_everybody(),
            }),
            _ => None,
        });
        failed.collect()
    }

    fn unopened(&self) -> Vec<String> {
        let Some(cluster) = self.cluster.get() else { return Vec::new() };
        let doors = cluster.doors();
        let mut awaited = self.awaited();
        awaited.retain(|name| !doors.iter().any(|(known, _)| known == name));
        let closed = doors.into_iter().filter(|(_, is_open)| !is_open).map(|(name, _)| name);
        closed.chain(awaited.iter().cloned()).collect()
    }

    fn ingress(&self, job: &str, source: &str) -> Result<Arc<dyn Ingress>, ControlError> {
        let served = self.find(job)?;
        let door = served.ingress(source).cloned().ok_or_else(|| {
            let sources = served.checked().sources.iter().map(|source| &source.name);
            not_found(Kind::Source, source, sources.filter(|name| served.ingress(name).is_some()))
        })?;
        self.refuse_ended(&served)?;
        Ok(door)
    }

    fn jobs(&self) -> Vec<JobSnapshot> {
        let jobs: Vec<Arc<RunningJob>> = self.jobs_ref().values().cloned().collect();
        jobs.iter().map(|served| snapshot(served)).collect()
    }

    fn job(&self, job: &str) -> Result<JobSnapshot, ControlError> {
        Ok(snapshot(&*self.find(job)?))
    }

    fn start(&self, name: &str, file: &str, format: FileFormat) -> Result<JobSnapshot, ControlError> {
        let checked = self.checked(name, file, format)?;
        if let Some(cluster) = self.cluster() {
            cluster.run(&checked, Change::Start)?;
            return self.job(name);
        }
        if let Some(known) = self.jobs_ref().get(name)
            && !known.state().is_final()
        {
            return Err(ControlError::Exists { kind: Kind::Job, name: name.to_owned() });
        }
        let job = self.starting.start(&self.node, checked, |job| self.add(Arc::clone(job)))?;
        Ok(snapshot(&job))
    }

    fn replace(
        &self,
        name: &str,
        file: &str,
        format: FileFormat,
    ) -> Result<(JobSnapshot, bool), ControlError> {
        let checked = self.checked(name, file, format)?;
        if let Some(cluster) = self.cluster() {
            let was_there = cluster.run(&checked, Change::Replace)?;
            return Ok((self.job(name)?, was_there));
        }
        let known = self.jobs_ref().get(name).cloned().filter(|job| !job.state().is_final());
        let Some(old) = known else {
            let job = self.starting.start(&self.node, checked, |job| self.add(Arc::clone(job)))?;
            return Ok((snapshot(&job), false));
        };
        if !self.node.is_temporary() {
            foretell(checked.clone(), self.node.data_dir())?;
        }
        let before = old.checked().clone();
        drop(old);
        if !self.replaced().insert(name.to_owned()) {
            return Err(ControlError::Replaced { job: name.to_owned() });
        }
        let outcome = self.stop(name, Stop::Drain).and_then(|_| self.start_instead(name, checked, before));
        self.replaced().remove(name);
        outcome.map(|job| (snapshot(&job), true))
    }

    fn stop(&self, name: &str, how: Stop) -> Result<StopSummary, ControlError> {
        if let Some(cluster) = self.cluster() {
            return self.stop_everywhere(&*cluster, name, how);
        }
        if self.starting.give_up(name) {
            return Ok(nothing_taken());
        }
        let served = self.find(name)?;
        // Before the job can end, so that a caller that waits for the end knows why.
        self.has_stopped.store(true, Ordering::Release);
        match how {
            Stop::Drain => served.drain(),
            Stop::Abort => served.abort(),
        }
        let end = served.wait();
        // Another request may have stopped it meanwhile, and a third one started it again.
        let mut jobs = self.jobs_mut();
        let is_listed = jobs.get(name).is_some_and(|listed| Arc::ptr_eq(listed, &served));
        if is_listed {
            jobs.remove(name);
            let is_known = self.node.job(name).is_some_and(|known| Arc::ptr_eq(&known, &served));
            if is_known && let Err(error) = self.node.remove(name) {
                tracing::warn!(job = name, error = %error.chain(), "ended job not removed");
            }
        }
        Ok(summary(&end))
    }

    fn present(
        &self,
        query: &QueryPath,
        key: &[KeyField],
        plan: Option<Offset>,
    ) -> Result<Found, ControlError> {
        let key: Vec<(String, Option<String>)> =
            key.iter().map(|field| (field.name.clone(), field.value.clone())).collect();
        let here = |value: PresentValue| Present { key: value.key, values: value.values, as_of: value.as_of };
        if let Some(cluster) = self.cluster() {
            let QueryPath { job, operator, query } = query;
            return Ok(match cluster.present(job, operator, query, &key, plan)? {
                cluster_view::Present::Here(value) => Found::Here(here(value)),
                cluster_view::Present::Elsewhere { node, address, plan } => {
                    Found::Elsewhere { node, address, plan }
                }
            });
        }
        self.with_queries(query, true, |job, queries| {
            let value = queries
                .read(job.job(), &query.query, &key)
                .map_err(|error| ControlError::of_query(error, ""))?;
            Ok(Found::Here(here(value)))
        })
    }

    fn add_query(&self, query: &QueryPath, sql: &str) -> Result<(), ControlError> {
        if let Some(cluster) = self.cluster() {
            let QueryPath { job, operator, query } = query;
            return cluster.change_query(job, operator, query, Some(sql)).map_err(|error| match error {
                NotDone::Query(error) => ControlError::of_query(error, sql),
                other => other.into(),
            });
        }
        self.with_queries(query, false, |job, queries| {
            queries.add(job.job(), &query.query, sql).map_err(|error| ControlError::of_query(error, sql))
        })
    }

    fn drop_query(&self, query: &QueryPath) -> Result<(), ControlError> {
        if let Some(cluster) = self.cluster() {
            let QueryPath { job, operator, query } = query;
            return Ok(cluster.change_query(job, operator, query, None)?);
        }
        self.with_queries(query, false, |job, queries| {
            queries.drop(job.job(), &query.query).map_err(|error| ControlError::of_query(error, ""))
        })
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterView>> {
        self.cluster.get().cloned()
    }
}

/// Of a job that was ended before it took anything.
fn nothing_taken() -> StopSummary {
    StopSummary { state: State::Aborted, records: 0, answers: 0, rejects: 0, elapsed: Duration::ZERO }
}

fn summary(end: &JobEnd) -> StopSummary {
    StopSummary {
        state: State::from(&end.state),
        records: end.summary.records,
        answers: end.summary.answers,
        rejects: end.summary.rejects,
        elapsed: end.summary.elapsed,
    }
}

fn not_found<'a>(kind: Kind, name: &str, known: impl Iterator<Item = &'a Arc<str>>) -> ControlError {
    ControlError::NotFound {
        kind,
        name: name.to_owned(),
        known: known.map(|name| name.to_string()).collect(),
    }
}

/// A job that has ended is still shown, but takes nothing; nor does one that is read-only.
fn refuse_ended(job: &RunningJob) -> Result<(), ControlError> {
    let how = match job.state() {
        JobState::Running | JobState::Draining => return Ok(()),
        JobState::Failed(failure) if job.is_read_only() => {
            return Err(ControlError::ReadOnly {
                job: job.name().to_string(),
                failure: failure.for_everybody(),
                hint: failure.error.and_then(|error| error.hint),
            });
        }
        JobState::Done => "is done".to_owned(),
        JobState::Failed(failure) => format!("has failed: {}", failure.for_everybody()),
        JobState::Aborted => "was aborted".to_owned(),
    };
    Err(ControlError::Conflict {
        message: format!("job {:?} {how}", job.name()),
        hint: Some("start it again with POST /v1/jobs/{job}".to_owned()),
    })
}

fn mistaken(diagnostics: Diagnostics) -> ControlError {
    let mistakes = diagnostics
        .0
        .into_iter()
        .filter(|diagnostic| !diagnostic.warning)
        .map(|diagnostic| Mistake {
            line: diagnostic.line,
            column: diagnostic.column,
            text: diagnostic.text,
            message: diagnostic.message,
            expected: diagnostic.expected,
            hint: diagnostic.hint,
        })
        .collect();
    ControlError::Mistakes { of: TextKind::JobFile, mistakes }
}

/// The runtime's view of a job, with facts from its job file.
fn snapshot(job: &RunningJob) -> JobSnapshot {
    let checked = job.checked();
    let mut shown = JobSnapshot::from_flow(job.name(), &job.state(), &job.stats());
    let summary = job.summary();
    shown.uptime = summary.elapsed;
    shown.answers = summary.answers;
    shown.rejects = summary.rejects;
    shown.rejects_removed = job.rejects().removed().bytes;
    shown.commits = job.cycles().map(|cycles| Commits {
        cycle: cycles.committed,
        took: cycles.took,
        held_back: cycles.held_back,
        held_back_for: cycles.held_back_for,
    });
    let rejects = job.rejects().by_source();
    for source in &mut shown.sources {
        let name = source.name.as_str();
        // Late ones are rejected further down, and written with the name of their source.
        let written: u64 = rejects.get(name).map_or(0, |codes| codes.values().sum());
        source.rejects = source.rejects.max(written);
        source.has_door = job.ingress(name).is_some();
        source.address = job.address(name);
        source.connections = job.connections(name).cloned();
        if let Some(checked) = checked.sources.iter().find(|checked| *checked.name == *name) {
            checked.plugin.name().clone_into(&mut source.kind);
        }
    }
    for operator in &mut shown.operators {
        let name = operator.name.as_str();
        let kind_of = |name: &str| {
            let found = checked.operators.iter().find(|checked| *checked.name == *name);
            found.map_or("", |checked| checked.plugin.name())
        };
        operator.kind = match job.role(name) {
            Some(Role::Sink(place)) => {
                let sink = &checked.sinks[*place];
                operator.is_sink = true;
                if sink.plugin.expires(&sink.options) {
                    operator.expired = Some(job.sinks()[*place].1.expired());
                }
                operator.delivery = job.sinks()[*place].1.delivery();
                sink.plugin.name().to_owned()
            }
            Some(Role::Operator(PartName { operator, label: None })) => kind_of(operator).to_owned(),
            Some(Role::Operator(PartName { operator, label: Some(_) }) | Role::InputOf(operator)) => {
                format!("{}/part", kind_of(operator))
            }
            // A reject has the time of its arrival, which says nothing about lag.
            Some(Role::InputOfSink) => without_lag(operator, "input"),
            Some(Role::Replies) => without_lag(operator, "reply"),
            Some(Role::Rejects) | None => without_lag(operator, "rejects"),
        };
        if let Some(queries) = job.queries(operator.name.as_str()) {
            let listed = queries.list().into_iter();
            operator.queries = listed.map(|(name, text)| QuerySnapshot { name, text }).collect();
            let dropped = queries.dropped().into_iter();
            operator.dropped = dropped
                .map(|DroppedQuery { name, text, said }| DroppedSnapshot { name, text, said })
                .collect();
        }
    }
    // An operator of several parts is as far as those.
    let parts: Vec<(Arc<str>, Micros)> = shown
        .operators
        .iter()
        .filter_map(|part| match job.role(&part.name)? {
            Role::Operator(PartName { operator, label: Some(_) }) => {
                Some((Arc::clone(operator), part.task_time?))
            }
            _ => None,
        })
        .collect();
    for operator in &mut shown.operators {
        let own = parts.iter().filter(|(owner, _)| **owner == *operator.name).map(|(_, time)| *time);
        operator.task_time = operator.task_time.max(own.max());
    }
    shown
}

fn without_lag(operator: &mut OperatorSnapshot, kind: &str) -> String {
    operator.lag = None;
    kind.to_owned()
}
