//! Ids of a checkpoint, given back to the judge.

use std::collections::BTreeMap;

use thalweg_types::{Error, Micros};

use super::changes::Key;
use super::restore::contradiction;
use super::{Manifest, Stage};
use crate::image::Reader;

impl Stage {
    /// Ids of a checkpoint; keys of those that are not looked for any more go to `gone`.
    pub(super) fn restore_ids(
        &mut self,
        manifest: &Manifest,
        frames: &BTreeMap<u64, Vec<u8>>,
        gone: &mut Vec<Key>,
    ) -> Result<(), Error> {
        let Some(saved) = &manifest.ids else { return Ok(()) };
        let column = self.options.dedup.map(|(column, _)| &self.schema.fields()[column]);
        let is_same = column.is_some_and(|field| {
            (field.name.as_str(), field.data_type.to_string())
                == (saved.column.0.as_str(), saved.column.1.clone())
        });
        let ids = self.judge.ids();
        if !is_same {
            gone.extend(saved.frames.clone().map(Key::Ids));
        } else if !saved.frames.clone().eq(frames.keys().copied()) {
            return Err(contradiction(&format_args!(
                "expected frames of ids {:?}, got {:?}",
                saved.frames,
                frames.keys()
            )));
        }
        let Some(ids) = ids else { return Ok(()) };
        for (number, frame) in frames.iter().filter(|_| is_same) {
            let mut image = Reader::new(frame);
            let now = manifest.task_time.unwrap_or(Micros::MIN);
            ids.load_frame(*number, now, &mut image)?;
            image.finish("frame of ids")?;
        }
        ids.loaded(saved.frames.end);
        Ok(())
    }
}
