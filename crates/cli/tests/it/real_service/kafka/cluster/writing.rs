//! Nodes whose job writes to topics, while one is killed, one leaves, and both come back: what readers of the topics have is
//! each answer once, the one that the client got.

use super::super::{Place, broker, read, run, tool, topic};
use super::paying::{self, Cluster};

/// How many rows of a topic can be read.
fn rows_of(topic: &str) -> usize {
    let said = run(tool("org.apache.kafka.tools.GetOffsetShell", &["--topic", topic]));
    said.lines().filter_map(|line| line.rsplit(':').next()?.parse::<usize>().ok()).sum()
}

#[test]
#[ignore = "needs Kafka"]
fn what_a_job_writes_comes_once_whoever_is_killed_or_leaves() {
    let (once, doubled) = (topic("written", &[]), topic("written-by-position", &[]));
    let name = format!("writing{}", std::process::id());
    let place = Place::with(&[("job.yaml", &paying::job(&name, &broker(), (&once, &doubled)))]);
    let prefix = format!("writing-{}", std::process::id());
    let mut cluster = Cluster::new(&place, broker(), prefix, name);
    ["a", "b", "c"].into_iter().for_each(|name| cluster.start(name));
    for number in 0..240 {
        match number {
            // Those that came back have followed, and write by now.
            139 => cluster.await_units("b"),
            219 => cluster.await_units("c"),
            60 => cluster.kill("b"),
            100 => cluster.start("b"),
            140 => {
                cluster.leave("c");
                assert!(place.read("c.log").contains("has left the cluster"), "{}", place.read("c.log"));
            }
            180 => cluster.start("c"),
            _ => {}
        }
        cluster.pay();
    }
    // All have written all of it when they have left: by one's leave the others have its units.
    ["a", "b", "c"].into_iter().for_each(|name| cluster.leave(name));
    cluster.recount(&once, read(&doubled, rows_of(&doubled)));
}
