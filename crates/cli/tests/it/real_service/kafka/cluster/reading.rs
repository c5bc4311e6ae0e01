//! A job that reads a topic of others on three nodes and writes to another one, while nodes are killed, leave and come back: each
//! message has counted once.

use std::collections::BTreeMap;

use super::super::{Place, broker, fill, read, read_all, topic};
use super::paying::{Cluster, QUERIES};
use super::{job_reading, sink, writing_to};

/// Messages that are written at a time, and how often.
const SOME: u64 = 200;
const ROUNDS: u64 = 8;

fn job(name: &str, from: &str, to: &str) -> String {
    let brokers = broker();
    let source = format!(
        "type: kafka, brokers: {brokers:?}, topics: [{from}], lateness: 1h, \
         schema: {{ tx: string, ts: timestamp(ms), card: string, shop: string }}"
    );
    writing_to(&job_reading(name, &source, &QUERIES), &sink(&brokers, "once", to, "transactions"))
}

/// Keys decide the partition, so every card is in one of them, and shops are in all.
fn payments(from: u64) -> String {
    let payment = |number: u64| {
        let (card, shop) = (number % 17, number % 5);
        format!(
            "c{card}\t{{\"tx\":\"t{number}\",\"ts\":1700000000000,\"card\":\"c{card}\",\"shop\":\"s{shop}\"}}\n"
        )
    };
    (from..from + SOME).map(payment).collect()
}

#[test]
#[ignore = "needs Kafka"]
fn a_message_of_a_topic_counts_once_whichever_nodes_read_it() {
    let (from, to) = (topic("payments", &[]), topic("counted", &[]));
    let name = format!("reading{}", std::process::id());
    let place = Place::with(&[("job.yaml", &job(&name, &from, &to))]);
    let prefix = format!("reading-{}", std::process::id());
    fill(&from, &payments(0));
    let mut cluster = Cluster::new(&place, broker(), prefix, name);
    ["a", "b", "c"].into_iter().for_each(|name| cluster.start(name));
    ["a", "b", "c"].into_iter().for_each(|name| cluster.await_ready(name));
    ["b", "c"].into_iter().for_each(|name| cluster.await_units(name));
    for round in 1..ROUNDS {
        fill(&from, &payments(round * SOME));
        match round {
            1 => cluster.kill("b"),
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
