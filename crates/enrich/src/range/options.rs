//! Which files make a range table, and what of them it takes.

use std::path::PathBuf;

use thalweg_types::{DataType, Error, Field, Schema};

use crate::BadLines;

/// Everything that [`RangeTable::load`](super::RangeTable::load) has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeOptions {
    /// Together these make one table, say one of IPv4 and one of IPv6; all have the same layout.
    pub files: Vec<PathBuf>,
    pub layout: Layout,
    /// May be empty: such a table knows which addresses are in it.
    pub values: Vec<ValueColumn>,
    /// Bytes that ranges and rows may take while they are loaded; beyond, loading fails.
    ///
    /// A small packed file may hold any amount of text, so its size on disk bounds nothing.
    pub memory_limit: u64,
}

impl RangeOptions {
    /// Over ten times what the largest public tables of autonomous systems and cities take.
    pub const MEMORY_LIMIT: u64 = 2 << 30;

    /// The value columns as fields, each nullable.
    pub(super) fn schema(&self) -> Schema {
        let field = |value: &ValueColumn| Field::new(&value.name, value.data_type.clone()).nullable();
        Schema::new(self.values.iter().map(field).collect::<Vec<_>>())
    }

    /// # Errors
    /// Where no file is named, the delimiter is no mark between cells, a value has a type that tables do not
    /// keep, or two have one name.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.files.is_empty() {
            return Err(Error::user("range table: expected at least one file, got none")
                .with_hint("name the files that hold the ranges"));
        }
        if let Layout::Delimited(Delimited { delimiter: Some(delimiter), .. }) = &self.layout
            && (!delimiter.is_ascii() || matches!(delimiter, b'"' | b'\n' | b'\r'))
        {
            return Err(Error::user(format!(
                "range table: expected an ASCII delimiter other than quotation mark and line break, got {:?}",
                char::from(*delimiter)
            ))
            .with_hint("such as a comma, a semicolon or a tab"));
        }
        for (index, value) in self.values.iter().enumerate() {
            if self.values[..index].iter().any(|other| other.name == value.name) {
                return Err(Error::user(format!("range table: two values are named {:?}", value.name))
                    .with_hint("give one of them another name"));
            }
            if !matches!(
                value.data_type,
                DataType::Bool | DataType::Int64 | DataType::UInt64 | DataType::Float64 | DataType::String
            ) {
                return Err(Error::user(format!(
                    "range table: value {:?}: expected type string, uint64, int64, float64 or bool, got {}",
                    value.name, value.data_type
                ))
                .with_hint("take it as string and cast it in the query"));
            }
        }
        Ok(())
    }
}

/// How the files are laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Lines of cells, plain or packed with gzip.
    Delimited(Delimited),
    /// MaxMind's binary format; a value's [`Column::Name`] is a path such as `country.iso_code`.
    Mmdb,
}

/// Lines of cells.
///
/// Cells separated by tabs are taken as they are; all others may be quoted as in CSV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delimited {
    /// `None` takes a tab where a file's name ends in `.tsv` or `.tab` (before `.gz`), else a comma.
    pub delimiter: Option<u8>,
    /// Whether the first line names the columns.
    pub header: bool,
    pub range: RangeColumns,
    pub bad_lines: BadLines,
}

/// Where a line says which addresses it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeColumns {
    /// The first and the last address, both part of the range.
    FirstLast { first: Column, last: Column },
    /// A network such as `192.0.2.0/24`, or one address.
    Prefix(Column),
    /// The first address of a network, and the length of its prefix, as in RouteViews' pfx2as; a network with a slash says its
    /// own.
    PrefixLength { prefix: Column, length: Column },
}

/// A column of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// As the header names it; in MMDB a path of keys, and of numbers from 0 in lists, joined by dots.
    Name(String),
    /// From 1, with a header too.
    Position(usize),
}

impl std::fmt::Display for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Column::Name(name) => write!(f, "column {name:?}"),
            Column::Position(position) => write!(f, "column {position}"),
        }
    }
}

/// A column that becomes a value of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueColumn {
    pub from: Column,
    pub name: String,
    /// One of string, uint64, int64, float64 and bool.
    pub data_type: DataType,
}

impl ValueColumn {
    /// A text column.
    pub fn string(from: Column, name: impl Into<String>) -> Self {
        Self { from, name: name.into(), data_type: DataType::String }
    }

    #[must_use]
    pub fn with_type(mut self, data_type: DataType) -> Self {
        self.data_type = data_type;
        self
    }
}
