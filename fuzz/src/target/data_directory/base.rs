//! Data directories that a job has left, and the job run again on damaged ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use thalweg_node::{JobFile, Node, RunningJob};
use thalweg_table::TableName;
use thalweg_types::{Class, Error};

/// How long a run may take before it counts as one that hangs.
const LIMIT: Duration = Duration::from_secs(60);

const JOB: &str = "
name: j
cycle: { every: 1h, records: 20 }
state: { backend: BACKEND }
sources:
  p: { type: http, format: ndjson, schema: { ts: timestamp(ms), card: string, amount: float64, tx: string }, time: ts, lateness: 5s, id: tx, dedup: 1m }
operators:
  features:
    type: metrics
    input: p
    partition_by: [card]
    partitions: 2
    queries:
      m: SELECT sum(amount) AS spent, count(*) AS n, max(amount) AS most FROM p GROUP BY card OVER SLIDING 1 MINUTE
      all: SELECT count(distinct tx) AS txs FROM p GROUP BY card OVER INFINITE
sinks:
  out: { type: file, input: features, path: DIR/out.ndjson, format: ndjson }
  t: { type: table, input: p, seal_rows: 30 }
";

/// Back end, and whether the run before was ended at once.
pub(super) const VARIANTS: [(&str, bool); 4] =
    [("indexed", false), ("files", false), ("indexed", true), ("files", true)];

/// Records before anything is kept, until the end of the run, and after it.
const SPANS: [std::ops::Range<u64>; 3] = [0..40, 40..90, 90..100];

/// A file without the zeros at its end.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) bytes: Vec<u8>,
    pub(super) len: u64,
}

/// What can be told from outside: lines of the sink and of rejects, rows of the table.
pub(super) type Answers = (String, String, u64);

pub(super) enum Outcome {
    Answers(Answers),
    /// Of class corrupt: exit code 3.
    Damaged(String),
    Other(String),
}

pub(super) struct Base {
    text: String,
    pub(super) files: BTreeMap<PathBuf, Stored>,
    /// Of another run, over other records.
    pub(super) other: BTreeMap<PathBuf, Stored>,
    /// Of this one, some cycles before.
    pub(super) older: BTreeMap<PathBuf, Stored>,
    /// What comes of the undamaged files, with some more records.
    pub(super) answers: Answers,
}

/// All of them, and the one folder in which they run: positions of sinks name it.
pub(super) struct Bench {
    root: tempfile::TempDir,
    alone: Mutex<()>,
    pub(super) bases: Vec<Base>,
}

impl Bench {
    pub(super) fn get() -> &'static Self {
        static BENCH: OnceLock<Bench> = OnceLock::new();
        BENCH.get_or_init(Self::new)
    }

    fn new() -> Self {
        let root = tempfile::Builder::new().prefix("thalweg-fuzz-").tempdir().expect("a folder");
        let mut bench = Self { root, alone: Mutex::default(), bases: Vec::new() };
        for (backend, is_ended) in VARIANTS {
            let text = JOB.replace("BACKEND", backend).replace("DIR", bench.root());
            let [first, second, _] = SPANS;
            let all = first.start..second.end;
            bench.clear();
            bench.job(&text, all, 7, false).unwrap_or_else(|error| panic!("{}", error.chain()));
            let other = bench.kept();
            bench.clear();
            bench.job(&text, first, 0, false).unwrap_or_else(|error| panic!("{}", error.chain()));
            let older = bench.kept();
            bench.job(&text, second, 0, is_ended).unwrap_or_else(|error| panic!("{}", error.chain()));
            let files = bench.kept();
            let mut base = Base { text, files, other, older, answers: Answers::default() };
            let Outcome::Answers(answers) = bench.run(&base, &base.files) else { panic!("it goes on") };
            let is_record = |number: &u64| number % 10 < 8;
            let records = (0..SPANS[2].end).filter(is_record).count();
            assert_eq!(answers.0.lines().count(), records, "every record is answered once");
            assert!(!answers.1.is_empty() && answers.2 > 0, "{answers:?}");
            base.answers = answers;
            bench.bases.push(base);
        }
        bench
    }

    pub(super) fn root(&self) -> &str {
        self.root.path().to_str().expect("a name in UTF-8")
    }

    /// Runs the job on these files.
    pub(super) fn run(&self, base: &Base, files: &BTreeMap<PathBuf, Stored>) -> Outcome {
        let _alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        self.clear();
        for (path, stored) in files {
            let path = self.root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, &stored.bytes).expect("a file");
            let file = std::fs::File::options().write(true).open(&path).expect("a file");
            file.set_len(stored.len).expect("a file");
        }
        match self.job(&base.text, SPANS[2].clone(), 0, false) {
            Ok(answers) => Outcome::Answers(answers),
            Err(error) if error.class() == Class::Corrupt => Outcome::Damaged(error.chain()),
            Err(error) => Outcome::Other(format!("{:?}: {}", error.class(), error.chain())),
        }
    }

    /// One run of the job over these records; `salt` makes others of them.
    fn job(
        &self,
        text: &str,
        records: std::ops::Range<u64>,
        salt: u64,
        is_ended: bool,
    ) -> Result<Answers, Error> {
        let node = Node::builder().data_dir(self.root.path().join("data")).workers(1).open()?;
        let file = JobFile::parse("job.yaml", text, &[]).and_then(|file| file.check(node.check_options()));
        let job = node.start(file.unwrap_or_else(|mistakes| panic!("{mistakes}")), &[])?;
        let is_taken = records.clone().all(|number| post(&job, number, salt));
        if is_ended {
            job.abort();
        } else {
            job.drain();
        }
        let end = job.wait_timeout(LIMIT).unwrap_or_else(|| panic!("the job hangs"));
        if let Some(failure) = end.failure() {
            let class = failure.error.as_ref().map_or(Class::Internal, |error| error.class);
            return Err(Error::new(class, failure.to_string()));
        }
        if !is_taken {
            return Err(Error::internal("a record was not taken, and the job has not failed"));
        }
        drop(job);
        let name = TableName { job: "j".to_owned(), table: "t".to_owned() };
        let rows = match node.tables()?.snapshot(&name)? {
            Some(table) => {
                let stored: u64 = table.files.iter().map(|file| file.rows).sum();
                stored + table.fresh.iter().map(|rows| rows.num_rows() as u64).sum::<u64>()
            }
            None => 0,
        };
        let read = |path: &str| std::fs::read_to_string(self.root.path().join(path)).unwrap_or_default();
        Ok((read("out.ndjson"), read("data/jobs/j/rejects/rejects-0.ndjson"), rows))
    }

    fn clear(&self) {
        for entry in std::fs::read_dir(self.root.path()).expect("a folder").flatten() {
            let path = entry.path();
            let gone =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            gone.expect("it goes away");
        }
    }

    /// All files but the lock.
    fn kept(&self) -> BTreeMap<PathBuf, Stored> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.root.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let stored = read(&path);
                let name = path.strip_prefix(self.root.path()).expect("below it").to_owned();
                files.insert(name, stored);
            }
        }
        files.retain(|path, _| path.file_name().is_none_or(|name| name != "lock"));
        files
    }
}

fn read(path: &Path) -> Stored {
    let mut bytes = std::fs::read(path).expect("a file");
    let len = bytes.len() as u64;
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(used);
    Stored { bytes, len }
}

/// Posts a record and waits for its answer; every tenth is not one.
fn post(job: &RunningJob, number: u64, salt: u64) -> bool {
    let body = match number % 10 {
        9 => format!("{{\"ts\":{number},\"card\":{salt}"),
        8 => format!("{{\"ts\":\"x{salt}\",\"card\":\"c\",\"amount\":1,\"tx\":\"t{number}\"}}"),
        _ => {
            let card = (number + salt) % 5;
            let amount = (number * 37 + salt * 11) % 100;
            format!(
                "{{\"ts\":{},\"card\":\"c{card}\",\"amount\":{amount}.25,\"tx\":\"t{}\"}}",
                number * 700,
                number % 60
            )
        }
    };
    let door = job.ingress("p").expect("the source has a door");
    let submitted = door.submit(Bytes::from(body), true);
    let Some(mut replies) = submitted.ok().and_then(|submitted| submitted.replies) else { return false };
    let mut all = std::pin::pin!(replies.all());
    loop {
        match all.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answers) => return answers.is_ok(),
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
