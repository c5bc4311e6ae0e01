//! From blocks of datagrams to rows: one row a sample, flows and counters apart.
//!
//! An error in one place costs that place only: a record that ends early keeps the fields that are there, an unknown
//! one is skipped by its length, a sample that is cut ends where the datagram does. All are counted by agent. A
//! datagram that is not sFlow version 5, and a sample whose head is not all there, become rejects.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_buffer::ScalarBuffer;
use bytes::Bytes;
use thalweg_flow::{AgentCounts, Decoded, Decoder, Payload, RawBlock, TaskFactory};
use thalweg_types::{Batch, Error, Micros, Offset, Schema, Seq, SeqRange, Seqs};

use super::agents::Agents;
use super::counter_row::CounterRows;
use super::datagram::{Head, open};
use super::flow_record::Taken;
use super::flow_row::FlowRows;
use super::frame::{Frame, frames};
use super::length::Length;
use super::packet::Tunnels;
use super::rates::Rates;
use super::xdr::{Address, Piece, Pieces, Xdr};
use crate::SourceOutput;
use crate::source::MaxAhead;
use crate::source::decoder::{Place, Refused, record_batch};

/// State that the decode tasks of one source share.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) source: Arc<str>,
    pub(crate) tunnels: Tunnels,
    pub(crate) rates: Rates,
    pub(crate) length: Length,
    pub(crate) agents: Agents,
    /// Samples that this run leaves out.
    pub(crate) skip: Arc<[Offset]>,
    pub(crate) ahead: MaxAhead,
}

/// Decodes the blocks of one source.
pub(crate) struct SflowDecoder {
    settings: Settings,
    flow_schema: Schema,
    counter_schema: Schema,
    flows: Sink<FlowRows>,
    counters: Sink<CounterRows>,
    counts: Vec<(Address, AgentCounts)>,
    /// Number and offset of the first sample of the block at hand.
    first: (Seq, Offset),
    /// When that block was numbered.
    arrival: Micros,
    /// The sample that is being decoded.
    at: Option<Seq>,
}

/// Rows on their way into a batch.
#[derive(Default)]
struct Sink<R> {
    rows: R,
    seqs: Vec<Seq>,
    times: Vec<Micros>,
}

impl<R> Sink<R> {
    /// The next row, which now has its number and its time.
    fn begin(&mut self, seq: Seq, time: Micros) -> usize {
        self.seqs.push(seq);
        self.times.push(time);
        self.seqs.len() - 1
    }
}

/// The schemas of flows and counters.
fn schemas() -> (Schema, Schema) {
    (Schema::new(FlowRows::fields()), Schema::new(CounterRows::fields()))
}

/// The outputs of a source of samples.
pub(crate) fn outputs() -> Vec<SourceOutput> {
    let (flows, counters) = schemas();
    vec![SourceOutput { name: "flows", schema: flows }, SourceOutput { name: "counters", schema: counters }]
}

/// Decode tasks of one source.
pub(crate) fn sflow_decoders(settings: Settings) -> TaskFactory<dyn Decoder> {
    Box::new(move |_| Ok(Box::new(SflowDecoder::new(settings.clone()))))
}

/// A sample and where it comes from.
struct Sample<'a> {
    seq: Seq,
    frame: &'a Frame<'a>,
    head: &'a Head,
    agent: Address,
    piece: Piece<'a>,
}

/// The header of a flow sample, before its records.
struct FlowHead<'a> {
    kind: &'static str,
    sequence: u32,
    source_class: u32,
    source_index: u32,
    rate: Option<u32>,
    pool: Option<u32>,
    drops: u32,
    input: Port,
    output: Port,
    /// Why a packet was discarded.
    reason: Option<u32>,
    records: Pieces<'a>,
}

/// An interface of a sample, or the value that a sample has in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Port {
    /// 0: an index; 1: the packet was discarded, and why; 2: several interfaces, and how many.
    format: u32,
    value: u32,
}

impl Port {
    /// The device itself sent or took the packet.
    const INTERNAL: u32 = 0x3fff_ffff;

    /// Format in the top two bits.
    fn compact(word: u32) -> Self {
        Self { format: word >> 30, value: word & Self::INTERNAL }
    }

    /// The interface's index, and the kind of place.
    fn place(self) -> (Option<u64>, &'static str) {
        match (self.format, self.value) {
            (0, 0) => (None, "unknown"),
            (0, Self::INTERNAL) => (None, "internal"),
            (0, index) => (Some(u64::from(index)), "interface"),
            (1, _) => (None, "discarded"),
            (2, _) => (None, "multiple"),
            _ => (None, "reserved"),
        }
    }
}

/// Sets the fields that rows of all kinds have of their datagram.
macro_rules! set_origin {
    ($rows:ident, $row:ident, $sample:ident) => {
        $rows.time.0.set($row, $sample.frame.time);
        $rows.agent.set($row, $sample.agent);
        $rows.sub_agent.set($row, u64::from($sample.head.sub_agent));
        $rows.sender.set($row, $sample.frame.sender);
        $rows.datagram.set($row, u64::from($sample.head.sequence));
        $rows.uptime.set($row, u64::from($sample.head.uptime));
    };
}

impl SflowDecoder {
    pub(crate) fn new(settings: Settings) -> Self {
        let (flow_schema, counter_schema) = schemas();
        Self {
            settings,
            flow_schema,
            counter_schema,
            flows: Sink::default(),
            counters: Sink::default(),
            counts: Vec::new(),
            first: (0, 0),
            arrival: 0,
            at: None,
        }
    }

    fn offset_of(&self, seq: Seq) -> Offset {
        self.first.1 + (seq - self.first.0)
    }

    /// Whether a sample is left out: one at which an earlier run panicked, say.
    fn is_skipped(&self, seq: Seq) -> bool {
        !self.settings.skip.is_empty() && self.settings.skip.contains(&self.offset_of(seq))
    }

    /// The counts of an agent within this block.
    fn count(&mut self, agent: Address) -> &mut AgentCounts {
        // Blocks hold datagrams of few agents, mostly of the one before.
        let place = self.counts.iter().rposition(|(known, _)| *known == agent).unwrap_or_else(|| {
            self.counts.push((agent, AgentCounts::default()));
            self.counts.len() - 1
        });
        &mut self.counts[place].1
    }

    fn count_faults(&mut self, agent: Address, faults: Faults) {
        if faults != Faults::default() {
            let counts = self.count(agent);
            counts.malformed += faults.malformed;
            counts.unknown += faults.unknown;
        }
    }

    /// Decodes one datagram whose first record has number `start`.
    fn datagram(&mut self, frame: &Frame<'_>, start: Seq, refuse: &mut dyn FnMut(Seq, &[u8], Trouble)) {
        let (head, mut pieces) = match open(frame.datagram) {
            Ok(opened) => opened,
            Err(stranger) => {
                let reason = stranger.reason(frame.datagram.len());
                return refuse(
                    start,
                    frame.datagram,
                    Trouble { code: stranger.code(), reason: reason.into() },
                );
            }
        };
        let agent = head.agent.unwrap_or(frame.sender);
        let is_ahead = frame.time > self.settings.ahead.bound(self.arrival);
        // No more than were numbered.
        for (index, piece) in pieces.by_ref().take(frame.records as usize).enumerate() {
            let seq = start + index as Seq;
            self.at = Some(seq);
            if self.is_skipped(seq) {
                let reason = format!("left out by --skip {}@{}", self.settings.source, self.offset_of(seq));
                refuse(seq, piece.body, Trouble { code: "skipped", reason: reason.into() });
                continue;
            }
            if is_ahead {
                let reason = self.settings.ahead.reason("field \"time\"", frame.time, self.arrival);
                refuse(seq, piece.body, Trouble { code: MaxAhead::CODE, reason });
                continue;
            }
            let sample = Sample { seq, frame, head: &head, agent, piece };
            match self.sample(&sample) {
                Some(trouble) => refuse(seq, piece.body, trouble),
                None if piece.is_cut => self.count(agent).malformed += 1,
                None => {}
            }
        }
        self.at = None;
        if pieces.left() > 0 {
            self.count(agent).malformed += 1;
            if pieces.left() == head.samples {
                let reason = format!("expected {} samples, got none", head.samples);
                refuse(start, frame.datagram, Trouble { code: "malformed", reason: reason.into() });
            }
        }
    }

    /// Decodes one sample; the reason if it cannot.
    fn sample(&mut self, sample: &Sample<'_>) -> Option<Trouble> {
        let mut xdr = Xdr::new(sample.piece.body);
        let is_read = match sample.piece.tag {
            1 => flow(&mut xdr, false).map(|head| self.flow(sample, head)),
            3 => flow(&mut xdr, true).map(|head| self.flow(sample, head)),
            5 => discarded(&mut xdr).map(|head| self.flow(sample, head)),
            2 | 4 => self.counters(sample, &mut xdr),
            _ => {
                self.count(sample.agent).unknown += 1;
                Some(())
            }
        };
        if is_read.is_some() {
            return None;
        }
        self.count(sample.agent).malformed += 1;
        let (tag, bytes) = (sample.piece.tag, sample.piece.body.len());
        let reason = format!("expected the head of a sample of format {tag}, got {bytes} bytes");
        Some(Trouble { code: "malformed", reason: reason.into() })
    }

    fn flow(&mut self, sample: &Sample<'_>, head: FlowHead<'_>) {
        let row = self.flows.begin(sample.seq, sample.frame.time);
        let rows = &mut self.flows.rows;
        set_origin!(rows, row, sample);
        rows.sample.set(row, head.kind);
        rows.sequence.set(row, u64::from(head.sequence));
        rows.source_class.set(row, u64::from(head.source_class));
        rows.source_index.set(row, u64::from(head.source_index));
        rows.sample_pool.set_some(row, head.pool.map(u64::from));
        rows.drops.set(row, u64::from(head.drops));
        let (index, kind) = head.input.place();
        rows.in_if.set_some(row, index);
        rows.in_if_kind.set(row, kind);
        let (index, kind) = head.output.place();
        rows.out_if.set_some(row, index);
        rows.out_if_kind.set(row, kind);
        match head.output.format {
            1 => rows.discard_reason.set(row, u64::from(head.output.value)),
            // Zero means that the number is not known.
            2 if head.output.value > 0 => rows.out_if_count.set(row, u64::from(head.output.value)),
            _ => {}
        }
        rows.discard_reason.set_some(row, head.reason.map(u64::from));
        let tunnels = self.settings.tunnels;
        let faults = take(head.records, |tag, body| rows.record(row, tag, body, tunnels));
        if let Some(rate) = head.rate {
            // A rate of 0 is no rate: the sample represents itself.
            let rate = self.settings.rates.of(sample.agent).unwrap_or(u64::from(rate)).max(1);
            rows.sampling_rate.set(row, rate);
            rows.packets.set(row, rate);
            let (frame, ip) = (rows.frame_length.get(row), rows.ip_length.get(row));
            if let Some(length) = self.settings.length.of(frame, ip) {
                rows.bytes.set(row, length.saturating_mul(rate));
            }
        }
        self.count_faults(sample.agent, faults);
    }

    fn counters(&mut self, sample: &Sample<'_>, xdr: &mut Xdr<'_>) -> Option<()> {
        let sequence = xdr.u32()?;
        let (class, index) = source(xdr, sample.piece.tag == 4)?;
        let announced = xdr.u32()?;
        let row = self.counters.begin(sample.seq, sample.frame.time);
        let rows = &mut self.counters.rows;
        set_origin!(rows, row, sample);
        rows.sequence.set(row, u64::from(sequence));
        rows.source_class.set(row, u64::from(class));
        rows.source_index.set(row, u64::from(index));
        let faults = take(Pieces::new(*xdr, announced), |tag, body| rows.record(row, tag, body));
        self.count_faults(sample.agent, faults);
        Some(())
    }
}

/// Counts of the parts of a sample that could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Faults {
    malformed: u64,
    unknown: u64,
}

/// Gives all records of a sample to `record`.
#[inline]
fn take(mut records: Pieces<'_>, mut record: impl FnMut(u32, &[u8]) -> Taken) -> Faults {
    let mut faults = Faults::default();
    for piece in records.by_ref() {
        match record(piece.tag, piece.body) {
            Taken::Whole if piece.is_cut => faults.malformed += 1,
            Taken::Whole => {}
            Taken::Short => faults.malformed += 1,
            Taken::Unknown => faults.unknown += 1,
        }
    }
    faults.malformed += u64::from(records.left() > 0);
    faults
}

/// Why a sample or a datagram became a reject.
struct Trouble {
    code: &'static str,
    reason: Cow<'static, str>,
}

/// Class and index of a source, which a compact sample has in one word.
fn source(xdr: &mut Xdr<'_>, is_expanded: bool) -> Option<(u32, u32)> {
    let word = xdr.u32()?;
    Some(if is_expanded { (word, xdr.u32()?) } else { (word >> 24, word & 0x00ff_ffff) })
}

fn flow<'a>(xdr: &mut Xdr<'a>, is_expanded: bool) -> Option<FlowHead<'a>> {
    let sequence = xdr.u32()?;
    let (source_class, source_index) = source(xdr, is_expanded)?;
    let (rate, pool, drops) = (xdr.u32()?, xdr.u32()?, xdr.u32()?);
    let port = |xdr: &mut Xdr<'_>| {
        let word = xdr.u32()?;
        Some(if is_expanded { Port { format: word, value: xdr.u32()? } } else { Port::compact(word) })
    };
    let (input, output) = (port(xdr)?, port(xdr)?);
    let announced = xdr.u32()?;
    Some(FlowHead {
        kind: "flow",
        sequence,
        source_class,
        source_index,
        rate: Some(rate),
        pool: Some(pool),
        drops,
        input,
        output,
        reason: None,
        records: Pieces::new(*xdr, announced),
    })
}

/// sFlow Dropped Packet Notification Structures, section 5. It represents one packet, whatever the sampling rate is,
/// and no packet that was carried: it has neither rate nor packets nor bytes.
fn discarded<'a>(xdr: &mut Xdr<'a>) -> Option<FlowHead<'a>> {
    let sequence = xdr.u32()?;
    let (source_class, source_index) = source(xdr, true)?;
    let drops = xdr.u32()?;
    let input = Port { format: 0, value: xdr.u32()? };
    let output = Port { format: 0, value: xdr.u32()? };
    let reason = xdr.u32()?;
    let announced = xdr.u32()?;
    Some(FlowHead {
        kind: "discarded",
        sequence,
        source_class,
        source_index,
        rate: None,
        pool: None,
        drops,
        input,
        output,
        reason: Some(reason),
        records: Pieces::new(*xdr, announced),
    })
}

impl Decoder for SflowDecoder {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, arrival: Micros) -> Result<Decoded, Error> {
        let Payload::Bytes { data, .. } = &block.payload else {
            return Err(Error::internal("a decoder of datagrams was given a block of something else"));
        };
        let mut refused: Vec<Refused> = Vec::new();
        let mut next = range.start;
        (self.first, self.arrival) = ((range.start, block.first), arrival);
        for frame in frames(data) {
            let frame = frame?;
            self.datagram(&frame, next, &mut |seq, raw, trouble| {
                refused.push(Refused {
                    // Within the block, whose records are counted in 32 bits.
                    index: (seq - range.start) as u32,
                    raw: place_in(data, raw),
                    code: Cow::Borrowed(trouble.code),
                    reason: trouble.reason,
                });
            });
            next += Seq::from(frame.records);
        }
        if next != range.end {
            return Err(Error::corrupt(format!(
                "a block of {} samples was given the order range {range}",
                next - range.start
            )));
        }
        self.settings.agents.add(&self.counts);
        self.counts.clear();
        let place =
            Place { source: &self.settings.source, first: block.first, range, arrival, context: None };
        let rejects = (!refused.is_empty()).then(|| place.rejects(&refused, data));
        let flows = batch(&mut self.flows, FlowRows::finish, &self.flow_schema, range)?;
        let others = if self.counters.seqs.is_empty() {
            Vec::new()
        } else {
            vec![batch(&mut self.counters, CounterRows::finish, &self.counter_schema, range)?]
        };
        Ok(Decoded { records: flows, rejects, others })
    }

    fn working_on(&self) -> Option<Seq> {
        self.at
    }
}

fn batch<R>(
    sink: &mut Sink<R>,
    finish: impl Fn(&mut R, usize) -> Vec<arrow_array::ArrayRef>,
    schema: &Schema,
    range: SeqRange,
) -> Result<Batch, Error> {
    let rows = sink.seqs.len();
    let columns = finish(&mut sink.rows, rows);
    let seqs = Seqs::Each(std::mem::take(&mut sink.seqs).into());
    let times = ScalarBuffer::from(std::mem::take(&mut sink.times));
    Ok(Batch::new(range, record_batch(schema, columns, rows)?, times, seqs))
}

/// Where a part of a block lies in it.
fn place_in(data: &Bytes, part: &[u8]) -> std::ops::Range<usize> {
    let start = part.as_ptr().addr() - data.as_ptr().addr();
    start..start + part.len()
}
