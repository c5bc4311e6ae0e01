//! One record by HTTP, all answers back, under open-loop load, with a data directory and a commit every second.
//!
//! * [`rates`]: records of 103 fields at fixed rates, among a million groups.
//! * [`size`]: Figure 9a of Gomes et al. (2021), by length of the window.
//! * [`number`]: Figure 9b, by number of windows that share no edge.

mod number;
mod rates;
mod size;
mod windows;

use std::path::PathBuf;

use anyhow::Result;

use super::report::Report;
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A few seconds of each: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = ["rates", "size", "number"])]
    only: Vec<String>,
    /// Requests per second, one figure after the other
    #[arg(long, value_delimiter = ',', default_values_t = [500, 2_000])]
    rates: Vec<u32>,
    /// Seconds that are measured of each row
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Records of history in the window, in addition to a dense part where its tail passes
    #[arg(long, default_value_t = 200_000)]
    history: u64,
    /// By rate: cards of one record each among the history, so that this number of groups lives
    #[arg(long, default_value_t = 1_000_000)]
    groups: u64,
    /// By size and number of windows: how many cards there are
    #[arg(long, default_value_t = 100_000)]
    cards: u64,
    /// Numbers of windows, one after the other
    #[arg(long, value_delimiter = ',', default_values_t = [20, 60, 120, 240])]
    numbers: Vec<usize>,
    /// Connections that are kept alive
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// `ack` of the source
    #[arg(long, default_value = "synced")]
    ack: String,
    /// By rate: folders on the disks that data directories are to be on; the build folder if there is none
    #[arg(long, value_delimiter = ',')]
    dir: Vec<PathBuf>,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    fn seconds(&self) -> u32 {
        if self.quick { 2 } else { self.seconds }
    }

    fn scaled(&self, records: u64) -> u64 {
        if self.quick { records / 100 } else { records }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = project::thalweg(Profile::Release)?;
    let mut report = Report::new("latency", "Latency by HTTP").of_parts(&options.only);
    report.say("Requests of one record leave on a fixed schedule, and a latency counts from the intended time of sending, so a stall is charged for everything that would have come meanwhile (coordinated omission). Server and load generator share the machine. A job has a data directory and commits every second.");
    if options.wants("rates") {
        rates::table(options, &binary, &mut report)?;
    }
    if options.wants("size") {
        size::table(options, &binary, &mut report)?;
    }
    if options.wants("number") {
        number::table(options, &binary, &mut report)?;
    }
    report.finish(options.quick)
}

/// Short open-loop runs whose answers are looked at.
pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let binary = project::thalweg(Profile::Dev)?;
    rates::smoke(&binary, tally)?;
    size::smoke(&binary, tally)?;
    number::smoke(&binary, tally)
}
