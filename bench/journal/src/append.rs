//! A journal under one source, written as the node writes it (`node::durable::journal`): the same encoding of blocks,
//! the same buffers, segments and thread, and a source that comes back after a millisecond where the buffer is full.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use thalweg_connect::source::BlockCodec;
use thalweg_flow::{Payload, RawBlock};
use thalweg_storage::Layered;
use thalweg_storage::log::{Durability, GroupCommit, Log, LogHandle, LogOptions, Registration, Ticket};

use crate::counting::Counts;

/// How soon a block is tried again that found the buffer full, as in the node.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// Bytes of a run in the order log.
const ORDER_ENTRY: usize = 35;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ack {
    Synced,
    Written,
    None,
}

impl Ack {
    fn durability(self) -> Durability {
        match self {
            Ack::Synced => Durability::Synced,
            Ack::Written => Durability::Written,
            Ack::None => Durability::None,
        }
    }
}

#[derive(Args)]
pub(crate) struct Options {
    /// A folder on the disk that is to be measured; what lies in `journal` and `order` there goes
    #[arg(long)]
    dir: PathBuf,
    /// Bytes of a record
    #[arg(long, default_value_t = 500)]
    record: usize,
    /// Bytes of a block at most; one record where it is smaller
    #[arg(long, default_value_t = 256 << 10)]
    block: usize,
    #[arg(long, value_enum, default_value = "synced")]
    ack: Ack,
    /// With several, each waits for each of its blocks, as senders do that wait for a reply; one does not wait
    #[arg(long, default_value_t = 1)]
    appenders: usize,
    /// An order log beside it, with an entry for each block, as in a job with one source
    #[arg(long)]
    order: bool,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Ends after so much, too
    #[arg(long, default_value_t = 128)]
    mebibytes: u64,
}

struct Logs {
    journal: LogHandle,
    order: Option<LogHandle>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.record > 0 && options.appenders > 0, "--record and --appenders are above 0");
    let disk = Layered::over(Counts::default());
    let counts = disk.layer();
    let group = GroupCommit::start(Duration::ZERO)?;
    let segment_bytes = LogOptions::new("journal", 1).segment_bytes;
    let open = |name: &str, disk: Layered<Counts>| -> Result<LogHandle> {
        let dir = options.dir.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| format!("empty {}", dir.display()))?;
        }
        let log = Log::open(Arc::new(disk), &dir, LogOptions::new(name, 1))?.log;
        Ok(group.register(log, Registration::new(options.ack.durability()))?)
    };
    let logs = Logs {
        journal: open("journal", disk.clone())?,
        order: if options.order { Some(open("order", Layered::over(Counts::default()))?) } else { None },
    };
    let (writes, bytes, syncs) = (counts.writes(), counts.bytes(), counts.syncs());
    let appended = AtomicU64::new(0);
    let started = Instant::now();
    let per_block = (options.block / options.record).max(1);
    let enough = |blocks: u64| {
        blocks * (per_block * options.record) as u64 >= options.mebibytes << 20
            || started.elapsed().as_secs_f64() >= options.seconds
    };
    thread::scope(|scope| {
        let work = || append(&logs, options, per_block, &appended, &enough);
        let threads: Vec<_> = (0..options.appenders).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => bail!("an appender panicked"),
        })
    })?;
    // Without an acknowledgement what was handed over may still be on its way; it counts once it is written.
    while options.ack == Ack::None
        && counts.bytes() - bytes < appended.load(Ordering::Relaxed) * (per_block * options.record) as u64
    {
        thread::yield_now();
    }
    let seconds = started.elapsed().as_secs_f64();
    let blocks = appended.load(Ordering::Relaxed);
    let records = blocks * per_block as u64;
    let payload = records * options.record as u64;
    let (writes, bytes, syncs) = (counts.writes() - writes, counts.bytes() - bytes, counts.syncs() - syncs);
    group.close()?;
    println!(
        "records={records} seconds={seconds:.4} rate={:.0} payload_bytes={payload} payload_rate={:.0} blocks={blocks} writes={writes} \
         written_bytes={bytes} syncs={syncs} segment_bytes={segment_bytes}",
        records as f64 / seconds,
        payload as f64 / seconds,
    );
    for name in ["journal", "order"] {
        let dir = options.dir.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(dir)?;
        }
    }
    Ok(())
}

/// Appends until it is enough, and waits for the last of it.
fn append(
    logs: &Logs,
    options: &Options,
    per_block: usize,
    appended: &AtomicU64,
    enough: &(dyn Fn(u64) -> bool + Sync),
) -> Result<()> {
    let codec = BlockCodec::new(None);
    let data = Bytes::from(vec![b'x'; per_block * options.record]);
    let mut block = RawBlock {
        partition: 0,
        first: 0,
        count: per_block as u32,
        payload: Payload::Bytes { data, context: None },
    };
    let mut head = Vec::new();
    let mut last = None;
    let mut done = 0_u64;
    // The clock is looked at from time to time: a block of one record takes less than a look.
    while !done.is_multiple_of(16) || !enough(appended.load(Ordering::Relaxed)) {
        let data = codec.encode(&block, 0, logs.order.is_some(), &mut head)?;
        let ticket = try_append(&logs.journal, &[&head, data])?;
        let ticket = match &logs.order {
            Some(order) => (order, order.append_unsynced(&[&[0; ORDER_ENTRY]])?),
            None => (&logs.journal, ticket),
        };
        if options.appenders > 1 {
            ticket.0.wait(ticket.1)?;
        }
        last = Some(ticket);
        block.first += u64::from(block.count);
        done += 1;
        appended.fetch_add(1, Ordering::Relaxed);
    }
    match last {
        Some((log, ticket)) => Ok(log.wait(ticket)?),
        None => Ok(()),
    }
}

fn try_append(log: &LogHandle, parts: &[&[u8]]) -> Result<Ticket> {
    loop {
        if let Some(ticket) = log.try_append(parts)? {
            return Ok(ticket);
        }
        thread::sleep(TRY_AGAIN);
    }
}
