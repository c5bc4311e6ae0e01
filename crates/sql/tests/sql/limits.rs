//! Limits of queries, and the end of those that take more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_sql::{Exceeded, Limits};
use thalweg_types::Class;

use crate::fake::{Flow, START, World, world};

/// Joined with itself twice it takes longer than any test.
const ENDLESS: &str = "SELECT count(a.bytes + b.bytes + c.bytes) FROM flows a, flows b, flows c";
/// The same, with all that is joined thrown away.
const FUTILE: &str = "SELECT count(*) FROM (SELECT a.bytes + b.bytes AS n FROM flows a, flows b) x JOIN flows c ON x.n + c.bytes < 0";
/// The same over hashes, all of which are the same.
const HASHED: &str = "SELECT count(*) FROM (SELECT a.bytes + b.bytes AS n FROM flows a, flows b) x JOIN flows c \
                      ON x.n * 0 = c.bytes * 0 AND x.n + c.bytes < 0";
/// The same, with rows at once and without end.
const ROWS: &str = "SELECT a.bytes FROM flows a, flows b, flows c";

fn large(limits: Limits) -> World {
    of_rows(limits, 2_000)
}

fn of_rows(limits: Limits, count: i64) -> World {
    let world = world(limits);
    let rows: Vec<Flow> = (0..count)
        .map(|n| Flow { time: START + n, bytes: Some(n as u64 * 7_919 % 20_011), ..Flow::default() })
        .collect();
    world.add("net", "flows", &[&rows], &[]);
    world
}

#[test]
fn a_query_that_takes_too_long_is_stopped() {
    let world = large(Limits { time: Duration::from_millis(300), ..Limits::default() });
    let begun = Instant::now();
    for sql in [ENDLESS, FUTILE, HASHED] {
        let error = world.error(sql);
        assert_eq!(error.class(), Class::User);
        assert!(matches!(Exceeded::of(&error), Some(Exceeded::Time { .. })), "{}", error.chain());
        assert_eq!(error.chain(), "query stopped: it took longer than 300ms");
        // Its place is free again, and its thread: otherwise this one would not get one in time.
        eventually(|| world.reply("SELECT 1").is_ok());
    }
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_query_that_takes_too_much_memory_is_stopped() {
    let world = of_rows(Limits { memory: 1 << 20, ..Limits::default() }, 20_000);
    for sql in [
        "SELECT bytes, repeat('x', 100) || bytes AS t FROM flows ORDER BY t",
        "SELECT a.bytes, count(*) FROM flows a JOIN flows b ON a.bytes % 1000 = b.bytes % 1000 GROUP BY a.bytes, a.time",
    ] {
        let error = world.error(sql);
        assert_eq!(error.class(), Class::User, "{}", error.chain());
        assert!(matches!(Exceeded::of(&error), Some(Exceeded::Memory { limit: 1_048_576, .. })), "{error:?}");
        assert!(error.chain().contains("1MiB"), "{}", error.chain());
    }
    assert_eq!(world.rows("SELECT count(*) FROM flows WHERE bytes >= 0"), ["20000"]);
}

#[test]
fn queries_wait_for_a_place_and_then_are_refused() {
    let world = large(Limits { queries: 1, waiting: 0, ..Limits::default() });
    let running = world.reply(ROWS).unwrap();
    let error = world.error("SELECT 1");
    assert_eq!(error.class(), Class::External);
    assert_eq!(Exceeded::of(&error), Some(&Exceeded::Waiting { running: 1, waiting: 0 }));
    drop(running);
    eventually(|| world.reply("SELECT 1").is_ok());

    let world =
        large(Limits { queries: 1, waiting: 1, time: Duration::from_millis(400), ..Limits::default() });
    let running = world.reply(ROWS).unwrap();
    // Nobody reads it, so its place is free before long.
    eventually(|| world.reply("SELECT 1").is_ok());
    drop(running);
}

#[test]
fn a_reply_that_nobody_reads_is_given_up() {
    let world = large(Limits { queries: 1, time: Duration::from_millis(100), ..Limits::default() });
    let mut running = world.reply(ROWS).unwrap();
    eventually(|| world.reply("SELECT 1").is_ok());
    let last = running.by_ref().last();
    assert!(matches!(Exceeded::of(&last.unwrap().unwrap_err()), Some(Exceeded::Reader { .. })));
    assert!(running.next().is_none());
}

#[test]
fn a_reply_that_is_dropped_ends_its_query() {
    let world = large(Limits { queries: 1, ..Limits::default() });
    for _ in 0..3 {
        let mut reply = world.reply(ROWS).unwrap();
        assert!(reply.next().unwrap().unwrap().num_rows() > 0);
        drop(reply);
    }
    // One that has no row yet and never will.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let query = world.engine.query(ENDLESS);
        assert!(tokio::time::timeout(Duration::from_millis(100), query).await.is_err());
    });
    assert_eq!(world.rows("SELECT 1"), ["1"]);
}

#[test]
fn sixteen_queries_at_once_all_get_their_answer() {
    let world = Arc::new(large(Limits::default()));
    let threads: Vec<_> = (0..16)
        .map(|n| {
            let world = Arc::clone(&world);
            std::thread::spawn(move || {
                world.rows(&format!("SELECT count(*), sum(bytes) FROM flows WHERE bytes % 16 = {n}"))
            })
        })
        .collect();
    let counts = threads.into_iter().map(|thread| {
        let rows = thread.join().unwrap();
        rows[0].split_once(',').unwrap().0.parse::<u64>().unwrap()
    });
    assert_eq!(counts.sum::<u64>(), 2_000);
}

#[test]
fn an_engine_that_goes_away_tears_its_replies() {
    let mut world = large(Limits::default());
    let reply = world.reply(ROWS).unwrap();
    let (catalog, limits) = (world.fake.clone(), Limits::default());
    world.engine = thalweg_sql::Engine::new(catalog, limits).unwrap();
    assert_eq!(reply.last().unwrap().unwrap_err().class(), Class::Internal);
}

/// Waits for an event that happens soon, and without bound only in a build that hangs.
fn eventually(mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not happen");
        std::thread::yield_now();
    }
}
