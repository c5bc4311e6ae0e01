//! `lookup_join`: the name of an address, from a table larger than memory.
//!
//! An address that the table has without a name gives the empty text, one that it does not have gives null.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_connect::OptionKind;
use thalweg_enrich::join::{JoinShape, JoinTable, Key};
use thalweg_enrich::lookup::{BuildOptions, CsvOptions, LookupJoin, OpenOptions, TableBuilder, probe_csv};
use thalweg_flow::SystemClock;
use thalweg_types::{DataType, Error, Field};

use super::{Loads, ON, OpenTable, Plan, path_of, prepare};
use crate::job_file::keys::{KeySpec, Shape};
use crate::job_file::section::is_name;
use crate::operator::{OperatorCheck, OperatorPlugin, Prepared};

pub(in crate::operator) struct LookupJoinPlugin;

const OPTIONS: &[KeySpec] = &[
    KeySpec::new("table", Shape::Option(OptionKind::Path), "table, built by `thalweg table build-lookup`")
        .required(),
    KeySpec::new(
        "csv",
        Shape::Option(OptionKind::Path),
        "CSV of addresses and names, without a header; the table is built from it at the start, if it does not exist or is older",
    ),
    ON,
    KeySpec::new("value", Shape::Option(OptionKind::Text), "name of the added field, after its prefix")
        .default("name"),
    KeySpec::new(
        "page_cache",
        Shape::Option(OptionKind::Size),
        "limit for the table in the page cache; pages beyond it are returned to the kernel",
    )
    .default("1GiB"),
];

impl OperatorPlugin for LookupJoinPlugin {
    fn name(&self) -> &'static str {
        "lookup_join"
    }

    fn doc(&self) -> &'static str {
        "adds the name of an address, from a table that may be larger than memory"
    }

    fn page(&self) -> &'static str {
        include_str!("lookup.md")
    }

    fn options(&self) -> &'static [KeySpec] {
        OPTIONS
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let value = check.options().text("value").unwrap_or("name").to_owned();
        if !is_name(&value) {
            check.error("value", format!("{value:?} is no name for a field"), None);
            return None;
        }
        let shape = JoinShape {
            keys: vec![Key { name: "address".to_owned(), data_type: DataType::Ip }],
            values: vec![Field::new(value, DataType::String).nullable()],
        };
        let path = path_of(check, "table");
        let mut options = OpenOptions::default();
        if let Some(bytes) = check.options().size("page_cache") {
            options.resident = bytes;
        }
        let csv = check.options().path("csv").cloned();
        let name = check.name().to_string();
        let files: Vec<PathBuf> =
            [Some(&path), csv.as_ref()].into_iter().flatten().map(|path| path.to_path_buf()).collect();
        let load = Arc::new(move |is_probe: bool| {
            path.recheck()?;
            if let Some(csv) = &csv {
                csv.recheck()?;
                let in_build = |error: Error| error.context(format!("build the table of operator {name:?}"));
                match is_probe {
                    true if is_older(&path, csv) => {
                        return probe_csv(csv).map_err(|error| in_build(error.into())).map(|()| None);
                    }
                    true => {}
                    false => build(&path, csv).map_err(in_build)?,
                }
            }
            LookupJoin::open(&name, path.to_path_buf(), options, SystemClock::now()).map(Some)
        });
        let probed = Arc::clone(&load);
        let open: OpenTable = Arc::new(move || match load(false)? {
            Some(table) => Ok(Arc::new(table) as Arc<dyn JoinTable>),
            None => Err(Error::internal("a table is opened when it is built")),
        });
        let loads = Loads { files, probe: Arc::new(move || probed(true).map(drop)) };
        prepare(check, Plan { shape, open, loads })
    }
}

/// Whether a table is not there, or older than its CSV file.
fn is_older(table: &Path, csv: &Path) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    changed(table).is_none_or(|built| changed(csv).is_some_and(|written| written > built))
}

/// Builds a table of a CSV file that is newer, or the first.
fn build(table: &Path, csv: &Path) -> Result<(), Error> {
    if !is_older(table, csv) {
        return Ok(());
    }
    let mut builder = TableBuilder::new(table, BuildOptions::default());
    builder.push_csv(csv, CsvOptions::default())?;
    builder.finish()?;
    Ok(())
}
