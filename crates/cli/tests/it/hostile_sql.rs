//! SQL that is meant to hurt, asked of the processes that a node has for it: each query is answered or refused, and the
//! process that asked them goes on.

mod generated;
mod node;

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use thalweg_sql::{Chunks, Exceeded, Format, Limits, Program, Setup, Stopped, Workers};
use thalweg_table::{Catalog, Snapshot, TableName};
use thalweg_types::{Class, Error};

/// Held by each test here: they look at the processes that this one has started.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A table `t` of the columns `time` and `a`, all of whose rows are in no file.
#[derive(Default)]
struct Fresh {
    rows: Mutex<Vec<RecordBatch>>,
    is_damaged: AtomicBool,
}

impl Fresh {
    fn add(&self, values: impl IntoIterator<Item = i64>) {
        let values: Int64Array = values.into_iter().map(Some).collect();
        let times: TimestampMicrosecondArray = values.iter().collect();
        let columns = [("time", Arc::new(times) as ArrayRef), ("a", Arc::new(values) as ArrayRef)];
        self.rows.lock().unwrap().push(RecordBatch::try_from_iter(columns).unwrap());
    }
}

impl Catalog for Fresh {
    fn tables(&self) -> Result<Vec<TableName>, Error> {
        Ok(vec![TableName { job: "j".to_owned(), table: "t".to_owned() }])
    }

    fn snapshot(&self, name: &TableName) -> Result<Option<Snapshot>, Error> {
        if self.is_damaged.load(Ordering::Relaxed) {
            return Err(Error::corrupt("the manifest of table t has a wrong checksum").with_hint("verify it"));
        }
        let fresh = self.rows.lock().unwrap().clone();
        Ok(Some(Snapshot {
            name: name.clone(),
            schema: fresh[0].schema(),
            time: 0,
            files: vec![],
            complete_from: None,
            fresh,
            rollups: vec![],
            elsewhere: vec![],
        }))
    }
}

fn fresh() -> Arc<Fresh> {
    let fresh = Arc::new(Fresh::default());
    fresh.add(0..100);
    fresh
}

fn program() -> Program {
    Program { path: env!("CARGO_BIN_EXE_thalweg").into(), args: vec!["sql-worker".into()] }
}

/// A debug build takes its time to plan.
const TIME: Duration = Duration::from_secs(20);

fn limits() -> Limits {
    Limits { time: TIME, memory: 64 << 20, ..Limits::default() }
}

fn workers_of(catalog: Arc<Fresh>, limits: Limits) -> Workers {
    Workers::start(catalog, Setup { program: program(), limits, is_node: true }).expect("threads")
}

fn workers(limits: Limits) -> Workers {
    workers_of(fresh(), limits)
}

fn whole(chunks: Chunks) -> Result<String, Error> {
    let bytes = chunks.blocking().collect::<Result<Vec<_>, _>>()?.concat();
    Ok(String::from_utf8(bytes).expect("text"))
}

fn ask(workers: &Workers, sql: &str) -> Result<String, Error> {
    whole(workers.ask_blocking(sql, Format::Csv)?)
}

/// Children of this process that answer SQL, also those that nobody waited for.
fn children() -> BTreeSet<u32> {
    children_of(std::process::id())
}

fn children_of(parent: u32) -> BTreeSet<u32> {
    let parent = parent.to_string();
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        let (head, rest) = stat.rsplit_once(')').expect("a name in brackets");
        rest.split_whitespace().nth(1) == Some(&parent) && head.ends_with("(thalweg-sql")
    })
    .collect()
}

/// Waits for an event that happens soon, and without bound only in a build that hangs.
fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} does not happen");
        std::thread::yield_now();
    }
}

fn stopped(workers: &Workers, why: Stopped) -> u64 {
    let place = Stopped::ALL.iter().position(|(other, _)| *other == why).expect("one of them");
    workers.counts().stopped[place]
}

/// Computes in one call of a function, for as long as it is let.
const HOG: &str = "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))";

#[test]
fn memory_beyond_the_limit_is_an_error_of_the_query() {
    let _alone = alone();
    let workers = workers(limits());
    for sql in [
        "SELECT approx_percentile_cont(a, 0.5, 99999999999999) FROM t",
        "SELECT approx_percentile_cont(a, 0.5, 9999999999999999) FROM t",
        "SELECT approx_percentile_cont(a, 0.5, 500000000) FROM t",
        "SELECT repeat('abcdefgh', 100000000)",
        "SELECT length(repeat('a', 2000000000))",
        "SELECT lpad('a', 2000000000)",
        "SELECT array_repeat(1, 5000000000)",
        "SELECT range(0, 9223372036854775807)",
        "SELECT array_agg(value) FROM generate_series(1, 100000000)",
        "SELECT value FROM generate_series(1, 100000000) ORDER BY value DESC",
    ] {
        let error = ask(&workers, sql).expect_err(sql);
        assert_eq!(error.class(), Class::User, "{sql}: {}", error.chain());
        if matches!(Exceeded::of(&error), Some(Exceeded::Memory { .. })) {
            assert!(error.chain().starts_with("query stopped: queries may take 64MiB"), "{}", error.chain());
        } else {
            // DataFusion knows some of them by itself.
            let known = ["exceed", "too large", "out of range", "overflow", "maximum"];
            assert!(known.iter().any(|text| error.chain().contains(text)), "{sql}: {}", error.chain());
        }
        assert_eq!(ask(&workers, "SELECT sum(a) AS s FROM t").unwrap(), "s\n4950\n");
    }
    assert!(stopped(&workers, Stopped::Memory) > 0, "{:?}", workers.counts());
    assert_eq!(stopped(&workers, Stopped::Other), 0, "{:?}", workers.counts());
}

#[test]
fn what_nests_too_deep_is_an_error_of_the_query() {
    let _alone = alone();
    let workers = workers(Limits { time: Duration::from_secs(3), ..limits() });
    let many = |first: &str, more: &str, count: usize| first.to_owned() + &more.repeat(count);
    for sql in [
        many("SELECT 1", "+1", 100_000),
        many("SELECT 1 FROM t WHERE a = 1", " OR a = 1", 50_000),
        many("SELECT 1", " UNION ALL SELECT 1", 20_000),
        many("SELECT [1]", "[1]", 50_000),
        many("SELECT 1", "::int", 50_000),
        many("SELECT 'a'", "||'a'", 50_000),
        many("SELECT count(*) FROM t", " JOIN t USING (a)", 10_000),
        format!("SELECT {}1{}", "(".repeat(50_000), ")".repeat(50_000)),
        format!("SELECT {}1{}", "abs(".repeat(50_000), ")".repeat(50_000)),
        many("SELECT ", "- ", 50_000),
    ] {
        let error = ask(&workers, &sql).expect_err("too deep");
        assert_eq!(error.class(), Class::User, "{}: {}", &sql[..60], error.chain());
        assert_eq!(ask(&workers, "SELECT 1 AS n").unwrap(), "n\n1\n");
    }
    assert!(stopped(&workers, Stopped::Depth) > 0, "{:?}", workers.counts());
    assert_eq!(stopped(&workers, Stopped::Other), 0, "{:?}", workers.counts());
    // A long list nests nothing.
    let list: Vec<String> = (0..5_000).map(|n| n.to_string()).collect();
    let sql = format!("SELECT count(*) AS n FROM t WHERE a IN ({})", list.join(", "));
    let workers = self::workers(limits());
    assert_eq!(ask(&workers, &sql).unwrap(), "n\n100\n");
}

#[test]
fn who_is_told_that_time_is_up_is_told_after_the_process_has_gone() {
    let _alone = alone();
    let workers = workers(Limits { time: Duration::from_millis(300), queries: 1, ..limits() });
    for _ in 0..3 {
        eventually("a worker for each", || workers.counts().workers == 2 && children().len() == 2);
        let before = children();
        let error = ask(&workers, HOG).expect_err("it is endless");
        assert!(matches!(Exceeded::of(&error), Some(Exceeded::Time { .. })), "{}", error.chain());
        let gone: Vec<_> = before.difference(&children()).copied().collect();
        assert_eq!(gone.len(), 1, "one of {before:?}, and no zombie of it is left: {:?}", children());
    }
    assert_eq!(stopped(&workers, Stopped::Time), 3);
}

#[test]
fn a_quick_query_is_answered_beside_any_number_of_slow_ones() {
    let _alone = alone();
    let workers = Arc::new(workers(limits()));
    let hogs: Vec<_> = (0..12)
        .map(|n| {
            let workers = Arc::clone(&workers);
            let cross = "SELECT count(*) FROM generate_series(1, 1000000) a(x), generate_series(1, 1000000) b(y) WHERE x + y < 0";
            std::thread::spawn(move || ask(&workers, if n % 2 == 0 { HOG } else { cross }))
        })
        .collect();
    // Four of them run, and another one tries.
    eventually("a crowd", || workers.counts().workers >= 5);
    for _ in 0..10 {
        assert_eq!(ask(&workers, "SELECT 1 AS n").unwrap(), "n\n1\n");
        assert_eq!(ask(&workers, "SELECT sum(a) AS s FROM t").unwrap(), "s\n4950\n");
        let error = ask(&workers, "SELECT b FROM t").expect_err("there is no such column");
        assert_eq!(error.class(), Class::User);
        assert!(hogs.iter().all(|hog| !hog.is_finished()), "nobody waited for a slow one");
    }
    assert!(workers.counts().workers <= 7, "{:?}", workers.counts());
    let ends = hogs.into_iter().map(|hog| hog.join().expect("no panic").expect_err("it is endless"));
    for error in ends {
        let exceeded = Exceeded::of(&error);
        assert!(
            matches!(exceeded, Some(Exceeded::Time { .. } | Exceeded::Place { .. })),
            "{}",
            error.chain()
        );
    }
}

fn signal(name: &str, pids: &BTreeSet<u32>) {
    // One that has ended meanwhile needs none.
    let pids = pids.iter().map(ToString::to_string);
    let _ = std::process::Command::new("kill").arg(name).args(pids).stderr(Stdio::null()).status().unwrap();
}

/// A stopped process looks like one on a machine that is busy with other work.
#[test]
fn a_quick_query_is_answered_where_it_gets_no_processor_for_a_while() {
    let _alone = alone();
    let workers = Arc::new(workers(Limits { queries: 1, ..limits() }));
    eventually("workers", || children().len() >= 2);
    let asker = |sql: &'static str| {
        let workers = Arc::clone(&workers);
        std::thread::spawn(move || ask(&workers, sql))
    };
    let hog = asker(HOG);
    // It has the only place before anybody else asks.
    std::thread::sleep(Duration::from_secs(1));
    let all = children();
    signal("-STOP", &all);
    let quick = asker("SELECT 1 AS n");
    // Longer than its try.
    std::thread::sleep(Duration::from_millis(700));
    signal("-CONT", &all);
    assert_eq!(quick.join().unwrap().unwrap(), "n\n1\n");
    assert!(!hog.is_finished(), "it waited for the slow one");
    drop(hog);
}

#[test]
fn a_query_is_answered_where_the_line_is_full() {
    let _alone = alone();
    let workers = Arc::new(workers(Limits { queries: 1, waiting: 0, ..limits() }));
    let hog = std::thread::spawn({
        let workers = Arc::clone(&workers);
        move || ask(&workers, HOG)
    });
    eventually("its turn", || workers.counts().workers >= 2);
    // It may have come before the hog, and then has its place.
    eventually("a full line", || {
        assert_eq!(ask(&workers, "SELECT 1 AS n").unwrap(), "n\n1\n");
        let refused = ask(&workers, "SELECT count(*) FROM generate_series(1, 100000000000)");
        matches!(refused, Err(error) if matches!(Exceeded::of(&error), Some(Exceeded::Waiting { running: 1, waiting: 0 })))
    });
    assert!(hog.join().unwrap().is_err());
}

#[test]
fn a_row_of_any_length_comes_in_short_pieces() {
    let _alone = alone();
    let workers = workers(limits());
    let chunks = workers.ask_blocking("SELECT repeat('x', 10000000) AS x", Format::Json).unwrap();
    let mut bytes = 0;
    for piece in chunks.blocking() {
        let piece = piece.unwrap();
        assert!(piece.len() <= 64 << 10, "{}", piece.len());
        bytes += piece.len();
    }
    assert_eq!(bytes, "[\n{\"x\":\"\"}\n]\n".len() + 10_000_000);
    // One that memory has no room for is an error, of the query or of the reply.
    let error =
        ask(&workers, "SELECT repeat('x', 70000000) FROM generate_series(1, 3)").expect_err("too long");
    assert!(matches!(Exceeded::of(&error), Some(Exceeded::Memory { .. })), "{}", error.chain());
}

#[test]
fn a_reader_that_goes_away_takes_its_query_along() {
    let _alone = alone();
    let workers = workers(Limits { queries: 1, ..limits() });
    let leave = |sql| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let asked = tokio::time::timeout(Duration::from_millis(300), workers.ask(sql, Format::Csv));
            if let Ok(chunks) = asked.await {
                let mut chunks = chunks.unwrap().blocking();
                let first = tokio::task::spawn_blocking(move || chunks.next()).await.unwrap();
                assert!(first.unwrap().unwrap().len() > 1_000);
            }
        });
        // There is one place, and a short try would not do for this one.
        let slow = "SELECT count(*) AS n FROM generate_series(1, 3000000)";
        assert_eq!(ask(&workers, slow).unwrap(), "n\n3000000\n");
    };
    (0..3).for_each(|_| leave("SELECT value FROM generate_series(1, 100000000000)"));
    // A function does not stop by itself. It may not have begun when its reader left, or only in a short try.
    eventually("its end", || {
        leave(HOG);
        stopped(&workers, Stopped::Reader) >= 2
    });
    assert_eq!(stopped(&workers, Stopped::Time), 0, "{:?}", workers.counts());
}

#[test]
fn a_worker_that_is_killed_is_replaced() {
    let _alone = alone();
    let workers = workers(limits());
    for _ in 0..3 {
        eventually("workers", || children().len() >= 2);
        signal("-KILL", &children());
        // One that is hit in the middle of a query would get an error; none was at work.
        eventually("an answer", || {
            ask(&workers, "SELECT sum(a) AS s FROM t").is_ok_and(|text| text == "s\n4950\n")
        });
    }
    drop(workers);
    assert_eq!(children(), BTreeSet::new(), "none is left, and no zombie");
}

#[test]
fn rows_that_are_in_no_file_are_those_of_the_moment() {
    let _alone = alone();
    let fresh = fresh();
    let workers = workers_of(Arc::clone(&fresh), Limits { queries: 1, ..limits() });
    let sum = || {
        let text = ask(&workers, "SELECT count(*), sum(a) FROM t").unwrap();
        text.lines().nth(1).unwrap().to_owned()
    };
    let expected = || {
        let rows = fresh.rows.lock().unwrap().clone();
        let values = rows.iter().map(|batch| {
            let column = batch.column(1).clone();
            column.as_any().downcast_ref::<Int64Array>().unwrap().values().to_vec()
        });
        let values = values.collect::<Vec<_>>().concat();
        format!("{},{}", values.len(), values.iter().sum::<i64>())
    };
    for round in 0..20 {
        assert_eq!(sum(), expected(), "round {round}");
        fresh.add(round * 1_000..round * 1_000 + 10);
        if round % 3 == 2 {
            fresh.rows.lock().unwrap().remove(0);
        }
    }
    // One for all, and three for tries where one came before the worker had a rest.
    assert!(workers.counts().started <= 4, "{:?}", workers.counts());
}

#[test]
fn errors_of_tables_keep_their_class() {
    let _alone = alone();
    let fresh = fresh();
    fresh.is_damaged.store(true, Ordering::Relaxed);
    let workers = workers_of(Arc::clone(&fresh), limits());
    let error = ask(&workers, "SELECT * FROM t").expect_err("damaged");
    assert_eq!((error.class(), error.hint()), (Class::Corrupt, Some("verify it")));
    assert!(error.chain().contains("wrong checksum"), "{}", error.chain());
    fresh.is_damaged.store(false, Ordering::Relaxed);
    assert_eq!(ask(&workers, "SELECT count(*) AS n FROM t").unwrap(), "n\n100\n");
}

#[test]
fn a_process_that_cannot_be_started_is_an_error_of_its_query() {
    let _alone = alone();
    for (path, said) in [("/no/such/program", "No such file"), ("/bin/false", "it ended by exit status: 1")] {
        let program = Program { path: path.into(), args: vec![] };
        let workers =
            Workers::start(fresh(), Setup { program, limits: limits(), is_node: false }).expect("threads");
        let error = ask(&workers, "SELECT 1").expect_err("no program");
        assert_eq!(error.class(), Class::External);
        assert!(error.chain().contains(said) && error.hint().is_some(), "{}", error.chain());
    }
}
