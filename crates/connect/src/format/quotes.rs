//! Decides whether a quote that is open over line ends is meant as one, or costs its line.
//!
//! A text in quotes may hold line ends, and a quote may be where none was meant (`5" pipe`). Which of the two it is
//! shows in the lines that follow. A quote that is not closed in its line is no quote where, whatever comes first,
//! * lines within it, [`RECORDS_IN_A_ROW`] one after the other, are records by themselves;
//! * the record has more lines than `max_lines`, or more bytes than `max_record`;
//! * a quote closes it that is not at the end of a field;
//! * it is closed, the text is not a record, and one of the lines after the first is;
//! * the input ends.
//!
//! Then the first line is a reject, and reading begins anew after it.
//!
//! Each of these but the last is known from the lines up to the one where it shows: so records do not depend on how
//! bytes arrive. Where an input ends is no property of its bytes: a record that is refused because it ended there could
//! have been read had it gone on.
//!
//! The class of a line does not depend on the record that it is looked at in, and is remembered: of a text in which
//! each line leaves a quote open, each is looked at once.

use std::collections::VecDeque;

use arrow_array::{Array as _, ArrayRef};
use arrow_schema::DataType::{BinaryView, Utf8View};
use bytes::Bytes;
use thalweg_types::Error;

use super::{Preamble, RecordDecoder, RefusedLine};
use crate::{OptionKind, OptionSpec, Options};

/// Few texts have this many lines in a row that are records of their stream.
const RECORDS_IN_A_ROW: usize = 4;

/// Longest record in lines by default: far more than texts have, and little to wait for.
pub(super) const DEFAULT_MAX_LINES: usize = 1_000;

/// The option of formats whose texts may hold line ends.
pub(super) const MAX_LINES: OptionSpec = OptionSpec {
    key: "max_lines",
    kind: OptionKind::Integer { min: 1, max: 1 << 30 },
    required: false,
    default: Some("1000"),
    doc: "limit for the lines of a record, as texts in quotes may hold line ends; if a quote is open for longer, its first line is written to rejects",
};

pub(super) fn max_lines(options: &Options) -> usize {
    options
        .integer("max_lines")
        .map_or(DEFAULT_MAX_LINES, |lines| usize::try_from(lines).unwrap_or(usize::MAX).max(1))
}

/// Why a line is refused whose quote is still open when the input ends.
pub(crate) const OPEN_AT_END: &str = "expected a closing quote, got the end of the input";

const BEFORE_RECORDS: &str = "expected a closing quote, got lines that are records";
const BEFORE_TOO_MANY: &str = "expected a closing quote, got more lines than a record may have";
const CLOSED_WITHIN: &str = "expected a closing quote, got one within a field of a later line";

/// Lines of one stream that are remembered.
const MOST_KNOWN: usize = 4_096;

/// The state after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The record ends with it.
    Ends,
    /// A quote is open.
    Open,
    /// It closes a quote that was open before it, and no field ends there.
    Broken,
}

/// How the lines of a format hang together.
pub(super) trait Grammar {
    /// The state after `line`, its line end included, which only the last of a stream may lack; `is_open` if a quote
    /// is open before it. Else a record begins with it.
    fn after(&self, line: &[u8], is_open: bool) -> After;

    /// Whether a line could be a record by itself, cheaply.
    fn has_form(&self, line: &[u8]) -> bool;
}

/// The verdict on a record over several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A record with its bytes, good or bad.
    Record(usize),
    /// A quote is open where the data ends, and more has to be seen.
    Open,
    /// Its first line is no record, nor the beginning of one.
    Refused(RefusedLine),
}

/// The bytes where a record begins.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a> {
    /// Bytes of the stream before it.
    pub(super) place: u64,
    /// All that has arrived of the stream from there on.
    pub(super) data: &'a [u8],
    /// Nothing follows.
    pub(super) at_end: bool,
    pub(super) preamble: Option<&'a Preamble>,
}

/// Judges records by the class of each of their lines alone.
pub(super) struct Judge {
    decoder: Box<dyn RecordDecoder>,
    max_record: usize,
    max_lines: usize,
    /// A line of nothing but texts may be part of a text as well.
    texts_tell: bool,
    /// Lines that follow one another.
    known: VecDeque<Line>,
    /// Place of the first of them.
    from: u64,
}

#[derive(Clone, Copy)]
struct Line {
    len: usize,
    /// Where a quote is open before it.
    after: After,
    /// Where it was looked at.
    alone: Option<Read>,
}

impl Judge {
    pub(super) fn new(
        decoder: Box<dyn RecordDecoder>,
        max_record: usize,
        max_lines: usize,
        texts_tell: bool,
    ) -> Self {
        Self { decoder, max_record, max_lines, texts_tell, known: VecDeque::new(), from: 0 }
    }

    /// The verdict on the record whose first line has `first` bytes and leaves a quote open. Places of one stream never
    /// go back.
    ///
    /// # Errors
    /// Where splitter and decoder disagree.
    pub(super) fn judge(
        &mut self,
        ahead: Ahead<'_>,
        first: usize,
        grammar: &impl Grammar,
    ) -> Result<Verdict, Error> {
        // More than it may have with its line end: the rest is not looked at, as it would not be waited for.
        let text = &ahead.data[..ahead.data.len().min(self.max_record.saturating_add(2))];
        if first > text.len() {
            return Ok(Verdict::Refused(RefusedLine::TooLong));
        }
        self.forget_before(ahead.place + first as u64);
        let refused = |reason| Ok(Verdict::Refused(RefusedLine::Quote(reason)));
        let (mut start, mut in_a_row, mut has_record) = (first, 0, false);
        for index in 0.. {
            if index + 1 >= self.max_lines {
                return refused(BEFORE_TOO_MANY);
            }
            let Some(line) = self.line(index, &text[start..], grammar) else {
                if text.len() > self.max_record.saturating_add(1) {
                    return Ok(Verdict::Refused(RefusedLine::TooLong));
                }
                if !ahead.at_end {
                    return Ok(Verdict::Open);
                }
                return match grammar.after(&text[start..], true) {
                    After::Open => Ok(Verdict::Open),
                    After::Broken => refused(CLOSED_WITHIN),
                    After::Ends => self.whole(ahead, &text[start..], text, has_record, grammar),
                };
            };
            let end = start + line.len;
            match line.after {
                After::Broken => return refused(CLOSED_WITHIN),
                After::Ends => {
                    return self.whole(ahead, &text[start..end], &text[..end], has_record, grammar);
                }
                After::Open => {}
            }
            if !text[start..end].trim_ascii().is_empty() {
                let alone = self.alone(index, line, &text[start..end], ahead.preamble, grammar)?;
                has_record |= alone != Read::Nothing;
                in_a_row = if alone == Read::Record { in_a_row + 1 } else { 0 };
                if in_a_row == RECORDS_IN_A_ROW {
                    return refused(BEFORE_RECORDS);
                }
            }
            start = end;
        }
        Ok(Verdict::Open)
    }

    /// The verdict on a record that is closed with the line `last`.
    fn whole(
        &mut self,
        ahead: Ahead<'_>,
        last: &[u8],
        record: &[u8],
        has_record: bool,
        grammar: &impl Grammar,
    ) -> Result<Verdict, Error> {
        let has_record =
            has_record || (grammar.has_form(last) && self.read(last, ahead.preamble)? != Read::Nothing);
        let text = record.strip_suffix(b"\n").map_or(record, |text| text.strip_suffix(b"\r").unwrap_or(text));
        Ok(if has_record && self.read(record, ahead.preamble)? == Read::Nothing {
            Verdict::Refused(RefusedLine::Quote(BEFORE_RECORDS))
        } else if text.len() > self.max_record {
            Verdict::Refused(RefusedLine::TooLong)
        } else {
            Verdict::Record(record.len())
        })
    }

    /// Whether a line after the first of an open record is a record, for an input that may end here.
    ///
    /// # Errors
    /// As for [`Judge::judge`].
    pub(super) fn has_record_behind(
        &mut self,
        ahead: Ahead<'_>,
        grammar: &impl Grammar,
    ) -> Result<bool, Error> {
        let Some(first) = memchr::memchr(b'\n', ahead.data) else { return Ok(false) };
        let mut start = first + 1;
        self.forget_before(ahead.place + start as u64);
        for index in 0.. {
            let Some(line) = self.line(index, &ahead.data[start..], grammar) else { break };
            let text = &ahead.data[start..start + line.len];
            if !text.trim_ascii().is_empty()
                && self.alone(index, line, text, ahead.preamble, grammar)? == Read::Record
            {
                return Ok(true);
            }
            start += line.len;
        }
        Ok(false)
    }

    /// Forgets lines that begin before `place`.
    fn forget_before(&mut self, place: u64) {
        while self.from < place
            && let Some(line) = self.known.pop_front()
        {
            self.from += line.len as u64;
        }
        if self.from != place {
            self.known.clear();
            self.from = place;
        }
    }

    /// Line `index` from the first known one, with which `text` begins; `None` where its end is not there.
    fn line(&mut self, index: usize, text: &[u8], grammar: &impl Grammar) -> Option<Line> {
        if let Some(line) = self.known.get(index) {
            return (line.len <= text.len()).then_some(*line);
        }
        let len = memchr::memchr(b'\n', text)? + 1;
        let line = Line { len, after: grammar.after(&text[..len], true), alone: None };
        if index == self.known.len() && index < MOST_KNOWN {
            self.known.push_back(line);
        }
        Some(line)
    }

    /// The class of line `index` by itself.
    fn alone(
        &mut self,
        index: usize,
        line: Line,
        text: &[u8],
        preamble: Option<&Preamble>,
        grammar: &impl Grammar,
    ) -> Result<Read, Error> {
        if let Some(alone) = line.alone {
            return Ok(alone);
        }
        let alone = if grammar.has_form(text) { self.read(text, preamble)? } else { Read::Nothing };
        if let Some(known) = self.known.get_mut(index) {
            known.alone = Some(alone);
        }
        Ok(alone)
    }

    fn read(&mut self, text: &[u8], preamble: Option<&Preamble>) -> Result<Read, Error> {
        let read = self.decoder.decode(&Bytes::copy_from_slice(text), 1, preamble)?;
        if read.rows == 0 {
            return Ok(Read::Nothing);
        }
        let tells = |column: &ArrayRef| {
            column.null_count() == 0 && !matches!(column.data_type(), Utf8View | BinaryView)
        };
        let is_sure = self.texts_tell || read.columns.iter().any(tells);
        Ok(if is_sure { Read::Record } else { Read::Texts })
    }
}

/// The class of a text by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Nothing,
    /// A record that has nothing but texts.
    Texts,
    Record,
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::Columns;
    use super::*;

    struct Nothing;

    impl RecordDecoder for Nothing {
        fn decode(&mut self, _: &Bytes, _: usize, _: Option<&Preamble>) -> Result<Columns, Error> {
            Ok(Columns { columns: Vec::new(), rows: 0, bad: Vec::new() })
        }

        fn locate(&self, _: &[u8], _: &[u32]) -> Vec<std::ops::Range<usize>> {
            Vec::new()
        }
    }

    /// Counts the lines that are looked at; a quote stays open but where a line has a `.`.
    #[derive(Default)]
    struct Counting(Cell<usize>);

    impl Grammar for Counting {
        fn after(&self, line: &[u8], _: bool) -> After {
            self.0.set(self.0.get() + 1);
            if line.contains(&b'.') { After::Ends } else { After::Open }
        }

        fn has_form(&self, _: &[u8]) -> bool {
            self.0.set(self.0.get() + 1);
            true
        }
    }

    #[test]
    fn a_line_is_looked_at_once_however_often_records_before_it_are() {
        const LINES: usize = 2_000;
        let text = b"ab\n".repeat(LINES);
        let grammar = Counting::default();
        let mut judge = Judge::new(Box::new(Nothing), usize::MAX, 1_000, true);
        for line in 0..LINES {
            // Each more than once, with more to see.
            for arrived in [LINES.min(line + 2), LINES] {
                let data = &text[3 * line..3 * arrived];
                let ahead = Ahead { place: 3 * line as u64, data, at_end: false, preamble: None };
                let verdict = judge.judge(ahead, 3, &grammar).unwrap();
                let is_all = LINES - line >= 1_000 && arrived == LINES;
                let too_many = Verdict::Refused(RefusedLine::Quote(BEFORE_TOO_MANY));
                assert_eq!(verdict, if is_all { too_many } else { Verdict::Open }, "{line} {arrived}");
            }
        }
        assert!(grammar.0.get() <= 2 * LINES, "{} looks", grammar.0.get());
    }

    #[test]
    fn a_record_that_is_closed_leaves_what_is_known_of_the_lines_behind_it() {
        let text = b"ab\nab\na.\nab\nab\na.\n";
        let grammar = Counting::default();
        let mut judge = Judge::new(Box::new(Nothing), usize::MAX, 1_000, true);
        for place in [0, 9] {
            let ahead = Ahead { place, data: &text[place as usize..], at_end: false, preamble: None };
            assert_eq!(judge.judge(ahead, 3, &grammar).unwrap(), Verdict::Record(9), "{place}");
        }
    }
}
