//! Lists of keys that wait: for output by time, for a wake, for a look at whether they have expired; and of ids, each with
//! the time when it was taken, that wait until their span has passed.
//!
//! A list is a queue of keys in pieces of some kilobytes, which are entries of the cache as elements are: they may
//! leave memory, and a cycle writes those that changed. Numbers of pieces begin again after the largest. Of each list
//! the manifest keeps where it begins and ends.

use std::collections::BTreeMap;

use thalweg_types::{Error, Micros};

use super::Element;
use super::entry::{Cache, Entry, PIECE};

/// A piece takes no more keys once it has this many bytes: what a cycle writes again for one more key.
const PIECE_BYTES: usize = 4096;

/// Where a list is. Its pieces are those from `first` up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) id: u64,
    pub(super) first: u32,
    pub(super) end: u32,
}

impl List {
    fn piece_key(self, piece: u32) -> [u8; 13] {
        let mut key = [PIECE; 13];
        key[1..9].copy_from_slice(&self.id.to_be_bytes());
        key[9..].copy_from_slice(&piece.to_be_bytes());
        key
    }

    /// Pieces that it has.
    pub(super) fn pieces(self) -> u32 {
        self.end.wrapping_sub(self.first)
    }

    /// Appends a key, or what else is given in parts.
    fn push<E: Element>(&mut self, cache: &mut Cache<E>, parts: &[&[u8]]) -> Result<(), Error> {
        let append = |keys: &mut Vec<u8>| {
            // Keys are shorter than what a column holds.
            let length: usize = parts.iter().map(|part| part.len()).sum();
            keys.extend_from_slice(&(length as u32).to_le_bytes());
            parts.iter().for_each(|part| keys.extend_from_slice(part));
        };
        if self.end != self.first {
            let newest = self.end.wrapping_sub(1);
            let last = self.piece_key(newest);
            let has_room = match cache.get(&last)? {
                Some(Entry::Piece(keys)) => keys.len() < PIECE_BYTES,
                _ => return Err(missing(*self, newest)),
            };
            if has_room {
                return cache.change(&last, |entry| {
                    if let Some(Entry::Piece(keys)) = entry {
                        append(keys);
                    }
                });
            }
        }
        let mut keys = Vec::new();
        append(&mut keys);
        cache.change(&self.piece_key(self.end), |entry| *entry = Some(Entry::Piece(keys)))?;
        self.end = self.end.wrapping_add(1);
        Ok(())
    }

    /// Takes the first piece out; `None` when there is none left.
    pub(super) fn take<E: Element>(&mut self, cache: &mut Cache<E>) -> Result<Option<Vec<u8>>, Error> {
        if self.first == self.end {
            return Ok(None);
        }
        let taken = cache.change(&self.piece_key(self.first), Option::take)?;
        let Some(Entry::Piece(keys)) = taken else { return Err(missing(*self, self.first)) };
        self.first = self.first.wrapping_add(1);
        Ok(Some(keys))
    }
}

fn missing(list: List, piece: u32) -> Error {
    Error::corrupt(format!("piece {piece} of list {} of keys is not in the state", list.id))
        .with_hint("restore the data directory from a copy, or remove the job's folder to start over")
}

/// The keys of a piece.
pub(super) fn keys(piece: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = piece;
    std::iter::from_fn(move || {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let (key, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = behind;
        Some(key)
    })
}

/// All lists of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists {
    /// Numbers of lists are not used again.
    pub(super) next_id: u64,
    /// Elements whose output is due with the next span of time.
    pub(super) pending: Option<List>,
    /// Elements to be woken, by time.
    pub(super) wakes: BTreeMap<Micros, List>,
    /// Elements to be looked at, by the time before which none of them can have expired.
    pub(super) idle: BTreeMap<Micros, List>,
    /// Ids of records that were taken, each with the time, in the order of these: by the kind of the ids.
    pub(super) ids: BTreeMap<u64, List>,
}

impl Lists {
    pub(super) fn pend<E: Element>(&mut self, cache: &mut Cache<E>, key: &[u8]) -> Result<(), Error> {
        let next_id = &mut self.next_id;
        self.pending.get_or_insert_with(|| new(next_id)).push(cache, &[key])
    }

    pub(super) fn wake<E: Element>(
        &mut self,
        cache: &mut Cache<E>,
        due: Micros,
        key: &[u8],
    ) -> Result<(), Error> {
        let next_id = &mut self.next_id;
        self.wakes.entry(due).or_insert_with(|| new(next_id)).push(cache, &[key])
    }

    pub(super) fn idle<E: Element>(
        &mut self,
        cache: &mut Cache<E>,
        due: Micros,
        key: &[u8],
    ) -> Result<(), Error> {
        let next_id = &mut self.next_id;
        self.idle.entry(due).or_insert_with(|| new(next_id)).push(cache, &[key])
    }

    /// The id under this key was taken at a time that is not before those in its list.
    pub(super) fn id<E: Element>(
        &mut self,
        cache: &mut Cache<E>,
        mark: u64,
        seen: Micros,
        key: &[u8],
    ) -> Result<(), Error> {
        let next_id = &mut self.next_id;
        let list = self.ids.entry(mark).or_insert_with(|| new(next_id));
        list.push(cache, &[&seen.to_le_bytes(), key])
    }

    /// Takes the oldest piece of a list of ids, if all of it was taken at `until` or before.
    pub(super) fn take_ids<E: Element>(
        &mut self,
        cache: &mut Cache<E>,
        mark: u64,
        until: Micros,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(list) = self.ids.get_mut(&mark) else { return Ok(None) };
        if list.first == list.end {
            self.ids.remove(&mark);
            return Ok(None);
        }
        let is_over = match cache.get(&list.piece_key(list.first))? {
            Some(Entry::Piece(piece)) => ids(piece).last().is_none_or(|(seen, _)| seen <= until),
            _ => return Err(missing(*list, list.first)),
        };
        if is_over { list.take(cache) } else { Ok(None) }
    }
}

/// The ids of a piece: when each was taken, and its key.
pub(super) fn ids(piece: &[u8]) -> impl Iterator<Item = (Micros, &[u8])> {
    keys(piece).filter_map(|item| {
        let (seen, key) = item.split_first_chunk::<8>()?;
        Some((Micros::from_le_bytes(*seen), key))
    })
}

/// How many keys of the lists that are due to look at, so that what piled up goes within some calls.
pub(super) fn looks(lists: &BTreeMap<Micros, List>, time: Micros, least: usize) -> usize {
    let pieces: u32 = lists.range(..=time).map(|(_, list)| list.pieces()).sum();
    // A piece holds some hundred keys.
    least.max((pieces / 16) as usize * 128)
}

/// Takes the first piece of the lists that are due, with when it was; `None` when there is none left.
pub(super) fn take_due<E: Element>(
    lists: &mut BTreeMap<Micros, List>,
    time: Micros,
    cache: &mut Cache<E>,
) -> Result<Option<(Micros, Vec<u8>)>, Error> {
    while let Some(mut first) = lists.first_entry().filter(|first| *first.key() <= time) {
        if let Some(piece) = first.get_mut().take(cache)? {
            return Ok(Some((*first.key(), piece)));
        }
        first.remove();
    }
    Ok(None)
}

/// The least multiple of `step` that is not below `time`, as far as numbers go.
pub(super) fn round_up(time: Micros, step: Micros) -> Micros {
    time.saturating_add(step - 1).div_euclid(step).saturating_mul(step).max(time)
}

fn new(next_id: &mut u64) -> List {
    let id = *next_id;
    *next_id += 1;
    List { id, first: 0, end: 0 }
}
