//! A lookup table as something that a stream is joined with.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use thalweg_types::{Error, Micros};

use super::{LookupTable, OpenOptions, Scratch};
use crate::join::{Found, JoinTable};
use crate::watch::{WatchMetrics, Watched};

/// A lookup table that follows its file.
pub struct LookupJoin {
    table: Watched<LookupTable>,
    /// One for each task that asks at a time.
    scratches: Mutex<Vec<Scratch>>,
}

impl LookupJoin {
    /// # Errors
    /// As [`LookupTable::open_with`].
    pub fn open(name: &str, path: PathBuf, options: OpenOptions, now: Micros) -> Result<Self, Error> {
        let files = vec![path.clone()];
        let load = move || open(&path, options);
        Ok(Self { table: Watched::open(name, files, load, now)?, scratches: Mutex::default() })
    }
}

fn open(path: &Path, options: OpenOptions) -> Result<LookupTable, Error> {
    let table = LookupTable::open_with(path, options).map_err(Error::from);
    table.map_err(|error| error.context(format!("open lookup table {path:?}")))
}

impl JoinTable for LookupJoin {
    fn look_up(&self, sides: &[Vec<ArrayRef>]) -> Result<Vec<Found>, Error> {
        let table = self.table.current();
        let scratches = || self.scratches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = scratches().pop().unwrap_or_default();
        let found = sides.iter().map(|keys| look_up(&table, keys, &mut scratch)).collect();
        scratches().push(scratch);
        found
    }

    fn poll(&self, now: Micros) {
        self.table.poll(now);
    }

    fn metrics(&self, now: Micros) -> Option<WatchMetrics> {
        Some(self.table.metrics(now))
    }
}

fn look_up(table: &LookupTable, keys: &[ArrayRef], scratch: &mut Scratch) -> Result<Found, Error> {
    let [addresses] = keys else {
        return Err(Error::internal(format!("a lookup table has one key, got {}", keys.len())));
    };
    let names = table.find_all(addresses.as_fixed_size_binary(), scratch)?;
    let misses = addresses.len() - addresses.null_count() - names.found.count_set_bits();
    Ok(Found { columns: vec![Arc::new(names.values)], misses: misses as u64 })
}
