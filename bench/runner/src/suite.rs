//! The benchmarks as a suite of `cargo xtask test`.

use anyhow::Result;
use thalweg_harness::Tally;

use crate::{
    cluster, features, freshness, kafka, large_group, latency, memory, part_joins, part_journal, part_state,
    relay, sflow, topn, windows,
};

type Smoke = fn(&mut Tally) -> Result<()>;

const BENCHES: [(&str, Smoke); 14] = [
    ("windows", windows::smoke),
    ("features", features::smoke),
    ("latency", latency::smoke),
    ("large-group", large_group::smoke),
    ("kafka", kafka::smoke),
    ("cluster", cluster::smoke),
    ("relay", relay::smoke),
    ("sflow", sflow::smoke),
    ("freshness", freshness::smoke),
    ("topn", topn::smoke),
    ("memory", memory::smoke),
    ("part-journal", part_journal::smoke),
    ("part-state", part_state::smoke),
    ("part-joins", part_joins::smoke),
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
