//! Keys of twenty bytes in the `indexed` back end: what the hash of the index costs.
//!
//! `cargo run --release -p thalweg-state --example index_speed DIR [KEYS]`
//!
//! `DIR` must be empty and gets some 80 bytes a key. Prints changes per second as they are written and as keys are changed
//! in random order, bytes of the index per key, and how long opening takes: with an index file, and from segments alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use thalweg_state::indexed::{Indexed, IndexedOptions};
use thalweg_state::{Backend, Changes, StateError, Version};
use thalweg_storage::RealFs;

const SLICE: u64 = 100_000;

fn open(dir: &Path, version: Option<&Version>) -> Result<Indexed, StateError> {
    Indexed::open(Arc::new(RealFs), dir, 1, IndexedOptions::default(), version)
}

fn key(number: u64) -> [u8; 20] {
    let mut key = *b"key of twenty bytes.";
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

fn write(backend: &Indexed, cycle: u64, numbers: impl Iterator<Item = u64>) -> Result<f64, StateError> {
    let mut changes = Changes::new();
    let (mut seconds, mut count) = (0.0, 0.0);
    let mut flush = |changes: &mut Changes| {
        let begun = Instant::now();
        backend.write(cycle, changes)?;
        seconds += begun.elapsed().as_secs_f64();
        count += changes.len() as f64;
        changes.clear();
        Ok::<(), StateError>(())
    };
    for number in numbers {
        changes.push(&key(number), &number.to_le_bytes());
        if changes.len() as u64 == SLICE {
            flush(&mut changes)?;
        }
    }
    flush(&mut changes)?;
    Ok(count / seconds / 1e6)
}

fn main() -> Result<(), StateError> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("a folder for the back end");
    let keys: u64 = args.next().map_or(1_000_000, |count| count.parse().expect("a number of keys"));
    let dir = Path::new(&dir);
    let backend = open(dir, None)?;
    println!("new keys        {:.2} M changes/s", write(&backend, 1, 0..keys)?);
    let changed = (0..keys / 2).map(|number| number.wrapping_mul(0x9e37_79b9) % keys);
    println!("changed keys    {:.2} M changes/s", write(&backend, 2, changed)?);
    let version = backend.prepare(2)?;
    backend.committed(2)?;
    let stats = backend.stats();
    println!(
        "index           {:.1} bytes a key, {} keys",
        stats.index_bytes as f64 / keys as f64,
        stats.keys
    );
    backend.close()?;
    drop(backend);
    for with in ["with an index file", "from segments"] {
        let begun = Instant::now();
        drop(open(dir, Some(&version))?);
        println!("opened          {:.0} ms {with}", begun.elapsed().as_secs_f64() * 1e3);
        for file in std::fs::read_dir(dir).expect("it is there").flatten() {
            if file.file_name().to_string_lossy().starts_with("index-") {
                std::fs::remove_file(file.path()).expect("it is there");
            }
        }
    }
    Ok(())
}
