//! Ids as a part of the stage's bounded state: which leave memory, how they come back, and how a restart takes them over.
//!
//! Ids may have a quarter of the memory to themselves. Beyond that the oldest ones leave it when all that the stage holds
//! is above its bound (`crate::ids` says which parts of them stay).
//!
//! Not here: which ids are duplicates (`crate::judge`), their frames at a marker (`records`).

use std::collections::BTreeMap;

use thalweg_types::{Error, Micros};

use super::Manifest;
use super::cache::{Cache, missing};
use super::changes::Key;
use super::records::Records;
use super::restore::contradiction;
use crate::ids::Ids;
use crate::image::{self, Malformed, Reader};
use crate::judge::Judge;
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

impl Cache {
    /// Reads back what it takes to know whether ids of a batch were seen, where they may be out of memory.
    pub(super) fn recall_ids(&mut self, judge: &mut Judge, keys: &[Option<key::Key>]) -> Result<(), Error> {
        let now = judge.task_time().unwrap_or(Micros::MIN);
        let Some(ids) = judge.ids() else { return Ok(()) };
        let frames: Vec<Key> = ids.doubtful(keys.iter().flatten(), now).into_iter().map(Key::Ids).collect();
        self.stats.misses += frames.len() as u64;
        for frames in frames.chunks(FRAMES) {
            self.read(frames, |key, bytes, value| {
                let mut image = image::open(bytes, value.ok_or_else(|| missing(key))?)?;
                Ok(ids.recall(&mut image)?)
            })?;
        }
        Ok(())
    }

    /// Lets up to `count` ids leave memory, if they take more than their share of it. Whether they still do.
    pub(super) fn evict_ids(&mut self, ids: &mut Ids, count: usize) -> bool {
        let evicted = ids.evict(count, self.memory / SHARE);
        self.stats.evictions += evicted as u64;
        evicted < count && ids.is_above(self.memory / SHARE)
    }
}

impl ComingIds {
    /// Takes over a frame of ids that a checkpoint names, in its turn.
    pub(super) fn load(
        &mut self,
        manifest: &Manifest,
        records: &mut Records,
        mut cache: Option<&mut Cache>,
        number: u64,
        image: &mut Reader<'_>,
    ) -> Result<(), Malformed> {
        let saved = manifest.ids.as_ref().filter(|saved| saved.frames.contains(&number));
        let Some(saved) = saved else {
            return Err(image.malformed("frame of ids", "one that the manifest names", number));
        };
        if !records.has_ids_of(manifest) {
            self.next = Some(saved.frames.end);
            return Ok(());
        }
        let next = self.next.get_or_insert(saved.frames.start);
        if number != *next {
            self.early.insert(number, image.rest().to_vec());
            return Ok(());
        }
        let now = manifest.task_time.unwrap_or(Micros::MIN);
        load_frame(records, cache.as_deref_mut(), (number, now), image)?;
        *next += 1;
        while let Some(frame) = self.early.remove(next) {
            load_frame(records, cache.as_deref_mut(), (*next, now), &mut Reader::new(&frame))?;
            *next += 1;
        }
        Ok(())
    }

    /// All frames have come; keys of those that are not looked for any more go to `gone`.
    pub(super) fn finish(
        &self,
        manifest: &Manifest,
        records: &mut Records,
        gone: &mut Vec<Key>,
    ) -> Result<(), Error> {
        let Some(saved) = &manifest.ids else { return Ok(()) };
        if !records.has_ids_of(manifest) {
            gone.extend(saved.frames.clone().map(Key::Ids));
        } else if self.next.unwrap_or(saved.frames.start) != saved.frames.end {
            let next = self.next.unwrap_or(saved.frames.start);
            return Err(contradiction(&format_args!(
                "expected frames of ids {:?}, got none with number {next}",
                saved.frames
            )));
        }
        if let Some(ids) = records.judge.ids() {
            ids.loaded(saved.frames.end);
        }
        Ok(())
    }
}

fn load_frame(
    records: &mut Records,
    cache: Option<&mut Cache>,
    (number, now): (u64, Micros),
    image: &mut Reader<'_>,
) -> Result<(), Malformed> {
    let Some(ids) = records.judge.ids() else { return Ok(()) };
    ids.load_frame(number, now, image)?;
    image.finish("frame of ids")?;
    if let Some(cache) = cache {
        cache.evict_ids(ids, usize::MAX);
    }
    Ok(())
}
