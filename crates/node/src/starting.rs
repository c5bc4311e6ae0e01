//! How a job starts: a sequence of states, each of which is made of the one before.
//!
//! | state | what is known | what a failure leaves |
//! |---|---|---|
//! | [`Opened`] | the folder is locked, and its last commit read | nothing was changed, but a torn end was cut |
//! | [`Adopted`] | the job goes on from there, with its queries of the moment | as before, and the job file in the folder |
//! | [`Wired`] | its sources, sinks and tasks are there, its logs are open, and it has a handle | as before: a wired job that is dropped is aborted |
//! | [`RunningJob`] | it is on the disk, and computes | |
//!
//! The folder's lock goes with the state, so no two states of one job exist at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use thalweg_flow::{Durability, NoOrderLog, WiredJob};
use thalweg_state::Interrupt;
use thalweg_storage::{ChunkBudget, Fs};
use thalweg_types::Error;

use crate::backends::Backends;
use crate::continuing::{self, QueryNews};
use crate::data_dir::JobDir;
use crate::drop_query::DropQuery;
use crate::durable::{self, CommitThread, new_run};
use crate::graph::{self, BuiltJob, Outside};
use crate::job_file::CheckedJob;
use crate::memory::Shares;
use crate::node::{RunningJob, Site};
use crate::operator::{AnswerCounts, Services};
use crate::queries::{
    FailingQueries, LiveQueries, command_of, has_queries, with_live_changes, without_queries,
};
use crate::skip::Skip;

/// Memory for chunks where a job does not say.
pub(crate) const CHUNK_MEMORY: u64 = 256 << 20;

/// A folder in which a job is to run.
pub(crate) struct Opened {
    folder: JobDir,
    /// The folder is that of a whole job, and gets its job file.
    is_whole: bool,
    /// `None` where the job does not outlive its process.
    store: Option<durable::Opened>,
}

impl Opened {
    /// For a job that does not outlive its process.
    pub(crate) fn unkept(folder: JobDir) -> Self {
        Self { folder, is_whole: true, store: None }
    }

    /// # Errors
    /// Where another process has the folder; damage, and the disk's errors.
    pub(crate) fn kept(job: &Arc<str>, folder: JobDir, fs: &Arc<dyn Fs>) -> Result<Self, Error> {
        let lock = folder.lock().map_err(|error| error.context(format!("start job {job:?}")))?;
        let store = durable::Opened::open(job, &folder, Arc::clone(fs), new_run())?.locked(lock);
        Ok(Self { folder, is_whole: true, store: Some(store) })
    }

    /// For a part of a job whose folder is in that of the job, and locked with it.
    ///
    /// # Errors
    /// Damage, and the disk's errors.
    #[cfg(feature = "cluster")]
    pub(crate) fn inside(job: &Arc<str>, folder: JobDir, fs: &Arc<dyn Fs>) -> Result<Self, Error> {
        let store = durable::Opened::open(job, &folder, Arc::clone(fs), new_run())?;
        Ok(Self { folder, is_whole: false, store: Some(store) })
    }

    /// Takes a job for the one that goes on here, without the queries that are `dropped`.
    ///
    /// # Errors
    /// Of class user where it has been changed in a way that its state does not survive; the disk's errors.
    pub(crate) fn adopt(self, job: CheckedJob, dropped: &[DropQuery]) -> Result<Adopted, Error> {
        let Self { folder, is_whole, store } = self;
        let dropped: Vec<DropQuery> =
            dropped.iter().filter(|dropped| has_queries(&job, &dropped.operator)).cloned().collect();
        let (job, store) = match store {
            None => (without_queries(job, &dropped), None),
            Some(store) => {
                let left: Vec<_> =
                    store.queries().iter().filter_map(|change| change.without(&dropped)).collect();
                let (job, changes) = with_live_changes(job, &left)?;
                let mut job = without_queries(job, &dropped);
                let store = store.adopt(&job, changes, &dropped)?;
                for QueryNews { operator, query, what } in continuing::news(&job, store.record())? {
                    tracing::warn!(job = %job.name, operator = operator.as_str(), query = query.as_str(), "{what}");
                }
                continuing::go_on(&mut job, store.record());
                (job, Some(store))
            }
        };
        if is_whole {
            folder.keep_job_file(&job.json)?;
        }
        Ok(Adopted { job, folder, store, dropped })
    }
}

/// The job that goes on in a folder.
pub(crate) struct Adopted {
    job: CheckedJob,
    folder: JobDir,
    store: Option<durable::Adopted>,
    dropped: Vec<DropQuery>,
}

impl Adopted {
    /// Opens all that the job names, and makes its tasks, which read their state.
    ///
    /// # Errors
    /// Those of sources, sinks, operators and stores; damage, and the disk's errors.
    ///
    /// `chunks` is memory for chunks that it shares with others; else it has its own.
    pub(crate) fn wire(
        self,
        site: &Site,
        chunks: Option<Arc<ChunkBudget>>,
        skips: &[Skip],
    ) -> Result<Wired, Error> {
        let Self { job, folder, mut store, dropped } = self;
        let interrupt = Interrupt::default();
        let backends = match &store {
            None => Backends::unused(&job.state),
            Some(store) => {
                Backends::connect(&job.state, interrupt.clone(), site.begins_anew)?.of_run(store.run())
            }
        };
        let services = Services {
            fs: Arc::clone(&site.fs),
            pool: Arc::clone(&site.pool),
            chunks: chunks
                .unwrap_or_else(|| ChunkBudget::new(job.state.chunk_memory.unwrap_or(CHUNK_MEMORY))),
            state: job.state.clone(),
            shares: Shares::of(&job),
            backends,
            answers: AnswerCounts::default(),
            failing: FailingQueries::default(),
            is_held: job.is_held,
        };
        let is_of_job = |skip: &&Skip| job.sources.iter().any(|source| *source.name == *skip.source);
        let skips: Vec<Skip> = skips.iter().filter(is_of_job).cloned().collect();
        let BuiltJob { mut graph, mut options, parts, outside } =
            graph::build(&job, &folder, &services, &skips, store.as_mut())?;
        options.read_only_when_full = site.read_only_when_full;
        let mut queries: BTreeMap<Arc<str>, LiveQueries> = BTreeMap::new();
        for (operator, parts) in job.operators.iter().zip(parts) {
            if let Some(known) = &operator.prepared.queries {
                let live = LiveQueries::new(&operator.name, known, parts)?;
                queries.insert(Arc::clone(&operator.name), live);
            }
        }
        let started = Instant::now();
        let store = store.map(|store| store.restore(&mut graph.sources, interrupt)).transpose()?;
        let durability = store.as_ref().map_or_else(Durability::default, durable::Restored::durability);
        let wired = site.runtime.wire(graph, options, durability)?;
        let Services { answers, failing, .. } = services;
        let queries = Arc::new(queries);
        Ok(Wired { job, folder, store, dropped, answers, failing, outside, queries, wired, started })
    }
}

/// A job that could run.
pub(crate) struct Wired {
    job: CheckedJob,
    folder: JobDir,
    store: Option<durable::Restored>,
    dropped: Vec<DropQuery>,
    answers: AnswerCounts,
    failing: FailingQueries,
    outside: Outside,
    queries: Arc<BTreeMap<Arc<str>, LiveQueries>>,
    wired: WiredJob,
    started: Instant,
}

impl Wired {
    /// Lets the job run; its cycles are committed by a thread that `threads` gives.
    ///
    /// # Errors
    /// The disk's errors, and a lack of threads.
    pub(crate) fn run(
        self,
        threads: impl FnOnce() -> Result<Arc<CommitThread>, Error>,
    ) -> Result<RunningJob, Error> {
        let Self { job: checked, folder, store, dropped, answers, failing, outside, queries, wired, started } =
            self;
        let (job, committer) = match store {
            None => (wired.run(NoOrderLog, None)?, None),
            Some(store) => {
                let live = Arc::clone(&queries);
                let commands = Box::new(move |record: &[u8]| command_of(&live, &dropped, record));
                let committer = store.committer();
                (store.run(wired, commands, &*threads()?)?, Some(committer))
            }
        };
        failing.attend(job.clone(), Arc::clone(&queries));
        let ended = Mutex::default();
        Ok(RunningJob { checked, folder, job, outside, answers, committer, queries, started, ended })
    }
}
