//! Decisions from a seed; see [`Random::of`].
//!
//! The numbers are those of `fastrand` in the version that `Cargo.lock` has. A seed repeats a run on the same commit, and
//! no longer than that: on another commit jobs may draw more or fewer numbers in any case.

use std::time::Duration;

use fastrand::Rng;

/// A sequence of decisions.
#[derive(Clone, Debug)]
pub struct Random {
    seed: u64,
    numbers: Rng,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self { seed, numbers: Rng::with_seed(seed) }
    }

    /// A sequence of its own for the place that `name` and `number` name. How many numbers one place draws changes no
    /// other.
    pub fn of(&self, name: &str, number: u64) -> Self {
        let mut numbers = Rng::with_seed(self.seed);
        for part in name.bytes().map(u64::from).chain([number]) {
            numbers = Rng::with_seed(numbers.u64(..) ^ part);
        }
        Self::new(numbers.u64(..))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.numbers.u64(..)
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.numbers.u64(low..=high)
    }

    /// True this many times out of a hundred.
    pub fn percent(&mut self, share: u64) -> bool {
        self.between(0, 99) < share
    }

    /// One of `from`, which has at least one.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.numbers.usize(..from.len())]
    }

    /// Up to `most`, in steps of 100 µs.
    pub fn time(&mut self, most: Duration) -> Duration {
        Duration::from_micros(100 * self.between(0, most.as_micros() as u64 / 100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_decisions_and_places_do_not_disturb_each_other() {
        let draw = |mut random: Random| [random.number(), random.number(), random.between(3, 9)];
        let root = Random::new(7);
        assert_eq!(draw(root.of("files", 1)), draw(Random::new(7).of("files", 1)));
        assert_ne!(draw(root.of("files", 1)), draw(root.of("files", 2)));
        assert_ne!(draw(root.of("files", 1)), draw(root.of("http", 1)));
        assert_ne!(draw(root.of("files", 1)), draw(Random::new(8).of("files", 1)));
        let mut drawn = root.clone();
        drawn.number();
        assert_eq!(draw(drawn.of("files", 1)), draw(root.of("files", 1)), "draws of the root move no place");
    }

    #[test]
    fn bounds_are_included_and_reached() {
        let mut random = Random::new(1);
        let mut seen = [0; 3];
        (0..300).for_each(|_| seen[random.between(4, 6) as usize - 4] += 1);
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
        random.between(0, u64::MAX);
        assert!((0..100).all(|_| !random.percent(0) && random.percent(100)));
    }
}
