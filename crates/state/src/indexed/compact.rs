//! Compaction: the oldest segment's live entries are appended again, and the segment leaves the list.
//!
//! Why the oldest and not the emptiest: entries of a key that a tombstone hides are in older segments, so in the
//! oldest one a tombstone hides nothing and may go; and every segment gets its turn, so that a single old live key
//! keeps no file. Segments in which nothing is live leave without being read.
//!
//! When: segments, the active one among them, take more than 8/5 of the live bytes. How fast: for each byte written,
//! four bytes of the oldest segment are read. The oldest is then live by at most five eighths on average, so more
//! leaves than comes; where all keys are as busy it is live by a little more than a third, and a byte written costs
//! little more than half a byte copied. A copied segment stays on the disk until the next commit does without it;
//! the rest up to twice the live bytes is for that and for the segment that is being emptied.
//!
//! Segments are as large as a sixteenth of the live bytes (see the writer), within bounds: a large one
//! would keep as much dead data until its turn comes.
//!
//! The work is done by the thread that writes, in slices. Nothing is compacted while a scan is under way.

use std::sync::atomic::Ordering;

use super::entry::{Entry, entries};
use super::index::Address;
use super::location::Location;
use super::segment::{self, Extent, Walk};
use super::writer::Writer;
use super::{Counters, Shared};
use crate::StateError;

/// Bytes of the oldest segment that are read for each byte written.
const PACE: u64 = 4;

/// Where compaction is.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    /// The segment that is being emptied, its slot, and the walk through it.
    victim: Option<(Extent, u16, Walk)>,
    /// Bytes that may be read; frames are read whole, so it may be overdrawn.
    allowance: i64,
}

impl Compaction {
    /// The segment has left the list.
    pub(super) fn forget(&mut self, number: u64) {
        self.victim.take_if(|(extent, ..)| extent.number == number);
    }
}

impl Writer {
    /// Does the compaction that `written` bytes pay for.
    pub(super) fn compact(&mut self, shared: &Shared, written: u64) -> Result<(), StateError> {
        if shared.counters.scans.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        self.compaction.allowance += (written * PACE) as i64;
        match self.spend_allowance(shared) {
            // Nothing was copied and nothing lost; writing goes on as long as it can.
            Err(error) if error.is_full() => {
                self.compaction.allowance = 0;
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn spend_allowance(&mut self, shared: &Shared) -> Result<(), StateError> {
        while self.compaction.allowance > 0 {
            if self.compaction.victim.is_none() && !self.choose_victim(shared)? {
                self.compaction.allowance = 0;
                return Ok(());
            }
            let Some((extent, slot, mut walk)) = self.compaction.victim.take() else { return Ok(()) };
            let outcome = self.compact_frame(shared, extent, slot, &mut walk);
            if let Ok(false) = outcome {
                Counters::add(&shared.counters.compactions, 1);
                continue;
            }
            self.compaction.victim = Some((extent, slot, walk));
            outcome?;
        }
        Ok(())
    }

    fn choose_victim(&mut self, shared: &Shared) -> Result<bool, StateError> {
        let oldest = {
            let places = shared.places();
            // Those without live entries leave with the next version.
            let holding = |extent: &&Extent| places.live_count(extent.number) > 0;
            let sealed: u64 = self.sealed.values().filter(holding).map(|extent| extent.len).sum();
            let active = self.active.as_ref().map_or(0, |active| active.extent.len);
            if (sealed + active) * 5 <= places.live_bytes() * 8 {
                return Ok(false);
            }
            let oldest = self.sealed.values().find(holding).copied();
            oldest.and_then(|extent| Some((extent, places.slot_of(extent.number)?)))
        };
        let Some((extent, slot)) = oldest else { return Ok(false) };
        let file = shared.handles.get(extent.number)?;
        let path = segment::path(&shared.dir, extent.number);
        let start = segment::empty(shared.identity, extent.number);
        let walk = Walk::new(file, path, shared.identity, start, extent);
        self.compaction.victim = Some((extent, slot, walk));
        Ok(true)
    }

    /// Copies the live entries of the next frame; whether there was one.
    fn compact_frame(
        &mut self,
        shared: &Shared,
        extent: Extent,
        slot: u16,
        walk: &mut Walk,
    ) -> Result<bool, StateError> {
        let mark = walk.mark();
        let Some(payload) = walk.next()? else {
            let left = shared.places().live_count(extent.number);
            if left == 0 {
                return Ok(false);
            }
            let path = segment::path(&shared.dir, extent.number);
            return Err(StateError::corrupt(&path, extent.len, "live entries after the end", 0, left));
        };
        let mut live: Vec<Entry<'_>> = Vec::new();
        let mut tombstones = Vec::new();
        {
            let places = shared.places();
            for entry in entries(walk.bytes(&payload)) {
                let (at, entry) = entry.map_err(|(at, fault)| walk.entry_damage(&payload, at, fault))?;
                let is_tombstone = entry.value.is_none();
                let start = payload.pos + at as u64;
                let here = Location::new(slot, start, entry.stored_len(), is_tombstone);
                let address = Address::of(&shared.hash_key, entry.key);
                if places.index.get(address) == Some(here) {
                    if is_tombstone { tombstones.push(address) } else { live.push(entry) }
                }
            }
        }
        if !live.is_empty() {
            match self.append(shared, live.into_iter()) {
                Ok(bytes) => Counters::add(&shared.counters.copied_bytes, bytes),
                Err(error) => {
                    walk.back_to(mark);
                    return Err(error);
                }
            }
        }
        let mut places = shared.places_mut();
        for address in tombstones {
            places.remove(address);
        }
        self.compaction.allowance -= payload.frame_len() as i64;
        Ok(true)
    }
}
