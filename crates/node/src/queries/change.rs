//! Queries that were added to a running job and dropped from it: in the order log, in commit records, and in the job that a
//! start makes of its file and these.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_flow::Command;
use thalweg_types::Error;

use crate::drop_query::DropQuery;
use crate::job_file::{CheckedJob, CheckedOperator};

use super::{LiveQueries, Queries};

/// A query that was added to a running job or dropped from it, as order log and commit records hold it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct QueryChange {
    pub operator: String,
    pub query: String,
    /// `None`: dropped.
    pub text: Option<String>,
    /// The query of the job file that was dropped, perhaps before another one got its name: a job file that gives the
    /// name to a third one has that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
}

impl QueryChange {
    /// Whether it is made to the query of this text: the job file has it, and it was dropped.
    pub(super) fn is_of(&self, text: &str, queries: &dyn Queries) -> bool {
        match &self.dropped {
            None => self.text.is_none(),
            Some(dropped) => dropped == text || queries.is_same(dropped, text),
        }
    }

    /// What is left of the change in a start without some queries: nothing of one that was added, but that another was
    /// dropped for it.
    pub(crate) fn without(&self, dropped: &[DropQuery]) -> Option<Self> {
        if self.text.is_none() || !dropped.iter().any(|dropped| dropped.is(&self.operator, &self.query)) {
            return Some(self.clone());
        }
        tracing::warn!(
            operator = self.operator.as_str(),
            query = self.query.as_str(),
            "dropped a query that was added"
        );
        self.dropped.is_some().then(|| Self { text: None, ..self.clone() })
    }

    pub(super) fn record(&self) -> bytes::Bytes {
        // Names and texts are always JSON.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// # Errors
    /// Where the bytes are no change.
    pub(crate) fn of_record(record: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(record)
            .map_err(|error| Error::corrupt("the order log holds an unknown command").with_source(error))
    }
}

/// The job with the queries that were added to it and dropped from it while it ran, before the last commit; and those
/// of the changes that are not in its file by now. Readers of the answers are bound to the queries of the file all the
/// same, as it was while the job ran.
///
/// # Errors
/// Of class user for a query that was added and does not fit any more.
pub(crate) fn with_live_changes(
    mut job: CheckedJob,
    changes: &[QueryChange],
) -> Result<(CheckedJob, Vec<QueryChange>), Error> {
    let job_name = Arc::clone(&job.name);
    let (mut changed, mut kept) = (Vec::new(), Vec::new());
    for change in changes {
        // An operator that is gone from the file takes its queries with it.
        let Some((operator, mut queries)) = find(&mut job, &change.operator) else { continue };
        let name = change.query.as_str();
        let in_file = text_of(queries.as_ref(), name);
        let requeried = match (&in_file, &change.text) {
            // The file has been brought up to date, or gives the name to another query: it has the last word.
            (None, None) => continue,
            (Some(is), Some(text)) if is == text => continue,
            (Some(is), _) if !change.is_of(is, queries.as_ref()) => continue,
            (_, Some(text)) => {
                if in_file.is_some() {
                    queries = queries.without(name).queries;
                }
                changed.push(format!("with {name:?}"));
                queries.with(name, text).map_err(|error| {
                    Error::user(format!(
                        "query {name:?}, which was added while job {job_name:?} ran, does not fit it any more: {error}"
                    ))
                    .with_hint(format!(
                        "start without it: --drop-query {}/{name}; or change the job file back, or begin anew with another name",
                        change.operator
                    ))
                })?
            }
            (Some(_), None) => {
                changed.push(format!("without {name:?}"));
                queries.without(name)
            }
        };
        operator.prepared.requery(requeried);
        kept.push(change.clone());
    }
    if !changed.is_empty() {
        tracing::warn!(
            job = %job_name,
            queries = changed.join(", "),
            "queries were added and dropped while the job ran, and it goes on with that: bring the job file up to date"
        );
    }
    Ok((job, kept))
}

/// Whether the job has an operator of this name with queries.
pub(crate) fn has_queries(job: &CheckedJob, operator: &str) -> bool {
    job.operators.iter().any(|other| *other.name == *operator && other.prepared.queries.is_some())
}

/// The job without some queries of its file; their declared fields stay.
pub(crate) fn without_queries(mut job: CheckedJob, dropped: &[DropQuery]) -> CheckedJob {
    let name = Arc::clone(&job.name);
    for DropQuery { operator, query } in dropped {
        let Some((found, queries)) = find(&mut job, operator) else { continue };
        if text_of(queries.as_ref(), query).is_some() {
            found.prepared.requery(queries.without(query));
            tracing::warn!(job = %name, operator = operator.as_str(), query = query.as_str(), "left a query of the job file out");
        }
    }
    job
}

fn find<'a>(job: &'a mut CheckedJob, name: &str) -> Option<(&'a mut CheckedOperator, Arc<dyn Queries>)> {
    let operator = job.operators.iter_mut().find(|operator| *operator.name == *name)?;
    let queries = operator.prepared.queries.clone()?;
    Some((operator, queries))
}

fn text_of(queries: &dyn Queries, name: &str) -> Option<String> {
    queries.list().into_iter().find(|query| query.name == name).map(|query| query.text)
}

/// Makes a command of the order log again.
///
/// # Errors
/// As [`LiveQueries::again`], and for a record that is no change.
pub(crate) fn command_of(
    queries: &BTreeMap<Arc<str>, LiveQueries>,
    dropped: &[DropQuery],
    record: &[u8],
) -> Result<Command, Error> {
    let change = QueryChange::of_record(record)?;
    if dropped.iter().any(|dropped| dropped.is(&change.operator, &change.query)) {
        return Ok(Command::nothing());
    }
    match queries.get(change.operator.as_str()) {
        Some(live) => live.again(&change),
        // The operator is gone from the job file, and its queries with it.
        None => Ok(Command::nothing()),
    }
}
