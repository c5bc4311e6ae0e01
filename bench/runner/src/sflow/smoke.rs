//! The benchmark in tiny: sent samples come out, and joins lose nothing.

use anyhow::{Result, ensure};

use super::collector::Kind;
use super::jobs::{self, Output, Tables};
use super::{Sender, pinned};
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};

pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let sender = Sender {
        binary: project::build("thalweg-bench-sflow", "sflow", Profile::Dev)?,
        capture: None,
        seconds: 0.5,
    };
    let binary = project::thalweg(Profile::Dev)?;
    let folder = tempfile::tempdir()?;
    for output in [Output::Table, Output::Lines] {
        let kind = Kind::Ours { binary: &binary, job: jobs::collector(output, folder.path()) };
        let outcome = sender.trial(&kind, 2_000.0).and_then(|trial| {
            ensure!(trial.lost == 0.0, "{:.4} of the samples were lost", trial.lost);
            ensure!(trial.sent_rate > 1_000.0, "only {:.0} samples a second were sent", trial.sent_rate);
            Ok(())
        });
        tally.check(&format!("sflow: every sample that is sent comes out of {}", output.describe()), outcome);
    }
    let outcome = Tables::make(&binary, folder.path()).and_then(|tables| {
        let (answers, _) = jobs::run(pinned(None, &binary), &jobs::joins(&tables, 5_000), folder.path())?;
        ensure!(answers == 5_000.0, "{answers} of 5000 flows came out");
        Ok(())
    });
    tally.check("sflow: flows go through both joins", outcome);
    Ok(())
}
