//! Two nodes in tiny: payments are answered, a node dies, and each payment counts once.

use anyhow::{Result, ensure};

use super::client::Mismatch;
use super::faults::{self, Fault};
use super::topics::{System, Work};
use super::{latency, restore};
use crate::kafka::cluster::{Cluster, missing};
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};
use thalweg_harness::service::Found;
use thalweg_harness::service::kafka::{self, Broker};

pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    if let Found::Missing(reason) = kafka::find(super::RELEASE)? {
        tally.skip(format!("cluster: {reason}"));
        return Ok(());
    }
    let binary = project::thalweg(Profile::Dev)?;
    let folder = tempfile::tempdir()?;
    let broker = Broker::start(super::RELEASE, folder.path())?;
    if let Some(reason) = missing()? {
        tally.skip(format!("cluster: from a topic to a topic: {reason}"));
    } else {
        let folder = tempfile::tempdir()?;
        let cluster = Cluster::start(folder.path())?;
        let outcome = Work::make(&binary, &cluster, 2_000).and_then(|work| {
            work.measure(System::Ours(2), "topics")?;
            Ok(())
        });
        tally.check("cluster: every payment of a topic is answered once to another, by two nodes", outcome);
    }
    let outcome = latency::measure(&binary, &broker, &["card", "shop"], 100, 1).and_then(|run| {
        ensure!(run.latencies.len() == 100, "{} answers are measured of 100", run.latencies.len());
        Ok(())
    });
    tally.check("cluster: every payment on a schedule is answered, and counts once", outcome);
    let outcome = faults::measure(Fault::Kill, &binary, &broker, 100, 3).and_then(|run| {
        ensure!(run.mismatch == Mismatch::default(), "{:?}", run.mismatch);
        ensure!(run.moves > 0, "a node was killed, and no unit has moved");
        Ok(())
    });
    tally.check("cluster: a node that is killed loses nothing and doubles nothing", outcome);
    let outcome = restore::measure(&binary, &broker, 500).and_then(|found| {
        ensure!(found.bytes > 0 && !found.without_data.is_zero(), "nothing was restored");
        Ok(())
    });
    tally.check("cluster: a node without its data counts all payments again", outcome);
    Ok(())
}
