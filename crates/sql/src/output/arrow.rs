//! A stream of Arrow IPC: the schema, the batches, the end mark.

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};
use thalweg_types::Error;

use super::Encode;

pub(super) struct Ipc {
    schema: SchemaRef,
    writer: Option<StreamWriter<Vec<u8>>>,
}

impl Ipc {
    pub(super) fn new(schema: &SchemaRef) -> Self {
        Self { schema: schema.clone(), writer: None }
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
                    StreamWriter::try_new(Vec::new(), &self.schema).map_err(|error| failed(&error))?;
                empty.insert(writer)
            }
        };
        work(writer).map_err(|error| failed(&error))?;
        out.append(writer.get_mut());
        Ok(())
    }
}

impl Encode for Ipc {
    fn head(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.with(out, |_| Ok(()))
    }

    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), Error> {
        self.with(out, |writer| writer.write(batch))
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.with(out, StreamWriter::finish)
    }
}

fn failed(error: &ArrowError) -> Error {
    Error::internal(format!("write rows as Arrow IPC: {error}"))
}
