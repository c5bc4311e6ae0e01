//! Payments with the fields that the features read, as a CSV file that all systems read.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

pub(super) const HEADER: &str = "ts,tx,card,device,merchant,country,amount";

/// Of event time, for all records: more than the longest window.
const SPAN_MS: u64 = 35 * 86_400_000;

/// The generator's devices are nearly all different; these are as many as there are cards.
const DEVICES: u64 = 100_000;

/// Writes the first `count` of `of` payments that are spread over 35 days; once.
pub(super) fn file(binary: &Path, folder: &Path, count: u64, of: u64) -> Result<PathBuf> {
    let path = folder.join(format!("payments-{count}-of-{of}.csv"));
    if path.is_file() {
        return Ok(path);
    }
    let gap = format!("{}ms", (SPAN_MS / of.max(1)).max(1));
    let mut command = Command::new(binary);
    command.args(["gen", "payments", "--seed", "1", "--fields", "11", "--format", "csv"]);
    command.args(["--count", &count.to_string(), "--gap", &gap]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("start thalweg gen")?;
    let mut lines =
        BufReader::with_capacity(1 << 20, child.stdout.take().context("stdout is a pipe")?).lines();
    let header = lines.next().context("thalweg gen printed nothing")??;
    ensure!(
        header == "ts,card,merchant,amount,tx,country,currency,mcc,channel,ip,device",
        "other fields than were expected: {header}"
    );
    let part = path.with_extension("part");
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&part)?);
    writeln!(out, "{HEADER}")?;
    for line in lines {
        let line = line?;
        writeln!(out, "{}", payment(&line).with_context(|| format!("no payment: {line:?}"))?)?;
    }
    // The kernel's pending writes of the input must not disturb the measurement.
    out.into_inner()?.sync_all()?;
    let status = child.wait()?;
    ensure!(status.success(), "thalweg gen ended with {status}");
    fs::rename(&part, &path)?;
    Ok(path)
}

/// A line of the generator as a line of ours.
fn payment(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split(',').collect();
    let [ts, card, merchant, amount, tx, country, _, _, _, _, device] = fields[..] else { return None };
    let device = u64::from_str_radix(device.strip_prefix("dev-")?, 16).ok()? % DEVICES;
    Some(format!("{ts},{tx},{card},d{device:05},{merchant},{country},{amount}"))
}

#[test]
fn a_line_has_the_fields_that_are_read() {
    let line = "17,c0000001,m00002,3.25,t00000000009,DE,EUR,1500,pos,10.1.2.3,dev-00000000000186a3";
    assert_eq!(payment(line).as_deref(), Some("17,t00000000009,c0000001,d00003,m00002,DE,3.25"));
    assert_eq!(payment("17,c1"), None);
}
