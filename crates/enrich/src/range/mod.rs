//! Tables of address ranges in memory: autonomous systems, countries and the like, joined in flight.
//!
//! A [`RangeTable`] is loaded from files once and then never changes; a file that changed is loaded as another
//! table ([`crate::watch`]).
//! It answers with row numbers, by which `arrow_select::take` picks values out of its columns.
//!
//! * `options`: the files, and the columns of them. `load` is a pure function of these.
//! * `open`, `records`, `delimited`: lines of cells. `mmdb`: MaxMind's format.
//! * `span`: what a text says about addresses. `cell`, `rows`: values, equal rows once.
//! * `resolve`: which range answers where several hold an address. `slots`: the search.
//!
//! A file without any range is an error: it is more often half written than meant.

mod bits;
mod build;
mod cell;
mod delimited;
mod join;
mod mmdb;
mod options;
mod resolve;
mod rows;
mod slots;
mod span;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, UInt32Array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use thalweg_types::{Error, Schema};

pub use join::RangeJoin;
pub use options::{Column, Delimited, Layout, RangeColumns, RangeOptions, ValueColumn};

use crate::watch::FileIdentity;
use build::Builder;
use resolve::NO_ROW;
use slots::Slots;

/// Ranges of IPv4 and IPv6 addresses, each with a row of values.
pub struct RangeTable {
    schema: Schema,
    columns: Vec<ArrayRef>,
    row_count: u32,
    v4: Option<Slots<u32>>,
    v6: Option<Slots<u128>>,
    given_count: u64,
    files: Vec<(PathBuf, FileIdentity)>,
}

/// What a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeStats {
    /// Ranges as the files gave them.
    pub given_count: u64,
    /// Disjoint ranges of IPv4; neighbours with the same row are one.
    pub v4_count: u64,
    pub v6_count: u64,
    /// Rows that differ.
    pub row_count: u64,
    pub memory_bytes: u64,
}

/// The first twelve bytes of an IPv4 address in an `ip` column.
const MAPPED: u128 = 0xffff;

impl RangeTable {
    /// Loads a table; the same files give the same table.
    ///
    /// # Errors
    /// Where the options do not fit together, a file cannot be read, or does not fit the options: with path,
    /// line, the expected and the found text.
    pub fn load(options: &RangeOptions) -> Result<Self, Error> {
        options.check()?;
        let mut builder = Builder::new(options.schema(), options.memory_limit);
        for path in &options.files {
            match &options.layout {
                Layout::Delimited(layout) => delimited::load(path, layout, &options.values, &mut builder)?,
                Layout::Mmdb => mmdb::load(path, &options.values, options.memory_limit, &mut builder)?,
            }
        }
        Ok(builder.finish())
    }

    /// The row of an address, IPv4 being `::ffff:a.b.c.d`; `None` where no range holds it.
    #[inline]
    pub fn find(&self, address: [u8; 16]) -> Option<u32> {
        let row = self.row(address);
        (row != NO_ROW).then_some(row)
    }

    /// The rows of all addresses of an `ip` column; null where no range holds one, and where it is null.
    ///
    /// # Panics
    /// If the values of the column do not have 16 bytes, as those of every `ip` column have.
    pub fn find_all(&self, addresses: &FixedSizeBinaryArray) -> UInt32Array {
        assert_eq!(addresses.value_length(), 16, "an ip column has 16 bytes");
        let (values, rest) = addresses.value_data().as_chunks::<16>();
        debug_assert!(rest.is_empty() && values.len() == addresses.len());
        let mut rows: Vec<u32> = values.iter().map(|address| self.row(*address)).collect();
        let found = BooleanBuffer::collect_bool(rows.len(), |index| rows[index] != NO_ROW);
        for row in &mut rows {
            // Some kernels read the value under a null all the same.
            *row = if *row == NO_ROW { 0 } else { *row };
        }
        let nulls = NullBuffer::union(Some(&NullBuffer::new(found)), addresses.nulls());
        UInt32Array::new(rows.into(), nulls)
    }

    #[inline(always)]
    fn row(&self, address: [u8; 16]) -> u32 {
        let bits = u128::from_be_bytes(address);
        if bits >> 32 == MAPPED {
            self.v4.as_ref().map_or(NO_ROW, |slots| slots.row(bits as u32))
        } else {
            self.v6.as_ref().map_or(NO_ROW, |slots| slots.row(bits))
        }
    }

    /// The values, all nullable, named and typed as the options said.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The values by row number, a column for each field of the schema.
    pub fn columns(&self) -> &[ArrayRef] {
        &self.columns
    }

    /// The files that the table was loaded from, as they were then.
    pub fn files(&self) -> &[(PathBuf, FileIdentity)] {
        &self.files
    }

    pub fn stats(&self) -> RangeStats {
        let columns: usize = self.columns.iter().map(|column| column.get_array_memory_size()).sum();
        let slots =
            self.v4.as_ref().map_or(0, Slots::memory_bytes) + self.v6.as_ref().map_or(0, Slots::memory_bytes);
        RangeStats {
            given_count: self.given_count,
            v4_count: self.v4.as_ref().map_or(0, Slots::range_count),
            v6_count: self.v6.as_ref().map_or(0, Slots::range_count),
            row_count: u64::from(self.row_count),
            memory_bytes: slots + columns as u64,
        }
    }
}
