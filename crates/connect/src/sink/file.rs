//! Records into a file, which is emptied at the start of a job.
//!
//! Exactly-once: the commit record names the length; a job that goes on cuts what is behind it and writes that again.
//! It goes on with the same file alone, in the format and under the header that it began with ([`super::position`]): the
//! file may have been moved or copied, but nothing is cut or appended to that the sink has not written.
//! A sink that is new to a job that goes on empties nothing: what is in its file may be the job's own, from under another
//! name.
//!
//! Lines gather in a buffer that is written when it is full, when a tick finds something in it (so within one
//! tick of an idle stream) and at the end, where the file is also synced.
//!
//! A named pipe is no file: it is written as standard output is ([`super::stream`]), at least once.

use std::fs::File;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use thalweg_flow::{InputId, Operator, Output, TaskFactory};
use thalweg_types::{Batch, Class, Error, Micros};

use super::position::{FileIdentity, FilePosition, place_of};
use super::stream::{Stream, StreamSink};
use super::tail::Tail;
use super::unwritable::Refusals;
use super::{encoder_of, only_task};
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
        let named = context.options.path("path").cloned().unwrap_or_default();
        named.recheck().map_err(|error| error.context(format!("sink {:?}", context.name)))?;
        let path = named.as_path().to_owned();
        let mut begin = Vec::new();
        encoder_of(&context)?.start(&mut begin);
        let now = FileIdentity {
            path: place_of(&path).to_string_lossy().into_owned(),
            format: context.format.as_ref().map_or("", |format| format.plugin.name()).to_owned(),
            begin: String::from_utf8_lossy(&begin).into_owned(),
            last: 0,
        };
        if std::fs::metadata(&path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            return Ok(Box::new(move |info| {
                only_task(&context, info)?;
                let place = path.clone();
                let stream = Stream {
                    what: format!("pipe {path:?}"),
                    open: Box::new(move || Ok(Box::new(File::options().append(true).open(place)?))),
                    may_close: false,
                    position: now.encode(0),
                };
                Ok(Box::new(StreamSink::new(&context, encoder_of(&context)?, stream)?))
            }));
        }
        let tail =
            open(&path, &context, &now).map_err(|error| error.context(format!("sink {:?}", context.name)))?;
        let tail = Mutex::new(Some(tail));
        Ok(Box::new(move |info| {
            only_task(&context, info)?;
            let tail = match tail.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(tail) => tail,
                None => {
                    named.recheck()?;
                    open(&path, &context, &now)?
                }
            };
            let mut buffer = Vec::with_capacity(2 * BUFFER);
            let mut encoder = encoder_of(&context)?;
            let mut begin = Vec::new();
            encoder.start(&mut begin);
            if tail.len() == 0 {
                buffer.append(&mut begin);
            }
            Ok(Box::new(FileSink {
                tail,
                encoder,
                refusals: Refusals::new(&context.schema),
                buffer,
                report: context.report.clone(),
                identity: context.durable.is_some().then(|| now.clone()),
            }))
        }))
    }
}

fn open(path: &Path, context: &SinkContext, now: &FileIdentity) -> Result<Tail, Error> {
    let position = match &context.durable {
        Some(SinkResume { position: Some(position), .. }) => position,
        // Under another name the job may have written what is there.
        Some(SinkResume { is_added: true, .. }) => return Tail::create_empty(path),
        _ => return Tail::create(path),
    };
    let position = FilePosition::decode(position);
    let FilePosition { bytes, identity } =
        position.ok_or_else(|| Error::corrupt(format!("the commit record holds no length of {path:?}")))?;
    let Some(was) = identity else { return Tail::resume(path, bytes, None) };
    let is_elsewhere = was.path != now.path;
    if bytes == 0 {
        return if is_elsewhere { Tail::create_empty(path) } else { Tail::resume(path, 0, None) };
    }
    for (what, was, now) in [("format", &was.format, &now.format), ("first line", &was.begin, &now.begin)] {
        if was != now {
            return Err(Error::user(format!(
                "the {what} of file {path:?} was {:?}, and is to be {:?} now",
                was.trim_end(),
                now.trim_end()
            ))
            .with_hint(
                "give the sink another name and another path to begin another file, or change the job file back",
            ));
        }
    }
    let moved = |why: &str| {
        Error::user(format!(
            "the file of the sink was {:?}, with {bytes} bytes committed, and is to be {:?} now, which does not go on \
             from there: {why}",
            was.path, now.path
        ))
        .with_hint(
            "give the sink another name to begin another file; or put the path back, or move the file to where it is to be",
        )
    };
    if is_elsewhere && std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(moved("it is no regular file"));
    }
    Tail::resume(path, bytes, Some(was.last)).map_err(|error| match error.class() {
        Class::Corrupt if is_elsewhere => moved(error.message()),
        _ => error,
    })
}

struct FileSink {
    tail: Tail,
    encoder: Box<dyn Encoder>,
    refusals: Refusals,
    buffer: Vec<u8>,
    report: SinkReport,
    /// What a commit record says of the file beside its length; `None` in a job that does not outlive its process.
    identity: Option<FileIdentity>,
}

impl FileSink {
    fn flush(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        // A disk that is full is no fault of the record that fills the buffer.
        out.working_on_no_record();
        if !self.buffer.is_empty() {
            self.tail.append(&self.buffer)?;
            self.report.add_bytes(self.buffer.len() as u64);
            self.buffer.clear();
        }
        Ok(())
    }
}

impl Operator for FileSink {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let written = self.refusals.encode(&batch, &mut *self.encoder, &mut self.buffer, out);
        self.report.add_records(written);
        if self.buffer.len() >= BUFFER { self.flush(out) } else { Ok(()) }
    }

    fn tick(&mut self, _: Micros, out: &mut Output<'_>) -> Result<(), Error> {
        self.flush(out)
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        if self.takes_part() {
            self.flush(out)?;
            if let Some(identity) = &mut self.identity {
                identity.last = self.tail.hash_of_last();
                let position = identity.encode(self.tail.len());
                out.hand_over(cycle, self.tail.part(position));
            }
        }
        Ok(())
    }

    fn takes_part(&self) -> bool {
        self.identity.is_some()
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        self.flush(out)?;
        self.tail.sync()
    }

    fn state_bytes(&self) -> usize {
        self.buffer.capacity()
    }
}
