//! Keys that come next, and where their elements may be.
//!
//! A look-up waits for memory, and those of many keys wait together. So the elements of a batch are looked up before the
//! first of them is called, and come into the processor's cache some dozens at a time.

use thalweg_state::Place;
use thalweg_types::Error;

use super::Element;
use super::entry::Cache;

/// Elements that are read into the processor's cache at once: enough to wait once for many, and few enough to stay there.
const WARM: usize = 64;

/// See the module.
#[derive(Default)]
pub(super) struct Ahead {
    /// One after the other.
    pub(super) keys: Vec<u8>,
    /// Where each ends.
    pub(super) ends: Vec<usize>,
    pub(super) places: Vec<Place>,
}

impl Ahead {
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.ends.clear();
        self.places.clear();
    }

    pub(super) fn key(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.keys[start..self.ends[number]]
    }

    /// Finds the keys from number `first` on; those that are not in memory, and others in `more`, are read at once.
    pub(super) fn find<E: Element>(
        &mut self,
        first: usize,
        more: &Self,
        cache: &mut Cache<E>,
    ) -> Result<(), Error> {
        let mut places = std::mem::take(&mut self.places);
        cache.guess((first..self.ends.len()).map(|number| self.key(number)), &mut places);
        if !cache.is_whole() {
            let missing = (first..).zip(&places[first..]).filter(|(_, place)| **place == Place::NONE);
            let missing = missing.map(|(number, _)| self.key(number));
            let more = (0..more.ends.len()).map(|number| more.key(number));
            cache.prefetch(missing.chain(more))?;
            places.truncate(first);
            cache.guess((first..self.ends.len()).map(|number| self.key(number)), &mut places);
        }
        self.places = places;
        Ok(())
    }

    /// Reads the elements of the next keys for the sake of the processor's cache, now and then.
    #[inline]
    pub(super) fn warm<E: Element>(&self, number: usize, cache: &Cache<E>) {
        if number.is_multiple_of(WARM) {
            cache.warm(&self.places[number..self.places.len().min(number + WARM)]);
        }
    }
}
