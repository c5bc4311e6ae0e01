//! sFlow version 5: datagrams in, rows of flows and counters out.
//!
//! Pure functions of bytes; sockets and files are in `crate::source`. A block holds datagrams as received ([`frame`]),
//! its records are the samples in them ([`datagram`]), and the decode tasks make rows of these ([`decode`]): what a
//! sample says of the packet comes from its records ([`flow_record`]) and from the packet's own headers ([`packet`]).
//!
//! Invariants
//! * No length is believed: all reads stay within the datagram, the sample, the record.
//! * A row holds the values of its own sample, and nulls elsewhere ([`sparse`]).
//! * Receiver and decoder see the same samples in a datagram, and [`frame`] writes down how many.

pub(crate) mod agents;
mod counter_row;
pub(crate) mod datagram;
pub(crate) mod decode;
mod engines;
mod flow_record;
pub(crate) mod flow_row;
pub(crate) mod frame;
mod length;
pub(crate) mod options;
pub(crate) mod packet;
pub(crate) mod rates;
pub(crate) mod sparse;
#[cfg(test)]
mod tests;
pub(crate) mod xdr;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_flow::{Decoder, Payload, RawBlock};
use thalweg_types::{Micros, Offset};

/// A block of datagrams, each with when it came and from whom, as the sources of samples make them; `first` is the
/// offset of its first sample.
pub fn block<'a>(first: Offset, datagrams: impl IntoIterator<Item = (Micros, IpAddr, &'a [u8])>) -> RawBlock {
    let mut data = Vec::new();
    let mut count = 0;
    for (time, sender, datagram) in datagrams {
        let records = datagram::Outline::of(datagram).records();
        frame::push(&mut data, time, sender, records, datagram);
        count += records;
    }
    RawBlock {
        partition: 0,
        first,
        count,
        payload: Payload::Bytes { data: Bytes::from(data), context: None },
    }
}

/// A decoder of such blocks, with the options at their defaults: flows are the records, counters the first of the
/// others.
pub fn decoder(source: &str) -> Box<dyn Decoder> {
    let settings = decode::Settings {
        source: Arc::from(source),
        tunnels: packet::Tunnels::default(),
        rates: rates::Rates::default(),
        length: length::Length::default(),
        agents: agents::Agents::default(),
        skip: Arc::default(),
        ahead: crate::source::MaxAhead::default(),
    };
    Box::new(decode::SflowDecoder::new(settings))
}
