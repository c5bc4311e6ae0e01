//! `summary`: a sink of its own. Count, minimum and maximum per device, written as a table when the job ends.
//!
//! The file is opened before the job starts, so that a path that cannot be written is told at once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;

use thalweg_prelude::*;

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

    fn check(&self, schema: &Schema, options: &Options) -> Vec<Mistake> {
        let told = [
            field::<String>("device", schema, options).map(drop),
            field::<f64>("value", schema, options).map(drop),
        ];
        told.into_iter().filter_map(Result::err).collect()
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        let wrong = |mistake: Mistake| mistake.error;
        let device = field("device", &context.schema, &context.options).map_err(wrong)?;
        let value = field("value", &context.schema, &context.options).map_err(wrong)?;
        let path = context.options.path("path").map(|path| path.as_path().to_owned()).unwrap_or_default();
        let shown = path.clone();
        let named = move |error| Error::external(format!("create {shown:?}")).with_source(error);
        let file = File::create(&path).map_err(&named)?;
        let SinkContext { report, schema, .. } = context;
        Ok(Box::new(move |_| {
            let file = file.try_clone().map_err(&named)?;
            let report = report.clone();
            let sink = SummarySink { device, value, file, table: BTreeMap::new(), report };
            Ok(Box::new(PerRecord::new(sink, [schema.clone()], [])))
        }))
    }
}

/// The field that an option names, or the one that is called like it. Where it may be null it is read all the same.
fn field<T: FieldType>(key: &str, schema: &Schema, options: &Options) -> Result<Get<Option<T>>, Mistake> {
    Get::of(schema, options.text(key).unwrap_or(key)).map_err(|error| Mistake::new(key, error))
}

struct SummarySink {
    device: Get<Option<String>>,
    value: Get<Option<f64>>,
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

impl RecordOperator for SummarySink {
    fn process(&mut self, record: Row<'_>, _: &mut Emit<'_>) -> Result<(), Error> {
        self.report.add_records(1);
        let (Some(device), Some(value)) = (record.get(self.device), record.get(self.value)) else {
            return Ok(());
        };
        match self.table.get_mut(device) {
            Some(line) => {
                *line = Line { count: line.count + 1, min: line.min.min(value), max: line.max.max(value) };
            }
            None => {
                self.table.insert(device.to_owned(), Line { count: 1, min: value, max: value });
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Emit<'_>) -> Result<(), Error> {
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
