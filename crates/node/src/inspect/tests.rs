//! What does not fit together is found, and what only moves is not.

use std::cell::Cell;
use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_connect::source::BlockCodec;
use thalweg_flow::{OrderEntry, OrderEvent, Payload, RawBlock};
use thalweg_state::indexed::{Indexed, IndexedOptions};
use thalweg_state::{Backend as _, Changes};
use thalweg_storage::log::{Log, LogOptions};
use thalweg_storage::{CommitLog, MemFs, make_dir};
use thalweg_types::SeqRange;

use super::*;
use crate::data_dir::JobDir;
use crate::durable::order::Block;
use crate::durable::record::{self, CommitRecord, CommittedSource, Position};
use crate::durable::{journal as journals, order as orders};

const JOB: &str = "D/jobs/demo";

/// What a job has left: a block of 4 records, its run, the marker of cycle 1, the commit, and a run of 2 after it.
struct Left {
    blocks: Vec<(u64, u32)>,
    entries: Vec<OrderEntry>,
    record: CommitRecord,
    journal_identity: u64,
    /// Where the blocks of all runs were.
    blocks_were: Block,
}

fn entry(start: u64, len: u64, event: OrderEvent) -> OrderEntry {
    OrderEntry { range: SeqRange::new(start, start + len), event }
}

fn run(start: u64, len: u64, offset: u64) -> OrderEntry {
    entry(start, len, OrderEvent::Run { source: 0, partition: 0, offset, arrival: 7 })
}

impl Left {
    fn new() -> Self {
        let mut record = CommitRecord::beginning();
        (record.cycle, record.next, record.order) = (1, 6, 3);
        record.job = serde_json::json!({});
        let place = Position(1_u64.to_le_bytes().to_vec());
        record.sources = vec![CommittedSource { name: "in".to_owned(), next: 4, place }];
        Self {
            blocks: vec![(0, 4), (4, 2)],
            entries: vec![
                entry(0, 1, OrderEvent::Tick { now: 7 }),
                run(1, 4, 0),
                entry(5, 1, OrderEvent::Cycle { number: 1 }),
                run(6, 2, 4),
            ],
            record,
            journal_identity: journals::identity("demo", "in"),
            blocks_were: Block::Elsewhere,
        }
    }

    fn write(&self) -> MemFs {
        let fs = MemFs::new();
        let shared: Arc<dyn Fs> = Arc::new(fs.clone());
        make_dir(&fs, Path::new(JOB)).unwrap();
        let log = |folder: &str, name: &str, identity| {
            Log::open(Arc::clone(&shared), format!("{JOB}/{folder}"), LogOptions::new(name, identity))
                .unwrap()
                .log
        };
        let mut journal = log("journal/in", "journal", self.journal_identity);
        let codec = BlockCodec::new(None);
        for (first, count) in &self.blocks {
            let data = Bytes::from(vec![b'x'; 10]);
            let payload = Payload::Bytes { data, context: None };
            let block = RawBlock { partition: 0, first: *first, count: *count, payload };
            let mut head = Vec::new();
            let data = codec.encode(&block, 0, false, &mut head).unwrap();
            journal.append(&[&head, data]).unwrap();
        }
        journal.close().unwrap();
        let mut order = log("order", "order", orders::identity());
        let mut bytes = Vec::new();
        for entry in &self.entries {
            orders::encode(entry, self.blocks_were, &mut bytes).unwrap();
            order.append(&[&bytes]).unwrap();
        }
        order.close().unwrap();
        let path = format!("{JOB}/commit.log");
        let mut commits = CommitLog::open(shared, path, record::identity("demo")).unwrap().log;
        commits.append(&self.record.encode().unwrap()).unwrap();
        fs
    }
}

fn look(fs: &MemFs) -> Report {
    let fs: Arc<dyn Fs> = Arc::new(fs.clone());
    inspect(&fs, Path::new("D"), Depth::Verify).unwrap()
}

fn damage(report: &Report) -> Vec<String> {
    let damage = report.things.iter().flat_map(|thing| &thing.damage);
    damage.map(|damage| format!("{}: {}", damage.path.display(), damage.message)).collect()
}

#[test]
fn a_job_that_fits_together_is_sound() {
    let report = look(&Left::new().write());
    assert!(damage(&report).is_empty(), "{report:?}");
    let kinds: Vec<&str> = report.things.iter().map(|thing| thing.kind).collect();
    assert_eq!(kinds, ["commit log", "journal", "order log"]);
    assert!(report.things.iter().all(|thing| thing.torn.is_empty() && thing.notes.is_empty()));
}

#[test]
fn a_job_called_jobs_hides_no_other() {
    let fs = Left::new().write();
    let shared: Arc<dyn Fs> = Arc::new(fs.clone());
    make_dir(&fs, Path::new("D/jobs/jobs")).unwrap();
    let path = "D/jobs/jobs/commit.log";
    let mut commits = CommitLog::open(shared, path, record::identity("jobs")).unwrap().log;
    commits.append(&CommitRecord::beginning().encode().unwrap()).unwrap();
    let report = look(&fs);
    assert!(report.things.iter().any(|thing| thing.path.starts_with("D/jobs/jobs")), "{report:?}");
    assert_eq!(report.things.iter().filter(|thing| thing.path.starts_with(JOB)).count(), 3, "{report:?}");
}

#[test]
fn a_unit_of_a_cluster_is_looked_at_by_its_own_name() {
    let fs = MemFs::new();
    let folder = Path::new("D/jobs/pay/units/features-1/12");
    make_dir(&fs, folder).unwrap();
    let shared: Arc<dyn Fs> = Arc::new(fs.clone());
    let identity = record::identity("pay/features-1/12");
    let mut commits = CommitLog::open(shared, folder.join("commit.log"), identity).unwrap().log;
    commits.append(&CommitRecord::beginning().encode().unwrap()).unwrap();
    let report = look(&fs);
    assert!(damage(&report).is_empty(), "{report:?}");
    let jobs: Vec<_> = report.things.iter().map(|thing| &thing.what).collect();
    assert!(matches!(&jobs[..], [What::Commits(look)] if look.job == "pay/features-1/12"), "{jobs:?}");
}

#[test]
fn what_does_not_fit_is_named() {
    type Change = fn(&mut Left);
    let cases: [(Change, &str, &str); 13] = [
        (|left| left.entries[3] = run(7, 2, 4), "order", "expected an entry from number 6 on, got 7"),
        (|left| left.record.next = 5, "order", "goes on with number 5, the entry begins with 6"),
        (|left| left.record.cycle = 2, "order", "expected the marker of cycle 2"),
        (|left| left.record.order = 9, "order", "goes on with record 9, the log holds 0 up to before 4"),
        (
            |left| {
                left.entries.pop();
                left.record.next = 7;
            },
            "order",
            "goes on with number 7, the log ends before 6",
        ),
        (
            |left| {
                left.entries[1] =
                    entry(1, 4, OrderEvent::Run { source: 3, partition: 0, offset: 0, arrival: 0 })
            },
            "order",
            "source 3 is in no commit record",
        ),
        (|left| left.blocks[1] = (5, 2), "journal/in", "expected a block from offset 4 on, got 5"),
        (
            |left| left.record.sources[0].next = 3,
            "journal/in",
            "goes on with offset 3, the block begins with 4",
        ),
        (
            |left| left.record.sources[0].place = Position(5_u64.to_le_bytes().to_vec()),
            "journal/in",
            "goes on with record 5, the journal holds 0 up to before 2",
        ),
        (
            |left| left.record.sources[0].place = Position(2_u64.to_le_bytes().to_vec()),
            "journal/in",
            "goes on with offset 4, the journal ends before 6",
        ),
        (|left| left.journal_identity += 1, "journal/in", "identity of the log"),
        (
            |left| left.record.sources[0].name = "other".to_owned(),
            "journal/other",
            "the commit record names a journal, which is missing",
        ),
        (
            |left| {
                let claim = br#"{"number":3,"bytes":90,"counts":{}}"#;
                left.record.parts = BTreeMap::from([("rejects/0".to_owned(), Position(claim.to_vec()))]);
            },
            "rejects/rejects-3.ndjson",
            "expected 90, got no file",
        ),
    ];
    for (change, place, said) in cases {
        let mut left = Left::new();
        change(&mut left);
        let found = damage(&look(&left.write()));
        let place = format!("{JOB}/{place}");
        assert!(
            found.iter().any(|found| found.starts_with(&place) && found.contains(said)),
            "{place}: {said:?} in {found:?}"
        );
    }
}

#[test]
fn a_table_that_is_lost_with_its_folder_is_damage() {
    let part =
        |frames: &str| Position(format!(r#"{{"version":1,"next":0,"frames":[{frames}]}}"#).into_bytes());
    let mut left = Left::new();
    left.record.parts.insert("empty/0".to_owned(), part(""));
    left.record.parts.insert("full (sink)/0".to_owned(), part(r#"{"number":0,"bytes":100,"rows":1}"#));
    let table = format!("{JOB}/tables/full");
    let said = format!("{table}: the commit record names a table, which is missing");
    assert_eq!(damage(&look(&left.write())), [said]);
}

#[test]
fn a_lost_order_log_is_damage_and_a_journal_that_lags_behind_is_not() {
    let fs = Left::new().write();
    let commits = Path::new(JOB).join("commit.log");
    let kept = fs.bytes(&commits).unwrap();
    fs.remove(&commits).unwrap();
    let job_file = fs.open(&Path::new(JOB).join("job.json"), thalweg_storage::OpenMode::CreateNew).unwrap();
    job_file.write_all_at(b"{}", 0).unwrap();
    assert!(damage(&look(&fs))[0].ends_with("there is an order log, and no commit log"));
    let start = || crate::durable::refuse_without_commits(&fs, &JobDir::at(Path::new(JOB)));
    assert_eq!(start().unwrap_err().class(), thalweg_types::Class::Corrupt);
    fs.open(&commits, thalweg_storage::OpenMode::CreateNew).unwrap().write_all_at(&kept, 0).unwrap();
    assert!(damage(&look(&fs)).is_empty());
    start().unwrap();
    let order = Path::new(JOB).join("order");
    for name in fs.list(&order).unwrap() {
        fs.remove(&order.join(name)).unwrap();
    }
    assert_eq!(damage(&look(&fs)).len(), 1);

    let mut left = Left::new();
    left.blocks.pop();
    let report = look(&left.write());
    assert!(damage(&report).is_empty(), "{report:?}");
    let note = &report.things[2].notes[0];
    assert!(note.contains("up to 6, its journal ends at 4"), "{note}");
}

#[test]
fn a_journal_that_lacks_what_was_synced_is_damage() {
    let mut left = Left::new();
    left.blocks_were = Block::Synced;
    let fs = left.write();
    assert!(damage(&look(&fs)).is_empty());
    left.blocks.pop();
    let report = look(&left.write());
    let said = "the journal ends with offset 4, and record 3 of the order log names offsets of source \"in\" up to 6, \
                which had been synced";
    let segment = format!("{JOB}/journal/in/journal-00000000000000000000.thl");
    assert_eq!(damage(&report), [format!("{segment}: {said}")]);
    assert!(report.things[2].damage[0].pos.is_some_and(|byte| byte > 64), "{report:?}");

    // Of a source that had committed nothing, with its folder.
    left.record.sources[0] = CommittedSource { name: "in".to_owned(), next: 0, place: Position::default() };
    let fs = left.write();
    let segment = Path::new(&segment);
    fs.remove(segment).unwrap();
    fs.remove_dir(segment.parent().unwrap()).unwrap();
    assert!(damage(&look(&fs))[0].contains("there is no journal, and record 3"), "{:?}", damage(&look(&fs)));
}

#[test]
fn state_is_held_against_the_version_that_the_commit_names() {
    let mut left = Left::new();
    let fs = MemFs::new();
    let dir = Path::new(JOB).join("tasks/op/1/state");
    let write = |fs: &MemFs| {
        make_dir(fs, &dir).unwrap();
        let options = IndexedOptions::default();
        let state = Indexed::open(Arc::new(fs.clone()), &dir, 5, options, None).unwrap();
        let mut changes = Changes::new();
        changes.push(b"key", b"value");
        state.write(1, &changes).unwrap();
        state.prepare(1).unwrap()
    };
    let version = write(&fs);
    let part = [b"a head".as_slice(), version.as_bytes()].concat();
    left.record.parts = BTreeMap::from([("op/1".to_owned(), Position(part))]);
    let fs = left.write();
    let missing = damage(&look(&fs));
    assert!(
        missing.len() == 1 && missing[0].contains("state of cycle 1, segment 1 up to byte"),
        "{missing:?}"
    );
    write(&fs);
    let report = look(&fs);
    assert!(damage(&report).is_empty(), "{report:?}");
    let state = report.things.iter().find(|thing| thing.kind == "state").unwrap();
    assert_eq!(state.of.as_deref(), Some("op/1"));
    assert!(matches!(&state.what, What::State(look) if look.cycle == Some(1) && look.keys == 1));
    // Shorter than the commit says.
    let segment = dir.join("segment-00000000000000000001.ths");
    let bytes = fs.bytes(&segment).unwrap();
    // Behind the last frame are zeros that were laid ahead.
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    fs.set_bytes(&segment, bytes[..last].to_vec()).unwrap();
    assert_eq!(damage(&look(&fs)).len(), 1);
}

#[test]
fn a_commit_log_is_read_under_the_name_in_its_job_file() {
    let fs = Left::new().write();
    let (from, to) = (Path::new(JOB).join("commit.log"), Path::new("copy/commit.log"));
    make_dir(&fs, Path::new("copy")).unwrap();
    fs.rename(&from, to).unwrap();
    let looker = Looker { fs: Arc::new(fs.clone()), depth: Depth::Look };
    assert!(looker.commits(to).1.is_none());
    let job_file = fs.open(Path::new("copy/job.json"), thalweg_storage::OpenMode::CreateNew).unwrap();
    job_file.write_all_at(b"{\"name\":\"demo\"}", 0).unwrap();
    assert_eq!(looker.commits(to).1.map(|record| record.cycle), Some(1));
}

#[test]
fn only_what_is_wrong_twice_is_wrong() {
    let looks = Cell::new(0);
    let told = |tell: &dyn Fn(u32) -> Result<Option<&'static str>, ()>| {
        looks.set(0);
        let look = || {
            looks.set(looks.get() + 1);
            tell(looks.get())
        };
        let found = steady(look, |bad| bad.map(str::to_owned));
        (found, looks.get())
    };
    assert_eq!(told(&|_| Ok(None)), (Ok(None), 1));
    assert_eq!(told(&|_| Ok(Some("bad"))), (Ok(Some("bad")), 2));
    assert_eq!(told(&|look| Ok((look < 2).then_some("moving"))), (Ok(None), 2));
    assert_eq!(told(&|look| if look < 3 { Err(()) } else { Ok(None) }), (Ok(None), 3));
    assert_eq!(told(&|_| Err(())), (Err(()), 5));
}

#[test]
fn names_of_folders_are_read_back() {
    for name in ["payments", "a:b%", "..", "größe/2", "%2", "100%"] {
        assert_eq!(source_name(&crate::data_dir::folder_name(name)), name);
    }
}

#[test]
fn a_journal_that_has_lost_its_first_file_is_damage_also_before_its_first_commit() {
    let mut left = Left::new();
    left.record.sources[0] = CommittedSource { name: "in".to_owned(), next: 0, place: Position::default() };
    let fs = left.write();
    assert!(damage(&look(&fs)).is_empty());
    let shared: Arc<dyn Fs> = Arc::new(fs.clone());
    let dir = format!("{JOB}/journal/in");
    let options = LogOptions { segment_bytes: 1, ..LogOptions::new("journal", left.journal_identity) };
    let mut journal = Log::open(Arc::clone(&shared), &dir, options).unwrap().log;
    let payload = Payload::Bytes { data: Bytes::from_static(b"x"), context: None };
    let block = RawBlock { partition: 0, first: 6, count: 1, payload };
    let mut head = Vec::new();
    let data = BlockCodec::new(None).encode(&block, 0, false, &mut head).unwrap();
    journal.append(&[&head, data]).unwrap();
    journal.close().unwrap();
    fs.remove(Path::new(&format!("{dir}/journal-00000000000000000000.thl"))).unwrap();
    let found = damage(&look(&fs));
    assert!(found[0].contains("goes on with record 0, the journal holds 2 up to before 3"), "{found:?}");
    let options =
        LogOptions::new("journal", left.journal_identity).going_on_at(thalweg_storage::log::LogPosition(0));
    let error = Error::from(Log::open(shared, &dir, options).unwrap_err());
    assert_eq!(error.class(), thalweg_types::Class::Corrupt);
}
