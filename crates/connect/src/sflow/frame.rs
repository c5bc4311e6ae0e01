//! Datagrams in a block, as received: each with when it came and from whom.
//!
//! Layout (little-endian): length 4, records 4, time 8 (microseconds since the epoch), sender 16, then the datagram.
//! Blocks go through journals, so this is persisted. `records` is how many numbers of the order the datagram takes; it
//! is written down, so that a later build that counts otherwise cannot shift the numbers that an earlier one gave.

use std::net::IpAddr;

use thalweg_types::{Error, Micros, ip_octets};

use super::xdr::Address;

const HEAD: usize = 32;

/// One datagram with its time and its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// Numbers of the order that it takes.
    pub(crate) records: u32,
    /// When it was received, or captured.
    pub(crate) time: Micros,
    pub(crate) sender: Address,
    pub(crate) datagram: &'a [u8],
}

/// Appends a datagram that counts as `records` records.
pub(crate) fn push(block: &mut Vec<u8>, time: Micros, sender: IpAddr, records: u32, datagram: &[u8]) {
    // A datagram is shorter than 64 KiB.
    block.extend_from_slice(&(datagram.len() as u32).to_le_bytes());
    block.extend_from_slice(&records.to_le_bytes());
    block.extend_from_slice(&time.to_le_bytes());
    block.extend_from_slice(&ip_octets(sender));
    block.extend_from_slice(datagram);
}

/// The datagrams of a block. A block that does not hold whole ones is an error, the last item.
pub(crate) fn frames(block: &[u8]) -> impl Iterator<Item = Result<Frame<'_>, Error>> {
    let mut rest = block;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let frame = first(rest);
        rest = frame.map_or(&[], |frame| &rest[HEAD + frame.datagram.len()..]);
        Some(frame.ok_or_else(|| Error::corrupt("a block of datagrams ends within one")))
    })
}

fn first(block: &[u8]) -> Option<Frame<'_>> {
    let (length, rest) = block.split_first_chunk()?;
    let (records, rest) = rest.split_first_chunk()?;
    let (time, rest) = rest.split_first_chunk()?;
    let (sender, rest) = rest.split_first_chunk()?;
    Some(Frame {
        records: u32::from_le_bytes(*records),
        time: Micros::from_le_bytes(*time),
        sender: *sender,
        datagram: rest.get(..u32::from_le_bytes(*length) as usize)?,
    })
}
