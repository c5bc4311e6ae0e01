//! Replies as bytes: text for people, CSV, JSON, Arrow.
//!
//! An encoder per format turns batches into bytes; it holds no more than one batch, except that the text table looks at
//! its first thousand rows to find its widths. [`write()`] drives it on the caller's thread, [`Chunks`] on the engine's.

mod arrow;
mod cell;
mod chunks;
mod csv;
mod json;
mod table;

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};
use thalweg_types::Error;

use crate::reply::Reply;

pub use arrow::{Addresses, Arrow, Compression};
pub(crate) use cell::address;
pub use chunks::Chunks;
#[cfg(target_os = "linux")]
pub(crate) use chunks::Piece;

/// How a reply is written.
///
/// Addresses are written as addresses, times as ISO 8601 in UTC with `Z`, bytes as hexadecimal digits; except in
/// [`Format::Arrow`], which keeps the types unless it is set to write addresses as texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// Columns that line up, with a head.
    Table,
    /// With a head; null is empty, an empty text is `""`.
    Csv,
    /// One array of objects. Decimals, NaN and infinities are texts.
    Json,
    /// One object a line, as in [`Format::Json`].
    Ndjson,
    /// A stream of Arrow IPC.
    Arrow(Arrow),
}

impl Format {
    /// All of them, by the names that `--format` and `?format=` take.
    pub const ALL: [(&'static str, Format); 5] = [
        ("table", Format::Table),
        ("csv", Format::Csv),
        ("json", Format::Json),
        ("ndjson", Format::Ndjson),
        ("arrow", Format::Arrow(Arrow { compression: Compression::None, addresses: Addresses::Binary })),
    ];

    /// The format of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        find(&Self::ALL, name)
    }

    /// The content type of the format.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Table => "text/plain; charset=utf-8",
            Format::Csv => "text/csv; charset=utf-8",
            Format::Json => "application/json",
            Format::Ndjson => "application/x-ndjson",
            Format::Arrow(_) => "application/vnd.apache.arrow.stream",
        }
    }
}

fn find<T: Copy>(all: &[(&str, T)], name: &str) -> Option<T> {
    all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// Makes bytes of batches of one schema. The calls come in the order `head`, `batch` and `batch` again, `end`.
pub(crate) trait Encode: Send {
    fn head(&mut self, out: &mut Vec<u8>) -> Result<(), Error>;
    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), Error>;
    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), Error>;
}

pub(crate) fn encoder(schema: &SchemaRef, format: Format) -> Box<dyn Encode> {
    match format {
        Format::Table => Box::new(table::Table::new(schema)),
        Format::Csv => Box::new(csv::Csv::new(schema)),
        Format::Json => Box::new(json::Json::array(schema)),
        Format::Ndjson => Box::new(json::Json::lines(schema)),
        Format::Arrow(how) => Box::new(arrow::Ipc::new(schema, how)),
    }
}

/// Writes a whole reply; blocks, so not to be called on a thread of an async runtime.
///
/// # Errors
/// The query's error, or the writer's; bytes that were written by then stay.
pub fn write(reply: Reply, format: Format, to: &mut dyn Write) -> Result<(), Error> {
    let mut encoder = encoder(reply.schema(), format);
    let mut bytes = Vec::new();
    encoder.head(&mut bytes)?;
    for batch in reply {
        encoder.batch(&batch?, &mut bytes)?;
        put(to, &bytes)?;
        bytes.clear();
    }
    encoder.end(&mut bytes)?;
    put(to, &bytes)?;
    to.flush().map_err(not_written)
}

fn put(to: &mut dyn Write, bytes: &[u8]) -> Result<(), Error> {
    to.write_all(bytes).map_err(not_written)
}

fn not_written(error: std::io::Error) -> Error {
    Error::external("write the reply").with_source(error)
}
