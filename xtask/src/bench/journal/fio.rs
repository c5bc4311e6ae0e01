//! `fio` with the write size and the sync rule of a run of ours.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::process;

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
    let path = folder.join("fio");
    let mut command = Command::new("fio");
    command
        .args(["--name=journal", "--rw=write", "--ioengine=psync", "--fallocate=none", "--end_fsync=0"])
        .args(["--output-format=terse", "--terse-version=3"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--bs={}", work.write.max(1)))
        .arg(format!("--size={}", work.bytes.max(work.write)))
        .arg(format!("--runtime={}ms", (work.seconds * 1e3) as u64))
        .arg(format!("--fdatasync={}", work.sync_every));
    let finished = process::run(command);
    let _ = std::fs::remove_file(&path);
    rate(&finished?.stdout).context("fio printed no rate")
}

/// In terse version 3 the write section begins at field 47 with KiB in all, then KiB/s.
fn rate(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("3;"))?;
    Some(line.split(';').nth(47)?.parse::<f64>().ok()? * 1024.0)
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
}
