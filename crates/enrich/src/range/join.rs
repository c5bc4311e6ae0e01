//! A range table as something that a stream is joined with.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_select::take::take;
use thalweg_types::{Error, Micros};

use super::{RangeOptions, RangeTable};
use crate::join::{Found, JoinTable};
use crate::watch::{WatchMetrics, Watched};

/// A range table that follows its files.
pub struct RangeJoin(Watched<RangeTable>);

impl RangeJoin {
    /// # Errors
    /// As [`RangeTable::load`].
    pub fn open(name: &str, options: RangeOptions, now: Micros) -> Result<Self, Error> {
        let files = options.files.clone();
        Watched::open(name, files, move || RangeTable::load(&options), now).map(Self)
    }
}

impl JoinTable for RangeJoin {
    fn look_up(&self, sides: &[Vec<ArrayRef>]) -> Result<Vec<Found>, Error> {
        let table = self.0.current();
        sides.iter().map(|keys| look_up(&table, keys)).collect()
    }

    fn poll(&self, now: Micros) {
        self.0.poll(now);
    }

    fn metrics(&self, now: Micros) -> Option<WatchMetrics> {
        Some(self.0.metrics(now))
    }
}

fn look_up(table: &RangeTable, keys: &[ArrayRef]) -> Result<Found, Error> {
    let [addresses] = keys else {
        return Err(Error::internal(format!("a range table has one key, got {}", keys.len())));
    };
    let rows = table.find_all(addresses.as_fixed_size_binary());
    let misses = (rows.null_count() - addresses.null_count()) as u64;
    let columns = table.columns().iter().map(|column| {
        take(column, &rows, None)
            .map_err(|error| Error::internal("take the values of a range table").with_source(error))
    });
    Ok(Found { columns: columns.collect::<Result<_, _>>()?, misses })
}
