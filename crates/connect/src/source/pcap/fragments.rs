//! Puts together the datagrams that IP has split into fragments.
//!
//! The result depends on the packets of a capture alone: ages are in the capture's own time, and every table is
//! ordered. Fragments may come in any order and more than once. A datagram is given
//! * when its last fragment has come, with the time of that one;
//! * when [`MOST_AGE`] has passed since its first one came, at the end of the capture, or as the oldest where there are
//!   more than [`MOST_OPEN`] of them or they hold more than [`MOST_BYTES`]: as far as it is there from its beginning,
//!   with the time of the newest fragment. One without a beginning is left out.
//!
//! A fragment that is repeated within [`MOST_AGE`] of the datagram that it is a piece of is left out, so that a
//! datagram whose fragments all come twice is given once, whatever their order.
//!
//! Where two fragments overlap and agree, the first one counts. Where they differ, nobody can say which one is right,
//! and nothing of the datagram is used (RFC 5722 discards every overlap; networks that send fragments twice are common,
//! though). All that is not given whole is in [`FragmentCounts`].

use std::collections::BTreeMap;

use thalweg_types::{Micros, hash_bytes};

use crate::sflow::packet::Part;
use crate::sflow::xdr::Address;

/// How long a datagram waits for its fragments. They are sent one right after the other; the default `lateness` is
/// longer, so that a datagram that is given late is not late to its job.
const MOST_AGE: Micros = 5_000_000;

/// Datagrams that wait for fragments.
const MOST_OPEN: usize = 4_096;

/// Bytes that they hold.
const MOST_BYTES: usize = 16 << 20;

/// Bytes that the bookkeeping for a fragment takes, at most.
const PIECE_BYTES: usize = 128;

/// Bytes that an IP packet carries at most.
const MOST_PAYLOAD: u32 = 65_535;

/// Datagrams that were given, whose repeated fragments are recognized.
const MOST_GIVEN: usize = 4_096;

const UDP: u8 = 17;

/// Counts of what is missing of datagrams that came in fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FragmentCounts {
    /// Datagrams to the port of which fragments are missing.
    pub(super) incomplete: u64,
    /// Datagrams of which the first fragment is missing, and with it their port.
    pub(super) headless: u64,
    /// Datagrams whose fragments differ about the same bytes, and fragments that are those of no datagram.
    pub(super) contradictory: u64,
    /// Datagrams that were given up because too many others waited.
    pub(super) crowded: u64,
    /// Fragments of datagrams to other ports.
    pub(super) passed_over: u64,
}

/// Whose fragments belong together. In IPv6 the protocol is no part of it: each fragment may name another header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    source: Address,
    destination: Address,
    id: u32,
    is_v6: bool,
}

/// A fragment of a capture.
#[derive(Clone, Debug)]
pub(super) struct Fragment {
    key: Key,
    time: Micros,
    protocol: u8,
    start: u32,
    /// Where the next one begins, if it is not the last one.
    end: u32,
    is_last: bool,
    data: Vec<u8>,
}

impl Fragment {
    /// `None` if it is not of a UDP datagram.
    pub(super) fn new(part: &Part<'_>, source: Address, destination: Address, time: Micros) -> Option<Self> {
        // Extension headers of IPv6 may come before UDP.
        const EXTENSIONS: [u8; 4] = [0, 43, 51, 60];
        if part.protocol != UDP && !(part.is_v6 && EXTENSIONS.contains(&part.protocol)) {
            return None;
        }
        Some(Self {
            key: Key { source, destination, id: part.id, is_v6: part.is_v6 },
            time,
            protocol: part.protocol,
            start: part.start,
            end: part.start + part.length,
            is_last: part.is_last,
            data: part.data.to_vec(),
        })
    }

    fn is_possible(&self) -> bool {
        let length = self.end - self.start;
        length > 0 && self.end <= MOST_PAYLOAD && (self.is_last || length.is_multiple_of(8))
    }
}

/// A datagram that was put together, as far as it is there.
pub(super) struct Joined {
    pub(super) time: Micros,
    /// An IP packet.
    pub(super) packet: Vec<u8>,
    /// The capture kept only a part of one of its fragments.
    pub(super) is_cut: bool,
    /// Fragments of it are missing.
    pub(super) is_incomplete: bool,
}

/// A piece of a datagram, from one place on.
struct Piece {
    end: u32,
    /// Shorter than to `end` where the capture kept only a part.
    data: Vec<u8>,
}

/// Where a datagram is.
enum State {
    /// By where they begin; they do not overlap.
    Waiting(BTreeMap<u32, Piece>),
    /// It goes to another port; the number of its bytes that have come.
    Foreign(u32),
    /// Its fragments differ.
    Refused,
}

struct Open {
    number: u64,
    began: Micros,
    /// That of the newest fragment.
    time: Micros,
    /// That of the first fragment.
    protocol: u8,
    /// Bytes of the datagram, where the last fragment has come.
    total: Option<u32>,
    /// Bytes that the pieces cover.
    covered: u32,
    /// Bytes that count against [`MOST_BYTES`].
    bytes: usize,
    state: State,
}

/// Datagrams that wait for fragments.
pub(super) struct Fragments {
    port: u16,
    open: BTreeMap<Key, Open>,
    /// From the oldest on.
    by_age: BTreeMap<u64, Key>,
    next: u64,
    bytes: usize,
    given: Given,
    pub(super) counts: FragmentCounts,
}

/// Datagrams that were given whole a moment ago: the hashes of their pieces.
#[derive(Default)]
struct Given {
    by_key: BTreeMap<Key, Pieces>,
    by_age: BTreeMap<u64, Key>,
}

struct Pieces {
    number: u64,
    time: Micros,
    /// Where each begins, and the hash of its bytes, in their order.
    hashes: Vec<(u32, u64)>,
}

impl Fragments {
    /// Of datagrams to a port.
    pub(super) fn new(port: u16) -> Self {
        Self {
            port,
            open: BTreeMap::new(),
            by_age: BTreeMap::new(),
            next: 0,
            bytes: 0,
            given: Given::default(),
            counts: FragmentCounts::default(),
        }
    }

    /// Takes a fragment; appends the datagrams that are given now.
    pub(super) fn add(&mut self, fragment: Fragment, out: &mut Vec<Joined>) {
        if !fragment.is_possible() {
            self.counts.contradictory += 1;
            return;
        }
        let key = fragment.key;
        if !self.open.contains_key(&key) && self.given.holds(&fragment) {
            return;
        }
        let number = self.next;
        let open = self.open.entry(key).or_insert_with(|| Open {
            number,
            began: fragment.time,
            time: fragment.time,
            protocol: 0,
            total: None,
            covered: 0,
            bytes: PIECE_BYTES,
            state: State::Waiting(BTreeMap::new()),
        });
        if open.number == number {
            self.next += 1;
            self.by_age.insert(number, key);
            self.bytes += PIECE_BYTES;
        }
        let before = open.bytes;
        open.take(fragment, self.port, &mut self.counts);
        self.bytes = self.bytes - before + open.bytes;
        if open.is_complete() {
            self.close(key, Why::Complete, out);
        }
        while self.open.len() > MOST_OPEN || self.bytes > MOST_BYTES {
            let Some((_, oldest)) = self.by_age.first_key_value() else { break };
            self.close(*oldest, Why::Crowded, out);
        }
    }

    /// Gives up datagrams that are too old at this time.
    pub(super) fn expire(&mut self, now: Micros, out: &mut Vec<Joined>) {
        while let Some((_, key)) = self.by_age.first_key_value()
            && let Some(open) = self.open.get(key)
            && now.saturating_sub(open.began) > MOST_AGE
        {
            self.close(*key, Why::Over, out);
        }
        self.given.expire(now);
    }

    /// Gives up all: nothing comes any more.
    pub(super) fn end(&mut self, out: &mut Vec<Joined>) {
        while let Some((_, key)) = self.by_age.first_key_value() {
            self.close(*key, Why::Over, out);
        }
        self.given = Given::default();
    }

    fn close(&mut self, key: Key, why: Why, out: &mut Vec<Joined>) {
        let Some(open) = self.open.remove(&key) else { return };
        self.by_age.remove(&open.number);
        self.bytes -= open.bytes;
        let State::Waiting(pieces) = &open.state else { return };
        if why == Why::Complete {
            let hashes = pieces.iter().map(|(start, piece)| (*start, hash_bytes(&piece.data)));
            self.given.note(key, self.next, open.time, hashes.collect());
            self.next += 1;
        } else {
            match (why, pieces.contains_key(&0)) {
                (Why::Crowded, _) => self.counts.crowded += 1,
                (_, true) => self.counts.incomplete += 1,
                (_, false) => self.counts.headless += 1,
            }
        }
        out.extend(open.joined(key, why != Why::Complete));
    }
}

/// Why a datagram waits no longer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Complete,
    Crowded,
    Over,
}

impl Open {
    fn take(&mut self, fragment: Fragment, port: u16, counts: &mut FragmentCounts) {
        self.time = fragment.time;
        let pieces = match &mut self.state {
            State::Waiting(pieces) => pieces,
            State::Foreign(come) => {
                *come = come.saturating_add(fragment.end - fragment.start);
                counts.passed_over += 1;
                if fragment.is_last {
                    self.total = Some(fragment.end);
                }
                return;
            }
            State::Refused => return,
        };
        let most = self.total.unwrap_or(MOST_PAYLOAD);
        let reaches = pieces.last_key_value().map_or(0, |(_, piece)| piece.end);
        let is_contradictory = match fragment.is_last {
            true => self.total.is_some_and(|total| total != fragment.end) || reaches > fragment.end,
            false => fragment.end > most,
        };
        if is_contradictory || !agrees(pieces, &fragment) {
            counts.contradictory += 1;
            (self.state, self.bytes) = (State::Refused, PIECE_BYTES);
            return;
        }
        if fragment.is_last {
            self.total = Some(fragment.end);
        }
        if fragment.start == 0 && !pieces.contains_key(&0) {
            self.protocol = fragment.protocol;
            let to = fragment.data.get(2..4).map(|to| u16::from_be_bytes([to[0], to[1]]));
            if fragment.protocol == UDP && to.is_some_and(|to| to != port) {
                counts.passed_over += pieces.len() as u64 + 1;
                self.state = State::Foreign(self.covered + fragment.end);
                self.bytes = PIECE_BYTES;
                return;
            }
        }
        for (start, piece) in gaps(pieces, fragment) {
            self.covered += piece.end - start;
            self.bytes += PIECE_BYTES + piece.data.len();
            pieces.insert(start, piece);
        }
    }

    fn is_complete(&self) -> bool {
        let come = match &self.state {
            State::Waiting(_) => self.covered,
            State::Foreign(come) => *come,
            State::Refused => return false,
        };
        self.total.is_some_and(|total| come >= total)
    }

    /// The packet, as far as it is there from its beginning; `None` where it has none.
    fn joined(self, key: Key, is_incomplete: bool) -> Option<Joined> {
        let State::Waiting(pieces) = self.state else { return None };
        let (mut payload, mut is_cut, mut next) = (Vec::new(), false, 0);
        for (start, piece) in pieces {
            if start != next || is_cut {
                break;
            }
            is_cut = piece.data.len() < (piece.end - start) as usize;
            payload.extend(piece.data);
            next = piece.end;
        }
        (next > 0).then(|| Joined {
            time: self.time,
            packet: packet(key, self.protocol, &payload),
            is_cut,
            is_incomplete,
        })
    }
}

/// The pieces that a fragment would be in, or overlap.
fn touched<'a>(
    pieces: &'a BTreeMap<u32, Piece>,
    fragment: &Fragment,
) -> impl Iterator<Item = (u32, &'a Piece)> {
    let first = pieces.range(..=fragment.start).next_back().map_or(fragment.start, |(start, _)| *start);
    let start = fragment.start;
    pieces
        .range(first..fragment.end)
        .map(|(start, piece)| (*start, piece))
        .filter(move |(_, piece)| piece.end > start)
}

/// Whether a fragment has the same bytes as all that it overlaps.
fn agrees(pieces: &BTreeMap<u32, Piece>, fragment: &Fragment) -> bool {
    touched(pieces, fragment).all(|(start, piece)| {
        let from = start.max(fragment.start);
        let ours = piece.data.get((from - start) as usize..).unwrap_or_default();
        let theirs = fragment.data.get((from - fragment.start) as usize..).unwrap_or_default();
        ours.iter().zip(theirs).all(|(ours, theirs)| ours == theirs)
    })
}

/// The parts of a fragment that the present pieces lack.
fn gaps(pieces: &BTreeMap<u32, Piece>, fragment: Fragment) -> Vec<(u32, Piece)> {
    let mut gaps = Vec::new();
    let mut at = fragment.start;
    let part = |from: u32, to: u32| {
        let byte = |place: u32| ((place - fragment.start) as usize).min(fragment.data.len());
        (from, Piece { end: to, data: fragment.data[byte(from)..byte(to)].to_vec() })
    };
    for (start, piece) in touched(pieces, &fragment) {
        if start > at {
            gaps.push(part(at, start));
        }
        at = at.max(piece.end);
    }
    if at < fragment.end {
        gaps.push(part(at, fragment.end));
    }
    gaps
}

/// The packet as it was before it was split.
fn packet(key: Key, protocol: u8, payload: &[u8]) -> Vec<u8> {
    const TTL: u8 = 64;
    let mut packet = Vec::with_capacity(40 + payload.len());
    if key.is_v6 {
        packet.extend([0x60, 0, 0, 0]);
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([protocol, TTL]);
        packet.extend(key.source);
        packet.extend(key.destination);
    } else {
        // One of the greatest length has no room for its header in the count; that is as good as none.
        let length = u16::try_from(20 + payload.len()).unwrap_or(u16::MAX).to_be_bytes();
        packet.extend([0x45, 0, length[0], length[1], 0, 0, 0, 0, TTL, protocol, 0, 0]);
        packet.extend_from_slice(&key.source[12..]);
        packet.extend_from_slice(&key.destination[12..]);
    }
    packet.extend_from_slice(payload);
    packet
}

impl Given {
    fn note(&mut self, key: Key, number: u64, time: Micros, hashes: Vec<(u32, u64)>) {
        if let Some(former) = self.by_key.insert(key, Pieces { number, time, hashes }) {
            self.by_age.remove(&former.number);
        }
        self.by_age.insert(number, key);
        if self.by_age.len() > MOST_GIVEN {
            self.forget_oldest();
        }
    }

    fn expire(&mut self, now: Micros) {
        while let Some((_, key)) = self.by_age.first_key_value()
            && let Some(pieces) = self.by_key.get(key)
            && now.saturating_sub(pieces.time) > MOST_AGE
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, key)) = self.by_age.pop_first() {
            self.by_key.remove(&key);
        }
    }

    /// Whether a fragment is a piece of a datagram that was given: it came twice.
    fn holds(&self, fragment: &Fragment) -> bool {
        let Some(Pieces { time, hashes, .. }) = self.by_key.get(&fragment.key) else { return false };
        let place = hashes.binary_search_by_key(&fragment.start, |(start, _)| *start);
        fragment.time.saturating_sub(*time) <= MOST_AGE
            && place.is_ok_and(|place| hashes[place].1 == hash_bytes(&fragment.data))
    }
}

#[cfg(test)]
mod tests;
