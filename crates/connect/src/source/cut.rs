//! Cutting a stream of bytes into blocks of whole records.
//!
//! Invariants
//! * The blocks of a stream hold the same records wherever its bytes were cut on arrival.
//! * Not much more than `max_record` bytes wait for a record's end. A record that is longer, or whose quote is
//!   not meant as one (`format::quotes`), costs one reject: its first line. Reading goes on after that line. (Records
//!   of one line that are too long but all there are left to the decoder, which says the same.)
//! * No block has more than [`MAX_BLOCK`] bytes, nor has its preamble, unless `max_record` is larger: a journal
//!   takes each as one record.
//! * No block has more records than the format allows ([`RecordFormat::block_records`]): their results, rows or
//!   rejects, takes far more than the bytes of very short records.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use thalweg_flow::Payload;
use thalweg_types::{Error, format_size};

use super::file::BEFORE;
use crate::format::{
    DEFAULT_MAX_RECORD, OPEN_AT_END, Preamble, RecordFormat, RefusedLine, Split, Splitter, too_long,
};

/// Bytes of a block, however many there are to cut at once: the longest record by default, with its line end.
pub(crate) const MAX_BLOCK: usize = DEFAULT_MAX_RECORD + 2;

/// Bytes that are looked at for one block, unless a record takes more.
const WINDOW: usize = 320 << 10;

/// Bytes below which a window is not made smaller by guessing.
const LEAST_WINDOW: usize = 64;

/// Raw bytes that are kept of a record whose end never came.
const KEPT_OF_UNFINISHED: usize = 64 << 10;

/// Says of the records of a block where each is from.
pub trait RecordPlaces: Send + Sync {
    /// The place of a record, by its number in the block, as rejects say it.
    fn place_of(&self, index: u32) -> String;
}

/// What a source knows about a block and its decoder needs.
#[derive(Clone, Default)]
pub struct BlockContext {
    /// The file that it is from, where a source has several.
    pub file: Option<Arc<str>>,
    /// Where each of its records is from, where that is more than a file.
    pub places: Option<Arc<dyn RecordPlaces>>,
    /// Number of the block's first line in its file, from 1; `None` where lines have no place.
    pub first_line: Option<u64>,
    /// The preamble of the stream.
    pub preamble: Option<Preamble>,
    /// Its bytes, from which a journal makes the preamble again.
    pub preamble_text: Option<Bytes>,
    /// The block is one record that cannot be read at all: code and reason.
    pub refused: Option<(Cow<'static, str>, Cow<'static, str>)>,
}

impl BlockContext {
    /// Where a record is from, by its number in the block; `None` where the source has one file, or none.
    pub(crate) fn origin_of(&self, index: u32) -> Option<Arc<str>> {
        match &self.places {
            Some(places) => Some(places.place_of(index).into()),
            None => self.file.clone(),
        }
    }
}

/// Some whole records.
pub(crate) struct Cut {
    pub(crate) data: Bytes,
    pub(crate) count: u32,
    pub(crate) context: Option<Arc<BlockContext>>,
}

impl Cut {
    pub(crate) fn into_payload(self) -> Payload {
        Payload::Bytes { data: self.data, context: self.context.map(|context| context as _) }
    }
}

/// A place between two cuts of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CutPlace {
    /// Bytes before it.
    pub(crate) byte: u64,
    /// Line ends before it.
    pub(crate) lines: u64,
    /// It is within a line whose rest is not a record: one that was refused, or a comment.
    pub(crate) is_skipping: bool,
}

/// Cuts one stream.
pub(crate) struct Cutter {
    splitter: Box<dyn Splitter>,
    has_preamble: bool,
    preamble_text: Option<Bytes>,
    max_record: usize,
    /// Bytes that are looked at first: fewer where records are very short.
    window: usize,
    /// Records of a block at most.
    most_records: u32,
    buffer: BytesMut,
    /// Bytes before the buffer, for the splitter.
    front: u64,
    /// Bytes of the buffer in which a record begins that ends after them.
    waiting: usize,
    /// Line ends before the buffer; `None` where lines do not matter.
    lines: Option<u64>,
    /// The rest of a line that was refused, or of a comment, is still to come.
    is_skipping: bool,
    /// The preamble of the stream before this one, where this one may have none of its own.
    former: Option<Preamble>,
    /// The last bytes before the buffer, for a stream that is recognized by them.
    before: Option<Vec<u8>>,
}

impl Cutter {
    /// A cutter that counts lines.
    pub(crate) fn new(format: &dyn RecordFormat) -> Self {
        Self {
            splitter: format.splitter(),
            has_preamble: format.has_preamble(),
            preamble_text: None,
            max_record: format.max_record(),
            window: WINDOW,
            most_records: format.block_records(),
            buffer: BytesMut::new(),
            front: 0,
            waiting: 0,
            lines: Some(0),
            is_skipping: false,
            former: None,
            before: None,
        }
    }

    /// A cutter for a stream that follows one which began with the preamble `text`: it may have one of its own.
    ///
    /// # Errors
    /// Where `text` is no preamble.
    pub(crate) fn after(format: &dyn RecordFormat, text: Bytes) -> Result<Self, Error> {
        let mut cutter = Self::new(format);
        cutter.splitter.split(0, &text, true)?;
        if let Some(preamble) = cutter.splitter.preamble() {
            cutter.splitter = format.splitter_after(&preamble);
            (cutter.former, cutter.preamble_text) = (Some(preamble), Some(text));
        }
        Ok(cutter)
    }

    /// Keeps the last bytes before the buffer, which are these now.
    pub(crate) fn remembering(self, before: Vec<u8>) -> Self {
        Self { before: Some(before), ..self }
    }

    /// A cutter for streams whose lines have no place that anyone could look up.
    pub(crate) fn without_lines(format: &dyn RecordFormat) -> Self {
        Self { lines: None, ..Self::new(format) }
    }

    /// Makes blocks of about `bytes` bytes and `records` records at most.
    pub(crate) fn within(self, bytes: usize, records: u32) -> Self {
        let most_records = self.most_records.min(records).max(1);
        Self { window: bytes.clamp(1, WINDOW), most_records, ..self }
    }

    /// The buffer to append to.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// How many bytes to read next, so that a block is about `block` bytes, and a record which does not fit is
    /// waited for in steps that double up to the longest one.
    pub(crate) fn wanted(&self, block: usize) -> usize {
        let have = self.buffer.len();
        let aim = if have < block / 2 { block } else { have * 2 };
        aim.min(self.max_record.saturating_add(2).max(block)).saturating_sub(have).max(1)
    }

    /// Where the next cut begins, in a stream of which `read` bytes have been given.
    pub(crate) fn place(&self, read: u64) -> CutPlace {
        CutPlace {
            byte: read - self.buffer.len() as u64,
            lines: self.lines.unwrap_or_default(),
            is_skipping: self.is_skipping,
        }
    }

    /// The last bytes before the first `held` ones of the buffer and these, as many as are kept.
    pub(crate) fn bytes_before(&self, held: usize) -> Vec<u8> {
        let held = &self.buffer[..held];
        if held.len() >= BEFORE {
            return held[held.len() - BEFORE..].to_vec();
        }
        let before = self.before.as_deref().unwrap_or_default();
        let mut bytes = before[before.len().saturating_sub(BEFORE - held.len())..].to_vec();
        bytes.extend_from_slice(held);
        bytes
    }

    /// The preamble's text, and whether it is that of the stream before; `None` if it is not known yet.
    pub(crate) fn preamble_text(&self) -> Option<(&Bytes, bool)> {
        self.preamble_text.as_ref().map(|text| (text, self.is_former()))
    }

    /// Whether the preamble is that of the stream before, or may yet be.
    fn is_former(&self) -> bool {
        let Some(former) = &self.former else { return false };
        self.splitter.preamble().is_none_or(|preamble| Arc::ptr_eq(former, &preamble))
    }

    /// Goes on from a place of a stream that has no preamble of its own, after one that began with `text`.
    ///
    /// # Errors
    /// Where `text` is no preamble.
    pub(crate) fn resume_after(&mut self, place: CutPlace, text: Bytes) -> Result<(), Error> {
        self.splitter.split(0, &text, true)?;
        (self.former, self.preamble_text) = (self.splitter.preamble(), Some(text));
        self.lines = self.lines.map(|_| place.lines);
        self.is_skipping = place.is_skipping;
        Ok(())
    }

    /// Goes on from a place of the same stream; `begin` is how the stream begins, up to the place at most. The
    /// next bytes that are given have to be those at `place`. `false` means that the preamble reaches beyond `begin`: a
    /// new cutter has to be given more of it.
    ///
    /// # Errors
    /// Where the stream as a whole cannot be read.
    pub(crate) fn resume(&mut self, place: CutPlace, begin: &[u8]) -> Result<bool, Error> {
        let is_all = begin.len() as u64 == place.byte;
        if !begin.is_empty() {
            // These cuts are not looked at: the splitter has to see the start of the stream. A header that was the
            // end of the stream once may have no line end.
            let split = self.splitter.split(0, begin, is_all)?;
            if self.splitter.preamble().is_some() {
                self.preamble_text = Some(Bytes::copy_from_slice(&begin[..split.skip]));
            }
        }
        self.buffer.clear();
        (self.front, self.waiting) = (place.byte, 0);
        self.lines = self.lines.map(|_| place.lines);
        self.is_skipping = place.is_skipping;
        Ok(is_all || !self.has_preamble || self.splitter.preamble().is_some())
    }

    /// The next whole records. `None` means that more bytes are needed, or with `at_end` that all is given.
    ///
    /// # Errors
    /// Where the stream as a whole cannot be read.
    pub(crate) fn next(&mut self, at_end: bool) -> Result<Option<Cut>, Error> {
        self.next_within(at_end, u32::MAX)
    }

    /// As [`Cutter::next`], with at most `records` records.
    pub(crate) fn next_within(&mut self, at_end: bool, max_records: u32) -> Result<Option<Cut>, Error> {
        loop {
            if self.is_skipping {
                match memchr::memchr(b'\n', &self.buffer) {
                    Some(end) => {
                        self.advance(end + 1, 1);
                        self.is_skipping = false;
                    }
                    None => self.advance(self.buffer.len(), 0),
                }
            }
            if self.buffer.is_empty() || (!at_end && self.is_line_still_open()) {
                return Ok(None);
            }
            let split = self.look(at_end, max_records.min(self.most_records))?;
            if split.skip > 0 {
                // The rest is looked at once more, from where it begins.
                if self.splitter.preamble().is_some() && !self.is_former() {
                    self.preamble_text = Some(Bytes::copy_from_slice(&self.buffer[..split.skip]));
                }
                self.advance(split.skip, split.skip_lines);
                continue;
            }
            self.is_skipping = split.is_in_comment;
            if split.records > 0 {
                let context = self.context(None);
                self.pass(split.bytes, split.lines);
                let data = self.buffer.split_to(split.bytes).freeze();
                return Ok(Some(Cut { data, count: split.records, context }));
            }
            self.advance(split.bytes, split.lines);
            if split.bytes > 0 {
                continue;
            }
            let refused = match split.refused {
                None if self.is_overfull() && !self.is_preamble_open() => Some(RefusedLine::TooLong),
                None if at_end => Some(RefusedLine::Quote(OPEN_AT_END)),
                refused => refused,
            };
            if let Some(refused) = refused {
                return self.give_up(refused, at_end).map(Some);
            }
            self.waiting = self.buffer.len();
            return Ok(None);
        }
    }

    /// Whether nothing has come since the last look that could end the record which the buffer begins with: of a line
    /// that arrives byte by byte, each is looked at once.
    fn is_line_still_open(&mut self) -> bool {
        if self.waiting == 0
            || self.is_overfull()
            || memchr::memchr(b'\n', &self.buffer[self.waiting..]).is_some()
        {
            return false;
        }
        self.waiting = self.buffer.len();
        true
    }

    /// A split of the front of the buffer with `most` records at most. The window grows for a record that does not fit,
    /// and shrinks where there are too many in it.
    fn look(&mut self, at_end: bool, most: u32) -> Result<Split, Error> {
        // A record that does not fit into a block is too long, so no good record is missed.
        let full = self.buffer.len().min(self.max_record.saturating_add(2).max(MAX_BLOCK));
        let mut seen = self.window.min(full);
        let mut too_many: Option<usize> = None;
        loop {
            let is_all = seen == self.buffer.len();
            let split = self.splitter.split(self.front, &self.buffer[..seen], at_end && is_all)?;
            if split.skip > 0 {
                return Ok(split);
            }
            let is_nothing = split.bytes == 0 && split.records == 0 && split.refused.is_none();
            match too_many {
                // Many short records after a long one: the guess was too small.
                Some(bytes) if is_nothing => return self.shortened(bytes, most),
                None if is_nothing && seen < full => {
                    seen = (seen * 2).min(full);
                    continue;
                }
                _ => {}
            }
            if split.records <= most {
                if split.records < most / 4 {
                    self.window = (self.window * 2).min(WINDOW);
                }
                return Ok(split);
            }
            if seen <= LEAST_WINDOW {
                return self.shortened(split.bytes, most);
            }
            let share = seen as u64 * u64::from(most) / u64::from(split.records);
            too_many = Some(split.bytes);
            seen = (share as usize).clamp(LEAST_WINDOW / 2, seen - 1);
            self.window = seen.max(LEAST_WINDOW);
        }
    }

    /// A split of the first `records` records; the buffer's first `bytes` hold more. Every one of the first ends with a
    /// line, and records only become more with further lines, so the place is found by halving.
    fn shortened(&mut self, bytes: usize, records: u32) -> Result<Split, Error> {
        let ends: Vec<usize> = memchr::memchr_iter(b'\n', &self.buffer[..bytes]).map(|end| end + 1).collect();
        let mut found = Split::default();
        let (mut low, mut high) = (0, ends.len());
        while low < high {
            let middle = low.midpoint(high);
            let split = self.splitter.split(self.front, &self.buffer[..ends[middle]], false)?;
            if split.records >= records {
                high = middle;
                if split.records == records {
                    found = split;
                }
            } else {
                low = middle + 1;
            }
        }
        if found.records == records {
            return Ok(found);
        }
        Err(Error::internal(format!("no line of the stream ends record {records} of a block")))
    }

    /// More bytes wait for a record's end than a record may have, its line end included.
    fn is_overfull(&self) -> bool {
        self.buffer.len() > self.max_record.saturating_add(1)
    }

    /// The preamble is not all there yet and may still come: the splitter knows its longest length.
    fn is_preamble_open(&self) -> bool {
        self.wants_preamble() && self.buffer.len() <= self.max_record.max(MAX_BLOCK)
    }

    /// The preamble of the stream is still to come.
    fn wants_preamble(&self) -> bool {
        self.has_preamble && self.splitter.preamble().is_none()
    }

    /// Refuses the first line of the buffer.
    fn give_up(&mut self, refused: RefusedLine, at_end: bool) -> Result<Cut, Error> {
        if self.wants_preamble() {
            let limit = format_size(self.max_record as u64);
            return Err(Error::user(format!("the first line is no header: it does not end within {limit}")));
        }
        let end = memchr::memchr(b'\n', &self.buffer);
        let line = &self.buffer[..end.unwrap_or(self.buffer.len())];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (data, refused) = match refused {
            RefusedLine::TooLong => {
                let (code, kept, reason) = too_long(self.max_record);
                (&line[..line.len().min(kept)], (Cow::Borrowed(code), reason))
            }
            RefusedLine::Quote(reason) => (line, (Cow::Borrowed("parse"), Cow::Borrowed(reason))),
        };
        let data = Bytes::copy_from_slice(data);
        let context = self.context(Some(refused));
        self.is_skipping = end.is_none() && !at_end;
        let len = self.buffer.len();
        self.advance(end.map_or(len, |end| end + 1), u64::from(end.is_some()));
        Ok(Cut { data, count: 1, context })
    }

    /// The buffer of a stream that cannot be read, as where its header lacks a field. `None` where nothing is there.
    pub(crate) fn refuse_stream(&mut self, error: &Error) -> Option<Cut> {
        (!self.buffer.is_empty()).then(|| self.refuse_rest("parse", Cow::Owned(error.chain())))
    }

    /// Whether whole lines wait for the end of their record: a quote is open.
    pub(crate) fn is_quote_open(&self) -> bool {
        !self.is_skipping && !self.wants_preamble() && memchr::memchr(b'\n', &self.buffer).is_some()
    }

    /// The next cut of a stream that may end here or go on: the line of an open quote, where one of those after it is a
    /// record. The last line, which has no end, is not one yet.
    ///
    /// # Errors
    /// Where the stream as a whole cannot be read.
    pub(crate) fn next_at_pause(&mut self) -> Result<Option<Cut>, Error> {
        let has_lines = !self.is_skipping && memchr::memchr(b'\n', &self.buffer).is_some();
        if has_lines && self.splitter.is_stray(self.front, &self.buffer)? {
            return self.give_up(RefusedLine::Quote(OPEN_AT_END), false).map(Some);
        }
        Ok(None)
    }

    /// The rest of a stream that ends here within a record: the lines of quotes that are still open, and those after
    /// them. Only a line without an end waits then.
    ///
    /// # Errors
    /// Where the stream as a whole cannot be read.
    pub(crate) fn close_quotes(&mut self) -> Result<Vec<Cut>, Error> {
        let mut cuts = Vec::new();
        let is_header = self.wants_preamble();
        while !is_header && self.is_quote_open() {
            cuts.push(self.give_up(RefusedLine::Quote(OPEN_AT_END), false)?);
            while let Some(cut) = self.next(false)? {
                cuts.push(cut);
            }
        }
        Ok(cuts)
    }

    /// The rest of a stream that broke off in the middle of a record, refused: even if it reads as a record, nobody
    /// knows what was to follow. `None` where it broke off between two.
    pub(crate) fn break_off(&mut self) -> Option<Cut> {
        let is_header = self.wants_preamble();
        if self.buffer.is_empty() || self.is_skipping || is_header {
            return None;
        }
        let reason = "expected the rest of the record, got a connection that broke off";
        Some(self.refuse_rest("parse", Cow::Borrowed(reason)))
    }

    /// The unfinished record, refused; nothing more of the stream is taken. `None` as for [`Cutter::break_off`].
    pub(crate) fn give_way(&mut self, reason: String) -> Option<Cut> {
        let is_header = self.wants_preamble();
        if self.buffer.is_empty() || self.is_skipping || is_header {
            return None;
        }
        Some(self.refuse_rest("unfinished", Cow::Owned(reason)))
    }

    /// The rest of the buffer as one reject, of which the beginning is kept.
    fn refuse_rest(&mut self, code: &'static str, reason: Cow<'static, str>) -> Cut {
        let context = self.context(Some((Cow::Borrowed(code), reason)));
        let kept = self.buffer.len().min(KEPT_OF_UNFINISHED);
        let data = Bytes::copy_from_slice(&self.buffer[..kept]);
        self.advance(self.buffer.len(), 0);
        self.buffer = BytesMut::new();
        Cut { data, count: 1, context }
    }

    /// Appends bytes that have arrived.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes that wait for the end of their record.
    pub(crate) fn unfinished(&self) -> usize {
        self.buffer.len()
    }

    /// Gives back what the buffer has reserved and does not need. After a cut it shares memory with the bytes that were
    /// cut.
    pub(crate) fn shrink(&mut self, is_shared: bool) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        } else if is_shared || self.buffer.capacity() > 2 * self.buffer.len() + 256 {
            let rest: &[u8] = &self.buffer;
            self.buffer = BytesMut::from(rest);
        }
    }

    fn advance(&mut self, bytes: usize, lines: u64) {
        self.pass(bytes, lines);
        self.buffer.advance(bytes);
    }

    /// Notes the first `bytes` bytes of the buffer, which are about to leave it.
    fn pass(&mut self, bytes: usize, lines: u64) {
        self.front += bytes as u64;
        self.waiting = 0;
        if let Some(count) = &mut self.lines {
            *count += lines;
        }
        if let Some(before) = &mut self.before {
            let leaving = &self.buffer[bytes.saturating_sub(BEFORE)..bytes];
            let dropped = (before.len() + leaving.len()).saturating_sub(BEFORE);
            before.drain(..dropped);
            before.extend_from_slice(leaving);
        }
    }

    fn context(&self, refused: Option<(Cow<'static, str>, Cow<'static, str>)>) -> Option<Arc<BlockContext>> {
        let preamble = self.splitter.preamble();
        let preamble_text = preamble.as_ref().and(self.preamble_text.clone());
        let first_line = self.lines.map(|lines| lines + 1);
        let says_nothing = preamble.is_none() && first_line.is_none() && refused.is_none();
        (!says_nothing).then(|| {
            Arc::new(BlockContext { first_line, preamble, preamble_text, refused, ..BlockContext::default() })
        })
    }
}

/// How long a quote may be open before it is logged.
const OPEN_LONG: Duration = Duration::from_secs(10);

/// Watches one stream for a quote that stays open: nothing comes out meanwhile, and an operator should learn why.
#[derive(Default)]
pub(crate) struct QuoteWatch {
    /// Where the record begins, and since when it waits.
    open: Option<(u64, Instant)>,
    is_told: bool,
}

impl QuoteWatch {
    /// Whether to log, once for each quote, that one is open. `read` bytes of the stream have been given.
    pub(crate) fn is_due(&mut self, cutter: &Cutter, read: u64, now: Instant) -> bool {
        if !cutter.is_quote_open() {
            self.open = None;
            return false;
        }
        let at = cutter.place(read).byte;
        match self.open {
            Some((place, since)) if place == at => {
                let is_due = !self.is_told && now.saturating_duration_since(since) >= OPEN_LONG;
                self.is_told |= is_due;
                is_due
            }
            _ => {
                (self.open, self.is_told) = (Some((at, now)), false);
                false
            }
        }
    }
}

/// Cuts a text that is all there, such as a datagram or the body of a request.
///
/// # Errors
/// Where the text as a whole cannot be read.
pub(crate) fn cut_all(format: &dyn RecordFormat, text: &[u8]) -> Result<Vec<Cut>, Error> {
    cut_into(format, text, WINDOW, u32::MAX)
}

/// As [`cut_all`], into pieces of about `bytes` bytes and `records` records at most.
///
/// # Errors
/// As for [`cut_all`].
pub(crate) fn cut_into(
    format: &dyn RecordFormat,
    text: &[u8],
    bytes: usize,
    records: u32,
) -> Result<Vec<Cut>, Error> {
    let mut cutter = Cutter::without_lines(format).within(bytes, records);
    cutter.buffer.extend_from_slice(text);
    let mut cuts = Vec::new();
    while let Some(cut) = cutter.next(true)? {
        cuts.push(cut);
    }
    Ok(cuts)
}
