//! The benchmark in tiny: rows and rollups give the same answers. (With DuckDB every run of the benchmark compares.)

use anyhow::{Result, ensure};

use super::stored::middle_hour;
use super::{Bench, How, ask, queries};
use thalweg_harness::Tally;
use thalweg_harness::project::Profile;

const ROWS: u64 = 20_000;

pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let bench = Bench::new(Profile::Dev, folder.path())?;
    let stored = bench.fill(ROWS, "zstd")?;
    let how = How { clients: 2, repeat: 2, seconds: 0.01, cold: false };
    for (name, condition) in [("all rows", String::new()), ("an hour", middle_hour(1_000_000))] {
        let queries = queries(&condition);
        let outcome = (|| {
            let raw = ask(bench.ours(false), &stored, &queries, how)?;
            let others = [
                ask(bench.ours(true), &stored, &queries, how)?,
                ask(bench.ours(false), &stored, &queries, How { clients: 1, cold: true, ..how })?,
            ];
            for other in &others {
                raw.iter().zip(other).try_for_each(|(raw, other)| raw.must_equal(other))?;
            }
            ensure!(raw.iter().all(|answer| answer.ms > 0.0), "an answer took no time");
            Ok(())
        })();
        tally.check(&format!("topn: rows and rollups agree on {name}"), outcome);
    }
    Ok(())
}
