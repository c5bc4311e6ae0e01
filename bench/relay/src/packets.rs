//! Packets: a function of their number, and columns of them whose memory comes back.

use std::sync::Arc;
use std::thread;

use arrow_array::{ArrayRef, BinaryViewArray, RecordBatch};
use thalweg_flow::BufferPool;
use thalweg_types::{Batch, DataType, Error, Field, Micros, Schema, SeqRange, Seqs};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) fn schema() -> Schema {
    Schema::new(vec![Field::new("packet", DataType::Bytes)])
}

/// Writes packet `number`: its number, then bytes that depend on it and on their place.
#[inline]
pub(crate) fn write<const P: usize>(number: u64, packet: &mut [u8; P]) {
    let (words, rest) = packet.as_chunks_mut::<8>();
    let mut word = number;
    for bytes in words {
        *bytes = word.to_le_bytes();
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ number;
    }
    rest.fill(word as u8);
}

/// The number that stands in a packet.
#[inline]
pub(crate) fn number(packet: &[u8]) -> u64 {
    packet.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

/// The digest of packets 0 to `count`, made and digested here and now, on two threads.
pub(crate) fn digest_of_all<const P: usize>(count: u64) -> u64 {
    let part = |numbers: std::ops::Range<u64>| {
        let mut packet = [0; P];
        numbers.fold(0_u64, |sum, number| {
            write(number, &mut packet);
            sum.wrapping_add(xxh3_64(&packet))
        })
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| part(0..count / 2));
        let second = part(count / 2..count);
        second.wrapping_add(first.join().expect("making packets does not panic"))
    })
}

/// Columns of packets, whose buffers come back when the last reader is done with them.
pub(crate) struct Columns {
    schema: Schema,
    pub(crate) data: BufferPool<u8>,
    views: BufferPool<u128>,
    times: BufferPool<Micros>,
}

impl Columns {
    pub(crate) fn new() -> Self {
        Self {
            schema: schema(),
            data: BufferPool::default(),
            views: BufferPool::default(),
            times: BufferPool::default(),
        }
    }

    /// `count` packets that lie one after the other in `data`.
    pub(crate) fn batch<const P: usize>(
        &mut self,
        data: Vec<u8>,
        count: usize,
        range: SeqRange,
        seqs: Seqs,
    ) -> Result<Batch, Error> {
        let mut views = self.views.take(count);
        // A view of a text that is longer than 12 bytes: length, its first 4 bytes, buffer 0, place in it.
        views.extend(data.as_chunks::<P>().0.iter().enumerate().map(|(index, packet)| {
            let prefix = u32::from_le_bytes([packet[0], packet[1], packet[2], packet[3]]);
            P as u128 | u128::from(prefix) << 32 | ((index * P) as u128) << 96
        }));
        let mut times = self.times.take(count);
        times.resize(count, 0);
        let (views, times) = (self.views.lend(views), self.times.lend(times));
        let packets = BinaryViewArray::try_new(views.into(), [self.data.lend(data)], None)
            .map_err(|cause| Error::internal("packets do not fit their views").with_source(cause))?;
        let records =
            RecordBatch::try_new(Arc::clone(self.schema.arrow()), vec![Arc::new(packets) as ArrayRef])
                .map_err(|cause| Error::internal("a batch of packets").with_source(cause))?;
        Ok(Batch::new(range, records, times.into(), seqs))
    }
}
