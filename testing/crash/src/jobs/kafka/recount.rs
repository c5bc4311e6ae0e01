//! What the output has to be, and whether it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::super::payments::Record;
use super::super::windows::model::{Model, Verdict, is_same};
use super::Delivery;
use super::reader::Row;
use super::rule::{self, Placed};
use crate::ledger::Run;

/// Partition and offset of a record of the input topic.
type Place = (usize, i64);

/// The answer that a record has to have.
struct Answer {
    /// The order number of the record.
    order: u64,
    value: Value,
}

/// All answers, and records that are late.
pub(super) struct Expected {
    answers: BTreeMap<Place, Answer>,
    /// By their number in the source.
    pub(super) late: BTreeSet<u64>,
}

/// A record of the input topic: its offset, and what it says.
pub(super) fn record(row: &Row) -> Result<(i64, Record)> {
    let value: Value = serde_json::from_str(&row.value).with_context(|| row.value.clone())?;
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let quarters = value["amount"].as_f64().context("no amount")? * 4.0;
    let record = Record {
        ts: value["ts"].as_i64().context("no time")?,
        id: text("id"),
        card: text("card"),
        shop: text("shop"),
        quarters: quarters as i64,
    };
    Ok((row.offset, record))
}

impl Expected {
    /// Answers the records of all partitions in the order in which the order log names them.
    ///
    /// # Errors
    /// If it names too many or too few.
    pub(super) fn of(input: &[Vec<(i64, Record)>], runs: impl Iterator<Item = Run>) -> Result<Self> {
        let mut next = vec![0; input.len()];
        let (mut answers, mut late, mut model) = (BTreeMap::new(), BTreeSet::new(), Model::default());
        for run in runs {
            let partition = run.partition as usize;
            let records = input.get(partition).context("the order names a partition that is none")?;
            for number in 0..run.count {
                let at = &mut next[partition];
                let (offset, record) = records.get(*at).with_context(|| {
                    format!("the order names record {at} of partition {partition}, which has none")
                })?;
                *at += 1;
                let (verdict, mut value) = model.next(record);
                value["_partition"] = json!(partition);
                value["_offset"] = json!(offset);
                if verdict == Verdict::Late {
                    late.insert(run.first + number);
                }
                answers.insert((partition, *offset), Answer { order: run.order + number, value });
            }
        }
        for (partition, (records, next)) in input.iter().zip(next).enumerate() {
            let count = records.len();
            ensure!(next == count, "the order names {next} of {count} records of partition {partition}");
        }
        Ok(Self { answers, late })
    }

    /// Compares the output topic with the answers; returns how many messages the reader's rule has dropped.
    ///
    /// # Errors
    /// What is lost, double, of another value, or in another order.
    pub(super) fn check(&self, output: &[Vec<Row>], delivery: Delivery, starts: &[Start]) -> Result<u64> {
        let mut kept: Vec<Vec<Kept>> = Vec::new();
        let mut dropped = 0;
        for (partition, rows) in output.iter().enumerate() {
            let of = || format!("partition {partition} of the output");
            let rows = match delivery {
                Delivery::Positions => {
                    let (kept, again) = rule::apply(rows, "crash/out").with_context(of)?;
                    explain(&kept, &again, starts).with_context(of)?;
                    dropped += again.len() as u64;
                    kept.into_iter().map(|Placed { position, row }| (row, Some(position))).collect::<Vec<_>>()
                }
                Delivery::Transactions => rows.iter().map(|row| (row.clone(), None)).collect(),
            };
            kept.push(rows.into_iter().map(Kept::of).collect::<Result<_>>().with_context(of)?);
        }
        self.count(&kept, starts)?;
        let mut homes: HashMap<&str, usize> = HashMap::new();
        for (partition, rows) in kept.iter().enumerate() {
            let mut last = None;
            for row in rows {
                let Kept { place, position, value, .. } = row;
                let named = || format!("the answer to {}[{}] in partition {partition}", place.0, place.1);
                let expected = &self.answers[place];
                ensure!(
                    is_same(value, &expected.value),
                    "{} is {value}, expected {}",
                    named(),
                    expected.value
                );
                ensure!(last < Some(expected.order), "{} comes after that of a later record", named());
                last = Some(expected.order);
                if let Some(position) = position {
                    ensure!(
                        *position == (expected.order, 0),
                        "{} has position {position:?}, and its record order number {}",
                        named(),
                        expected.order
                    );
                }
                let card = value["card"].as_str().unwrap_or_default();
                let home = *homes.entry(card).or_insert(partition);
                ensure!(home == partition, "{}: others of its key are in partition {home}", named());
            }
        }
        Ok(dropped)
    }

    /// Each record has one answer.
    fn count(&self, kept: &[Vec<Kept>], starts: &[Start]) -> Result<()> {
        let mut counts: BTreeMap<Place, u64> = self.answers.keys().map(|place| (*place, 0)).collect();
        for Kept { place, value, .. } in kept.iter().flatten() {
            *counts.get_mut(place).with_context(|| format!("an answer to no record: {value}"))? += 1;
        }
        let of = |is_it: fn(u64) -> bool| -> Vec<Place> {
            counts.iter().filter(|(_, count)| is_it(**count)).map(|(place, _)| *place).collect()
        };
        let (lost, double) = (of(|count| count == 0), of(|count| count > 1));
        let first = |places: &[Place]| match places.first() {
            Some((partition, offset)) => format!(" (first {partition}[{offset}])"),
            None => String::new(),
        };
        ensure!(
            lost.is_empty() && double.is_empty(),
            "of {} records lost={}{} double={}{}{}",
            counts.len(),
            lost.len(),
            first(&lost),
            double.len(),
            first(&double),
            double.first().map_or(String::new(), |place| copies(*place, kept, starts))
        );
        Ok(())
    }
}

/// Where the answers to a record are, and which process has written each.
fn copies(place: Place, kept: &[Vec<Kept>], starts: &[Start]) -> String {
    let all =
        kept.iter().enumerate().flat_map(|(partition, rows)| rows.iter().map(move |row| (partition, row)));
    let copies = all.filter(|(_, row)| row.place == place).map(|(partition, row)| {
        let writer = starts.iter().rposition(|start| start.from <= row.made);
        format!("; at {partition}[{}], {} ms, by start {writer:?}", row.offset, row.made)
    });
    copies.collect()
}

/// A message that stays.
struct Kept {
    place: Place,
    /// Its offset, and when it was made.
    offset: i64,
    made: i64,
    position: Option<rule::Position>,
    value: Value,
}

impl Kept {
    fn of((row, position): (Row, Option<rule::Position>)) -> Result<Self> {
        let value: Value = serde_json::from_str(&row.value).with_context(|| row.value.clone())?;
        let place = value["_partition"].as_u64().zip(value["_offset"].as_i64());
        let (partition, offset) = place.with_context(|| format!("an answer without a place: {value}"))?;
        let place = (partition as usize, offset);
        Ok(Self { place, offset: row.offset, made: row.made, position, value })
    }
}

/// A process of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// In milliseconds since 1970.
    pub(super) from: i64,
    /// It has said that rows were not written, or may not have been.
    pub(super) has_repeated: bool,
}

/// A message may be there again only behind a kill, which is to say by another process, or behind a write that was given
/// up; and it has to be the same.
fn explain(kept: &[Placed], again: &[Placed], starts: &[Start]) -> Result<()> {
    let mut copies: BTreeMap<rule::Position, Vec<&Row>> = BTreeMap::new();
    for placed in again {
        copies.entry(placed.position).or_default().push(&placed.row);
    }
    for placed in kept {
        let Some(again) = copies.remove(&placed.position) else { continue };
        let mut writers = BTreeSet::new();
        for row in again.iter().copied().chain([&placed.row]) {
            ensure!(
                row.value == placed.row.value,
                "position {:?} is at offset {} {}, and at {} {}",
                placed.position,
                placed.row.offset,
                placed.row.value,
                row.offset,
                row.value
            );
            let writer = starts.iter().rposition(|start| start.from <= row.made);
            let writer =
                writer.with_context(|| format!("offset {} was written before all starts", row.offset))?;
            ensure!(
                writers.insert(writer) || starts[writer].has_repeated,
                "position {:?} was written twice by start {writer}, which had no trouble",
                placed.position
            );
        }
    }
    let left = copies.keys().next();
    ensure!(left.is_none(), "position {left:?} was written after a later one, and never before it");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(order: u64, offset: i64, made: i64, value: &str) -> Placed {
        let row = Row { offset, made, sink: None, position: None, value: value.to_owned() };
        Placed { position: (order, 0), row }
    }

    #[test]
    fn a_repeat_needs_another_process_or_trouble() {
        let start = |from, has_repeated| Start { from, has_repeated };
        let kept = [placed(1, 0, 15, "a")];
        let explained = |made, value: &str, starts: &[Start]| {
            explain(&kept, &[placed(1, 7, made, value)], starts).map_err(|error| error.to_string())
        };
        let calm = [start(10, false), start(20, false)];
        assert_eq!(explained(25, "a", &calm), Ok(()));
        assert!(explained(16, "a", &calm).is_err(), "the same process");
        assert_eq!(explained(16, "a", &[start(10, true)]), Ok(()));
        assert!(explained(25, "b", &calm).is_err(), "another value");
        assert!(explained(5, "a", &calm).is_err(), "nobody ran");
        assert!(explain(&[], &[placed(1, 7, 25, "a")], &calm).is_err(), "the first one is missing");
    }

    fn answer(value: &mut Value, place: Place) -> Row {
        value["_partition"] = json!(place.0);
        value["_offset"] = json!(place.1);
        Row { offset: 0, made: 0, sink: None, position: None, value: value.to_string() }
    }

    #[test]
    fn lost_double_moved_and_changed_answers_are_found() {
        let record = |ts, id: &str| Record {
            ts,
            id: id.to_owned(),
            card: "c".to_owned(),
            shop: "s".to_owned(),
            quarters: 4,
        };
        let input = [vec![(0, record(1_000, "a")), (2, record(1_010, "b"))]];
        let run = |order, first, count| Run { order, source: 0, partition: 0, first, count, arrival: 0 };
        let expected = Expected::of(&input, [run(5, 0, 1), run(9, 1, 1)].into_iter()).unwrap();
        assert!(Expected::of(&input, [run(5, 0, 1)].into_iter()).is_err(), "one is not read");
        assert!(Expected::of(&input, [run(5, 0, 3)].into_iter()).is_err(), "one too many is read");
        let mut model = Model::default();
        let rows: Vec<Row> =
            input[0].iter().map(|(offset, record)| answer(&mut model.next(record).1, (0, *offset))).collect();
        let check = |rows: &[&Row]| {
            let rows = rows.iter().map(|row| (*row).clone()).collect();
            let outcome = expected.check(&[rows, Vec::new()], Delivery::Transactions, &[]);
            outcome.map_err(|error| format!("{error:#}"))
        };
        assert_eq!(check(&[&rows[0], &rows[1]]), Ok(0));
        let said = check(&[&rows[0]]).unwrap_err();
        assert!(said.contains("lost=1 (first 0[2]) double=0"), "{said}");
        let said = check(&[&rows[0], &rows[1], &rows[1]]).unwrap_err();
        assert!(said.contains("lost=0 double=1 (first 0[2])"), "{said}");
        assert!(check(&[&rows[1], &rows[0]]).is_err(), "another order");
        let changed = Row { value: rows[1].value.replace("\"n\":2", "\"n\":3"), ..rows[1].clone() };
        assert_ne!(changed, rows[1]);
        assert!(check(&[&rows[0], &changed]).is_err(), "another value");
    }
}
