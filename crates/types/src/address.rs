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

/// The network of an address, with `ipv4` bits for IPv4 and `ipv6` for IPv6.
#[inline]
pub fn ip_network(octets: [u8; 16], ipv4: u32, ipv6: u32) -> [u8; 16] {
    ip_prefix(octets, if is_ipv4(&octets) { IPV4_FROM + ipv4 } else { ipv6 })
}

/// Addresses of one version with the same first bits.
///
/// An address is in no network of the other version, not even in `::/0`, whatever its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNetwork {
    /// Host bits are cleared.
    octets: [u8; 16],
    /// Leading bits that count, of all 128.
    bits: u32,
    is_ipv4: bool,
}

impl IpNetwork {
    /// Reads `10.0.0.0/8`, `fe80::/10`, or an address, which is a network of itself. A network in `::ffff:0:0/96` is one of
    /// version 4. Host bits may be set, and do not count.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, length) = match text.split_once('/') {
            Some((host, length)) => (host, Some(length.trim().parse::<u32>().ok()?)),
            None => (text, None),
        };
        let host: IpAddr = host.trim().parse().ok()?;
        Self::around(host, length.unwrap_or(if host.is_ipv4() { 32 } else { 128 }))
    }

    /// The network of an address with a prefix of `length` bits; `None` if its version has fewer. A network in
    /// `::ffff:0:0/96` is one of version 4.
    pub fn around(host: IpAddr, length: u32) -> Option<Self> {
        let octets = ip_octets(host);
        let width = if host.is_ipv4() { 32 } else { 128 };
        if length > width {
            return None;
        }
        let bits = length + 128 - width;
        let is_ipv4 = bits >= IPV4_FROM && is_ipv4(&octets);
        Some(Self { octets: ip_prefix(octets, bits), bits, is_ipv4 })
    }

    #[inline]
    pub fn is_ipv4(&self) -> bool {
        self.is_ipv4
    }

    /// Its first and its last address, as `ip` columns hold them.
    pub fn bounds(&self) -> [[u8; 16]; 2] {
        let host = u128::MAX.checked_shr(self.bits).unwrap_or(0);
        [self.octets, (u128::from_be_bytes(self.octets) | host).to_be_bytes()]
    }

    #[inline]
    pub fn contains(&self, octets: [u8; 16]) -> bool {
        is_ipv4(&octets) == self.is_ipv4 && ip_prefix(octets, self.bits) == self.octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_networks_of_its_version() {
        for (network, address, is_in) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.1.2.3/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("0.0.0.0/0", "255.1.1.1", true),
            ("0.0.0.0/0", "2001:db8::", false),
            ("0.0.0.0/0", "::", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "::1", true),
            ("::/0", "10.0.0.1", false),
            ("::/64", "10.0.0.1", false),
            ("::/80", "::fffe:a00:1", true),
            ("::ffff:0:0/95", "10.0.0.1", false),
            ("::ffff:0:0/95", "::fffe:0:1", true),
            ("::ffff:0:0/96", "10.0.0.1", true),
            ("::ffff:10.0.0.0/104", "10.9.9.9", true),
            ("::ffff:10.0.0.0/104", "11.9.9.9", false),
            ("fe80::/10", "febf::1", true),
            ("fe80::/10", "fec0::1", false),
            (" 2001:db8::/32 ", "2001:db8:ffff::1", true),
        ] {
            let network = IpNetwork::parse(network).unwrap();
            let octets = parse_ip(address).unwrap();
            assert_eq!(network.contains(octets), is_in, "{network:?} {address}");
            let [first, last] = network.bounds();
            let is_between = (first..=last).contains(&octets) && is_ipv4(&octets) == network.is_ipv4();
            assert_eq!(is_between, is_in, "{network:?} {address}");
        }
        for text in ["", "10.0.0.0/33", "::/129", "10/8", "10.0.0.0/x", "a/8", "10.0.0.0/-1", "10.0.0.0/8/8"]
        {
            assert_eq!(IpNetwork::parse(text), None, "{text}");
        }
    }

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
