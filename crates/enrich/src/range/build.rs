//! Collects ranges and rows of all files, within a limit of memory, and makes a table of them.

use std::path::PathBuf;

use thalweg_types::{Error, Schema, format_size};

use super::RangeTable;
use super::cell::Cell;
use super::resolve::{Given, resolve};
use super::rows::Rows;
use super::slots::Slots;
use super::span::{Bounds, Span};
use crate::watch::FileIdentity;

/// Most ranges of a table: each becomes at most two pieces, and pieces are counted in 32 bits.
const MOST_RANGES: u32 = (1 << 31) - 1;

/// A table while it is loaded.
pub(super) struct Builder {
    schema: Schema,
    rows: Rows,
    v4: Vec<Given<u32>>,
    v6: Vec<Given<u128>>,
    memory_limit: u64,
    files: Vec<(PathBuf, FileIdentity)>,
}

impl Builder {
    pub(super) fn new(schema: Schema, memory_limit: u64) -> Self {
        let rows = Rows::new(&schema);
        Self { schema, rows, v4: Vec::new(), v6: Vec::new(), memory_limit, files: Vec::new() }
    }

    /// Ranges so far.
    pub(super) fn given(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Notes which state of a file the table holds.
    pub(super) fn add_file(&mut self, path: PathBuf, identity: FileIdentity) {
        self.files.push((path, identity));
    }

    /// The number of the row with these values, one for each field of the schema.
    ///
    /// # Errors
    /// Where there are more rows than ranges may be.
    pub(super) fn row(&mut self, cells: &[Cell<'_>]) -> Result<u32, Error> {
        self.rows.number(cells).ok_or_else(too_many)
    }

    /// A range that comes after all that were added before.
    ///
    /// # Errors
    /// Where the limit of memory is passed.
    pub(super) fn add(&mut self, span: Span, row: u32) -> Result<(), Error> {
        let order =
            u32::try_from(self.given()).ok().filter(|order| *order < MOST_RANGES).ok_or_else(too_many)?;
        match span {
            Span::V4(bounds) => self.v4.push(Given { bounds, row, order }),
            Span::V6(bounds) => self.v6.push(Given { bounds, row, order }),
        }
        // To be sorted out, each range takes a place in the heap and one or two pieces more.
        let used = self.rows.memory_bytes()
            + 3 * (size_of_val(&*self.v4) as u64)
            + 3 * (size_of_val(&*self.v6) as u64);
        if used > self.memory_limit {
            return Err(Error::user(format!(
                "the table takes more than {} of memory after {} ranges",
                format_size(self.memory_limit),
                self.given()
            ))
            .with_hint("check that the file is the right one, take fewer values, or raise memory_limit"));
        }
        Ok(())
    }

    pub(super) fn finish(self) -> RangeTable {
        let given_count = self.given() as u64;
        let v4 = Slots::new(&resolve(self.v4));
        let v6 = Slots::new(&resolve(self.v6));
        let (row_count, columns) = self.rows.finish();
        RangeTable { schema: self.schema, columns, row_count, v4, v6, given_count, files: self.files }
    }
}

fn too_many() -> Error {
    Error::user(format!("the table has more than {MOST_RANGES} ranges"))
        .with_hint("split it into several tables")
}

/// All addresses of IPv4.
pub(super) const ALL_V4: Span = Span::V4(Bounds { first: 0, last: u32::MAX });
