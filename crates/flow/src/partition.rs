//! How a link spreads records over the tasks of the operator it leads to.

use std::fmt;
use std::sync::Arc;

use thalweg_types::{Batch, Error, Schema};

/// A user's own partitioning.
pub trait Partitioner: Send + Sync {
    /// Puts each physical row number of `batch` (in the batch's order) into the list of the task that gets it.
    ///
    /// `tasks` has one empty list per downstream task. The choice may depend on the records and on nothing
    /// else, or answers would depend on batch sizes.
    fn partition(&self, batch: &Batch, tasks: &mut [Vec<u32>]);

    /// Whether it can place records of this schema. Asked when a job file is checked.
    ///
    /// # Errors
    /// What is missing or of another type.
    fn check(&self, schema: &Schema) -> Result<(), Error> {
        let _ = schema;
        Ok(())
    }

    /// Whether records that agree in these fields, by their places in the schema, always go to the same task. An
    /// operator that keeps state by them is not fed by a partitioning of which this is not so.
    fn keeps_together(&self, schema: &Schema, fields: &[usize]) -> bool {
        let _ = (schema, fields);
        false
    }
}

/// How a link spreads records.
#[derive(Clone)]
pub enum Partitioning {
    /// Task i sends to task i; the operators have equally many.
    Forward,
    /// Evenly, by runs of 4,096 order numbers: another run of the job spreads them the same way.
    Shuffle,
    /// By the placement hash of these columns of the upstream schema.
    Key(Vec<usize>),
    /// Every task gets every record.
    Broadcast,
    /// Task 0 gets every record.
    Global,
    Custom(Arc<dyn Partitioner>),
}

impl Partitioning {
    /// As job files write it: `key(card, merchant)`. `upstream` is the schema whose places a key has.
    pub(crate) fn describe(&self, upstream: Option<&Schema>) -> String {
        let (Partitioning::Key(columns), Some(upstream)) = (self, upstream) else {
            return format!("{self:?}");
        };
        let name = |place: &usize| upstream.fields().get(*place).map_or("?", |field| field.name.as_str());
        format!("key({})", columns.iter().map(name).collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Debug for Partitioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Partitioning::Forward => f.write_str("forward"),
            Partitioning::Shuffle => f.write_str("shuffle"),
            Partitioning::Key(columns) => write!(f, "key({columns:?})"),
            Partitioning::Broadcast => f.write_str("broadcast"),
            Partitioning::Global => f.write_str("global"),
            Partitioning::Custom(_) => f.write_str("custom"),
        }
    }
}
