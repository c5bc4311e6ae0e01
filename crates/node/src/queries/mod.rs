//! Queries of operators, which come and go while their job runs.
//!
//! An operator that has queries says what they are ([`Queries`]): checks them, says which of its parts runs each, and is
//! made again with one more or one less. The rest is here, and the same for every such operator: commands in the job's
//! order, changes in commit records, a start without a query, failing ones.
//!
//! * `live`: adding, dropping and reading them while the job runs.
//! * `change`: what was added and dropped, in the order log and in commit records.
//! * `failing`: those that fail are dropped by themselves.

mod change;
mod failing;
mod live;

use std::sync::Arc;
use std::sync::mpsc::Sender;

use arrow_array::ArrayRef;
use thalweg_expr::SqlErrors;
use thalweg_types::{DataType, Error, Field, Micros};

use crate::continuing::{QueryNews, Saved};
use crate::operator::Part;

pub(crate) use change::{QueryChange, command_of, has_queries, with_live_changes, without_queries};
pub use failing::FailingQueries;
pub(crate) use live::LivePart;
pub use live::{DroppedQuery, LiveQueries, PresentValue};

/// The queries of an operator, as it begins with them. Commands to its parts are [`QueryCommand`]s.
pub trait Queries: Send + Sync {
    /// All of them, those of the first part first.
    fn list(&self) -> Vec<QueryText>;

    /// Checks a query and says where it runs.
    ///
    /// # Errors
    /// What is wrong with it, or that no part of the operator can run it.
    fn plan(&self, name: &str, text: &str) -> Result<QueryPlan, QueryError>;

    /// The operator with one more, which is an added one. Its declared outputs stay.
    ///
    /// # Errors
    /// As of [`Queries::plan`].
    fn with(&self, name: &str, text: &str) -> Result<Requeried, QueryError>;

    /// The operator without one. Its declared outputs stay.
    fn without(&self, name: &str) -> Requeried;

    /// Whether two texts are the same query.
    fn is_same(&self, one: &str, other: &str) -> bool {
        one == other
    }

    /// What queries of one part cost together, a line each.
    ///
    /// # Errors
    /// If the part does not take them.
    fn explain(&self, part: usize, names: &[&str]) -> Result<Vec<String>, Error> {
        let _ = (part, names);
        Ok(Vec::new())
    }

    /// Those that begin empty when the job goes on from its last commit, and those whose state goes.
    ///
    /// # Errors
    /// Where what is saved cannot be read.
    fn news(&self, saved: &Saved<'_>) -> Result<Vec<QueryNews>, Error> {
        let _ = saved;
        Ok(Vec::new())
    }

    /// The operator as it goes on from the last commit, if that makes another one of it: a part that was not there has
    /// missed what was before.
    fn going_on(&self, saved: &Saved<'_>) -> Option<Requeried> {
        let _ = saved;
        None
    }
}

/// A query as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryText {
    pub name: String,
    pub text: String,
    /// It was added while the job ran: where it fails it is dropped, and the job goes on.
    pub is_added: bool,
}

/// Where a query runs.
#[derive(Clone, Debug)]
pub struct QueryPlan {
    /// Place of the part.
    pub part: usize,
    /// Fields of the input by which it keeps its values.
    pub key: Vec<Field>,
    /// Of the key, places of the fields that split the part's tasks, in the order of its link.
    pub split_by: Vec<usize>,
    /// In words, for `check`.
    pub words: String,
}

/// An operator that was given other queries.
#[derive(Clone)]
pub struct Requeried {
    /// As many as before.
    pub parts: Vec<Part>,
    pub queries: Arc<dyn Queries>,
}

/// What the control plane asks of the part that runs a query: the body of a [`thalweg_flow::Command`], which every task of
/// the part gets at the same place of the order.
///
/// The asking thread may have gone meanwhile: that a reply has no receiver is no failure.
pub enum QueryCommand {
    /// Adds a query; every task says how it went.
    Add { name: String, text: String, reply: Sender<Result<(), Error>> },
    /// Drops a query; every task says that it has.
    Drop { name: String, reply: Sender<Result<(), Error>> },
    /// Asks one task for present values. `key` holds one-row columns of [`QueryPlan::key`] by name.
    Read { name: String, task: u32, key: Vec<(String, ArrayRef)>, reply: Sender<Result<Present, Error>> },
}

/// Present values of a query for one key.
pub struct Present {
    pub data_type: DataType,
    /// One row of this type.
    pub values: ArrayRef,
    /// Task time; `None` where no record has come.
    pub as_of: Option<Micros>,
}

/// Why a query was not added, dropped or read.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("there is no query {name:?}")]
    Missing { name: String, known: Vec<String> },
    #[error("query {name:?} exists already")]
    Exists { name: String },
    #[error("{0}")]
    Sql(SqlErrors),
    #[error("{0}")]
    Failed(Error),
}

impl From<Error> for QueryError {
    fn from(error: Error) -> Self {
        QueryError::Failed(error)
    }
}
