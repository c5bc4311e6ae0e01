//! Batches as points.

use thalweg_types::{Batch, DataType, Error, Schema, TimeUnit};

use super::super::cells::{Cell, Key, StructCell, record_cells, write_json};
use super::super::flat::leaves;
use super::super::{Encoder, Unwritable, shorten};
use super::grammar::{can_be_written, escape, quote};
use super::{Roles, convert};
use crate::Options;

/// How NaN and the infinities are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NonFinite {
    Named,
    /// As nulls, and counted.
    LeftOut,
}

pub(crate) struct LineEncoder {
    measurement: Measurement,
    /// By name, as the series key has them.
    tags: Vec<Column>,
    fields: Vec<Column>,
    time: Option<(usize, TimeUnit)>,
    precision: TimeUnit,
    keys: Vec<Key>,
    non_finite: NonFinite,
    left_out: u64,
    refused: Vec<Unwritable>,
    scratch: Vec<u8>,
}

enum Measurement {
    /// As it is written.
    Constant(Vec<u8>),
    Field(usize),
}

struct Column {
    /// For reasons.
    label: String,
    /// As it is written, with the equals sign.
    name: Vec<u8>,
    path: Vec<usize>,
}

impl Column {
    fn new(name: &str, path: Vec<usize>) -> Result<Self, Error> {
        let mut written = escaped("the name of a field", name)?;
        written.push(b'=');
        Ok(Self { label: name.to_owned(), name: written, path })
    }
}

fn escaped(what: &str, text: &str) -> Result<Vec<u8>, Error> {
    if !can_be_written(text.as_bytes()) {
        return Err(Error::user(format!(
            "line protocol has no way to write {what} that is empty, has a line end or ends in a backslash, got {text:?}"
        )));
    }
    let mut written = Vec::new();
    escape(text.as_bytes(), &mut written);
    Ok(written)
}

impl LineEncoder {
    /// # Errors
    /// Where an option names no field that fits it, no field is left to be written, or there is no measurement.
    pub(crate) fn new(schema: &Schema, options: &Options, non_finite: NonFinite) -> Result<Self, Error> {
        let roles = Roles::new(schema, options)?;
        let measurement = match (roles.measurement, options.text("measurement")) {
            (Some(place), _) => Measurement::Field(place),
            (None, Some(text)) if text.starts_with('#') => {
                return Err(Error::user(format!(
                    "measurement: a line that begins with # is a comment, got {text:?}"
                )));
            }
            (None, Some(text)) => Measurement::Constant(escaped("a measurement", text)?),
            (None, None) => {
                return Err(Error::user("line protocol needs a measurement, got none").with_hint(
                    "write measurement: NAME, the name of a string field or the measurement itself",
                ));
            }
        };
        let wanted = roles.tags.clone().unwrap_or_default();
        let (mut tags, mut fields) = (Vec::new(), Vec::new());
        for leaf in leaves(schema.fields()) {
            if leaf.path.len() == 1 && roles.is_special(leaf.path[0]) {
                continue;
            }
            let name = leaf.name(".");
            if wanted.contains(&name) {
                if matches!(leaf.field.data_type, DataType::List(_)) {
                    return Err(Error::user(format!("tags: field {name:?} is a list, which is no tag")));
                }
                tags.push((name, leaf.path));
            } else {
                fields.push(Column::new(&name, leaf.path)?);
            }
        }
        if let Some(missing) = wanted.iter().find(|wanted| !tags.iter().any(|(name, _)| name == *wanted)) {
            return Err(Error::user(format!("tags: expected names of fields, got {missing:?}")));
        }
        if fields.is_empty() {
            return Err(Error::user("line protocol needs a field that is no tag, got none"));
        }
        tags.sort();
        Ok(Self {
            measurement,
            tags: tags.into_iter().map(|(name, path)| Column::new(&name, path)).collect::<Result<_, _>>()?,
            fields,
            time: roles.time,
            precision: roles.precision,
            keys: Key::of(schema.fields()),
            non_finite,
            left_out: 0,
            refused: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// How many NaNs and infinities were left out.
    #[cfg(any(test, feature = "influxdb"))]
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    fn write_rows(
        &mut self,
        batch: &Batch,
        rows: impl Iterator<Item = u32>,
        line_end: &[u8],
        out: &mut Vec<u8>,
    ) {
        let keys = std::mem::take(&mut self.keys);
        {
            let record = record_cells(batch.records(), &keys);
            // Per column the structs around it, whose null makes it null, and the value itself.
            let cells = |columns: &[Column]| -> Vec<Vec<&Cell<'_>>> {
                columns.iter().map(|column| Cell::descend(&record, &column.path)).collect()
            };
            let (tags, fields) = (cells(&self.tags), cells(&self.fields));
            for row in rows {
                let start = out.len();
                let event_time = batch.times()[row as usize];
                match self.write_row(&record, &tags, &fields, row as usize, event_time, out) {
                    Ok(()) => out.extend_from_slice(line_end),
                    Err(reason) => {
                        out.truncate(start);
                        self.refused.push(Unwritable { row, reason });
                    }
                }
            }
        }
        self.keys = keys;
    }

    fn write_row(
        &mut self,
        record: &[StructCell<'_>],
        tags: &[Vec<&Cell<'_>>],
        fields: &[Vec<&Cell<'_>>],
        row: usize,
        event_time: i64,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        match &self.measurement {
            Measurement::Constant(text) => out.extend_from_slice(text),
            Measurement::Field(place) => {
                let cell = Cell::descend(record, &[*place])[0];
                self.scratch.clear();
                if !cell.is_null(row) {
                    cell.write_plain(row, &mut self.scratch);
                }
                // Blanks before a measurement are skipped, and # makes a comment of the line.
                if !can_be_written(&self.scratch) || matches!(self.scratch[0], b'#' | b'\t' | b'\r') {
                    return Err(format!(
                        "expected a measurement without line end, # or blank at its beginning, or backslash at its end, \
                         got {:?}",
                        shorten(&self.scratch)
                    ));
                }
                escape(&self.scratch, out);
            }
        }
        for (column, cells) in self.tags.iter().zip(tags) {
            if cells.iter().any(|cell| cell.is_null(row)) {
                continue;
            }
            self.scratch.clear();
            cells[cells.len() - 1].write_plain(row, &mut self.scratch);
            // An empty tag and none are the same.
            if self.scratch.is_empty() {
                continue;
            }
            if !can_be_written(&self.scratch) {
                return Err(format!(
                    "tag {:?}: expected no line end, and no backslash at its end, got {:?}",
                    column.label,
                    shorten(&self.scratch)
                ));
            }
            out.push(b',');
            out.extend_from_slice(&column.name);
            escape(&self.scratch, out);
        }
        let mut before = b' ';
        for (column, cells) in self.fields.iter().zip(fields) {
            if cells.iter().any(|cell| cell.is_null(row)) {
                continue;
            }
            let cell = cells[cells.len() - 1];
            if let Cell::Float64(values, _) = cell
                && !values[row].is_finite()
                && self.non_finite == NonFinite::LeftOut
            {
                self.left_out += 1;
                continue;
            }
            out.push(before);
            before = b',';
            out.extend_from_slice(&column.name);
            write_value(cell, row, &mut self.scratch, out);
        }
        if before == b' ' {
            return Err("expected a field with a value, got none".to_owned());
        }
        let (time, unit) = match self.time {
            None => (Some(event_time), TimeUnit::Micro),
            Some((place, unit)) => match Cell::descend(record, &[place])[0] {
                cell if cell.is_null(row) => (None, unit),
                Cell::Int64(values, _) => (Some(values[row]), unit),
                _ => (None, unit),
            },
        };
        if let Some(time) = time {
            out.push(b' ');
            let count = convert(i128::from(time), unit, self.precision);
            out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
        }
        Ok(())
    }
}

fn write_value(cell: &Cell<'_>, row: usize, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
    match cell {
        Cell::Int64(..) => {
            cell.write_plain(row, out);
            out.push(b'i');
        }
        Cell::UInt64(values, _) => {
            cell.write_plain(row, out);
            out.push(if i64::try_from(values[row]).is_ok() { b'i' } else { b'u' });
        }
        Cell::Bool(_) | Cell::Float64(..) | Cell::Decimal128(..) | Cell::Decimal256(..) => {
            cell.write_plain(row, out);
        }
        Cell::String(column) => quote(column.value(row).as_bytes(), out),
        Cell::List { .. } => {
            scratch.clear();
            write_json(cell, row, scratch);
            quote(scratch, out);
        }
        _ => {
            scratch.clear();
            cell.write_plain(row, scratch);
            quote(scratch, out);
        }
    }
}

impl Encoder for LineEncoder {
    fn encode(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        self.write_rows(batch, batch.row_numbers(), b"\n", out);
    }

    fn encode_row(&mut self, batch: &Batch, row: u32, out: &mut Vec<u8>) {
        self.write_rows(batch, std::iter::once(row), b"", out);
    }

    fn take_refused(&mut self) -> Vec<Unwritable> {
        std::mem::take(&mut self.refused)
    }
}
