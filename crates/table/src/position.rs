//! What a commit record says about a table: the files of frames that hold rows which may be in no Parquet file yet, and how
//! much of each counts.

use serde::{Deserialize, Serialize};
use thalweg_types::Error;

/// Whether this is what a commit record says about a table, and that has rows.
#[must_use]
pub fn has_rows(part: &[u8]) -> bool {
    Position::decode(part).is_ok_and(|position| position.sealed() > 0 || !position.frames.is_empty())
}

/// Persisted, as JSON.
const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    version: u32,
    /// Number of the next file; all rows of files below it are committed.
    pub next: u64,
    /// Oldest first; rows were last written to the last one. Those that the manifest calls sealed do not count any more.
    pub frames: Vec<Extent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    pub number: u64,
    pub bytes: u64,
    pub rows: u64,
}

impl Position {
    pub(crate) fn new(next: u64, frames: Vec<Extent>) -> Self {
        Self { version: VERSION, next, frames }
    }

    /// Files of frames below this number were sealed when the position was taken.
    pub(crate) fn sealed(&self) -> u64 {
        self.frames.first().map_or(self.next, |extent| extent.number)
    }

    /// # Errors
    /// Of class internal: every field can be written as JSON.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(self)
            .map_err(|error| Error::internal("write a table's position").with_source(error))
    }

    /// # Errors
    /// Where it is no position, or one of a newer format.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let damaged =
            |error| Error::corrupt("the commit record holds no position of a table").with_source(error);
        let position: Self = serde_json::from_slice(bytes).map_err(damaged)?;
        if position.version > VERSION {
            let version = position.version;
            let message = format!(
                "a table's position has format version {version}, this program reads up to {VERSION}"
            );
            return Err(Error::user(message).with_hint("run the version that wrote it, or a newer one"));
        }
        Ok(position)
    }
}
