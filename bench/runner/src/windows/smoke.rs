//! The windows benchmark in tiny, with every answer recounted.

use anyhow::{Result, ensure};

use super::answers;
use super::job::{Job, hourly};
use super::ours::Ours;
use thalweg_harness::Tally;
use thalweg_harness::project::{self, Profile};

/// Four hours and a bit of event time, so that the window has expired several times.
const RECORDS: u64 = 4_000;
const GAP: &str = "4s";
const WINDOW_MS: i64 = 3_600_000;

pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let ours = Ours::new(project::thalweg(Profile::Dev)?, folder.path().to_path_buf());
    let payments = ours.payments(RECORDS, &["--cards", "50", "--gap", GAP])?;
    let expected = answers::recount(&payments, WINDOW_MS)?;
    let run = |workers: usize| -> Result<Vec<u8>> {
        let file = folder.path().join("answers.csv");
        ours.measure(&Job::new(&payments, hourly()).answers_to(&file), None, workers, 1)?;
        answers::compare(&file, &expected)?;
        Ok(std::fs::read(&file)?)
    };
    let one = run(1);
    let bytes = one.as_ref().ok().cloned();
    tally.check("windows: every answer equals its recount", one.map(|_| ()));
    tally.check(
        "windows: two workers write the same bytes as one",
        run(2).and_then(|two| {
            ensure!(bytes.is_some_and(|one| one == two), "the files differ");
            Ok(())
        }),
    );
    let digest = |workers| Ok(ours.measure(&Job::new(&payments, hourly()), None, workers, 1)?.digest);
    tally.check(
        "windows: the null sink's digest does not depend on workers",
        digest(1).and_then(|one: Option<String>| {
            ensure!(one.is_some(), "no digest was printed");
            ensure!(one == digest(2)?, "the digests differ");
            Ok(())
        }),
    );
    Ok(())
}
