//! Ways of writing one after another and syncing, compared with `fio`, on one disk in the same minutes.
//!
//! `cargo run --release -p thalweg-storage --example write_ways -- FOLDER [WORD…]`, with words only lines of the
//! tables that hold one of them
//!
//! Writes of one size, each of them synced or none. A record's size matters to the disk only through the size of the
//! write that it is in, so the sizes are those of 16 records of 64 B, 500 B and 4 KiB (small groups) and of a full
//! buffer. Each figure is the median of three runs. `docs/decisions/2026-11-20-journal-writes.md` has the conclusions.
//!
//! Not here: our log compared with `fio`, which is `cargo xtask bench part-journal`.

#![expect(unsafe_code, reason = "mapping a file is unsafe; the trial owns its file and nobody cuts it")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use memmap2::MmapMut;

const RUNS: usize = 3;
/// Bytes of a file before the next is begun.
const FILE: usize = 16 << 20;
const AHEAD: usize = 4 << 20;
const ALIGNED: usize = 4096;
/// A run ends after this time or these bytes: few enough that a machine which limits bursts does not decide the
/// figures.
const TIME: Duration = Duration::from_millis(500);
const BYTES: usize = 16 << 20;
const WRITES: [(&str, usize); 4] =
    [("16 x 64 B", 16 * 64), ("16 x 500 B", 16 * 500), ("16 x 4 KiB", 16 * 4096), ("full buffer", 1 << 20)];

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Append,
    Ahead,
    Over,
    Mapped,
    DirectAppend,
    DirectOver,
}

const WAYS: [(&str, Way); 6] = [
    ("pwrite after the end", Way::Append),
    ("pwrite, 4 MiB of zeros ahead", Way::Ahead),
    ("pwrite over blocks that are there", Way::Over),
    ("mmap over blocks that are there", Way::Mapped),
    ("direct after the end", Way::DirectAppend),
    ("direct over blocks that are there", Way::DirectOver),
];

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("a folder on the disk that is to be measured"));
    std::fs::create_dir_all(&folder).expect("create the folder");
    for synced in [true, false] {
        println!("MB/s, {}", if synced { "each write synced" } else { "no write synced" });
        heading(&WRITES.map(|(name, _)| name));
        let way = |way| move |folder: &Path, size| write_files(folder, way, size, synced);
        let fio = |options: &'static [&str]| move |folder: &Path, size| fio(folder, size, synced, options);
        let mut lines: Vec<(&str, Box<Trial>)> = Vec::new();
        for (name, which) in WAYS {
            lines.push((name, Box::new(way(which))));
        }
        lines.push(("fio, after the end", Box::new(fio(&["--fallocate=none"]))));
        lines.push(("fio, over blocks that are there", Box::new(fio(&["--overwrite=1"]))));
        table(&folder, &lines, &WRITES.map(|(_, size)| size));
    }
}

/// Measures once, at a size.
type Trial = dyn Fn(&Path, usize) -> f64;

fn heading(names: &[&str]) {
    print!("{:<38}", "");
    names.iter().for_each(|name| print!("{name:>18}"));
    println!();
}

/// Medians; all cells are measured once before any is measured again, and those of one size side by side, so that a
/// disturbed minute meets all that are compared.
fn table(folder: &Path, lines: &[(&str, Box<Trial>)], sizes: &[usize]) {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let lines: Vec<_> = lines.iter().filter(|(name, _)| is_wanted(name)).collect();
    let mut rates = vec![Vec::new(); lines.len() * sizes.len()];
    for _ in 0..RUNS {
        for (column, size) in sizes.iter().enumerate() {
            for (line, (_, trial)) in lines.iter().enumerate() {
                rates[line * sizes.len() + column].push(trial(folder, *size));
            }
        }
    }
    rates.iter_mut().for_each(|rates| rates.sort_by(f64::total_cmp));
    for ((name, _), rates) in lines.iter().zip(rates.chunks(sizes.len())) {
        print!("{:<38}", name);
        rates.iter().for_each(|rates| print!("{:>18.1}", rates[RUNS / 2]));
        println!();
    }
    println!();
}

/// Megabytes of payload a second; laying out blocks beforehand is not counted, laying them out on the way is.
fn write_files(folder: &Path, way: Way, size: usize, synced: bool) -> f64 {
    let is_laid = matches!(way, Way::Over | Way::Mapped | Way::DirectOver);
    let path = folder.join(if is_laid { "laid" } else { "trial" });
    let direct = matches!(way, Way::DirectAppend | Way::DirectOver);
    // Direct writes are whole blocks: what a group does not fill is padding.
    let stride = if direct { size.next_multiple_of(ALIGNED) } else { size };
    let slack = vec![7_u8; stride + ALIGNED];
    let start = slack.as_ptr().align_offset(ALIGNED);
    let bytes = &slack[start..start + stride];
    let (mut spent, mut payload) = (Duration::ZERO, 0);
    while spent < TIME && payload < BYTES {
        if is_laid && !path.exists() {
            let plain = open(&path, false);
            (0..FILE / AHEAD).for_each(|part| zeros(&plain, part * AHEAD));
            plain.sync_all().expect("sync");
        }
        let file = open(&path, direct);
        // SAFETY: this process alone has the file, and it is neither cut nor removed while mapped.
        let mut map = (way == Way::Mapped).then(|| unsafe { MmapMut::map_mut(&file) }.expect("map"));
        let started = Instant::now();
        let (mut at, mut laid) = (0, 0);
        while at + stride <= FILE && payload < BYTES && spent + started.elapsed() < TIME {
            match &mut map {
                Some(map) => {
                    map[at..at + stride].copy_from_slice(bytes);
                    if synced {
                        map.flush_range(at, stride).expect("msync");
                    }
                }
                None => {
                    file.write_all_at(bytes, at as u64).expect("write");
                    if way == Way::Ahead && at + stride > laid && synced && size <= 256 << 10 {
                        laid = at + stride + AHEAD;
                        zeros(&file, at + stride);
                    }
                    if synced {
                        file.sync_data().expect("fdatasync");
                    }
                }
            }
            at += stride;
            payload += size;
        }
        spent += started.elapsed();
        drop(map);
        if !is_laid {
            std::fs::remove_file(&path).expect("remove");
        }
    }
    payload as f64 / 1e6 / spent.as_secs_f64()
}

fn open(path: &Path, direct: bool) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    if direct {
        options.custom_flags(libc::O_DIRECT);
    }
    options.open(path).expect("create")
}

fn zeros(file: &File, at: usize) {
    static ZEROS: [u8; AHEAD] = [0; AHEAD];
    file.write_all_at(&ZEROS, at as u64).expect("write zeros");
}

/// Megabytes a second by fio's own count; 0 where there is no fio.
fn fio(folder: &Path, size: usize, synced: bool, more: &[&str]) -> f64 {
    let path = folder.join("fio");
    let output = Command::new("fio")
        .args(["--name=trial", "--rw=write", "--ioengine=psync", "--size=16m", "--runtime=1"])
        .args(["--output-format=terse", "--terse-version=3"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--bs={size}"))
        .arg(format!("--fdatasync={}", u8::from(synced)))
        .args(more)
        .output();
    let _ = std::fs::remove_file(&path);
    let Ok(output) = output else { return 0.0 };
    let text = String::from_utf8_lossy(&output.stdout);
    // The write section of terse version 3 begins at field 46: total KiB, KiB/s.
    let rate = text.lines().find(|line| line.starts_with("3;")).and_then(|line| line.split(';').nth(47));
    rate.and_then(|rate| rate.parse::<f64>().ok()).map_or(0.0, |rate| rate * 1024.0 / 1e6)
}
