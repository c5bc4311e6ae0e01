//! Addresses and networks: texts to bytes and back.

use std::fmt::Write as _;

use thalweg_types::{ip_network, is_ipv4, parse_ip};

use crate::output::address;

/// The address that a text is.
pub(super) fn parse(text: &str) -> Option<[u8; 16]> {
    parse_ip(text.trim())
}

/// How many bits of an address are its network's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lengths {
    pub(super) four: u32,
    pub(super) six: u32,
}

impl Lengths {
    /// # Errors
    /// A text about the one that is out of range.
    pub(super) fn new(four: i64, six: i64) -> Result<Self, String> {
        let within = |length: i64, most: u32, version: u8| {
            u32::try_from(length)
                .ok()
                .filter(|length| *length <= most)
                .ok_or_else(|| format!("a network of version {version} has 0 to {most} bits, got {length}"))
        };
        Ok(Self { four: within(four, 32, 4)?, six: within(six, 128, 6)? })
    }

    pub(super) fn network(self, octets: [u8; 16]) -> [u8; 16] {
        ip_network(octets, self.four, self.six)
    }

    /// Writes `10.1.0.0/16`.
    pub(super) fn write(self, octets: [u8; 16], out: &mut String) {
        address(&self.network(octets), out);
        let _ = write!(out, "/{}", if is_ipv4(&octets) { self.four } else { self.six });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked() {
        assert!(
            Lengths::new(33, 48).is_err() && Lengths::new(-1, 48).is_err() && Lengths::new(24, 129).is_err()
        );
        let mut text = String::new();
        Lengths::new(20, 48).unwrap().write(parse("10.1.255.7").unwrap(), &mut text);
        assert_eq!(text, "10.1.240.0/20");
    }
}
