//! Addresses as keys: 16 bytes, IPv4 as `::ffff:a.b.c.d`.

use std::net::{Ipv4Addr, Ipv6Addr};

const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The IPv4 address of a key that is one.
#[inline]
pub(crate) fn v4(key: &[u8; 16]) -> Option<u32> {
    let (front, back) = key.split_at(12);
    (front == MAPPED).then(|| u32::from_be_bytes([back[0], back[1], back[2], back[3]]))
}

pub(crate) fn from_v4(address: u32) -> [u8; 16] {
    Ipv4Addr::from(address).to_ipv6_mapped().octets()
}

/// Reads an address in dotted decimal or as IPv6.
pub(crate) fn parse(text: &str) -> Option<[u8; 16]> {
    thalweg_types::parse_ip(text)
}

/// For people.
pub(crate) fn show(key: &[u8; 16]) -> String {
    match v4(key) {
        Some(address) => Ipv4Addr::from(address).to_string(),
        None => Ipv6Addr::from(*key).to_string(),
    }
}
