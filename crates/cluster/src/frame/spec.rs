//! A frame with a job, from which on its receivers work by that job.
//!
//! Layout after the flags: spec number and semantic version as varints, length of the body, the job's text.

use super::cursor::Cursor;
use super::head::Kind;
use super::{FrameError, MAX_ROW_BYTES, Part, Settings, squeeze, varint, with_body};

/// A job with its queries, as of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub number: u64,
    /// Version of what the engine computes; a node that does not have it cannot go on.
    pub semantics: u32,
    pub job: String,
}

impl Spec {
    /// # Errors
    /// [`FrameError::JobTooLarge`].
    pub fn encode(&self, settings: &Settings) -> Result<Vec<u8>, FrameError> {
        let body = self.job.as_bytes();
        if body.len() > MAX_ROW_BYTES {
            return Err(FrameError::JobTooLarge { bytes: body.len(), most: MAX_ROW_BYTES });
        }
        let put_fields = |frame: &mut Vec<u8>| {
            varint::put(self.number, frame);
            varint::put(self.semantics.into(), frame);
        };
        Ok(with_body(Kind::Spec, 0, put_fields, body, settings.compress_below))
    }

    /// Reads what follows the flags.
    pub(super) fn read(flags: u8, mut cursor: Cursor<'_>) -> Result<Self, FrameError> {
        let (number, semantics) = (cursor.varint("spec number")?, cursor.short("semantic version")?);
        let body = squeeze::unpack(flags, cursor)?;
        let job = std::str::from_utf8(&body).map_err(|error| {
            Cursor::new(&body, Part::Body, 0).damaged(0, "text of the job", "UTF-8", error)
        })?;
        Ok(Self { number, semantics, job: job.to_owned() })
    }
}
