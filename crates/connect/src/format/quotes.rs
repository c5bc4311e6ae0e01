//! When a quote that is open over line ends is one, and when it costs its line.
//!
//! A text in quotes may hold line ends, and a quote may stand where none was meant (`5" pipe`). Which of the two it is
//! shows in what follows. A quote that is not closed in its line is no quote where, whatever comes first,
//! * lines within it, [`RECORDS_IN_A_ROW`] one after the other, are records by themselves;
//! * the record has more lines than `max_lines`, or more bytes than `max_record`;
//! * a quote closes it behind which there is no end of a field;
//! * it is closed, what it closes is no record, and one of the lines behind the first is;
//! * the input ends.
//!
//! Then the first line is a reject, and what comes after it is read as if it began there.
//!
//! Each of these is known from the bytes up to the place where it shows: so records do not depend on how bytes arrive.

use arrow_array::{Array as _, ArrayRef};
use arrow_schema::DataType::{BinaryView, Utf8View};
use bytes::Bytes;
use thalweg_types::Error;

use super::{Preamble, RecordDecoder};
use crate::{OptionKind, OptionSpec, Options};

/// A text seldom has so many lines in a row that are records of the stream it is in.
const RECORDS_IN_A_ROW: usize = 4;

/// Longest record in lines by default: far more than texts have, and little to wait for.
pub(super) const DEFAULT_MAX_LINES: usize = 1_000;

/// The option of formats whose texts may hold line ends.
pub(super) const MAX_LINES: OptionSpec = OptionSpec {
    key: "max_lines",
    kind: OptionKind::Integer { min: 1, max: 1 << 30 },
    required: false,
    default: Some("1000"),
    doc: "most lines of a record, whose texts in quotes may hold line ends; where a quote is open for longer its line goes to rejects",
};

/// The first lines of a text, so many at most: what a record may have, and all that is looked at of one that does not end.
/// Else each line of a text in which quotes never close would be looked at together with all that follow.
pub(super) fn first_lines(text: &[u8], most: usize) -> &[u8] {
    if most == usize::MAX {
        return text;
    }
    let last = memchr::memchr_iter(b'\n', text).nth(most.saturating_sub(1));
    last.map_or(text, |end| &text[..=end])
}

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

/// What is true of a record over several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is one, good or bad.
    Record,
    /// A quote is open where it ends, and more has to be seen.
    Open,
    /// Its first line is no record, nor the beginning of one, and this is why.
    Stray(&'static str),
}

/// The beginning of a record over several lines.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a [u8],
    /// The record ends with `text`.
    pub(super) is_ended: bool,
    /// Where a quote was closed in it without the end of a field behind it.
    pub(super) broken: Option<usize>,
}

/// Judges records by what their lines are alone.
pub(super) struct Judge {
    pub(super) decoder: Box<dyn RecordDecoder>,
    pub(super) max_lines: usize,
    /// A line of nothing but texts may be part of a text as well.
    pub(super) texts_tell: bool,
}

impl Judge {
    /// `has_form` says of a line, cheaply, whether it could be a record by itself.
    ///
    /// # Errors
    /// Where splitter and decoder disagree.
    pub(super) fn judge(
        &mut self,
        piece: Piece<'_>,
        preamble: Option<&Preamble>,
        has_form: impl Fn(&[u8]) -> bool,
    ) -> Result<Verdict, Error> {
        let Piece { text, is_ended, broken } = piece;
        let within = &text[..broken.unwrap_or(text.len())];
        let within = if is_ended { within.strip_suffix(b"\n").unwrap_or(within) } else { within };
        let (mut start, mut in_a_row, mut has_record) = (0, 0, false);
        for (index, end) in memchr::memchr_iter(b'\n', within).enumerate() {
            if index + 1 >= self.max_lines {
                return Ok(Verdict::Stray(BEFORE_TOO_MANY));
            }
            let line = &within[start..=end];
            if index > 0 && !line.trim_ascii().is_empty() {
                let read = if has_form(line) { self.read(line, preamble)? } else { Read::Nothing };
                has_record |= read != Read::Nothing;
                in_a_row = if read == Read::Record { in_a_row + 1 } else { 0 };
                if in_a_row == RECORDS_IN_A_ROW {
                    return Ok(Verdict::Stray(BEFORE_RECORDS));
                }
            }
            start = end + 1;
        }
        if broken.is_some() {
            return Ok(Verdict::Stray(CLOSED_WITHIN));
        }
        if !is_ended {
            return Ok(Verdict::Open);
        }
        let last = &text[start..];
        has_record =
            has_record || (start > 0 && has_form(last) && self.read(last, preamble)? != Read::Nothing);
        let is_stray = has_record && self.read(text, preamble)? == Read::Nothing;
        Ok(if is_stray { Verdict::Stray(BEFORE_RECORDS) } else { Verdict::Record })
    }

    /// Whether a line behind the first of an open record is a record, for an input that may end here.
    ///
    /// # Errors
    /// As for [`Judge::judge`].
    pub(super) fn has_record_behind(
        &mut self,
        text: &[u8],
        preamble: Option<&Preamble>,
        has_form: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, Error> {
        for line in text.split_inclusive(|byte| *byte == b'\n').skip(1) {
            let is_whole = line.ends_with(b"\n") && !line.trim_ascii().is_empty();
            if is_whole && has_form(line) && self.read(line, preamble)? == Read::Record {
                return Ok(true);
            }
        }
        Ok(false)
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

/// What a text is by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Nothing,
    /// A record that has nothing but texts.
    Texts,
    Record,
}
