//! Files of a table that are text: lines of cells, plain or packed.

mod open;
mod records;

use std::path::Path;

use thalweg_types::Error;

pub(crate) use open::{Text, open, open_text, read_error};
pub(crate) use records::{Record, Records};

use open::is_of_packing;
use records::{Failure, LINE_BYTES, LINE_CELLS};

impl Failure {
    pub(crate) fn into_error(self, path: &Path, is_packed: bool) -> Error {
        let line = self.line;
        match self.error {
            None => Error::user(format!(
                "read {path:?}, line {line}: expected at most {LINE_BYTES} bytes in {LINE_CELLS} cells, got more"
            ))
            .with_hint("check that this is a text file"),
            Some(error) if is_packed && is_of_packing(&error) => {
                Error::user(format!("read {path:?}, line {line}: expected gzip data to its end"))
                    .with_hint("fetch the file again, and rename it into place when it is whole")
                    .with_source(error)
            }
            Some(error) => read_error(path, error),
        }
    }
}
