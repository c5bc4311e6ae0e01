//! Long lists of values, of which a checkpoint writes what has changed and memory need not have all.
//!
//! A list that values enter at one end and leave at the other is touched only there. What lies between is cut into
//! *pieces* of some hundred values each, which are written once, under keys of their own, and never change: a piece is
//! read again when the end has come to it, and is gone then. A group's image has the two ends and the numbers of the
//! pieces between them.
//!
//! A piece is part of the cycle that first has its group with it; one that was taken back is said to be gone in the cycle
//! that has the group without it. So a group and its pieces are always of one cycle. Pieces are cut when a group is
//! written, or before, where so many values come that cutting them all at once would hold up a marker.
//!
//! Invariants
//! * Numbers of pieces are of one leaf, ascend, and are never used again. A piece gets its number in the cycle that has it
//!   first, so that a marker can say below which number all pieces of its cycle are.
//! * A piece that cannot be read is noted in the [`PieceStore`], and looked upon as empty: nothing that is computed from
//!   then on may be given out.
//!
//! Not here: lists by group, and their ends (`long`); keys and the back end (`stage::pieces`).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use thalweg_types::Error;

use crate::image::{Malformed, Reader, put};

/// Values of a piece: one read from a back end brings as many, and a marker writes as many again of the newest end.
pub(crate) const PIECE: usize = 512;

/// Pieces that a list may be long before it is cut without being written: some hundred microseconds' worth.
pub(crate) const EARLY: usize = 32;

/// The number of a piece that no cycle has yet.
const UNPUT: u32 = u32::MAX;

/// From which number on no list of a leaf is cut any more: far more pieces are left than are in memory and have none.
const LAST: u32 = u32::MAX - (1 << 24);

/// Reads pieces back that are out of memory.
pub(crate) trait PieceReader: Send + Sync {
    /// The bytes of a leaf's piece.
    ///
    /// # Errors
    /// What the back end says; where it does not have the piece.
    fn read(&self, leaf: u32, number: u32) -> Result<Vec<u8>, Error>;
}

/// What a cycle is told of the pieces of one leaf.
pub trait PieceSink {
    fn put(&mut self, number: u32, bytes: &[u8]);
    fn remove(&mut self, number: u32);
}

/// State of which parts may be in pieces.
pub trait Pieced {
    /// Lists of the group that are long are cut, and the cycle is told of its pieces; its image is written next.
    fn hand_over(&mut self, group: u32, cycle: u64, to: &mut dyn PieceSink);

    /// The cycle's pieces can be read back.
    fn written(&mut self, cycle: u64);

    /// Numbers of all pieces of a group that is no more, and of which a checkpoint may know.
    fn bury(&mut self, group: u32, numbers: &mut Vec<u32>);

    /// Numbers that pieces may get before more values come.
    fn most_numbers(&self) -> usize;

    /// Whether pieces that came with a restart ([`PieceStore::came`]) are all there.
    fn has_all(&self) -> bool;
}

/// Bytes of pieces, by leaf and number.
type ByNumber = HashMap<(u32, u32), Box<[u8]>, RandomState>;

/// Where pieces of all leaves of a stage are when they are not in lists.
pub(crate) struct PieceStore {
    /// Values of a piece.
    size: usize,
    reader: Mutex<Option<Arc<dyn PieceReader>>>,
    /// Those of a restart, until lists ask for them.
    came: Mutex<ByNumber>,
    has_failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PieceStore {
    pub(crate) fn new(size: usize) -> Self {
        let (reader, came, failure) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { size: size.max(1), reader, came, has_failed: AtomicBool::new(false), failure }
    }

    /// From now on pieces that are written leave memory.
    pub(crate) fn read_by(&self, reader: Arc<dyn PieceReader>) {
        *lock(&self.reader) = Some(reader);
    }

    /// A piece came with a restart that brings all of them.
    pub(crate) fn came(&self, leaf: u32, number: u32, bytes: &[u8]) {
        lock(&self.came).insert((leaf, number), bytes.into());
    }

    /// Why a piece could not be read since this was asked for the last time.
    ///
    /// # Errors
    /// What the back end said, or what was wrong with the bytes of a piece.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !self.has_failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        lock(&self.failure).take().map_or(Ok(()), Err)
    }

    /// Heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.came).values().map(|bytes| bytes.len()).sum()
    }

    fn fail(&self, error: Error) {
        self.has_failed.store(true, Ordering::Relaxed);
        lock(&self.failure).get_or_insert(error);
    }
}

/// The pieces of one leaf.
pub struct Shelf {
    leaf: u32,
    next: AtomicU32,
    store: Arc<PieceStore>,
}

impl Shelf {
    /// Of a leaf by its id, whose next piece has the number `next`.
    pub(crate) fn new(leaf: u32, next: u32, store: Arc<PieceStore>) -> Self {
        Self { leaf, next: AtomicU32::new(next), store }
    }

    /// Values of a piece.
    pub(crate) fn size(&self) -> usize {
        self.store.size
    }

    /// Numbers that pieces have or had are below it.
    pub(crate) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Whether another piece may be cut.
    pub(crate) fn has_numbers(&self) -> bool {
        self.next() < LAST
    }

    fn take_number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn is_read(&self) -> bool {
        lock(&self.store.reader).is_some()
    }

    fn read(&self, number: u32) -> Result<Vec<u8>, Error> {
        if let Some(bytes) = lock(&self.store.came).remove(&(self.leaf, number)) {
            return Ok(bytes.into());
        }
        let reader = lock(&self.store.reader).clone();
        let reader = reader.ok_or_else(|| {
            Error::internal(format!("piece {number} of leaf {} is nowhere: expected a reader", self.leaf))
        })?;
        reader.read(self.leaf, number)
    }

    fn fail(&self, number: u32, error: Error) {
        let leaf = self.leaf;
        self.store.fail(error.context(format_args!("read piece {number} of the values of leaf {leaf}")));
    }
}

/// The oldest values of a list, or the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Oldest,
    Newest,
}

/// The middle of one list, from the oldest piece.
#[derive(Default)]
pub(crate) struct Pieces {
    list: VecDeque<Piece>,
    /// Values in all of them.
    values: usize,
    /// Bytes of those that are in memory.
    held: usize,
    /// Numbers of which a checkpoint knows, and the next one is to be told that they are gone.
    gone: Vec<u32>,
}

struct Piece {
    /// [`UNPUT`] before a cycle has it.
    number: u32,
    values: usize,
    /// `None`: the back end has them.
    bytes: Option<Box<[u8]>>,
}

impl Piece {
    /// Its number, if a cycle has it.
    fn put(&self) -> Option<u32> {
        (self.number != UNPUT).then_some(self.number)
    }
}

impl Pieces {
    /// What [`Pieces::save`] wrote.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn load(image: &mut Reader<'_>, shelf: &Shelf) -> Result<Self, Malformed> {
        let mut pieces = Self::default();
        let mut after = 0_u32;
        for _ in 0..image.count("pieces of a list")? {
            let number = after.checked_add(image.word("number of a piece")?);
            let Some(number) = number.filter(|number| *number < shelf.next()) else {
                return Err(image.malformed(
                    "number of a piece",
                    format_args!("below {}", shelf.next()),
                    "more",
                ));
            };
            let values = image.word("values of a piece")? as usize;
            after = number + 1;
            pieces.values = pieces.values.saturating_add(values);
            pieces.list.push_back(Piece { number, values, bytes: None });
        }
        Ok(pieces)
    }

    /// Appends the numbers of the pieces to an image.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        put(out, self.list.len() as u64);
        let mut after = 0;
        for piece in &self.list {
            put(out, u64::from(piece.number - after));
            put(out, piece.values as u64);
            after = piece.number + 1;
        }
    }

    /// Whether there is nothing, and nothing to be told.
    pub(crate) fn is_spent(&self) -> bool {
        self.list.is_empty() && self.gone.is_empty()
    }

    /// Values in all of them.
    pub(crate) fn values(&self) -> usize {
        self.values
    }

    /// Heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.held + self.list.capacity() * size_of::<Piece>() + self.gone.capacity() * size_of::<u32>()
    }

    /// Cuts the newest piece, whose bytes `write` appends.
    pub(crate) fn cut(&mut self, values: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        write(&mut bytes);
        self.values += values;
        self.held += bytes.len();
        self.list.push_back(Piece { number: UNPUT, values, bytes: Some(bytes.into()) });
    }

    /// Pieces that no cycle has yet.
    pub(crate) fn unput(&self) -> usize {
        self.list.iter().rev().take_while(|piece| piece.put().is_none()).count()
    }

    /// Tells a cycle which pieces are new and gone since the last one; `put` is given the numbers of the new ones.
    pub(crate) fn hand_over(&mut self, shelf: &Shelf, to: &mut dyn PieceSink, mut put: impl FnMut(u32)) {
        let known = self.list.len() - self.unput();
        for piece in self.list.range_mut(known..) {
            piece.number = shelf.take_number();
            to.put(piece.number, piece.bytes.as_deref().unwrap_or_default());
            put(piece.number);
        }
        self.gone.drain(..).for_each(|number| to.remove(number));
    }

    /// A piece can be read back: its bytes leave memory.
    pub(crate) fn written(&mut self, number: u32, shelf: &Shelf) {
        if let Ok(place) = self.list.binary_search_by_key(&number, |piece| piece.number)
            && shelf.is_read()
        {
            self.held -= self.list[place].bytes.take().map_or(0, |bytes| bytes.len());
        }
    }

    /// All pieces are gone.
    pub(crate) fn clear(&mut self) {
        self.gone.extend(self.list.drain(..).filter_map(|piece| piece.put()));
        (self.values, self.held) = (0, 0);
    }

    /// Numbers of all pieces of which a checkpoint may know.
    pub(crate) fn bury(self, numbers: &mut Vec<u32>) {
        numbers.extend(self.gone);
        numbers.extend(self.list.iter().filter_map(Piece::put));
    }

    /// Whether those that are not in memory came with a restart.
    pub(crate) fn has_all(&self, shelf: &Shelf) -> bool {
        let came = lock(&shelf.store.came);
        let is_there =
            |piece: &Piece| piece.bytes.is_some() || came.contains_key(&(shelf.leaf, piece.number));
        self.list.iter().all(is_there)
    }

    /// Takes the values of the piece at an end out, as `read` reads them; `None` where there is no piece.
    pub(crate) fn take<T: Default>(
        &mut self,
        end: End,
        shelf: &Shelf,
        read: impl FnOnce(&mut Reader<'_>, usize) -> Result<T, Malformed>,
    ) -> Option<T> {
        let piece = match end {
            End::Oldest => self.list.pop_front(),
            End::Newest => self.list.pop_back(),
        }?;
        self.forget(&piece);
        let bytes = match piece.bytes {
            Some(bytes) => Ok(bytes.into()),
            None => shelf.read(piece.number),
        };
        let read = bytes.and_then(|bytes: Vec<u8>| {
            let mut image = Reader::new(&bytes);
            let values = read(&mut image, piece.values)?;
            image.finish("piece")?;
            Ok(values)
        });
        Some(read.unwrap_or_else(|error| {
            shelf.fail(piece.number, error);
            T::default()
        }))
    }

    /// A piece is not in the list any more.
    fn forget(&mut self, piece: &Piece) {
        self.values -= piece.values;
        self.held -= piece.bytes.as_ref().map_or(0, |bytes| bytes.len());
        self.gone.extend(piece.put());
    }

    /// Drops the newest pieces of which all values are to be dropped: those from the oldest one on whose first value is,
    /// as `is_dropped` says of its bytes. Reads some pieces, as many as there are digits in the number of those dropped.
    pub(crate) fn drop_newest(
        &mut self,
        shelf: &Shelf,
        is_dropped: impl Fn(&mut Reader<'_>) -> Result<bool, Malformed>,
    ) {
        let (mut kept, mut dropped) = (None, self.list.len());
        let mut looks_at = |place: usize| {
            let piece = &mut self.list[place];
            if piece.bytes.is_none() {
                match shelf.read(piece.number) {
                    Ok(bytes) => {
                        self.held += bytes.len();
                        piece.bytes = Some(bytes.into());
                    }
                    Err(error) => shelf.fail(piece.number, error),
                }
            }
            let bytes = piece.bytes.as_deref().unwrap_or_default();
            is_dropped(&mut Reader::new(bytes)).unwrap_or_else(|error| {
                shelf.fail(piece.number, error.into());
                false
            })
        };
        // All from `dropped` on are, the one at `kept` is not.
        let mut step = 1;
        while dropped > 0 && kept.is_none() {
            let place = dropped.saturating_sub(step);
            if looks_at(place) {
                dropped = place;
                step *= 2;
            } else {
                kept = Some(place);
            }
        }
        if let Some(mut kept) = kept {
            while dropped - kept > 1 {
                let place = kept + (dropped - kept) / 2;
                if looks_at(place) { dropped = place } else { kept = place }
            }
        }
        self.list.split_off(dropped).iter().for_each(|piece| self.forget(piece));
    }
}
