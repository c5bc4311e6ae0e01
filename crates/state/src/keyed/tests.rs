use std::collections::BTreeMap;
use std::collections::VecDeque;

use proptest::prelude::*;
use thalweg_types::Error;

use super::*;
use crate::memory::{Memory, MemoryDisk};
use crate::testing::scanned;
use crate::{StateError, Version};

struct Texts;

impl Codec for Texts {
    type Value = String;

    fn save(&self, value: &String, into: &mut Vec<u8>) {
        into.extend_from_slice(value.as_bytes());
    }

    fn load(&self, bytes: &[u8]) -> Result<String, Error> {
        String::from_utf8(bytes.to_vec()).map_err(|_| Error::corrupt("a text is no UTF-8"))
    }

    fn heap_bytes(&self, value: &String) -> usize {
        value.capacity()
    }
}

type Model = BTreeMap<u8, String>;

#[derive(Clone, Debug)]
enum Step {
    Append(u8, u8),
    /// Of many keys, which are looked for at once: appends to each, or removes it; keys may repeat.
    ChangeAll(Vec<(u8, Option<u8>)>),
    Remove(u8),
    Get(u8),
    Prefetch(Vec<u8>),
    Mark,
    Save(usize),
    /// The other thread writes the oldest hand-over.
    Write,
    /// The oldest that was written is committed.
    Commit,
    Unload,
    /// A scan of the back end begins.
    Scan,
    /// Some of what it finds is taken over: as it was when it began, or as it is.
    Fill(usize, bool),
    Crash(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..24_u8;
    prop_oneof![
        12 => (key(), any::<u8>()).prop_map(|(key, text)| Step::Append(key, text)),
        3 => proptest::collection::vec((key(), any::<Option<u8>>()), 0..12).prop_map(Step::ChangeAll),
        3 => key().prop_map(Step::Remove),
        4 => key().prop_map(Step::Get),
        1 => proptest::collection::vec(key(), 0..12).prop_map(Step::Prefetch),
        3 => Just(Step::Mark),
        5 => (1..6_usize).prop_map(Step::Save),
        4 => Just(Step::Write),
        3 => Just(Step::Commit),
        2 => Just(Step::Unload),
        1 => Just(Step::Scan),
        4 => (1..8_usize, any::<bool>()).prop_map(|(keys, is_old)| Step::Fill(keys, is_old)),
        1 => (0..4000_usize).prop_map(Step::Crash),
    ]
}

/// A cache, what it should hold, and the changes on their way to the disk.
struct Run {
    disk: MemoryDisk,
    backend: Arc<Memory>,
    memory: usize,
    /// What the back end had when the scan began, and is not taken over yet.
    scan: Vec<(Vec<u8>, Vec<u8>)>,
    keyed: Keyed<Texts>,
    model: Model,
    cycle: u64,
    /// The model at each marker that is not committed.
    marked: VecDeque<(u64, Model)>,
    handed: VecDeque<HandOver>,
    written: VecDeque<(HandOver, Version)>,
    committed: (u64, Option<Version>, Model),
}

impl Run {
    fn new(memory: usize) -> Self {
        let disk = MemoryDisk::new();
        let (backend, keyed) = open(&disk, 0, None, memory);
        Self {
            disk,
            backend,
            memory,
            scan: Vec::new(),
            keyed,
            model: Model::new(),
            cycle: 0,
            marked: VecDeque::new(),
            handed: VecDeque::new(),
            written: VecDeque::new(),
            committed: (0, None, Model::new()),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append(key, text) => {
                let text = format!("{text}, ");
                self.model.entry(*key).or_default().push_str(&text);
                let change =
                    |value: &mut Option<String>| value.get_or_insert_with(String::new).push_str(&text);
                self.keyed.change(&[*key], change).unwrap();
            }
            Step::ChangeAll(changes) => {
                let keys: Vec<[u8; 1]> = changes.iter().map(|(key, _)| [*key]).collect();
                let mut places = Vec::new();
                self.keyed.guess(keys.iter().map(|key| &key[..]), &mut places);
                self.keyed.warm(&places);
                for (((key, text), bytes), place) in changes.iter().zip(&keys).zip(places) {
                    let text = text.map(|text| format!("{text}, "));
                    let before = self.model.get(key).cloned();
                    let after = text.map(|text| before.clone().unwrap_or_default() + &text);
                    let change = |value: &mut Option<String>| std::mem::replace(value, after.clone());
                    assert_eq!(self.keyed.change_at(place, bytes, change).unwrap(), before);
                    match after {
                        Some(after) => _ = self.model.insert(*key, after),
                        None => _ = self.model.remove(key),
                    }
                }
                self.keyed.settle();
            }
            Step::Remove(key) => {
                let expected = self.model.remove(key);
                assert_eq!(self.keyed.change(&[*key], Option::take).unwrap(), expected);
            }
            Step::Get(key) => assert_eq!(self.keyed.get(&[*key]).unwrap(), self.model.get(key)),
            Step::Prefetch(keys) => self.keyed.prefetch(keys.chunks(1)).unwrap(),
            Step::Mark => {
                self.cycle += 1;
                let earlier = self.keyed.begin_cycle(self.cycle);
                self.handed.extend(earlier);
                self.marked.push_back((self.cycle, self.model.clone()));
            }
            Step::Save(keys) => {
                let done = self.keyed.save_some(Slice { keys: *keys, bytes: usize::MAX });
                self.handed.extend(done);
            }
            Step::Write => {
                if let Some(mut handed) = self.handed.pop_front() {
                    let version = handed.prepare().unwrap();
                    self.written.push_back((handed, version));
                }
            }
            Step::Commit => {
                if let Some((handed, version)) = self.written.pop_front() {
                    let (cycle, model) = self.marked.pop_front().unwrap();
                    assert_eq!(cycle, handed.cycle());
                    handed.committed().unwrap();
                    self.committed = (cycle, Some(version), model);
                }
            }
            Step::Unload => drop(self.keyed.unload(i64::MAX, 5)),
            Step::Scan => {
                self.keyed.begin_fill();
                self.scan = scanned(self.backend.as_ref()).unwrap().into_iter().collect();
            }
            Step::Fill(keys, is_old) => self.fill(*keys, *is_old),
            Step::Crash(memory) => {
                let (cycle, version, model) = &self.committed;
                (self.backend, self.keyed) = open(&self.disk, *cycle, version.as_ref(), *memory);
                self.memory = *memory;
                self.scan.clear();
                (self.cycle, self.model) = (*cycle, model.clone());
                self.marked.clear();
                self.handed.clear();
                self.written.clear();
            }
        }
    }
}

impl Run {
    fn fill(&mut self, keys: usize, is_old: bool) {
        let before = self.keyed.stats();
        let mut wants_more = true;
        for (key, old) in self.scan.split_off(self.scan.len().saturating_sub(keys)) {
            let value = if is_old { Some(old) } else { self.backend.get(&key).unwrap() };
            let Some(value) = value else { continue };
            let is_taken = self.keyed.fill(&key, &value).unwrap();
            assert!(wants_more || !is_taken, "memory was full");
            wants_more = is_taken;
        }
        let after = self.keyed.stats();
        assert_eq!((after.hits, after.misses), (before.hits, before.misses));
        assert_eq!(after.keys - before.keys, after.filled - before.filled);
        assert!(after.keys == before.keys || after.bytes <= self.memory as u64, "{after:?}");
    }
}

fn open(
    disk: &MemoryDisk,
    cycle: u64,
    version: Option<&Version>,
    memory: usize,
) -> (Arc<Memory>, Keyed<Texts>) {
    let backend = Arc::new(Memory::open(disk, version).unwrap());
    (Arc::clone(&backend), Keyed::over(backend, cycle, memory, Texts))
}

fn commit(run: &mut Run) {
    for step in [Step::Mark, Step::Save(1000), Step::Write, Step::Commit] {
        run.step(&step);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn it_is_a_map_that_comes_back_as_it_was_at_the_last_commit(
        memory in 0..4000_usize,
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let mut run = Run::new(memory);
        for step in &steps {
            run.step(step);
        }
        for key in 0..24 {
            run.step(&Step::Get(key));
        }
        run.step(&Step::Crash(memory));
        for key in 0..24 {
            run.step(&Step::Get(key));
        }
    }

    #[test]
    fn what_is_handed_over_is_the_same_with_a_scan_and_without(
        memory in 0..4000_usize,
        steps in proptest::collection::vec(step(), 1..150),
    ) {
        let [mut eager, mut lazy] = [Run::new(memory), Run::new(memory)];
        for step in &steps {
            eager.step(step);
            if !matches!(step, Step::Scan | Step::Fill(..)) {
                lazy.step(step);
            }
            prop_assert_eq!(eager.handed.len(), lazy.handed.len());
            let handed = eager.handed.iter().zip(&lazy.handed);
            for (one, other) in handed {
                prop_assert!(one.changes().iter().eq(other.changes().iter()));
            }
        }
    }
}

#[test]
fn clean_values_make_room_and_changed_ones_stay() {
    let mut run = Run::new(10_000);
    for key in 0..=255 {
        run.step(&Step::Append(key, key));
    }
    let all = run.keyed.bytes();
    assert!(all > 20_000, "{all}");
    assert_eq!(run.keyed.stats().evictions, 0, "nothing has been written yet");
    run.step(&Step::Mark);
    run.step(&Step::Save(1000));
    run.step(&Step::Append(0, 0));
    assert_eq!(run.keyed.stats().evictions, 0, "handed over is not written");
    run.step(&Step::Write);
    for _ in 0..20 {
        run.step(&Step::Get(7));
    }
    assert!(run.keyed.bytes() <= 10_000, "{}", run.keyed.bytes());
    let before = run.keyed.stats();
    assert!(before.evictions > 100);
    run.step(&Step::Get(0));
    run.step(&Step::Get(7));
    assert_eq!(run.keyed.stats().misses, before.misses, "one was changed, the other used");
    run.step(&Step::Get(8));
    assert_eq!(run.keyed.stats().misses, before.misses + 1);
}

#[test]
fn a_batch_of_keys_is_read_once_each() {
    let mut run = Run::new(usize::MAX);
    for key in 0..100 {
        run.step(&Step::Append(key, 1));
    }
    run.step(&Step::Append(1, 1));
    assert_eq!(run.keyed.stats().misses, 0, "a missing key does not exist");
    commit(&mut run);
    run.step(&Step::Crash(usize::MAX));
    run.step(&Step::Prefetch(vec![3, 4, 3, 200, 4, 200]));
    assert_eq!(run.keyed.stats().misses, 3);
    for key in [3, 4, 200] {
        run.step(&Step::Get(key));
    }
    assert_eq!((run.keyed.stats().misses, run.keyed.stats().hits), (3, 3));
}

/// Ten values that only the back end has.
fn restarted() -> Run {
    let mut run = Run::new(usize::MAX);
    for key in 0..10 {
        run.step(&Step::Append(key, 1));
    }
    commit(&mut run);
    run.step(&Step::Crash(usize::MAX));
    run
}

#[test]
fn a_scan_fills_what_is_missing_and_counts_it_neither_as_hit_nor_as_miss() {
    let mut run = restarted();
    run.step(&Step::Scan);
    run.step(&Step::Append(3, 9));
    run.step(&Step::Fill(100, true));
    let KeyedStats { keys, hits, misses, filled, .. } = run.keyed.stats();
    assert_eq!((keys, hits, misses, filled), (10, 0, 1, 9));
    for key in 0..10 {
        run.step(&Step::Get(key));
    }
    assert_eq!((run.keyed.stats().hits, run.keyed.stats().misses), (10, 1));
    run.keyed.end_fill();
    assert!(!run.keyed.fill(b"late", b"1").unwrap(), "the scan is over");
}

#[test]
fn a_scan_brings_no_value_of_a_key_that_has_changed_and_left_since_it_began() {
    let mut run = restarted();
    run.step(&Step::Scan);
    run.step(&Step::Append(3, 9));
    run.step(&Step::Remove(4));
    run.step(&Step::Get(5));
    commit(&mut run);
    assert_eq!(run.keyed.unload(i64::MAX, 100), 3);
    // Read again it is clean, and so it is when it leaves the second time.
    run.step(&Step::Get(3));
    assert_eq!(run.keyed.unload(i64::MAX, 100), 1);
    run.step(&Step::Fill(100, true));
    assert_eq!(run.keyed.stats().filled, 8, "all but the two that were changed");
    for key in 0..10 {
        run.step(&Step::Get(key));
    }
}

#[test]
fn a_scan_brings_in_no_more_than_memory_takes_and_it_leaves_before_what_was_used() {
    let mut run = Run::new(usize::MAX);
    for key in 0..=255 {
        run.step(&Step::Append(key, key));
    }
    commit(&mut run);
    run.step(&Step::Crash(10_000));
    for key in 0..20 {
        run.step(&Step::Get(key));
    }
    run.step(&Step::Scan);
    run.step(&Step::Fill(256, true));
    let before = run.keyed.stats();
    assert!(before.filled > 30 && before.keys < 100 && run.keyed.bytes() <= 10_000, "{before:?}");
    for key in 0..10 {
        run.step(&Step::Get(255 - key));
    }
    for key in 0..20 {
        run.step(&Step::Get(key));
    }
    let after = run.keyed.stats();
    assert!(after.misses <= before.misses + 10 && after.evictions > 0, "{after:?}");
}

#[test]
fn what_a_scan_has_brought_is_unloaded_as_if_it_had_been_used_when_the_scan_began() {
    let mut run = restarted();
    run.keyed.set_stamp(5);
    run.step(&Step::Scan);
    run.keyed.set_stamp(7);
    run.step(&Step::Append(3, 9));
    run.step(&Step::Fill(100, true));
    assert_eq!(run.keyed.unload(4, 100), 0);
    assert_eq!(run.keyed.unload(5, 100), 9);
    assert_eq!(run.keyed.stats().keys, 1);
}

#[test]
fn what_nothing_touched_is_unloaded_once_it_is_clean() {
    let mut run = Run::new(usize::MAX);
    for key in 0..10 {
        run.keyed.set_stamp(i64::from(key));
        run.step(&Step::Append(key, 1));
    }
    assert_eq!(run.keyed.unload(4, 100), 0, "nothing is clean");
    for step in [Step::Mark, Step::Save(1000), Step::Write] {
        run.step(&step);
    }
    run.step(&Step::Append(2, 2));
    assert_eq!(run.keyed.unload(4, 2), 2);
    assert_eq!(run.keyed.unload(4, 100), 2, "one was used again");
    assert_eq!(run.keyed.stats().keys, 6);
    for key in 0..10 {
        run.step(&Step::Get(key));
    }
}

/// A back end that fails when it is read.
#[derive(Debug)]
struct Broken;

impl Backend for Broken {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        Err(StateError::TooLarge { what: "a test", bytes: key.len() as u64, max: 0 })
    }

    fn write(&self, _: u64, _: &Changes) -> Result<(), StateError> {
        Ok(())
    }

    fn prepare(&self, _: u64) -> Result<Version, StateError> {
        Ok(Version::from_bytes([]))
    }

    fn committed(&self, _: u64) -> Result<(), StateError> {
        Ok(())
    }

    fn scan(&self, _: &mut crate::backend::Visit<'_>) -> Result<(), StateError> {
        Ok(())
    }

    fn stats(&self) -> crate::BackendStats {
        crate::BackendStats { keys: 1, ..crate::BackendStats::default() }
    }
}

#[test]
fn a_failed_read_is_an_error_each_time_and_never_no_value() {
    let mut keyed = Keyed::over(Arc::new(Broken), 0, 1000, Texts);
    for _ in 0..2 {
        assert!(keyed.prefetch([b"a" as &[u8], b"b"]).is_err());
        assert!(keyed.get(b"a").is_err());
        assert!(keyed.change(b"b", |value| *value = None).is_err());
    }
    assert_eq!(keyed.stats().keys, 0);
}

#[test]
fn without_a_back_end_all_stays_and_what_is_removed_goes() {
    let mut keyed = Keyed::in_memory(Texts);
    for key in 0..100_u8 {
        keyed.change(&[key], |value| *value = Some("text".repeat(100))).unwrap();
    }
    assert!(keyed.begin_cycle(1).is_none() && !keyed.is_saving() && !keyed.is_durable());
    assert_eq!(keyed.stats().keys, 100);
    keyed.change(&[3], Option::take).unwrap();
    assert!(keyed.get(&[3]).unwrap().is_none() && keyed.get(&[200]).unwrap().is_none());
    assert_eq!(keyed.stats().keys, 99);
}

/// Anybody can make such keys; that they are many must not make each of them slow.
#[test]
fn keys_of_one_public_hash_are_found_with_few_looks() {
    let keys: Vec<Vec<u8>> = (0..20_000).map(crate::testing::twin).collect();
    let mut keyed = Keyed::in_memory(Texts);
    let before = super::slots::LOOKS.get();
    for _ in 0..2 {
        for key in &keys {
            keyed.change(key, |value| *value = Some("there".to_owned())).unwrap();
        }
    }
    let looks = super::slots::LOOKS.get() - before;
    assert!(looks < 4 * keys.len() as u64, "{looks} looks at {} keys", keys.len());
}

#[test]
fn long_keys_and_an_empty_one_are_found_and_measured() {
    let mut keyed = Keyed::in_memory(Texts);
    let keys: Vec<Vec<u8>> = (0..80).map(|length| vec![7; length]).collect();
    for key in &keys {
        keyed.change(key, |value| *value = Some(format!("{}", key.len()))).unwrap();
    }
    let full = keyed.bytes();
    for key in &keys {
        assert_eq!(keyed.get(key).unwrap(), Some(&format!("{}", key.len())));
    }
    let mut places = Vec::new();
    keyed.guess(keys.iter().map(Vec::as_slice), &mut places);
    for (key, place) in keys.iter().zip(&places) {
        keyed.change_at(*place, key, |value| *value = None).unwrap();
    }
    keyed.settle();
    assert_eq!((keyed.bytes(), keyed.stats().keys), (0, 0), "of {full} bytes");
    // The places are free now: what was there is not found at them.
    for (key, place) in keys.iter().zip(places) {
        assert!(keyed.change_at(place, key, |value| value.is_none()).unwrap());
    }
    keyed.settle();
    assert_eq!(keyed.bytes(), 0);
}
