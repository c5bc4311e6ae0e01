//! The templates of a file, by number.
//!
//! On disk: the number of templates (4), where each ends among the bytes (4 each), then the bytes.
//! Number 0 is the template without parts, the empty name; number 1 the one that is nothing but a slot.
//!
//! A builder has them in memory; a reader leaves them in the map, as there may be millions. Numbers are given
//! in the order of the addresses, so names that are together have their templates together too.

use std::borrow::Cow;

use super::layout::le_u32;
use super::template::SLOT;

pub(crate) const EMPTY: u32 = 0;
pub(crate) const ANY_TEXT: u32 = 1;
/// Most templates of a file: a block has three bytes for the number of one, and all ones mean another thing.
pub(crate) const COUNT_MAX: usize = (1 << 24) - 2;
pub(crate) const BYTES_MAX: usize = 512 << 20;

#[derive(Debug)]
pub(crate) struct Dictionary<'a> {
    bytes: Cow<'a, [u8]>,
    /// Four bytes each.
    ends: Cow<'a, [u8]>,
}

impl Default for Dictionary<'_> {
    fn default() -> Self {
        let mut dictionary = Self { bytes: Cow::default(), ends: Cow::default() };
        dictionary.push(&[]);
        dictionary.push(&[SLOT]);
        dictionary
    }
}

impl<'a> Dictionary<'a> {
    pub(crate) fn len(&self) -> usize {
        self.ends.len() / 4
    }

    /// Takes a template and returns its number; the caller keeps to the bounds.
    pub(crate) fn push(&mut self, template: &[u8]) -> u32 {
        let number = self.len() as u32;
        self.bytes.to_mut().extend_from_slice(template);
        let end = self.bytes.len() as u32;
        self.ends.to_mut().extend_from_slice(&end.to_le_bytes());
        number
    }

    pub(crate) fn has_room(&self, template: &[u8]) -> bool {
        self.len() < COUNT_MAX && self.bytes.len() + template.len() <= BYTES_MAX
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&[u8]> {
        let place = number as usize * 4;
        let end = |place: usize| Some(le_u32(self.ends.get(place..place + 4)?) as usize);
        let start = if place == 0 { 0 } else { end(place - 4)? };
        self.bytes.get(start..end(place)?)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [&(self.len() as u32).to_le_bytes(), &*self.ends, &*self.bytes].concat()
    }

    /// `None` where the bytes are not as long as they say. Whether each template is one is seen when it is
    /// used.
    pub(crate) fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk::<4>()?;
        let (ends, bytes) = rest.split_at_checked((u32::from_le_bytes(*count) as usize).checked_mul(4)?)?;
        let is_whole = le_u32(ends.last_chunk::<4>()?) as usize == bytes.len();
        is_whole.then_some(Self { bytes: bytes.into(), ends: ends.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_come_back_by_number() {
        let mut dictionary = Dictionary::default();
        let number = dictionary.push(b"\x03abc");
        let bytes = dictionary.to_bytes();
        let back = Dictionary::from_bytes(&bytes).unwrap();
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
