//! Records from a file, once or as it grows.
//!
//! With `follow: true` the end of the file is waited at (by default looked for every 100 ms). A file that
//! becomes shorter was emptied: reading starts at its beginning. A path that leads to another file was rotated:
//! what the old one still holds is read first, then the new one from its beginning. In both cases a last line
//! without a line end is a record. A file that is emptied and written past the old place between two looks
//! cannot be told from one that grew. Offsets go on; line numbers and the header start again.
//!
//! A job that goes on after a crash finds its place by byte and line, and knows the file by a hash of how it begins: a
//! file that begins otherwise is another one.
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

use thalweg_flow::{Poll, RawBlock, ReplayRun, Source, SourcePosition, SourceProgress};
use thalweg_storage::handles::patiently;
use thalweg_types::{Error, Micros, Offset, hash_bytes};
use tracing::warn;

use super::cut::{Cut, CutPlace, Cutter};
use super::{FILE_CHANGED, decoders_of, ends_early, reader_of};
use crate::format::RecordFormat;
use crate::{BuiltSource, JobPath, OptionKind, OptionSpec, Options, Replay, SourceContext, SourcePlugin};

/// Bytes read before the job starts, so that a wrong header is reported then.
const FIRST_READ: usize = 64 << 10;

/// Bytes at the beginning of a file by which it is known again.
const FINGERPRINT: u64 = 4 << 10;

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
    let read = || {
        let mut source = FileSource::open(path, Arc::clone(format), follow)?;
        source.read_first()?;
        Ok(source)
    };
    read().map_err(|error: Error| error.context(format!("source {:?}", context.name)))
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
            cutter: Cutter::new(&*format),
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
        })
    }

    /// Reads a little, so that a header which does not fit is found before the start.
    fn read_first(&mut self) -> Result<(), Error> {
        if self.pipe.is_some() {
            // What it begins with may be long in coming.
            return Ok(());
        }
        let count = self.read(FIRST_READ)?.unwrap_or_default();
        self.is_ended = count == 0 && self.follow.is_none();
        self.first = self.next_cut(u32::MAX)?;
        Ok(())
    }

    fn next_cut(&mut self, max_records: u32) -> Result<Option<Cut>, Error> {
        let cut = self.cutter.next_within(self.is_ended, max_records);
        cut.map_err(|error| error.context(format!("read {:?}", self.path)))
    }

    fn block(&mut self, cut: Cut) -> RawBlock {
        let (first, count) = (self.next, cut.count);
        self.next += u64::from(count);
        RawBlock { partition: 0, first, count, payload: cut.into_payload() }
    }

    /// How many bytes came; `None` where more may come to a pipe.
    fn read(&mut self, max_bytes: usize) -> Result<Option<usize>, Error> {
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
                Ok(None)
            }
            Ok(0) if self.pipe == Some(Pipe::Expected) => Ok(None),
            result => {
                let count = result.map_err(|error| self.unreadable(error))?;
                self.pipe = self.pipe.map(|_| Pipe::There);
                self.position += count as u64;
                Ok(Some(count))
            }
        }
    }

    /// At the end of a followed file: whether it was emptied or rotated. If so reading goes on there, once what
    /// is left of the old one has been given.
    fn has_new_file(&self) -> bool {
        let (Ok(there), Ok(here)) = (std::fs::metadata(&self.path), self.file.metadata()) else {
            return false; // rotated away, and the new file is not there yet
        };
        let same = inode(&there) == inode(&here);
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
                let is_like_it = place.is_in(&file, len).ok()? && (is_it || !is_alike);
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

    /// # Errors
    /// Where the path cannot be opened.
    fn reopen(&mut self) -> Result<(), Error> {
        let (file, metadata) = open(&self.path)?;
        self.pipe = pipe(&self.path, &metadata);
        self.file = file;
        self.position = 0;
        self.total = metadata.len();
        self.cutter = Cutter::new(&*self.format);
        self.is_ended = false;
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

/// A hash of the first bytes of a file, which tell it from others.
fn fingerprint(file: &File, bytes: u64) -> std::io::Result<u64> {
    let mut begin = vec![0; bytes as usize];
    file.read_exact_at(&mut begin, 0)?;
    Ok(hash_bytes(&begin))
}

/// What tells a file from others of its file system, for as long as it is there.
fn inode(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// What [`SourcePosition::place`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    cut: CutPlace,
    /// Bytes at the beginning of the file that were hashed.
    begin: u64,
    hash: u64,
    /// Earlier builds do not say it.
    inode: Option<(u64, u64)>,
}

impl Place {
    /// Whether a file of this length is the one.
    fn is_in(&self, file: &File, len: u64) -> std::io::Result<bool> {
        if len < self.cut.byte.max(self.begin) {
            return Ok(false);
        }
        Ok(fingerprint(file, self.begin)? == self.hash)
    }

    fn to_bytes(self) -> Vec<u8> {
        let Self { cut, begin, hash, inode } = self;
        let words = [cut.byte, cut.lines, u64::from(cut.is_skipping), begin, hash];
        let inode = inode.map(|(device, number)| [device, number]);
        words.iter().chain(inode.iter().flatten()).flat_map(|word| word.to_le_bytes()).collect()
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (inode, [byte, lines, is_skipping, begin, hash]) = match *words.as_slice() {
            [byte, lines, skips, begin, hash] => (None, [byte, lines, skips, begin, hash]),
            [byte, lines, skips, begin, hash, device, number] => {
                (Some((device, number)), [byte, lines, skips, begin, hash])
            }
            _ => return None,
        };
        Some(Self { cut: CutPlace { byte, lines, is_skipping: is_skipping != 0 }, begin, hash, inode })
    }
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
                if self.is_ended || self.is_draining {
                    return Ok(Poll::End);
                }
                match self.read(max_bytes)? {
                    Some(count) => self.is_ended = count == 0,
                    None => return Ok(Poll::PendingUntil(Instant::now() + PIPE_PAUSE)),
                }
                continue;
            };
            if self.is_ended {
                self.reopen()?;
            }
            if self.read(max_bytes)?.is_some_and(|count| count > 0) {
                is_rotating = false;
            } else if is_rotating {
                self.is_ended = true;
            } else if self.has_new_file() {
                // Once more, for what was written to the old file after the last read.
                is_rotating = true;
            } else if self.is_draining {
                return Ok(Poll::End);
            } else {
                return Ok(Poll::PendingUntil(Instant::now() + interval));
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
        let metadata = self.file.metadata().ok();
        let begin = match cut.byte {
            0 => metadata.as_ref().map_or(0, Metadata::len),
            read => read,
        };
        let begin = begin.min(FINGERPRINT);
        // A file that cannot be read at its beginning fails where it stands, too.
        let (begin, hash) = fingerprint(&self.file, begin).map_or((0, 0), |hash| (begin, hash));
        let inode = metadata.as_ref().map(inode);
        SourcePosition { next: self.next, place: Place { cut, begin, hash, inode }.to_bytes() }
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
        self.first = None;
        let metadata = self.file.metadata().map_err(|error| self.unreadable(error))?;
        let is_alike = place.is_in(&self.file, self.total).map_err(|error| self.unreadable(error))?;
        let is_it = is_alike && place.inode == Some(inode(&metadata));
        if !is_it && !self.take_rotated(&place, is_alike) && !is_alike {
            if self.follow.is_some() {
                self.is_another = true;
                warn!(
                    path = %self.path.display(),
                    "followed file was emptied or rotated while nobody read it, reading the new one from its beginning"
                );
                return self.reopen();
            }
            return Err(Error::user(format!(
                "{:?} is not the file that was read up to byte {}: {}",
                self.path,
                place.cut.byte,
                if self.total < place.cut.byte {
                    format!("it has {} bytes", self.total)
                } else {
                    format!("its first {} bytes are others", place.begin)
                }
            ))
            .with_hint(FILE_CHANGED));
        }
        self.cutter = Cutter::new(&*self.format);
        let mut len = FIRST_READ;
        while place.cut != CutPlace::default() {
            let mut begin = vec![0; len.min(place.cut.byte as usize)];
            self.file.read_exact_at(&mut begin, 0).map_err(|error| self.unreadable(error))?;
            self.cutter = Cutter::new(&*self.format);
            let path = &self.path;
            let resumed = self.cutter.resume(place.cut, &begin);
            if resumed.map_err(|error| error.context(format!("read {path:?}")))? {
                break;
            }
            // A header may be as long as any record.
            len *= 2;
        }
        self.position = place.cut.byte;
        self.file.seek(SeekFrom::Start(self.position)).map_err(|error| self.unreadable(error))?;
        self.is_ended = false;
        Ok(())
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
            self.reopen()?;
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
            self.is_ended = self.read(max_bytes)?.is_none_or(|count| count == 0);
        }
    }

    fn progress(&self) -> Option<SourceProgress> {
        let total = self.follow.is_none().then_some(self.total.max(self.position));
        Some(SourceProgress { done: self.position, total })
    }
}
