//! Segments of a log: the first byte says whether checksums are made right first, the rest is the file.
//!
//! Without that no code after a checksum check would ever be reached.

use std::path::Path;
use std::sync::Arc;

use thalweg_storage::frame::Chain;
use thalweg_storage::log::{self, Log, LogOptions, LogPosition};
use thalweg_storage::{Fs as _, MemFs, OpenMode};

use crate::{Target, nothing_more};

pub const TARGET: Target = Target { name: "log", run, seeds, words: &[], allowance: nothing_more };

const DIR: &str = "/log";
const PATH: &str = "/log/fuzz-00000000000000000000.thl";
const IDENTITY: u64 = 7;
/// Bytes of a segment's header, and of a frame's.
const HEADER: usize = 64;
const FRAME: usize = 16;

pub fn run(data: &[u8]) {
    let bytes = match data {
        [0, segment @ ..] => segment.to_vec(),
        [_, segment @ ..] => repaired(segment.to_vec()),
        [] => Vec::new(),
    };
    let fs = MemFs::new();
    thalweg_storage::make_dir(&fs, Path::new(DIR)).expect("a disk in memory");
    fs.open(Path::new(PATH), OpenMode::CreateNew).expect("a disk in memory");
    fs.set_bytes(Path::new(PATH), bytes).expect("it was just made");
    let summary = log::inspect(&fs, Path::new(DIR)).expect("damage is no error here");
    let Some(records) = records(&fs) else { return };
    if summary.damage.is_none() {
        assert_eq!(summary.next(), LogPosition(records.len() as u64), "inspect sees what opening keeps");
    }
    assert_eq!(records_again(&fs), records, "opening again changes nothing");
}

fn open(fs: &MemFs) -> Option<Log> {
    // Zeros ahead would be the largest allocation of the disk in memory.
    let options = LogOptions { ahead_bytes: 0, ..LogOptions::new("fuzz", IDENTITY) };
    Some(Log::open(Arc::new(fs.clone()), DIR, options).ok()?.log)
}

/// What a log holds that opens.
fn records(fs: &MemFs) -> Option<Vec<Vec<u8>>> {
    let log = open(fs)?;
    let mut reader = log.read_from(log.first()).expect("the log's own bounds");
    let mut records = Vec::new();
    while let Some((position, record)) = reader.next_record().expect("opening has read it") {
        assert_eq!(position, LogPosition(records.len() as u64));
        records.push(record.to_vec());
    }
    assert_eq!(reader.position(), log.next());
    Some(records)
}

/// The same, after one more record was appended and taken back.
fn records_again(fs: &MemFs) -> Vec<Vec<u8>> {
    let mut log = open(fs).expect("it was opened before");
    let next = log.append(&[b"one more"]).expect("an open log");
    log.sync().expect("a disk in memory");
    log.truncate_behind(next).expect("its last record");
    drop(log);
    records(fs).expect("it was opened before")
}

/// Makes the header's checksum and the chain of frames fit the bytes.
fn repaired(mut segment: Vec<u8>) -> Vec<u8> {
    if segment.len() < HEADER {
        return segment;
    }
    let crc = crc32fast::hash(&segment[..HEADER - 4]);
    segment[HEADER - 4..HEADER].copy_from_slice(&crc.to_le_bytes());
    let link = u32::from_le_bytes(segment[32..36].try_into().expect("four bytes"));
    // `storage/src/log/segment.rs`: identity, base, link.
    let identity = [0, u64::from(link)].into_iter().fold(mix(IDENTITY), |mixed, part| mix(mixed ^ part));
    let mut chain = Chain::new(identity);
    let mut rest = &mut segment[HEADER..];
    while rest.len() >= FRAME {
        let len = u32::from_le_bytes(rest[4..8].try_into().expect("four bytes")) as usize;
        if len > rest.len() - FRAME {
            break;
        }
        let (frame, behind) = rest.split_at_mut(FRAME + len);
        chain.seal(frame);
        rest = behind;
    }
    segment
}

fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], [&[1], [0; 300].as_slice()].concat()];
    for groups in [0, 1, 4] {
        let fs = MemFs::new();
        let mut log = open(&fs).expect("a new log");
        for group in 0..groups {
            for record in 0..group + 1 {
                log.append(&[&[group as u8; 5], &vec![0xf7; record * 9]]).expect("an open log");
            }
            log.sync().expect("a disk in memory");
        }
        log.truncate_behind(LogPosition(8)).expect("a record that is there");
        let open_end = fs.bytes(Path::new(PATH)).expect("a segment");
        log.close().expect("a disk in memory");
        let closed = fs.bytes(Path::new(PATH)).expect("a segment");
        for bytes in [open_end, closed] {
            let bytes = &bytes[..bytes.len().min(1500)];
            seeds.push([&[0], bytes].concat());
            seeds.push([&[1], bytes].concat());
        }
    }
    seeds
}
