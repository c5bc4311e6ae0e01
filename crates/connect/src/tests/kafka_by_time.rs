//! The source `kafka` where its partitions are read in the order of time: scouts look ahead, and blocks have records of
//! several partitions.

use std::collections::VecDeque;

use thalweg_flow::{ReplayRun, SourcePosition, Wanted};
use thalweg_kafka::memory::{Faults, MemoryBus};
use thalweg_types::Class;

use super::kafka_source::{at, build, filled, started, stored, until_latest};
use super::*;
use crate::BuiltSource;

/// With the place of each record, so that a record of the wrong partition is seen.
const FIELDS: &str = "_topic: string; _partition: int64; _offset: int64; n: int64; _key: string?";

/// A source with its scouts, driven as a sequencer would.
struct Driver {
    built: BuiltSource,
    decoder: Box<dyn Decoder>,
    scouts: Vec<One>,
    block_bytes: usize,
}

struct One {
    partition: u32,
    source: Box<dyn Source>,
    /// What was seen and not taken, as text.
    ahead: VecDeque<String>,
    has_ended: bool,
}

/// Each record of a block.
fn lines(decoder: &mut dyn Decoder, block: &RawBlock) -> Vec<String> {
    let lines: Vec<String> =
        rows_of(decoder, std::slice::from_ref(block)).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), block.count as usize);
    lines
}

impl Driver {
    fn new(mut built: BuiltSource, block_bytes: usize) -> Self {
        let decoder = (built.decoder)(&task()).unwrap();
        let scouts = built.source.scouts().unwrap().into_iter();
        let scouts = scouts.map(|reader| {
            // Looked into, closed and opened again, as where there are many.
            for _ in 0..20 {
                (reader.open)().unwrap().poll(1 << 16, ARRIVAL).unwrap();
            }
            let (source, ahead) = ((reader.open)().unwrap(), VecDeque::new());
            One { partition: reader.partition, source, ahead, has_ended: false }
        });
        let scouts = scouts.collect();
        Self { built, decoder, scouts, block_bytes }
    }

    /// Looks until it is known what comes next in each partition.
    fn look(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        for one in &mut self.scouts {
            while one.ahead.is_empty() && !one.has_ended {
                match one.source.poll(self.block_bytes, ARRIVAL).unwrap() {
                    Poll::Block(block) => one.ahead.extend(lines(&mut *self.decoder, &block)),
                    Poll::End => one.has_ended = true,
                    _ => assert!(Instant::now() < deadline, "partition {} has no end", one.partition),
                }
            }
        }
    }

    /// Wants records of partitions in turns; gives the block, the runs that it has, and its records as text. `None` after
    /// the last.
    fn take(&mut self, random: &mut fastrand::Rng) -> Option<(Vec<ReplayRun>, Vec<String>)> {
        self.look();
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut left: Vec<usize> = self.scouts.iter().map(|one| one.ahead.len()).collect();
        for _ in 0..random.usize(1..9) {
            let some: Vec<usize> = (0..left.len()).filter(|place| left[*place] > 0).collect();
            let Some(place) = random.choice(some) else { break };
            let count = random.usize(1..=left[place]);
            left[place] -= count;
            wanted.push(Wanted { partition: self.scouts[place].partition, count: count as u64 });
        }
        if wanted.is_empty() {
            return None;
        }
        let block = self.built.source.take(&wanted, random.usize(1..400)).unwrap();
        let given = lines(&mut *self.decoder, &block);
        let (mut runs, mut offset, mut rest) = (Vec::new(), block.first, given.iter());
        for Wanted { partition, count } in wanted {
            let one = self.scouts.iter_mut().find(|one| one.partition == partition).unwrap();
            let count = (count as usize).min(rest.len());
            for line in rest.by_ref().take(count) {
                assert_eq!(one.ahead.pop_front().as_ref(), Some(line), "what the scout has seen");
            }
            if count > 0 {
                runs.push(ReplayRun { partition, first: offset, count: count as u64 });
                offset += count as u64;
            }
        }
        assert_eq!(rest.next(), None, "no more than was wanted");
        Some((runs, given))
    }
}

#[test]
fn a_source_gives_what_its_scouts_have_seen_and_gives_it_again_one_partition_at_a_time() {
    let (mut mixed, mut again_in_pieces) = (0, 0);
    for seed in 0..60 {
        let (bus, count) = filled(seed, 40);
        let mut random = fastrand::Rng::with_seed(seed);
        let block_bytes = random.usize(1..200);
        let source = || build(&bus, FIELDS, &[until_latest()]);
        let mut first = Driver::new(started(source()), block_bytes);
        let (mut all, mut runs): (Vec<String>, Vec<ReplayRun>) = (Vec::new(), Vec::new());
        let mut committed = (SourcePosition::default(), 0);
        let stop = random.u64(1..count) as usize;
        while all.len() < stop {
            let (of, given) = first.take(&mut random).expect("a record");
            mixed += usize::from(of.len() > 1);
            runs.extend(of);
            all.extend(given);
            if random.u32(0..4) == 0 {
                committed = (first.built.source.position(), all.len());
                runs.clear();
            }
        }
        drop(first);

        let mut second = source();
        let (position, from) = committed;
        if from > 0 {
            second.source.restore(&position).unwrap();
        }
        let mut second = started(second);
        let mut decoder = (second.decoder)(&task()).unwrap();
        let mut repeated = Vec::new();
        for mut run in runs {
            while run.count > 0 {
                let block = second.source.replay(run, random.usize(1..200)).unwrap();
                assert_eq!((block.partition, block.first), (run.partition, run.first));
                (run.first, run.count) =
                    (run.first + u64::from(block.count), run.count - u64::from(block.count));
                again_in_pieces += usize::from(run.count > 0);
                repeated.extend(lines(&mut *decoder, &block));
            }
        }
        assert_eq!(repeated, all[from..], "seed {seed}");

        let mut second = Driver::new(second, block_bytes);
        while let Some((_, given)) = second.take(&mut random) {
            all.extend(given);
        }
        let mut numbers: Vec<u64> = all
            .iter()
            .map(|line| match line.strip_prefix("! ") {
                Some(reject) => {
                    reject.rsplit(['<', ' ']).next().unwrap().trim_end_matches('>').parse().unwrap()
                }
                None => line.split(" | ").nth(3).unwrap().parse().unwrap(),
            })
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=count).collect::<Vec<_>>(), "seed {seed}");
        let figures = second.built.source.partitions().unwrap()();
        let taken: u64 = figures.iter().map(|(_, counts)| counts.records).sum();
        assert_eq!(taken, count - from as u64, "seed {seed}");
    }
    assert!(mixed > 100 && again_in_pieces > 20, "{mixed} blocks of several partitions, {again_in_pieces}");
}

#[test]
fn what_retention_has_taken_is_refused_or_left_out_by_time_too() {
    let bus = MemoryBus::new(3, Faults::default());
    bus.make_topic("t", 2);
    for n in 0..6 {
        bus.append(&at(n % 2), stored(&format!("{{\"n\":{n}}}")));
    }
    let source = |missing: &str| {
        let mut built = started(build(&bus, FIELDS, &[until_latest(), ("missing", text(missing))]));
        let scouts: Vec<_> =
            built.source.scouts().unwrap().into_iter().map(|reader| (reader.open)().unwrap()).collect();
        (built, scouts)
    };
    let (_built, mut refusing) = source("refuse");
    let (mut built, mut skipping) = source("skip");
    bus.retain_from(&at(0), 2);
    let error = refusing[0].poll(1 << 16, ARRIVAL).err().expect("a refusal");
    assert_eq!(error.class(), Class::Corrupt);
    assert_eq!(
        error.message(),
        "t[0] begins at offset 2, expected offset 0: 2 messages were deleted before they were read"
    );
    let scout = &mut skipping[0];
    assert!(matches!(scout.poll(1 << 16, ARRIVAL), Ok(Poll::PendingUntil(_))), "it looks further on");
    let Ok(Poll::Block(seen)) = scout.poll(1 << 16, ARRIVAL) else { panic!("what is left") };
    let block = built.source.take(&[Wanted { partition: 0, count: 1 }], 1 << 16).unwrap();
    let mut decoder = (built.decoder)(&task()).unwrap();
    assert_eq!(lines(&mut *decoder, &block), lines(&mut *decoder, &seen));
    assert_eq!(lines(&mut *decoder, &block), ["t | 0 | 2 | 4 | key"]);
    let counts = built.source.partitions().unwrap()();
    assert_eq!(counts[0].1.missing, 2);
}
