//! Reads the first bytes of a packet: link, network and transport headers, as far as they are there.
//!
//! A sampled header is cut after 64 to 256 bytes, so every layer may end early; the fields that were read before stay.
//! Ethernet with its tags, MPLS and PPPoE are read here, IP with options and extension headers by `etherparse`, and
//! packets that tunnels carry in [`tunnel`].

mod tunnel;

use etherparse::{
    IpAuthHeaderSlice, Ipv6FragmentHeaderSlice, Ipv6RawExtHeaderSlice, LaxIpSlice, LaxIpv4Slice,
    LaxIpv6Slice, ip_number,
};

use super::xdr::{Address, from_v4};
pub(super) use tunnel::Inner;
pub(crate) use tunnel::Tunnels;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const MPLS: [u16; 2] = [0x8847, 0x8848];
/// The bit of a label that has none after it.
const BOTTOM: u32 = 0x100;
const PPPOE_SESSION: u16 = 0x8864;
const VLAN_TAGS: [u16; 5] = [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300];

pub(super) const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: [u8; 2] = [1, 58];

/// Tags, labels, and frames under labels that are followed at most, so that a crafted packet costs no time.
const MAX_TAGS: usize = 4;
const MAX_LABELS: usize = 16;
const MAX_FRAMES: u8 = 4;

/// A packet as far as its headers are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    pub(super) macs: Option<Macs>,
    /// EtherType after the tags.
    pub(super) ethertype: Option<u16>,
    /// Tags from the outermost on: VLAN id and priority.
    pub(super) vlan: Option<Vlan>,
    pub(super) customer_vlan: Option<Vlan>,
    /// The label stack, four bytes a label.
    pub(super) labels: &'a [u8],
    pub(super) pppoe_session: Option<u16>,
    pub(crate) ip: Option<Ip>,
    pub(super) ports: Option<(u16, u16)>,
    pub(super) tcp_flags: Option<u8>,
    /// Type and code.
    pub(super) icmp: Option<(u8, u8)>,
    /// The packet that it is a part of, if it is one of several IP fragments.
    pub(crate) part: Option<Part<'a>>,
    /// The Ethernet frame that its labels carry (a pseudowire); `ip` and the later fields are those of the packet in
    /// it.
    frame: Option<&'a [u8]>,
    /// How many frames it is in.
    depth: u8,
    /// The bytes after the last header that was read.
    rest: &'a [u8],
}

/// One of the fragments that a packet was split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// Protocol of the payload of the whole packet; each fragment says it, the first one counts.
    pub(crate) protocol: u8,
    pub(crate) is_v6: bool,
    pub(crate) id: u32,
    /// Where it begins in the payload of the packet, in bytes.
    pub(crate) start: u32,
    pub(crate) is_last: bool,
    /// Bytes that it had when it was sent.
    pub(crate) length: u32,
    /// Those of them that are there.
    pub(crate) data: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Macs {
    pub(super) destination: [u8; 6],
    pub(super) source: [u8; 6],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vlan {
    pub(super) id: u16,
    pub(super) priority: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub(crate) source: Address,
    pub(crate) destination: Address,
    /// After all extension headers.
    pub(super) protocol: u8,
    /// Type of service, or traffic class: all eight bits.
    pub(super) tos: u8,
    pub(super) ttl: u8,
    /// Of the packet, header and all; an IPv6 packet that leaves it open has none.
    pub(super) length: Option<u64>,
    /// IPv6 only.
    pub(super) flow_label: Option<u32>,
    pub(super) fragment: Option<Fragment>,
}

/// Fields that IPv4 always has, and IPv6 in fragments only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) id: u32,
    /// In units of eight bytes.
    pub(super) offset: u16,
    pub(super) more: bool,
    pub(super) dont: bool,
}

/// Whether the protocol's header begins with two ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
pub(super) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | 33 | 132 | 136)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
}

impl<'a> Packet<'a> {
    /// A frame from its destination address on.
    pub(super) fn ethernet(frame: &'a [u8]) -> Self {
        Self::ethernet_in(frame, 0)
    }

    fn ethernet_in(frame: &'a [u8], depth: u8) -> Self {
        let mut packet = Self { depth, ..Self::default() };
        let (Some(destination), Some(source)) = (frame.first_chunk(), frame.get(6..12)) else {
            return packet;
        };
        let source = [source[0], source[1], source[2], source[3], source[4], source[5]];
        packet.macs = Some(Macs { destination: *destination, source });
        if let Some(kind) = u16_at(frame, 12) {
            packet.tagged(kind, &frame[14..]);
        }
        packet
    }

    /// Reads the bytes after an EtherType that may be that of a tag.
    fn tagged(&mut self, mut kind: u16, mut rest: &'a [u8]) {
        for tags in 0..MAX_TAGS {
            if !VLAN_TAGS.contains(&kind) {
                break;
            }
            let (Some(tag), Some(behind)) = (u16_at(rest, 0), u16_at(rest, 2)) else { return };
            let vlan = Vlan { id: tag & 0xfff, priority: (tag >> 13) as u8 };
            match tags {
                0 => self.vlan = Some(vlan),
                1 => self.customer_vlan = Some(vlan),
                _ => {}
            }
            (kind, rest) = (behind, &rest[4..]);
        }
        self.typed(kind, rest);
    }

    /// A packet that begins with its IP header.
    pub(crate) fn ip(bytes: &'a [u8]) -> Self {
        let mut packet = Self::default();
        packet.network(bytes);
        packet
    }

    /// A packet that begins with its label stack.
    pub(super) fn mpls(bytes: &'a [u8]) -> Self {
        let mut packet = Self::default();
        packet.label_stack(bytes);
        packet
    }

    /// Reads the bytes after an EtherType, or the length of a frame of IEEE 802.3.
    fn typed(&mut self, kind: u16, rest: &'a [u8]) {
        const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];
        let (kind, rest) = match (kind < 0x600, rest.strip_prefix(&SNAP)) {
            (false, _) => (kind, rest),
            (true, Some(inner)) => match u16_at(inner, 0) {
                Some(kind) => (kind, &inner[2..]),
                None => return,
            },
            (true, None) => return,
        };
        self.ethertype = Some(kind);
        if kind == IPV4 || kind == IPV6 {
            self.network(rest);
        } else if MPLS.contains(&kind) {
            self.label_stack(rest);
        } else if kind == PPPOE_SESSION {
            self.pppoe(rest);
        }
    }

    fn label_stack(&mut self, bytes: &'a [u8]) {
        let mut labels = 0;
        while let Some(label) = u32_at(bytes, labels * 4)
            && labels < MAX_LABELS
        {
            labels += 1;
            if label & BOTTOM != 0 {
                let payload = &bytes[labels * 4..];
                match tunnel::under_labels(payload) {
                    tunnel::Labelled::Ip => self.network(payload),
                    tunnel::Labelled::Frame(frame) if self.depth < MAX_FRAMES => self.pseudowire(frame),
                    _ => {}
                }
                break;
            }
        }
        self.labels = &bytes[..labels * 4];
    }

    /// A frame under labels: the packet in it is the first one that there is.
    fn pseudowire(&mut self, frame: &'a [u8]) {
        let inside = Self::ethernet_in(frame, self.depth + 1);
        self.frame = Some(frame);
        (self.ip, self.part, self.rest) = (inside.ip, inside.part, inside.rest);
        (self.ports, self.tcp_flags, self.icmp) = (inside.ports, inside.tcp_flags, inside.icmp);
    }

    fn pppoe(&mut self, bytes: &'a [u8]) {
        self.pppoe_session = u16_at(bytes, 2);
        match (u16_at(bytes, 6), bytes.get(8..)) {
            (Some(0x0021 | 0x0057), Some(payload)) => self.network(payload),
            (Some(0x0281), Some(payload)) => self.label_stack(payload),
            _ => {}
        }
    }

    fn network(&mut self, bytes: &'a [u8]) {
        let Ok((slice, _)) = LaxIpSlice::from_slice(bytes) else { return };
        let ip = match &slice {
            LaxIpSlice::Ipv4(v4) => ipv4(v4),
            LaxIpSlice::Ipv6(v6) => ipv6(v6),
        };
        self.ip = Some(ip);
        if let Some(fragment) = ip.fragment.filter(|fragment| fragment.more || fragment.offset != 0) {
            self.part = part(bytes, &slice, fragment);
        }
        let payload = slice.payload().payload;
        self.rest = payload;
        // The bytes of a later fragment are not a header.
        if ip.fragment.is_none_or(|fragment| fragment.offset == 0) {
            self.transport(ip.protocol, payload);
        }
    }

    fn transport(&mut self, protocol: u8, payload: &'a [u8]) {
        if has_ports(protocol) {
            self.ports = u16_at(payload, 0).zip(u16_at(payload, 2));
            if protocol == TCP {
                self.tcp_flags = payload.get(13).copied();
            }
        } else if ICMP.contains(&protocol) {
            self.icmp = payload.first().copied().zip(payload.get(1).copied());
        }
    }

    /// Destination port and payload of a datagram, as far as it is there.
    pub(crate) fn udp(&self) -> Option<(u16, &'a [u8])> {
        let ip = self.ip?;
        let is_first = ip.fragment.is_none_or(|fragment| fragment.offset == 0);
        if ip.protocol != UDP || !is_first {
            return None;
        }
        let length = usize::from(u16_at(self.rest, 4)?);
        let datagram = &self.rest[..self.rest.len().min(length.max(8))];
        Some((self.ports?.1, datagram.get(8..)?))
    }
}

/// Whether packets of a capture with this link type can be read.
pub(crate) fn is_known_link(link: i32) -> bool {
    link_packet(link, &[]).is_some()
}

/// A packet of a capture with this link type; `None` where that is not known here.
pub(crate) fn link_packet(link: i32, bytes: &[u8]) -> Option<Packet<'_>> {
    const ETHERNET: i32 = 1;
    const LINUX_COOKED: i32 = 113;
    const LINUX_COOKED_2: i32 = 276;
    /// A header, and where in it the EtherType is.
    fn typed(bytes: &[u8], kind_at: usize, header: usize) -> Packet<'_> {
        let mut packet = Packet::default();
        if let (Some(kind), Some(rest)) = (u16_at(bytes, kind_at), bytes.get(header..)) {
            packet.tagged(kind, rest);
        }
        packet
    }
    Some(match link {
        ETHERNET => Packet::ethernet(bytes),
        // Raw IP, and loopback with four bytes of address family before it.
        12 | 14 | 101 | 228 | 229 => Packet::ip(bytes),
        0 | 108 => Packet::ip(bytes.get(4..).unwrap_or_default()),
        LINUX_COOKED => typed(bytes, 14, 16),
        LINUX_COOKED_2 => typed(bytes, 0, 20),
        _ => return None,
    })
}

/// The contents of a fragment: the bytes after its IPv4 header, or after its fragment header. `None` if a length is
/// invalid.
fn part<'a>(bytes: &'a [u8], slice: &LaxIpSlice<'_>, fragment: Fragment) -> Option<Part<'a>> {
    let (head, whole, protocol) = match slice {
        LaxIpSlice::Ipv4(v4) => {
            let header = v4.header();
            (header.slice().len(), usize::from(header.total_len()), header.protocol())
        }
        LaxIpSlice::Ipv6(v6) => {
            let (end, header) = fragment_header(v6)?;
            (40 + end, 40 + usize::from(v6.header().payload_length()), header.next_header())
        }
    };
    let length = whole.checked_sub(head)?;
    let data = bytes.get(head..)?;
    Some(Part {
        protocol: protocol.0,
        is_v6: matches!(slice, LaxIpSlice::Ipv6(_)),
        id: fragment.id,
        start: u32::from(fragment.offset) * 8,
        is_last: !fragment.more,
        length: length as u32,
        data: &data[..data.len().min(length)],
    })
}

fn ipv4(slice: &LaxIpv4Slice<'_>) -> Ip {
    let header = slice.header();
    // The bytes of a later fragment are not a header, whatever they look like.
    let is_later = header.fragments_offset().value() != 0;
    Ip {
        source: from_v4(header.source()),
        destination: from_v4(header.destination()),
        protocol: if is_later { header.protocol().0 } else { slice.payload_ip_number().0 },
        tos: header.dcp().value() << 2 | header.ecn().value(),
        ttl: header.ttl(),
        length: Some(u64::from(header.total_len())),
        flow_label: None,
        fragment: Some(Fragment {
            id: u32::from(header.identification()),
            offset: header.fragments_offset().value(),
            more: header.more_fragments(),
            dont: header.dont_fragment(),
        }),
    }
}

fn ipv6(slice: &LaxIpv6Slice<'_>) -> Ip {
    let header = slice.header();
    let fragment = fragment_header(slice).map(|(_, fragment)| {
        let fields = Fragment {
            id: fragment.identification(),
            offset: fragment.fragment_offset().value(),
            more: fragment.more_fragments(),
            dont: false,
        };
        (fields, fragment.next_header())
    });
    let (fragment, protocol) = match fragment {
        Some((fragment, next)) if fragment.offset != 0 => (Some(fragment), next),
        other => (other.map(|(fragment, _)| fragment), slice.payload().ip_number),
    };
    Ip {
        source: header.source(),
        destination: header.destination(),
        protocol: protocol.0,
        tos: header.traffic_class(),
        ttl: header.hop_limit(),
        // Zero: a hop-by-hop option has the length.
        length: (header.payload_length() > 0).then(|| 40 + u64::from(header.payload_length())),
        flow_label: Some(header.flow_label().value()),
        fragment,
    }
}

/// The fragment header among the extension headers, and where it ends, in bytes after the fixed header.
///
/// The iterator of `etherparse` 0.21 trusts that the chain is whole, which a [`LaxIpv6Slice`] does not promise: where
/// a header is cut, it reads memory that is not the packet's. So each header is checked here again.
fn fragment_header<'a>(packet: &LaxIpv6Slice<'a>) -> Option<(usize, Ipv6FragmentHeaderSlice<'a>)> {
    let headers = packet.extensions().slice();
    let mut kind = packet.extensions().first_header()?;
    let mut start = 0;
    loop {
        let rest = headers.get(start..)?;
        let length = match kind {
            ip_number::IPV6_FRAG => {
                let header = Ipv6FragmentHeaderSlice::from_slice(rest).ok()?;
                return Some((start + header.slice().len(), header));
            }
            ip_number::IPV6_HOP_BY_HOP | ip_number::IPV6_ROUTE | ip_number::IPV6_DEST_OPTIONS => {
                let header = Ipv6RawExtHeaderSlice::from_slice(rest).ok()?;
                kind = header.next_header();
                header.slice().len()
            }
            ip_number::AUTH => {
                let header = IpAuthHeaderSlice::from_slice(rest).ok()?;
                kind = header.next_header();
                header.slice().len()
            }
            _ => return None,
        };
        start += length;
    }
}

#[cfg(test)]
mod tests;
