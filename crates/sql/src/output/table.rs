//! Columns that line up, for people. Widths are those of the first thousand rows; later cells that are wider push the
//! rest of their line to the right.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use thalweg_types::Error;

use super::{Encode, cell};

/// Rows that are looked at before the first is written.
const LOOKED_AT: usize = 1_000;
/// No column is made wider than this for the sake of one cell.
const WIDEST: usize = 120;

pub(super) struct Table {
    names: Vec<String>,
    right: Vec<bool>,
    /// Rows that wait for the widths; `None` as soon as these are known.
    held: Option<Vec<Vec<String>>>,
    widths: Vec<usize>,
}

impl Table {
    pub(super) fn new(schema: &SchemaRef) -> Self {
        Self {
            names: schema.fields().iter().map(|field| tidy(field.name())).collect(),
            right: schema.fields().iter().map(|field| cell::is_number(field.data_type())).collect(),
            held: Some(Vec::new()),
            widths: Vec::new(),
        }
    }

    fn put(&mut self, cells: Vec<String>, out: &mut Vec<u8>) {
        match &mut self.held {
            Some(held) => {
                held.push(cells);
                if held.len() >= LOOKED_AT {
                    self.release(out);
                }
            }
            None => self.line(&cells, out),
        }
    }

    /// Finds the widths and writes what waited for them.
    fn release(&mut self, out: &mut Vec<u8>) {
        let Some(rows) = self.held.take() else { return };
        self.widths = (0..self.names.len())
            .map(|column| {
                let cells = rows.iter().map(|row| row[column].chars().count());
                cells.max().unwrap_or(0).min(WIDEST).max(self.names[column].chars().count())
            })
            .collect();
        self.line(&self.names, out);
        let rule: Vec<String> = self.widths.iter().map(|width| "-".repeat(*width)).collect();
        self.line(&rule, out);
        for row in &rows {
            self.line(row, out);
        }
    }

    fn line(&self, cells: &[String], out: &mut Vec<u8>) {
        let from = out.len();
        for (column, cell) in cells.iter().enumerate() {
            if column > 0 {
                out.extend_from_slice(b"  ");
            }
            let blanks = self.widths[column].saturating_sub(cell.chars().count());
            if self.right[column] {
                out.extend(std::iter::repeat_n(b' ', blanks));
                out.extend_from_slice(cell.as_bytes());
            } else {
                out.extend_from_slice(cell.as_bytes());
                out.extend(std::iter::repeat_n(b' ', blanks));
            }
        }
        while out.len() > from && out.last() == Some(&b' ') {
            out.pop();
        }
        out.push(b'\n');
    }
}

impl Encode for Table {
    fn head(&mut self, _: &mut Vec<u8>) -> Result<(), Error> {
        Ok(())
    }

    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), Error> {
        for row in 0..batch.num_rows() {
            let mut cells = Vec::with_capacity(batch.num_columns());
            for column in batch.columns() {
                let mut text = String::new();
                cell::text(column, row, &mut text)?;
                cells.push(text);
            }
            // A cell of several lines, as a plan has, makes several lines.
            let lines = cells.iter().map(|cell| cell.lines().count()).max().unwrap_or(0).max(1);
            for line in 0..lines {
                self.put(
                    cells.iter().map(|cell| tidy(cell.lines().nth(line).unwrap_or_default())).collect(),
                    out,
                );
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.release(out);
        Ok(())
    }
}

/// One line, whatever is in it: control characters could also move a terminal's cursor.
fn tidy(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
