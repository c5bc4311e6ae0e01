//! Truncated, flipped, zeroed, doubled and swapped bytes, and files in the wrong place.

use super::*;
use crate::{OpenMode, make_dir};

/// A closed log of `count` records, each synced with its own group.
fn log_of(count: u64, segment_bytes: u64) -> MemFs {
    let fs = MemFs::new();
    let mut log =
        Log::open(Arc::new(fs.clone()), DIR, LogOptions { segment_bytes, ..options() }).unwrap().log;
    for _ in 0..count {
        append(&mut log, 1);
        log.sync().unwrap();
    }
    log.close().unwrap();
    fs
}

/// Opens, checks that the records are those that were written, and returns their number.
fn examine(fs: &MemFs, promised: u64) -> Result<u64, LogError> {
    let options = LogOptions { promised: LogPosition(promised), ..options() };
    let log = Log::open(Arc::new(fs.clone()), DIR, options)?.log;
    assert_holds(&log, log.first().0, log.next().0);
    Ok(log.next().0)
}

/// A copy whose disk can be damaged on its own.
fn copy(fs: &MemFs) -> MemFs {
    let copy = MemFs::new();
    make_dir(&copy, Path::new(DIR)).unwrap();
    for path in segments(fs) {
        copy.open(&path, OpenMode::CreateNew).unwrap();
        copy.set_bytes(&path, fs.bytes(&path).unwrap()).unwrap();
    }
    copy.sync_dir(Path::new(DIR)).unwrap();
    copy
}

fn with(fs: &MemFs, path: &Path, bytes: Vec<u8>) -> MemFs {
    let copy = copy(fs);
    copy.set_bytes(path, bytes).unwrap();
    copy
}

fn damage_of(outcome: Result<u64, LogError>) -> (PathBuf, u64, &'static str) {
    match outcome {
        Err(LogError::Damaged { path, pos, what, .. }) => (path, pos, what),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_segment_may_end_anywhere_and_no_other() {
    let fs = log_of(40, 700);
    let files = segments(&fs);
    let (last, middle) = (files.last().unwrap(), &files[1]);
    let whole = fs.bytes(last).unwrap();
    let mut left = std::collections::BTreeSet::new();
    for len in 0..whole.len() {
        let cut = with(&fs, last, whole[..len].to_vec());
        left.insert(examine(&cut, 0).unwrap());
        // The cut is repaired, and the log goes on.
        let mut log = open(&cut).unwrap().log;
        append(&mut log, 3);
        log.sync().unwrap();
        assert_holds(&log, 0, log.next().0);
        // Inside the mark nothing is lost.
        if len < whole.len() - 36 {
            damage_of(examine(&with(&fs, last, whole[..len].to_vec()), 40));
        }
    }
    let first_of_last = segment::split_name(last.file_name().unwrap().to_str().unwrap()).unwrap().1.0;
    assert!(left.into_iter().eq(first_of_last..=40), "every number of records was left once");
    let whole = fs.bytes(middle).unwrap();
    for len in 0..whole.len() {
        let (path, _, _) = damage_of(examine(&with(&fs, middle, whole[..len].to_vec()), 0));
        assert!(&path == middle || path == files[2], "{path:?}");
    }
    let longer = [whole.as_slice(), &[0; 9]].concat();
    assert_eq!(damage_of(examine(&with(&fs, middle, longer), 0)).1, whole.len() as u64);
}

#[test]
fn a_torn_tail_is_reported_once() {
    let fs = log_of(10, 1 << 20);
    let path = &segments(&fs)[0];
    let whole = fs.bytes(path).unwrap();
    // Into the last record.
    let len = whole.len() - 36 - 5;
    let cut = with(&fs, path, whole[..len].to_vec());
    let summary = inspect(&cut, Path::new(DIR)).unwrap();
    let opened = open(&cut).unwrap();
    let torn = opened.torn.clone().unwrap();
    assert_eq!(summary.torn.as_ref(), Some(&torn));
    assert_eq!((&torn.path, torn.pos + torn.bytes), (path, len as u64));
    assert_eq!(opened.log.next(), LogPosition(9));
    drop(opened);
    assert_eq!(open(&cut).unwrap().torn, None);
}

#[test]
fn flipped_bits_are_found() {
    let fs = log_of(1300, 1 << 20);
    let path = &segments(&fs)[0];
    let whole = fs.bytes(path).unwrap();
    assert!(whole.len() > 64 << 10, "{} bytes", whole.len());
    let mark = whole.len() - 36;
    // A prime step meets every bit of a byte and every part of a frame.
    let sampled = (0..whole.len() * 8).step_by(2_503).chain((mark - 80) * 8..whole.len() * 8);
    for bit in sampled {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let flipped = with(&fs, path, flipped);
        if bit / 8 < mark {
            let (at, pos, _) = damage_of(examine(&flipped, 0));
            assert!(&at == path && pos <= bit as u64 / 8 && pos + 100 > bit as u64 / 8, "bit {bit}: {pos}");
            let seen = inspect(&flipped, Path::new(DIR)).unwrap();
            assert!(seen.damage.is_some() && verify(&flipped, Path::new(DIR)).is_err());
        } else {
            assert_eq!(examine(&flipped, 1300).unwrap(), 1300, "bit {bit} of the mark");
        }
    }
}

#[test]
fn zeroed_doubled_and_swapped_blocks_are_found() {
    const BLOCK: usize = 4096;
    let fs = log_of(1300, 1 << 20);
    let path = &segments(&fs)[0];
    let whole = fs.bytes(path).unwrap();
    let blocks = whole.len().div_ceil(BLOCK);
    let block = |at: usize| at * BLOCK..((at + 1) * BLOCK).min(whole.len());
    for at in 0..blocks {
        let mut zeroed = whole.clone();
        zeroed[block(at)].fill(0);
        damage_of(examine(&with(&fs, path, zeroed.clone()), 1300));
        if at + 2 < blocks {
            let (_, pos, _) = damage_of(examine(&with(&fs, path, zeroed), 0));
            assert!(pos < block(at).end as u64, "a hole with good data after it is not the end");
        }
        let doubled = [&whole[..block(at).end], &whole[block(at).start..]].concat();
        damage_of(examine(&with(&fs, path, doubled), 1301));
        let dropped = [&whole[..block(at).start], &whole[block(at).end..]].concat();
        damage_of(examine(&with(&fs, path, dropped), 1300));
        let other = (at + 5) % blocks;
        let mut swapped = whole.clone();
        let len = block(at).len().min(block(other).len());
        swapped[block(at).start..][..len].copy_from_slice(&whole[block(other).start..][..len]);
        swapped[block(other).start..][..len].copy_from_slice(&whole[block(at).start..][..len]);
        damage_of(examine(&with(&fs, path, swapped), 1300));
    }
}

#[test]
fn a_later_write_that_arrived_without_an_earlier_one_is_a_torn_tail() {
    let fs = MemFs::new();
    let mut log = open(&fs).unwrap().log;
    append(&mut log, 2);
    log.sync().unwrap();
    let synced = log.bytes() as usize;
    for _ in 0..3 {
        append(&mut log, 1);
        log.flush().unwrap();
    }
    drop(log);
    let path = segments(&fs)[0].clone();
    let mut bytes = fs.bytes(&path).unwrap();
    bytes[synced..synced + 20].fill(0);
    fs.set_bytes(&path, bytes).unwrap();
    assert_eq!(damage_of(examine(&copy(&fs), 3)).2, "records that a commit names");
    let opened = open(&fs).unwrap();
    assert_eq!((opened.log.next(), opened.torn.unwrap().pos), (LogPosition(2), synced as u64));
}

#[test]
fn files_in_the_wrong_place_are_refused() {
    let fs = log_of(40, 700);
    let files = segments(&fs);
    let missing = copy(&fs);
    missing.remove(&files[1]).unwrap();
    let (path, pos, what) = damage_of(examine(&missing, 0));
    assert_eq!((path, pos), (files[2].clone(), 24));
    assert_eq!(what, "first record of the segment (one is missing before it)");

    // Retention may have removed the oldest, unless a commit goes on there.
    let missing = copy(&fs);
    missing.remove(&files[0]).unwrap();
    let second = segment::Header::decode(&fs.bytes(&files[1]).unwrap()).unwrap().base;
    let at = |place| {
        let opened = Log::open(Arc::new(copy(&missing)), DIR, options().going_on_at(LogPosition(place)))?;
        Ok(opened.log.next().0)
    };
    assert_eq!(at(second.0).unwrap(), 40);
    let (path, _, what) = damage_of(at(second.0 - 1));
    assert_eq!((path, what), (files[1].clone(), "records with which a commit goes on"));

    // An old segment under the name of a newer one: as it was, with a header that fits, and with a header whose
    // link fits, too.
    let (old, last) = (fs.bytes(&files[0]).unwrap(), files.last().unwrap());
    let what = damage_of(examine(&with(&fs, last, old.clone()), 0)).2;
    assert_eq!(what, "first record that the file's name promises");
    let header = segment::Header::decode(&fs.bytes(last).unwrap()).unwrap();
    for link in [0, header.link] {
        let mut forged = segment::Header { link, ..header }.encode().to_vec();
        forged.extend_from_slice(&old[segment::HEADER as usize..]);
        // Nothing in it belongs to this log's end, so nothing of it is read.
        match examine(&with(&fs, last, forged), 0) {
            Ok(count) => assert_eq!((count, link), (header.base.0, header.link)),
            refused => assert_eq!(damage_of(refused).1, 32),
        }
    }
    let mut forged = segment::Header { ..header }.encode().to_vec();
    forged.extend_from_slice(&old[segment::HEADER as usize..]);
    damage_of(examine(&with(&fs, last, forged), 40));

    let foreign = Log::open(Arc::new(copy(&fs)), DIR, LogOptions { identity: 9, ..options() }).unwrap_err();
    assert!(foreign.to_string().contains("identity of the log: expected 0x0000000000000009"), "{foreign}");
    let stray = copy(&fs);
    stray.open(&Path::new(DIR).join("other-00000000000000000000.thl"), OpenMode::CreateNew).unwrap();
    assert_eq!(damage_of(examine(&stray, 0)).2, "name of a segment");
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let fs = log_of(3, 700);
    let path = &segments(&fs)[0];
    let mut bytes = fs.bytes(path).unwrap();
    bytes[8] = 2;
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    let error = examine(&with(&fs, path, bytes), 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("segment {path:?} has format version 2, this program reads versions up to 1")
    );
}
