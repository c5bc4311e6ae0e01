//! The networks between which made-up flows run: their AS numbers, address ranges, hosts and names.
//!
//! Networks are ranked: the first ones are large and talk most. Each has IPv4 ranges in /16s of their own, spread over
//! the unicast space without reserved ranges; every second one has an IPv6 /32 as well. Its hosts are numbered, and the
//! number leads to the address. AS numbers are of the range for private use and domains end in `.example`, so that they
//! belong to nobody; the addresses may belong to real networks.

use crate::generate::ranks::Ranks;
use crate::generate::{below, mix};
use crate::sflow::xdr::{Address, from_v4};

/// How many networks there are.
pub(super) const COUNT: usize = 5_200;
/// The first of the AS numbers for private use (RFC 6996).
const FIRST_ASN: u32 = 4_200_000_000;
/// A prime above the number of addresses of every network: host numbers times this visit each address once.
const STRIDE: u64 = 2_654_435_761;
/// IPv4 hosts for each IPv6 host.
const V6_SHARE: f64 = 4.0;
/// Of the hosts, in percent, how many have a name.
const NAMED_V4: u64 = 70;
const NAMED_V6: u64 = 15;

const FIRST_WORDS: [&str; 24] = [
    "amber", "birch", "cobalt", "dune", "ember", "fjord", "granite", "heron", "indigo", "juniper", "kestrel",
    "lagoon", "meadow", "nimbus", "opal", "pine", "quartz", "raven", "sable", "tundra", "umber", "violet",
    "willow", "zephyr",
];
const SECOND_WORDS: [&str; 24] = [
    "access", "bridge", "cast", "dial", "edge", "fibre", "gate", "hub", "ix", "jump", "kit", "line", "mesh",
    "node", "online", "port", "quick", "reach", "span", "tel", "uplink", "view", "wave", "zone",
];
const KINDS: [&str; 10] =
    ["net", "telecom", "hosting", "cloud", "media", "cable", "mobile", "edu", "gov", "labs"];
const COUNTRIES: [&str; 16] =
    ["DE", "US", "GB", "FR", "IT", "ES", "NL", "CH", "SE", "JP", "BR", "IN", "GR", "PL", "AU", "ZA"];
const SITES: [&str; 10] = ["ath", "fra", "ams", "lon", "par", "nyc", "sjc", "sin", "tyo", "sao"];
const ROLES: [&str; 8] = ["mail", "www", "ns", "srv", "vpn", "db", "cdn", "mx"];

/// One network.
#[derive(Debug)]
pub(super) struct Network {
    /// Whether it is in the table of AS; the others are as good as dark.
    pub(super) is_announced: bool,
    pub(super) has_v6: bool,
    pub(super) hosts: Ranks,
    pub(super) hosts6: Ranks,
    pub(super) host_count: u64,
    pub(super) host6_count: u64,
    /// Its first /16 in `Networks::slots`, how many it has, and the bits of an address within its range in each.
    first_slot: u32,
    slot_count: u32,
    bits: u32,
}

#[derive(Debug)]
pub(super) struct Networks {
    seed: u64,
    all: Vec<Network>,
    /// The upper halves of the /16s that may be used, in the order in which they are.
    slots: Vec<u16>,
}

impl Networks {
    /// Networks with about `hosts` IPv4 hosts.
    pub(super) fn new(seed: u64, hosts: u64) -> Self {
        let slots = slots(seed);
        let weight = |rank: usize| 1.0 / (rank as f64 + 10.0);
        let unit = hosts as f64 / (0..COUNT).map(weight).sum::<f64>();
        let mut next = 0;
        let all = (0..COUNT)
            .map(|rank| {
                let (slot_count, bits) = match rank {
                    0..50 => (12, 16),
                    50..500 => (4, 14),
                    _ => (2, 12),
                };
                let first_slot = next;
                next += slot_count;
                let chance = mix(seed ^ mix(rank as u64 + 1));
                let most = u64::from(slot_count) << bits;
                let host_count = ((unit * weight(rank)).ceil() as u64).clamp(1, most);
                let host6_count = (host_count as f64 / V6_SHARE).ceil() as u64;
                Network {
                    is_announced: rank < 100 || !chance.is_multiple_of(25),
                    has_v6: chance & (1 << 40) == 0,
                    hosts: Ranks::new(host_count, 1.0),
                    hosts6: Ranks::new(host6_count, 1.0),
                    host_count,
                    host6_count,
                    first_slot,
                    slot_count,
                    bits,
                }
            })
            .collect();
        Self { seed, all, slots }
    }

    pub(super) fn get(&self, rank: usize) -> &Network {
        &self.all[rank]
    }

    pub(super) fn ranked(&self) -> impl Iterator<Item = (usize, &Network)> {
        self.all.iter().enumerate()
    }

    pub(super) fn asn(rank: usize) -> u32 {
        FIRST_ASN + rank as u32
    }

    /// First and last IPv4 address of each of its ranges.
    pub(super) fn ranges(&self, rank: usize) -> impl Iterator<Item = (u32, u32)> {
        let network = &self.all[rank];
        (0..network.slot_count).map(move |range| {
            let first = self.range(network, range);
            (first, first + ((1_u32 << network.bits) - 1))
        })
    }

    fn range(&self, network: &Network, range: u32) -> u32 {
        let slot = network.first_slot + range;
        let place = below(mix(self.seed ^ u64::from(slot)), 1 << (16 - network.bits)) as u32;
        u32::from(self.slots[slot as usize]) << 16 | place << network.bits
    }

    /// The upper half of the IPv6 addresses of a network: its /32.
    pub(super) fn prefix6(rank: usize) -> u32 {
        0x2a01_0000 + 5 * rank as u32
    }

    /// The IPv4 address of a host.
    pub(super) fn v4(&self, rank: usize, host: u64) -> u32 {
        let network = &self.all[rank];
        let size = u64::from(network.slot_count) << network.bits;
        let place = (host * STRIDE + mix(self.seed ^ rank as u64) % size) % size;
        self.range(network, (place >> network.bits) as u32) + (place & ((1 << network.bits) - 1)) as u32
    }

    /// The IPv6 address of a host.
    pub(super) fn v6(&self, rank: usize, host: u64) -> u128 {
        let low = mix(self.seed ^ mix(host) ^ (rank as u64) << 32);
        u128::from(Self::prefix6(rank)) << 96 | u128::from(host % 64) << 64 | u128::from(low)
    }

    /// The address of a host as columns hold it.
    pub(super) fn address(&self, rank: usize, host: u64, is_v6: bool) -> Address {
        if is_v6 { self.v6(rank, host).to_be_bytes() } else { from_v4(self.v4(rank, host).to_be_bytes()) }
    }

    /// Country code.
    pub(super) fn country(&self, rank: usize) -> &'static str {
        COUNTRIES[(mix(self.seed ^ (rank as u64) << 8) % COUNTRIES.len() as u64) as usize]
    }

    /// The parts of the name, which no two networks share.
    fn words(rank: usize) -> [&'static str; 3] {
        let (first, rest) = (rank % FIRST_WORDS.len(), rank / FIRST_WORDS.len());
        [FIRST_WORDS[first], SECOND_WORDS[rest % SECOND_WORDS.len()], KINDS[rest / SECOND_WORDS.len()]]
    }

    /// The name of the network: `AMBERLINE-NET Amber Line Net`.
    pub(super) fn name(rank: usize) -> String {
        let [first, second, kind] = Self::words(rank);
        let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
        format!("{} {} {} {}", handle(rank).to_uppercase(), capital(first), capital(second), capital(kind))
    }

    /// The name of a host: `None` where there is none, empty if the address is known to have none.
    pub(super) fn host_name(&self, rank: usize, host: u64, is_v6: bool) -> Option<String> {
        let chance = mix(self.seed ^ mix(host << 1 | u64::from(is_v6)) ^ (rank as u64) << 40);
        if chance % 100 >= if is_v6 { NAMED_V6 } else { NAMED_V4 } {
            return None;
        }
        let domain = format!("{}.example", handle(rank));
        let (role, site) =
            (ROLES[(chance >> 8) as usize % ROLES.len()], SITES[(chance >> 16) as usize % SITES.len()]);
        let [a, b, c, d] = self.v4(rank, host).to_be_bytes();
        Some(match chance >> 32 & 15 {
            _ if chance >> 40 & 127 == 0 => String::new(),
            _ if is_v6 => format!("{role}{host}.six.{site}.{domain}"),
            0..4 => format!("{role}{host}.{site}.{domain}"),
            4..8 => format!("host-{a}-{b}-{c}-{d}.{site}.{domain}"),
            8..14 => format!("{d}.{c}.{b}.{a}.dyn.{domain}"),
            _ => format!("{a:02x}{b:02x}{c:02x}{d:02x}.pool.{domain}"),
        })
    }
}

/// The network's name in one word.
fn handle(rank: usize) -> String {
    let [first, second, kind] = Networks::words(rank);
    format!("{first}{second}-{kind}")
}

/// The /16s of unicast addresses that are not reserved (RFC 6890), shuffled.
fn slots(seed: u64) -> Vec<u16> {
    let is_usable = |slot: &u16| {
        let [a, b] = slot.to_be_bytes();
        match a {
            0 | 10 | 127 | 224..=255 => false,
            100 => !(64..128).contains(&b),
            169 => b != 254,
            172 => !(16..32).contains(&b),
            192 => !matches!(b, 0 | 88 | 168),
            198 => !matches!(b, 18 | 19 | 51),
            203 => b != 0,
            _ => true,
        }
    };
    let mut slots: Vec<u16> = (0..=u16::MAX).filter(is_usable).collect();
    slots.sort_by_cached_key(|slot| mix(seed ^ u64::from(*slot) << 20));
    slots
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn networks_share_neither_addresses_nor_names() {
        let networks = Networks::new(3, 400_000);
        let mut spans: Vec<(u32, u32)> = (0..COUNT).flat_map(|rank| networks.ranges(rank)).collect();
        spans.sort_unstable();
        assert!(spans.windows(2).all(|pair| pair[0].1 < pair[1].0));
        let names: HashSet<String> = (0..COUNT).map(Networks::name).collect();
        assert_eq!(names.len(), COUNT);
        assert_eq!(Networks::name(0), "AMBERACCESS-NET Amber Access Net");
    }

    #[test]
    fn each_host_has_an_address_of_its_own_in_a_range_of_its_network() {
        let networks = Networks::new(3, 400_000);
        for rank in [0, 49, 50, 499, 500, COUNT - 1] {
            let network = networks.get(rank);
            let spans: Vec<(u32, u32)> = networks.ranges(rank).collect();
            let mut seen = HashSet::new();
            for host in 0..network.host_count {
                let address = networks.v4(rank, host);
                assert!(
                    spans.iter().any(|(first, last)| (*first..=*last).contains(&address)),
                    "{rank} {host}"
                );
                assert!(seen.insert(address), "network {rank}: host {host} has the address of another");
            }
        }
        let hosts: u64 = networks.ranked().map(|(_, network)| network.host_count).sum();
        assert!((400_000..410_000).contains(&hosts), "{hosts}");
    }
}
