//! The benchmarks as a suite of `cargo xtask test`.

use anyhow::Result;
use thalweg_harness::Tally;

use crate::{checkpoint, freshness, joins, journal, latency, memory, relay, sflow, topn, windows};

type Smoke = fn(&mut Tally) -> Result<()>;

const BENCHES: [(&str, Smoke); 10] = [
    ("windows", windows::smoke),
    ("latency", latency::smoke),
    ("relay", relay::smoke),
    ("journal", journal::smoke),
    ("checkpoint", checkpoint::smoke),
    ("sflow", sflow::smoke),
    ("joins", joins::smoke),
    ("topn", topn::smoke),
    ("freshness", freshness::smoke),
    ("memory", memory::smoke),
];

/// Each benchmark in tiny, with its answers checked: it cannot rot, and its meaning cannot drift.
pub fn suite() -> Result<Tally> {
    let mut tally = Tally::default();
    for (name, smoke) in BENCHES {
        if let Err(error) = smoke(&mut tally) {
            tally.fail(format!("{name}: {error:#}"));
        }
    }
    Ok(tally)
}
