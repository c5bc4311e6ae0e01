//! A slow sink slows the source, and batches in flight stay within the rings.

use thalweg_flow::{InputId, JobState, Operator, Output, Partitioning};
use thalweg_types::{Batch, Error};

use crate::harness::*;

struct Slow(Valve);

impl Operator for Slow {
    fn process(&mut self, _input: InputId, _batch: Batch, _out: &mut Output<'_>) -> Result<(), Error> {
        self.0.pass();
        Ok(())
    }
}

#[test]
fn a_sink_that_stands_still_stops_the_source_within_the_rings_bounds() {
    let valve = Valve::default();
    let mut build = Build::new("slow sink");
    build.buffer = 32 << 10;
    let source = build.numbers("numbers", Numbers::endless(), 1);
    let input = build.input(source, Partitioning::Shuffle);
    let middle = build.each("middle", vec![input], 1, |_, row| Some(row));
    let input = build.input(middle, Partitioning::Global);
    let shared = valve.clone();
    build.operator("slow", vec![input], 1, move |_| Slow(shared.clone()));
    // The sink blocks its worker; three tasks on three workers keep the others going.
    let (runtime, _clock) = runtime(3);
    let mut options = quiet();
    options.ring_bytes = 64 << 10;
    let job = runtime.start(build.graph, options).unwrap();
    eventually("the source is stopped", || job.stats().sources[0].blocked);
    // A ring that is not yet full takes one item more. A buffer leaves with the batch that fills it, and that may be as
    // large as an item of the ring before: a buffer and the batch of 100 rows that filled it.
    let (ring, buffer, batch) = (64 << 10, 32 << 10, 100 * 32);
    let most = ring + buffer + (buffer + batch);
    let bound = |name: &str| {
        let stats = job.stats();
        for link in &stats.links {
            assert!(link.queued_bytes < most, "{name}: {link:?}");
        }
        stats.records
    };
    // Everything that can move has moved when nothing moves any more.
    let mut records = 0;
    eventually("nothing moves", || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::mem::replace(&mut records, bound("stopped")) == records
    });
    let stopped = job.stats();
    assert!(stopped.sources[0].blocked);
    assert!(stopped.links.iter().any(|link| link.high_watermark_hits > 0));
    assert!(stopped.operators[0].tasks[0].blocked, "the middle is held up by the sink");

    let processed = || job.stats().operators[1].tasks[0].batches_in;
    let before = processed();
    for step in 0..30 {
        valve.open(1);
        eventually("the sink takes a batch", || processed() > before + step);
        bound("going");
    }
    eventually("the source follows", || job.stats().records > records);
    valve.open(1 << 40);
    job.drain();
    assert_eq!(finish(&job), JobState::Done);
    let end = job.stats();
    assert_eq!(end.operators[1].tasks[0].records_in, end.records - end.rejects);
    assert!(end.links.iter().all(|link| link.queued_bytes == 0), "{:?}", end.links);
}
