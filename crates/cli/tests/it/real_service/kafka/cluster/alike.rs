//! One client sends the same records to one node without a cluster, to one node of a cluster, to three, and to three of
//! which some are killed: the answers are the same, byte for byte.
//!
//! Records are out of order by less than the lateness, and a node is away for longer than that, by the times of records.
//! Windows end within the run, sums are of floating-point numbers, and every fifth record comes twice.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_harness::random::Random;
use thalweg_harness::service::kafka::{Broker, Release};

use super::super::super::{eventually, lasting_port};
use super::super::Place;
use super::{Node, job_file, object_in, post};

const SOURCE: &str = "lateness: 5s, id: tx, dedup: 10m, \
    schema: { tx: string, ts: timestamp(ms), card: string, shop: string, amount: float64 }";

const QUERIES: [&str; 3] = [
    "by_card: SELECT sum(amount) AS sum, avg(amount) AS avg, count(*) AS n FROM payments GROUP BY card OVER SLIDING 20 SECONDS",
    "of_card: SELECT stddev(amount) AS s, max(amount) AS max FROM payments GROUP BY card OVER TUMBLING 15 SECONDS",
    "by_shop: SELECT sum(amount) AS sum, min(amount) AS min, count(*) AS n FROM payments GROUP BY shop OVER SLIDING 20 SECONDS",
];

/// Records, a tenth of a second apart.
const RECORDS: u64 = 400;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Who is killed before which record, and started again 80 records later: eight seconds of event time.
const KILLS: [(u64, &str); 3] = [(60, "b"), (180, "c"), (300, "a")];
const AWAY: u64 = 80;

/// Whether this is an earlier one, sent again.
fn is_repeated(number: u64) -> bool {
    number % 5 == 4
}

fn record(number: u64) -> String {
    let number = if is_repeated(number) { number - 3 } else { number };
    let mut random = Random::new(7).of("alike", number);
    let ts = 1_767_225_600_000 + 100 * number - random.between(0, 4_000);
    let [card, shop] = [12, 5].map(|keys| random.between(0, keys - 1));
    let amount = random.between(1, 1_000_000_000) as f64 / 700_000.0;
    format!(
        "{{\"tx\":\"t{number}\",\"ts\":{ts},\"card\":\"c{card}\",\"shop\":\"s{shop}\",\"amount\":{amount}}}"
    )
}

/// Some nodes that run a job.
struct Nodes<'a> {
    job: &'a str,
    running: BTreeMap<&'static str, Node>,
    /// Answers that said that their record had been counted before.
    duplicates: usize,
}

impl<'a> Nodes<'a> {
    fn new(job: &'a str) -> Self {
        Self { job, running: BTreeMap::new(), duplicates: 0 }
    }

    /// The answer to a record, for which one node after the other is asked until one answers. That a record was counted
    /// before is not part of it: one that was sent to a node which was killed then may be, and may not.
    fn answer(&mut self, number: u64) -> String {
        let mut nodes = self.running.values().cycle().skip(number as usize % self.running.len());
        let answer = eventually("an answer", || {
            let node = nodes.next().expect("a node");
            match post(node.port, self.job, &record(number), Duration::from_secs(30)) {
                Ok((200, said)) if said.contains("\"by_shop\"") => Some(said),
                Ok((200 | 404 | 429 | 503 | 504, _)) | Err(_) => None,
                Ok(said) => panic!("record {number}: {said:?}"),
            }
        });
        let mut answer = object_in(&answer).expect("an answer");
        let duplicate = answer.as_object_mut().expect("an object").remove("duplicate");
        let is_duplicate = duplicate.is_some_and(|stages| !stages.is_null());
        self.duplicates += usize::from(is_duplicate);
        assert!(is_duplicate || !is_repeated(number), "record {number} came again");
        answer.to_string()
    }
}

#[test]
#[ignore = "needs Kafka"]
fn answers_are_the_same_wherever_a_job_runs_and_whoever_is_killed() {
    let job = format!("alike{}", std::process::id());
    let folder = Place::with(&[]);
    let broker = Broker::start(Release::Steady, folder.path()).expect("a broker");
    let place = || Place::with(&[("job.yaml", &job_file(&job, SOURCE, &QUERIES))]);
    let alone = place();
    let mut nodes = Nodes::new(&job);
    nodes.running.insert("alone", Node::alone(&alone, "alone", lasting_port()));
    let expected: Vec<String> = (0..RECORDS).map(|number| nodes.answer(number)).collect();
    let repeated = (0..RECORDS).filter(|number| is_repeated(*number)).count();
    assert_eq!(nodes.duplicates, repeated);
    drop(nodes);
    for (count, kills) in [(1, &[][..]), (3, &[]), (3, &KILLS)] {
        let (place, mut nodes) = (place(), Nodes::new(&job));
        let prefix = format!("alike-{count}-{}", kills.len());
        let start = |name| Node::start(&place, &broker.address(), &prefix, name, lasting_port());
        for name in &NAMES[..count] {
            nodes.running.insert(name, start(name));
        }
        for number in 0..RECORDS {
            for (at, name) in kills {
                if number == *at {
                    nodes.running.remove(name).expect("it runs").run.kill();
                } else if number == *at + AWAY {
                    nodes.running.insert(name, start(name));
                }
            }
            let answer = nodes.answer(number);
            assert_eq!(
                answer,
                expected[number as usize],
                "{count} nodes, {} kills, record {number}",
                kills.len()
            );
        }
        assert!(nodes.duplicates >= repeated);
    }
}
