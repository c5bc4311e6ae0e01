//! A stream of Arrow IPC: the schema, the batches, the end mark.

mod compact;
#[cfg(test)]
mod tests;

use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, SchemaRef};
use serde::{Deserialize, Serialize};
use thalweg_types::Error;

use super::Encode;
use compact::Compact;

/// How a stream of Arrow IPC is written; by default uncompressed and with the types as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrow {
    /// Of the buffers of each batch.
    pub compression: Compression,
    /// The type of addresses.
    pub addresses: Addresses,
}

/// Compression of Arrow IPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compression {
    /// Readers can use the buffers in place.
    #[default]
    None,
    /// LZ4 frames.
    Lz4,
}

impl Compression {
    /// All of them, by the names that `--compression` and `?compression=` take.
    pub const ALL: [(&'static str, Compression); 2] =
        [("none", Compression::None), ("lz4", Compression::Lz4)];

    /// The compression of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        super::find(&Self::ALL, name)
    }
}

/// The type of addresses in Arrow IPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Addresses {
    /// Sixteen bytes; addresses of version 4 are mapped into version 6.
    #[default]
    Binary,
    /// Texts, as in all other formats.
    Text,
}

impl Addresses {
    /// All of them, by the names that `--addresses` and `?addresses=` take.
    pub const ALL: [(&'static str, Addresses); 2] =
        [("binary", Addresses::Binary), ("text", Addresses::Text)];

    /// The type of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        super::find(&Self::ALL, name)
    }
}

pub(super) struct Ipc {
    compact: Compact,
    compression: Compression,
    writer: Option<StreamWriter<Vec<u8>>>,
}

impl Ipc {
    pub(super) fn new(schema: &SchemaRef, how: Arrow) -> Self {
        Self { compact: Compact::new(schema, how.addresses), compression: how.compression, writer: None }
    }

    /// Moves what the writer has written.
    fn with(
        &mut self,
        out: &mut Vec<u8>,
        work: impl FnOnce(&mut StreamWriter<Vec<u8>>) -> Result<(), ArrowError>,
    ) -> Result<(), Error> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            empty => {
                let writer =
                    begin(self.compact.schema(), self.compression).map_err(|error| failed(&error))?;
                empty.insert(writer)
            }
        };
        work(writer).map_err(|error| failed(&error))?;
        out.append(writer.get_mut());
        Ok(())
    }
}

fn begin(schema: &SchemaRef, compression: Compression) -> Result<StreamWriter<Vec<u8>>, ArrowError> {
    let compression = match compression {
        Compression::None => None,
        Compression::Lz4 => Some(CompressionType::LZ4_FRAME),
    };
    let options = IpcWriteOptions::default().try_with_compression(compression)?;
    StreamWriter::try_new_with_options(Vec::new(), schema, options)
}

impl Encode for Ipc {
    fn head(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.with(out, |_| Ok(()))
    }

    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), Error> {
        let batch = self.compact.batch(batch).map_err(|error| failed(&error))?;
        self.with(out, |writer| writer.write(&batch))
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.with(out, StreamWriter::finish)
    }
}

fn failed(error: &ArrowError) -> Error {
    Error::internal(format!("write rows as Arrow IPC: {error}"))
}
