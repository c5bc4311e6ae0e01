//! What each agent sent, and what of it was lost or could not be read.
//!
//! The receiver counts what arrives and the gaps between the sequence numbers of an agent's datagrams, the decode tasks what
//! they could not read. Agents past the first 65,536 share the counter `0.0.0.0`, so that forged ones cost no memory.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_flow::{AgentCounts, AgentStats};
use thalweg_types::ip_octets;
use tracing::info;

use super::datagram::{Head, Outline, Stranger};
use super::xdr::{Address, from_v4};

const MAX_AGENTS: usize = 65_536;

/// Sub-agents whose sequence numbers are followed, of all agents.
const MAX_SUB_AGENTS: usize = 262_144;

/// Agents that are shown apart.
const SHOWN_AGENTS: usize = 100;

/// A datagram that is fewer than this many behind the newest is late; further behind, the agent has begun anew.
const REORDERED: u32 = 1_000;

/// Numbers behind the newest of which it is known whether they came.
const KNOWN: u32 = 64;

/// An agent whose uptime goes back by more than this has begun anew, in milliseconds.
const LATE_BY: u32 = 60_000;

/// Counts by agent, shared between receiver, decode tasks and whoever shows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agents(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    total: AgentCounts,
    by_agent: BTreeMap<Address, AgentCounts>,
    /// By agent and sub-agent.
    newest: BTreeMap<(Address, u32), Newest>,
}

/// The newest datagram of a sub-agent.
#[derive(Clone, Copy, Debug)]
struct Newest {
    sequence: u32,
    uptime: u32,
    /// Which of the numbers before it have come: bit 0 is the number itself.
    came: u64,
}

impl Agents {
    /// Notes a datagram that was received, in the order of arrival.
    pub(crate) fn note(&self, datagram: &Outline, sender: IpAddr) {
        let sender = ip_octets(sender);
        match &datagram.head {
            Ok(head) => self.received(head.agent.unwrap_or(sender), head, datagram.samples),
            Err(stranger) => self.stranger(sender, *stranger),
        }
    }

    fn received(&self, agent: Address, head: &Head, samples: u32) {
        let mut counted = self.counted();
        let lost = counted.gap(agent, head);
        counted.update(agent, |counts| {
            counts.datagrams += 1;
            counts.samples += u64::from(samples);
            counts.lost = counts.lost.saturating_add_signed(lost);
        });
    }

    /// Notes a datagram that is none of sFlow version 5, for its sender.
    fn stranger(&self, sender: Address, stranger: Stranger) {
        self.counted().update(sender, |counts| {
            counts.datagrams += 1;
            match stranger {
                Stranger::NetFlow(_) => counts.netflow += 1,
                Stranger::Version(_) | Stranger::Short => counts.malformed += 1,
            }
        });
    }

    /// Adds what decode tasks have counted.
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
        AgentStats { total: counted.total, agents, worst }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    /// Whoever looks at them last, all tasks have counted.
    fn drop(&mut self) {
        let total = self.total;
        if total.datagrams > 0 {
            info!(
                datagrams = total.datagrams,
                samples = total.samples,
                agents = self.by_agent.len(),
                lost = total.lost,
                malformed = total.malformed,
                unknown = total.unknown,
                netflow = total.netflow,
                "samples of all agents"
            );
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

    /// How many datagrams are missing before this one; below zero where it is one of those that were.
    fn gap(&mut self, agent: Address, head: &Head) -> i64 {
        let key = (agent, head.sub_agent);
        let this = Newest { sequence: head.sequence, uptime: head.uptime, came: u64::MAX };
        let Some(newest) = self.newest.get_mut(&key) else {
            if self.newest.len() < MAX_SUB_AGENTS {
                self.newest.insert(key, this);
            }
            return 0;
        };
        let ahead = this.sequence.wrapping_sub(newest.sequence);
        let behind = newest.sequence.wrapping_sub(this.sequence);
        let is_anew = this.uptime.saturating_add(LATE_BY) < newest.uptime;
        if ahead == 0 {
            return 0;
        }
        if behind < REORDERED && !is_anew {
            // One that was missing was counted as lost; of those long past nobody knows.
            let bit = if behind < KNOWN { 1 << behind } else { 0 };
            let was_missing = bit != 0 && newest.came & bit == 0;
            newest.came |= bit;
            return if was_missing { -1 } else { 0 };
        }
        let came = newest.came;
        *newest = this;
        // Half the circle ahead is behind.
        if is_anew || ahead > u32::MAX / 2 {
            return 0;
        }
        newest.came = if ahead < KNOWN { came << ahead | 1 } else { 1 };
        i64::from(ahead - 1)
    }
}

fn ip_of(address: Address) -> IpAddr {
    Ipv6Addr::from(address).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was lost after each of these sequence numbers, with the uptimes that belong to them.
    fn lost_at(datagrams: &[(u32, u32)]) -> Vec<u64> {
        let agents = Agents::default();
        let lost = |(sequence, uptime): &(u32, u32)| {
            let head = Head { agent: None, sub_agent: 7, sequence: *sequence, uptime: *uptime, samples: 1 };
            agents.received([1; 16], &head, 1);
            agents.stats().total.lost
        };
        datagrams.iter().map(lost).collect()
    }

    fn lost(sequences: &[u32]) -> Vec<u64> {
        lost_at(&sequences.iter().map(|sequence| (*sequence, 0)).collect::<Vec<_>>())
    }

    #[test]
    fn gaps_are_losses_and_what_comes_late_is_not() {
        assert_eq!(lost(&[5, 6, 7, 8]), [0, 0, 0, 0]);
        assert_eq!(lost(&[5, 8, 9]), [0, 2, 2]);
        assert_eq!(lost(&[5, 8, 7, 6, 9]), [0, 2, 1, 0, 0]);
        assert_eq!(lost(&[u32::MAX - 1, 1, 2]), [0, 2, 2], "numbers go round");
        assert_eq!(lost(&[50_000, 1, 2, 4]), [0, 0, 0, 1], "an agent that began anew lost nothing");
        assert_eq!(lost(&[5, 5, 6]), [0, 0, 0], "the same one twice");
        assert_eq!(lost(&[5, 8, 7, 7, 9]), [0, 2, 1, 1, 1], "the same late one twice");
        assert_eq!(lost(&[5, 8, 4, 3]), [0, 2, 2, 2], "what came before the first was never missed");
        assert_eq!(lost(&[1, 200, 100]), [0, 198, 198], "of what is long past nobody knows");
        let anew = [(500, 3_600_000), (1, 10), (2, 20), (4, 40)];
        assert_eq!(lost_at(&anew), [0, 0, 0, 1], "a little behind, but its uptime says that it began anew");
    }

    #[test]
    fn agents_and_their_parts_are_counted_apart() {
        let agents = Agents::default();
        for (agent, sub_agent, sequence) in [(1, 0, 1), (2, 0, 100), (1, 1, 7), (1, 0, 2), (2, 0, 103)] {
            let head = Head { agent: None, sub_agent, sequence, uptime: 0, samples: 3 };
            agents.received([agent; 16], &head, 3);
        }
        let stats = agents.stats();
        let counts: Vec<(u64, u64, u64)> =
            stats.worst.iter().map(|(_, counts)| (counts.datagrams, counts.samples, counts.lost)).collect();
        assert_eq!((stats.agents, counts), (2, vec![(2, 6, 2), (3, 9, 0)]));
        assert_eq!(stats.total.datagrams, 5);
    }
}
