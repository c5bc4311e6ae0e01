//! Stages of a record's way that work on one thread at a time, and their rate: lines into columns, columns into lines.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use thalweg_connect::SourceContext;
use thalweg_connect::source::SourceDecoder;
use thalweg_flow::{Decoder as _, Payload, RawBlock};
use thalweg_types::{Batch, SeqRange};

use crate::{links, messages};

/// Messages that are made beforehand.
const MESSAGES: u64 = 50_000;

/// Bytes of a block, as sources cut it.
const BLOCK: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Line protocol into typed columns
    Parse,
    /// Whole batches from one thread to another
    Ring,
    /// Spread by key over the tasks of two threads, each message copied where it arrives
    Link,
    /// Typed columns into line protocol, as sinks for databases send it
    Staging,
}

#[derive(Args)]
pub(crate) struct Options {
    #[arg(value_enum)]
    name: Name,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.threads > 0 && options.seconds > 0.0, "--threads and --seconds are above 0");
    let blocks = messages::blocks(MESSAGES, BLOCK);
    let time = Duration::from_secs_f64(options.seconds);
    let (count, seconds) = match options.name {
        Name::Parse => on_threads(options.threads, time, || {
            let (source, blocks) = (messages::source()?, &blocks);
            Ok(move || {
                let mut count = 0;
                parse(&source, blocks, |batch| count += black_box(batch).len() as u64)?;
                Ok(count)
            })
        })?,
        Name::Staging => {
            let mut batches = Vec::new();
            parse(&messages::source()?, &blocks, |batch| batches.push(batch))?;
            on_threads(options.threads, time, || {
                let mut encoder = messages::format()?.encoder(&messages::schema())?;
                let (batches, mut out) = (&batches, Vec::new());
                Ok(move || {
                    for batch in batches {
                        out.clear();
                        encoder.encode(batch, &mut out);
                        black_box(&out);
                    }
                    Ok(MESSAGES)
                })
            })?
        }
        Name::Ring | Name::Link => {
            let mut batches = Vec::new();
            parse(&messages::source()?, &blocks, |batch| batches.push(batch))?;
            let by_key = options.name == Name::Link;
            links::run(batches, by_key, options.threads, time)?
        }
    };
    let rate = count as f64 / seconds;
    println!(
        "stage={} messages={count} seconds={seconds:.3} rate={rate:.0} bytes_rate={:.0}",
        format!("{:?}", options.name).to_lowercase(),
        rate * messages::BYTES as f64
    );
    Ok(())
}

/// Splits and decodes all blocks, as a source and its decode task do.
fn parse(source: &SourceContext, blocks: &[Bytes], mut take: impl FnMut(Batch)) -> Result<()> {
    let format = source.format.as_ref().context("messages have a format")?.reader(&source.schema)?;
    let mut splitter = format.splitter();
    let mut decoder = SourceDecoder::new(source, move || format.decoder())?;
    let (mut first, mut place) = (0, 0);
    for data in blocks {
        let count = splitter.split(place, data, false)?.records;
        place += data.len() as u64;
        let range = SeqRange::new(first, first + u64::from(count));
        let payload = Payload::Bytes { data: data.clone(), context: None };
        let decoded = decoder.decode(&RawBlock { partition: 0, first, count, payload }, range, 0)?;
        ensure!(decoded.rejects.is_none(), "a message was rejected");
        ensure!(decoded.records.len() == count as usize, "a message is missing");
        first = range.end;
        take(decoded.records);
    }
    ensure!(first == MESSAGES, "{first} of {MESSAGES} messages were found");
    Ok(())
}

/// Runs the same work on each thread until the time is over; the messages and the seconds.
fn on_threads<W>(threads: usize, time: Duration, make: impl Fn() -> Result<W> + Sync) -> Result<(u64, f64)>
where
    W: FnMut() -> Result<u64>,
{
    let started = Instant::now();
    let count = thread::scope(|scope| {
        let one = || -> Result<u64> {
            let (mut work, mut count) = (make()?, 0);
            while started.elapsed() < time {
                count += work()?;
            }
            Ok(count)
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        running.into_iter().try_fold(0, |sum, thread| match thread.join() {
            Ok(count) => Ok(sum + count?),
            Err(_) => bail!("a thread panicked"),
        })
    })?;
    Ok((count, started.elapsed().as_secs_f64()))
}
