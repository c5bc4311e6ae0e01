//! `range_join`: the values of the most specific range that an address is in, from CSV, TSV or MMDB files.

use std::path::PathBuf;
use std::sync::Arc;

use thalweg_connect::{JobPath, OptionKind};
use thalweg_enrich::join::{JoinShape, JoinTable, Key};
use thalweg_enrich::range::{Column, Delimited, Layout, RangeColumns, RangeJoin, RangeOptions, ValueColumn};
use thalweg_flow::SystemClock;
use thalweg_types::{DataType, Schema};

use super::{BAD_LINES, ON, OpenTable, Plan, SCHEMA, TAKE, bad_lines, prepare, read_only, split_columns};
use crate::job_file::keys::{KeySpec, Shape};
use crate::operator::{OperatorCheck, OperatorPlugin, Prepared};

pub(in crate::operator) struct RangeJoinPlugin;

const TEXT: Shape = Shape::Option(OptionKind::Text);

const OPTIONS: &[KeySpec] = &[
    KeySpec::new(
        "table",
        Shape::Option(OptionKind::PathList),
        "files of the table: CSV or TSV, plain or gzip, or MMDB",
    )
    .required(),
    SCHEMA,
    ON,
    TAKE,
    BAD_LINES,
    KeySpec::new(
        "header",
        Shape::Option(OptionKind::Bool),
        "whether the first line has the names of the columns; if not, they are in the order of `schema`",
    )
    .default("false"),
    KeySpec::new(
        "delimiter",
        TEXT,
        "character between cells. If absent: a tab for `.tsv`, otherwise a comma",
    ),
    KeySpec::new("first", TEXT, "column with the first address of a range").default("first"),
    KeySpec::new("last", TEXT, "column with the last address of a range").default("last"),
    KeySpec::new(
        "prefix",
        TEXT,
        "column with the range as a network (`10.0.0.0/8`), instead of `first` and `last`",
    ),
    KeySpec::new(
        "length",
        TEXT,
        "with `prefix`: column with its length, if no slash precedes it. If absent: a column of whole numbers named `length`",
    ),
];

impl OperatorPlugin for RangeJoinPlugin {
    fn name(&self) -> &'static str {
        "range_join"
    }

    fn doc(&self) -> &'static str {
        "adds fields from a table of address ranges, by the most specific range that holds an address"
    }

    fn page(&self) -> &'static str {
        include_str!("range.md")
    }

    fn options(&self) -> &'static [KeySpec] {
        OPTIONS
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let columns = check.fields("schema");
        let paths = check.options().paths("table").unwrap_or_default().to_vec();
        let files: Vec<PathBuf> = paths.iter().map(|path| path.as_path().to_owned()).collect();
        let columns = columns?;
        let (layout, shape) = if files.iter().all(|file| is_mmdb(file)) && !files.is_empty() {
            let (_, values) = split_columns(check, &columns, &[])?;
            (Layout::Mmdb, JoinShape { keys: vec![key("network")], values })
        } else {
            delimited(check, &columns)?
        };
        let is_mmdb = matches!(layout, Layout::Mmdb);
        let has_header = check.options().flag("header").unwrap_or(false);
        let values = shape.values.iter().map(|field| {
            let from = match columns.field(&field.name) {
                Some((place, _)) if !is_mmdb && !has_header => Column::Position(place + 1),
                _ => Column::Name(field.name.clone()),
            };
            ValueColumn::string(from, field.name.clone()).with_type(field.data_type.clone())
        });
        let options = RangeOptions {
            files: files.clone(),
            layout,
            values: values.collect(),
            memory_limit: RangeOptions::MEMORY_LIMIT,
        };
        let name = check.name().to_string();
        let open: OpenTable = Arc::new(move || {
            paths.iter().try_for_each(JobPath::recheck)?;
            let table = RangeJoin::open(&name, options.clone(), SystemClock::now())?;
            Ok(Arc::new(table) as Arc<dyn JoinTable>)
        });
        let loads = read_only(files, &open);
        prepare(check, Plan { shape, open, loads })
    }
}

fn is_mmdb(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("mmdb"))
}

fn key(name: &str) -> Key {
    Key { name: name.to_owned(), data_type: DataType::Ip }
}

fn delimited(check: &OperatorCheck<'_>, columns: &Schema) -> Option<(Layout, JoinShape)> {
    let options = check.options();
    let has_header = options.flag("header").unwrap_or(false);
    let column = |name: &str| match columns.field(name) {
        Some((place, _)) if !has_header => Column::Position(place + 1),
        _ => Column::Name(name.to_owned()),
    };
    let delimiter = match options.text("delimiter").map(str::as_bytes) {
        None => None,
        Some([byte]) => Some(*byte),
        Some(b"\\t") => Some(b'\t'),
        Some(_) => {
            check.error("delimiter", "expected one character for \"delimiter\"", None);
            return None;
        }
    };
    let (name, range, values) = match options.text("prefix") {
        Some(prefix) => {
            let by_itself = columns.field("length").filter(|(_, field)| {
                matches!(field.data_type, DataType::UInt64 | DataType::Int64) && prefix != "length"
            });
            let length = options.text("length").or(by_itself.map(|_| "length"));
            let (_, values) = match length {
                None => split_columns(check, columns, &[prefix])?,
                Some(length) => split_columns(check, columns, &[prefix, length])?,
            };
            let range = match length {
                None => RangeColumns::Prefix(column(prefix)),
                Some(length) => RangeColumns::PrefixLength { prefix: column(prefix), length: column(length) },
            };
            (prefix.to_owned(), range, values)
        }
        None => {
            let first = options.text("first").unwrap_or("first");
            let last = options.text("last").unwrap_or("last");
            let (_, values) = split_columns(check, columns, &[first, last])?;
            (first.to_owned(), RangeColumns::FirstLast { first: column(first), last: column(last) }, values)
        }
    };
    let bad_lines = bad_lines(check);
    let layout = Layout::Delimited(Delimited { delimiter, header: has_header, range, bad_lines });
    Some((layout, JoinShape { keys: vec![key(&name)], values }))
}
