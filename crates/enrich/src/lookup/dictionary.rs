//! The templates of a file, by number, in memory.
//!
//! On disk: the number of templates (4), where each ends among the bytes (4 each), then the bytes.
//! Number 0 is the template without parts, the empty name; number 1 the one that is nothing but a slot.

use super::template::{self, SLOT};

pub(crate) const EMPTY: u32 = 0;
pub(crate) const ANY_TEXT: u32 = 1;
/// Most templates of a file: with their bytes they take a quarter of the memory that a table may have.
pub(crate) const COUNT_MAX: usize = 1 << 20;
pub(crate) const BYTES_MAX: usize = 48 << 20;

#[derive(Debug)]
pub(crate) struct Dictionary {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Default for Dictionary {
    fn default() -> Self {
        let mut dictionary = Self { bytes: Vec::new(), ends: Vec::new() };
        dictionary.push(&[]);
        dictionary.push(&[SLOT]);
        dictionary
    }
}

impl Dictionary {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 4
    }

    /// Takes a template and returns its number; the caller keeps to the bounds.
    pub(crate) fn push(&mut self, template: &[u8]) -> u32 {
        let number = self.ends.len() as u32;
        self.bytes.extend_from_slice(template);
        self.ends.push(self.bytes.len() as u32);
        number
    }

    pub(crate) fn has_room(&self, template: &[u8]) -> bool {
        self.ends.len() < COUNT_MAX && self.bytes.len() + template.len() <= BYTES_MAX
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&[u8]> {
        let place = number as usize;
        let start = if place == 0 { 0 } else { *self.ends.get(place - 1)? as usize };
        self.bytes.get(start..*self.ends.get(place)? as usize)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + self.ends.len() * 4 + self.bytes.len());
        out.extend_from_slice(&(self.ends.len() as u32).to_le_bytes());
        self.ends.iter().for_each(|end| out.extend_from_slice(&end.to_le_bytes()));
        out.extend_from_slice(&self.bytes);
        out
    }

    /// `None` where the bytes are not what [`Dictionary::to_bytes`] writes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk::<4>()?;
        let count = u32::from_le_bytes(*count) as usize;
        let (ends, bytes) = rest.split_at_checked(count.checked_mul(4)?)?;
        let ends: Vec<u32> =
            ends.chunks_exact(4).map(|end| u32::from_le_bytes([end[0], end[1], end[2], end[3]])).collect();
        let dictionary = Self { bytes: bytes.to_vec(), ends };
        let is_sound = dictionary.ends.is_sorted()
            && dictionary.ends.last().copied() == Some(bytes.len() as u32)
            && (0..count as u32).all(|number| dictionary.get(number).and_then(template::check).is_some())
            && dictionary.get(EMPTY) == Some(&[])
            && dictionary.get(ANY_TEXT) == Some(&[SLOT]);
        is_sound.then_some(dictionary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_come_back_by_number() {
        let mut dictionary = Dictionary::default();
        let number = dictionary.push(b"\x03abc");
        let back = Dictionary::from_bytes(&dictionary.to_bytes()).unwrap();
        assert_eq!(back.get(number), Some(&b"\x03abc"[..]));
        assert_eq!((back.get(EMPTY), back.get(ANY_TEXT)), (Some(&[][..]), Some(&[SLOT][..])));
        assert_eq!(back.get(number + 1), None);
    }

    #[test]
    fn bytes_that_are_no_dictionary_are_refused() {
        let bytes = Dictionary::default().to_bytes();
        for end in 0..bytes.len() {
            assert!(Dictionary::from_bytes(&bytes[..end]).is_none(), "{end}");
        }
        assert!(Dictionary::from_bytes(&[0xff; 64]).is_none());
    }
}
