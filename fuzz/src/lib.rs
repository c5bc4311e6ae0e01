//! Fuzz targets: one for each decoder of bytes that we did not write ourselves.
//!
//! A target is a plain function over bytes that panics where a promise is broken. It is run by the driver of this
//! crate (`cargo run -p thalweg-fuzz -- --seconds 10`, no other tool needed), by libFuzzer where that is installed
//! (`fuzz/libfuzzer`), and over its seeds and all that once failed (`fuzz/regressions`) by `cargo test`.

#![deny(unsafe_code)]

mod target;

use std::path::PathBuf;

pub use target::{
    chunk, cluster_frame, csv, data_directory, expression, frame, hbase_answer, http, job_file,
    line_protocol, log, ndjson, query, redis_answer, sflow, sql, stored_state, window,
};

/// A decoder under test.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What the decoder gives a meaning to; mutations insert these.
    pub words: &'static [&'static str],
    /// Bytes that a single allocation may have beyond `16 × input + 1 MiB`.
    pub allowance: fn(&[u8]) -> usize,
}

pub const TARGETS: [Target; 18] = [
    csv::TARGET,
    ndjson::TARGET,
    line_protocol::TARGET,
    job_file::TARGET,
    query::TARGET,
    expression::TARGET,
    chunk::TARGET,
    frame::TARGET,
    cluster_frame::TARGET,
    log::TARGET,
    redis_answer::TARGET,
    hbase_answer::TARGET,
    http::TARGET,
    sflow::TARGET,
    sql::TARGET,
    stored_state::TARGET,
    window::TARGET,
    data_directory::TARGET,
];

/// The largest single allocation that an input may cause.
pub fn allocation_limit(target: &Target, input: &[u8]) -> usize {
    16 * input.len() + (1 << 20) + (target.allowance)(input)
}

/// Inputs that failed once, and a file name for each.
pub fn regressions(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("regressions").join(target.name);
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<(String, Vec<u8>)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let bytes = std::fs::read(entry.path()).ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), bytes))
        })
        .collect();
    found.sort();
    found
}

fn nothing_more(_: &[u8]) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_past_failures_keep_every_promise() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty(), "{} has no seeds", target.name);
            for input in seeds.into_iter().chain(regressions(&target).into_iter().map(|(_, bytes)| bytes)) {
                (target.run)(&input);
            }
        }
    }
}
