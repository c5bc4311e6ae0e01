//! A client that pays until it is answered, at nodes that come and go, and what a job has written of its payments.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::super::super::{eventually, lasting_port, signal};
use super::super::{Place, read_all};
use super::{Node, by_position, call, job_file, object_in, post, sink, writing_to};

const SOURCE: &str = "lateness: 1h, id: tx, dedup: 1h, \
    schema: { tx: string, ts: timestamp(ms), card: string, shop: string }";

pub(super) const QUERIES: [&str; 2] = [
    "by_card: SELECT count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR",
    "by_shop: SELECT count(*) AS n FROM payments GROUP BY shop OVER SLIDING 1 HOUR",
];

/// A job that writes its answers to two topics at `brokers`: by transactions, and by positions.
pub(super) fn job(name: &str, brokers: &str, (once, marked): (&str, &str)) -> String {
    let sink = |name, topic: &str, delivery| sink(brokers, name, topic, delivery);
    let sinks = [sink("once", once, "transactions"), sink("marked", marked, "positions")].concat();
    writing_to(&job_file(name, SOURCE, &QUERIES), &sinks)
}

/// Nodes that run such a job.
pub(super) struct Cluster<'a> {
    place: &'a Place,
    /// One or some, with commas between them.
    brokers: String,
    prefix: String,
    job: String,
    nodes: BTreeMap<&'static str, Node>,
    /// By `tx`, what the client was answered; not where it was told that the payment had been counted before.
    answered: BTreeMap<String, Value>,
    paid: u64,
}

impl<'a> Cluster<'a> {
    pub(super) fn new(place: &'a Place, brokers: String, prefix: String, job: String) -> Self {
        Self { place, brokers, prefix, job, nodes: BTreeMap::new(), answered: BTreeMap::new(), paid: 0 }
    }

    pub(super) fn start(&mut self, name: &'static str) {
        let node = Node::start(self.place, &self.brokers, &self.prefix, name, lasting_port());
        assert!(self.nodes.insert(name, node).is_none());
    }

    pub(super) fn kill(&mut self, name: &str) {
        self.nodes.remove(name).expect("it runs").run.kill();
    }

    /// Asks a node to leave, and waits until it has.
    pub(super) fn leave(&mut self, name: &str) {
        let mut node = self.nodes.remove(name).expect("it runs");
        signal(node.run.child(), "-TERM");
        eventually("it leaves", || node.run.has_ended().then_some(()));
    }

    /// Waits until records enter at a node.
    pub(super) fn await_ready(&self, name: &str) {
        let port = self.nodes[name].port;
        eventually("it is ready", || {
            let answer = call("GET", port, "/readyz", "", Duration::from_secs(5));
            answer.is_ok_and(|(status, _)| status == 200).then_some(())
        });
    }

    /// Waits until a node has units that answer and write.
    pub(super) fn await_units(&self, name: &str) {
        let server = format!("http://127.0.0.1:{}", self.nodes["a"].port);
        eventually("it has units", || {
            let listed = self.place.thalweg(&["nodes", "--server", &server]).ends_with(0).stdout;
            let mut lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
            let line = lines.find(|line| line.first() == Some(&name))?;
            (line.get(4)?.parse::<u32>().ok()? > 0).then_some(())
        });
    }

    /// Sends a payment to one node after the other until one answers.
    pub(super) fn pay(&mut self) {
        let number = self.paid;
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
        self.paid += 1;
    }

    /// Each payment has one row in each topic that is none of a repeated one, and that is what the client was answered.
    /// `marked` is all of the topic by positions.
    pub(super) fn recount(&self, once: &str, marked: Vec<(String, Value)>) {
        assert!(self.answered.len() as u64 > self.paid / 2, "most were answered, and not as duplicates");
        let sent = read_all(&self.brokers, once).into_iter().map(|(_, value)| value);
        self.assert_once(sent, "transactions");
        let rows = by_position(marked, &format!("{}/marked", self.job));
        self.assert_once(rows.into_iter(), "positions");
    }

    fn assert_once(&self, rows: impl Iterator<Item = Value>, what: &str) {
        let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for row in rows.filter(|row| !is_duplicate(row)) {
            found.entry(row["tx"].as_str().expect("a tx").to_owned()).or_default().push(row);
        }
        let wrong: Vec<(u64, usize)> = (0..self.paid)
            .map(|number| (number, found.get(&format!("t{number}")).map_or(0, Vec::len)))
            .filter(|(_, rows)| *rows != 1)
            .collect();
        assert_eq!(
            (wrong, found.len() as u64),
            (Vec::new(), self.paid),
            "{what}: payments, and how many rows"
        );
        for (tx, answer) in &self.answered {
            assert_eq!(counts(&found[tx][0]), counts(answer), "{what}: {tx}");
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
