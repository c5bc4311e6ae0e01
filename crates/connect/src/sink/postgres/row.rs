//! Records as rows of COPY's text format.
//!
//! Text, because the server then casts it to whatever type the column has: an `int64` fits a `bigint`, a `numeric` and
//! a `text`. Timestamps are written as dates in UTC (finer digits than microseconds round down), bytes in hex, lists as
//! JSON, all else as in every text format.

use thalweg_types::{Batch, DataType, Error, Schema, TimeUnit, civil_from_days};

use crate::format::cells::{Cell, Key, record_cells, write_json};
use crate::format::flat::leaves;
use crate::format::{Encoder, Unwritable};

/// 4714-11-24 BC, the first day that PostgreSQL knows.
const FIRST_TIME: i64 = -210_866_803_200_000_000;

pub(super) struct RowEncoder {
    columns: Vec<Column>,
    keys: Vec<Key>,
    scratch: Vec<u8>,
    refused: Vec<Unwritable>,
}

struct Column {
    name: String,
    path: Vec<usize>,
    time: Option<TimeUnit>,
}

impl RowEncoder {
    /// # Errors
    /// If two fields are one column, or a name cannot be a column's.
    pub(super) fn new(schema: &Schema) -> Result<Self, Error> {
        let mut columns: Vec<Column> = Vec::new();
        for leaf in leaves(schema.fields()) {
            let name = leaf.name("_");
            if name.contains('\0') {
                return Err(Error::user(format!(
                    "expected names without a NUL character, got field {name:?}"
                )));
            }
            if columns.iter().any(|other| other.name == name) {
                return Err(Error::user(format!("two fields are column {name:?}"))
                    .with_hint("give one of them another name, by `map` or by AS in the query"));
            }
            let time = match leaf.field.data_type {
                DataType::Timestamp(unit) => Some(unit),
                _ => None,
            };
            columns.push(Column { name, path: leaf.path, time });
        }
        if columns.is_empty() {
            return Err(Error::user("expected records with at least one field, got none"));
        }
        Ok(Self { columns, keys: Key::of(schema.fields()), scratch: Vec::new(), refused: Vec::new() })
    }

    /// Appends rows, each with its end; those that no table can hold are refused.
    fn encode_rows(
        &mut self,
        batch: &Batch,
        rows: impl IntoIterator<Item = u32>,
        end: impl Fn(&mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        let record = record_cells(batch.records(), &self.keys);
        let cells: Vec<Vec<&Cell<'_>>> =
            self.columns.iter().map(|column| Cell::descend(&record, &column.path)).collect();
        for row in rows {
            let begin = out.len();
            match write_row(&self.columns, &cells, row as usize, &mut self.scratch, out) {
                Ok(()) => end(out),
                Err(reason) => {
                    out.truncate(begin);
                    self.refused.push(Unwritable { row, reason });
                }
            }
        }
    }

    pub(super) fn columns(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }
}

impl Encoder for RowEncoder {
    /// Records that no table can hold are left out, and refused.
    fn encode(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        self.encode_rows(batch, batch.row_numbers(), |out| out.push(b'\n'), out);
    }

    fn encode_row(&mut self, batch: &Batch, row: u32, out: &mut Vec<u8>) {
        self.encode_rows(batch, [row], |_| {}, out);
    }

    fn take_refused(&mut self) -> Vec<Unwritable> {
        std::mem::take(&mut self.refused)
    }
}

/// A row without its line end; cells of `cells` are those on the way to each column.
fn write_row(
    columns: &[Column],
    cells: &[Vec<&Cell<'_>>],
    row: usize,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    for (index, (column, cells)) in columns.iter().zip(cells).enumerate() {
        if index > 0 {
            out.push(b'\t');
        }
        if cells.iter().any(|cell| cell.is_null(row)) {
            out.extend_from_slice(b"\\N");
            continue;
        }
        let cell = cells[cells.len() - 1];
        write_value(cell, column.time, row, scratch, out)
            .map_err(|reason| format!("field {:?}: {reason}", column.name))?;
    }
    Ok(())
}

fn write_value(
    cell: &Cell<'_>,
    time: Option<TimeUnit>,
    row: usize,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    match (cell, time) {
        (Cell::Int64(values, _), Some(unit)) => {
            let micros = unit.to_micros(values[row]).filter(|micros| *micros >= FIRST_TIME);
            let micros = micros.ok_or_else(|| {
                format!("{} {} is out of range for a timestamp of PostgreSQL", values[row], unit.name())
            })?;
            write_time(micros, out);
        }
        (Cell::String(column), _) => {
            let text = column.value(row).as_bytes();
            if memchr::memchr(0, text).is_some() {
                return Err("PostgreSQL has no text with a NUL character, got one".to_owned());
            }
            write_text(text, out);
        }
        (Cell::Bytes(column), _) => {
            out.extend_from_slice(b"\\\\x");
            for byte in column.value(row) {
                out.extend([byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
            }
        }
        (Cell::List { .. }, _) => {
            scratch.clear();
            write_json(cell, row, scratch);
            write_text(scratch, out);
        }
        // Numbers, booleans and addresses hold nothing that has to be escaped.
        _ => cell.write_plain(row, out),
    }
    Ok(())
}

fn write_text(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            other => out.push(*other),
        }
    }
}

fn write_time(micros: i64, out: &mut Vec<u8>) {
    use std::io::Write as _;
    const DAY: i64 = 86_400_000_000;
    let (year, month, day) = civil_from_days(micros.div_euclid(DAY));
    let of_day = micros.rem_euclid(DAY);
    let (seconds, fraction) = (of_day / 1_000_000, of_day % 1_000_000);
    // There is no year 0: the one before 1 is 1 BC.
    let (year, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    write!(out, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:06}+00{era}")
        .expect("a vector takes every byte");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BinaryViewArray, StringViewArray, TimestampMillisecondArray};
    use thalweg_types::{Field, SeqRange, Seqs};

    use super::*;

    fn batch(schema: &Schema, columns: Vec<ArrayRef>) -> Batch {
        let rows = columns[0].len();
        let records = crate::source::record_batch(schema, columns, rows).unwrap();
        Batch::new(SeqRange::new(0, rows as u64), records, vec![0; rows].into(), Seqs::Dense(0))
    }

    #[test]
    fn values_are_text_that_copy_reads() {
        let schema = Schema::new(vec![
            Field::new("s", DataType::String).nullable(),
            Field::new("b", DataType::Bytes).nullable(),
            Field::new("t", DataType::Timestamp(TimeUnit::Milli)).nullable(),
        ]);
        let texts: ArrayRef =
            Arc::new(StringViewArray::from(vec![Some("a\tb\\\r\nc"), Some("\\N"), None, Some("")]));
        let bytes: ArrayRef = Arc::new(BinaryViewArray::from(vec![
            Some([0_u8, 255].as_slice()),
            Some(b"".as_slice()),
            None,
            None,
        ]));
        let times: ArrayRef = Arc::new(
            TimestampMillisecondArray::from(vec![
                Some(1_767_225_600_001),
                Some(-62_135_596_800_001),
                None,
                Some(0),
            ])
            .with_timezone_opt(schema_zone(&schema)),
        );
        let mut out = Vec::new();
        let mut encoder = RowEncoder::new(&schema).unwrap();
        encoder.encode(&batch(&schema, vec![texts, bytes, times]), &mut out);
        assert_eq!(encoder.take_refused(), []);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "a\\tb\\\\\\r\\nc\t\\\\x00ff\t2026-01-01 00:00:00.001000+00\n\
             \\\\N\t\\\\x\t0001-12-31 23:59:59.999000+00 BC\n\
             \\N\t\\N\t\\N\n\
             \t\\N\t1970-01-01 00:00:00.000000+00\n"
        );
    }

    fn schema_zone(schema: &Schema) -> Option<Arc<str>> {
        match schema.arrow().field(2).data_type() {
            arrow_schema::DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        }
    }

    #[test]
    fn what_no_table_holds_is_refused_with_its_row() {
        let schema = Schema::new(vec![Field::new("s", DataType::String)]);
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(["fine", "n\0ul", "too"]));
        let (mut encoder, mut out) = (RowEncoder::new(&schema).unwrap(), Vec::new());
        encoder.encode(&batch(&schema, vec![texts]), &mut out);
        assert_eq!(out, b"fine\ntoo\n");
        let reason = "field \"s\": PostgreSQL has no text with a NUL character, got one".to_owned();
        assert_eq!(encoder.take_refused(), [Unwritable { row: 1, reason }]);
        assert_eq!(encoder.take_refused(), []);
    }

    #[test]
    fn fields_of_structs_are_columns_and_no_two_fields_are_one() {
        let inner = DataType::Struct(vec![
            Field::new("spent", DataType::Float64),
            Field::new("since", DataType::Int64).omit_null(),
        ]);
        let nested = Field::new("card_1h", inner);
        let encoder = RowEncoder::new(&Schema::new(vec![nested.clone()])).unwrap();
        assert_eq!(encoder.columns(), ["card_1h_spent"]);
        let clash = Schema::new(vec![nested, Field::new("card_1h_spent", DataType::Int64)]);
        let error = RowEncoder::new(&clash).err().unwrap();
        assert_eq!(error.message(), "two fields are column \"card_1h_spent\"");
    }
}
