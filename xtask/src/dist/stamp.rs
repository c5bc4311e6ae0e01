//! The time that files in packages have.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use thalweg_harness::project;

/// 1980-01-01: no zip archive can say an earlier time.
const EARLIEST: u64 = 315_532_800;

/// Seconds since 1970: `SOURCE_DATE_EPOCH`, else the time of the commit, else, in an unpacked source archive, 1980-01-01.
pub(super) fn time() -> Result<u64> {
    if let Ok(text) = env::var("SOURCE_DATE_EPOCH") {
        return parse(&text).context("read SOURCE_DATE_EPOCH");
    }
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(project::root());
    match git.stdin(Stdio::null()).stderr(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            parse(&String::from_utf8_lossy(&output.stdout)).context("read the time of the commit")
        }
        _ => Ok(EARLIEST),
    }
}

fn parse(text: &str) -> Result<u64> {
    let text = text.trim();
    let time = text.parse::<u64>().with_context(|| format!("expected seconds since 1970, got \"{text}\""))?;
    // Headers of tar and ar have eleven and twelve digits for it.
    ensure!((EARLIEST..1 << 33).contains(&time), "expected a time from 1980 to 2242, got {time}");
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_seconds_since_1970() {
        assert_eq!(parse("1795777801\n").unwrap(), 1_795_777_801);
        for wrong in ["", "yesterday", "-1", "0", "9999999999999"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
