//! Tunnels in each other, built here, and the packets found in them.

use proptest::prelude::*;

use super::super::tests::{ethernet, udp, v4, v6};
use super::*;

/// A kind of tunnel and its variants.
#[derive(Clone, Copy, Debug)]
enum Layer {
    Vxlan(u32),
    /// With this many words of options.
    Geneve(u32, u8),
    Gre(Option<u32>),
    Ipip,
    /// With a control word and a tag or without, and the first byte of the frame in it.
    Eompls(u32, [bool; 2], u8),
}

/// A packet under construction.
#[derive(Clone)]
enum Built {
    Ip(Vec<u8>),
    Frame(Vec<u8>),
}

impl Built {
    fn kind(packet: &[u8]) -> [u8; 2] {
        if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] }
    }

    fn frame(self) -> Vec<u8> {
        match self {
            Built::Frame(frame) => frame,
            Built::Ip(packet) => ethernet(&[&Self::kind(&packet), &packet]),
        }
    }

    fn typed(self) -> ([u8; 2], Vec<u8>) {
        match self {
            Built::Frame(frame) => (BRIDGED.to_be_bytes(), frame),
            Built::Ip(packet) => (Self::kind(&packet), packet),
        }
    }

    /// In an IP packet of either version.
    fn carrier(is_v6: bool, protocol: u8, payload: &[u8]) -> Self {
        Built::Ip(if is_v6 { v6(protocol, payload) } else { v4(protocol, 0, payload) })
    }

    fn within(self, layer: Layer, is_v6: bool) -> Self {
        let vni = |id: u32| (id << 8).to_be_bytes();
        match layer {
            Layer::Vxlan(id) => {
                let payload = [&[8, 0, 0, 0][..], &vni(id), &self.frame()].concat();
                Self::carrier(is_v6, UDP, &udp(VXLAN_PORT, &payload))
            }
            Layer::Geneve(id, options) => {
                let (kind, inside) = self.typed();
                let options = options & 0x3f;
                let filling = vec![0xff; usize::from(options) * 4];
                let payload = [&[options, 0, kind[0], kind[1]][..], &vni(id), &filling, &inside].concat();
                Self::carrier(is_v6, UDP, &udp(GENEVE_PORT, &payload))
            }
            Layer::Gre(key) => {
                let (kind, inside) = self.typed();
                let flags = if key.is_some() { 0x20 } else { 0 };
                let key = key.map(u32::to_be_bytes).into_iter().flatten().collect::<Vec<u8>>();
                let payload = [&[flags, 0, kind[0], kind[1]][..], &key, &inside].concat();
                Self::carrier(is_v6, GRE, &payload)
            }
            Layer::Ipip => match self {
                Built::Ip(packet) => {
                    let protocol = if packet[0] >> 4 == 4 { IPV4_IN_IP } else { IPV6_IN_IP };
                    Self::carrier(is_v6, protocol, &packet)
                }
                Built::Frame(_) => unreachable!("it carries IP"),
            },
            Layer::Eompls(label, [has_control_word, has_tag], first) => {
                let mut frame = self.frame();
                frame[0] = first;
                if has_tag {
                    frame.splice(12..12, [0x81, 0, 0, 7]);
                }
                let labels = [0, 1, 0, 64].into_iter().chain((label << 12 | 0x140).to_be_bytes());
                let control: &[u8] = if has_control_word { &[0, 0, 0, 9] } else { &[] };
                let labels: Vec<u8> = labels.collect();
                Built::Frame(ethernet(&[&[0x88, 0x47], &labels, control, &frame]))
            }
        }
    }
}

fn layer() -> impl Strategy<Value = Layer> {
    let id = 0_u32..1 << 20;
    prop_oneof![
        id.clone().prop_map(Layer::Vxlan),
        (id.clone(), any::<u8>()).prop_map(|(id, options)| Layer::Geneve(id, options)),
        proptest::option::of(any::<u32>()).prop_map(Layer::Gre),
        Just(Layer::Ipip),
        (id, any::<[bool; 2]>(), any::<u8>()).prop_map(|(id, has, first)| Layer::Eompls(id, has, first)),
    ]
}

fn name_and_id(layer: Layer) -> (&'static str, Option<u32>) {
    match layer {
        Layer::Vxlan(id) => ("vxlan", Some(id)),
        Layer::Geneve(id, _) => ("geneve", Some(id)),
        Layer::Gre(key) => ("gre", key),
        Layer::Ipip => ("ipip", None),
        Layer::Eompls(label, ..) => ("eompls", Some(label)),
    }
}

/// The layers, from the innermost on, around a packet from port 1 to 2; without those that cannot carry the inner ones.
fn nested(layers: &[(Layer, bool)]) -> (Vec<u8>, Vec<Layer>) {
    let mut built = Built::Ip(v4(6, 0, &[0, 1, 0, 2]));
    let mut used = Vec::new();
    for (layer, is_v6) in layers {
        if matches!((&built, layer), (Built::Frame(_), Layer::Ipip)) {
            continue;
        }
        built = built.within(*layer, *is_v6);
        used.insert(0, *layer);
    }
    (built.frame(), used)
}

proptest! {
    #[test]
    fn what_was_built_is_found(layers in proptest::collection::vec((layer(), any::<bool>()), 0..7)) {
        let (frame, used) = nested(&layers);
        let packet = Packet::ethernet(&frame);
        let Some(inner) = packet.inner(Tunnels::ALL) else {
            prop_assert!(used.is_empty());
            return Ok(());
        };
        let followed = &used[..used.len().min(MAX_TUNNELS)];
        let names: Vec<&str> = followed.iter().map(|layer| name_and_id(*layer).0).collect();
        prop_assert_eq!(inner.tunnel(), names.join("/"));
        prop_assert_eq!(inner.id, followed.iter().rev().find_map(|layer| name_and_id(*layer).1));
        if used.len() <= MAX_TUNNELS {
            prop_assert_eq!(inner.packet.ports, Some((1, 2)));
        }
        // Nothing is looked into that nobody asked for.
        prop_assert_eq!(packet.inner(Tunnels::default()), None);
        for length in 0..frame.len() {
            let _ = Packet::ethernet(&frame[..length]).inner(Tunnels::ALL);
        }
    }

    #[test]
    fn any_bytes_are_survived(
        layers in proptest::collection::vec((layer(), any::<bool>()), 0..7),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        noise in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let (mut frame, _) = nested(&layers);
        for (place, byte) in changes {
            let place = place.index(frame.len());
            frame[place] = byte;
        }
        for bytes in [&frame, &noise] {
            for packet in [Packet::ethernet(bytes), Packet::ip(bytes), Packet::mpls(bytes)] {
                let _ = (packet.inner(Tunnels::ALL), packet.udp(), packet.part);
            }
        }
    }
}

#[test]
fn a_pseudowire_has_the_addresses_of_its_packet_and_the_macs_of_the_routers() {
    let inside = ethernet(&[&[0x81, 0, 0, 7, 8, 0], &v4(6, 0, &[0, 1, 0, 2])]);
    for control in [&[][..], &[0, 0, 0, 9]] {
        let frame = ethernet(&[&[0x88, 0x47, 0, 1, 1, 64], control, &inside]);
        let packet = Packet::ethernet(&frame);
        assert_eq!((packet.ports, packet.ethertype, packet.vlan), (Some((1, 2)), Some(0x8847), None));
        assert_eq!(packet.ip.map(|ip| ip.source[15]), Some(1));
        let inner = packet.inner(Tunnels::of(["eompls"]).unwrap()).unwrap();
        assert_eq!((inner.id, inner.packet.vlan.map(|vlan| vlan.id)), (Some(16), Some(7)));
        assert_eq!(packet.inner(Tunnels::of(["vxlan", "geneve", "gre", "ipip"]).unwrap()), None);
    }
}

#[test]
fn labels_carry_ip_where_its_header_has_no_fault() {
    // An IPv4 packet from 8.0.69.1 reads as a frame of type IPv4.
    let mut packet = v4(6, 0, &[0, 1, 0, 2, 0, 0, 0, 0]);
    packet[12..16].copy_from_slice(&[8, 0, 0x45, 1]);
    assert!(is_frame(&packet));
    assert!(matches!(under_labels(&packet), Labelled::Frame(_)), "its checksum is wrong");
    let sum: u32 = (0..20).step_by(2).filter_map(|at| u16_at(&packet, at)).map(u32::from).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    assert_eq!(under_labels(&packet), Labelled::Ip);
    for nothing in [&[][..], &[0; 3], &[0x45], &[0; 64], &[0xff; 64]] {
        assert!(!matches!(under_labels(nothing), Labelled::Frame(_)), "{nothing:?}");
    }
}

#[test]
fn frames_under_labels_in_each_other_have_a_bound() {
    let mut frame = ethernet(&[&[8, 0], &v4(6, 0, &[0, 1, 0, 2])]);
    for _ in 0..2_000 {
        frame = ethernet(&[&[0x88, 0x47, 0, 1, 1, 64], &frame]);
    }
    let packet = Packet::ethernet(&frame);
    assert_eq!(packet.ip, None);
    assert_eq!(packet.inner(Tunnels::ALL).unwrap().tunnel(), "eompls/eompls/eompls/eompls");
}

#[test]
fn tunnels_that_carry_no_packet_are_passed_over() {
    let inside = ethernet(&[&[8, 0], &v4(6, 0, &[0, 1, 0, 2])]);
    let found = |packet: Vec<u8>| Packet::ip(&packet).inner(Tunnels::ALL).is_some();
    let geneve = |first: u8, flags: u8| {
        v4(UDP, 0, &udp(GENEVE_PORT, &[&[first, flags, 0x65, 0x58, 0, 0, 1, 0], &inside[..]].concat()))
    };
    assert!(found(geneve(0, 0)) && found(geneve(0, 0x40)), "critical options are options");
    assert!(!found(geneve(0x40, 0)) && !found(geneve(0, 0x80)), "version 1, control");
    assert!(!found(geneve(0x3f, 0)), "options beyond the end");
    assert!(!found(v4(UDP, 0, &udp(VXLAN_PORT, &[&[0; 8], &inside[..]].concat()))), "no VNI");
    assert!(!found(v4(GRE, 0, &[0x30, 1, 0x88, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0])), "PPTP");
    assert!(!found(v4(IPV4_IN_IP, 0, &v6(6, &[0, 1, 0, 2]))) && !found(v4(IPV4_IN_IP, 0, &[])));
    assert!(!found(v4(IPV4_IN_IP, 0x2003, &v4(6, 0, &[0, 1, 0, 2]))), "a later fragment");
}
