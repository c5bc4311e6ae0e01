//! Names by address, in files larger than memory.
//!
//! A table is built once ([`TableBuilder`]) and never changed: a new one is renamed over it.
//! It is mapped ([`LookupTable`]); the index of names is on the heap, tens of megabytes for a
//! thousand million rows, and the names are on the disk, at three bytes a row.
//!
//! * A filter, exact for IPv4, answers for addresses that have no row without a look at any name.
//! * Names are in *blocks*, one to a /24. Most are a *template* (`host-{a}-{b}-{c}-{d}.isp.example`) that the
//!   whole file shares; of the others the text in the template's *slot* is stored as Huffman codes.
//! * A batch ([`LookupTable::find_all`]) asks the kernel for all that it needs and then decodes it.
//! * Names are kept in the page cache up to a budget, and given back beyond it.
//!
//! The format is `docs/formats/lookup-table.md`.
//!
//! Not here: when a table is replaced by a newer one, and which column of a stream it is joined to.

mod batch;
mod join;
mod table;
mod verify;

mod build;
mod csv;
mod output;
mod rows;
mod sample;
mod sort;

mod chunk;
mod layout;
mod map;
mod presence;
mod residency;
mod v4_reader;
mod v4_writer;
mod v6;
mod v6_reader;

mod block;
mod dictionary;
mod names;
mod plan;
mod shape;
mod template;
mod text;

mod address;
mod error;
pub mod made_up;
#[cfg(test)]
mod tests;

pub use batch::{Names, Scratch};
pub use build::{BuildOptions, BuildReport, NAME_MAX, Progress, Stage, TableBuilder};
pub use csv::{CsvOptions, probe_csv};
pub use error::{BadLine, LookupError};
pub use join::LookupJoin;
pub use layout::{Section, SectionKind};
pub use table::{Found, LookupStats, LookupTable, OpenOptions};
pub use verify::TableSummary;
