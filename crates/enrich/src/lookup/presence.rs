//! Which addresses of a /16 have a row, and which row of its /24 each is.
//!
//! A *group* is one /16:
//!
//! | field | bytes | |
//! |---|---|---|
//! | checksum | 4 | CRC-32 of all bytes after it |
//! | nets | 256 × 2 | for each /24: where its hosts begin after this table; bit 15: all 256 are there, and nothing is stored |
//! | hosts | | per /24 a bitmap of 256 bits where 32 hosts or more are there, else one byte for each, ascending |
//!
//! A /24 ends where the next begins, so its length distinguishes list, bitmap and nothing.
//! An address costs between nothing and a byte, and an answer two or three cache lines.

/// Bytes before the hosts.
const TABLE: usize = 4 + 512;
const FULL: u16 = 0x8000;
const BITMAP: usize = 32;

/// A row of a /24: its place among the rows there, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rank {
    pub(crate) row: usize,
    pub(crate) rows: usize,
}

/// Builds the group of a /16, /24 by /24.
#[derive(Debug, Default)]
pub(crate) struct GroupWriter {
    nets: Vec<u16>,
    hosts: Vec<u8>,
}

impl GroupWriter {
    /// Takes the hosts of a /24, ascending; /24s come in ascending order and at most once.
    pub(crate) fn push(&mut self, net: u8, hosts: &[u8]) {
        let start = self.hosts.len() as u16;
        self.nets.resize(usize::from(net), start);
        match hosts.len() {
            256 => self.nets.push(start | FULL),
            length => {
                self.nets.push(start);
                if length < BITMAP {
                    self.hosts.extend_from_slice(hosts);
                } else {
                    let mut bitmap = [0_u8; BITMAP];
                    hosts.iter().for_each(|host| bitmap[usize::from(host / 8)] |= 1 << (host % 8));
                    self.hosts.extend_from_slice(&bitmap);
                }
            }
        }
    }

    /// The bytes of the group; the writer begins anew.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.nets.resize(256, self.hosts.len() as u16);
        let mut out = vec![0; 4];
        self.nets.iter().for_each(|net| out.extend_from_slice(&net.to_le_bytes()));
        out.extend_from_slice(&self.hosts);
        let checksum = crc32fast::hash(&out[4..]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        self.nets.clear();
        self.hosts.clear();
        out
    }
}

/// The row of an address; `None` where it has none. Damaged bytes read as absent or as any row.
#[inline]
pub(crate) fn find(group: &[u8], net: u8, host: u8) -> Option<Rank> {
    let (full, hosts) = hosts_of(group, net)?;
    if full {
        return Some(Rank { row: usize::from(host), rows: 256 });
    }
    match <&[u8; BITMAP]>::try_from(hosts) {
        Ok(bitmap) => {
            let mut words = [0_u64; 4];
            for (word, bytes) in words.iter_mut().zip(bitmap.chunks_exact(8)) {
                *word = super::layout::le_u64(bytes);
            }
            let (word, bit) = (usize::from(host / 64), u32::from(host % 64));
            if words[word] >> bit & 1 == 0 {
                return None;
            }
            let ones = |words: &[u64]| words.iter().map(|word| word.count_ones()).sum::<u32>() as usize;
            let below = (words[word] & ((1 << bit) - 1)).count_ones() as usize;
            Some(Rank { row: ones(&words[..word]) + below, rows: ones(&words) })
        }
        Err(_) => {
            let row = hosts.iter().position(|have| *have == host)?;
            Some(Rank { row, rows: hosts.len() })
        }
    }
}

/// The hosts of a /24, ascending.
pub(crate) fn hosts(group: &[u8], net: u8) -> Vec<u8> {
    (0..=255).filter(|host| find(group, net, *host).is_some()).collect()
}

#[inline]
fn hosts_of(group: &[u8], net: u8) -> Option<(bool, &[u8])> {
    let entry = |net: usize| {
        let place = 4 + net * 2;
        Some(u16::from_le_bytes([*group.get(place)?, *group.get(place + 1)?]))
    };
    let start = entry(usize::from(net))?;
    if start & FULL != 0 {
        return Some((true, &[]));
    }
    let end = match net {
        255 => group.len() - TABLE.min(group.len()),
        _ => usize::from(entry(usize::from(net) + 1)? & !FULL),
    };
    let hosts = group.get(TABLE + usize::from(start)..TABLE + end)?;
    (!hosts.is_empty()).then_some((false, hosts))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hosts_come_back_with_their_rank(
            nets in prop::collection::btree_map(
                any::<u8>(),
                (any::<u8>(), prop_oneof![Just(255_usize), 0_usize..40, 30_usize..256]),
                0..20,
            ),
        ) {
            let mut writer = GroupWriter::default();
            let mut expected = std::collections::BTreeMap::new();
            for (net, (start, count)) in nets {
                let mut hosts: Vec<u8> = (0..=count).map(|step| start.wrapping_add(step as u8)).collect();
                hosts.sort_unstable();
                writer.push(net, &hosts);
                expected.insert(net, hosts);
            }
            let group = writer.finish();
            for net in 0..=255 {
                let empty = Vec::new();
                let have = expected.get(&net).unwrap_or(&empty);
                for host in 0..=255 {
                    let rank = have.binary_search(&host).ok().map(|row| Rank { row, rows: have.len() });
                    prop_assert_eq!(find(&group, net, host), rank, "net {} host {}", net, host);
                }
                prop_assert_eq!(&hosts(&group, net), have);
            }
            for end in 0..group.len() {
                let _ = find(&group[..end], 255, 0);
                let _ = find(&group[..end], 0, 255);
            }
        }
    }
}
