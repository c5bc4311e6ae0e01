//! The live line of `run`, where stderr is a terminal.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use thalweg_node::RunningJob;
use thalweg_types::format_size;

use crate::output::set_live;

/// Redrawn this often.
const REDRAW: Duration = Duration::from_millis(200);

pub(crate) struct Progress {
    /// `None`: nothing is shown.
    line: Option<Line>,
}

struct Line {
    bar: ProgressBar,
    /// Only the drawing thread locks it.
    last: Mutex<Last>,
}

struct Last {
    drawn: Instant,
    records: u64,
    rate: f64,
}

impl Progress {
    pub(crate) fn start(quiet: bool) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self { line: None };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        set_style(&bar, "{spinner} {msg}");
        set_live(Some(bar.clone()));
        let last = Last { drawn: Instant::now(), records: 0, rate: 0.0 };
        Self { line: Some(Line { bar, last: Mutex::new(last) }) }
    }

    pub(crate) fn draw(&self, running: &[Arc<RunningJob>]) {
        let Some(line) = &self.line else { return };
        let mut last = line.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let passed = last.drawn.elapsed();
        if passed < REDRAW {
            return;
        }
        let stats: Vec<_> = running.iter().map(|job| job.stats()).collect();
        let records: u64 = stats.iter().map(|stats| stats.records).sum();
        let rejects: u64 = running.iter().map(|job| job.rejects().total()).sum();
        let queued: u64 = stats.iter().flat_map(|stats| &stats.links).map(|link| link.queued_bytes).sum();
        let now = (records - last.records.min(records)) as f64 / passed.as_secs_f64();
        // Half of the old rate, so that the figure can be read.
        last.rate = if last.records == 0 { now } else { f64::midpoint(last.rate, now) };
        last.records = records;
        last.drawn = Instant::now();
        let sources = || stats.iter().flat_map(|stats| &stats.sources).map(|source| source.progress);
        // What there is to do, where every source knows, and has begun.
        let total: Option<u64> = sources().map(|progress| progress.and_then(|progress| progress.total)).sum();
        let total = total.filter(|total| *total > 0);
        match total {
            Some(total) => {
                if line.bar.length().is_none() {
                    set_style(&line.bar, "{bar:24} {percent:>3}%  {msg}  eta {eta}");
                }
                line.bar.set_length(total);
                line.bar.set_position(sources().flatten().map(|progress| progress.done).sum());
            }
            None => line.bar.tick(),
        }
        line.bar.set_message(format!(
            "{} records  {}/s  lag {}  {} rejects",
            grouped(records),
            grouped(last.rate as u64),
            format_size(queued),
            grouped(rejects)
        ));
    }

    pub(crate) fn finish(&self) {
        if let Some(line) = &self.line {
            set_live(None);
            line.bar.finish_and_clear();
        }
    }
}

fn set_style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
