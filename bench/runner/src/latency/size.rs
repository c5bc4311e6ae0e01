//! Figure 9a of Gomes et al. (2021): the length of the window does not matter.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::Options;
use super::windows::{Case, POSTING, Point, RATE, spread, tell};
use crate::load::{WARM_UP, now};
use crate::plot::Chart;
use crate::report::{Report, count};
use thalweg_harness::Tally;

/// Windows of the figure, by minutes.
const SIZES: [(&str, u64); 4] = [("5 minutes", 5), ("1 hour", 60), ("1 day", 1_440), ("7 days", 10_080)];

pub(super) fn table(options: &Options, binary: &Path, report: &mut Report) -> Result<()> {
    report.heading("By length of the window");
    report.say(&format!(
        "Figure 9a of Gomes et al. (2021): `sum(amount)` per card over one window, {RATE} requests a second, {} cards, `ack: {}`. Before, {} records are spread over the whole window, and as many a second as are sent lie where its tail passes.",
        count(options.cards as f64),
        options.ack,
        count(options.scaled(options.history) as f64),
    ));
    let points =
        SIZES.map(|size| measure(options, binary, size)).into_iter().collect::<Result<Vec<Point>>>()?;
    let chart = Chart {
        title: "Latency by length of the window".to_owned(),
        x: "minutes".to_owned(),
        y: String::new(),
        log_x: true,
        series: Vec::new(),
    };
    tell(options, report, &points, "window", chart, "latency-size.svg")
}

fn measure(options: &Options, binary: &Path, (name, minutes): (&str, u64)) -> Result<Point> {
    let query = format!("SELECT sum(amount) AS s FROM payments GROUP BY card OVER SLIDING {minutes} MINUTES");
    let (window, seconds) = (Duration::from_secs(minutes * 60), options.seconds());
    let case = Case {
        binary,
        ack: &options.ack,
        queries: vec![("w0".to_owned(), query)],
        history: history(now() - window, window, seconds, options.scaled(options.history)),
        cards: options.scaled(options.cards),
        rate: RATE,
        seconds,
        connections: options.connections,
    };
    case.measure(name.to_owned(), minutes as f64)
}

/// Dense where the tail passes until the last request, then spread up to now.
fn history(from: Duration, window: Duration, seconds: u32, number: u64) -> Vec<u64> {
    let dense = Duration::from_secs(u64::from(seconds + WARM_UP)) + POSTING;
    let at_tail = dense.as_secs() * u64::from(RATE);
    spread(from, dense, at_tail).chain(spread(from + dense, window - dense, number)).collect()
}

pub(super) fn smoke(binary: &Path, tally: &mut Tally) -> Result<()> {
    let query = "SELECT sum(amount) AS s FROM payments GROUP BY card OVER SLIDING 7 DAYS".to_owned();
    let week = Duration::from_secs(7 * 86_400);
    let case = Case {
        binary,
        ack: "synced",
        queries: vec![("w0".to_owned(), query)],
        history: spread(now() - week, week, 500).collect(),
        cards: 50,
        rate: 50,
        seconds: 1,
        connections: 4,
    };
    let outcome = case.measure(String::new(), 0.0).and_then(|point| point.must_have_no_errors());
    tally.check("latency: requests over a window of seven days are answered", outcome);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_leaves_as_enters() {
        let (from, window) = (Duration::from_secs(1_000_000), Duration::from_secs(300));
        let times = history(from, window, 20, 1_000);
        assert!(times.is_sorted());
        let until = |seconds: u64| times.iter().filter(|time| **time < (1_000_000 + seconds) * 1_000).count();
        assert_eq!(until(83), 83 * RATE as usize);
        assert_eq!(until(300), times.len());
    }
}
