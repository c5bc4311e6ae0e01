//! Counts by agent: sent, lost and unreadable datagrams and samples.
//!
//! The receiver counts arrivals and the gaps between the numbers of an agent's datagrams ([`super::engines`]), the
//! decode tasks the parts that they could not read. Agents past the first 65,536 share the counter `0.0.0.0`, so that
//! forged ones cost no memory.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_flow::{AgentCounts, AgentStats};
use thalweg_types::{Micros, ip_octets};
use tracing::{info, warn};

use super::datagram::{Head, Outline, Stranger};
use super::engines::Engines;
use super::xdr::{Address, from_v4};

const MAX_AGENTS: usize = 65_536;

/// Agents that are shown apart.
const SHOWN_AGENTS: usize = 100;

/// Samples of a datagram: each takes eight bytes at least. One that claims more is damaged.
const MOST_SAMPLES: u32 = 8_192;

/// Counts by agent, shared by the receiver, the decode tasks, metrics and reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agents(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    total: AgentCounts,
    by_agent: BTreeMap<Address, AgentCounts>,
    /// Samples that datagrams announce and do not hold: they were cut.
    missing: u64,
    engines: Engines,
}

impl Agents {
    /// Notes a datagram that was received at `time`, in the order of arrival.
    pub(crate) fn note(&self, datagram: &Outline, sender: IpAddr, time: Micros) {
        let sender = ip_octets(sender);
        match &datagram.head {
            Ok(head) => self.received(head.agent.unwrap_or(sender), head, datagram.samples, time),
            Err(stranger) => self.stranger(sender, *stranger),
        }
    }

    fn received(&self, agent: Address, head: &Head, samples: u32, time: Micros) {
        let mut counted = self.counted();
        let lost = counted.engines.gap(agent, head, time);
        counted.missing += u64::from(head.samples.saturating_sub(samples).min(MOST_SAMPLES));
        counted.update(agent, |counts| {
            counts.datagrams += 1;
            counts.samples += u64::from(samples);
            counts.lost = counts.lost.saturating_add_signed(lost);
        });
    }

    /// Notes a datagram that is not sFlow version 5, for its sender.
    fn stranger(&self, sender: Address, stranger: Stranger) {
        self.counted().update(sender, |counts| {
            counts.datagrams += 1;
            match stranger {
                Stranger::NetFlow(_) => counts.netflow += 1,
                Stranger::Version(_) | Stranger::Short => counts.malformed += 1,
            }
        });
    }

    /// Adds the counts of decode tasks.
    pub(crate) fn add(&self, counts: &[(Address, AgentCounts)]) {
        let mut counted = self.counted();
        for (agent, more) in counts {
            counted.update(*agent, |counts| {
                counts.malformed += more.malformed;
                counts.unknown += more.unknown;
            });
        }
    }

    /// The sums, and the agents that lost most.
    pub(crate) fn stats(&self) -> AgentStats {
        let counted = self.counted();
        let mut worst: Vec<(IpAddr, AgentCounts)> =
            counted.by_agent.iter().map(|(agent, counts)| (ip_of(*agent), *counts)).collect();
        let agents = worst.len();
        worst.sort_by_key(|(_, counts)| {
            std::cmp::Reverse((counts.lost + counts.malformed + counts.netflow, counts.datagrams))
        });
        worst.truncate(SHOWN_AGENTS);
        AgentStats { total: counted.total, agents, missing: counted.missing, worst }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    /// The last owner is gone, so all tasks have counted.
    fn drop(&mut self) {
        let AgentCounts { datagrams, samples, lost, malformed, unknown, netflow } = self.total;
        let (agents, missing) = (self.by_agent.len(), self.missing);
        if lost + malformed + unknown + netflow + missing > 0 {
            warn!(
                datagrams,
                samples,
                agents,
                lost,
                missing,
                malformed,
                unknown,
                netflow,
                "samples of all agents: datagrams were lost on their way, samples are missing in those that were cut, \
                 or some could not be read"
            );
        } else if datagrams > 0 {
            info!(datagrams, samples, agents, "samples of all agents");
        }
    }
}

impl Counted {
    fn update(&mut self, agent: Address, change: impl Fn(&mut AgentCounts)) {
        change(&mut self.total);
        let is_counted = self.by_agent.len() < MAX_AGENTS || self.by_agent.contains_key(&agent);
        let agent = if is_counted { agent } else { from_v4([0; 4]) };
        change(self.by_agent.entry(agent).or_default());
    }
}

fn ip_of(address: Address) -> IpAddr {
    Ipv6Addr::from(address).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_and_their_parts_are_counted_apart() {
        let agents = Agents::default();
        for (agent, sub_agent, sequence) in [(1, 0, 1), (2, 0, 100), (1, 1, 7), (1, 0, 2), (2, 0, 103)] {
            let head = Head { agent: None, sub_agent, sequence, uptime: 0, samples: 3 };
            agents.received([agent; 16], &head, 3, 0);
        }
        let stats = agents.stats();
        let counts: Vec<(u64, u64, u64)> =
            stats.worst.iter().map(|(_, counts)| (counts.datagrams, counts.samples, counts.lost)).collect();
        assert_eq!((stats.agents, counts), (2, vec![(2, 6, 2), (3, 9, 0)]));
        assert_eq!(stats.total.datagrams, 5);
    }
}
