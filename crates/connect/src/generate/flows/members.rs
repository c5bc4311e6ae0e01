//! The members of a made-up exchange: behind which address of which port of which switch a network is.
//!
//! Members have ports on all agents in turn. Every tenth one, from the tenth on, has no port of its own: it is behind
//! the router of the one before it, on a VLAN of its own, so that only MAC address and VLAN together say who it is.

use std::net::Ipv4Addr;

use super::networks::{self, Networks};
use crate::generate::{below, mix};

/// The VLAN that all members with a port of their own share.
const PEERING_VLAN: u16 = 100;
/// VLANs of those without; the same one may be used behind several ports.
const FIRST_VLAN: u16 = 101;
const VLANS: u64 = 3_900;
/// Numbers of the interfaces that lead to other agents.
const UPLINKS: u64 = 100_000;
/// Sampling rates of agents.
const RATES: [u64; 4] = [1_024, 2_048, 2_048, 4_096];

#[derive(Debug)]
pub(super) struct Members {
    seed: u64,
    agents: u64,
    count: u64,
    /// The member behind which each network is.
    of_network: Vec<u32>,
}

impl Members {
    pub(super) fn new(seed: u64, agents: u64, count: u64) -> Self {
        let member = |rank: u64| match rank < count {
            true => rank,
            false => below(mix(seed ^ mix(rank) ^ 0x6d), count),
        };
        // At most as many as fit 32 bits: the spec says so.
        let of_network = (0..networks::COUNT as u64).map(|rank| member(rank) as u32).collect();
        Self { seed, agents, count, of_network }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn of_network(&self, rank: usize) -> u64 {
        u64::from(self.of_network[rank])
    }

    /// The member whose port this one uses.
    fn port_owner(member: u64) -> u64 {
        if member % 10 == 9 { member - 1 } else { member }
    }

    pub(super) fn agent(&self, member: u64) -> u64 {
        Self::port_owner(member) % self.agents
    }

    /// The interface to the member, on its own agent.
    pub(super) fn interface(&self, member: u64) -> u64 {
        Self::port_owner(member) / self.agents + 1
    }

    /// The interface towards another agent.
    pub(super) fn uplink(agent: u64) -> u64 {
        UPLINKS + agent
    }

    pub(super) fn mac(member: u64) -> [u8; 6] {
        let [.., b, c, d] = Self::port_owner(member).to_be_bytes();
        // The second bit of the first byte: assigned by the operator of the network.
        [0x02, 0x1f, 0x0a, b, c, d]
    }

    pub(super) fn vlan(member: u64) -> u16 {
        if Self::port_owner(member) == member {
            PEERING_VLAN
        } else {
            FIRST_VLAN + (member / 10 % VLANS) as u16
        }
    }

    /// The name of the member: that of its own network, if it has one.
    pub(super) fn name(member: u64) -> String {
        match usize::try_from(member) {
            Ok(rank) if rank < networks::COUNT => Networks::name(rank),
            _ => format!("MEMBER-{member}"),
        }
    }

    /// Where an agent is reached: 10.0.0.1 and so on.
    pub(super) fn agent_address(agent: u64) -> Ipv4Addr {
        Ipv4Addr::from(0x0a00_0001 + agent as u32)
    }

    pub(super) fn sampling_rate(&self, agent: u64) -> u64 {
        RATES[(mix(self.seed ^ agent << 4) % RATES.len() as u64) as usize]
    }
}
