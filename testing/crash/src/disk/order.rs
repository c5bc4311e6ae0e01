//! The order log, as `docs/formats/log.md` describes it: one folder of segments, checked frame by frame.
//!
//! Reading stops at the first invalid frame: the bytes from there on are remains of the last write before a crash.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// One record of the order log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its first order number.
    pub(crate) start: u64,
    /// How many numbers it covers.
    pub(crate) count: u64,
    pub(crate) event: Event,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Records of a source and a partition of it, by their numbers, from `offset` of the source on.
    Run { source: usize, partition: u32, offset: u64, arrival: i64 },
    /// The wall clock, in microseconds since 1970.
    Tick(i64),
    /// A cycle marker, a command, or the end.
    Other,
}

const SEGMENT: &[u8; 8] = b"\xf7ThLog1\n";
const FRAME: [u8; 4] = [0xf7, 0x54, 0x68, 0xf1];
const HEADER: usize = 64;

/// Every entry that is there, by its number in the log.
pub(super) fn read(folder: &Path) -> Result<BTreeMap<u64, Entry>> {
    let mut entries = BTreeMap::new();
    let Ok(listing) = std::fs::read_dir(folder) else { return Ok(entries) };
    let mut paths: Vec<_> = listing.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "thl"));
    paths.sort();
    for path in paths {
        let bytes = super::bytes(&path)?;
        segment(&bytes, &mut entries).with_context(|| format!("read {}", path.display()))?;
    }
    Ok(entries)
}

fn segment(bytes: &[u8], entries: &mut BTreeMap<u64, Entry>) -> Result<()> {
    // A file that was only begun.
    if bytes.len() < HEADER || !bytes.starts_with(SEGMENT) {
        return Ok(());
    }
    let identity = [u64_at(bytes, 24), u64::from(u32_at(bytes, 32))]
        .into_iter()
        .fold(mix(u64_at(bytes, 16)), |mixed, part| mix(mixed ^ part));
    let mut before = crc32(&[&identity.to_le_bytes()]);
    let mut rest = &bytes[HEADER..];
    while rest.len() >= 16 && rest.starts_with(&FRAME) {
        let length = u32_at(rest, 4) as usize;
        let Some(payload) = rest.get(16..16 + length) else { break };
        let checksum = crc32(&[&identity.to_le_bytes(), &rest[4..12], payload]);
        if u32_at(rest, 8) != before || u32_at(rest, 12) != checksum {
            break;
        }
        before = checksum;
        records(payload, entries)?;
        rest = &rest[16 + length..];
    }
    Ok(())
}

fn records(payload: &[u8], entries: &mut BTreeMap<u64, Entry>) -> Result<()> {
    ensure!(payload.len() >= 20, "a payload of {} bytes", payload.len());
    let first = u64_at(payload, 0);
    let mut rest = &payload[20..];
    for number in first..first + u64::from(u32_at(payload, 16)) {
        let length = u32_at(rest, 0) as usize;
        entries.insert(number, entry(&rest[4..4 + length])?);
        rest = &rest[4 + length..];
    }
    Ok(())
}

fn entry(record: &[u8]) -> Result<Entry> {
    ensure!(record.len() >= 9, "a record of {} bytes", record.len());
    let start = u64_at(record, 1);
    Ok(match record[0] {
        // With a block that had been synced, or without.
        1 | 6 => {
            ensure!(record.len() == 35, "a run of {} bytes", record.len());
            let source = usize::from(u16::from_le_bytes([record[13], record[14]]));
            let partition = u32_at(record, 15);
            let (offset, arrival) = (u64_at(record, 19), u64_at(record, 27).cast_signed());
            let event = Event::Run { source, partition, offset, arrival };
            Entry { start, count: u64::from(u32_at(record, 9)), event }
        }
        2 => {
            ensure!(record.len() == 17, "a tick of {} bytes", record.len());
            Entry { start, count: 1, event: Event::Tick(u64_at(record, 9).cast_signed()) }
        }
        3..=5 => Entry { start, count: 1, event: Event::Other },
        kind => bail!("an entry of kind {kind}"),
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Bit by bit: order logs are short.
fn crc32(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for byte in parts.iter().copied().flatten() {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_the_usual_ones() {
        assert_eq!(crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
    }

    #[test]
    fn frames_are_read_up_to_what_a_crash_has_left() {
        let mut run = vec![1];
        run.extend(40_u64.to_le_bytes());
        run.extend(3_u32.to_le_bytes());
        run.extend(1_u16.to_le_bytes());
        run.extend(2_u32.to_le_bytes());
        run.extend(9_u64.to_le_bytes());
        run.extend((-5_i64).to_le_bytes());
        let mut bytes = SEGMENT.to_vec();
        bytes.resize(HEADER, 0);
        let identity = mix(mix(mix(0)));
        let mut before = crc32(&[&identity.to_le_bytes()]);
        for number in 0..2_u64 {
            let mut payload = number.to_le_bytes().to_vec();
            payload.extend([0; 8]);
            payload.extend(1_u32.to_le_bytes());
            payload.extend((run.len() as u32).to_le_bytes());
            payload.extend(&run);
            let mut head = (payload.len() as u32).to_le_bytes().to_vec();
            head.extend(before.to_le_bytes());
            before = crc32(&[&identity.to_le_bytes(), &head, &payload]);
            bytes.extend(FRAME);
            bytes.extend(head);
            bytes.extend(before.to_le_bytes());
            bytes.extend(payload);
        }
        let event = Event::Run { source: 1, partition: 2, offset: 9, arrival: -5 };
        let entry = Entry { start: 40, count: 3, event };
        let read = |bytes: &[u8]| {
            let mut entries = BTreeMap::new();
            segment(bytes, &mut entries).unwrap();
            entries
        };
        assert_eq!(read(&bytes), BTreeMap::from([(0, entry), (1, entry)]));
        assert_eq!(read(&bytes[..bytes.len() - 1]), BTreeMap::from([(0, entry)]));
        let mut flipped = bytes.clone();
        flipped[HEADER + 30] ^= 1;
        assert_eq!(read(&flipped), BTreeMap::new());
    }
}
