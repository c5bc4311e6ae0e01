//! Counts of received, dropped and refused datagrams, by sender.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_flow::{DatagramCounts, DatagramStats};

use crate::source::handover::Refused;

/// Senders that are counted apart; more of them share one counter, so that forged addresses cost no memory.
const MAX_SENDERS: usize = 65_536;

/// Senders that are shown apart.
const SHOWN_SENDERS: usize = 20;

/// Counters by sender, shared with the metrics and reports that show them. Senders past the first 65,536 are counted as
/// `0.0.0.0`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    total: DatagramCounts,
    by_sender: BTreeMap<IpAddr, DatagramCounts>,
}

impl Counters {
    #[cfg(test)]
    pub(crate) fn by_sender(&self) -> BTreeMap<IpAddr, DatagramCounts> {
        self.counted().by_sender.clone()
    }

    pub(crate) fn total(&self) -> DatagramCounts {
        self.counted().total
    }

    /// The sums, and the 20 senders that lost most.
    pub(crate) fn stats(&self) -> DatagramStats {
        let counted = self.counted();
        // The receiver waits for this lock with each datagram, so there may be many senders here, but no copy of all.
        let rank =
            |counts: &DatagramCounts| (counts.dropped_datagrams + counts.refused_datagrams, counts.datagrams);
        let mut worst: Vec<(IpAddr, DatagramCounts)> = Vec::with_capacity(SHOWN_SENDERS + 1);
        for (sender, counts) in &counted.by_sender {
            let place = worst.partition_point(|(_, other)| rank(other) >= rank(counts));
            if place < SHOWN_SENDERS {
                worst.insert(place, (*sender, *counts));
                worst.truncate(SHOWN_SENDERS);
            }
        }
        DatagramStats {
            total: counted.total,
            senders: counted.by_sender.len(),
            worst,
            ..DatagramStats::default()
        }
    }

    /// Notes a datagram of a sender that may not send.
    pub(super) fn refused(&self, sender: IpAddr) {
        self.update(sender, |counters| {
            counters.datagrams += 1;
            counters.refused_datagrams += 1;
        });
    }

    /// Notes a datagram that was handed over, or found the queue full or closed.
    pub(super) fn sent(&self, sender: IpAddr, records: u64, sent: &Result<(), Refused>) {
        self.update(sender, |counters| {
            counters.datagrams += 1;
            match sent {
                Ok(()) => counters.records += records,
                Err(_) => {
                    counters.dropped_datagrams += 1;
                    counters.dropped_records += records;
                }
            }
        });
    }

    fn update(&self, sender: IpAddr, change: impl Fn(&mut DatagramCounts)) {
        let mut counted = self.counted();
        change(&mut counted.total);
        let senders = &mut counted.by_sender;
        let is_counted = senders.len() < MAX_SENDERS || senders.contains_key(&sender);
        let sender = if is_counted { sender } else { IpAddr::from([0, 0, 0, 0]) };
        change(senders.entry(sender).or_default());
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_that_lose_most_are_shown_first_and_few() {
        let counters = Counters::default();
        let sender = |number: u8| IpAddr::from([10, 0, 0, number]);
        for number in 0..200_u8 {
            counters.update(sender(number), |counts| counts.datagrams += u64::from(number) + 1);
        }
        counters.update(sender(7), |counts| counts.dropped_datagrams += 2);
        counters.update(sender(9), |counts| counts.refused_datagrams += 3);
        let stats = counters.stats();
        assert_eq!((stats.senders, stats.worst.len()), (200, SHOWN_SENDERS));
        let shown: Vec<IpAddr> = stats.worst.iter().map(|(sender, _)| *sender).collect();
        assert_eq!(shown[..4], [sender(9), sender(7), sender(199), sender(198)]);
        let total = stats.total;
        assert_eq!((total.datagrams, total.dropped_datagrams, total.refused_datagrams), (20_100, 2, 3));
        assert_eq!(
            total.datagrams,
            counters.by_sender().values().map(|counts| counts.datagrams).sum::<u64>()
        );
    }
}
