//! What a start makes of the state that an earlier run of the job has left, query by query.
//!
//! State is kept by job name, operator, stage and output. Whatever makes a query begin without its history (it is new, its
//! stage or its key is, its operator has another name, a value that it reads another type), two things follow: its answers
//! carry `since` until its window has filled, and the start says so, a line for each query, as `check --data-dir` does
//! before it.
//!
//! Not here: how an output finds its state (`thalweg_window::stage`), the parts of a job file that may not change
//! (`durable`).

use std::fmt;
use std::path::Path;

use thalweg_storage::RealFs;
use thalweg_types::Error;

use crate::data_dir::JobDir;
use crate::durable;
use crate::durable::record::CommitRecord;
use crate::job_file::CheckedJob;
use crate::operator::PartName;
use crate::queries::with_live_changes;

/// A query that does not go on as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryNews {
    pub operator: String,
    pub query: String,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// All of it begins without its history.
    Begins,
    /// These outputs do; the others go on.
    BeginsWith { outputs: Vec<String> },
    /// Its state goes.
    Goes,
    /// The state of these aggregates goes; that of others goes on.
    GoesOf { aggregates: Vec<String> },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SINCE: &str = "answers carry `since` until its window has filled";
        match self {
            What::Begins => write!(f, "begins empty: {SINCE}"),
            What::BeginsWith { outputs } => {
                write!(f, "goes on, except for outputs that begin empty ({}): {SINCE}", outputs.join(", "))
            }
            What::Goes => f.write_str("its state goes: no query of the job file has the same outputs"),
            What::GoesOf { aggregates } => {
                write!(f, "goes on, but for state that no output takes ({})", aggregates.join(", "))
            }
        }
    }
}

impl fmt::Display for QueryNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operator {:?}, query {:?}: {}", self.operator, self.query, self.what)
    }
}

/// How a start of the job over a data directory would treat its state there; `None` if there is no state.
///
/// # Errors
/// Of class user where it would be refused; damage, and the disk's errors.
pub fn foretell(job: CheckedJob, data_dir: &Path) -> Result<Option<Vec<QueryNews>>, Error> {
    let folder = JobDir::at(&data_dir.join("jobs").join(&*job.name));
    let Some(record) = durable::look(&RealFs, &job.name, &folder)? else { return Ok(None) };
    let (job, _) = with_live_changes(job, &record.queries)?;
    durable::check(&record, &job)?;
    news(&job, &record).map(Some)
}

/// What the last commit of a job says, to the operators that go on from it.
pub struct Saved<'a>(&'a CommitRecord);

/// What the task of a part handed over with the last commit.
pub struct SavedPart<'a> {
    pub name: PartName,
    pub task: u32,
    /// Bytes that the part's own operator reads.
    pub position: &'a [u8],
}

impl<'a> Saved<'a> {
    pub(crate) fn new(record: &'a CommitRecord) -> Self {
        Self(record)
    }

    /// Whether a source has given records.
    pub fn has_read(&self, source: &str) -> bool {
        self.0.sources.iter().any(|other| other.next > 0 && other.name == source)
    }

    /// The parts of all operators and sinks.
    pub fn parts(&self) -> impl Iterator<Item = SavedPart<'a>> {
        self.0.tasks().map(|(name, task, position)| SavedPart { name, task, position })
    }

    /// The parts of one operator.
    pub fn parts_of(&self, operator: &str) -> impl Iterator<Item = SavedPart<'a>> {
        self.parts().filter(move |part| *part.name.operator == *operator)
    }
}

/// Makes the operators so that they go on from the last commit.
pub(crate) fn go_on(job: &mut CheckedJob, record: &CommitRecord) {
    let saved = Saved::new(record);
    for operator in &mut job.operators {
        let queries = operator.prepared.queries.as_ref();
        if let Some(requeried) = queries.and_then(|queries| queries.going_on(&saved)) {
            operator.prepared.requery(requeried);
        }
    }
}

/// The queries that begin empty, and those whose state goes.
///
/// # Errors
/// Where a query does not fit its schema, which a checked job has none of.
pub(crate) fn news(job: &CheckedJob, record: &CommitRecord) -> Result<Vec<QueryNews>, Error> {
    let saved = Saved::new(record);
    let mut news = Vec::new();
    for queries in job.operators.iter().filter_map(|operator| operator.prepared.queries.as_ref()) {
        news.extend(queries.news(&saved)?);
    }
    for (name, kind) in durable::operators_of(record) {
        let is_gone = !job.operators.iter().any(|operator| *operator.name == *name);
        if let Some(plugin) = job.plugins.get(kind).filter(|_| is_gone) {
            news.extend(plugin.gone(name, &saved)?);
        }
    }
    Ok(news)
}
