//! Records from a file, once or as it grows.
//!
//! With `follow: true` the end of the file is waited at (by default looked for every 100 ms). A file that
//! becomes shorter was emptied: reading starts at its beginning. A path that leads to another file was rotated:
//! what the old one still holds is read first, then the new one from its beginning. In both cases a last line
//! without a line end is a record. A file that is emptied and written past the old place between two looks
//! cannot be told from one that grew. Offsets go on; line numbers and the header start again.
//!
//! Drained, a file is left where it is, and a followed one read up to its present end; a line that is not ended
//! yet is no record then.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_flow::{Poll, RawBlock, Source, SourceProgress};
use thalweg_types::{Error, Micros, Offset};
use tracing::warn;

use super::cut::{Cut, Cutter};
use super::{decoders_of, reader_of};
use crate::format::RecordFormat;
use crate::{BuiltSource, OptionKind, OptionSpec, SourceContext, SourcePlugin};

/// Bytes read before the job starts, so that a wrong header is reported then.
const FIRST_READ: usize = 64 << 10;

/// The plug-in.
pub struct FilePlugin;

impl SourcePlugin for FilePlugin {
    fn name(&self) -> &'static str {
        "file"
    }

    fn doc(&self) -> &'static str {
        "records from a file"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[
            OptionSpec {
                key: "path",
                kind: OptionKind::Path,
                required: true,
                default: None,
                doc: "the file to read",
            },
            OptionSpec {
                key: "follow",
                kind: OptionKind::Bool,
                required: false,
                default: Some("false"),
                doc: "wait for more at the end of the file, also after it was emptied or rotated",
            },
            OptionSpec {
                key: "poll",
                kind: OptionKind::Duration,
                required: false,
                default: Some("100ms"),
                doc: "how often to look for more, with follow",
            },
        ]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("csv")
    }

    fn is_live(&self) -> bool {
        false
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let format = reader_of(&context)?;
        let path = PathBuf::from(context.options.text("path").unwrap_or_default());
        let follow = context.options.flag("follow").unwrap_or(false).then(|| {
            let micros = context.options.duration("poll").unwrap_or(100_000).max(1_000);
            Duration::from_micros(micros.unsigned_abs())
        });
        let mut source = FileSource::open(path, Arc::clone(&format), follow)
            .map_err(|error| error.context(format!("source {:?}", context.name)))?;
        source.read_first().map_err(|error| error.context(format!("source {:?}", context.name)))?;
        Ok(BuiltSource {
            source: Box::new(source),
            decoder: decoders_of(&context, format),
            schema: context.schema,
            ingress: None,
            address: None,
        })
    }
}

/// Reads one file.
pub struct FileSource {
    path: PathBuf,
    format: Arc<dyn RecordFormat>,
    file: File,
    /// Bytes read from `file`.
    position: u64,
    total: u64,
    cutter: Cutter,
    /// What the first read has found.
    first: Option<Cut>,
    next: Offset,
    follow: Option<Duration>,
    /// Nothing more comes from `file`.
    is_ended: bool,
    is_draining: bool,
}

impl FileSource {
    /// # Errors
    /// Where the file cannot be opened.
    pub fn open(
        path: PathBuf,
        format: Arc<dyn RecordFormat>,
        follow: Option<Duration>,
    ) -> Result<Self, Error> {
        let (file, metadata) = open(&path)?;
        Ok(Self {
            cutter: Cutter::new(&*format),
            path,
            format,
            file,
            position: 0,
            total: metadata.len(),
            first: None,
            next: 0,
            follow,
            is_ended: false,
            is_draining: false,
        })
    }

    /// Reads a little, so that a header which does not fit is found before the start.
    fn read_first(&mut self) -> Result<(), Error> {
        let count = self.read(FIRST_READ)?;
        self.is_ended = count == 0 && self.follow.is_none();
        self.first = self.next_cut()?;
        Ok(())
    }

    fn next_cut(&mut self) -> Result<Option<Cut>, Error> {
        self.cutter.next(self.is_ended).map_err(|error| error.context(format!("read {:?}", self.path)))
    }

    fn read(&mut self, max_bytes: usize) -> Result<usize, Error> {
        let wanted = self.cutter.wanted(max_bytes);
        let buffer = self.cutter.buffer();
        let len = buffer.len();
        buffer.resize(len + wanted, 0);
        let result = loop {
            match self.file.read(&mut buffer[len..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        buffer.truncate(len + result.as_ref().map_or(0, |count| *count));
        let count =
            result.map_err(|error| Error::external(format!("read {:?}", self.path)).with_source(error))?;
        self.position += count as u64;
        Ok(count)
    }

    /// At the end of a followed file: whether it was emptied or rotated. If so reading goes on there, once what
    /// is left of the old one has been given.
    fn has_new_file(&self) -> bool {
        let (Ok(there), Ok(here)) = (std::fs::metadata(&self.path), self.file.metadata()) else {
            return false; // rotated away, and the new file is not there yet
        };
        let same = (there.dev(), there.ino()) == (here.dev(), here.ino());
        if same && there.len() >= self.position {
            return false;
        }
        warn!(
            path = %self.path.display(),
            position = self.position,
            "followed file was {}, reading the new one from its beginning",
            if same { "emptied" } else { "rotated" }
        );
        true
    }

    /// # Errors
    /// Where the path cannot be opened.
    fn reopen(&mut self) -> Result<(), Error> {
        let (file, metadata) = open(&self.path)?;
        self.file = file;
        self.position = 0;
        self.total = metadata.len();
        self.cutter = Cutter::new(&*self.format);
        self.is_ended = false;
        Ok(())
    }
}

fn open(path: &Path) -> Result<(File, Metadata), Error> {
    let failed = |error: std::io::Error| {
        let message = format!("open {path:?}");
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let wrapped = if missing { Error::user(message) } else { Error::external(message) };
        let wrapped = wrapped.with_source(error);
        if missing { wrapped.with_hint("relative paths start at the current directory") } else { wrapped }
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(Error::user(format!("open {path:?}: expected a file, got a folder")));
    }
    Ok((file, metadata))
}

impl Source for FileSource {
    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        let mut is_rotating = false;
        loop {
            let cut = match self.first.take() {
                Some(cut) => Some(cut),
                None => self.next_cut()?,
            };
            if let Some(cut) = cut {
                let (first, count) = (self.next, cut.count);
                self.next += u64::from(count);
                return Ok(Poll::Block(RawBlock { partition: 0, first, count, payload: cut.into_payload() }));
            }
            let Some(interval) = self.follow else {
                if self.is_ended || self.is_draining {
                    return Ok(Poll::End);
                }
                self.is_ended = self.read(max_bytes)? == 0;
                continue;
            };
            if self.is_ended {
                self.reopen()?;
            }
            if self.read(max_bytes)? > 0 {
                is_rotating = false;
            } else if is_rotating {
                self.is_ended = true;
            } else if self.is_draining {
                return Ok(Poll::End);
            } else if self.has_new_file() {
                // Once more, for what was written to the old file after the last read.
                is_rotating = true;
            } else {
                return Ok(Poll::PendingUntil(Instant::now() + interval));
            }
        }
    }

    fn drain(&mut self) {
        self.is_draining = true;
    }

    fn progress(&self) -> Option<SourceProgress> {
        let total = self.follow.is_none().then_some(self.total.max(self.position));
        Some(SourceProgress { done: self.position, total })
    }
}
