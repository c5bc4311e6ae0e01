//! Every decision of a run comes from one seed; see [`Random::of`].

use std::time::Duration;

/// SplitMix64: a few lines, and the same numbers everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A sequence of its own for whatever `name` and `number` name: how much one place draws changes no other.
    pub(crate) fn of(&self, name: &str, number: u64) -> Self {
        let mut mixed = Self(self.0);
        for byte in name.bytes() {
            mixed.0 = mixed.next() ^ u64::from(byte);
        }
        mixed.0 = mixed.next() ^ number;
        Self(mixed.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True this many times out of a hundred.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.between(0, 99) < share
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.between(0, from.len() as u64 - 1) as usize]
    }

    /// Up to `most`, in steps of 100 µs.
    pub(crate) fn time(&mut self, most: Duration) -> Duration {
        Duration::from_micros(100 * self.between(0, most.as_micros() as u64 / 100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_decisions_and_places_do_not_disturb_each_other() {
        let draw = |mut random: Random| [random.next(), random.next(), random.between(3, 9)];
        let root = Random::new(7);
        assert_eq!(draw(root.of("files", 1)), draw(Random::new(7).of("files", 1)));
        assert_ne!(draw(root.of("files", 1)), draw(root.of("files", 2)));
        assert_ne!(draw(root.of("files", 1)), draw(root.of("http", 1)));
        assert_ne!(draw(root.of("files", 1)), draw(Random::new(8).of("files", 1)));
    }
}
