//! Records as they came are there for all tasks until the end of the job has passed them, within a bound.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_flow::{
    Decoded, Decoder, FindReceived, InputId, JobOptions, JobState, Operator, Output, Partitioning, Payload,
    Poll, RawBlock, ReceivedPlace, Source,
};
use thalweg_types::{Batch, Error, Micros, Seq, SeqRange};

use crate::harness::*;

const BLOCK: u64 = 10;

/// Below the first number that is rejected.
const BLOCKS: u64 = 9;

/// Numbers of three digits, in blocks that claim a number of bytes.
struct Texts {
    next: u64,
    bytes: Option<usize>,
    forgotten: Arc<AtomicU64>,
}

impl Source for Texts {
    fn poll(&mut self, _max_bytes: usize, _now: Micros) -> Result<Poll, Error> {
        let polled = self.next / BLOCK;
        let kept = polled - self.forgotten.load(Ordering::Acquire);
        assert!(self.bytes.is_none() || kept <= KEPT, "{kept} blocks are kept, and another is asked for");
        if polled == BLOCKS {
            return Ok(Poll::End);
        }
        let text: String = (self.next..self.next + BLOCK).map(|n| format!("{n:03}")).collect();
        let payload = match self.bytes {
            None => Payload::Bytes { data: text.into(), context: None },
            Some(bytes) => Payload::Other { data: Arc::new(text), bytes },
        };
        let block = RawBlock { partition: 0, first: self.next, count: BLOCK as u32, payload };
        self.next += BLOCK;
        Ok(Poll::Block(block))
    }

    fn drain(&mut self) {}
}

struct DecodeTexts;

impl Decoder for DecodeTexts {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, arrival: Micros) -> Result<Decoded, Error> {
        DecodeNumbers.decode(block, range, arrival)
    }

    fn find_received(&self) -> Option<Arc<dyn FindReceived>> {
        Some(Arc::new(Threes))
    }
}

struct Threes;

impl FindReceived for Threes {
    fn places(&self, block: &RawBlock) -> Vec<ReceivedPlace> {
        let place = |at: usize| ReceivedPlace { start: 3 * at, end: 3 * at + 3, lines: at as u64 };
        (0..block.count as usize).map(place).collect()
    }

    fn first_line(&self, block: &RawBlock) -> Option<u64> {
        Some(block.first + 1)
    }
}

/// Blocks that the end has passed and not given up.
const KEPT: u64 = 3;

/// Looks each record up, and gives up blocks some way after.
struct End {
    ends: VecDeque<Seq>,
    found: Arc<AtomicU64>,
    forgotten: Arc<AtomicU64>,
}

impl Operator for End {
    fn process(&mut self, _input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        for row in rows(&batch) {
            if let Some(received) = out.received(row.seq) {
                assert_eq!(received.bytes, format!("{:03}", row.n));
                assert_eq!(received.line, Some(row.n as u64 + 1));
                self.found.fetch_add(1, Ordering::Relaxed);
            }
            if row.n as u64 % BLOCK == BLOCK - 1 {
                self.ends.push_back(row.seq + 1);
            }
        }
        Ok(())
    }

    fn complete(&mut self, _range: SeqRange, out: &mut Output<'_>) -> Result<(), Error> {
        while self.ends.len() as u64 > KEPT {
            let end = self.ends.pop_front().unwrap();
            // Before it is so: the source never sees fewer than there are.
            self.forgotten.fetch_add(1, Ordering::Release);
            out.forget_received(end);
            assert_eq!(out.received(end - 1), None);
        }
        Ok(())
    }
}

/// How many records were found as they came.
fn run(bytes: Option<usize>, keep_received: bool) -> u64 {
    let (found, forgotten) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let mut build = Build::new("received");
    let texts = Texts { next: 0, bytes, forgotten: Arc::clone(&forgotten) };
    let source = build.source("texts", texts, 2, |_| Box::new(DecodeTexts));
    let input = build.input(source, Partitioning::Shuffle);
    let middle = build.each("middle", vec![input], 3, |_, row| Some(row));
    let input = build.input(middle, Partitioning::Global);
    let shared = Arc::clone(&found);
    build.operator("end", vec![input], 1, move |_| End {
        ends: VecDeque::new(),
        found: Arc::clone(&shared),
        forgotten: Arc::clone(&forgotten),
    });
    let (runtime, _clock) = runtime(2);
    let options = JobOptions { keep_received, ..quiet() };
    let job = runtime.start(build.graph, options).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    found.load(Ordering::Relaxed)
}

#[test]
fn every_record_is_found_as_it_came_where_that_is_asked_for() {
    assert_eq!(run(None, true), BLOCKS * BLOCK);
    assert_eq!(run(None, false), 0);
}

#[test]
fn sources_wait_while_too_much_is_kept() {
    assert_eq!(run(Some(16 << 20), true), 0, "blocks without bytes have no places");
}
