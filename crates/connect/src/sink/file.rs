//! Records into a file, which is emptied at the start of a job.
//!
//! Exactly-once: the commit record names the length; a job that goes on cuts what is behind it and writes that again.
//! A sink that is new to a job that goes on empties nothing: what is in its file may be the job's own, from under another
//! name.
//!
//! Lines gather in a buffer that is written when it is full, when a tick finds something in it (so within one
//! tick of an idle stream) and at the end, where the file is also synced.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_flow::{InputId, Operator, Output, TaskFactory};
use thalweg_types::{Batch, Error, Micros};

use super::tail::Tail;
use super::{encoder_of, only_task, warn_of_skipped};
use crate::format::Encoder;
use crate::{OptionKind, OptionSpec, SinkContext, SinkPlugin, SinkReport, SinkResume};

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
            doc: "the file to write; emptied when the job begins anew, and to be empty where the sink is new to a job that goes on",
        }]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn guarantee(&self) -> &'static str {
        "exactly-once"
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        let path = PathBuf::from(context.options.text("path").unwrap_or_default());
        let tail =
            open(&path, &context).map_err(|error| error.context(format!("sink {:?}", context.name)))?;
        let tail = Mutex::new(Some(tail));
        Ok(Box::new(move |info| {
            only_task(&context, info)?;
            let tail = match tail.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(tail) => tail,
                None => open(&path, &context)?,
            };
            let mut buffer = Vec::with_capacity(2 * BUFFER);
            let mut encoder = encoder_of(&context)?;
            let mut begin = Vec::new();
            encoder.start(&mut begin);
            if tail.len() == 0 {
                buffer.append(&mut begin);
            }
            let takes_part = context.durable.is_some();
            Ok(Box::new(FileSink {
                name: Arc::clone(&context.name),
                tail,
                encoder,
                buffer,
                report: context.report.clone(),
                takes_part,
            }))
        }))
    }
}

fn open(path: &Path, context: &SinkContext) -> Result<Tail, Error> {
    let position = match &context.durable {
        Some(SinkResume { position: Some(position), .. }) => position,
        // Under another name the job may have written what is there.
        Some(SinkResume { is_added: true, .. }) => return Tail::create_empty(path),
        _ => return Tail::create(path),
    };
    let len = position.as_slice().try_into().map(u64::from_le_bytes);
    let len = len.map_err(|_| Error::corrupt(format!("the commit record holds no length of {path:?}")))?;
    Tail::resume(path, len)
}

struct FileSink {
    name: Arc<str>,
    tail: Tail,
    encoder: Box<dyn Encoder>,
    buffer: Vec<u8>,
    report: SinkReport,
    takes_part: bool,
}

impl FileSink {
    fn flush(&mut self) -> Result<(), Error> {
        if !self.buffer.is_empty() {
            self.tail.append(&self.buffer)?;
            self.report.add_bytes(self.buffer.len() as u64);
            self.buffer.clear();
        }
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

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        if self.takes_part {
            self.flush()?;
            let position = self.tail.len().to_le_bytes().to_vec();
            out.hand_over(cycle, self.tail.part(position));
        }
        Ok(())
    }

    fn takes_part(&self) -> bool {
        self.takes_part
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        self.flush()?;
        warn_of_skipped(&self.name, &*self.encoder);
        self.tail.sync()
    }

    fn state_bytes(&self) -> usize {
        self.buffer.capacity()
    }
}
