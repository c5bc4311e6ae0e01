//! The programs of the journal benchmark in tiny, with what they say about themselves checked.

use anyhow::{Result, ensure};

use super::Driver;
use thalweg_harness::Tally;
use thalweg_harness::project::Profile;

pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let driver = Driver::build(Profile::Dev)?;
    let folder = tempfile::tempdir()?;
    let dir = folder.path().display().to_string();
    for ack in ["synced", "written", "none"] {
        let arguments =
            ["append", "--dir", &dir, "--ack", ack, "--record", "500", "--mebibytes", "2", "--seconds", "60"];
        let outcome = driver.run(&arguments).and_then(|figures| {
            let (payload, written) = (figures.number("payload_bytes")?, figures.number("written_bytes")?);
            let (writes, syncs) = (figures.number("writes")?, figures.number("syncs")?);
            ensure!(payload >= f64::from(2 << 20), "{payload} bytes of 2 MiB were appended");
            ensure!(written > payload, "{written} bytes were written of {payload}, and frames are more");
            let are_all_synced = syncs >= writes;
            ensure!(ack != "synced" || are_all_synced, "{syncs} syncs of {writes} writes");
            ensure!(ack == "synced" || syncs == 0.0, "{syncs} syncs where none was asked for");
            Ok(())
        });
        tally.check(
            &format!("part-journal: blocks appended with ack {ack} are written, and synced if asked"),
            outcome,
        );
    }
    Ok(())
}
