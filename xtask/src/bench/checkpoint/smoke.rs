//! Our back ends under the workload in tiny, every read held against what was written, and a state opened again.

use anyhow::{Result, ensure};

use crate::bench::process;
use crate::project::{self, Profile};
use crate::test::Tally;

pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let binary = project::build("thalweg-bench-checkpoint", "checkpoint", Profile::Dev)?;
    let folder = tempfile::tempdir()?;
    let run = |arguments: &[&str], name: &str| {
        let mut command = std::process::Command::new(&binary);
        command.args(arguments).arg("--dir").arg(folder.path().join(name));
        process::run(command)
    };
    for store in ["indexed", "indexed+commit", "files", "memory"] {
        for sync in ["write", "cycle"] {
            if (store, sync) == ("files", "cycle") {
                // A cycle's 10,000 changes are as many files that are made and flushed.
                continue;
            }
            let arguments = [
                "run",
                "--store",
                store,
                "--keys",
                "200",
                "--sync",
                sync,
                "--seconds",
                "60",
                "--writes",
                "300",
            ];
            let outcome = run(&arguments, "store").and_then(|finished| {
                let reads = finished.figures("rate")?.number("reads")?;
                ensure!(reads > 0.0, "nothing was read");
                Ok(())
            });
            tally.check(
                &format!("checkpoint: {store} gives back what was written, synced by {sync}"),
                outcome,
            );
        }
    }
    for end in ["close", "crash", "no-index"] {
        let outcome = run(&["leave", "--keys", "5000", "--end", end], end)
            .and_then(|_| run(&["open", "--keys", "5000"], end))
            .map(|_| ());
        tally.check(&format!("checkpoint: all keys are there after {end}"), outcome);
    }
    Ok(())
}
