//! Ids seen within a span of task time, in the order in which they were seen.
//!
//! For a checkpoint they go out in *frames*: each cycle writes the ids that came in it, cut into frames of at most
//! [`FRAME`], numbered and in order, so that a cycle never writes an id again. Times ascend over all frames, so a frame
//! is out of the span as a whole, oldest first, and then dropped.
//!
//! Invariants
//! * An id that has left memory before its frame was written is kept aside until it is: a frame holds what was there at
//!   its marker.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use foldhash::fast::FixedState;
use thalweg_types::Micros;

use crate::image::{Malformed, Reader, put, put_signed};
use crate::key::Key;

/// Ids of a frame: some 100 KB, written between two batches in well under a millisecond.
const FRAME: u64 = 4096;

pub(crate) struct Ids {
    span: Micros,
    seen: HashMap<Key, Micros, FixedState>,
    order: VecDeque<(Micros, Key)>,
    heap: usize,
    /// Ids that have left `order`: its first has this number.
    left: u64,
    /// Numbers of the ids that are still to be written for the cycle under way; behind them are those of the next.
    frozen: Range<u64>,
    /// Frozen ids that have left `order`, before those that have not.
    aside: VecDeque<(Micros, Key)>,
    /// Frames that a checkpoint holds: number and last time, oldest first.
    frames: VecDeque<(u64, Micros)>,
    /// Number of the next frame.
    next: u64,
}

impl Ids {
    pub(crate) fn new(span: Micros) -> Self {
        Self {
            span,
            seen: HashMap::with_hasher(FixedState::with_seed(0)),
            order: VecDeque::new(),
            heap: 0,
            left: 0,
            frozen: 0..0,
            aside: VecDeque::new(),
            frames: VecDeque::new(),
            next: 0,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.seen.capacity() * size_of::<(Key, Micros)>()
            + (self.order.capacity() + self.aside.capacity()) * size_of::<(Micros, Key)>()
            + 2 * self.heap
    }

    /// Whether the id was seen at `t` with `now − span < t`, as a sliding window would hold it.
    pub(crate) fn has_seen(&self, key: &Key, now: Micros) -> bool {
        self.seen.get(key).is_some_and(|at| *at > now.saturating_sub(self.span))
    }

    pub(crate) fn saw(&mut self, key: Key, now: Micros) {
        let bound = now.saturating_sub(self.span);
        while self.order.front().is_some_and(|(at, _)| *at <= bound)
            && let Some((at, key)) = self.order.pop_front()
        {
            self.heap -= key.heap_bytes();
            if self.seen.get(&key) == Some(&at) {
                self.seen.remove(&key);
            }
            if self.frozen.contains(&self.left) {
                self.aside.push_back((at, key));
            }
            self.left += 1;
        }
        self.push(key, now);
    }

    fn push(&mut self, key: Key, at: Micros) {
        self.heap += key.heap_bytes();
        self.order.push_back((at, key.clone()));
        self.seen.insert(key, at);
    }

    /// A marker: what came since the last one is to be written. Returns the frames that no id within the span is in
    /// any more.
    pub(crate) fn freeze(&mut self, now: Option<Micros>) -> Vec<u64> {
        let bound = now.map_or(Micros::MIN, |now| now.saturating_sub(self.span));
        let mut gone = Vec::new();
        while let Some((number, _)) = self.frames.pop_front_if(|(_, last)| *last <= bound) {
            gone.push(number);
        }
        self.frozen = self.frozen.end.max(self.left)..self.left + self.order.len() as u64;
        gone
    }

    /// The frames that the checkpoint of the cycle under way has: those that there are and those to be written.
    pub(crate) fn frozen_frames(&self) -> Range<u64> {
        let first = self.frames.front().map_or(self.next, |(number, _)| *number);
        first..self.next + (self.frozen.end - self.frozen.start).div_ceil(FRAME)
    }

    /// Number and ids of the frame that is to be written next.
    pub(crate) fn frozen_frame(&self) -> Option<(u64, usize)> {
        let count = (self.frozen.end - self.frozen.start).min(FRAME);
        (count > 0).then_some((self.next, count as usize))
    }

    /// Appends the frame that is to be written next to `out`.
    pub(crate) fn save_frame(&mut self, out: &mut Vec<u8>) {
        let Some((number, count)) = self.frozen_frame() else { return };
        put(out, count as u64);
        let mut before = 0;
        let mut save = |(at, key): &(Micros, Key)| {
            put_signed(out, at.wrapping_sub(before));
            key.save(out);
            before = *at;
        };
        let aside = self.aside.len().min(count);
        self.aside.drain(..aside).for_each(|id| save(&id));
        let first = (self.frozen.start + aside as u64).saturating_sub(self.left);
        let rest = count - aside;
        self.order.range(first as usize..first as usize + rest).for_each(save);
        self.frozen.start += count as u64;
        self.next += 1;
        self.frames.push_back((number, before));
    }

    /// Takes over a frame; frames are given in order of their numbers. `now`: task time of the checkpoint.
    pub(crate) fn load_frame(
        &mut self,
        number: u64,
        now: Micros,
        image: &mut Reader<'_>,
    ) -> Result<(), Malformed> {
        let mut before: Micros = 0;
        let mut last = self.order.back().map_or(Micros::MIN, |(at, _)| *at);
        for _ in 0..image.count("ids of a frame")? {
            let at = before.wrapping_add(image.signed("time of an id")?);
            if at < last || at > now {
                let expected = format!("from {last} to {now}");
                return Err(image.malformed("time of an id", expected, at));
            }
            (before, last) = (at, at);
            self.push(Key::load(image)?, at);
        }
        self.frames.push_back((number, last));
        self.loaded(number + 1);
        Ok(())
    }

    /// Frames are numbered from here on; what there is has been written.
    pub(crate) fn loaded(&mut self, next: u64) {
        self.next = next;
        let all = self.order.len() as u64;
        self.frozen = all..all;
    }
}
