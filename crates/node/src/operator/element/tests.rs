//! Each operator against a recount of its input, and all of them: the same whatever the batches, the memory and the
//! crashes, over the default back end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proptest::prelude::*;
use thalweg_connect::format::ndjson::Ndjson;
use thalweg_connect::{FormatPlugin, Options, Reach, Registry};
use thalweg_flow::{InputId, Operator, Output, TaskInfo, collect_with_parts};
use thalweg_state::Interrupt;
use thalweg_storage::{ChunkBudget, Fs, IoPool, MemFs};
use thalweg_testing::semantics::{Corpus, Digest, Random};
use thalweg_types::{Batch, Micros, Seq, SeqRange, Seqs};

use crate::backends::Backends;
use crate::job_file::{CheckOptions, CheckedJob, JobFile};
use crate::memory::Shares;
use crate::operator::AnswerCounts;
use crate::operator::{Operators, Services, TaskResume};

use super::aggregate::Stats;
use super::*;

/// A job with an operator `op` over the sources `a` and `b`; the second has no ids.
fn job(operator: &str, source: &str) -> CheckedJob {
    let (without_ids, _) = source.split_once(", id:").unwrap_or((source, ""));
    let text = format!(
        "name: test
sources:
  a: {{ type: file, path: a.csv, format: csv, schema: {{ ts: timestamp(us), k: string?, v: float64?, n: int64 }}, time: ts, {source} }}
  b: {{ type: file, path: b.csv, format: csv, schema: {{ ts: timestamp(us), k: string?, w: float64 }}, time: ts, {without_ids} }}
operators:
  op: {{ {operator} }}
sinks:
  out: {{ type: \"null\", input: op }}
"
    );
    let options = CheckOptions {
        registry: Registry::builtin(),
        operators: Operators::builtin(),
        workers: 2,
        reach: Reach::anything(),
    };
    JobFile::parse("job.yaml", &text, &[])
        .and_then(|file| file.check(&options))
        .unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// A record of input `port`; fields without a value are left out.
#[derive(Clone, Debug)]
struct Record {
    port: usize,
    key: Option<u8>,
    value: Option<f64>,
    time: Micros,
}

#[derive(Clone, Debug)]
enum Event {
    Record(Record),
    Tick(Micros),
    Mark,
}

/// Something emitted: event, output, event time, and the record as JSON.
type Told = (Seq, usize, Micros, String);

/// One task of the operator, run by hand.
struct Task<'a> {
    job: &'a CheckedJob,
    operator: Box<dyn Operator>,
    told: Vec<Told>,
    handed: thalweg_flow::Parts,
    /// Order numbers of the events, ascending; each is that of its place and one where there are none.
    numbers: Vec<Seq>,
}

impl<'a> Task<'a> {
    /// `durable` is the file system, where it goes on, and its memory.
    fn new(job: &'a CheckedJob, durable: Option<(&MemFs, TaskResume, u64)>) -> Self {
        let info = TaskInfo::alone("test", "op");
        let mut state = job.state.clone();
        let fs: Arc<dyn Fs> = match &durable {
            Some((fs, _, memory)) => {
                state.memory = Some(*memory);
                Arc::new((*fs).clone())
            }
            None => Arc::new(MemFs::new()),
        };
        let services = Services {
            fs,
            pool: IoPool::new(1),
            chunks: ChunkBudget::new(1 << 20),
            backends: Backends::connect(&state, Interrupt::default(), false).unwrap(),
            state,
            shares: Shares::of(job),
            answers: AnswerCounts::default(),
            failing: Default::default(),
            is_held: false,
        };
        let context = TaskContext {
            info: &info,
            folder: Path::new("/tasks/op/0").to_owned(),
            services: &services,
            operator: &job.operators[0].name,
            memory: Some(16 << 20),
            durable: durable.map(|(_, resume, _)| resume),
        };
        let operator = (job.operators[0].prepared.parts[0].factory)(&context).unwrap();
        Self { job, operator, told: Vec::new(), handed: Vec::new(), numbers: Vec::new() }
    }

    /// The end of the input.
    fn finish(&mut self, at: usize) {
        self.call(at as Seq, |operator, out| operator.finish(out));
        self.told.sort_by_key(|told| (told.0, told.1));
    }

    fn call(&mut self, at: Seq, call: impl FnOnce(&mut dyn Operator, &mut Output<'_>) -> Result<(), Error>) {
        let operator = &mut *self.operator;
        let (emitted, handed) = collect_with_parts(|out| call(operator, out)).unwrap();
        self.handed.extend(handed);
        let outputs = &self.job.operators[0].prepared.outputs;
        for (port, batch) in emitted {
            let mut encoder = Ndjson.encoder(&outputs[port].schema, &Options::default()).unwrap();
            for row in batch.row_numbers() {
                let mut text = Vec::new();
                encoder.encode_row(&batch, row, &mut text);
                let text = String::from_utf8(text.trim_ascii_end().to_vec()).unwrap();
                // Calls that belong to no record emit under the number of the call.
                let seq = match batch.seq(row) {
                    0 => at,
                    seq if self.numbers.is_empty() => seq - 1,
                    seq => self.numbers.binary_search(&seq).expect("the number of a record") as Seq,
                };
                self.told.push((seq, port, batch.times()[row as usize], text));
            }
        }
    }

    fn records(&mut self, start: Seq, records: &[&Record]) {
        // Number 0 is for elements that belong to no record.
        let numbers = self.numbers.clone();
        let number = |place: Seq| numbers.get(place as usize).copied().unwrap_or(place + 1);
        let range = SeqRange::new(number(start), number(start + records.len() as Seq - 1) + 1);
        for port in 0..self.job.operators[0].inputs.len() {
            let rows: Vec<(Seq, Seq, &Record)> = (start..)
                .zip(records.iter().copied())
                .filter(|(_, record)| record.port == port)
                .map(|(place, record)| (place, number(place), record))
                .collect();
            if rows.is_empty() {
                continue;
            }
            let batch = batch(port, range, &rows);
            self.call(start, |operator, out| operator.process(InputId { port, task: 0 }, batch, out));
        }
        self.call(start, |operator, out| operator.complete(range, out));
    }

    fn run(
        &mut self,
        events: &[Event],
        from: usize,
        sizes: &mut dyn Iterator<Item = usize>,
        cycle: &mut u64,
    ) {
        let mut at = from;
        while at < events.len() {
            match &events[at] {
                Event::Record(_) => {
                    let records: Vec<&Record> = events[at..]
                        .iter()
                        .map_while(|event| match event {
                            Event::Record(record) => Some(record),
                            _ => None,
                        })
                        .take(sizes.next().unwrap())
                        .collect();
                    self.records(at as Seq, &records);
                    at += records.len();
                    continue;
                }
                Event::Tick(now) => self.call(at as Seq, |operator, out| operator.tick(*now, out)),
                Event::Mark => {
                    *cycle += 1;
                    self.call(at as Seq, |operator, out| operator.cycle(*cycle, out));
                }
            }
            at += 1;
        }
        // Outputs have an order each, and none among them.
        self.told.sort_by_key(|told| (told.0, told.1));
    }
}

/// `rows` are places, order numbers and records.
fn batch(port: usize, range: SeqRange, rows: &[(Seq, Seq, &Record)]) -> Batch {
    use arrow_array::{
        ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray, TimestampMicrosecondArray,
    };
    let times: Vec<Micros> = rows.iter().map(|(_, _, record)| record.time).collect();
    let keys = rows.iter().map(|(_, _, record)| record.key.map(|key| format!("k{key}")));
    let mut columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("ts", Arc::new(TimestampMicrosecondArray::from(times.clone())), false),
        ("k", Arc::new(keys.collect::<StringViewArray>()), true),
    ];
    let values = || rows.iter().map(|(_, _, record)| record.value);
    if port == 0 {
        columns.push(("v", Arc::new(values().collect::<Float64Array>()), true));
        columns.push((
            "n",
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|(place, ..)| *place as i64 + 1))),
            false,
        ));
    } else {
        columns.push((
            "w",
            Arc::new(values().map(|value| Some(value.unwrap_or(0.5))).collect::<Float64Array>()),
            false,
        ));
    }
    let records = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let seqs: Arc<[Seq]> = rows.iter().map(|(_, seq, _)| *seq).collect();
    Batch::new(range, records, times.into(), Seqs::Each(seqs))
}

fn event(ports: usize) -> impl Strategy<Value = Event> {
    let key = prop_oneof![1 => Just(None), 9 => (0..5_u8).prop_map(Some)];
    let value = prop_oneof![
        1 => Just(None),
        1 => proptest::sample::select(vec![f64::NAN, -0.0, 0.0, f64::INFINITY]).prop_map(Some),
        6 => (0..4_i64).prop_map(|value| Some(value as f64)),
        // Few digits: the reader of JSON in these tests is not exact to the last bit.
        6 => (-4000..4000_i32).prop_map(|value| Some(f64::from(value) / 4.0)),
    ];
    let record = (0..ports, key, value, 0..40_i64);
    prop_oneof![
        12 => record.prop_map(|(port, key, value, time)| Event::Record(Record { port, key, value, time })),
        1 => (1..3_000_000_i64).prop_map(Event::Tick),
        1 => Just(Event::Mark),
    ]
}

/// Times count from the newest before; records may be older.
fn events(ports: usize, behind: Micros) -> impl Strategy<Value = Vec<Event>> {
    proptest::collection::vec(event(ports), 1..120).prop_map(move |mut events| {
        let (mut time, mut now) = (-100, 0);
        for event in &mut events {
            match event {
                Event::Record(record) => {
                    record.time += time - behind;
                    time = time.max(record.time);
                }
                Event::Tick(tick) => {
                    now += *tick;
                    *tick = now;
                }
                Event::Mark => {}
            }
        }
        events
    })
}

/// Order numbers of events as another process may give them: with gaps, as markers and ticks of others make them.
fn numbers(seed: u64, count: usize) -> Vec<Seq> {
    let mut random = Random::new(seed);
    let mut next = 0;
    let number = |_| {
        next += random.one(&[1, 1, 1, 2, 7, 1 << 33]);
        next
    };
    (0..count).map(number).collect()
}

fn plain(job: &CheckedJob, events: &[Event]) -> Vec<Told> {
    let mut task = Task::new(job, None);
    task.run(events, 0, &mut std::iter::repeat(1), &mut 0);
    task.told
}

fn records(events: &[Event]) -> impl Iterator<Item = (Seq, &Record)> {
    (0..).zip(events).filter_map(|(seq, event)| match event {
        Event::Record(record) => Some((seq, record)),
        _ => None,
    })
}

const OPERATORS: [(&str, usize); 9] = [
    ("type: count, input: a, key: k", 1),
    ("type: count, input: a, key: [k, v], emit: { every: 3 records }, ttl: 70us, on_ttl: forget", 1),
    ("type: count, input: a, emit: { every: 2s }", 1),
    ("type: count, input: a, key: v, emit: { every: 1s }, ttl: 50us", 1),
    ("type: aggregate, input: a, key: k, fields: [v, n], every: 30us", 1),
    ("type: aggregate, input: a, fields: v, every: 7us", 1),
    ("type: join, input: [a, b], key: k, within: 25us", 2),
    ("type: join, input: [a, b], key: k, within: 10us, left: true", 2),
    ("type: changes, input: a, key: k, value: [v, ts], first: false", 1),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn order_numbers_batches_memory_and_crashes_change_nothing(
        ((operator, events), late) in (proptest::sample::select(OPERATORS.to_vec()), any::<bool>())
            .prop_flat_map(|((operator, ports), late)| ((Just(operator), events(ports, 25)), Just(late))),
        sizes in proptest::collection::vec(1..20_usize, 1..20),
        lives in proptest::collection::vec((0..20_000_u64, 1..80_usize, 0..3_usize, any::<u64>()), 1..5),
    ) {
        let source = if late { "lateness: 20us, late: clamp, id: v, dedup: 60us" } else { "lateness: 5us" };
        let job = job(operator, source);
        let expected = plain(&job, &events);
        let mut sizes = sizes.iter().copied().cycle();
        let fs = MemFs::new();
        let (mut resume, mut from) = (TaskResume::default(), 0_usize);
        for (memory, count, committed, seed) in lives.iter().copied().chain([(0, usize::MAX, 0, 0)]) {
            let mut cycle = resume.cycle;
            let mut task = Task::new(&job, Some((&fs, resume.clone(), memory)));
            // Each process numbers records for itself.
            task.numbers = numbers(seed, events.len());
            prop_assert!(task.operator.takes_part());
            let until = from.saturating_add(count).min(events.len());
            for stop in [from + (until - from) / 2, until] {
                task.run(&events[..stop], from, &mut sizes, &mut cycle);
                let part = (from as Seq)..(stop as Seq);
                let meant = expected.iter().filter(|told| part.contains(&told.0));
                prop_assert_eq!(std::mem::take(&mut task.told), meant.cloned().collect::<Vec<_>>());
                from = stop;
                let handed = std::mem::take(&mut task.handed);
                let is_lost = handed.len() > committed;
                for (number, mut part) in handed.into_iter().take(committed) {
                    let position = part.prepare().unwrap();
                    resume = TaskResume { cycle: number, position: Some(position) };
                    part.committed().unwrap();
                }
                if is_lost {
                    break;
                }
            }
            drop(task);
            fs.crash_torn(seed);
            let marks = events.iter().enumerate().filter(|(_, event)| matches!(event, Event::Mark));
            from = match resume.cycle {
                0 => 0,
                cycle => marks.map(|(at, _)| at + 1).nth(cycle as usize - 1).unwrap(),
            };
        }
        // Without crashes, in other batches.
        let mut task = Task::new(&job, None);
        task.run(&events, 0, &mut sizes, &mut 0);
        prop_assert_eq!(task.told, expected);
    }

    #[test]
    fn aggregates_are_a_recount_of_the_records_in_time(events in events(1, 30)) {
        let job = job("type: aggregate, input: a, key: k, fields: v, every: 16us", "lateness: 20us");
        let told = plain(&job, &events);
        let mut naive: BTreeMap<(Micros, Option<u8>), Vec<f64>> = BTreeMap::new();
        let (mut time, mut late) = (Micros::MIN, Vec::new());
        for (seq, record) in records(&events) {
            time = time.max(record.time);
            if record.time < time - 20 {
                late.push(seq);
            } else {
                let values = naive.entry((record.time.div_euclid(16) * 16, record.key)).or_default();
                values.extend(record.value);
            }
        }
        naive.retain(|(start, _), _| start + 16 + 20 <= time);
        let rejected: Vec<Seq> = told.iter().filter(|told| told.1 == 1).map(|told| told.0).collect();
        prop_assert_eq!(rejected, late);
        let aggregates: Vec<&Told> = told.iter().filter(|told| told.1 == 0).collect();
        prop_assert_eq!(aggregates.len(), naive.len());
        prop_assert!(aggregates.is_sorted_by_key(|told| told.2), "by the end of the interval");
        for (_, _, end, text) in aggregates {
            let row: serde_json::Value = serde_json::from_str(text).unwrap();
            let key = row["k"].as_str().map(|key| key[1..].parse().unwrap());
            let values = &naive[&(end - 16, key)];
            prop_assert_eq!(row["start"].as_i64(), Some(end - 16));
            prop_assert_eq!(row["v_count"].as_u64(), Some(values.len() as u64));
            let (finite, all) = (values.iter().all(|value| value.is_finite()), values.len() as f64);
            if values.is_empty() {
                prop_assert!(["v_min", "v_max", "v_mean", "v_variance"].iter().all(|figure| row[figure].is_null()));
            } else if finite {
                let mean = values.iter().sum::<f64>() / all;
                let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / all;
                let is_near = |figure: &str, expected: f64| {
                    (row[figure].as_f64().unwrap() - expected).abs() <= 1e-9 * (1.0 + expected.abs())
                };
                prop_assert!(is_near("v_mean", mean) && is_near("v_variance", variance), "{}", text);
                let least = values.iter().copied().fold(f64::INFINITY, f64::min);
                let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                prop_assert_eq!((row["v_min"].as_f64(), row["v_max"].as_f64()), (Some(least), Some(most)));
            }
        }
    }

    #[test]
    fn joins_are_the_pairs_that_a_double_loop_finds(events in events(2, 25), left in any::<bool>()) {
        let operator = format!("type: join, input: [a, b], key: k, within: 20us, left: {left}");
        let job = job(&operator, "lateness: 10us");
        let mut task = Task::new(&job, None);
        task.run(&events, 0, &mut std::iter::repeat(1), &mut 0);
        let (told, rejected): (Vec<Told>, Vec<Told>) =
            std::mem::take(&mut task.told).into_iter().partition(|told| told.1 == 0);
        task.finish(events.len());
        let at_end = std::mem::take(&mut task.told);
        let (mut newest, mut all, mut late) = (Micros::MIN, Vec::new(), Vec::new());
        for (seq, record) in records(&events) {
            newest = newest.max(record.time);
            if record.time < newest - 10 { late.push(seq) } else { all.push((seq, record)) }
        }
        prop_assert_eq!(rejected.iter().map(|told| told.0).collect::<Vec<_>>(), late);
        // What a `metrics` below takes for late.
        let lateness = job.operators[0].prepared.later.as_ref().map(|later| 10 + later.behind);
        prop_assert_eq!(lateness, left.then_some(10 + 30 + 1));
        let mut newest = Micros::MIN;
        let (mut pairs, mut paired, mut time) = (Vec::new(), BTreeSet::new(), Micros::MIN);
        for (place, (seq, second)) in all.iter().enumerate() {
            time = time.max(second.time);
            for (first_seq, first) in &all[..place] {
                let is_pair = first.port != second.port
                    && first.key == second.key
                    && first.time.abs_diff(second.time) <= 20
                    && time - first.time <= 30;
                if is_pair {
                    let n = if first.port == 0 { *first_seq } else { *seq } + 1;
                    pairs.push((*seq, first.time.max(second.time), n));
                    paired.insert(n);
                }
            }
        }
        let mut found = Vec::new();
        let mut alone = BTreeSet::new();
        for (seq, _, at, text) in &told {
            let row: serde_json::Value = serde_json::from_str(text).unwrap();
            let n = row["n"].as_u64().unwrap();
            match row["w"].is_null() {
                true => {
                    prop_assert!(alone.insert(n), "{} twice", n);
                    let behind = newest.saturating_sub(*at);
                    prop_assert!(behind <= 41, "{} is {} behind", n, behind);
                }
                false => found.push((*seq, *at, n)),
            }
            newest = newest.max(*at);
        }
        prop_assert_eq!(found, pairs);
        // They are let go of in steps.
        let lefts = all.iter().filter(|(seq, record)| record.port == 0 && !paired.contains(&(seq + 1)));
        for (seq, record) in lefts {
            let waited = time - record.time;
            // One out of order is looked at with those that came before it.
            if left && waited > 30 + 10 + 2 {
                prop_assert!(alone.contains(&(seq + 1)), "{} was not told alone", seq + 1);
            }
            prop_assert!(waited > 30 || !alone.contains(&(seq + 1)));
        }
        prop_assert!(alone.iter().all(|n| left && !paired.contains(n)));
        for (_, _, at, text) in &at_end {
            let row: serde_json::Value = serde_json::from_str(text).unwrap();
            let n = row["n"].as_u64().unwrap();
            prop_assert!(row["w"].is_null() && alone.insert(n), "{} at the end", n);
            prop_assert!(newest.saturating_sub(*at) <= 41);
            newest = newest.max(*at);
        }
        let lone = all.iter().filter(|(seq, record)| record.port == 0 && !paired.contains(&(seq + 1)));
        let lone: BTreeSet<u64> = lone.map(|(seq, _)| seq + 1).collect();
        prop_assert_eq!(alone, if left { lone } else { BTreeSet::new() }, "at the end all are reported");
    }

    #[test]
    fn changes_are_the_records_that_differ_from_the_one_before(events in events(1, 25), first in any::<bool>()) {
        let operator = format!("type: changes, input: a, key: k, value: v, first: {first}");
        let told = plain(&job(&operator, ""), &events);
        let mut last: BTreeMap<Option<u8>, Option<f64>> = BTreeMap::new();
        let same = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => a == b || a.is_nan() && b.is_nan(),
            (a, b) => a.is_none() && b.is_none(),
        };
        let mut expected = Vec::new();
        for (seq, record) in records(&events) {
            match last.insert(record.key, record.value) {
                Some(before) if same(before, record.value) => {}
                None if !first => {}
                before => expected.push((seq, before.flatten())),
            }
        }
        let found: Vec<(Seq, Option<String>)> = told
            .iter()
            .map(|(seq, _, _, text)| {
                let row: serde_json::Value = serde_json::from_str(text).unwrap();
                (*seq, (!row["previous"].is_null()).then(|| row["previous"].to_string()))
            })
            .collect();
        prop_assert_eq!(found.len(), expected.len());
        for ((seq, previous), (expected_seq, expected)) in found.iter().zip(&expected) {
            prop_assert_eq!(seq, expected_seq);
            prop_assert_eq!(previous.is_some(), expected.is_some());
            if let (Some(previous), Some(expected)) = (previous, expected.filter(|value| value.is_finite())) {
                prop_assert_eq!(previous.parse::<f64>().unwrap(), expected);
            }
        }
    }
}

#[test]
fn operators_with_elements_have_the_bits_of_the_semantic_version() {
    let mut corpus = Corpus::new("elements");
    for (operator, ports) in OPERATORS {
        for rules in ["lateness: 5us", "lateness: 20us, late: clamp, id: v, dedup: 60us"] {
            let mut random = Random::new(7);
            let (mut time, mut now) = (0, 0);
            let event = |_| match random.below(20) {
                0 => {
                    now += random.below(3_000_000) as Micros;
                    Event::Tick(now)
                }
                1 => Event::Mark,
                _ => {
                    let at = time + random.below(40) as Micros - 25;
                    time = time.max(at);
                    let value = match random.below(10) {
                        0 => None,
                        1 => Some(random.one(&[f64::NAN, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1e300])),
                        2..5 => Some(random.float()),
                        _ => Some(random.below(40) as f64 / 4.0),
                    };
                    Event::Record(Record {
                        port: random.below(ports as u64) as usize,
                        key: (random.below(10) > 0).then(|| random.below(5) as u8),
                        value,
                        time: at,
                    })
                }
            };
            let events: Vec<Event> = (0..1_500).map(event).collect();
            let job = job(operator, rules);
            let mut task = Task::new(&job, None);
            task.run(&events, 0, &mut std::iter::repeat(1), &mut 0);
            task.finish(events.len());
            let mut digest = Digest::default();
            for (seq, port, time, text) in &task.told {
                [*seq, *port as u64, time.cast_unsigned()]
                    .into_iter()
                    .for_each(|number| digest.number(number));
                digest.text(text);
            }
            corpus.add(format!("{operator}, {rules}"), &digest);
        }
    }
    corpus.check();
}

#[test]
fn the_pairs_of_a_join_name_their_fields_apart() {
    let job = job("type: join, input: [a, b], key: k, within: 1s", "");
    let names: Vec<&str> = job.operators[0].prepared.outputs[0].schema.names().collect();
    assert_eq!(names, ["a_ts", "k", "v", "n", "b_ts", "w"]);
}

#[test]
fn a_count_by_time_tells_what_was_touched_since() {
    let job = job("type: count, input: a, key: k, emit: { every: 5s }", "");
    let record = |key| Event::Record(Record { port: 0, key: Some(key), value: None, time: 0 });
    let second = |second: Micros| Event::Tick(second * 1_000_000);
    let events =
        [second(1), record(2), record(1), record(2), second(4), second(5), record(1), second(9), second(11)];
    let told: Vec<(Seq, String)> = plain(&job, &events).into_iter().map(|told| (told.0, told.3)).collect();
    let expected =
        [(5, r#"{"k":"k2","count":2}"#), (5, r#"{"k":"k1","count":1}"#), (8, r#"{"k":"k1","count":2}"#)];
    assert_eq!(told, expected.map(|(seq, text)| (seq, text.to_owned())));
}

#[test]
fn figures_far_from_zero_keep_their_variance() {
    let mut stats = Stats::EMPTY;
    for value in [4.0, 7.0, 13.0, 16.0] {
        stats.add(1e9 + value);
    }
    assert_eq!((stats.mean, stats.variance()), (1e9 + 10.0, 22.5), "sums of squares would lose all of it");
    let mut stats = Stats::EMPTY;
    stats.add(f64::NAN);
    assert!(stats.min.is_nan() && stats.max.is_nan());
    stats.add(1.0);
    assert!(stats.min == 1.0 && stats.max.is_nan() && stats.mean.is_nan());
}
