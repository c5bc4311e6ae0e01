//! Long lists by group: all of them but their newest ends, which whoever has the lists keeps as it likes.
//!
//! The oldest values are at the *front*, in memory; what is between is in pieces ([`crate::pieces`]). The newest end is
//! cut when it is longer than two pieces: the first values that are cut become the front, others a piece each time.
//!
//! In an image a list has its length first, twice, and whether it is a long one in the lowest bit; then, if it is, front
//! and numbers of pieces; then the newest end. Before version 3 of groups no list was long, and there was the length alone.
//!
//! Invariants
//! * A list with pieces has a front; one without a front is not long.
//!
//! Not here: what values are, and when they come and leave (`agg::queue`, `stage::rows`).

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::image::{Malformed, Reader, put, put_signed};
use crate::pieces::{EARLY, End, PieceSink, Pieces, Shelf};

/// Version of the layout of groups from which on lists may be in pieces.
const IN_PIECES: u8 = 3;

/// Event time and arrival: the order of values.
pub(crate) type Key = (i64, u64);

/// Appends a key less the one before it; the first of a sequence is after (0, 0).
#[inline(always)]
pub(crate) fn put_key(out: &mut Vec<u8>, (time, seq): Key, before: Key) {
    put_signed(out, time.wrapping_sub(before.0));
    put_signed(out, seq.wrapping_sub(before.1) as i64);
}

/// Reads a key that is behind the one before, or equal to it: equal ones are of builds before stages numbered arrivals.
///
/// # Errors
/// [`Malformed`].
pub(crate) fn read_key(image: &mut Reader<'_>, before: Option<Key>) -> Result<Key, Malformed> {
    let key = if image.version() < IN_PIECES {
        (image.signed("time of a value")?, image.number("arrival of a value")?)
    } else {
        let (time, seq) = before.unwrap_or_default();
        let (more, later) = (image.signed("time of a value")?, image.signed("arrival of a value")?);
        (time.wrapping_add(more), seq.wrapping_add(later as u64))
    };
    if before.is_some_and(|before| before > key) {
        let expected = format!("not before {before:?}");
        return Err(image.malformed("order of values", expected, format_args!("{key:?}")));
    }
    Ok(key)
}

/// Appends the length of a list that is not long.
pub(crate) fn put_length(out: &mut Vec<u8>, length: usize) {
    put(out, (length as u64) << 1);
}

/// Reads the length of a list that is not in pieces.
///
/// # Errors
/// [`Malformed`].
pub(crate) fn read_length(image: &mut Reader<'_>) -> Result<usize, Malformed> {
    let (length, is_long) = read_header(image)?;
    if is_long {
        return Err(image.malformed("a list", "one that is not in pieces", "one that is"));
    }
    image.fits(length, "values of a list")
}

fn read_header(image: &mut Reader<'_>) -> Result<(u64, bool), Malformed> {
    let length = image.number("values of a list")?;
    if image.version() < IN_PIECES { Ok((length, false)) } else { Ok((length >> 1, length & 1 == 1)) }
}

/// By group, what is older than the newest end of a list; nothing of a group whose list is not long.
pub(crate) struct LongLists<T> {
    lists: HashMap<u32, Long<T>, RandomState>,
    /// Where pieces are; `None`: no list is cut.
    shelf: Option<Arc<Shelf>>,
    /// Cycle, group and number of pieces that may not be readable yet, in the order of cycles.
    unwritten: VecDeque<(u64, u32, u32)>,
}

struct Long<T> {
    front: VecDeque<T>,
    pieces: Pieces,
}

impl<T> Default for Long<T> {
    fn default() -> Self {
        Self { front: VecDeque::new(), pieces: Pieces::default() }
    }
}

/// One list that is long.
pub(crate) struct LongList<'a, T> {
    pub(crate) front: &'a mut VecDeque<T>,
    pub(crate) pieces: &'a mut Pieces,
    pub(crate) shelf: &'a Shelf,
}

impl<T> LongLists<T> {
    /// Whose pieces are in a shelf; without one no list is cut.
    pub(crate) fn new(shelf: Option<Arc<Shelf>>) -> Self {
        Self { lists: HashMap::default(), shelf, unwritten: VecDeque::new() }
    }

    /// Values of a piece, if lists are cut.
    pub(crate) fn size(&self) -> Option<usize> {
        self.shelf.as_ref().map(|shelf| shelf.size())
    }

    /// Values that a newest end may have before it is cut without being written.
    pub(crate) fn most(&self) -> usize {
        self.size().map_or(usize::MAX, |size| EARLY * size)
    }

    /// Whether no list is long.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The oldest values of a list that is long, not none.
    pub(crate) fn front(&self, group: u32) -> Option<&VecDeque<T>> {
        if self.is_empty() {
            return None;
        }
        self.lists.get(&group).map(|long| &long.front).filter(|front| !front.is_empty())
    }

    /// A list that is long.
    pub(crate) fn get(&mut self, group: u32) -> Option<LongList<'_, T>> {
        if self.is_empty() {
            return None;
        }
        let Long { front, pieces } = self.lists.get_mut(&group).filter(|long| !long.front.is_empty())?;
        Some(LongList { front, pieces, shelf: self.shelf.as_ref()? })
    }

    /// Takes the oldest value of a list that is long. The next piece, the values of which `read` reads, becomes the front
    /// where that is empty then; `true` with the value says so.
    pub(crate) fn pop_oldest(
        &mut self,
        group: u32,
        mut read: impl FnMut(&mut Reader<'_>, usize) -> Result<VecDeque<T>, Malformed>,
    ) -> (Option<T>, bool) {
        let Some(LongList { front, pieces, shelf }) = self.get(group) else { return (None, false) };
        let oldest = front.pop_front();
        let mut is_new = false;
        while front.is_empty()
            && let Some(values) = pieces.take(End::Oldest, shelf, &mut read)
        {
            (*front, is_new) = (values, true);
        }
        if front.is_empty() && pieces.is_spent() {
            self.lists.remove(&group);
        }
        (oldest, is_new)
    }

    /// How many of the oldest values of a newest end are to be cut that has `length`; `None`: none.
    pub(crate) fn cuts(&self, length: usize) -> Option<usize> {
        let shelf = self.shelf.as_ref()?;
        (length > 2 * shelf.size() && shelf.has_numbers()).then_some(shelf.size())
    }

    /// Takes over the oldest values of a newest end ([`LongLists::cuts`]): as the front of a list that is not long yet, or
    /// as a piece to which `write` appends them; then they are given back.
    pub(crate) fn cut(
        &mut self,
        group: u32,
        values: VecDeque<T>,
        write: impl FnOnce(&VecDeque<T>, &mut Vec<u8>),
    ) -> Option<VecDeque<T>> {
        let Long { front, pieces } = self.lists.entry(group).or_default();
        if front.is_empty() {
            *front = values;
            return None;
        }
        pieces.cut(values.len(), |out| write(&values, out));
        Some(values)
    }

    /// Appends the length of a newest end, and what is older if the list is long; `write` appends a front.
    pub(crate) fn save(
        &self,
        group: u32,
        length: usize,
        out: &mut Vec<u8>,
        write: impl FnOnce(&VecDeque<T>, &mut Vec<u8>),
    ) {
        let long = if self.is_empty() { None } else { self.lists.get(&group) };
        let Some(Long { front, pieces }) = long.filter(|long| !long.front.is_empty()) else {
            return put_length(out, length);
        };
        put(out, (length as u64) << 1 | 1);
        put(out, front.len() as u64);
        write(front, out);
        pieces.save(out);
    }

    /// Takes over what [`LongLists::save`] wrote; the length of the newest end, which follows. `read` reads a front.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn load(
        &mut self,
        group: u32,
        image: &mut Reader<'_>,
        read: impl FnOnce(&mut Reader<'_>, usize) -> Result<VecDeque<T>, Malformed>,
    ) -> Result<usize, Malformed> {
        let (length, is_long) = read_header(image)?;
        if is_long {
            let Some(shelf) = &self.shelf else {
                return Err(image.malformed("a list", "one that is not in pieces", "one that is"));
            };
            let count = image.count("values of a front")?;
            let front = read(image, count)?;
            let pieces = Pieces::load(image, shelf)?;
            self.lists.insert(group, Long { front, pieces });
        }
        image.fits(length, "values of a list")
    }

    /// A list is empty from now on; the next cycle is told of its pieces. Its front.
    pub(crate) fn clear(&mut self, group: u32) -> Option<VecDeque<T>> {
        let Long { front, pieces } = self.lists.get_mut(&group)?;
        pieces.clear();
        Some(std::mem::take(front))
    }

    /// Forgets a list that is out of memory from now on. Its front.
    pub(crate) fn forget(&mut self, group: u32) -> Option<VecDeque<T>> {
        Some(self.lists.remove(&group)?.front)
    }

    /// Forgets a list that is no more, and adds the numbers of its pieces of which a checkpoint may know. Its front.
    pub(crate) fn bury(&mut self, group: u32, numbers: &mut Vec<u32>) -> Option<VecDeque<T>> {
        let Long { front, pieces } = self.lists.remove(&group)?;
        pieces.bury(numbers);
        Some(front)
    }

    /// Tells a cycle of the pieces of a list; its newest end was cut before.
    pub(crate) fn hand_over(&mut self, group: u32, cycle: u64, to: &mut dyn PieceSink) {
        if self.is_empty() {
            return;
        }
        let (Some(long), Some(shelf)) = (self.lists.get_mut(&group), &self.shelf) else { return };
        long.pieces.hand_over(shelf, to, |number| self.unwritten.push_back((cycle, group, number)));
        if long.front.is_empty() {
            self.lists.remove(&group);
        }
    }

    /// The cycle's pieces can be read back.
    pub(crate) fn written(&mut self, cycle: u64) {
        while let Some((_, group, number)) = self.unwritten.pop_front_if(|(other, ..)| *other <= cycle) {
            if let (Some(long), Some(shelf)) = (self.lists.get_mut(&group), &self.shelf) {
                long.pieces.written(number, shelf);
            }
        }
    }

    /// Numbers that pieces may get before more values come than the `values` of all newest ends.
    pub(crate) fn most_numbers(&self, values: usize) -> usize {
        let cut: usize = self.lists.values().map(|long| long.pieces.unput()).sum();
        cut + self.size().map_or(0, |size| values / size)
    }

    /// Whether pieces that came with a restart are all there.
    pub(crate) fn has_all(&self) -> bool {
        let has_all = |shelf: &Arc<Shelf>| self.lists.values().all(|long| long.pieces.has_all(shelf));
        self.shelf.as_ref().is_none_or(has_all)
    }

    /// Heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |long: &Long<T>| long.front.capacity() * size_of::<T>() + long.pieces.bytes();
        self.lists.values().map(bytes).sum()
    }
}
