//! Addresses as `ip` columns hold them: 16 bytes, IPv4 as `::ffff:a.b.c.d`.

use std::net::IpAddr;

/// Bits of an address before those of IPv4 begin.
pub const IPV4_FROM: u32 = 96;

/// The bytes of an address.
#[inline]
pub fn ip_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Reads an address in dotted decimal or as IPv6.
pub fn parse_ip(text: &str) -> Option<[u8; 16]> {
    text.parse().ok().map(ip_octets)
}

#[inline]
pub fn is_ipv4(octets: &[u8; 16]) -> bool {
    octets[..10] == [0; 10] && octets[10..12] == [0xff, 0xff]
}

/// The address with all but its first `bits` cleared; 128 and more keep all.
#[inline]
pub fn ip_prefix(octets: [u8; 16], bits: u32) -> [u8; 16] {
    let keep = if bits == 0 { 0 } else { u128::MAX << (128 - bits.min(128)) };
    (u128::from_be_bytes(octets) & keep).to_be_bytes()
}

/// The network of an address, of so many bits for IPv4 and for IPv6.
#[inline]
pub fn ip_network(octets: [u8; 16], ipv4: u32, ipv6: u32) -> [u8; 16] {
    ip_prefix(octets, if is_ipv4(&octets) { IPV4_FROM + ipv4 } else { ipv6 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str, ipv4: u32, ipv6: u32) -> [u8; 16] {
        ip_network(parse_ip(text).unwrap(), ipv4, ipv6)
    }

    #[test]
    fn a_network_keeps_the_bits_of_its_version() {
        let address = |text: &str| parse_ip(text).unwrap();
        assert_eq!(network("10.1.255.7", 20, 48), address("10.1.240.0"));
        assert_eq!(network("10.1.255.7", 0, 48), address("0.0.0.0"));
        assert_eq!(network("10.1.255.7", 32, 0), address("10.1.255.7"));
        assert_eq!(network("2001:db8:1:2::3", 0, 48), address("2001:db8:1::"));
        assert_eq!(network("2001:db8::3", 0, 0), address("::"));
        assert_eq!(network("2001:db8::3", 0, 128), address("2001:db8::3"));
        assert_eq!(parse_ip("10.0.0"), None);
    }

    #[test]
    fn versions_are_told_by_their_first_bytes() {
        for (text, is_v4) in
            [("0.0.0.0", true), ("::ffff:1.2.3.4", true), ("::1.2.3.4", false), ("::1", false)]
        {
            assert_eq!(is_ipv4(&parse_ip(text).unwrap()), is_v4, "{text}");
        }
    }
}
