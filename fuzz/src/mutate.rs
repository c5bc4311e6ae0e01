//! Makes inputs of seeds: a few small changes, one on top of the other.

use fastrand::Rng;

/// Longest input; bugs of longer inputs show with these.
const MAX_INPUT: usize = 4096;

/// Numbers at the edges of lengths and counts.
const EDGES: [u64; 10] =
    [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];

pub(crate) struct Mutator {
    random: Rng,
    words: &'static [&'static str],
    seeds: Vec<Vec<u8>>,
    input: Vec<u8>,
}

impl Mutator {
    pub(crate) fn new(seed: u64, words: &'static [&'static str], seeds: Vec<Vec<u8>>) -> Self {
        Self { random: Rng::with_seed(seed), words, seeds, input: Vec::new() }
    }

    /// The next input, the same ones in the same order for the same seed.
    pub(crate) fn next_input(&mut self) -> &[u8] {
        // An eighth go on from the input before, and so get far from the seeds.
        if self.random.usize(..8) != 0 {
            let seed = self.random.usize(..self.seeds.len());
            self.input.clone_from(&self.seeds[seed]);
        }
        for _ in 0..=self.random.usize(..6) {
            self.change();
        }
        self.input.truncate(MAX_INPUT);
        &self.input
    }

    fn change(&mut self) {
        let len = self.input.len();
        let at = self.random.usize(..len + 1);
        match self.random.usize(..10) {
            0 if at < len => self.input[at] ^= 1 << self.random.usize(..8),
            1 if at < len => self.input[at] = self.random.u8(..),
            2 => self.input.insert(at, self.random.u8(..)),
            3 => {
                let end = at + self.random.usize(..(len - at).min(32) + 1);
                self.input.drain(at..end);
            }
            4 => {
                let end = at + self.random.usize(..(len - at).min(32) + 1);
                let piece = self.input[at..end].to_vec();
                let to = self.random.usize(..len + 1);
                self.input.splice(to..to, piece);
            }
            5 => self.input.truncate(at),
            6 => {
                let edge = EDGES[self.random.usize(..EDGES.len())].to_le_bytes();
                let width = [1, 2, 4, 8][self.random.usize(..4)].min(len - at);
                self.input[at..at + width].copy_from_slice(&edge[..width]);
            }
            7 if !self.words.is_empty() => {
                let word = self.words[self.random.usize(..self.words.len())];
                self.input.splice(at..at, word.bytes());
            }
            // More of the same, for work that grows with the input.
            8 => self.input.extend_from_within(at..),
            _ => {
                let other = self.random.usize(..self.seeds.len());
                let cut = self.random.usize(..self.seeds[other].len() + 1);
                self.input.truncate(at);
                self.input.extend_from_slice(&self.seeds[other][cut..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_inputs() {
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed, &["word"], vec![b"a seed".to_vec(), Vec::new()]);
            (0..500).map(|_| mutator.next_input().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(3), inputs(3));
        assert_ne!(inputs(3), inputs(4));
    }
}
