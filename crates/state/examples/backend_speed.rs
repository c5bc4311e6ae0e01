//! Speed of the embedded back ends on a real disk.
//!
//! `cargo run --release -p thalweg-state --example backend_speed [FOLDER]`
//!
//! Writes of 1 KiB and of 64 bytes in cycles of 10,000 changes with one commit each, reads from a warm page cache,
//! a start with an index file and one without, and memory per key; then one file per key, for comparison.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use thalweg_state::files::Files;
use thalweg_state::indexed::{Indexed, IndexedOptions};
use thalweg_state::{Backend, Changes, Version};
use thalweg_storage::{Fs, RealFs};

const PER_CYCLE: u64 = 10_000;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"card-00000000000";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Runs cycles of random overwrites (the first `keys` changes are one of each) and prints what they took.
fn write(
    name: &str,
    backend: &dyn Backend,
    shape: (u64, usize, u64),
    first: u64,
) -> Result<Version, Box<dyn Error>> {
    let (keys, value_len, cycles) = shape;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut changes, mut value, mut version) = (Changes::new(), vec![0; value_len], None);
    let (mut writing, mut committing, mut longest) = (0.0, 0.0, 0.0_f64);
    for cycle in first..first + cycles {
        changes.clear();
        for number in 0..PER_CYCLE {
            let at = (cycle - first) * PER_CYCLE + number;
            value[..8].copy_from_slice(&at.to_le_bytes());
            changes.push(&key(if at < keys { at } else { random.below(keys) }), &value);
        }
        let start = Instant::now();
        backend.write(cycle, &changes)?;
        let written = start.elapsed().as_secs_f64();
        let prepared = backend.prepare(cycle)?;
        backend.committed(cycle)?;
        let all = start.elapsed().as_secs_f64();
        writing += written;
        committing += all - written;
        longest = longest.max(all);
        version = Some(prepared);
    }
    let count = (cycles * PER_CYCLE) as f64;
    let stats = backend.stats();
    println!(
        "{name:28} {:>9.0} changes/s in write, {:>9.0} with commits ({:.0} MB/s), longest cycle {:.0} ms; \
         {:.2} x live on disk, {:.2} bytes copied per byte",
        count / writing,
        count / (writing + committing),
        count * (value_len + 16) as f64 / (writing + committing) / 1e6,
        longest * 1e3,
        stats.disk_bytes as f64 / stats.live_bytes as f64,
        stats.copied_bytes as f64 / (count * (value_len + 36) as f64),
    );
    version.ok_or_else(|| "no cycles".into())
}

fn read(backend: &dyn Backend, keys: u64) -> Result<(), Box<dyn Error>> {
    let mut random = Random(88);
    let count = 300_000;
    let start = Instant::now();
    let mut bytes = 0;
    for _ in 0..count {
        bytes += backend.get(&key(random.below(keys)))?.ok_or("a key is missing")?.len();
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(count);
    println!("{:28} {each:.2} us each, {} bytes", "get, random, warm", bytes / count as usize);
    Ok(())
}

fn fresh(root: &Path, name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let dir = root.join(name);
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    Ok(dir)
}

fn indexed(dir: &Path, version: Option<&Version>) -> Result<Indexed, Box<dyn Error>> {
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    Ok(Indexed::open(fs, dir, 1, IndexedOptions::default(), version)?)
}

fn start(name: &str, dir: &Path, version: &Version) -> Result<Indexed, Box<dyn Error>> {
    let begun = Instant::now();
    let backend = indexed(dir, Some(version))?;
    let stats = backend.stats();
    println!("{name:28} {:.0} ms for {} keys", begun.elapsed().as_secs_f64() * 1e3, stats.keys);
    Ok(backend)
}

fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from).join("backend-speed");
    let dir = fresh(&root, "large")?;
    let backend = indexed(&dir, None)?;
    write("indexed, 1 KiB, 100 k keys", &backend, (100_000, 1024, 100), 1)?;
    read(&backend, 100_000)?;
    drop(backend);

    let dir = fresh(&root, "small")?;
    let backend = indexed(&dir, None)?;
    let version = write("indexed, 64 B, 1 M keys", &backend, (1_000_000, 64, 300), 1)?;
    read(&backend, 1_000_000)?;
    println!("{:28} {:.1} bytes a key", "index", backend.stats().index_bytes as f64 / 1e6);
    drop(backend);
    let backend = start("start after a crash", &dir, &version)?;
    backend.close()?;
    drop(backend);
    start("start after a close", &dir, &version)?;
    for entry in std::fs::read_dir(&dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "thx") {
            std::fs::remove_file(path)?;
        }
    }
    start("start without an index file", &dir, &version)?;

    let dir = fresh(&root, "many")?;
    let backend = indexed(&dir, None)?;
    let version = write("indexed, 16 B, 10 M keys", &backend, (10_000_000, 16, 1000), 1)?;
    println!("{:28} {:.1} bytes a key", "index", backend.stats().index_bytes as f64 / 1e7);
    drop(backend);
    start("start after a crash", &dir, &version)?;

    let dir = fresh(&root, "files")?;
    let backend = Files::open(Arc::new(RealFs), &dir, 1, None)?;
    write("files, 1 KiB, 10 k keys", &backend, (10_000, 1024, 2), 1)?;
    read(&backend, 10_000)?;
    std::fs::remove_dir_all(&root)?;
    Ok(())
}
