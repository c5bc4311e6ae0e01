//! Three brokers with a copy of everything each, as an operator has them: each of them is killed, stopped or hangs while a
//! client pays at two nodes, of which one is killed, too. Every payment counts once.
//!
//! They are of the newest Kafka, which needs a second copy to lose no transaction (`Release::Steady`).

use std::thread::sleep;
use std::time::Duration;

use thalweg_harness::service::kafka::{Broker, Release};

use super::super::super::eventually;
use super::super::{Place, TOPICS, read_all, run, tool_at};
use super::paying::{self, Cluster};

/// Longer than the others take to do without it.
const HANGS: Duration = Duration::from_secs(5);

/// Waits until all brokers have all copies: two at least are needed to write, and the next one goes away.
fn await_copies(address: &str) {
    eventually("all copies are there", || {
        let said = run(tool_at(address, TOPICS, &["--describe", "--under-replicated-partitions"]));
        said.trim().is_empty().then_some(())
    });
}

#[test]
#[ignore = "needs Kafka"]
fn every_payment_counts_once_whichever_broker_goes_away() {
    let name = format!("copies{}", std::process::id());
    let place = Place::with(&[]);
    let mut brokers = Broker::start_some::<3>(Release::Newest, place.path()).expect("brokers");
    let addresses: Vec<String> = brokers.iter().map(Broker::address).collect();
    let all = addresses.join(",");
    for topic in ["once", "marked"] {
        run(tool_at(&all, TOPICS, &["--create", "--topic", topic, "--partitions", "3"]));
    }
    place.write("job.yaml", paying::job(&name, &all, ("once", "marked")).as_bytes());
    let mut cluster = Cluster::new(&place, all.clone(), "copies".to_owned(), name);
    ["a", "b"].into_iter().for_each(|name| cluster.start(name));
    for number in 0..240 {
        match number {
            40 => brokers[0].kill(),
            80 => brokers[0].restart().expect("it comes back"),
            100 => {
                await_copies(&all);
                brokers[1].stop();
            }
            130 => brokers[1].restart().expect("it comes back"),
            150 => {
                await_copies(&all);
                brokers[2].pause();
                sleep(HANGS);
            }
            170 => brokers[2].resume(),
            190 => cluster.kill("b"),
            210 => cluster.start("b"),
            _ => {}
        }
        cluster.pay();
    }
    ["a", "b"].into_iter().for_each(|name| cluster.leave(name));
    cluster.recount("once", read_all(&all, "marked"));
}
