//! Units that fail: each is begun again where it is, and is in trouble where that does not help.
//!
//! A unit fails of what its node cannot help it with (a disk, a key that a sink refuses), and should go elsewhere; or of
//! what is over by then, such as a request of a producer that is long gone, which fences off the one that is there. To
//! move a unit for that costs more than to begin it again: so only the second failure within [`TROUBLE_LASTS`] counts, or
//! one after which it was not begun again for [`STUCK`].

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use thalweg_cluster::fold::TROUBLE_LASTS;
use thalweg_types::Micros;

use super::actor::since;

/// A unit that has failed is begun again sooner than this, or cannot be.
const STUCK: Duration = Duration::from_secs(10);

/// The last failure of each unit of a stage, by partition. Each unit is a new `T` whenever it is begun.
pub(super) struct Failures<T>(BTreeMap<u32, Failure<T>>);

struct Failure<T> {
    of: Weak<T>,
    seen: Micros,
    is_again: bool,
}

impl<T> Failure<T> {
    /// Whether another one has to do with it.
    fn counts(&self, now: Micros) -> bool {
        now.saturating_sub(self.seen) < TROUBLE_LASTS
    }
}

impl<T> Default for Failures<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Failures<T> {
    /// Notes that a unit is seen to have failed, as often as it is seen; whether it is in trouble.
    pub(super) fn note(&mut self, partition: u32, unit: &Arc<T>, now: Micros) -> bool {
        let last = self.0.get(&partition);
        if let Some(last) = last.filter(|last| last.of.as_ptr() == Arc::as_ptr(unit)) {
            return last.is_again || since(last.seen, now) >= STUCK;
        }
        let is_again = last.is_some_and(|last| last.counts(now));
        self.0.insert(partition, Failure { of: Arc::downgrade(unit), seen: now, is_again });
        is_again
    }

    /// Forgets what is too long ago to count.
    pub(super) fn forget(&mut self, now: Micros) {
        self.0.retain(|_, last| last.of.strong_count() > 0 || last.counts(now));
    }
}

#[cfg(test)]
mod tests {
    use super::super::actor::micros;
    use super::*;

    #[test]
    fn a_unit_is_in_trouble_once_it_fails_again_or_is_not_begun_again() {
        let second = micros(Duration::from_secs(1));
        let mut failures = Failures::default();
        let mut note = |unit: &Arc<i32>, at: Micros| failures.note(3, unit, at * second);
        let [first, next, last] = [1, 2, 3].map(Arc::new);
        assert!(!note(&first, 100), "it is begun again here");
        assert!(!note(&first, 101), "the same failure");
        assert!(note(&first, 110), "nobody has begun it again");
        assert!(note(&next, 159), "it has failed again");
        assert!(note(&next, 400), "and still has");
        assert!(!note(&last, 401 + 60), "long after that");
    }

    #[test]
    fn what_is_long_ago_is_forgotten() {
        let second = micros(Duration::from_secs(1));
        let mut failures = Failures::default();
        let unit = Arc::new(());
        assert!(!failures.note(0, &unit, 0));
        failures.forget(120 * second);
        assert!(failures.note(0, &unit, 121 * second), "it is there and has not been begun again");
        drop(unit);
        failures.forget(122 * second);
        assert!(failures.0.is_empty());
    }
}
