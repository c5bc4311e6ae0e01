//! What a start makes of the state that an earlier run of the job has left, query by query.
//!
//! State is kept by job name, operator, stage and output. Whatever makes a query begin without its history (it is new, its
//! stage or its key is, its operator has another name, a value that it reads another type), two things follow: its answers
//! carry `since` until its window has filled, and the start says so, a line for each query, as `check --data-dir` does
//! before it.
//!
//! Not here: how an output finds its state (`thalweg_window::stage`), the parts of a job file that may not change
//! (`durable`).

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use thalweg_storage::RealFs;
use thalweg_types::{Error, Micros};
use thalweg_window::query::Query;
use thalweg_window::stage::{Manifest, Missed};

use crate::data_dir::JobDir;
use crate::durable;
use crate::durable::record::CommitRecord;
use crate::job_file::CheckedJob;
use crate::metrics::durable::manifest_in;
use crate::metrics::{MetricsSpec, StageSpec};
use crate::node::with_live_changes;

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

/// Gives the stages that are new to a job the history that they have missed.
pub(crate) fn tell_missed(job: &mut CheckedJob, record: &CommitRecord) {
    for operator in &mut job.operators {
        let Some(spec) = &operator.prepared.metrics else { continue };
        let mut spec = MetricsSpec::clone(spec);
        let missed = missed(&spec, record);
        let mut is_any = false;
        for place in 0..spec.stages.len() {
            if missed != Missed::Nothing
                && manifests(record, &spec.name, &spec.stages[place].label).is_empty()
            {
                spec.stages[place].missed = missed;
                is_any = true;
            }
        }
        if is_any {
            operator.prepared.set_metrics(spec);
        }
    }
}

/// What a stage of an operator has missed that has no part in the last commit.
fn missed(spec: &MetricsSpec, record: &CommitRecord) -> Missed {
    let is_above = |name: &str| spec.above.iter().any(|above| above == name);
    if !record.sources.iter().any(|source| source.next > 0 && is_above(&source.name)) {
        return Missed::Nothing;
    }
    // Stages of the operator have seen the same records, those of others the same where they read the same stream.
    let times = |is_it: &dyn Fn(&str, &Manifest) -> bool| -> Option<Micros> {
        let parts =
            record.parts.iter().filter_map(|(name, part)| Some((place_of(name)?, manifest_in(&part.0)?)));
        let times = parts.filter(|((operator, _), manifest)| is_it(operator, manifest));
        times.filter_map(|(_, manifest)| manifest.task_time()).max()
    };
    let own = times(&|operator, _| *operator == *spec.name);
    let time = own.or_else(|| times(&|_, manifest| manifest.streams().iter().any(|stream| is_above(stream))));
    time.map_or(Missed::Some, Missed::UpTo)
}

/// The queries that begin empty, and those whose state goes.
///
/// # Errors
/// Where a query does not fit its schema, which a checked job has none of.
pub(crate) fn news(job: &CheckedJob, record: &CommitRecord) -> Result<Vec<QueryNews>, Error> {
    let mut news = Vec::new();
    let mut known: BTreeSet<(&str, &str)> = BTreeSet::new();
    let specs: Vec<_> =
        job.operators.iter().filter_map(|operator| operator.prepared.metrics.as_ref()).collect();
    for spec in &specs {
        for stage in &spec.stages {
            known.insert((&*spec.name, stage.label.as_str()));
            news_of_stage(spec, stage, record, &mut news)?;
        }
    }
    let places: BTreeSet<(&str, &str)> = record.parts.keys().filter_map(|name| place_of(name)).collect();
    for (operator, label) in places.difference(&known) {
        let Some(manifest) = manifests(record, operator, label).into_iter().next() else { continue };
        for gone in manifest.continued(&thalweg_types::Schema::empty(), &[])?.gone {
            news.push(QueryNews { operator: (*operator).to_owned(), query: gone.query, what: What::Goes });
        }
    }
    Ok(news)
}

fn news_of_stage(
    spec: &MetricsSpec,
    stage: &StageSpec,
    record: &CommitRecord,
    news: &mut Vec<QueryNews>,
) -> Result<(), Error> {
    let mut tell = |query: &str, what| {
        news.push(QueryNews { operator: spec.name.to_string(), query: query.to_owned(), what });
    };
    let manifests = manifests(record, &spec.name, &stage.label);
    let Some(first) = manifests.first() else {
        if missed(spec, record) != Missed::Nothing {
            stage.queries.iter().for_each(|query| tell(&query.name, What::Begins));
        }
        return Ok(());
    };
    // What has had no record lacks nothing, and leaves nothing.
    if manifests.iter().all(|manifest| manifest.records() == 0) {
        return Ok(());
    }
    let queries: Vec<(&str, &Query)> =
        stage.queries.iter().map(|query| (query.name.as_str(), &query.query)).collect();
    // All tasks have the same queries: they take commands at one place of the order.
    let continued = first.continued(&spec.input, &queries)?;
    for ((name, query), kept) in queries.iter().zip(&continued.kept) {
        let begin = query.outputs.iter().zip(kept).filter(|(_, is_kept)| !**is_kept);
        let outputs: Vec<String> = begin.map(|(output, _)| output.alias.clone()).collect();
        match outputs.len() {
            0 => {}
            all if all == query.outputs.len() => tell(name, What::Begins),
            _ => tell(name, What::BeginsWith { outputs }),
        }
    }
    for gone in continued.gone {
        let what = match gone.is_whole {
            true => What::Goes,
            false => What::GoesOf { aggregates: gone.aggregates },
        };
        tell(&gone.query, what);
    }
    Ok(())
}

/// What the last commit says of the tasks of a stage.
fn manifests(record: &CommitRecord, operator: &str, label: &str) -> Vec<Manifest> {
    let parts = record.parts.iter().filter(|(name, _)| place_of(name) == Some((operator, label)));
    parts.filter_map(|(_, part)| manifest_in(&part.0)).collect()
}

/// Operator and label of the stage whose task has this part; a label is made of names of fields, which may be anything.
fn place_of(part: &str) -> Option<(&str, &str)> {
    let (stage, _task) = part.rsplit_once('/')?;
    stage.split_once('/')
}
