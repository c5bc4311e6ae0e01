//! A naive model keeps all in maps: whatever the batches, cache, cycles and crashes, elements give the same as it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use thalweg_state::memory::MemoryDisk;
use thalweg_types::{LatePolicy, Micros, Seq, SeqRange};

use super::driver::Driver;
use super::late::eager;
use super::tally::{ID_PLACE, LAST, Tally, WAKES, judged};
use super::{Event, Record, Told, state, text};
use crate::Operator;
use crate::element::{
    CheckpointPace, ElementSettings, ElementState, Expiry, InputRules, OnExpiry, OutputPolicy,
};

/// An element as the model has it.
struct Known {
    tally: Tally,
    touched: Micros,
    count: u64,
    is_pending: bool,
}

/// The expected output of elements; at the end, under the number after the last event, that of waiting ones.
fn model(events: &[Event], rules: &[InputRules], settings: ElementSettings) -> Vec<Told> {
    let mut seen: BTreeMap<(usize, u8), Micros> = BTreeMap::new();
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
                let InputRules { lateness, late, ids } = rules[record.port];
                let newest = task_time.map_or(record.time, |time| time.max(record.time));
                let id = record.id.zip(ids).map(|(id, (_, span))| ((record.port, id), span));
                if id.is_some_and(|(id, span)| seen.get(&id).is_some_and(|at| newest - at < span)) {
                    continue;
                }
                let is_late = newest - record.time > lateness;
                if is_late && late == LatePolicy::Reject {
                    told.push((seq, record.time, text(None, "late", record.port as u64, 0.0)));
                    continue;
                }
                if let Some((id, _)) = id {
                    seen.insert(id, newest);
                }
                let counted = if is_late { newest - lateness } else { record.time };
                let record = &Record { time: counted, ..record.clone() };
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
    let (seq, at) = (events.len() as Seq, now.unwrap_or(0));
    for (due, keys) in wakes {
        let time = task_time.max(Some(due)).unwrap();
        for key in keys {
            if let Some(element) = known.get_mut(&key)
                && !expired(element, time)
            {
                let tally = &mut element.tally;
                told.push((seq, at, text(key, &format!("wake {due}"), tally.count, tally.sum)));
                tally.count += 100;
            }
        }
    }
    for key in pending {
        if let Some(element) = known.get_mut(&key)
            && std::mem::take(&mut element.is_pending)
            && !expired(element, task_time.unwrap())
        {
            told.push((seq, at, text(key, "output", element.tally.count, element.tally.sum)));
            element.tally.sum = 0.0;
        }
    }
    told
}

fn record(ports: usize) -> impl Strategy<Value = Record> {
    let key = prop_oneof![1 => Just(None), 9 => (0..12_u8).prop_map(Some)];
    let id = proptest::option::of(0..8_u8);
    (0..ports, key, -20..20_i64, id, 0..40_i64).prop_map(|(port, key, value, id, ahead)| Record {
        port,
        key,
        value,
        id,
        time: ahead,
    })
}

/// What an input's stream says.
fn rules() -> impl Strategy<Value = InputRules> {
    let late = prop_oneof![Just(LatePolicy::Reject), Just(LatePolicy::Clamp)];
    let ids = proptest::option::of((Just(ID_PLACE), 1..150_i64));
    let some = (0..40_i64, late, ids).prop_map(|(lateness, late, ids)| InputRules { lateness, late, ids });
    prop_oneof![1 => Just(InputRules::ALL), 3 => some]
}

/// Times of records and ticks count from the event before; records may be older.
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
        (rules, events) in (1..=2_usize)
            .prop_flat_map(|ports| (proptest::collection::vec(rules(), ports), events(ports))),
        settings in settings(),
        sizes in proptest::collection::vec(1..20_usize, 1..20),
        lives in proptest::collection::vec(life(), 0..5),
    ) {
        let expected = model(&events, &rules, settings);
        let mut sizes = sizes.iter().copied().cycle();

        let mut plain = Driver::new(judged(&rules, settings, ElementState::in_memory()));
        plain.run(&events, 0, &mut sizes, &mut 0);
        let end = events.len() as Seq;
        plain.call(SeqRange::new(end, end + 1), |elements, out| elements.finish(out)).unwrap();
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
            let mut driver = Driver::new(judged(&rules, settings, state));
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
