//! Speed of state in a store: cycles of 10,000 changes of 100 bytes, reads by key, a scan, and cycles that take keys away.
//!
//! `cargo run --release -p thalweg-state-remote --example store_speed redis redis://127.0.0.1:6379 [CYCLES]`

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use thalweg_state::Changes;
use thalweg_state::Interrupt;
use thalweg_state::registry::Place;
use thalweg_state_remote::{Kind, Remote, Settings};
use thalweg_storage::RealFs;

const PER_CYCLE: u64 = 10_000;

fn key(number: u64) -> [u8; 8] {
    // Spread, as groups are.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let kind =
        arguments.next().and_then(|name| Kind::of_name(&name)).ok_or("name a store: redis or hbase")?;
    let url = arguments.next().unwrap_or_else(|| kind.example().to_owned());
    let cycles: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let settings = Settings::new(kind, &url).map_err(|error| error.chain())?;
    let folder = tempfile::tempdir()?;
    let place = Place { fs: Arc::new(RealFs), dir: folder.path().join("state"), identity: 1 };
    let remote = Remote::connect(&settings, Interrupt::default())?;
    let backend = remote.open(&place, "speed/example/0", None)?;

    let mut number = 0;
    let mut cycle = |what: &str, change: &dyn Fn(&mut Changes, u64)| -> Result<(), Box<dyn Error>> {
        let (mut written, mut folded) = (0.0, 0.0);
        for round in 0..cycles {
            number += 1;
            let mut changes = Changes::new();
            (0..PER_CYCLE).for_each(|at| change(&mut changes, round * PER_CYCLE + at));
            let start = Instant::now();
            backend.write(number, &changes)?;
            backend.prepare(number)?;
            written += start.elapsed().as_secs_f64();
            let start = Instant::now();
            backend.committed(number)?;
            folded += start.elapsed().as_secs_f64();
        }
        let total = (cycles * PER_CYCLE) as f64;
        println!("{what}: durable {:.0}/s, folded {:.0}/s", total / written, total / folded);
        Ok(())
    };
    cycle("new values", &|changes, at| changes.push(&key(at), &[7; 92]))?;
    cycle("other values", &|changes, at| changes.push(&key(at), &[8; 92]))?;
    let keys: Vec<_> = (0..PER_CYCLE).map(|at| key(at * cycles)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
    let start = Instant::now();
    assert!(backend.get_many(&keys)?.iter().all(Option::is_some));
    println!("reads, {PER_CYCLE} keys at once: {:.0}/s", PER_CYCLE as f64 / start.elapsed().as_secs_f64());
    let start = Instant::now();
    for key in &keys[..500] {
        backend.get(key)?;
    }
    println!("reads, one by one: {:.0}/s", 500.0 / start.elapsed().as_secs_f64());
    let start = Instant::now();
    let mut seen = 0_u64;
    backend.scan(&mut |_, _| {
        seen += 1;
        ControlFlow::Continue(())
    })?;
    println!("scan of {seen}: {:.0}/s", seen as f64 / start.elapsed().as_secs_f64());
    cycle("taken away", &|changes, at| changes.remove(&key(at)))
}
