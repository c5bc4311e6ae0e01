//! Windows from topic to topic in tiny: the answers of all ways are those of a peer that keeps rows.

use anyhow::{Result, ensure};

use super::client::Load;
use super::cluster::{self, Cluster};
use super::latency::{self, System};
use super::peers::PEERS;
use super::throughput::{Payments, Way};
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};

/// Eleven hours of event time, so that the window has expired several times.
const RECORDS: u64 = 100_000;
const MORE: [&str; 4] = ["--cards", "1000", "--gap", "400ms"];

pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    if let Some(reason) = cluster::missing()? {
        tally.skip(format!("kafka: {reason}"));
        return Ok(());
    }
    let binary = project::thalweg(Profile::Dev)?;
    let folder = tempfile::tempdir()?;
    let cluster = Cluster::start(folder.path())?;
    let peer = &PEERS[1];
    let answers: Vec<String> =
        Way::ALL.map(|way| way.name().to_owned()).into_iter().chain([peer.answers.to_owned()]).collect();
    let payments = Payments::make(&binary, &cluster, "payments", RECORDS, &MORE, &answers)?;
    let theirs = peer.run(&payments)?.digest;
    for way in Way::ALL.into_iter().filter(|way| way.is_by_time()) {
        let outcome = payments.run(way, way.name()).and_then(|ours| {
            ensure!(ours.digest == theirs, "expected {theirs:?}, got {:?}", ours.digest);
            Ok(())
        });
        tally.check(&format!("kafka: {} gives the answers of Kafka Streams", way.name()), outcome);
    }
    let load = Load { rate: 200, seconds: 1, history: 500 };
    let outcome = latency::measure(&binary, &cluster, System::Ours("transactions"), &load).and_then(|run| {
        ensure!(run.latencies.len() == 200, "{} answers are measured of 200", run.latencies.len());
        Ok(())
    });
    tally.check("kafka: every payment on a schedule is answered once", outcome);
    Ok(())
}
