//! The functions over columns.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, FixedSizeBinaryBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array};
use datafusion::common::{DataFusionError, ScalarValue, exec_datafusion_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use thalweg_types::{IpNetwork, is_ipv4};

use super::address::{Lengths, parse};
use super::{ADDRESS, Kind, LEN6};
use crate::output::address;

/// Evaluates a function. Null in gives null out.
pub(super) fn apply(kind: Kind, args: &ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
    let one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if one { 1 } else { args.number_rows };
    let columns = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>, _>>()?;
    let [first, rest @ ..] = columns.as_slice() else {
        return Err(exec_datafusion_err!("a function of addresses without an argument"));
    };
    let out: ArrayRef = match kind {
        Kind::Ip => addresses(rows, |row| Ok(read(first, row)))?,
        Kind::IpText => texts(rows, |row, out| {
            let Some(octets) = read(first, row) else { return Ok(false) };
            address(&octets, out);
            Ok(true)
        })?,
        Kind::Prefix => texts(rows, |row, out| {
            let (Some(octets), Some(lengths)) = (read(first, row), lengths(rest, row)?) else {
                return Ok(false);
            };
            lengths.write(octets, out);
            Ok(true)
        })?,
        Kind::Network => addresses(rows, |row| {
            let (Some(octets), Some(lengths)) = (read(first, row), lengths(rest, row)?) else {
                return Ok(None);
            };
            Ok(Some(lengths.network(octets)))
        })?,
        Kind::InNetwork => within(first, rest, rows)?,
        Kind::Family => {
            let family = |octets: [u8; 16]| if is_ipv4(&octets) { 4 } else { 6 };
            Arc::new((0..rows).map(|row| read(first, row).map(family)).collect::<Int64Array>())
        }
    };
    Ok(if one {
        ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?)
    } else {
        ColumnarValue::Array(out)
    })
}

/// The address in a row of addresses or of texts.
fn read(column: &ArrayRef, row: usize) -> Option<[u8; 16]> {
    if column.is_null(row) {
        return None;
    }
    if *column.data_type() == ADDRESS {
        column.as_fixed_size_binary().value(row).try_into().ok()
    } else {
        parse(column.as_string_view().value(row))
    }
}

/// The lengths in a row; `None` where one is null.
fn lengths(columns: &[ArrayRef], row: usize) -> Result<Option<Lengths>, DataFusionError> {
    let at = |place: usize| match columns.get(place) {
        None => Some(LEN6),
        Some(column) if column.is_null(row) => None,
        Some(column) => Some(column.as_primitive::<Int64Type>().value(row)),
    };
    let (Some(four), Some(six)) = (at(0), at(1)) else { return Ok(None) };
    Lengths::new(four, six).map(Some).map_err(|error| exec_datafusion_err!("{error}"))
}

fn within(column: &ArrayRef, rest: &[ArrayRef], rows: usize) -> Result<ArrayRef, DataFusionError> {
    let mut out = BooleanBuilder::with_capacity(rows);
    let networks = rest.first().map(|column| column.as_string_view());
    // Nearly always all rows have the same.
    let mut known: Option<(&str, IpNetwork)> = None;
    for row in 0..rows {
        let network = networks.filter(|networks| networks.is_valid(row)).map(|networks| networks.value(row));
        let (Some(octets), Some(text)) = (read(column, row), network) else {
            out.append_null();
            continue;
        };
        let network = match known {
            Some((same, network)) if same == text => network,
            _ => IpNetwork::parse(text).ok_or_else(|| {
                exec_datafusion_err!("in_network: expected a network such as 10.0.0.0/8, got {text:?}")
            })?,
        };
        known = Some((text, network));
        out.append_value(network.contains(octets));
    }
    Ok(Arc::new(out.finish()))
}

fn addresses(
    rows: usize,
    mut of: impl FnMut(usize) -> Result<Option<[u8; 16]>, DataFusionError>,
) -> Result<ArrayRef, DataFusionError> {
    let mut out = FixedSizeBinaryBuilder::with_capacity(rows, 16);
    for row in 0..rows {
        match of(row)? {
            Some(octets) => out.append_value(octets)?,
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

/// Texts by a function that appends to an empty one, and says whether there is one.
fn texts(
    rows: usize,
    mut write: impl FnMut(usize, &mut String) -> Result<bool, DataFusionError>,
) -> Result<ArrayRef, DataFusionError> {
    let mut out = StringViewBuilder::with_capacity(rows);
    let mut text = String::new();
    for row in 0..rows {
        text.clear();
        if write(row, &mut text)? { out.append_value(&text) } else { out.append_null() }
    }
    Ok(Arc::new(out.finish()))
}
