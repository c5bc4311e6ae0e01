//! Each feature added up over all answers: what systems are held against each other by.
//!
//! A number counts in hundredths, rounded where no average of them stands ([`hundredths`]); a merchant counts by its
//! digits, a country by its first letter; null counts nothing. So a feature that is wrong in one answer shows in its
//! total, and the last bits of a sum do not.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::list;
use crate::figures::Figures;

/// By which part two totals may differ: sums that round to another cent.
const ROUNDED: f64 = 1e-6;

/// The same for `quantile`, which is within 1 % of an exact value.
const SKETCHED: f64 = 0.01;

/// By the names of the features, in their order; `None` where a system does not compute it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Totals(Vec<(String, Option<i128>)>);

impl Totals {
    /// Of a CSV file of our answers.
    pub(super) fn of_answers(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        let mut lines = BufReader::with_capacity(1 << 20, file).lines();
        let header = lines.next().context("an empty file")??;
        let columns: Vec<&str> = header.split(',').collect();
        let mut totals = Vec::new();
        for name in list::names() {
            let place = columns.iter().position(|column| *column == name);
            totals.push((place.with_context(|| format!("no column {name} in {header}"))?, name, 0));
        }
        for line in lines {
            let line = line?;
            let cells: Vec<&str> = line.split(',').collect();
            for (place, name, total) in &mut totals {
                let cell = cells.get(*place).with_context(|| format!("no {name} in {line:?}"))?;
                *total += worth(cell).with_context(|| format!("{name} of {line:?}"))?;
            }
        }
        Ok(Self(totals.into_iter().map(|(_, name, total)| (name, Some(total))).collect()))
    }

    /// Of the line that a peer prints, with pairs such as `card_1h.spent=123`.
    pub(super) fn of_figures(figures: &Figures) -> Result<Self> {
        let total = |name: String| {
            let Ok(text) = figures.text(&name) else { return Ok((name, None)) };
            let total = text.parse().with_context(|| format!("{name}={text} is no total"))?;
            Ok((name, Some(total)))
        };
        Ok(Self(list::names().map(total).collect::<Result<_>>()?))
    }

    /// Features that a system does not compute.
    pub(super) fn missing(&self) -> Vec<&str> {
        self.0.iter().filter(|(_, total)| total.is_none()).map(|(name, _)| name.as_str()).collect()
    }

    /// An error that names the feature whose totals differ.
    pub(super) fn must_equal(&self, other: &Self) -> Result<()> {
        for ((name, ours), (_, theirs)) in self.0.iter().zip(&other.0) {
            let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
            let allowed = if name.ends_with(".median") { SKETCHED } else { ROUNDED };
            let difference = (ours - theirs).abs() as f64;
            ensure!(
                difference <= allowed * (ours.abs() as f64) + 1.0,
                "{name} adds up to {ours} and to {theirs}"
            );
        }
        Ok(())
    }
}

/// Added before hundredths are rounded. Half of all averages of two amounts end in half a cent, which the last bit of a sum
/// would round up or down; a remainder of 0.18613 is that of no average of fewer than 100,000.
const OFF_HALVES: f64 = 0.31387;

/// A number as it counts; the peers do the same.
pub(super) fn hundredths(number: f64) -> i128 {
    (number * 100.0 + OFF_HALVES).round() as i128
}

/// What a cell counts.
fn worth(cell: &str) -> Option<i128> {
    if cell.is_empty() {
        return Some(0);
    }
    if let Ok(number) = cell.parse::<f64>() {
        return Some(hundredths(number));
    }
    match cell.strip_prefix('m').map(str::parse::<i128>) {
        Some(Ok(merchant)) => Some(merchant),
        _ => cell.bytes().next().map(i128::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_count_what_they_are() {
        let worths = ["", "2", "12.345", "m00017", "DE"].map(worth);
        assert_eq!(worths, [Some(0), Some(200), Some(1235), Some(17), Some(68)]);
    }

    #[test]
    fn a_total_that_differs_is_named() {
        let line =
            |median: u64, n: u64| Figures::parse(&format!("card_30d.median={median} card_1m.n={n}")).unwrap();
        let totals = |median, n| Totals::of_figures(&line(median, n)).unwrap();
        let same = totals(1_000_000, 5_000);
        assert!(same.must_equal(&totals(1_009_000, 5_000)).is_ok());
        assert!(
            same.must_equal(&totals(1_000_000, 5_100))
                .is_err_and(|error| error.to_string().contains("card_1m.n"))
        );
        assert!(same.must_equal(&totals(1_020_000, 5_000)).is_err());
        assert_eq!(same.missing().len(), 18);
    }
}
