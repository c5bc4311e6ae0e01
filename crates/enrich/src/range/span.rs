//! From the text of addresses and networks to a range of one family.
//!
//! IPv4 and IPv6 are apart: an IPv6 range never answers for an IPv4 address, not even `::/0`.
//! The one bridge is `::ffff:0:0/96`, the block in which Thalweg's `ip` carries IPv4; addresses in it are IPv4.
//!
//! A whole number is an IPv4 address where both ends of its range fit into 32 bits, else IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thalweg_types::{IpNetwork, ip_octets};

/// The first and the last address of a range, both part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds<A> {
    pub(super) first: A,
    pub(super) last: A,
}

/// A range of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    V4(Bounds<u32>),
    V6(Bounds<u128>),
}

/// Why a text is not a range: the expected text and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) expected: String,
    pub(super) hint: &'static str,
}

const MIXED: &str = "both ends of a range are of one family; split the line into one for each";
const REVERSED: &str = "exchange the two, or check which columns are first and last";
const NO_ADDRESS: &str =
    "check which columns hold the range, the delimiter, and whether the first line is a header";

/// An address, or a number whose family the other end of the range decides.
#[derive(Clone, Copy)]
enum Address {
    V4(u32),
    V6(u128),
    Number(u128),
}

impl Address {
    fn parse(text: &str) -> Option<Self> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().map(Address::Number);
        }
        match text.parse().ok()? {
            IpAddr::V4(address) => Some(Address::V4(address.to_bits())),
            IpAddr::V6(address) => Some(Self::sixteen_bytes(address.to_bits())),
        }
    }

    /// IPv4 where it is in `::ffff:0:0/96`.
    fn sixteen_bytes(bits: u128) -> Self {
        Ipv6Addr::from_bits(bits)
            .to_ipv4_mapped()
            .map_or(Address::V6(bits), |address| Address::V4(address.to_bits()))
    }

    fn number_as_v4(self) -> Self {
        match self {
            Address::Number(number) => u32::try_from(number).map_or(self, Address::V4),
            other => other,
        }
    }

    fn number_as_v6(self) -> Self {
        match self {
            Address::Number(number) => Self::sixteen_bytes(number),
            other => other,
        }
    }
}

impl Span {
    /// The range from one address to another.
    pub(super) fn between(first: &str, last: &str) -> Result<Self, Problem> {
        let parse = |text| {
            Address::parse(text)
                .ok_or_else(|| problem("two addresses (IPv4, IPv6 or whole numbers)", NO_ADDRESS))
        };
        let (first, last) = (parse(first)?, parse(last)?);
        let (first, last) = match (first.number_as_v4(), last.number_as_v4()) {
            (Address::V4(first), Address::V4(last)) => (Address::V4(first), Address::V4(last)),
            _ => (first.number_as_v6(), last.number_as_v6()),
        };
        let reversed = || problem("a first address that is not above the last", REVERSED);
        match (first, last) {
            (Address::V4(first), Address::V4(last)) if first <= last => Ok(Span::V4(Bounds { first, last })),
            (Address::V6(first), Address::V6(last)) if first <= last => Ok(Span::V6(Bounds { first, last })),
            (Address::V4(_), Address::V4(_)) | (Address::V6(_), Address::V6(_)) => Err(reversed()),
            _ => Err(problem("two addresses of one family", MIXED)),
        }
    }

    /// The range of a network such as `192.0.2.0/24`; an address alone is the range of itself.
    pub(super) fn network(text: &str) -> Result<Self, Problem> {
        let none = || problem("a network such as 192.0.2.0/24 or 2001:db8::/32", NO_ADDRESS);
        let Some((address, length)) = text.split_once('/') else {
            return Span::between(text, text).map_err(|_| none());
        };
        let length: u32 = length.parse().map_err(|_| none())?;
        // Not `Address::parse` for IPv6: `::/0` and `::ffff:0:0/95` are networks of it, whatever they hold.
        let address = match address.parse() {
            Ok(address) => address,
            Err(_) => match Address::parse(address).ok_or_else(none)?.number_as_v4() {
                Address::V4(bits) => IpAddr::V4(Ipv4Addr::from_bits(bits)),
                Address::V6(bits) | Address::Number(bits) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
            },
        };
        Self::around(address, length)
    }

    /// The range of a network by its first address and the length of its prefix; of IPv4 where it is in
    /// `::ffff:0:0/96`.
    pub(super) fn around(address: IpAddr, length: u32) -> Result<Self, Problem> {
        let network = IpNetwork::around(address, length).ok_or_else(|| {
            let most = if address.is_ipv4() { 32 } else { 128 };
            problem(&format!("a prefix length of at most {most}"), NO_ADDRESS)
        })?;
        let [first, last] = network.bounds();
        if first != ip_octets(address) {
            let first = Ipv6Addr::from(first);
            let (first, length) = match first.to_ipv4_mapped().filter(|_| network.is_ipv4()) {
                Some(first) => (IpAddr::V4(first), if address.is_ipv4() { length } else { length - 96 }),
                None => (IpAddr::V6(first), length),
            };
            return Err(Problem {
                expected: format!("no bits beyond the prefix, as in {first}/{length}"),
                hint: "write the network's first address, or give a range by first and last",
            });
        }
        let [first, last] = [first, last].map(u128::from_be_bytes);
        Ok(match network.is_ipv4() {
            true => Span::V4(Bounds { first: first as u32, last: last as u32 }),
            false => Span::V6(Bounds { first, last }),
        })
    }
}

fn problem(expected: &str, hint: &'static str) -> Problem {
    Problem { expected: expected.to_owned(), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(first: [u8; 4], last: [u8; 4]) -> Result<Span, Problem> {
        Ok(Span::V4(Bounds { first: u32::from_be_bytes(first), last: u32::from_be_bytes(last) }))
    }

    fn v6(first: u128, last: u128) -> Result<Span, Problem> {
        Ok(Span::V6(Bounds { first, last }))
    }

    #[test]
    fn ends_are_read_in_every_form() {
        let expected = v4([1, 0, 0, 0], [1, 0, 0, 255]);
        assert_eq!(Span::between("1.0.0.0", "1.0.0.255"), expected);
        assert_eq!(Span::between("16777216", "16777471"), expected);
        assert_eq!(Span::between("16777216", "1.0.0.255"), expected);
        assert_eq!(Span::between("::ffff:1.0.0.0", "::ffff:1.0.0.255"), expected);
        assert_eq!(
            Span::between("281470698520576", "281470698520831"),
            expected,
            "the same block as numbers"
        );
        assert_eq!(Span::between("0.0.0.0", "255.255.255.255"), v4([0; 4], [255; 4]));
        assert_eq!(Span::between("0", "4294967295"), v4([0; 4], [255; 4]));
        assert_eq!(Span::between("0", "4294967296"), v6(0, 1 << 32), "the last decides that both are IPv6");
        assert_eq!(Span::between("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), v6(0, u128::MAX));
        assert_eq!(Span::between("0", "340282366920938463463374607431768211455"), v6(0, u128::MAX));
    }

    #[test]
    fn networks_are_read_in_every_form() {
        let expected = v4([1, 0, 0, 0], [1, 0, 0, 255]);
        for text in ["1.0.0.0/24", "16777216/24", "::ffff:1.0.0.0/120"] {
            assert_eq!(Span::network(text), expected, "{text}");
        }
        assert_eq!(Span::network("1.0.0.7"), v4([1, 0, 0, 7], [1, 0, 0, 7]));
        assert_eq!(Span::network("1.0.0.7/32"), v4([1, 0, 0, 7], [1, 0, 0, 7]));
        assert_eq!(Span::network("0.0.0.0/0"), v4([0; 4], [255; 4]));
        assert_eq!(Span::network("::ffff:0:0/96"), v4([0; 4], [255; 4]));
        assert_eq!(Span::network("::/0"), v6(0, u128::MAX));
        assert_eq!(Span::network("::1"), v6(1, 1));
        assert_eq!(Span::network("2001:db8::/32"), v6(0x2001_0db8 << 96, ((0x2001_0db8 + 1) << 96) - 1));
        assert_eq!(Span::network("::fffe:0:0/95"), v6(0xfffe << 32, 0xffff_ffff_ffff));
    }

    #[test]
    fn what_is_no_range_says_what_is() {
        let ends = |first, last| Span::between(first, last).unwrap_err().expected;
        assert_eq!(ends("1.0.0", "1.0.0.255"), "two addresses (IPv4, IPv6 or whole numbers)");
        assert_eq!(ends("1.0.0.0", ""), "two addresses (IPv4, IPv6 or whole numbers)");
        assert_eq!(
            ends("1", "9999999999999999999999999999999999999999"),
            "two addresses (IPv4, IPv6 or whole numbers)"
        );
        assert_eq!(ends("fe80::1%eth0", "::1"), "two addresses (IPv4, IPv6 or whole numbers)");
        assert_eq!(ends("1.0.0.1", "1.0.0.0"), "a first address that is not above the last");
        assert_eq!(ends("4294967296", "1"), "a first address that is not above the last");
        assert_eq!(ends("1.0.0.0", "2001::"), "two addresses of one family");
        assert_eq!(ends("::", "::ffff:1.0.0.0"), "two addresses of one family");

        let network = |text| Span::network(text).unwrap_err().expected;
        assert_eq!(network("1.0.0.1/24"), "no bits beyond the prefix, as in 1.0.0.0/24");
        assert_eq!(network("2001::1/64"), "no bits beyond the prefix, as in 2001::/64");
        assert_eq!(network("1.0.0.0/33"), "a prefix length of at most 32");
        assert_eq!(network("2001::/129"), "a prefix length of at most 128");
        for text in ["", "/", "1.0.0.0/", "1.0.0.0/x", "1.0.0.0/-1", "x/8"] {
            assert_eq!(network(text), "a network such as 192.0.2.0/24 or 2001:db8::/32", "{text}");
        }
    }
}
