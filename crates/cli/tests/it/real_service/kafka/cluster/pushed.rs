//! Nodes that records are pushed to: each listens at an address of its own, and the answers are in a topic. The job gets
//! another text meanwhile, for which each node listens anew.

use std::io::Write as _;
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::Value;

use super::super::super::{eventually, lasting_port};
use super::super::{Place, broker, read, topic};
use super::{Node, call, object_in};

const PATIENCE: Duration = Duration::from_secs(30);

/// Records that are sent to each node, by TCP and by UDP, before the change and after it.
const RECORDS: u64 = 20;

const CARDS: u64 = 3;

fn job(name: &str, topic: &str, query: &str) -> String {
    let broker = broker();
    let source = "listen: \"127.0.0.1:0\", format: ndjson, time: ts, max_ahead: none, lateness: 1h, \
        schema: { ts: timestamp(ms), card: string }";
    format!(
        "name: {name}
sources:
  lines: {{ type: tcp, {source} }}
  datagrams: {{ type: udp, {source} }}
operators:
  features:
    type: metrics
    input: [lines, datagrams]
    partition_by: card
    partitions: 4
    queries:
      n: SELECT count(*) AS n FROM lines GROUP BY card OVER SLIDING 1 HOUR
{query}sinks:
  out: {{ type: kafka, input: features, brokers: \"{broker}\", topic: {topic}, key: card }}
"
    )
}

/// Where the sources of a job listen on a node: not where they did before.
fn addresses(node: &Node, job: &str, before: Option<&[String; 2]>) -> [String; 2] {
    eventually("the node listens", || {
        let (_, said) = call("GET", node.port, &format!("/v1/jobs/{job}"), "", PATIENCE).ok()?;
        let of_job = object_in(&said)?;
        let sources = of_job["sources"].as_array()?;
        let address = |name: &str| {
            let source = sources.iter().find(|of| of["name"] == name)?;
            source["address"].as_str().map(str::to_owned)
        };
        let found = [address("lines")?, address("datagrams")?];
        (before != Some(&found)).then_some(found)
    })
}

/// Sends records of all cards to each node by both ways.
fn send(nodes: &[[String; 2]]) {
    for [tcp, udp] in nodes {
        let line = |number: u64| {
            format!("{{\"ts\":{},\"card\":\"c{}\"}}\n", 1_700_000_000_000 + number, number % CARDS)
        };
        let mut lines = TcpStream::connect(tcp).expect("it listens");
        let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        datagrams.connect(udp).expect("an address");
        for number in 0..RECORDS {
            lines.write_all(line(number).as_bytes()).expect("it reads");
            datagrams.send(line(number).as_bytes()).expect("it is sent");
        }
    }
}

/// Each card has been counted up to the number of its records.
fn assert_counts(rows: &[(String, Value)], sent: u64) {
    for card in 0..CARDS {
        let of_card = rows.iter().map(|(_, row)| row).filter(|row| row["card"] == format!("c{card}"));
        let mut counts: Vec<u64> = of_card.map(|row| row["n"]["n"].as_u64().expect("a count")).collect();
        counts.sort_unstable();
        let each = (0..RECORDS).filter(|number| number % CARDS == card).count() as u64;
        let expected: Vec<u64> = (1..=each * (sent / RECORDS)).collect();
        assert_eq!(counts, expected, "c{card}");
    }
}

#[test]
#[ignore = "needs Kafka"]
fn records_are_pushed_to_any_node_and_go_on_with_another_text() {
    let (name, to) = (format!("pushed{}", std::process::id()), topic("pushed", &[]));
    let place = Place::with(&[("job.yaml", &job(&name, &to, ""))]);
    let prefix = format!("pushed-{}", std::process::id());
    let nodes = ["a", "b", "c"].map(|node| Node::start(&place, &broker(), &prefix, node, lasting_port()));
    let before: Vec<[String; 2]> = nodes.iter().map(|node| addresses(node, &name, None)).collect();
    send(&before);
    let sent = 2 * RECORDS * before.len() as u64;
    assert_counts(&read(&to, sent as usize), sent);
    let query = "      m: SELECT max(ts) AS m FROM lines GROUP BY card OVER SLIDING 1 HOUR\n";
    std::fs::write(place.path().join("job.yaml"), job(&name, &to, query)).expect("a file");
    let _newest = Node::start(&place, &broker(), &prefix, "d", lasting_port());
    let after: Vec<[String; 2]> =
        nodes.iter().zip(&before).map(|(node, before)| addresses(node, &name, Some(before))).collect();
    send(&after);
    let sent = sent + 2 * RECORDS * after.len() as u64;
    let rows = read(&to, sent as usize);
    assert_counts(&rows, sent);
    assert!(rows.iter().any(|(_, row)| row.get("m").is_some()), "rows have the new query");
}
