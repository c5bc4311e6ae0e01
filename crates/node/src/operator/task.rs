//! What the tasks of an operator are made with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_flow::{Operator, TaskInfo};
use thalweg_storage::{ChunkBudget, Fs, IoPool};
use thalweg_types::Error;

use crate::backends::Backends;
use crate::job_file::StateSettings;
use crate::memory::Shares;
use crate::queries::FailingQueries;

/// Makes one task of an operator; called once per task when the job starts.
pub type OperatorFactory = Arc<dyn Fn(&TaskContext<'_>) -> Result<Box<dyn Operator>, Error> + Send + Sync>;

/// The arguments that a task is made with.
pub struct TaskContext<'a> {
    pub info: &'a TaskInfo,
    /// The operator of the job file that the task is of, whichever part.
    pub operator: &'a Arc<str>,
    /// `tasks/OPERATOR/PARTITION` of the job's folder: the task's own, and not there until it makes it.
    pub folder: PathBuf,
    pub services: &'a Services,
    /// The task's part of `state.memory`, in bytes, for state that a back end has; `None` where nothing bounds it. An
    /// operator that asks for none has a bound of 0.
    pub memory: Option<usize>,
    /// `None` where the job does not outlive its process. Then there is nothing to go on from, and nothing to hand
    /// over.
    pub durable: Option<TaskResume>,
}

impl TaskContext<'_> {
    /// Where the operator's last part counts the records that it has answered.
    pub fn answers(&self) -> AnswerCount {
        self.services.answers.of(self.operator)
    }
}

/// Where the task of a durable job goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskResume {
    /// The last cycle that was committed; 0: none.
    pub cycle: u64,
    /// What the task's part of that cycle said; `None` where it had no part in it.
    pub position: Option<Vec<u8>>,
}

/// Services that the tasks of a job share.
#[derive(Clone)]
pub struct Services {
    pub fs: Arc<dyn Fs>,
    /// Background reads and writes of the whole node.
    pub pool: Arc<IoPool>,
    /// Memory for chunks of reservoirs, `state.chunk_memory` of the job.
    pub chunks: Arc<ChunkBudget>,
    pub state: StateSettings,
    /// Divides `state.memory`.
    pub shares: Shares,
    /// Open the tasks' state.
    pub backends: Backends,
    /// What the operators of the job have answered.
    pub answers: AnswerCounts,
    /// Receives failures of queries that were added to the job.
    pub failing: FailingQueries,
    /// Records are judged by a time that others hold ([`thalweg_flow::Held`]), and until they have said it nothing is closed.
    pub is_held: bool,
}

/// How many records each operator of a running job has answered.
#[derive(Clone, Debug, Default)]
pub struct AnswerCounts(Arc<Mutex<BTreeMap<Arc<str>, AnswerCount>>>);

/// How many records an operator has answered.
#[derive(Clone, Debug, Default)]
pub struct AnswerCount(Arc<AtomicU64>);

impl AnswerCount {
    pub fn add(&self, records: usize) {
        // Relaxed: nothing is published with it.
        self.0.fetch_add(records as u64, Ordering::Relaxed);
    }
}

impl AnswerCounts {
    fn of(&self, operator: &Arc<str>) -> AnswerCount {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.entry(Arc::clone(operator)).or_default().clone()
    }

    pub fn get(&self, operator: &str) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(operator).map_or(0, |count| count.0.load(Ordering::Relaxed))
    }
}
