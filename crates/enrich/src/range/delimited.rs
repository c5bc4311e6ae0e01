//! Loads lines of cells.

use std::path::Path;

use thalweg_types::Error;

use super::build::Builder;
use super::cell::Cell;
use super::options::{Column, Delimited, RangeColumns, ValueColumn};
use super::span::Span;
use crate::bad_lines::Lines;
use crate::text::{Record, Records, Text, open_text};

/// Adds all ranges of a file.
///
/// # Errors
/// Where the file is not what the layout says, with path and line; a few lines may not be ([`crate::BadLines`]).
pub(super) fn load(
    path: &Path,
    layout: &Delimited,
    values: &[ValueColumn],
    builder: &mut Builder,
) -> Result<(), Error> {
    let Text { input, is_packed, identity } = open_text(path)?;
    let delimiter = layout.delimiter.unwrap_or_else(|| guess_delimiter(path));
    let mut records = Records::new(input, delimiter);
    let before = builder.given();

    let mut places = (!layout.header).then(|| Places::find(layout, values, None)).transpose()?;
    let mut alone = Alone::default();
    let mut lines = Lines::new(layout.bad_lines);
    while let Some(record) = records.next().map_err(|failure| failure.into_error(path, is_packed))? {
        let in_line = |error: Error| error.context(format!("read {path:?}, line {}", record.line));
        if is_comment(&record, places.as_ref()) {
            continue;
        }
        match &places {
            None => {
                record.check().map_err(in_line)?;
                places = Some(Places::find(layout, values, Some(&record)).map_err(in_line)?);
            }
            Some(places) => {
                let line =
                    record.check().and_then(|()| places.read(&record, values, delimiter)).map_err(in_line);
                let Some((span, cells)) = lines.take(line)? else { continue };
                alone.note(places, &record, span);
                let row = builder.row(&cells).map_err(in_line)?;
                builder.add(span, row).map_err(in_line)?;
            }
        }
    }
    lines.finish(path)?;
    if builder.given() == before {
        return Err(Error::user(format!("read {path:?}: expected at least one range, got none"))
            .with_hint("check whether the file was written to its end; leave it out if it has no ranges"));
    }
    if alone.are_networks() {
        return Err(Error::user(format!(
            "read {path:?}: expected networks such as 192.0.2.0/24, got first addresses of networks alone"
        ))
        .with_hint("`length` names the column with the length of the prefix; write addresses that are meant alone as /32 or /128"));
    }
    builder.add_file(path.to_owned(), identity);
    Ok(())
}

/// Lines that say something about the file, as pyasn's `; IP-ASN32-DAT file`.
fn is_comment(record: &Record<'_>, places: Option<&Places<'_>>) -> bool {
    let begins_range = places.is_none_or(|places| places.begins_line());
    let is_short = record.len() < places.map_or(2, |places| places.needed);
    match record.cell(0).trim_ascii_start().first() {
        Some(b';') => begins_range || is_short,
        // A header may begin so.
        Some(b'#') => is_short || (begins_range && places.is_some()),
        _ => false,
    }
}

/// Ranges of one address in a column for networks: whether all of them are where networks begin, and so are not ranges.
#[derive(Default)]
struct Alone {
    ends_in_zeros: u64,
    others: u64,
}

impl Alone {
    fn note(&mut self, places: &Places<'_>, record: &Record<'_>, span: Span) {
        let is_alone =
            matches!(places.range, RangePlaces::Prefix(place, _) if !record.cell(place).contains(&b'/'));
        let ends_in_zeros = match span {
            Span::V4(bounds) => bounds.first & 0xff == 0,
            Span::V6(bounds) => bounds.first & u128::from(u64::MAX) == 0,
        };
        match is_alone && ends_in_zeros {
            true => self.ends_in_zeros += 1,
            false => self.others += 1,
        }
    }

    fn are_networks(&self) -> bool {
        self.ends_in_zeros > 1 && self.others == 0
    }
}

/// A tab for `.tsv` and `.tab`, packed or not, else a comma.
fn guess_delimiter(path: &Path) -> u8 {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    if name.ends_with(".tsv") || name.ends_with(".tab") { b'\t' } else { b',' }
}

/// Where the cells of a line are, from 0.
struct Places<'a> {
    range: RangePlaces<'a>,
    values: Vec<usize>,
    /// Cells that a line has to have.
    needed: usize,
}

enum RangePlaces<'a> {
    FirstLast([(usize, &'a Column); 2]),
    Prefix(usize, &'a Column),
    PrefixLength([(usize, &'a Column); 2]),
}

impl<'a> Places<'a> {
    fn find(
        layout: &'a Delimited,
        values: &[ValueColumn],
        header: Option<&Record<'_>>,
    ) -> Result<Self, Error> {
        let names: Option<Vec<String>> = header.map(|header| {
            let name = |index| String::from_utf8_lossy(header.cell(index)).trim().to_owned();
            (0..header.len()).map(name).collect()
        });
        let find = |column: &Column| place(column, names.as_deref());
        let range = match &layout.range {
            RangeColumns::FirstLast { first, last } => {
                RangePlaces::FirstLast([(find(first)?, first), (find(last)?, last)])
            }
            RangeColumns::Prefix(prefix) => RangePlaces::Prefix(find(prefix)?, prefix),
            RangeColumns::PrefixLength { prefix, length } => {
                RangePlaces::PrefixLength([(find(prefix)?, prefix), (find(length)?, length)])
            }
        };
        let values = values.iter().map(|value| find(&value.from)).collect::<Result<Vec<_>, _>>()?;
        let last = match range {
            RangePlaces::FirstLast([(first, _), (last, _)])
            | RangePlaces::PrefixLength([(first, _), (last, _)]) => first.max(last),
            RangePlaces::Prefix(prefix, _) => prefix,
        };
        let needed = values.iter().copied().fold(last, usize::max) + 1;
        Ok(Self { range, values, needed })
    }

    fn read<'t>(
        &self,
        record: &'t Record<'_>,
        values: &[ValueColumn],
        delimiter: u8,
    ) -> Result<(Span, Vec<Cell<'t>>), Error> {
        if record.len() < self.needed {
            return Err(Error::user(format!(
                "expected at least {} columns, got {}",
                self.needed,
                record.len()
            ))
            .with_hint(format!("check the delimiter, which is {:?} here", char::from(delimiter))));
        }
        let mut cells = Vec::with_capacity(values.len());
        for (value, place) in values.iter().zip(&self.values) {
            let text = text(record, *place, &value.from)?;
            cells.push(Cell::parse(text, &value.data_type).ok_or_else(|| {
                Error::user(format!("{}: expected {}", value.from, Cell::expected(&value.data_type)))
                    .with_private(got(text))
                    .with_hint("take it as string where not all of its values are such")
            })?);
        }
        Ok((self.span(record)?, cells))
    }

    /// A line begins with its range.
    fn begins_line(&self) -> bool {
        match &self.range {
            RangePlaces::FirstLast(places) | RangePlaces::PrefixLength(places) => places[0].0 == 0,
            RangePlaces::Prefix(place, _) => *place == 0,
        }
    }

    fn span(&self, record: &Record<'_>) -> Result<Span, Error> {
        match &self.range {
            RangePlaces::PrefixLength([prefix, length]) => {
                let mut network = text(record, prefix.0, prefix.1)?.trim_ascii().to_owned();
                if !network.contains('/') {
                    network = format!("{network}/{}", text(record, length.0, length.1)?.trim_ascii());
                }
                Span::network(&network).map_err(|problem| {
                    Error::user(format!("{} and {}: expected {}", prefix.1, length.1, problem.expected))
                        .with_private(got(&network))
                        .with_hint(problem.hint)
                })
            }
            RangePlaces::FirstLast([first, last]) => {
                let first_text = text(record, first.0, first.1)?.trim_ascii();
                let last_text = text(record, last.0, last.1)?.trim_ascii();
                Span::between(first_text, last_text).map_err(|problem| {
                    Error::user(format!("{} and {}: expected {}", first.1, last.1, problem.expected))
                        .with_private(format!("{} and {}", got(first_text), quoted(last_text)))
                        .with_hint(problem.hint)
                })
            }
            RangePlaces::Prefix(place, column) => {
                let text = text(record, *place, column)?.trim_ascii();
                Span::network(text).map_err(|problem| {
                    Error::user(format!("{column}: expected {}", problem.expected))
                        .with_private(got(text))
                        .with_hint(problem.hint)
                })
            }
        }
    }
}

fn place(column: &Column, header: Option<&[String]>) -> Result<usize, Error> {
    match (column, header) {
        (Column::Position(0), _) => Err(Error::user("column 0: expected a position from 1, got 0")
            .with_hint("the first column has position 1")),
        (Column::Position(position), _) => Ok(position - 1),
        (Column::Name(_), None) => {
            Err(Error::user(format!("{column}: expected a position, as the file has no header, got a name"))
                .with_hint("give positions from 1, or say that the file has a header"))
        }
        (Column::Name(name), Some(header)) => {
            let mut found = header.iter().enumerate().filter(|(_, other)| *other == name);
            match (found.next(), found.next()) {
                (Some((place, _)), None) => Ok(place),
                (Some(_), Some(_)) => Err(Error::user(format!("the header names {column} twice"))
                    .with_hint("give the column by its position from 1")),
                (None, _) => {
                    let names: Vec<String> = header.iter().map(|name| quoted(name)).collect();
                    Err(Error::user(format!("the header lacks {column}"))
                        .with_private(format!(": it has {}", names.join(", ")))
                        .with_hint("name a column of the header, or say that the file has none"))
                }
            }
        }
    }
}

fn text<'t>(record: &'t Record<'_>, place: usize, column: &Column) -> Result<&'t str, Error> {
    let bytes = record.cell(place);
    std::str::from_utf8(bytes).map_err(|_| {
        Error::user(format!("{column}: expected UTF-8"))
            .with_private(got(&String::from_utf8_lossy(bytes)))
            .with_hint("convert the file, as with iconv -f latin1 -t utf-8")
    })
}

/// What a cell holds, for the log alone.
fn got(text: &str) -> String {
    format!(", got {}", quoted(text))
}

/// A text for a message: in quotes, and its beginning alone where it is long.
fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
