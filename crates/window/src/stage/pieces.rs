//! Pieces of long lists as a checkpoint has them: each a value of its own, under the id of its leaf and its number.
//!
//! Not here: what is in a piece, and when there is one (`crate::pieces`).

use std::convert::Infallible;
use std::sync::Arc;

use thalweg_state::Changes;
use thalweg_types::Error;

use super::cache::{GroupReader, missing};
use super::changes::{Key, Sealed};
use crate::image;
use crate::pieces::{PieceReader, PieceSink};

/// What the open cycle is told of the pieces of one leaf.
pub(super) struct PieceChanges<'a> {
    pub(super) leaf: u32,
    pub(super) changes: &'a mut Changes,
}

impl PieceSink for PieceChanges<'_> {
    fn put(&mut self, number: u32, bytes: &[u8]) {
        let Ok(()) = self.changes.put(Key::Piece { leaf: self.leaf, number }, |out| {
            out.extend_from_slice(bytes);
            Ok::<(), Infallible>(())
        });
    }

    fn remove(&mut self, number: u32) {
        self.changes.drop_key(Key::Piece { leaf: self.leaf, number });
    }
}

/// Pieces in the back end that has the groups.
pub(super) struct ReadPieces(pub(super) Arc<dyn GroupReader>);

impl PieceReader for ReadPieces {
    fn read(&self, leaf: u32, number: u32) -> Result<Vec<u8>, Error> {
        let key = Key::Piece { leaf, number };
        let bytes = key.to_bytes();
        let value = self.0.get_many(&[&bytes])?.pop().flatten().ok_or_else(|| missing(key))?;
        Ok(image::open(&bytes, &value)?.rest().to_vec())
    }
}
