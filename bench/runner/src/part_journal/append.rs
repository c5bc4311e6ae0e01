//! Our journal and `fio`, in turn, at the same write size and sync rule.

use std::path::Path;

use anyhow::Result;

use super::{Driver, Options};
use crate::fio;
use crate::report::{Report, Table, count};
use crate::{median, spread};
use thalweg_harness::project;

/// Bytes of records.
const SIZES: [u64; 3] = [64, 500, 4096];

/// Levels of acknowledgement.
const ACKS: [&str; 3] = ["synced", "written", "none"];

/// Bytes of a block at high load, as sources cut it.
const BLOCK: &str = "262144";

/// Threads that each wait for their record, as connections do that wait for a reply.
const WAITERS: &str = "16";

/// How blocks come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Full, one after the other.
    Blocks,
    /// Of one record each, one after the other.
    Records,
    /// Of one record each, from several threads that wait.
    Waiters,
    /// The same, with the order log of a job, too.
    InAJob,
}

impl Load {
    fn arguments(self) -> Vec<&'static str> {
        match self {
            Load::Blocks => vec!["--block", BLOCK],
            Load::Records => vec!["--block", "0"],
            Load::Waiters => vec!["--block", "0", "--appenders", WAITERS],
            Load::InAJob => vec!["--block", "0", "--appenders", WAITERS, "--order"],
        }
    }
}

/// Runs of one configuration, ours and fio's.
#[derive(Default)]
struct Pairs {
    /// Payload, bytes a second.
    ours: Vec<f64>,
    /// All that is written: heads and frames, too.
    stored: Vec<f64>,
    fio: Vec<f64>,
    /// Records a second.
    records: Vec<f64>,
    /// Bytes of a write of ours.
    writes: Vec<f64>,
}

impl Pairs {
    /// Of our bytes to those of `fio`.
    fn ratio(&self, ours: &[f64]) -> f64 {
        // Pair by pair, each measured in the same second.
        median(ours.iter().zip(&self.fio).map(|(ours, fio)| ours / fio).collect())
    }
}

/// What one run is bounded by: enough to be measured, and few enough that a disk with a budget keeps some.
#[derive(Clone, Copy)]
struct Bounds {
    mebibytes: u64,
    seconds: f64,
}

pub(super) fn beside_fio(options: &Options, driver: &Driver, report: &mut Report) -> Result<()> {
    report.heading("Beside fio");
    report.say(
        "Ours is the log thread of a node and one source, driven as the node's journal drives them: blocks are encoded, appended to a buffer of 4 MiB and written and synced in groups; a source that finds the buffer full comes back after a millisecond.",
    );
    report.say(
        "`fio` runs right after each run of ours, on the same disk, after the end of a new file, with the mean size of our writes and the same rule: `synced` syncs each write, the others once in 64 MiB, as our log does before it begins a new segment. (Ours begins to sync earlier, after 8 MiB, beside the work.)",
    );
    report.say("A run before the first of a row is not counted: a virtual machine may have given memory that lay idle back to its host, and getting it again for the page cache can take longer than the writes.");
    report.say("MB/s of ours are payload alone; \"all of fio\" counts heads, frames and zeros, too, as the disk does. Ratios are medians over pairs of runs, and the target is 80 %.");
    if !project::has("fio") {
        report.say("Skipped: fio: there is no such program here, so ours is alone.");
    }
    for (title, load, acks) in [
        ("Full blocks of 256 KiB, as sources hand them over at high load", Load::Blocks, &ACKS[..]),
        ("Blocks of one record, as fast as they can be appended", Load::Records, &ACKS[..]),
        ("16 threads that each wait for every record, as HTTP senders do", Load::Waiters, &ACKS[..1]),
        (
            "The same with the order log next to it, as in a job with one source: two files are written in each group, and the journal is synced",
            Load::InAJob,
            &ACKS[..1],
        ),
    ] {
        report.say(&format!("{title}:"));
        let mut table = Table::new([
            "ack, bytes of a record",
            "records/s",
            "ours, MB/s",
            "from … to",
            "write of ours",
            "fio, MB/s",
            "from … to",
            "ours of fio",
            "all of fio",
        ]);
        for ack in acks {
            for size in SIZES {
                let pairs = measure(options, driver, load, ack, size)?;
                let mb = |rate: f64| format!("{:.1}", rate / 1e6);
                let beside = |text: String| if pairs.fio.is_empty() { "–".to_owned() } else { text };
                let percent = |ours: &[f64]| beside(format!("{:.0} %", pairs.ratio(ours) * 100.0));
                table.row([
                    format!("{ack}, {size} B"),
                    count(median(pairs.records.clone())),
                    mb(median(pairs.ours.clone())),
                    spread(&pairs.ours, mb),
                    format!("{:.1} KiB", median(pairs.writes.clone()) / 1024.0),
                    beside(mb(median(pairs.fio.clone()))),
                    beside(spread(&pairs.fio, mb)),
                    percent(&pairs.ours),
                    percent(&pairs.stored),
                ]);
            }
        }
        report.table(&table);
    }
    Ok(())
}

fn measure(options: &Options, driver: &Driver, load: Load, ack: &str, size: u64) -> Result<Pairs> {
    let folder = options.folder()?;
    let bounds = match (ack, options.quick) {
        (_, true) => Bounds { mebibytes: 4, seconds: 0.1 },
        ("synced", _) => Bounds { mebibytes: 128, seconds: 1.0 },
        // Into the page cache: more, or it is over before it has begun. The file goes before the disk gets it.
        _ => Bounds { mebibytes: 512, seconds: 1.0 },
    };
    let mut pairs = Pairs::default();
    // Not counted: it takes from the host the memory that the runs after it write into.
    if !options.quick {
        run(driver, &folder, bounds, load, ack, size)?;
    }
    for _ in 0..options.repeat() {
        let Run { payload, stored, write, segment } = run(driver, &folder, bounds, load, ack, size)?;
        pairs.records.push(payload / size as f64);
        pairs.ours.push(payload);
        pairs.stored.push(stored);
        pairs.writes.push(write);
        if project::has("fio") {
            let work = fio::Work {
                write: write as u64,
                sync_every: if ack == "synced" { 1 } else { (segment / write) as u64 },
                bytes: bounds.mebibytes << 20,
                seconds: bounds.seconds,
            };
            pairs.fio.push(fio::write(&folder, work)?);
        }
    }
    Ok(pairs)
}

/// One run of ours, in bytes.
struct Run {
    /// Payload, a second.
    payload: f64,
    /// All that is written, a second.
    stored: f64,
    /// Of a write.
    write: f64,
    /// After which the log syncs, whatever was asked for.
    segment: f64,
}

fn run(driver: &Driver, folder: &Path, bounds: Bounds, load: Load, ack: &str, size: u64) -> Result<Run> {
    let (size, folder) = (size.to_string(), folder.display().to_string());
    let (mebibytes, seconds) = (bounds.mebibytes.to_string(), bounds.seconds.to_string());
    let mut arguments = vec!["append", "--dir", &folder, "--record", &size, "--ack", ack];
    arguments.extend(["--mebibytes", &mebibytes, "--seconds", &seconds]);
    arguments.extend(load.arguments());
    let figures = driver.run(&arguments)?;
    Ok(Run {
        payload: figures.number("payload_rate")?,
        stored: figures.number("written_bytes")? / figures.number("seconds")?,
        write: figures.number("written_bytes")? / figures.number("writes")?.max(1.0),
        segment: figures.number("segment_bytes")?,
    })
}
