//! A whole job on a disk that is too slow for its source, as in figure 8 of Lau and Maresca (2017): there memory filled up
//! and the machine thrashed; here the source is slowed, and memory stays as it is.

mod disk;
mod messages;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::disk::SlowDisk;
use self::messages::BYTES;
use super::plot::{Chart, Series};
use super::report::{Report, Table, count, cpu_per_record, mebibytes};
use super::{figures::Figures, usage};
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A second of each step: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Seconds of each of the five steps
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// A folder on the disk that the slow one is made on; the build folder if there is none
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// What the disk takes, in MB a second, one figure after the other over the run.
const STEPS: [u64; 5] = [80, 20, 5, 20, 80];

/// How often is looked.
const LOOK: Duration = Duration::from_millis(500);

/// Messages that are sent round and round.
const MESSAGES: u64 = 50_000;

/// What was seen at one look.
struct Look {
    at: f64,
    limit: u64,
    /// Messages a second that the engine took since the look before.
    rate: f64,
    resident: u64,
    /// Bytes of the machine's page cache that wait for a disk.
    dirty: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut report = Report::new("slow-disk", "A disk that is too slow");
    report.say("Figure 8 of Lau and Maresca (2017): their journal wrote more than its disk took (115 MB/s), the page cache filled up within some cycles, and write times rose without bound.");
    match disk::missing() {
        Some(reason) => report.say(&format!("Skipped: {reason}.")),
        None => figure(options, &mut report)?,
    }
    report.finish(options.quick)
}

fn figure(options: &Options, report: &mut Report) -> Result<()> {
    let binary = project::thalweg(Profile::Release)?;
    report.heading("By the rate of the disk");
    report.say("A job reads messages of 500 bytes from a pipe that is always full, `ack: synced`, with its data directory on ext4 in a loop device, whose writes the kernel limits to 80, 20, 5, 20 and 80 MB/s in turn.");
    let seconds = if options.quick { 1.0 } else { options.seconds };
    let folder = options.dir.clone().map_or_else(|| project::scratch("bench-slow-disk"), Ok)?;
    let scratch = tempfile::tempdir_in(&folder).context("make a folder for the disk")?;
    let disk = SlowDisk::make(scratch.path())?;
    let messages = messages::make(MESSAGES);
    let job = scratch.path().join("slow.json");
    std::fs::write(&job, self::messages::job())?;

    let mut command = disk.command(&binary);
    command.arg("run").arg(&job).args(["--workers", "2", "--data-dir"]).arg(disk.path().join("data"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("start thalweg on a slow disk")?;
    let ran = feed(&disk, &mut child, &messages, seconds);
    if ran.is_err() {
        usage::terminate(&child);
    }
    let stderr = child.stderr.take().context("stderr is a pipe").and_then(|mut stderr| {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut text)?;
        Ok(text)
    });
    let (status, used) = usage::wait(&child)?;
    let (looks, sent) = ran?;
    let stderr = stderr?;
    ensure!(status.success(), "thalweg on a slow disk ended with {status}\n{stderr}");
    let summary =
        stderr.lines().rev().filter_map(Figures::parse).find(|figures| figures.text("rate").is_ok());
    let records = summary.context("thalweg printed no summary")?.number("records")?;
    ensure!(records == sent as f64, "{sent} messages were sent, and {records} came out");
    draw(options, report, &looks)?;
    report.say(&format!(
        "{} messages were sent and {} came out, for {} of processor time each; the most memory that was resident at once: {}.",
        sent,
        records as u64,
        cpu_per_record(used.cpu, records),
        mebibytes(used.peak_bytes)
    ));
    Ok(())
}

/// Sends for as long as the steps take, and looks meanwhile; returns the looks, and the messages that were sent.
fn feed(disk: &SlowDisk, child: &mut Child, messages: &[u8], seconds: f64) -> Result<(Vec<Look>, u64)> {
    disk.limit(STEPS[0] * 1_000_000)?;
    let mut stdin = child.stdin.take().context("stdin is a pipe")?;
    let (sent, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let feeder = scope.spawn(|| -> Result<()> {
            let message = BYTES;
            // A piece at a time, and whole messages: the sent bytes have to be known to the message.
            for piece in messages.chunks(64 * message).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                stdin.write_all(piece).context("feed thalweg")?;
                sent.fetch_add((piece.len() / message) as u64, Ordering::Relaxed);
            }
            drop(stdin);
            Ok(())
        });
        let looks = look(disk, child.id(), &sent, seconds);
        is_over.store(true, Ordering::Relaxed);
        match feeder.join() {
            Ok(outcome) => outcome?,
            Err(_) => bail!("the feeder panicked"),
        }
        Ok((looks?, sent.load(Ordering::Relaxed)))
    })
}

fn look(disk: &SlowDisk, process: u32, sent: &AtomicU64, seconds: f64) -> Result<Vec<Look>> {
    let started = Instant::now();
    let mut looks = Vec::new();
    let (mut before, mut sent_before) = (started, 0);
    for limit in STEPS {
        disk.limit(limit * 1_000_000)?;
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < until {
            thread::sleep(LOOK);
            let (now, sent) = (Instant::now(), sent.load(Ordering::Relaxed));
            looks.push(Look {
                at: (now - started).as_secs_f64(),
                limit,
                rate: (sent - sent_before) as f64 / (now - before).as_secs_f64(),
                resident: kibibytes(&format!("/proc/{process}/status"), "VmRSS:")?,
                dirty: kibibytes("/proc/meminfo", "Dirty:")? + kibibytes("/proc/meminfo", "Writeback:")?,
            });
            (before, sent_before) = (now, sent);
        }
    }
    Ok(looks)
}

/// A line in KiB of a file of the kernel's, in bytes.
fn kibibytes(path: &str, key: &str) -> Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number =
        line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    Ok(number.with_context(|| format!("no {key} in {path}"))? * 1024)
}

fn draw(options: &Options, report: &mut Report, looks: &[Look]) -> Result<()> {
    let mut table =
        Table::new(["disk, MB/s", "messages/s taken", "MB/s taken", "resident", "dirty pages, machine"]);
    for (step, limit) in STEPS.iter().enumerate() {
        let per_step = looks.len() / STEPS.len();
        let of_step = &looks[step * per_step..(step + 1) * per_step];
        // The first half still works off, or fills up, messages in flight at the old pace.
        let settled = &of_step[of_step.len() / 2..];
        let rate = settled.iter().map(|look| look.rate).sum::<f64>() / settled.len().max(1) as f64;
        let most = |of: fn(&Look) -> u64| of_step.iter().map(of).max().unwrap_or(0);
        table.row([
            limit.to_string(),
            count(rate),
            format!("{:.1}", rate * BYTES as f64 / 1e6),
            mebibytes(most(|look| look.resident)),
            mebibytes(most(|look| look.dirty)),
        ]);
    }
    report.table(&table);
    if options.quick {
        return Ok(());
    }
    let series = |name: &str, of: fn(&Look) -> f64| Series {
        name: name.to_owned(),
        points: looks.iter().map(|look| (look.at, of(look))).collect(),
    };
    let chart = |title: &str, y: &str, series: Vec<Series>| Chart {
        title: title.to_owned(),
        x: "seconds".to_owned(),
        y: y.to_owned(),
        log_x: false,
        series,
    };
    let rates = vec![
        series("taken by the source", |look| look.rate * BYTES as f64 / 1e6),
        series("limit of the disk", |look| look.limit as f64),
    ];
    let chart_of_rates = chart("A disk that is too slow", "MB/s", rates);
    report.picture("slow-disk-rate.svg", &chart_of_rates.title, &chart_of_rates.svg())?;
    let memory = vec![series("resident", |look| look.resident as f64 / f64::from(1 << 20))];
    let chart_of_memory = chart("Memory meanwhile", "MiB", memory);
    report.picture("slow-disk-memory.svg", &chart_of_memory.title, &chart_of_memory.svg())
}
