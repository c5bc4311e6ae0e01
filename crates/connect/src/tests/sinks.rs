//! Sinks: what they write, count and digest.

use std::net::TcpListener;
use std::sync::mpsc::channel;

use arrow_array::{Int64Array, StringViewArray};
use expect_test::expect;
use proptest::prelude::*;
use thalweg_flow::{CyclePart, InputId, Operator, Waker, collect, collect_with_parts};
use thalweg_types::Seqs;

use super::drive::{self, Driven, LIMIT};
use super::*;
use crate::sink::digest;
use crate::sink::rejects::{RejectCounts, RejectsSettings, rejects_writer};
use crate::{SinkContext, SinkReport, SinkResume};

const INPUT: InputId = InputId { port: 0, task: 0 };

fn sink(
    name: &str,
    schema: &Schema,
    format: Option<FormatSpec>,
    entries: &[(&str, OptionValue)],
) -> (Box<dyn Operator>, SinkReport) {
    let report = SinkReport::default();
    let context = SinkContext {
        job: "test".into(),
        name: "answers".into(),
        schema: schema.clone(),
        format,
        follows: false,
        options: options(entries),
        report: report.clone(),
        data_dir: std::path::PathBuf::new(),
        durable: None,
        unit: None,
    };
    let factory = Registry::builtin().sink(name).expect("a sink of this build").build(context).unwrap();
    (factory(&task()).unwrap(), report)
}

/// Whether it was drained already or not: nobody takes its request.
#[test]
fn a_job_that_is_stopped_at_its_end_waits_for_no_database() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (name, scheme, more) in
        [("influx", "http", ("measurement", text("m"))), ("postgres", "postgres", ("table", text("t")))]
    {
        let entries = [("url", text(&format!("{scheme}://{nobody}"))), more];
        let context = drive::context(&drive::numbers(), &entries, Some(SinkResume::default()));
        let mut sink = Driven::new(name, context);
        sink.give(1).unwrap();
        let mut part = sink.mark(1).unwrap();
        collect(|out| sink.sink.finish(out)).unwrap();
        assert!(!sink.sink.is_drained(&Waker::new(|| {})).unwrap(), "{name}: its task stays for the commit");
        let (tell, told) = channel();
        std::thread::spawn(move || tell.send(part.prepare().map_err(|error| error.message().to_owned())));
        drop(sink);
        let outcome = told.recv_timeout(LIMIT).expect("nothing to wait for");
        assert_eq!(outcome, Err("the job was stopped before everything was delivered".to_owned()), "{name}");
    }
}

fn two_columns() -> (Schema, Batch) {
    let schema = schema("card: string; n: int64?");
    let cards: ArrayRef =
        Arc::new(StringViewArray::from_iter_values(["c1", "a card with a long name", "c3"]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let batch = batch(&schema, vec![cards, numbers]);
    (schema, batch)
}

#[test]
fn a_file_is_emptied_then_written_by_tick_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.csv");
    std::fs::write(&path, "old").unwrap();
    let (schema, batch) = two_columns();
    let path_option = [("path", path_value(&path))];
    let (mut sink, report) = sink("file", &schema, Some(spec("csv", &[])), &path_option);
    let content = || std::fs::read_to_string(&path).unwrap();
    collect(|out| sink.process(INPUT, batch.clone(), out)).unwrap();
    collect(|out| sink.tick(ARRIVAL, out)).unwrap();
    assert_eq!(content(), "card,n\nc1,1\na card with a long name,\nc3,3\n");
    collect(|out| sink.process(INPUT, batch.with_rows([2].into()), out)).unwrap();
    collect(|out| sink.finish(out)).unwrap();
    assert!(content().ends_with("c3,3\nc3,3\n"));
    assert_eq!((report.records(), report.bytes()), (4, content().len() as u64));
}

#[test]
fn a_file_in_no_folder_is_refused_before_the_start() {
    let (schema, _) = two_columns();
    let context = SinkContext {
        job: "test".into(),
        name: "answers".into(),
        schema,
        format: Some(spec("ndjson", &[])),
        follows: false,
        options: options(&[("path", path_value("/nowhere/at/all.ndjson"))]),
        report: SinkReport::default(),
        data_dir: std::path::PathBuf::new(),
        durable: None,
        unit: None,
    };
    let error = Registry::builtin().sink("file").unwrap().build(context).err().unwrap();
    expect!["sink \"answers\": create \"/nowhere/at/all.ndjson\": No such file or directory (os error 2)"]
        .assert_eq(&error.chain());
}

#[test]
fn digests_depend_on_values_only() {
    let (schema, whole) = two_columns();
    let parts = whole.split(1);
    let sum = digest(&parts.0).wrapping_add(digest(&parts.1));
    assert_eq!(sum, digest(&whole), "batches");
    let backwards: u64 = [2, 1, 0]
        .map(|row| digest(&whole.with_rows([row].into())))
        .iter()
        .fold(0, |sum, one| sum.wrapping_add(*one));
    assert_eq!(backwards, digest(&whole), "order and selections");
    assert_eq!(digest(&whole.with_rows([0, 2].into()).compact()), digest(&whole.with_rows([0, 2].into())));
    let batch_of = |cards: [&str; 2], numbers: [Option<i64>; 2]| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringViewArray::from_iter_values(cards)),
            Arc::new(Int64Array::from(numbers.to_vec())),
        ];
        digest(&batch(&schema, columns))
    };
    let base = batch_of(["a", "b"], [Some(1), Some(2)]);
    assert_eq!(base, batch_of(["b", "a"], [Some(2), Some(1)]));
    for other in [
        batch_of(["a", "b"], [Some(2), Some(1)]),
        batch_of(["a", "b"], [Some(1), None]),
        batch_of(["a", "b"], [Some(1), Some(0)]),
        batch_of(["a", ""], [Some(1), Some(2)]),
        batch_of(["a", "a"], [Some(1), Some(1)]),
    ] {
        assert_ne!(base, other);
    }
}

#[test]
fn digests_reach_into_structs_and_lists() {
    let inner = vec![
        Field::new("spent", DataType::Float64).nullable(),
        Field::new("since", DataType::Int64).omit_null(),
        Field::new("n", DataType::Int64),
    ];
    let schema = Schema::new(vec![
        Field::new("card", DataType::String),
        Field::new("card_1h", DataType::Struct(inner)).nullable(),
        Field::new("late", DataType::List(Box::new(DataType::String))).omit_null(),
    ]);
    let answers = super::csv::answers(&schema);
    let rows: Vec<u64> = (0..4).map(|row| digest(&answers.with_rows([row].into()))).collect();
    assert_eq!(rows.iter().fold(0_u64, |sum, one| sum.wrapping_add(*one)), digest(&answers));
    let distinct: std::collections::BTreeSet<u64> = rows.into_iter().collect();
    assert_eq!(distinct.len(), 4);
}

#[test]
fn the_null_sink_says_what_it_took() {
    let (schema, batch) = two_columns();
    let (mut sink, report) = sink("null", &schema, None, &[]);
    collect(|out| sink.process(INPUT, batch.clone(), out)).unwrap();
    collect(|out| sink.finish(out)).unwrap();
    assert_eq!((report.records(), report.digest()), (3, Some(digest(&batch))));
}

fn rejects() -> Batch {
    let context =
        context(&schema("n: int64"), Some(spec("csv", &[("header", OptionValue::Bool(false))])), &[]);
    let format = context.format.as_ref().unwrap().reader(&context.schema).unwrap();
    let blocks = cut(&*format, b"1\nx\n\"a\"\"b\"\n\xFF\n", usize::MAX).unwrap();
    decode(&mut SourceDecoder::new(&context, decoders(&format)).unwrap(), &blocks[0])
        .unwrap()
        .rejects
        .unwrap()
}

#[test]
fn rejects_are_lines_in_a_file_of_their_own_run() {
    let folder = tempfile::tempdir().unwrap();
    let settings = RejectsSettings {
        folder: folder.path().join("rejects"),
        limits: BTreeMap::new(),
        counts: RejectCounts::default(),
        max_bytes: 1 << 30,
        durable: None,
    };
    for run in 0..2 {
        let mut writer = rejects_writer(settings.clone())(&task()).unwrap();
        collect(|out| writer.process(INPUT, rejects(), out)).unwrap();
        collect(|out| writer.finish(out)).unwrap();
        let content = std::fs::read_to_string(settings.folder.join(format!("rejects-{run}.ndjson"))).unwrap();
        expect![[r#"
            {"source":"payments","offset":1,"line":2,"code":"parse","reason":"field \"n\": expected int64, got \"x\"","raw":"x"}
            {"source":"payments","offset":2,"line":3,"code":"parse","reason":"field \"n\": expected int64, got \"a\\\"\\\"b\"","raw":"\"a\"\"b\""}
            {"source":"payments","offset":3,"line":4,"code":"parse","reason":"expected UTF-8, got other bytes","raw_base64":"/w=="}
        "#]]
        .assert_eq(&content);
    }
    assert_eq!(settings.counts.by_source()["payments"]["parse"], 6);
    assert_eq!(
        settings.counts.first_of("payments").as_deref(),
        Some(r#"line 2: field "n": expected int64, got "x""#)
    );
    assert_eq!(settings.counts.first_of("nobody"), None);
}

#[test]
fn more_rejects_than_the_limit_stop_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let settings = RejectsSettings {
        folder: folder.path().to_owned(),
        limits: BTreeMap::from([("payments".to_owned(), 2)]),
        counts: RejectCounts::default(),
        max_bytes: 1 << 30,
        durable: None,
    };
    let mut writer = rejects_writer(settings)(&task()).unwrap();
    let error = collect(|out| writer.process(INPUT, rejects(), out)).unwrap_err();
    assert_eq!(error.class(), thalweg_types::Class::User);
    assert!(error.message().starts_with("source \"payments\" has 3 rejects, more than reject_limit: 2"));
    let kept = std::fs::read_to_string(folder.path().join("rejects-0.ndjson")).unwrap();
    assert_eq!(kept.lines().count(), 3, "what was rejected is kept");
}

#[test]
fn no_rejects_make_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let settings = RejectsSettings {
        folder: folder.path().join("rejects"),
        limits: BTreeMap::new(),
        counts: RejectCounts::default(),
        max_bytes: 1 << 30,
        durable: None,
    };
    let mut writer = rejects_writer(settings.clone())(&task()).unwrap();
    let schema = thalweg_types::rejects_schema();
    let empty = Batch::new(
        SeqRange::new(0, 5),
        arrow_array::RecordBatch::new_empty(Arc::clone(schema.arrow())),
        Vec::new().into(),
        Seqs::Dense(0),
    );
    collect(|out| writer.process(INPUT, empty, out)).unwrap();
    collect(|out| writer.finish(out)).unwrap();
    assert!(!settings.folder.exists());
}

/// A reject with a number in its raw bytes, of about `bytes` bytes.
fn reject(number: u64, bytes: usize) -> Batch {
    let context = context(&schema("n: int64"), Some(spec("ndjson", &[])), &[]);
    let format = context.format.as_ref().unwrap().reader(&context.schema).unwrap();
    let line = format!("#{number}#{}", "x".repeat(bytes));
    let mut blocks = cut(&*format, line.as_bytes(), usize::MAX).unwrap();
    blocks[0].first = number;
    let decoded = decode(&mut SourceDecoder::new(&context, decoders(&format)).unwrap(), &blocks[0]);
    decoded.unwrap().rejects.unwrap()
}

/// The numbers of the rejects that are kept, in the order of the files, and how many bytes they take.
fn kept(folder: &std::path::Path) -> (Vec<u64>, u64) {
    let mut files: Vec<(u64, std::path::PathBuf)> = std::fs::read_dir(folder)
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>())
        .unwrap_or_default()
        .into_iter()
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap();
            (name.strip_prefix("rejects-").unwrap().parse().unwrap(), path)
        })
        .collect();
    files.sort();
    let (mut numbers, mut bytes) = (Vec::new(), 0);
    for (_, path) in files {
        let text = std::fs::read_to_string(path).unwrap();
        bytes += text.len() as u64;
        numbers.extend(text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("whole lines");
            line["offset"].as_u64().unwrap()
        }));
    }
    (numbers, bytes)
}

#[derive(Clone, Debug)]
enum Step {
    Rejects(Vec<usize>),
    Tick,
    /// A marker, whose cycle is committed or not.
    Cycle(bool),
    /// The process is killed and started again.
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => proptest::collection::vec(0_usize..400, 1..6).prop_map(Step::Rejects),
        1 => Just(Step::Tick),
        3 => any::<bool>().prop_map(Step::Cycle),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    /// Whatever happens, the newest rejects are kept, each once, and not much more than is allowed.
    #[test]
    fn rejects_rotate_and_none_is_there_twice(steps in steps(), max_bytes in 2_000_u64..12_000) {
        let folder = tempfile::tempdir().unwrap();
        let (mut given, mut committed, mut cycle) = (Vec::<usize>::new(), SinkResume::default(), 0);
        let settings = |durable: &SinkResume| RejectsSettings {
            folder: folder.path().join("rejects"),
            limits: BTreeMap::new(),
            counts: RejectCounts::default(),
            max_bytes,
            durable: Some(durable.clone()),
        };
        let mut counts = settings(&committed);
        let mut writer = rejects_writer(counts.clone())(&task()).unwrap();
        // The rejects up to each commit, and its position; a cycle that is not committed is in the next one.
        let mut committed_count = 0;
        let mut handed: Vec<Box<dyn CyclePart>> = Vec::new();
        for step in steps {
            match step {
                Step::Rejects(sizes) => for bytes in sizes {
                    collect(|out| writer.process(INPUT, reject(given.len() as u64, bytes), out)).unwrap();
                    given.push(bytes);
                },
                Step::Tick => drop(collect(|out| writer.tick(0, out)).unwrap()),
                Step::Cycle(is_committed) => {
                    cycle += 1;
                    let (_, mut parts) = collect_with_parts(|out| writer.cycle(cycle, out)).unwrap();
                    handed.push(parts.pop().expect("a part").1);
                    if is_committed {
                        let mut position = None;
                        for part in &mut handed {
                            position = Some(part.prepare().unwrap());
                        }
                        for part in handed.drain(..) {
                            part.committed().unwrap();
                        }
                        committed = SinkResume { cycle, position, ..SinkResume::default() };
                        committed_count = given.len();
                    }
                }
                Step::Crash => {
                    drop(writer);
                    handed.clear();
                    counts = settings(&committed);
                    writer = rejects_writer(counts.clone())(&task()).unwrap();
                    for (number, bytes) in given.iter().enumerate().skip(committed_count) {
                        collect(|out| writer.process(INPUT, reject(number as u64, *bytes), out)).unwrap();
                    }
                }
            }
        }
        collect(|out| writer.finish(out)).unwrap();
        let (numbers, bytes) = kept(&folder.path().join("rejects"));
        let count = given.len() as u64;
        let expected: Vec<u64> = (count - numbers.len() as u64..count).collect();
        prop_assert_eq!(&numbers, &expected, "the newest, each once");
        prop_assert_eq!(counts.counts.total(), count, "all are counted");
        let is_all = numbers.len() as u64 == count;
        prop_assert!(is_all || counts.counts.removed().files > 0);
        // Those that wait for a commit to leave are still there.
        let waits: usize = given[committed_count..].iter().map(|bytes| bytes + 300).sum();
        prop_assert!(bytes <= 2 * max_bytes + waits as u64 + 3_000, "{} bytes", bytes);
    }
}

#[test]
fn long_records_are_kept_in_part_with_their_length() {
    let folder = tempfile::tempdir().unwrap();
    let settings = RejectsSettings {
        folder: folder.path().to_owned(),
        limits: BTreeMap::new(),
        counts: RejectCounts::default(),
        max_bytes: 1 << 30,
        durable: None,
    };
    let mut writer = rejects_writer(settings)(&task()).unwrap();
    collect(|out| writer.process(INPUT, reject(0, 1 << 20), out)).unwrap();
    collect(|out| writer.finish(out)).unwrap();
    let kept = std::fs::read_to_string(folder.path().join("rejects-0.ndjson")).unwrap();
    let line: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(line["raw"].as_str().unwrap().len(), 64 << 10);
    assert_eq!(line["raw_bytes"], (1 << 20) + 3);
}
