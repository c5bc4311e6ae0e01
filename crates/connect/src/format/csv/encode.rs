//! Batches as CSV lines.

use thalweg_types::{Batch, Schema};

use super::super::Encoder;
use super::super::cells::{Cell, Key, record_cells, write_json};
use super::super::flat::leaves;

pub(super) struct CsvEncoder {
    delimiter: u8,
    header: Option<Vec<u8>>,
    /// Paths of the columns: place in the schema, then in each struct below.
    columns: Vec<Vec<usize>>,
    keys: Vec<Key>,
}

impl CsvEncoder {
    pub(super) fn new(schema: &Schema, delimiter: u8, with_header: bool) -> Self {
        let leaves = leaves(schema.fields());
        let header = with_header.then(|| {
            let mut line = Vec::new();
            for (index, leaf) in leaves.iter().enumerate() {
                if index > 0 {
                    line.push(delimiter);
                }
                write_field(leaf.name(".").as_bytes(), delimiter, &mut line);
            }
            line.push(b'\n');
            line
        });
        let columns = leaves.into_iter().map(|leaf| leaf.path).collect();
        Self { delimiter, header, columns, keys: Key::of(schema.fields()) }
    }

    fn write_rows(
        &mut self,
        batch: &Batch,
        rows: impl Iterator<Item = u32>,
        line_end: &[u8],
        out: &mut Vec<u8>,
    ) {
        let record = record_cells(batch.records(), &self.keys);
        // Per column the structs around it, whose null makes it null, and the value itself.
        let columns: Vec<Vec<&Cell<'_>>> =
            self.columns.iter().map(|path| Cell::descend(&record, path)).collect();
        let mut scratch = Vec::new();
        for row in rows {
            write_row(&columns, row as usize, self.delimiter, &mut scratch, out);
            out.extend_from_slice(line_end);
        }
    }
}

fn write_row(
    columns: &[Vec<&Cell<'_>>],
    row: usize,
    delimiter: u8,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    for (index, cells) in columns.iter().enumerate() {
        if index > 0 {
            out.push(delimiter);
        }
        if cells.iter().any(|cell| cell.is_null(row)) {
            continue;
        }
        match cells[cells.len() - 1] {
            Cell::String(column) => write_field(column.value(row).as_bytes(), delimiter, out),
            cell @ Cell::List { .. } => {
                scratch.clear();
                write_json(cell, row, scratch);
                write_field(scratch, delimiter, out);
            }
            // Numbers, base64 and addresses hold no quote and no line end, and the usual delimiters neither.
            cell if matches!(delimiter, b',' | b'\t' | b';' | b'|') => cell.write_plain(row, out),
            cell => {
                scratch.clear();
                cell.write_plain(row, scratch);
                write_field(scratch, delimiter, out);
            }
        }
    }
    // An empty line would not be a record.
    if out.len() == start {
        out.extend_from_slice(b"\"\"");
    }
}

fn write_field(text: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    let needs_quotes = text.iter().any(|byte| *byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r'));
    if !needs_quotes {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for byte in text {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

impl Encoder for CsvEncoder {
    fn start(&mut self, out: &mut Vec<u8>) {
        if let Some(header) = &self.header {
            out.extend_from_slice(header);
        }
    }

    fn encode(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        self.write_rows(batch, batch.row_numbers(), b"\n", out);
    }

    fn encode_row(&mut self, batch: &Batch, row: u32, out: &mut Vec<u8>) {
        self.write_rows(batch, std::iter::once(row), b"", out);
    }
}
