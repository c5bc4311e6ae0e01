//! `fio` with the write size and the sync rule of a run of ours: what the disk gives by itself.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::process;

/// What `fio` is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Bytes of a write.
    pub(super) write: u64,
    /// Writes from one fdatasync to the next; 0: none.
    pub(super) sync_every: u64,
    /// Bytes in all, unless the time is over before.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

/// Writes a new file from its beginning to its end, as a log is written; bytes a second.
pub(super) fn write(folder: &Path, work: Work) -> Result<f64> {
    let said = run(
        folder,
        &[
            "--name=journal",
            "--fallocate=none",
            "--end_fsync=0",
            "--output-format=terse",
            "--terse-version=3",
            &format!("--bs={}", work.write.max(1)),
            &format!("--size={}", work.bytes.max(work.write)),
            &format!("--runtime={}ms", (work.seconds * 1e3) as u64),
            &format!("--fdatasync={}", work.sync_every),
        ],
    )?;
    rate(&said).context("fio printed no rate")
}

/// Writes a file in a folder, which goes again, and returns what `fio` said.
fn run(folder: &Path, options: &[&str]) -> Result<String> {
    let path = folder.join("fio");
    let mut command = Command::new("fio");
    command.args(["--rw=write", "--ioengine=psync"]).args(options);
    command.arg(format!("--filename={}", path.display()));
    let finished = process::run(command);
    let _ = std::fs::remove_file(&path);
    Ok(finished?.stdout)
}

/// In terse version 3 the write section begins at field 47 with KiB in all, then KiB/s.
fn rate(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("3;"))?;
    Some(line.split(';').nth(47)?.parse::<f64>().ok()? * 1024.0)
}

/// How long a disk took to sync writes that came at a fixed rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Syncs {
    pub(super) p50: Duration,
    pub(super) p999: Duration,
    pub(super) max: Duration,
}

/// Syncs writes of 4 KiB over blocks that are there, as small groups of a log are synced, at most `rate` a second.
pub(super) fn syncs(folder: &Path, rate: u32, seconds: u32) -> Result<Syncs> {
    let said = run(
        folder,
        &[
            "--name=syncs",
            "--bs=4k",
            "--size=64m",
            "--overwrite=1",
            "--fdatasync=1",
            "--time_based",
            "--output-format=json",
            &format!("--rate_iops={rate}"),
            &format!("--runtime={seconds}"),
        ],
    )?;
    Syncs::parse(&said).context("fio printed no times of syncs")
}

impl Syncs {
    fn parse(text: &str) -> Option<Self> {
        let report: Value = serde_json::from_str(text).ok()?;
        let times = &report["jobs"][0]["sync"]["lat_ns"];
        let nanos = |value: &Value| value.as_u64().map(Duration::from_nanos);
        Some(Self {
            p50: nanos(&times["percentile"]["50.000000"])?,
            p999: nanos(&times["percentile"]["99.900000"])?,
            max: nanos(&times["max"])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_second_field_of_the_write_section() {
        let fields = (1..=60).map(|field| field.to_string()).collect::<Vec<_>>().join(";");
        let line = format!("fio: a note\n3;{}", fields.split_once(';').unwrap().1);
        assert_eq!(rate(&line), Some(48.0 * 1024.0));
        assert_eq!(rate("nothing"), None);
    }

    #[test]
    fn times_of_syncs_are_those_of_the_first_job() {
        let text =
            r#"{"jobs": [{"sync": {"lat_ns": {"max": 9, "percentile": {"50.000000": 3, "99.900000": 8}}}}]}"#;
        let nanos = Duration::from_nanos;
        assert_eq!(Syncs::parse(text), Some(Syncs { p50: nanos(3), p999: nanos(8), max: nanos(9) }));
        assert_eq!(Syncs::parse("{}"), None);
    }
}
