//! What a task keeps in its back end: elements by key, and pieces of lists of keys.
//!
//! Keys: a byte that says which, then the packed key fields; or list (8, big-endian) and piece (4, big-endian); or what
//! the id is (8, big-endian: the hash of input, name and type of its field) and a packed id.
//!
//! Values, little-endian. Of an element: flags (1: output is due), touched (8), records since the last output (8),
//! the list of idle ones that it is in (8, by its due time; the least number for none), then its own bytes.
//! Of a piece: keys, each after its length (4), in lists of ids with the time when the id was taken (8) before the key.
//! Of an id: task time when it was taken last (8).

use std::sync::Arc;

use thalweg_state::{Codec, Keyed};
use thalweg_types::{Error, Micros};

use super::Element;

pub(super) const ELEMENT: u8 = 0;
pub(super) const PIECE: u8 = 1;
pub(super) const ID: u8 = 2;

const IS_PENDING: u8 = 1;
const NOT_LISTED: Micros = Micros::MIN;

pub(super) type Cache<E> = Keyed<Entries<E>>;

pub(super) enum Entry<E> {
    Element(Kept<E>),
    Piece(Vec<u8>),
    /// Task time when the id was last seen.
    Id(Micros),
}

/// An element with what the operator knows of it.
pub(super) struct Kept<E> {
    pub(super) element: E,
    /// Task time when a record last reached it.
    pub(super) touched: Micros,
    /// Records since the last output, if output is due by records.
    pub(super) count: u64,
    /// It is in the list of those whose output is due.
    pub(super) is_pending: bool,
    /// The list of idle elements that it is in, by the time when that is looked through.
    pub(super) listed: Option<Micros>,
}

/// When a record last reached a saved element.
pub(super) fn touched(bytes: &[u8]) -> Option<Micros> {
    // After the byte that distinguishes elements from pieces, and the flags.
    let (&[ELEMENT, _], rest) = bytes.split_first_chunk()? else { return None };
    Some(Micros::from_le_bytes(*rest.first_chunk()?))
}

pub(super) struct Entries<E: Element> {
    pub(super) shared: Arc<E::Shared>,
}

impl<E: Element> Codec for Entries<E> {
    type Value = Entry<E>;

    fn save(&self, value: &Entry<E>, into: &mut Vec<u8>) {
        match value {
            Entry::Element(kept) => {
                into.extend_from_slice(&[ELEMENT, if kept.is_pending { IS_PENDING } else { 0 }]);
                into.extend_from_slice(&kept.touched.to_le_bytes());
                into.extend_from_slice(&kept.count.to_le_bytes());
                into.extend_from_slice(&kept.listed.unwrap_or(NOT_LISTED).to_le_bytes());
                kept.element.save(into);
            }
            Entry::Piece(keys) => {
                into.push(PIECE);
                into.extend_from_slice(keys);
            }
            Entry::Id(seen) => {
                into.push(ID);
                into.extend_from_slice(&seen.to_le_bytes());
            }
        }
    }

    fn load(&self, bytes: &[u8]) -> Result<Entry<E>, Error> {
        let damaged = || Error::corrupt(format!("{} bytes are no element, no list and no id", bytes.len()));
        match bytes.split_first().ok_or_else(damaged)? {
            (&ELEMENT, rest) => {
                let (flags, rest) = rest.split_first().ok_or_else(damaged)?;
                let (touched, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
                let (count, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
                let (listed, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
                let listed = Micros::from_le_bytes(*listed);
                Ok(Entry::Element(Kept {
                    element: E::load(&self.shared, rest)?,
                    touched: Micros::from_le_bytes(*touched),
                    count: u64::from_le_bytes(*count),
                    is_pending: flags & IS_PENDING != 0,
                    listed: (listed != NOT_LISTED).then_some(listed),
                }))
            }
            (&PIECE, keys) => Ok(Entry::Piece(keys.to_vec())),
            (&ID, seen) => Ok(Entry::Id(Micros::from_le_bytes(seen.try_into().map_err(|_| damaged())?))),
            _ => Err(damaged()),
        }
    }

    #[inline]
    fn warm(&self, value: &Entry<E>) -> u64 {
        if let Entry::Element(kept) = value { kept.touched.cast_unsigned() } else { 0 }
    }

    fn heap_bytes(&self, value: &Entry<E>) -> usize {
        match value {
            Entry::Element(kept) => kept.element.heap_bytes(),
            Entry::Piece(keys) => keys.capacity(),
            Entry::Id(_) => 0,
        }
    }
}
