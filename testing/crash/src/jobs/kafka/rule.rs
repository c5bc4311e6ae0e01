//! The reader's rule of `delivery: positions`: a message is dropped whose position is not above the last one that was
//! seen in its partition from the same sink.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::reader::Row;

/// Order number, and number among the rows of that record.
pub(super) type Position = (u64, u32);

/// A message with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) position: Position,
    pub(super) row: Row,
}

/// The messages of a partition that stay, and those that are dropped.
///
/// # Errors
/// If one has no headers, or is of another sink.
pub(super) fn apply(rows: &[Row], sink: &str) -> Result<(Vec<Placed>, Vec<Placed>)> {
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    let mut last: BTreeMap<&str, Position> = BTreeMap::new();
    for row in rows {
        let offset = row.offset;
        let (from, position) = (row.sink.as_deref(), row.position.as_deref());
        let (from, position) =
            from.zip(position).with_context(|| format!("message {offset} has no position"))?;
        anyhow::ensure!(from == sink, "message {offset} is of sink {from:?}, expected {sink:?}");
        let position =
            parse(position).with_context(|| format!("message {offset} has position {position:?}"))?;
        let is_above = last.get(from).is_none_or(|last| position > *last);
        let placed = Placed { position, row: row.clone() };
        if is_above {
            last.insert(from, position);
            kept.push(placed);
        } else {
            dropped.push(placed);
        }
    }
    Ok((kept, dropped))
}

/// `SEQ` or `SEQ.INDEX`.
fn parse(text: &str) -> Option<Position> {
    let (order, index) = text.split_once('.').unwrap_or((text, "0"));
    Some((order.parse().ok()?, index.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_above_the_last_position_is_dropped() {
        let row = |offset: i64, position: &str| Row {
            offset,
            made: 0,
            sink: Some("crash/out".to_owned()),
            position: Some(position.to_owned()),
            value: String::new(),
        };
        let rows: Vec<Row> = ["3", "4", "4.1", "4.1", "3", "4", "4.1", "10", "9.2"]
            .iter()
            .zip(0..)
            .map(|(position, offset)| row(offset, position))
            .collect();
        let (kept, dropped) = apply(&rows, "crash/out").unwrap();
        let offsets = |placed: &[Placed]| placed.iter().map(|placed| placed.row.offset).collect::<Vec<_>>();
        assert_eq!((offsets(&kept), offsets(&dropped)), (vec![0, 1, 2, 7], vec![3, 4, 5, 6, 8]));
        assert!(apply(&rows, "crash/other").is_err());
        assert!(apply(&[Row { position: None, ..row(0, "1") }], "crash/out").is_err());
        assert!(apply(&[row(0, "1.x")], "crash/out").is_err());
    }
}
