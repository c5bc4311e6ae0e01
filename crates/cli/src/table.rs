//! `table build-lookup`, and the reports of `inspect` and `verify` about a lookup table.

use std::io::{Write, stdout};
use std::ops::ControlFlow;
use std::path::Path;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use thalweg_enrich::lookup::{
    BuildOptions, CsvOptions, LookupTable, Progress, Stage, TableBuilder, TableSummary,
};
use thalweg_types::{Error, format_size};

use crate::Outcome;
use crate::args::{BuildLookup, Table};
use crate::output::{Failure, talk};

pub(crate) fn table(args: &Table) -> Outcome {
    match args {
        Table::BuildLookup(build) => build_lookup(build),
    }
}

fn build_lookup(args: &BuildLookup) -> Outcome {
    let failed = |error| Failure::at_start(&Error::from(error));
    let column = |number: usize, name: &str| {
        number.checked_sub(1).ok_or_else(|| Failure::Usage(format!("--{name} counts from 1, got 0")))
    };
    let [delimiter] = args.delimiter.as_bytes() else {
        return Err(Failure::Usage(format!("--delimiter takes one character, got {:?}", args.delimiter)));
    };
    let csv = CsvOptions {
        delimiter: *delimiter,
        has_header: args.header,
        address_column: column(args.address_column, "address-column")?,
        name_column: column(args.name_column, "name-column")?,
    };
    let options = BuildOptions { memory: args.memory as usize, max_bad: args.max_bad };
    let bar = ProgressBar::new_spinner();
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    let mut builder = TableBuilder::new(&args.out, options).with_progress(|progress: &Progress| {
        let rows = HumanCount(progress.rows);
        bar.set_message(match progress.stage {
            Stage::Reading => format!("{rows} rows read, {}", format_size(progress.source_bytes)),
            Stage::Writing => format!("{rows} of {} rows written", HumanCount(progress.rows_expected)),
        });
        bar.tick();
        ControlFlow::Continue(())
    });
    for source in &args.sources {
        builder.push_csv(source, csv).map_err(failed)?;
    }
    let report = builder.finish().map_err(failed)?;
    bar.finish_and_clear();
    for line in &report.first_bad {
        talk(&format!("left out: {line}"));
    }
    talk(&format!(
        "rows={} empty={} duplicates={} bad={} bytes={} bytes_per_row={:.2}",
        report.rows,
        report.empty,
        report.duplicates,
        report.bad,
        report.file_bytes,
        report.file_bytes as f64 / report.rows.max(1) as f64
    ));
    Ok(())
}

/// Reports on a lookup table, read whole if its bytes are to be verified; `None` if the file is not a lookup table.
pub(crate) fn look(path: &Path, is_verified: bool, as_json: bool) -> Option<Outcome> {
    if !LookupTable::is_at(path) {
        return None;
    }
    let summary = match is_verified {
        true => LookupTable::verify(path),
        false => LookupTable::open(path).map(|table| table.summary()),
    };
    Some(
        summary
            .map_err(|error| Failure::at_start(&Error::from(error)))
            .and_then(|summary| tell(&summary, is_verified, as_json)),
    )
}

fn tell(summary: &TableSummary, is_verified: bool, as_json: bool) -> Outcome {
    let mut out = stdout().lock();
    if as_json {
        let sections: serde_json::Map<String, serde_json::Value> = summary
            .sections
            .iter()
            .map(|section| (section.kind.name().to_owned(), section.length.into()))
            .collect();
        let object = serde_json::json!({
            "kind": "lookup table",
            "rows": summary.rows,
            "empty": summary.empty,
            "duplicates": summary.duplicates,
            "bytes": summary.file_bytes,
            "bytes_per_row": summary.bytes_per_row(),
            "heap_bytes": summary.heap_bytes,
            "templates": summary.template_count,
            "sections": sections,
            "verified": is_verified,
        });
        writeln!(out, "{object}")?;
        return Ok(());
    }
    let (rows, bytes) = (summary.rows, format_size(summary.file_bytes));
    writeln!(out, "lookup table: {rows} rows in {bytes}, {:.2} bytes a row", summary.bytes_per_row())?;
    writeln!(
        out,
        "  rows without a name: {}, replaced while it was built: {}",
        summary.empty, summary.duplicates
    )?;
    writeln!(
        out,
        "  heap when open: {}, templates: {}",
        format_size(summary.heap_bytes as u64),
        summary.template_count
    )?;
    for section in &summary.sections {
        writeln!(out, "  section {}: {}", section.kind.name(), format_size(section.length))?;
    }
    if is_verified {
        writeln!(out, "  every byte was read, and all is as it was written")?;
    }
    Ok(())
}
