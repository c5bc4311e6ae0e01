//! A job that reads a topic of others, or a file at one of three nodes, and writes to a topic, while nodes are killed, leave and come
//! back: each record has counted once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use super::super::{PARTITIONS, Place, TOPICS, broker, fill, read, read_all, run, tool, topic};
use super::paying::{Cluster, QUERIES};
use super::{job_reading, sink, writing_to};

/// Messages that are written at a time, and how often.
const SOME: u64 = 200;
const ROUNDS: u64 = 8;

/// From where the job reads.
enum From {
    /// A topic of others, which the nodes divide.
    Topic(String),
    /// A file at the node `b`.
    File(PathBuf),
}

impl From {
    fn source(&self) -> String {
        match self {
            Self::Topic(topic) => {
                format!("type: kafka, brokers: {:?}, topics: [{topic}], refresh: 1s", broker())
            }
            Self::File(path) => {
                format!("type: file, path: {path:?}, format: ndjson, follow: true, node: b")
            }
        }
    }

    /// Gives a topic more partitions.
    fn grow(&self) {
        if let Self::Topic(topic) = self {
            let partitions = (PARTITIONS + 2).to_string();
            run(tool(TOPICS, &["--alter", "--topic", topic, "--partitions", &partitions]));
        }
    }

    /// Writes the payments from a number on. Keys decide the partition, so every card is in one of them until there are more,
    /// and shops are in all.
    fn write(&self, from: u64) {
        let payment = |number: u64| {
            let (card, shop) = (number % 17, number % 5);
            let payment = format!(
                "{{\"tx\":\"t{number}\",\"ts\":1700000000000,\"card\":\"c{card}\",\"shop\":\"s{shop}\"}}\n"
            );
            if matches!(self, Self::Topic(_)) { format!("c{card}\t{payment}") } else { payment }
        };
        let payments: String = (from..from + SOME).map(payment).collect();
        match self {
            Self::Topic(topic) => fill(topic, &payments),
            Self::File(path) => {
                let mut file = File::options().create(true).append(true).open(path).expect("a file");
                file.write_all(payments.as_bytes()).expect("it is written");
            }
        }
    }
}

fn job(name: &str, from: &From, to: &str) -> String {
    let source = format!(
        "{}, lateness: 1h, schema: {{ tx: string, ts: timestamp(ms), card: string, shop: string }}",
        from.source()
    );
    writing_to(&job_reading(name, &source, &QUERIES), &sink(&broker(), "once", to, "transactions"))
}

#[test]
#[ignore = "needs Kafka"]
fn a_message_of_a_topic_counts_once_whichever_nodes_read_it() {
    counts_once(|_| From::Topic(topic("payments", &[])), "reading");
}

#[test]
#[ignore = "needs Kafka"]
fn a_line_of_a_file_counts_once_whatever_becomes_of_its_node() {
    counts_once(|place| From::File(place.path().join("payments.ndjson")), "filed");
}

fn counts_once(from: impl FnOnce(&Place) -> From, name: &str) {
    let to = topic("counted", &[]);
    let name = format!("{name}{}", std::process::id());
    let place = Place::with(&[]);
    let from = from(&place);
    from.write(0);
    place.write("job.yaml", job(&name, &from, &to).as_bytes());
    let mut cluster = Cluster::new(&place, broker(), name.clone(), name);
    ["a", "b", "c"].into_iter().for_each(|name| cluster.start(name));
    ["a", "b", "c"].into_iter().for_each(|name| cluster.await_ready(name));
    ["b", "c"].into_iter().for_each(|name| cluster.await_units(name));
    for round in 1..ROUNDS {
        from.write(round * SOME);
        match round {
            1 => cluster.kill("b"),
            2 => from.grow(),
            3 => cluster.start("b"),
            4 => cluster.await_units("b"),
            5 => cluster.kill("a"),
            6 => cluster.start("a"),
            _ => {}
        }
    }
    cluster.await_ready("a");
    cluster.await_units("a");
    cluster.leave("c");
    let count = SOME * ROUNDS;
    let rows = read(&to, count as usize);
    let mut found: BTreeMap<&str, u32> = BTreeMap::new();
    let mut cards: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut shops: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (_, row) in &rows {
        let text = |field: &str| row[field].as_str().expect("a text");
        let counted = |query: &str| row[query]["n"].as_u64().expect("a count");
        *found.entry(text("tx")).or_default() += 1;
        cards.entry(text("card")).or_default().push(counted("by_card"));
        shops.entry(text("shop")).or_default().push(counted("by_shop"));
    }
    assert_eq!((found.len() as u64, found.values().max()), (count, Some(&1)), "each once");
    // Whichever comes first: each of a key has counted all before it, and itself.
    for (key, mut counts) in cards.into_iter().chain(shops) {
        counts.sort_unstable();
        assert_eq!(counts, (1..=counts.len() as u64).collect::<Vec<u64>>(), "{key}");
    }
    ["a", "b"].into_iter().for_each(|name| cluster.leave(name));
    assert_eq!(read_all(&broker(), &to).len() as u64, count, "and nothing more");
}
