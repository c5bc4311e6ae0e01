//! Elements held against a naive model that keeps everything in maps: whatever the batches, the size of the cache, the
//! cycles and the crashes, the same is emitted for the same order.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, mpsc};

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use proptest::prelude::*;
use thalweg_state::memory::{Memory, MemoryDisk};
use thalweg_state::{BackendStats, Changes, Visit};
use thalweg_types::{Batch, DataType, Error, Field, Micros, Schema, Seq, SeqRange, Seqs, Value};

use super::*;
use crate::job::JobCore;
use crate::{CyclePart, CycleStart, Cycles, Get, InputId, Operator, Output, Set};

/// What an element of the tests does: counts, tells everything, wakes itself, and ends with [`LAST`].
struct Tally {
    count: u64,
    sum: f64,
}

struct TallyFields {
    number: Get<i64>,
    weight: Get<f64>,
    key: Set<Value>,
    what: Set<String>,
    count: Set<i64>,
    sum: Set<f64>,
}

const LAST: i64 = 13;
const POISON: i64 = 666;
/// What it rounds up the times to at which it is woken.
const WAKES: Micros = 16;

impl Tally {
    fn tell(&self, fields: &TallyFields, what: &str, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        let record = turn.keyed(0, &[fields.key])?.set(fields.what, what);
        record.set(fields.count, self.count as i64).set(fields.sum, self.sum).send()
    }
}

impl Element for Tally {
    type Shared = TallyFields;

    fn create(_: &TallyFields, _: Packed<'_>) -> Self {
        Self { count: 0, sum: 0.0 }
    }

    fn process(
        &mut self,
        fields: &TallyFields,
        record: Row<'_>,
        turn: &mut Turn<'_, '_>,
    ) -> Result<(), Error> {
        self.count += 1;
        let is_last = match record.port() {
            0 => {
                let number = record.get(fields.number);
                if number == POISON {
                    return Err(Error::user("the number is poison"));
                }
                if number % 4 == 0 {
                    turn.wake_at((turn.task_time() + number).div_euclid(WAKES) * WAKES);
                }
                self.sum += number as f64;
                number == LAST
            }
            _ => {
                self.sum *= record.get(fields.weight);
                false
            }
        };
        self.tell(fields, "record", turn)?;
        if is_last {
            turn.forget();
        }
        Ok(())
    }

    fn output(&mut self, fields: &TallyFields, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        self.tell(fields, "output", turn)?;
        self.sum = 0.0;
        Ok(())
    }

    fn wake(&mut self, fields: &TallyFields, due: Micros, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        self.tell(fields, &format!("wake {due}"), turn)?;
        self.count += 100;
        Ok(())
    }

    fn save(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.count.to_le_bytes());
        into.extend_from_slice(&self.sum.to_le_bytes());
    }

    fn load(_: &TallyFields, bytes: &[u8]) -> Result<Self, Error> {
        let (count, sum) = bytes.split_at(8);
        Ok(Self {
            count: u64::from_le_bytes(count.try_into().unwrap()),
            sum: f64::from_le_bytes(sum.try_into().unwrap()),
        })
    }
}

fn numbers() -> Schema {
    let key = Field::new("key", DataType::String).nullable();
    Schema::new(vec![key, Field::new("number", DataType::Int64)])
}

fn weights() -> Schema {
    let key = Field::new("name", DataType::String).nullable();
    Schema::new(vec![Field::new("weight", DataType::Float64), key])
}

fn told() -> Schema {
    Schema::new(vec![
        Field::new("key", DataType::String).nullable(),
        Field::new("what", DataType::String),
        Field::new("count", DataType::Int64),
        Field::new("sum", DataType::Float64),
    ])
}

/// Inputs are the numbers, or numbers and weights.
fn elements(inputs: usize, settings: ElementSettings, state: ElementState) -> Elements<Tally> {
    let told = told();
    let shared = TallyFields {
        number: Get::of(&numbers(), "number").unwrap(),
        weight: Get::of(&weights(), "weight").unwrap(),
        key: Set::of(&told, "key").unwrap(),
        what: Set::of(&told, "what").unwrap(),
        count: Set::of(&told, "count").unwrap(),
        sum: Set::of(&told, "sum").unwrap(),
    };
    let (schemas, keys) = ([numbers(), weights()], [vec![0], vec![1]]);
    Elements::new(Arc::new(shared), &schemas[..inputs], &[told], &keys[..inputs], settings, state).unwrap()
}

#[derive(Clone, Debug)]
struct Record {
    port: usize,
    key: Option<u8>,
    value: i64,
    time: Micros,
}

#[derive(Clone, Debug)]
enum Event {
    Record(Record),
    Tick(Micros),
    Mark,
}

/// Something emitted: event, time, and the fields as text.
type Told = (Seq, Micros, String);

fn text(key: Option<u8>, what: &str, count: u64, sum: f64) -> String {
    let key = key.map_or("null".to_owned(), |key| format!("k{key}"));
    format!("{key} {what} {count} {:016x}", sum.to_bits())
}

/// An element as the model has it.
struct Known {
    tally: Tally,
    touched: Micros,
    count: u64,
    is_pending: bool,
}

/// What elements should tell.
fn model(events: &[Event], settings: ElementSettings) -> Vec<Told> {
    let mut told = Vec::new();
    let mut known: BTreeMap<Option<u8>, Known> = BTreeMap::new();
    let mut pending: Vec<Option<u8>> = Vec::new();
    let mut wakes: BTreeMap<Micros, Vec<Option<u8>>> = BTreeMap::new();
    let (mut task_time, mut now): (Option<Micros>, Option<Micros>) = (None, None);
    let expired = |element: &Known, time: Micros| {
        settings
            .expiry
            .is_some_and(|expiry| expiry.on == OnExpiry::Forget && time - element.touched >= expiry.after)
    };
    for (seq, event) in events.iter().enumerate() {
        let seq = seq as Seq;
        match event {
            Event::Mark => {}
            Event::Tick(tick) => {
                let before = now.replace(*tick);
                if let OutputPolicy::Every(every) = settings.output
                    && before.is_some_and(|before| tick.div_euclid(every) > before.div_euclid(every))
                {
                    for key in std::mem::take(&mut pending) {
                        let Some(element) = known.get_mut(&key) else { continue };
                        if std::mem::take(&mut element.is_pending) && !expired(element, task_time.unwrap()) {
                            told.push((
                                seq,
                                *tick,
                                text(key, "output", element.tally.count, element.tally.sum),
                            ));
                            element.tally.sum = 0.0;
                        }
                    }
                }
            }
            Event::Record(record) => {
                let time = task_time.map_or(record.time, |time| time.max(record.time));
                task_time = Some(time);
                while let Some(first) = wakes.first_entry().filter(|first| *first.key() <= time) {
                    let (due, keys) = first.remove_entry();
                    for key in keys {
                        if let Some(element) = known.get_mut(&key)
                            && !expired(element, time)
                        {
                            let tally = &mut element.tally;
                            told.push((
                                seq,
                                record.time,
                                text(key, &format!("wake {due}"), tally.count, tally.sum),
                            ));
                            tally.count += 100;
                        }
                    }
                }
                let is_pending = match known.get(&record.key) {
                    Some(element) if expired(element, time) => known.remove(&record.key).unwrap().is_pending,
                    _ => false,
                };
                let element = known.entry(record.key).or_insert(Known {
                    tally: Tally { count: 0, sum: 0.0 },
                    touched: time,
                    count: 0,
                    is_pending,
                });
                element.touched = time;
                let tally = &mut element.tally;
                tally.count += 1;
                if record.port == 0 {
                    tally.sum += record.value as f64;
                } else {
                    tally.sum *= record.value as f64 / 8.0;
                }
                told.push((seq, record.time, text(record.key, "record", tally.count, tally.sum)));
                let is_last = record.port == 0 && record.value == LAST;
                match settings.output {
                    OutputPolicy::Records(every) => {
                        element.count += 1;
                        if element.count == every {
                            element.count = 0;
                            told.push((seq, record.time, text(record.key, "output", tally.count, tally.sum)));
                            tally.sum = 0.0;
                        }
                    }
                    OutputPolicy::Every(_) if !element.is_pending && !is_last => {
                        element.is_pending = true;
                        pending.push(record.key);
                    }
                    _ => {}
                }
                if record.port == 0 && record.value % 4 == 0 {
                    let due = (time + record.value).div_euclid(WAKES) * WAKES;
                    wakes.entry(due.max(time + 1)).or_default().push(record.key);
                }
                if is_last {
                    known.remove(&record.key);
                }
            }
        }
    }
    told
}

/// Parts as tasks hand them over.
#[derive(Default)]
struct Parts(Mutex<VecDeque<(u64, Box<dyn CyclePart>)>>);

impl Cycles for Parts {
    fn expect(&self, _: Vec<(Arc<str>, u32)>) {}

    fn may_begin(&self) -> bool {
        true
    }

    fn begin(&self, _: CycleStart) {}

    fn part(&self, _: &Arc<str>, _: u32, cycle: u64, part: Box<dyn CyclePart>) {
        self.0.lock().unwrap().push_back((cycle, part));
    }

    fn end(&self) {}

    fn stop(&self) {}
}

/// What a task is called with and what it says.
struct Driver {
    elements: Elements<Tally>,
    parts: Arc<Parts>,
    core: JobCore,
    told: Vec<Told>,
}

impl Driver {
    fn new(elements: Elements<Tally>) -> Self {
        let parts = Arc::new(Parts::default());
        let cycles: Arc<dyn Cycles> = Arc::clone(&parts) as Arc<dyn Cycles>;
        let core = JobCore::new("test".into(), vec![], vec![], 1, None, Some(cycles));
        Self { elements, parts, core, told: Vec::new() }
    }

    fn call(
        &mut self,
        range: SeqRange,
        call: impl FnOnce(&mut Elements<Tally>, &mut Output<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut emitted, mut at) = (Vec::new(), None);
        let name: Arc<str> = "elements".into();
        let mut out = Output {
            who: Some((&name, 0)),
            emitted: &mut emitted,
            at: &mut at,
            range,
            core: Some(&self.core),
            parts: None,
        };
        call(&mut self.elements, &mut out)?;
        for (_, batch) in emitted {
            for row in batch.row_numbers() {
                let at = row as usize;
                let value = |place: usize| Value::at(batch.column(place), at);
                let key = match value(0) {
                    Value::String(key) => Some(key[1..].parse().unwrap()),
                    _ => None,
                };
                let (Value::String(what), Value::Int64(count), Value::Float64(sum)) =
                    (value(1), value(2), value(3))
                else {
                    panic!("a field has another type");
                };
                self.told.push((batch.seq(row), batch.times()[at], text(key, &what, count as u64, sum)));
            }
        }
        Ok(())
    }

    /// Records of consecutive events.
    fn records(&mut self, start: Seq, records: &[&Record]) -> Result<(), Error> {
        let range = SeqRange::new(start, start + records.len() as Seq);
        for port in 0..2 {
            let rows: Vec<(Seq, &Record)> =
                (start..).zip(records.iter().copied()).filter(|(_, record)| record.port == port).collect();
            if rows.is_empty() {
                continue;
            }
            let keys: ArrayRef = Arc::new(StringViewArray::from_iter(
                rows.iter().map(|(_, record)| record.key.map(|key| format!("k{key}"))),
            ));
            let columns: Vec<ArrayRef> = if port == 0 {
                vec![
                    keys,
                    Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, record)| record.value))),
                ]
            } else {
                let weights = rows.iter().map(|(_, record)| record.value as f64 / 8.0);
                vec![Arc::new(Float64Array::from_iter_values(weights)), keys]
            };
            let schema = if port == 0 { numbers() } else { weights() };
            let batch = RecordBatch::try_new(Arc::clone(schema.arrow()), columns).unwrap();
            let times: Vec<Micros> = rows.iter().map(|(_, record)| record.time).collect();
            let seqs: Arc<[Seq]> = rows.iter().map(|(seq, _)| *seq).collect();
            let batch = Batch::new(range, batch, times.into(), Seqs::Each(seqs));
            self.call(range, |elements, out| elements.process(InputId { port, task: 0 }, batch, out))?;
        }
        self.call(range, |elements, out| elements.complete(range, out))
    }

    /// Takes over all that a scan finds and memory takes.
    fn fill(&mut self) -> Result<(), Error> {
        while self.elements.filling.is_some() {
            self.elements.fill(1)?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Runs events from one on, records in batches of these sizes; stops when the tape says so.
    fn run(
        &mut self,
        events: &[Event],
        from: usize,
        sizes: &mut dyn Iterator<Item = usize>,
        cycle: &mut u64,
    ) {
        let mut at = from;
        while at < events.len() {
            let range = SeqRange::new(at as Seq, at as Seq + 1);
            match &events[at] {
                Event::Record(_) => {
                    let size = sizes.next().unwrap();
                    let records: Vec<&Record> = events[at..]
                        .iter()
                        .map_while(|event| match event {
                            Event::Record(record) => Some(record),
                            _ => None,
                        })
                        .take(size)
                        .collect();
                    self.records(at as Seq, &records).unwrap();
                    at += records.len();
                    continue;
                }
                Event::Tick(now) => self.call(range, |elements, out| elements.tick(*now, out)).unwrap(),
                Event::Mark => {
                    *cycle += 1;
                    let cycle = *cycle;
                    self.call(range, |elements, out| elements.cycle(cycle, out)).unwrap();
                }
            }
            at += 1;
        }
    }
}

fn state(disk: &MemoryDisk, cycle: u64, position: Option<&[u8]>, memory: usize) -> ElementState {
    ElementState::open(cycle, position, memory, |version| Ok(Box::new(Memory::open(disk, version)?))).unwrap()
}

/// A back end whose scan waits until it is let go and finds what was there when it was opened, the oldest that it may.
#[derive(Debug)]
struct Late {
    inner: Memory,
    gate: Mutex<mpsc::Receiver<()>>,
    found: Vec<(Vec<u8>, Vec<u8>)>,
    is_damaged: bool,
}

impl Backend for Late {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        self.inner.get(key)
    }

    fn write(&self, cycle: u64, changes: &Changes) -> Result<(), StateError> {
        self.inner.write(cycle, changes)
    }

    fn prepare(&self, cycle: u64) -> Result<Version, StateError> {
        self.inner.prepare(cycle)
    }

    fn committed(&self, cycle: u64) -> Result<(), StateError> {
        self.inner.committed(cycle)
    }

    fn scan(&self, visit: &mut Visit<'_>) -> Result<(), StateError> {
        if self.gate.lock().unwrap().recv().is_ok() {
            let _ = self.found.iter().try_for_each(|(key, value)| visit(key, value));
            if self.is_damaged {
                return Err(StateError::TooLarge { what: "a test", bytes: 1, max: 0 });
            }
        }
        Ok(())
    }

    fn stats(&self) -> BackendStats {
        self.inner.stats()
    }
}

/// As [`state`], with a scan that begins once something is sent, or its end is dropped.
fn eager(
    disk: &MemoryDisk,
    cycle: u64,
    position: Option<&[u8]>,
    memory: usize,
    is_damaged: bool,
) -> (mpsc::Sender<()>, ElementState) {
    let (gate, waits) = mpsc::channel();
    let open = |version: Option<&Version>| {
        let inner = Memory::open(disk, version)?;
        let mut found = Vec::new();
        inner.scan(&mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(Box::new(Late { inner, gate: Mutex::new(waits), found, is_damaged }) as Box<dyn Backend>)
    };
    (gate, ElementState::open(cycle, position, memory, open).unwrap().eager())
}

fn record(ports: usize) -> impl Strategy<Value = Record> {
    let key = prop_oneof![1 => Just(None), 9 => (0..12_u8).prop_map(Some)];
    (0..ports, key, -20..20_i64, 0..40_i64).prop_map(|(port, key, value, ahead)| Record {
        port,
        key,
        value,
        time: ahead,
    })
}

/// Times of records and ticks count from the event before; records may be behind it.
fn events(ports: usize) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        12 => record(ports).prop_map(Event::Record),
        2 => (1..30_i64).prop_map(Event::Tick),
        1 => Just(Event::Mark),
    ];
    proptest::collection::vec(event, 1..160).prop_map(|mut events| {
        let (mut time, mut now) = (-100, -50);
        for event in &mut events {
            match event {
                Event::Record(record) => {
                    record.time += time - 15;
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

fn settings() -> impl Strategy<Value = ElementSettings> {
    let output = prop_oneof![
        Just(OutputPolicy::Never),
        (1..5_u64).prop_map(OutputPolicy::Records),
        (1..100_i64).prop_map(OutputPolicy::Every),
    ];
    let on = prop_oneof![Just(OnExpiry::Unload), Just(OnExpiry::Forget)];
    let expiry = proptest::option::of((1..200_i64, on).prop_map(|(after, on)| Expiry { after, on }));
    (output, expiry).prop_map(|(output, expiry)| ElementSettings {
        output,
        expiry,
        checkpoint: CheckpointPace::Cycle,
    })
}

/// One life of a job's process: where the crash comes, how much memory, in which third a scan brings elements, if any
/// does, and how far cycles get.
#[derive(Clone, Debug)]
struct Life {
    memory: usize,
    fill: Option<usize>,
    events: usize,
    prepared: usize,
    committed: usize,
}

fn life() -> impl Strategy<Value = Life> {
    let fill = proptest::option::of(0..3_usize);
    (0..6_000_usize, fill, 1..100_usize, 0..4_usize, 0..4_usize).prop_map(
        |(memory, fill, events, prepared, committed)| Life { memory, fill, events, prepared, committed },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn elements_tell_what_the_model_tells_through_any_number_of_crashes(
        (ports, events) in (1..=2_usize).prop_flat_map(|ports| (Just(ports), events(ports))),
        settings in settings(),
        sizes in proptest::collection::vec(1..20_usize, 1..20),
        lives in proptest::collection::vec(life(), 0..5),
    ) {
        let expected = model(&events, settings);
        let mut sizes = sizes.iter().copied().cycle();

        let mut plain = Driver::new(elements(ports, settings, ElementState::in_memory()));
        plain.run(&events, 0, &mut sizes, &mut 0);
        prop_assert_eq!(&plain.told, &expected, "in memory");
        prop_assert!(plain.parts.0.lock().unwrap().is_empty());

        let disk = MemoryDisk::new();
        let (mut cycle, mut position, mut from) = (0, None::<Vec<u8>>, 0_usize);
        let last = Life { memory: 1_500, fill: Some(1), events: usize::MAX, prepared: 0, committed: 0 };
        for life in lives.iter().chain([&last]) {
            let (gate, eager) = eager(&disk, cycle, position.as_deref(), life.memory, false);
            let state = match life.fill {
                Some(_) => eager,
                None => state(&disk, cycle, position.as_deref(), life.memory),
            };
            let mut driver = Driver::new(elements(ports, settings, state));
            // Dropped before the driver, which waits for the scan then.
            let gate = gate;
            let mut now = cycle;
            let until = from.saturating_add(life.events).min(events.len());
            let third = (until - from) / 3;
            // After each third some cycles get to the disk, so that values become clean and leave.
            for (number, stop) in [from + third, from + 2 * third, until].into_iter().enumerate() {
                if life.fill == Some(number) {
                    let before = driver.elements.core.cache.bytes();
                    gate.send(()).ok();
                    driver.fill().unwrap();
                    prop_assert!(driver.elements.core.cache.bytes() <= before.max(life.memory));
                }
                driver.run(&events[..stop], from, &mut sizes, &mut now);
                let starts = expected.iter().filter(|told| told.0 >= from as Seq && told.0 < stop as Seq);
                prop_assert_eq!(&driver.told.drain(..).collect::<Vec<_>>(), &starts.cloned().collect::<Vec<_>>());
                let mut parts: Vec<_> = driver.parts.0.lock().unwrap().drain(..).collect();
                let mut positions = Vec::new();
                for (number, part) in parts.iter_mut().take(life.prepared) {
                    positions.push((*number, part.prepare().unwrap()));
                }
                // Those that are not written are lost, and with them all that come later in this life.
                let is_lost = parts.len() > positions.len();
                for ((_, part), (number, bytes)) in parts.into_iter().zip(positions).take(life.committed) {
                    part.committed().unwrap();
                    (cycle, position) = (number, Some(bytes));
                }
                from = stop;
                if is_lost || life.committed < life.prepared {
                    break;
                }
            }
            let marks = events.iter().enumerate().filter(|(_, event)| matches!(event, Event::Mark));
            from = match cycle {
                0 => 0,
                cycle => marks.map(|(at, _)| at + 1).nth(cycle as usize - 1).unwrap(),
            };
        }
    }
}

fn one(key: u8, value: i64, time: Micros) -> Record {
    Record { port: 0, key: Some(key), value, time }
}

fn whats(told: &[Told]) -> Vec<&str> {
    told.iter().map(|told| told.2.rsplit_once(' ').unwrap().0).collect()
}

#[test]
fn output_by_records_by_time_and_wakes_have_their_places() {
    let by_records = ElementSettings { output: OutputPolicy::Records(2), ..ElementSettings::default() };
    let mut driver = Driver::new(elements(1, by_records, ElementState::in_memory()));
    driver.records(0, &[&one(1, 1, 0), &one(2, 1, 0), &one(1, 1, 0), &one(1, 1, 0), &one(1, 1, 0)]).unwrap();
    assert_eq!(
        whats(&driver.told),
        [
            "k1 record 1",
            "k2 record 1",
            "k1 record 2",
            "k1 output 2",
            "k1 record 3",
            "k1 record 4",
            "k1 output 4"
        ]
    );

    let by_time = ElementSettings { output: OutputPolicy::Every(10), ..ElementSettings::default() };
    let mut driver = Driver::new(elements(1, by_time, ElementState::in_memory()));
    let tick = |driver: &mut Driver, now| {
        driver.told.clear();
        driver.call(SeqRange::new(9, 10), |elements, out| elements.tick(now, out)).unwrap();
        whats(&driver.told).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(tick(&mut driver, 95).is_empty());
    driver.records(0, &[&one(2, 1, 0), &one(1, 1, 0), &one(2, 1, 0)]).unwrap();
    assert!(tick(&mut driver, 99).is_empty());
    assert_eq!(tick(&mut driver, 100), ["k2 output 2", "k1 output 1"], "by first touch");
    assert!(tick(&mut driver, 110).is_empty(), "nothing was touched since");

    let mut driver = Driver::new(elements(1, ElementSettings::default(), ElementState::in_memory()));
    driver.records(0, &[&one(1, 4, 20), &one(2, 8, 20), &one(3, 1, 31), &one(3, 1, 32)]).unwrap();
    assert_eq!(
        whats(&driver.told),
        ["k1 record 1", "k2 record 1", "k1 wake 21 1", "k2 wake 21 1", "k3 record 1", "k3 record 2"],
        "16 is past, so they are woken as soon as time moves"
    );
}

#[test]
fn what_waits_is_told_at_the_end_where_nothing_goes_on_from_there() {
    let by_time = ElementSettings { output: OutputPolicy::Every(10), ..ElementSettings::default() };
    for (state, expected) in [
        (ElementState::in_memory(), &["k1 wake 128 1", "k1 output 101"][..]),
        (state(&MemoryDisk::new(), 0, None, 1000), &[]),
    ] {
        let mut driver = Driver::new(elements(1, by_time, state));
        driver.records(0, &[&one(1, 32, 100)]).unwrap();
        driver.told.clear();
        driver.call(SeqRange::new(1, 2), |elements, out| elements.finish(out)).unwrap();
        assert_eq!(whats(&driver.told), expected);
    }
}

#[test]
fn the_forgotten_leave_the_state_and_the_unloaded_only_memory() {
    for (on, left) in [(OnExpiry::Forget, 1), (OnExpiry::Unload, 101)] {
        let settings =
            ElementSettings { expiry: Some(Expiry { after: 100, on }), ..ElementSettings::default() };
        let disk = MemoryDisk::new();
        let mut driver = Driver::new(elements(1, settings, state(&disk, 0, None, usize::MAX)));
        let records: Vec<Record> = (0..100).map(|key| one(key, 1, i64::from(key) / 4)).collect();
        driver.records(0, &records.iter().collect::<Vec<_>>()).unwrap();
        let commit = |driver: &mut Driver, cycle: u64| {
            let at = SeqRange::new(1000 + cycle, 1001 + cycle);
            driver.call(at, |elements, out| elements.cycle(cycle, out)).unwrap();
            let (number, mut part) = driver.parts.0.lock().unwrap().pop_front().unwrap();
            assert_eq!(number, cycle);
            part.prepare().unwrap();
            part.committed().unwrap();
        };
        commit(&mut driver, 1);
        driver.records(100, &[&one(200, 1, 500)]).unwrap();
        for tick in 0..10 {
            let at = SeqRange::new(1010 + tick, 1011 + tick);
            driver.call(at, |elements, out| elements.tick(tick as i64, out)).unwrap();
        }
        let in_memory = |driver: &Driver| driver.elements.core.cache.stats().keys;
        if on == OnExpiry::Unload {
            assert_eq!(in_memory(&driver), 1);
        }
        commit(&mut driver, 2);
        let keys = Memory::open(&disk, Some(&thalweg_state::Version::from_bytes(2_u64.to_le_bytes())))
            .map(|backend| thalweg_state::Backend::stats(&backend).keys)
            .unwrap();
        let lists = u64::from(on == OnExpiry::Forget);
        assert_eq!(keys, left + lists, "{on:?}: the new one is listed");
    }
}

/// The state of a hundred elements that were touched at 0 to 24 and one that was at 500, committed as cycle 1.
fn committed(settings: ElementSettings) -> (MemoryDisk, Vec<u8>) {
    let disk = MemoryDisk::new();
    let mut driver = Driver::new(elements(1, settings, state(&disk, 0, None, usize::MAX)));
    let records: Vec<Record> = (0..100).map(|key| one(key, 1, i64::from(key) / 4)).collect();
    driver.records(0, &records.iter().collect::<Vec<_>>()).unwrap();
    driver.records(100, &[&one(200, 1, 500)]).unwrap();
    driver.call(SeqRange::new(101, 102), |elements, out| elements.cycle(1, out)).unwrap();
    let (_, mut part) = driver.parts.0.lock().unwrap().pop_front().unwrap();
    let position = part.prepare().unwrap();
    part.committed().unwrap();
    (disk, position)
}

#[test]
fn a_scan_brings_in_elements_but_those_that_would_be_unloaded_again() {
    let expiry = |on| Some(Expiry { after: 100, on });
    for (expiry, filled) in [(None, 101), (expiry(OnExpiry::Forget), 101), (expiry(OnExpiry::Unload), 1)] {
        let settings = ElementSettings { expiry, ..ElementSettings::default() };
        let (disk, position) = committed(settings);
        let (gate, state) = eager(&disk, 1, Some(&position), usize::MAX, false);
        let mut driver = Driver::new(elements(1, settings, state));
        gate.send(()).unwrap();
        driver.fill().unwrap();
        let counts = driver.elements.cache_counts().unwrap();
        assert_eq!((counts.filled, counts.keys, counts.hits, counts.misses), (filled, filled, 0, 0));
        driver.records(102, &[&one(200, 1, 500)]).unwrap();
        assert_eq!(whats(&driver.told), ["k200 record 2"]);
        assert_eq!(driver.elements.cache_counts().unwrap().misses, 0);
    }
}

#[test]
fn a_scan_that_fails_stops_the_task() {
    let (disk, position) = committed(ElementSettings::default());
    let (gate, state) = eager(&disk, 1, Some(&position), usize::MAX, true);
    let mut driver = Driver::new(elements(1, ElementSettings::default(), state));
    gate.send(()).unwrap();
    let error = loop {
        let tick = driver.call(SeqRange::new(102, 103), |elements, out| elements.tick(1, out));
        if let Err(error) = tick {
            break error;
        }
        assert!(driver.elements.filling.is_some(), "the scan has ended well");
        std::thread::yield_now();
    };
    assert!(error.chain().contains("a test"), "{}", error.chain());
}

#[test]
fn an_error_names_the_key_and_the_record() {
    let mut driver = Driver::new(elements(1, ElementSettings::default(), ElementState::in_memory()));
    let mut at = None;
    let records = [one(1, 1, 0), one(7, POISON, 0), one(2, 1, 0)];
    let error = driver.records(5, &records.iter().collect::<Vec<_>>()).unwrap_err();
    assert_eq!(error.chain(), "element key=\"k7\": the number is poison");
    let keys: ArrayRef = Arc::new(StringViewArray::from(vec!["k1", "k7"]));
    let columns = vec![keys, Arc::new(Int64Array::from(vec![1, POISON])) as ArrayRef];
    let batch = RecordBatch::try_new(Arc::clone(numbers().arrow()), columns).unwrap();
    let range = SeqRange::new(5, 7);
    let batch = Batch::new(range, batch, vec![0, 0].into(), Seqs::Dense(5));
    let mut out = Output { who: None, emitted: &mut Vec::new(), at: &mut at, range, core: None, parts: None };
    driver.elements.process(InputId { port: 0, task: 0 }, batch, &mut out).unwrap_err();
    assert_eq!(at, Some(6));
}

#[test]
fn cycles_are_asked_for_by_records_by_time_and_when_much_has_changed() {
    let run = |checkpoint, memory| {
        let settings = ElementSettings { checkpoint, ..ElementSettings::default() };
        let state = state(&MemoryDisk::new(), 0, None, memory);
        let mut driver = Driver::new(elements(1, settings, state));
        let asked: Vec<bool> = (0..6)
            .map(|at| {
                let tick = SeqRange::new(2 * at, 2 * at + 1);
                driver.call(tick, |elements, out| elements.tick(at as i64, out)).unwrap();
                driver.records(2 * at + 1, &[&one(at as u8, 1, 0)]).unwrap();
                let asked = driver.core.is_hastened();
                if asked {
                    driver.core.cycle_begins();
                    driver.call(tick, |elements, out| elements.cycle(at + 1, out)).unwrap();
                }
                asked
            })
            .collect();
        asked.iter().map(|asked| if *asked { 'x' } else { '.' }).collect::<String>()
    };
    assert_eq!(run(CheckpointPace::Cycle, usize::MAX), "......");
    assert_eq!(run(CheckpointPace::Records(3), usize::MAX), "..x..x");
    assert_eq!(run(CheckpointPace::Every(2), usize::MAX), "..x.x.");
    let much = run(CheckpointPace::Cycle, 2_000);
    assert!(
        much.starts_with('.') && much.contains('x'),
        "a quarter of the memory is more than one of six: {much}"
    );
}
