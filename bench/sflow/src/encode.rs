//! Flows in datagrams.
//!
//! A sample is one of format 1 with two records: the head of the packet as it was on the wire, and the VLANs by which it came
//! and went. Layouts: sFlow version 5 (July 2004), section 5.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::flow::{Addresses, Flow, Transport};

/// Samples of a full datagram.
pub const SAMPLES: usize = 7;

/// Bytes of a packet that a switch sends at most.
const HEAD: usize = 128;
/// Bytes of a frame that are not in its head: the checksum.
const STRIPPED: u32 = 4;

/// A datagram, and which records are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    pub agent: Ipv4Addr,
    /// Its sequence number: those of an agent ascend from 0.
    pub number: u32,
    /// Places of its records, as they were given.
    pub flows: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// Puts flows into datagrams as their agents do: each sends when it has gathered [`SAMPLES`], and in the end, by address, what
/// is left.
pub fn datagrams(flows: &[Flow]) -> Vec<Packed> {
    let mut gathered: BTreeMap<Ipv4Addr, Agent> = BTreeMap::new();
    let mut sent = Vec::new();
    for (place, flow) in flows.iter().enumerate() {
        let agent = gathered.entry(flow.agent).or_default();
        agent.waiting.push(place);
        if agent.waiting.len() == SAMPLES {
            sent.push(agent.send(flow.agent, flows));
        }
    }
    for (address, agent) in &mut gathered {
        if !agent.waiting.is_empty() {
            sent.push(agent.send(*address, flows));
        }
    }
    sent
}

#[derive(Default)]
struct Agent {
    waiting: Vec<usize>,
    next: u32,
}

impl Agent {
    fn send(&mut self, address: Ipv4Addr, flows: &[Flow]) -> Packed {
        let (places, number) = (std::mem::take(&mut self.waiting), self.next);
        self.next += 1;
        let uptime = places.last().map_or(0, |place| flows[*place].uptime);
        let mut bytes = words(&[5, 1, address.to_bits(), 0, number, uptime, places.len() as u32]);
        for place in &places {
            push(&mut bytes, 1, &sample(&flows[*place]));
        }
        Packed { agent: address, number, flows: places, bytes }
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A structure with its format and length in front of it.
fn push(bytes: &mut Vec<u8>, format: u32, body: &[u8]) {
    bytes.extend(words(&[format, body.len() as u32]));
    bytes.extend(body);
}

fn sample(flow: &Flow) -> Vec<u8> {
    const NO_DROPS: u32 = 0;
    const RECORDS: u32 = 2;
    let mut body = words(&[
        flow.sequence,
        flow.source_index,
        flow.sampling_rate,
        flow.sample_pool,
        NO_DROPS,
        flow.in_if,
        flow.out_if,
        RECORDS,
    ]);
    push(&mut body, 1, &sampled_header(flow));
    push(&mut body, 1001, &words(&[flow.in_vlan, 0, flow.out_vlan, 0]));
    body
}

fn sampled_header(flow: &Flow) -> Vec<u8> {
    const ETHERNET: u32 = 1;
    let mut head = ethernet(flow);
    // What follows the headers is anything.
    head.resize(HEAD.min(flow.frame_length.saturating_sub(STRIPPED) as usize), 0);
    let mut record = words(&[ETHERNET, flow.frame_length, STRIPPED, head.len() as u32]);
    head.resize(head.len().next_multiple_of(4), 0);
    record.extend(head);
    record
}

fn ethernet(flow: &Flow) -> Vec<u8> {
    const TAG: u16 = 0x8100;
    let mut frame = [flow.dst_mac, flow.src_mac].concat();
    frame.extend(TAG.to_be_bytes());
    frame.extend(flow.vlan.to_be_bytes());
    match flow.addresses {
        Addresses::V4(from, to) => {
            const HEADER: u16 = 20;
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend(flow.ip_length.to_be_bytes());
            // Id 0, and not to be split.
            frame.extend([0, 0, 0x40, 0, flow.ip_ttl, flow.protocol, 0, 0]);
            frame.extend([from.octets(), to.octets()].concat());
            frame.extend(transport(flow, flow.ip_length.saturating_sub(HEADER)));
        }
        Addresses::V6(from, to) => {
            const HEADER: u16 = 40;
            let payload = flow.ip_length.saturating_sub(HEADER);
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(payload.to_be_bytes());
            frame.extend([flow.protocol, flow.ip_ttl]);
            frame.extend([from.octets(), to.octets()].concat());
            frame.extend(transport(flow, payload));
        }
    }
    frame
}

/// The header of a packet whose IP payload is so long.
fn transport(flow: &Flow, length: u16) -> Vec<u8> {
    match flow.transport {
        Transport::Tcp { ports: (from, to), flags } => {
            // Eight words, three of them options that end at once; the window is wide open.
            let mut header = [from.to_be_bytes(), to.to_be_bytes()].concat();
            header.extend([[0; 4], [0; 4], [8 << 4, flags, 0xff, 0xff]].concat());
            header.resize(32, 0);
            header
        }
        Transport::Udp { ports: (from, to) } => [from, to, length, 0].map(u16::to_be_bytes).concat(),
        Transport::Icmp { kind, code } => vec![kind, code, 0, 0, 0, 0, 0, 0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(agent: u8, sequence: u32) -> Flow {
        Flow {
            agent: Ipv4Addr::new(10, 0, 0, agent),
            uptime: 1_000 + sequence,
            sequence,
            source_index: 18,
            sampling_rate: 2_048,
            sample_pool: 4_096,
            in_if: 18,
            out_if: 100_000,
            frame_length: 1_191,
            src_mac: [2, 0x1f, 0x0a, 0, 0, 0x8e],
            dst_mac: [2, 0x1f, 0x0a, 0, 0, 1],
            vlan: 100,
            in_vlan: 100,
            out_vlan: 101,
            addresses: Addresses::V4([153, 8, 138, 251].into(), [53, 141, 183, 21].into()),
            ip_ttl: 54,
            ip_length: 1_169,
            protocol: 6,
            transport: Transport::Tcp { ports: (443, 56_591), flags: 24 },
        }
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn each_agent_counts_its_own_datagrams_and_sends_what_is_left_in_the_end() {
        let flows: Vec<Flow> =
            (0..20).map(|sequence| flow(1 + u8::from(sequence % 2 == 1), sequence)).collect();
        let sent = datagrams(&flows);
        let heads: Vec<(u8, u32, usize)> =
            sent.iter().map(|sent| (sent.agent.octets()[3], sent.number, sent.flows.len())).collect();
        assert_eq!(heads, [(1, 0, 7), (2, 0, 7), (1, 1, 3), (2, 1, 3)]);
        assert_eq!(sent[1].flows, [1, 3, 5, 7, 9, 11, 13]);
        for sent in &sent {
            let fields: Vec<u32> = (0..7).map(|field| word(&sent.bytes, field * 4)).collect();
            let uptime = flows[*sent.flows.last().unwrap()].uptime;
            let agent = sent.agent.to_bits();
            assert_eq!(fields, [5, 1, agent, 0, sent.number, uptime, sent.flows.len() as u32]);
        }
    }

    #[test]
    fn a_sample_has_the_head_of_its_packet_and_the_vlans() {
        let bytes = sample(&flow(1, 9));
        let fields: Vec<u32> = (0..8).map(|field| word(&bytes, field * 4)).collect();
        assert_eq!(fields, [9, 18, 2_048, 4_096, 0, 18, 100_000, 2]);
        let header = &bytes[32..];
        let fields: Vec<u32> = (0..6).map(|field| word(header, field * 4)).collect();
        assert_eq!(fields, [1, 16 + 128, 1, 1_191, 4, 128]);
        let frame = &header[24..24 + 128];
        assert_eq!(frame[..6], [2, 0x1f, 0x0a, 0, 0, 1], "the destination comes first");
        assert_eq!(frame[12..18], [0x81, 0, 0, 100, 8, 0]);
        assert_eq!(frame[20..22], 1_169_u16.to_be_bytes());
        assert_eq!(frame[26..28], [54, 6]);
        assert_eq!(frame[30..38], [153, 8, 138, 251, 53, 141, 183, 21]);
        assert_eq!(frame[38..42], [1, 0xbb, 0xdd, 0x0f]);
        assert_eq!(frame[51], 24);
        let switch = &header[24 + 128..];
        let fields: Vec<u32> = (0..6).map(|field| word(switch, field * 4)).collect();
        assert_eq!(fields, [1_001, 16, 100, 0, 101, 0]);
        assert_eq!(switch.len(), 24);
    }

    #[test]
    fn short_frames_and_version_6_keep_their_lengths() {
        let echo = Flow {
            addresses: Addresses::V6("2a01::1".parse().unwrap(), "2a01::2".parse().unwrap()),
            frame_length: 71,
            ip_length: 49,
            protocol: 58,
            transport: Transport::Icmp { kind: 128, code: 0 },
            ..flow(1, 0)
        };
        let record = sampled_header(&echo);
        assert_eq!(
            (word(&record, 12), record.len()),
            (67, 16 + 68),
            "bytes beside the length fill the last word"
        );
        let frame = &record[16..];
        assert_eq!(frame[16..24], [0x86, 0xdd, 0x60, 0, 0, 0, 0, 9]);
        assert_eq!(frame[24..26], [58, 54]);
        assert_eq!((frame[26], frame[41], frame[57]), (0x2a, 1, 2));
        assert_eq!(frame[58..60], [128, 0]);
        let datagram = Flow { protocol: 17, transport: Transport::Udp { ports: (1, 53) }, ..echo };
        assert_eq!(transport(&datagram, 9), [0, 1, 0, 53, 0, 9, 0, 0]);
    }
}
