//! Jobs whose sources are at a node: each record counts once, whatever becomes of that node and of the others.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::*;

/// A file that grows, and what of it has to count.
struct Payments {
    path: PathBuf,
    next: i64,
    tally: Tally,
}

impl Payments {
    fn new(folder: &Path) -> Self {
        let path = folder.join("payments.ndjson");
        fs::write(&path, "").unwrap();
        Self { path, next: 0, tally: Tally::default() }
    }

    fn job(&self) -> String {
        let at = format!("type: file\n    path: {}\n    node: b\n    follow: true", self.path.display());
        reading(&at)
    }

    /// Appends records, and some lines that are none.
    fn write(&mut self, records: i64) {
        let mut text = String::new();
        for n in self.next..self.next + records {
            text += &record(n);
            self.tally.add(n);
            if n % 10 == 9 {
                text += "no record\n";
            }
        }
        self.next += records;
        let mut file = OpenOptions::new().append(true).open(&self.path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
}

/// What is said of the unit that has the sources.
fn explained(peer: &Peer) -> String {
    let units = peer.cluster.view().snapshot(Some("j")).map(|said| said.units).unwrap_or_default();
    let unit = units.into_iter().find(|unit| unit.stage == "payments");
    unit.map(|unit| format!("{}{}", unit.explanation, unit.failure.unwrap_or_default())).unwrap_or_default()
}

#[test]
fn a_file_is_read_at_the_node_that_the_job_names_and_a_record_counts_once() {
    let site = Site::new();
    let mut payments = Payments::new(site.folder.path());
    payments.write(100);
    let a = site.join("a");
    a.submit(&payments.job());
    eventually("the unit waits for its node", || explained(&a).contains("binds it to node b"));
    eventually("the others are there", || a.are_spread(8, &["a"]));
    let b = site.join("b");
    payments.tally.are_counted(&[&a, &b], "q");
    eventually("units on both", || a.are_spread(9, &["a", "b"]));

    // It dies, in the middle of it, and again at once: what it reads waits, and nobody else has it.
    let mut b = Some(b);
    for _ in 0..3 {
        payments.write(300);
        drop(b.take());
        payments.write(50);
        b = Some(site.join("b"));
        payments.write(50);
    }
    let b = b.unwrap();
    payments.tally.are_counted(&[&a, &b], "q");

    // Others come, and leave.
    let c = site.join("c");
    payments.write(100);
    eventually("units on all", || c.are_spread(9, &["a", "b", "c"]));
    drop(a);
    payments.write(100);
    payments.tally.are_counted(&[&b, &c], "q");

    // It leaves in order, and has nobody to hand the unit over to.
    b.cluster.leave();
    payments.write(50);
    eventually("b has left", || b.cluster.has_left());
    drop(b);
    eventually("nobody has the unit", || c.are_spread(8, &["c"]));
    let b = site.join("b");
    payments.tally.are_counted(&[&b, &c], "q");
}

#[test]
fn a_job_that_reads_a_file_gets_new_queries_and_no_other_records() {
    let site = Site::new();
    let mut payments = Payments::new(site.folder.path());
    let (a, b) = (site.join("a"), site.join("b"));
    payments.write(100);
    a.submit(&payments.job());
    payments.tally.are_counted(&[&a, &b], "q");
    let more = "queries:\n      r: SELECT count(*) AS c, sum(n) AS s FROM some GROUP BY card OVER INFINITE\n";
    a.submit(&payments.job().replace("queries:\n", more));
    payments.write(100);
    payments.tally.are_counted(&[&a, &b], "q");

    for (from, to, why) in [
        ("n <> 13", "n <> 14", "the operators above the key are other ones"),
        ("max_ahead: none", "max_ahead: 1h", "would make other records"),
        ("node: b", "", "names no node that reads it"),
    ] {
        let failure = site.refusal_of(&payments.job().replace(from, to));
        assert!(failure.contains(why), "{failure}");
    }
}

#[test]
fn a_file_that_ends_is_read_once_and_longer_later() {
    let site = Site::new();
    let mut payments = Payments::new(site.folder.path());
    payments.write(100);
    let job = payments.job().replace("follow: true", "");
    let (a, b) = (site.join("a"), site.join("b"));
    a.submit(&job);
    payments.tally.are_counted(&[&a, &b], "q");
    let is_done = || {
        let units = b.cluster.view().snapshot(Some("j")).unwrap().units;
        units.iter().any(|unit| unit.stage == "payments" && unit.report.is_some())
    };
    eventually("the unit has a report", is_done);
    std::thread::sleep(Duration::from_millis(100));
    payments.write(100);
    // The node looks again when it starts.
    drop(b);
    let b = site.join("b");
    payments.tally.are_counted(&[&a, &b], "q");
}

#[test]
fn a_unit_of_a_file_does_not_begin_anew_without_its_folder_and_moves_with_it() {
    let site = Site::new();
    let mut payments = Payments::new(site.folder.path());
    let (a, b) = (site.join("a"), site.join("b"));
    payments.write(100);
    a.submit(&payments.job());
    payments.tally.are_counted(&[&a, &b], "q");
    drop(b);
    let folder = |node: &str| site.folder.path().join(node).join("jobs/j/units/payments");
    let aside = site.folder.path().join("aside");
    fs::rename(folder("b"), &aside).unwrap();
    payments.write(100);
    let b = site.join("b");
    eventually("it is refused", || {
        explained(&a).contains("was read before") || explained(&b).contains("was read before")
    });

    // Its folder comes to another node, which the job names then.
    a.submit(&payments.job().replace("node: b", "node: a"));
    eventually("the unit is at a", || explained(&a).contains("binds it to node a"));
    eventually("it is refused there, too", || explained(&a).contains("was read before"));
    fs::remove_dir_all(folder("a")).unwrap();
    fs::rename(&aside, folder("a")).unwrap();
    payments.tally.are_counted(&[&a, &b], "q");
}

/// What a file has: how often each number is there.
fn numbers_in(path: &Path) -> BTreeMap<i64, usize> {
    let mut found = BTreeMap::new();
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        // The last line may be on its way.
        let Ok(row) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        *found.entry(row["n"].as_i64().unwrap()).or_default() += 1;
    }
    found
}

#[test]
fn a_file_that_a_node_writes_has_each_row_once_whatever_becomes_of_that_node() {
    let site = Site::new();
    let path = site.folder.path().join("out.ndjson");
    let sink = format!("{{ type: file, path: {path:?}, format: ndjson, node: b, input: features }}");
    let job = JOB.replace("{ type: 'null', input: features }", &sink);
    let (a, b) = (site.join("a"), site.join("b"));
    a.submit(&job);
    eventually("a door", || a.has_door() && a.are_spread(9, &["a", "b"]));
    let mut next = 0;
    let mut post = |count: i64| {
        let records: Vec<(i64, i64, &str)> =
            (next..next + count).map(|n| (n, TIME + n, ["x", "y", "z"][n as usize % 3])).collect();
        next += count;
        a.post(&records).expect("all are answered");
        next
    };
    let are_written = |count: i64| {
        let expected = || (0..count).filter(|n| *n != 13).map(|n| (n, 1));
        eventually("each row is there once", || numbers_in(&path).into_iter().eq(expected()));
    };
    are_written(post(100));
    // Some rows are in the file and in no commit, and some come while it is away.
    let mut b = Some(b);
    for _ in 0..3 {
        post(50);
        drop(b.take());
        eventually("its other units are at a", || a.are_spread(8, &["a"]));
        post(50);
        b = Some(site.join("b"));
        eventually("units on both", || a.are_spread(9, &["a", "b"]));
    }
    are_written(post(50));

    let written = |name: &str, sink: &str| {
        JOB.replace("out: { type: 'null', input: features }", &format!("{name}: {sink}"))
    };
    let to_topic = "{ type: kafka, brokers: \"nowhere:1\", topic: t, node: b, input: features }";
    for (text, why) in [
        (written("out", &sink.replace("node: b, ", "")), "which units do not write to yet"),
        (written("out", to_topic), "which the units write wherever they are"),
        (written("features", &sink), "something else of the job has its name"),
        (written("out", &sink.replace("input: features", "input: some")), "is above the key of"),
        (
            CHAIN.replace("out: { type: 'null', input: features }", &format!("features-1: {sink}")),
            "two stages of the job have the name \"features-1\"",
        ),
    ] {
        let job = JobFile::parse("j.yaml", &text, &[]).and_then(|file| file.check(a.node.check_options()));
        let failure = a.cluster.submit(&job.unwrap_or_else(|mistakes| panic!("{mistakes}"))).unwrap_err();
        assert!(failure.to_string().contains(why), "{failure}");
    }
}
