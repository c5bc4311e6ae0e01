//! What a process that still runs has used so far, as the kernel counts it.

use std::time::Duration;

use anyhow::{Context, Result};

/// Ticks of the kernel's clock in a second, which is the same on all machines that run Linux today.
const TICKS: u64 = 100;

/// Since the process began; child processes that it waited for are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Processor time, its own and the kernel's for it.
    pub(super) cpu: Duration,
    /// Bytes that it has sent to disks.
    pub(super) written: u64,
}

impl Counters {
    pub(super) fn of(process: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{process}/{file}");
            std::fs::read_to_string(&path).with_context(|| format!("read {path}"))
        };
        let ticks = ticks(&read("stat")?).context("no processor time in /proc/…/stat")?;
        let written = written(&read("io")?).context("no write_bytes in /proc/…/io")?;
        Ok(Self { cpu: Duration::from_millis(ticks * 1_000 / TICKS), written })
    }

    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(earlier.cpu), written: self.written - earlier.written }
    }
}

/// Fields 14 and 15; the second field is a name in brackets, which may have blanks.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

fn written(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_places() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 31 11 0 0 20 0 1 0";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(written("read_bytes: 1\nwrite_bytes: 4096\ncancelled_write_bytes: 2\n"), Some(4_096));
    }

    #[test]
    fn this_process_has_used_something() {
        assert!(Counters::of(std::process::id()).unwrap().cpu < Duration::from_secs(3_600));
    }
}
