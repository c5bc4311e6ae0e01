//! The job that all faults happen to, and what it should put out.

use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// Windows, elements and rejects, each with something to keep on the disk.
const JOB: &str = "\
name: faults
cycle: { every: 20ms, records: 10000 }
sources:
  payments: { type: file, path: IN/payments.csv, format: csv, schema: { ts: timestamp(ms), card: string, amount: float64 }, time: ts }
operators:
  features:
    type: metrics
    input: payments
    partition_by: card
    partitions: 1
    queries: { last: 'SELECT sum(amount) AS s, count(*) AS n FROM payments GROUP BY card OVER SLIDING 10 SECONDS' }
  minutes: { type: aggregate, input: payments, key: card, fields: amount, every: 1m, partitions: 1 }
sinks:
  answers: { type: file, input: features, path: OUT/answers.ndjson, format: ndjson }
  minutes_out: { type: file, input: minutes, path: OUT/minutes.ndjson, format: ndjson }
";
/// Another, for which nobody sends records.
const NEIGHBOUR: &str = "\
name: neighbour
sources: { orders: { type: http, schema: { n: int64 } } }
sinks: { out: { type: 'null', input: orders } }
";
const OUTPUTS: [&str; 2] = ["answers.ndjson", "minutes.ndjson"];
const RECORDS: u32 = 40_000;

/// The program, and the output of its job without a fault.
pub(super) struct Bench {
    folder: TempDir,
    pub(super) binary: PathBuf,
    expected: Vec<Vec<u8>>,
    /// What was on the disk in the end, in KiB: a run needs that much and more.
    pub(super) data_kib: u64,
}

/// A run that has ended.
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) said: String,
}

/// Where one run has its files.
pub(super) struct Place {
    /// With the input.
    pub(super) folder: PathBuf,
    pub(super) data: PathBuf,
    pub(super) out: PathBuf,
}

impl Bench {
    /// A copy of the program that other users reach too, and the input.
    pub(super) fn open(binary: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("thalweg-faults-").tempdir()?;
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
        let copy = folder.path().join("thalweg");
        std::fs::copy(binary, &copy).with_context(|| format!("copy {}", binary.display()))?;
        let mut bench = Self { folder, binary: copy, expected: Vec::new(), data_kib: 0 };
        let place = bench.place("expected")?;
        bench.job(&place, &[])?.ends_with(0, &[])?;
        bench.expected = outputs(&place)?;
        bench.data_kib = blocks(&place.data)? / 2;
        let sizes: Vec<usize> = bench.expected.iter().map(Vec::len).collect();
        ensure!(sizes.iter().all(|size| *size > 0), "outputs of {sizes:?} bytes show nothing");
        Ok(bench)
    }

    /// A fresh place, with all input.
    pub(super) fn place(&self, name: &str) -> Result<Place> {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder)?;
        let mut text = "ts,card,amount\n".to_owned();
        for number in 0..RECORDS {
            writeln!(text, "{},c{},{}.25", 10 * number, number % 97, number % 1_000)?;
            if number % 1_000 == 999 {
                text.push_str("soon,c1,1\n");
            }
        }
        std::fs::write(folder.join("payments.csv"), text)?;
        Ok(Place { data: folder.join("data"), out: folder.clone(), folder })
    }

    /// Runs the job to its end, as the last arguments of another program where `under` names one.
    pub(super) fn job(&self, place: &Place, under: &[String]) -> Result<Ended> {
        self.with_more(place, under, &[])
    }

    /// Runs it next to a job that ends only with the process.
    pub(super) fn with_neighbour(&self, place: &Place, under: &[String]) -> Result<Ended> {
        let path = place.folder.join("neighbour.yaml");
        std::fs::write(&path, NEIGHBOUR)?;
        self.with_more(place, under, &[&path.display().to_string(), "--listen", "127.0.0.1:0"])
    }

    fn with_more(&self, place: &Place, under: &[String], more: &[&str]) -> Result<Ended> {
        let path = place.folder.join("job.yaml");
        let text = JOB.replace("IN/", &format!("{}/", place.folder.display()));
        std::fs::write(&path, text.replace("OUT/", &format!("{}/", place.out.display())))?;
        let mut words: Vec<&std::ffi::OsStr> = under.iter().map(std::ffi::OsStr::new).collect();
        words.extend([self.binary.as_os_str(), "run".as_ref(), path.as_os_str()]);
        words.extend(["--data-dir".as_ref(), place.data.as_os_str(), "--workers".as_ref(), "2".as_ref()]);
        words.extend(more.iter().map(std::ffi::OsStr::new));
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).env_remove("RUST_LOG");
        let output = command.output().with_context(|| format!("start {:?}", words[0]))?;
        Ok(Ended { code: output.status.code(), said: String::from_utf8_lossy(&output.stderr).into_owned() })
    }

    /// Runs the job again, now that the fault is gone: everything has to be there, once.
    pub(super) fn recovers(&self, place: &Place, under: &[String]) -> Result<()> {
        self.job(place, under)?.ends_with(0, &[]).context("without the fault")?;
        self.is_whole(place)
    }

    /// Holds the outputs against those of a run that nothing happened to.
    pub(super) fn is_whole(&self, place: &Place) -> Result<()> {
        for ((name, expected), found) in OUTPUTS.iter().zip(&self.expected).zip(outputs(place)?) {
            let same = expected.iter().zip(&found).take_while(|(one, other)| one == other).count();
            ensure!(
                found == *expected,
                "{name} has {} bytes, expected {}; they differ at byte {same}",
                found.len(),
                expected.len()
            );
        }
        Ok(())
    }
}

/// Blocks of 512 bytes that the files of a folder take.
fn blocks(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { blocks(&entry.path())? } else { metadata.blocks() };
    }
    Ok(sum)
}

fn outputs(place: &Place) -> Result<Vec<Vec<u8>>> {
    OUTPUTS
        .iter()
        .map(|name| {
            let path = place.out.join(name);
            std::fs::read(&path).with_context(|| format!("read {}", path.display()))
        })
        .collect()
}

impl Ended {
    /// Checks the exit code and the messages. Every error says what to do.
    pub(super) fn ends_with(&self, code: i32, parts: &[&str]) -> Result<()> {
        let Self { code: ended, said } = self;
        ensure!(*ended == Some(code), "exit code {code} was expected, it was {ended:?}; it said: {said}");
        let hint = if code == 0 { "" } else { " = hint: " };
        for part in parts.iter().chain([&hint]) {
            ensure!(said.contains(part), "{part:?} is missing in what it said: {said}");
        }
        ensure!(!said.contains("panicked"), "a panic: {said}");
        Ok(())
    }
}
