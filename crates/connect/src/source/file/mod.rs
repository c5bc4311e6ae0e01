//! Records from files, once, or from one as it grows.
//!
//! Files that are read once may be several (`many`), and packed by gzip (`input`).
//!
//! With `follow: true` the end of the file is waited at (by default looked for every 100 ms). A file that begins
//! otherwise than it did was emptied, whether it is shorter than the bytes read or has been written past them again:
//! reading starts at its beginning. A path that leads to another file was rotated: the rest of the old one is
//! read first, then the new one from its beginning; unless the old one is gone and the new one has all that was read
//! of it, which is the same file exchanged. Where a file was emptied or rotated a last line without a line end is a
//! record. Offsets go on; line numbers start again, and so does the header, unless the first line is not a header.
//!
//! A file is recognized by its beginning and by the bytes before the place (`known`), at every look at one that has
//! changed and when a job goes on. One that begins as it did and has other bytes before the place was edited; nothing
//! tells then which of its records were read.
//!
//! In a job that goes on the last line of a file that is read once is a record when it has its end: its writer may be
//! in the middle of it. So is a record with an open quote, unless a later line is a record by itself.
//!
//! A named pipe is opened at once and without its writer, which may come later; nothing ever waits in a read of it. It
//! ends when its writers have gone.
//!
//! Drained, a file is left where it is, and a followed one read up to its present end; a line that is not ended
//! yet is no record then.

mod input;
mod known;
mod many;
mod one;
mod place;
mod rotated;
mod span;

use std::os::unix::fs::FileTypeExt as _;
use std::sync::Arc;
use std::time::Duration;

use thalweg_flow::{Source, SystemClock, TaskInfo};
use thalweg_types::Error;

pub(super) use self::input::Input;
pub(super) use self::known::BEFORE;
use self::many::FilesSource;
use self::one::FileSource;
use self::span::Looker;
use super::{decoders_of, reader_of};
use crate::format::RecordFormat;
use crate::paths::{files_of, is_open};
use crate::{
    BuiltSource, InputSpan, JobPath, Mistake, OptionKind, OptionSpec, Options, Replay, SourceContext,
    SourcePlugin,
};

/// Bytes of a header at most, with the mark and the line end.
const MOST_HEADER: u64 = 260 << 10;

/// The plug-in.
pub struct FilePlugin;

impl SourcePlugin for FilePlugin {
    fn name(&self) -> &'static str {
        "file"
    }

    fn doc(&self) -> &'static str {
        "records from files"
    }

    fn page(&self) -> &'static str {
        include_str!("page.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[
            OptionSpec {
                key: "path",
                kind: OptionKind::PathList,
                required: true,
                default: None,
                doc: "file, pattern (`day-*.csv`), folder, or a list of these; gzip is unpacked",
            },
            OptionSpec {
                key: "follow",
                kind: OptionKind::Bool,
                required: false,
                default: Some("false"),
                doc: "wait for new records at the end of the file, also after the file was emptied or rotated within its folder",
            },
            OptionSpec {
                key: "poll",
                kind: OptionKind::Duration,
                required: false,
                default: Some("100ms"),
                doc: "with `follow`: how often to look for new records",
            },
        ]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("csv")
    }

    /// A file that is followed is read as it is written.
    fn is_live(&self, options: &Options) -> bool {
        options.flag("follow").unwrap_or(false)
    }

    fn check(&self, options: &Options) -> Vec<Mistake> {
        let paths = options.paths("path").unwrap_or_default();
        let is_one = matches!(paths, [path] if !is_open(path));
        if is_one || paths.is_empty() || !options.flag("follow").unwrap_or(false) {
            return Vec::new();
        }
        let error = Error::user("\"follow\" is for one file, got several, a pattern or a folder");
        vec![Mistake::new(
            "path",
            error.with_hint("make each file that is to be followed a source of its own"),
        )]
    }

    fn has_end(&self, options: &Options) -> bool {
        !options.flag("follow").unwrap_or(false) && !paths(options).iter().any(is_pipe)
    }

    fn probe(&self, context: &SourceContext) -> Result<(), Error> {
        let format = reader_of(context)?;
        // The writer of a pipe would take it for the reader.
        if paths(&context.options).iter().any(is_pipe) {
            return Ok(());
        }
        open(context, format).map(drop)
    }

    fn spans(&self, context: &SourceContext) -> Result<Vec<InputSpan>, Error> {
        if !self.has_end(&context.options) {
            return Ok(Vec::new());
        }
        let format = reader_of(context)?;
        let info = TaskInfo::alone(&context.job, &context.name);
        let decoder = decoders_of(context, Arc::clone(&format))(&info)?;
        let mut looker = Looker { format: &format, decoder, now: SystemClock::now() };
        let files = files_of(paths(&context.options))?.into_iter().take(InputSpan::MOST);
        files.filter_map(|file| looker.look(&file).transpose()).collect()
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let format = reader_of(&context)?;
        let source = open(&context, Arc::clone(&format))?;
        Ok(BuiltSource::new(source, decoders_of(&context, format), context.schema, Replay::Itself))
    }
}

fn paths(options: &Options) -> &[JobPath] {
    options.paths("path").unwrap_or_default()
}

/// Whether it is a pipe, whose bytes are gone once they are read.
fn is_pipe(path: &JobPath) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo())
}

/// The source of a job file, of which the first bytes have been read.
fn open(context: &SourceContext, format: Arc<dyn RecordFormat>) -> Result<Box<dyn Source>, Error> {
    let follow = context.options.flag("follow").unwrap_or(false).then(|| {
        let micros = context.options.duration("poll").unwrap_or(100_000).max(1_000);
        Duration::from_micros(micros.unsigned_abs())
    });
    let paths = paths(&context.options);
    match paths {
        [path] if follow.is_some() || is_pipe(path) => {
            let file = FileSource::open(path.clone(), format, follow, context.goes_on)?;
            Ok(Box::new(file.first_read()?))
        }
        _ => Ok(Box::new(FilesSource::open(paths, format, context.goes_on)?)),
    }
}
