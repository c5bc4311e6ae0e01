//! Lines of cells, one at a time, each with its number and within a limit of size.

use std::io::{self, BufRead};

use csv_core::ReadRecordResult;

/// Longest line; a packed file may hold one of any length.
pub(super) const LINE_BYTES: usize = 1 << 20;

/// Most cells of a line.
pub(super) const LINE_CELLS: usize = 1 << 14;

/// Reads lines from a stream.
pub(super) struct Records<R> {
    input: R,
    parser: csv_core::Reader,
    text: Vec<u8>,
    ends: Vec<usize>,
    /// Line breaks before the place that is read next.
    breaks: u64,
}

/// The cells of a line.
pub(super) struct Record<'a> {
    /// From 1; where a quoted cell holds line breaks, the first line of the record.
    pub(super) line: u64,
    text: &'a [u8],
    ends: &'a [usize],
}

impl Record<'_> {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The cell at a place from 0, which is below [`Record::len`].
    pub(super) fn cell(&self, index: usize) -> &[u8] {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[begin..self.ends[index]]
    }
}

/// Why there is no next line.
pub(super) struct Failure {
    /// The first line of the record that could not be read.
    pub(super) line: u64,
    /// `None` where it is longer than [`LINE_BYTES`] or has more than [`LINE_CELLS`] cells.
    pub(super) error: Option<io::Error>,
}

impl<R: BufRead> Records<R> {
    /// Cells between tabs are never quoted: a quotation mark there is part of a name.
    pub(super) fn new(input: R, delimiter: u8) -> Self {
        let parser = csv_core::ReaderBuilder::new().delimiter(delimiter).quoting(delimiter != b'\t').build();
        Self { input, parser, text: vec![0; 4 << 10], ends: vec![0; 32], breaks: 0 }
    }

    /// The next line that is not empty, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, Failure> {
        let skipped = self.skip_breaks();
        let line = self.breaks + 1;
        let failed = |error| Failure { line, error: Some(error) };
        skipped.map_err(failed)?;
        let (mut text, mut ends) = (0, 0);
        loop {
            let input = self.input.fill_buf().map_err(failed)?;
            let (result, read, text_written, ends_written) =
                self.parser.read_record(input, &mut self.text[text..], &mut self.ends[ends..]);
            self.breaks += input[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
            self.input.consume(read);
            text += text_written;
            ends += ends_written;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if self.text.len() < LINE_BYTES => double(&mut self.text),
                ReadRecordResult::OutputEndsFull if self.ends.len() < LINE_CELLS => double(&mut self.ends),
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    return Err(Failure { line, error: None });
                }
                ReadRecordResult::Record => {
                    return Ok(Some(Record { line, text: &self.text[..text], ends: &self.ends[..ends] }));
                }
                ReadRecordResult::End => return Ok(None),
            }
        }
    }

    fn skip_breaks(&mut self) -> io::Result<()> {
        loop {
            let input = self.input.fill_buf()?;
            let count = input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            if count == 0 {
                return Ok(());
            }
            self.breaks += input[..count].iter().filter(|byte| **byte == b'\n').count() as u64;
            self.input.consume(count);
        }
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
        let text = "\n\na,b\r\n\r\n\"c\nd\",e\nf,\"g\"\"h\"\n,";
        let expected =
            [line(3, &["a", "b"]), line(5, &["c\nd", "e"]), line(7, &["f", "g\"h"]), line(8, &["", ""])];
        assert_eq!(all(text, b','), expected);
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
