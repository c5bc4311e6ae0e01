//! What a table has to be so that a stream can be joined with it in flight.

use arrow_array::ArrayRef;
use thalweg_types::{DataType, Error, Field, Micros};

use crate::watch::WatchMetrics;

/// A table that is asked by keys, a batch of them at a time. Shared by the tasks of an operator.
pub trait JoinTable: Send + Sync {
    /// The values of the rows that keys lead to, a column for each of the table's fields; null if there is no row.
    ///
    /// Each of `sides` has a column for each key, all of the same length. All are asked of the same table, also where another
    /// one is put in place meanwhile.
    ///
    /// # Errors
    /// Where the table cannot be read.
    fn look_up(&self, sides: &[Vec<ArrayRef>]) -> Result<Vec<Found>, Error>;

    /// Puts a table that was loaded meanwhile in place, and looks whether there is another one; does not wait.
    fn poll(&self, now: Micros) {
        let _ = now;
    }

    /// Age and reloads, for a table that is loaded again when its files change.
    fn metrics(&self, now: Micros) -> Option<WatchMetrics> {
        let _ = now;
        None
    }
}

/// What a table answered.
pub struct Found {
    pub columns: Vec<ArrayRef>,
    /// Keys that were there, but not in the table.
    pub misses: u64,
}

/// The keys and the values of a table, as far as the job file gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinShape {
    pub keys: Vec<Key>,
    /// The fields that a join adds, before they get their names in the stream.
    pub values: Vec<Field>,
}

/// One key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub name: String,
    pub data_type: DataType,
}
