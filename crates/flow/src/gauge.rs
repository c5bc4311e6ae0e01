//! How full a ring is, and whether its producer waits for room.
//!
//! One word holds the bytes in flight, the items in flight and a bit that says that the producer waits, so
//! that every change of it is one atomic step: a producer that goes to wait and a consumer that makes room
//! cannot miss each other. `tests/it/loom.rs` explores the interleavings.
//!
//! A ring is *shut* to its producer from the moment that it reaches the high watermark until it has fallen to
//! the low one. Bytes stay in flight until the consumer has worked on them, not only until it has taken them.

use super::sync::{AtomicU64, Ordering};

const WAITS: u64 = 1 << 63;
const ITEM: u64 = 1 << 48;
const BYTES: u64 = ITEM - 1;

pub(crate) struct Gauge {
    load: AtomicU64,
    high_bytes: u64,
    high_items: u64,
    hits: AtomicU64,
}

impl Gauge {
    pub(crate) fn new(high_bytes: usize, high_items: usize) -> Self {
        let high_bytes = (high_bytes as u64).clamp(1, BYTES >> 1);
        Self {
            load: AtomicU64::new(0),
            high_bytes,
            high_items: (high_items as u64).clamp(1, 0x3fff),
            hits: AtomicU64::new(0),
        }
    }

    fn is_high(&self, load: u64) -> bool {
        load & BYTES >= self.high_bytes || (load & !WAITS) / ITEM >= self.high_items
    }

    fn is_low(&self, load: u64) -> bool {
        load & BYTES <= self.high_bytes / 4 && (load & !WAITS) / ITEM <= self.high_items / 4
    }

    /// What an item adds; a single one beyond all bounds must not spill into the neighbouring bits.
    fn cost(bytes: usize) -> u64 {
        ITEM + (bytes as u64).min(BYTES >> 8)
    }

    /// Producer, before it pushes.
    pub(crate) fn add(&self, bytes: usize) {
        self.load.fetch_add(Self::cost(bytes), Ordering::AcqRel);
    }

    /// Consumer, when it is done with an item; `true` means that the producer waits and has to be woken.
    #[must_use]
    pub(crate) fn remove(&self, bytes: usize) -> bool {
        let cost = Self::cost(bytes);
        let load = self.load.fetch_sub(cost, Ordering::AcqRel) - cost;
        load & WAITS != 0 && self.is_low(load) && self.load.fetch_and(!WAITS, Ordering::AcqRel) & WAITS != 0
    }

    /// Producer: whether it may push. Where it may not, the consumer will wake it. `shut` is the producer's
    /// memory between calls, `false` at first.
    #[must_use]
    pub(crate) fn is_open(&self, shut: &mut bool) -> bool {
        if !*shut {
            if !self.is_high(self.load.load(Ordering::Acquire)) {
                return true;
            }
            *shut = true;
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        if self.is_low(self.load.fetch_or(WAITS, Ordering::AcqRel)) {
            self.load.fetch_and(!WAITS, Ordering::AcqRel);
            *shut = false;
        }
        !*shut
    }

    /// Consumer: whether the producer waits for it.
    pub(crate) fn producer_waits(&self) -> bool {
        self.load.load(Ordering::Acquire) & WAITS != 0
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.load.load(Ordering::Relaxed) & BYTES
    }

    /// How often the high watermark was reached.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }
}
