//! What a run has left on disk, looked into and checked.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::SystemTime;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use thalweg_state::indexed::{Indexed, IndexedOptions};
use thalweg_state::{Backend, Changes};
use thalweg_storage::{ChunkBudget, ChunkStore, ChunkStoreOptions, IoPool, RealFs, Seal};

use super::{Ended, Place};

const JOB: &str = "\
name: demo
sources:
  payments:
    type: stdin
    format: csv
    schema: { ts: timestamp(ms), card: string, merchant: string, amount: float64 }
    time: ts
operators:
  features:
    type: metrics
    input: payments
    partition_by: [card]
    partitions: 1
    queries: { n: SELECT sum(amount) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR }
sinks:
  out: { type: file, input: features, path: out.ndjson, format: ndjson }
";

const JOB_DIR: &str = "D/jobs/demo";
/// A task in addition to those of the run, whose files depend on no thread's speed.
const STATE: &str = "D/jobs/demo/tasks/mine/0/state";
const RESERVOIR: &str = "D/jobs/demo/tasks/mine/0/reservoir";

/// A folder with everything that a job can leave: a journal, a reject, chunks and keyed state.
fn kept() -> Place {
    let place = Place::with(&[("job.yaml", JOB)]);
    let made = place.thalweg(&["gen", "payments", "--count", "500", "--fields", "4"]).ends_with(0);
    std::fs::write(place.path().join("in.csv"), made.stdout + "never,c1,m1,1\n").unwrap();
    let mut command = place.command(&["run", "job.yaml", "--data-dir", "D"]);
    command.stdin(std::fs::File::open(place.path().join("in.csv")).unwrap());
    Ended::of(command.output().unwrap()).ends_with(0);
    state(&place.path().join(STATE));
    reservoir(&place.path().join(RESERVOIR));
    place
}

/// Three segments, the newest open, a list of the others, and an index file.
fn state(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let options = IndexedOptions { segment_bytes: 2000, open_segments: 4, named_segments: 0 };
    let state = Indexed::open(Arc::new(RealFs), dir, 7, options, None).unwrap();
    for cycle in 1..=9 {
        let mut changes = Changes::new();
        for key in 0..10_u64 {
            changes.push(&(cycle * 100 + key).to_le_bytes(), &[cycle as u8; 30]);
        }
        state.write(cycle, &changes).unwrap();
        state.prepare(cycle).unwrap();
        state.committed(cycle).unwrap();
    }
    state.close().unwrap();
}

/// Three chunks of 1000 rows.
fn reservoir(dir: &Path) {
    let (fs, budget) = (Arc::new(RealFs), ChunkBudget::new(1 << 20));
    std::fs::create_dir_all(dir).unwrap();
    let mut store = ChunkStore::open(fs, dir, IoPool::inline(), budget, ChunkStoreOptions::new(7)).unwrap();
    for number in 0..3_i64 {
        let times: Vec<i64> = (0..1000).map(|row| (number * 1000 + row) * row.max(1)).collect();
        let seal = Seal { first_time: number * 1_000_000, last_time: number * 1_000_000 + 999, keep: false };
        let batch =
            RecordBatch::try_from_iter([("time", Arc::new(Int64Array::from(times)) as ArrayRef)]).unwrap();
        store.seal(seal, batch).unwrap();
    }
    store.close().unwrap();
}

/// Every file below a folder with its bytes and when it was changed last.
fn files(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut found = BTreeMap::new();
    let mut below = vec![folder.to_owned()];
    while let Some(folder) = below.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let (path, metadata) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
            if metadata.is_dir() {
                below.push(path);
            } else {
                let modified = metadata.modified().unwrap();
                found.insert(path.clone(), (std::fs::read(path).unwrap(), modified));
            }
        }
    }
    found
}

/// The file of a job whose path contains `part`.
fn file(place: &Place, part: &str) -> PathBuf {
    let found = files(&place.path().join("D"));
    let mut matching = found.keys().filter(|path| path.to_string_lossy().contains(part));
    matching.next().unwrap_or_else(|| panic!("no {part} in {:?}", found.keys())).clone()
}

fn relative<'a>(place: &Place, path: &'a Path) -> &'a str {
    path.strip_prefix(place.path()).unwrap().to_str().unwrap()
}

#[test]
fn what_a_run_has_left_is_whole_and_stays_as_it_is() {
    let place = kept();
    let before = files(place.path());
    let ended = place.thalweg(&["verify", "D"]).ends_with(0);
    let kinds: Vec<&str> = ended
        .stdout
        .lines()
        .map(|line| {
            assert!(line.starts_with("ok       "), "{line}");
            let thing = line.split(": ").nth(1).unwrap().split(',').next().unwrap();
            // A slow machine may see a cycle more, in which nothing changed.
            thing.split(" as of cycle").next().unwrap()
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "commit log of job \"demo\"",
            "journal of payments",
            "order log",
            "state of features/card/0",
            "reservoir of mine/0",
            "state of mine/0",
            "file of a sink of out",
            "rejects of rejects/0",
        ]
    );
    for args in
        [vec!["inspect", "D"], vec!["inspect", JOB_DIR, "--entries"], vec!["inspect", "D", "--raw", "--json"]]
    {
        place.thalweg(&args).ends_with(0);
    }
    assert_eq!(files(place.path()), before, "nothing was changed");
}

#[test]
fn what_is_there_is_told() {
    let place = kept();
    let told = place.thalweg(&["inspect", "D"]).ends_with(0).stdout;
    for expected in [
        "  source payments: goes on with offset 501, record ",
        ", offsets 0 to 500, ",
        "of 501 records, ",
        ", ended\n",
        "  chunk 1: 1000 rows, 1970-01-01T00:00:01Z to 1970-01-01T00:00:01.000999Z, ",
        "  schema 0: time: int64\n",
        "state of mine/0, 90 keys, ",
        "  changes of cycles 1 to 9\n",
        "  segment 1, sealed: ",
        ", active: ",
        " index file",
        "rejects-0.ndjson up to byte ",
    ] {
        assert!(told.contains(expected), "{expected:?} in\n{told}");
    }

    // Each part can be looked at by itself, and in a folder above it.
    for (path, expected) in [
        ("D/jobs/demo/commit.log", "commit log of job \"demo\""),
        ("D/jobs/demo/journal/payments", "journal of payments"),
        ("D/jobs/demo/order", "order log, records 0 to "),
        ("D/jobs/demo/tasks", "reservoir, "),
        (STATE, "state, 90 keys"),
    ] {
        let told = place.thalweg(&["inspect", path]).ends_with(0).stdout;
        assert!(told.contains(expected), "{path}: {told}");
        place.thalweg(&["verify", path]).ends_with(0);
    }

    let raw = place.thalweg(&["inspect", "D/jobs/demo/journal", "--raw"]).ends_with(0).stdout;
    let input = place.read("in.csv");
    let records: Vec<&str> = input.lines().skip(1).collect();
    let shown: Vec<&str> =
        raw.lines().filter(|line| line.starts_with(|first: char| !first.is_whitespace())).collect();
    assert_eq!(shown[1..], records[..], "the records as they came");

    let lines =
        place.thalweg(&["inspect", "D/jobs/demo/order", "--entries", "1..3", "--json"]).ends_with(0).stdout;
    let values: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(values.len(), 3);
    assert_eq!((&values[0]["kind"], &values[0]["records"]), (&"order log".into(), &501.into()));
    assert_eq!((&values[1]["record"], &values[2]["record"]), (&1.into(), &2.into()));
}

#[test]
fn a_flipped_byte_is_damage_with_file_and_byte() {
    let place = kept();
    for (part, byte) in [
        ("commit.log", 40),
        ("commit.log", 3),
        ("journal-", 70),
        ("journal-", 20),
        ("journal-", 5_000),
        ("order-", 120),
        ("order-", 1),
        ("chunks-", 15),
        ("chunks-", 300),
        ("schemas.ths", 14),
        ("schemas.ths", 60),
        ("mine/0/state/segment-00000000000000000001", 700),
        ("mine/0/state/segment-", 20),
        ("mine/0/state/list-", 30),
        ("mine/0/state/index-", 80),
    ] {
        let path = file(&place, part);
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[byte] ^= 4;
        std::fs::write(&path, flipped).unwrap();
        let ended = place.thalweg(&["verify", "D"]).ends_with(3);
        let named = format!("damage in {} at byte ", relative(&place, &path));
        assert!(
            ended.stdout.lines().any(|line| line.starts_with("damaged ") && line.contains(&named)),
            "{}",
            ended.stdout
        );
        assert!(ended.stderr.contains(&named) && ended.stderr.contains("hint"), "{}", ended.stderr);
        std::fs::write(&path, whole).unwrap();
    }
    place.thalweg(&["verify", "D"]).ends_with(0);
}

#[test]
fn a_cut_tail_is_named_and_no_damage_unless_a_commit_names_it() {
    let place = kept();
    let check = |part: &str, cut: &dyn Fn(usize) -> usize, code: i32| {
        let path = if part == "out.ndjson" { place.path().join(part) } else { file(&place, part) };
        let whole = std::fs::read(&path).unwrap();
        let len = cut(whole.len());
        std::fs::write(&path, &whole[..len]).unwrap();
        let ended = place.thalweg(&["verify", "D"]).ends_with(code);
        let word = if code == 3 { "damaged " } else { "torn " };
        let found = ended.stdout.lines().find(|line| line.starts_with(word));
        let found = found.unwrap_or_else(|| panic!("no {word} in\n{}", ended.stdout));
        assert!(found.contains(relative(&place, &path)), "{found}");
        assert_eq!(std::fs::read(&path).unwrap().len(), len, "it is left as it is");
        std::fs::write(&path, whole).unwrap();
    };
    let log_end = |path: &str| {
        let told = place.thalweg(&["inspect", path, "--json"]).ends_with(0).stdout;
        let value: serde_json::Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
        usize::try_from(value["bytes"].as_u64().unwrap()).unwrap()
    };
    let (order, journal) = (log_end("D/jobs/demo/order"), log_end("D/jobs/demo/journal"));
    check("commit.log", &|len| len - 3, 0);
    check("chunks-", &|len| len - 5, 0);
    check("mine/0/state/segment-00000000000000000003", &|len| len - 5, 0);
    check("order-", &|_| 100, 3);
    check("journal-", &|_| 100, 3);
    check("out.ndjson", &|len| len - 1, 3);
    check("rejects-0", &|len| len - 1, 3);
    check("mine/0/state/segment-00000000000000000002", &|len| len - 5, 3);

    // Bytes after the last record, in the zeros that were laid out for more.
    for (part, end) in [("order-", order), ("journal-", journal)] {
        let path = file(&place, part);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.resize(end + 64, 0);
        bytes[end + 10] = 9;
        std::fs::write(&path, &bytes).unwrap();
        let ended = place.thalweg(&["verify", "D"]).ends_with(0);
        let torn = format!("{} bytes from byte {end} of {}", bytes.len() - end, relative(&place, &path));
        assert!(ended.stdout.contains(&torn), "{torn}\n{}", ended.stdout);
    }
    std::fs::write(file(&place, "order-"), []).unwrap();
    place.thalweg(&["verify", "D"]).ends_with(3);
}

#[test]
fn a_running_job_can_be_looked_at() {
    let place = Place::with(&[(
        "job.yaml",
        &JOB.replace("type: file, input: features, path: out.ndjson", "type: stdout, input: features"),
    )]);
    let mut command = place.command(&["run", "job.yaml", "--data-dir", "D"]);
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = running.stdin.take().unwrap();
    let mut answers = BufReader::new(running.stdout.take().unwrap());
    stdin.write_all(b"ts,card,merchant,amount\n1000,c1,m1,10\n2000,c1,m1,1\n").unwrap();
    stdin.flush().unwrap();
    let mut answer = String::new();
    answers.read_line(&mut answer).unwrap();
    assert!(answer.contains("\"n\":10"), "{answer}");
    let told = place.thalweg(&["inspect", "D"]).ends_with(0);
    assert!(told.stdout.contains("journal of payments, records 0 to "), "{}", told.stdout);
    assert!(told.stderr.contains("in motion"), "{}", told.stderr);
    place.thalweg(&["verify", "D"]).ends_with(0);
    drop(stdin);
    std::io::copy(&mut answers, &mut std::io::sink()).unwrap();
    assert!(running.wait().unwrap().success());
}

#[test]
fn what_cannot_be_looked_at_is_told_apart() {
    let place = kept();
    std::fs::write(place.path().join("other"), "text").unwrap();
    std::fs::create_dir(place.path().join("empty")).unwrap();
    for (path, said) in [
        ("nowhere", "there is nothing at"),
        ("other", "is a file, and not a commit log"),
        ("empty", "there is nothing of a job in"),
        ("D/jobs/demo/order/order-00000000000000000000.thl", "name its folder"),
    ] {
        for verb in ["inspect", "verify"] {
            let ended = place.thalweg(&[verb, path]).ends_with(2);
            assert!(ended.stderr.contains(said), "{}", ended.stderr);
        }
    }
    place.thalweg(&["inspect", "D", "--entries", "x..y"]).ends_with(2);
    place.thalweg(&["verify"]).ends_with(2);

    // A file that is not there when it is opened: the disk is at fault, not its bytes.
    let segment = file(&place, "order-");
    std::fs::rename(&segment, place.path().join("moved")).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", &segment).unwrap();
    let ended = place.thalweg(&["verify", "D/jobs/demo/order"]).ends_with(1);
    assert!(ended.stdout.starts_with("unread "), "{}", ended.stdout);
}
