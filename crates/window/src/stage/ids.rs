//! Ids as a part of the stage's bounded state: which leave memory, how they come back, and how a restart takes them over.
//!
//! Ids may have a quarter of the memory to themselves. Beyond that the oldest ones leave it when all that the stage holds
//! is above its bound (`crate::ids` says which parts of them stay).

use std::collections::BTreeMap;

use thalweg_types::{Error, Micros};

use super::cache::missing;
use super::changes::Key;
use super::restore::contradiction;
use super::{Manifest, Stage};
use crate::image::{self, Malformed, Reader};
use crate::key;

/// Frames that are in memory at once while they are read: a few megabytes.
pub(super) const FRAMES: usize = 16;

/// One part in this number of the memory is for ids before they leave it.
const SHARE: usize = 4;

/// Frames of a checkpoint on their way to the judge: they come in any order and go in that of their numbers.
#[derive(Default)]
pub(super) struct ComingIds {
    /// Those that came before their turn.
    early: BTreeMap<u64, Vec<u8>>,
    /// The frame whose turn it is, once one came.
    next: Option<u64>,
}

impl Stage {
    /// Reads back what it takes to know whether ids of a batch were seen, where they may be out of memory.
    pub(super) fn recall_ids(&mut self, keys: Option<&[Option<key::Key>]>) -> Result<(), Error> {
        let (Some(keys), Some(cache)) = (keys, &mut self.cache) else { return Ok(()) };
        let now = self.records.task_time().unwrap_or(Micros::MIN);
        let Some(ids) = self.records.judge.ids() else { return Ok(()) };
        let frames: Vec<Key> = ids.doubtful(keys.iter().flatten(), now).into_iter().map(Key::Ids).collect();
        cache.stats.misses += frames.len() as u64;
        for frames in frames.chunks(FRAMES) {
            cache.read(frames, |key, bytes, value| {
                let mut image = image::open(bytes, value.ok_or_else(|| missing(key))?)?;
                Ok(ids.recall(&mut image)?)
            })?;
        }
        Ok(())
    }

    /// Lets up to `count` ids leave memory, if they take more than their share of it. Whether they still do.
    pub(super) fn evict_ids(&mut self, count: usize) -> bool {
        let (Some(cache), Some(ids)) = (&mut self.cache, self.records.judge.ids()) else { return false };
        let evicted = ids.evict(count, cache.memory / SHARE);
        cache.stats.evictions += evicted as u64;
        evicted < count && ids.is_above(cache.memory / SHARE)
    }

    /// Takes over a frame of ids that a checkpoint names, in its turn.
    pub(super) fn load_ids(
        &mut self,
        manifest: &Manifest,
        coming: &mut ComingIds,
        number: u64,
        image: &mut Reader<'_>,
    ) -> Result<(), Malformed> {
        let saved = manifest.ids.as_ref().filter(|saved| saved.frames.contains(&number));
        let Some(saved) = saved else {
            return Err(image.malformed("frame of ids", "one that the manifest names", number));
        };
        if !self.records.has_ids_of(manifest) {
            coming.next = Some(saved.frames.end);
            return Ok(());
        }
        let next = coming.next.get_or_insert(saved.frames.start);
        if number != *next {
            coming.early.insert(number, image.rest().to_vec());
            return Ok(());
        }
        let now = manifest.task_time.unwrap_or(Micros::MIN);
        self.load_frame(number, now, image)?;
        *next += 1;
        while let Some(frame) = coming.early.remove(next) {
            self.load_frame(*next, now, &mut Reader::new(&frame))?;
            *next += 1;
        }
        Ok(())
    }

    fn load_frame(&mut self, number: u64, now: Micros, image: &mut Reader<'_>) -> Result<(), Malformed> {
        let Some(ids) = self.records.judge.ids() else { return Ok(()) };
        ids.load_frame(number, now, image)?;
        image.finish("frame of ids")?;
        self.evict_ids(usize::MAX);
        Ok(())
    }

    /// All frames have come; keys of those that are not looked for any more go to `gone`.
    pub(super) fn loaded_ids(
        &mut self,
        manifest: &Manifest,
        coming: &ComingIds,
        gone: &mut Vec<Key>,
    ) -> Result<(), Error> {
        let Some(saved) = &manifest.ids else { return Ok(()) };
        if !self.records.has_ids_of(manifest) {
            gone.extend(saved.frames.clone().map(Key::Ids));
        } else if coming.next.unwrap_or(saved.frames.start) != saved.frames.end {
            let next = coming.next.unwrap_or(saved.frames.start);
            return Err(contradiction(&format_args!(
                "expected frames of ids {:?}, got none with number {next}",
                saved.frames
            )));
        }
        if let Some(ids) = self.records.judge.ids() {
            ids.loaded(saved.frames.end);
        }
        Ok(())
    }
}
