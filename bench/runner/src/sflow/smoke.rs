//! The benchmark in tiny: sent samples come out, and the example loses nothing.

use anyhow::{Result, ensure};

use super::collector::Kind;
use super::{Exchange, Output, Sender, example};
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};

pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let sender = Sender {
        binary: project::build("thalweg-bench-sflow", "sflow", Profile::Dev)?,
        capture: None,
        seconds: 0.5,
    };
    let binary = project::thalweg(Profile::Dev)?;
    let exchange = Exchange::make(&binary, &project::scratch("bench-sflow")?)?;
    for output in Output::ALL {
        let command = |udp| output.command(&binary, &exchange, udp).expect("a job file can be written");
        let outcome = sender.trial(&Kind::Ours { command: &command }, 2_000.0).and_then(|trial| {
            ensure!(trial.lost == 0.0, "{:.4} of the samples were lost", trial.lost);
            ensure!(trial.sent_rate > 1_000.0, "only {:.0} samples a second were sent", trial.sent_rate);
            Ok(())
        });
        tally.check(&format!("sflow: every sample that is sent comes out of {}", output.describe()), outcome);
    }
    for has_data_dir in [true, false] {
        let name = if has_data_dir { "with" } else { "without" };
        let outcome = example(&exchange, 5_000, has_data_dir).map(|_| ());
        tally.check(
            &format!("sflow: all samples of examples/ixp.yaml come out {name} a data directory"),
            outcome,
        );
    }
    Ok(())
}
