//! One process: many jobs on one set of workers, each in its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_connect::absent::Absent;
use thalweg_connect::sink::rejects::RejectCounts;
use thalweg_connect::source::connections::ConnectionCounts;
use thalweg_connect::{FormatPlugin, Ingress, Reach, Registry, SinkPlugin, SinkReport, SourcePlugin};
use thalweg_flow::{
    Clock, Job, JobFailure, JobState, JobStats, OperatorStats, Partitioner, Runtime, SystemClock,
};
use thalweg_storage::{Fs, IoPool, RealFs, failed_sync};
#[cfg(feature = "tables")]
use thalweg_table::{Catalog, TablePlugin, Tables};
use thalweg_types::{Class, Error};

#[cfg(feature = "cluster")]
use crate::cluster::{Actors, Ids, random_ids};
use crate::data_dir::{DataDir, JobDir};
use crate::drop_query::DropQuery;
use crate::durable::{Busy, CommitThread, Committer, CycleFigures};
use crate::graph::{Outside, Role};
use crate::job_file::check::PARTITIONINGS;
use crate::job_file::{CheckOptions, CheckedJob, Endpoint};
use crate::left_out::LeftOut;
use crate::operator::{AnswerCounts, OperatorPlugin, Operators};
use crate::queries::LiveQueries;
use crate::skip::Skip;
use crate::starting::Opened;
#[cfg(feature = "tables")]
use crate::tables::{ClusterTables, CommittedTables, NodeTables};

/// Reservoirs write in the background and read ahead; more threads than these do not make a disk faster.
const IO_THREADS: usize = 2;

/// How long a job may take to end that is started again.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a node is opened.
pub struct NodeOptions {
    /// `None`: a temporary folder that goes away with the node.
    pub data_dir: Option<PathBuf>,
    pub workers: usize,
    pub registry: Registry,
    /// Where the sink `table` of `registry` makes its tables known.
    #[cfg(feature = "tables")]
    pub tables: Arc<Tables>,
    pub operators: Operators,
    pub clock: Arc<dyn Clock>,
    /// Threads that read and write state in the background; 0: a worker does it when it has to.
    pub io_threads: usize,
    /// Who calls the parts of the node that take part in a cluster.
    #[cfg(feature = "cluster")]
    pub actors: Actors,
    /// Tells this process and its doors apart from others of the cluster.
    #[cfg(feature = "cluster")]
    pub ids: Ids,
    /// Where commits and state of jobs go; tests count and fail its calls.
    pub fs: Arc<dyn Fs>,
    pub read_only_when_full: bool,
    pub begins_anew: bool,
}

impl Default for NodeOptions {
    fn default() -> Self {
        let mut registry = Registry::builtin();
        #[cfg(feature = "tables")]
        let tables = Arc::new(Tables::default());
        #[cfg(feature = "tables")]
        registry.add_sink(TablePlugin { tables: Arc::clone(&tables) });
        #[cfg(not(feature = "tables"))]
        registry.add_absent_sink(Absent { name: "table", feature: "tables" });
        Self {
            data_dir: None,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            registry,
            #[cfg(feature = "tables")]
            tables,
            operators: Operators::builtin(),
            clock: Arc::new(SystemClock),
            io_threads: IO_THREADS,
            #[cfg(feature = "cluster")]
            actors: Actors::default(),
            #[cfg(feature = "cluster")]
            ids: random_ids(),
            fs: Arc::new(RealFs),
            read_only_when_full: false,
            begins_anew: false,
        }
    }
}

impl NodeOptions {
    #[must_use]
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Deletes the state that a store on another machine has of a job whose data directory knows nothing of it; without
    /// this such a job does not start.
    #[must_use]
    pub fn begin_anew(mut self, begins_anew: bool) -> Self {
        self.begins_anew = begins_anew;
        self
    }

    /// Keeps a job to be read that fails because a disk is full ([`RunningJob::is_read_only`]); without this it ends.
    #[must_use]
    pub fn read_only_when_full(mut self, stays: bool) -> Self {
        self.read_only_when_full = stays;
        self
    }

    /// Adds a kind of source; job files name it by `type`.
    #[must_use]
    pub fn source(mut self, plugin: impl SourcePlugin + 'static) -> Self {
        self.registry.add_source(plugin);
        self
    }

    /// A source in place of ours of that name, such as one that reads another log.
    #[must_use]
    pub fn replace_source(mut self, plugin: impl SourcePlugin + 'static) -> Self {
        self.registry.replace_source(plugin);
        self
    }

    /// A sink in place of ours of that name.
    #[must_use]
    pub fn replace_sink(mut self, plugin: impl SinkPlugin + 'static) -> Self {
        self.registry.replace_sink(plugin);
        self
    }

    #[must_use]
    pub fn sink(mut self, plugin: impl SinkPlugin + 'static) -> Self {
        self.registry.add_sink(plugin);
        self
    }

    #[must_use]
    pub fn format(mut self, plugin: impl FormatPlugin + 'static) -> Self {
        self.registry.add_format(plugin);
        self
    }

    #[must_use]
    pub fn operator(mut self, plugin: impl OperatorPlugin + 'static) -> Self {
        self.operators.add(plugin);
        self
    }

    /// Adds a partitioning; job files name it by `partition`.
    #[must_use]
    pub fn partitioner(mut self, name: impl Into<String>, partitioner: Arc<dyn Partitioner>) -> Self {
        self.operators.add_partitioner(name, partitioner);
        self
    }

    /// What job files are checked against.
    pub fn check_options(&self) -> CheckOptions {
        CheckOptions {
            registry: self.registry.clone(),
            operators: self.operators.clone(),
            workers: u32::try_from(self.workers).unwrap_or(u32::MAX).max(1),
            reach: Reach::anything(),
        }
    }

    /// Checks the plug-ins: a job file must mean one of them by each name.
    ///
    /// # Errors
    /// Of class user, for a plug-in with the name of another one of its kind, built in or not.
    pub fn check_plugins(&self) -> Result<(), Error> {
        let registry = &self.registry;
        let absent = |absent: &[Absent]| absent.iter().map(|absent| absent.name).collect::<Vec<_>>();
        let (no_sources, no_sinks) = (absent(registry.absent_sources()), absent(registry.absent_sinks()));
        let kinds: [(&str, Vec<&str>); 5] = [
            ("a source", registry.sources().iter().map(|plugin| plugin.name()).chain(no_sources).collect()),
            ("a sink", registry.sinks().iter().map(|plugin| plugin.name()).chain(no_sinks).collect()),
            ("a format", registry.formats().iter().map(|plugin| plugin.name()).collect()),
            ("an operator", self.operators.all().iter().map(|plugin| plugin.name()).collect()),
            (
                "a partitioner",
                PARTITIONINGS.into_iter().chain(["key"]).chain(self.operators.partitioner_names()).collect(),
            ),
        ];
        for (kind, names) in kinds {
            let twice = (1..names.len()).find(|at| names[..*at].contains(&names[*at]));
            if let Some(at) = twice {
                let message = format!("expected a new name for {kind}, got {:?}, which is taken", names[at]);
                return Err(Error::user(message)
                    .with_hint(format!("give it a name of its own; taken are {}", names[..at].join(", "))));
            }
        }
        Ok(())
    }

    /// Opens the node.
    ///
    /// # Errors
    /// If the data directory cannot be made or another process has it, and what [`NodeOptions::check_plugins`] says.
    pub fn open(self) -> Result<Node, Error> {
        self.check_plugins()?;
        let check = self.check_options();
        let dir = DataDir::open(self.data_dir.as_deref())?;
        Ok(Node {
            site: Site {
                runtime: Runtime::new(self.workers, Arc::clone(&self.clock)),
                pool: IoPool::new(self.io_threads),
                busy: Arc::default(),
                #[cfg(feature = "cluster")]
                clock: self.clock,
                #[cfg(feature = "cluster")]
                actors: self.actors,
                #[cfg(feature = "cluster")]
                ids: self.ids,
                fs: self.fs,
                read_only_when_full: self.read_only_when_full,
                begins_anew: self.begins_anew,
            },
            check,
            jobs: Mutex::default(),
            opening: Mutex::default(),
            #[cfg(feature = "tables")]
            tables: self.tables,
            #[cfg(feature = "tables")]
            cluster_tables: ClusterTables::default(),
            dir,
        })
    }
}

/// A process that runs jobs. Dropping it ends them at once; see [`Node::drain`].
pub struct Node {
    /// Dropped first: its tasks use the folder.
    site: Site,
    check: CheckOptions,
    /// By name; ended ones stay until they are removed or started again. Held for moments.
    jobs: Mutex<BTreeMap<Arc<str>, Arc<RunningJob>>>,
    /// Names of jobs that are being opened, which may take for ever: a disk that does not answer, a pipe without a reader.
    opening: Mutex<BTreeSet<Arc<str>>>,
    #[cfg(feature = "tables")]
    tables: Arc<Tables>,
    #[cfg(feature = "tables")]
    cluster_tables: ClusterTables,
    dir: DataDir,
}

/// What all jobs of a node share.
pub(crate) struct Site {
    /// Dropped first: its tasks use the pool.
    pub(crate) runtime: Runtime,
    pub(crate) pool: Arc<IoPool>,
    /// Commits that are under way.
    pub(crate) busy: Arc<Busy>,
    #[cfg(feature = "cluster")]
    pub(crate) clock: Arc<dyn Clock>,
    #[cfg(feature = "cluster")]
    pub(crate) actors: Actors,
    #[cfg(feature = "cluster")]
    pub(crate) ids: Ids,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) read_only_when_full: bool,
    pub(crate) begins_anew: bool,
}

impl Node {
    pub fn builder() -> NodeOptions {
        NodeOptions::default()
    }

    /// What job files are checked against.
    pub fn check_options(&self) -> &CheckOptions {
        &self.check
    }

    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Whether its workers sleep and no commit goes on: then nothing happens before something comes from outside, or time
    /// passes. For nodes with [`NodeOptions::io_threads`] 0.
    pub fn is_at_rest(&self) -> bool {
        let naps = self.site.runtime.naps();
        // What a commit wakes after this look, or a worker gives to a commit before it, the second look shows.
        naps.is_some() && self.site.busy.is_none() && naps == self.site.runtime.naps()
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Starts the part of a job where records enter; [`Node::show`] adds it to the list. It keeps nothing but rejects, in a
    /// folder of its own.
    ///
    /// # Errors
    /// As [`Node::start`].
    #[cfg(feature = "cluster")]
    pub(crate) fn start_door(&self, name: &str, job: CheckedJob) -> Result<Arc<RunningJob>, Error> {
        let opened = Opened::unkept(self.dir.job(name)?.door()?);
        let wired =
            opened.adopt(job, &[])?.wire(&self.site, None, &[]).map_err(|error| match is_taken(&error) {
                true => error.context(TAKEN),
                false => error,
            })?;
        Ok(Arc::new(wired.run(|| Err(Error::internal("a door commits nothing")))?))
    }

    /// Adds a job to the list.
    #[cfg(feature = "cluster")]
    pub(crate) fn show(&self, job: &Arc<RunningJob>) {
        self.jobs().insert(Arc::clone(job.name()), Arc::clone(job));
    }

    /// The folder of a job, made where it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    #[cfg(feature = "cluster")]
    pub(crate) fn folder_of(&self, job: &str) -> Result<JobDir, Error> {
        self.dir.job(job)
    }

    /// The tables of its jobs: those of running jobs with their fresh rows, of all others the committed rows.
    ///
    /// # Errors
    /// If its folder has gone.
    #[cfg(feature = "tables")]
    pub fn tables(&self) -> Result<Arc<dyn Catalog>, Error> {
        let committed = CommittedTables::open(self.dir.path())?;
        let (running, cluster) = (Arc::clone(&self.tables), Arc::clone(&self.cluster_tables));
        Ok(Arc::new(NodeTables { running, committed, cluster }))
    }

    /// The tables of jobs that run now.
    #[cfg(all(feature = "cluster", feature = "tables"))]
    pub(crate) fn running_tables(&self) -> Arc<Tables> {
        Arc::clone(&self.tables)
    }

    /// Has [`Node::tables`] have those of a cluster, too.
    #[cfg(all(feature = "cluster", feature = "tables"))]
    pub(crate) fn show_cluster_tables(&self, tables: Arc<dyn Catalog>) {
        let _ = self.cluster_tables.set(tables);
    }

    /// Whether everything is gone when the node is dropped.
    pub fn is_temporary(&self) -> bool {
        self.dir.is_temporary()
    }

    /// Starts a job; `skips` are records that it leaves out. May wait for as long as the files and services of the job
    /// take to be opened, and holds up no other job meanwhile.
    ///
    /// # Errors
    /// If a job of this name runs or is being started, a sync has failed in this process ([`failed_sync`]), or the
    /// error of a source or a sink when it is opened.
    pub fn start(&self, job: CheckedJob, skips: &[Skip]) -> Result<Arc<RunningJob>, Error> {
        self.start_without(job, skips, &[])
    }

    /// As [`Node::start`], without some queries: one that was added while the job ran is gone for good, one of the job
    /// file is left out of this run.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_without(
        &self,
        job: CheckedJob,
        skips: &[Skip],
        dropped: &[DropQuery],
    ) -> Result<Arc<RunningJob>, Error> {
        let name = Arc::clone(&job.name);
        let _opening = Opening::begin(self, &name)?;
        if let Some(said) = failed_sync() {
            return Err(Error::external(format!("nothing is written any more after {said}"))
                .with_hint("look for the cause (disk, mount), then start the process again"));
        }
        if let Some(known) = self.job(&job.name) {
            if !known.state().is_final() {
                return Err(Error::user(format!("a job {:?} is running already", job.name))
                    .with_hint("end it first, or give this one another name"));
            }
            // One that is read-only ends here; whatever ends, its files are closed before they are opened again.
            known.abort();
            if known.wait_timeout(PATIENCE).is_none() {
                return Err(Error::external(format!(
                    "job {:?} does not end: a call to the disk does not return",
                    job.name
                ))
                .with_hint("try again; or look for the cause (disk, mount), then start the process again"));
            }
        }
        let opened = match self.dir.is_temporary() {
            true => Opened::unkept(self.dir.job(&name)?),
            false => Opened::kept(&name, self.dir.job(&name)?, &self.site.fs)?,
        };
        let adopted = opened.adopt(job, dropped)?;
        let wired = adopted.wire(&self.site, None, skips)?;
        let running = wired
            .run(|| CommitThread::start(format!("commit:{name}"), &self.site.busy).map(Arc::new))
            .map(Arc::new)?;
        self.jobs().insert(name, Arc::clone(&running));
        Ok(running)
    }

    /// All jobs by name, ended ones too.
    pub fn list(&self) -> Vec<Arc<RunningJob>> {
        self.jobs().values().cloned().collect()
    }

    /// Whether a job is being opened; it is in the list when this says no again.
    pub fn is_opening(&self) -> bool {
        !self.opening.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub fn job(&self, name: &str) -> Option<Arc<RunningJob>> {
        self.jobs().get(name).cloned()
    }

    /// Forgets a job that has ended; one that runs is kept and given back.
    ///
    /// # Errors
    /// If there is no such job, or it has not ended.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let mut jobs = self.jobs();
        match jobs.get(name) {
            None => Err(Error::user(format!("there is no job {name:?}"))),
            Some(job) if !job.state().is_final() => {
                Err(Error::user(format!("job {name:?} has not ended")).with_hint("drain it first"))
            }
            Some(_) => {
                jobs.remove(name);
                Ok(())
            }
        }
    }

    /// Asks every job for its orderly end.
    pub fn drain(&self) {
        for job in self.list() {
            job.drain();
        }
    }

    /// Ends every job at once.
    pub fn abort(&self) {
        for job in self.list() {
            job.abort();
        }
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<RunningJob>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job that is being opened: nobody else opens one of its name.
struct Opening<'a> {
    node: &'a Node,
    name: Arc<str>,
}

impl<'a> Opening<'a> {
    /// # Errors
    /// If one is.
    fn begin(node: &'a Node, name: &Arc<str>) -> Result<Self, Error> {
        let mut opening = node.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if !opening.insert(Arc::clone(name)) {
            return Err(Error::user(format!("a job {name:?} is being started already")).with_hint(
                "wait for it; where it waits for a disk or a pipe, give this one another name, or end the process",
            ));
        }
        Ok(Self { node, name: Arc::clone(name) })
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut opening = self.node.opening.lock().unwrap_or_else(PoisonError::into_inner);
        opening.remove(&self.name);
    }
}

/// A job that has been started.
pub struct RunningJob {
    pub(crate) checked: CheckedJob,
    pub(crate) folder: JobDir,
    pub(crate) job: Job,
    pub(crate) outside: Outside,
    pub(crate) answers: AnswerCounts,
    /// `None` where the job does not outlive its process.
    pub(crate) committer: Option<Arc<Committer>>,
    /// Queries of each operator that has any.
    pub(crate) queries: Arc<BTreeMap<Arc<str>, LiveQueries>>,
    pub(crate) started: Instant,
    /// How long it ran, once its end was seen.
    pub(crate) ended: Mutex<Option<Duration>>,
}

impl RunningJob {
    pub fn name(&self) -> &Arc<str> {
        &self.checked.name
    }

    /// The job as it was checked: its graph, schemas and queries.
    pub fn checked(&self) -> &CheckedJob {
        &self.checked
    }

    pub fn folder(&self) -> &JobDir {
        &self.folder
    }

    /// The runtime's handle: state, commands.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The queries of an operator, to be added to, dropped and read while it runs.
    pub fn queries(&self, operator: &str) -> Option<&LiveQueries> {
        self.queries.get(operator)
    }

    /// Names of the operators that have queries.
    pub fn queried(&self) -> impl Iterator<Item = &Arc<str>> {
        self.queries.keys()
    }

    /// What an operator of the graph is in the job file, by its name in [`RunningJob::stats`].
    pub fn role(&self, operator: &str) -> Option<&Role> {
        self.outside.roles.get(operator)
    }

    /// How cycles are committed; `None` where nothing is kept.
    pub fn cycles(&self) -> Option<CycleFigures> {
        self.committer.as_ref().map(|committer| committer.figures())
    }

    /// The door of an HTTP source.
    pub fn ingress(&self, source: &str) -> Option<&Arc<dyn Ingress>> {
        self.outside.ingresses.get(source)
    }

    /// What takes answers that come from elsewhere.
    #[cfg(feature = "cluster")]
    pub(crate) fn answers(&self) -> Vec<Arc<dyn thalweg_connect::Answers>> {
        self.outside.answers.values().cloned().collect()
    }

    /// Where a listening source can be reached.
    pub fn address(&self, source: &str) -> Option<SocketAddr> {
        self.outside.addresses.get(source).copied()
    }

    /// All sources that listen, by name.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, SocketAddr)> {
        self.outside.addresses.iter().map(|(source, address)| (&**source, *address))
    }

    /// How many connections a source has, where it takes any.
    pub fn connections(&self, source: &str) -> Option<&Arc<ConnectionCounts>> {
        self.outside.connections.get(source)
    }

    /// What each sink has taken, by its name.
    pub fn sinks(&self) -> &[(Arc<str>, SinkReport)] {
        &self.outside.sinks
    }

    pub fn rejects(&self) -> &RejectCounts {
        &self.outside.rejects
    }

    pub fn state(&self) -> JobState {
        self.job.state()
    }

    /// Whether it has failed for want of room on a disk and stays to be read: it takes no records and changes nothing,
    /// and answers for present values until it is drained, aborted, or started again.
    pub fn is_read_only(&self) -> bool {
        self.job.is_read_only()
    }

    pub fn stats(&self) -> JobStats {
        self.job.stats()
    }

    /// Orderly end: takes no new records; those in flight go to their sinks.
    pub fn drain(&self) {
        self.job.drain();
    }

    /// Ends the job at once; records in flight are dropped.
    pub fn abort(&self) {
        self.job.abort();
    }

    /// Waits for the end.
    pub fn wait(&self) -> JobEnd {
        JobEnd { state: self.note_end(self.job.wait()), summary: self.summary() }
    }

    /// Waits at most this long; `None` where the job has not ended by then.
    pub fn wait_timeout(&self, limit: Duration) -> Option<JobEnd> {
        let state = self.job.wait_timeout(limit)?;
        Some(JobEnd { state: self.note_end(state), summary: self.summary() })
    }

    /// The counts so far.
    pub fn summary(&self) -> Summary {
        let stats = self.stats();
        let ended = *self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let rejects = self.outside.rejects.total();
        let answers = match &self.outside.answering {
            Some(operators) => operators.iter().map(|operator| self.answers.get(operator)).sum(),
            None => self.records_in_sinks(&stats),
        };
        Summary {
            records: stats.records,
            answers,
            rejects,
            left_out: LeftOut::of(&stats),
            elapsed: ended.unwrap_or_else(|| self.started.elapsed()),
        }
    }

    /// What sinks took; of those that read the same, the one that is ahead counts.
    fn records_in_sinks(&self, stats: &JobStats) -> u64 {
        let mut streams: Vec<(Vec<Endpoint>, u64)> = Vec::new();
        for (sink, (name, _)) in self.checked.sinks.iter().zip(&self.outside.sinks) {
            let operator = stats.operators.iter().find(|operator| operator.name == *name);
            // What a sink emits are the records that it could not write.
            let taken = |sink: &OperatorStats| {
                sink.tasks.iter().map(|task| task.records_in.saturating_sub(task.records_out)).sum()
            };
            let taken = operator.map_or(0, taken);
            let inputs: Vec<Endpoint> = sink.inputs.iter().map(|input| input.endpoint).collect();
            match streams.iter_mut().find(|(read, _)| *read == inputs) {
                Some((_, most)) => *most = taken.max(*most),
                None => streams.push((inputs, taken)),
            }
        }
        streams.iter().map(|(_, taken)| taken).sum()
    }

    fn note_end(&self, state: JobState) -> JobState {
        self.ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(|| self.started.elapsed());
        state
    }
}

/// How a job ended, and its counts by then.
#[derive(Clone, Debug)]
pub struct JobEnd {
    pub state: JobState,
    pub summary: Summary,
}

impl JobEnd {
    /// The failure, where there was one.
    pub fn failure(&self) -> Option<&JobFailure> {
        match &self.state {
            JobState::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Whose fault it was; a panic is ours.
    pub fn class(&self) -> Option<Class> {
        self.failure().map(|failure| failure.error.as_ref().map_or(Class::Internal, |error| error.class))
    }
}

/// What a node of a cluster says of a source that cannot listen.
#[cfg(feature = "cluster")]
const TAKEN: &str = "another process listens there, maybe another node on this machine; port 0 gives each node a port of its own";

/// Whether somebody else has an address.
#[cfg(feature = "cluster")]
fn is_taken(error: &Error) -> bool {
    let first = std::error::Error::source(error);
    let mut causes = std::iter::successors(first, |cause| cause.source());
    causes.any(|cause| {
        cause
            .downcast_ref()
            .is_some_and(|error: &std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse)
    })
}

/// What a job has done.
///
/// Answers are those of the last operators before sinks and replies that answer each record, as `metrics` does: those that
/// only feed another such operator do not count, and an answer that several sinks take counts once. Where no operator of a
/// job answers, they are the records that reached its sinks, once for sinks that read the same. Rejects are those of sources and operators.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    pub records: u64,
    pub answers: u64,
    pub rejects: u64,
    /// What never became a record, nor a reject, of sources that count it, by kind.
    pub left_out: LeftOut,
    pub elapsed: Duration,
}

impl Summary {
    /// The counts of both, over the longer time.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            records: self.records + other.records,
            answers: self.answers + other.answers,
            rejects: self.rejects + other.rejects,
            left_out: self.left_out.and(other.left_out),
            elapsed: self.elapsed.max(other.elapsed),
        }
    }

    /// Records per second.
    pub fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.records as f64 / seconds } else { 0.0 }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "records={} answers={} rejects={} seconds={:.3} rate={:.0}",
            self.records,
            self.answers,
            self.rejects,
            self.elapsed.as_secs_f64(),
            self.rate()
        )?;
        if self.left_out.is_empty() { Ok(()) } else { write!(f, " left_out={}", self.left_out) }
    }
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_address_that_somebody_has_is_found_among_the_causes() {
        let of = |kind: io::ErrorKind| Error::external("listen on tcp").with_source(io::Error::from(kind));
        assert!(is_taken(&of(io::ErrorKind::AddrInUse)));
        assert!(is_taken(&Error::external("open a source").with_source(of(io::ErrorKind::AddrInUse))));
        assert!(!is_taken(&of(io::ErrorKind::PermissionDenied)));
        assert!(!is_taken(&Error::external("listen on tcp")));
    }
}
