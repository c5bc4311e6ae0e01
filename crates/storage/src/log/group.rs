//! Records gathered into groups: each group becomes one frame, so that small records share its cost.
//!
//! Payload of a frame (little-endian): first record 8, synced 8, count 4, then per record length 4 and bytes.
//! *Synced* is the byte of the segment up to which everything had been synced when the group was written. It
//! distinguishes, after a crash, a write that did not arrive from bytes that changed later: see [`super::scan`].
//! A group without records is a mark: it only carries the synced byte.
//!
//! Numbers and checksums are filled in when a group is written, by the log: a buffer can be filled elsewhere.

use super::segment::number;
use super::{LogPosition, MAX_RECORD};
use crate::frame::{Chain, FRAME_HEADER};

/// Bytes before the first record of a payload.
const GROUP_HEADER: usize = 20;
/// Bytes before each record.
const RECORD_HEADER: usize = 4;

/// A group that has reached this size takes no more: a reader holds one at a time.
const GROUP_BYTES: usize = 64 << 10;

/// The longest frame: a group that was nearly full and took a record of the largest size.
pub(super) const MAX_FRAME: usize = FRAME_HEADER + GROUP_HEADER + GROUP_BYTES + RECORD_HEADER + MAX_RECORD;

/// Groups on their way to the disk.
#[derive(Debug, Default)]
pub(super) struct GroupBuffer {
    bytes: Vec<u8>,
    groups: Vec<Group>,
    records: u64,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    /// Where its frame begins in the buffer.
    start: usize,
    records: u32,
}

impl GroupBuffer {
    /// Bytes that a record of `len` bytes may add.
    pub(super) fn cost(len: usize) -> usize {
        FRAME_HEADER + GROUP_HEADER + RECORD_HEADER + len
    }

    /// Appends one record, whose bytes are `parts` one after the other; at most [`MAX_RECORD`] of them.
    pub(super) fn push(&mut self, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        match self.groups.last_mut() {
            Some(open) if self.bytes.len() - open.start < GROUP_BYTES => open.records += 1,
            _ => self.begin(1),
        }
        self.records += 1;
        self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Appends one record to the only group, however large that is.
    pub(super) fn push_into_one(&mut self, record: &[u8]) {
        if self.groups.is_empty() {
            self.begin(0);
        }
        self.groups.iter_mut().for_each(|group| group.records += 1);
        self.records += 1;
        self.bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(record);
    }

    /// Appends a group without records.
    pub(super) fn push_mark(&mut self) {
        self.begin(0);
    }

    fn begin(&mut self, records: u32) {
        self.groups.push(Group { start: self.bytes.len(), records });
        self.bytes.extend_from_slice(&[0; FRAME_HEADER + GROUP_HEADER]);
    }

    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// Bytes in memory.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The frames of groups `range`.
    pub(super) fn frames(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.bytes[self.start(range.start)..self.start(range.end)]
    }

    /// Bytes of the frame of a group.
    pub(super) fn frame_len(&self, group: usize) -> u64 {
        (self.start(group + 1) - self.start(group)) as u64
    }

    fn start(&self, group: usize) -> usize {
        self.groups.get(group).map_or(self.bytes.len(), |group| group.start)
    }

    /// Numbers a group, makes it a frame, and says which record comes after it.
    pub(super) fn seal(
        &mut self,
        group: usize,
        chain: &mut Chain,
        first: LogPosition,
        synced: u64,
    ) -> LogPosition {
        let (start, end, records) = (self.start(group), self.start(group + 1), self.groups[group].records);
        let frame = &mut self.bytes[start..end];
        let header = &mut frame[FRAME_HEADER..FRAME_HEADER + GROUP_HEADER];
        header[..8].copy_from_slice(&first.0.to_le_bytes());
        header[8..16].copy_from_slice(&synced.to_le_bytes());
        header[16..].copy_from_slice(&records.to_le_bytes());
        chain.seal(frame);
        LogPosition(first.0 + u64::from(records))
    }

    /// Forgets the first groups, which have been written, and keeps the others.
    pub(super) fn drop_front(&mut self, groups: usize) {
        let bytes = self.start(groups);
        self.records -= self.groups[..groups].iter().map(|group| u64::from(group.records)).sum::<u64>();
        self.groups.drain(..groups);
        self.groups.iter_mut().for_each(|group| group.start -= bytes);
        self.bytes.drain(..bytes);
    }

    /// Forgets everything. Memory above `keep` bytes stays while it is used, and is given back by halves once less
    /// than a quarter of it is: asking for it anew each time takes longer than filling it.
    pub(super) fn clear(&mut self, keep: usize) {
        let (used, capacity) = (self.bytes.len(), self.bytes.capacity());
        self.bytes.clear();
        if used < capacity / 4 {
            self.bytes.shrink_to(keep.max(capacity / 2));
        }
        self.groups.clear();
        self.records = 0;
    }
}

/// A group as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupHead {
    pub(super) first: LogPosition,
    pub(super) synced: u64,
    pub(super) records: u32,
}

impl GroupHead {
    /// Reads the head of a payload, nothing after it.
    pub(super) fn decode(payload: &[u8]) -> Option<Self> {
        Some(Self {
            first: LogPosition(u64::from_le_bytes(number(payload, 0)?)),
            synced: u64::from_le_bytes(number(payload, 8)?),
            records: u32::from_le_bytes(number(payload, 16)?),
        })
    }

    /// Reads the head and checks that the records fill the payload.
    pub(super) fn check(payload: &[u8]) -> Option<Self> {
        let head = Self::decode(payload)?;
        let mut at = GROUP_HEADER;
        for _ in 0..head.records {
            (_, at) = record(payload, at)?;
        }
        (at == payload.len()).then_some(head)
    }
}

/// Where the first record of a payload begins.
pub(super) const FIRST_RECORD: usize = GROUP_HEADER;

/// The record at `at` of a payload, and where the next one begins.
pub(super) fn record(payload: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let len = u32::from_le_bytes(number(payload, at)?) as usize;
    let start = at + RECORD_HEADER;
    let bytes = payload.get(start..start.checked_add(len)?)?;
    Some((bytes, start + len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameReader;

    #[test]
    fn records_come_back_from_frames_and_a_full_group_takes_no_more() {
        let mut buffer = GroupBuffer::default();
        let large = vec![7; GROUP_BYTES];
        let records: [&[u8]; 5] = [b"one", b"", &large, b"four", b"five"];
        for record in records {
            buffer.push(&[&record[..record.len() / 2], &record[record.len() / 2..]]);
        }
        buffer.push_mark();
        assert_eq!((buffer.groups(), buffer.records()), (3, 5));
        let (mut chain, mut next) = (Chain::new(1), LogPosition(10));
        for group in 0..buffer.groups() {
            next = buffer.seal(group, &mut chain, next, 99);
        }
        assert_eq!(next, LogPosition(15));
        let mut reader = FrameReader::new(buffer.frames(0..3), 0, Chain::new(1));
        let (mut read, mut heads) = (Vec::new(), Vec::new());
        while let Some(frame) = reader.next_frame().unwrap() {
            let head = GroupHead::check(frame.payload).unwrap();
            heads.push((head.first.0, head.records));
            let mut at = FIRST_RECORD;
            for _ in 0..head.records {
                let (bytes, next) = record(frame.payload, at).unwrap();
                read.push(bytes.to_vec());
                at = next;
            }
        }
        assert_eq!(read, records);
        assert_eq!(heads, [(10, 3), (13, 2), (15, 0)]);

        buffer.drop_front(1);
        assert_eq!((buffer.groups(), buffer.records()), (2, 2));
        assert_eq!(buffer.frames(0..2).len() as u64, buffer.frame_len(0) + buffer.frame_len(1));
        let mut chain = Chain::new(1);
        buffer.seal(0, &mut chain, LogPosition(13), 0);
        assert!(FrameReader::new(buffer.frames(0..1), 0, Chain::new(1)).next_frame().is_ok());
    }

    #[test]
    fn memory_stays_while_it_is_used_and_is_given_back_afterwards() {
        const KEEP: usize = 64 << 10;
        let mut buffer = GroupBuffer::default();
        let fill = |buffer: &mut GroupBuffer, bytes: usize| {
            while buffer.len() < bytes {
                buffer.push(&[&[7; 1000]]);
            }
            buffer.clear(KEEP);
        };
        for _ in 0..5 {
            fill(&mut buffer, 1 << 20);
            let capacity = buffer.bytes.capacity();
            assert!(capacity >= 1 << 20, "{capacity} bytes are left for the next round");
        }
        for _ in 0..10 {
            fill(&mut buffer, 2_000);
        }
        assert!(buffer.bytes.capacity() < 2 * KEEP, "{} bytes are kept", buffer.bytes.capacity());
    }
}
