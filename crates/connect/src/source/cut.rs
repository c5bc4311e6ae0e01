//! Cutting a stream of bytes into blocks of whole records.
//!
//! Invariants
//! * The blocks of a stream hold the same records wherever its bytes were cut on arrival.
//! * Not much more than `max_record` bytes wait for a record's end. A record that is longer, or whose quote is
//!   never closed, costs one reject: its first line. Reading goes on after that line. (Records of one line that
//!   are too long but all there are left to the decoder, which says the same.)
//! * No block has more than [`MAX_BLOCK`] bytes, nor has its preamble, unless `max_record` is larger: a journal
//!   takes each as one record.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use thalweg_flow::Payload;
use thalweg_types::{Error, format_size};

use crate::format::{DEFAULT_MAX_RECORD, Preamble, RecordFormat, Split, Splitter, too_long};

/// Bytes of a block, however many there are to cut at once: the longest record by default, with its line end.
pub(crate) const MAX_BLOCK: usize = DEFAULT_MAX_RECORD + 2;

/// What a source knows of a block that its decoder needs.
#[derive(Clone, Default)]
pub struct BlockContext {
    /// Number of the block's first line in its file, from 1; `None` where lines have no place.
    pub first_line: Option<u64>,
    /// What the stream said about itself before its records.
    pub preamble: Option<Preamble>,
    /// The bytes that said so, from which a journal makes the preamble again.
    pub preamble_text: Option<Bytes>,
    /// The block is one record that cannot be read at all: code and reason.
    pub refused: Option<(Cow<'static, str>, Cow<'static, str>)>,
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
    /// It stands within a line of which the rest is no record: one that was refused, or a comment.
    pub(crate) is_skipping: bool,
}

/// Cuts one stream.
pub(crate) struct Cutter {
    splitter: Box<dyn Splitter>,
    has_preamble: bool,
    preamble_text: Option<Bytes>,
    max_record: usize,
    buffer: BytesMut,
    /// Line ends before the buffer; `None` where lines do not matter.
    lines: Option<u64>,
    /// The rest of a line that was refused, or of a comment, is still to come.
    is_skipping: bool,
}

impl Cutter {
    /// A cutter that counts lines.
    pub(crate) fn new(format: &dyn RecordFormat) -> Self {
        Self {
            splitter: format.splitter(),
            has_preamble: format.has_preamble(),
            preamble_text: None,
            max_record: format.max_record(),
            buffer: BytesMut::new(),
            lines: Some(0),
            is_skipping: false,
        }
    }

    /// A cutter for streams whose lines have no place that anyone could look up.
    pub(crate) fn without_lines(format: &dyn RecordFormat) -> Self {
        Self { lines: None, ..Self::new(format) }
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

    /// Goes on from a place of the same stream; `begin` is how the stream begins, up to the place at most. The
    /// next bytes that are given have to be those at `place`. `false` means that the preamble reaches beyond `begin`: a
    /// new cutter has to be given more of it.
    ///
    /// # Errors
    /// Where the stream as a whole cannot be read.
    pub(crate) fn resume(&mut self, place: CutPlace, begin: &[u8]) -> Result<bool, Error> {
        let is_all = begin.len() as u64 == place.byte;
        if !begin.is_empty() {
            // What is cut here is not looked at: the splitter has to see the start of the stream. A header that was the
            // end of the stream once may have no line end.
            let split = self.splitter.split(begin, is_all)?;
            if self.has_preamble {
                self.preamble_text = Some(Bytes::copy_from_slice(&begin[..split.skip]));
            }
        }
        self.buffer.clear();
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

    /// As [`Cutter::next`], with so many records at most.
    pub(crate) fn next_within(&mut self, at_end: bool, max_records: u32) -> Result<Option<Cut>, Error> {
        loop {
            if self.is_skipping {
                match memchr::memchr(b'\n', &self.buffer) {
                    Some(end) => {
                        self.advance(end + 1, 1);
                        self.is_skipping = false;
                    }
                    None => self.buffer.clear(),
                }
            }
            if self.buffer.is_empty() {
                return Ok(None);
            }
            // A record that does not fit into a block is too long, so nothing is missed that counts.
            let seen = self.buffer.len().min(self.max_record.saturating_add(2).max(MAX_BLOCK));
            let is_all = seen == self.buffer.len();
            let mut split = self.splitter.split(&self.buffer[..seen], at_end && is_all)?;
            if self.has_preamble && split.skip > 0 {
                self.preamble_text = Some(Bytes::copy_from_slice(&self.buffer[..split.skip]));
            }
            self.advance(split.skip, split.skip_lines);
            if split.records > max_records {
                split = self.shortened(split.bytes, max_records)?;
            }
            self.is_skipping = split.is_in_comment;
            if split.records > 0 {
                let context = self.context(None);
                let data = self.buffer.split_to(split.bytes).freeze();
                self.advance(0, split.lines);
                return Ok(Some(Cut { data, count: split.records, context }));
            }
            self.advance(split.bytes, split.lines);
            if split.skip + split.bytes > 0 {
                continue;
            }
            if at_end || split.is_too_long || self.is_overfull() {
                return self.give_up(at_end).map(Some);
            }
            return Ok(None);
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
            let split = self.splitter.split(&self.buffer[..ends[middle]], false)?;
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

    /// Refuses the first line of the buffer.
    fn give_up(&mut self, at_end: bool) -> Result<Cut, Error> {
        if self.has_preamble && self.splitter.preamble().is_none() {
            let limit = format_size(self.max_record as u64);
            return Err(Error::user(format!("the first line is no header: it does not end within {limit}")));
        }
        let end = memchr::memchr(b'\n', &self.buffer);
        let line = &self.buffer[..end.unwrap_or(self.buffer.len())];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (data, refused) = if self.is_overfull() {
            let (code, kept, reason) = too_long(self.max_record);
            (&line[..line.len().min(kept)], (Cow::Borrowed(code), reason))
        } else {
            (
                line,
                (Cow::Borrowed("parse"), Cow::Borrowed("expected a closing quote, got the end of the input")),
            )
        };
        let data = Bytes::copy_from_slice(data);
        let context = self.context(Some(refused));
        self.is_skipping = end.is_none() && !at_end;
        let len = self.buffer.len();
        self.advance(end.map_or(len, |end| end + 1), u64::from(end.is_some()));
        Ok(Cut { data, count: 1, context })
    }

    /// What is left of a stream that broke off in the middle of a record, refused: even where it reads as a record, nobody
    /// knows what was to follow. `None` where it broke off between two.
    pub(crate) fn break_off(&mut self) -> Option<Cut> {
        let is_header = self.has_preamble && self.splitter.preamble().is_none();
        if self.buffer.is_empty() || self.is_skipping || is_header {
            return None;
        }
        let reason = "expected the rest of the record, got a connection that broke off";
        let context = self.context(Some((Cow::Borrowed("parse"), Cow::Borrowed(reason))));
        Some(Cut { data: self.buffer.split().freeze(), count: 1, context })
    }

    fn advance(&mut self, bytes: usize, lines: u64) {
        self.buffer.advance(bytes);
        if let Some(count) = &mut self.lines {
            *count += lines;
        }
    }

    fn context(&self, refused: Option<(Cow<'static, str>, Cow<'static, str>)>) -> Option<Arc<BlockContext>> {
        let preamble = self.splitter.preamble();
        let preamble_text = preamble.as_ref().and(self.preamble_text.clone());
        let first_line = self.lines.map(|lines| lines + 1);
        let says_nothing = preamble.is_none() && first_line.is_none() && refused.is_none();
        (!says_nothing).then(|| Arc::new(BlockContext { first_line, preamble, preamble_text, refused }))
    }
}

/// Cuts a text that is all there, such as a datagram or the body of a request.
///
/// # Errors
/// Where the text as a whole cannot be read.
pub(crate) fn cut_all(format: &dyn RecordFormat, text: &[u8]) -> Result<Vec<Cut>, Error> {
    let mut cutter = Cutter::without_lines(format);
    cutter.buffer.extend_from_slice(text);
    let mut cuts = Vec::new();
    while let Some(cut) = cutter.next(true)? {
        cuts.push(cut);
    }
    Ok(cuts)
}
