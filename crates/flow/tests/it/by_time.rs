//! Sources that are read by event time.

use std::sync::Arc;

use proptest::prelude::*;
use thalweg_flow::{
    Decoded, Decoder, Input, JobState, NodeId, Partitioning, Payload, Poll, RawBlock, ReplayRun, Source,
    SourceNode, SourcePosition,
};
use thalweg_types::{Error, Micros, SeqRange};

use crate::harness::*;

/// Records by offset; one without a time is no record.
type Times = Arc<Vec<Option<Micros>>>;

struct Timed {
    times: Times,
    block: u64,
    next: u64,
    /// It is the one that looks ahead.
    is_scout: bool,
}

impl Source for Timed {
    fn poll(&mut self, _max_bytes: usize, _now: Micros) -> Result<Poll, Error> {
        assert!(self.is_scout, "the source itself is told how many records to give");
        let count = self.block.min(self.times.len() as u64 - self.next) as u32;
        if count == 0 {
            return Ok(Poll::End);
        }
        self.next += u64::from(count);
        Ok(Poll::Block(RawBlock {
            partition: 0,
            first: self.next - u64::from(count),
            count,
            payload: Payload::Offsets,
        }))
    }

    fn replay(&mut self, run: ReplayRun, _max_bytes: usize) -> Result<RawBlock, Error> {
        assert!(!self.is_scout && run.first == self.next);
        // Fewer than were asked for, sometimes.
        let count = run.count.min(self.block.max(2) - 1) as u32;
        self.next += u64::from(count);
        Ok(RawBlock { partition: 0, first: run.first, count, payload: Payload::Offsets })
    }

    fn position(&self) -> SourcePosition {
        SourcePosition { next: self.next, place: Vec::new() }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        self.next = position.next;
        Ok(())
    }

    fn drain(&mut self) {}
}

struct DecodeTimes {
    source: i64,
    times: Times,
}

impl Decoder for DecodeTimes {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, _arrival: Micros) -> Result<Decoded, Error> {
        let row = |index: u64| {
            let offset = block.first + index;
            let n = self.times[offset as usize]?;
            Some(Row { seq: range.start + index, n, k: self.source, v: offset as i64 })
        };
        let rows: Vec<Row> = (0..u64::from(block.count)).filter_map(row).collect();
        Ok(Decoded::new(batch_of(&rows, range)))
    }
}

/// Reads sources from the offsets on; (time, source, offset) in the order in which they came.
fn read(sources: &[(Vec<Option<Micros>>, u64)], block: u64, decoders: u32) -> Vec<(i64, i64, i64)> {
    let mut build = Build::new("by time");
    let mut inputs = Vec::new();
    for (number, (times, next)) in sources.iter().enumerate() {
        let times = Arc::new(times.clone());
        let source = |is_scout: bool, next: u64| {
            Box::new(Timed { times: Arc::clone(&times), block, next, is_scout }) as Box<dyn Source>
        };
        let decoder = || {
            let times = Arc::clone(&times);
            move || {
                Box::new(DecodeTimes { source: number as i64, times: Arc::clone(&times) }) as Box<dyn Decoder>
            }
        };
        let (make, ahead) = (decoder(), decoder());
        build.graph.sources.push(SourceNode {
            name: format!("s{number}").into(),
            source: source(false, *next),
            // It begins at the beginning, and has to be told where the source stands.
            scout: Some((source(true, 0), Box::new(move |_| Ok(ahead())))),
            decoder: Box::new(move |_| Ok(make())),
            parallelism: decoders,
            schema: schema(),
            others: Vec::new(),
        });
        inputs.push(Input::new(NodeId::Source(number), 0, Partitioning::Global));
    }
    let union = build.operator("union", inputs, 1, |_| Pass);
    let input = build.input(union, Partitioning::Forward);
    let records = build.record("sink", vec![input], 1);
    let (runtime, _clock) = runtime(2);
    let job = runtime.start(build.graph, quiet()).unwrap();
    assert_eq!(finish(&job), JobState::Done);
    records.all_rows()
}

/// A merge by the greatest time so far, which knows all records.
fn expected(sources: &[(Vec<Option<Micros>>, u64)]) -> Vec<(i64, i64, i64)> {
    let mut all = Vec::new();
    for (number, (times, next)) in sources.iter().enumerate() {
        let mut newest = Micros::MIN;
        for (offset, time) in times.iter().enumerate().skip(*next as usize) {
            newest = newest.max(time.unwrap_or(Micros::MIN));
            all.push((newest, number, offset, *time));
        }
    }
    all.sort_by_key(|(newest, number, offset, _)| (*newest, *number, *offset));
    all.into_iter()
        .filter_map(|(_, number, offset, time)| Some((time?, number as i64, offset as i64)))
        .collect()
}

fn times() -> impl Strategy<Value = Vec<Option<Micros>>> {
    // Mostly in order, with steps back, equal ones, and what is no record.
    let step = prop_oneof![6 => (0_i64..9).prop_map(Some), 1 => (-30_i64..0).prop_map(Some), 1 => Just(None)];
    prop::collection::vec(step, 0..120).prop_map(|steps| {
        let mut time = 0;
        let each = steps.into_iter().map(|step| {
            time += step?;
            Some(time)
        });
        each.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_source_whose_own_time_is_least_comes_first(
        all in prop::collection::vec((times(), 0_u64..40), 1..5),
        block in 1_u64..50,
        decoders in 1_u32..3,
    ) {
        let sources: Vec<_> = all.into_iter().map(|(times, next)| {
            let next = next.min(times.len() as u64);
            (times, next)
        }).collect();
        prop_assert_eq!(read(&sources, block, decoders), expected(&sources));
    }
}
