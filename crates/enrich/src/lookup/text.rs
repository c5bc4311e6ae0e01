//! Text in the slots of templates, as Huffman codes whose table depends on the kind of the byte before.
//!
//! Labels are short and many are nearly random, so a dictionary of strings has little to find in them, while
//! letters follow letters and digits follow digits: 5.2 bits for a random base-36 character, 3.5 for a digit
//! after a digit. A text is found by a bit position and ends with a code of its own.
//!
//! One model serves a whole file; it is learned from a sample of its rows.
//! Codes have at most [`CODE_MAX`] bits; bytes that the sample did not have are escaped and take 8 bits more.
//! On disk a model is the code lengths, four bits each, table after table: everything else follows from them.

/// Kinds of the byte before: begin, digit, vowel, other lower-case letter, `-` or `_`, `.`, anything else.
const TABLES: usize = 7;
/// 256 bytes, the end of a text, and the escape before a byte without a code.
const SYMBOLS: usize = 258;
const END: usize = 256;
const ESCAPE: usize = 257;
const CODE_MAX: u32 = 11;
/// Bytes of a model on disk.
pub(crate) const MODEL_BYTES: usize = TABLES * SYMBOLS / 2;
/// The longest text.
pub(crate) const TEXT_MAX: usize = 255;

const KINDS: [u8; 256] = {
    let mut kinds = [6_u8; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = match byte as u8 {
            b'0'..=b'9' => 1,
            b'a' | b'e' | b'i' | b'o' | b'u' => 2,
            b'a'..=b'z' => 3,
            b'-' | b'_' => 4,
            b'.' => 5,
            _ => 6,
        };
        byte += 1;
    }
    kinds
};

/// How often each symbol comes, by the kind of the byte before it.
#[derive(Debug)]
pub(crate) struct Counts(Vec<[u64; SYMBOLS]>);

impl Default for Counts {
    fn default() -> Self {
        Self(vec![[0; SYMBOLS]; TABLES])
    }
}

impl Counts {
    pub(crate) fn add(&mut self, text: &[u8]) {
        let mut table = 0;
        for &byte in text {
            self.0[table][usize::from(byte)] += 1;
            table = usize::from(KINDS[usize::from(byte)]);
        }
        self.0[table][END] += 1;
    }
}

/// The codes of a file.
#[derive(Debug)]
pub(crate) struct Model {
    lengths: Vec<[u8; SYMBOLS]>,
    codes: Vec<[u16; SYMBOLS]>,
    /// By table and the next [`CODE_MAX`] bits: symbol × 16 + length; 0 where no code is.
    decode: Vec<u16>,
}

impl Model {
    pub(crate) fn learn(counts: &Counts) -> Self {
        let lengths = counts
            .0
            .iter()
            .map(|counts| {
                let mut counts = *counts;
                // Every table can end a text and escape a byte.
                counts[END] += 1;
                counts[ESCAPE] += 1;
                code_lengths(&counts)
            })
            .collect();
        Self::from_lengths(lengths)
    }

    /// Gives each symbol its canonical code: shorter ones first, then by number. Codes are read from the
    /// lowest bit on, so they are stored reversed.
    fn from_lengths(lengths: Vec<[u8; SYMBOLS]>) -> Self {
        let mut codes = vec![[0_u16; SYMBOLS]; TABLES];
        let mut decode = vec![0_u16; TABLES << CODE_MAX];
        for (table, lengths) in lengths.iter().enumerate() {
            let slots = &mut decode[table << CODE_MAX..][..1 << CODE_MAX];
            let mut next = 0_u32;
            for length in 1..=CODE_MAX {
                for symbol in (0..SYMBOLS).filter(|symbol| u32::from(lengths[*symbol]) == length) {
                    let code = (next.reverse_bits() >> (32 - length)) as u16;
                    next += 1;
                    codes[table][symbol] = code;
                    for slot in slots.iter_mut().skip(usize::from(code)).step_by(1 << length) {
                        *slot = (symbol as u16) << 4 | length as u16;
                    }
                }
                next <<= 1;
            }
        }
        Self { lengths, codes, decode }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let flat: Vec<u8> = self.lengths.iter().flatten().copied().collect();
        flat.chunks_exact(2).map(|pair| pair[0] | pair[1] << 4).collect()
    }

    /// `None` where the lengths are those of no code.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != MODEL_BYTES {
            return None;
        }
        let flat: Vec<u8> = bytes.iter().flat_map(|pair| [pair & 15, pair >> 4]).collect();
        let lengths: Vec<[u8; SYMBOLS]> =
            flat.chunks_exact(SYMBOLS).map(|lengths| lengths.try_into().ok()).collect::<Option<_>>()?;
        for lengths in &lengths {
            let mut taken = 0_u32;
            for &length in lengths.iter().filter(|length| **length > 0) {
                if u32::from(length) > CODE_MAX {
                    return None;
                }
                taken += 1 << (CODE_MAX - u32::from(length));
            }
            if taken > 1 << CODE_MAX || lengths[END] == 0 || lengths[ESCAPE] == 0 {
                return None;
            }
        }
        Some(Self::from_lengths(lengths))
    }

    pub(crate) fn encode(&self, text: &[u8], out: &mut BitWriter) {
        let mut table = 0;
        for &byte in text {
            let symbol = usize::from(byte);
            if self.lengths[table][symbol] > 0 {
                out.put(self.codes[table][symbol], self.lengths[table][symbol]);
            } else {
                out.put(self.codes[table][ESCAPE], self.lengths[table][ESCAPE]);
                out.put(u16::from(byte), 8);
            }
            table = usize::from(KINDS[symbol]);
        }
        out.put(self.codes[table][END], self.lengths[table][END]);
    }

    /// Reads the text that begins at bit `position`, hands its bytes to `take`, and returns the bit after
    /// it. `None` where the bytes hold no text, or one longer than [`TEXT_MAX`].
    #[inline]
    pub(crate) fn decode(
        &self,
        bytes: &[u8],
        mut position: usize,
        mut take: impl FnMut(u8),
    ) -> Option<usize> {
        let decode: &[u16; TABLES << CODE_MAX] = self.decode.as_slice().try_into().ok()?;
        let end = bytes.len() * 8;
        let (mut table, mut length) = (0, 0);
        let (mut window, mut held) = (0_u64, 0_usize);
        loop {
            // One symbol takes at most a code and an escaped byte: 19 bits.
            if held < 19 {
                window = window_at(bytes, position / 8) >> (position % 8);
                held = 56;
            }
            let entry = decode[table << CODE_MAX | window as usize & ((1 << CODE_MAX) - 1)];
            let (symbol, bits) = (usize::from(entry >> 4), usize::from(entry & 15));
            if bits == 0 || position + bits > end {
                return None;
            }
            window >>= bits;
            held -= bits;
            position += bits;
            let byte = match symbol {
                END => return Some(position),
                ESCAPE => {
                    let byte = window as u8;
                    window >>= 8;
                    held -= 8;
                    position += 8;
                    byte
                }
                _ => symbol as u8,
            };
            length += 1;
            if length > TEXT_MAX {
                return None;
            }
            take(byte);
            table = usize::from(KINDS[usize::from(byte)]);
        }
    }
}

/// Eight bytes from `start` on, zeros after the end.
#[inline(always)]
fn window_at(bytes: &[u8], start: usize) -> u64 {
    match bytes.get(start..start + 8).and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) => u64::from_le_bytes(bytes),
        None => {
            let mut padded = [0_u8; 8];
            let rest = bytes.get(start..).unwrap_or_default();
            padded[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
            u64::from_le_bytes(padded)
        }
    }
}

/// Lengths of Huffman codes of at most [`CODE_MAX`] bits: counts are flattened until the longest code fits.
fn code_lengths(counts: &[u64; SYMBOLS]) -> [u8; SYMBOLS] {
    let mut counts = *counts;
    loop {
        let lengths = huffman(&counts);
        if lengths.iter().all(|length| u32::from(*length) <= CODE_MAX) {
            return lengths;
        }
        for count in counts.iter_mut().filter(|count| **count > 0) {
            *count = *count / 4 + 1;
        }
    }
}

fn huffman(counts: &[u64; SYMBOLS]) -> [u8; SYMBOLS] {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    let mut heap = BinaryHeap::new();
    let mut parents = Vec::new();
    let mut leaves = Vec::new();
    for symbol in (0..SYMBOLS).filter(|symbol| counts[*symbol] > 0) {
        heap.push(Reverse((counts[symbol], parents.len())));
        leaves.push(symbol);
        parents.push(0);
    }
    while heap.len() > 1 {
        let (Some(Reverse((a, left))), Some(Reverse((b, right)))) = (heap.pop(), heap.pop()) else { break };
        let parent = parents.len();
        parents.push(parent);
        (parents[left], parents[right]) = (parent, parent);
        heap.push(Reverse((a + b, parent)));
    }
    let root = parents.len() - 1;
    let mut lengths = [0_u8; SYMBOLS];
    for (leaf, symbol) in leaves.into_iter().enumerate() {
        let mut node = leaf;
        while node != root {
            node = parents[node];
            lengths[symbol] = lengths[symbol].saturating_add(1);
        }
    }
    lengths
}

/// Bits one after the other, the lowest of a byte first.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    window: u64,
    held: u32,
}

impl BitWriter {
    fn put(&mut self, bits: u16, count: u8) {
        self.window |= u64::from(bits) << self.held;
        self.held += u32::from(count);
        while self.held >= 8 {
            self.bytes.push(self.window as u8);
            self.window >>= 8;
            self.held -= 8;
        }
    }

    /// Fills the last byte with zeros and returns how many bytes there are.
    pub(crate) fn align(&mut self) -> usize {
        if self.held > 0 {
            self.bytes.push(self.window as u8);
            (self.window, self.held) = (0, 0);
        }
        self.bytes.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.window, self.held) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn model_of(texts: &[&[u8]]) -> Model {
        let mut counts = Counts::default();
        texts.iter().for_each(|text| counts.add(text));
        Model::learn(&counts)
    }

    proptest! {
        #[test]
        fn texts_come_back_and_end_where_they_end(
            sample in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6),
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..=TEXT_MAX), 0..8),
        ) {
            let sample: Vec<&[u8]> = sample.iter().map(Vec::as_slice).collect();
            let model = Model::from_bytes(&model_of(&sample).to_bytes()).unwrap();
            let mut writer = BitWriter::default();
            texts.iter().for_each(|text| model.encode(text, &mut writer));
            writer.align();
            let mut position = 0;
            for text in &texts {
                let mut back = Vec::new();
                position = model.decode(writer.bytes(), position, |byte| back.push(byte)).unwrap();
                prop_assert_eq!(&back, text);
            }
        }

        #[test]
        fn any_bytes_are_a_model_or_refused_and_any_text_ends(
            lengths in prop::collection::vec(any::<u8>(), MODEL_BYTES),
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = Model::from_bytes(&lengths);
            let mut count = 0;
            let _ = model_of(&[b"abc"]).decode(&bytes, 3, |_| count += 1);
            prop_assert!(count <= TEXT_MAX);
        }
    }

    #[test]
    fn a_skewed_sample_still_has_short_codes() {
        let mut counts = Counts::default();
        for (step, byte) in (0_u32..40).enumerate() {
            counts.0[0][step + 97] = 1 << byte.min(60);
        }
        let model = Model::learn(&counts);
        assert!(model.lengths.iter().flatten().all(|length| u32::from(*length) <= CODE_MAX));
    }
}
