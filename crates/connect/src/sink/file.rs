//! Records into a file, which is emptied at the start.
//!
//! Lines gather in a buffer that is written when it is full, when a tick finds something in it (so within one
//! tick of an idle stream) and at the end, where the file is also synced.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use thalweg_flow::{InputId, Operator, Output, TaskFactory};
use thalweg_types::{Batch, Error, Micros};

use super::{encoder_of, only_task};
use crate::format::Encoder;
use crate::{OptionKind, OptionSpec, SinkContext, SinkPlugin, SinkReport};

/// Bytes that gather before they are written.
pub(super) const BUFFER: usize = 256 << 10;

/// The plug-in.
pub struct FilePlugin;

impl SinkPlugin for FilePlugin {
    fn name(&self) -> &'static str {
        "file"
    }

    fn doc(&self) -> &'static str {
        "records into a file"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[OptionSpec {
            key: "path",
            kind: OptionKind::Path,
            required: true,
            default: None,
            doc: "the file to write; emptied at the start",
        }]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn guarantee(&self) -> &'static str {
        "at-least-once"
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        let path = PathBuf::from(context.options.text("path").unwrap_or_default());
        let file = create(&path).map_err(|error| error.context(format!("sink {:?}", context.name)))?;
        let mut file = Some(file);
        Ok(Box::new(move |info| {
            only_task(&context, info)?;
            let file = match file.take() {
                Some(file) => file,
                None => create(&path)?,
            };
            let mut buffer = Vec::with_capacity(2 * BUFFER);
            let mut encoder = encoder_of(&context)?;
            encoder.start(&mut buffer);
            Ok(Box::new(FileSink {
                path: path.clone(),
                file,
                encoder,
                buffer,
                report: context.report.clone(),
            }))
        }))
    }
}

fn create(path: &Path) -> Result<File, Error> {
    File::create(path).map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let wrapped = if missing {
            Error::user(format!("create {path:?}")).with_hint("the folder of the file must exist")
        } else {
            Error::external(format!("create {path:?}"))
        };
        wrapped.with_source(error)
    })
}

struct FileSink {
    path: PathBuf,
    file: File,
    encoder: Box<dyn Encoder>,
    buffer: Vec<u8>,
    report: SinkReport,
}

impl FileSink {
    fn flush(&mut self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.file
            .write_all(&self.buffer)
            .map_err(|error| Error::external(format!("write {:?}", self.path)).with_source(error))?;
        self.report.add_bytes(self.buffer.len() as u64);
        self.buffer.clear();
        Ok(())
    }
}

impl Operator for FileSink {
    fn process(&mut self, _: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        self.encoder.encode(&batch, &mut self.buffer);
        self.report.add_records(batch.len() as u64);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    fn tick(&mut self, _: Micros, _: &mut Output<'_>) -> Result<(), Error> {
        self.flush()
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        self.flush()?;
        match self.file.sync_all() {
            // Pipes and terminals cannot be synced, and need not be.
            Err(error) if error.kind() != std::io::ErrorKind::InvalidInput => {
                Err(Error::external(format!("sync {:?}", self.path)).with_source(error))
            }
            _ => Ok(()),
        }
    }

    fn state_bytes(&self) -> usize {
        self.buffer.capacity()
    }
}
