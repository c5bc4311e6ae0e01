//! Our back ends under the workload in tiny, every read compared with the last write, and a state opened again.

use anyhow::{Result, ensure};

use crate::process;
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};

pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let binary = project::build("thalweg-bench-checkpoint", "checkpoint", Profile::Dev)?;
    let folder = tempfile::tempdir()?;
    let run = |arguments: &[&str], name: &str| {
        let mut command = std::process::Command::new(&binary);
        command.args(arguments).arg("--dir").arg(folder.path().join(name));
        process::run(command)
    };
    // A cycle's 10,000 changes would be as many files that are made and flushed.
    let cases = [
        ("indexed", "1", "1"),
        ("indexed", "10000", "1"),
        ("indexed", "10", "3"),
        ("indexed+commit", "1", "1"),
        ("indexed+commit", "10000", "1"),
        ("files", "1,10", "1"),
        ("files", "1", "3"),
        ("memory", "1", "1"),
        ("memory", "10000", "1"),
    ];
    for (store, at_once, writers) in cases {
        let load = ["run", "--store", store, "--keys", "200", "--seconds", "60", "--writes", "300"];
        let arguments = [&load[..], &["--at-once", at_once, "--writers", writers]].concat();
        let outcome = run(&arguments, "store").and_then(|finished| {
            let reads = finished.figures("rate")?.number("reads")?;
            ensure!(reads > 0.0, "nothing was read");
            Ok(())
        });
        tally.check(
            &format!("part-state: {store} gives back what {writers} wrote, {at_once} synced at once"),
            outcome,
        );
    }
    for end in ["close", "crash", "no-index"] {
        let outcome = run(&["leave", "--keys", "5000", "--end", end], end)
            .and_then(|_| run(&["open", "--keys", "5000"], end))
            .map(|_| ());
        tally.check(&format!("part-state: all keys are there after {end}"), outcome);
    }
    Ok(())
}
