//! Sources that are read by event time.

use std::sync::Arc;

use proptest::prelude::*;
use thalweg_flow::{
    Decoded, Decoder, Input, JobState, NodeId, Partitioning, Payload, Poll, RawBlock, ScoutReader, Source,
    SourceNode, Wanted,
};
use thalweg_types::{Error, Micros, PartitionId, SeqRange};

use crate::harness::*;

/// Records by offset; one without a time is no record.
type Times = Arc<Vec<Option<Micros>>>;

/// Partitions with records of their own, numbered each from 0.
struct Timed {
    partitions: Vec<Timeline>,
    block: u64,
    /// Its blocks have records of several partitions.
    mixes: bool,
}

/// The records of a block: their partitions, and their numbers there.
type Places = Vec<(PartitionId, u64)>;

#[derive(Clone)]
struct Timeline {
    times: Times,
    next: u64,
    is_finished: bool,
}

/// Reads one of them.
struct Ahead {
    of: Timeline,
    partition: PartitionId,
    block: u64,
}

fn block(partition: PartitionId, of: &mut Timeline, count: u64) -> RawBlock {
    of.next += count;
    RawBlock { partition, first: of.next - count, count: count as u32, payload: Payload::Offsets }
}

impl Source for Ahead {
    fn poll(&mut self, _max_bytes: usize, _now: Micros) -> Result<Poll, Error> {
        match self.block.min(self.of.times.len() as u64 - self.of.next) {
            0 => Ok(Poll::End),
            count => Ok(Poll::Block(block(self.partition, &mut self.of, count))),
        }
    }

    fn drain(&mut self) {}
}

impl Source for Timed {
    fn poll(&mut self, _max_bytes: usize, _now: Micros) -> Result<Poll, Error> {
        panic!("it is asked for a number of records")
    }

    fn scouts(&mut self) -> Result<Vec<ScoutReader>, Error> {
        let reader = |(partition, of): (usize, &Timeline)| {
            let (of, partition, block) = (of.clone(), partition as PartitionId, self.block);
            let open = move || Ok(Box::new(Ahead { of: of.clone(), partition, block }) as Box<dyn Source>);
            ScoutReader { partition, open: Box::new(open) }
        };
        Ok(self.partitions.iter().enumerate().map(reader).collect())
    }

    fn take(&mut self, wanted: &[Wanted], _max_bytes: usize) -> Result<RawBlock, Error> {
        assert!(self.mixes || wanted.len() == 1, "it has not said that it mixes partitions");
        // Fewer than were asked for, sometimes.
        let most = self.block.max(2) as usize - 1;
        let mut places = Places::new();
        for Wanted { partition, count } in wanted {
            let of = &mut self.partitions[*partition as usize];
            let count = (*count).min((most - places.len()) as u64);
            places.extend((of.next..of.next + count).map(|number| (*partition, number)));
            of.next += count;
        }
        let (partition, count) = (places[0].0, places.len() as u32);
        let payload = Payload::Other { data: Arc::new(places), bytes: 0 };
        Ok(RawBlock { partition, first: 0, count, payload })
    }

    fn mixes_partitions(&self) -> bool {
        self.mixes
    }

    fn finished(&mut self, partition: PartitionId) {
        let of = &mut self.partitions[partition as usize];
        assert!(!of.is_finished && of.next == of.times.len() as u64);
        of.is_finished = true;
    }

    fn drain(&mut self) {}
}

struct DecodeTimes {
    source: i64,
    partitions: Vec<Times>,
}

/// Partitions of a source are distinguished in the rows by thousands.
fn place(source: i64, partition: usize) -> i64 {
    source + 1_000 * partition as i64
}

impl Decoder for DecodeTimes {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, _arrival: Micros) -> Result<Decoded, Error> {
        let places = match &block.payload {
            Payload::Other { data, .. } => data.downcast_ref::<Places>().unwrap().clone(),
            _ => (block.first..block.first + u64::from(block.count)).map(|n| (block.partition, n)).collect(),
        };
        let row = |index: u64| {
            let (partition, number) = places[index as usize];
            let partition = partition as usize;
            let n = self.partitions[partition][number as usize]?;
            Some(Row { seq: range.start + index, n, k: place(self.source, partition), v: number as i64 })
        };
        let rows: Vec<Row> = (0..u64::from(block.count)).filter_map(row).collect();
        Ok(Decoded::new(batch_of(&rows, range)))
    }
}

/// Of each source its partitions: their times, and their positions.
type Sources = [Vec<(Vec<Option<Micros>>, u64)>];

/// Reads sources; (time, place, offset) in the order in which they came.
fn read(sources: &Sources, block: u64, decoders: u32, mixes: bool) -> Vec<(i64, i64, i64)> {
    let mut build = Build::new("by time");
    let mut inputs = Vec::new();
    for (number, partitions) in sources.iter().enumerate() {
        let times: Vec<Times> = partitions.iter().map(|(times, _)| Arc::new(times.clone())).collect();
        let timeline = |(place, (_, next)): (usize, &(_, u64))| Timeline {
            times: Arc::clone(&times[place]),
            next: *next,
            is_finished: false,
        };
        let partitions = partitions.iter().enumerate().map(timeline).collect();
        build.graph.sources.push(SourceNode {
            name: format!("s{number}").into(),
            source: Box::new(Timed { partitions, block, mixes }),
            by_time: true,
            decoder: Box::new(move |_| {
                Ok(Box::new(DecodeTimes { source: number as i64, partitions: times.clone() }))
            }),
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
fn expected(sources: &Sources) -> Vec<(i64, i64, i64)> {
    let mut all = Vec::new();
    for (number, partitions) in sources.iter().enumerate() {
        for (partition, (times, next)) in partitions.iter().enumerate() {
            let mut newest = Micros::MIN;
            for (offset, time) in times.iter().enumerate().skip(*next as usize) {
                newest = newest.max(time.unwrap_or(Micros::MIN));
                all.push((newest, number, partition, offset, *time));
            }
        }
    }
    all.sort_by_key(|(newest, number, partition, offset, _)| (*newest, *number, *partition, *offset));
    all.into_iter()
        .filter_map(|(_, number, partition, offset, time)| {
            Some((time?, place(number as i64, partition), offset as i64))
        })
        .collect()
}

fn times() -> impl Strategy<Value = Vec<Option<Micros>>> {
    // Mostly in order, with steps back, equal ones, and lines that are not records.
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
    fn the_partition_whose_own_time_is_least_comes_first(
        all in prop::collection::vec(prop::collection::vec((times(), 0_u64..40), 1..4), 1..4),
        block in 1_u64..50,
        decoders in 1_u32..3,
        mixes in any::<bool>(),
    ) {
        let mut sources = all;
        for (times, next) in sources.iter_mut().flatten() {
            *next = (*next).min(times.len() as u64);
        }
        prop_assert_eq!(read(&sources, block, decoders, mixes), expected(&sources));
    }
}

/// More than may stay open: those whose turn has not come are closed and opened again.
#[test]
fn many_partitions_that_follow_one_another_are_read_in_their_order() {
    let day = |day: i64| ((0..50).map(|step| Some(100 * day + step)).collect(), 0);
    let sources = [(0..200).map(day).collect::<Vec<_>>()];
    for mixes in [false, true] {
        assert_eq!(read(&sources, 20, 2, mixes), expected(&sources));
    }
}
