//! Figure 9b of Gomes et al. (2021): many windows that share no edge.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Options;
use super::windows::{Case, Point, RATE, spread, tell};
use crate::load::now;
use crate::plot::Chart;
use crate::report::{Report, count};
use thalweg_harness::Tally;

/// The history, which the first window just covers.
const SPAN: Duration = Duration::from_secs(3_603);

/// What Railgun promises at p99.9.
const RAILGUN: &str = "250 ms";

pub(super) fn table(options: &Options, binary: &Path, report: &mut Report) -> Result<()> {
    report.heading("By number of windows");
    report.say(&format!(
        "Figure 9b of Gomes et al. (2021): `sum(amount)`, `avg(amount)` and `count(*)` per card over windows whose lengths and delays differ, so that no two share a head or a tail: a window has two edges here, where Railgun has two iterators. {RATE} requests a second, {} cards, `ack: {}`; before, {} records are spread over the hour. Railgun keeps p99.9 below {RAILGUN} up to 210 iterators.",
        count(options.cards as f64),
        options.ack,
        count(options.scaled(options.history) as f64),
    ));
    let measure = |number: &usize| -> Result<Point> {
        let case = Case {
            binary,
            ack: &options.ack,
            queries: queries(*number)?,
            history: spread(now() - SPAN, SPAN, options.scaled(options.history)).collect(),
            cards: options.scaled(options.cards),
            rate: RATE,
            seconds: options.seconds(),
            connections: options.connections,
        };
        case.measure(number.to_string(), *number as f64)
    };
    let points = options.numbers.iter().map(measure).collect::<Result<Vec<Point>>>()?;
    let chart = Chart {
        title: "Latency by number of windows".to_owned(),
        x: "windows".to_owned(),
        y: String::new(),
        log_x: false,
        series: Vec::new(),
    };
    tell(options, report, &points, "windows", chart, "latency-number.svg")
}

/// Length and delay of a window, in seconds.
fn window(index: usize) -> (usize, usize) {
    (3_600 - 13 * index, 3 + 7 * index)
}

/// Queries whose windows share no edge.
fn queries(number: usize) -> Result<Vec<(String, String)>> {
    ensure!(number <= MOST, "at most {MOST} windows share no edge here, got {number}");
    let query = |index| {
        let (length, delay) = window(index);
        let text = format!(
            "SELECT sum(amount) AS s, avg(amount) AS a, count(*) AS n FROM payments GROUP BY card OVER SLIDING {length} SECONDS DELAYED BY {delay} SECONDS"
        );
        (format!("w{index}"), text)
    };
    Ok((0..number).map(query).collect())
}

/// From here on heads would meet tails.
const MOST: usize = 250;

pub(super) fn smoke(binary: &Path, tally: &mut Tally) -> Result<()> {
    let case = Case {
        binary,
        ack: "synced",
        queries: queries(20)?,
        history: spread(now() - SPAN, SPAN, 500).collect(),
        cards: 50,
        rate: 50,
        seconds: 1,
        connections: 4,
    };
    let outcome = case.measure(String::new(), 0.0).and_then(|point| point.must_have_no_errors());
    tally.check("latency: requests are answered with all of twenty windows", outcome);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_edges_are_shared() {
        let mut edges: Vec<usize> =
            (0..MOST).map(window).flat_map(|(length, delay)| [delay, delay + length]).collect();
        edges.sort_unstable();
        edges.dedup();
        assert_eq!(edges.len(), 2 * MOST);
    }
}
