//! One file, read once or as it grows.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use thalweg_flow::{Poll, RawBlock, ReplayRun, Source, SourcePosition, SourceProgress, Waker};
use thalweg_storage::handles::patiently;
use thalweg_types::{Error, Micros, Offset};
use tracing::warn;

use super::super::cut::{Cut, CutPlace, Cutter, QuoteWatch};
use super::super::{FILE_CHANGED, ends_early};
use super::MOST_HEADER;
use super::input::{Contents, Input};
use super::known::{BEFORE, BEGIN, KnownAt, Look, Print, Stamp, inode};
use super::place::{self, Header, Place};
use crate::JobPath;
use crate::format::RecordFormat;

/// Bytes read before the job starts, so that a wrong header is reported then.
const FIRST_READ: usize = 64 << 10;

/// Bytes of a header that every commit record keeps; a longer one is only kept where the file does not have it.
const KEPT_HEADER: usize = 4 << 10;

/// How soon a pipe is looked at again that has nothing.
const PIPE_PAUSE: Duration = Duration::from_millis(20);

/// Reads one file.
pub(super) struct FileSource {
    pub(super) path: JobPath,
    format: Arc<dyn RecordFormat>,
    pub(super) input: Input,
    /// `None` if it is not a pipe.
    pipe: Option<Pipe>,
    /// Bytes read of its contents.
    pub(super) position: u64,
    pub(super) total: u64,
    pub(super) cutter: Cutter,
    /// The result of the first read.
    first: Option<Cut>,
    pub(super) next: Offset,
    pub(super) follow: Option<Duration>,
    /// Nothing more comes from it.
    pub(super) is_ended: bool,
    is_draining: bool,
    /// The file that was read up to the last commit is not to be found.
    is_another: bool,
    /// A file that seems to have been written between the one that was rotated away and the one that is followed.
    pub(super) between: Option<PathBuf>,
    /// Another run may go on where this one ends.
    goes_on: bool,
    /// The end was reached of a file that may grow until another run.
    is_paused: bool,
    /// The contents differ from what was read.
    pub(super) is_emptied: bool,
    /// The first bytes that were read, by which the file is recognized.
    begin: Vec<u8>,
    /// The file as it was when it was found to be the one that was read.
    pub(super) seen: Option<Stamp>,
    is_shorter: bool,
    watch: QuoteWatch,
    /// Why the first read has failed.
    failed: Option<Error>,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Got {
    Bytes,
    /// The end of the file, as it is now.
    End,
    /// Nothing yet, from a pipe.
    Later,
    /// The file was emptied and written anew; its contents were not taken.
    Another,
}

/// The result of a look for more records.
pub(super) enum Found {
    Cut(Cut),
    /// The answer of [`Source::poll`].
    Nothing(Poll),
}

/// What was seen of the writers of a pipe.
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
    pub(super) fn open(
        path: JobPath,
        format: Arc<dyn RecordFormat>,
        follow: Option<Duration>,
        goes_on: bool,
    ) -> Result<Self, Error> {
        let (input, metadata) = open(&path)?;
        if follow.is_some() && input.is_packed() {
            return Err(Error::user(format!(
                "follow {path:?}: it is packed by gzip, and is whole when it is there"
            ))
            .with_hint("leave `follow` out, or follow the file that is packed later"));
        }
        let pipe = pipe(&path, &metadata);
        Ok(Self {
            cutter: Cutter::new(&*format).remembering(Vec::new()),
            // A file is packed when all of it is written.
            goes_on: goes_on && pipe.is_none() && !input.is_packed(),
            pipe,
            path,
            format,
            input,
            position: 0,
            total: metadata.len(),
            first: None,
            next: 0,
            follow,
            is_ended: false,
            is_draining: false,
            is_another: false,
            between: None,
            is_paused: false,
            is_emptied: false,
            begin: Vec::new(),
            seen: metadata.is_file().then(|| Stamp::of(&metadata)),
            is_shorter: false,
            watch: QuoteWatch::default(),
            failed: None,
        })
    }

    /// A file to follow, with its first bytes read.
    ///
    /// # Errors
    /// As for [`FileSource::read_first`], unless a later read may succeed.
    pub(super) fn first_read(mut self) -> Result<Self, Error> {
        if let Err(error) = self.read_first() {
            // A file that was emptied may go on without its header: whether the job knows one is not known yet.
            if self.follow.is_none() || !self.goes_on {
                return Err(error);
            }
            self.failed = Some(error);
        }
        Ok(self)
    }

    /// Reads a little, so that a header which does not fit is found before the start.
    ///
    /// # Errors
    /// Where it cannot be read, or begins with a header that does not fit.
    pub(super) fn read_first(&mut self) -> Result<(), Error> {
        if self.pipe.is_some() {
            // Its first bytes may be long in coming.
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

    /// The next records, about `max_bytes` of them.
    ///
    /// # Errors
    /// As for [`Source::poll`].
    pub(super) fn find(&mut self, max_bytes: usize) -> Result<Found, Error> {
        let mut is_rotating = false;
        loop {
            let cut = match self.first.take() {
                Some(cut) => Some(cut),
                None => self.next_cut(u32::MAX)?,
            };
            if let Some(cut) = cut {
                return Ok(Found::Cut(cut));
            }
            let Some(interval) = self.follow else {
                if self.is_ended || self.is_draining || self.is_paused {
                    self.tell_of_the_rest();
                    return Ok(Found::Nothing(Poll::End));
                }
                match self.read(max_bytes)? {
                    Got::Bytes => {}
                    Got::Later => {
                        return Ok(Found::Nothing(Poll::PendingUntil(Instant::now() + PIPE_PAUSE)));
                    }
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
                // Once more, for bytes that were written to the old file after the last read.
                _ if self.is_rotated() => is_rotating = true,
                _ if self.is_draining => return Ok(Found::Nothing(Poll::End)),
                _ => {
                    let now = Instant::now();
                    if self.watch.is_due(&self.cutter, self.position, now) {
                        warn!(
                            path = %self.path.display(),
                            line = self.cutter.place(self.position).lines + 1,
                            "a quote is open since this line: nothing after it is read until the quote is closed or its line is rejected"
                        );
                    }
                    return Ok(Found::Nothing(Poll::PendingUntil(now + interval)));
                }
            }
        }
    }

    /// At most `count` of the records that come next, which were read before; `next` is the number of the first.
    ///
    /// # Errors
    /// Where the file does not have them any more.
    pub(super) fn find_again(&mut self, next: Offset, count: u64, max_bytes: usize) -> Result<Cut, Error> {
        if self.is_another {
            return Err(Error::user(format!(
                "{:?} is not the file that {} records were read from after the last commit, and no file of its folder is",
                self.path, count
            ))
            .with_hint(FILE_CHANGED));
        }
        let max_records = u32::try_from(count).unwrap_or(u32::MAX);
        if let Some(first) = self.first.take() {
            if first.count <= max_records {
                return Ok(first);
            }
            self.reopen_after(None)?;
        }
        loop {
            if let Some(cut) = self.next_cut(max_records)? {
                return Ok(cut);
            }
            if self.is_ended && self.follow.is_some() && self.has_new_file() {
                if let Some(between) = &self.between {
                    return Err(Error::user(format!(
                        "{:?} was rotated more than once since the last commit, as {between:?} was written since, and \
                         {} records were read after the oldest",
                        self.path, count
                    ))
                    .with_hint("append it to the one before it; if it is not a rotated file, move it to another folder"));
                }
                self.reopen()?;
                continue;
            }
            if self.is_ended {
                return Err(ends_early(&self.path, next, count));
            }
            match self.read(max_bytes)? {
                Got::Bytes => {}
                Got::Another => (self.is_emptied, self.is_ended) = (true, true),
                Got::End if self.goes_on && self.follow.is_none() && !self.is_paused => self.is_paused = true,
                Got::End | Got::Later => self.is_ended = true,
            }
        }
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
            match self.input.read(&mut buffer[len..]) {
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
                    self.input.go_to(self.position).map_err(|error| self.unreadable(error))?;
                }
                Ok(got)
            }
        }
    }

    /// Where `count` bytes that were just read are from: of the file that was read before, if that has not changed
    /// meanwhile. The first `held` bytes of the buffer were read before.
    fn look_after(&mut self, count: usize, held: usize) -> Result<Got, Error> {
        let unchanged = if count > 0 { Got::Bytes } else { Got::End };
        let Some(seen) = self.seen else { return Ok(unchanged) };
        let metadata = self.input.file().metadata().map_err(|error| self.unreadable(error))?;
        let stamp = Stamp::of(&metadata);
        // A followed file may change twice within one tick of its clock.
        if stamp == seen && (count == 0 || self.follow.is_none()) {
            return Ok(unchanged);
        }
        let look = self.look(&self.input.contents(), held).map_err(|error| self.unreadable(error))?;
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

    /// Compares a file with the bytes that were read, but for those in the buffer after its first `held` bytes.
    pub(super) fn look(&self, file: &Contents, held: usize) -> std::io::Result<Look> {
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

    pub(super) fn changed(&self) -> Error {
        Error::user(format!(
            "{:?} was written otherwise while it was read: up to byte {} it differs from the bytes that were read",
            self.path, self.position
        ))
        .with_hint(FILE_CHANGED)
    }

    /// How many bytes the beginning has by which the file is recognized.
    fn begin_limit(&self) -> u64 {
        match self.cutter.preamble_text() {
            Some((text, false)) => BEGIN + text.len() as u64,
            None if self.format.has_preamble() => BEGIN + MOST_HEADER,
            _ => BEGIN,
        }
    }

    /// Notes the beginning of the file, from the bytes of the buffer after its first `held` ones.
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

    pub(super) fn unreadable(&self, error: std::io::Error) -> Error {
        use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};

        if self.input.is_packed() && matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof) {
            let (path, position) = (&self.path, self.position);
            let message =
                format!("unpack {path:?}: expected whole gzip members, got another end or other bytes");
            return Error::user(format!("{message} after {position} unpacked bytes"))
                .with_hint(
                    "where it is still being written, start again when it is whole; else pack it once more",
                )
                .with_source(error);
        }
        Error::external(format!("read {:?}", self.path))
            .with_hint("look for the cause (disk, mount, permissions), then start again")
            .with_source(error)
    }

    /// Goes on from where an earlier run stopped.
    ///
    /// # Errors
    /// Where this is another file.
    pub(super) fn go_on(&mut self, place: Place) -> Result<(), Error> {
        (self.first, self.failed) = (None, None);
        let metadata = self.input.file().metadata().map_err(|error| self.unreadable(error))?;
        let contents = self.input.contents();
        let look = place.look(&contents).map_err(|error| self.unreadable(error))?;
        let is_alike = look == Look::Same;
        let is_it = is_alike && place.inode == Some(inode(&metadata));
        let is_rotated = !is_it && self.take_rotated(&place, is_alike);
        let is_found = is_it || is_rotated || is_alike;
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
        let contents = if is_rotated { self.input.contents() } else { contents };
        self.go_to(&place, contents)
    }

    /// Goes to a place of the file, which its `contents` have shown to be the right one.
    ///
    /// # Errors
    /// Where the file cannot be read.
    fn go_to(&mut self, place: &Place, contents: Contents) -> Result<(), Error> {
        let unreadable = |error| self.unreadable(error);
        let before = place.cut.byte.min(BEFORE as u64);
        let before = contents.bytes_at(place.cut.byte - before, before).map_err(unreadable)?;
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
                    let begin = (len as u64).min(place.cut.byte);
                    let wanted = begin as usize;
                    let begin = contents.bytes_at(0, begin).map_err(unreadable)?;
                    if begin.len() < wanted {
                        return Err(self.changed());
                    }
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
        let metadata = self.input.file().metadata().map_err(|error| self.unreadable(error))?;
        self.seen = None;
        if metadata.is_file() {
            let begin =
                if self.position == 0 { place.begin.len } else { self.begin_limit().min(self.position) };
            self.begin = contents.bytes_at(0, begin).map_err(|error| self.unreadable(error))?;
            self.seen = Some(Stamp::of(&metadata));
        }
        let went = self.input.go_on(self.position, contents);
        went.map_err(|error| self.unreadable(error))?;
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
            Look::Edited => format!("the {} bytes before that differ", place.before.len),
            _ if self.total < byte => format!("it has {} bytes", self.total),
            _ => format!("its first {} bytes differ", place.begin.len),
        };
        Error::user(format!("{path:?} is not the file that was read up to byte {byte}: {why}"))
            .with_hint(FILE_CHANGED)
    }

    /// Bytes after the last whole record.
    pub(super) fn unfinished(&self) -> usize {
        self.cutter.unfinished()
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
        let (input, metadata) = open(&self.path)?;
        self.pipe = pipe(&self.path, &metadata);
        self.input = input;
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

pub(super) fn open(path: &JobPath) -> Result<(Input, Metadata), Error> {
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
    let input = Input::new(file, &metadata).map_err(failed)?;
    Ok((input, metadata))
}

/// Whether it is a pipe. One without a name (`/dev/stdin`) has had its writer.
fn pipe(path: &Path, metadata: &Metadata) -> Option<Pipe> {
    let is_pipe = metadata.file_type().is_fifo();
    is_pipe.then(|| if path.canonicalize().is_ok() { Pipe::Expected } else { Pipe::There })
}

impl Source for FileSource {
    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        Ok(match self.find(max_bytes)? {
            Found::Cut(cut) => Poll::Block(self.block(cut)),
            Found::Nothing(said) => said,
        })
    }

    fn drain(&mut self) {
        self.is_draining = true;
    }

    fn position(&self) -> SourcePosition {
        let cut = match self.first {
            Some(_) => CutPlace::default(),
            None => self.cutter.place(self.position),
        };
        // Bytes that were not read may be mended. If none were read, they have to tell the file from the one after it.
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
            inode: self.input.file().metadata().ok().as_ref().map(inode),
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
        let no_place = || Error::corrupt(format!("the commit record holds no place in file {:?}", self.path));
        let mut files = place::of_bytes(&position.place).ok_or_else(no_place)?;
        // Of several, which were read once, the one that is followed now.
        let own = files.iter().position(|file| file.path.as_deref() == Some(&*self.path));
        let file = match own {
            Some(own) => Some(files.swap_remove(own)),
            None => files.pop(),
        };
        file.and_then(|file| file.place).map_or(Ok(()), |place| self.go_on(place))
    }

    fn start(&mut self, _: Waker) -> Result<(), Error> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn replay(&mut self, run: ReplayRun, max_bytes: usize) -> Result<RawBlock, Error> {
        let cut = self.find_again(self.next, run.count, max_bytes)?;
        Ok(self.block(cut))
    }

    fn progress(&self) -> Option<SourceProgress> {
        let done = self.input.packed_bytes().unwrap_or(self.position);
        Some(SourceProgress { done, total: self.follow.is_none().then_some(self.total.max(done)) })
    }
}
