//! Rows from CSV files, plain or packed with gzip.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use ::csv::{ByteRecord, Position, ReaderBuilder, Trim};

use super::address;
use super::build::{TableBuilder, reason_against};
use super::error::{BadLine, LookupError};

/// Lines that are no rows and that a report names.
const NAMED_BAD: usize = 10;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// How a source is written.
#[derive(Clone, Copy, Debug)]
pub struct CsvOptions {
    pub delimiter: u8,
    /// Whether the first line names the columns.
    pub has_header: bool,
    /// The columns of address and name, counted from 0.
    pub address_column: usize,
    pub name_column: usize,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self { delimiter: b',', has_header: false, address_column: 0, name_column: 1 }
    }
}

/// Whether a file of rows can be opened; nothing is read.
///
/// # Errors
/// As [`TableBuilder::push_csv`].
pub fn probe_csv(path: &Path) -> Result<(), LookupError> {
    File::open(path).map_err(LookupError::io("open", path)).map(drop)
}

impl TableBuilder<'_> {
    /// Takes the rows of a CSV file, packed with gzip or not.
    ///
    /// A line that is no row (no address, too few columns, a name that is too long or no UTF-8) is counted
    /// and left out; more of them than [`super::BuildOptions::max_bad`] are an error, which names the line.
    ///
    /// # Errors
    /// A source that cannot be read, too many lines that are no rows, and what [`TableBuilder::push`] says.
    pub fn push_csv(&mut self, path: &Path, options: CsvOptions) -> Result<(), LookupError> {
        let file = File::open(path).map_err(LookupError::io("open", path))?;
        let (counted, read) = Counted::new(file);
        let mut source = BufReader::with_capacity(1 << 18, counted);
        let is_packed = source.fill_buf().map_err(LookupError::io("read", path))?.starts_with(&GZIP);
        let source: Box<dyn Read> =
            if is_packed { Box::new(flate2::bufread::MultiGzDecoder::new(source)) } else { Box::new(source) };
        let mut reader = ReaderBuilder::new()
            .delimiter(options.delimiter)
            .has_headers(options.has_header)
            .flexible(true)
            .trim(Trim::All)
            .buffer_capacity(1 << 18)
            .from_reader(source);
        let before = self.source_bytes;
        let mut record = ByteRecord::new();
        loop {
            match reader.read_byte_record(&mut record) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => return Err(LookupError::io("read", path)(into_io(error))),
            }
            self.source_bytes = before + read.get();
            match row_of(&record, options) {
                Ok((address, name)) => self.push_checked(address, name)?,
                Err((reason, found)) => {
                    let line = record.position().map_or(0, Position::line);
                    self.bad_line(BadLine { path: path.to_owned(), line, reason, found })?;
                }
            }
        }
    }

    fn bad_line(&mut self, line: BadLine) -> Result<(), LookupError> {
        self.report.bad += 1;
        if self.report.bad > self.options.max_bad {
            return Err(LookupError::TooManyBad {
                line,
                bad: self.report.bad,
                allowed: self.options.max_bad,
            });
        }
        if self.report.first_bad.len() < NAMED_BAD {
            self.report.first_bad.push(line);
        }
        Ok(())
    }
}

/// Why a record is no row, and what it has instead where that can be shown.
type NoRow = (String, Option<String>);

/// The row of a record, or why there is none.
fn row_of(record: &ByteRecord, options: CsvOptions) -> Result<([u8; 16], &[u8]), NoRow> {
    let column = |number: usize, what: &str| {
        record
            .get(number)
            .ok_or_else(|| (format!("{what} is column {}, got {} columns", number + 1, record.len()), None))
    };
    let text = column(options.address_column, "the address")?;
    let name = column(options.name_column, "the name")?;
    let address = std::str::from_utf8(text).ok().and_then(address::parse);
    let address = address.ok_or_else(|| {
        ("expected an address".to_owned(), Some(String::from_utf8_lossy(text).into_owned()))
    })?;
    match reason_against(name) {
        Some(reason) => Err((reason, None)),
        None => Ok((address, name)),
    }
}

fn into_io(error: ::csv::Error) -> io::Error {
    match error.into_kind() {
        ::csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Counts the bytes that were read of a file; the count can be seen while others read.
struct Counted(File, Rc<Cell<u64>>);

impl Counted {
    fn new(file: File) -> (Self, Rc<Cell<u64>>) {
        let count = Rc::new(Cell::new(0));
        (Self(file, Rc::clone(&count)), count)
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1.set(self.1.get() + count as u64);
        Ok(count)
    }
}
