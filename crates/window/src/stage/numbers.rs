//! Numbers of the groups that a batch's records are in.
//!
//! Not here: the tables (`crate::groups`).

use arrow_array::Array;
use arrow_buffer::ScalarBuffer;
use thalweg_types::{Error, Micros};

use super::Grouping;
use super::cache::Cache;
use super::checkpoint::Checkpoint;
use super::guard::Evaluated;
use super::nodes::ValuesOf;
use super::plan::Plan;
use crate::judge::Verdicts;

impl Plan {
    /// Group numbers of every record, by grouping.
    ///
    /// Groups that are out of memory are read back first, and those that the open cycle has yet to write are written.
    pub(super) fn number_groups(
        &mut self,
        evaluated: &Evaluated,
        verdicts: &Verdicts,
        mut cache: Option<&mut Cache>,
        mut checkpoint: Option<&mut Checkpoint>,
    ) -> Result<Vec<ScalarBuffer<u32>>, Error> {
        let mut numbers = Vec::with_capacity(self.groupings.len());
        let mut claimed: Vec<(u32, Option<Micros>)> = Vec::new();
        let mut came: Vec<u32> = Vec::new();
        for place in 0..self.groupings.len() {
            let keys = &evaluated.keys[place];
            let values = self.groupings[place].as_ref().and_then(|grouping| grouping.values_of);
            let with_values = values.map(|values| self.with_values(values, evaluated, verdicts));
            let accepted = with_values.as_deref().or(verdicts.accepted.as_deref());
            if let Some(cache) = &mut cache {
                cache.bring_in_keys(self, place, keys, verdicts.times.len())?;
            }
            let Some(Grouping { id, table, dirty, tags, .. }) = &mut self.groupings[place] else {
                numbers.push(ScalarBuffer::from(Vec::new()));
                continue;
            };
            let is_frozen = dirty.left() > 0;
            let before = |group: u32, newest: Option<Micros>| {
                if newest.is_none() {
                    came.push(group);
                }
                if is_frozen && dirty.claim(group) {
                    claimed.push((group, newest));
                }
            };
            numbers.push(table.number(keys, &verdicts.times, accepted, before));
            for (group, newest) in claimed.drain(..) {
                let entry = newest.and_then(|newest| {
                    let (slot, key, _) = table.entry(group)?;
                    Some((slot, key, newest))
                });
                if let Some(checkpoint) = &mut checkpoint {
                    checkpoint.save_group((*id, group), entry, Some(place), &self.leaves);
                }
            }
            if checkpoint.is_some() {
                tags.came(&came);
            }
            if let Some(cache) = &mut cache {
                cache.came(came.len());
            }
            came.clear();
        }
        Ok(numbers)
    }

    /// Which records are accepted and have a value that is counted.
    fn with_values(&self, values: ValuesOf, evaluated: &Evaluated, verdicts: &Verdicts) -> Vec<bool> {
        let accepted = verdicts.accepted.as_ref();
        let filter = values.filter.and_then(|filter| self.filters[filter].as_ref());
        let bits = filter.and_then(|filter| evaluated.filters.get(&filter.layout));
        let column = evaluated.columns.get(&values.arg);
        (0..verdicts.times.len())
            .map(|row| {
                accepted.is_none_or(|accepted| accepted[row])
                    && bits.is_none_or(|bits| bits.value(row))
                    && column.is_some_and(|column| column.is_valid(row))
            })
            .collect()
    }
}
