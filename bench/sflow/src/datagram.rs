//! Datagrams to send: from a capture, of generated flows, or made up.

use std::net::Ipv4Addr;
use std::ops::Range;

use anyhow::{Context, Result, ensure};
use thalweg_bench_sflow::{Addresses, Flow, SAMPLES, Transport};

/// One datagram, and where its sequence number is.
pub(crate) struct Datagram {
    pub(crate) bytes: Vec<u8>,
    pub(crate) samples: u32,
    sequence: Range<usize>,
}

impl Datagram {
    /// `None` where it is none of version 5 with at least one sample.
    fn new(bytes: Vec<u8>) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let agent = match (word(0)?, word(4)?) {
            (5, 1) => 4,
            (5, 2) => 16,
            _ => return None,
        };
        // Version, kind of address, address, sub-agent, sequence, uptime, number of samples.
        let sequence = 8 + agent + 4;
        let samples = word(sequence + 8).filter(|samples| *samples > 0)?;
        Some(Self { bytes, samples, sequence: sequence..sequence + 4 })
    }

    pub(crate) fn set_sequence(&mut self, number: u32) {
        self.bytes[self.sequence.clone()].copy_from_slice(&number.to_be_bytes());
    }
}

/// The datagrams of a capture with Ethernet, IPv4 and UDP in front of each.
///
/// # Errors
/// Where it is no capture in little-endian order, or holds no such datagram.
pub(crate) fn of_capture(file: &[u8]) -> Result<Vec<Datagram>> {
    const FILE_HEAD: usize = 24;
    const PACKET_HEAD: usize = 16;
    const HEADERS: usize = 14 + 20 + 8;
    ensure!(file.starts_with(&0xa1b2_c3d4_u32.to_le_bytes()), "expected a pcap file in little-endian order");
    let mut datagrams = Vec::new();
    let mut rest = file.get(FILE_HEAD..).unwrap_or_default();
    while let Some((head, after)) = rest.split_at_checked(PACKET_HEAD) {
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let Some((packet, after)) = after.split_at_checked(length) else { break };
        rest = after;
        datagrams.extend(packet.get(HEADERS..).and_then(|payload| Datagram::new(payload.to_vec())));
    }
    ensure!(!datagrams.is_empty(), "expected datagrams of sFlow version 5 over Ethernet and IPv4, got none");
    Ok(datagrams)
}

/// The datagrams of generated flows, a record a line, with the sequence numbers of their agents.
///
/// # Errors
/// Where a line is none.
pub(crate) fn of_flows(file: &[u8]) -> Result<Vec<Datagram>> {
    let flow = |(number, line)| Flow::parse(line).with_context(|| format!("line {}", number + 1));
    let flows = std::str::from_utf8(file)?.lines().enumerate().map(flow).collect::<Result<Vec<Flow>>>()?;
    let datagrams = packed(&flows);
    ensure!(!datagrams.is_empty(), "expected generated flows, got none");
    Ok(datagrams)
}

/// Sixty-four full datagrams of one agent with frames of TCP.
pub(crate) fn made_up() -> Vec<Datagram> {
    const DATAGRAMS: u32 = 64;
    const RATE: u32 = 2_048;
    let flow = |number: u32| Flow {
        agent: Ipv4Addr::new(10, 0, 0, 1),
        uptime: number * 10,
        sequence: number,
        source_index: 3,
        sampling_rate: RATE,
        sample_pool: number * RATE,
        in_if: 3,
        out_if: 4,
        frame_length: 1_518,
        src_mac: [0, 1, 2, 0, 0, 2],
        dst_mac: [2, 0, 0, 0, 0, 1],
        vlan: 100,
        in_vlan: 100,
        out_vlan: 100,
        addresses: Addresses::V4(
            Ipv4Addr::new(198, 51, 100, number as u8),
            Ipv4Addr::new(203, 0, 113, (number >> 3) as u8),
        ),
        ip_ttl: 64,
        ip_length: 1_500,
        protocol: 6,
        transport: Transport::Tcp { ports: (443, 50_000 + (number % 1_000) as u16), flags: 0x10 },
    };
    packed(&(0..DATAGRAMS * SAMPLES as u32).map(flow).collect::<Vec<_>>())
}

fn packed(flows: &[Flow]) -> Vec<Datagram> {
    let packed = thalweg_bench_sflow::datagrams(flows);
    packed.into_iter().filter_map(|packed| Datagram::new(packed.bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_datagrams_carry_their_numbers() {
        let mut datagrams = made_up();
        assert_eq!(datagrams.len(), 64);
        assert!(datagrams.iter().all(|datagram| datagram.samples as usize == SAMPLES));
        let datagram = &mut datagrams[0];
        datagram.set_sequence(0x0102_0304);
        assert_eq!(datagram.bytes[16..20], [1, 2, 3, 4]);
    }

    #[test]
    fn generated_flows_become_datagrams_of_their_agent() {
        let flow = r#"{"agent":"10.0.0.7","uptime":5,"sequence":1,"source_index":18,"sampling_rate":2048,"sample_pool":0,"in_if":18,
            "out_if":1,"frame_length":64,"src_mac":"02:1f:0a:00:00:8e","dst_mac":"02:1f:0a:00:00:00","vlan":100,"src_addr":"153.8.138.251",
            "dst_addr":"53.141.183.21","protocol":17,"src_port":443,"dst_port":56591,"tcp_flags":null,"ip_ttl":54,"ip_length":28,
            "in_vlan":100,"out_vlan":100}"#
            .replace('\n', "");
        let datagrams = of_flows([flow.as_str(); 8].join("\n").as_bytes()).unwrap();
        let samples: Vec<u32> = datagrams.iter().map(|datagram| datagram.samples).collect();
        assert_eq!(samples, [7, 1]);
        assert_eq!(datagrams[1].bytes[16..20], [0, 0, 0, 1]);
        let error = of_flows(flow.replace("\"protocol\":17", "\"protocol\":6").as_bytes()).err().unwrap();
        assert_eq!(format!("{error:#}"), "line 1: tcp_flags is null");
    }

    #[test]
    fn what_is_no_capture_is_refused() {
        assert!(of_capture(b"").is_err());
        let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
        file.resize(24, 0);
        assert!(of_capture(&file).is_err(), "a capture without packets");
        let payload = made_up().remove(0).bytes;
        file.extend([0; 8]);
        file.extend(((payload.len() + 42) as u32).to_le_bytes());
        file.extend([0; 4 + 42]);
        file.extend(payload);
        assert_eq!(of_capture(&file).unwrap().len(), 1);
    }
}
