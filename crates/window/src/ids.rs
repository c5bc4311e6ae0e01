//! Ids seen within a span of task time, in the order in which they were seen.
//!
//! For a checkpoint they go out in *frames*: each cycle writes the ids that came in it, cut into frames of at most
//! [`FRAME`], numbered and in order, so that a cycle never writes an id again. Times ascend over all frames, so a frame
//! is out of the span as a whole, oldest first, and then dropped.
//!
//! Where memory is bounded the oldest ids may leave it ([`Ids::evict`]) once their frames can be read back: they are *cold*.
//! Of a cold id 64 bits of hash and the number of its frame stay ([`cold`]), so that an id that never came is known to be
//! new without a look elsewhere; where the hash agrees its frame is read ([`Ids::doubtful`], [`Ids::recall`]). The hash has
//! a seed of this task and this run, so that no client can send ids that agree.
//!
//! Invariants
//! * An id that has left the span before its frame was written is kept aside until it is: a frame holds the ids that
//!   were there at its marker.
//! * Ids are numbered as they came; those in memory are the newest ones, without a gap.
//! * What is answered depends on no eviction.

mod cold;

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::fast::RandomState;
use thalweg_types::Micros;

use crate::image::{Malformed, Reader, put, put_signed};
use crate::key::Key;
use cold::Cold;

/// Ids of a frame: some 100 KB, written between two batches in well under a millisecond.
const FRAME: u64 = 4096;

pub(crate) struct Ids {
    span: Micros,
    seen: HashMap<Key, Micros, RandomState>,
    order: VecDeque<(Micros, Key)>,
    heap: usize,
    /// Ids that have left `order`: its first has this number.
    left: u64,
    /// Numbers of the ids that are still to be written for the cycle under way; after them are those of the next.
    frozen: Range<u64>,
    /// Frozen ids that have left `order`, before those that have not.
    aside: VecDeque<(Micros, Key)>,
    /// Frames that a checkpoint holds, oldest first.
    frames: VecDeque<Frame>,
    /// Number of the next frame.
    next: u64,
    /// Frames of cycles up to this one can be read back.
    written: u64,
    cold: Cold,
    /// Ids of the batch at hand that may be cold, and when they were seen if they are.
    recalled: HashMap<Key, Option<Micros>, RandomState>,
}

/// A frame that is handed over.
struct Frame {
    number: u64,
    /// Time of its last id.
    last: Micros,
    /// Number after its last id.
    end: u64,
    cycle: u64,
}

impl Ids {
    pub(crate) fn new(span: Micros) -> Self {
        Self {
            span,
            seen: HashMap::default(),
            order: VecDeque::new(),
            heap: 0,
            left: 0,
            frozen: 0..0,
            aside: VecDeque::new(),
            frames: VecDeque::new(),
            next: 0,
            written: 0,
            cold: Cold::new(),
            recalled: HashMap::default(),
        }
    }

    /// Ids in memory.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Ids out of memory, within the span or just beyond it.
    pub(crate) fn cold_len(&self) -> usize {
        self.cold.len()
    }

    /// What cold ids take in memory.
    pub(crate) fn cold_bytes(&self) -> usize {
        self.cold.bytes()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.seen.capacity() * size_of::<(Key, Micros)>()
            + (self.order.capacity() + self.aside.capacity()) * size_of::<(Micros, Key)>()
            + 2 * self.heap
            + self.cold.bytes()
    }

    /// Whether the id was seen at `t` with `now − span < t`, as a sliding window would hold it. Of cold ids only those
    /// are known that were recalled.
    pub(crate) fn has_seen(&self, key: &Key, now: Micros) -> bool {
        let seen = self.seen.get(key).copied().or_else(|| self.recalled.get(key).copied().flatten());
        seen.is_some_and(|at| at > now.saturating_sub(self.span))
    }

    /// Frames that have to be given to [`Ids::recall`] before these ids can be judged, at task time `now` or later.
    pub(crate) fn doubtful<'a>(&mut self, keys: impl Iterator<Item = &'a Key>, now: Micros) -> Vec<u64> {
        self.recalled.clear();
        if self.cold.len() == 0 {
            return Vec::new();
        }
        let bound = now.saturating_sub(self.span);
        let within = self.frames.partition_point(|frame| frame.last <= bound);
        let Some(first) = self.frames.get(within).map(|frame| frame.number) else { return Vec::new() };
        let mut frames = Vec::new();
        for key in keys {
            if self.seen.contains_key(key) {
                // Nothing of it that is cold is newer.
                continue;
            }
            let known = frames.len();
            frames.extend(
                self.cold.frames_of(self.seen.hasher().hash_one(key)).filter(|frame| *frame >= first),
            );
            if frames.len() > known {
                self.recalled.insert(key.clone(), None);
            }
        }
        frames.sort_unstable();
        frames.dedup();
        frames
    }

    /// Looks through a frame for the ids that are in doubt.
    pub(crate) fn recall(&mut self, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let mut at: Micros = 0;
        for _ in 0..image.count("ids of a frame")? {
            at = at.wrapping_add(image.signed("time of an id")?);
            if let Some(seen) = self.recalled.get_mut(&Key::load(image)?) {
                *seen = (*seen).max(Some(at));
            }
        }
        image.finish("frame of ids")
    }

    /// Frames of this cycle, and of those before, can be read back.
    pub(crate) fn written(&mut self, cycle: u64) {
        self.written = self.written.max(cycle);
    }

    /// Whether ids in memory take more than `bytes` bytes.
    pub(crate) fn is_above(&self, bytes: usize) -> bool {
        self.order.len() * (size_of::<(Key, Micros)>() + size_of::<(Micros, Key)>()) + 2 * self.heap > bytes
    }

    /// Lets up to `count` of the oldest ids leave memory, of those whose frames can be read back, as long as ids in memory
    /// take more than `bytes`. How many left.
    pub(crate) fn evict(&mut self, count: usize, bytes: usize) -> usize {
        let mut evicted = 0;
        let mut place = self.frames.partition_point(|frame| frame.end <= self.left);
        while evicted < count && self.is_above(bytes) {
            let Some(frame) = self.frames.get(place).filter(|frame| frame.cycle <= self.written) else {
                break;
            };
            let Ok(number) = u32::try_from(frame.number) else { break };
            if frame.end <= self.left {
                place += 1;
                continue;
            }
            let Some((_, key)) = self.pop() else { break };
            self.cold.insert(self.seen.hasher().hash_one(&key), number);
            evicted += 1;
        }
        // Tables that have become much too large are given back.
        if evicted > 0 && self.seen.capacity() > 3 * self.seen.len().max(1024) {
            self.seen.shrink_to(self.seen.len() / 2 * 3);
            self.order.shrink_to(self.order.len() / 2 * 3);
        }
        evicted
    }

    pub(crate) fn saw(&mut self, key: Key, now: Micros) {
        let bound = now.saturating_sub(self.span);
        while self.order.front().is_some_and(|(at, _)| *at <= bound)
            && let Some(oldest) = self.pop()
        {
            if self.frozen.contains(&(self.left - 1)) {
                self.aside.push_back(oldest);
            }
        }
        self.push(key, now);
    }

    /// Takes the oldest id out of memory; when it was seen.
    fn pop(&mut self) -> Option<(Micros, Key)> {
        let (at, key) = self.order.pop_front()?;
        self.heap -= key.heap_bytes();
        if self.seen.get(&key) == Some(&at) {
            self.seen.remove(&key);
        }
        self.left += 1;
        Some((at, key))
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
        while let Some(frame) = self.frames.pop_front_if(|frame| frame.last <= bound) {
            gone.push(frame.number);
        }
        self.cold.forget_before(self.frames.front().map_or(self.next, |frame| frame.number));
        self.frozen = self.frozen.end.max(self.left)..self.left + self.order.len() as u64;
        gone
    }

    /// The frames that the checkpoint of the cycle under way has: those that there are and those to be written.
    pub(crate) fn frozen_frames(&self) -> Range<u64> {
        let first = self.frames.front().map_or(self.next, |frame| frame.number);
        first..self.next + (self.frozen.end - self.frozen.start).div_ceil(FRAME)
    }

    /// Number and ids of the frame that is to be written next.
    pub(crate) fn frozen_frame(&self) -> Option<(u64, usize)> {
        let count = (self.frozen.end - self.frozen.start).min(FRAME);
        (count > 0).then_some((self.next, count as usize))
    }

    /// Appends the frame that is to be written next to `out`, as a part of `cycle`.
    pub(crate) fn save_frame(&mut self, cycle: u64, out: &mut Vec<u8>) {
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
        self.frames.push_back(Frame { number, last: before, end: self.frozen.start, cycle });
    }

    /// Takes over a frame; frames are given in order of their numbers. `now`: task time of the checkpoint.
    pub(crate) fn load_frame(
        &mut self,
        number: u64,
        now: Micros,
        image: &mut Reader<'_>,
    ) -> Result<(), Malformed> {
        let mut before: Micros = 0;
        let mut last = self.frames.back().map_or(Micros::MIN, |frame| frame.last);
        for _ in 0..image.count("ids of a frame")? {
            let at = before.wrapping_add(image.signed("time of an id")?);
            if at < last || at > now {
                let expected = format!("from {last} to {now}");
                return Err(image.malformed("time of an id", expected, at));
            }
            (before, last) = (at, at);
            self.push(Key::load(image)?, at);
        }
        let end = self.left + self.order.len() as u64;
        self.frames.push_back(Frame { number, last, end, cycle: 0 });
        self.loaded(number + 1);
        Ok(())
    }

    /// Frames are numbered from here on; what there is has been written.
    pub(crate) fn loaded(&mut self, next: u64) {
        self.next = next;
        let all = self.left + self.order.len() as u64;
        self.frozen = all..all;
    }
}
