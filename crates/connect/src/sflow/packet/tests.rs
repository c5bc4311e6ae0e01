//! Headers and tunnels of made packets.

use super::*;

const MACS: [u8; 12] = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2];

pub(super) fn ethernet(parts: &[&[u8]]) -> Vec<u8> {
    [&[&MACS[..]], parts].concat().concat()
}

/// An IPv4 packet of a protocol from 10.0.0.1 to 10.0.0.2 with this payload; flags and offset as in the header.
pub(super) fn v4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len() as u16).to_be_bytes();
    let fragment = fragment.to_be_bytes();
    let head = [0x45, 0xb8, length[0], length[1], 0, 7, fragment[0], fragment[1], 63, protocol];
    [&head, &[0, 0, 10, 0, 0, 1, 10, 0, 0, 2][..], payload].concat()
}

pub(super) fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    let mut packet = vec![0x6a, 0xb1, 0x23, 0x45, length[0], length[1], next, 61];
    packet.extend([[0xfe; 16], [0xfd; 16]].concat());
    packet.extend(payload);
    packet
}

pub(super) fn udp(to: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len() as u16).to_be_bytes();
    let to = to.to_be_bytes();
    [&[0, 99, to[0], to[1], length[0], length[1], 0, 0], payload].concat()
}

pub(super) fn addresses(packet: &Packet<'_>) -> Option<(u8, u8)> {
    packet.ip.map(|ip| (ip.source[15], ip.destination[15]))
}

#[test]
fn tags_are_read_from_the_outermost_on() {
    let ip = v4(17, 0, &udp(53, b""));
    let untagged = ethernet(&[&[8, 0], &ip]);
    let packet = Packet::ethernet(&untagged);
    assert_eq!((packet.vlan, packet.ethertype), (None, Some(0x800)));
    assert_eq!(packet.macs, Some(Macs { destination: [1; 6], source: [2; 6] }));
    let tagged = ethernet(&[&[0x81, 0, 0x60, 100, 8, 0], &ip]);
    let packet = Packet::ethernet(&tagged);
    assert_eq!(packet.vlan, Some(Vlan { id: 100, priority: 3 }));
    assert_eq!((packet.customer_vlan, packet.ports), (None, Some((99, 53))));
    let stacked = ethernet(&[&[0x88, 0xa8, 0, 200, 0x81, 0, 0xe0, 7, 0x81, 0, 0, 8, 8, 0], &ip]);
    let packet = Packet::ethernet(&stacked);
    assert_eq!(packet.vlan, Some(Vlan { id: 200, priority: 0 }));
    assert_eq!(packet.customer_vlan, Some(Vlan { id: 7, priority: 7 }));
    assert_eq!((packet.ethertype, addresses(&packet)), (Some(0x800), Some((1, 2))));
    let too_many = ethernet(&[&[0x81, 0, 0, 1].repeat(20)[..]]);
    assert_eq!(Packet::ethernet(&too_many).ethertype, Some(0x8100), "a tag too many is a type");
    let cut = ethernet(&[&[0x81, 0, 0]]);
    assert_eq!((Packet::ethernet(&cut).vlan, Packet::ethernet(&cut).ethertype), (None, None));
}

#[test]
fn frames_of_802_3_have_a_type_behind_their_length() {
    let ip = v4(6, 0, &[0; 20]);
    let snap = ethernet(&[&[0, 60, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &ip]);
    assert_eq!(addresses(&Packet::ethernet(&snap)), Some((1, 2)));
    let spanning_tree = ethernet(&[&[0, 38, 0x42, 0x42, 3], &[0; 35]]);
    let packet = Packet::ethernet(&spanning_tree);
    assert_eq!((packet.ethertype, packet.ip), (None, None));
}

#[test]
fn labels_and_sessions_lead_to_the_packet_inside() {
    let ip = v4(17, 0, &udp(53, b""));
    let labels = [0, 1, 0, 64, 0, 2, 1, 64];
    let mpls = ethernet(&[&[0x88, 0x47], &labels, &ip]);
    let packet = Packet::ethernet(&mpls);
    assert_eq!((packet.labels, packet.ports), (&labels[..], Some((99, 53))));
    assert_eq!(addresses(&Packet::mpls(&[&labels[..], &v6(17, &udp(53, b""))].concat())), Some((0xfe, 0xfd)));
    let control_word = [&labels[..], &[0, 0, 0, 0], &ip].concat();
    assert_eq!(Packet::mpls(&control_word).ip, None, "no pseudowire of IP is known");
    let endless = [0, 1, 0, 64].repeat(40);
    assert_eq!(Packet::mpls(&endless).labels.len(), MAX_LABELS * 4);
    let session = ethernet(&[&[0x88, 0x64, 0x11, 0, 0, 5, 0, 30, 0, 0x21], &ip]);
    let packet = Packet::ethernet(&session);
    assert_eq!((packet.pppoe_session, packet.ports), (Some(5), Some((99, 53))));
}

#[test]
fn ip_says_all_that_its_header_says() {
    let bytes = v4(6, 0x4000, &[1, 187, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18]);
    let packet = Packet::ip(&bytes);
    let ip = packet.ip.unwrap();
    assert_eq!((ip.tos, ip.ttl, ip.length, ip.protocol), (0xb8, 63, Some(34), 6));
    assert_eq!(ip.fragment, Some(Fragment { id: 7, offset: 0, more: false, dont: true }));
    assert_eq!((packet.ports, packet.tcp_flags), (Some((443, 80)), Some(0x18)));
    // Header of 24 bytes: ports come after the options.
    let mut options = v4(6, 0, &[7, 4, 0, 0, 1, 187, 0, 80]);
    options[0] = 0x46;
    assert_eq!(Packet::ip(&options).ports, Some((443, 80)));
    let echo = v4(1, 0, &[8, 0, 0, 0]);
    assert_eq!((Packet::ip(&echo).icmp, Packet::ip(&echo).ports), (Some((8, 0)), None));
    let bytes = v6(58, &[135, 0, 0, 0]);
    let packet = Packet::ip(&bytes);
    let ip = packet.ip.unwrap();
    assert_eq!((ip.tos, ip.ttl, ip.flow_label, ip.length), (0xab, 61, Some(0x12345), Some(44)));
    assert_eq!((packet.icmp, ip.fragment), (Some((135, 0)), None));
}

#[test]
fn later_fragments_have_no_ports_and_extension_headers_are_passed_over() {
    let ports = [0, 53, 0, 54, 0, 8, 0, 0];
    assert_eq!(Packet::ip(&v4(17, 0x2000, &ports)).ports, Some((53, 54)), "the first one");
    let later = v4(17, 0x2003, &ports);
    let fragment = Packet::ip(&later).ip.unwrap().fragment.unwrap();
    assert_eq!((Packet::ip(&later).ports, fragment.offset, fragment.more), (None, 3, true));
    // Hop-by-hop, then fragment, then UDP.
    let first = [&[44, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0, 1, 0, 0, 0, 9][..], &ports].concat();
    let packet = v6(0, &first);
    let packet = Packet::ip(&packet);
    assert_eq!((packet.ip.unwrap().protocol, packet.ports), (17, Some((53, 54))));
    assert_eq!(packet.ip.unwrap().fragment.map(|fragment| (fragment.id, fragment.more)), Some((9, true)));
    let later = [&[17, 0, 0, 8, 0, 0, 0, 9][..], &ports].concat();
    let later = v6(44, &later);
    assert_eq!((Packet::ip(&later).ports, Packet::ip(&later).ip.unwrap().protocol), (None, 17));
    // The bytes of a later fragment look like destination options and TCP.
    let later = v6(44, &[60, 0, 0, 8, 0, 0, 0, 9, 6, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(Packet::ip(&later).ip.unwrap().protocol, 60);
}

#[test]
fn a_datagram_of_a_capture_ends_where_its_length_says() {
    // Short frames are padded.
    let frame = ethernet(&[&[8, 0], &v4(17, 0, &udp(6_343, b"sflow")), &[0; 20]]);
    assert_eq!(link_packet(1, &frame).unwrap().udp(), Some((6_343, &b"sflow"[..])));
    let cooked = [&[0; 14][..], &[0x86, 0xdd], &v6(17, &udp(6_343, b"sflow"))].concat();
    assert_eq!(link_packet(113, &cooked).unwrap().udp(), Some((6_343, &b"sflow"[..])));
    let tagged = [&[0; 14][..], &[0x81, 0, 0, 7, 0x86, 0xdd], &v6(17, &udp(6_343, b"sflow"))].concat();
    assert_eq!(link_packet(113, &tagged).unwrap().udp(), Some((6_343, &b"sflow"[..])));
    assert_eq!(link_packet(101, &v4(6, 0, &[0; 20])).unwrap().udp(), None);
    assert!(link_packet(105, &frame).is_none(), "802.11 is not known");
}

#[test]
fn every_truncation_is_survived() {
    let inside = ethernet(&[&[8, 0], &v4(6, 0, &[0, 1, 0, 2])]);
    let vxlan =
        v6(0, &[&[17, 0, 1, 4, 0, 0, 0, 0], &udp(4_789, &[&[8; 8], &inside[..]].concat())[..]].concat());
    let frame = ethernet(&[&[0x81, 0, 0, 1, 0x88, 0x47, 0, 1, 1, 64], &vxlan]);
    for length in 0..frame.len() {
        let packet = Packet::ethernet(&frame[..length]);
        let _ = (packet.inner(Tunnels::ALL), packet.udp());
    }
    let whole = Packet::ethernet(&frame);
    assert_eq!(whole.inner(Tunnels::ALL).unwrap().packet.ports, Some((1, 2)));
}

#[test]
fn extension_headers_may_end_anywhere() {
    // Every kind that `etherparse` follows, twice, each of 8 bytes but the one for authentication (12).
    let header = |kind: u8, next: u8| match kind {
        51 => vec![next, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2],
        44 => vec![next, 0, 0, 1, 0, 0, 0, 9],
        _ => vec![next, 0, 1, 4, 0, 0, 0, 0],
    };
    let kinds = [0, 60, 43, 44, 51, 60, 43, 51, 44];
    let mut chain: Vec<u8> =
        kinds.iter().zip(&kinds[1..]).flat_map(|(kind, next)| header(*kind, *next)).collect();
    chain.extend(header(44, 17));
    chain.extend(udp(6_343, b"sflow"));
    let whole = v6(0, &chain);
    let packet = Packet::ip(&whole);
    let fragment = packet.ip.and_then(|ip| ip.fragment).unwrap();
    assert_eq!((fragment.id, fragment.more, packet.udp().map(|(port, _)| port)), (9, true, Some(6_343)));
    let first_fragment = 40 + 3 * 8 + 8;
    for length in 0..whole.len() {
        // A slice of its own, so that a read past its end is one past an allocation.
        let cut: Box<[u8]> = whole[..length].into();
        let packet = Packet::ip(&cut);
        assert_eq!(packet.part.is_some(), length >= first_fragment, "{length} bytes");
        assert!(length >= 40 || packet.ip.is_none(), "{length} bytes");
    }
    for last in kinds {
        let chain = [header(60, last), vec![17, 255]].concat();
        assert!(
            Packet::ip(&v6(60, &chain)).part.is_none(),
            "a header {last} that says 2,048 bytes, and has 2"
        );
    }
}
