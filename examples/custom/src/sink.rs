//! `summary`: a sink of its own. Count, minimum and maximum per device, written as a table when the job ends.
//!
//! The file is opened before the job starts, so that a path that cannot be written is told at once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use thalweg_connect::{OptionKind, OptionSpec, SinkContext, SinkPlugin, SinkReport};
use thalweg_flow::{InputId, Operator, Output, TaskFactory};
use thalweg_types::{Batch, DataType, Error};

/// The plug-in.
pub(crate) struct Summary;

impl SinkPlugin for Summary {
    fn name(&self) -> &'static str {
        "summary"
    }

    fn doc(&self) -> &'static str {
        "a table of count, minimum and maximum per device, written at the end"
    }

    fn options(&self) -> &'static [OptionSpec] {
        const fn option(
            key: &'static str,
            kind: OptionKind,
            default: Option<&'static str>,
            doc: &'static str,
        ) -> OptionSpec {
            OptionSpec { key, kind, required: default.is_none(), default, doc }
        }
        const OPTIONS: &[OptionSpec] = &[
            option("path", OptionKind::Path, None, "the file to write; emptied at the start"),
            option("device", OptionKind::Text, Some("device"), "field that names the device"),
            option("value", OptionKind::Text, Some("value"), "field with the reading"),
        ];
        OPTIONS
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn guarantee(&self) -> &'static str {
        "at-least-once"
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        let field = |key: &str, expected: DataType| {
            let name = context.options.text(key).unwrap_or(key);
            match context.schema.field(name) {
                Some((place, field)) if field.data_type == expected => Ok(place),
                _ => Err(Error::user(format!("{key:?} is {name:?}, which is no field of type {expected}"))
                    .with_hint(format!(
                        "the fields are {}",
                        context.schema.names().collect::<Vec<_>>().join(", ")
                    ))),
            }
        };
        let (device, value) = (field("device", DataType::String)?, field("value", DataType::Float64)?);
        let path = PathBuf::from(context.options.text("path").unwrap_or_default());
        let file = File::create(&path);
        let mut file =
            Some(file.map_err(|error| Error::external(format!("create {path:?}")).with_source(error))?);
        let report = context.report;
        Ok(Box::new(move |_| {
            let file =
                file.take().ok_or_else(|| Error::internal("a summary is one table, written by one task"))?;
            Ok(Box::new(SummarySink { device, value, file, table: BTreeMap::new(), report: report.clone() }))
        }))
    }
}

struct SummarySink {
    device: usize,
    value: usize,
    file: File,
    /// In the order in which it is written.
    table: BTreeMap<String, Line>,
    report: SinkReport,
}

struct Line {
    count: u64,
    min: f64,
    max: f64,
}

impl Operator for SummarySink {
    fn process(&mut self, _: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        let devices = batch.column(self.device).as_string_view();
        let values = batch.column(self.value).as_primitive::<Float64Type>();
        for row in batch.row_numbers().map(|row| row as usize) {
            if devices.is_null(row) || values.is_null(row) {
                continue;
            }
            let (device, value) = (devices.value(row), values.value(row));
            if !self.table.contains_key(device) {
                self.table.insert(device.to_owned(), Line { count: 0, min: value, max: value });
            }
            if let Some(line) = self.table.get_mut(device) {
                *line = Line { count: line.count + 1, min: line.min.min(value), max: line.max.max(value) };
            }
        }
        self.report.add_records(batch.len() as u64);
        Ok(())
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        let mut text = format!("{:<12}{:>10}{:>10}{:>10}\n", "device", "readings", "min", "max");
        for (device, Line { count, min, max }) in &self.table {
            writeln!(text, "{device:<12}{count:>10}{min:>10.2}{max:>10.2}")
                .map_err(|error| Error::internal("lay out a table").with_source(error))?;
        }
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(|error| Error::external("write the summary").with_source(error))?;
        self.report.add_bytes(text.len() as u64);
        Ok(())
    }
}
