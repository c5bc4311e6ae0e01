//! Nodes whose job writes to topics, while one is killed, one leaves, and both come back: what readers of the topics have is
//! each answer once, the one that the client got.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::super::super::{eventually, lasting_port, signal};
use super::super::{Place, broker, read, read_all, run, tool, topic};
use super::{Node, by_position, job_file, object_in, post, sink, writing_to};

const SOURCE: &str = "lateness: 1h, id: tx, dedup: 1h, \
    schema: { tx: string, ts: timestamp(ms), card: string, shop: string }";

const QUERIES: [&str; 2] = [
    "by_card: SELECT count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR",
    "by_shop: SELECT count(*) AS n FROM payments GROUP BY shop OVER SLIDING 1 HOUR",
];

const PAYMENTS: u64 = 240;

struct Cluster<'a> {
    place: &'a Place,
    prefix: String,
    job: String,
    nodes: BTreeMap<&'static str, Node>,
    /// By `tx`, what the client was answered; not where it was told that the payment had been counted before.
    answered: BTreeMap<String, Value>,
}

impl Cluster<'_> {
    fn start(&mut self, name: &'static str) {
        let node = Node::start(self.place, &broker(), &self.prefix, name, lasting_port());
        assert!(self.nodes.insert(name, node).is_none());
    }

    /// Waits until a node has units that answer and write.
    fn await_units(&self, name: &str) {
        let server = format!("http://127.0.0.1:{}", self.nodes["a"].port);
        eventually("it has units", || {
            let listed = self.place.thalweg(&["nodes", "--server", &server]).ends_with(0).stdout;
            let mut lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
            let line = lines.find(|line| line.first() == Some(&name))?;
            (line.get(4)?.parse::<u32>().ok()? > 0).then_some(())
        });
    }

    /// Sends a payment to one node after the other until one answers.
    fn pay(&mut self, number: u64) {
        let body = format!(
            "{{\"tx\":\"t{number}\",\"ts\":1700000000000,\"card\":\"c{}\",\"shop\":\"s{}\"}}",
            number % 17,
            number % 5
        );
        let mut nodes = self.nodes.values().cycle().skip(number as usize % self.nodes.len());
        let answer = eventually("an answer", || {
            let node = nodes.next().expect("a node");
            match post(node.port, &self.job, &body, Duration::from_secs(30)) {
                Ok((200, said)) if said.contains("\"by_shop\"") => Some(said),
                Ok((200 | 404 | 429 | 503 | 504, _)) | Err(_) => None,
                Ok(said) => panic!("payment {number}: {said:?}"),
            }
        });
        let answer = object_in(&answer).expect("an answer");
        if !is_duplicate(&answer) {
            self.answered.insert(format!("t{number}"), answer);
        }
    }
}

fn is_duplicate(answer: &Value) -> bool {
    answer.get("duplicate").is_some_and(|stages| !stages.is_null())
}

/// What was counted of an answer.
fn counts(answer: &Value) -> (&Value, &Value) {
    (&answer["by_card"]["n"], &answer["by_shop"]["n"])
}

/// How many rows of a topic can be read.
fn rows_of(topic: &str) -> usize {
    let said = run(tool("org.apache.kafka.tools.GetOffsetShell", &["--topic", topic]));
    said.lines().filter_map(|line| line.rsplit(':').next()?.parse::<usize>().ok()).sum()
}

/// Each payment has one row that is none of a repeated one, and that is what the client was answered.
fn assert_once(answered: &BTreeMap<String, Value>, rows: impl Iterator<Item = Value>, what: &str) {
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for row in rows.filter(|row| !is_duplicate(row)) {
        found.entry(row["tx"].as_str().expect("a tx").to_owned()).or_default().push(row);
    }
    let wrong: Vec<(u64, usize)> = (0..PAYMENTS)
        .map(|number| (number, found.get(&format!("t{number}")).map_or(0, Vec::len)))
        .filter(|(_, rows)| *rows != 1)
        .collect();
    assert_eq!((wrong, found.len() as u64), (Vec::new(), PAYMENTS), "{what}: payments, and how many rows");
    for (tx, answer) in answered {
        assert_eq!(counts(&found[tx][0]), counts(answer), "{what}: {tx}");
    }
}

#[test]
#[ignore = "needs Kafka"]
fn what_a_job_writes_comes_once_whoever_is_killed_or_leaves() {
    let (once, doubled) = (topic("written", &[]), topic("written-by-position", &[]));
    let name = format!("writing{}", std::process::id());
    let sink = |name, topic: &str, delivery| sink(&broker(), name, topic, delivery);
    let sinks = [sink("once", &once, "transactions"), sink("marked", &doubled, "positions")].concat();
    let job = writing_to(&job_file(&name, SOURCE, &QUERIES), &sinks);
    let place = Place::with(&[("job.yaml", &job)]);
    let mut cluster = Cluster {
        place: &place,
        prefix: format!("writing-{}", std::process::id()),
        job: name,
        nodes: BTreeMap::new(),
        answered: BTreeMap::new(),
    };
    ["a", "b", "c"].into_iter().for_each(|name| cluster.start(name));
    for number in 0..PAYMENTS {
        match number {
            // Those that came back have followed, and write by now.
            139 => cluster.await_units("b"),
            219 => cluster.await_units("c"),
            60 => drop(cluster.nodes.remove("b").expect("it runs").run.kill()),
            100 => cluster.start("b"),
            140 => {
                let mut c = cluster.nodes.remove("c").expect("it runs");
                signal(c.run.child(), "-TERM");
                eventually("c leaves", || c.run.has_ended().then_some(()));
                assert!(place.read(&c.log).contains("has left the cluster"), "{}", place.read(&c.log));
            }
            180 => cluster.start("c"),
            _ => {}
        }
        cluster.pay(number);
    }
    // All have written all of it when they have left: by one's leave the others have its units.
    for name in ["a", "b", "c"] {
        let mut node = cluster.nodes.remove(name).expect("it runs");
        signal(node.run.child(), "-TERM");
        eventually("it leaves", || node.run.has_ended().then_some(()));
    }
    assert!(cluster.answered.len() as u64 > PAYMENTS / 2);
    let sent = read_all(&broker(), &once).into_iter().map(|(_, value)| value);
    assert_once(&cluster.answered, sent, "transactions");
    let rows = by_position(read(&doubled, rows_of(&doubled)), &format!("{}/marked", cluster.job));
    assert_once(&cluster.answered, rows.into_iter(), "positions");
}
