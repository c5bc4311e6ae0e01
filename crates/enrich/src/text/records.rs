//! Lines of cells, one at a time, each with its number and within a limit of size.

use std::io::{self, BufRead, Read};

use csv_core::ReadRecordResult;
use thalweg_types::Error;

/// Longest line; a packed file may hold one of any length.
pub(crate) const LINE_BYTES: usize = 1 << 20;

/// Most cells of a line.
pub(crate) const LINE_CELLS: usize = 1 << 14;

/// Reads lines from a stream.
///
/// A record is a line: no cell goes beyond it, so that a quotation mark which is never closed costs its own line.
pub(crate) struct Records<R> {
    input: R,
    parser: csv_core::Reader,
    /// The line at hand, with its end, and how much of it was read.
    raw: Vec<u8>,
    at: usize,
    text: Vec<u8>,
    ends: Vec<usize>,
    /// Of the line at hand, from 1.
    line: u64,
}

/// The cells of a line.
pub(crate) struct Record<'a> {
    /// From 1.
    pub(crate) line: u64,
    text: &'a [u8],
    ends: &'a [usize],
    /// A quotation mark is not closed.
    is_open: bool,
}

impl Record<'_> {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The cell at a place from 0, which is below [`Record::len`].
    pub(crate) fn cell(&self, index: usize) -> &[u8] {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[begin..self.ends[index]]
    }

    /// # Errors
    /// Where a quotation mark is not closed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_open {
            return Err(Error::user("expected quotation marks that are closed in their line")
                .with_hint("write a quotation mark within a quoted cell twice; a cell holds no line break"));
        }
        Ok(())
    }
}

/// Why there is no next line.
pub(crate) struct Failure {
    pub(crate) line: u64,
    /// `None` where it is longer than [`LINE_BYTES`] or has more than [`LINE_CELLS`] cells.
    pub(crate) error: Option<io::Error>,
}

impl<R: BufRead> Records<R> {
    /// Cells between tabs are never quoted: a quotation mark there is part of a name.
    pub(crate) fn new(input: R, delimiter: u8) -> Self {
        let parser = csv_core::ReaderBuilder::new().delimiter(delimiter).quoting(delimiter != b'\t').build();
        Self { input, parser, raw: Vec::new(), at: 0, text: vec![0; 4 << 10], ends: vec![0; 32], line: 0 }
    }

    /// The next line that is not empty, or `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, Failure> {
        while self.raw[self.at..].iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            if !self.read_line()? {
                return Ok(None);
            }
        }
        let breaks = self.raw[self.at..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        self.at += breaks;
        let line = self.line;
        self.parser.reset();
        let (mut text, mut ends, mut is_open) = (0, 0, false);
        loop {
            let (result, taken, text_written, ends_written) =
                self.parser.read_record(&self.raw[self.at..], &mut self.text[text..], &mut self.ends[ends..]);
            self.at += taken;
            text += text_written;
            ends += ends_written;
            match result {
                // Asked once more, without input, the parser ends the record.
                ReadRecordResult::InputEmpty => is_open = true,
                ReadRecordResult::OutputFull if self.text.len() < LINE_BYTES => double(&mut self.text),
                ReadRecordResult::OutputEndsFull if self.ends.len() < LINE_CELLS => double(&mut self.ends),
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    return Err(Failure { line, error: None });
                }
                ReadRecordResult::Record | ReadRecordResult::End => {
                    let (text, ends) = (&self.text[..text], &self.ends[..ends]);
                    return Ok(Some(Record { line, text, ends, is_open }));
                }
            }
        }
    }

    /// Puts the next line into `raw`; whether there is one.
    fn read_line(&mut self) -> Result<bool, Failure> {
        self.line += 1;
        self.raw.clear();
        self.at = 0;
        let line = self.line;
        let mut rest = (&mut self.input).take(LINE_BYTES as u64 + 1);
        let count =
            rest.read_until(b'\n', &mut self.raw).map_err(|error| Failure { line, error: Some(error) })?;
        if count > LINE_BYTES {
            return Err(Failure { line, error: None });
        }
        if count > 0 && !self.raw.ends_with(b"\n") {
            self.raw.push(b'\n');
        }
        Ok(count > 0)
    }
}

fn double<T: Clone + Default>(buffer: &mut Vec<T>) {
    buffer.resize(buffer.len() * 2, T::default());
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn all(text: &str, delimiter: u8) -> Vec<(u64, Vec<String>)> {
        // A buffer of three bytes has every line pass over its edges.
        let mut records = Records::new(BufReader::with_capacity(3, text.as_bytes()), delimiter);
        let mut all = Vec::new();
        while let Ok(Some(record)) = records.next() {
            let cells = (0..record.len()).map(|cell| String::from_utf8_lossy(record.cell(cell)).into_owned());
            all.push((record.line, cells.collect()));
        }
        all
    }

    fn line(number: u64, cells: &[&str]) -> (u64, Vec<String>) {
        (number, cells.iter().map(|&cell| cell.to_owned()).collect())
    }

    #[test]
    fn lines_are_numbered_as_an_editor_does() {
        let text = "\n\na,b\r\n\r\n\"c d\",e\nf,\"g\"\"h\"\n,";
        let expected =
            [line(3, &["a", "b"]), line(5, &["c d", "e"]), line(6, &["f", "g\"h"]), line(7, &["", ""])];
        assert_eq!(all(text, b','), expected);
        assert_eq!(all("a,b\rc,d\r", b','), [line(1, &["a", "b"]), line(1, &["c", "d"])]);
    }

    #[test]
    fn a_quotation_mark_that_is_not_closed_costs_its_line() {
        for (text, good) in [
            ("a,\"b\nc,d\ne,\"f\"\n", [false, true, true]),
            ("a,\"b\"\n\"c,\"\"d\ne,f", [true, false, true]),
            ("a,b\nc,d\ne,\"f", [true, true, false]),
            ("a,b\r\nc,\"\"\"\r\ne,\"\"\r\n", [true, false, true]),
        ] {
            let mut records = Records::new(BufReader::with_capacity(2, text.as_bytes()), b',');
            let mut found = Vec::new();
            while let Ok(Some(record)) = records.next() {
                found.push(record.check().is_ok());
            }
            assert_eq!(found, good, "{text:?}");
        }
    }

    #[test]
    fn cells_between_tabs_are_not_quoted() {
        assert_eq!(all("\"a\t\"b\"\n", b'\t'), [line(1, &["\"a", "\"b\""])]);
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        for byte in [b'a', b',', b'"'] {
            let mut records = Records::new(BufReader::new(io::repeat(byte)), b',');
            assert!(matches!(records.next(), Err(Failure { line: 1, error: None })));
        }
    }
}
