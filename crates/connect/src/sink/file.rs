//! Records into a file, which is emptied at the start of a job.
//!
//! Exactly-once: the commit record names the length; a job that goes on cuts the rows after it and writes them again.
//! It goes on with the same file alone, in the format and under the header that it began with ([`super::position`]):
//! the file may have been moved or copied, but nothing is cut or appended to that the sink has not written. Nor is
//! anything cut that a newer commit named than the last one of the data directory ([`super::lineage`]).
//! A sink that is new to a job that goes on empties nothing: its file may hold rows of the job, from under another
//! name.
//!
//! Lines gather in a buffer that is written when it is full, when a tick finds something in it (so within one
//! tick of an idle stream) and at the end, where the file is also synced.
//!
//! A named pipe is no file: it is written as standard output is ([`super::stream`]), at least once.

use std::fs::File;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use thalweg_flow::{InputId, Operator, Output, TaskFactory};
use thalweg_types::{Batch, Class, Error, Micros};

use super::lineage::Lineage;
use super::parts::parts;
use super::position::{FileIdentity, FilePosition, place_of};
use super::stream::{Stream, StreamSink};
use super::tail::{KnownBy, Tail};
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
        "records to a file"
    }

    fn page(&self) -> &'static str {
        include_str!("file.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[OptionSpec {
            key: "path",
            kind: OptionKind::Path,
            required: true,
            default: None,
            doc: "file to write",
        }]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn guarantee(&self) -> &'static str {
        "exactly-once"
    }

    fn probe(&self, context: &SinkContext) -> Result<(), Error> {
        encoder_of(context)?;
        let path = context.options.path("path").cloned().unwrap_or_default();
        if std::fs::metadata(&path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            return Ok(());
        }
        Tail::probe(&path).map_err(|error| error.context(format!("sink {:?}", context.name)))
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
            sum: None,
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
            let lineage = context.durable.as_ref().map(|resume| {
                let lineage = lineage(&path, &context);
                lineage.begin(resume.cycle);
                Arc::new(lineage)
            });
            let noted = tail.len();
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
                lineage,
                noted,
            }))
        }))
    }
}

fn lineage(path: &Path, context: &SinkContext) -> Lineage {
    Lineage::new(path, &context.job, &context.name)
}

/// Refuses to cut a file after its first `bytes` if a newer commit has named more.
///
/// # Errors
/// Of class user, with the ways out.
fn refuse_to_cut(path: &Path, context: &SinkContext, resume: &SinkResume, bytes: u64) -> Result<(), Error> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    if !metadata.is_file() || metadata.len() <= bytes {
        return Ok(());
    }
    let beyond = metadata.len() - bytes;
    let lineage = lineage(path, context);
    let Some(cycle) = lineage.committed() else {
        if bytes > 0 {
            tracing::warn!(
                path = %path.display(),
                bytes = beyond,
                note = %lineage.path().display(),
                "no note next to the file says whether these bytes were committed: they are treated as left by a crash"
            );
        }
        return Ok(());
    };
    if cycle <= resume.cycle {
        return Ok(());
    }
    Err(Error::user(format!(
        "file {path:?} was committed up to cycle {cycle}, and the last commit in the data directory is of cycle {}, which \
         names all but the last {beyond} bytes: it is an older copy",
        resume.cycle
    ))
    .with_hint(format!(
        "bring back the data directory that is as new as the file; or move the file away and give the sink another name and \
         path; or, to have these bytes cut, remove {:?}",
        lineage.path()
    )))
}

fn open(path: &Path, context: &SinkContext, now: &FileIdentity) -> Result<Tail, Error> {
    let (position, resume) = match &context.durable {
        Some(resume @ SinkResume { position: Some(position), .. }) => (position, resume),
        // The job may have written the file under another name.
        Some(SinkResume { is_added: true, .. }) => return Tail::create_empty(path),
        Some(resume @ SinkResume { is_new: false, .. }) => {
            refuse_to_cut(path, context, resume, 0)?;
            return Tail::create(path);
        }
        _ => return Tail::create(path),
    };
    let position = FilePosition::decode(position);
    let FilePosition { bytes, identity } =
        position.ok_or_else(|| Error::corrupt(format!("the commit record holds no length of {path:?}")))?;
    let Some(was) = identity else {
        refuse_to_cut(path, context, resume, bytes)?;
        return Tail::resume(path, bytes, KnownBy::default());
    };
    let is_elsewhere = was.path != now.path;
    if bytes == 0 {
        if is_elsewhere {
            return Tail::create_empty(path);
        }
        refuse_to_cut(path, context, resume, 0)?;
        return Tail::resume(path, 0, KnownBy::default());
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
    refuse_to_cut(path, context, resume, bytes)?;
    Tail::resume(path, bytes, KnownBy { last: Some(was.last), sum: was.sum }).map_err(|error| {
        match error.class() {
            Class::Corrupt if is_elsewhere => moved(error.message()),
            _ => error,
        }
    })
}

struct FileSink {
    tail: Tail,
    encoder: Box<dyn Encoder>,
    refusals: Refusals,
    buffer: Vec<u8>,
    report: SinkReport,
    /// What a commit record says of the file in addition to its length; `None` in a job that does not outlive its
    /// process.
    identity: Option<FileIdentity>,
    /// Likewise.
    lineage: Option<Arc<Lineage>>,
    /// How long the file was at the last note.
    noted: u64,
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
        for part in parts(batch) {
            let written = self.refusals.encode(&part, &mut *self.encoder, &mut self.buffer, out);
            self.report.add_records(written);
            if self.buffer.len() >= BUFFER {
                self.flush(out)?;
            }
        }
        Ok(())
    }

    fn tick(&mut self, _: Micros, out: &mut Output<'_>) -> Result<(), Error> {
        self.flush(out)
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        if self.takes_part() {
            self.flush(out)?;
            if let Some(identity) = &mut self.identity {
                let KnownBy { last, sum } = self.tail.known_by();
                (identity.last, identity.sum) = (last.unwrap_or_default(), sum);
                let position = identity.encode(self.tail.len());
                let note = self.lineage.clone().filter(|_| self.noted != self.tail.len());
                self.noted = self.tail.len();
                out.hand_over(cycle, self.tail.part(position, note.map(|lineage| (lineage, cycle))));
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
