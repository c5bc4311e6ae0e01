//! How many samples a second one core decodes to batches: the datagrams of a capture, replayed from memory.
//!
//! `cargo run --release -p thalweg-connect --example sflow_speed -- CAPTURE`
//!
//! Its last line is for programs: `samples=… rows=… rate=…`.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Instant;

use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError};
use thalweg_types::SeqRange;

const ROUNDS: usize = 7;

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: sflow_speed CAPTURE");
        return ExitCode::from(2);
    };
    let datagrams = match datagrams(&path) {
        Ok(datagrams) => datagrams,
        Err(error) => {
            eprintln!("{path}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let sender = IpAddr::from([192, 0, 2, 1]);
    // Blocks of about 256 KiB, as a job has them.
    let blocks: Vec<_> = datagrams
        .chunks(200)
        .map(|some| {
            thalweg_connect::sflow::block(0, some.iter().map(|datagram| (0, sender, datagram.as_slice())))
        })
        .collect();
    let samples: u64 = blocks.iter().map(|block| u64::from(block.count)).sum();
    let mut decoder = thalweg_connect::sflow::decoder("switches");
    let mut rates = Vec::new();
    let mut rows = 0;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let mut decoded = 0;
        while begun.elapsed().as_secs_f64() < 1.0 {
            for block in &blocks {
                let outcome = decoder.decode(block, SeqRange::new(0, u64::from(block.count)), 0);
                rows += outcome.map_or(0, |decoded| decoded.records.len());
            }
            decoded += samples;
        }
        rates.push(decoded as f64 / begun.elapsed().as_secs_f64() / 1e6);
    }
    rates.sort_by(f64::total_cmp);
    println!(
        "{samples} samples, {:.2} M samples/s (median of {ROUNDS}: {:.2} to {:.2}), {rows} rows",
        rates[ROUNDS / 2],
        rates[0],
        rates[ROUNDS - 1]
    );
    println!("samples={samples} rows={rows} rate={:.0}", rates[ROUNDS / 2] * 1e6);
    ExitCode::SUCCESS
}

/// The payloads of a capture's UDP packets over Ethernet and IPv4.
fn datagrams(path: &str) -> Result<Vec<Vec<u8>>, String> {
    const HEADERS: usize = 14 + 20 + 8;
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut reader = LegacyPcapReader::new(1 << 20, file).map_err(|error| error.to_string())?;
    let mut datagrams = Vec::new();
    loop {
        let consumed = match reader.next() {
            Ok((consumed, block)) => {
                if let PcapBlockOwned::Legacy(packet) = block
                    && let Some(payload) = packet.data.get(HEADERS..)
                {
                    datagrams.push(payload.to_vec());
                }
                consumed
            }
            Err(PcapError::Eof) => return Ok(datagrams),
            Err(PcapError::Incomplete(_)) => {
                reader.refill().map_err(|error| error.to_string())?;
                continue;
            }
            Err(error) => return Err(error.to_string()),
        };
        reader.consume(consumed);
    }
}
