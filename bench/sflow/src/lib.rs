//! Records of `thalweg gen flows --format ndjson` as the datagrams of sFlow version 5 in which their agents would send them.
//!
//! Which record is in which datagram is a rule ([`datagrams`]), so whoever has the records can recount what came of the
//! datagrams. Nothing here is shared with the decoder that they are sent to.

mod encode;
mod flow;

pub use encode::{Packed, SAMPLES, datagrams};
pub use flow::{Addresses, Flow, Transport};
