//! One producer task to one consumer task: a lock-free ring of items, bounded in bytes.
//!
//! An item covers the order from the end of the item before it to its own end. A tick, cycle marker, command
//! or the end of input is always the last number of its item; rows may carry that number too (an operator
//! emitted them on the tick) and come before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use thalweg_types::{Batch, Micros, Seq, SeqRange};

use crate::gauge::Gauge;
use crate::worker::TaskCell;
use crate::{Command, RawBlock};

/// How many items the rings of one link hold together, roughly: about a MiB of slots.
const LINK_ITEMS: usize = 4096;
/// Items in one ring. Generous, so that bytes are the bound wherever batches have a size; a slow consumer of
/// single records meets this bound first, and then gets them in batches.
const ITEMS: std::ops::RangeInclusive<usize> = 32..=256;
/// Bytes of an item in addition to its records.
const ITEM_BYTES: usize = 64;

#[derive(Clone)]
pub(crate) enum Control {
    Tick(Micros),
    Cycle {
        number: u64,
        /// The input has ended: no record comes after it.
        is_last: bool,
    },
    Command(Arc<Command>),
    End,
}

pub(crate) enum Data {
    Nothing,
    Batch(Batch),
    Block(Box<Sequenced>),
}

/// A source's block with its place in the order.
pub(crate) struct Sequenced {
    pub block: RawBlock,
    pub range: SeqRange,
    pub arrival: Micros,
}

impl Data {
    fn bytes(&self) -> usize {
        match self {
            Data::Nothing => 0,
            Data::Batch(batch) => batch.bytes(),
            // A block of nothing but offsets becomes records, too.
            Data::Block(sequenced) => sequenced.block.payload.len().max(sequenced.block.count as usize * 16),
        }
    }

    fn records(&self) -> u64 {
        match self {
            Data::Nothing => 0,
            Data::Batch(batch) => batch.len() as u64,
            Data::Block(sequenced) => u64::from(sequenced.block.count),
        }
    }
}

pub(crate) struct Item {
    pub end: Seq,
    pub data: Data,
    pub control: Option<Control>,
    /// When the oldest of what it holds was numbered; `None` if it is empty.
    pub born: Option<Instant>,
}

/// The earlier of two births.
pub(crate) fn older(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// What both ends of a ring and the job's statistics know.
pub(crate) struct Flow {
    pub gauge: Gauge,
    /// Records in flight.
    records: AtomicU64,
    /// All bytes ever pushed.
    pub sent: AtomicU64,
    /// The end is in the ring.
    ending: AtomicBool,
    /// Records from this number on may be missing. Set before the batch that lacks them is pushed.
    incomplete: AtomicU64,
    /// The consumer, or one further down, stops until something comes over this ring. Set by the
    /// consumer before it wakes the producer, cleared by the producer when it sends.
    hurry: AtomicBool,
}

pub(crate) struct Sender {
    items: rtrb::Producer<Item>,
    flow: Arc<Flow>,
    to: Arc<TaskCell>,
    shut: bool,
}

pub(crate) struct Receiver {
    items: rtrb::Consumer<Item>,
    flow: Arc<Flow>,
    from: Arc<TaskCell>,
}

/// What a taken item holds of the ring's bound until it is given back.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    bytes: usize,
    records: u64,
}

/// How the rings of a link are bounded.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    bytes: usize,
    items: usize,
    /// Slots beyond that, for items that are pushed although the ring is full.
    reserve: usize,
}

impl Bounds {
    pub(crate) fn new(ring_bytes: usize, rings: usize) -> Self {
        let items = (LINK_ITEMS / rings.max(1)).clamp(*ITEMS.start(), *ITEMS.end());
        Self { bytes: ring_bytes, items, reserve: 0 }
    }

    #[must_use]
    pub(crate) fn with_reserve(self, reserve: usize) -> Self {
        Self { reserve, ..self }
    }
}

pub(crate) fn ring(bounds: Bounds, from: &Arc<TaskCell>, to: &Arc<TaskCell>) -> (Sender, Receiver) {
    let (producer, consumer) = rtrb::RingBuffer::new(bounds.items + bounds.reserve);
    let flow = Arc::new(Flow {
        gauge: Gauge::new(bounds.bytes, bounds.items),
        records: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        ending: AtomicBool::new(false),
        incomplete: AtomicU64::new(Seq::MAX),
        hurry: AtomicBool::new(false),
    });
    (
        Sender { items: producer, flow: Arc::clone(&flow), to: Arc::clone(to), shut: false },
        Receiver { items: consumer, flow, from: Arc::clone(from) },
    )
}

impl Sender {
    pub(crate) fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    /// Whether there is room; if not, this task is woken when there is.
    pub(crate) fn is_open(&mut self) -> bool {
        let was_shut = self.shut;
        let open = self.flow.gauge.is_open(&mut self.shut);
        if !open && !was_shut {
            // It may wait for its schedule, or for another ring, and has to learn that a task waits.
            self.to.wake();
        }
        open
    }

    /// The consumer is waiting for whatever can be said.
    pub(crate) fn is_hurried(&self) -> bool {
        self.flow.hurry.load(Ordering::Acquire)
    }

    /// Whether there is a slot at all; there always is in a ring that is open.
    pub(crate) fn has_slot(&self) -> bool {
        !self.items.is_full()
    }

    /// Pushes, into a ring that is full if need be, as long as there is a slot. Wakes nobody.
    ///
    /// # Panics
    /// If there is no slot.
    pub(crate) fn push(&mut self, item: Item) {
        let cost = Cost { bytes: item.data.bytes() + ITEM_BYTES, records: item.data.records() };
        if matches!(item.control, Some(Control::End)) {
            self.flow.ending.store(true, Ordering::Release);
        }
        let flow = &self.flow;
        flow.hurry.store(false, Ordering::Relaxed);
        flow.gauge.add(cost.bytes);
        flow.records.fetch_add(cost.records, Ordering::Relaxed);
        flow.sent.store(flow.sent.load(Ordering::Relaxed) + cost.bytes as u64, Ordering::Relaxed);
        let pushed = self.items.push(item);
        assert!(pushed.is_ok(), "the caller has made sure of a slot");
    }

    pub(crate) fn wake(&self) {
        self.to.wake();
    }

    /// Says that from number `from` on records may be missing in batches that are pushed after this.
    pub(crate) fn leave_out(&self, from: Seq) {
        self.flow.incomplete.fetch_min(from, Ordering::Release);
    }
}

impl Receiver {
    pub(crate) fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    pub(crate) fn pop(&mut self) -> Option<(Item, Cost)> {
        let item = self.items.pop().ok()?;
        let cost = Cost { bytes: item.data.bytes() + ITEM_BYTES, records: item.data.records() };
        Some((item, cost))
    }

    /// The item has been worked on: its bytes are free again.
    pub(crate) fn release(&self, cost: Cost) {
        self.flow.records.fetch_sub(cost.records, Ordering::Relaxed);
        if self.flow.gauge.remove(cost.bytes) {
            self.from.wake();
        }
    }

    /// From this number on records may be missing in popped batches.
    pub(crate) fn incomplete_from(&self) -> Seq {
        self.flow.incomplete.load(Ordering::Acquire)
    }

    pub(crate) fn waiting_records(&self) -> u64 {
        self.flow.records.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The producer cannot go on, or will not send any more.
    pub(crate) fn is_urgent(&self) -> bool {
        self.flow.ending.load(Ordering::Acquire) || self.producer_waits()
    }

    pub(crate) fn producer_waits(&self) -> bool {
        self.flow.gauge.producer_waits()
    }

    /// Asks the producer to send what it holds back, once.
    pub(crate) fn hurry(&self) {
        if !self.flow.hurry.swap(true, Ordering::AcqRel) {
            self.from.wake();
        }
    }
}
