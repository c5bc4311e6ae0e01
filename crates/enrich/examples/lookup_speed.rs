//! Size and speed of lookup tables on made-up reverse-DNS rows.
//!
//! `cargo run --release -p thalweg-enrich --example lookup_speed -- ROWS FOLDER [RESIDENT_MIB [KEYS]]`
//!
//! Builds a table of about ROWS rows in FOLDER (rows come scattered, so they are sorted), or takes the one
//! that is there, and prints: rows built in a second, bytes a row by section, what 1.2 billion rows would
//! take, the heap, and lookups in a second. *Hits* are uniform over the rows, *random* ones over all IPv4
//! addresses. *Cold* batches begin with nothing of the file in the page cache, which `mincore` confirms.
//! Lines of `case=…` are for programs.

#![expect(unsafe_code, reason = "mincore, which says what is in the page cache, is called directly")]

use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use arrow_array::{Array as _, FixedSizeBinaryArray};
use fastrand::Rng;
use thalweg_enrich::lookup::made_up::{FULL_ROWS, MadeUp};
use thalweg_enrich::lookup::{
    BuildOptions, Found, LookupTable, OpenOptions, Scratch, SectionKind, TableBuilder,
};

const SEED: u64 = 7;
const BATCH: usize = 1 << 16;
const WARM_KEYS: usize = 1 << 22;
const COLD_ROUNDS: usize = 8;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().and_then(|rows| rows.parse().ok()).unwrap_or(1_000_000);
    let folder: PathBuf = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let resident = arguments.next().and_then(|mib| mib.parse().ok()).map_or(1 << 30, |mib: u64| mib << 20);
    let warm_keys = arguments.next().and_then(|keys| keys.parse().ok()).unwrap_or(WARM_KEYS);
    let path = folder.join(format!("lookup-{rows}.tbl"));
    let set = MadeUp::new(SEED, rows);
    if !path.exists() {
        build(set, &path);
    }
    sizes(&path);

    let mut random = Rng::with_seed(1);
    let hits = keys(&mut random, warm_keys, |address| set.has(address), set);
    let misses: Vec<[u8; 16]> = (0..warm_keys).map(|_| mapped(random.u32(..))).collect();

    let options = OpenOptions { resident };
    let absent = keys(&mut random, warm_keys.min(1 << 18), |address| !set.has(address), set);
    for batch in [4_096, BATCH].map(|batch| batch.min(warm_keys)) {
        cold(&path, options, &hits, batch, set, &[]);
        cold(&path, options, &hits, batch, set, &absent);
    }

    let before = heap();
    let table = LookupTable::open_with(&path, options).expect("open");
    println!(
        "heap: table says {} KiB, process grew by {} KiB",
        table.heap_bytes() >> 10,
        (heap() - before) >> 10
    );
    speed("warming", &table, &hits, set);
    speed("warm, hits, batches", &table, &hits, set);
    speed("warm, random, batches", &table, &misses, set);
    singly("warm, hits, one by one", &table, &hits);
    singly("warm, random, one by one", &table, &misses);
    println!("{:?}", table.stats());
    println!("process: anonymous {} MiB, mapped files {} MiB", heap() >> 20, status("RssFile:") >> 20);
    drop(table);
    let file = File::open(&path).expect("open");
    let length = file.metadata().expect("metadata").len() as usize;
    println!("page cache: {} MiB of {} of the file", resident_pages(&file, length) >> 8, length >> 20);
}

/// One batch after the other, each with nothing of the file in memory: what one reads helps no other.
/// `before` is looked up before the clock runs; where it has only addresses without a row, that reads the
/// filter.
fn cold(
    path: &Path,
    options: OpenOptions,
    keys: &[[u8; 16]],
    batch: usize,
    set: MadeUp,
    before: &[[u8; 16]],
) {
    let (mut seconds, mut opening, mut pages, mut left, mut asked) = (0.0, 0.0, 0, 0, 0);
    for keys in keys.chunks(batch).take(COLD_ROUNDS) {
        left += drop_cache(path);
        let started = Instant::now();
        let table = LookupTable::open_with(path, options).expect("open");
        opening += started.elapsed().as_secs_f64();
        look_up(&table, &columns(before, BATCH), set);
        assert_eq!(table.stats().blocks_read, 0);
        let columns = columns(keys, batch);
        let started = Instant::now();
        look_up(&table, &columns, set);
        seconds += started.elapsed().as_secs_f64();
        pages += table.stats().blocks_read;
        asked += keys.len();
    }
    let keys = asked as f64;
    println!(
        "cold, {batch} keys a batch, filter {}: {:.1} k/s, {:.2} pieces read a key ({:.0} k/s); opening {:.1} ms; {left} pages left",
        if before.is_empty() { "too" } else { "in memory" },
        keys / seconds / 1e3,
        pages as f64 / keys,
        pages as f64 / seconds / 1e3,
        opening * 1e3 / COLD_ROUNDS as f64,
    );
    let filter = if before.is_empty() { "cold" } else { "warm" };
    println!("case=cold batch={batch} filter={filter} rate={:.0}", keys / seconds);
}

fn build(set: MadeUp, path: &Path) {
    let (started, clock) = (Instant::now(), Clock::start());
    let mut writing = None;
    let mut builder = TableBuilder::new(path, BuildOptions::default()).with_progress(|progress| {
        if matches!(progress.stage, thalweg_enrich::lookup::Stage::Writing) {
            writing.get_or_insert_with(Instant::now);
        }
        ControlFlow::Continue(())
    });
    let (mut name, mut bytes) = (Vec::new(), 0);
    for address in set.scattered_rows() {
        set.name(address, &mut name);
        bytes += name.len() as u64;
        builder.push(mapped(address), &name).expect("push");
    }
    let report = builder.finish().expect("finish");
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "built {} rows ({:.1} bytes of name each) in {seconds:.1} s, {:.2} M rows/s; {:.1} s of processor; the writing part {:.1} s",
        report.rows,
        bytes as f64 / report.rows as f64,
        report.rows as f64 / seconds / 1e6,
        (processor_time() - clock.processor) as f64 / 1e9,
        writing.map_or(0.0, |begun| begun.elapsed().as_secs_f64()),
    );
    println!("case=build rows={} rate={:.0}", report.rows, report.rows as f64 / seconds);
}

fn sizes(path: &Path) {
    let table = LookupTable::open(path).expect("open");
    let summary = table.summary();
    let per_row = |bytes: u64| bytes as f64 / summary.rows as f64;
    for section in &summary.sections {
        println!(
            "  {:12} {:>12} bytes  {:.4} a row",
            section.kind.name(),
            section.length,
            per_row(section.length)
        );
    }
    let fixed: u64 = summary
        .sections
        .iter()
        .filter(|section| matches!(section.kind, SectionKind::Templates | SectionKind::Model))
        .map(|section| section.length)
        .sum();
    let full_gb = per_row(summary.file_bytes - fixed) * FULL_ROWS as f64 / 1e9 + fixed as f64 / 1e9;
    println!(
        "{} rows, {} empty, {} bytes, {:.3} a row; {} templates; 1.2 billion rows: {full_gb:.2} GB",
        summary.rows,
        summary.empty,
        summary.file_bytes,
        summary.bytes_per_row(),
        summary.template_count,
    );
    println!(
        "case=size rows={} bytes_per_row={:.4} full_gb={full_gb:.3}",
        summary.rows,
        summary.bytes_per_row()
    );
}

fn speed(what: &str, table: &LookupTable, keys: &[[u8; 16]], set: MadeUp) {
    let columns = columns(keys, BATCH);
    let started = Clock::start();
    let found = look_up(table, &columns, set);
    report(what, keys.len(), found, started);
}

fn columns(keys: &[[u8; 16]], batch: usize) -> Vec<FixedSizeBinaryArray> {
    keys.chunks(batch)
        .map(|keys| FixedSizeBinaryArray::try_from_iter(keys.iter()).expect("keys of 16 bytes"))
        .collect()
}

/// Looks up in batches, compares a name of each with the made-up one, and returns how many rows were found.
fn look_up(table: &LookupTable, columns: &[FixedSizeBinaryArray], set: MadeUp) -> usize {
    let mut scratch = Scratch::default();
    let (mut found, mut expected) = (0, Vec::new());
    for column in columns {
        let names = table.find_all(column, &mut scratch).expect("look up");
        found += names.found.count_set_bits();
        let row = column.len() / 2;
        let key = column.value(row);
        let address = u32::from_be_bytes([key[12], key[13], key[14], key[15]]);
        if names.found.value(row) {
            set.name(address, &mut expected);
            assert_eq!(names.values.value(row).as_bytes(), expected);
        }
        assert_eq!(names.found.value(row), set.has(address));
    }
    found
}

fn singly(what: &str, table: &LookupTable, keys: &[[u8; 16]]) {
    let mut out = Vec::new();
    let mut found = 0;
    let started = Clock::start();
    for key in keys {
        out.clear();
        found += usize::from(table.find(*key, &mut out).expect("look up") != Found::Absent);
    }
    report(what, keys.len(), found, started);
}

fn report(what: &str, keys: usize, found: usize, started: Clock) {
    let seconds = started.wall.elapsed().as_secs_f64();
    println!(
        "{what:26} {:>7.3} M/s  {:>6.0} ns each, {:>6.0} ns of processor  ({keys} keys, {:.1} % found)",
        keys as f64 / seconds / 1e6,
        seconds * 1e9 / keys as f64,
        (processor_time() - started.processor) as f64 / keys as f64,
        found as f64 * 100.0 / keys as f64,
    );
    let case = what.replace([' ', ','], "");
    println!("case={case} keys={keys} found={found} rate={:.0}", keys as f64 / seconds);
}

/// When something began: by the wall, and by the time that this thread had a processor, which others on the
/// machine take nothing of.
struct Clock {
    wall: Instant,
    processor: u64,
}

impl Clock {
    fn start() -> Self {
        Self { wall: Instant::now(), processor: processor_time() }
    }
}

/// Nanoseconds that this thread has run.
fn processor_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat of the thread");
    stat.split_whitespace().next().and_then(|time| time.parse().ok()).expect("a number")
}

fn keys(random: &mut Rng, count: usize, is_wanted: impl Fn(u32) -> bool, set: MadeUp) -> Vec<[u8; 16]> {
    // Only /16s in use are tried, or a small set would take for ever.
    let blocks: Vec<u32> = (0..=u16::MAX).filter(|block| set.uses(*block)).map(u32::from).collect();
    let mut keys = Vec::with_capacity(count);
    while keys.len() < count {
        let number = random.u64(..);
        let address = blocks[(number >> 32) as usize % blocks.len()] << 16 | number as u32 & 0xffff;
        if is_wanted(address) {
            keys.push(mapped(address));
        }
    }
    keys
}

fn mapped(address: u32) -> [u8; 16] {
    std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets()
}

/// Drops the file from the page cache and says how many pages are left all the same.
fn drop_cache(path: &Path) -> usize {
    let file = File::open(path).expect("open");
    file.sync_all().expect("sync");
    let length = file.metadata().expect("metadata").len() as usize;
    // SAFETY: the descriptor is open; advice changes no memory of this process.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    resident_pages(&file, length)
}

fn resident_pages(file: &File, length: usize) -> usize {
    let mut pages = vec![0_u8; length.div_ceil(4096)];
    // SAFETY: a fresh read-only map of the whole file that nobody dereferences, unmapped below; the vector
    // has a byte for each of its pages.
    unsafe {
        let fd = file.as_raw_fd();
        let map = libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        assert_ne!(map, libc::MAP_FAILED, "map");
        assert_eq!(libc::mincore(map, length, pages.as_mut_ptr()), 0, "mincore");
        libc::munmap(map, length);
    }
    pages.iter().filter(|page| **page & 1 == 1).count()
}

/// Anonymous memory of the process: heap and stacks, and nothing that is mapped from files.
fn heap() -> u64 {
    status("RssAnon:")
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status of the process");
    let line = status.lines().find(|line| line.starts_with(field)).expect("a field of it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}
