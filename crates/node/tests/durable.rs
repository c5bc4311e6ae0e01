//! Jobs that outlive their process: here the process goes on and the job is ended at once, which loses as much as a kill
//! does. Kills and power cuts of the real program are `cargo xtask crash`.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use thalweg_flow::{CacheCounts, JobState};
use thalweg_node::{CheckOptions, CheckedJob, JobEnd, JobFile, Node, RunningJob};
use thalweg_types::{Class, Error};

#[path = "durable/change.rs"]
mod change;
#[path = "durable/failing.rs"]
mod failing;
#[path = "durable/locks.rs"]
mod locks;
#[path = "durable/older.rs"]
mod older;
#[path = "durable/order.rs"]
mod order;
#[path = "durable/own.rs"]
mod own;
#[path = "durable/poison.rs"]
mod poison;
#[path = "durable/sinks.rs"]
mod sinks;

const LIMIT: Duration = Duration::from_secs(60);

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn node(&self, workers: usize) -> Node {
        Node::builder().data_dir(self.path("data")).workers(workers).open().unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Starts a job; `DIR` in its text is the folder.
    fn start(&self, node: &Node, text: &str) -> Result<Arc<RunningJob>, Error> {
        node.start(self.check_with(text, node.check_options()), &[])
    }

    fn check(&self, text: &str) -> CheckedJob {
        self.check_with(text, &Node::builder().check_options())
    }

    fn check_with(&self, text: &str, options: &CheckOptions) -> CheckedJob {
        let text = text.replace("DIR", &self.0.path().display().to_string());
        let job = JobFile::parse("job.yaml", &text, &[]).and_then(|file| file.check(options));
        job.unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    fn run(&self, text: &str) -> JobEnd {
        self.try_run(text).unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// Runs a job to its end, if it starts.
    fn try_run(&self, text: &str) -> Result<JobEnd, Error> {
        let node = self.node(2);
        let job = self.start(&node, text)?;
        let end = job.wait_timeout(LIMIT).expect("the job ends");
        assert_eq!(end.state, JobState::Done, "{:?}", end.failure());
        Ok(end)
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Two files, read as they grow.
const FILES: &str = "
name: files
cycle: { every: 5ms }
sources:
  a: { type: file, path: DIR/a.csv, follow: true, poll: 1ms, format: csv, schema: { n: int64 } }
  b: { type: file, path: DIR/b.csv, follow: true, poll: 1ms, format: csv, schema: { n: int64 } }
operators:
  even: { type: filter, input: [a, b], where: n % 2 = 0 }
sinks:
  out: { type: file, input: even, path: DIR/out.ndjson, format: ndjson }
";

fn append(path: &Path, lines: std::ops::Range<u32>) {
    append_text(path, &lines.map(|n| format!("{n}\n")).collect::<String>());
}

fn append_text(path: &Path, text: &str) {
    use std::io::Write as _;
    let mut file = fs::File::options().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_job_that_is_ended_at_once_again_and_again_loses_nothing_and_doubles_nothing() {
    let folder = Folder::new();
    for file in ["a.csv", "b.csv"] {
        fs::write(folder.path(file), "n\n").unwrap();
    }
    let mut kept = String::new();
    for round in 0..8_u32 {
        let node = folder.node(1 + round as usize % 3);
        let job = folder.start(&node, FILES).unwrap();
        append(&folder.path("a.csv"), round * 1_000..(round + 1) * 1_000);
        append(&folder.path("b.csv"), 100_000 + round * 1_000..100_000 + (round + 1) * 1_000);
        // At any moment: before anything was read, in the middle, after all was committed.
        let wanted = u64::from(round) * 300;
        eventually("some records", || job.stats().records >= wanted.min(2_000));
        let before = job.cycles().unwrap().committed;
        if round % 2 == 1 {
            eventually("a commit", || job.cycles().unwrap().committed > before + 1);
            kept = folder.read("out.ndjson");
        }
        job.abort();
        assert_eq!(job.wait().state, JobState::Aborted);
        drop(node);
    }
    let node = folder.node(2);
    let job = folder.start(&node, FILES).unwrap();
    job.drain();
    assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
    let out = folder.read("out.ndjson");
    let numbers: Vec<u32> =
        out.lines().map(|line| line[5..line.len() - 1].parse().expect("{\"n\":…}")).collect();
    let of = |first: u32| -> Vec<u32> {
        numbers.iter().copied().filter(|n| (first..first + 100_000).contains(n)).collect()
    };
    assert_eq!(
        of(0),
        (0..8_000).step_by(2).collect::<Vec<u32>>(),
        "every record once, in the order of its file"
    );
    assert_eq!(of(100_000), (100_000..108_000).step_by(2).collect::<Vec<u32>>());
    // Committed records that a reader saw before the last kill are there to the byte, in the same order.
    let common = kept.bytes().zip(out.bytes()).take_while(|(one, other)| one == other).count();
    assert!(common > 0 && kept.len() - common < 40_000, "{common} of {} bytes", kept.len());
}

#[test]
fn a_job_that_is_done_goes_on_when_its_file_has_grown() {
    let folder = Folder::new();
    let text = FILES.replace("follow: true, poll: 1ms, ", "");
    for file in ["a.csv", "b.csv"] {
        fs::write(folder.path(file), "n\n2\n").unwrap();
    }
    assert_eq!(folder.run(&text).summary.records, 2);
    let once = folder.read("out.ndjson");
    assert_eq!(once, "{\"n\":2}\n{\"n\":2}\n");
    assert_eq!(folder.run(&text).summary.records, 0);
    assert_eq!(folder.read("out.ndjson"), once, "nothing is written twice, or emptied");
    append(&folder.path("a.csv"), 4..5);
    assert_eq!(folder.run(&text).summary.records, 1);
    assert_eq!(folder.read("out.ndjson"), once + "{\"n\":4}\n");
}

const HTTP: &str = "
name: door
cycle: { every: 20ms }
sources:
  posts: { type: http, format: ndjson, schema: { n: int64 }, ack: ACK }
sinks:
  out: { type: file, input: posts, path: DIR/out.ndjson, format: ndjson }
";

/// Posts a record, every other one for no answer, and waits until it is acknowledged; whether it was.
fn post(job: &RunningJob, n: u32) -> bool {
    let door = job.ingress("posts").expect("the source has a door");
    let body = Bytes::from(format!("{{\"n\":{n}}}"));
    let wants_reply = n.is_multiple_of(2);
    let mut replies = match door.submit(body, wants_reply).map(|submitted| submitted.replies) {
        Ok(Some(replies)) => replies,
        // At once: nothing was promised.
        Ok(None) => return true,
        Err(_) => return false,
    };
    let begun = loop {
        match replies.poll_begin(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(begun) => break begun,
            Poll::Pending => std::thread::yield_now(),
        }
    };
    assert!(begun.as_ref().map_or(true, |begun| begun.is_any_accepted == wants_reply), "{begun:?}");
    begun.is_ok()
}

#[test]
fn what_was_acknowledged_over_http_is_there_after_the_end() {
    for ack in ["synced", "written", "none"] {
        let folder = Folder::new();
        let text = HTTP.replace("ACK", ack);
        let (mut next, mut acknowledged) = (0, Vec::new());
        for round in 0..6 {
            let node = folder.node(2);
            let job = folder.start(&node, &text).unwrap();
            std::thread::scope(|scope| {
                let (job, first) = (&job, next);
                let poster = scope.spawn(move || {
                    let mut answered = Vec::new();
                    for n in first.. {
                        if !post(job, n) {
                            return (n + 1, answered);
                        }
                        answered.push(n);
                    }
                    unreachable!("the job ends before the numbers do")
                });
                eventually("some answers", || job.stats().records > 20 * round);
                job.abort();
                let (after, answered) = poster.join().unwrap();
                next = after;
                acknowledged.extend(answered);
            });
            job.wait();
        }
        let node = folder.node(1);
        let job = folder.start(&node, &text).unwrap();
        job.drain();
        assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
        let numbers: Vec<u32> = folder
            .read("out.ndjson")
            .lines()
            .map(|line| line[5..line.len() - 1].parse().expect("{\"n\":…}"))
            .collect();
        assert!(
            numbers.is_sorted() && numbers.windows(2).all(|pair| pair[0] < pair[1]),
            "ack {ack}: once each"
        );
        if ack == "synced" {
            let missing: Vec<&u32> =
                acknowledged.iter().filter(|n| numbers.binary_search(n).is_err()).collect();
            assert_eq!(missing, Vec::<&u32>::new(), "of {}", acknowledged.len());
        }
        assert!(acknowledged.len() > 20, "ack {ack}: {}", acknowledged.len());
    }
}

#[test]
fn a_journal_that_lost_what_it_had_synced_stops_the_job_and_is_left_as_it_is() {
    for ack in ["synced", "written"] {
        let folder = Folder::new();
        let text = HTTP.replace("ACK", ack).replace("20ms", "1h");
        let node = folder.node(1);
        let job = folder.start(&node, &text).unwrap();
        assert!((0..5).all(|n| post(&job, n)));
        job.abort();
        job.wait();
        drop((job, node));
        let path = folder.path("data/jobs/door/journal/posts/journal-00000000000000000000.thl");
        let whole = fs::read(&path).unwrap();
        let last = whole.iter().rposition(|byte| *byte != 0).unwrap();
        let mut flipped = whole.clone();
        flipped[last] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let node = folder.node(1);
        let started = folder.start(&node, &text);
        if ack == "written" {
            // As after a power cut, which takes unsynced writes.
            let job = started.unwrap();
            job.drain();
            assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
            assert_eq!(folder.read("out.ndjson").lines().count(), 4);
            continue;
        }
        let error = started.err().expect("it is refused");
        drop(node);
        assert_eq!(error.class(), Class::Corrupt, "{error}");
        assert!(error.message().contains("journal-00000000000000000000.thl\" at byte "), "{error}");
        assert!(error.message().contains("which had been synced"), "{error}");
        assert!(fs::read(&path).unwrap() == flipped, "it is looked at before it is cut");

        fs::remove_file(&path).unwrap();
        let error = folder.start(&folder.node(1), &text).err().expect("it is refused");
        assert!(error.message().contains("ends with offset 0"), "{error}");

        fs::write(&path, &whole).unwrap();
        let node = folder.node(1);
        let job = folder.start(&node, &text).unwrap();
        job.drain();
        assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
        assert_eq!(folder.read("out.ndjson").lines().count(), 5);
    }
}

#[test]
fn what_a_job_cannot_go_on_with_is_refused_before_anything_is_touched() {
    let folder = Folder::new();
    fs::write(folder.path("a.csv"), "n\n2\n3\n").unwrap();
    let text = "
name: files
sources:
  a: { type: file, path: DIR/a.csv, format: csv, schema: { n: int64 } }
operators:
  m: { type: metrics, input: a, partition_by: [n], partitions: 2, queries: { q: SELECT count(*) AS n FROM a GROUP BY n OVER INFINITE } }
sinks:
  out: { type: file, input: m, path: DIR/out.ndjson, format: ndjson }
";
    folder.run(text);
    let kept = (folder.read("out.ndjson"), folder.read("data/jobs/files/job.json"));
    for (from, to, said) in [
        ("partitions: 2", "partitions: 3", "operator \"m\" had 2 partitions, it has 3 now"),
        ("  a: {", "  b: {", "source \"a\" is gone"),
    ] {
        let mut changed = text.replace(from, to);
        if to.contains("b:") {
            changed = changed.replace("input: a", "input: b").replace("FROM a", "FROM b");
        }
        let error = folder.start(&folder.node(1), &changed).err().expect("it is refused");
        assert!(error.message().contains(said), "{error}");
        assert_eq!(error.class(), Class::User);
        assert!(error.hint().is_some_and(|hint| hint.contains("another name")), "{error:?}");
        assert_eq!((folder.read("out.ndjson"), folder.read("data/jobs/files/job.json")), kept);
    }
    fs::write(folder.path("a.csv"), "n\n9\n3\n").unwrap();
    let error = folder.start(&folder.node(1), text).err().expect("it is another file");
    assert!(error.message().contains("its first 6 bytes differ"), "{error}");
    fs::write(folder.path("a.csv"), "n\n2\n3\n").unwrap();
    fs::write(folder.path("out.ndjson"), "").unwrap();
    let error = folder.start(&folder.node(1), text).err().expect("the sink's file lost what was committed");
    assert_eq!(error.class(), Class::Corrupt, "{error}");
}

#[test]
fn damage_stops_the_job_and_names_file_and_byte() {
    let folder = Folder::new();
    let text = FILES.replace("follow: true, poll: 1ms, ", "");
    for file in ["a.csv", "b.csv"] {
        fs::write(folder.path(file), "n\n2\n").unwrap();
    }
    folder.run(&text);
    let path = folder.path("data/jobs/files/commit.log");
    let mut bytes = fs::read(&path).unwrap();
    bytes[40] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = folder.start(&folder.node(1), &text).err().expect("it is refused");
    assert_eq!(error.class(), Class::Corrupt);
    let message = error.chain();
    assert!(message.contains("commit.log") && message.contains("at byte 24"), "{message}");
}

#[test]
fn rejects_are_kept_once_with_their_counts() {
    let folder = Folder::new();
    let text = FILES.replace("schema: { n: int64 } }", "schema: { n: int64 }, reject_limit: 50 }");
    for file in ["a.csv", "b.csv"] {
        fs::write(folder.path(file), "n\n").unwrap();
    }
    for round in 0..5 {
        let node = folder.node(2);
        let job = folder.start(&node, &text).unwrap();
        append_text(&folder.path("a.csv"), &format!("bad {round}\n{round}\n"));
        eventually("the reject", || job.rejects().total() == round + 1);
        job.abort();
        job.wait();
    }
    let node = folder.node(2);
    let job = folder.start(&node, &text).unwrap();
    job.drain();
    assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
    assert_eq!(job.rejects().by_source()["a"]["parse"], 5);
    let kept = folder.read("data/jobs/files/rejects/rejects-0.ndjson");
    let reasons: Vec<&str> = kept.lines().filter_map(|line| line.split("got ").nth(1)).collect();
    assert_eq!(reasons.len(), 5, "{kept}");
    assert!((0..5).all(|round| reasons[round].contains(&format!("bad {round}"))), "{kept}");
}

const WINDOWS: &str = "
name: windows
cycle: { every: 5ms }
state: { backend: BACKEND }
sources:
  p:
    type: file
    path: DIR/p.csv
    follow: true
    poll: 1ms
    format: csv
    schema: { ts: timestamp(ms), id: string, card: string, shop: string, amount: float64? }
    time: ts
    lateness: 2s
    id: id
    dedup: 10s
operators:
  m:
    type: metrics
    input: p
    partition_by: [card, shop, []]
    partitions: 2
    queries:
      minute: SELECT sum(amount) AS sum, count(*) AS n, min(amount) AS low, max(amount) AS high FROM p GROUP BY card OVER SLIDING 1 MINUTE
      before: SELECT avg(amount) AS mean, stddev(amount) AS dev, last(id) AS id FROM p GROUP BY card OVER SLIDING 20 SECONDS DELAYED BY 5 SECONDS
      shops: SELECT count(distinct card) AS cards, quantile(amount, 0.5) AS median FROM p WHERE amount > 1 GROUP BY shop OVER SLIDING 30 SECONDS
      hour: SELECT count(*) AS n, first(id) AS first FROM p GROUP BY shop OVER TUMBLING 1 MINUTE
      rows: SELECT sum(amount) AS sum FROM p GROUP BY card OVER ROWS 5
      ever: SELECT count(*) AS n, sum(amount) AS sum FROM p OVER INFINITE
sinks:
  out: { type: file, input: m, path: DIR/out.ndjson, format: ndjson }
";

/// Payments in 500 s: out of order, some late, some twice.
fn payments(count: u64) -> Vec<String> {
    let mut random = Rng::with_seed(7);
    let mut next = |below: u64| random.u64(..below);
    (0..count)
        .map(|n| {
            let jitter = if next(50) == 0 { next(4_000) } else { next(300) };
            let time = 1_700_000_000_000 + n * 500_000 / count - jitter;
            let id = if next(20) == 0 { n.saturating_sub(next(100)) } else { n };
            let amount =
                if next(10) == 0 { String::new() } else { format!("{}", next(100_000) as f64 / 7.0) };
            format!("{time},i{id},c{},s{},{amount}\n", next(300), next(17))
        })
        .collect()
}

/// The answers of a run that nothing disturbs, and those of one that is ended at once again and again.
fn with_and_without_ends(backend: &str, lines: &[String]) -> (String, String) {
    let text = WINDOWS.replace("BACKEND", backend);
    let calm = Folder::new();
    fs::write(calm.path("p.csv"), format!("ts,id,card,shop,amount\n{}", lines.concat())).unwrap();
    calm.run(&text.replace("    follow: true\n    poll: 1ms\n", ""));

    let folder = Folder::new();
    fs::write(folder.path("p.csv"), "ts,id,card,shop,amount\n").unwrap();
    let (mut recovered, mut rounds) = (0, 0);
    for (round, part) in lines.chunks(lines.len().div_ceil(10)).enumerate() {
        let node = folder.node(1 + round % 3);
        let job = folder.start(&node, &text).unwrap();
        append_text(&folder.path("p.csv"), &part.concat());
        if round % 3 != 0 {
            eventually("a commit", || job.cycles().unwrap().committed > 0);
        }
        let wanted = part.len() as u64 * (round as u64 % 4) / 4;
        eventually("some records", || job.stats().records >= wanted);
        recovered += u64::from(job.cycles().unwrap().committed > 0);
        rounds += 1;
        job.abort();
        job.wait();
    }
    assert!(rounds == 10 && recovered > 3, "{recovered} of {rounds} rounds had something to go on from");
    let node = folder.node(2);
    let job = folder.start(&node, &text).unwrap();
    job.drain();
    let end = job.wait_timeout(LIMIT).expect("it drains");
    assert_eq!(end.state, JobState::Done, "{:?}", end.failure());
    (calm.read("out.ndjson"), folder.read("out.ndjson"))
}

#[test]
fn windows_go_on_with_the_same_answers_to_the_bit() {
    let bounded =
        ["indexed, memory: 64KiB", "indexed, memory: 64KiB, recovery: lazy", "indexed, memory: 64MiB"];
    for backend in ["indexed", "files"].into_iter().chain(bounded) {
        let lines = payments(if backend == "files" { 2_000 } else { 20_000 });
        let (calm, disturbed) = with_and_without_ends(backend, &lines);
        assert_eq!(calm.lines().count(), lines.len(), "every record has an answer");
        let differs = calm.lines().zip(disturbed.lines()).position(|(one, other)| one != other);
        if let Some(at) = differs {
            panic!("{backend}: line {at}: {:?} and {:?}", calm.lines().nth(at), disturbed.lines().nth(at));
        }
        assert_eq!(calm.len(), disturbed.len(), "{backend}");
    }
}

/// One count per key.
const KEYS: &str = "
name: keys
cycle: { every: 5ms }
state: { memory: 64MiB, recovery: RECOVERY }
sources:
  a: { type: file, path: DIR/a.csv, follow: true, poll: 1ms, format: csv, schema: { n: int64 } }
operators:
  m: OPERATOR
sinks:
  out: { type: file, input: m, path: DIR/out.ndjson, format: ndjson }
";
const GROUPS: &str = "{ type: metrics, input: a, partition_by: [[n]], queries: { q: SELECT count(*) AS n FROM a GROUP BY n OVER INFINITE } }";
const ELEMENTS: &str = "{ type: count, input: a, key: n }";

#[test]
fn a_restart_reads_groups_and_elements_back_ahead_of_their_use_or_on_it() {
    for (operator, second) in [(GROUPS, "\"q\":{\"n\":2}"), (ELEMENTS, "\"count\":2}")] {
        let text = KEYS.replace("OPERATOR", operator);
        let [eager, lazy] = ["eager", "lazy"].map(|recovery| restarted(&text, recovery));
        assert_eq!(eager.lines().filter(|line| line.contains(second)).count(), 100, "{operator}");
        assert!(eager == lazy, "{operator}: answers depend on how state comes back");
    }
}

/// The answers of a job for 3,000 keys, then, after a restart, for 100 of them.
fn restarted(text: &str, recovery: &str) -> String {
    const COUNT: u32 = 3_000;
    let (folder, text) = (Folder::new(), text.replace("RECOVERY", recovery));
    fs::write(folder.path("a.csv"), "n\n").unwrap();
    append(&folder.path("a.csv"), 0..COUNT);
    let start = || {
        let node = folder.node(2);
        let job = folder.start(&node, &text).unwrap();
        (node, job)
    };
    let (node, job) = start();
    eventually("all records", || job.stats().records >= u64::from(COUNT));
    job.drain();
    assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
    drop((job, node));

    let (_node, job) = start();
    let cache = || {
        let stats = job.stats();
        let tasks = stats.operators.iter().flat_map(|operator| &operator.tasks);
        tasks.filter_map(|task| task.cache).reduce(CacheCounts::plus).unwrap_or_default()
    };
    let all = u64::from(COUNT);
    if recovery == "eager" {
        eventually("state is in memory", || cache().keys == all);
        assert_eq!((cache().filled, cache().misses), (all, 0));
    } else {
        let first = job.stats().tick;
        eventually("ticks", || job.stats().tick > first + 500_000);
        assert_eq!((cache().keys, cache().filled), (0, 0));
    }
    append(&folder.path("a.csv"), 0..100);
    eventually("new records", || job.stats().records >= 100);
    job.drain();
    assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
    let misses = if recovery == "eager" { 0 } else { 100 };
    assert_eq!(cache().misses, misses, "{recovery}");
    folder.read("out.ndjson")
}

/// Elements over a back end that has little memory for them.
const COUNTS: &str = "
name: counts
cycle: { every: 5ms }
state: { memory: 64KiB, recovery: RECOVERY }
sources:
  a: { type: file, path: DIR/a.csv, follow: true, poll: 1ms, format: csv, schema: { n: int64 } }
operators:
  keys: { type: map, input: a, select: { k: n % 500 } }
  counts: { type: count, input: keys, key: k, checkpoint: { every: 200 records } }
  once: { type: changes, input: keys, key: k, value: k }
sinks:
  counts: { type: file, input: counts, path: DIR/counts.ndjson, format: ndjson }
  once: { type: file, input: once, path: DIR/once.ndjson, format: ndjson }
";

#[test]
fn elements_go_on_where_they_stood_however_often_the_job_is_ended_at_once() {
    const ROUNDS: u32 = 6;
    let folder = Folder::new();
    fs::write(folder.path("a.csv"), "n\n").unwrap();
    for round in 0..ROUNDS {
        let node = folder.node(1 + round as usize % 3);
        let recovery = if round % 2 == 0 { "lazy" } else { "eager" };
        let job = folder.start(&node, &COUNTS.replace("RECOVERY", recovery)).unwrap();
        append(&folder.path("a.csv"), round * 2_000..(round + 1) * 2_000);
        eventually("some records", || job.stats().records >= u64::from(round) * 300);
        let before = job.cycles().unwrap().committed;
        if round % 2 == 1 {
            eventually("a commit", || job.cycles().unwrap().committed > before + 1);
        }
        job.abort();
        assert_eq!(job.wait().state, JobState::Aborted);
        drop(node);
    }
    let node = folder.node(2);
    let job = folder.start(&node, &COUNTS.replace("RECOVERY", "eager")).unwrap();
    let is_all = || folder.read("counts.ndjson").lines().count() >= (ROUNDS * 2_000) as usize;
    eventually("all records", is_all);
    job.drain();
    assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);

    let mut expected: Vec<String> = (1..=ROUNDS * 4)
        .flat_map(|count| (0..500).map(move |key| format!("{{\"k\":{key},\"count\":{count}}}")))
        .collect();
    expected.sort_unstable();
    let counts = folder.read("counts.ndjson");
    let mut found: Vec<&str> = counts.lines().collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(folder.read("once.ndjson").lines().count(), 500, "the first of each key, over all lives");
}

#[test]
fn a_source_that_lets_more_through_than_its_journal_takes_is_refused() {
    let folder = Folder::new();
    let text = HTTP.replace("ACK", "synced").replace("schema:", "max_record: 64MiB, schema:");
    let error = folder.start(&folder.node(1), &text).err().expect("it is refused");
    assert_eq!(error.class(), Class::User, "{error}");
    assert!(error.chain().contains("max_record: a journal takes records of at most 16MiB"), "{error}");
    // Without a journal it may be.
    let node = Node::builder().workers(1).open().unwrap();
    folder.start(&node, &text).unwrap().drain();
}
