//! Sampled packets of a made-up internet exchange, in the rows of `type: sflow`.
//!
//! The pairs of hosts are fixed: a record picks one by its rank, the first ranks far more often, and the pair's rank
//! says all that lasts of it: hosts, networks, members, service. Ports of clients change every two minutes; direction,
//! length and flags are each packet's own. A packet is seen where it comes in: agent and interface are those of its
//! sender's member.
//!
//! Columns are those of a sample, so that a job takes either; fields that switches of an exchange do not send are null.
//! `sequence`, `datagram`, `sample_pool` and `uptime` ascend for each agent, with gaps, as no record knows how many
//! came before it.

mod clock;
mod members;
mod networks;
mod tables;

use arrow_array::ArrayRef;
use thalweg_types::{Field, Micros, Offset};

use self::clock::Clock;
use self::members::Members;
use self::networks::Networks;
use super::ranks::Ranks;
use super::{BASE, GeneratorSpec, below, mix, random, unit};
use crate::sflow::flow_row::FlowRows;
use crate::sflow::xdr::from_v4;

pub(crate) use self::tables::TABLES;
pub(super) use self::tables::probe_tables;

const TCP: u64 = 6;
const UDP: u64 = 17;
const ICMP: u64 = 1;
const ICMP6: u64 = 58;

/// Services by their share of the pairs, in percent: protocol, port, and whether its server sends the bulk.
const SERVICES: [(u64, u64, u64, bool); 9] = [
    (46, TCP, 443, true),
    (24, UDP, 443, true),
    (9, TCP, 80, true),
    (7, UDP, 53, false),
    (4, TCP, 25, false),
    (3, TCP, 22, false),
    (3, UDP, 51_820, true),
    (2, TCP, 179, false),
    (2, ICMP, 0, false),
];
/// How long a client keeps its port.
const PORT_LIFE: Micros = 120_000_000;
const FIRST_CLIENT_PORT: u64 = 32_768;

/// Ethernet header, VLAN tag and checksum around an IP packet.
const FRAME_EXTRA: u64 = 22;
const SHORTEST_FRAME: u64 = 64;
/// Samples of a datagram.
const DATAGRAM_SAMPLES: u64 = 7;

pub(super) fn fields() -> Vec<Field> {
    FlowRows::fields()
}

#[derive(Debug)]
pub(super) struct Flows {
    seed: u64,
    start: Micros,
    clock: Clock,
    pairs: Ranks,
    by_size: Ranks,
    networks: Networks,
    members: Members,
}

/// One end of a pair.
#[derive(Clone, Copy)]
struct End {
    network: usize,
    host: u64,
    member: u64,
    port: u64,
}

/// The fixed part of a pair of hosts.
struct Pair {
    server: End,
    client: End,
    is_v6: bool,
    protocol: u64,
    is_bulk: bool,
}

impl Flows {
    pub(super) fn new(spec: &GeneratorSpec) -> Self {
        let seed = spec.seed;
        let start = spec.start.unwrap_or(BASE);
        Self {
            seed,
            start,
            clock: Clock::new(seed, spec.gap, start),
            pairs: Ranks::new(spec.pairs, spec.zipf),
            by_size: Ranks::new(networks::COUNT as u64, 1.0),
            networks: Networks::new(seed, spec.hosts),
            members: Members::new(seed, spec.agents, spec.members),
        }
    }

    pub(super) fn columns(&self, first: Offset, count: usize, width: usize) -> Vec<ArrayRef> {
        let mut rows = FlowRows::default();
        for row in 0..count {
            self.set(&mut rows, row, first + row as u64);
        }
        let mut columns = rows.finish(count);
        columns.truncate(width);
        columns
    }

    fn pair(&self, rank: u64, time: Micros) -> Pair {
        let chance = |stream: u64| random(self.seed, 100 + stream, rank);
        let server = self.by_size.pick(unit(chance(0))) as usize;
        let mut client = self.by_size.pick(unit(chance(1))) as usize;
        // Traffic within a member does not cross the exchange; with one member alone, everything does.
        for _ in 0..8 {
            if self.members.of_network(client) != self.members.of_network(server) {
                break;
            }
            client = (client + 1) % networks::COUNT;
        }
        let [from, to] = [server, client].map(|network| self.networks.get(network));
        let is_v6 = from.has_v6 && to.has_v6 && chance(2).is_multiple_of(2);
        let host = |network: usize, stream| {
            let network = self.networks.get(network);
            let hosts = if is_v6 { &network.hosts6 } else { &network.hosts };
            hosts.pick(unit(chance(stream)))
        };
        let mut place = below(chance(5), 100);
        let mut service = SERVICES[0];
        for known in SERVICES {
            service = known;
            if place < known.0 {
                break;
            }
            place -= known.0;
        }
        let (_, protocol, port, is_bulk) = service;
        // Pairs change ports at different times.
        let life = (time + (chance(6) % PORT_LIFE as u64) as Micros).div_euclid(PORT_LIFE);
        let span = u64::from(u16::MAX) + 1 - FIRST_CLIENT_PORT;
        let client_port = FIRST_CLIENT_PORT + below(mix(chance(7) ^ life as u64), span);
        let end = |network, stream, port| End {
            network,
            host: host(network, stream),
            member: self.members.of_network(network),
            port,
        };
        Pair {
            server: end(server, 3, port),
            client: end(client, 4, client_port),
            is_v6,
            protocol,
            is_bulk: is_bulk && chance(8) % 4 != 0,
        }
    }

    fn set(&self, rows: &mut FlowRows, row: usize, offset: Offset) {
        let time = self.clock.time(offset);
        let rank = self.pairs.pick(unit(random(self.seed, 1, offset)));
        let pair = self.pair(rank, time);
        let chance = random(self.seed, 2, offset);
        // Servers send about two of three packets.
        let from_server = chance & 0xff < 168;
        let (source, destination) =
            if from_server { (pair.server, pair.client) } else { (pair.client, pair.server) };
        let length = ip_length(&pair, from_server, random(self.seed, 3, offset));
        let frame = (length + FRAME_EXTRA).max(SHORTEST_FRAME);

        let members = &self.members;
        let agent = members.agent(source.member);
        let address = from_v4(Members::agent_address(agent).octets());
        let rate = members.sampling_rate(agent);
        let in_if = members.interface(source.member);
        let out_if = match members.agent(destination.member) {
            same if same == agent => members.interface(destination.member),
            other => Members::uplink(other),
        };
        let (in_vlan, out_vlan) = (Members::vlan(source.member), Members::vlan(destination.member));

        rows.time.0.set(row, time);
        rows.agent.set(row, address);
        rows.sub_agent.set(row, 0);
        rows.sender.set(row, address);
        rows.datagram.set(row, offset / DATAGRAM_SAMPLES % (1 << 32));
        rows.uptime.set(row, (time - self.start).max(0) as u64 / 1_000 % (1 << 32));
        rows.sample.set(row, "flow");
        rows.sequence.set(row, offset % (1 << 32));
        rows.source_class.set(row, 0);
        rows.source_index.set(row, in_if);
        rows.sampling_rate.set(row, rate);
        rows.sample_pool.set(row, offset.wrapping_mul(rate) % (1 << 32));
        rows.drops.set(row, 0);
        rows.in_if.set(row, in_if);
        rows.in_if_kind.set(row, "interface");
        rows.out_if.set(row, out_if);
        rows.out_if_kind.set(row, "interface");
        rows.bytes.set(row, frame * rate);
        rows.packets.set(row, rate);
        rows.frame_length.set(row, frame);
        rows.header_protocol.set(row, 1);
        rows.src_mac.set_mac(row, Members::mac(source.member));
        rows.dst_mac.set_mac(row, Members::mac(destination.member));
        rows.ethertype.set(row, if pair.is_v6 { 0x86dd } else { 0x0800 });
        rows.vlan.set(row, u64::from(in_vlan));
        rows.src_addr.set(row, self.networks.address(source.network, source.host, pair.is_v6));
        rows.dst_addr.set(row, self.networks.address(destination.network, destination.host, pair.is_v6));
        let is_icmp = pair.protocol == ICMP;
        rows.protocol.set(row, if is_icmp && pair.is_v6 { ICMP6 } else { pair.protocol });
        if is_icmp {
            // Echo: request and reply.
            let kind = match (pair.is_v6, from_server) {
                (false, true) => 0,
                (false, false) => 8,
                (true, true) => 129,
                (true, false) => 128,
            };
            rows.icmp_type.set(row, kind);
            rows.icmp_code.set(row, 0);
        } else {
            rows.src_port.set(row, source.port);
            rows.dst_port.set(row, destination.port);
        }
        if pair.protocol == TCP {
            rows.tcp_flags.set(row, tcp_flags(chance >> 32, from_server));
        }
        rows.ip_tos.set(row, 0);
        rows.ip_ttl.set(row, (if from_server { 64 } else { 128 }) - below(mix(source.host), 24));
        rows.ip_length.set(row, length);
        rows.in_vlan.set(row, u64::from(in_vlan));
        rows.out_vlan.set(row, u64::from(out_vlan));
    }
}

/// Length of an IP packet: full ones and acknowledgements where much is sent, anything where little is.
fn ip_length(pair: &Pair, from_server: bool, chance: u64) -> u64 {
    let (ip, transport) = (if pair.is_v6 { 40 } else { 20 }, if pair.protocol == TCP { 32 } else { 8 });
    let header = ip + transport;
    let share = chance & 0xff;
    match (pair.is_bulk, from_server) {
        (true, true) if share < 205 => 1_500,
        (true, false) if share < 205 => header,
        (true, _) => header + below(chance.rotate_left(24), 1_300),
        (false, _) => header + below(chance.rotate_left(24), 400),
    }
}

/// Acknowledgements mostly, and the beginnings and ends of connections.
fn tcp_flags(chance: u64, from_server: bool) -> u64 {
    const FIN: u64 = 1;
    const SYN: u64 = 2;
    const RST: u64 = 4;
    const PSH: u64 = 8;
    const ACK: u64 = 16;
    match chance % 100 {
        0..3 if from_server => SYN | ACK,
        0..3 => SYN,
        3..5 => FIN | ACK,
        5 => RST,
        6..30 => PSH | ACK,
        _ => ACK,
    }
}

/// Kept here so that all pairs have a service.
const _: () = {
    let (mut sum, mut place) = (0, 0);
    while place < SERVICES.len() {
        sum += SERVICES[place].0;
        place += 1;
    }
    assert!(sum == 100);
};
