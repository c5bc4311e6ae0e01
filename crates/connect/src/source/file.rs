//! Records from a file, once or as it grows.
//!
//! With `follow: true` the end of the file is waited at (by default looked for every 100 ms). A file that begins
//! otherwise than it did was emptied, whether it is shorter than what was read or has been written past that again:
//! reading starts at its beginning. A path that leads to another file was rotated: what the old one still holds is
//! read first, then the new one from its beginning; unless the old one is gone and the new one has all that was read
//! of it, which is the same file exchanged. Where a file was emptied or rotated a last line without a line end is a
//! record. Offsets go on; line numbers start again, and so does the header, unless the first line is none.
//!
//! A file is known by its beginning and by the bytes before the place (`known`), at every look at one that has changed and
//! when a job goes on. One that begins as it did and has other bytes before the place was edited; nobody can say then
//! what was read of it.
//!
//! In a job that goes on the last line of a file that is read once is a record when it has its end: who writes it may be in
//! the middle of it. So is a record with an open quote, unless a line behind that is a record by itself.
//!
//! A named pipe is opened at once and without its writer, who may come later; nothing ever waits in a read of it. It ends
//! when its writers have gone.
//!
//! Drained, a file is left where it is, and a followed one read up to its present end; a line that is not ended
//! yet is no record then.

use std::fs::{File, Metadata};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use thalweg_flow::{Poll, RawBlock, ReplayRun, Source, SourcePosition, SourceProgress, Waker};
use thalweg_storage::handles::patiently;
use thalweg_types::{Error, Micros, Offset};
use tracing::warn;

use super::cut::{Cut, CutPlace, Cutter, QuoteWatch};
use super::known::{BEFORE, BEGIN, KnownAt, Look, Print, Stamp, bytes_at, inode};
use super::{FILE_CHANGED, decoders_of, ends_early, reader_of};
use crate::format::RecordFormat;
use crate::{BuiltSource, JobPath, OptionKind, OptionSpec, Options, Replay, SourceContext, SourcePlugin};

/// Bytes read before the job starts, so that a wrong header is reported then.
const FIRST_READ: usize = 64 << 10;

/// Bytes of a header that every commit record keeps; a longer one is only kept where the file does not have it.
const KEPT_HEADER: usize = 4 << 10;

/// Bytes of a header at most, with the mark and the line end.
const MOST_HEADER: u64 = 260 << 10;

/// How soon a pipe is looked at again that has nothing.
const PIPE_PAUSE: Duration = Duration::from_millis(20);

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
                doc: "wait for more at the end of the file, also after it was emptied or rotated within its folder",
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

    fn has_end(&self, options: &Options) -> bool {
        // What was read from a pipe is gone.
        let is_pipe = |path: &JobPath| std::fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo());
        !options.flag("follow").unwrap_or(false) && !options.path("path").is_some_and(is_pipe)
    }

    fn probe(&self, context: &SourceContext) -> Result<(), Error> {
        let format = reader_of(context)?;
        // Who writes into a pipe would take it for the reader.
        let path = context.options.path("path").cloned().unwrap_or_default();
        if std::fs::metadata(&path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            return Ok(());
        }
        first_read(context, &format).map(drop)
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let format = reader_of(&context)?;
        let source = first_read(&context, &format)?;
        Ok(BuiltSource {
            source: Box::new(source),
            decoder: decoders_of(&context, format),
            schema: context.schema,
            ingress: None,
            address: None,
            connections: None,
            replay: Replay::Itself,
        })
    }
}

/// The source of a job file, of which the first bytes have been read.
fn first_read(context: &SourceContext, format: &Arc<dyn RecordFormat>) -> Result<FileSource, Error> {
    let path = context.options.path("path").cloned().unwrap_or_default();
    let follow = context.options.flag("follow").unwrap_or(false).then(|| {
        let micros = context.options.duration("poll").unwrap_or(100_000).max(1_000);
        Duration::from_micros(micros.unsigned_abs())
    });
    let mut source = FileSource::open(path, Arc::clone(format), follow)?;
    source.goes_on = context.goes_on && source.pipe.is_none();
    if let Err(error) = source.read_first() {
        // A file that was emptied may go on without its header: whether the job knows one is not known yet.
        if follow.is_none() || !source.goes_on {
            return Err(error);
        }
        source.failed = Some(error);
    }
    Ok(source)
}

/// Reads one file.
pub struct FileSource {
    path: JobPath,
    format: Arc<dyn RecordFormat>,
    file: File,
    /// `None` for what is no pipe.
    pipe: Option<Pipe>,
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
    /// The file that was read up to the last commit is not to be found.
    is_another: bool,
    /// What seems to have been written between the one that was rotated away and the one that is followed.
    between: Option<PathBuf>,
    /// Another run may go on where this one ends.
    goes_on: bool,
    /// The end was reached of a file that may grow until another run.
    is_paused: bool,
    /// The file holds something else than what was read of it.
    is_emptied: bool,
    /// The first bytes that were read, by which the file is known.
    begin: Vec<u8>,
    /// The file as it was when it was found to be the one that was read.
    seen: Option<Stamp>,
    is_shorter: bool,
    watch: QuoteWatch,
    /// Why the first read has failed.
    failed: Option<Error>,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Got {
    Bytes,
    /// The end of the file, as it is now.
    End,
    /// Nothing yet, from a pipe.
    Later,
    /// The file was emptied and written anew; what it holds was not taken.
    Another,
}

/// What is known of the writers of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pipe {
    /// There may not have been one yet.
    Expected,
    /// When nothing more comes they have gone.
    There,
}

impl FileSource {
    /// # Errors
    /// Where the file cannot be opened.
    pub fn open(
        path: impl Into<JobPath>,
        format: Arc<dyn RecordFormat>,
        follow: Option<Duration>,
    ) -> Result<Self, Error> {
        let path = path.into();
        let (file, metadata) = open(&path)?;
        Ok(Self {
            cutter: Cutter::new(&*format).remembering(Vec::new()),
            pipe: pipe(&path, &metadata),
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
            is_another: false,
            between: None,
            goes_on: false,
            is_paused: false,
            is_emptied: false,
            begin: Vec::new(),
            seen: metadata.is_file().then(|| Stamp::of(&metadata)),
            is_shorter: false,
            watch: QuoteWatch::default(),
            failed: None,
        })
    }

    /// Reads a little, so that a header which does not fit is found before the start.
    fn read_first(&mut self) -> Result<(), Error> {
        if self.pipe.is_some() {
            // What it begins with may be long in coming.
            return Ok(());
        }
        let got = self.read(FIRST_READ)?;
        self.is_ended = got == Got::End && self.follow.is_none() && !self.goes_on;
        self.first = self.next_cut(u32::MAX)?;
        Ok(())
    }

    fn next_cut(&mut self, max_records: u32) -> Result<Option<Cut>, Error> {
        let mut cut = self.cutter.next_within(self.is_ended, max_records);
        if self.is_paused && matches!(cut, Ok(None)) {
            cut = self.cutter.next_at_pause();
        }
        cut.map_err(|error| error.context(format!("read {:?}", self.path)))
    }

    fn block(&mut self, cut: Cut) -> RawBlock {
        let (first, count) = (self.next, cut.count);
        self.next += u64::from(count);
        RawBlock { partition: 0, first, count, payload: cut.into_payload() }
    }

    fn read(&mut self, max_bytes: usize) -> Result<Got, Error> {
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
        match result {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                self.pipe = self.pipe.map(|_| Pipe::There);
                Ok(Got::Later)
            }
            Ok(0) if self.pipe == Some(Pipe::Expected) => Ok(Got::Later),
            result => {
                let count = result.map_err(|error| self.unreadable(error))?;
                self.pipe = self.pipe.map(|_| Pipe::There);
                let got = self.look_after(count, len)?;
                if got == Got::Bytes {
                    self.note(len);
                    self.position += count as u64;
                } else if count > 0 {
                    self.cutter.buffer().truncate(len);
                    let place = SeekFrom::Start(self.position);
                    self.file.seek(place).map_err(|error| self.unreadable(error))?;
                }
                Ok(got)
            }
        }
    }

    /// What `count` bytes are that were just read: of the file that was read before, if that has not changed meanwhile. The
    /// first `held` bytes of the buffer were read before.
    fn look_after(&mut self, count: usize, held: usize) -> Result<Got, Error> {
        let unchanged = if count > 0 { Got::Bytes } else { Got::End };
        let Some(seen) = self.seen else { return Ok(unchanged) };
        let metadata = self.file.metadata().map_err(|error| self.unreadable(error))?;
        let stamp = Stamp::of(&metadata);
        // What is followed may change twice within one tick of its clock.
        if stamp == seen && (count == 0 || self.follow.is_none()) {
            return Ok(unchanged);
        }
        let look = self.look(&self.file, held).map_err(|error| self.unreadable(error))?;
        match look {
            Look::Same => {
                (self.seen, self.is_shorter) = (Some(stamp), false);
                Ok(unchanged)
            }
            Look::Another if self.follow.is_some() => Ok(Got::Another),
            Look::Shorter if self.follow.is_some() => {
                if !std::mem::replace(&mut self.is_shorter, true) {
                    warn!(
                        path = %self.path.display(),
                        position = self.position,
                        bytes = metadata.len(),
                        "followed file has become shorter and begins as before: waiting until it is written up to the place again"
                    );
                }
                Ok(Got::End)
            }
            _ => Err(self.changed()),
        }
    }

    /// What a file is, held against what was read and is not in the buffer behind its first `held` bytes.
    fn look(&self, file: &File, held: usize) -> std::io::Result<Look> {
        // Before a header was found there may have been more of it.
        let limit = self.begin_limit() as usize;
        let begin = &self.begin[..self.begin.len().min(limit)];
        let known = KnownAt {
            place: self.position,
            begin: Print::of(begin),
            is_full: begin.len() == limit,
            before: Print::of(&self.cutter.bytes_before(held)),
        };
        known.look(file)
    }

    fn changed(&self) -> Error {
        Error::user(format!(
            "{:?} was written otherwise while it was read: up to byte {} it is not what was read",
            self.path, self.position
        ))
        .with_hint(FILE_CHANGED)
    }

    /// How many bytes the beginning of the file has by which it is known.
    fn begin_limit(&self) -> u64 {
        match self.cutter.preamble_text() {
            Some((text, false)) => BEGIN + text.len() as u64,
            None if self.format.has_preamble() => BEGIN + MOST_HEADER,
            _ => BEGIN,
        }
    }

    /// Takes note of the beginning of the file in what was read behind the first `held` bytes of the buffer.
    fn note(&mut self, held: usize) {
        let limit = self.begin_limit() as usize;
        self.begin.truncate(limit);
        let Some(known) = (self.begin.len() as u64).checked_sub(self.position) else { return };
        if self.seen.is_some() {
            let missing = limit - self.begin.len();
            let read = self.cutter.buffer().get(held + known as usize..).unwrap_or_default();
            self.begin.extend_from_slice(&read[..read.len().min(missing)]);
        }
    }

    /// At the end of a followed file: whether it was emptied or rotated. If so reading goes on there, once what
    /// is left of the old one has been given.
    fn has_new_file(&self) -> bool {
        self.is_emptied || self.is_rotated()
    }

    /// Whether the path leads to another file.
    fn is_rotated(&self) -> bool {
        let (Ok(there), Ok(here)) = (std::fs::metadata(&self.path), self.file.metadata()) else {
            return false; // rotated away, and the new file is not there yet
        };
        inode(&there) != inode(&here)
    }

    /// Says that reading begins anew, in a file that was emptied or in the one behind a file that was rotated.
    fn is_over(&mut self, was: &str) {
        self.is_ended = true;
        warn!(
            path = %self.path.display(),
            position = self.position,
            "followed file was {was}, reading the new one from its beginning"
        );
    }

    /// Goes on in the file at the path, if that has all that was read and the one that was followed is gone: a program that
    /// writes a file anew and puts it in the place of the old one.
    ///
    /// # Errors
    /// Where the path cannot be opened, or the file there begins alike and was edited.
    fn take_exchanged(&mut self) -> Result<bool, Error> {
        let is_gone = self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0);
        if !is_gone || self.seen.is_none() || self.next == 0 {
            return Ok(false);
        }
        let (mut file, metadata) = open(&self.path)?;
        if !metadata.is_file() {
            return Ok(false);
        }
        let held = self.cutter.unfinished();
        match self.look(&file, held).map_err(|error| self.unreadable(error))? {
            Look::Same => {
                file.seek(SeekFrom::Start(self.position)).map_err(|error| self.unreadable(error))?;
                (self.file, self.total, self.seen) = (file, metadata.len(), Some(Stamp::of(&metadata)));
                tracing::info!(
                    path = %self.path.display(),
                    position = self.position,
                    "followed file was exchanged for one that has all of it, going on there"
                );
                Ok(true)
            }
            Look::Edited => Err(self.changed()),
            Look::Shorter | Look::Another => Ok(false),
        }
    }

    /// Takes the file that was read for the one that is followed, if it was rotated within its folder: what is left of
    /// it comes before the new one. Of copies the longest; none where the new one begins alike.
    fn take_rotated(&mut self, place: &Place, is_alike: bool) -> bool {
        if self.follow.is_none() {
            return false;
        }
        // Where nobody may look, it is as good as gone.
        let Ok(entries) = std::fs::read_dir(self.folder()) else { return false };
        let longest = entries
            .filter_map(|entry| {
                let entry = entry.ok().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))?;
                let file = File::open(entry.path()).ok()?;
                self.path.verify(&file).ok()?;
                let metadata = file.metadata().ok()?;
                let (is_it, len) = (place.inode == Some(inode(&metadata)), metadata.len());
                let is_like_it = place.look(&file).ok()? == Look::Same && (is_it || !is_alike);
                is_like_it.then(|| (len, entry.path(), file))
            })
            .max_by_key(|(len, ..)| *len);
        let Some((len, found, file)) = longest else { return false };
        self.between = self.written_behind(&file);
        if let Some(between) = &self.between {
            warn!(
                path = %self.path.display(),
                between = %between.display(),
                "followed file was rotated more than once while nobody read it: what lies between is not read"
            );
        }
        tracing::info!(
            path = %self.path.display(),
            rotated = %found.display(),
            "followed file was rotated while nobody read it, going on in the old one"
        );
        (self.file, self.total) = (file, len);
        true
    }

    fn folder(&self) -> &Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// A file beside the one that is followed, with its name at least, that was written after `file`.
    fn written_behind(&self, file: &File) -> Option<PathBuf> {
        let written = file.metadata().ok()?.modified().ok()?;
        let name = self.path.file_name()?.as_encoded_bytes();
        let entries = std::fs::read_dir(self.folder()).ok()?.flatten();
        entries.map(|entry| entry.path()).find(|path| {
            let is_named = path.file_name().is_some_and(|other| other.as_encoded_bytes().starts_with(name));
            let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified());
            is_named
                && path.file_name() != self.path.file_name()
                && modified.is_ok_and(|modified| modified > written)
        })
    }

    fn unreadable(&self, error: std::io::Error) -> Error {
        Error::external(format!("read {:?}", self.path))
            .with_hint("look for the cause (disk, mount, permissions), then start again")
            .with_source(error)
    }

    /// Goes to a place of the file, which has been found to be the one.
    ///
    /// # Errors
    /// Where the file cannot be read.
    fn go_to(&mut self, place: &Place) -> Result<(), Error> {
        let unreadable = |error| self.unreadable(error);
        let before = place.cut.byte.min(BEFORE as u64);
        let before = bytes_at(&self.file, place.cut.byte - before, before).map_err(unreadable)?;
        let fresh = || Cutter::new(&*self.format).remembering(before.clone());
        let former = place.header.as_ref().filter(|header| header.is_former);
        let mut cutter = fresh();
        match former {
            Some(header) if place.cut.byte == 0 => {
                cutter = Cutter::after(&*self.format, header.text.clone())?.remembering(Vec::new());
            }
            Some(header) => cutter.resume_after(place.cut, header.text.clone())?,
            None => {
                let mut len = FIRST_READ;
                while place.cut != CutPlace::default() {
                    let mut begin = vec![0; len.min(place.cut.byte as usize)];
                    self.file.read_exact_at(&mut begin, 0).map_err(unreadable)?;
                    cutter = fresh();
                    let path = &self.path;
                    let resumed = cutter.resume(place.cut, &begin);
                    if resumed.map_err(|error| error.context(format!("read {path:?}")))? {
                        break;
                    }
                    // A header may be as long as any record.
                    len *= 2;
                }
            }
        }
        self.cutter = cutter;
        self.position = place.cut.byte;
        self.begin.clear();
        let metadata = self.file.metadata().map_err(|error| self.unreadable(error))?;
        self.seen = None;
        if metadata.is_file() {
            let begin =
                if self.position == 0 { place.begin.len } else { self.begin_limit().min(self.position) };
            self.begin = bytes_at(&self.file, 0, begin).map_err(|error| self.unreadable(error))?;
            self.seen = Some(Stamp::of(&metadata));
        }
        self.file.seek(SeekFrom::Start(self.position)).map_err(|error| self.unreadable(error))?;
        (self.is_ended, self.is_paused, self.is_emptied) = (false, false, false);
        Ok(())
    }

    /// The error for a file in which a job cannot go on.
    fn is_not_it(&self, place: &Place, look: Look) -> Error {
        let (path, byte) = (&self.path, place.cut.byte);
        let why = match look {
            Look::Edited if place.before.len == 0 => {
                "a line goes on there that was taken for a whole one".to_owned()
            }
            Look::Edited => format!("the {} bytes before that are others", place.before.len),
            _ if self.total < byte => format!("it has {} bytes", self.total),
            _ => format!("its first {} bytes are others", place.begin.len),
        };
        Error::user(format!("{path:?} is not the file that was read up to byte {byte}: {why}"))
            .with_hint(FILE_CHANGED)
    }

    /// Says that the file does not end with a whole record, in a job that may find it whole another time.
    fn tell_of_the_rest(&mut self) {
        let bytes = self.cutter.unfinished();
        if self.is_paused && !self.is_draining && bytes > 0 {
            self.is_draining = true;
            let line = self.cutter.place(self.position).lines + 1;
            warn!(
                path = %self.path.display(),
                line,
                bytes,
                "the file ends within a record: another run reads it once it has its end; without --data-dir it is taken as it is"
            );
        }
    }

    /// # Errors
    /// Where the path cannot be opened.
    fn reopen(&mut self) -> Result<(), Error> {
        let header = self.cutter.preamble_text().map(|(text, _)| text.clone());
        self.reopen_after(header)
    }

    /// Begins anew, with a header that holds where the new file has none.
    fn reopen_after(&mut self, header: Option<Bytes>) -> Result<(), Error> {
        let (file, metadata) = open(&self.path)?;
        self.pipe = pipe(&self.path, &metadata);
        self.file = file;
        self.position = 0;
        self.total = metadata.len();
        self.cutter = match header {
            Some(text) => Cutter::after(&*self.format, text)?,
            None => Cutter::new(&*self.format),
        }
        .remembering(Vec::new());
        (self.is_ended, self.is_emptied, self.is_shorter) = (false, false, false);
        self.begin.clear();
        self.seen = metadata.is_file().then(|| Stamp::of(&metadata));
        Ok(())
    }
}

fn open(path: &JobPath) -> Result<(File, Metadata), Error> {
    let failed = |error: std::io::Error| {
        let message = format!("open {path:?}");
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let wrapped = match missing {
            true => Error::user(message).with_hint("relative paths start at the current directory"),
            false => Error::external(message)
                .with_hint("look for the cause (disk, mount, permissions), then start again"),
        };
        wrapped.with_source(error)
    };
    // Without it, opening a pipe waits for its writer, and nothing could end that.
    let nonblocking = nix::libc::O_NONBLOCK;
    let file = patiently(path.display(), || File::options().read(true).custom_flags(nonblocking).open(path));
    let file = file.map_err(failed)?;
    path.verify(&file)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(Error::user(format!("open {path:?}: expected a file, got a folder")));
    }
    Ok((file, metadata))
}

/// Whether it is a pipe. One without a name (`/dev/stdin`) has had its writer.
fn pipe(path: &Path, metadata: &Metadata) -> Option<Pipe> {
    let is_pipe = metadata.file_type().is_fifo();
    is_pipe.then(|| if path.canonicalize().is_ok() { Pipe::Expected } else { Pipe::There })
}

/// What [`SourcePosition::place`] holds: numbers, and a header's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    cut: CutPlace,
    /// Of the beginning of the file.
    begin: Print,
    /// Earlier builds do not say it.
    inode: Option<(u64, u64)>,
    /// Of the bytes before the place. Earlier builds do not say it.
    before: Print,
    header: Option<Header>,
}

/// A header that records of the file are read with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Header {
    text: Bytes,
    /// The file itself does not have it, or may not.
    is_former: bool,
}

impl Place {
    /// What a file is to the one that was read up to here.
    fn look(&self, file: &File) -> std::io::Result<Look> {
        let header = self.header.as_ref().filter(|header| !header.is_former);
        let known = KnownAt {
            place: self.cut.byte,
            begin: self.begin,
            is_full: self.begin.len >= BEGIN + header.map_or(0, |header| header.text.len() as u64),
            before: self.before,
        };
        let look = known.look(file)?;
        let is_told = self.before.len > 0 || self.cut.is_skipping || self.cut.byte == 0;
        if look == Look::Same && !is_told && !is_between_lines(file, self.cut.byte)? {
            return Ok(Look::Edited);
        }
        Ok(look)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let Self { cut, begin, inode, before, header } = self;
        let (device, number) = inode.unwrap_or_default();
        let (kind, text) = match header {
            None => (0, &[] as &[u8]),
            Some(Header { text, is_former: false }) => (1, &**text),
            Some(Header { text, is_former: true }) => (2, &**text),
        };
        let [byte, lines, is_skipping] = [cut.byte, cut.lines, u64::from(cut.is_skipping)];
        let words =
            [byte, lines, is_skipping, begin.len, begin.hash, device, number, before.len, before.hash, kind];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(text);
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().take(10).map(|word| u64::from_le_bytes(*word)).collect();
        let [byte, lines, is_skipping, begin, hash] = *words.first_chunk()?;
        let (mut inode, mut before, mut header) = (None, Print::NONE, None);
        match words[5..] {
            [] => {}
            [device, number] => inode = Some((device, number)),
            [device, number, len, hash, kind] => {
                inode = Some((device, number)).filter(|inode| *inode != (0, 0));
                before = Print { len, hash };
                let text = Bytes::copy_from_slice(&bytes[10 * 8..]);
                header = (kind != 0).then_some(Header { text, is_former: kind == 2 });
            }
            _ => return None,
        }
        if before.len > byte.min(BEFORE as u64) || begin > BEGIN + MOST_HEADER {
            return None;
        }
        let cut = CutPlace { byte, lines, is_skipping: is_skipping != 0 };
        Some(Self { cut, begin: Print { len: begin, hash }, inode, before, header })
    }
}

/// Whether a record may end at a place of a file: earlier builds took a line for one before it had its end.
fn is_between_lines(file: &File, byte: u64) -> std::io::Result<bool> {
    let before = bytes_at(file, byte.saturating_sub(3), 3.min(byte))?;
    let is_end = before == b"\xEF\xBB\xBF" || before.last().is_none_or(u8::is_ascii_whitespace);
    let behind = bytes_at(file, byte, 1)?;
    Ok(is_end || behind.first().is_none_or(|byte| matches!(byte, b'\n' | b'\r')))
}

impl Source for FileSource {
    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        let mut is_rotating = false;
        loop {
            let cut = match self.first.take() {
                Some(cut) => Some(cut),
                None => self.next_cut(u32::MAX)?,
            };
            if let Some(cut) = cut {
                return Ok(Poll::Block(self.block(cut)));
            }
            let Some(interval) = self.follow else {
                if self.is_ended || self.is_draining || self.is_paused {
                    self.tell_of_the_rest();
                    return Ok(Poll::End);
                }
                match self.read(max_bytes)? {
                    Got::Bytes => {}
                    Got::Later => return Ok(Poll::PendingUntil(Instant::now() + PIPE_PAUSE)),
                    Got::End | Got::Another => {
                        (self.is_paused, self.is_ended) = (self.goes_on, !self.goes_on);
                    }
                }
                continue;
            };
            if self.is_ended {
                self.reopen()?;
            }
            match self.read(max_bytes)? {
                Got::Bytes => is_rotating = false,
                Got::Another => {
                    self.is_emptied = true;
                    self.is_over("emptied");
                }
                _ if is_rotating => match self.take_exchanged()? {
                    true => is_rotating = false,
                    false => self.is_over("rotated"),
                },
                // Once more, for what was written to the old file after the last read.
                _ if self.is_rotated() => is_rotating = true,
                _ if self.is_draining => return Ok(Poll::End),
                _ => {
                    let now = Instant::now();
                    if self.watch.is_due(&self.cutter, self.position, now) {
                        warn!(
                            path = %self.path.display(),
                            line = self.cutter.place(self.position).lines + 1,
                            "a quote is open since this line, and nothing behind it is read before it is closed or is found to be none"
                        );
                    }
                    return Ok(Poll::PendingUntil(now + interval));
                }
            }
        }
    }

    fn drain(&mut self) {
        self.is_draining = true;
    }

    fn position(&self) -> SourcePosition {
        let cut = match self.first {
            Some(_) => CutPlace::default(),
            None => self.cutter.place(self.position),
        };
        // What was not read may be mended. Where nothing was, it has to tell the file from the one after it.
        let begin = match cut.byte {
            0 => (self.begin.len() as u64).min(BEGIN),
            read => read.min(self.begin.len() as u64).min(self.begin_limit()),
        };
        let before = match cut.byte {
            0 => Vec::new(),
            _ => self.cutter.bytes_before(0),
        };
        let header = self.cutter.preamble_text().filter(|_| self.first.is_none());
        let header = header.filter(|(text, is_former)| *is_former || text.len() <= KEPT_HEADER);
        let place = Place {
            cut,
            begin: Print::of(&self.begin[..begin as usize]),
            inode: self.file.metadata().ok().as_ref().map(inode),
            before: Print::of(&before),
            header: header.map(|(text, is_former)| Header { text: text.clone(), is_former }),
        };
        SourcePosition { next: self.next, place: place.to_bytes() }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        self.next = position.next;
        // Of a file that is read once and of which nothing is committed another one may take the place.
        if position.place.is_empty() || (position.next == 0 && self.follow.is_none()) {
            return Ok(());
        }
        let place = Place::of_bytes(&position.place).ok_or_else(|| {
            Error::corrupt(format!("the commit record holds no place in file {:?}", self.path))
        })?;
        (self.first, self.failed) = (None, None);
        let metadata = self.file.metadata().map_err(|error| self.unreadable(error))?;
        let look = place.look(&self.file).map_err(|error| self.unreadable(error))?;
        let is_alike = look == Look::Same;
        let is_it = is_alike && place.inode == Some(inode(&metadata));
        let is_found = is_it || self.take_rotated(&place, is_alike) || is_alike;
        match (look, self.follow) {
            _ if is_found => {}
            (Look::Another, Some(_)) => {
                self.is_another = true;
                warn!(
                    path = %self.path.display(),
                    "followed file was emptied or rotated while nobody read it, reading the new one from its beginning"
                );
                return self.reopen_after(place.header.map(|header| header.text));
            }
            _ => return Err(self.is_not_it(&place, look)),
        }
        self.go_to(&place)
    }

    fn start(&mut self, _: Waker) -> Result<(), Error> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn replay(&mut self, run: ReplayRun, max_bytes: usize) -> Result<RawBlock, Error> {
        if self.is_another {
            return Err(Error::user(format!(
                "{:?} is not the file that {} records were read from after the last commit, and no file of its folder is",
                self.path, run.count
            ))
            .with_hint(FILE_CHANGED));
        }
        let max_records = u32::try_from(run.count).unwrap_or(u32::MAX);
        if let Some(first) = self.first.take() {
            if first.count <= max_records {
                return Ok(self.block(first));
            }
            self.reopen_after(None)?;
        }
        loop {
            if let Some(cut) = self.next_cut(max_records)? {
                return Ok(self.block(cut));
            }
            if self.is_ended && self.follow.is_some() && self.has_new_file() {
                if let Some(between) = &self.between {
                    return Err(Error::user(format!(
                        "{:?} was rotated more than once since the last commit, as {between:?} was written since, and \
                         {} records were read behind the oldest",
                        self.path, run.count
                    ))
                    .with_hint("append it to the one before it; if it is none of them, move it to another folder"));
                }
                self.reopen()?;
                continue;
            }
            if self.is_ended {
                return Err(ends_early(&self.path, self.next, run.count));
            }
            match self.read(max_bytes)? {
                Got::Bytes => {}
                Got::Another => (self.is_emptied, self.is_ended) = (true, true),
                Got::End if self.goes_on && self.follow.is_none() && !self.is_paused => self.is_paused = true,
                Got::End | Got::Later => self.is_ended = true,
            }
        }
    }

    fn progress(&self) -> Option<SourceProgress> {
        let total = self.follow.is_none().then_some(self.total.max(self.position));
        Some(SourceProgress { done: self.position, total })
    }
}
