//! Sends datagrams of sFlow version 5 over UDP at a steady rate: those of a capture or made-up ones again and again, with
//! sequence numbers of its own, or those of generated flows once; `cargo xtask bench sflow` measures collectors with it.
//!
//! Ends with one line: `datagrams=… samples=… seconds=… rate=… begun=…`, the rate in samples per second as it really was and
//! the beginning in microseconds since 1970: each datagram was meant to be sent as soon as the samples before it were due.

mod datagram;

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use self::datagram::Datagram;

#[derive(Parser)]
struct Args {
    /// Where to
    #[arg(long)]
    to: SocketAddr,
    /// A capture (pcap, Ethernet, IPv4) with the datagrams; without it made-up ones of seven samples each
    #[arg(long)]
    capture: Option<PathBuf>,
    /// Records of `thalweg gen flows --format ndjson`, sent once as their agents would, however long that takes
    #[arg(long, conflicts_with_all = ["capture", "seconds"])]
    flows: Option<PathBuf>,
    /// Samples per second
    #[arg(long)]
    rate: f64,
    /// For how long
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

/// The longest that is slept at a time, so that what is due comes in small bursts.
const NAP: Duration = Duration::from_micros(100);

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(args.rate > 0.0 && args.seconds > 0.0, "rate and seconds are above 0");
    let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("read {path:?}"));
    let mut datagrams = match (&args.capture, &args.flows) {
        (Some(path), _) => datagram::of_capture(&read(path)?).with_context(|| format!("read {path:?}"))?,
        (None, Some(path)) => datagram::of_flows(&read(path)?).with_context(|| format!("read {path:?}"))?,
        (None, None) => datagram::made_up(),
    };
    let (most, seconds) = match args.flows {
        Some(_) => (datagrams.len() as u64, f64::INFINITY),
        None => (u64::MAX, args.seconds),
    };
    let socket = UdpSocket::bind(("127.0.0.1", 0)).context("open a socket")?;
    let (mut samples, mut sent) = (0_u64, 0_u64);
    let (begun, wall_clock) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?);
    let mut next = 0;
    let seconds = loop {
        let elapsed = begun.elapsed().as_secs_f64();
        if elapsed >= seconds || sent == most {
            break elapsed;
        }
        let due = (elapsed * args.rate) as u64;
        if samples >= due {
            std::thread::sleep(NAP);
            continue;
        }
        // The clock is looked at again after a burst, so that a slow socket is noticed.
        for _ in 0..64 {
            if samples >= due || sent == most {
                break;
            }
            let datagram: &mut Datagram = &mut datagrams[next];
            next += 1;
            if args.flows.is_none() {
                datagram.set_sequence(sent as u32);
            }
            socket.send_to(&datagram.bytes, args.to).with_context(|| format!("send to {}", args.to))?;
            samples += u64::from(datagram.samples);
            sent += 1;
            if next == datagrams.len() {
                next = 0;
            }
        }
    };
    println!(
        "datagrams={sent} samples={samples} seconds={seconds:.3} rate={:.0} begun={}",
        samples as f64 / seconds,
        wall_clock.as_micros()
    );
    Ok(())
}
