//! Loads MaxMind's binary format: every network of its tree becomes a range.
//!
//! A database of IPv6 keeps IPv4 under `::/96`, and its tree leads there from `::ffff:0:0/96`, `2002::/16` and
//! other blocks again. Entries under `::/96` become IPv4 ranges, once; the other ways there are left out.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use maxminddb::{MaxMindDbError, PathElement, Reader, WithinOptions};
use serde::de::{self, Deserialize, Deserializer, IgnoredAny};
use thalweg_types::{Error, format_size};

use super::build::{ALL_V4, Builder};
use super::cell::Cell;
use super::options::{Column, ValueColumn};
use super::span::Span;
use crate::text::{open, read_error};

/// How many ways may lead to a place in the tree, on average.
///
/// A well-formed tree has one for each, aliases aside; one in which all nodes lead to the next one twice would
/// never be walked to its end.
const WAYS: u64 = 64;

/// Adds all networks of a file.
///
/// # Errors
/// If the file is not such a database, is larger than `memory_limit`, or a value has another type than asked for.
pub(super) fn load(
    path: &Path,
    values: &[ValueColumn],
    memory_limit: u64,
    builder: &mut Builder,
) -> Result<(), Error> {
    let in_file = |error: Error| error.context(format!("read {path:?}"));
    let paths = values.iter().map(steps).collect::<Result<Vec<_>, _>>().map_err(in_file)?;
    let (file, identity) = open(path)?;
    if identity.size > memory_limit {
        return Err(in_file(
            Error::user(format!(
                "expected a file of at most {}, got {}",
                format_size(memory_limit),
                format_size(identity.size)
            ))
            .with_hint("check that the file is the right one, or raise memory_limit"),
        ));
    }
    let mut bytes = Vec::new();
    file.take(memory_limit).read_to_end(&mut bytes).map_err(|error| read_error(path, error))?;
    let mut networks = Networks { values, paths, rows: HashMap::new(), is_found: vec![false; values.len()] };
    networks.load(bytes, builder).map_err(in_file)?;
    builder.add_file(path.to_owned(), identity);
    Ok(())
}

struct Networks<'a> {
    values: &'a [ValueColumn],
    paths: Vec<Vec<PathElement<'a>>>,
    /// Rows by where their record is in the file: most records belong to several networks.
    rows: HashMap<usize, u32>,
    /// Which values some record had.
    is_found: Vec<bool>,
}

impl Networks<'_> {
    fn load(&mut self, bytes: Vec<u8>, builder: &mut Builder) -> Result<(), Error> {
        let reader = Reader::from_source(bytes).map_err(not_a_database)?;
        // Without a tree of IPv4 under ::/96, a path to the same record is not another way to it.
        let lookup = reader.lookup(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).map_err(not_a_database)?;
        let options = match lookup.network().map_err(not_a_database)?.ip() {
            IpAddr::V4(_) => WithinOptions::default(),
            IpAddr::V6(_) => WithinOptions::default().include_aliased_networks(),
        };
        let before = builder.given();
        let mut known = String::new();
        // A tree has one leaf more than it has nodes.
        let mut leaves = WAYS * (u64::from(reader.metadata().node_count) + 1);
        for network in reader.networks(options.include_networks_without_data()).map_err(not_a_database)? {
            let network = network.map_err(not_a_database)?;
            leaves = leaves.checked_sub(1).ok_or_else(tangled)?;
            let Some(offset) = network.offset() else { continue };
            let prefix = network.network().map_err(not_a_database)?;
            let in_network = |error: Error| error.context(format!("network {prefix}"));
            let row = match self.rows.get(&offset) {
                Some(row) => *row,
                None => {
                    if self.rows.is_empty() {
                        known = keys(&network);
                    }
                    let row = self.row(&network, builder).map_err(in_network)?;
                    self.rows.insert(offset, row);
                    row
                }
            };
            let length = u32::from(prefix.prefix());
            if prefix.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && length <= 96 {
                builder.add(ALL_V4, row).map_err(in_network)?;
            }
            let span = Span::around(prefix.ip(), length).map_err(|problem| {
                in_network(Error::user(format!("expected {}", problem.expected)).with_hint(problem.hint))
            })?;
            builder.add(span, row).map_err(in_network)?;
        }
        if builder.given() == before {
            return Err(Error::user("expected at least one network with a record, got none")
                .with_hint("fetch the file again"));
        }
        match self.is_found.iter().position(|is_found| !is_found) {
            None => Ok(()),
            Some(missing) => {
                Err(Error::user(format!("no record has a value at {}", self.values[missing].from))
                    .with_hint(format!("records begin with the keys {known}; join keys by dots")))
            }
        }
    }

    fn row(
        &mut self,
        network: &maxminddb::LookupResult<'_, Vec<u8>>,
        builder: &mut Builder,
    ) -> Result<u32, Error> {
        let mut texts: Vec<Option<String>> = Vec::with_capacity(self.paths.len());
        for ((value, path), is_found) in self.values.iter().zip(&self.paths).zip(&mut self.is_found) {
            let scalar: Option<Scalar> = network.decode_path(path).map_err(|error| {
                Error::user(format!("{}: expected a text, a number or a truth value", value.from))
                    .with_hint("name the path of one value, such as country.iso_code")
                    .with_source(error)
            })?;
            *is_found |= scalar.is_some();
            texts.push(scalar.map(|scalar| scalar.0));
        }
        let mut cells = Vec::with_capacity(texts.len());
        for (value, text) in self.values.iter().zip(&texts) {
            let text = text.as_deref().unwrap_or_default();
            cells.push(Cell::parse(text, &value.data_type).ok_or_else(|| {
                Error::user(format!("{}: expected {}", value.from, Cell::expected(&value.data_type)))
                    .with_private(format!(", got {text:?}"))
                    .with_hint("take it as string where not all of its values are such")
            })?);
        }
        builder.row(&cells)
    }
}

/// The steps of a path: numbers lead into lists, all else into maps.
fn steps(value: &ValueColumn) -> Result<Vec<PathElement<'_>>, Error> {
    let Column::Name(path) = &value.from else {
        return Err(Error::user(format!(
            "{}: expected a path, as records have no columns, got a position",
            value.from
        ))
        .with_hint("name the path of one value, such as country.iso_code"));
    };
    let step = |step| str::parse(step).map_or(PathElement::Key(step), PathElement::Index);
    Ok(path.split('.').map(step).collect())
}

/// The keys of a record, for the hint where a path leads nowhere.
fn keys(network: &maxminddb::LookupResult<'_, Vec<u8>>) -> String {
    let record: Option<BTreeMap<String, IgnoredAny>> = network.decode().unwrap_or_default();
    let keys: Vec<String> = record.unwrap_or_default().keys().map(|key| format!("{key:?}")).collect();
    keys.join(", ")
}

fn not_a_database(error: MaxMindDbError) -> Error {
    Error::user("expected a database in MaxMind's format")
        .with_hint("unpack it if it is packed (.tar.gz), or fetch it again")
        .with_source(error)
}

fn tangled() -> Error {
    Error::user(format!("expected a tree, got one with over {WAYS} ways to each place"))
        .with_hint("fetch the file again, from whom you trust")
}

/// A value as text, which is then read as what the column is to be.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl de::Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number or a truth value")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar(value.to_owned()))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_f32<E: de::Error>(self, value: f32) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar(value.to_string()))
    }
}
